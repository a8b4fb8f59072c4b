package selector

// KeyPath is the path that an index is built over.
type KeyPath struct {
	text  string
	query *query
}

// ParseKeyPath reads a JSON Pointer into a record, or a JSONPath query of names,
// indexes and [*] in which @ and $ are the record. It fails with ErrSelector,
// naming the place.
func ParseKeyPath(s string) (*KeyPath, error) {
	q, err := parseQuery("index", s)
	if err != nil {
		return nil, err
	}
	for _, seg := range q.segs {
		if seg.descend || len(seg.sels) != 1 || seg.sels[0].kind > selWild {
			return nil, fail("index", 0, ErrSelector, "%s: an index is over names, indexes and [*]", cut(s))
		}
	}
	return &KeyPath{text: s, query: q}, nil
}

// String returns the path as it was written.
func (p *KeyPath) String() string { return p.text }

// Normalised returns the one spelling of the path, a query as in a normalised
// query.
func (p *KeyPath) Normalised() []byte { return p.query.normal(nil) }

// Scalar reports whether every record has exactly one key: there is no [*].
func (p *KeyPath) Scalar() bool { return p.query.single }

// KeyMaker makes the typed keys (lpk1) of record after record. It serves one
// goroutine; make one for each.
type KeyMaker struct {
	path   *KeyPath
	look   *lookup
	slot   int // -1: asked of the tree
	hidden bool
	key    []byte
}

// Maker returns a maker of keys for the records of a layout whose producer
// removed or masked the values at redactions, JSON Pointers into a record. It
// fails with ErrLayout for an invalid layout, and with ErrSelector for a path
// that no record of it has.
func (p *KeyPath) Maker(l Layout, redactions []string) (*KeyMaker, error) {
	l, err := l.normal()
	if err == nil {
		err = p.query.fits("index", l)
	}
	if err != nil {
		return nil, err
	}
	m := &KeyMaker{path: p, slot: -1}
	plan := newPlan(&expr{op: opExists, a: &operand{kind: fromQuery, query: p.query, slot: -1}})
	m.look = newLookup(plan, l)
	if m.look.plain[0] {
		m.slot = plan.atoms[0].a.slot
	}
	for _, r := range redactions {
		if path, err := parsePointer(r); err != nil || p.query.touches(path, path) {
			m.hidden = true
		}
	}
	return m, nil
}

// Keys gives the keys of one record to yield, each valid until it returns: of a
// scalar path exactly one; of one with [*] that of every value, in their order
// and as often as they stand there, or missing where there is none. What cannot
// be told has a key too: redacted, ambiguous where a name on the path stands
// twice, else unparseable. trusted says that the record was validated; see
// [Evaluator.EvalTrusted].
func (m *KeyMaker) Keys(record []byte, trusted bool, yield func(key []byte)) {
	tag := func(c byte) { yield(append(m.key[:0], c)) }
	k := m.look
	switch {
	case m.hidden:
		tag(KeyRedacted)
		return
	case !trusted && !k.checked(record) || !k.load(record, trusted):
		tag(KeyUnparseable)
		return
	case m.slot >= 0:
		v := k.slot(m.slot)
		if v.kind == kindUndecidable {
			tag(KeyAmbiguous)
			return
		}
		m.give(&v, yield)
		return
	case !k.tree():
		tag(KeyUnparseable)
		return
	}
	w := &k.walk
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(w.tree.b)))
	n := 0
	w.segments(m.path.query.segs, w.root, func(r ref) bool {
		v := w.value(r, true, false)
		m.give(&v, yield)
		n++
		return true
	})
	switch {
	case w.over:
		tag(KeyUnparseable)
	case w.maybe:
		tag(KeyAmbiguous)
	case n == 0:
		tag(KeyMissing)
	}
}

func (m *KeyMaker) give(v *value, yield func(key []byte)) {
	m.key = m.look.walk.appendKey(m.key[:0], v, false)
	yield(m.key)
}
