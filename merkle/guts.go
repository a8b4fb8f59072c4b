package merkle

import (
	"encoding/binary"

	"lukechampine.com/blake3/guts"
)

// This file is the only one that knows which module computes the inner values
// of the BLAKE3 tree where our own wide code does not (wide.go). The one trap of
// that module: the root flag belongs on the node that comes out, never in the
// flags that go in, where it would reach every block of a leaf.

// cv is the chaining value of a subtree, or, for the whole tree, its root.
type cv [8]uint32

// put writes c into the first 32 bytes of b.
func (c *cv) put(b []byte) {
	_ = b[nodeSize-1]
	for i, w := range c {
		binary.LittleEndian.PutUint32(b[4*i:], w)
	}
}

// root returns c as the root that it is when c was computed as one.
func (c *cv) root() (r Root) {
	c.put(r[:])
	return r
}

// getCV reads a chaining value from the first 32 bytes of b.
func getCV(b []byte) (c cv) {
	_ = b[nodeSize-1]
	for i := range c {
		c[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return c
}

func finish(n guts.Node, root bool) cv {
	if root {
		n.Flags |= guts.FlagRoot
	}
	return guts.ChainingValue(n)
}

// parentCV returns the value of the parent of two subtrees; root says that the
// parent is the top of the whole tree.
func parentCV(left, right *cv, root bool) cv {
	return finish(guts.ParentNode(*left, *right, &guts.IV, 0), root)
}

// leavesCV returns the value of the subtree whose bytes are p, 0 to GroupSize
// of them, and whose first leaf is number leaf of the blob; root says that the
// subtree is the whole tree.
func leavesCV(p []byte, leaf int64, root bool) cv {
	switch {
	case len(p) <= LeafSize:
		return finish(guts.CompressChunk(p, &guts.IV, uint64(leaf), 0), root)
	case wide:
		return wideCV(p, leaf, root)
	case len(p) == GroupSize:
		return finish(guts.CompressBuffer((*[GroupSize]byte)(p), GroupSize, &guts.IV, uint64(leaf), 0), root)
	}
	// The vector code reads a whole group whatever the length and leaves out what
	// is too much, so a shorter one is hashed from a copy, unless its memory goes
	// on for so long.
	if cap(p) >= GroupSize {
		return finish(guts.CompressBuffer((*[GroupSize]byte)(p[:GroupSize]), len(p), &guts.IV, uint64(leaf), 0), root)
	}
	var group [GroupSize]byte
	n := copy(group[:], p)
	return finish(guts.CompressBuffer(&group, n, &guts.IV, uint64(leaf), 0), root)
}

// appendCV appends c to b.
func appendCV(b []byte, c *cv) []byte {
	n := len(b)
	b = append(b, make([]byte, nodeSize)...)
	c.put(b[n:])
	return b
}
