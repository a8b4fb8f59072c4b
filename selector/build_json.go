package selector

import (
	"bytes"
	"errors"
	"io"
)

// jsonRecord validates one JSON record and lists it.
func (b *builder) jsonRecord(s Span) error {
	if err := b.place(s); err != nil {
		return err
	}
	if s.Len() > b.layout.Limits.Record {
		b.judge(s, verdict{overLimit: true})
		return nil
	}
	p, ok := b.in.lend(s)
	if !ok {
		// Whether there is an escape in it was not looked at; it is safe to say yes.
		b.stats.Escapes++
		b.long = append(b.long, longRecord{span: s})
		return nil
	}
	if b.clean.record(p) {
		b.cleanRecord()
		return nil
	}
	if bytes.IndexByte(p, '\\') >= 0 {
		b.stats.Escapes++
	}
	v, err := b.validator().bytes(p)
	if err != nil {
		return err
	}
	b.judgeJSON(s, v)
	return nil
}

// cleanRecord counts a record that the cleaner just found clean.
func (b *builder) cleanRecord() {
	b.parsed = true
	b.stats.Depth = max(b.stats.Depth, int64(b.clean.depth))
	if b.clean.escapes {
		b.stats.Escapes++
	}
}

func (b *builder) judgeJSON(s Span, v verdict) {
	if !v.unparseable {
		b.parsed = true
	} else if b.bad == (Span{}) {
		b.bad = s
	}
	b.judge(s, v)
}

func (b *builder) jsonLine(s Span, blank bool) error {
	if blank {
		b.stats.BlankLines++
		return nil
	}
	if err := b.jsonRecord(s); err != nil {
		return err
	}
	return b.someParsed(s.End)
}

// someParsed fails when nothing parsed up to end, and that is far enough to
// say that this is no NDJSON.
func (b *builder) someParsed(end int64) error {
	if b.parsed || b.stats.Records == 0 || end < binaryHead || b.stats.Unparseable < b.stats.Records {
		return nil
	}
	if b.layout.Format == FormatConcat {
		return fail("records", b.bad.Start, ErrNotRecords, "it does not begin with a JSON value, as concat has it")
	}
	return fail("records", b.bad.Start, ErrNotRecords, "not one line of the beginning is a JSON value, as ndjson has it")
}

// array lists the elements of the array at the layout's pointer.
func (b *builder) array() error {
	path, err := parsePointer(b.layout.Pointer)
	if err != nil {
		return err
	}
	at := b.layout.Pointer
	if at == "" {
		at = "the root"
	}
	w := walk{s: scanStream(b.in), path: path}
	w.hit = func(t token) error {
		if t.kind != '[' {
			return fail("records", t.start, ErrNotRecords, "at %s stands %s, not an array", at, kindName(t.kind))
		}
		return b.elements(w.s)
	}
	switch err := w.run(); {
	case errors.Is(err, errSyntax) || errors.Is(err, errDepth):
		e := err.(*Error)
		return fail("records", e.Offset, ErrNotRecords, "the document does not parse as json: %v: %s", e.Err, e.Detail)
	case err != nil:
		return err
	case w.twice:
		return fail("records", w.at, ErrNotRecords, "a name on the path %s stands twice", at)
	case !w.found:
		return fail("records", -1, ErrNotRecords, "nothing stands at %s", at)
	}
	return nil
}

// elements lists the elements of an array that was entered, to its end. Clean
// ones are divided and validated at once.
func (b *builder) elements(s *scanner) error {
	for {
		c, err := s.space()
		if err != nil {
			return s.need(err)
		}
		if s.state == wantComma && c == ',' {
			s.pos++
			s.state = wantValue
			continue
		}
		if (s.state == wantValue || s.state == wantValueOrEnd) && c != ']' {
			ok, err := b.cleanElement(s)
			if err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		s.hold = s.offset()
		t, err := s.next()
		if err != nil || t.kind == ']' {
			s.hold = -1
			return err
		}
		end, err := s.skip(t)
		s.hold = -1
		if err != nil {
			return err
		}
		if err := b.jsonRecord(Span{Start: t.start, End: end}); err != nil {
			return err
		}
	}
}

// cleanElement takes the value at the scanner's position, if it is clean and
// short enough.
func (b *builder) cleanElement(s *scanner) (bool, error) {
	start := s.offset()
	s.hold = start
	defer func() { s.hold = -1 }()
	for whole := false; ; {
		n, r := b.clean.value(s.buf[start-s.base:], whole)
		if b.layout.Format == FormatConcat && r == isClean {
			r = apart(s.buf[start-s.base:], n, whole)
		}
		switch {
		case r == isClean && int64(n) <= b.layout.Limits.Record:
			s.pos = int(start-s.base) + n
			s.after()
			b.cleanRecord()
			return true, b.place(Span{Start: start, End: start + int64(n)})
		case r != ranOut || int64(len(s.buf))-(start-s.base) > lendMax/2:
			return false, nil // the long way says why
		}
		pos := s.pos
		s.pos = len(s.buf)
		switch err := s.fill(); {
		case err == io.EOF:
			s.pos, whole = pos, true
		case err != nil:
			return false, err
		default:
			s.pos = int(start - s.base)
		}
	}
}

// concat lists the values that stand one after another, with or without white
// space between them; a number or literal ends at white space, a quote or a
// bracket. Behind a value that does not parse there is no telling where the next
// begins: it and all that follows are one record, which is undecidable.
func (b *builder) concat() error {
	s := scanStream(b.in)
	for {
		s.state, s.stack, s.hold = wantValue, s.stack[:0], -1
		if _, err := s.space(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		start := s.offset()
		ok, err := b.cleanElement(s)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		s.hold = start
		t, err := s.next()
		var end int64
		if err == nil {
			end, err = s.skip(t)
		}
		if err == nil && t.kind != '"' && t.kind != '{' && t.kind != '[' {
			err = s.apart()
		}
		if errors.Is(err, errSyntax) || errors.Is(err, errDepth) {
			s.hold = -1
			if end, err = s.rest(); err != nil {
				return err
			}
			span := Span{Start: start, End: end}
			b.judgeJSON(span, verdict{unparseable: true})
			return b.place(span)
		}
		if err != nil {
			return err
		}
		if err := b.jsonRecord(Span{Start: start, End: end}); err != nil {
			return err
		}
	}
}

func kindName(kind byte) string {
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "a boolean"
}
