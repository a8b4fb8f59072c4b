package selector

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"leafproof/merkle"
)

// finderOf looks for pages of an index.
type finderOf struct {
	p   *Prover
	c   *Completeness
	ctx context.Context

	at      int64 // the page that was read last; -1: none
	info    indexPage
	entries []indexEntry
}

// load reads a page.
func (f *finderOf) load(n int64) error {
	if n == f.at {
		return nil
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	page := make([]byte, IndexPageSize)
	if err := readFull(f.p.Index, page, (1+n)*IndexPageSize); err != nil {
		return err
	}
	f.at, f.entries = -1, f.entries[:0]
	var key []byte
	info, err := readIndexPage(&f.c.head, page, n, func(e indexEntry) {
		if e.fresh || key == nil {
			key = bytes.Clone(e.key)
		}
		e.key = key
		f.entries = append(f.entries, e)
	})
	if err == nil {
		f.at, f.info = n, info
	}
	return err
}

// find returns the last page in front of which every key is less than key: it has
// the first key that is not, or that stands at the beginning of the next.
func (f *finderOf) find(key []byte) (int64, error) {
	if f.at >= 0 && bytes.Compare(f.info.before, key) < 0 && bytes.Compare(key, f.info.last) <= 0 {
		return f.at, nil
	}
	return f.search(func(_ int64, before []byte) bool { return bytes.Compare(before, key) < 0 })
}

// search returns the last page for which in holds, which holds for page 0 and
// then for none behind one for which it does not. in is given the rank of a page's
// first entry and the last key of the page before.
func (f *finderOf) search(in func(rank int64, before []byte) bool) (int64, error) {
	lo, hi := int64(0), f.c.head.pages
	var head [indexFront + 2 + maxKey]byte
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if err := readFull(f.p.Index, head[:], (1+mid)*IndexPageSize); err != nil {
			return 0, err
		}
		length, n := uvarint(head[indexFront:])
		if n == 0 || length > uint64(len(head)-indexFront-n) {
			return 0, badIndex((1+mid)*IndexPageSize, "the key before page %d does not end", mid)
		}
		if in(int64(binary.LittleEndian.Uint64(head[8:])), head[indexFront+n:][:length]) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

func (f *finderOf) count() (*Outline, error) {
	r := f.c.ranges[0]
	from, err := f.find(r.From)
	if err != nil {
		return nil, err
	}
	to, err := f.find(r.To)
	if err != nil {
		return nil, err
	}
	if to <= from+1 {
		return &Outline{Pages: []merkle.Range{{Start: from, End: to + 1}}}, nil
	}
	return &Outline{Pages: []merkle.Range{{Start: from, End: from + 1}, {Start: to, End: to + 1}}}, nil
}

// whole finds the pages of all ranges.
func (f *finderOf) whole() (*Outline, error) {
	out := &Outline{}
	for _, r := range f.c.ranges {
		from, err := f.find(r.From)
		if err != nil {
			return nil, err
		}
		to, err := f.find(r.To)
		if err != nil {
			return nil, err
		}
		if n := len(out.Pages); n > 0 && out.Pages[n-1].End >= from {
			out.Pages[n-1].End = max(out.Pages[n-1].End, to+1)
			continue
		}
		out.Pages = append(out.Pages, merkle.Range{Start: from, End: to + 1})
	}
	return out, nil
}

// tail finds the pages of the tail that are not among the others.
func (f *finderOf) tail(out *Outline) error {
	if f.c.Undecided() == 0 {
		return nil
	}
	from, err := f.find([]byte{KeyRedacted})
	if err != nil {
		return err
	}
	if n := len(out.Pages); n > 0 {
		from = max(from, out.Pages[n-1].End)
	}
	if from < f.c.head.pages {
		out.Tail = merkle.Range{Start: from, End: f.c.head.pages}
	}
	return nil
}

// errEnough ends a walk through candidates.
var errEnough = errors.New("enough")

// cut finds the first rows of an answer that is cut short. An Outline that shows 0
// says that there are no more rows than wanted.
func (f *finderOf) cut() (*Outline, error) {
	j, err := f.judge()
	if err != nil {
		return nil, err
	}
	var last indexEntry
	shown := int64(0)
	take := func(e indexEntry) error {
		if f.c.way != document && e.key[0] == KeyString && !KeyExact(e.key) {
			return unprovable("long strings")
		}
		matched, err := j.matches(e.record)
		if err != nil {
			return err
		}
		shown++
		if last = e; matched && j.matched == f.p.Asked.Limit {
			return errEnough
		}
		return nil
	}
	switch {
	case f.c.way == ascending:
		err = f.upward(f.c.ranges, take)
	case f.c.way == descending:
		err = f.downward(take)
	default:
		err = f.inDocument(take)
	}
	if !errors.Is(err, errEnough) {
		return &Outline{}, err
	}
	out, err := f.whole()
	if err != nil {
		return nil, err
	}
	switch out.Shown = shown; {
	case f.c.way == document && !f.point():
		return out, nil
	case f.c.way == document:
		err = f.upward(f.c.ranges, func(e indexEntry) error {
			if e.record == last.record {
				last = e
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) { // it stands in the tail alone
			return out, err
		}
	case f.c.way == descending:
		from, err := f.find(last.key)
		out.Pages = trim(out.Pages, merkle.Range{Start: from, End: f.c.head.pages})
		return out, err
	}
	n, err := f.findEntry(last)
	out.Pages = trim(out.Pages, merkle.Range{End: n + 1})
	return out, err
}

// point reports whether the ranges are one key.
func (f *finderOf) point() bool { return len(f.c.ranges) == 1 && f.c.ranges[0].point() }

// trim cuts runs to what lies within a range.
func trim(runs []merkle.Range, within merkle.Range) []merkle.Range {
	var out []merkle.Range
	for _, r := range runs {
		if r.Start, r.End = max(r.Start, within.Start), min(r.End, within.End); r.Start < r.End {
			out = append(out, r)
		}
	}
	return out
}

// findEntry returns the page of an entry.
func (f *finderOf) findEntry(e indexEntry) (int64, error) {
	return f.search(func(rank int64, _ []byte) bool { return rank <= e.rank })
}

// judge evaluates single records.
func (f *finderOf) judge() (*oneByOne, error) {
	j := &oneByOne{f: f}
	var err error
	if q := f.p.Asked.Query; q.Where != nil {
		j.where, err = q.Where.Evaluator(f.c.want.Layout)
	}
	return j, err
}

// oneByOne decides record after record.
type oneByOne struct {
	f       *finderOf
	where   *Evaluator
	matched int64
	room    []byte
}

func (j *oneByOne) matches(record int64) (bool, error) {
	for s, err := range j.f.p.Map.Spans(j.f.ctx, record, record+1) {
		if err != nil {
			return false, err
		}
		if int64(cap(j.room)) < s.Len() {
			j.room = make([]byte, s.Len())
		}
		b := j.room[:s.Len()]
		if err := readFull(j.f.p.Source, b, s.Start); err != nil {
			return false, err
		}
		if j.where != nil && j.where.Eval(b) != Matched {
			return false, nil
		}
		j.matched++
	}
	return true, nil
}

// upward gives the entries in ranges, in the order of the index.
func (f *finderOf) upward(ranges []KeyRange, take func(indexEntry) error) error {
	for _, r := range ranges {
		n, err := f.find(r.From)
		if err != nil {
			return err
		}
		for ; n < f.c.head.pages; n++ {
			if err := f.load(n); err != nil {
				return err
			}
			for _, e := range f.entries {
				if r.before(e.key) {
					n = f.c.head.pages
					break
				}
				if !r.starts(e.key) {
					continue
				}
				if err := take(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// downward gives the entries in the one range from the greatest key down, those
// with the same key in document order.
func (f *finderOf) downward(take func(indexEntry) error) error {
	for i := len(f.c.ranges) - 1; i >= 0; i-- {
		r := f.c.ranges[i]
		for below := r.To; ; {
			key, err := f.lessThan(below)
			if err != nil {
				return err
			}
			if key == nil || !r.starts(key) {
				break
			}
			if err := f.upward([]KeyRange{{From: key, To: behind(key)}}, take); err != nil {
				return err
			}
			below = key
		}
	}
	return nil
}

// lessThan returns the greatest key that is less than another; nil: there is none.
func (f *finderOf) lessThan(key []byte) ([]byte, error) {
	n, err := f.find(key)
	if err == nil {
		err = f.load(n)
	}
	if err != nil {
		return nil, err
	}
	var best []byte
	if n > 0 {
		best = f.info.before
	}
	for _, e := range f.entries {
		if bytes.Compare(e.key, key) >= 0 {
			break
		}
		best = e.key
	}
	return bytes.Clone(best), nil
}

// inDocument gives the candidates and the records of the tail in document order.
func (f *finderOf) inDocument(take func(indexEntry) error) error {
	found, tail := recordSet{records: f.c.head.records}, recordSet{records: f.c.head.records}
	if err := f.upward([]KeyRange{{From: []byte{KeyRedacted}, To: []byte{0xff}}}, func(e indexEntry) error { return tail.add(e.record) }); err != nil {
		return err
	}
	if err := f.upward(f.c.ranges, func(e indexEntry) error { return found.add(e.record) }); err != nil {
		return err
	}
	for r := range unionOf(&found, &tail, -1) {
		if err := take(indexEntry{record: r}); err != nil {
			return err
		}
	}
	return nil
}
