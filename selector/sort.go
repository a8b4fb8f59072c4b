package selector

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"io"
	"slices"

	"github.com/zeebo/blake3"
)

// Spill is room for a sort that does not fit into memory. What was written is
// read back; the two are not called at the same time.
type Spill interface {
	io.ReaderAt
	io.WriterAt
}

const (
	sortMemory = 6 << 20  // bytes of a sorted run, by default
	sortFanIn  = 64       // runs merged at a time
	runBuffer  = 32 << 10 // bytes of a run held while it is merged
	entryCost  = 64       // bytes of an entry besides its key
	keyInline  = 1 << 10  // a longer key is cut there, and read again where that matters
	keyHash    = 16
	rereadMax  = 1 << 30 // bytes of records read again in one sort
)

// sortEntry is a matching record on its way through a sort. Entries are
// ordered by key, then by record number.
type sortEntry struct {
	key  []byte // cut: the first keyInline bytes and a hash of the whole
	rec  int64
	span Span
}

// cutKey shortens a key for an entry. Keys are prefix-free: one that is not cut
// differs from a cut one within keyInline bytes.
func cutKey(key []byte) []byte {
	if len(key) <= keyInline {
		return key
	}
	h := blake3.Sum256(key)
	return append(key[:keyInline], h[:keyHash]...)
}

func isCut(key []byte) bool { return len(key) == keyInline+keyHash }

// sorter orders the rows of a result with bounded memory: it keeps the first
// rows where only so many are wanted, and writes sorted runs otherwise.
type sorter struct {
	ctx    context.Context
	memory int64                                   // bytes that the entries may take
	keep   int64                                   // how many rows are wanted; 0: all
	after  *sortEntry                              // only what comes behind it; nil: all
	spill  Spill                                   // nil: none
	whole  func(rec int64, s Span) ([]byte, error) // reads a record's whole key again

	entries []sortEntry
	arena   []byte // the keys of entries
	room    int64  // bytes that the entries take
	bound   *sortEntry
	runs    []Span // places in spill
	end     int64  // of spill
	reread  int64
	err     error // of a comparison
}

// compare orders two entries; a fault is kept in err.
func (s *sorter) compare(a, b *sortEntry) int {
	if !isCut(a.key) || !isCut(b.key) {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.rec, b.rec))
	}
	if c := bytes.Compare(a.key[:keyInline], b.key[:keyInline]); c != 0 {
		return c
	}
	if a.rec != b.rec && !bytes.Equal(a.key[keyInline:], b.key[keyInline:]) && s.err == nil {
		x, err := s.again(a)
		if err == nil {
			var y []byte
			if y, err = s.again(b); err == nil {
				if c := bytes.Compare(x, y); c != 0 {
					return c
				}
			}
		}
		s.err = err
	}
	return cmp.Compare(a.rec, b.rec)
}

// again reads the whole key of an entry.
func (s *sorter) again(e *sortEntry) ([]byte, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if s.reread += e.span.Len(); s.reread > rereadMax {
		return nil, fail("order", e.span.Start, ErrLimit, "too many long values begin with the same %d bytes", keyInline)
	}
	return s.whole(e.rec, e.span)
}

// add takes a row. The key is not kept.
func (s *sorter) add(key []byte, rec int64, span Span) error {
	e := sortEntry{key, rec, span}
	if s.after != nil && s.compare(&e, s.after) <= 0 || s.bound != nil && s.compare(&e, s.bound) > 0 {
		return s.err
	}
	n := len(s.arena)
	if n+len(key) > cap(s.arena) { // the keys that stand in the old one stay there
		s.arena, n = make([]byte, 0, min(max(64<<10, 2*cap(s.arena), len(key)), 1<<20)), 0
	}
	s.arena = append(s.arena, key...)
	e.key = s.arena[n:len(s.arena):len(s.arena)]
	s.entries = append(s.entries, e)
	s.room += int64(len(key)) + entryCost
	if s.room >= s.memory || s.keep > 0 && int64(len(s.entries)) >= max(2*s.keep, 4096) {
		return s.shrink()
	}
	return s.err
}

// shrink drops what is not wanted and, where that is not enough, writes a run.
func (s *sorter) shrink() error {
	s.order()
	if s.keep > 0 && int64(len(s.entries)) > s.keep {
		s.entries = s.entries[:s.keep]
		s.recount()
		last := s.entries[s.keep-1]
		last.key = bytes.Clone(last.key)
		s.bound = &last
	}
	if s.err == nil && s.room > s.memory/2 {
		return s.flush()
	}
	return s.err
}

// recount moves the keys that are left together.
func (s *sorter) recount() {
	s.room = 0
	for i := range s.entries {
		s.room += int64(len(s.entries[i].key)) + entryCost
	}
	arena := make([]byte, 0, s.room)
	for i := range s.entries {
		n := len(arena)
		arena = append(arena, s.entries[i].key...)
		s.entries[i].key = arena[n:len(arena):len(arena)]
	}
	s.arena = arena
}

func (s *sorter) order() {
	slices.SortFunc(s.entries, func(a, b sortEntry) int { return s.compare(&a, &b) })
}

// flush writes the entries, which are in order, as a run.
func (s *sorter) flush() error {
	if s.spill == nil {
		return fail("order", -1, ErrLimit, "the sort needs more than %d bytes, and there is no room to spill", s.memory)
	}
	w := runWriter{s: s, start: s.end}
	for i := range s.entries {
		if err := w.add(&s.entries[i]); err != nil {
			return err
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	clear(s.entries) // lets the keys go
	s.entries, s.arena, s.room = s.entries[:0], nil, 0
	if len(s.runs) < sortFanIn {
		return nil
	}
	w = runWriter{s: s, start: s.end}
	runs := s.runs
	s.runs = nil
	if err := s.merge(runs, w.add); err != nil {
		return err
	}
	return w.close()
}

// each gives the rows in order to yield.
func (s *sorter) each(yield func(e *sortEntry) error) error {
	s.order()
	if s.err != nil {
		return s.err
	}
	if len(s.runs) == 0 {
		for i := range s.entries {
			if err := yield(&s.entries[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.merge(s.runs, yield)
}

// runWriter writes a sorted run: for each entry uvarint key length, key, and
// uvarint record, start and length of the span.
type runWriter struct {
	s     *sorter
	start int64
	buf   []byte
}

func (w *runWriter) add(e *sortEntry) error {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(e.key)))
	w.buf = append(w.buf, e.key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(e.rec))
	w.buf = binary.AppendUvarint(w.buf, uint64(e.span.Start))
	w.buf = binary.AppendUvarint(w.buf, uint64(e.span.Len()))
	if len(w.buf) < 8*runBuffer {
		return nil
	}
	return w.flush()
}

func (w *runWriter) flush() error {
	_, err := w.s.spill.WriteAt(w.buf, w.s.end)
	w.s.end += int64(len(w.buf))
	w.buf = w.buf[:0]
	return err
}

func (w *runWriter) close() error {
	err := w.flush()
	w.s.runs = append(w.s.runs, Span{Start: w.start, End: w.s.end})
	return err
}

// runReader reads a run.
type runReader struct {
	s    *sorter
	left Span // what was not read into buf
	buf  []byte
	room []byte
	head sortEntry
}

// next makes head the next entry, whose key is valid until the next call;
// io.EOF at the end.
func (r *runReader) next() error {
	const most = keyInline + keyHash + 4*binary.MaxVarintLen64
	if len(r.buf) < most && r.left.Len() > 0 {
		if r.room == nil {
			r.room = make([]byte, runBuffer)
		}
		n := copy(r.room, r.buf)
		m := min(int64(len(r.room)-n), r.left.Len())
		if err := readFull(r.s.spill, r.room[n:int64(n)+m], r.left.Start); err != nil {
			return err
		}
		r.left.Start += m
		r.buf = r.room[:int64(n)+m]
	}
	if len(r.buf) == 0 {
		return io.EOF
	}
	length, n := binary.Uvarint(r.buf)
	if n <= 0 || length > uint64(len(r.buf)-n) {
		return fail("order", r.left.Start, ErrChanged, "a sorted run reads back differently")
	}
	r.head.key = r.buf[n : n+int(length)]
	r.buf = r.buf[n+int(length):]
	var number [3]int64
	for i := range number {
		v, n := binary.Uvarint(r.buf)
		if n <= 0 {
			return fail("order", r.left.Start, ErrChanged, "a sorted run reads back differently")
		}
		number[i], r.buf = int64(v), r.buf[n:]
	}
	r.head.rec, r.head.span = number[0], Span{Start: number[1], End: number[1] + number[2]}
	return nil
}

// runHeap has the run with the least head at its top.
type runHeap struct {
	s    *sorter
	runs []*runReader
}

func (h *runHeap) Len() int           { return len(h.runs) }
func (h *runHeap) Less(i, j int) bool { return h.s.compare(&h.runs[i].head, &h.runs[j].head) < 0 }
func (h *runHeap) Swap(i, j int)      { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *runHeap) Push(x any)         { h.runs = append(h.runs, x.(*runReader)) }
func (h *runHeap) Pop() any {
	last := h.runs[len(h.runs)-1]
	h.runs = h.runs[:len(h.runs)-1]
	return last
}

// merge gives the entries of several runs in order to yield.
func (s *sorter) merge(runs []Span, yield func(e *sortEntry) error) error {
	h := &runHeap{s: s}
	for _, place := range runs {
		r := &runReader{s: s, left: place}
		if err := r.next(); err == io.EOF {
			continue
		} else if err != nil {
			return err
		}
		h.runs = append(h.runs, r)
	}
	for heap.Init(h); h.Len() > 0; {
		if s.err != nil {
			return s.err
		}
		if err := yield(&h.runs[0].head); err != nil {
			return err
		}
		if err := h.runs[0].next(); err == io.EOF {
			heap.Pop(h)
		} else if err != nil {
			return err
		} else {
			heap.Fix(h, 0)
		}
	}
	return s.err
}
