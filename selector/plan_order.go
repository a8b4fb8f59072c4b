package selector

import (
	"bytes"
	"context"
	"slices"
)

// walk runs a task whose rows an index has in their order: it reads only the
// records that it returns, and of the tail, which has none, what is counted. It
// can stop, and go on, anywhere.
func (r *runner) walk(ctx context.Context, t Task) error {
	from := t.From
	last := from.Record - 1 // the row behind which this page begins
	runs, err := t.use.behind(ctx, t, last)
	if err != nil {
		return r.ended(ctx, err)
	}
	t.From = Position{}
	r.scan.Position = Position{Record: from.Record, Offset: from.Offset, Matched: entries(t.use.runs)}
	if err := r.tail(ctx, t); err != nil {
		r.scan.Position = from
		return r.ended(ctx, err)
	}
	if p := &r.scan.Position; from.Record > 0 { // an earlier page counted the tail
		p.Examined, p.Bytes = from.Examined, from.Bytes
	}
	r.scan.Counted = true
	w := indexWalker{r: r, t: t, last: last}
	if len(t.Select) > 0 {
		if w.chosen, err = newValues(t); err != nil {
			return r.ended(ctx, err)
		}
	}
	w.places.m = t.Map
	for err == nil && len(runs) > 0 {
		runs, err = w.next(ctx, runs)
	}
	return r.ended(ctx, err)
}

// tail decides the records of the tail: one that matches has no key to be
// ordered by.
func (r *runner) tail(ctx context.Context, t Task) error {
	feed, err := newFeeder(t, t.Map.Records(), false)
	if err != nil {
		return err
	}
	return feed.each(ctx, func(b *batch) error {
		for i, s := range b.spans[:b.decided] {
			if r.spent(s) {
				r.scan.Stop = StopBudget
				return errStopped
			}
			o := b.outcome[i]
			if o == Matched {
				o = Undecidable
			}
			r.count(s, o)
		}
		return b.err
	})
}

// behind returns the runs that are left behind a row, which stand together with
// the entries of its own key or zone.
func (u *indexUse) behind(ctx context.Context, t Task, last int64) ([]rankRun, error) {
	runs := slices.Clone(u.runs)
	if last < 0 {
		return runs, nil
	}
	key, err := t.indexKey(ctx, u.from[0].Path(), last)
	if err != nil {
		return nil, err
	}
	lo, hi, err := u.group(ctx, key)
	if err != nil {
		return nil, err
	}
	if u.desc {
		return cutRuns(runs, 0, hi), nil
	}
	return cutRuns(runs, lo, 1<<62), nil
}

// group returns the ranks of the entries that stand together with a key: those
// of the same key, or of all long strings with the same beginning.
func (u *indexUse) group(ctx context.Context, key []byte) (lo, hi int64, err error) {
	s := oneKey(key)
	if zone, ok := zoneOf(key); ok {
		s = zone
	}
	if lo, err = u.from[0].Rank(ctx, s[0].From); err == nil {
		hi, err = u.from[0].Rank(ctx, s[0].To)
	}
	return lo, hi, faultOf(err)
}

// indexFault is an error of the index that is walked.
type indexFault struct{ error }

func (f indexFault) Unwrap() error { return f.error }

func faultOf(err error) error {
	if err == nil {
		return nil
	}
	return indexFault{err}
}

// zoneOf returns the keys of the long strings that begin like that of a key.
func zoneOf(key []byte) (keySet, bool) {
	const digest = 32
	if len(key) < digest+2 || key[0] != KeyString || KeyExact(key) {
		return nil, false
	}
	from := key[:len(key)-digest]
	return keyRange(from, upTo(from)), true
}

// cutRuns returns what of runs lies in [lo, hi).
func cutRuns(runs []rankRun, lo, hi int64) []rankRun {
	var out []rankRun
	for _, r := range runs {
		if r.from, r.to = max(r.from, lo), min(r.to, hi); r.from < r.to {
			out = append(out, r)
		}
	}
	return out
}

// indexKey reads the key of a record again.
func (t Task) indexKey(ctx context.Context, p *KeyPath, rec int64) ([]byte, error) {
	places := spanFinder{m: t.Map}
	span, err := places.span(rec)
	if err != nil {
		return nil, err
	}
	row, err := t.row(rec, span, nil)
	if err != nil {
		return nil, err
	}
	m, err := p.Maker(t.Layout, nil)
	if err != nil {
		return nil, err
	}
	var key []byte
	m.Keys(row.Bytes, false, func(k []byte) { key = bytes.Clone(k) })
	return key, nil
}

// indexWalker gives the rows of groups of entries.
type indexWalker struct {
	r      *runner
	t      Task
	last   int64 // rows of its group up to it were given before; -1: none
	chosen *values
	places spanFinder
	buf    []byte
	block  walkBlock
}

// walkBlock is a piece of a run, in memory.
type walkBlock struct {
	run     rankRun
	records []int64
	keys    []byte
	ends    []int // of keys, by entry
}

// walkEntries is how many entries of a run are read at a time.
const walkEntries = 256

func (b *walkBlock) key(i int) []byte {
	if i == 0 {
		return b.keys[:b.ends[0]]
	}
	return b.keys[b.ends[i-1]:b.ends[i]]
}

// read reads the next entries of runs.
func (b *walkBlock) read(ctx context.Context, u *indexUse, runs []rankRun) error {
	b.records, b.keys, b.ends = b.records[:0], b.keys[:0], b.ends[:0]
	if b.run = runs[0]; u.desc {
		b.run = runs[len(runs)-1]
		b.run.from = max(b.run.from, b.run.to-walkEntries)
	} else {
		b.run.to = min(b.run.to, b.run.from+walkEntries)
	}
	for e, err := range u.from[0].Run(ctx, b.run.from, b.run.to) {
		if err != nil {
			return faultOf(err)
		}
		b.records, b.keys = append(b.records, e.Record), append(b.keys, e.Key...)
		b.ends = append(b.ends, len(b.keys))
	}
	return nil
}

// group returns the entries [i, j) of a block that have the key of one at its
// end, or its beginning.
func (b *walkBlock) group(i, j int, desc bool) (int, int) {
	if desc {
		i = j - 1
		for i > 0 && bytes.Equal(b.key(i-1), b.key(j-1)) {
			i--
		}
		return i, j
	}
	n := i + 1
	for n < j && bytes.Equal(b.key(n), b.key(i)) {
		n++
	}
	return i, n
}

// next gives the rows of the next groups of entries, and returns the runs that
// are left.
func (w *indexWalker) next(ctx context.Context, runs []rankRun) ([]rankRun, error) {
	u, b := w.t.use, &w.block
	if err := b.read(ctx, u, runs); err != nil {
		return nil, err
	}
	whole := runs[0]
	if u.desc {
		whole = runs[len(runs)-1]
	}
	lo, hi := 0, len(b.records) // what is left of the block
	for lo < hi {
		i, j := b.group(lo, hi, u.desc)
		_, zone := zoneOf(b.key(i))
		if zone || i == 0 && b.run.from > whole.from || j == len(b.records) && b.run.to < whole.to {
			if lo > 0 || hi < len(b.records) {
				break // at the beginning of the next block
			}
			return w.large(ctx, bytes.Clone(b.key(i)), runs)
		}
		for _, rec := range b.records[i:j] {
			if rec > w.last {
				if err := w.give(ctx, rec); err != nil {
					return nil, err
				}
			}
		}
		if w.last = -1; u.desc {
			hi = i
		} else {
			lo = j
		}
	}
	if u.desc {
		return cutRuns(runs, 0, b.run.from+int64(hi)), nil
	}
	return cutRuns(runs, b.run.from+int64(lo), 1<<62), nil
}

// large gives the rows of a group that is not in one block, or of a zone.
func (w *indexWalker) large(ctx context.Context, key []byte, runs []rankRun) ([]rankRun, error) {
	u := w.t.use
	lo, hi, err := u.group(ctx, key)
	if err != nil {
		return nil, err
	}
	group := cutRuns(runs, lo, hi)
	if _, zone := zoneOf(key); zone && hi-lo > 1 {
		err = w.zone(ctx, group)
	} else {
		err = w.same(ctx, group)
	}
	w.last = -1
	if u.desc {
		return cutRuns(runs, 0, lo), err
	}
	return cutRuns(runs, hi, 1<<62), err
}

// same gives the rows of one key, by record number.
func (w *indexWalker) same(ctx context.Context, group []rankRun) error {
	for _, g := range group {
		for e, err := range w.t.use.from[0].Run(ctx, g.from, g.to) {
			if err != nil {
				return faultOf(err)
			}
			if e.Record <= w.last {
				continue
			}
			if err := w.give(ctx, e.Record); err != nil {
				return err
			}
		}
	}
	return nil
}

// zone gives the rows of long strings that begin alike: the index does not have
// their order, so their records are read and sorted.
func (w *indexWalker) zone(ctx context.Context, group []rankRun) error {
	t, r := w.t, w.r
	s := &sorter{ctx: ctx, spill: t.Spill, whole: t.wholeKey, memory: sortMemory}
	if r.budget.Limit > 0 {
		s.keep = r.budget.Limit - r.scan.Returned + 1
	}
	if w.last >= 0 {
		var err error
		if s.after, err = t.entry(ctx, w.last); err != nil {
			return err
		}
	}
	keys, err := t.keys(t.Layout)
	if err != nil {
		return err
	}
	var room []byte
	for _, g := range group {
		for e, err := range t.use.from[0].Run(ctx, g.from, g.to) {
			if err != nil {
				return faultOf(err)
			}
			row, err := w.row(e.Record)
			if err != nil {
				return err
			}
			var o Outcome
			if room, o = keys.key(room[:0], row.Bytes, false); o != Matched {
				return badIndexed(row, "has no such value")
			}
			if err := s.add(cutKey(room), e.Record, row.Span, nil); err != nil {
				return err
			}
		}
	}
	return s.each(func(e *sortEntry) error { return w.give(ctx, e.rec) })
}

// row reads a row.
func (w *indexWalker) row(rec int64) (Row, error) {
	span, err := w.places.span(rec)
	if err != nil {
		return Row{}, err
	}
	row, err := w.t.row(rec, span, w.buf)
	if cap(row.Bytes) <= lendMax {
		w.buf = row.Bytes
	}
	return row, err
}

// give reads and gives one row.
func (w *indexWalker) give(ctx context.Context, rec int64) error {
	r := w.r
	span, err := w.places.span(rec)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		r.scan.More = MoreYes
		return err
	}
	if !r.fits(span) {
		return errStopped
	}
	if r.spent(span) {
		r.scan.More = MoreYes
		r.stop(StopBudget)
		return errStopped
	}
	row, err := w.row(rec)
	if err != nil {
		return err
	}
	if w.chosen != nil {
		var ok bool
		if row.Selected, ok = w.chosen.of(row.Bytes, span.Start, true); !ok {
			return badIndexed(row, "cannot be told, against the manifest's word")
		}
	}
	if err := r.give(row); err != nil {
		return err
	}
	p := &r.scan.Position
	p.Record = rec + 1
	p.Examined, p.Bytes = p.Examined+1, p.Bytes+span.Len()
	r.examined, r.bytes = r.examined+1, r.bytes+span.Len()
	return nil
}

// badIndexed says that an index and a record contradict each other.
func badIndexed(row Row, what string) error {
	return indexFault{fail("index", row.Span.Start, ErrIndex, "record %d %s", row.Record, what)}
}
