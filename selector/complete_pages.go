package selector

import (
	"bytes"
	"errors"
	"io"

	"leafproof/merkle"
)

// Pages takes the pages of the index around the keys asked for. runs are their
// numbers from 0, in ascending runs that do not touch; open returns a reader of
// their bytes, from the first, each time: it is called twice for an answer that
// is cut short in descending order, else once.
func (c *Completeness) Pages(runs []merkle.Range, open func() io.Reader) error {
	if err := c.enter(needPages, needTail); err != nil {
		return err
	}
	if err := c.readPages(runs, open()); err != nil {
		return err
	}
	if err := c.cover.end(); err != nil || c.way != descending {
		return err
	}
	shown, err := c.cover.lastGroups(c.shown)
	if err != nil {
		return err
	}
	// Now that it is known how many there are, the same pages again.
	undetermined := c.cover.undetermined
	c.cover = coverage{c: c, ranges: c.ranges, parts: shown}
	err = c.readPages(runs, open())
	c.cover.undetermined = undetermined
	return err
}

// Undetermined takes the pages of the index's tail that were not among those
// around the keys; run is empty where there are none.
func (c *Completeness) Undetermined(run merkle.Range, r io.Reader) error {
	if err := c.enter(needTail, needRecords); err != nil {
		return err
	}
	if run != (merkle.Range{}) {
		if c.cover.tail = true; c.asked.Count {
			return badProof("a count shows no page of the tail")
		}
		if err := c.readPages([]merkle.Range{run}, r); err != nil {
			return err
		}
	}
	if want := c.Undecided(); !c.asked.Count && c.cover.undetermined != want {
		return badProof("%d of the %d undetermined entries are shown", c.cover.undetermined, want)
	}
	if err := c.eachOnce(); err != nil || c.way != document {
		return err
	}
	return c.documentPrefix()
}

// eachOnce refuses an index over a scalar path that has a record twice: then it
// lacks another, since there are as many entries as records.
func (c *Completeness) eachOnce() error {
	if !c.want.Path.Scalar() || c.asked.Count {
		return nil
	}
	records := int64(0)
	for range unionOf(&c.found, &c.tail, -1) {
		records++
	}
	if want := c.cover.taken + c.cover.undetermined; records != want {
		return badProof("%d entries are of %d records, of a path that gives each one", want, records)
	}
	return nil
}

// readPages reads runs of pages, each of which must be needed.
func (c *Completeness) readPages(runs []merkle.Range, r io.Reader) error {
	page := make([]byte, IndexPageSize)
	for _, run := range runs {
		if run.Start < 0 || run.End <= run.Start || run.End > c.head.pages {
			return badProof("pages %d to %d of %d", run.Start, run.End, c.head.pages)
		}
		if !c.cover.tail && c.cover.pages > 0 && run.Start == c.cover.before.number+1 {
			return badProof("two runs of pages touch at page %d", run.Start)
		}
		for n := run.Start; n < run.End; n++ {
			if _, err := io.ReadFull(r, page); err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					return badProof("the pages end before page %d", n)
				}
				return err
			}
			if err := c.cover.page(page, n); err != nil {
				return err
			}
		}
		if err := c.cover.runEnds(); err != nil {
			return err
		}
	}
	switch n, err := io.ReadFull(r, page[:1]); {
	case n > 0:
		return badProof("bytes behind the last page")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// coverage follows pages of an index and holds them to the ranges of keys that
// they must cover: all of every range, and a key before and behind it or the
// index's own edge.
type coverage struct {
	c      *Completeness
	ranges []KeyRange
	tail   bool // these are the pages of the tail: no range is covered by them

	pages  int64     // that were read
	before indexPage // the last of them

	next  int  // the first range that is not covered to its end
	open  bool // it has begun, and goes on on the next page
	ended bool // an answer that is cut short has all it needs

	in     int  // the first range that does not end before the present key
	within bool // the present key is in it

	entries      int64      // in a range
	taken        int64      // of these, whose records are candidates
	firstOnPage  int64      // the first record in a range on the last page; -1: none
	undetermined int64      // entries of the tail
	below, above int64      // of a count: rank of the first entry in the range, and of the first behind it
	groups       []keyGroup // descending: those that the first page has in the range
	parts        []keyGroup // descending, the second time: what is shown
}

// keyGroup is a run of entries with the same key, by their places among those in
// a range. end is -1 until it is known.
type keyGroup struct {
	begin, end int64
	cut        bool // it begins on the page before
}

// page reads the next page: its entries, how it follows the page before, and what
// it covers.
func (v *coverage) page(p []byte, n int64) error {
	var fault error
	if !v.tail {
		v.firstOnPage = -1
	}
	first := true
	info, err := readIndexPage(&v.c.head, p, n, func(e indexEntry) {
		if first {
			if v.above = e.rank; v.pages == 0 {
				v.below = e.rank
			}
		}
		if fault == nil {
			fault = v.entry(e, first)
		}
		first = false
	})
	if err == nil {
		err = fault
	}
	if err == nil {
		err = v.follow(info, n)
	}
	if err != nil {
		return err
	}
	switch {
	case v.tail:
		if info.rank+info.entries <= v.c.head.tail {
			err = badProof("page %d has no part of the tail", n)
		}
	case v.c.asked.Count:
		err = v.coverCount(info, n)
	default:
		err = v.coverRanges(info, n)
	}
	v.pages, v.before = v.pages+1, info
	return err
}

// entry takes one entry; first says that it is the first of its page.
func (v *coverage) entry(e indexEntry, first bool) error {
	if KeyDetermined(e.key) != (e.rank < v.c.head.tail) {
		return badProof("entry %d is on the wrong side of the tail, which begins at %d", e.rank, v.c.head.tail)
	}
	if !KeyDetermined(e.key) {
		v.undetermined++
		if v.c.asked.Count || v.parts != nil && !v.tail { // the second time they are there
			return nil
		}
		return v.c.tail.add(e.record)
	}
	if v.tail {
		return nil // it is beside what is asked for
	}
	if e.fresh || first {
		v.locate(e.key)
		v.group(e)
	}
	if v.in < len(v.ranges) {
		if v.ranges[v.in].starts(e.key) {
			v.above = e.rank + 1
		} else {
			v.below, v.above = e.rank+1, e.rank+1
		}
	}
	if !v.within {
		return nil
	}
	place := v.entries
	v.entries++
	if v.firstOnPage < 0 {
		v.firstOnPage = e.record
	}
	if v.c.asked.Count || !v.takes(place) {
		return nil
	}
	ordered := v.c.way == ascending || v.c.way == descending
	if ordered && e.key[0] == KeyString && !KeyExact(e.key) {
		return unprovable("among the keys are long strings, whose order the index does not tell")
	}
	if place == v.lastPlace() {
		v.c.rows.lastShown = e.record
	}
	v.taken++
	return v.c.found.add(e.record)
}

// locate finds the range that a key is in.
func (v *coverage) locate(key []byte) {
	for v.in < len(v.ranges) && v.ranges[v.in].before(key) {
		v.in++
	}
	v.within = v.in < len(v.ranges) && v.ranges[v.in].starts(key)
}

// group notes where the groups begin that the first page has.
func (v *coverage) group(e indexEntry) {
	if v.c.way != descending || !e.fresh && v.pages > 0 {
		return
	}
	if n := len(v.groups); n > 0 && v.groups[n-1].end < 0 {
		v.groups[n-1].end = v.entries
	}
	if v.pages == 0 && v.within {
		v.groups = append(v.groups, keyGroup{begin: v.entries, end: -1, cut: !e.fresh})
	}
}

// takes reports whether an answer shows the record of the entry at a place among
// those in the ranges.
func (v *coverage) takes(place int64) bool {
	switch v.c.way {
	case ascending:
		return place < v.c.shown
	case descending:
		for _, p := range v.parts {
			if place >= p.begin && place < p.end {
				return true
			}
		}
		return false
	}
	return true
}

// lastPlace is the place of the last entry whose record is shown, in the order of
// an answer that is cut short in the order of the index.
func (v *coverage) lastPlace() int64 {
	switch {
	case v.c.way == ascending:
		return v.c.shown - 1
	case v.c.way == descending && v.parts != nil:
		return v.parts[0].end - 1
	}
	return -1
}

// follow holds a page to the one before, or to its place.
func (v *coverage) follow(p indexPage, n int64) error {
	b := &v.before
	switch {
	case n == 0 && p.rank != 0, n > 0 && p.rank < n:
		return badProof("page %d begins at entry %d", n, p.rank)
	case v.pages == 0:
		return nil
	case n <= b.number:
		return badProof("page %d comes behind page %d", n, b.number)
	case n == b.number+1:
		return p.follows(b)
	case p.rank < b.rank+b.entries+(n-b.number-1) || bytes.Compare(p.before, b.last) < 0:
		return badProof("page %d is out of order", n)
	}
	return nil
}

// coverRanges follows which ranges a page covers. Of a range every page is needed
// that has a key in it, the first key behind it, or where that would stand.
func (v *coverage) coverRanges(p indexPage, n int64) error {
	used, lastPage := false, n == v.c.head.pages-1
	lower := v.c.way == descending && v.pages == 0 // what stands below is beside the first rows
	for v.next < len(v.ranges) && !v.ended {
		r := v.ranges[v.next]
		begins := n == 0 || !r.starts(p.before) // nothing on earlier pages is in the range
		switch {
		case v.open:
		case n > 0 && r.before(p.before):
			if !lower {
				return badProof("no page shows that the keys %d are complete", v.next)
			}
			v.next++
			continue
		case !r.starts(p.last) && !lastPage: // it begins behind this page
			if !used {
				return badProof("page %d is not needed", n)
			}
			return nil
		case !begins && !lower:
			return badProof("the beginning of the keys %d is not shown", v.next)
		}
		used, v.open = true, true
		if v.c.shown > 0 && v.c.way == ascending && v.entries >= v.c.shown {
			v.ended = true
			break
		}
		if !r.before(p.last) && !lastPage {
			break
		}
		v.next, v.open = v.next+1, false
	}
	if !used {
		return badProof("page %d is not needed", n)
	}
	return nil
}

// runEnds is called where the pages that follow one another end.
func (v *coverage) runEnds() error {
	if !v.tail && v.open && !v.ended {
		if !v.c.onePoint() {
			return badProof("the end of the keys %d is not shown", v.next)
		}
		v.ended = true
	}
	return nil
}

// end is called behind the last page.
func (v *coverage) end() error {
	c := v.c
	switch {
	case c.head.pages == 0:
		return nil
	case c.asked.Count:
		if v.next == 0 {
			return badProof("the end of the keys is not shown")
		}
		return nil
	case c.way == ascending && v.entries < c.shown:
		return badProof("%d candidates are on the pages, %d are claimed", v.entries, c.shown)
	case v.next < len(v.ranges) && !v.ended:
		return badProof("no page shows that the keys %d are complete", v.next)
	}
	return nil
}

// coverCount takes the one page or the two on which a range of keys begins and
// ends.
func (v *coverage) coverCount(p indexPage, n int64) error {
	r, lastPage := v.ranges[0], n == v.c.head.pages-1
	switch {
	case v.next > 0:
		return badProof("page %d is not needed", n)
	case n > 0 && r.before(p.before):
		return badProof("page %d is behind the keys", n)
	case v.pages == 0 && n > 0 && r.starts(p.before):
		return badProof("the beginning of the keys is not shown")
	case !r.starts(p.last) && !lastPage:
		return badProof("page %d is not needed", n)
	case r.before(p.last) || lastPage:
		v.next = 1
	case v.pages > 0:
		return badProof("page %d is not needed", n)
	}
	return nil
}

// onePoint reports whether the answer is cut short in document order and its
// ranges are one key: then the candidates stand in document order in the index,
// and pages behind the last one are not shown.
func (c *Completeness) onePoint() bool {
	return c.way == document && len(c.ranges) == 1 && c.ranges[0].point()
}

// lastGroups returns which entries are the last so many in the order of keys, and
// in document order among those with the same key.
func (v *coverage) lastGroups(n int64) ([]keyGroup, error) {
	if k := len(v.groups); k > 0 && v.groups[k-1].end < 0 {
		v.groups[k-1].end = v.entries
	}
	if n > v.entries {
		return nil, badProof("%d candidates are on the pages, %d are claimed", v.entries, n)
	}
	for _, g := range v.groups {
		if v.entries-g.begin >= n && n > v.entries-g.end {
			if g.cut {
				return nil, badProof("the beginning of the last key shown is missing")
			}
			behind := v.entries - g.end
			return []keyGroup{{begin: g.begin, end: g.begin + n - behind}, {begin: g.end, end: v.entries}}, nil
		}
	}
	return nil, badProof("the first page is not needed for %d candidates", n)
}

// documentPrefix cuts the candidates, which are complete as far as the pages go,
// to the first so many in document order.
func (c *Completeness) documentPrefix() error {
	n := int64(0)
	last := int64(-1)
	for r := range unionOf(&c.found, &c.tail, c.shown) {
		n, last = n+1, r
	}
	switch {
	case n < c.shown:
		return badProof("%d candidates are on the pages, %d are claimed", n, c.shown)
	case !c.onePoint():
	case c.found.has(last):
		if c.cover.firstOnPage < 0 || last < c.cover.firstOnPage {
			return badProof("the last page is not needed for %d candidates", c.shown)
		}
	case c.cover.open:
		return badProof("the pages end before the last candidate shown")
	}
	c.rows.lastShown = last
	return nil
}

// starts reports whether a key is not in front of the range.
func (r KeyRange) starts(key []byte) bool { return bytes.Compare(key, r.From) >= 0 }

// before reports whether a key is behind the range.
func (r KeyRange) before(key []byte) bool { return bytes.Compare(key, r.To) >= 0 }

// point reports whether the range is that of one key.
func (r KeyRange) point() bool { return bytes.Equal(r.To, behind(r.From)) }
