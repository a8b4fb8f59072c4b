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

// peaks are the perfect subtrees that make up a number of complete groups,
// largest first: all that is needed to add more.
type peaks struct {
	groups int64
	stack  [54]cv
	depth  int // of stack
	left   cv  // the children of the last merge: when the stack is one subtree
	right  cv  // of several groups, the root is made from them, not from it
}

// begin counts the groups of a subtree of height h and returns how often it has
// to be merged before it is put on the stack.
func (s *peaks) begin(h int) int {
	s.groups += 1 << h
	return bits.TrailingZeros64(uint64(s.groups)) - h
}

// merge replaces c, which follows the last peak, by the parent of both.
func (s *peaks) merge(c *cv) {
	s.depth--
	s.left, s.right = s.stack[s.depth], *c
	*c = parentCV(&s.left, &s.right, false)
}

func (s *peaks) put(c cv) {
	s.stack[s.depth] = c
	s.depth++
}

// top returns the value of all groups and, unless it is nil, the partial group
// last after them. As the root of a whole tree it must be of more than one
// group.
func (s *peaks) top(last *cv, root bool) cv {
	var c cv
	i := s.depth - 1
	switch {
	case last != nil:
		c = *last
	case s.depth == 1 && root:
		return parentCV(&s.left, &s.right, true)
	default:
		c = s.stack[i]
		i--
	}
	for ; i >= 0; i-- {
		c = parentCV(&s.stack[i], &c, root && i == 0)
	}
	return c
}

// pendingNodes is how many nodes a Builder gathers before it writes them.
const pendingNodes = 256

// Builder is an [io.Writer] that computes the root of the bytes written to it
// and hands the nodes of their outboard to an [io.WriterAt], each once, at its
// place, and without ever holding the outboard. Its memory does not depend on
// the size of the blob. A Write of 256 KiB or more is hashed on all cores, as
// everything is that [Builder.ReadFrom] reads; no goroutine is left when the
// call returns, so a Builder may simply be dropped. It is not safe for
// concurrent use.
type Builder struct {
	nodes   io.WriterAt // nil: root only
	err     error       // of nodes; final
	workers int         // of a large Write; 0: all cores

	base int64 // groups of the blob before the first byte: 0 unless it builds a part
	peaks
	only  Root // the root of the first group alone
	tail  [GroupSize]byte
	tailN int
	part  bool // a part of a blob has nodes however short it is
	par   *spread

	pending []byte // nodes not yet written
	written int64  // nodes of the log before them
}

// NewBuilder returns a Builder of an empty blob that writes nodes to nodes, or
// computes the root alone if nodes is nil.
func NewBuilder(nodes io.WriterAt) *Builder {
	return &Builder{nodes: nodes}
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
		if len(p) >= spreadFrom && b.groups%(1<<smallHeight) == 0 && b.groups > 0 {
			if workers := maxWorkers(b.workers); workers > 1 {
				p = b.spread(p, workers)
				continue
			}
		}
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
	c := leavesCV(p, (b.base+b.groups)*groupLeaves, false)
	b.note(&c)
	b.push(c, 0)
}

// push adds a complete subtree of height h, whose own nodes are in the log or
// noted, and notes the parents that it completes.
func (b *Builder) push(c cv, h int) {
	for range b.begin(h) {
		b.merge(&c)
		b.note(&c)
	}
	b.put(c)
}

// note appends a node to the log.
func (b *Builder) note(c *cv) {
	if b.nodes == nil {
		return
	}
	b.room(nodeSize)
	n := len(b.pending)
	b.pending = b.pending[:n+nodeSize]
	c.put(b.pending[n:])
}

// room makes room for n more bytes of nodes.
func (b *Builder) room(n int) {
	if b.pending == nil {
		b.pending = make([]byte, 0, pendingNodes*nodeSize)
	}
	if len(b.pending)+n > cap(b.pending) {
		b.flush()
	}
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
	switch size := b.Size(); {
	case size < GroupSize:
		c := leavesCV(b.tail[:b.tailN], 0, true)
		return c.root()
	case size == GroupSize:
		return b.only
	}
	c := b.top(b.last(), true)
	return c.root()
}

// last returns the value of the partial last group, nil if there is none.
func (b *Builder) last() *cv {
	if b.tailN == 0 {
		return nil
	}
	c := leavesCV(b.tail[:b.tailN], (b.base+b.groups)*groupLeaves, false)
	return &c
}

// Seal writes what is left of the outboard, with the value of the partial last
// group if there is one, so that exactly OutboardSize(Size()) bytes of it are
// valid, and returns the root. Writing may go on after it, and Seal be called
// again: only the partial group's node is then replaced.
func (b *Builder) Seal() (Root, error) {
	if err := b.seal(); err != nil {
		return Root{}, err
	}
	return b.Root(), nil
}

func (b *Builder) seal() error {
	if b.nodes == nil || b.Size() <= GroupSize && !b.part {
		return b.err
	}
	b.flush()
	if c := b.last(); c != nil && b.err == nil {
		var node [nodeSize]byte
		c.put(node[:])
		if _, err := b.nodes.WriteAt(node[:], b.written*nodeSize); err != nil {
			b.err = &Error{"write outboard", b.written * nodeSize, err}
		}
	}
	return b.err
}
