package selector

import "slices"

// Trust says what a validating pass over the records found ([BuildMap]), as a
// signed manifest repeats it. The zero Trust says that there was none, and
// every record is checked again as it is examined.
//
// A Trust that is wrong makes answers wrong, never a panic: records are then
// judged by what stands in front of the fault.
type Trust struct {
	Validated   bool
	Undecidable int64  // records that some query cannot decide
	Spans       []Span // the first of them
}

// Trust returns what the pass tells about the records.
func (s Stats) Trust() Trust {
	return Trust{Validated: true, Undecidable: s.Undecidable, Spans: s.UndecidableSpans}
}

// suspects returns the records that must still be checked, by their place. It
// is false where any record may be one of them.
func (t Trust) suspects() ([]Span, bool) {
	if !t.Validated || t.Undecidable != int64(len(t.Spans)) {
		return nil, false
	}
	spans := slices.Clone(t.Spans)
	slices.SortFunc(spans, func(a, b Span) int { return compareInt(a.Start, b.Start) })
	return spans, true
}

func compareInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func quickSpace(p []byte, i int) int {
	for i < len(p) && (p[i] == ' ' || p[i] == '\n' || p[i] == '\t' || p[i] == '\r') {
		i++
	}
	return i
}
