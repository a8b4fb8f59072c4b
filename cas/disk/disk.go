// Package disk is the [cas.Backend] of a directory: one file per object, named
// as [cas.Name.String] says.
//
// Put and Commit return after the file and its name are fsynced, by the one
// sequence of rootfs.Publish. Unfinished files never show in List or Get; those
// of a dead writer are harmless. Any number of processes may use one directory.
// The package trusts the directory with nothing: what it reads is checked above
// it.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/internal/rootfs"
)

// stageDir is the folder, within a tenant's, of objects whose name is not
// known yet.
const stageDir = "tmp"

// Backend keeps objects as files. It is safe for concurrent use.
type Backend struct {
	fsys  afero.Fs
	dir   string // for messages
	close func() error

	mu    sync.Mutex
	parts map[string]bool // of uploads, open in this process, where files have no locks
}

var (
	_ cas.Backend = (*Backend)(nil)
	_ cas.Stager  = (*Backend)(nil)
	_ cas.Opener  = (*Backend)(nil)
)

// Open returns the Backend of the directory dir, which is made, durably, if it
// is missing. Everything below it is made when it is first needed.
func Open(dir string) (*Backend, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeAll(dir); err != nil {
			return nil, explain(dir, err)
		}
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return nil, explain(dir, err)
	}
	b := New(root)
	b.close = root.Close
	return b, nil
}

// makeAll creates dir and its missing parents through rootfs, so that they
// survive a crash like everything else.
func makeAll(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	base := filepath.Dir(dir)
	for {
		if _, err := os.Stat(base); !errors.Is(err, fs.ErrNotExist) || base == filepath.Dir(base) {
			break
		}
		base = filepath.Dir(base)
	}
	root, err := rootfs.Open(base)
	if err != nil {
		return err
	}
	defer root.Close()
	rel, err := filepath.Rel(base, dir)
	if err != nil {
		return err
	}
	return rootfs.MakeDirs(root, filepath.ToSlash(rel))
}

// New returns the Backend of a file system whose root is the store's folder.
// It is as durable as the file system's Sync; without a Link method it is for
// one process only.
func New(fsys afero.Fs) *Backend {
	return &Backend{fsys: fsys, dir: fsys.Name(), close: func() error { return nil }}
}

// Close releases the directory. Open objects stay readable.
func (b *Backend) Close() error { return b.close() }

// fail turns what the file system says into what a caller can tell apart.
func (b *Backend) fail(op string, name cas.Name, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = cas.ErrNotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, cas.ErrSize), errors.Is(err, cas.ErrRange), errors.Is(err, cas.ErrBusy):
	default:
		err = explain(b.dir, err)
	}
	return &cas.Error{Op: op, Name: name, Err: err}
}

// explain names the store's folder in an error of the operating system: the
// folder, not the file in it, is what a user can repair.
func explain(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: %w", dir, cas.ErrFull, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is on a read-only file system: %w", dir, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: no permission: %w", dir, err)
	}
	return fmt.Errorf("%s: %w", dir, err)
}

// Put implements [cas.Backend].
func (b *Backend) Put(ctx context.Context, name cas.Name, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := rootfs.Publish(b.fsys, name.String(), false, func(f afero.File) error {
		return cas.CopyExactly(ctx, f, r, size)
	})
	return b.fail("put", name, b.taken(name, err))
}

// taken turns "the name is taken" into success, once the resident name is
// durable: whoever made it may not have come to its fsync yet.
func (b *Backend) taken(name cas.Name, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return rootfs.SyncDirs(b.fsys, path.Dir(name.String()))
}

// Get implements [cas.Backend].
func (b *Backend) Get(ctx context.Context, name cas.Name, off, n int64) (io.ReadCloser, error) {
	o, err := b.open(ctx, "get", name)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > o.size || n > o.size-off {
		o.Close()
		return nil, b.fail("get", name, fmt.Errorf("%w: %d bytes from %d of %d", cas.ErrRange, n, off, o.size))
	}
	if n < 0 {
		n = o.size - off
	}
	return &section{o: o, off: off, end: off + n}, nil
}

// section reads [off, end) of an object; an early end is an error.
type section struct {
	o        *object
	off, end int64
}

func (s *section) Read(p []byte) (int, error) {
	if s.off == s.end {
		return 0, io.EOF
	}
	n, err := s.o.ReadAt(p[:min(int64(len(p)), s.end-s.off)], s.off)
	s.off += int64(n)
	if err == io.EOF {
		err = nil
		if n == 0 && len(p) > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (s *section) Close() error { return s.o.Close() }

// OpenAt implements [cas.Opener].
func (b *Backend) OpenAt(ctx context.Context, name cas.Name) (cas.Object, error) {
	o, err := b.open(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return o, nil
}

type object struct {
	afero.File
	size int64
}

func (o *object) Size() int64 { return o.size }

func (b *Backend) open(ctx context.Context, op string, name cas.Name) (*object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := b.fsys.Open(name.String())
	if err != nil {
		return nil, b.fail(op, name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a regular file", cas.ErrCorrupt)
	}
	if err != nil {
		f.Close()
		return nil, b.fail(op, name, err)
	}
	return &object{f, info.Size()}, nil
}

// List implements [cas.Backend]. It holds the names of one fan-out folder at a
// time.
func (b *Backend) List(ctx context.Context, tenant cas.Tenant, kind cas.Kind, idPrefix []byte) iter.Seq2[cas.Name, error] {
	return func(yield func(cas.Name, error) bool) {
		folder := tenant.String() + "/" + kind.String()
		prefix := fmt.Sprintf("%x", idPrefix)
		fans := []string{prefix[:min(2, len(prefix))]}
		var err error
		if len(prefix) == 0 {
			fans, err = b.names(folder, "")
		}
		for _, fan := range fans {
			if err != nil {
				break
			}
			if err = ctx.Err(); err != nil {
				break
			}
			var files []string
			files, err = b.names(folder+"/"+fan, prefix)
			for _, file := range files {
				name, bad := cas.ParseName(folder + "/" + fan + "/" + file)
				if bad != nil {
					continue // unfinished, or not ours
				}
				if !yield(name, nil) {
					return
				}
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(cas.Name{}, b.fail("list", cas.Name{}, err))
		}
	}
}

// names returns the sorted names in dir that begin with prefix; a missing dir,
// or a file in its place, has none.
func (b *Backend) names(dir, prefix string) ([]string, error) {
	d, err := b.fsys.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if info, err := d.Stat(); err == nil && !info.IsDir() {
		return nil, nil
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(s string) bool { return !strings.HasPrefix(s, prefix) })
	slices.Sort(names)
	return names, nil
}

// Delete implements [cas.Backend].
func (b *Backend) Delete(ctx context.Context, names ...cas.Name) error {
	dirs := make(map[string]cas.Name)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.fsys.Remove(name.String()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b.fail("delete", name, err)
		}
		// Also of a missing one: whoever removed it may not have come to its
		// fsync, and a crash would bring it back.
		dirs[path.Dir(name.String())] = name
	}
	for dir, name := range dirs {
		if err := rootfs.SyncDir(b.fsys, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b.fail("delete", name, err)
		}
	}
	return nil
}

// Stage implements [cas.Stager].
func (b *Backend) Stage(ctx context.Context, tenant cas.Tenant) (cas.Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	temp, err := rootfs.NewTemp(b.fsys, tenant.String()+"/"+stageDir)
	if err != nil {
		return nil, b.fail("stage", cas.Name{}, err)
	}
	return &stage{b: b, temp: temp}, nil
}

type stage struct {
	b    *Backend
	temp *rootfs.Temp
}

func (s *stage) WriteAt(p []byte, off int64) (int, error) {
	if s.temp.File() == nil {
		return 0, fs.ErrClosed
	}
	n, err := s.temp.File().WriteAt(p, off)
	return n, s.b.fail("stage", cas.Name{}, err)
}

func (s *stage) ReadAt(p []byte, off int64) (int, error) {
	if s.temp.File() == nil {
		return 0, fs.ErrClosed
	}
	return s.temp.File().ReadAt(p, off)
}

func (s *stage) Commit(ctx context.Context, name cas.Name, size int64) error {
	defer s.temp.Discard()
	err := s.ready(ctx, size)
	if err == nil {
		err = s.b.taken(name, s.temp.Commit(name.String(), false))
	}
	return s.b.fail("commit", name, err)
}

func (s *stage) Discard() error { return s.temp.Discard() }

// ready reports whether a stage can be committed as so many bytes.
func (s *stage) ready(ctx context.Context, size int64) error {
	if s.temp.File() == nil {
		return fs.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := s.temp.File().Stat()
	if err == nil && info.Size() != size {
		err = fmt.Errorf("%w: %d, stated %d", cas.ErrSize, info.Size(), size)
	}
	return err
}
