package leafproof

import (
	"cmp"
	"slices"

	"leafproof/merkle"
)

// maxDisclosed is how many ranges a receipt lists.
const maxDisclosed = 256

// spanSet collects the ranges of bytes that were given out, in memory that does
// not grow: when there are too many, it rounds them outward to coarser steps.
type spanSet struct {
	step  int64      // ranges are multiples of it; 0: exact
	spans [][2]int64 // ascending, apart from one another
}

// add takes a range in. An empty one shows no byte.
func (s *spanSet) add(r merkle.Range) {
	if r.Start >= r.End {
		return
	}
	s.insert(s.round([2]int64{r.Start, r.End}))
	for len(s.spans) > maxDisclosed {
		s.step = max(merkle.LeafSize, 2*s.step)
		old := s.spans
		s.spans = nil
		for _, r := range old {
			s.insert(s.round(r))
		}
	}
}

func (s *spanSet) round(r [2]int64) [2]int64 {
	if s.step > 0 {
		r[0] -= r[0] % s.step
		if up := r[1] % s.step; up > 0 {
			r[1] += s.step - up
		}
	}
	return r
}

// insert merges a range with those that it touches.
func (s *spanSet) insert(r [2]int64) {
	first, _ := slices.BinarySearchFunc(s.spans, r[0], func(o [2]int64, start int64) int { return cmp.Compare(o[1], start) })
	last := first
	for last < len(s.spans) && s.spans[last][0] <= r[1] {
		r[0], r[1] = min(r[0], s.spans[last][0]), max(r[1], s.spans[last][1])
		last++
	}
	s.spans = slices.Replace(s.spans, first, last, r)
}

// list returns the ranges, none of which passes the end of an artifact, and
// whether they are exact.
func (s *spanSet) list(size int64) (ranges [][2]int64, exact bool) {
	ranges = slices.Clone(s.spans)
	if n := len(ranges); n > 0 {
		ranges[n-1][1] = min(ranges[n-1][1], size)
	}
	return ranges, s.step == 0
}
