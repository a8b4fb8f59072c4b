package selector

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"iter"
	"sync"

	"leafproof/merkle"
)

// IndexSource is what is known of the source that an index must be of.
type IndexSource struct {
	Root       merkle.Root // of the source, not of the index
	Size       int64       // of the source, in bytes
	Records    int64
	Layout     Layout
	Redactions []string // JSON Pointers of what the producer removed or masked
}

// Index is an opened index. It is safe for concurrent use when its reader is. It
// implements [KeyIndex].
type Index struct {
	r    io.ReaderAt
	head indexHead
	path *KeyPath

	mu     sync.Mutex
	probed map[int64]indexProbe
}

// indexProbe is how a page begins.
type indexProbe struct {
	rank   int64
	before []byte
}

// maxProbed bounds the pages whose beginnings an Index remembers.
const maxProbed = 512

var _ KeyIndex = (*Index)(nil)

// OpenIndex opens an index of size bytes over a path and holds its header to the
// source. Its pages are checked as they are read: what is not canonical, or does
// not continue the page before where both are read, is an [ErrIndex]. That the
// entries are those of the source's records is the word of whoever signed its root.
func OpenIndex(r io.ReaderAt, size int64, path *KeyPath, src IndexSource) (*Index, error) {
	spec, err := IndexSpec(src.Layout, path, src.Redactions)
	if err != nil {
		return nil, err
	}
	if size < indexPageSize {
		return nil, badIndex(0, "%d bytes, shorter than its header", size)
	}
	p := make([]byte, indexPageSize)
	if err := readFull(r, p, 0); err != nil {
		return nil, err
	}
	h, err := parseIndexHead(p, size)
	switch {
	case err != nil:
		return nil, err
	case h.root != src.Root || h.size != src.Size || h.records != src.Records:
		return nil, badIndex(8, "made for another source")
	case h.spec != SpecDigest(spec):
		return nil, badIndex(48, "made by other rules than those for %s", path)
	case path.Scalar() && h.entries != h.records:
		return nil, badIndex(88, "%d entries for %d records, each of which has one", h.entries, h.records)
	}
	return &Index{r: r, head: h, path: path, probed: make(map[int64]indexProbe)}, nil
}

// Path returns the path that the index is over.
func (x *Index) Path() *KeyPath { return x.path }

// Entries returns how many entries there are.
func (x *Index) Entries() int64 { return x.head.entries }

// Tail returns the rank of the first entry whose key cannot be told.
func (x *Index) Tail() int64 { return x.head.tail }

// Info returns the numbers of its header.
func (x *Index) Info() IndexInfo { return x.head.info() }

// page reads a page.
func (x *Index) page(room []byte, n int64, yield func(indexEntry)) (indexPage, error) {
	if err := readFull(x.r, room, (1+n)*indexPageSize); err != nil {
		return indexPage{}, err
	}
	return readIndexPage(&x.head, room, n, yield)
}

// probe reads how a page begins.
func (x *Index) probe(n int64) (indexProbe, error) {
	x.mu.Lock()
	b, ok := x.probed[n]
	x.mu.Unlock()
	if ok {
		return b, nil
	}
	var room [indexFront + 2 + maxKey]byte
	if err := readFull(x.r, room[:], (1+n)*indexPageSize); err != nil {
		return b, err
	}
	r := indexPageReader{p: room[:], i: indexFront}
	length, ok := r.length()
	if b.rank = int64(binary.LittleEndian.Uint64(room[8:])); !ok || length > maxKey || (length == 0) != (n == 0) || b.rank < n || b.rank >= x.head.entries {
		return b, badIndex((1+n)*indexPageSize, "page %d begins with no key before, or out of range", n)
	}
	b.before = bytes.Clone(room[r.i : r.i+length])
	x.mu.Lock()
	if len(x.probed) >= maxProbed {
		clear(x.probed)
	}
	x.probed[n] = b
	x.mu.Unlock()
	return b, nil
}

// search returns the last page for which in holds, which holds for the pages up to
// one, and for the first without being asked.
func (x *Index) search(ctx context.Context, in func(indexProbe) bool) (int64, error) {
	lo, hi := int64(0), x.head.pages
	for hi-lo > 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		mid := lo + (hi-lo)/2
		b, err := x.probe(mid)
		if err != nil {
			return 0, err
		}
		if in(b) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// Rank returns how many entries stand in front of a key. It reads one page, and
// how some twelve others begin.
func (x *Index) Rank(ctx context.Context, key []byte) (int64, error) {
	if x.head.pages == 0 {
		return 0, nil
	}
	n, err := x.search(ctx, func(b indexProbe) bool { return bytes.Compare(b.before, key) < 0 })
	if err != nil {
		return 0, err
	}
	var room [indexPageSize]byte
	found := int64(-1)
	p, err := x.page(room[:], n, func(e indexEntry) {
		if found < 0 && bytes.Compare(e.key, key) >= 0 {
			found = e.rank
		}
	})
	if err == nil && found < 0 {
		found = p.rank + p.entries
	}
	return found, err
}

// Run yields the entries with the ranks from, …, to−1, each valid until the next.
// A yielded error ends it.
func (x *Index) Run(ctx context.Context, from, to int64) iter.Seq2[KeyEntry, error] {
	return func(yield func(KeyEntry, error) bool) {
		stopped := false
		err := x.run(ctx, from, to, func(e indexEntry) bool {
			stopped = !yield(KeyEntry{Key: e.key, Record: e.record}, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(KeyEntry{}, err)
		}
	}
}

// run is Run. It gives the entries of a page when it has read all of it, so that
// none is of a page that is damaged.
func (x *Index) run(ctx context.Context, from, to int64, yield func(indexEntry) bool) error {
	switch {
	case from < 0 || to < from || to > x.head.entries:
		return fail("index", -1, ErrRange, "entries %d to %d of %d", from, to, x.head.entries)
	case from == to:
		return nil
	}
	n, err := x.search(ctx, func(b indexProbe) bool { return b.rank <= from })
	if err != nil {
		return err
	}
	var room [indexPageSize]byte
	var keys []byte // of the page
	var list []indexEntry
	var ends []int // of keys, by entry
	var before *indexPage
	for ; from < to; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= x.head.pages {
			return badIndex(-1, "the pages end before entry %d", from)
		}
		keys, list, ends = keys[:0], list[:0], ends[:0]
		begin := true
		p, err := x.page(room[:], n, func(e indexEntry) {
			if begin || e.fresh {
				keys, begin = append(keys, e.key...), false
			}
			list, ends = append(list, e), append(ends, len(keys))
		})
		if err == nil && before != nil {
			err = p.follows(before)
		}
		if err == nil && (p.rank > from || p.rank+p.entries <= from) {
			err = badIndex((1+n)*indexPageSize, "page %d does not have entry %d", n, from)
		}
		if err != nil {
			return err
		}
		before = &p
		start := 0
		for i, e := range list {
			if i > 0 && e.fresh {
				start = ends[i-1]
			}
			if e.rank != from {
				continue
			}
			if from++; from > to {
				return nil
			}
			e.key = keys[start:ends[i]]
			if !yield(e) {
				return nil
			}
		}
	}
	return nil
}

// Check reads all of the index: that it is canonical, and that its entries and
// keys are as many as its header says.
func (x *Index) Check(ctx context.Context) error {
	var room [indexPageSize]byte
	var before *indexPage
	distinct := int64(0)
	for n := range x.head.pages {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := x.page(room[:], n, func(e indexEntry) {
			if e.fresh {
				distinct++
			}
		})
		if err == nil && before != nil {
			err = p.follows(before)
		}
		if err != nil {
			return err
		}
		before = &p
	}
	if distinct != x.head.distinct {
		return badIndex(96, "%d keys, and it has %d", x.head.distinct, distinct)
	}
	return nil
}
