package selector

import "strconv"

// String returns the condition as an RFC 9535 expression in its normal order,
// for people: a step that no JSONPath has, the token of a pointer that enters
// arrays and objects alike, is written as in @[pointer "0"].
func (w *Where) String() string { return string(w.expr.show(nil, false)) }

var signs = map[exprOp]string{opAnd: " && ", opOr: " || ", opEq: " == ", opNe: " != ", opLt: " < ", opLe: " <= ", opGt: " > ", opGe: " >= "}

// show appends the expression, in parentheses where it stands inside another.
func (e *expr) show(b []byte, inside bool) []byte {
	switch e.op {
	case opAnd, opOr:
		if inside {
			b = append(b, '(')
		}
		for i, k := range e.kids {
			if i > 0 {
				b = append(b, signs[e.op]...)
			}
			b = k.show(b, true)
		}
		if inside {
			b = append(b, ')')
		}
		return b
	case opNot:
		b = append(b, '!')
		if k := e.kids[0]; k.op >= opEq && k.op <= opGe {
			return append(k.show(append(b, '('), false), ')')
		}
		return e.kids[0].show(b, true)
	case opExists:
		return e.a.show(b)
	case opContains, opMatch, opSearch:
		b = append(append(b, opNames[e.op]...), '(')
		return append(e.b.show(append(e.a.show(b), ", "...)), ')')
	}
	return e.b.show(append(e.a.show(b), signs[e.op]...))
}

func (o *operand) show(b []byte) []byte {
	switch o.kind {
	case fromLiteral:
		switch o.lit.kind {
		case '"':
			return appendString(b, o.lit.text)
		case '0':
			return append(b, o.lit.num.String()...)
		}
		return append(b, map[byte]string{'t': "true", 'f': "false", 'n': "null"}[o.lit.kind]...)
	case fromQuery:
		return o.query.show(b)
	case fromLength:
		return append(o.arg.show(append(b, "length("...)), ')')
	case fromCount:
		return append(o.query.show(append(b, "count("...)), ')')
	}
	return append(o.query.show(append(b, "value("...)), ')')
}

func (q *query) show(b []byte) []byte {
	if b = append(b, '@'); q.root {
		b[len(b)-1] = '$'
	}
	for i := range q.segs {
		seg := &q.segs[i]
		if seg.descend {
			b = append(b, ".."...)
		}
		if s := &seg.sels[0]; len(seg.sels) == 1 && (s.kind == selName || s.kind == selToken && s.index < 0) && plainName(s.name) {
			if !seg.descend {
				b = append(b, '.')
			}
			b = append(b, s.name...)
			continue
		}
		b = append(b, '[')
		for j := range seg.sels {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = seg.sels[j].show(b)
		}
		b = append(b, ']')
	}
	return b
}

func (s *sel) show(b []byte) []byte {
	switch s.kind {
	case selToken:
		if s.index >= 0 {
			b = append(b, "pointer "...)
		}
		return appendString(b, s.name)
	case selName:
		return appendString(b, s.name)
	case selIndex:
		return strconv.AppendInt(b, s.index, 10)
	case selWild:
		return append(b, '*')
	case selFilter:
		return s.filter.show(append(b, '?'), false)
	}
	if !s.noStart {
		b = strconv.AppendInt(b, s.start, 10)
	}
	b = append(b, ':')
	if !s.noEnd {
		b = strconv.AppendInt(b, s.end, 10)
	}
	return strconv.AppendInt(append(b, ':'), s.step, 10)
}

// plainName reports whether a member's name can stand behind a dot.
func plainName(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i], i == 0) || s[i] >= 0x80 {
			return false
		}
	}
	return s != ""
}

// text returns the query as a pointer, or as a JSONPath query with @ where no
// pointer says it.
func (q *query) text() string {
	if pointer, ok := q.asPointer(); ok {
		return pointer
	}
	return string(q.show(nil))
}
