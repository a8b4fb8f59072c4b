package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"
)

// Stager is a [Backend] that can take an object before its name is known.
// Callers use [NewStage], which falls back.
type Stager interface {
	// Stage opens an unfinished object. Nothing of it shows in Get or List.
	Stage(ctx context.Context, tenant Tenant) (Stage, error)
}

// Stage is an unfinished object, empty at first. Calls to WriteAt may not
// overlap in time with Commit or Discard.
type Stage interface {
	io.WriterAt
	io.ReaderAt
	// Commit publishes the object, of exactly size bytes, with the promises of
	// [Backend.Put]: durable on return; a taken name stays as it is. Whatever
	// it returns, the Stage is used up.
	Commit(ctx context.Context, name Name, size int64) error
	// Discard throws it away; after Commit or Discard it does nothing.
	Discard() error
}

// LooseStage is a [Stage] that can give an object its name without waiting for a
// disk. Callers use [CommitLoose], which falls back to Commit.
type LooseStage interface {
	Stage
	// CommitLoose is Commit without its promise to survive a crash: after one,
	// the name may be gone, or have any bytes, of any number.
	CommitLoose(ctx context.Context, name Name, size int64) error
}

// CommitLoose publishes a staged object that need not survive a crash.
func CommitLoose(ctx context.Context, s Stage, name Name, size int64) error {
	if l, ok := s.(LooseStage); ok {
		return l.CommitLoose(ctx, name, size)
	}
	return s.Commit(ctx, name, size)
}

// Staged is an unfinished object with the name and the size that it is to get.
type Staged struct {
	Stage Stage
	Name  Name
	Size  int64
}

// StageGrouper is a [Backend] that makes many staged objects durable in fewer
// steps than one after the other. Callers use [CommitStages].
type StageGrouper interface {
	// CommitStages commits stages of this backend, with the promises of
	// [Stage.Commit] for each when it returns nil. After an error any of them
	// may have its name. Whatever it returns, the stages are used up.
	CommitStages(ctx context.Context, list []Staged) error
}

// CommitStages commits staged objects of b, together if b can.
func CommitStages(ctx context.Context, b Backend, list []Staged) error {
	if g, ok := b.(StageGrouper); ok {
		return g.CommitStages(ctx, list)
	}
	var err error
	for _, item := range list {
		if err == nil {
			err = item.Stage.Commit(ctx, item.Name, item.Size)
		} else {
			err = errors.Join(err, item.Stage.Discard())
		}
	}
	return err
}

// Opener is a [Backend] that can keep an object open for many reads. Callers
// use [OpenObject], which falls back.
type Opener interface {
	OpenAt(ctx context.Context, name Name) (Object, error)
}

// Object is one open object. ReadAt is safe for concurrent use. What it reads
// is untrusted, also from one call to the next.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size is the object's length in bytes when it was opened.
	Size() int64
}

// NewStage opens an unfinished object on b. When b is no [Stager] the bytes
// wait in a temporary file of the operating system and reach b at Commit.
func NewStage(ctx context.Context, b Backend, tenant Tenant) (Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s, ok := b.(Stager); ok {
		return s.Stage(ctx, tenant)
	}
	file, err := os.CreateTemp("", "leafproof-stage-*")
	if err != nil {
		return nil, err
	}
	return &spool{b: b, file: file}, nil
}

// spool is the Stage of a backend that has none of its own.
type spool struct {
	b    Backend
	file *os.File // nil once used up
}

func (s *spool) WriteAt(p []byte, off int64) (int, error) {
	if s.file == nil {
		return 0, fs.ErrClosed
	}
	return s.file.WriteAt(p, off)
}

func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file == nil {
		return 0, fs.ErrClosed
	}
	return s.file.ReadAt(p, off)
}

func (s *spool) Commit(ctx context.Context, name Name, size int64) (err error) {
	if s.file == nil {
		return fs.ErrClosed
	}
	defer func() {
		if e := s.Discard(); err == nil {
			err = e
		}
	}()
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size {
		return &Error{Op: "commit", Name: name, Err: fmt.Errorf("%w: %d, stated %d", ErrSize, info.Size(), size)}
	}
	return s.b.Put(ctx, name, io.NewSectionReader(s.file, 0, size), size)
}

func (s *spool) Discard() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// OpenObject opens an object of b for many reads. When b is no [Opener], each
// ReadAt is a Get, and the size is found by some 60 Gets of empty ranges.
func OpenObject(ctx context.Context, b Backend, name Name) (Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o, ok := b.(Opener); ok {
		return o.OpenAt(ctx, name)
	}
	var failed error
	within := func(off int64) bool { // an object of size s has an empty range at 0..s
		r, err := b.Get(ctx, name, off, 0)
		switch {
		case err == nil:
			failed = errors.Join(failed, r.Close())
			return true
		case !errors.Is(err, ErrRange):
			failed = err
		}
		return false
	}
	bound := 1 << 14
	for within(int64(bound)) && failed == nil && bound < 1<<61 {
		bound *= 2
	}
	beyond := sort.Search(bound, func(off int) bool { return failed == nil && !within(int64(off)) })
	if failed != nil {
		return nil, failed
	}
	return &getObject{ctx: context.WithoutCancel(ctx), b: b, name: name, size: int64(beyond) - 1}, nil
}

// getObject is the Object of a backend that has none of its own.
type getObject struct {
	ctx  context.Context // carries values only
	b    Backend
	name Name
	size int64
}

func (o *getObject) Size() int64  { return o.size }
func (o *getObject) Close() error { return nil }

func (o *getObject) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, ErrRange
	}
	if off >= o.size {
		return 0, io.EOF
	}
	n := min(int64(len(p)), o.size-off)
	r, err := o.b.Get(o.ctx, o.name, off, n)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	got, err := io.ReadFull(r, p[:n])
	if err == nil && got < len(p) {
		err = io.EOF
	}
	return got, err
}

// exactRooms are buffers of CopyExactly.
var exactRooms = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// CopyExactly copies exactly size bytes from r to w. A reader that ends early
// or goes on is ErrSize; between two buffers it looks at ctx. It is what a
// Backend's Put needs. size is not trusted for any allocation.
func CopyExactly(ctx context.Context, w io.Writer, r io.Reader, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: %d is negative", ErrSize, size)
	}
	var buf []byte
	if size < 16<<10 {
		buf = make([]byte, size+1)
	} else {
		room := exactRooms.Get().(*[256 << 10]byte)
		defer exactRooms.Put(room)
		buf = room[:min(size+1, int64(len(room)))]
	}
	var done int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		// One byte more than is left: that is how a long reader shows.
		n, err := r.Read(buf[:min(int64(len(buf))-1, size-done)+1])
		done += int64(n)
		if done > size {
			return fmt.Errorf("%w: more than %d", ErrSize, size)
		}
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF && done == size:
			return nil
		case err == io.EOF:
			return fmt.Errorf("%w: %d of %d", ErrSize, done, size)
		case err != nil:
			return err
		}
	}
}
