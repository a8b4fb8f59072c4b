package selector

import "slices"

// keyWalk maps a condition on a value, @, to the keys of an index: those of what
// the index's path selects from that value.
type keyWalk struct {
	segs    []segment // the path from @ on
	element bool      // @ is what a [*] selected, not the record: what is missing from it has no key
	hidden  []bool    // by atom of the condition: undecidable
}

// multi reports whether @ may have several keys.
func (k *keyWalk) multi() bool {
	return slices.ContainsFunc(k.segs, func(s segment) bool { return s.sels[0].kind == selWild })
}

// of maps an expression in its normal order ([expr.ordered]). Of records with one key each, the outcome is a function
// of the key as far as may and must tell, and Kleene's logic is that of sets. A
// record with several keys matches where one of them says so: then or stays
// union, but of an and no more than one operand can be had, and not says little.
func (k *keyWalk) of(e *expr) keySets {
	switch e.op {
	case opNot:
		return k.not(k.of(e.kids[0]))
	case opAnd, opOr:
		var may, must []keySet
		for _, kid := range e.kids {
			s := k.of(kid)
			may, must = append(may, s.may), append(must, s.must)
		}
		switch {
		case e.op == opOr:
			return keySets{may: anyOf(may...), must: anyOf(must...)}
		case k.multi():
			return keySets{may: slices.MinFunc(may, breadth), must: onlyOne(must)}
		}
		return keySets{may: allOf(may...), must: allOf(must...)}
	}
	if k.hidden != nil && k.hidden[e.atom] {
		return unknown()
	}
	return k.atom(e)
}

// onlyOne is the one set that is not every key; where there are several, none.
func onlyOne(sets []keySet) keySet {
	out := everyKey()
	for _, s := range sets {
		if s.equal(everyKey()) {
			continue
		}
		if !out.equal(everyKey()) {
			return nil
		}
		out = s
	}
	return out
}

// not maps the negation of what s maps.
func (k *keyWalk) not(s keySets) keySets {
	out := keySets{may: s.must.not(), must: s.may.not()}
	if !k.multi() || len(s.may) == 0 {
		return out
	}
	// Another key of the record may say yes, but of one that has none.
	out.must = allOf(out.must, classes(KeyMissing, KeyNull))
	if k.element {
		out.must = nil
	}
	return out
}

// atom maps an atom.
func (k *keyWalk) atom(e *expr) keySets {
	if e.op == opExists {
		return k.exists(e.a.query)
	}
	op, a, b := e.op, e.a, e.b
	if a.kind == fromLiteral && op >= opEq && op <= opGe {
		a, b = b, a
		op = [...]exprOp{opEq: opEq, opNe: opNe, opLt: opGt, opLe: opGe, opGt: opLt, opGe: opLe}[op]
	}
	if b.kind != fromLiteral {
		return unknown()
	}
	switch a.kind {
	case fromLiteral:
		if op > opGe || op < opEq {
			return unknown()
		}
		var r room
		x, y := a.lit.value(), b.lit.value()
		if r.compare(op, &x, &y) == Matched {
			return exactly(everyKey())
		}
		return exactly(nil)
	case fromQuery:
		return k.at(a.query, ofValue(op, b))
	case fromLength:
		if a.arg.kind == fromQuery && op >= opEq && op <= opGe {
			return k.at(a.arg.query, ofLength(op, &b.lit))
		}
	}
	return unknown()
}

// at maps a condition on the value of a singular query, of which s says for which
// values, with missing, it holds.
func (k *keyWalk) at(q *query, s keySets) keySets {
	if q.root && k.element {
		return unknown()
	}
	switch coverOf(q.segs, k.segs) {
	case coverSame:
		return s
	case coverWithin:
		if !s.may.has([]byte{KeyMissing}) { // the value has a key, if it is there
			return keySets{may: s.may}
		}
	}
	return unknown()
}

// cover says how what a query selects stands to the keys of a path.
type cover uint8

const (
	coverNone   cover = iota
	coverWithin       // what the query selects has a key; the path may have others
	coverSame         // the same values
)

// coverOf compares singular steps with those of a path.
func coverOf(q, path []segment) cover {
	if len(q) != len(path) {
		return coverNone
	}
	out := coverSame
	for i := range q {
		out = min(out, q[i].cover(&path[i].sels[0]))
	}
	return out
}

// cover compares a step with that of a path.
func (seg *segment) cover(p *sel) cover {
	if seg.descend || len(seg.sels) != 1 {
		return coverNone
	}
	s := &seg.sels[0]
	named := func(s *sel) bool { return s.kind == selName || s.kind == selToken && s.index < 0 }
	switch {
	case s.kind > selIndex:
		return coverNone
	case p.kind == selWild:
		return coverWithin
	case named(p):
		if named(s) && s.name == p.name {
			return coverSame
		}
	case p.kind == selIndex:
		if s.kind == selIndex && s.index == p.index {
			return coverSame
		}
	case s.kind == selToken && s.name == p.name: // p is a token that enters arrays too
		return coverSame
	case s.kind == selName && s.name == p.name, s.kind == selIndex && s.index == p.index:
		return coverWithin
	}
	return coverNone
}

// maxFilterAtoms is how many atoms the filters of a query may have. With so few,
// each of which visits a value twice at most, MaxVisits and MaxVisitsPerByte
// allow for all that the query can visit: it is never undecidable for a record
// whose keys can be told.
const maxFilterAtoms = 3

// exists maps whether a query selects anything.
func (k *keyWalk) exists(q *query) keySets {
	if atoms := 0; q.root && k.element || !plainFilters(q.segs, &atoms) {
		return unknown()
	}
	return k.reaches(q.segs, k.segs)
}

// plainFilters reports whether all filters ask for no more than single values
// of @ and their literals, and counts their atoms.
func plainFilters(segs []segment, atoms *int) bool {
	for i := range segs {
		for j := range segs[i].sels {
			f := segs[i].sels[j].filter
			if f == nil {
				continue
			}
			ok := true
			f.atoms(func(a *expr) {
				*atoms++
				if a.op == opExists {
					ok = ok && !a.a.query.root && !deep(a.a.query.segs) && plainFilters(a.a.query.segs, atoms)
					return
				}
				for _, o := range a.operands() {
					ok = ok && (o.kind == fromLiteral || o.kind == fromQuery && !o.query.root)
				}
				ok = ok && (a.a.kind == fromLiteral || a.b.kind == fromLiteral)
				ok = ok && (a.op != opMatch && a.op != opSearch || a.b.kind == fromLiteral)
			})
			if !ok || *atoms > maxFilterAtoms {
				return false
			}
		}
	}
	return true
}

// deep reports whether steps may meet a value twice, or go backwards.
func deep(segs []segment) bool {
	return slices.ContainsFunc(segs, func(s segment) bool {
		return s.descend || len(s.sels) > 1 || s.sels[0].kind == selSlice
	})
}

// reaches maps whether the steps q select anything, of which path are those of
// the index from the same value on.
func (k *keyWalk) reaches(q, path []segment) keySets {
	have := coverSame
	for i := range path {
		if i == len(q) {
			return unknown()
		}
		s := &q[i].sels[0]
		if path[i].sels[0].kind == selWild && !q[i].descend && len(q[i].sels) == 1 && (s.kind == selWild || s.kind == selFilter) {
			below := keyWalk{segs: path[i+1:], element: true}
			out := below.lift(below.both(s.filter, q[i+1:]))
			if have != coverSame {
				out.must = nil
			}
			return out
		}
		if have = min(have, q[i].cover(&path[i].sels[0])); have == coverNone {
			return unknown()
		}
	}
	if len(q) != len(path) {
		return unknown()
	}
	out := exactly(classes(KeyNull, KeyRedacted))
	if have != coverSame {
		out.must = nil
	}
	return out
}

// both maps whether a filter holds for @ and steps from there select anything; no
// filter holds always, and no steps select @.
func (k *keyWalk) both(filter *expr, q []segment) keySets {
	switch {
	case filter == nil && len(q) == 0:
		return exactly(everyKey())
	case filter == nil:
		return k.reaches(q, k.segs)
	case len(q) == 0:
		return k.of(filter.ordered())
	}
	f, r := k.of(filter.ordered()), k.reaches(q, k.segs)
	if !f.may.equal(f.must) {
		r.may = everyKey() // a filter that is undecidable is so whatever stands behind it
	}
	if k.multi() {
		return keySets{may: slices.MinFunc([]keySet{f.may, r.may}, breadth), must: onlyOne([]keySet{f.must, r.must})}
	}
	return keySets{may: allOf(f.may, r.may), must: allOf(f.must, r.must)}
}

// lift maps whether a condition on what a [*] selected holds for any of that. An
// element that has nothing at the rest of the path has no key, which says
// nothing.
func (k *keyWalk) lift(s keySets) keySets {
	there := classes(KeyNull, KeyRedacted)
	if len(k.segs) > 0 && s.may.has([]byte{KeyMissing}) {
		return keySets{may: everyKey(), must: allOf(s.must, there)}
	}
	return keySets{may: allOf(s.may, there), must: allOf(s.must, there)}
}
