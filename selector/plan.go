package selector

import (
	"bytes"
	"slices"
)

// A KeyRange is a run of typed keys (lpk1): those from From on and in front of
// To, in the order of bytes.
type KeyRange struct{ From, To []byte }

// Has reports whether a key lies in the range.
func (r KeyRange) Has(key []byte) bool {
	return bytes.Compare(key, r.From) >= 0 && bytes.Compare(key, r.To) < 0
}

// Determined is the run of all keys that stand for a value or for none. Behind
// it stands the tail of those that cannot be told.
func Determined() KeyRange {
	return KeyRange{From: []byte{KeyMissing}, To: []byte{KeyRedacted}}
}

// KeyPlan says where in an index the records stand that a condition may hold
// for. The tail is in none of the ranges: its records are part of every answer
// and are always decided by their bytes.
type KeyPlan struct {
	// Ranges hold a key of every record outside the tail that the condition matches,
	// or that it cannot decide. They ascend, are not empty and do not touch. The
	// record's bytes decide, unless Exact.
	Ranges []KeyRange
	// Exact says that a record outside the tail matches if and only if one of its
	// keys lies in Ranges; none of them is undecidable. With [*] in the path such a
	// record may have several keys there.
	Exact bool
}

// Narrows reports whether the plan leaves out any key at all.
func (p KeyPlan) Narrows() bool {
	all := Determined()
	return len(p.Ranges) != 1 || !bytes.Equal(p.Ranges[0].From, all.From) || !bytes.Equal(p.Ranges[0].To, all.To)
}

// Has reports whether a key lies in one of the ranges.
func (p KeyPlan) Has(key []byte) bool { return keySet(p.Ranges).has(key) }

// Plan maps a condition to the keys of an index over the path; w nil holds for
// every record. It depends on nothing but the normalised condition, the path and
// the redactions ([Where.WithRedactions]), so that whoever proves an answer and
// whoever checks the proof get the same ranges from the question alone.
//
// What narrows: a comparison of the path's value with a literal; whether it is
// there; length(); match() and search() with a pattern that begins with literal
// characters (search() only behind ^); for a path with [*] a filter in its place,
// as @.tags[?@ == "x"] for @.tags[*]; and and, or and not of these. Whatever else
// a condition asks may hold for every key.
func (p *KeyPath) Plan(w *Where) KeyPlan {
	if w == nil {
		return KeyPlan{Ranges: everyKey(), Exact: true}
	}
	s := p.sets(w, w.expr)
	return KeyPlan{Ranges: s.may, Exact: s.may.equal(s.must)}
}

func (p *KeyPath) sets(w *Where, e *expr) keySets {
	k := keyWalk{segs: p.query.segs, hidden: w.hidden}
	return k.of(e.ordered())
}

// Orders reports whether an index over the path has records in an order: by one
// value, the one at the path, of which every record has one key. Ties stand by
// record number. Of strings that are longer than the key spells out
// ([KeyExact]) the records must be asked.
func (p *KeyPath) Orders(orders []*Order) bool {
	return len(orders) == 1 && p.Scalar() && !orders[0].hidden && coverOf(orders[0].query.segs, p.query.segs) == coverSame
}

// Serves reports whether an index over the path can be of any use for a condition,
// or an order: others need not be opened.
func (p *KeyPath) Serves(w *Where, orders []*Order) bool {
	if p.Orders(orders) {
		return true
	}
	found := false
	if w != nil {
		w.expr.atoms(func(a *expr) {
			if !found {
				s := p.sets(w, a)
				found = !s.may.equal(everyKey()) || len(s.must) > 0
			}
		})
	}
	return found
}

// An Access is a part of a plan over several indexes: the ranges of one of them.
type Access struct {
	Path   *KeyPath
	Ranges []KeyRange // as those of a KeyPlan
}

// Access returns the cheapest plan over the indexes at paths: a record that the
// condition matches, or cannot decide, has a key in one of the accesses, or
// stands in the tail of one of their indexes. Of an and it takes one operand, of
// an or all. cost is asked, for a path by its position, how many entries stand in
// ranges. It returns nil where nothing narrows.
func (w *Where) Access(paths []*KeyPath, cost func(path int, ranges []KeyRange) int64) []Access {
	c := chooser{w: w, paths: paths, cost: cost}
	best, _ := c.choose(w.expr)
	var out []Access
	for i, ranges := range best {
		if ranges != nil {
			out = append(out, Access{Path: paths[i], Ranges: *ranges})
		}
	}
	return out
}

// Covered reports whether accesses, whoever chose them, leave out no record that
// the condition matches or cannot decide, beside those in the tails of all of
// their indexes. Ranges that are not as those of a [KeyPlan] cover nothing.
func (w *Where) Covered(accesses []Access) bool {
	for _, a := range accesses {
		if a.Path == nil || !keySet(a.Ranges).canonical() {
			return false
		}
	}
	return w.covered(w.expr, accesses)
}

func (w *Where) covered(e *expr, accesses []Access) bool {
	for _, a := range accesses {
		if a.Path.sets(w, e).may.within(a.Ranges) {
			return true
		}
	}
	one := func(k *expr) bool { return w.covered(k, accesses) }
	op, kids := e.flat(false)
	switch op {
	case opAnd:
		return slices.ContainsFunc(kids, one)
	case opOr:
		return !slices.ContainsFunc(kids, func(k *expr) bool { return !one(k) })
	}
	return false
}

// flat returns the operands of an and or or, also where it stands under not, with
// the not moved to the operands; otherwise the operation is opNot and there are
// none.
func (e *expr) flat(negated bool) (exprOp, []*expr) {
	for e.op == opNot {
		e, negated = e.kids[0], !negated
	}
	if e.op != opAnd && e.op != opOr {
		return opNot, nil
	}
	if !negated {
		return e.op, e.kids
	}
	var kids []*expr
	for _, k := range e.kids {
		kids = append(kids, &expr{op: opNot, kids: []*expr{k}, atom: -1})
	}
	return opAnd + opOr - e.op, kids
}

// chooser finds the cheapest accesses.
type chooser struct {
	w     *Where
	paths []*KeyPath
	cost  func(path int, ranges []KeyRange) int64
	asked int
}

// maxChoices bounds the parts of a condition that are planned one by one; what
// is left is planned as a whole.
const maxChoices = 64

// choice has, by path, the ranges that are read; nil: none of this index.
type choice []*[]KeyRange

func (c *chooser) choose(e *expr) (choice, int64) {
	var best choice
	least := int64(-1)
	take := func(x choice, cost int64) {
		if x != nil && (least < 0 || cost < least) {
			best, least = x, cost
		}
	}
	for i, p := range c.paths {
		c.asked++
		may := p.sets(c.w, e).may
		if may.equal(everyKey()) {
			continue
		}
		x := make(choice, len(c.paths))
		ranges := []KeyRange(may)
		x[i] = &ranges
		take(x, c.cost(i, ranges))
	}
	op, kids := e.flat(false)
	if op == opNot || c.asked+len(kids)*len(c.paths) > maxChoices {
		return best, least
	}
	if op == opAnd {
		for _, k := range kids {
			take(c.choose(k))
		}
		return best, least
	}
	all, sum := make(choice, len(c.paths)), int64(0)
	for _, k := range kids {
		x, cost := c.choose(k)
		if x == nil {
			return best, least
		}
		sum += cost
		for i, ranges := range x {
			switch {
			case ranges == nil:
			case all[i] == nil:
				all[i] = ranges
			default:
				both := []KeyRange(anyOf(*all[i], *ranges))
				all[i] = &both
			}
		}
	}
	take(all, sum)
	return best, least
}
