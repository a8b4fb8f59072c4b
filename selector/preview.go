package selector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"
)

// PreviewChars is the most characters of a preview that a model is given.
const PreviewChars = 6000

// MinPreview is the fewest characters that a preview can be held to.
const MinPreview = 200

const (
	sketchNodes = 8000 // values that are kept for a preview
	sketchItems = 200  // of one array
	sketchKeys  = 400  // of one object
	sketchDepth = 12
	sketchName  = 200 // bytes of a name as it stands; a longer one is not shown
	sketchText  = 512 // bytes of a string that may be shown
	maxElided   = 20
	maxPointed  = 160 // characters of a pointer in the list of elisions
	maxShape    = 1200
)

// Preview writes a JSON value of a source, which stands at span, as JSON of at
// most chars characters (UTF-16 units, which is what the strictest reader
// counts), at least [MinPreview]:
//
//	{"preview":VALUE,"elided":[{"at":"/items","kind":"items","shown":10,"total":148}],"shape":"{items: [{id: number}]}"}
//
// VALUE is the value with parts left out: elements of arrays behind the first,
// then the ends of long strings (which end in …), then members of objects and
// what is nested deep, which becomes [] or {}. What is there stands as it stands
// in the source, numbers digit for digit. What was left out is in elided and
// nowhere in VALUE: at is a JSON Pointer, kind is items, members, string (shown
// and total in bytes as they stand), number (too long to show: null stands
// there) or duplicate (a member whose name stood before). more_elided counts
// what is not in the list. shape names the fields and their types, over all of
// the value.
//
// The same bytes give the same preview. It reads the value once, in memory that
// does not grow with it, and fails with ErrUndecidable where it does not parse.
func Preview(ctx context.Context, src io.ReaderAt, span Span, chars int) ([]byte, error) {
	v := newSketcher(ctx, src)
	root, err := v.document(span, &v.nodes, &v.shape, 0)
	if err != nil {
		return nil, err
	}
	return v.render(root, chars)
}

// PreviewRows is [Preview] of an array whose elements are the values at spans,
// of which there are total; only the first of them are read.
func PreviewRows(ctx context.Context, src io.ReaderAt, spans iter.Seq2[Span, error], total int64, chars int) ([]byte, error) {
	v := newSketcher(ctx, src)
	root := &sketch{kind: '['}
	v.shape.see('[')
	v.shape.items = &shape{}
	for span, err := range spans {
		if err != nil {
			return nil, err
		}
		left := v.nodes / 2
		kid, err := v.document(span, &left, v.shape.items, 1)
		if err != nil {
			return nil, err
		}
		v.nodes -= v.nodes/2 - left
		root.kids = append(root.kids, kid)
		if len(root.kids) == sketchItems {
			break
		}
	}
	root.total = max(total, int64(len(root.kids)))
	return v.render(root, chars)
}

// sketch is a value with what may be shown of it.
type sketch struct {
	kind  byte
	span  Span
	total int64     // elements or members
	kids  []*sketch // the first of them
	names [][]byte  // of members, as they stand, with their quotes
	twice bool      // a name stands twice
	text  []byte    // of a scalar, as it stands; of a string without its quotes, and cut
}

// sketcher reads a value once.
type sketcher struct {
	ctx   context.Context
	src   io.ReaderAt
	scan  *scanner
	nodes int
	shape shape
}

func newSketcher(ctx context.Context, src io.ReaderAt) *sketcher {
	return &sketcher{ctx: ctx, src: src, nodes: sketchNodes}
}

// document sketches one value that stands alone in a span.
func (v *sketcher) document(span Span, nodes *int, sh *shape, depth int) (*sketch, error) {
	v.scan = scanSource(v.ctx, v.src, span.Start, span.End)
	t, err := v.scan.next()
	var out *sketch
	if err == nil {
		out, err = v.value(t, nodes, sh, depth)
	}
	if err == nil {
		_, err = v.scan.next()
	}
	if errors.Is(err, errSyntax) || errors.Is(err, errDepth) {
		e := err.(*Error)
		return nil, fail("preview", e.Offset, ErrUndecidable, "%v: %s", e.Err, e.Detail)
	}
	return out, err
}

// value sketches the value that t begins. nodes is how many values may be kept
// of it; without nodes it is only taken in for its shape, and without a shape
// only skipped.
func (v *sketcher) value(t token, nodes *int, sh *shape, depth int) (*sketch, error) {
	sh.see(t.kind)
	var out *sketch
	if *nodes > 0 {
		*nodes--
		out = &sketch{kind: t.kind, span: Span{Start: t.start, End: t.end}}
	}
	if t.kind != '{' && t.kind != '[' {
		if out == nil {
			return nil, nil
		}
		return out, v.scalar(out)
	}
	if out == nil && sh == nil || depth >= sketchDepth {
		return out, v.count(t, out)
	}
	if t.kind == '[' {
		return out, v.elements(out, nodes, sh.element(), depth)
	}
	return out, v.members(out, nodes, sh, depth)
}

// count skips a container and counts what it directly has.
func (v *sketcher) count(t token, out *sketch) error {
	if out == nil {
		_, err := v.scan.skip(t)
		return err
	}
	for {
		t, err := v.scan.next()
		if err != nil || t.kind == '}' || t.kind == ']' {
			return err
		}
		if t.kind == 'k' {
			continue
		}
		if _, err := v.scan.skip(t); err != nil {
			return err
		}
		out.total++
	}
}

func (v *sketcher) elements(out *sketch, nodes *int, sh *shape, depth int) error {
	none := 0
	for {
		t, err := v.scan.next()
		if err != nil || t.kind == ']' {
			return err
		}
		left := &none
		share := 0
		if out != nil && len(out.kids) < sketchItems && int64(len(out.kids)) == out.total {
			share = (*nodes + 1) / 2
			left = new(share)
		}
		kid, err := v.value(t, left, sh, depth+1)
		if err != nil {
			return err
		}
		*nodes -= share - max(*left, 0)
		if out != nil {
			if out.total++; kid != nil {
				out.kids = append(out.kids, kid)
			}
		}
	}
}

func (v *sketcher) members(out *sketch, nodes *int, sh *shape, depth int) error {
	none := 0
	for {
		v.scan.keep = sketchName + 1
		t, err := v.scan.next()
		v.scan.keep = 0
		if err != nil || t.kind == '}' {
			return err
		}
		raw := v.scan.text
		whole := int64(len(raw)) == t.end-t.start && utf8.Valid(raw)
		name := bytes.Clone(raw)
		val, err := v.scan.next()
		if err != nil {
			return err
		}
		left, share := &none, 0
		if out != nil && whole && len(out.kids) < sketchKeys && *nodes > 0 {
			if out.has(name) {
				out.twice = true
			} else {
				share = (*nodes + 1) / 2
				left = new(share)
			}
		}
		kid, err := v.value(val, left, sh.field(name, whole), depth+1)
		if err != nil {
			return err
		}
		*nodes -= share - max(*left, 0)
		if out != nil {
			if out.total++; kid != nil {
				out.kids, out.names = append(out.kids, kid), append(out.names, name)
			}
		}
	}
}

// has reports whether a member with a name is kept.
func (s *sketch) has(name []byte) bool {
	return slices.ContainsFunc(s.names, func(n []byte) bool { return equalNames(n, name) })
}

func equalNames(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	x, okX := unquote(a, nil)
	y, okY := unquote(b, nil)
	return okX && okY && bytes.Equal(x, y)
}

// scalar reads what may be shown of a scalar.
func (v *sketcher) scalar(out *sketch) error {
	at, n := out.span.Start, out.span.Len()
	if out.kind == '"' {
		at, n = at+1, n-2
	}
	out.text = make([]byte, min(n, sketchText))
	return readFull(v.src, out.text, at)
}

// shape is which types stand somewhere.
type shape struct {
	kinds  []byte // in the order in which they were seen
	seen   int64
	names  [][]byte // of members
	fields []*shape
	many   bool // there are more
	items  *shape
	deep   int
}

const (
	shapeFields = 40
	shapeDepth  = 4
)

func (s *shape) see(kind byte) {
	if s == nil {
		return
	}
	if kind == 'f' {
		kind = 't'
	}
	s.seen++
	if bytes.IndexByte(s.kinds, kind) < 0 {
		s.kinds = append(s.kinds, kind)
	}
}

func (s *shape) element() *shape {
	if s == nil || s.deep >= shapeDepth {
		return nil
	}
	if s.items == nil {
		s.items = &shape{deep: s.deep + 1}
	}
	return s.items
}

func (s *shape) field(name []byte, whole bool) *shape {
	if s == nil || s.deep >= shapeDepth {
		return nil
	}
	for i, n := range s.names {
		if bytes.Equal(n, name) {
			return s.fields[i]
		}
	}
	if !whole || len(s.names) == shapeFields {
		s.many = true
		return nil
	}
	s.names, s.fields = append(s.names, name), append(s.fields, &shape{deep: s.deep + 1})
	return s.fields[len(s.fields)-1]
}

// append writes a shape as {id: number, tags: [string], note?: string|null}.
func (s *shape) append(b []byte) []byte {
	for i, k := range s.kinds {
		if i > 0 {
			b = append(b, '|')
		}
		switch k {
		case '{':
			b = s.members(b)
		case '[':
			b = append(b, '[')
			if s.items != nil {
				b = s.items.append(b)
			}
			b = append(b, ']')
		case '"':
			b = append(b, "string"...)
		case '0':
			b = append(b, "number"...)
		case 't':
			b = append(b, "boolean"...)
		default:
			b = append(b, "null"...)
		}
	}
	return b
}

func (s *shape) members(b []byte) []byte {
	b = append(b, '{')
	for i, n := range s.names {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, n[1:len(n)-1]...)
		if s.fields[i].seen < s.seen {
			b = append(b, '?')
		}
		b = s.fields[i].append(append(b, ": "...))
	}
	if s.many {
		b = append(b, ", …"...)
	}
	return append(b, '}')
}

// line is the shape as the inside of a JSON string: names stand as in the source.
func (s *shape) line() []byte { return s.append(nil) }

// cutText cuts the inside of a JSON string to at most n bytes and an ellipsis,
// never within an escape or a character; bytes that are no UTF-8 become U+FFFD.
func cutText(raw []byte, n int, more bool) []byte {
	out := make([]byte, 0, min(len(raw), n)+3)
	for i := 0; i < len(raw); {
		size := 1
		var put []byte
		switch c := raw[i]; {
		case c == '\\' && i+1 < len(raw) && raw[i+1] == 'u':
			size = 6
			if i+12 <= len(raw) && raw[i+6] == '\\' && (raw[i+2]|0x20) == 'd' && bytes.IndexByte([]byte("89abAB"), raw[i+3]) >= 0 {
				size = 12
			}
		case c == '\\':
			size = 2
		case c >= utf8.RuneSelf:
			r, w := utf8.DecodeRune(raw[i:])
			if size = w; r == utf8.RuneError && w == 1 {
				put = []byte("\ufffd")
			}
		}
		if i+size > len(raw) || len(out)+size > n {
			return append(out, "…"...)
		}
		if put == nil {
			put = raw[i : i+size]
		}
		out = append(out, put...)
		i += size
	}
	if more && len(raw) > n {
		return append(out, "…"...)
	}
	return out
}

// appendCount appends ,"shown":a,"total":b.
func appendCount(b []byte, shown, total int64) []byte {
	b = strconv.AppendInt(append(b, `,"shown":`...), shown, 10)
	return strconv.AppendInt(append(b, `,"total":`...), total, 10)
}
