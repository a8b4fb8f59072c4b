package merkle_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"leafproof/merkle"
)

func TestLeaves(t *testing.T) {
	type rs = []merkle.Range
	const top = math.MaxInt64
	for name, test := range map[string]struct {
		size  int64
		in    rs
		want  rs // leaves
		bytes rs
		last  bool
		err   error
	}{
		"one byte":               {5000, rs{{0, 1}}, rs{{0, 1}}, rs{{0, 1024}}, false, nil},
		"one leaf":               {5000, rs{{0, 1024}}, rs{{0, 1}}, rs{{0, 1024}}, false, nil},
		"a byte more":            {5000, rs{{0, 1025}}, rs{{0, 2}}, rs{{0, 2048}}, false, nil},
		"across a border":        {5000, rs{{1023, 1025}}, rs{{0, 2}}, rs{{0, 2048}}, false, nil},
		"empty range":            {5000, rs{{1024, 1024}}, rs{{1, 2}}, rs{{1024, 2048}}, false, nil},
		"empty at the end":       {5000, rs{{5000, 5000}}, rs{{4, 5}}, rs{{4096, 5000}}, true, nil},
		"empty at a round end":   {4096, rs{{4096, 4096}}, rs{{3, 4}}, rs{{3072, 4096}}, true, nil},
		"past the end":           {5000, rs{{9000, 9001}}, rs{{4, 5}}, rs{{4096, 5000}}, true, nil},
		"far past the end":       {5000, rs{{top, top}}, rs{{4, 5}}, rs{{4096, 5000}}, true, nil},
		"over the end":           {5000, rs{{0, top}}, rs{{0, 5}}, rs{{0, 5000}}, true, nil},
		"over the end, not last": {5000, rs{{0, 4096}}, rs{{0, 4}}, rs{{0, 4096}}, false, nil},
		"empty blob":             {0, rs{{0, 0}}, rs{{0, 1}}, rs{{0, 0}}, true, nil},
		"empty blob, far":        {0, rs{{7, 9}}, rs{{0, 1}}, rs{{0, 0}}, true, nil},
		"largest blob":           {top, rs{{0, top}}, rs{{0, 1 << 53}}, rs{{0, top}}, true, nil},
		"largest blob's end":     {top, rs{{top, top}}, rs{{1<<53 - 1, 1 << 53}}, rs{{top - 1023, top}}, true, nil},
		"unsorted":               {9000, rs{{8000, 8001}, {0, 1}}, rs{{0, 1}, {7, 8}}, rs{{0, 1024}, {7168, 8192}}, false, nil},
		"overlapping":            {9000, rs{{0, 3000}, {1000, 2000}, {2500, 4000}}, rs{{0, 4}}, rs{{0, 4096}}, false, nil},
		"touching":               {9000, rs{{0, 1024}, {1024, 2048}}, rs{{0, 2}}, rs{{0, 2048}}, false, nil},
		"same leaf":              {9000, rs{{0, 1}, {5, 6}, {9, 9}}, rs{{0, 1}}, rs{{0, 1024}}, false, nil},
		"none":                   {9000, nil, nil, nil, false, merkle.ErrRange},
		"negative":               {9000, rs{{0, 1}, {-1, 1}}, nil, nil, false, merkle.ErrRange},
		"backwards":              {9000, rs{{9, 3}}, nil, nil, false, merkle.ErrRange},
		"negative size":          {-1, rs{{0, 1}}, nil, nil, false, merkle.ErrRange},
	} {
		t.Run(name, func(t *testing.T) {
			in := slices.Clone(test.in)
			set, err := merkle.Leaves(test.size, test.in...)
			if !errors.Is(err, test.err) {
				t.Fatalf("error = %v, want %v", err, test.err)
			}
			if !slices.Equal(in, test.in) {
				t.Errorf("Leaves changed its input")
			}
			if err != nil {
				if !set.Equal(merkle.LeafSet{}) {
					t.Errorf("it failed but returned %v", set.Ranges())
				}
				return
			}
			if got := set.Ranges(); !slices.Equal(got, test.want) {
				t.Errorf("Ranges = %v, want %v", got, test.want)
			}
			if got := set.Bytes(); !slices.Equal(got, test.bytes) {
				t.Errorf("Bytes = %v, want %v", got, test.bytes)
			}
			if set.HasLast() != test.last || set.Size() != test.size {
				t.Errorf("HasLast = %v, Size = %d", set.HasLast(), set.Size())
			}
			if again, err := merkle.Leaves(test.size, set.Bytes()...); err != nil || !again.Equal(set) {
				t.Errorf("the set of its own bytes is %v, %v", again.Ranges(), err)
			}
			if again, err := merkle.LeafRanges(test.size, set.Ranges()); err != nil || !again.Equal(set) {
				t.Errorf("the set of its own ranges is %v, %v", again.Ranges(), err)
			}
		})
	}
}

func TestLeafRangesStrict(t *testing.T) {
	for name, test := range map[string]struct {
		size   int64
		leaves []merkle.Range
	}{
		"none":              {5000, nil},
		"empty":             {5000, []merkle.Range{{1, 1}}},
		"backwards":         {5000, []merkle.Range{{2, 1}}},
		"negative":          {5000, []merkle.Range{{-1, 1}}},
		"touching":          {5000, []merkle.Range{{0, 1}, {1, 2}}},
		"overlapping":       {5000, []merkle.Range{{0, 3}, {2, 4}}},
		"unsorted":          {5000, []merkle.Range{{3, 4}, {0, 1}}},
		"past the end":      {5000, []merkle.Range{{4, 6}}},
		"all past the end":  {5000, []merkle.Range{{5, 6}}},
		"past a round end":  {4096, []merkle.Range{{4, 5}}},
		"past the empty":    {0, []merkle.Range{{0, 2}}},
		"largest number":    {5000, []merkle.Range{{0, math.MaxInt64}}},
		"after the largest": {5000, []merkle.Range{{0, math.MaxInt64}, {0, 1}}},
		"negative size":     {-1, []merkle.Range{{0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := merkle.LeafRanges(test.size, test.leaves)
			if !errors.Is(err, merkle.ErrMalformed) || !set.Equal(merkle.LeafSet{}) {
				t.Errorf("LeafRanges = %v, %v, want ErrMalformed", set.Ranges(), err)
			}
		})
	}
}

func TestWithLast(t *testing.T) {
	for name, test := range map[string]struct{ in, want []merkle.Range }{
		"apart":    {[]merkle.Range{{0, 1}}, []merkle.Range{{0, 1}, {4, 5}}},
		"touching": {[]merkle.Range{{0, 1}, {2, 4}}, []merkle.Range{{0, 1}, {2, 5}}},
		"has it":   {[]merkle.Range{{4, 5}}, []merkle.Range{{4, 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := merkle.LeafRanges(5000, test.in)
			if err != nil {
				t.Fatal(err)
			}
			if got := set.WithLast(); !slices.Equal(got.Ranges(), test.want) || !got.HasLast() {
				t.Errorf("WithLast = %v, want %v", got.Ranges(), test.want)
			}
			if !slices.Equal(set.Ranges(), test.in) {
				t.Errorf("WithLast changed the set itself to %v", set.Ranges())
			}
		})
	}
}

// TestLeavesTwin compares the set with a decision leaf by leaf.
func TestLeavesTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 3000 {
		size := rng.Int64N(40_000)
		ranges := randomRanges(rng, size, 1+rng.IntN(5))
		set := leaves(t, size, ranges...)
		got := make([]bool, max(1, (size+1023)/1024))
		for _, r := range set.Ranges() {
			for leaf := r.Start; leaf < r.End; leaf++ {
				got[leaf] = true
			}
		}
		if want := twinLeaves(int(size), ranges); !slices.Equal(got, want) {
			t.Fatalf("round %d: %v of %d bytes select %v, want %v", round, ranges, size, got, want)
		}
	}
}

func randomRanges(rng *rand.Rand, size int64, n int) []merkle.Range {
	ranges := make([]merkle.Range, n)
	for i := range ranges {
		start := rng.Int64N(size + 2000)
		ranges[i] = merkle.Range{Start: start, End: start + []int64{0, 1, rng.Int64N(2000), rng.Int64N(size + 1)}[rng.IntN(4)]}
	}
	return ranges
}

func ExampleLeaves() {
	set, _ := merkle.Leaves(10_000, merkle.Range{Start: 1500, End: 1600}, merkle.Range{Start: 9_999_999, End: 9_999_999})
	fmt.Println(set.Ranges(), set.Bytes(), set.HasLast())
	// Output: [{1 2} {9 10}] [{1024 2048} {9216 10000}] true
}
