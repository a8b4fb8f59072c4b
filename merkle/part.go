package merkle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// ErrPart says that parts do not make up a blob: one stands at an offset where
// the tree has no subtree of its size, two overlap or leave a gap, or a root was
// asked of a part.
var ErrPart = errors.New("parts that do not fit together")

// Part is one subtree of a blob, hashed by itself: what a machine that has only
// these bytes can say of them. A Part proves nothing and is not a root, not even
// one that covers the whole blob: the root is hashed differently. Whoever gets
// it must trust whoever made it, or compare the root that it leads to.
type Part struct {
	// Offset is the byte of the blob where the part begins.
	Offset int64
	// Size is the part's length in bytes. Every part but the blob's last is
	// GroupSize times a power of two long and begins at a multiple of its length;
	// the last may be shorter but begins as if it were not.
	Size int64
	// Value is the part's BLAKE3 chaining value at its offset.
	Value [32]byte
}

// end returns the first byte after the part.
func (p Part) end() int64 { return p.Offset + p.Size }

// complete reports whether bytes of the blob may follow the part.
func (p Part) complete() bool {
	return p.Size%GroupSize == 0 && p.Size&(p.Size-1) == 0
}

// check checks that a blob of any size can have the part.
func (p Part) check() error {
	if p.Offset < 0 || p.Size <= 0 || p.Size > math.MaxInt64-p.Offset {
		return &Error{"part", p.Offset, fmt.Errorf("%w: %d bytes from %d on", ErrRange, p.Size, p.Offset)}
	}
	// The subtree that the part is, or is the start of.
	full := uint64(GroupSize) << bits.Len64(uint64((p.Size-1)/GroupSize))
	if uint64(p.Offset)%full != 0 {
		return &Error{"part", p.Offset, fmt.Errorf("%w: %d bytes are no subtree at an offset that is no multiple of %d", ErrPart, p.Size, full)}
	}
	return nil
}

// BuildPart computes the part of a blob that begins at offset and whose size
// bytes are all that r has: r is the part alone, as its own file or as an
// [io.SectionReader] of the blob. Unless nodes is nil, the nodes of the part are
// written to it at their places in the outboard of the blob. Parts may be built
// in any order, at the same time and on several machines; [RootOfParts] merges
// them.
//
// A size that is not a power of two of groups makes a part that can only be the
// blob's last. An offset at which no such subtree stands is ErrPart; otherwise
// BuildPart fails as [BuildAt] does.
func BuildPart(ctx context.Context, r io.ReaderAt, offset, size int64, nodes io.WriterAt) (Part, error) {
	p := Part{Offset: offset, Size: size}
	if err := p.check(); err != nil {
		return Part{}, err
	}
	b := NewBuilder(nodes)
	b.part, b.base = true, offset/GroupSize
	b.written = logSize(b.base)
	if err := buildInto(ctx, b, r, size, 0); err != nil {
		return Part{}, err
	}
	if err := b.seal(); err != nil {
		return Part{}, err
	}
	c := b.top(b.last(), false)
	c.put(p.Value[:])
	return p, nil
}

// MergeParts merges parts that follow each other, given in any order, into the
// part that they make up, and writes the nodes above them to nodes unless it is
// nil. The parts must be those of one subtree of the blob: a gap, an overlap and
// an incomplete part that is not the last are ErrPart.
func MergeParts(nodes io.WriterAt, parts ...Part) (Part, error) {
	m, err := newMerge(nodes, parts)
	if err != nil {
		return Part{}, err
	}
	whole := Part{Offset: m.parts[0].Offset}
	whole.Size = m.parts[len(m.parts)-1].end() - whole.Offset
	if err := whole.check(); err != nil {
		return Part{}, err
	}
	c, err := m.value(whole.Offset, whole.end(), false)
	if err != nil {
		return Part{}, err
	}
	c.put(whole.Value[:])
	return whole, nil
}

// RootOfParts returns the root of the blob of size bytes that the parts, given
// in any order, make up without a gap, and writes the nodes above them to nodes
// unless it is nil: with those that [BuildPart] wrote they are the sealed
// outboard. There must be two parts at least, for the value of one says nothing
// of the root: that, and parts that do not make up the blob, are ErrPart.
func RootOfParts(size int64, nodes io.WriterAt, parts ...Part) (Root, error) {
	m, err := newMerge(nodes, parts)
	if err != nil {
		return Root{}, err
	}
	if first, last := m.parts[0], m.parts[len(m.parts)-1]; first.Offset != 0 || last.end() != size {
		return Root{}, &Error{"merge", -1, fmt.Errorf("%w: bytes %d to %d of a blob of %d", ErrPart, first.Offset, last.end(), size)}
	}
	if len(m.parts) == 1 {
		return Root{}, &Error{"merge", 0, fmt.Errorf("%w: the value of one part, though it is all of the blob, is no root", ErrPart)}
	}
	c, err := m.value(0, size, true)
	if err != nil {
		return Root{}, err
	}
	return c.root(), nil
}

// merge is one MergeParts or RootOfParts.
type merge struct {
	nodes io.WriterAt
	parts []Part // sorted, without gaps
}

func newMerge(nodes io.WriterAt, parts []Part) (*merge, error) {
	if len(parts) == 0 {
		return nil, &Error{"merge", -1, fmt.Errorf("%w: there are none", ErrPart)}
	}
	for _, p := range parts {
		if err := p.check(); err != nil {
			return nil, err
		}
	}
	parts = slices.Clone(parts)
	slices.SortFunc(parts, comparePart)
	for i, p := range parts[:len(parts)-1] {
		switch next := parts[i+1]; {
		case next.Offset < p.end():
			return nil, &Error{"merge", next.Offset, fmt.Errorf("%w: two overlap", ErrPart)}
		case next.Offset > p.end():
			return nil, &Error{"merge", p.end(), fmt.Errorf("%w: a gap of %d bytes", ErrPart, next.Offset-p.end())}
		case !p.complete():
			return nil, &Error{"merge", p.Offset, fmt.Errorf("%w: only the last may have %d bytes", ErrPart, p.Size)}
		}
	}
	return &merge{nodes, parts}, nil
}

func comparePart(a, b Part) int {
	switch {
	case a.Offset < b.Offset:
		return -1
	case a.Offset > b.Offset:
		return 1
	}
	return 0
}

// value returns the value of the bytes [lo, hi) and writes the nodes above their
// parts. Parts of a checked size at a checked offset never straddle the middle
// of a subtree larger than they are.
func (m *merge) value(lo, hi int64, root bool) (cv, error) {
	i, _ := slices.BinarySearchFunc(m.parts, lo, func(p Part, at int64) int { return comparePart(p, Part{Offset: at}) })
	if m.parts[i].end() >= hi {
		return getCV(m.parts[i].Value[:]), nil
	}
	mid := lo + split((hi-lo-1)/GroupSize+1)*GroupSize
	left, err := m.value(lo, mid, false)
	if err != nil {
		return cv{}, err
	}
	right, err := m.value(mid, hi, false)
	if err != nil {
		return cv{}, err
	}
	if err := m.note(lo, hi, &left, &right); err != nil {
		return cv{}, err
	}
	return parentCV(&left, &right, root), nil
}

// note writes the node of [lo, hi) if the log has one.
func (m *merge) note(lo, hi int64, left, right *cv) error {
	if m.nodes == nil || !(Part{Offset: lo, Size: hi - lo}).complete() {
		return nil
	}
	var node [nodeSize]byte
	c := parentCV(left, right, false)
	c.put(node[:])
	off := logIndex(hi/GroupSize, bits.TrailingZeros64(uint64((hi-lo)/GroupSize))) * nodeSize
	if _, err := m.nodes.WriteAt(node[:], off); err != nil {
		return &Error{"write outboard", off, err}
	}
	return nil
}
