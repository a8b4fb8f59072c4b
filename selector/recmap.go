package selector

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"

	"leafproof/merkle"
)

// mapHead is the decoded header of a record map.
type mapHead struct {
	root    merkle.Root
	size    int64 // of the source
	layout  [32]byte
	records int64
	pages   int64
	touch   bool // records may stand side by side: the format is concat
}

func badMap(offset int64, format string, args ...any) error {
	return fail("record map", offset, ErrMap, format, args...)
}

// parseMapHead decodes leaf 0 of a map of mapSize bytes.
func parseMapHead(p []byte, mapSize int64) (h mapHead, err error) {
	if len(p) != mapPage || string(p[:8]) != mapMagic {
		return h, badMap(0, "no %s header", mapMagic)
	}
	h.root, h.layout = merkle.Root(p[8:40]), [32]byte(p[48:80])
	size, records, pages := binary.LittleEndian.Uint64(p[40:]), binary.LittleEndian.Uint64(p[80:]), binary.LittleEndian.Uint64(p[88:])
	h.size, h.records, h.pages = int64(size), int64(records), int64(pages)
	switch {
	case h.size < 0 || records > maxMapRecords || pages > records:
		return h, badMap(40, "numbers out of range")
	case !zeros(p[96:]):
		return h, badMap(96, "padding that is not zero")
	case mapSize != (1+h.pages)*mapPage:
		return h, badMap(88, "%d pages in a map of %d bytes", h.pages, mapSize)
	case records > 0 && (pages == 0 || records > pages*(pageRoom/2)):
		return h, badMap(88, "%d records in %d pages", h.records, h.pages)
	}
	return h, nil
}

func zeros(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }

// check holds a header to what is known about the source.
func (h mapHead) check(root merkle.Root, srcSize int64, l Layout) error {
	switch {
	case h.root != root:
		return badMap(8, "made for another source")
	case h.size != srcSize:
		return badMap(40, "made for a source of %d bytes, not %d", h.size, srcSize)
	case h.layout != l.Digest():
		return badMap(48, "made for another record layout")
	}
	return nil
}

// pageChain decodes pages that follow one another and holds each to the one
// before.
type pageChain struct {
	head  mapHead
	index int64 // of the next page
	open  bool  // a page was decoded; the three below hold
	first int64 // the next record
	end   int64 // where the record before it ends
	used  int   // of the page before
}

// page decodes the next page. It calls span for its records, until that returns
// false; the page is checked to its end all the same.
func (c *pageChain) page(p []byte, span func(rec int64, s Span) bool) error {
	at := (1 + c.index) * mapPage
	first, base := int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))
	count, used := int64(binary.LittleEndian.Uint16(p[16:])), int(binary.LittleEndian.Uint16(p[18:]))
	left := c.head.pages - 1 - c.index // pages behind this one
	switch {
	case first < 0 || base < 0 || base > c.head.size || used > pageRoom || count == 0:
		return badMap(at, "numbers out of range")
	case first < c.index || first > c.head.records-count-left || (left == 0) != (first+count == c.head.records):
		return badMap(at, "records %d to %d on page %d of %d, with %d records in all", first, first+count, c.index, c.head.pages, c.head.records)
	case c.index == 0 && (first != 0 || base != 0):
		return badMap(at, "the first page does not begin at 0")
	case c.open && (first != c.first || base != c.end):
		return badMap(at, "does not continue the page before")
	case !zeros(p[pageHead+used:]):
		return badMap(at+pageHead+int64(used), "padding that is not zero")
	}
	entries, off := p[pageHead:pageHead+used], 0
	for i := range count {
		s, n, err := c.entry(entries[off:], first+i, base, at+pageHead+int64(off))
		if err != nil {
			return err
		}
		if i == 0 && c.open && c.used+n <= pageRoom {
			return badMap(at, "its first record fits into the page before")
		}
		off += n
		base = s.End
		if span != nil && !span(first+i, s) {
			span = nil
		}
	}
	if off != used {
		return badMap(at+18, "%d bytes of entries, %d used", off, used)
	}
	c.index, c.open, c.first, c.end, c.used = c.index+1, true, first+count, base, used
	return nil
}

// entry decodes one record's entry.
func (c *pageChain) entry(p []byte, rec, base, at int64) (Span, int, error) {
	gap, n := uvarint(p)
	length, m := uvarint(p[n:])
	room := uint64(c.head.size - base)
	switch {
	case n == 0 || m == 0:
		return Span{}, 0, badMap(at, "a varint that is cut off, too long or not minimal")
	case gap == 0 && rec > 0 && (!c.head.touch || length == 0):
		return Span{}, 0, badMap(at, "record %d touches the one before", rec)
	case gap > room || length > room-gap:
		return Span{}, 0, badMap(at, "record %d ends behind the source", rec)
	}
	start := base + int64(gap)
	return Span{Start: start, End: start + int64(length)}, n + m, nil
}

// uvarint decodes a minimal uvarint; n is 0 if there is none.
func uvarint(p []byte) (v uint64, n int) {
	v, n = binary.Uvarint(p)
	if n <= 0 || n > 1 && p[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// Map is an opened record map. It is safe for concurrent use when its reader is.
type Map struct {
	r    io.ReaderAt
	head mapHead
}

// OpenMap opens a record map of size bytes and checks its header: that it is
// lpr1 for a source with that root and size, divided as l says. Its pages are
// checked as they are read.
func OpenMap(r io.ReaderAt, size int64, root merkle.Root, srcSize int64, l Layout) (*Map, error) {
	p := make([]byte, mapPage)
	if size < mapPage {
		return nil, badMap(0, "%d bytes, shorter than its header", size)
	}
	if err := readFull(r, p, 0); err != nil {
		return nil, err
	}
	h, err := parseMapHead(p, size)
	if err == nil {
		err = h.check(root, srcSize, l)
	}
	if err != nil {
		return nil, err
	}
	h.touch = l.Format == FormatConcat
	return &Map{r: r, head: h}, nil
}

// Records returns how many records the map lists.
func (m *Map) Records() int64 { return m.head.records }

// checkRange checks 0 <= a <= b <= records.
func (h mapHead) checkRange(a, b int64) error {
	if a < 0 || b < a || b > h.records {
		return fail("records", -1, ErrRange, "%d to %d of %d records", a, b, h.records)
	}
	return nil
}

// find returns the index of the page that holds record n, by binary search.
func (m *Map) find(n int64) (int64, error) {
	lo, hi := int64(0), m.head.pages // first(lo) <= n < first(hi)
	var p [8]byte
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if err := readFull(m.r, p[:], (1+mid)*mapPage); err != nil {
			return 0, err
		}
		if binary.LittleEndian.Uint64(p[:]) <= uint64(n) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// Spans yields the spans of the records [a, b) in document order. A yielded
// error ends it.
func (m *Map) Spans(ctx context.Context, a, b int64) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) {
		stopped := false
		if err := m.spans(ctx, a, b, func(s Span) bool {
			stopped = !yield(s, nil)
			return !stopped
		}); err != nil && !stopped {
			yield(Span{}, err)
		}
	}
}

func (m *Map) spans(ctx context.Context, a, b int64, yield func(Span) bool) error {
	r, err := m.reader(a, b)
	if err != nil {
		return err
	}
	for {
		page, err := r.page(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			if !yield(s) {
				return nil
			}
		}
	}
}

// mapReader reads the spans of a run of records, page by page.
type mapReader struct {
	m         *Map
	chain     pageChain
	next, end int64 // the records that are left
	block     []byte
	left      []byte // what is left of the block, whole pages
	spans     []Span // of the last page
}

// reader returns a reader of the records [a, b).
func (m *Map) reader(a, b int64) (*mapReader, error) {
	r := &mapReader{m: m, next: a, end: b}
	if err := m.head.checkRange(a, b); err != nil || a == b {
		return r, err
	}
	index, err := m.find(a)
	r.chain = pageChain{head: m.head, index: index}
	return r, err
}

// page returns the wanted spans of the next page, valid until the next call;
// none at the end.
func (r *mapReader) page(ctx context.Context) ([]Span, error) {
	if r.next >= r.end {
		return nil, nil
	}
	if len(r.left) == 0 {
		if err := r.fill(ctx); err != nil {
			return nil, err
		}
	}
	r.spans = r.spans[:0]
	first := r.next
	err := r.chain.page(r.left[:mapPage], func(rec int64, s Span) bool {
		if rec == r.next && r.next < r.end {
			r.next++
			r.spans = append(r.spans, s)
		}
		return r.next < r.end
	})
	if err != nil {
		return nil, err
	}
	if r.next == first {
		return nil, badMap(-1, "record %d is not on page %d", r.next, r.chain.index-1)
	}
	r.left = r.left[mapPage:]
	return r.spans, nil
}

// fill reads the next pages: a few for few records, larger blocks for many.
func (r *mapReader) fill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	pages := r.m.head.pages - r.chain.index
	if pages <= 0 {
		return badMap(-1, "record %d is on no page", r.next)
	}
	if r.block == nil {
		r.block = make([]byte, mapPage*max(1, min(mapBuffer, (r.end-r.next)/256, pages)))
	}
	r.left = r.block[:min(int64(len(r.block)), pages*mapPage)]
	return readFull(r.m.r, r.left, (1+r.chain.index)*mapPage)
}

// Pages returns which leaves of the map hold the spans of the records [a, b):
// what a proof carries besides leaf 0, the header. An empty range has none and
// is ErrRange.
func (m *Map) Pages(a, b int64) (merkle.Range, error) {
	if a == b {
		return merkle.Range{}, fail("records", -1, ErrRange, "no record in %d to %d", a, b)
	}
	if err := m.head.checkRange(a, b); err != nil {
		return merkle.Range{}, err
	}
	first, err := m.find(a)
	if err != nil {
		return merkle.Range{}, err
	}
	last, err := m.find(b - 1)
	return merkle.Range{Start: 1 + first, End: 2 + last}, err
}

// PageRecords returns the numbers of the records that one page of a map places.
// It does not check the page: that is for the reader of its entries.
func PageRecords(page []byte) (merkle.Range, error) {
	if len(page) < pageHead {
		return merkle.Range{}, badMap(0, "a page of %d bytes", len(page))
	}
	first := int64(binary.LittleEndian.Uint64(page))
	return merkle.Range{Start: first, End: first + int64(binary.LittleEndian.Uint16(page[16:]))}, nil
}

// MapWant is what a verifier knows from the signed manifest about a record map.
type MapWant struct {
	Root    merkle.Root // of the source, not of the map
	Size    int64       // of the source, in bytes
	Layout  Layout
	Records int64
	MapSize int64 // bytes of the map
}

// MapSpans is the verifier's side: header is leaf 0 of a map, pages the leaves
// from firstLeaf on, both already verified against the map's root. They must be
// exactly the leaves that hold the records [a, b), no more and no fewer. It
// returns the b-a spans. For ranges of any length see [MapSpansReader].
func MapSpans(header, pages []byte, firstLeaf, a, b int64, want MapWant) ([]Span, error) {
	var out []Span
	for s, err := range MapSpansReader(header, bytes.NewReader(pages), firstLeaf, a, b, want) {
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// MapSpansReader is [MapSpans] for ranges of any length: it reads the pages one
// by one and holds one of them. It reads to the end of pages and yields an
// error, as its last item, if they are not exactly those of [a, b): nothing it
// yielded is verified before it has ended without one.
func MapSpansReader(header []byte, pages io.Reader, firstLeaf, a, b int64, want MapWant) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) {
		h, err := parseMapHead(header, want.MapSize)
		if err == nil {
			err = h.check(want.Root, want.Size, want.Layout)
		}
		h.touch = want.Layout.Format == FormatConcat
		if err == nil && h.records != want.Records {
			err = badMap(80, "%d records, want %d", h.records, want.Records)
		}
		if err == nil {
			err = h.checkRange(a, b)
		}
		if err == nil && a == b {
			err = fail("records", -1, ErrRange, "no record in %d to %d", a, b)
		}
		if err == nil && (firstLeaf < 1 || firstLeaf > h.pages) {
			err = badMap(-1, "leaf %d of %d pages", firstLeaf, h.pages)
		}
		stopped := false
		if err == nil {
			err = readPages(pageChain{head: h, index: firstLeaf - 1}, pages, a, b, func(s Span) bool {
				stopped = !yield(s, nil)
				return !stopped
			})
		}
		if err != nil && !stopped {
			yield(Span{}, err)
		}
	}
}

// readPages yields the spans of [a, b) from pages that must be exactly theirs.
func readPages(c pageChain, pages io.Reader, a, b int64, yield func(Span) bool) error {
	p := make([]byte, mapPage)
	for next := a; ; {
		_, err := io.ReadFull(pages, p)
		switch {
		case err == io.EOF && next == b:
			return nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return badMap(-1, "the pages end before record %d", next)
		case err != nil:
			return err
		case next == b || c.index == c.head.pages:
			return badMap(-1, "a page more than the records need")
		}
		stopped, begin := false, next
		err = c.page(p, func(rec int64, s Span) bool {
			if rec == next && next < b {
				next++
				stopped = !yield(s)
			}
			return !stopped && next < b
		})
		switch {
		case err != nil || stopped:
			return err
		case next == begin:
			return badMap(-1, "record %d is not on leaf %d", next, c.index)
		}
	}
}
