package selector

import (
	"bytes"
	"unicode/utf8"
)

// room for a preview, from generous to poor: strings are cut before many rows
// are lost, rows before columns, columns before depth.
var previewSteps = []struct {
	text, keys, depth int
	least             int // rows that make it worth it
}{
	{400, sketchKeys, sketchDepth, sketchItems},
	{120, sketchKeys, 8, 5},
	{40, sketchKeys, 6, 3},
	{40, sketchKeys, 6, 1},
	{24, 80, 4, 1},
	{24, 40, 3, 1},
	{16, 20, 3, 1},
	{12, 10, 2, 1},
	{8, 5, 1, 0},
	{0, 0, 0, 0},
}

// render finds the richest preview that fits.
func (v *sketcher) render(root *sketch, chars int) ([]byte, error) {
	if chars < MinPreview {
		return nil, fail("preview", -1, ErrLimit, "%d characters: it needs at least %d", chars, MinPreview)
	}
	line := cutText(v.shape.line(), max(0, min(maxShape, chars/4)), true)
	longest := root.longest()
	for _, step := range previewSteps {
		try := func(items int) []byte {
			r := renderer{text: step.text, keys: step.keys, depth: step.depth, items: items, most: 4 * chars}
			return r.frame(root, line)
		}
		low, high := min(step.least, longest), longest
		best := try(low)
		if best == nil || units(best) > chars {
			continue
		}
		for low < high { // the most rows that fit
			mid := (low + high + 1) / 2
			if p := try(mid); p != nil && units(p) <= chars {
				low, best = mid, p
			} else {
				high = mid - 1
			}
		}
		return best, nil
	}
	return nil, fail("preview", -1, ErrLimit, "the value cannot be shown in %d characters", chars)
}

// longest is how many kept elements the longest kept array has.
func (s *sketch) longest() int {
	n := 0
	if s.kind == '[' {
		n = len(s.kids)
	}
	for _, k := range s.kids {
		n = max(n, k.longest())
	}
	return n
}

// units counts UTF-16 units.
func units(p []byte) int {
	n := utf8.RuneCount(p)
	for _, c := range p {
		if c >= 0xf0 { // a character of two units
			n++
		}
	}
	return n
}

// renderer writes a sketch within bounds.
type renderer struct {
	text, keys, depth, items int
	most                     int // bytes, beyond which it is hopeless

	out    []byte
	path   []byte // JSON Pointer of the value, as the inside of a JSON string
	elided []byte
	listed int
	more   int64
}

// frame writes the preview and its frame; nil where it becomes hopeless.
func (r *renderer) frame(root *sketch, line []byte) []byte {
	r.out = append(r.out, `{"preview":`...)
	if !r.value(root, 0) {
		return nil
	}
	r.out = append(append(r.out, `,"elided":[`...), r.elided...)
	r.out = append(r.out, ']')
	if r.more > 0 {
		r.out = appendNumber(append(r.out, `,"more_elided":`...), r.more)
	}
	return append(append(append(r.out, `,"shape":"`...), line...), `"}`...)
}

func appendNumber(b []byte, n int64) []byte {
	digits := appendCount(nil, n, 0)
	end := bytes.Index(digits, []byte(`,"total"`))
	return append(b, digits[len(`,"shown":`):end]...)
}

// note lists an elision at the current path.
func (r *renderer) note(kind string, shown, total int64) {
	if r.listed == maxElided || utf8.RuneCount(r.path) > maxPointed {
		r.more++
		return
	}
	if r.listed++; r.listed > 1 {
		r.elided = append(r.elided, ',')
	}
	r.elided = append(append(r.elided, `{"at":"`...), r.path...)
	r.elided = append(append(append(r.elided, `","kind":"`...), kind...), '"')
	r.elided = append(appendCount(r.elided, shown, total), '}')
}

func (r *renderer) value(s *sketch, depth int) bool {
	switch s.kind {
	case '"':
		r.out = append(r.out, '"')
		shown := cutText(s.text, r.text, true)
		total := s.span.Len() - 2
		if int64(len(s.text)) < total && !bytes.HasSuffix(shown, []byte("…")) {
			shown = append(shown, "…"...)
		}
		r.out = append(append(r.out, shown...), '"')
		if int64(len(s.text)) < total || len(s.text) > r.text {
			r.note("string", int64(len(bytes.TrimSuffix(shown, []byte("…")))), total)
		}
	case '{':
		return r.object(s, depth)
	case '[':
		return r.array(s, depth)
	case '0':
		if s.span.Len() > max(40, int64(r.text)) {
			r.out = append(r.out, "null"...)
			r.note("number", 0, s.span.Len())
			break
		}
		r.out = append(r.out, s.text...)
	default:
		r.out = append(r.out, s.text...)
	}
	return len(r.out)+len(r.elided) <= r.most
}

func (r *renderer) array(s *sketch, depth int) bool {
	items := r.items
	if depth > 1 { // rows come before what is in them
		items = min(items, 5)
	}
	n := min(items, len(s.kids))
	if depth >= r.depth {
		n = 0
	}
	r.out = append(r.out, '[')
	if int64(n) < s.total {
		r.note("items", int64(n), s.total)
	}
	for i, kid := range s.kids[:n] {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		at := len(r.path)
		r.path = appendNumber(append(r.path, '/'), int64(i))
		ok := r.value(kid, depth+1)
		if r.path = r.path[:at]; !ok {
			return false
		}
	}
	r.out = append(r.out, ']')
	return true
}

func (r *renderer) object(s *sketch, depth int) bool {
	n := min(r.keys, len(s.kids))
	if depth >= r.depth {
		n = 0
	}
	r.out = append(r.out, '{')
	if int64(n) < s.total {
		r.note("members", int64(n), s.total)
	}
	if s.twice {
		r.note("duplicate", int64(len(s.kids)), s.total)
	}
	for i, kid := range s.kids[:n] {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = append(append(r.out, s.names[i]...), ':')
		at := len(r.path)
		r.path = append(r.path, '/')
		for _, c := range s.names[i][1 : len(s.names[i])-1] {
			switch c {
			case '~':
				r.path = append(r.path, "~0"...)
			case '/':
				r.path = append(r.path, "~1"...)
			default:
				r.path = append(r.path, c)
			}
		}
		ok := r.value(kid, depth+1)
		if r.path = r.path[:at]; !ok {
			return false
		}
	}
	r.out = append(r.out, '}')
	return true
}
