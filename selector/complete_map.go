package selector

import (
	"errors"
	"io"
	"iter"

	"leafproof/merkle"
)

// A PlacedSpan is a record and where it stands.
type PlacedSpan struct {
	Record int64
	Span
}

// MapSpansOf is [MapSpansReader] for records that need not follow one another:
// leaves are the leaves of the map that pages has, without leaf 0, in ascending
// runs that do not touch, and records are numbers in ascending order, each once.
// Every record must stand on one of the pages, and on every page one of them. It
// yields the records' spans, and reads to the end of pages; an error is the last
// item.
func MapSpansOf(header []byte, pages io.Reader, leaves []merkle.Range, records iter.Seq[int64], want MapWant) iter.Seq2[PlacedSpan, error] {
	return func(yield func(PlacedSpan, error) bool) {
		h, err := parseMapHead(header, want.MapSize)
		if err == nil {
			err = h.check(want.Root, want.Size, want.Layout)
		}
		h.touch = want.Layout.Format == FormatConcat
		if err == nil && h.records != want.Records {
			err = badMap(80, "%d records, want %d", h.records, want.Records)
		}
		next, stop := iter.Pull(records)
		defer stop()
		r := mapSetReader{chain: pageChain{head: h}, pages: pages, next: next, yield: func(p PlacedSpan) bool { return yield(p, nil) }}
		r.advance()
		for i := 0; err == nil && !r.stopped && i < len(leaves); i++ {
			err = r.run(leaves[i])
		}
		if err == nil && !r.stopped {
			err = r.close()
		}
		if err != nil && !r.stopped {
			yield(PlacedSpan{}, err)
		}
	}
}

// mapSetReader reads pages of a record map for single records.
type mapSetReader struct {
	chain   pageChain
	pages   io.Reader
	next    func() (int64, bool)
	record  int64 // the next that is wanted
	more    bool
	yield   func(PlacedSpan) bool
	stopped bool
	page    [mapPage]byte
}

func (r *mapSetReader) advance() { r.record, r.more = r.next() }

// run reads the pages of leaves that follow one another.
func (r *mapSetReader) run(leaves merkle.Range) error {
	if leaves.Start < 1 || leaves.End <= leaves.Start || leaves.End > r.chain.head.pages+1 || leaves.Start-1 < r.chain.index {
		return badMap(-1, "leaves %d to %d of %d pages", leaves.Start, leaves.End, r.chain.head.pages)
	}
	behind, end := r.chain.first, r.chain.end // of the last page before
	r.chain.index, r.chain.open = leaves.Start-1, false
	for n := leaves.Start; n < leaves.End; n++ {
		if _, err := io.ReadFull(r.pages, r.page[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return badMap(-1, "the pages end before leaf %d", n)
			}
			return err
		}
		found := false
		err := r.chain.page(r.page[:], func(rec int64, s Span) bool {
			switch {
			case !r.more || rec < r.record:
				return r.more
			case rec > r.record: // it stands on an earlier page
				return false
			}
			found = true
			r.stopped = !r.yield(PlacedSpan{rec, s})
			r.advance()
			return !r.stopped && r.more
		})
		switch first, _ := PageRecords(r.page[:]); {
		case err != nil || r.stopped:
			return err
		case n == leaves.Start && (first.Start < behind || first.Start > 0 && r.chain.end < end):
			return badMap(n*mapPage, "does not come behind the page before")
		case !found && r.more && r.record < first.Start:
			return badMap(n*mapPage, "record %d is on no page", r.record)
		case !found:
			return badMap(n*mapPage, "a page more than the records need")
		}
	}
	return nil
}

// close checks that the pages are read to their end and every record was found.
func (r *mapSetReader) close() error {
	if r.more {
		return badMap(-1, "record %d is on no page", r.record)
	}
	switch n, err := io.ReadFull(r.pages, r.page[:1]); {
	case n > 0:
		return badMap(-1, "bytes behind the last page")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
