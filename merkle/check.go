package merkle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/bits"
)

// VerifyOutboard checks the outboard against the root without the data: every
// node, also those that the root does not depend on, is recomputed from the two
// below it, up to the root, and nothing may follow the last. A wrong node is
// ErrMismatch, a truncated or longer outboard ErrMalformed. It reads the outboard
// once, 0.4% of the blob, and holds a few values for each level of the tree.
//
// It says nothing of a blob of at most one group, which has no outboard, beyond
// that there is none.
func (t *Tree) VerifyOutboard(ctx context.Context) error {
	if t.size < 0 {
		return &Error{"verify outboard", -1, fmt.Errorf("%w: size %d", ErrRange, t.size)}
	}
	if t.nodes == nil && OutboardSize(t.size) == 0 {
		return nil
	}
	if t.nodes == nil {
		return &Error{"verify outboard", 0, fmt.Errorf("%w: there is none", ErrMalformed)}
	}
	s := logScan{nodes: t.nodes}
	var last *cv
	if t.size > GroupSize {
		full := t.size / GroupSize
		sound, err := s.run(ctx, full)
		if err != nil {
			return err
		}
		at := s.at - int64(len(s.have))
		if s.short {
			return cutOff(at)
		}
		if sound < full {
			return &Error{"verify outboard", at - nodeSize, fmt.Errorf("a node %w of the two below it", ErrMismatch)}
		}
		if t.size%GroupSize != 0 {
			c, ok, err := s.next()
			if err != nil {
				return err
			}
			if !ok {
				return cutOff(at)
			}
			last = &c
		}
		if c := s.top(last, true); c.root() != t.root {
			return &Error{"verify outboard", -1, fmt.Errorf("the outboard %w", ErrMismatch)}
		}
	}
	if len(s.have) == 0 && s.ended() {
		return nil
	}
	return &Error{"verify outboard", OutboardSize(t.size), fmt.Errorf("%w: bytes follow its end", ErrMalformed)}
}

// ended reports whether nothing can be read after what the scan has.
func (s *logScan) ended() bool {
	n, _ := s.nodes.ReadAt(s.buf[:1], s.at)
	return n == 0
}

func cutOff(at int64) error {
	return &Error{"verify outboard", at, fmt.Errorf("%w: the outboard is truncated", ErrMalformed)}
}

// ValidRanges yields the ranges of bytes of the blob, in order and not touching,
// that data and the outboard prove to be the blob's: whole groups that hash up
// to the root. Data and outboard may have holes of any bytes, as those of a
// receiver that was interrupted: data or nodes that are missing, cut off or wrong
// are not an error, they prove nothing. A part of the tree whose nodes are not
// there is skipped without reading its data.
//
// If within is given, only groups that touch one of these ranges of bytes, which
// must be valid for [Leaves], are looked at: a caller that knows where its holes
// are, or what it proved before, need not have the rest hashed. An error of the
// reader, of ctx or in within is yielded last.
//
// The values at the blob's right edge must be there for anything to be proven: a
// receiver asks for the last leaf first. See [BodyReader.KeepNodes].
func (t *Tree) ValidRanges(ctx context.Context, data io.ReaderAt, within ...Range) iter.Seq2[Range, error] {
	return func(yield func(Range, error) bool) {
		if len(within) == 0 {
			within = []Range{{0, t.size}}
		}
		set, err := Leaves(t.size, within...)
		if err != nil {
			yield(Range{}, err)
			return
		}
		block := max(nodeSize, min(nodeBlock, OutboardSize(t.size)))
		v := &validity{ctx: ctx, t: t, set: set, nodes: newNodeReader(t, int(block)), data: data, yield: yield}
		want := getCV(t.root[:])
		if err := v.subtree(0, t.groups(), &want); err != nil {
			if !errors.Is(err, errStopped) {
				yield(Range{}, err)
			}
			return
		}
		v.emit()
	}
}

// errStopped ends the walk of a ValidRanges whose caller has seen enough.
var errStopped = errors.New("stopped")

// validity is one ValidRanges.
type validity struct {
	ctx   context.Context
	t     *Tree
	set   LeafSet
	nodes *nodeReader
	data  io.ReaderAt
	buf   [GroupSize]byte
	run   Range // bytes that are valid and not yet yielded
	yield func(Range, error) bool
}

// subtree looks at the groups [lo, hi), whose value must be want.
func (v *validity) subtree(lo, hi int64, want *cv) error {
	root := hi-lo == v.t.groups()
	if v.set.covers(lo*groupLeaves, hi*groupLeaves) == none {
		return nil
	}
	if hi-lo == 1 {
		return v.group(lo, want, root)
	}
	mid := lo + split(hi-lo)
	left, err := v.nodes.value(lo, mid)
	if err == nil {
		var right cv
		if right, err = v.nodes.value(mid, hi); err == nil {
			if parentCV(&left, &right, root) != *want {
				return nil
			}
			if err := v.subtree(lo, mid, &left); err != nil {
				return err
			}
			return v.subtree(mid, hi, &right)
		}
	}
	if errors.Is(err, ErrMalformed) {
		return nil // the outboard does not reach so far
	}
	return err
}

func (v *validity) group(g int64, want *cv, root bool) error {
	if err := v.ctx.Err(); err != nil {
		return &Error{"verify", g * GroupSize, err}
	}
	start := g * GroupSize
	p := v.buf[:min(v.t.size-start, GroupSize)]
	if err := readFull(v.data, p, start); err != nil {
		if errors.Is(err, ErrChanged) {
			return nil
		}
		return err
	}
	if leavesCV(p, g*groupLeaves, root) != *want {
		return nil
	}
	if v.run.End != start || v.run.End == v.run.Start {
		if !v.emit() {
			return errStopped
		}
		v.run.Start = start
	}
	v.run.End = start + int64(len(p))
	return nil
}

// emit yields what is valid so far and reports whether to go on.
func (v *validity) emit() bool {
	r := v.run
	v.run = Range{}
	return r.End == r.Start || v.yield(r, nil)
}

// nodePlace returns the index in the sealed outboard of the node of the groups
// [lo, hi) of a blob of size bytes, or false if it has none: a subtree at the
// right edge that is not perfect.
func nodePlace(size, lo, hi int64) (int64, bool) {
	full := size / GroupSize
	switch n := hi - lo; {
	case hi > full && n == 1:
		return logSize(full), true
	case hi > full || n&(n-1) != 0:
		return 0, false
	default:
		return logIndex(hi, bits.TrailingZeros64(uint64(n))), true
	}
}
