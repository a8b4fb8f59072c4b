package selector

import (
	"bytes"
	"cmp"
	"container/heap"
	"iter"
	"slices"
)

// maxOrdered bounds the rows, in bytes with their keys, of an answer whose order
// is not that of the document: they are held to be ordered.
const maxOrdered = 16 << 20

// Shown yields the numbers of the records whose bytes a proof shows, in ascending
// order: every candidate, and every record that the index could not determine.
func (c *Completeness) Shown() iter.Seq[int64] {
	if c.asked.Count {
		return func(func(int64) bool) {}
	}
	most := int64(-1)
	if c.way == document {
		most = c.shown
	}
	return unionOf(&c.found, &c.tail, most)
}

// rowJudge evaluates the records that a proof shows, and keeps the rows.
type rowJudge struct {
	c     *Completeness
	where *Evaluator // nil: every record matches
	keys  *Keys      // nil: document order
	maker *KeyMaker

	shown, matched, undecidable int64
	returned                    int64
	last                        int64 // the record before
	lastShown                   int64 // the last candidate in the answer's order, where it is cut short
	lastMatched                 bool  // it matched

	rows  orderedRows
	room  int64
	order []byte
}

func newRowJudge(c *Completeness) (j rowJudge, err error) {
	j = rowJudge{c: c, last: -1, lastShown: -1}
	if c.asked.Count {
		return j, nil
	}
	q := c.asked.Query
	if q.Where != nil {
		if err := q.Where.Fits(c.want.Layout); err != nil {
			return j, err
		}
		if j.where, err = q.Where.Evaluator(c.want.Layout); err != nil {
			return j, err
		}
	}
	if len(q.Order) > 0 {
		if j.keys, err = NewKeys(c.want.Layout, q.Order); err != nil {
			return j, err
		}
	}
	j.maker, err = c.want.Path.Maker(c.want.Layout, c.want.Redactions)
	return j, err
}

// Record takes the next of the records that [Completeness.Shown] yields, and its
// bytes, which are not kept. emit is called with it where it is a row of the
// answer and the answer is in document order; other orders come with
// [Completeness.Finish]. emit may be nil.
func (c *Completeness) Record(record int64, span Span, b []byte, emit func(Row) error) error {
	j := &c.rows
	if c.state != needRecords || c.asked.Count || record <= j.last {
		return c.enter(-1, needRecords)
	}
	j.shown, j.last = j.shown+1, record
	switch c.want.Layout.Format {
	case FormatJSON, FormatConcat:
		if len(b) > 0 && (quickSpace(b[:1], 0) > 0 || quickSpace(b[len(b)-1:], 0) > 0) {
			return badProof("record %d has white space around it", record)
		}
	case FormatNDJSON, FormatText: // all of a line, with the white space in it
		if bytes.IndexByte(b, '\n') >= 0 {
			return badProof("record %d is more than a line", record)
		}
	}
	if err := j.indexed(record, b); err != nil {
		return err
	}
	outcome := Matched
	if j.where != nil {
		outcome = j.where.Eval(b)
	}
	j.order = j.order[:0]
	if outcome == Matched && j.keys != nil {
		j.order, outcome = j.keys.Append(j.order, b, false)
	}
	switch outcome {
	case Undecidable:
		j.undecidable++
		return nil
	case Unmatched:
		return nil
	}
	j.matched++
	j.lastMatched = j.lastMatched || record == j.lastShown
	row := Row{Record: record, Span: span, Bytes: b}
	if j.keys != nil {
		return j.keep(row)
	}
	if c.asked.Limit > 0 && j.returned == c.asked.Limit {
		return nil
	}
	j.returned++
	if emit == nil {
		return nil
	}
	return emit(row)
}

// indexed holds a record to the index: one that stands among the keys asked for
// has one of them, and one that stands in the tail has a value that cannot be
// told; of what is shown whole, no other record has.
func (j *rowJudge) indexed(record int64, b []byte) error {
	c := j.c
	found, undetermined := false, false
	j.maker.Keys(b, false, func(key []byte) {
		if !KeyDetermined(key) {
			undetermined = true
		}
		for _, r := range c.ranges {
			found = found || r.starts(key) && !r.before(key)
		}
	})
	inFound, inTail := c.found.has(record), c.tail.has(record)
	switch {
	case inFound && !found:
		return badProof("record %d stands in the index under keys that it does not have", record)
	case inTail && !undetermined:
		return badProof("record %d is undetermined in the index, and its bytes are not", record)
	case !inTail && undetermined:
		return badProof("record %d is determined in the index, and its bytes are not", record)
	case !inFound && found && c.way == whole:
		return badProof("record %d has keys under which the index does not have it", record)
	}
	return nil
}

// keep holds a row until all are known; of more than the limit, the first.
func (j *rowJudge) keep(r Row) error {
	const cost = 96
	limit := j.c.asked.Limit
	if limit > 0 && int64(len(j.rows)) == limit {
		if top := &j.rows[0]; cmp.Or(bytes.Compare(j.order, top.key), cmp.Compare(r.Record, top.row.Record)) > 0 {
			return nil
		}
		top := heap.Pop(&j.rows).(orderedRow)
		j.room -= cost + int64(len(top.key)+len(top.row.Bytes))
	}
	r.Bytes = bytes.Clone(r.Bytes)
	if j.room += cost + int64(len(j.order)+len(r.Bytes)); j.room > maxOrdered {
		return fail("answer", -1, ErrLimit, "the rows take over %d bytes, and another order than the document's needs them at once: a limit makes them fewer", maxOrdered)
	}
	heap.Push(&j.rows, orderedRow{bytes.Clone(j.order), r})
	return nil
}

type orderedRow struct {
	key []byte
	row Row
}

// orderedRows is a heap with the last row on top.
type orderedRows []orderedRow

func (h orderedRows) compare(a, b int) int {
	return cmp.Or(bytes.Compare(h[a].key, h[b].key), cmp.Compare(h[a].row.Record, h[b].row.Record))
}
func (h orderedRows) Len() int           { return len(h) }
func (h orderedRows) Less(a, b int) bool { return h.compare(a, b) > 0 }
func (h orderedRows) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *orderedRows) Push(x any)        { *h = append(*h, x.(orderedRow)) }
func (h *orderedRows) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = orderedRow{}
	*h = old[:len(old)-1]
	return x
}

// A Proven is an answer that a proof shows.
type Proven struct {
	Matched     int64  `json:"matched"`     // records that match; those up to the last row where the answer is cut short
	Returned    int64  `json:"returned"`    // rows
	Undecidable int64  `json:"undecidable"` // records that cannot be told, as far as Matched goes; of a count those in the index's tail, some of which may match
	Shown       int64  `json:"shown"`       // records whose bytes the proof shows
	Cut         bool   `json:"cut"`         // by its limit: what stands behind the last row is not shown
	More        string `json:"more"`        // whether more records match than were returned: yes, no or unknown
}

// Finish ends the check, and gives the rows to emit that another order than the
// document's held back. Nothing that emit got is proven before Finish returned
// without an error.
func (c *Completeness) Finish(emit func(Row) error) (*Proven, error) {
	if err := c.enter(needRecords, finished); err != nil {
		return nil, err
	}
	j := &c.rows
	if c.asked.Count {
		n := c.cover.above - c.cover.below
		if c.head.pages == 0 {
			n = 0
		}
		if n < 0 || n > c.head.tail {
			return nil, badProof("a count of %d among %d entries", n, c.head.tail)
		}
		return &Proven{Matched: n, Undecidable: c.Undecided(), More: MoreNo}, nil
	}
	n := int64(0)
	for range c.Shown() {
		n++
	}
	switch {
	case j.shown != n:
		return nil, badProof("%d records are shown, %d must be", j.shown, n)
	case c.shown > 0 && j.matched != c.asked.Limit:
		return nil, badProof("%d of the %d candidates shown match, and %d rows are asked for", j.matched, c.shown, c.asked.Limit)
	case c.shown > 0 && !j.lastMatched:
		return nil, badProof("the last candidate shown is no row")
	}
	slices.SortFunc(j.rows, func(a, b orderedRow) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.row.Record, b.row.Record))
	})
	for i := range j.rows {
		j.returned++
		if emit != nil {
			if err := emit(j.rows[i].row); err != nil {
				return nil, err
			}
		}
	}
	out := &Proven{Matched: j.matched, Returned: j.returned, Undecidable: j.undecidable, Shown: j.shown, Cut: c.shown > 0, More: MoreNo}
	switch {
	case out.Cut:
		out.More = MoreUnknown
	case out.Returned < out.Matched:
		out.More = MoreYes
	}
	return out, nil
}
