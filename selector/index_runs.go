package selector

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"sync"
)

// stage collects the entries of one path until there are enough of them to sort.
type stage struct {
	room    int // bytes that they may take
	keys    []byte
	entries []stageEntry
	first   int64 // record that the entries' count from
	out     []byte
}

// stageEntry is an entry on its way through a sort.
type stageEntry struct {
	prefix uint64 // the eight bytes of the key behind what all keys have in common
	start  uint32 // where the key stands
	end    uint32
	record uint32 // less first
}

const stageCost = 20 + 4 // bytes of an entry beside its key

// stageLeast is the least room of a stage: it holds several of the longest keys.
const stageLeast = 16 << 10

func newStage(room int) *stage { return &stage{room: room} }

// full reports whether the stage has no room for another entry of a record.
func (s *stage) full(record int64) bool {
	return len(s.keys)+stageCost*len(s.entries) > s.room-maxKey-stageCost || len(s.entries) > 0 && record-s.first > math.MaxUint32
}

// add takes an entry, of a record that is not less than the one before.
func (s *stage) add(key []byte, record int64) {
	if len(s.entries) == 0 {
		s.first = record
	}
	start := len(s.keys)
	s.keys = append(s.keys, key...)
	s.entries = append(s.entries, stageEntry{start: uint32(start), end: uint32(len(s.keys)), record: uint32(record - s.first)})
}

// sort puts the entries in order.
func (s *stage) sort() {
	keys := s.keys
	common := maxKey
	one := s.entries[0]
	for _, e := range s.entries[1:] {
		if n := commonPrefix(keys[one.start:one.end], keys[e.start:e.end]); n < common {
			if common = n; n == 0 {
				break
			}
		}
	}
	common = min(common, int(one.end-one.start))
	for i := range s.entries {
		e := &s.entries[i]
		e.prefix = prefixOf(keys[e.start+uint32(common) : e.end])
	}
	slices.SortFunc(s.entries, func(a, b stageEntry) int {
		if a.prefix != b.prefix {
			if a.prefix < b.prefix {
				return -1
			}
			return 1
		}
		if c := bytes.Compare(keys[a.start:a.end], keys[b.start:b.end]); c != 0 {
			return c
		}
		return cmp.Compare(a.record, b.record)
	})
}

// prefixOf is the first eight bytes of p as a number, with zeros behind it.
func prefixOf(p []byte) uint64 {
	if len(p) >= 8 {
		return binary.BigEndian.Uint64(p)
	}
	var b [8]byte
	copy(b[:], p)
	return binary.BigEndian.Uint64(b[:])
}

// run sorts the entries, returns them as a run, valid until the next, and empties
// the stage.
func (s *stage) run() []byte {
	s.sort()
	w := runEncoder{out: s.out[:0]}
	for i := 0; i < len(s.entries); {
		key := s.keys[s.entries[i].start:s.entries[i].end]
		n := i + 1
		for n < len(s.entries) && bytes.Equal(s.keys[s.entries[n].start:s.entries[n].end], key) {
			n++
		}
		w.group(key, n-i)
		for ; i < n; i++ {
			w.record(s.first + int64(s.entries[i].record))
		}
	}
	s.out = w.out
	s.keys, s.entries = s.keys[:0], s.entries[:0]
	return s.out
}

// runEncoder writes a sorted run: for each key uvarint shared, uvarint length of the
// suffix, the suffix and uvarint n, then n records, the first as it is, others less
// the one before.
type runEncoder struct {
	out  []byte
	key  []byte
	last int64
}

func (w *runEncoder) group(key []byte, n int) {
	shared := commonPrefix(key, w.key)
	w.out = binary.AppendUvarint(w.out, uint64(shared))
	w.out = binary.AppendUvarint(w.out, uint64(len(key)-shared))
	w.out = append(w.out, key[shared:]...)
	w.out = binary.AppendUvarint(w.out, uint64(n))
	w.key, w.last = append(w.key[:0], key...), 0
}

func (w *runEncoder) record(rec int64) {
	w.out = binary.AppendUvarint(w.out, uint64(rec-w.last))
	w.last = rec
}

// keyRun is a sorted run of a path: in memory, or a place in the spill.
type keyRun struct {
	mem   []byte
	place Span
}

// runStore keeps the runs of all paths, in memory as far as there is room.
type runStore struct {
	mu     sync.Mutex
	memory int64 // bytes that runs may take there
	spill  Spill // nil: none
	used   int64
	end    int64 // of the spill
	runs   [][]keyRun

	collapsing sync.Mutex
}

// add keeps a copy of a run of a path.
func (s *runStore) add(path int, run []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+int64(len(run)) > s.memory {
		if s.spill == nil {
			return fail("index", -1, ErrLimit, "the index needs more memory than it may have, and there is no room to spill")
		}
		for p := range s.runs {
			for i := range s.runs[p] {
				if r := &s.runs[p][i]; r.mem != nil {
					if err := s.toSpill(r); err != nil {
						return err
					}
				}
			}
		}
	}
	r := keyRun{mem: bytes.Clone(run)}
	s.used += int64(len(run))
	s.runs[path] = append(s.runs[path], r)
	return nil
}

func (s *runStore) toSpill(r *keyRun) error {
	if _, err := s.spill.WriteAt(r.mem, s.end); err != nil {
		return err
	}
	r.place = Span{Start: s.end, End: s.end + int64(len(r.mem))}
	s.end, s.used, r.mem = r.place.End, s.used-int64(len(r.mem)), nil
	return nil
}

// read reads from the spill.
func (s *runStore) read(p []byte, at int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return readFull(s.spill, p, at)
}

// indexFanIn is how many runs are merged at a time.
const indexFanIn = 256

// merge gives the entries of all runs of a path in order to take, some of them
// perhaps twice.
func (s *runStore) merge(path int, take func(key []byte, rec int64) error) error {
	runs := s.runs[path]
	s.runs[path] = nil
	for len(runs) > indexFanIn {
		var next []keyRun
		for part := range slices.Chunk(runs, indexFanIn) {
			r, err := s.collapse(part)
			if err != nil {
				return err
			}
			next = append(next, r)
		}
		runs = next
	}
	return s.mergeRuns(runs, take)
}

// collapse merges runs to one in the spill. One at a time does, so that what it
// writes stands together.
func (s *runStore) collapse(runs []keyRun) (keyRun, error) {
	s.collapsing.Lock()
	defer s.collapsing.Unlock()
	if s.spill == nil {
		return keyRun{}, fail("index", -1, ErrLimit, "%d sorted runs, and there is no room to spill", len(runs))
	}
	start := s.end
	var w runEncoder
	var key []byte
	var records []int64
	group := func() {
		if len(records) > 0 {
			w.group(key, len(records))
		}
		for _, r := range records {
			w.record(r)
		}
		records = records[:0]
	}
	flush := func(least int) error {
		if len(w.out) < least {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_, err := s.spill.WriteAt(w.out, s.end)
		s.end += int64(len(w.out))
		w.out = w.out[:0]
		return err
	}
	err := s.mergeRuns(runs, func(k []byte, rec int64) error {
		if len(records) == collapseGroup || !bytes.Equal(k, key) {
			group()
			key = append(key[:0], k...)
		}
		records = append(records, rec)
		return flush(runWrite)
	})
	group()
	if err == nil {
		err = flush(0)
	}
	return keyRun{place: Span{Start: start, End: s.end}}, err
}

// collapseGroup is how many records of a key are held at once.
const collapseGroup = 4096

// keyCursor reads a run.
type keyCursor struct {
	store *runStore
	left  Span // what was not read into buf
	buf   []byte
	room  []byte

	prefix uint64 // of key
	key    []byte
	record int64
	more   uint64 // entries of the key behind this one
}

func (c *keyCursor) bad() error {
	return fail("index", c.left.Start, ErrChanged, "a sorted run reads back differently")
}

// fill sees to it that what is read next is in buf.
func (c *keyCursor) fill() error {
	const most = maxKey + 4*binary.MaxVarintLen64
	if len(c.buf) >= most || c.left.Len() == 0 {
		return nil
	}
	if c.room == nil {
		c.room = make([]byte, runBuffer)
	}
	n := copy(c.room, c.buf)
	m := min(int64(len(c.room)-n), c.left.Len())
	if err := c.store.read(c.room[n:int64(n)+m], c.left.Start); err != nil {
		return err
	}
	c.left.Start += m
	c.buf = c.room[:int64(n)+m]
	return nil
}

// number reads a uvarint.
func (c *keyCursor) number() (uint64, bool) {
	v, n := binary.Uvarint(c.buf)
	if n <= 0 {
		return 0, false
	}
	c.buf = c.buf[n:]
	return v, true
}

// next goes to the next entry; at the end it returns io.EOF.
func (c *keyCursor) next() error {
	if err := c.fill(); err != nil {
		return err
	}
	if c.more > 0 {
		d, ok := c.number()
		if !ok {
			return c.bad()
		}
		c.more--
		c.record += int64(d)
		return nil
	}
	if len(c.buf) == 0 {
		return io.EOF
	}
	shared, ok := c.number()
	suffix, ok2 := c.number()
	if !ok || !ok2 || shared > uint64(len(c.key)) || suffix > uint64(len(c.buf)) {
		return c.bad()
	}
	c.key = append(c.key[:shared], c.buf[:suffix]...)
	c.buf = c.buf[suffix:]
	n, ok := c.number()
	rec, ok2 := c.number()
	if !ok || !ok2 || n == 0 {
		return c.bad()
	}
	c.prefix, c.record, c.more = prefixOf(c.key), int64(rec), n-1
	return nil
}

// less orders two cursors by the entries they stand at.
func (c *keyCursor) less(d *keyCursor) bool {
	if c.prefix != d.prefix {
		return c.prefix < d.prefix
	}
	if k := bytes.Compare(c.key, d.key); k != 0 {
		return k < 0
	}
	return c.record < d.record
}

// mergeRuns gives the entries of runs in order to take.
func (s *runStore) mergeRuns(runs []keyRun, take func(key []byte, rec int64) error) error {
	h := make([]*keyCursor, 0, len(runs))
	for _, r := range runs {
		c := &keyCursor{store: s, left: r.place, buf: r.mem}
		if err := c.next(); err == io.EOF {
			continue
		} else if err != nil {
			return err
		}
		h = append(h, c)
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for len(h) > 0 {
		c := h[0]
		if err := take(c.key, c.record); err != nil {
			return err
		}
		switch err := c.next(); {
		case err == io.EOF:
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		case err != nil:
			return err
		}
		siftDown(h, 0)
	}
	return nil
}

// siftDown moves the cursor at i to its place in a heap.
func siftDown(h []*keyCursor, i int) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if r := least + 1; r < len(h) && h[r].less(h[least]) {
			least = r
		}
		if !h[least].less(h[i]) {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
