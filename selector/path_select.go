package selector

// Select says which values of a record are wanted: those that a JSON Pointer or
// a JSONPath query selects. Their bytes are the record's; nothing is written
// anew.
type Select struct {
	text  string
	query *query
}

// ParseSelect reads a JSON Pointer into a record, or a JSONPath query, in which
// @ and $ both begin at the record. It fails with ErrSelector, naming the place.
func ParseSelect(s string) (*Select, error) {
	q, err := parseQuery("select", s)
	if err != nil {
		return nil, err
	}
	return &Select{text: s, query: q}, nil
}

// parseQuery reads a pointer or a query from the record.
func parseQuery(op, s string) (*query, error) {
	if s != "" && (s[0] == '$' || s[0] == '@') {
		p, err := newParser(op, s)
		if err != nil {
			return nil, err
		}
		q, err := p.query()
		if err == nil && p.pos < len(s) {
			err = p.bad("unexpected %q", p.rest())
		}
		if err != nil {
			return nil, err
		}
		q.root = false // the same, with one spelling
		return q, nil
	}
	path, err := parsePointer(s)
	if err != nil {
		e := err.(*Error)
		return nil, fail(op, e.Offset, ErrSelector, "%s", e.Detail)
	}
	return queryOf(path), nil
}

// String returns the selection as it was written.
func (s *Select) String() string { return s.text }

// Singular reports whether at most one value is selected, by the syntax.
func (s *Select) Singular() bool { return s.query.single }

func (s *Select) normal(b []byte) []byte { return s.query.normal(b) }

// Fits refuses a selection that no record of the layout can have; see
// [Where.Fits].
func (s *Select) Fits(l Layout) error { return s.query.fits("select", l) }

// Selection selects values of record after record. It serves one goroutine.
type Selection struct {
	look *lookup
	from *Select
}

// Selection returns a selection for the records of a layout. It fails with
// ErrLayout for an invalid layout, and with ErrSelector where the records of
// the layout cannot have what is selected.
func (s *Select) Selection(l Layout) (*Selection, error) {
	l, err := l.normal()
	if err == nil {
		err = s.Fits(l)
	}
	if err != nil {
		return nil, err
	}
	return &Selection{look: newLookup(newPlan(&expr{op: opAnd}), l), from: s}, nil
}

// Each gives the selected values of one record to yield, in RFC 9535's order,
// until yield returns false. Spans count from the beginning of the record. Of a
// csv row the value is the field as it stands, with its quotes, and of a line
// the line. Nothing is given, and false returned, where the record is
// undecidable or something on the way cannot be told.
func (s *Selection) Each(record []byte, yield func(Node) bool) bool {
	if !s.look.checked(record) || !s.look.load(record, false) {
		return false
	}
	w := &s.look.walk
	switch s.look.layout.Format {
	case FormatCSV:
		return s.field(record, yield)
	case FormatText:
		w.path = w.path[:0]
		yield(Node{Span: Span{0, int64(len(record))}, walk: w})
		return true
	}
	if !s.look.tree() {
		return false
	}
	w.allow(MaxVisits + MaxVisitsPerByte*int64(len(record)))
	clear(w.memo)
	w.track = true
	defer func() { w.track = false }()
	type found struct {
		Span
		path []place
	}
	var list []found // given only when all is told
	w.segments(s.from.query.segs, w.root, func(r ref) bool {
		list = append(list, found{Span{int64(r.pos), int64(w.tree.end(r))}, append([]place(nil), w.path...)})
		return true
	})
	if w.over || w.maybe {
		return false
	}
	for _, f := range list {
		w.path = f.path
		if !yield(Node{Span: f.Span, walk: w}) {
			break
		}
	}
	w.path = w.path[:0]
	return true
}

// field gives the field of a row that a column is.
func (s *Selection) field(record []byte, yield func(Node) bool) bool {
	d := s.look.layout.Dialect
	column := d.column(&s.from.query.segs[0].sels[0])
	if column == sameNameTwice {
		return false
	}
	w := &s.look.walk
	c := newCSVScan(d)
	for i, at := 0, 0; ; i++ {
		_, n, ok := c.field(record[at:])
		if !ok {
			return false
		}
		if i == column {
			w.path = append(w.path[:0], place{index: int64(i)})
			if d.Header {
				quoted := appendString(nil, d.Columns[i])
				w.path[0] = place{name: quoted[1 : len(quoted)-1], escaped: true, index: -1}
			}
			yield(Node{Span: Span{int64(at), int64(at + n)}, walk: w})
			return true
		}
		if at += n; at == len(record) {
			return true
		}
		at++
	}
}
