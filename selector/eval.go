package selector

import "unicode/utf8"

// Evaluator decides one condition for record after record. It keeps room from
// one record to the next, so it serves one goroutine; make one for each.
type Evaluator struct{ e *evaluator }

// Evaluator returns an evaluator for the records of a layout. It fails with
// ErrLayout for an invalid layout only.
func (w *Where) Evaluator(l Layout) (*Evaluator, error) {
	l, err := l.normal()
	if err != nil {
		return nil, err
	}
	return &Evaluator{newEvaluator(w, l)}, nil
}

// Eval decides the condition for the bytes of one record, terminator excluded.
// The record is checked whole before it decides anything. Its bytes are not
// kept and not changed.
func (e *Evaluator) Eval(record []byte) Outcome { return e.e.eval(record) }

// EvalTrusted is Eval for a record that was validated and not found undecidable
// ([Stats]): it is one value of its format, is UTF-8, has no duplicate names and
// no lone surrogates, and is within the limits. It looks at no more of the bytes
// than the decision needs. For another record it may decide wrongly, but it never
// reads outside the record and never panics.
func (e *Evaluator) EvalTrusted(record []byte) Outcome { return e.e.trusted(record) }

// Eval decides the condition for the bytes of one record. For many records an
// [Evaluator] is faster.
func (w *Where) Eval(record []byte, l Layout) Outcome {
	e, err := w.Evaluator(l)
	if err != nil {
		return Undecidable
	}
	return e.Eval(record)
}

// evaluator decides one condition for record after record.
type evaluator struct {
	where *Where
	look  *lookup
	only  *expr // the condition, where it compares one value of a JSON record with a literal
}

func newEvaluator(w *Where, l Layout) *evaluator {
	e := &evaluator{where: w, look: newLookup(w.plan, l)}
	if x := w.expr; x.op > opNot && w.hidden == nil && e.look.fields == nil && e.look.plain[0] && x.op != opExists &&
		x.a.kind == fromQuery && x.b.kind == fromLiteral {
		e.only = x
	}
	return e
}

// eval decides the condition for one record.
func (e *evaluator) eval(record []byte) Outcome {
	if !e.look.checked(record) || !e.look.load(record, false) {
		return Undecidable
	}
	return e.decide(e.where.expr)
}

// trusted decides the condition for a record that was validated.
func (e *evaluator) trusted(record []byte) Outcome {
	if !e.look.load(record, true) {
		return Undecidable
	}
	if e.only != nil {
		switch at := e.look.finder.at[0]; {
		case at < 0 && e.only.op == opEq:
			return Unmatched
		case at >= 0:
			if got, ok := e.look.quick(e.only, record[at:]); ok {
				return got
			}
		}
	}
	return e.decide(e.where.expr)
}

// decide decides an expression outside filter selectors.
func (e *evaluator) decide(x *expr) Outcome {
	switch x.op {
	case opAnd, opOr:
		stop := Unmatched
		if x.op == opOr {
			stop = Matched
		}
		got := negate(stop)
		for _, k := range x.kids {
			switch e.decide(k) {
			case stop:
				return stop
			case Undecidable:
				got = Undecidable
			}
		}
		return got
	case opNot:
		return negate(e.decide(x.kids[0]))
	}
	if e.where.hidden != nil && e.where.hidden[x.atom] {
		return Undecidable
	}
	return e.look.atom(x)
}

// lookup has the values of one record that a plan asks for.
type lookup struct {
	layout  Layout
	finder  finder
	walk    walker
	check   checker
	plain   []bool // by atom: slots are enough
	columns []int  // csv: by slot, which column; or noColumn or sameNameTwice
	last    int64  // csv: the last column that is wanted

	record  []byte
	top     int    // json: where the value begins
	trusted bool   // the record was validated
	treed   bool   // walk has the record
	json    []byte // a row or line as JSON, for walk
	text    []byte // room for the fields of a row
	fields  []span // csv, text: by slot, in text; start -1 for none
}

// span is a part of a byte slice.
type span struct{ start, end int }

const (
	noColumn      = -1 // no such column: the value is missing
	sameNameTwice = -2 // two columns have the name
)

func newLookup(p *plan, l Layout) *lookup {
	k := &lookup{layout: l, finder: newFinder(p), plain: p.plain}
	k.walk.room = newRoom(l.Limits)
	if l.Format == FormatCSV || l.Format == FormatText {
		k.rows(p)
	}
	return k
}

// rows finds the columns that the plan's slots stand for.
func (k *lookup) rows(p *plan) {
	k.fields = make([]span, p.slots)
	k.columns = make([]int, p.slots)
	k.last = noColumn
	csv := k.layout.Format == FormatCSV
	easy := make([]bool, p.slots)
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.slot < 0 {
			continue
		}
		k.columns[n.slot] = noColumn
		easy[n.slot] = !csv
		for _, kid := range p.nodes[0].kids {
			if csv && int(kid) == i {
				c := k.layout.Dialect.column(&n.sel)
				k.columns[n.slot], easy[n.slot] = c, true
				k.last = max(k.last, int64(c))
			}
		}
	}
	k.plain = make([]bool, len(p.plain))
	for i, a := range p.atoms {
		k.plain[i] = p.plain[i]
		for _, o := range a.operands() {
			for o.kind == fromLength {
				o = o.arg
			}
			k.plain[i] = k.plain[i] && (o.query == nil || o.slot >= 0 && easy[o.slot])
		}
	}
}

// column returns the column that a step from the record enters.
func (d *Dialect) column(s *sel) int {
	if !d.Header {
		if s.kind != selName && s.index >= 0 && s.index <= 1<<31 {
			return int(s.index)
		}
		return noColumn
	}
	found := noColumn
	for i, name := range d.Columns {
		if s.kind != selIndex && name == s.name {
			if found != noColumn {
				return sameNameTwice
			}
			found = i
		}
	}
	return found
}

// checked reports whether a record is one value of its format, is UTF-8 and
// within the limits of depth and size.
func (k *lookup) checked(record []byte) bool {
	if int64(len(record)) > k.layout.Limits.Record || !utf8.Valid(record) {
		return false
	}
	switch k.layout.Format {
	case FormatNDJSON, FormatJSON, FormatConcat:
		return k.check.document(record, int(k.layout.Limits.Depth))
	}
	return true
}

// load looks at a record. It returns false where the record cannot be decided.
func (k *lookup) load(record []byte, trusted bool) bool {
	k.record, k.trusted, k.treed = record, trusted, false
	switch k.layout.Format {
	case FormatNDJSON, FormatJSON, FormatConcat:
		k.top = skipSpace(record, 0)
		return k.top < len(record) && (len(k.finder.at) == 0 || k.finder.run(record, k.top, trusted))
	case FormatCSV:
		return k.row()
	case FormatText:
		for s := range k.fields {
			k.fields[s] = span{-1, -1}
		}
		if s := k.finder.plan.nodes[0].slot; s >= 0 {
			k.fields[s] = span{0, len(record)}
		}
		k.text = record
		return true
	}
	return false
}

// row takes the fields of a row that slots stand for.
func (k *lookup) row() bool {
	for s := range k.fields {
		k.fields[s] = span{-1, -1}
	}
	k.text = k.text[:0]
	return csvRow(k.record, k.layout.Dialect, max(k.last, 0), func(i int64, v []byte) {
		for s, c := range k.columns {
			if int64(c) == i {
				k.fields[s] = span{len(k.text), len(k.text) + len(v)}
				k.text = append(k.text, v...)
			}
		}
	})
}

// slot returns a slot's value.
func (k *lookup) slot(s int) value {
	if k.fields != nil {
		f := k.fields[s]
		switch {
		case k.columns[s] == sameNameTwice:
			return value{kind: kindUndecidable}
		case f.start < 0:
			return value{}
		}
		return textValue(k.text[f.start:f.end])
	}
	switch at := k.finder.at[s]; at {
	case slotMissing:
		return value{}
	case slotAmbiguous:
		return value{kind: kindUndecidable}
	default:
		return rawValue(k.record, at)
	}
}

// atom decides an atom for the record.
func (k *lookup) atom(e *expr) Outcome {
	if !k.plain[e.atom] {
		return k.ask(e)
	}
	if e.op == opExists {
		switch k.slot(e.a.slot).kind {
		case kindNothing:
			return Unmatched
		case kindUndecidable:
			return Undecidable
		}
		return Matched
	}
	if e.a.kind == fromQuery && e.b.kind == fromLiteral && k.fields == nil {
		if at := k.finder.at[e.a.slot]; at >= 0 {
			if got, ok := k.quick(e, k.record[at:]); ok {
				return got
			}
		}
	}
	a, b := k.operand(e.a), k.operand(e.b)
	return k.walk.decide(e, &a, &b)
}

// quick decides the commonest comparisons of a value as it stands with a
// literal, without decoding it.
func (k *lookup) quick(e *expr, raw []byte) (got Outcome, ok bool) {
	lit := &e.b.lit
	number := raw[0] == '-' || raw[0]-'0' <= 9
	switch {
	case raw[0] == '"' && e.op == opEq && lit.asIs:
		n := len(lit.bytes)
		rest := raw[1:]
		if len(rest) <= n {
			return Unmatched, k.trusted
		}
		if rest[n] == '"' && string(rest[:n]) == lit.text {
			return Matched, true
		}
		if k.trusted {
			// They differ where they first do, unless an escape begins there.
			i := 0
			for i < n && rest[i] == lit.bytes[i] {
				i++
			}
			if i == n || rest[i] != '\\' {
				return Unmatched, true
			}
			return 0, false
		}
		end, escaped := stringEnd(raw, 1)
		return Unmatched, end > 0 && !escaped
	case lit.kind == '0' && number && lit.isSmall && e.op != opContains:
		n, small := smallNumber(raw)
		if !small {
			return 0, false
		}
		switch e.op {
		case opEq:
			return outcome(n == lit.small), true
		case opNe:
			return outcome(n != lit.small), true
		case opLt:
			return outcome(n < lit.small), true
		case opLe:
			return outcome(n <= lit.small), true
		case opGt:
			return outcome(n > lit.small), true
		case opGe:
			return outcome(n >= lit.small), true
		}
	case e.op == opEq && k.trusted && raw[0] != lit.kind && !(number && lit.kind == '0'):
		return Unmatched, true
	}
	return 0, false
}

// operand returns an operand's value, for an atom that slots are enough for.
func (k *lookup) operand(o *operand) value {
	switch o.kind {
	case fromLiteral:
		return o.lit.value()
	case fromLength:
		v := k.operand(o.arg)
		return k.walk.length(&v)
	case fromCount:
		switch v := k.slot(o.slot); v.kind {
		case kindUndecidable:
			return v
		case kindNothing:
			return numberValue(0)
		}
		return numberValue(1)
	}
	return k.slot(o.slot)
}

// ask decides an atom with queries of the record's tree.
func (k *lookup) ask(e *expr) Outcome {
	if !k.tree() {
		return Undecidable
	}
	w := &k.walk
	clear(w.memo)
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(w.tree.b)))
	got := w.holds(e, w.root)
	return got
}

// tree makes the record's tree, unless it is there.
func (k *lookup) tree() bool {
	if k.treed {
		return true
	}
	b, top := k.record, k.top
	k.walk.trusted = k.trusted
	if k.fields != nil {
		k.walk.trusted = false // the columns of a header were not validated
		k.json, top = k.rowJSON(k.json[:0]), 0
		b = k.json
	}
	k.walk.root = ref{pos: top}
	k.treed = k.walk.tree.build(b, top)
	return k.treed
}

// rowJSON writes a row or line as the JSON value that queries take it for: an
// object of columns, or without a header an array of fields; a string.
func (k *lookup) rowJSON(dst []byte) []byte {
	if k.layout.Format == FormatText {
		return appendString(dst, string(k.record))
	}
	d := k.layout.Dialect
	open, close := byte('['), byte(']')
	if d.Header {
		open, close = '{', '}'
	}
	dst = append(dst, open)
	csvRow(k.record, d, 1<<62, func(i int64, v []byte) {
		if d.Header {
			if i >= int64(len(d.Columns)) {
				return
			}
			dst = append(appendString(dst, d.Columns[i]), ':')
		}
		dst = append(appendString(dst, string(v)), ',')
	})
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, close)
}
