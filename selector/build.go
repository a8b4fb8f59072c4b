package selector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"leafproof/merkle"
)

// Stats is what one pass over the records found. It is signed in the manifest.
type Stats struct {
	Records          int64  `json:"records"`           // records in all
	BlankLines       int64  `json:"blank_lines"`       // lines skipped because they were empty (ndjson, csv)
	Undecidable      int64  `json:"undecidable"`       // records that some query cannot decide, for any of the reasons below
	UndecidableSpans []Span `json:"undecidable_spans"` // the first 16 of them
	Unparseable      int64  `json:"unparseable"`       // records that are not one value of the format
	DuplicateNames   int64  `json:"duplicate_names"`   // records with a duplicate member name
	InvalidUTF8      int64  `json:"invalid_utf8"`      // records with invalid UTF-8 or a lone surrogate
	OverLimit        int64  `json:"over_limit"`        // records beyond a limit
	Escapes          int64  `json:"escapes"`           // JSON records with a backslash in them
	Ragged           int64  `json:"ragged"`            // csv rows with another number of fields than the first row
	Depth            int64  `json:"depth"`             // deepest nesting seen
	LongestRecord    int64  `json:"longest_record"`    // bytes
	BOM              bool   `json:"bom"`               // the file begins with a UTF-8 byte order mark
}

// MapInfo describes a record map that was just written.
type MapInfo struct {
	Size    int64 // bytes of the map
	Records int64
}

// maxListed is how many undecidable spans are listed.
const maxListed = 16

// BuildMap divides src, size bytes with the given root, into records as l says,
// validates each record and writes the record map (lpr1) to out, in one
// pass and with memory that does not grow with size; records longer than 1 MiB
// are read a second time. The layout returned is l with its defaults and CSV
// columns filled in: it is the one to sign and to open the map with.
//
// It fails with ErrNotRecords when the bytes do not have that layout at all,
// naming the place; single bad records are counted in Stats instead. After an
// error what was written to out is no record map. Where the bytes pass by
// anyway, an [Ingest] does the same without reading them again.
func BuildMap(ctx context.Context, src io.ReaderAt, size int64, root merkle.Root, l Layout, out io.WriterAt) (MapInfo, Stats, Layout, error) {
	b, err := newBuilder(l, out)
	if err != nil {
		return MapInfo{}, Stats{}, b.layout, err
	}
	in := streamOf(ctx, src, size)
	err = b.build(in)
	in.close()
	if err != nil {
		return MapInfo{}, b.stats, b.layout, err
	}
	return b.finish(ctx, src, size, root)
}

// builder is one pass over the records of a source.
type builder struct {
	layout Layout
	in     *stream
	clean  *cleaner
	check  *validator // made when it is needed
	out    *mapWriter
	stats  Stats
	parsed bool         // one record parsed
	bad    Span         // the first that did not
	fields int64        // csv: of the first row
	long   []longRecord // records that are judged when the bytes can be read again
}

// longRecord is a record longer than what is kept of a stream.
type longRecord struct {
	span   Span
	broken bool // csv: its quotes are
}

// newBuilder returns a builder, whose layout is set also on failure.
func newBuilder(l Layout, out io.WriterAt) (*builder, error) {
	l, err := l.normal()
	b := &builder{layout: l, clean: newCleaner(l.Limits), out: newMapWriter(out)}
	b.stats.UndecidableSpans = []Span{}
	if err == nil && l.Format == FormatBytes {
		err = fail("records", -1, ErrNotRecords, "the format bytes has no records")
	}
	return b, err
}

// build reads all records of a stream.
func (b *builder) build(in *stream) error {
	b.in = in
	if !b.layout.isJSON() || b.layout.Format == FormatNDJSON { // the grammar says so more exactly
		in.look = b.refuseBinary()
	}
	var err error
	if b.stats.BOM, err = in.begin(); err != nil {
		return err
	}
	switch b.layout.Format {
	case FormatNDJSON:
		err = eachLine(in, b.jsonLine)
	case FormatText:
		err = eachLine(in, func(s Span, _ bool) error { return b.textRecord(s, false) })
	case FormatCSV:
		err = eachRow(in, b.layout.Dialect, b.csvRow)
		if err == nil && b.layout.Dialect.Header && b.fields == 0 {
			err = fail("records", 0, ErrNotRecords, "no header row: the file has no rows")
		}
	case FormatJSON:
		err = b.array()
	case FormatConcat:
		err = b.concat()
	}
	return err
}

// finish judges the long records, which src has, and ends the map.
func (b *builder) finish(ctx context.Context, src io.ReaderAt, size int64, root merkle.Root) (MapInfo, Stats, Layout, error) {
	fault := func(err error) (MapInfo, Stats, Layout, error) { return MapInfo{}, b.stats, b.layout, err }
	for _, r := range b.long {
		if err := ctx.Err(); err != nil {
			return fault(err)
		}
		if err := b.judgeLong(src, r); err != nil {
			return fault(err)
		}
	}
	slices.SortFunc(b.stats.UndecidableSpans, func(x, y Span) int { return cmp.Compare(x.Start, y.Start) })
	b.stats.UndecidableSpans = b.stats.UndecidableSpans[:min(len(b.stats.UndecidableSpans), maxListed)]
	if b.layout.Format == FormatNDJSON || b.layout.Format == FormatConcat {
		if err := b.someParsed(math.MaxInt64); err != nil {
			return fault(err)
		}
	}
	info, err := b.out.finish(root, size, b.layout)
	return info, b.stats, b.layout, err
}

// binaryHead is how much of a source must look like text.
const binaryHead = 1 << 20

// refuseBinary returns a look at the blocks of a source that refuses one with a
// NUL in its first MiB, and for ndjson one that is not UTF-8 there.
func (b *builder) refuseBinary() func(block []byte, at int64) error {
	var carry []byte
	return func(block []byte, at int64) error {
		if at >= binaryHead {
			return nil
		}
		block = block[:min(int64(len(block)), binaryHead-at)]
		if i := bytes.IndexByte(block, 0); i >= 0 {
			return fail("records", at+int64(i), ErrNotRecords, "binary data cannot be read as %s: a NUL", b.layout.Format)
		}
		if b.layout.Format != FormatNDJSON {
			return nil
		}
		p := block
		if len(carry) > 0 {
			p = append(carry, block...)
		}
		rest := incompleteRune(p)
		if i := invalidUTF8(p[:len(p)-rest]); i >= 0 {
			return fail("records", at-int64(len(carry))+int64(i), ErrNotRecords, "binary data cannot be read as ndjson: not UTF-8")
		}
		carry = bytes.Clone(p[len(p)-rest:])
		return nil
	}
}

// place lists a record.
func (b *builder) place(s Span) error {
	b.stats.Records++
	b.stats.LongestRecord = max(b.stats.LongestRecord, s.Len())
	return b.out.add(s)
}

// judge counts what validation found in a record.
func (b *builder) judge(s Span, v verdict) {
	b.stats.Depth = max(b.stats.Depth, v.depth)
	for _, c := range []struct {
		n  *int64
		is bool
	}{
		{&b.stats.Unparseable, v.unparseable},
		{&b.stats.DuplicateNames, v.duplicate},
		{&b.stats.InvalidUTF8, v.badText},
		{&b.stats.OverLimit, v.overLimit},
	} {
		if c.is {
			*c.n++
		}
	}
	if !v.undecidable() {
		return
	}
	b.stats.Undecidable++
	if n := len(b.stats.UndecidableSpans); n < maxListed || len(b.long) > 0 && n < maxListed+len(b.long) {
		b.stats.UndecidableSpans = append(b.stats.UndecidableSpans, s)
	}
}

// judgeLong reads a long record again and judges it.
func (b *builder) judgeLong(src io.ReaderAt, r longRecord) error {
	open := func() io.Reader { return io.NewSectionReader(src, r.span.Start, r.span.Len()) }
	if b.layout.Format == FormatCSV || b.layout.Format == FormatText {
		ok, err := utf8Reader(open())
		if err != nil {
			return err
		}
		b.judge(r.span, verdict{unparseable: r.broken, badText: !ok})
		return nil
	}
	v, err := b.validator().record(open)
	if err != nil {
		return err
	}
	b.judgeJSON(r.span, v)
	return nil
}

func (b *builder) validator() *validator {
	if b.check == nil {
		b.check = newValidator(b.layout.Limits)
	}
	return b.check
}

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

// textRecord checks the UTF-8 of a record and lists it.
func (b *builder) textRecord(s Span, broken bool) error {
	if err := b.place(s); err != nil {
		return err
	}
	v := verdict{unparseable: broken, overLimit: s.Len() > b.layout.Limits.Record}
	if !v.overLimit {
		p, ok := b.in.lend(s)
		if !ok {
			b.long = append(b.long, longRecord{s, broken})
			return nil
		}
		v.badText = !utf8.Valid(p)
	}
	if v.undecidable() {
		b.judge(s, v)
	}
	return nil
}

func (b *builder) csvRow(s Span, fields int64, broken bool) error {
	if fields == 0 {
		b.stats.BlankLines++
		return nil
	}
	first := b.fields == 0
	if first {
		b.fields = fields
	}
	if first && b.layout.Dialect.Header {
		return b.csvHeader(s, broken)
	}
	if fields != b.fields {
		b.stats.Ragged++
	}
	return b.textRecord(s, broken)
}

// csvHeader reads the names of the columns.
func (b *builder) csvHeader(s Span, broken bool) error {
	if broken || s.Len() > maxHeader || b.fields > maxColumns {
		return fail("records", s.Start, ErrNotRecords, "no csv header: %d columns in %d bytes, at most %d in %d, or broken quotes", b.fields, s.Len(), maxColumns, maxHeader)
	}
	p, _ := b.in.lend(s) // it is short enough
	names, ok := csvFields(p, b.layout.Dialect)
	for i, n := range names {
		if !ok || !canonicalText(n) {
			return fail("records", s.Start, ErrNotRecords, "the name of csv column %d is not plain UTF-8", i)
		}
	}
	if given := b.layout.Dialect.Columns; len(given) > 0 && !slices.Equal(given, names) {
		return fail("records", s.Start, ErrNotRecords, "the csv header has other columns than the layout")
	}
	b.layout.Dialect.Columns = names
	return nil
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
