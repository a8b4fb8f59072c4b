package bundle

import (
	"cmp"
	"slices"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// canonicalBytes clamps byte ranges to the blob, sorts them and merges those that
// touch, so that one set of bytes has one spelling in a claim.
func canonicalBytes(size int64, ranges []merkle.Range) []merkle.Range {
	out := make([]merkle.Range, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, merkle.Range{Start: min(r.Start, size), End: min(r.End, size)})
	}
	slices.SortFunc(out, func(a, b merkle.Range) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	merged := out[:0]
	for _, r := range out {
		if n := len(merged); n > 0 && r.Start <= merged[n-1].End {
			merged[n-1].End = max(merged[n-1].End, r.End)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// appendSpan adds a record's bytes to ranges, joined to the last one where no
// whole leaf lies between them: so a long run of records stays one range.
func appendSpan(ranges []merkle.Range, s selector.Span) []merkle.Range {
	end := max(s.End, s.Start+1) // an empty record shows the leaf it stands in
	if n := len(ranges); n > 0 {
		last := &ranges[n-1]
		if s.Start/merkle.LeafSize <= (last.End-1)/merkle.LeafSize+1 {
			last.End = max(last.End, end)
			return ranges
		}
	}
	return append(ranges, merkle.Range{Start: s.Start, End: end})
}

// mapLeaves is the set of a record map's leaves that a claim shows: the header
// and the pages, each of which is one leaf.
func mapLeaves(size int64, pages merkle.Range) (merkle.LeafSet, error) {
	if pages.Start == 1 {
		return merkle.LeafRanges(size, []merkle.Range{{Start: 0, End: pages.End}})
	}
	return merkle.LeafRanges(size, []merkle.Range{{Start: 0, End: 1}, pages})
}

func pairs(ranges []merkle.Range) [][2]int64 {
	out := make([][2]int64, len(ranges))
	for i, r := range ranges {
		out[i] = [2]int64{r.Start, r.End}
	}
	return out
}

func unpair(pairs [][2]int64) []merkle.Range {
	out := make([]merkle.Range, len(pairs))
	for i, p := range pairs {
		out[i] = merkle.Range{Start: p[0], End: p[1]}
	}
	return out
}

// Layout is how a manifest says that records stand in the artifact, in the
// selector's words.
func Layout(r *manifest.Records) selector.Layout {
	l := selector.Layout{
		Format:  r.Format,
		Pointer: r.Pointer,
		Limits: selector.Limits{
			Depth: r.Limits.Depth, Digits: r.Limits.Digits, Exponent: r.Limits.Exponent, Record: r.Limits.Record,
		},
	}
	if d := r.Dialect; d != nil {
		l.Dialect = selector.Dialect{Delimiter: d.Delimiter, Quote: d.Quote, Header: d.Header, Columns: d.Columns}
	}
	return l
}
