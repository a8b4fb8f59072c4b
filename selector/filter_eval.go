package selector

// holds decides an expression with @ = cur.
func (w *walker) holds(e *expr, cur ref) Outcome {
	switch e.op {
	case opAnd, opOr:
		stop := Unmatched // of and: false whatever the others are
		if e.op == opOr {
			stop = Matched
		}
		got := negate(stop)
		for _, k := range e.kids {
			switch w.holds(k, cur) {
			case stop:
				return stop
			case Undecidable:
				got = Undecidable
			}
		}
		return got
	case opNot:
		return negate(w.holds(e.kids[0], cur))
	case opExists:
		return w.exists(e.a.query, cur)
	}
	a, b := w.operand(e.a, cur), w.operand(e.b, cur)
	return w.decide(e, &a, &b)
}

// decide decides an atom for the values of its two operands.
func (w *walker) decide(e *expr, a, b *value) Outcome {
	switch e.op {
	case opContains, opMatch, opSearch:
	default:
		if a.tree != nil && a.kind == b.kind && (a.kind == '{' || a.kind == '[') {
			w.visits -= int64(w.tree.end(a.ref)-a.ref.pos) / 8
		}
		got := w.compare(e.op, a, b)
		w.visits -= int64(a.read+b.read) / 64
		return got
	}
	w.settle(a, &w.room.a)
	w.settle(b, &w.room.b)
	w.visits -= int64(a.read+b.read) / 4
	switch {
	case a.kind == kindUndecidable || b.kind == kindUndecidable:
		return Undecidable
	case a.kind != '"' || b.kind != '"':
		return Unmatched
	case e.op == opContains:
		return contains(a.text, b.text)
	}
	p := e.b.pattern
	if p == nil {
		p = w.pattern(b.text)
	}
	return match(e.op, a.text, p)
}

// maxPatterns is how many patterns that stand in records are kept compiled.
const maxPatterns = 64

// pattern compiles a pattern that is no literal.
func (w *walker) pattern(text []byte) *pattern {
	if p := w.texts[string(text)]; p != nil {
		return p
	}
	w.visits -= 16 * int64(min(len(text), MaxPattern)) // compiling takes longer than a visit
	p := compilePattern(string(text))
	if w.texts == nil || len(w.texts) >= maxPatterns {
		w.texts = make(map[string]*pattern)
	}
	w.texts[p.text] = p
	return p
}

// exists decides whether a query selects anything.
func (w *walker) exists(q *query, cur ref) Outcome {
	var found, maybe bool
	switch {
	case q.single:
		_, found, maybe = w.single(q, cur)
	case q.root && q.id >= 0:
		m := w.remember(q)
		found, maybe = m.count > 0, m.maybe
	default:
		maybe = w.query(q, cur, func(ref) bool {
			found = true
			return false
		})
	}
	switch {
	case found:
		return Matched
	case maybe:
		return Undecidable
	}
	return Unmatched
}

// single follows a singular query.
func (w *walker) single(q *query, cur ref) (r ref, found, maybe bool) {
	if q.root && q.id >= 0 {
		m := w.remember(q)
		return m.first, m.count > 0, m.maybe
	}
	if r = cur; q.root {
		r = w.root
	}
	var at children
	for i := range q.segs {
		s := &q.segs[i].sels[0]
		n := 0
		switch k := w.tree.kind(r); {
		case k == '{' && s.kind != selIndex:
			r, n = w.find(s.name, r, &at)
		case k == '[' && (s.kind == selIndex || s.kind == selToken && s.index >= 0):
			r, n = w.element(r, s.index)
		}
		if w.over || n != 1 {
			return ref{}, false, w.over || n > 1
		}
	}
	return r, true, false
}

// element returns the element with an index, from the end where it is negative.
func (w *walker) element(r ref, index int64) (v ref, n int) {
	if index < 0 {
		count, ok := w.count(r)
		if index += count; !ok || index < 0 {
			return ref{}, 0
		}
	}
	for c := w.tree.children(r); ; {
		v, ok := c.next()
		if !ok || !w.visit() {
			return ref{}, 0
		}
		if c.index == index {
			return v, 1
		}
	}
}

// remember asks a query from $ once a record.
func (w *walker) remember(q *query) *remembered {
	for q.id >= len(w.memo) {
		w.memo = append(w.memo, remembered{})
	}
	if m := &w.memo[q.id]; m.asked {
		return m
	}
	var m remembered
	m.asked = true
	m.maybe = w.query(q, w.root, func(v ref) bool {
		if m.count++; m.count == 1 {
			m.first = v
		}
		return true
	})
	w.memo[q.id] = m // not before: the walk may have moved the slice
	return &w.memo[q.id]
}

// operand returns an operand's value with @ = cur.
func (w *walker) operand(o *operand, cur ref) value {
	switch o.kind {
	case fromLiteral:
		return o.lit.value()
	case fromLength:
		v := w.operand(o.arg, cur)
		if v.kind == '{' || v.kind == '[' {
			w.visits -= int64(w.tree.end(v.ref)-v.ref.pos) / 16
		}
		return w.length(&v)
	case fromQuery:
		r, found, maybe := w.single(o.query, cur)
		return w.value(r, found, maybe)
	}
	var n int64
	var first ref
	var maybe bool
	if o.query.root && o.query.id >= 0 {
		m := w.remember(o.query)
		n, first, maybe = m.count, m.first, m.maybe
	} else {
		maybe = w.query(o.query, cur, func(v ref) bool {
			if n++; n == 1 {
				first = v
			}
			return true
		})
	}
	switch {
	case maybe:
		return value{kind: kindUndecidable}
	case o.kind == fromCount:
		return numberValue(n)
	}
	return w.value(first, n == 1, false)
}

// value is the value that a query selected.
func (w *walker) value(r ref, found, maybe bool) value {
	switch {
	case found:
		v := rawValue(w.tree.b, r.pos)
		v.tree, v.ref = &w.tree, r
		return v
	case maybe:
		return value{kind: kindUndecidable}
	}
	return value{}
}
