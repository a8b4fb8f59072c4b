package merkle

import (
	"io"
	"math/bits"
)

// OutboardSize returns the size in bytes of the sealed outboard of a blob of
// size bytes: none for a blob of at most one group.
func OutboardSize(size int64) int64 {
	if size <= GroupSize {
		return 0
	}
	n := logSize(size / GroupSize)
	if size%GroupSize != 0 {
		n++
	}
	return n * nodeSize
}

// logSize returns the number of nodes in the log of m complete groups, which is
// also the index at which the next node will stand.
func logSize(m int64) int64 { return 2*m - int64(bits.OnesCount64(uint64(m))) }

// logIndex returns the index in the log of the perfect subtree of height h that
// ends with group m, counted from 1. It has 1<<h groups; m is a multiple of
// that.
func logIndex(m int64, h int) int64 {
	return logSize(m) - 1 - int64(bits.TrailingZeros64(uint64(m))-h)
}

// pendingNodes is how many nodes a Builder gathers before it writes them.
const pendingNodes = 256

// Builder is an [io.Writer] that computes the root of the bytes written to it
// and hands the nodes of their outboard to an [io.WriterAt], in order and
// without ever holding the outboard. Its memory does not depend on the size of
// the blob. It is not safe for concurrent use.
type Builder struct {
	nodes io.WriterAt // nil: root only
	err   error       // of nodes; final

	groups int64  // complete groups
	stack  [54]cv // the perfect subtrees that make up the groups, largest first
	depth  int    // of stack
	left   cv     // the children of the last merge: when the stack is one subtree
	right  cv     // of several groups, the root is made from them, not from it
	only   Root   // the root of the first group alone
	tail   [GroupSize]byte
	tailN  int

	pending []byte // nodes not yet written
	written int64  // nodes written before them
}

// NewBuilder returns a Builder of an empty blob that writes nodes to nodes, or
// computes the root alone if nodes is nil.
func NewBuilder(nodes io.WriterAt) *Builder {
	b := &Builder{nodes: nodes}
	if nodes != nil {
		b.pending = make([]byte, 0, pendingNodes*nodeSize)
	}
	return b
}

// Size returns the number of bytes written so far.
func (b *Builder) Size() int64 { return b.groups*GroupSize + int64(b.tailN) }

// Write adds p to the blob. It fails only when nodes cannot be written, and
// then for good.
func (b *Builder) Write(p []byte) (int, error) {
	n := len(p)
	if b.tailN > 0 {
		c := copy(b.tail[b.tailN:], p)
		b.tailN, p = b.tailN+c, p[c:]
		if b.tailN < GroupSize {
			return n, b.err
		}
		b.tailN = 0
		b.group(b.tail[:])
	}
	for len(p) >= GroupSize {
		b.group(p[:GroupSize])
		p = p[GroupSize:]
	}
	b.tailN = copy(b.tail[:], p)
	if b.err != nil {
		return 0, b.err
	}
	return n, nil
}

// group adds one complete group.
func (b *Builder) group(p []byte) {
	if b.groups == 0 {
		c := leavesCV(p, 0, true)
		b.only = c.root()
	}
	c := leavesCV(p, b.groups*groupLeaves, false)
	b.note(&c)
	b.push(c, 0)
}

// push adds a complete subtree of height h, whose own nodes are in the log or
// noted, and notes the parents that it completes.
func (b *Builder) push(c cv, h int) {
	b.groups += 1 << h
	for range bits.TrailingZeros64(uint64(b.groups)) - h {
		b.depth--
		b.left, b.right = b.stack[b.depth], c
		c = parentCV(&b.left, &b.right, false)
		b.note(&c)
	}
	b.stack[b.depth] = c
	b.depth++
}

// note appends a node to the log.
func (b *Builder) note(c *cv) {
	if b.nodes == nil {
		return
	}
	if len(b.pending) == cap(b.pending) {
		b.flush()
	}
	n := len(b.pending)
	b.pending = b.pending[:n+nodeSize]
	c.put(b.pending[n:])
}

func (b *Builder) flush() {
	if b.err == nil && len(b.pending) > 0 {
		if _, err := b.nodes.WriteAt(b.pending, b.written*nodeSize); err != nil {
			b.err = &Error{"write outboard", b.written * nodeSize, err}
		}
	}
	b.written += int64(len(b.pending) / nodeSize)
	b.pending = b.pending[:0]
}

// Root returns the root of the bytes written so far. More may follow.
func (b *Builder) Root() Root {
	size := b.Size()
	switch {
	case size < GroupSize:
		c := leavesCV(b.tail[:b.tailN], 0, true)
		return c.root()
	case size == GroupSize:
		return b.only
	case b.tailN == 0 && b.depth == 1:
		c := parentCV(&b.left, &b.right, true)
		return c.root()
	}
	i := b.depth - 1
	var c cv
	if b.tailN > 0 {
		c = leavesCV(b.tail[:b.tailN], b.groups*groupLeaves, false)
	} else {
		c = b.stack[i]
		i--
	}
	for ; i >= 0; i-- {
		c = parentCV(&b.stack[i], &c, i == 0)
	}
	return c.root()
}

// Seal writes what is left of the outboard, with the value of the partial last
// group if there is one, so that exactly OutboardSize(Size()) bytes of it are
// valid, and returns the root. Writing may go on after it, and Seal be called
// again: only the partial group's node is then replaced.
func (b *Builder) Seal() (Root, error) {
	if b.nodes != nil && b.Size() > GroupSize {
		b.flush()
		if b.tailN > 0 && b.err == nil {
			var node [nodeSize]byte
			c := leavesCV(b.tail[:b.tailN], b.groups*groupLeaves, false)
			c.put(node[:])
			if _, err := b.nodes.WriteAt(node[:], b.written*nodeSize); err != nil {
				b.err = &Error{"write outboard", b.written * nodeSize, err}
			}
		}
	}
	if b.err != nil {
		return Root{}, b.err
	}
	return b.Root(), nil
}
