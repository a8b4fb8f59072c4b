package selector

import (
	"slices"
	"strings"
)

// Outcome is what a condition says about one record.
type Outcome uint8

// The three outcomes. The zero Outcome is Undecidable: nothing is decided by
// default.
const (
	Undecidable Outcome = iota
	Unmatched
	Matched
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Matched:
		return "matched"
	case Unmatched:
		return "unmatched"
	}
	return "undecidable"
}

// Where is a parsed condition on one record.
type Where struct {
	expr   *expr
	plan   *plan
	hidden []bool // by atom: a redaction makes it undecidable; nil: none
}

// ParseWhere reads a condition: an RFC 9535 logical expression in which @ is
// the record, and so is $, as in @.status == "open" && @.sev >= 3; or the short
// form {"field": POINTER, "equals": LITERAL} or {"field": POINTER, "contains":
// STRING}, where contains means that the field is a string with STRING in it.
//
// It fails with ErrSelector, naming the place, for anything else, for what is
// not well-typed, and beyond [MaxExpression], [MaxExpressionDepth],
// [MaxPattern] and, with a number, [DefaultLimits].
func ParseWhere(s string) (*Where, error) {
	p, err := newParser("where", s)
	if err != nil {
		return nil, err
	}
	p.space()
	var e *expr
	if p.peek() == '{' {
		e, err = p.short()
	} else if e, err = p.or(); err == nil {
		if p.space(); p.pos < len(p.s) {
			err = p.bad("unexpected %q", p.rest())
		}
	}
	if err != nil {
		return nil, err
	}
	return newWhere(e), nil
}

func newWhere(e *expr) *Where { return &Where{expr: e, plan: newPlan(e)} }

// WithRedactions returns the condition for an artifact whose producer removed
// or masked the values at paths, JSON Pointers into a record: what is asked of
// such a field, or of one within or around it, is undecidable for every record.
// With && and || the rest of the condition may still decide.
func (w *Where) WithRedactions(paths []string) *Where {
	out := *w
	out.hidden = slices.Clone(w.hidden)
	for _, pointer := range paths {
		path, err := parsePointer(pointer)
		for i, a := range w.plan.atoms {
			if err == nil && !touches(a, path) { // what is no pointer may mean any field
				continue
			}
			if out.hidden == nil {
				out.hidden = make([]bool, len(w.plan.atoms))
			}
			out.hidden[i] = true
		}
	}
	return &out
}

// RedactedBy reports whether a redaction of the value at pointer leaves nothing
// of the condition that could be decided for any record.
func (w *Where) RedactedBy(pointer string) bool {
	r := w.WithRedactions([]string{pointer})
	return r.hidden != nil && !slices.Contains(r.hidden, false)
}

// touches reports whether an atom may read the value at path, or one within or
// around it.
func touches(a *expr, path []step) bool {
	for _, o := range a.operands() {
		if q := o.source(); q != nil && q.touches(path, path) {
			return true
		}
	}
	return false
}

// touches is touches for a query; from $ it begins at root, the whole path from
// the record, otherwise at path.
func (q *query) touches(root, path []step) bool {
	if q.root {
		path = root
	}
	if q.asksRoot(root) {
		return true
	}
	for _, seg := range q.segs {
		if len(path) == 0 || seg.descend {
			return true
		}
		enters := false
		for i := range seg.sels {
			s := &seg.sels[i]
			if s.filter != nil && s.filter.touches(root, path[1:]) {
				return true
			}
			enters = enters || s.mayEnter(path[0])
		}
		if !enters {
			return false
		}
		path = path[1:]
	}
	return true
}

// asksRoot reports whether a filter of the query asks from $ what may be the
// value at root, or one within or around it.
func (q *query) asksRoot(root []step) bool {
	found := false
	for _, seg := range q.segs {
		for i := range seg.sels {
			if f := seg.sels[i].filter; f != nil {
				f.atoms(func(a *expr) {
					for _, o := range a.operands() {
						if in := o.source(); in != nil && !found {
							found = in.root && in.touches(root, root) || in.asksRoot(root)
						}
					}
				})
			}
		}
	}
	return found
}

// touches is touches for a filter whose @ stands at path, and at other values
// beside it.
func (e *expr) touches(root, path []step) bool {
	found := false
	e.atoms(func(a *expr) {
		for _, o := range a.operands() {
			if q := o.source(); q != nil {
				found = found || q.touches(root, path)
			}
		}
	})
	return found
}

// mayEnter reports whether a selector may select what a step selects.
func (s *sel) mayEnter(st step) bool {
	switch s.kind {
	case selName:
		return s.name == st.name
	case selToken:
		return s.name == st.name
	case selIndex:
		return st.index >= 0 && (s.index < 0 || s.index == st.index)
	case selSlice:
		return st.index >= 0
	}
	return true
}

// Fields returns the JSON Pointers that the condition reads, in the order in
// which they are first written and each once; for a query that may select
// several values, or goes by an index from the end, the pointer up to that
// step.
func (w *Where) Fields() []string {
	var list []string
	for _, a := range w.plan.atoms {
		for _, o := range a.operands() {
			if q := o.source(); q != nil {
				if p := q.pointer(); !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
	}
	return list
}

// pointer returns the JSON Pointer of a query, up to the first step that has
// none.
func (q *query) pointer() string {
	var b strings.Builder
	for _, seg := range q.segs {
		s := &seg.sels[0]
		if seg.descend || len(seg.sels) > 1 || s.kind > selIndex || s.kind == selIndex && s.index < 0 {
			break
		}
		b.WriteString(pointerText([]step{{name: s.name, index: s.index, named: s.kind != selIndex}}))
	}
	return b.String()
}
