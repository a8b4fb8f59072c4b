package merkle

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// Tree reads the sealed outboard of a blob. Nothing in the outboard is trusted:
// whatever is taken from it is checked against the root first. A Tree is safe
// for concurrent use if its outboard is.
type Tree struct {
	root  Root
	size  int64
	nodes io.ReaderAt
}

// NewTree returns the tree of the blob that has this root and this size in
// bytes, with its sealed outboard in nodes. A blob of at most one group has no
// outboard, and nodes may be nil. Neither the size nor the outboard has to be
// right: a wrong one fails the verification of whatever is read with it.
func NewTree(root Root, size int64, nodes io.ReaderAt) *Tree { return &Tree{root, size, nodes} }

// Root returns the root that everything is checked against.
func (t *Tree) Root() Root { return t.root }

// Size returns the size of the blob in bytes, as NewTree was told.
func (t *Tree) Size() int64 { return t.size }

// groups returns the number of groups, at least 1.
func (t *Tree) groups() int64 {
	if t.size <= GroupSize {
		return 1
	}
	return (t.size-1)/GroupSize + 1
}

// VerifyGroups checks whole groups of the blob against its root: data are those
// from number first on, each GroupSize bytes but the blob's last, which may be
// partial. It needs two chaining values from the outboard for each level of the
// tree at most, however much data there is. Data that do not match, or an
// outboard that does not, are ErrMismatch; a truncated outboard is
// ErrMalformed; data that are not whole groups of the blob are ErrRange.
func (t *Tree) VerifyGroups(first int64, data []byte) error {
	n := (int64(len(data)) + GroupSize - 1) / GroupSize
	if t.size == 0 {
		n = 1
	}
	if t.size < 0 || first < 0 || n < 1 || n > t.groups()-first ||
		int64(len(data)) != min((first+n)*GroupSize, t.size)-first*GroupSize {
		return &Error{"verify", first * GroupSize, fmt.Errorf("%w: %d bytes from group %d on are not whole groups of %d bytes", ErrRange, len(data), first, t.size)}
	}
	v := verification{t, newNodeReader(t, nodeSize), first, first + n, data}
	c, err := v.value(0, t.groups())
	if err != nil {
		return err
	}
	if c.root() != t.root {
		return &Error{"verify", first * GroupSize, fmt.Errorf("%w: %d bytes", ErrMismatch, len(data))}
	}
	return nil
}

// verification is one VerifyGroups.
type verification struct {
	t          *Tree
	nodes      *nodeReader
	first, end int64 // groups
	data       []byte
}

// value returns the value of the subtree of groups [lo, hi): from the data where
// they are, from the outboard elsewhere.
func (v *verification) value(lo, hi int64) (cv, error) {
	if hi <= v.first || lo >= v.end {
		return v.nodes.value(lo, hi)
	}
	root := hi-lo == v.t.groups()
	if hi-lo == 1 {
		p := v.data[(lo-v.first)*GroupSize:]
		return leavesCV(p[:min(len(p), GroupSize)], lo*groupLeaves, root), nil
	}
	mid := lo + split(hi-lo)
	left, err := v.value(lo, mid)
	if err != nil {
		return cv{}, err
	}
	right, err := v.value(mid, hi)
	if err != nil {
		return cv{}, err
	}
	return parentCV(&left, &right, root), nil
}

// value returns what the outboard says of the subtree of groups [lo, hi), which
// is not the whole tree.
func (r *nodeReader) value(lo, hi int64) (cv, error) {
	if full := r.t.size / GroupSize; hi-lo == 1 || hi <= full && (hi-lo)&(hi-lo-1) == 0 {
		if hi > full {
			return r.node(logSize(full))
		}
		return r.node(logIndex(hi, bits.TrailingZeros64(uint64(hi-lo))))
	}
	// Only perfect subtrees are stored; one at the blob's end is made of them.
	mid := lo + split(hi-lo)
	left, err := r.value(lo, mid)
	if err != nil {
		return cv{}, err
	}
	right, err := r.value(mid, hi)
	if err != nil {
		return cv{}, err
	}
	return parentCV(&left, &right, false), nil
}

// nodeReader reads nodes of a tree's outboard for one operation. It reads whole
// blocks, for neighbours in the log are neighbours in the tree, and keeps two:
// on the way down the children of a node stand in different ones.
type nodeReader struct {
	t      *Tree
	blocks [2]block
	last   int // the one that was used last
}

// block is a part of an outboard.
type block struct {
	buf  []byte // a multiple of nodeSize; both blocks have the same length
	have []byte // the valid start of buf
	at   int64  // its offset in the outboard
}

func newNodeReader(t *Tree, size int) *nodeReader {
	buf := make([]byte, 2*size)
	return &nodeReader{t: t, blocks: [2]block{{buf: buf[:size]}, {buf: buf[size:]}}}
}

func (b *block) has(off int64) bool { return off >= b.at && off+nodeSize <= b.at+int64(len(b.have)) }

// node returns one node.
func (r *nodeReader) node(index int64) (cv, error) {
	off := index * nodeSize
	b := &r.blocks[r.last]
	if !b.has(off) {
		r.last = 1 - r.last
		b = &r.blocks[r.last]
		if !b.has(off) {
			if err := b.load(r.t.nodes, off); err != nil {
				return cv{}, &Error{"read outboard", off, err}
			}
		}
	}
	return getCV(b.have[off-b.at:]), nil
}

// load reads the block that holds the node at off.
func (b *block) load(nodes io.ReaderAt, off int64) error {
	b.have = nil
	if nodes == nil {
		return fmt.Errorf("%w: there is none", ErrMalformed)
	}
	b.at = off - off%int64(len(b.buf))
	n, err := nodes.ReadAt(b.buf, b.at)
	if int64(n) >= off-b.at+nodeSize {
		b.have = b.buf[:n]
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the outboard is truncated", ErrMalformed)
	}
	return err
}

// split returns how many of n ≥ 2 leaves or groups of a subtree are in its left
// child: the largest power of two below n.
func split(n int64) int64 { return 1 << (bits.Len64(uint64(n-1)) - 1) }
