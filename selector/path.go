package selector

import (
	"context"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Path is a parsed JSONPath query (RFC 9535).
type Path struct {
	text  string
	query *query
}

// ParsePath reads a JSONPath query, which begins with $. It fails with
// ErrSelector, naming the place, for what is not well-formed or not well-typed,
// and beyond [MaxExpression], [MaxExpressionDepth], [MaxPattern] and, with a
// number, [DefaultLimits].
func ParsePath(s string) (*Path, error) {
	p, err := newParser("path", s)
	if err != nil {
		return nil, err
	}
	if p.peek() != '$' {
		return nil, p.bad("a path begins with $, not %q", p.rest())
	}
	q, err := p.query()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.s) {
		return nil, p.bad("unexpected %q", p.rest())
	}
	return &Path{text: s, query: q}, nil
}

// String returns the path as it was written.
func (p *Path) String() string { return p.text }

// Singular reports whether the path selects at most one value, by its syntax.
func (p *Path) Singular() bool { return p.query.single }

// Node is a value that a path selected.
type Node struct {
	Span Span // where it stands in the document
	walk *walker
}

// Path returns the node's normalized path (RFC 9535 section 2.7), as in
// $['a'][0]. It may be asked for until the next node is taken.
func (n Node) Path() string {
	out := []byte{'$'}
	for _, at := range n.walk.path {
		if at.index >= 0 {
			out = append(strconv.AppendInt(append(out, '['), at.index, 10), ']')
			continue
		}
		name, _ := unescape(at.name, nil) // an object with a bad name has no nodes
		out = append(out, "['"...)
		for _, c := range name {
			switch short := "btn\x00fr"; {
			case c == '\'' || c == '\\':
				out = append(out, '\\', c)
			case c >= 0x20:
				out = append(out, c)
			case c >= '\b' && c <= '\r' && c != '\v':
				out = append(out, '\\', short[c-'\b'])
			default:
				out = append(out, `\u00`...)
				out = append(out, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
			}
		}
		out = append(out, "']"...)
	}
	return string(out)
}

// Pointer returns the node's JSON Pointer. It may be asked for until the next
// node is taken.
func (n Node) Pointer() string {
	path := make([]step, len(n.walk.path))
	for i, at := range n.walk.path {
		path[i] = step{index: at.index}
		if at.index < 0 {
			name, _ := unescape(at.name, nil)
			path[i] = step{name: string(name), named: true}
		}
	}
	return pointerText(path)
}

// What a path may visit in a document, beside [MaxVisitsPerByte] values for
// each byte: a whole document is asked once, and the caller can stop it.
const maxDocumentVisits = 1 << 26

// Nodes gives the values that the path selects in a JSON document, in RFC 9535's
// order, which is that of the document wherever the path names nothing twice
// and nothing backwards. The document may begin with a byte order mark; a copy
// is not made.
//
// The last pair has an error: of the context; ErrUndecidable where the document
// is not one JSON value (UTF-8, nested no deeper than 10,000, under 2 GiB), where
// something on the way cannot be told (a name that stands twice, a lone
// surrogate, a number beyond [DefaultLimits]), or where the path would visit
// too many values.
func (p *Path) Nodes(ctx context.Context, doc []byte) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		undecidable := func(format string, args ...any) {
			yield(Node{}, fail("path", -1, ErrUndecidable, format, args...))
		}
		var c checker
		start := 0
		if len(doc) >= 3 && string(doc[:3]) == string(bom) {
			start = 3
		}
		i := checkSpace(doc, start)
		if !utf8.Valid(doc) || len(doc) >= maxTree || !c.document(doc[start:], maxNesting) {
			undecidable("the document does not parse")
			return
		}
		w := &walker{check: ctx.Err, track: true, room: newRoom(DefaultLimits)}
		w.reset(doc, i)
		w.allow(maxDocumentVisits + MaxVisitsPerByte*int64(len(doc)))
		if w.err = ctx.Err(); w.err != nil {
			yield(Node{}, w.err)
			return
		}
		more := w.segments(p.query.segs, w.root, func(r ref) bool {
			return yield(Node{Span: Span{int64(r.pos), int64(w.tree.end(r))}, walk: w}, nil)
		})
		switch {
		case w.err != nil:
			yield(Node{}, w.err)
		case w.over:
			undecidable("%s visits too many values", p.text)
		case !more: // the caller stopped
		case w.maybe:
			undecidable("%s meets a name that stands twice, a lone surrogate or a number beyond the limits", p.text)
		}
	}
}
