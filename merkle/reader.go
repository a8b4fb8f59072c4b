package merkle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// BodyReader verifies a body while it reads it. Its memory is one buffer of
// 20 KiB and a few values for each level of the tree, whatever the body says of
// itself.
type BodyReader struct {
	r     io.Reader
	root  Root
	set   LeafSet
	shape shape

	limit      int64 // bytes of the body that are not yet in buf
	buf        []byte
	start, end int

	shown func(lo, hi int64, left, right cv) error // gets every parent that was verified, of leaves; may be nil

	ahead     values // of the parents in buf from aheadFrom to aheadEnd
	aheadFrom int
	aheadEnd  int

	stack  []subtree // what is still to come, the next on top
	begun  bool
	proven bool
	err    error // final
}

// subtree is a part of the tree that a body still has to show: the leaves
// [lo, hi), of which at least one is selected, and the value they must have.
type subtree struct {
	lo, hi int64
	want   cv
	root   bool
}

// maxBuffer is a group and a little, which is read ahead so that the parents
// before the next group come with this one. What was read ahead is moved to the
// front for the next group, so it is no more than that.
const maxBuffer = GroupSize + 4<<10

// NewBodyReader returns a BodyReader of the lps1 body in r that proves the
// leaves of set under root. The set is the reader's own or comes from something
// it trusts: a body does not state what it proves. The length that the body
// states must be set.Size().
//
// Exactly BodySize(set) bytes are read from r, so r may go on after the body. A
// caller to whom somebody stated the body's length compares it with BodySize:
// the body of a set may begin like the body of a larger one.
func NewBodyReader(r io.Reader, root Root, set LeafSet) *BodyReader {
	b := newBodyReader(r, root, set, lps1)
	if len(set.ranges) == 0 {
		b.err = &Error{"verify", -1, fmt.Errorf("%w: nothing selected", ErrRange)}
	}
	return b
}

func newBodyReader(r io.Reader, root Root, set LeafSet, s shape) *BodyReader {
	limit := s.size(set)
	return &BodyReader{r: r, root: root, set: set, shape: s, limit: limit, buf: make([]byte, min(limit, maxBuffer))}
}

// Next returns the next verified bytes of the selected leaves, in order: at most
// GroupSize of them, valid until the next call, with their offset in the blob.
// After the last of them it returns io.EOF; the empty blob has none, and io.EOF
// says that it was verified.
//
// A body whose bytes, nodes or length do not match the root and the set is
// ErrMismatch, a truncated one ErrMalformed; an error of the reader is passed
// on. An error is final.
func (b *BodyReader) Next() (offset int64, p []byte, err error) {
	if b.err != nil {
		return 0, nil, b.err
	}
	offset, p, err = b.next()
	b.err = err
	return offset, p, err
}

// SizeProven reports whether the size of the blob is proven, and not only
// claimed: the last leaf was among the leaves verified so far.
func (b *BodyReader) SizeProven() bool { return b.proven }

func (b *BodyReader) next() (int64, []byte, error) {
	if !b.begun {
		if err := b.begin(); err != nil {
			return 0, nil, err
		}
	}
	for len(b.stack) > 0 {
		s := b.stack[len(b.stack)-1]
		b.stack = b.stack[:len(b.stack)-1]
		if s.hi-s.lo > b.shape.unit || b.set.covers(s.lo, s.hi) != all {
			if err := b.parent(&s); err != nil {
				return 0, nil, err
			}
			continue
		}
		offset := s.lo * LeafSize
		p, err := b.take(int(b.set.offset(s.hi) - offset))
		if err != nil {
			return 0, nil, err
		}
		if leavesCV(p, s.lo, s.root) != s.want {
			return 0, nil, &Error{"verify", offset, fmt.Errorf("%w: %d bytes", ErrMismatch, len(p))}
		}
		b.proven = b.proven || s.hi == leafCount(b.set.size)
		if len(p) > 0 {
			return offset, p, nil
		}
	}
	return 0, nil, io.EOF
}

// begin reads the length and puts the whole tree on the stack.
func (b *BodyReader) begin() error {
	size, err := b.takeSize()
	if err != nil {
		return err
	}
	if size != b.set.size {
		return &Error{"verify", -1, fmt.Errorf("the length in the proof, %d, %w: it must be %d", size, ErrMismatch, b.set.size)}
	}
	b.push()
	return nil
}

func (b *BodyReader) push() {
	b.begun = true
	b.stack = append(make([]subtree, 0, 8), subtree{0, leafCount(b.set.size), getCV(b.root[:]), true})
}

func (b *BodyReader) takeSize() (int64, error) {
	p, err := b.take(headerSize)
	if err != nil {
		return 0, err
	}
	return parseSize(p)
}

// parseSize reads the length at the start of a body.
func parseSize(p []byte) (int64, error) {
	size := binary.LittleEndian.Uint64(p)
	if size > math.MaxInt64 {
		return 0, &Error{"read proof", -1, fmt.Errorf("%w: length %d", ErrMalformed, size)}
	}
	return int64(size), nil
}

// parent reads the parent of a subtree, checks it, and puts those of its
// children on the stack that hold something selected.
func (b *BodyReader) parent(s *subtree) error {
	p, err := b.take(parentSize)
	if err != nil {
		return err
	}
	left, right := getCV(p), getCV(p[nodeSize:])
	if b.parentCV(&left, &right, s) != s.want {
		return &Error{"verify", s.lo * LeafSize, fmt.Errorf("a node of the proof %w", ErrMismatch)}
	}
	if b.shown != nil {
		if err := b.shown(s.lo, s.hi, left, right); err != nil {
			return err
		}
	}
	mid := s.lo + split(s.hi-s.lo)
	if b.set.covers(mid, s.hi) != none {
		b.stack = append(b.stack, subtree{mid, s.hi, right, false})
	}
	if b.set.covers(s.lo, mid) != none {
		b.stack = append(b.stack, subtree{s.lo, mid, left, false})
	}
	return nil
}

// parentCV returns the value of a parent that was just taken. The way down to
// the first selected leaf of a subtree is one parent after the other, so where it
// is long, the values of 16 parents are computed at once. Blocks that turn out to
// be something else do no harm: nobody asks for their value.
func (b *BodyReader) parentCV(left, right *cv, s *subtree) cv {
	at := b.start - parentSize
	if !wide || s.root {
		return parentCV(left, right, s.root)
	}
	if at < b.aheadFrom || at >= b.aheadEnd || (at-b.aheadFrom)%parentSize != 0 {
		way := bits.Len64(uint64(s.hi - s.lo - 1))
		if way > groupHeight {
			way -= groupHeight
		}
		n := min((b.end-at)/parentSize, wideLanes)
		if min(way, n) < wideFrom {
			return parentCV(left, right, false)
		}
		b.aheadFrom, b.aheadEnd = at, at+n*parentSize
		for i := range 2 * n {
			b.ahead[i] = getCV(b.buf[at+i*nodeSize:])
		}
		b.ahead.parents(n)
	}
	return b.ahead[(at-b.aheadFrom)/parentSize]
}

// take returns the next n ≤ GroupSize bytes of the body, valid until it is
// called again.
func (b *BodyReader) take(n int) ([]byte, error) {
	if have := b.end - b.start; have < n {
		copy(b.buf, b.buf[b.start:b.end])
		b.start, b.end = 0, have
		b.aheadEnd = 0
		space := b.buf[have:]
		space = space[:min(int64(len(space)), b.limit)]
		got, err := io.ReadAtLeast(b.r, space, n-have)
		b.end += got
		b.limit -= int64(got)
		if err != nil {
			return nil, readError(err)
		}
	}
	b.start += n
	return b.buf[b.start-n : b.start], nil
}

// readError returns the error for a proof that could not be read: an early end
// is the proof's fault, anything else the reader's.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it is truncated", ErrMalformed)
	}
	return &Error{"read proof", -1, err}
}
