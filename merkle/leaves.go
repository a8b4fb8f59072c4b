package merkle

import (
	"fmt"
	"slices"
)

// Range is the half-open range [Start, End). Its unit, bytes or leaves, is said
// where it is used.
type Range struct{ Start, End int64 }

// LeafSet is a canonical set of leaves of a blob of a known size: what a proof
// selects. The zero LeafSet is empty and valid for nothing. A LeafSet is
// immutable.
type LeafSet struct {
	size   int64
	ranges []Range // leaves: sorted, not empty, not touching
}

// leafCount returns the number of leaves of a blob of size bytes, at least 1.
func leafCount(size int64) int64 {
	if size == 0 {
		return 1
	}
	return (size-1)/LeafSize + 1
}

// Leaves returns the leaves that hold the given byte ranges of a blob of size
// bytes. It is the one function that decides this, for whoever writes a proof
// and whoever checks it:
//
//   - the range [a, b) becomes the leaves that hold its bytes;
//   - the empty range [a, a) becomes the leaf of byte a;
//   - what lies past the end is cut off, and a range that starts there becomes
//     the last leaf, which proves the end;
//   - ranges are sorted, and merged where they overlap or touch.
//
// No range at all, a negative start, an end before its start and a negative
// size are ErrRange.
func Leaves(size int64, bytes ...Range) (LeafSet, error) {
	if size < 0 || len(bytes) == 0 {
		return LeafSet{}, &Error{"select", -1, fmt.Errorf("%w: %d ranges of %d bytes", ErrRange, len(bytes), size)}
	}
	count := leafCount(size)
	leaves := make([]Range, len(bytes))
	for i, r := range bytes {
		if r.Start < 0 || r.End < r.Start {
			return LeafSet{}, &Error{"select", -1, fmt.Errorf("%w: bytes %d:%d", ErrRange, r.Start, r.End)}
		}
		start := min(r.Start/LeafSize, count-1)
		end := start + 1
		if r.End > r.Start {
			end = min(max(end, (r.End-1)/LeafSize+1), count)
		}
		leaves[i] = Range{start, end}
	}
	slices.SortFunc(leaves, func(a, b Range) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
	n := 0
	for _, r := range leaves[1:] {
		if last := &leaves[n]; r.Start <= last.End {
			last.End = max(last.End, r.End)
			continue
		}
		n++
		leaves[n] = r
	}
	return LeafSet{size, leaves[: n+1 : n+1]}, nil
}

// LeafRanges returns the set of exactly these ranges of leaves. It is for
// ranges that were sent in canonical form, and repairs nothing: ranges that are
// empty, unsorted, overlapping, touching or past the last leaf, and no range at
// all, are ErrMalformed.
func LeafRanges(size int64, leaves []Range) (LeafSet, error) {
	if size < 0 || len(leaves) == 0 {
		return LeafSet{}, &Error{"select", -1, fmt.Errorf("%w: %d ranges of %d bytes", ErrMalformed, len(leaves), size)}
	}
	count, next := leafCount(size), int64(0)
	for _, r := range leaves {
		if r.Start < next || r.End <= r.Start || r.End > count {
			return LeafSet{}, &Error{"select", -1, fmt.Errorf("%w: leaves %d:%d after %d, of %d", ErrMalformed, r.Start, r.End, next, count)}
		}
		next = r.End + 1
	}
	return LeafSet{size, slices.Clone(leaves)}, nil
}

// Size returns the size in bytes of the blob that the set selects from.
func (s LeafSet) Size() int64 { return s.size }

// Ranges returns the set as ranges of leaves, in order.
func (s LeafSet) Ranges() []Range { return slices.Clone(s.ranges) }

// Bytes returns the set as ranges of bytes, in order, cut off at the end of the
// blob.
func (s LeafSet) Bytes() []Range {
	b := make([]Range, len(s.ranges))
	for i, r := range s.ranges {
		b[i] = Range{r.Start * LeafSize, s.offset(r.End)}
	}
	return b
}

// Equal reports whether both sets select the same leaves of blobs of the same
// size.
func (s LeafSet) Equal(o LeafSet) bool {
	return s.size == o.size && slices.Equal(s.ranges, o.ranges)
}

// HasLast reports whether the set contains the blob's last leaf, so that a
// proof of it proves the size too.
func (s LeafSet) HasLast() bool {
	return len(s.ranges) > 0 && s.ranges[len(s.ranges)-1].End == leafCount(s.size)
}

// WithLast returns the set with the blob's last leaf added.
func (s LeafSet) WithLast() LeafSet {
	if len(s.ranges) == 0 || s.HasLast() {
		return s
	}
	count := leafCount(s.size)
	ranges := slices.Clone(s.ranges)
	if last := &ranges[len(ranges)-1]; last.End == count-1 {
		last.End = count
	} else {
		ranges = append(ranges, Range{count - 1, count})
	}
	return LeafSet{s.size, ranges}
}

// offset returns the first byte of a leaf, or the end of the blob if the leaf
// lies past it.
func (s LeafSet) offset(leaf int64) int64 {
	if leaf > s.size/LeafSize {
		return s.size
	}
	return leaf * LeafSize
}

// cover says how much of a subtree a set selects.
type cover uint8

const (
	none cover = iota
	some
	all
)

// covers returns how much of the leaves [lo, hi) is selected.
func (s LeafSet) covers(lo, hi int64) cover {
	r := s.find(lo)
	switch {
	case r.Start >= hi:
		return none
	case r.Start <= lo && hi <= r.End:
		return all
	}
	return some
}

// find returns the first range that ends after a leaf; after the last range, one
// that lies past every leaf.
func (s LeafSet) find(leaf int64) Range {
	lo, hi := 0, len(s.ranges)
	for lo < hi {
		if mid := (lo + hi) / 2; s.ranges[mid].End <= leaf {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.ranges) {
		return Range{1 << 62, 1 << 62}
	}
	return s.ranges[lo]
}
