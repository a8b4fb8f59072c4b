package selector_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// mapRuns returns the leaves of a map that records stand on, as runs, and their bytes.
func mapRuns(t testing.TB, b built, records []int64) (runs []merkle.Range, pages []byte) {
	t.Helper()
	for _, r := range records {
		p, err := b.m.Pages(r, r+1)
		if err != nil {
			t.Fatal(err)
		}
		n := len(runs)
		switch {
		case n > 0 && runs[n-1].End > p.Start:
			continue
		case n > 0 && runs[n-1].End == p.Start:
			runs[n-1].End = p.End
		default:
			runs = append(runs, p)
		}
		pages = append(pages, b.bytes[p.Start*1024:p.End*1024]...)
	}
	return runs, pages
}

func spansOf(b built, src []byte, runs []merkle.Range, pages []byte, records []int64) ([]selector.PlacedSpan, error) {
	want := selector.MapWant{Root: merkle.Sum(src), Size: int64(len(src)), Layout: b.layout, Records: b.info.Records, MapSize: b.info.Size}
	var out []selector.PlacedSpan
	for s, err := range selector.MapSpansOf(b.bytes[:1024], bytes.NewReader(pages), runs, slices.Values(records), want) {
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

// TestMapSpansOf asks for random records, and then for what the pages do not hold.
func TestMapSpansOf(t *testing.T) {
	src := lines(20_000, 90, 3)
	b := build(t, src, selector.Layout{Format: "text"})
	all := spans(t, b.m)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		var records []int64
		for r := rng.IntN(2000); r < len(all); r += 1 + rng.IntN(1+rng.IntN(3000)) {
			records = append(records, int64(r))
		}
		runs, pages := mapRuns(t, b, records)
		got, err := spansOf(b, src, runs, pages, records)
		if err != nil || len(got) != len(records) {
			t.Fatalf("%d of %d records: %v", len(got), len(records), err)
		}
		for i, s := range got {
			if s.Record != records[i] || s.Span != all[s.Record] {
				t.Fatalf("record %d stands at %v, not at %v", records[i], all[records[i]], s)
			}
		}
		fails := func(what string, runs []merkle.Range, pages []byte, records []int64) {
			t.Helper()
			if _, err := spansOf(b, src, runs, pages, records); !errors.Is(err, selector.ErrMap) {
				t.Errorf("%s: %v", what, err)
			}
		}
		fails("bytes behind the last page", runs, append(slices.Clone(pages), 0), records)
		fails("a page missing", runs, pages[:len(pages)-1024], records)
		fails("no page", nil, nil, records)
		if len(runs) > 1 {
			fails("the first run missing", runs[1:], pages[1024*(runs[0].End-runs[0].Start):], records)
			fails("the last run missing", runs[:len(runs)-1], pages[:len(pages)-int(1024*(runs[len(runs)-1].End-runs[len(runs)-1].Start))], records)
			swapped := slices.Clone(runs)
			swapped[0], swapped[1] = swapped[1], swapped[0]
			fails("runs swapped", swapped, pages, records)
			moved := slices.Clone(pages)
			copy(moved, pages[len(pages)-1024:])
			fails("another page in the place of the first", runs, moved, records)
			onLast, _ := mapRuns(t, b, records[len(records)-1:])
			fails("a page more than needed", runs, pages, slices.DeleteFunc(slices.Clone(records), func(r int64) bool {
				p, _ := b.m.Pages(r, r+1)
				return p == onLast[0]
			}))
		}
	}
	if _, err := spansOf(b, src, nil, nil, nil); err != nil {
		t.Errorf("no record on no page: %v", err)
	}
	if _, err := spansOf(b, src, []merkle.Range{{Start: 1, End: 1 << 62}}, nil, nil); !errors.Is(err, selector.ErrMap) {
		t.Errorf("leaves that there are not: %v", err)
	}
}
