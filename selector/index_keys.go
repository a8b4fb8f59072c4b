package selector

// multiKeys makes the keys of several paths from one pass over a record: of each
// path those that its own [KeyMaker] makes.
type multiKeys struct {
	paths []multiPath
	look  *lookup
	asked bool // some path is to be looked for
	key   []byte
}

type multiPath struct {
	path   *KeyPath
	slot   int // -1: asked of the tree
	hidden bool
}

func newMultiKeys(paths []*KeyPath, l Layout, redactions []string) *multiKeys {
	all := &expr{op: opOr, atom: -1}
	for _, p := range paths {
		all.kids = append(all.kids, &expr{op: opExists, a: &operand{kind: fromQuery, query: p.query, slot: -1}})
	}
	plan := newPlan(all)
	m := &multiKeys{look: newLookup(plan, l), key: make([]byte, 0, 256)}
	for i, p := range paths {
		one := multiPath{path: p, slot: -1, hidden: len(p.redactedBy(redactions)) > 0}
		if m.look.plain[i] {
			one.slot = all.kids[i].a.slot
		}
		m.paths, m.asked = append(m.paths, one), m.asked || !one.hidden
	}
	return m
}

// keys gives the keys of one record to yield, with the number of the path, each
// valid until it returns.
func (m *multiKeys) keys(record []byte, trusted bool, yield func(path int, key []byte)) {
	m.all(m.asked && (trusted || m.look.checked(record)) && m.look.load(record, trusted), yield)
}

// all gives the keys of the record that was loaded, or of one that cannot be.
func (m *multiKeys) all(told bool, yield func(path int, key []byte)) {
	for i := range m.paths {
		switch p := &m.paths[i]; {
		case p.hidden:
			m.tag(i, KeyRedacted, yield)
		case !told:
			m.tag(i, KeyUnparseable, yield)
		case p.slot >= 0:
			if v := m.look.slot(p.slot); v.kind == kindUndecidable {
				m.tag(i, KeyAmbiguous, yield)
			} else {
				m.give(i, &v, yield)
			}
		default:
			m.walk(i, p, yield)
		}
	}
}

func (m *multiKeys) tag(i int, c byte, yield func(int, []byte)) { yield(i, append(m.key[:0], c)) }

func (m *multiKeys) give(i int, v *value, yield func(int, []byte)) {
	m.key = m.look.walk.appendKey(m.key[:0], v, false)
	yield(i, m.key)
}

// walk gives the keys of a path that is asked of the record's tree.
func (m *multiKeys) walk(i int, p *multiPath, yield func(int, []byte)) {
	k := m.look
	if !k.tree() {
		m.tag(i, KeyUnparseable, yield)
		return
	}
	w := &k.walk
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(w.tree.b)))
	n := 0
	w.segments(p.path.query.segs, w.root, func(r ref) bool {
		v := w.value(r, true, false)
		m.give(i, &v, yield)
		n++
		return true
	})
	switch {
	case w.over:
		m.tag(i, KeyUnparseable, yield)
	case w.maybe:
		m.tag(i, KeyAmbiguous, yield)
	case n == 0:
		m.tag(i, KeyMissing, yield)
	}
}
