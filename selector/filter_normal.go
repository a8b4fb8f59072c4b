package selector

import (
	"bytes"
	"encoding/base32"
	"slices"
	"strconv"

	"leafproof/merkle"
)

// Normalised returns the query in its one spelling: canonical JSON of strings,
// arrays and objects, with the engine's version, the format and the order, but
// no limit or budget.
func (w *Where) Normalised(l Layout) []byte { return Query{Where: w}.Normalised(l) }

// QID names the normalised query: "q_" and 32 letters or digits.
func (w *Where) QID(l Layout) string { return QID(w.Normalised(l)) }

// Query is all that a query's name says: which records, in which order, and
// which values of them.
type Query struct {
	Where  *Where    // nil: every record
	Order  []*Order  // first the keys, then document order; none: document order
	Select []*Select // none: whole records
}

// Normalised returns the query in its one spelling; see [Where.Normalised].
// Members that say no more than their default are there, but for select.
func (q Query) Normalised(l Layout) []byte {
	b := appendText([]byte(`{"at":`), l.Pointer)
	if l.Format == FormatCSV {
		b = appendText(append(b, `,"dialect":{"delimiter":`...), l.Dialect.Delimiter)
		b = appendText(append(b, `,"header":`...), strconv.FormatBool(l.Dialect.Header))
		b = appendText(append(b, `,"quote":`...), l.Dialect.Quote)
		b = append(b, '}')
	}
	b = appendText(append(b, `,"engine":`...), EngineVersion)
	b = appendText(append(b, `,"format":`...), l.Format)
	b = append(b, `,"order":[`...)
	for _, o := range q.Order {
		b = append(o.normal(b), ',')
	}
	b = append(b, `"`+OrderDocument+`"]`...)
	for i, s := range q.Select {
		if i == 0 {
			b = append(b, `,"select":[`...)
		}
		b = append(s.normal(b), ',')
		if i == len(q.Select)-1 {
			b[len(b)-1] = ']'
		}
	}
	b = append(b, `,"where":`...)
	if q.Where == nil {
		return append(b, `["and"]}`...)
	}
	return append(q.Where.expr.normal(b), '}')
}

// QID names the normalised query.
func (q Query) QID(l Layout) string { return QID(q.Normalised(l)) }

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// QID names a normalised selector: "q_" and the first 32 letters of the base32
// of its BLAKE3 derive-key hash.
func QID(normalised []byte) string {
	d := merkle.DeriveKey("leafproof 2026 query v1", normalised)
	return "q_" + lowerBase32.EncodeToString(d[:])[:32]
}

// RangeSelector returns the normalised form of a selection by position: the
// kind "bytes" or "records" and the half-open range [a, b).
func RangeSelector(kind string, a, b int64) []byte {
	out := appendText([]byte("{"), kind)
	out = appendInt(append(out, `:[`...), a)
	out = appendInt(append(out, ','), b)
	return append(out, `]}`...)
}

// PointerSelector returns the normalised form of a selection by JSON Pointer.
func PointerSelector(pointer string) []byte {
	return append(appendText([]byte(`{"pointer":`), pointer), '}')
}

// terms is a part of a normal form: the operands of an and or or, sorted and
// each once, or one term that is neither.
type terms struct {
	op   exprOp // opAnd, opOr, or opNot for a single term
	list [][]byte
}

// normal appends the expression's one spelling: and and or are flat, sorted
// and without repetition, not stands on an atom only. Each of these leaves the
// three-valued outcome as it is.
func (e *expr) normal(b []byte) []byte { return e.terms(false).append(b) }

func (t terms) append(b []byte) []byte {
	if t.op == opNot {
		return append(b, t.list[0]...)
	}
	b = append(b, `["`+opNames[t.op]+`"`...)
	for _, x := range t.list {
		b = append(append(b, ','), x...)
	}
	return append(b, ']')
}

// terms is the normal form of the expression, or of its negation.
func (e *expr) terms(negated bool) terms {
	switch e.op {
	case opNot:
		return e.kids[0].terms(!negated)
	case opAnd, opOr:
		out := terms{op: e.op}
		if negated {
			out.op = opAnd + opOr - e.op
		}
		var first terms
		for i, k := range e.kids {
			kid := k.terms(negated)
			if i == 0 {
				first = kid
			}
			if kid.op == out.op {
				out.list = append(out.list, kid.list...)
			} else {
				out.list = append(out.list, kid.append(nil))
			}
		}
		slices.SortFunc(out.list, bytes.Compare)
		out.list = slices.CompactFunc(out.list, bytes.Equal)
		if len(out.list) > 1 {
			return out
		}
		return first // all operands say the same
	}
	b := e.appendAtom(nil)
	if negated {
		b = append(append([]byte(`["not",`), b...), ']')
	}
	return terms{op: opNot, list: [][]byte{b}}
}

// ordered returns the expression as its normal form has it: what depends on how
// it is written, and not only on what it says, is then the same for whoever reads
// the normal form.
func (e *expr) ordered() *expr {
	_, list := e.spelled(false)
	return list[0].expr
}

// spelledExpr is an expression in its normal order, and its one spelling.
type spelledExpr struct {
	text []byte
	expr *expr
}

// spelled is terms, with the expressions: of an and or or one of that operation
// comes first, which has the others as its operands.
func (e *expr) spelled(negated bool) (exprOp, []spelledExpr) {
	switch e.op {
	case opNot:
		return e.kids[0].spelled(!negated)
	case opAnd, opOr:
		op := e.op
		if negated {
			op = opAnd + opOr - op
		}
		var list, first []spelledExpr
		firstOp := opNot
		for i, k := range e.kids {
			of, kids := k.spelled(negated)
			if i == 0 {
				firstOp, first = of, kids
			}
			if of == op {
				kids = kids[1:]
			} else {
				kids = kids[:1]
			}
			list = append(list, kids...)
		}
		slices.SortFunc(list, func(a, b spelledExpr) int { return bytes.Compare(a.text, b.text) })
		list = slices.CompactFunc(list, func(a, b spelledExpr) bool { return bytes.Equal(a.text, b.text) })
		if len(list) == 1 {
			return firstOp, first // all operands say the same
		}
		all, text := &expr{op: op, atom: -1}, terms{op: op}
		for _, x := range list {
			all.kids, text.list = append(all.kids, x.expr), append(text.list, x.text)
		}
		return op, append([]spelledExpr{{text.append(nil), all}}, list...)
	}
	text := e.appendAtom(nil)
	if negated {
		text = append(append([]byte(`["not",`), text...), ']')
		e = &expr{op: opNot, kids: []*expr{e}, atom: -1}
	}
	return opNot, []spelledExpr{{text, e}}
}

func (e *expr) appendAtom(b []byte) []byte {
	b = append(b, `["`+opNames[e.op]+`"`...)
	b = append(b, ',')
	switch pointer, ok := e.a.query.asPointer(); {
	case e.a.kind == fromQuery && ok && !canonicalText(pointer):
		b = appendText(b, pointer) // ["x", hex]
	case e.a.kind == fromLiteral && e.a.lit.kind == '"' && !canonicalText(e.a.lit.text):
		b = append(appendText(append(b, `["s",`...), e.a.lit.text), ']') // not to be taken for a pointer
	default:
		b = e.a.normal(b)
	}
	if e.b != nil {
		b = e.b.normal(append(b, ','))
	}
	return append(b, ']')
}

// normal appends a literal, a query, or a function and its argument.
func (o *operand) normal(b []byte) []byte {
	switch o.kind {
	case fromLiteral:
		return o.lit.normal(b)
	case fromQuery:
		return o.query.normal(b)
	case fromLength:
		return append(o.arg.normal(append(b, `["length",`...)), ']')
	case fromCount:
		return append(o.query.normal(append(b, `["count",`...)), ']')
	}
	return append(o.query.normal(append(b, `["value",`...)), ']')
}

// normal appends the literal as ["s", text], ["n", minimal decimal], ["true"],
// ["false"] or ["null"].
func (l literal) normal(b []byte) []byte {
	switch l.kind {
	case '"':
		if !canonicalText(l.text) {
			return appendText(b, l.text) // ["x", hex]
		}
		return append(appendString(append(b, `["s",`...), l.text), ']')
	case '0':
		return append(b, `["n","`+l.num.String()+`"]`...)
	case 't':
		return append(b, `["true"]`...)
	case 'f':
		return append(b, `["false"]`...)
	}
	return append(b, `["null"]`...)
}

// normal appends a query from @ as the JSON Pointer that means the same, where
// there is one that a string can say; otherwise as ["path", step…], or from $ as
// ["root", step…].
func (q *query) normal(b []byte) []byte {
	if pointer, ok := q.asPointer(); ok && canonicalText(pointer) {
		return appendString(b, pointer)
	}
	b = append(b, `["path"`...)
	if q.root {
		b = append(b[:len(b)-len(`"path"`)], `"root"`...)
	}
	for i := range q.segs {
		b = q.segs[i].normal(append(b, ','))
	}
	return append(b, ']')
}

// asPointer returns the JSON Pointer that selects what the query does; false
// where there is none.
func (q *query) asPointer() (string, bool) {
	if q == nil || q.root || !q.single {
		return "", false
	}
	for _, seg := range q.segs {
		s := &seg.sels[0]
		if s.kind == selIndex || s.kind == selName && arrayIndex(s.name) >= 0 {
			return "", false
		}
	}
	return q.pointer(), true
}

// normal appends a segment: a selector, or ["c", selector…] for several, or
// ["d", selector…] with descent.
func (seg *segment) normal(b []byte) []byte {
	if !seg.descend && len(seg.sels) == 1 {
		return seg.sels[0].normal(b)
	}
	if seg.descend {
		b = append(b, `["d"`...)
	} else {
		b = append(b, `["c"`...)
	}
	for i := range seg.sels {
		b = seg.sels[i].normal(append(b, ','))
	}
	return append(b, ']')
}

// normal appends a selector: ["k", name], ["i", index], ["p", token] for the
// token of a pointer that is an index, ["w"], ["s", start, end, step] with ""
// for an end that is not written, ["f", expression].
func (s *sel) normal(b []byte) []byte {
	switch s.kind {
	case selToken:
		if s.index >= 0 {
			return append(appendText(append(b, `["p",`...), s.name), ']')
		}
		return append(appendText(append(b, `["k",`...), s.name), ']')
	case selName:
		return append(appendText(append(b, `["k",`...), s.name), ']')
	case selIndex:
		return append(appendInt(append(b, `["i",`...), s.index), ']')
	case selWild:
		return append(b, `["w"]`...)
	case selFilter:
		return append(s.filter.normal(append(b, `["f",`...)), ']')
	}
	start := s.start
	if s.noStart && s.step < 0 {
		start = -1
	}
	b = appendInt(append(b, `["s",`...), start)
	if s.noEnd {
		b = append(b, `,""`...)
	} else {
		b = appendInt(append(b, ','), s.end)
	}
	return append(appendInt(append(b, ','), s.step), ']')
}
