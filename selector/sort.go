package selector

import (
	"bytes"
	"cmp"
	"context"
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
	sortMemory = 2 << 20   // bytes of a sorted run, by default
	entryCost  = 80        // bytes of an entry besides its key and row
	arenaBytes = 256 << 10 // bytes of keys and rows that are allocated at a time, at most
	rowInline  = 64 << 10  // a longer row is read from the source again when its turn comes
	rowSmall   = 4 << 10   // one that is carried however many are wanted
	keyInline  = 1 << 10   // a longer key is cut there, and read again where that matters
	keyHash    = 16
	rereadMax  = 1 << 30 // bytes of records read again in one sort
)

// sortEntry is a matching record on its way through a sort. Entries are
// ordered by key, then by record number.
type sortEntry struct {
	key  []byte // cut: the first keyInline bytes and a hash of the whole
	row  []byte // the record's bytes, where they are carried
	rec  int64
	span Span
}

// carried reports whether the entry has the record's bytes.
func (e *sortEntry) carried() bool { return int64(len(e.row)) == e.span.Len() }

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
// rows where only so many are wanted, and writes sorted runs otherwise. Rows of
// usual length go with their keys: to read each from its place in the source, in
// another order than it stands there, costs far more than the sort.
type sorter struct {
	ctx    context.Context
	memory int64                                   // bytes that the entries may take
	keep   int64                                   // how many rows are wanted; 0: all
	carry  int64                                   // rows up to this length are carried
	after  *sortEntry                              // only what comes behind it; nil: all
	spill  Spill                                   // nil: none
	whole  func(rec int64, s Span) ([]byte, error) // reads a record's whole key again

	entries []sortEntry
	arena   []byte   // the latest keys and rows of entries
	full    [][]byte // earlier ones
	spare   [][]byte // room of ones that went to a run
	room    int64    // bytes that the entries take
	bound   *sortEntry
	runs    [][]Span // places in spill, by how often they were merged
	end     int64    // of spill
	rows    []byte   // room for a row while runs are merged
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

// carryRows decides how long the rows that are carried may be: with few wanted,
// those stay in memory.
func (s *sorter) carryRows() {
	switch {
	case s.spill == nil:
	case s.keep == 0:
		s.carry = rowInline
	default:
		s.carry = min(rowInline, max(rowSmall, s.memory/4/s.keep))
	}
}

// add takes a row. Neither key nor row is kept.
func (s *sorter) add(key []byte, rec int64, span Span, row []byte) error {
	e := sortEntry{key: key, rec: rec, span: span}
	if s.after != nil && s.compare(&e, s.after) <= 0 || s.bound != nil && s.compare(&e, s.bound) > 0 {
		return s.err
	}
	if span.Len() > s.carry {
		row = nil
	}
	s.entries = append(s.entries, s.keeping(e, row))
	s.room += int64(len(key)) + int64(len(row)) + entryCost
	if s.room >= s.memory || s.keep > 0 && int64(len(s.entries)) >= max(2*s.keep, 4096) {
		return s.shrink()
	}
	return s.err
}

// keeping returns an entry with a copy of its key and of a row.
func (s *sorter) keeping(e sortEntry, row []byte) sortEntry {
	n := len(e.key) + len(row)
	if n > cap(s.arena)-len(s.arena) {
		s.full = append(s.full, s.arena)
		if k := len(s.spare); k > 0 {
			s.arena, s.spare = s.spare[k-1][:0], s.spare[:k-1]
		} else {
			s.arena = make([]byte, 0, max(min(max(64<<10, 2*cap(s.arena)), arenaBytes), n))
		}
	}
	at := len(s.arena)
	s.arena = append(append(s.arena, e.key...), row...)
	kept := s.arena[at:len(s.arena):len(s.arena)]
	e.key, e.row = kept[:len(e.key):len(e.key)], kept[len(e.key):]
	return e
}

// shrink drops what is not wanted and, where that is not enough, writes a run.
func (s *sorter) shrink() error {
	s.order()
	if s.keep > 0 && int64(len(s.entries)) > s.keep {
		s.entries = s.entries[:s.keep]
		s.recount()
		s.limit(&s.entries[s.keep-1])
	}
	if s.err == nil && s.room > s.memory/2 {
		return s.flush()
	}
	return s.err
}

// limit says that nothing behind an entry is wanted.
func (s *sorter) limit(e *sortEntry) {
	if s.bound == nil || s.compare(e, s.bound) < 0 {
		s.bound = &sortEntry{key: bytes.Clone(e.key), rec: e.rec, span: e.span}
	}
}

// recount moves the keys and rows that are left together.
func (s *sorter) recount() {
	s.arena, s.full, s.room = nil, nil, 0
	for i, e := range s.entries {
		s.entries[i] = s.keeping(e, e.row)
		s.room += int64(len(e.key)) + int64(len(e.row)) + entryCost
	}
}

func (s *sorter) order() {
	slices.SortFunc(s.entries, func(a, b sortEntry) int { return s.compare(&a, &b) })
}
