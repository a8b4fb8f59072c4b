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

const (
	// directSize is the length from which a read is verified in the caller's
	// own buffer and passes the cache by: a long scan would only push out what
	// short reads come back to.
	directSize = 128 << 10
	// window is the most that is verified at once in the caller's buffer.
	window = 1 << 20
	// aheadSize is what is verified at once when short reads follow each
	// other.
	aheadSize = 256 << 10
)

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
	nodes  *nodePages
	next   atomic.Int64 // where the last read ended
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
	pages := &nodePages{o: nodes}
	r := &Reader{
		root: root, size: size, tree: merkle.NewTree(root, size, pages),
		s: s, tenant: tenant, data: data, nodes: pages,
	}
	r.next.Store(-1) // no read yet: the first does not follow another
	return r, nil
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
	return errors.Join(r.data.Close(), r.nodes.o.Close())
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
	ahead := r.next.Swap(off+int64(len(p))) == off
	done := 0
	for done < len(p) {
		at, rest := off+int64(done), p[done:]
		group := at / merkle.GroupSize
		from := int(at % merkle.GroupSize)
		if from == 0 && (len(rest) >= directSize || len(p) >= directSize && int64(len(rest)) >= r.groupLen(group)) {
			n := r.directLen(at, int64(len(rest)))
			if err := r.load(group, rest[:n]); err != nil {
				return done, err
			}
			done += n
			continue
		}
		key := groupKey{r.tenant, r.root, group}
		if n, ok := r.s.cache.get(key, rest, from); ok {
			done += n
			continue
		}
		// The groups up to the end of the read, but not those that the direct
		// way does better.
		end := at + int64(len(rest))
		if len(rest) >= directSize {
			end = at + 1
		} else if ahead {
			end = at + aheadSize
		}
		n, err := r.loadCached(group, min(end, r.size), rest, from)
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// groupLen is the length of one group in bytes.
func (r *Reader) groupLen(group int64) int64 {
	return min(merkle.GroupSize, r.size-group*merkle.GroupSize)
}

// directLen is how much of a read of n bytes from at, the start of a group, is
// verified at once: whole groups, to the end of an aligned window at most.
func (r *Reader) directLen(at, n int64) int {
	end := min(at+n, (at/window+1)*window)
	if end < r.size {
		end -= end % merkle.GroupSize
	}
	return int(end - at)
}

var scratch = sync.Pool{New: func() any { return new([aheadSize]byte) }}

// loadCached verifies the groups from group to the one that holds the byte
// before end, puts them into the cache, and copies what p asks for: the bytes
// from number from of the first group on.
func (r *Reader) loadCached(group, end int64, p []byte, from int) (int, error) {
	buf := scratch.Get().(*[aheadSize]byte)
	defer scratch.Put(buf)
	start := group * merkle.GroupSize
	end = min((end+merkle.GroupSize-1)/merkle.GroupSize*merkle.GroupSize, start+aheadSize, r.size)
	data := buf[:end-start]
	if err := r.load(group, data); err != nil {
		return 0, err
	}
	for i := 0; i < len(data); i += merkle.GroupSize {
		r.s.cache.put(groupKey{r.tenant, r.root, group}, data[i:min(i+merkle.GroupSize, len(data))])
		group++
	}
	return copy(p, data[from:]), nil
}

// load reads whole groups into p and verifies them. On error p is zeroed.
func (r *Reader) load(group int64, p []byte) error {
	start := group * merkle.GroupSize
	err := readFullAt(r.data, p, start)
	if err == nil {
		if err = r.tree.VerifyGroups(group, p); err == nil {
			return nil
		}
		r.nodes.forget() // they are not verified: look again next time
		if errors.Is(err, merkle.ErrMismatch) || errors.Is(err, merkle.ErrMalformed) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	clear(p)
	return &Error{Op: "read", Root: r.root, Start: start, End: start + int64(len(p)), Err: err}
}

// nodePages reads an outboard by pages and keeps some, each in the one slot
// that its number allows: a verification takes two nodes a level, most of them
// near to those of the last one. Its bytes are as untrusted as the object's.
type nodePages struct {
	o Object

	mu    sync.Mutex
	slots [nodeSlots]struct {
		page int64
		data []byte // nil: empty
	}
}

const (
	nodePage  = 4 << 10
	nodeSlots = 128 // half a MiB a Reader at most
)

// ReadAt implements [io.ReaderAt].
func (n *nodePages) ReadAt(p []byte, off int64) (int, error) {
	page, from := off/nodePage, off%nodePage
	if off < 0 || from+int64(len(p)) > nodePage {
		return n.o.ReadAt(p, off)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	slot := &n.slots[page%nodeSlots]
	if slot.data == nil || slot.page != page {
		if cap(slot.data) == 0 {
			slot.data = make([]byte, nodePage)
		}
		got, err := n.o.ReadAt(slot.data[:nodePage], page*nodePage)
		if err != nil && err != io.EOF {
			slot.data = nil
			return 0, err
		}
		slot.page, slot.data = page, slot.data[:got]
	}
	if from >= int64(len(slot.data)) {
		return 0, io.EOF
	}
	got := copy(p, slot.data[from:])
	if got < len(p) {
		return got, io.EOF
	}
	return got, nil
}

// forget drops what is kept.
func (n *nodePages) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.slots {
		n.slots[i].data = nil
	}
}
