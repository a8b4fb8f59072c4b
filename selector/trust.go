package selector

import (
	"bytes"
	"slices"
)

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

// The functions below read JSON that is known to be valid and without duplicate
// names: they look only for what they need and stop at the first hit. On other
// bytes they return something, and never read outside of p.

// quickFind returns the value at path in a valid JSON value. ok is false where
// nothing stands there; broken is true where p cannot be valid.
func quickFind(p []byte, path []step) (v []byte, ok, broken bool) {
	i := quickSpace(p, 0)
	for _, st := range path {
		if i >= len(p) {
			return nil, false, true
		}
		switch {
		case p[i] == '{' && st.named:
			i, ok, broken = quickMember(p, i+1, st.name)
		case p[i] == '[' && st.index >= 0:
			i, ok, broken = quickElement(p, i+1, st.index)
		default:
			return nil, false, false
		}
		if !ok {
			return nil, false, broken
		}
	}
	if i >= len(p) {
		return nil, false, true
	}
	end := quickSkip(p, i)
	if end < 0 {
		return nil, false, true
	}
	return p[i:end], true, false
}

// quickMember returns where the value of the member name begins, in an object
// that was entered.
func quickMember(p []byte, i int, name string) (at int, ok, broken bool) {
	for {
		i = quickSpace(p, i)
		if i >= len(p) || p[i] != '"' {
			return 0, false, i >= len(p) || p[i] != '}'
		}
		begin := i + 1
		end, escaped := quickString(p, begin)
		if end < 0 {
			return 0, false, true
		}
		hit := false
		if !escaped {
			hit = string(p[begin:end-1]) == name
		} else if end-begin <= 6*len(name)+1 {
			got, good := unquote(p[i:end], nil)
			hit = good && string(got) == name
		}
		i = quickSpace(p, end)
		if i >= len(p) || p[i] != ':' {
			return 0, false, true
		}
		i = quickSpace(p, i+1)
		if hit {
			return i, true, false
		}
		if i = quickSkip(p, i); i < 0 {
			return 0, false, true
		}
		i = quickSpace(p, i)
		if i < len(p) && p[i] == ',' {
			i++
		}
	}
}

// quickElement returns where the element n begins, in an array that was entered.
func quickElement(p []byte, i int, n int64) (at int, ok, broken bool) {
	for ; ; n-- {
		i = quickSpace(p, i)
		if i >= len(p) {
			return 0, false, true
		}
		if p[i] == ']' {
			return 0, false, false
		}
		if n == 0 {
			return i, true, false
		}
		if i = quickSkip(p, i); i < 0 {
			return 0, false, true
		}
		i = quickSpace(p, i)
		if i < len(p) && p[i] == ',' {
			i++
		}
	}
}

func quickSpace(p []byte, i int) int {
	for i < len(p) && (p[i] == ' ' || p[i] == '\n' || p[i] == '\t' || p[i] == '\r') {
		i++
	}
	return i
}

// quickString returns where a string ends whose opening quote is at i-1, and
// whether a backslash is in it; -1 where it does not end.
func quickString(p []byte, i int) (end int, escaped bool) {
	for begin := i; ; {
		n := bytes.IndexByte(p[i:], '"')
		if n < 0 {
			return -1, false
		}
		i += n
		slashes := 0
		for j := i - 1; j >= begin && p[j] == '\\'; j-- {
			slashes++
		}
		if slashes&1 == 0 {
			return i + 1, escaped || slashes > 0 || bytes.IndexByte(p[begin:i], '\\') >= 0
		}
		escaped = true
		i++
	}
}

// quickSkip returns where the value at i ends; -1 where it does not.
func quickSkip(p []byte, i int) int {
	if i >= len(p) {
		return -1
	}
	switch p[i] {
	case '"':
		return quickStringEnd(p, i+1)
	case '{', '[':
		return quickContainer(p, i+1)
	}
	begin := i
	for i < len(p) && !quickEnd[p[i]] {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// quickStringEnd is quickString without a look at escapes.
func quickStringEnd(p []byte, i int) int {
	for begin := i; ; i++ {
		n := bytes.IndexByte(p[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		if i == begin || p[i-1] != '\\' {
			return i + 1
		}
		slashes := 1
		for j := i - 2; j >= begin && p[j] == '\\'; j-- {
			slashes++
		}
		if slashes&1 == 0 {
			return i + 1
		}
	}
}

// quickEnd marks the bytes that end a number or literal.
var quickEnd = [256]bool{',': true, '}': true, ']': true, ':': true, ' ': true, '\n': true, '\t': true, '\r': true, '"': true, '{': true, '[': true}

// quickContainer returns where a container ends that was entered.
func quickContainer(p []byte, i int) int {
	for depth := 1; i < len(p); i++ {
		switch p[i] {
		case '"':
			end := quickStringEnd(p, i+1)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// quick decides the condition for a record that was validated.
func (e *evaluator) quick(p []byte) Outcome {
	if e.where.redacted || e.layout.Format != FormatNDJSON && e.layout.Format != FormatJSON {
		return e.eval(p)
	}
	v, ok, broken := quickFind(p, e.where.path)
	switch {
	case broken || int64(len(p)) > e.layout.Limits.Record:
		return Undecidable
	case !ok:
		return Unmatched
	}
	kind := v[0]
	if kind == '-' || kind >= '0' && kind <= '9' {
		kind = '0'
	}
	e.scan.buf = v
	return e.value(token{kind: kind, start: 0, end: int64(len(v))})
}
