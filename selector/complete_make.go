package selector

import (
	"context"
	"errors"
	"io"
	"iter"

	"leafproof/merkle"
)

// A Prover finds what a proof of an answer must show. Its readers must give
// verified bytes: what it finds is checked with [Completeness] by others.
type Prover struct {
	Asked  Asked
	Want   IndexWant
	Index  io.ReaderAt // the index
	Map    *Map        // the artifact's record map
	Source io.ReaderAt // the artifact
}

// An Outline is what a proof shows: the numbers of pages of the index, and the
// position of the last row among the candidates (0: every candidate is shown).
type Outline struct {
	Pages []merkle.Range // in ascending runs that do not touch
	Tail  merkle.Range   // of the index's tail, as far as Pages does not have it
	Shown int64
}

// Outline finds it. It fails with [ErrUnprovable] where no proof over the index
// shows the answer.
func (p *Prover) Outline(ctx context.Context) (*Outline, error) {
	c, err := NewCompleteness(p.Asked, p.Want, 0)
	if err != nil {
		return nil, err
	}
	f := finderOf{p: p, c: c, at: -1, ctx: ctx}
	leaf := make([]byte, merkle.LeafSize)
	if err := readFull(p.Index, leaf, 0); err != nil {
		return nil, err
	}
	if err := c.Header(leaf); err != nil {
		return nil, err
	}
	if c.head.pages == 0 {
		return &Outline{}, nil
	}
	if p.Asked.Count {
		return f.count()
	}
	out := &Outline{}
	if way := p.Asked.way(p.Want.Path); p.Asked.Limit > 0 && way != whole && len(c.ranges) > 0 {
		c.way = way
		if out, err = f.cut(); err != nil && !errors.Is(err, ErrUnprovable) {
			return nil, err
		}
	}
	if out == nil || out.Shown == 0 {
		if out, err = f.whole(); err != nil {
			return nil, err
		}
	}
	return out, f.tail(out)
}

// Begin gives a Completeness what an outline shows of the index, so that it knows
// the records to be shown, and finds the leaves of the record map with these.
func (p *Prover) Begin(o *Outline) (c *Completeness, mapLeaves []merkle.Range, err error) {
	if c, err = NewCompleteness(p.Asked, p.Want, o.Shown); err != nil {
		return nil, nil, err
	}
	leaf := make([]byte, merkle.LeafSize)
	if err := readFull(p.Index, leaf, 0); err != nil {
		return nil, nil, err
	}
	if err := c.Header(leaf); err != nil {
		return nil, nil, err
	}
	if err := c.Pages(o.Pages, func() io.Reader { return p.pages(o.Pages) }); err != nil {
		return nil, nil, err
	}
	var tail []merkle.Range
	if o.Tail != (merkle.Range{}) {
		tail = append(tail, o.Tail)
	}
	if err := c.Undetermined(o.Tail, p.pages(tail)); err != nil {
		return nil, nil, err
	}
	mapLeaves, err = p.Map.pagesOf(c.Shown())
	return c, mapLeaves, err
}

// pages reads runs of pages of the index.
func (p *Prover) pages(runs []merkle.Range) io.Reader {
	var parts []io.Reader
	for _, r := range runs {
		parts = append(parts, io.NewSectionReader(p.Index, (1+r.Start)*IndexPageSize, (r.End-r.Start)*IndexPageSize))
	}
	return io.MultiReader(parts...)
}

// Spans yields the records that are shown, and where they stand.
func (p *Prover) Spans(ctx context.Context, c *Completeness) iter.Seq2[PlacedSpan, error] {
	return p.Map.spansOf(ctx, c.Shown())
}

// Finish evaluates the records that are shown and gives the answer's rows to emit,
// as they come to whoever checks the proof.
func (p *Prover) Finish(ctx context.Context, c *Completeness, emit func(Row) error) (*Proven, error) {
	var room []byte
	for s, err := range p.Spans(ctx, c) {
		if err != nil {
			return nil, err
		}
		if int64(cap(room)) < s.Len() {
			room = make([]byte, s.Len())
		}
		b := room[:s.Len()]
		if err := readFull(p.Source, b, s.Start); err != nil {
			return nil, err
		}
		if err := c.Record(s.Record, s.Span, b, emit); err != nil {
			return nil, err
		}
	}
	return c.Finish(emit)
}

// pagesOf returns the leaves of the map that records stand on, which come in
// ascending order.
func (m *Map) pagesOf(records iter.Seq[int64]) ([]merkle.Range, error) {
	var out []merkle.Range
	end := int64(0) // the record behind the last page
	var head [pageHead]byte
	for r := range records {
		if r < end {
			continue
		}
		n, err := m.find(r)
		if err == nil {
			err = readFull(m.r, head[:], (1+n)*mapPage)
		}
		if err != nil {
			return nil, err
		}
		held, err := PageRecords(head[:])
		if err != nil {
			return nil, err
		}
		if held.End <= r {
			return nil, badMap((1+n)*mapPage, "record %d is on no page", r)
		}
		if end = held.End; len(out) > 0 && out[len(out)-1].End == n+1 {
			out[len(out)-1].End++
			continue
		}
		out = append(out, merkle.Range{Start: n + 1, End: n + 2})
	}
	return out, nil
}

// spansOf yields the spans of records, which come in ascending order.
func (m *Map) spansOf(ctx context.Context, records iter.Seq[int64]) iter.Seq2[PlacedSpan, error] {
	return func(yield func(PlacedSpan, error) bool) {
		var page [mapPage]byte
		var spans []Span
		first := int64(0)
		for r := range records {
			if r >= first+int64(len(spans)) {
				n, err := m.find(r)
				if err == nil {
					err = ctx.Err()
				}
				if err == nil {
					err = readFull(m.r, page[:], (1+n)*mapPage)
				}
				spans = spans[:0]
				if err == nil {
					chain := pageChain{head: m.head, index: n}
					err = chain.page(page[:], func(rec int64, s Span) bool {
						if len(spans) == 0 {
							first = rec
						}
						spans = append(spans, s)
						return true
					})
				}
				if err != nil {
					yield(PlacedSpan{}, err)
					return
				}
			}
			if r < first || r >= first+int64(len(spans)) {
				yield(PlacedSpan{}, badMap(-1, "record %d is on no page", r))
				return
			}
			if !yield(PlacedSpan{r, spans[r-first]}, nil) {
				return
			}
		}
	}
}
