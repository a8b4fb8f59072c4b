package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"leafproof/merkle"
)

// window is the most that is verified at once: the subtree of which a Verifier
// remembers the value.
const window = 1 << 20

// Reader reads one blob. Every byte that it returns was checked against the
// blob's root; the objects behind it may change or vanish at any time, and that
// shows as an error. It is safe for concurrent use, and must be closed.
type Reader struct {
	root   merkle.Root
	size   int64
	tree   *merkle.Tree
	closed atomic.Bool

	memory []byte // all of a small blob, verified; then all below is unused

	s      *Store
	tenant Tenant
	data   Object
	nodes  Object
	proof  *merkle.Verifier

	mu     sync.Mutex
	recent part
	second Object // see other
	looked bool   // for it
}

// part is a group of which a read wanted a part. The one that was wanted last
// stays at hand, for reads that follow each other want the rest of it next. When
// another takes its place it goes to the cache if short reads are likely to
// come back to it.
type part struct {
	number int64
	room   *group // nil: none
	n      int    // bytes of it
	keep   bool   // a short read wanted it, and none has come to its end
}

func (g *part) start() int64 { return g.number * merkle.GroupSize }
func (g *part) end() int64   { return g.start() + int64(g.n) }
func (g *part) bytes() []byte {
	if g.room == nil {
		return nil
	}
	return g.room[:g.n]
}

func newMemoryReader(root merkle.Root, data []byte) *Reader {
	size := int64(len(data))
	return &Reader{root: root, size: size, tree: merkle.NewTree(root, size, nil), memory: data}
}

// openWhole opens a blob that has an object of its own. A missing data object
// is ErrNotFound.
func (s *Store) openWhole(ctx context.Context, tenant Tenant, root merkle.Root, size int64) (*Reader, error) {
	data, err := s.openObject(ctx, Name{Tenant: tenant, Kind: KindBlob, ID: root}, size)
	if err != nil {
		return nil, err
	}
	if size <= merkle.GroupSize {
		defer data.Close()
		p := make([]byte, size)
		if err := readFullAt(data, p, 0); err != nil {
			return nil, err
		}
		if merkle.Sum(p) != root {
			return nil, ErrCorrupt
		}
		return newMemoryReader(root, p), nil
	}
	nodes, err := s.openObject(ctx, Name{Tenant: tenant, Kind: KindOutboard, ID: root}, merkle.OutboardSize(size))
	if err != nil {
		data.Close()
		if errors.Is(err, ErrNotFound) {
			// Without %w: the blob's bytes are there.
			err = fmt.Errorf("%w: its outboard is missing", ErrCorrupt)
		}
		return nil, err
	}
	tree := merkle.NewTree(root, size, nodes)
	return &Reader{
		root: root, size: size, tree: tree,
		s: s, tenant: tenant, data: data, nodes: nodes, proof: merkle.NewVerifier(tree),
	}, nil
}

// openObject opens the highest generation of a name, which must have this size.
func (s *Store) openObject(ctx context.Context, name Name, size int64) (Object, error) {
	name, err := s.latest(ctx, name)
	if err != nil {
		return nil, err
	}
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return nil, err
	}
	if o.Size() != size {
		o.Close()
		return nil, &Error{Op: "open", Name: name, Err: fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, o.Size(), size)}
	}
	return o, nil
}

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return r.size }

// InMemory reports whether the Reader holds all of the blob, and asks nothing more of
// the backend: what happens there after it was opened does not show.
func (r *Reader) InMemory() bool { return r.data == nil }

// Root returns the blob's root.
func (r *Reader) Root() merkle.Root { return r.root }

// Tree returns the blob's tree, for proofs about it. It can be used until the
// Reader is closed.
func (r *Reader) Tree() *merkle.Tree { return r.tree }

// Close releases the objects behind the Reader.
func (r *Reader) Close() error {
	if r.closed.Swap(true) || r.memory != nil || r.data == nil {
		return nil
	}
	r.release(r.remember(part{}))
	r.mu.Lock()
	second := r.second
	r.mu.Unlock()
	var err error
	if _, ok := r.data.(*chunkedData); !ok && second != nil {
		err = second.Close()
	}
	return errors.Join(err, r.data.Close(), r.nodes.Close())
}

// ReadAt implements [io.ReaderAt]. Bytes that do not match the root are an
// [*Error] that matches ErrCorrupt and names the root and the range; the bytes
// counted before it are verified, and p holds no other bytes of the blob.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case r.closed.Load():
		return 0, fs.ErrClosed
	case off < 0:
		return 0, &Error{Op: "read", Root: r.root, Err: fmt.Errorf("%w: offset %d", ErrRange, off)}
	case off >= r.size:
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.size-off)]
	if r.data == nil {
		copy(want, r.memory[off:])
	} else if n, err := r.fill(want, off); err != nil {
		return n, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// fill fills p, which lies within the blob, with verified bytes.
func (r *Reader) fill(p []byte, off int64) (int, error) {
	short := len(p) < merkle.GroupSize
	for done := 0; done < len(p); {
		rest, at := p[done:], off+int64(done)
		if from, to := r.wholes(at, at+int64(len(rest))); from > at || to <= at {
			if n, ok := r.kept(rest, at); ok {
				done += n
				continue
			}
		}
		n, err := r.fetch(rest, at, short)
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// wholes returns the range of the whole groups within the bytes [off, end) of
// the blob; there is none if it is empty or negative.
func (r *Reader) wholes(off, end int64) (from, to int64) {
	from = (off + merkle.GroupSize - 1) / merkle.GroupSize * merkle.GroupSize
	if end < r.size {
		end -= end % merkle.GroupSize
	}
	return from, end
}

// kept copies to p what is at hand of the group that holds the byte off.
func (r *Reader) kept(p []byte, off int64) (int, bool) {
	number, from := off/merkle.GroupSize, int(off%merkle.GroupSize)
	r.mu.Lock()
	if g := &r.recent; g.room != nil && g.number == number {
		defer r.mu.Unlock()
		n := copy(p, g.bytes()[from:])
		g.keep = g.keep && from+n < g.n
		return n, true
	}
	r.mu.Unlock()
	return r.s.cache.get(groupKey{r.tenant, r.root, number}, p, from)
}

// newPart returns a room for the group that begins at the byte start.
func (r *Reader) newPart(start int64) part {
	return part{
		number: start / merkle.GroupSize,
		room:   rooms.Get().(*group),
		n:      int(min(merkle.GroupSize, r.size-start)),
	}
}

// remember makes g the recent group and returns the one that was.
func (r *Reader) remember(g part) part {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, r.recent = r.recent, g
	return g
}

// release gives a verified group away: to the cache or for further use.
func (r *Reader) release(g part) {
	if g.room != nil && g.keep {
		g.room = r.s.cache.put(groupKey{r.tenant, r.root, g.number}, g.room, g.n)
	}
	if g.room != nil {
		rooms.Put(g.room)
	}
}

// fetch reads and verifies what p asks for from the byte off on, to the end of
// an aligned window at most, and returns how much that was. Groups that p wants
// whole are verified where they are read to, in p, and are not kept: a copy
// would cost what keeping saves. Those at the ends of which it wants a part are
// verified in rooms of their own. On error p has none of the bytes.
func (r *Reader) fetch(p []byte, off int64, short bool) (int, error) {
	end := min(off+int64(len(p)), (off/window+1)*window)
	from, to := r.wholes(off, end)
	p = p[:end-off]
	var head, tail part
	var whole []byte
	start, stop := off, end
	if off < from {
		head = r.newPart(from - merkle.GroupSize)
		head.keep = short && end < head.end()
		start, stop = head.start(), max(end, head.end())
	}
	if from < to {
		whole = p[from-off : to-off]
	}
	if from <= to && to < end {
		tail = r.newPart(to)
		tail.keep = short
		stop = tail.end()
	}
	err := r.load(start, head.bytes(), whole, tail.bytes())
	if err != nil {
		clear(whole)
		head.keep, tail.keep = false, false
		r.release(head)
		r.release(tail)
		return 0, &Error{Op: "read", Root: r.root, Start: start, End: stop, Err: err}
	}
	if head.room != nil {
		copy(p, head.bytes()[off-start:])
	}
	if tail.room != nil {
		copy(p[to-off:], tail.bytes())
		head, tail = tail, head // the head was read to its end
	}
	if head.room != nil && end < head.end() {
		head = r.remember(head)
	}
	r.release(head)
	r.release(tail)
	return len(p), nil
}

// load fills parts, which follow each other from start on and are whole groups,
// and verifies them. What fails is tried in another way, if there is one.
func (r *Reader) load(start int64, head, whole, tail []byte) error {
	err := r.loadFrom(r.data, start, head, whole, tail)
	if err == nil || r.closed.Load() {
		return err
	}
	other := r.other()
	if other == nil {
		return err
	}
	e := r.loadFrom(other, start, head, whole, tail)
	if _, ok := r.data.(*chunkedData); ok || e == nil {
		return e // it knows which chunk
	}
	return err
}

// other returns another way to the blob's bytes than r.data: of a chunked blob
// each chunk by itself, of any copy; of a whole one its chunks, if it was stored
// both ways. nil: there is none.
func (r *Reader) other() Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.second != nil || r.looked {
		return r.second
	}
	r.looked = true
	if d, ok := r.data.(*chunkedData); ok {
		strict := *d
		strict.strict = true
		r.second = &strict
	} else if d, err := r.s.openRecipeOf(context.Background(), r.tenant, r.root, r.size); err == nil {
		d.strict = true
		r.second = d
	}
	return r.second
}

// loadFrom is load from one of them.
func (r *Reader) loadFrom(data Object, start int64, head, whole, tail []byte) error {
	at := start
	for _, p := range [...][]byte{head, whole, tail} {
		if len(p) == 0 {
			continue
		}
		if err := readFullAt(data, p, at); err != nil {
			return err
		}
		at += int64(len(p))
	}
	err := r.proof.VerifyGroups(start/merkle.GroupSize, head, whole, tail)
	if errors.Is(err, merkle.ErrMismatch) || errors.Is(err, merkle.ErrMalformed) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}
