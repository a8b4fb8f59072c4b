package selector

import (
	"bytes"
	"encoding/binary"
)

// indexEntry is an entry on a page of an index.
type indexEntry struct {
	key    []byte // valid until the next entry
	record int64
	rank   int64
	fresh  bool // the first of its key in the index
}

// indexPage is what a page tells beside its entries.
type indexPage struct {
	number        int64
	rank, entries int64
	before, last  []byte // the last key of the page before, and its own

	used        int // bytes of it, of indexRoom
	first       int // bytes that its first entry takes, where it is fresh
	reopened    bool
	firstRecord int64 // of the first entry
	lastRecord  int64
	lastCount   int64 // entries of the last group
}

// readIndexPage decodes the page of an index numbered n, from its bytes alone, and
// gives its entries to yield. It refuses whatever is not canonical as far as one
// page can show it; [indexPage.follows] is for two neighbours. After an error
// nothing that was given holds.
func readIndexPage(h *indexHead, p []byte, n int64, yield func(indexEntry)) (indexPage, error) {
	r := indexPageReader{h: h, at: (1 + n) * indexPageSize, yield: yield}
	out, err := r.head(p, n)
	if err != nil {
		return out, err
	}
	r.page = &out
	if err := r.groups(); err != nil {
		return out, err
	}
	left := h.pages - 1 - n // pages behind this one
	if end := out.rank + out.entries; out.entries == 0 || end > h.entries-left || left == 0 && end != h.entries {
		return out, badIndex(r.at, "page %d of %d ends with entry %d of %d", n, h.pages, out.rank+out.entries, h.entries)
	}
	return out, nil
}

// indexPageReader reads a page.
type indexPageReader struct {
	h     *indexHead
	at    int64 // where the page stands
	yield func(indexEntry)

	p    []byte // the page, to the end of its used bytes
	i    int
	page *indexPage
	key  []byte
}

// head reads what stands in front of the groups of the page numbered n.
func (r *indexPageReader) head(p []byte, n int64) (indexPage, error) {
	out, h := indexPage{number: n}, r.h
	if n < 0 || n >= h.pages || len(p) != indexPageSize {
		return out, badIndex(-1, "page %d of %d, %d bytes", n, h.pages, len(p))
	}
	out.rank, out.used = int64(binary.LittleEndian.Uint64(p[8:])), int(binary.LittleEndian.Uint16(p[16:]))
	left := h.pages - 1 - n // pages behind this one
	switch {
	case int64(binary.LittleEndian.Uint64(p)) != n:
		return out, badIndex(r.at, "not the page %d", n)
	case out.rank < n || out.rank >= h.entries-left || (n == 0) != (out.rank == 0):
		return out, badIndex(r.at+8, "page %d of %d begins with entry %d of %d", n, h.pages, out.rank, h.entries)
	case out.used > indexRoom || p[18] != 0 || p[19] != 0:
		return out, badIndex(r.at+16, "numbers out of range")
	case !zeros(p[indexFront+out.used:]):
		return out, badIndex(r.at+int64(indexFront+out.used), "padding that is not zero")
	case left > 0 && out.used+maxFirst <= indexRoom:
		return out, badIndex(r.at+16, "not filled, and not the last page")
	}
	r.p, r.i = p[:indexFront+out.used], indexFront
	length, ok := r.length()
	if !ok || (length == 0) != (n == 0) {
		return out, r.bad("the key before is cut off, or missing")
	}
	before := r.p[r.i : r.i+length]
	if length > 0 && !checkKey(before) {
		return out, r.bad("the key before is no typed key")
	}
	out.before = bytes.Clone(before)
	r.i += length
	return out, nil
}

func (r *indexPageReader) bad(format string, args ...any) error {
	return badIndex(r.at+int64(r.i), format, args...)
}

// number reads a minimal uvarint.
func (r *indexPageReader) number() (uint64, bool) {
	if r.i < len(r.p) && r.p[r.i] < 0x80 {
		r.i++
		return uint64(r.p[r.i-1]), true
	}
	v, n := uvarint(r.p[r.i:])
	r.i += n
	return v, n > 0
}

// length reads the length of something that stands behind it.
func (r *indexPageReader) length() (int, bool) {
	v, ok := r.number()
	if !ok || v > uint64(len(r.p)-r.i) {
		return 0, false
	}
	return int(v), true
}

// groups reads the groups of a page, behind its head.
func (r *indexPageReader) groups() error {
	r.key = append(make([]byte, 0, 64), r.page.before...)
	for first := true; r.i < len(r.p); first = false {
		if err := r.group(first); err != nil {
			return err
		}
	}
	r.page.last = bytes.Clone(r.key)
	return nil
}

func (r *indexPageReader) group(first bool) error {
	begin := r.i
	shared, ok := r.number()
	suffix, ok2 := r.length()
	same := shared == uint64(len(r.key)) && suffix == 0 && len(r.key) > 0
	switch {
	case !ok || !ok2:
		return r.bad("a varint that is cut off, too long or not minimal")
	case same && !first:
		return r.bad("a key stands twice on the page")
	case same:
	case shared >= uint64(len(r.key)) && len(r.key) > 0 || shared > 0 && len(r.key) == 0 || suffix == 0:
		return r.bad("%d bytes shared with a key of %d", shared, len(r.key))
	case len(r.key) > 0 && r.p[r.i] <= r.key[shared]:
		return r.bad("the keys do not ascend, or share more than is said")
	}
	r.key = append(r.key[:shared], r.p[r.i:r.i+suffix]...)
	if !checkKey(r.key) {
		return r.bad("no typed key")
	}
	r.i += suffix
	tail := !KeyDetermined(r.key)
	count, ok := r.number()
	if !ok || count == 0 || count > uint64(len(r.p)-r.i) {
		return r.bad("%d entries in %d bytes", count, len(r.p)-r.i)
	}
	o := r.page
	if o.lastCount = int64(count); first {
		o.reopened = same
	}
	next := int64(0) // the least that the record may be
	for i := range count {
		d, ok := r.number()
		if !ok || next >= r.h.records || d >= uint64(r.h.records-next) {
			return r.bad("a record out of range, or a varint that is cut off, too long or not minimal")
		}
		e := indexEntry{key: r.key, record: next + int64(d), rank: o.rank + o.entries, fresh: i == 0 && !same}
		if tail != (e.rank >= r.h.tail) {
			return r.bad("entry %d is on the wrong side of the tail, which begins at %d", e.rank, r.h.tail)
		}
		if o.entries++; o.entries == 1 {
			o.firstRecord = e.record
			o.first = r.i - begin - uvarintLen(count) + 1
		}
		next, o.lastRecord = e.record+1, e.record
		if yield := r.yield; yield != nil {
			yield(e)
		}
	}
	return nil
}

// follows holds a page to the one in front of it.
func (p *indexPage) follows(b *indexPage) error {
	at := (1 + p.number) * indexPageSize
	takes := p.first
	if p.reopened {
		takes = uvarintLen(uint64(p.firstRecord-b.lastRecord-1)) + uvarintLen(uint64(b.lastCount+1)) - uvarintLen(uint64(b.lastCount))
	}
	switch {
	case p.number != b.number+1 || p.rank != b.rank+b.entries || !bytes.Equal(p.before, b.last):
		return badIndex(at, "page %d does not continue page %d", p.number, b.number)
	case p.reopened && p.firstRecord <= b.lastRecord:
		return badIndex(at, "record %d stands behind record %d", p.firstRecord, b.lastRecord)
	case b.used+takes <= indexRoom:
		return badIndex(at, "its first entry fits into the page before")
	}
	return nil
}
