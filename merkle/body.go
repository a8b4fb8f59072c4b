package merkle

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// shape tells the two encodings of an excerpt apart. Both are the blob's length
// and then, in pre-order, the parts of the tree that hold a selected leaf.
type shape struct {
	// unit is how many leaves at most a fully selected subtree may have that is
	// sent as its raw bytes, without the parents inside it.
	unit int64
}

var (
	lps1 = shape{groupLeaves}
	bao  = shape{1}
)

// headerSize is the size of the length at the start of a body.
const headerSize = 8

// BodySize returns the exact length in bytes of the lps1 body of a set, the
// length header included; 0 for an empty set.
func BodySize(set LeafSet) int64 { return lps1.size(set) }

func (s shape) size(set LeafSet) int64 {
	if len(set.ranges) == 0 {
		return 0
	}
	n := headerSize + s.subtreeSize(set, 0, leafCount(set.size))
	return int64(min(n, math.MaxInt64))
}

// subtreeSize returns the encoded size of the leaves [lo, hi). It is unsigned
// because the parents of a claimed 2⁶³−1 bytes do not fit otherwise.
func (s shape) subtreeSize(set LeafSet, lo, hi int64) uint64 {
	switch set.covers(lo, hi) {
	case none:
		return 0
	case all:
		units := (hi - lo + s.unit - 1) / s.unit
		return uint64(set.offset(hi)-lo*LeafSize) + parentSize*uint64(units-1)
	}
	mid := lo + split(hi-lo)
	return parentSize + s.subtreeSize(set, lo, mid) + s.subtreeSize(set, mid, hi)
}

// WriteBody writes the lps1 body that proves the leaves of set, which must be a
// set of leaves of a blob of t's size, else ErrRange. The blob's bytes are read
// from data, and those and the outboard are checked against the root before
// they are written, so a body that was written without error verifies. Data or
// an outboard that differ from the root are ErrMismatch, data that end early
// ErrChanged. Its memory depends neither on the blob's size nor on the set's.
func WriteBody(w io.Writer, t *Tree, data io.ReaderAt, set LeafSet) error {
	return write(w, t, data, set, lps1, nil)
}

const (
	maxWindow = 256 << 10 // bytes of the blob read at once
	maxOut    = 64 << 10  // bytes gathered for one Write
	nodeBlock = 2 << 10   // bytes of the outboard read at once
)

// bodyWriter is one body being written.
type bodyWriter struct {
	w     io.Writer
	t     *Tree
	nodes *nodeReader
	set   LeafSet
	shape shape
	out   []byte // not yet written

	data   io.ReaderAt
	window []byte // the blob's bytes from windowAt on
	at     int64

	edge []edge // the subtrees at the blob's end that the outboard does not hold
}

// edge is the value of the subtree of all groups from lo on.
type edge struct {
	lo int64
	cv cv
}

// write writes prefix and then the body.
func write(w io.Writer, t *Tree, data io.ReaderAt, set LeafSet, s shape, prefix []byte) error {
	if len(set.ranges) == 0 || set.size != t.size {
		return &Error{"write proof", -1, fmt.Errorf("%w: a selection of %d bytes in a blob of %d", ErrRange, set.size, t.size)}
	}
	block := min(nodeBlock, OutboardSize(t.size))
	b := &bodyWriter{w: w, t: t, nodes: newNodeReader(t, int(block)), set: set, shape: s, data: data}
	// The most that is gathered is a whole group cut into leaves after maxOut.
	const most = maxOut + GroupSize + groupLeaves*parentSize
	b.out = make([]byte, 0, min(int64(len(prefix))+s.size(set), most))
	b.out = append(b.out, prefix...)
	b.out = binary.LittleEndian.AppendUint64(b.out, uint64(t.size))
	if err := b.loadEdge(); err != nil {
		return err
	}
	top := getCV(t.root[:])
	if err := b.subtree(0, leafCount(t.size), &top, true); err != nil {
		return err
	}
	return b.flush(0)
}

// loadEdge computes the values of the subtrees along the right edge, from the
// bottom up, so that the way down needs each node of the outboard once.
func (b *bodyWriter) loadEdge() error {
	lo, hi := int64(0), b.t.groups()
	for hi-lo > 1 {
		lo += split(hi - lo)
		b.edge = append(b.edge, edge{lo: lo})
		if _, ok := nodePlace(b.t.size, lo, hi); ok {
			break // what lies below is stored too
		}
	}
	for i := len(b.edge) - 1; i >= 0; i-- {
		e := &b.edge[i]
		if i == len(b.edge)-1 {
			c, err := b.nodes.value(e.lo, hi)
			if err != nil {
				return err
			}
			e.cv = c
			continue
		}
		next := &b.edge[i+1]
		left, err := b.nodes.value(e.lo, next.lo)
		if err != nil {
			return err
		}
		e.cv = parentCV(&left, &next.cv, false)
	}
	return nil
}

// value returns the value of the subtree of leaves [lo, hi), which is above or
// at the level of groups.
func (b *bodyWriter) value(lo, hi int64) (cv, error) {
	lo, hi = lo/groupLeaves, (hi+groupLeaves-1)/groupLeaves
	if hi == b.t.groups() {
		for i := range b.edge {
			if b.edge[i].lo == lo {
				return b.edge[i].cv, nil
			}
		}
	}
	return b.nodes.value(lo, hi)
}

// subtree writes the leaves [lo, hi) after checking that their value is want.
func (b *bodyWriter) subtree(lo, hi int64, want *cv, root bool) error {
	if b.set.covers(lo, hi) == none {
		return nil
	}
	if hi-lo <= groupLeaves {
		return b.group(lo, hi, want, root)
	}
	mid := lo + split(hi-lo)
	left, err := b.value(lo, mid)
	if err != nil {
		return err
	}
	right, err := b.value(mid, hi)
	if err != nil {
		return err
	}
	if parentCV(&left, &right, root) != *want {
		return &Error{"write proof", lo * LeafSize, fmt.Errorf("outboard %w", ErrMismatch)}
	}
	if err := b.flush(maxOut); err != nil {
		return err
	}
	b.out = appendCV(appendCV(b.out, &left), &right)
	if err := b.subtree(lo, mid, &left, false); err != nil {
		return err
	}
	return b.subtree(mid, hi, &right, false)
}

// group writes the leaves [lo, hi) of one group after checking them.
func (b *bodyWriter) group(lo, hi int64, want *cv, root bool) error {
	p, err := b.read(lo, hi)
	if err != nil {
		return err
	}
	if err := b.flush(maxOut); err != nil {
		return err
	}
	if b.cut(p, lo, root) != *want {
		return &Error{"write proof", lo * LeafSize, fmt.Errorf("data %w", ErrMismatch)}
	}
	return nil
}

// cut appends what of the group p, from leaf lo on, is selected, and returns its
// value.
func (b *bodyWriter) cut(p []byte, lo int64, root bool) cv {
	n := leafCount(int64(len(p)))
	if !wide || n == 1 || n <= b.shape.unit && b.set.covers(lo, lo+n) == all {
		return b.leaves(p, lo, root, nil)
	}
	var inside groupTree
	inside.fill(p, lo)
	return b.leaves(p, lo, root, &inside)
}

// leaves appends what of the leaves p, from number lo on, is selected, and
// returns the value of their subtree, which inside has unless it is nil. The
// parents come before what they cover but are known after it, so their place is
// kept free.
func (b *bodyWriter) leaves(p []byte, lo int64, root bool, inside *groupTree) cv {
	n := leafCount(int64(len(p)))
	cover := b.set.covers(lo, lo+n)
	whole := cover == all && n <= b.shape.unit
	if whole {
		b.out = append(b.out, p...)
	}
	if whole || cover == none {
		if inside != nil {
			at := lo % groupLeaves
			return inside.value(at, at+n, root)
		}
		return leavesCV(p, lo, root)
	}
	var free [parentSize]byte
	at, mid := len(b.out), split(n)
	b.out = append(b.out, free[:]...)
	left := b.leaves(p[:mid*LeafSize], lo, false, inside)
	right := b.leaves(p[mid*LeafSize:], lo+mid, false, inside)
	left.put(b.out[at:])
	right.put(b.out[at+nodeSize:])
	return parentCV(&left, &right, root)
}

// read returns the bytes of the leaves [lo, hi). It reads ahead as far as the
// selection goes on without a gap.
func (b *bodyWriter) read(lo, hi int64) ([]byte, error) {
	off, n := lo*LeafSize, b.set.offset(hi)-lo*LeafSize
	if off < b.at || off+n > b.at+int64(len(b.window)) {
		end := hi
		if run := b.set.find(hi - 1); run.Start < hi {
			end = (run.End + groupLeaves - 1) / groupLeaves * groupLeaves
		}
		ahead := min(b.set.offset(end)-off, maxWindow)
		if int64(cap(b.window)) < ahead {
			b.window = make([]byte, ahead)
		}
		b.at, b.window = off, b.window[:ahead]
		if err := readFull(b.data, b.window, off); err != nil {
			b.window = nil
			return nil, err
		}
	}
	return b.window[off-b.at:][:n], nil
}

// flush writes what was gathered if it is more than limit bytes.
func (b *bodyWriter) flush(limit int) error {
	if len(b.out) <= limit {
		return nil
	}
	_, err := b.w.Write(b.out)
	b.out = b.out[:0]
	if err != nil {
		return &Error{"write proof", -1, err}
	}
	return nil
}
