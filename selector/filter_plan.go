package selector

import (
	"cmp"
	"slices"
)

// plan says which values a scan of a record must find for a condition: those
// of the singular queries of its atoms, without indexes from the end. One pass
// over the record finds them all. Other queries are asked of a tree.
type plan struct {
	nodes []planNode // the paths as a tree; 0 is the record
	slots int
	atoms []*expr
	plain []bool // by atom: slots are enough
}

// planNode is the end of a path from the record.
type planNode struct {
	sel    sel // the last step: a name, a token or an index
	slot   int // -1: only on the way
	kids   []int32
	names  []string         // of the kids that members enter, first
	byName map[string]int32 // where there are many kids
	byPos  map[int64]int32  // likewise
	last   int64            // the highest index among kids; -1: none
	below  []int            // slots here and below
}

// manyKids is how many names are looked for one by one.
const manyKids = 8

// newPlan numbers the atoms of a condition and finds slots for their operands.
func newPlan(e *expr) *plan {
	p := &plan{nodes: []planNode{{slot: -1, last: -1}}}
	seen := make(map[planKey]int32)
	e.atoms(func(a *expr) {
		a.atom = len(p.atoms)
		plain := true
		for _, o := range a.operands() {
			for o.kind == fromLength {
				o = o.arg
			}
			if o.query != nil {
				o.slot = p.slot(o.query, seen)
				plain = plain && o.slot >= 0
			}
		}
		p.atoms, p.plain = append(p.atoms, a), append(p.plain, plain)
	})
	for i := range p.nodes {
		n := &p.nodes[i]
		slices.SortStableFunc(n.kids, func(a, b int32) int { return cmp.Compare(p.nodes[a].unnamed(), p.nodes[b].unnamed()) })
		for _, k := range n.kids {
			if s := &p.nodes[k].sel; s.kind != selIndex {
				n.names = append(n.names, s.name)
			}
		}
		if len(n.kids) > manyKids {
			n.byName, n.byPos = make(map[string]int32), make(map[int64]int32)
			for _, k := range n.kids {
				s := &p.nodes[k].sel
				if s.kind != selIndex {
					n.byName[s.name] = k
				}
				if s.kind != selName {
					n.byPos[s.index] = k
				}
			}
		}
	}
	return p
}

// unnamed is 1 for a node that only elements enter.
func (n *planNode) unnamed() int {
	if n.sel.kind == selIndex {
		return 1
	}
	return 0
}

// planKey is something that a step of a path may enter: the member with a name
// of the value at a node, or the element with an index.
type planKey struct {
	node  int32
	name  string
	index int64 // -1: the member
}

// slot returns the slot for a query's value, -1 where it can have none.
func (p *plan) slot(q *query, seen map[planKey]int32) int {
	if !q.single {
		return -1
	}
	for _, seg := range q.segs {
		if s := seg.sels[0]; s.kind == selIndex && s.index < 0 {
			return -1
		}
	}
	at := int32(0)
	way := []int32{0}
	for _, seg := range q.segs {
		kid, ok := p.kid(at, seg.sels[0], seen)
		if !ok {
			return -1
		}
		at = kid
		way = append(way, at)
	}
	if n := &p.nodes[at]; n.slot < 0 {
		n.slot = p.slots
		p.slots++
		for _, i := range way {
			p.nodes[i].below = append(p.nodes[i].below, n.slot)
		}
	}
	return p.nodes[at].slot
}

// kid returns the node one step from another; false where the step may enter
// what another kind of step enters too, as @['0'] and the pointer /0.
func (p *plan) kid(at int32, s sel, seen map[planKey]int32) (int32, bool) {
	var keys []planKey
	if s.kind != selIndex {
		keys = append(keys, planKey{at, s.name, -1})
	}
	if s.kind == selIndex || s.kind == selToken && s.index >= 0 {
		keys = append(keys, planKey{at, "", s.index})
	}
	if s.kind == selToken && s.index < 0 {
		s.kind = selName // they mean the same
	}
	for _, k := range keys {
		if kid, ok := seen[k]; ok {
			return kid, p.nodes[kid].sel.kind == s.kind
		}
	}
	kid := int32(len(p.nodes))
	s.filter = nil
	p.nodes = append(p.nodes, planNode{sel: s, slot: -1, last: -1})
	for _, k := range keys {
		seen[k] = kid
		p.nodes[at].last = max(p.nodes[at].last, k.index)
	}
	p.nodes[at].kids = append(p.nodes[at].kids, kid)
	return kid, true
}

// Where a slot's value stands, other than an index.
const (
	slotMissing   = -1
	slotAmbiguous = -2
)

// What a scan returns instead of an index behind a value.
const (
	scanBroken = -1
	scanDone   = -2 // every slot is found
)

// finder finds the values of a plan's slots in one pass over a record.
type finder struct {
	plan    *plan
	scan    fastScan
	trusted bool   // no name stands twice, so that the pass may end early
	at      []int  // by slot: where the value begins
	seen    []bool // by node
	left    int
	guess   []*members // by node; nil: none yet
	scratch []byte
}

func newFinder(p *plan) finder {
	return finder{
		plan: p, at: make([]int, p.slots), seen: make([]bool, len(p.nodes)),
		guess: make([]*members, len(p.nodes)), scratch: make([]byte, 0, 64),
	}
}

// run scans the value at i, whose grammar was checked. It reports whether it
// has an end, so far as it looked.
func (f *finder) run(b []byte, i int, trusted bool) bool {
	f.trusted, f.left = trusted, len(f.at)
	f.scan.reset(b)
	for s := range f.at {
		f.at[s] = slotMissing
	}
	if !trusted {
		clear(f.seen)
	}
	return f.value(0, i) != scanBroken
}

// value takes the value at i, which stands at a node.
func (f *finder) value(node int32, i int) int {
	n := &f.plan.nodes[node]
	if i >= len(f.scan.b) {
		return scanBroken
	}
	if n.slot >= 0 {
		f.at[n.slot] = i
		if f.left--; f.left == 0 && f.trusted {
			return scanDone
		}
	}
	if len(n.kids) > 0 {
		switch f.scan.b[i] {
		case '{':
			return f.object(node, i+1)
		case '[':
			if n.last >= 0 {
				return f.array(n, i+1)
			}
		}
	}
	return f.scan.value(i)
}

func (f *finder) object(node int32, i int) int {
	n, b, g := &f.plan.nodes[node], f.scan.b, f.guess[node]
	if g == nil {
		g = newMembers()
		f.guess[node] = g
	}
	last := uint8(0)
	for left := len(n.kids); ; {
		if i < len(b) && b[i] == ',' {
			i++
		}
		if i < len(b) && b[i] <= ' ' {
			if i = skipSpace(b, i); i < len(b) && b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
		if i >= len(b) {
			return scanBroken
		}
		if b[i] == '}' {
			return i + 1
		}
		next := g.at[last].next
		m := &g.at[next]
		at, ok := m.stands(b, i)
		if !ok {
			var kid int32
			if kid, at = f.member(n, i); at < 0 {
				return scanBroken
			}
			next = g.learn(last, b[i:at], kid)
			m = &g.at[next]
		}
		last = next
		kid := m.kid
		if at < len(b) && b[at] <= ' ' {
			at = skipSpace(b, at)
		}
		switch {
		case kid < 0 && at < len(b) && b[at] == '"':
			i, _ = f.scan.str(at + 1)
		case kid < 0:
			i = f.scan.value(at)
		case f.trusted:
			i = f.value(kid, at)
			if left--; left == 0 && i >= 0 {
				return f.scan.container(i, '{')
			}
		case f.seen[kid]:
			for _, s := range f.plan.nodes[kid].below {
				f.at[s] = slotAmbiguous
			}
			i = f.scan.value(at)
		default:
			f.seen[kid] = true
			i = f.value(kid, at)
		}
		if i < 0 {
			return i
		}
	}
}

// member takes the name at i and the colon behind it: it returns the kid that
// the member enters, -1 for none, and the index behind the colon, -1 where there
// is no member.
func (f *finder) member(n *planNode, i int) (kid int32, at int) {
	b := f.scan.b
	if b[i] != '"' {
		return 0, -1
	}
	end, escaped := f.scan.str(i + 1)
	if end < 0 {
		return 0, -1
	}
	kid = f.named(n, b[i+1:end-1], escaped)
	if end < len(b) && b[end] <= ' ' {
		end = skipSpace(b, end)
	}
	if end >= len(b) || b[end] != ':' {
		return 0, -1
	}
	return kid, end + 1
}

// named returns the kid that a member's name enters; -1 for none.
func (f *finder) named(n *planNode, name []byte, escaped bool) int32 {
	if escaped {
		var ok bool
		if name, ok = unescape(name, f.scratch); !ok {
			return -1
		}
	}
	if n.byName != nil {
		if kid, ok := n.byName[string(name)]; ok {
			return kid
		}
		return -1
	}
	for i, want := range n.names {
		if len(want) == len(name) && want == string(name) {
			return n.kids[i]
		}
	}
	return -1
}

func (f *finder) array(n *planNode, i int) int {
	b := f.scan.b
	for index := int64(0); index <= n.last; index++ {
		i = skipSpace(b, i)
		if index > 0 && i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		if i >= len(b) {
			return scanBroken
		}
		if b[i] == ']' {
			return i + 1
		}
		if kid := f.element(n, index); kid < 0 {
			i = f.scan.value(i)
		} else {
			i = f.value(kid, i)
		}
		if i < 0 {
			return i
		}
	}
	return f.scan.container(i, '[')
}

// element returns the kid that an element enters; -1 for none.
func (f *finder) element(n *planNode, index int64) int32 {
	if n.byPos != nil {
		if kid, ok := n.byPos[index]; ok {
			return kid
		}
		return -1
	}
	for _, kid := range n.kids {
		if s := &f.plan.nodes[kid].sel; s.kind != selName && s.index == index {
			return kid
		}
	}
	return -1
}
