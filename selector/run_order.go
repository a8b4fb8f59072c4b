package selector

import (
	"cmp"
	"context"
)

// keyer appends the key of a record that a result is ordered by: a prefix-free
// byte string whose order is that of the values. It serves one goroutine.
type keyer interface {
	key(dst, record []byte, trusted bool) ([]byte, Outcome)
}

// ordered runs a task whose rows come in another order than the document's. It
// examines all records first, so a scan that is cut short has no rows.
func (r *runner) ordered(ctx context.Context, t Task) error {
	from := t.From
	last := from.Record - 1 // the row behind which this page begins
	t.From = Position{}
	r.scan.Position = Position{}
	var chosen *values
	if len(t.Select) > 0 {
		var err error
		if chosen, err = newValues(t); err != nil {
			return r.ended(ctx, err)
		}
	}
	s := &sorter{ctx: ctx, spill: t.Spill, whole: t.wholeKey, memory: cmp.Or(t.room, sortMemory)}
	if r.budget.Limit > 0 {
		s.keep = r.budget.Limit + 1
	}
	s.carryRows()
	err := r.collect(ctx, t, s, last)
	if err != nil {
		if from.Record > 0 { // an earlier page counted them all
			r.scan.Position = from
		}
		r.scan.Position.Record, r.scan.Position.Offset = from.Record, from.Offset
		return r.ended(ctx, err)
	}
	r.scan.Counted = true
	r.scan.Position.Record = from.Record
	var buf []byte
	err = s.each(func(e *sortEntry) error {
		if err := ctx.Err(); err != nil {
			r.scan.More = MoreYes
			return err
		}
		if !r.fits(e.span) {
			return errStopped
		}
		row := Row{Record: e.rec, Span: e.span, Bytes: e.row}
		var err error
		if !e.carried() {
			row, err = t.row(e.rec, e.span, buf)
			if cap(row.Bytes) <= lendMax {
				buf = row.Bytes
			}
		}
		if err == nil && chosen != nil {
			row.Selected, _ = chosen.of(row.Bytes, e.span.Start, true) // it was told before
		}
		if err == nil {
			err = r.give(row)
		}
		if err == nil {
			r.scan.Position.Record = e.rec + 1
		}
		return err
	})
	return r.ended(ctx, err)
}

// collect examines all records, counts them and has the matching ones sorted.
func (r *runner) collect(ctx context.Context, t Task, s *sorter, last int64) error {
	if last >= 0 {
		var err error
		if s.after, err = t.entry(ctx, last); err != nil {
			return err
		}
	}
	feed, err := newFeeder(t, t.Map.Records(), false)
	if err != nil {
		return err
	}
	feed.sorted = true
	return feed.each(ctx, func(b *batch) error {
		for i, span := range b.spans[:b.decided] {
			if r.examined%64 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if r.spent(span) {
				r.scan.Stop = StopBudget
				return errStopped
			}
			if b.outcome[i] == Matched {
				if err := s.add(b.key(i), b.record(i), span, b.bytes(i)); err != nil {
					return err
				}
			}
			r.count(span, b.outcome[i])
		}
		return b.err
	})
}

// entry reads the key of a record again.
func (t Task) entry(ctx context.Context, rec int64) (*sortEntry, error) {
	for span, err := range t.Map.Spans(ctx, rec, rec+1) {
		if err != nil {
			return nil, err
		}
		key, err := t.wholeKey(rec, span)
		if err != nil {
			return nil, err
		}
		return &sortEntry{key: cutKey(key), rec: rec, span: span}, nil
	}
	return nil, badMap(-1, "record %d is on no page", rec)
}

// wholeKey reads the whole key of a record that had one.
func (t Task) wholeKey(rec int64, span Span) ([]byte, error) {
	row, err := t.row(rec, span, nil)
	if err != nil {
		return nil, err
	}
	k, err := t.keys(t.Layout)
	if err != nil {
		return nil, err
	}
	key, o := k.key(nil, row.Bytes, false)
	if o != Matched {
		return nil, fail("order", span.Start, ErrUndecidable, "record %d has no key any more", rec)
	}
	return key, nil
}

// row reads one row.
// The bytes are read to buf where it has room.
func (t Task) row(rec int64, span Span, buf []byte) (Row, error) {
	if span.Len() > DefaultLimits.Record {
		return Row{}, fail("query", span.Start, ErrRange, "a record of %d bytes is too long to return", span.Len())
	}
	if int64(cap(buf)) < span.Len() {
		buf = make([]byte, span.Len())
	}
	p := buf[:span.Len()]
	if err := readFull(t.Source, p, span.Start); err != nil {
		return Row{}, err
	}
	return Row{Record: rec, Span: span, Bytes: p}, nil
}

// values selects the values of rows.
type values struct{ from []*Selection }

func newValues(t Task) (*values, error) {
	v := &values{}
	for _, s := range t.Select {
		one, err := s.Selection(t.Layout)
		if err != nil {
			return nil, err
		}
		v.from = append(v.from, one)
	}
	return v, nil
}

// of returns what is selected in a record that stands at base; false where that
// cannot be told. Without keep it only tells whether.
func (v *values) of(record []byte, base int64, keep bool) ([][]Value, bool) {
	var out [][]Value
	for _, s := range v.from {
		list := []Value{}
		ok := s.Each(record, func(n Node) bool {
			if keep {
				list = append(list, Value{
					Path: n.Path(), Bytes: record[n.Span.Start:n.Span.End],
					Span: Span{Start: base + n.Span.Start, End: base + n.Span.End},
				})
			}
			return true
		})
		if !ok {
			return nil, false
		}
		out = append(out, list)
	}
	return out, true
}
