package selector

import (
	"context"
	"encoding/binary"
	"slices"
)

// indexUse is how indexes serve a task.
type indexUse struct {
	records []int64 // those to examine, ascending: candidates, and the tails of the indexes
	from    []KeyIndex

	// Where a condition is a matter of the keys of one index alone, for every
	// record outside its tail, its matches need not be examined: records has the tail.
	exact bool
	walk  bool      // the index has the matches in the order that is asked for
	desc  bool      // with walk: from the last key on
	runs  []rankRun // the entries of the matches, ascending
}

// rankRun is a run of an index's entries: those with the ranks from, …, to−1.
type rankRun struct{ from, to int64 }

// entries counts the entries of runs.
func entries(runs []rankRun) (n int64) {
	for _, r := range runs {
		n += r.to - r.from
	}
	return n
}

// paths names the indexes.
func (u *indexUse) paths() []string {
	if u == nil {
		return nil
	}
	var out []string
	for _, x := range u.from {
		out = append(out, x.Path().String())
	}
	return out
}

// picker returns the places of the records that are examined from t.From on.
func (u *indexUse) picker(t Task) *picker {
	i, _ := slices.BinarySearch(u.records, t.From.Record)
	return &picker{left: u.records[i:], places: spanFinder{m: t.Map}}
}

// picker hands out single records.
type picker struct {
	left   []int64
	places spanFinder
}

// pickGap is how far apart two records may be that are read at once: what stands
// between them is of the same pieces that a store verifies and unpacks as a whole.
const pickGap = 32 << 10

// pick is batch where only some records are examined.
func (f *feeder) pick(ctx context.Context, b *batch) (*batch, error) {
	b.records, b.places = slices.Grow(b.records, 1)[:0], b.places[:0]
	p := f.picked
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for len(p.left) > 0 && len(b.spans) < batchCount {
		rec := p.left[0]
		s, err := p.places.span(rec)
		if err != nil {
			return nil, err
		}
		at, n := int64(0), len(b.spans)
		if n > 0 {
			last := b.spans[n-1]
			at = b.places[n-1] + last.Len()
			if gap := s.Start - last.End; gap <= pickGap {
				at += gap
			}
			if at+s.Len() > f.size {
				break
			}
		}
		b.records, b.places, b.spans = append(b.records, rec), append(b.places, at), append(b.spans, s)
		p.left = p.left[1:]
	}
	if len(b.spans) == 0 {
		f.free = append(f.free, b)
		return nil, nil
	}
	f.size = min(2*f.size, batchBytes)
	return b, nil
}

// loadPicked is load for single records: near ones are read at once, with what
// stands between them.
func (w *worker) loadPicked(b *batch, i, j int) error {
	for i < j {
		k := i + 1
		for k < j && b.spans[k].Start-b.spans[k-1].End <= pickGap {
			k++
		}
		from, to := b.places[i], b.places[k-1]+b.spans[k-1].Len()
		if err := readFull(w.feed.task.Source, b.buf[from:to], b.spans[i].Start); err != nil {
			return err
		}
		i = k
	}
	return nil
}

// spanFinder finds the spans of single records, best in ascending order.
type spanFinder struct {
	m     *Map
	index int64 // of the page in hand
	first int64 // its first record
	spans []Span
	page  [mapPage]byte
}

// pagesOn is how many pages are read on before a record is searched for.
const pagesOn = 4

// span returns where a record stands.
func (f *spanFinder) span(rec int64) (Span, error) {
	if err := f.m.head.checkRange(rec, rec+1); err != nil {
		return Span{}, err
	}
	if len(f.spans) > 0 && rec >= f.first {
		for range pagesOn {
			if i := rec - f.first; i < int64(len(f.spans)) {
				return f.spans[i], nil
			}
			if f.index+1 >= f.m.head.pages {
				break
			}
			if err := f.read(f.index + 1); err != nil {
				return Span{}, err
			}
		}
	}
	if i := rec - f.first; len(f.spans) > 0 && i >= 0 && i < int64(len(f.spans)) {
		return f.spans[i], nil
	}
	if err := f.seek(rec); err != nil {
		return Span{}, err
	}
	if i := rec - f.first; i >= 0 && i < int64(len(f.spans)) {
		return f.spans[i], nil
	}
	return Span{}, badMap((1+f.index)*mapPage, "record %d is on no page", rec)
}

// guesses is how often the page of a record is guessed by its number, before the
// middle is tried: pages have about as many records.
const guesses = 6

// seek takes the page of a record in hand.
func (f *spanFinder) seek(rec int64) error {
	lo, hi := int64(0), f.m.head.pages
	first, end := int64(0), f.m.head.records // of page lo, and of page hi
	for n := 0; hi-lo > 1; n++ {
		mid := lo + (hi-lo)/2
		if n < guesses && end > first {
			mid = min(lo+int64(float64(rec-first)/float64(end-first)*float64(hi-lo)), hi-1)
		}
		if err := f.load(mid); err != nil {
			return err
		}
		at, behind := f.holds()
		switch {
		case rec < at && mid > lo:
			hi, end = mid, at
		case rec < behind:
			return f.decode()
		case mid+1 < hi:
			lo, first = mid+1, behind
		default:
			return badMap((1+mid)*mapPage, "record %d is on no page", rec)
		}
	}
	return f.read(lo)
}

// load reads a page.
func (f *spanFinder) load(index int64) error {
	f.index, f.spans = index, f.spans[:0]
	return readFull(f.m.r, f.page[:], (1+index)*mapPage)
}

// holds returns the records that the page says it has.
func (f *spanFinder) holds() (first, end int64) {
	first = int64(binary.LittleEndian.Uint64(f.page[:]))
	return first, first + int64(binary.LittleEndian.Uint16(f.page[16:]))
}

// decode takes the page that was read in hand.
func (f *spanFinder) decode() error {
	f.first, _ = f.holds()
	c := pageChain{head: f.m.head, index: f.index}
	return c.page(f.page[:], func(_ int64, s Span) bool {
		f.spans = append(f.spans, s)
		return true
	})
}

// read takes a page in hand.
func (f *spanFinder) read(index int64) error {
	if err := f.load(index); err != nil {
		return err
	}
	return f.decode()
}

// tally counts the matches by the ranks of their entries, and decides the tail.
func (r *runner) tally(ctx context.Context, t Task) error {
	r.scan.Position.Matched += entries(t.use.runs)
	feed, err := newFeeder(t, t.Map.Records(), false)
	if err != nil {
		return r.ended(ctx, err)
	}
	err = feed.each(ctx, func(b *batch) error {
		for i, s := range b.spans[:b.decided] {
			if r.examined%64 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if r.spent(s) {
				r.stop(StopBudget)
				return errStopped
			}
			r.count(s, b.outcome[i])
		}
		return b.err
	})
	if r.scan.Returned = r.scan.Position.Matched; err == nil {
		r.scan.Position.Record = t.Map.Records()
	}
	return r.ended(ctx, err)
}
