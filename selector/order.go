package selector

import "strings"

// Order is one key that records are ordered by: the value at a path, in the
// total order missing < null < false < true < numbers < strings (by code point)
// < arrays < objects; arrays tie with arrays, and objects with objects.
type Order struct {
	query  *query
	desc   bool
	text   string
	hidden bool // the value is redacted
}

// ParseOrder reads P, P:asc or P:desc, where P is a JSON Pointer into the
// record, or a singular JSONPath query with @ or $ = the record. A pointer that
// ends in :asc or :desc itself is written with a second one behind it. It fails
// with ErrSelector, naming the place.
func ParseOrder(s string) (*Order, error) {
	o := &Order{text: s}
	path := s
	if rest, ok := strings.CutSuffix(s, ":desc"); ok {
		path, o.desc = rest, true
	} else if rest, ok := strings.CutSuffix(s, ":asc"); ok {
		path = rest
	}
	var err error
	if o.query, err = parseQuery("order", path); err != nil {
		return nil, err
	}
	if !o.query.single {
		return nil, fail("order", 0, ErrSelector, "%s may select several values of a record; an order needs one", cut(path))
	}
	return o, nil
}

// String returns the order as it was written.
func (o *Order) String() string { return o.text }

// Descending reports whether the greatest value comes first.
func (o *Order) Descending() bool { return o.desc }

// normal appends ["asc", path] or ["desc", path].
func (o *Order) normal(b []byte) []byte {
	b = append(b, `["asc",`...)
	if o.desc {
		b = append(b[:len(b)-len(`"asc",`)], `"desc",`...)
	}
	return append(o.query.normal(b), ']')
}

// Fits refuses an order that no record of the layout has a value for; see
// [Where.Fits].
func (o *Order) Fits(l Layout) error { return o.query.fits("order", l) }

// WithRedactions returns the order for an artifact whose producer removed or
// masked the values at paths: where the key is such a value, or one within or
// around it, no record has a key.
func (o *Order) WithRedactions(paths []string) *Order {
	out := *o
	for _, p := range paths {
		if path, err := parsePointer(p); err != nil || o.query.touches(path, path) {
			out.hidden = true
		}
	}
	return &out
}

// Keys makes the keys of record after record. It serves one goroutine; make
// one for each.
type Keys struct {
	orders []*Order
	slots  []int // by order; -1: asked of the tree
	look   *lookup
	hidden bool
}

// NewKeys returns a maker of keys for the records of a layout, ordered by the
// first of orders, then by the second, and so on. It fails with ErrLayout for an
// invalid layout, and with ErrSelector for an order that does not fit it.
func NewKeys(l Layout, orders []*Order) (*Keys, error) {
	l, err := l.normal()
	if err != nil {
		return nil, err
	}
	k := &Keys{orders: orders}
	all := &expr{op: opAnd}
	for _, o := range orders {
		if err := o.Fits(l); err != nil {
			return nil, err
		}
		k.hidden = k.hidden || o.hidden
		all.kids = append(all.kids, &expr{op: opExists, a: &operand{kind: fromQuery, query: o.query, slot: -1}})
	}
	plan := newPlan(all)
	k.look = newLookup(plan, l)
	for i, a := range plan.atoms {
		slot := a.a.slot
		if !k.look.plain[i] {
			slot = -1
		}
		k.slots = append(k.slots, slot)
	}
	return k, nil
}

// Append appends a record's key to dst: no key is the beginning of another, and
// keys are in the order of bytes as the records are in the orders asked for;
// equal keys tie. trusted says that the record was validated; see
// [Evaluator.EvalTrusted]. The outcome is Matched, or Undecidable where the
// record or a value that it is ordered by cannot be told.
//
// Of each order the key has the typed key lpk1 with strings in full, and with
// every bit flipped where it is descending.
func (k *Keys) Append(dst, record []byte, trusted bool) ([]byte, Outcome) {
	begin := len(dst)
	if k.hidden || !trusted && !k.look.checked(record) || !k.look.load(record, trusted) {
		return dst, Undecidable
	}
	for i, o := range k.orders {
		v := k.value(i)
		at := len(dst)
		if dst = k.look.walk.appendKey(dst, &v, true); !KeyDetermined(dst[at:]) {
			return dst[:begin], Undecidable
		}
		if o.desc {
			for j := at; j < len(dst); j++ {
				dst[j] = ^dst[j]
			}
		}
	}
	return dst, Matched
}

// value is the record's value for an order.
func (k *Keys) value(i int) value {
	if k.slots[i] >= 0 {
		return k.look.slot(k.slots[i])
	}
	if !k.look.tree() {
		return value{kind: kindUndecidable}
	}
	w := &k.look.walk
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(w.tree.b)))
	return w.value(w.single(k.orders[i].query, w.root))
}

func (k *Keys) key(dst, record []byte, trusted bool) ([]byte, Outcome) {
	return k.Append(dst, record, trusted)
}
