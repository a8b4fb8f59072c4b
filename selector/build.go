package selector

import (
	"bytes"
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
// validates each record and writes the record map (lpr1) to out, all in one
// pass and with memory that does not grow with size. The layout returned is l
// with its defaults and CSV columns filled in: it is the one to sign and to
// open the map with.
//
// It fails with ErrNotRecords when the bytes do not have that layout at all,
// naming the place; single bad records are counted in Stats instead. After an
// error what was written to out is no record map.
func BuildMap(ctx context.Context, src io.ReaderAt, size int64, root merkle.Root, l Layout, out io.WriterAt) (MapInfo, Stats, Layout, error) {
	l, err := l.normal()
	if err != nil {
		return MapInfo{}, Stats{}, l, err
	}
	if l.Format == FormatBytes {
		return MapInfo{}, Stats{}, l, fail("records", -1, ErrNotRecords, "the format bytes has no records")
	}
	b := &builder{layout: l, src: src, size: size, check: newValidator(l.Limits), out: newMapWriter(out)}
	b.stats.UndecidableSpans = []Span{}
	if err := b.build(ctx); err != nil {
		return MapInfo{}, b.stats, b.layout, err
	}
	info, err := b.out.finish(root, size, b.layout)
	return info, b.stats, b.layout, err
}

// builder is one pass over the records of a source.
type builder struct {
	layout Layout
	src    io.ReaderAt
	size   int64
	in     *blocks
	check  *validator
	out    *mapWriter
	stats  Stats
	parsed bool  // one record parsed
	bad    Span  // the first that did not
	fields int64 // csv: of the first row
}

func (b *builder) build(ctx context.Context) error {
	start, err := afterBOM(b.src, b.size)
	if err != nil {
		return err
	}
	b.stats.BOM = start > 0
	b.in = newBlocks(ctx, b.src, start, b.size)
	if err := b.refuseBinary(ctx, start); err != nil {
		return err
	}
	switch b.layout.Format {
	case FormatNDJSON:
		err = eachLine(b.in, b.jsonLine)
		if err == nil {
			err = b.someParsed(math.MaxInt64)
		}
	case FormatText:
		err = eachLine(b.in, func(s Span, _ bool) error { return b.textRecord(s, verdict{}) })
	case FormatCSV:
		err = eachRow(b.in, b.layout.Dialect, b.csvRow)
		if err == nil && b.layout.Dialect.Header && b.fields == 0 {
			err = fail("records", 0, ErrNotRecords, "no header row: the file has no rows")
		}
	case FormatJSON:
		err = b.array(ctx, start)
	}
	return err
}

// binaryHead is how much of a source must look like text.
const binaryHead = 1 << 20

// refuseBinary refuses a source with a NUL in its first MiB, and for ndjson
// one that is not UTF-8 there.
func (b *builder) refuseBinary(ctx context.Context, start int64) error {
	if b.layout.Format == FormatJSON {
		return nil // the grammar says so more exactly
	}
	head := newBlocks(ctx, b.src, start, min(b.size, binaryHead))
	for carry := []byte(nil); ; {
		ok, err := head.next()
		if err != nil || !ok {
			return err
		}
		if i := bytes.IndexByte(head.data, 0); i >= 0 {
			return fail("records", head.base+int64(i), ErrNotRecords, "binary data cannot be read as %s: a NUL", b.layout.Format)
		}
		if b.layout.Format != FormatNDJSON {
			continue
		}
		p := append(carry, head.data...)
		rest := incompleteRune(p)
		if i := invalidUTF8(p[:len(p)-rest]); i >= 0 {
			return fail("records", head.base-int64(len(carry))+int64(i), ErrNotRecords, "binary data cannot be read as ndjson: not UTF-8")
		}
		carry = bytes.Clone(p[len(p)-rest:])
	}
}

// add lists a record whose validation gave v.
func (b *builder) add(s Span, v verdict) error {
	b.stats.Records++
	b.stats.LongestRecord = max(b.stats.LongestRecord, s.Len())
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
	if v.undecidable() {
		b.stats.Undecidable++
		if len(b.stats.UndecidableSpans) < maxListed {
			b.stats.UndecidableSpans = append(b.stats.UndecidableSpans, s)
		}
	}
	return b.out.add(s)
}

// section returns the bytes of a long record as a stream.
func (b *builder) section(s Span) io.Reader { return io.NewSectionReader(b.src, s.Start, s.Len()) }

// jsonRecord validates one JSON record and lists it.
func (b *builder) jsonRecord(s Span) error {
	if s.Len() > b.layout.Limits.Record {
		return b.add(s, verdict{overLimit: true})
	}
	if s.Len() > lendMax {
		// Whether there is an escape in it was not looked at; it is safe to say yes.
		b.stats.Escapes++
		v, err := b.check.record(func() io.Reader { return b.section(s) })
		return b.addParsed(s, v, err)
	}
	p, err := b.in.lend(s)
	if err != nil {
		return err
	}
	if bytes.IndexByte(p, '\\') >= 0 {
		b.stats.Escapes++
	}
	v, err := b.check.bytes(p)
	return b.addParsed(s, v, err)
}

func (b *builder) addParsed(s Span, v verdict, err error) error {
	if err != nil {
		return err
	}
	if !v.unparseable {
		b.parsed = true
	} else if b.bad == (Span{}) {
		b.bad = s
	}
	return b.add(s, v)
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
	return fail("records", b.bad.Start, ErrNotRecords, "not one line of the beginning is a JSON value, as ndjson has it")
}

// textRecord checks the UTF-8 of a record and lists it.
func (b *builder) textRecord(s Span, v verdict) error {
	switch {
	case s.Len() > b.layout.Limits.Record:
		v.overLimit = true
	case s.Len() > lendMax:
		ok, err := utf8Reader(b.section(s))
		if err != nil {
			return err
		}
		v.badText = !ok
	default:
		p, err := b.in.lend(s)
		if err != nil {
			return err
		}
		v.badText = !utf8.Valid(p)
	}
	return b.add(s, v)
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
	return b.textRecord(s, verdict{unparseable: broken})
}

// csvHeader reads the names of the columns.
func (b *builder) csvHeader(s Span, broken bool) error {
	if broken || s.Len() > maxHeader || b.fields > maxColumns {
		return fail("records", s.Start, ErrNotRecords, "no csv header: %d columns in %d bytes, at most %d in %d, or broken quotes", b.fields, s.Len(), maxColumns, maxHeader)
	}
	p, err := b.in.lend(s)
	if err != nil {
		return err
	}
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
func (b *builder) array(ctx context.Context, start int64) error {
	path, err := parsePointer(b.layout.Pointer)
	if err != nil {
		return err
	}
	at := b.layout.Pointer
	if at == "" {
		at = "the root"
	}
	w := walk{s: scanSource(ctx, b.src, start, b.size), path: path}
	w.hit = func(t token) error {
		if t.kind != '[' {
			return fail("records", t.start, ErrNotRecords, "at %s stands %s, not an array", at, kindName(t.kind))
		}
		for {
			t, err := w.s.next()
			if err != nil || t.kind == ']' {
				return err
			}
			end, err := w.s.skip(t)
			if err != nil {
				return err
			}
			b.in.data, b.in.base = w.s.buf, w.s.base // lend from what was just scanned
			if err := b.jsonRecord(Span{Start: t.start, End: end}); err != nil {
				return err
			}
		}
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
