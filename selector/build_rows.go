package selector

import (
	"slices"
	"unicode/utf8"
)

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
