package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"leafproof/merkle"
)

// Get writes the content of an artifact to w. Each byte is verified before it is
// written: what w has is right also where an error ends it, and then it is not all.
func (c *Client) Get(ctx context.Context, id string, w io.Writer) (*Artifact, error) {
	a, err := c.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	_, err = a.Copy(ctx, w, 0, a.Size())
	return a, err
}

// Copy writes the bytes [off, off+n) to w, each of them verified before; it stops at
// the artifact's end. It returns how many were written.
//
// A principal that may have the content and no proofs of it gets all of it, aside and
// verified as a whole, before the first byte is written.
func (a *Artifact) Copy(ctx context.Context, w io.Writer, off, n int64) (int64, error) {
	part, err := a.part(off, n)
	if err != nil {
		return 0, err
	}
	if part.Start == part.End && a.Size() > 0 {
		return 0, nil
	}
	if s := a.kept(); s != nil {
		return s.copy(w, part)
	}
	m, err := a.copySlices(ctx, w, part)
	if m > 0 || !isDenied(err) {
		return m, plainError(err)
	}
	s, err := a.whole(ctx)
	if err != nil {
		return 0, err
	}
	return s.copy(w, part)
}

// plainError is an error of a writer as it came from there.
func plainError(err error) error {
	if e, ok := errors.AsType[*writeError](err); ok {
		return e.err
	}
	return err
}

// part is [off, off+n) as far as there is something.
func (a *Artifact) part(off, n int64) (merkle.Range, error) {
	if off < 0 || n < 0 {
		return merkle.Range{}, fmt.Errorf("client: %d bytes from byte %d are none", n, off)
	}
	off = min(off, a.Size())
	return merkle.Range{Start: off, End: off + min(n, a.Size()-off)}, nil
}

// kept is the verified content, where it was kept aside.
func (a *Artifact) kept() *spool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plain
}

// ReadAt implements [io.ReaderAt]; each call asks the server for these bytes and
// their proof. See [Artifact.At] for reads that a context ends.
func (a *Artifact) ReadAt(p []byte, off int64) (int, error) {
	return a.readAt(context.Background(), p, off)
}

// At reads verified bytes of the artifact until ctx ends.
func (a *Artifact) At(ctx context.Context) io.ReaderAt { return readerAt{ctx, a} }

type readerAt struct {
	ctx context.Context
	a   *Artifact
}

// ReadAt implements [io.ReaderAt].
func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.a.readAt(r.ctx, p, off) }

func (a *Artifact) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("client: byte %d is none", off)
	}
	if off >= a.Size() {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	w := &into{p: p}
	n, err := a.Copy(ctx, w, off, int64(len(p)))
	if err == nil && n < int64(len(p)) {
		err = io.EOF
	}
	return int(n), err
}

// into writes to a slice of bytes, which is long enough.
type into struct {
	p []byte
	n int
}

// Write implements [io.Writer].
func (w *into) Write(b []byte) (int, error) {
	n := copy(w.p[w.n:], b)
	w.n += n
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// Save puts the content into a file, which is there when all of it was verified, and
// not before.
func (a *Artifact) Save(ctx context.Context, name string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".leafproof-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := a.Copy(ctx, f, 0, a.Size()); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// A Reader reads an artifact from one byte to the next. It is not safe for concurrent
// use.
type Reader struct {
	ctx  context.Context
	a    *Artifact
	off  int64
	s    *slice
	p    []byte // verified and not read yet
	size int64
	// tried is how often in a row something was asked for again.
	tried int
	ended error
}

// NewReader returns a reader of the verified bytes of the artifact; nothing is asked
// before the first Read.
func (a *Artifact) NewReader(ctx context.Context) *Reader {
	return &Reader{ctx: ctx, a: a, size: a.Size()}
}

// Read implements [io.Reader].
func (r *Reader) Read(p []byte) (int, error) {
	if r.ended != nil {
		return 0, r.ended
	}
	if len(p) == 0 {
		return 0, nil
	}
	if kept := r.a.kept(); kept != nil && len(r.p) == 0 {
		if r.off >= r.size {
			return 0, io.EOF
		}
		n, err := kept.ReadAt(p[:min(int64(len(p)), r.size-r.off)], r.off)
		r.off += int64(n)
		if n > 0 {
			err = nil
		}
		return n, err
	}
	for len(r.p) == 0 {
		if r.off >= r.size && r.size > 0 && r.s == nil {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
		if r.a.kept() != nil {
			return r.Read(p)
		}
	}
	n := copy(p, r.p)
	r.p, r.off, r.tried = r.p[n:], r.off+int64(n), 0
	return n, nil
}

// fill gets more verified bytes.
func (r *Reader) fill() error {
	var err error
	if r.s == nil {
		r.s, err = r.a.slice(r.ctx, merkle.Range{Start: r.off, End: r.size})
		if isDenied(err) {
			_, err = r.a.whole(r.ctx)
			return err
		}
	}
	if err == nil {
		r.p, err = r.s.next()
	}
	if err == nil {
		return nil
	}
	r.drop()
	if err == io.EOF { //nolint:errorlint // a reader's end is that value
		r.ended = err
		return err
	}
	if again(err) && r.tried < r.a.c.o.Retries && pause(r.ctx, r.tried, err) == nil {
		r.tried++
		return nil
	}
	return err
}

func (r *Reader) drop() {
	if r.s != nil {
		r.s.close()
	}
	r.s, r.p = nil, nil
}

// Seek implements [io.Seeker].
func (r *Reader) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += r.off
	case io.SeekEnd:
		off += r.size
	case io.SeekStart:
	default:
		return 0, fmt.Errorf("client: seek from %d", whence)
	}
	if off < 0 {
		return 0, fmt.Errorf("client: seek to byte %d", off)
	}
	if off != r.off {
		r.drop()
		r.off, r.ended = off, nil
	}
	return off, nil
}

// WriteTo implements [io.WriterTo].
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	r.drop()
	n, err := r.a.Copy(r.ctx, w, r.off, r.size)
	r.off += n
	return n, err
}

// Close ends what is under way.
func (r *Reader) Close() error {
	r.drop()
	r.ended = os.ErrClosed
	return nil
}
