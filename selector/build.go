package selector

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math"
	"slices"

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
