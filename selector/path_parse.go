package selector

// query reads a query from @ or $, the first of which is next.
func (p *parser) query() (*query, error) {
	q := &query{root: p.s[p.pos] == '$', id: -1}
	p.pos++
	for {
		begin := p.pos
		p.space()
		var seg segment
		var err error
		switch {
		case p.take(".."):
			seg, err = p.descendants()
		case p.take("."):
			var s sel
			if s, err = p.dotted(); err == nil {
				seg = segment{sels: []sel{s}}
			}
		case p.take("["):
			seg, err = p.bracketed()
		default:
			p.pos = begin
			q.single = singular(q.segs)
			if q.root && p.depth > 0 {
				q.id = p.ids
				p.ids++
			}
			return q, nil
		}
		if err != nil {
			return nil, err
		}
		q.segs = append(q.segs, seg)
	}
}

// descendants reads what stands behind two dots.
func (p *parser) descendants() (segment, error) {
	var seg segment
	var err error
	if p.take("[") {
		seg, err = p.bracketed()
	} else {
		seg.sels = make([]sel, 1)
		seg.sels[0], err = p.dotted()
	}
	seg.descend = true
	return seg, err
}

// dotted reads the name or the asterisk behind a dot.
func (p *parser) dotted() (sel, error) {
	if p.take("*") {
		return sel{kind: selWild}, nil
	}
	begin := p.pos
	for p.pos < len(p.s) && nameByte(p.s[p.pos], p.pos == begin) {
		p.pos++
	}
	if p.pos == begin {
		return sel{}, p.bad("want a name behind the dot; other names are written @['name']")
	}
	return sel{kind: selName, name: p.s[begin:p.pos]}, nil
}

// bracketed reads selectors and the closing bracket.
func (p *parser) bracketed() (seg segment, err error) {
	for {
		p.space()
		s, err := p.selector()
		if err != nil {
			return seg, err
		}
		seg.sels = append(seg.sels, s)
		p.space()
		switch {
		case p.take("]"):
			return seg, nil
		case !p.take(","):
			return seg, p.bad("want ] or a comma, not %q", p.rest())
		}
	}
}

// selector reads one selector between brackets.
func (p *parser) selector() (s sel, err error) {
	switch c := p.peek(); {
	case c == '"' || c == '\'':
		s.kind = selName
		s.name, err = p.str()
	case c == '*':
		p.pos++
		s.kind = selWild
	case c == '?':
		p.pos++
		s.kind = selFilter
		if err = p.enter(); err == nil {
			s.filter, err = p.or()
			p.leave()
		}
	case c == '-' || c == ':' || c >= '0' && c <= '9':
		return p.indexOrSlice()
	default:
		err = p.bad("want a quoted name, an index, a slice, * or a filter, not %q", p.rest())
	}
	return s, err
}

// indexOrSlice reads a selector of elements by position.
func (p *parser) indexOrSlice() (s sel, err error) {
	s = sel{kind: selIndex, step: 1}
	written := p.peek() != ':'
	if written {
		if s.index, err = p.integer(); err != nil {
			return s, err
		}
	}
	begin := p.pos
	p.space()
	if !p.take(":") {
		p.pos = begin
		return s, nil
	}
	s.kind, s.start, s.index, s.noStart, s.noEnd = selSlice, s.index, 0, !written, true
	for _, part := range []*int64{&s.end, &s.step} {
		p.space()
		if c := p.peek(); c == '-' || c >= '0' && c <= '9' {
			if *part, err = p.integer(); err != nil {
				return s, err
			}
			if part == &s.end {
				s.noEnd = false
			}
			p.space()
		}
		if part == &s.step || !p.take(":") {
			break
		}
	}
	return s, nil
}
