// Package memory is a [cas.Backend] in memory: for tests and for stores that
// end with their process. Nothing in it survives anything.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"sync"

	"leafproof/cas"
)

// Backend holds objects in a map. It is safe for concurrent use.
type Backend struct {
	mu      sync.RWMutex
	objects map[cas.Name][]byte // values are never modified
	uploads uploads
}

var (
	_ cas.Backend = (*Backend)(nil)
	_ cas.Stager  = (*Backend)(nil)
	_ cas.Opener  = (*Backend)(nil)
)

// New returns an empty Backend.
func New() *Backend { return &Backend{objects: make(map[cas.Name][]byte)} }

// Put implements [cas.Backend].
func (b *Backend) Put(ctx context.Context, name cas.Name, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := b.object(name); ok {
		return nil
	}
	var data bytes.Buffer
	if err := cas.CopyExactly(ctx, &data, r, size); err != nil {
		return &cas.Error{Op: "put", Name: name, Err: err}
	}
	b.keep(name, data.Bytes())
	return nil
}

// keep stores data, which the caller gives up, unless the name is taken.
func (b *Backend) keep(name cas.Name, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[name]; !ok {
		b.objects[name] = data
	}
}

func (b *Backend) object(name cas.Name) ([]byte, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.objects[name]
	return data, ok
}

// Get implements [cas.Backend].
func (b *Backend) Get(ctx context.Context, name cas.Name, off, n int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, ok := b.object(name)
	if !ok {
		return nil, &cas.Error{Op: "get", Name: name, Err: cas.ErrNotFound}
	}
	size := int64(len(data))
	if off < 0 || off > size || n > size-off {
		return nil, &cas.Error{Op: "get", Name: name, Err: fmt.Errorf("%w: %d bytes from %d of %d", cas.ErrRange, n, off, size)}
	}
	if n < 0 {
		n = size - off
	}
	return io.NopCloser(bytes.NewReader(data[off : off+n])), nil
}

// List implements [cas.Backend].
func (b *Backend) List(ctx context.Context, tenant cas.Tenant, kind cas.Kind, idPrefix []byte) iter.Seq2[cas.Name, error] {
	return func(yield func(cas.Name, error) bool) {
		b.mu.RLock()
		var names []cas.Name
		for name := range b.objects {
			if name.Tenant == tenant && name.Kind == kind && bytes.HasPrefix(name.ID[:], idPrefix) {
				names = append(names, name)
			}
		}
		b.mu.RUnlock()
		slices.SortFunc(names, cas.Name.Compare)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield(cas.Name{}, err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil && len(names) == 0 {
			yield(cas.Name{}, err)
		}
	}
}

// Delete implements [cas.Backend].
func (b *Backend) Delete(ctx context.Context, names ...cas.Name) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		delete(b.objects, name)
	}
	return nil
}

// OpenAt implements [cas.Opener].
func (b *Backend) OpenAt(ctx context.Context, name cas.Name) (cas.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, ok := b.object(name)
	if !ok {
		return nil, &cas.Error{Op: "open", Name: name, Err: cas.ErrNotFound}
	}
	return object{bytes.NewReader(data)}, nil
}

type object struct{ *bytes.Reader } // only ReadAt and Size are reached

func (object) Close() error { return nil }

// Stage implements [cas.Stager].
func (b *Backend) Stage(ctx context.Context, _ cas.Tenant) (cas.Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &stage{b: b}, nil
}

type stage struct {
	b    *Backend
	mu   sync.Mutex
	data []byte
	used bool
}

func (s *stage) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return 0, fs.ErrClosed
	}
	if off < 0 {
		return 0, cas.ErrRange
	}
	if gap := off + int64(len(p)) - int64(len(s.data)); gap > 0 {
		s.data = append(s.data, make([]byte, gap)...)
	}
	return copy(s.data[off:], p), nil
}

func (s *stage) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return 0, fs.ErrClosed
	}
	return bytes.NewReader(s.data).ReadAt(p, off)
}

func (s *stage) Commit(ctx context.Context, name cas.Name, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return fs.ErrClosed
	}
	data := s.data
	s.used, s.data = true, nil
	if err := ctx.Err(); err != nil {
		return err
	}
	if int64(len(data)) != size {
		return &cas.Error{Op: "commit", Name: name, Err: fmt.Errorf("%w: %d, stated %d", cas.ErrSize, len(data), size)}
	}
	s.b.keep(name, data)
	return nil
}

func (s *stage) Discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.data = true, nil
	return nil
}
