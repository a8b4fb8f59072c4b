package selector

import (
	"container/heap"
	"encoding/binary"
	"io"
)

const (
	sortFanIn = 512       // runs merged at a time
	runBuffer = 8 << 10   // bytes of a run held while it is merged
	runWrite  = 256 << 10 // bytes of a run written at a time
)

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
	for _, a := range append(s.full, s.arena) {
		if cap(a) == arenaBytes {
			s.spare = append(s.spare, a)
		}
	}
	clear(s.entries) // lets the keys go
	s.entries, s.arena, s.full, s.room = s.entries[:0], nil, nil, 0
	for level := 0; level < len(s.runs) && len(s.runs[level]) >= sortFanIn; level++ {
		if err := s.collapse(level); err != nil {
			return err
		}
	}
	return nil
}

// collapse merges the runs of a level to one of the next.
func (s *sorter) collapse(level int) error {
	w := runWriter{s: s, start: s.end, level: level + 1}
	runs := s.runs[level]
	s.runs[level] = nil
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
	s.spare = nil
	for {
		var all []Span
		for _, runs := range s.runs {
			all = append(all, runs...)
		}
		if len(all) <= sortFanIn {
			return s.merge(all, yield)
		}
		level := 0
		for len(s.runs[level]) == 0 {
			level++
		}
		if err := s.collapse(level); err != nil {
			return err
		}
	}
}

// runWriter writes a sorted run: for each entry uvarint key length, key,
// uvarint record, start and length of the span, and a byte that is 1 where the
// record's bytes follow.
type runWriter struct {
	s     *sorter
	start int64
	level int
	buf   []byte
}

func (w *runWriter) add(e *sortEntry) error {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(e.key)))
	w.buf = append(w.buf, e.key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(e.rec))
	w.buf = binary.AppendUvarint(w.buf, uint64(e.span.Start))
	w.buf = binary.AppendUvarint(w.buf, uint64(e.span.Len()))
	if e.carried() {
		w.buf = append(append(w.buf, 1), e.row...)
	} else {
		w.buf = append(w.buf, 0)
	}
	if len(w.buf) < runWrite {
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
	for len(w.s.runs) <= w.level {
		w.s.runs = append(w.s.runs, nil)
	}
	w.s.runs[w.level] = append(w.s.runs[w.level], Span{Start: w.start, End: w.s.end})
	return err
}

// runReader reads a run.
type runReader struct {
	s    *sorter
	left Span // what was not read into buf
	buf  []byte
	room []byte
	head sortEntry
	row  int64 // bytes of head's row, which come next
}

// next makes head the next entry, without its row; its key is valid until the
// next call. At the end it returns io.EOF.
func (r *runReader) next() error {
	const most = keyInline + keyHash + 4*binary.MaxVarintLen64 + 1
	inside := min(r.row, int64(len(r.buf)))
	r.buf = r.buf[inside:]
	r.left.Start += r.row - inside // of a row that nobody asked for
	r.row = 0
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
		return r.bad()
	}
	r.head = sortEntry{key: r.buf[n : n+int(length)]}
	r.buf = r.buf[n+int(length):]
	var number [3]int64
	for i := range number {
		v, n := binary.Uvarint(r.buf)
		if n <= 0 {
			return r.bad()
		}
		number[i], r.buf = int64(v), r.buf[n:]
	}
	r.head.rec, r.head.span = number[0], Span{Start: number[1], End: number[1] + number[2]}
	if len(r.buf) == 0 || r.buf[0] > 1 {
		return r.bad()
	}
	if r.buf[0] == 1 {
		r.row = number[2]
	}
	r.buf = r.buf[1:]
	if r.row < 0 || r.row > int64(len(r.buf))+r.left.Len() || r.row > rowInline {
		return r.bad()
	}
	return nil
}

func (r *runReader) bad() error {
	return fail("order", r.left.Start, ErrChanged, "a sorted run reads back differently")
}

// full gives head its row, valid like its key or until the next call of any
// reader of the sort.
func (r *runReader) full() error {
	n := int64(len(r.buf))
	if r.row <= n {
		r.head.row = r.buf[:r.row]
		return nil
	}
	if int64(cap(r.s.rows)) < r.row {
		r.s.rows = make([]byte, rowInline)
	}
	p := r.s.rows[:r.row]
	copy(p, r.buf)
	if err := readFull(r.s.spill, p[n:], r.left.Start); err != nil {
		return err
	}
	r.head.row = p
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

// merge gives the entries of several runs in order to yield, as many as are
// wanted.
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
	heap.Init(h)
	for n := int64(1); h.Len() > 0; n++ {
		if s.err != nil {
			return s.err
		}
		if err := h.runs[0].full(); err != nil {
			return err
		}
		if err := yield(&h.runs[0].head); err != nil {
			return err
		}
		if n == s.keep {
			s.limit(&h.runs[0].head)
			break
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
