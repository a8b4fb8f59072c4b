package selector

// The values that a condition or path may visit in one record or document: so
// many, and more for each byte. It bounds the time of filters inside filters
// and of repeated descents, which RFC 9535 lets grow without bound. A query
// that visits more is undecidable.
const (
	MaxVisits        = 1 << 16
	MaxVisitsPerByte = 4
)

// walker asks queries of the values of one tree.
type walker struct {
	room
	tree    tree
	root    ref
	trusted bool  // the record was validated: no name stands twice
	visits  int64 // still allowed
	over    bool  // visits are used up
	maybe   bool  // the query under way may select more than it did: something cannot be told
	memo    []remembered
	texts   map[string]*pattern // patterns that stand in records
	check   func() error        // called now and then; nil: never
	err     error               // of check
	track   bool                // keep the path
	path    []place             // where the outermost query stands
	refs    []ref               // room
}

// place is one step of the path to a value.
type place struct {
	name    []byte // of a member: what stands between the quotes
	escaped bool
	index   int64 // of an element; -1 for a member
}

// remembered is what a query from $ inside a filter selected.
type remembered struct {
	asked bool
	maybe bool
	count int64
	first ref
}

// reset begins with another record.
func (w *walker) reset(b []byte, i int) bool {
	w.root, w.err = ref{pos: i}, nil
	clear(w.memo)
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(b)))
	return w.tree.build(b, i)
}

// allow sets how many values may be visited from here on.
func (w *walker) allow(n int64) { w.visits, w.over, w.maybe = n, false, false }

// visit counts one value, and reports whether the walk goes on.
func (w *walker) visit() bool {
	if w.visits--; w.visits < 0 {
		w.over = true
		return false
	}
	if w.check != nil && w.visits&1023 == 0 {
		if w.err = w.check(); w.err != nil {
			w.over = true
			return false
		}
	}
	return !w.over
}

// query gives the values that a query selects to out, in RFC 9535's order,
// until out returns false. It reports whether there may be others.
func (w *walker) query(q *query, cur ref, out func(ref) bool) (maybe bool) {
	outer, track := w.maybe, w.track
	w.maybe, w.track = false, false
	if q.root {
		cur = w.root
	}
	w.segments(q.segs, cur, out)
	maybe = w.maybe || w.over
	w.maybe, w.track = outer, track
	return maybe
}

// segments follows what is left of a query from r. It returns false where the
// walk is over.
func (w *walker) segments(segs []segment, r ref, out func(ref) bool) bool {
	if len(segs) == 0 {
		return out(r)
	}
	if segs[0].descend {
		return w.descend(segs, r, out)
	}
	return w.children(&segs[0], segs[1:], r, out)
}

// descend applies the selectors of the first segment to r and to all that is
// below it.
func (w *walker) descend(segs []segment, r ref, out func(ref) bool) bool {
	if !w.tree.isContainer(r) {
		return true
	}
	if !w.children(&segs[0], segs[1:], r, out) {
		return false
	}
	if !w.clear(r) {
		return true
	}
	for c := w.tree.children(r); ; {
		v, ok := c.next()
		if !ok {
			return true
		}
		if !w.visit() {
			return false
		}
		if !w.tree.isContainer(v) {
			continue
		}
		w.push(&c)
		more := w.descend(segs, v, out)
		w.pop()
		if !more {
			return false
		}
	}
}

// clear reports whether the members of a container can be told apart, and notes
// where they cannot.
func (w *walker) clear(r ref) bool {
	if w.trusted || w.tree.kind(r) != '{' || !w.tree.ambiguous(r) {
		return true
	}
	w.maybe = true
	return false
}

func (w *walker) push(c *children) {
	if !w.track {
		return
	}
	at := place{index: c.index}
	if c.object {
		at = place{name: c.name, escaped: c.escaped, index: -1}
	}
	w.path = append(w.path, at)
}

func (w *walker) pop() {
	if w.track {
		w.path = w.path[:len(w.path)-1]
	}
}

// children applies the selectors of a segment to r, and the segments behind it
// to what they select.
func (w *walker) children(seg *segment, rest []segment, r ref, out func(ref) bool) bool {
	kind := w.tree.kind(r)
	if kind != '{' && kind != '[' {
		return true
	}
	for i := range seg.sels {
		s := &seg.sels[i]
		more := true
		switch {
		case s.kind == selWild || s.kind == selFilter:
			more = w.each(s, rest, r, out)
		case kind == '{' && (s.kind == selName || s.kind == selToken):
			more = w.named(s.name, rest, r, out)
		case kind == '[' && (s.kind == selIndex || s.kind == selToken) && (s.index >= 0 || s.kind == selIndex):
			more = w.positions(r, s.index, s.index, 1, true, rest, out)
		case kind == '[' && s.kind == selSlice:
			more = w.slice(s, rest, r, out)
		}
		if !more {
			return false
		}
	}
	return true
}

// named goes on from the member with a name.
func (w *walker) named(name string, rest []segment, r ref, out func(ref) bool) bool {
	var at children
	v, n := w.find(name, r, &at)
	switch {
	case w.over:
		return false
	case n > 1:
		w.maybe = true
	case n == 1:
		w.push(&at)
		more := w.segments(rest, v, out)
		w.pop()
		return more
	}
	return true
}

// find looks for the members with a name, up to two of them, and returns the
// first and how many there are; at is left there. One is enough of a record
// that was validated.
func (w *walker) find(name string, r ref, at *children) (first ref, n int) {
	for c := w.tree.children(r); ; {
		v, ok := c.next()
		if !ok || !w.visit() {
			return first, n
		}
		if !sameName(c.name, c.escaped, name, w.room.b[:0]) {
			continue
		}
		if n++; n == 1 {
			first, *at = v, c
		}
		if n > 1 || w.trusted {
			return first, n
		}
	}
}

// each goes on from all children, or from those for which a filter holds.
func (w *walker) each(s *sel, rest []segment, r ref, out func(ref) bool) bool {
	if !w.clear(r) {
		return true
	}
	for c := w.tree.children(r); ; {
		v, ok := c.next()
		if !ok {
			return true
		}
		if !w.visit() {
			return false
		}
		if s.filter != nil {
			switch w.holds(s.filter, v) {
			case Undecidable:
				w.maybe = true
				continue
			case Unmatched:
				continue
			}
			if w.over {
				return false
			}
		}
		w.push(&c)
		more := w.segments(rest, v, out)
		w.pop()
		if !more {
			return false
		}
	}
}

// slice goes on from the elements of a slice (RFC 9535 section 2.3.4.2.2).
func (w *walker) slice(s *sel, rest []segment, r ref, out func(ref) bool) bool {
	if s.step == 0 {
		return true
	}
	start, end := s.start, s.end
	if s.step > 0 && (s.noStart || start >= 0) && (s.noEnd || end >= 0) { // no need of the length
		if s.noStart {
			start = 0
		}
		if s.noEnd {
			end = maxInteger
		}
		return w.positions(r, start, end-1, s.step, false, rest, out)
	}
	n, ok := w.count(r)
	if !ok {
		return false
	}
	from := func(i int64) int64 { // from the end where negative
		if i < 0 {
			return n + i
		}
		return i
	}
	if s.step > 0 {
		if s.noStart {
			start = 0
		}
		if s.noEnd {
			end = n
		}
		return w.positions(r, max(from(start), 0), from(end)-1, s.step, false, rest, out)
	}
	upper, lower := n-1, int64(-1)
	if !s.noStart {
		upper = min(max(from(start), -1), n-1)
	}
	if !s.noEnd {
		lower = min(max(from(end), -1), n-1)
	}
	return w.backward(r, upper, lower, -s.step, rest, out)
}

func (w *walker) count(r ref) (n int64, ok bool) {
	for c := w.tree.children(r); ; n++ {
		if _, more := c.next(); !more {
			return n, true
		}
		if !w.visit() {
			return 0, false
		}
	}
}

// positions goes on from the elements first, first+step, … up to last; with
// single, from the one at first, counted from the end where it is negative.
func (w *walker) positions(r ref, first, last, step int64, single bool, rest []segment, out func(ref) bool) bool {
	if single && first < 0 {
		n, ok := w.count(r)
		if !ok {
			return false
		}
		if first += n; first < 0 {
			return true
		}
		last = first
	}
	for c := w.tree.children(r); c.index < last; {
		v, ok := c.next()
		if !ok {
			return true
		}
		if !w.visit() {
			return false
		}
		if c.index < first || (c.index-first)%step != 0 || c.index > last {
			continue
		}
		w.push(&c)
		more := w.segments(rest, v, out)
		w.pop()
		if !more {
			return false
		}
	}
	return true
}

// backward goes on from the elements upper, upper−step, … down to above lower.
func (w *walker) backward(r ref, upper, lower, step int64, rest []segment, out func(ref) bool) bool {
	if upper <= lower {
		return true
	}
	all := w.tree.elements(r, w.refs)
	w.refs = nil // a nested walk takes its own
	defer func() { w.refs = all[:0] }()
	for i := upper; i > lower && i < int64(len(all)); i -= step {
		if !w.visit() {
			return false
		}
		c := children{index: i}
		w.push(&c)
		more := w.segments(rest, all[i], out)
		w.pop()
		if !more {
			return false
		}
	}
	return true
}
