package selector

import (
	"iter"
	"math/bits"
	"slices"
)

// What a recordSet may take: 8 MiB as a list, and as much again as bits.
const (
	maxSetList = 1 << 20 // records in a list
	maxBits    = 1 << 26 // records of an artifact that can have a bit each
)

// recordSet is a set of record numbers below a known one. It takes memory for
// what is put in, and never more than 8 MiB for long.
type recordSet struct {
	records int64   // of the artifact
	list    []int64 // in any order, some twice, until it is settled
	settled bool
	bits    []uint64 // nil: the list has them
}

// add puts a record into the set. It fails with ErrLimit where so many records
// of such an artifact cannot be held.
func (s *recordSet) add(record int64) error {
	if s.bits != nil {
		s.bits[record/64] |= 1 << (record % 64)
		return nil
	}
	if n := len(s.list); n > 0 && record <= s.list[n-1] {
		s.settled = false
	} else if n == 0 {
		s.settled = true
	}
	s.list = append(s.list, record)
	if len(s.list) < maxSetList {
		return nil
	}
	s.settle()
	if len(s.list) < maxSetList/2 {
		return nil
	}
	if s.records > maxBits {
		return fail("answer", -1, ErrLimit, "over %d candidates among %d records", len(s.list), s.records)
	}
	s.bits = make([]uint64, (s.records+63)/64)
	for _, r := range s.list {
		s.bits[r/64] |= 1 << (r % 64)
	}
	s.list = nil
	return nil
}

// settle sorts the list and drops what is in it twice.
func (s *recordSet) settle() {
	if !s.settled {
		slices.Sort(s.list)
		s.list = slices.Compact(s.list)
		s.settled = true
	}
}

func (s *recordSet) has(record int64) bool {
	if s.bits != nil {
		return s.bits[record/64]&(1<<(record%64)) != 0
	}
	s.settle()
	_, ok := slices.BinarySearch(s.list, record)
	return ok
}

// each yields the records in ascending order, each once.
func (s *recordSet) each() iter.Seq[int64] {
	if s.bits == nil {
		s.settle()
		return slices.Values(s.list)
	}
	return func(yield func(int64) bool) {
		for i, w := range s.bits {
			for ; w != 0; w &= w - 1 {
				if !yield(int64(i)*64 + int64(bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// unionOf yields what is in one of two sets, in ascending order and each once, and
// no more than so many; a negative number is no bound.
func unionOf(a, b *recordSet, most int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		next, stop := iter.Pull(b.each())
		defer stop()
		other, more := next()
		left := most
		give := func(r int64) bool {
			if left == 0 {
				return false
			}
			left--
			return yield(r)
		}
		for r := range a.each() {
			for more && other < r {
				if !give(other) {
					return
				}
				other, more = next()
			}
			if more && other == r {
				other, more = next()
			}
			if !give(r) {
				return
			}
		}
		for more && give(other) {
			other, more = next()
		}
	}
}
