package cas

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/bits"
	"sort"

	"leafproof/merkle"
)

// An index file says where the blobs of some packs lie: a cache of their
// footers, sorted by root. It is never the only copy of anything. All integers
// are little-endian. The file is a row of pages of 4,096 bytes; each ends in a
// CRC32C over the first 16 bytes of the file's ID, the page's number (u32) and
// the page's other bytes, so that a page that is torn, zero-filled or another
// file's is never used.
//
//	page 0   "lfindx1\n", version u32 = 1, 0 u32, packs u32, runs u32, bloom pages u32, 0 u32, entries u64
//	packs    × {ID (32), generation u32, size u32, first run u32, runs u32}, 85 a page, ascending by name
//	runs     × {pack u32, offset u32, codec u32, raw u32, stored u32}, 204 a page, by pack, then offset
//	bloom    one filter of 32,736 bits a page; a root's page is its place among them (see bloomPage)
//	entries  × {root (32), run u32, offset in the raw run u32, length u32}, 93 a page, ascending by root
//
// The ID is the BLAKE3 of the packs' records, one after the other: two files
// over the same packs say the same.
const (
	indexMagic   = "lfindx1\n"
	indexVersion = 1

	pageSize  = 4096
	pageBody  = pageSize - 4
	packsPage = pageBody / packRecord
	runsPage  = pageBody / runRecord
	keysPage  = pageBody / keyRecord
	bloomBits = pageBody * 8

	packRecord = 48
	runRecord  = 20
	keyRecord  = 44

	// bloomPerKey is how many bits of a filter there are for each key, and
	// bloomHashes how many of them a key sets: about 1 foreign key in 120
	// passes.
	bloomPerKey = 10
	bloomHashes = 7
)

// errIndex says that an object is no well-formed index file, or not any more.
var errIndex = errors.New("not a well-formed index file")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// page is the bytes of one page, checked. It is never changed.
type page [pageSize]byte

func pageSum(id merkle.Root, number uint32, p []byte) uint32 {
	var head [20]byte
	copy(head[:], id[:16])
	binary.LittleEndian.PutUint32(head[16:], number)
	return crc32.Update(crc32.Update(0, castagnoli, head[:]), castagnoli, p[:pageBody])
}

// prefix is the number by which roots, which are uniform, find their page.
func prefix(root merkle.Root) uint64 { return binary.BigEndian.Uint64(root[:]) }

// bloomPage is the page, of n, of the filter that has the bits of a root: roots
// in ascending order fill one page after the other.
func bloomPage(root merkle.Root, n uint32) uint32 {
	page, _ := bits.Mul64(prefix(root), uint64(n))
	return uint32(page)
}

// bloomBit is the i-th bit of a root within its page.
func bloomBit(root merkle.Root, i int) (at int, mask byte) {
	a, b := binary.LittleEndian.Uint64(root[16:]), binary.LittleEndian.Uint64(root[24:])|1
	bit := (a + uint64(i)*b) % bloomBits
	return int(bit / 8), 1 << (bit % 8)
}

// indexPack is a pack as an index file lists it.
type indexPack struct {
	name            Name
	size            uint32
	firstRun, nRuns uint32
}

func appendPack(p []byte, k indexPack) []byte {
	p = append(p, k.name.ID[:]...)
	for _, n := range [...]uint32{k.name.Gen, k.size, k.firstRun, k.nRuns} {
		p = binary.LittleEndian.AppendUint32(p, n)
	}
	return p
}

// indexRun is a run as an index file lists it.
type indexRun struct {
	pack        uint32
	at          uint32 // offset of the stored bytes in the pack
	codec       uint32
	raw, stored uint32
}

func (r indexRun) compare(s indexRun) int {
	return cmp.Or(cmp.Compare(r.pack, s.pack), cmp.Compare(r.at, s.at))
}

func appendRun(p []byte, r indexRun) []byte {
	for _, n := range [...]uint32{r.pack, r.at, r.codec, r.raw, r.stored} {
		p = binary.LittleEndian.AppendUint32(p, n)
	}
	return p
}

func parseRun(p []byte) indexRun {
	u := binary.LittleEndian.Uint32
	return indexRun{u(p), u(p[4:]), u(p[8:]), u(p[12:]), u(p[16:])}
}

// indexEntry is a key as an index file lists it.
type indexEntry struct {
	root             merkle.Root
	run, off, length uint32
}

func appendEntry(p []byte, e indexEntry) []byte {
	p = append(p, e.root[:]...)
	for _, n := range [...]uint32{e.run, e.off, e.length} {
		p = binary.LittleEndian.AppendUint32(p, n)
	}
	return p
}

func parseEntry(p []byte) indexEntry {
	u := binary.LittleEndian.Uint32
	return indexEntry{merkle.Root(p[:32]), u(p[32:]), u(p[36:]), u(p[40:])}
}

func (e indexEntry) compare(f indexEntry) int {
	return cmp.Or(bytes.Compare(e.root[:], f.root[:]), cmp.Compare(e.run, f.run))
}

// indexShape is the layout that the head of an index file states.
type indexShape struct {
	packs, runs, blooms uint32
	entries             uint64
}

func pagesOf(n, each uint64) uint64 { return (n + each - 1) / each }

func (s indexShape) firstRunPage() uint64 { return 1 + pagesOf(uint64(s.packs), packsPage) }
func (s indexShape) firstBloomPage() uint64 {
	return s.firstRunPage() + pagesOf(uint64(s.runs), runsPage)
}
func (s indexShape) firstEntryPage() uint64 { return s.firstBloomPage() + uint64(s.blooms) }
func (s indexShape) entryPages() uint64     { return pagesOf(s.entries, keysPage) }
func (s indexShape) pages() uint64          { return s.firstEntryPage() + s.entryPages() }

// indexSource is what an index file is written from.
type indexSource struct {
	packs   []indexPack // ascending by name; their runs follow each other from 0 on
	runs    iter.Seq2[indexRun, error]
	entries iter.Seq2[indexEntry, error] // ascending
	atMost  uint64                       // how many entries there can be
}

// indexID is the ID of the file over these packs.
func indexID(packs []indexPack) merkle.Root {
	all := make([]byte, 0, len(packs)*packRecord)
	for _, k := range packs {
		all = appendPack(all, k)
	}
	return merkle.Sum(all)
}

// pageWriter fills pages from a given number on.
type pageWriter struct {
	w    io.WriterAt
	id   merkle.Root
	next uint64
	buf  []byte // of the open page
	full []byte // closed pages that wait for a larger write
}

func (w *pageWriter) room(record int) error {
	if len(w.buf)+record > pageBody {
		return w.close()
	}
	return nil
}

// close ends the open page, also an empty one.
func (w *pageWriter) close() error {
	n := len(w.full)
	w.full = append(w.full, w.buf...)
	w.full = append(w.full, make([]byte, pageSize-len(w.buf))...)
	w.buf = w.buf[:0]
	p := w.full[n:]
	number := uint32(w.next + uint64(n/pageSize))
	binary.LittleEndian.PutUint32(p[pageBody:], pageSum(w.id, number, p))
	if len(w.full) >= 64*pageSize {
		return w.flush()
	}
	return nil
}

func (w *pageWriter) flush() error {
	_, err := w.w.WriteAt(w.full, int64(w.next)*pageSize)
	w.next += uint64(len(w.full) / pageSize)
	w.full = w.full[:0]
	return err
}

// end writes what is left.
func (w *pageWriter) end() error {
	if len(w.buf) > 0 {
		if err := w.close(); err != nil {
			return err
		}
	}
	return w.flush()
}

// writeIndex writes an index file and returns its ID and its size. Its memory is
// some pages and the list of packs.
func writeIndex(ctx context.Context, w io.WriterAt, src indexSource) (merkle.Root, int64, error) {
	id := indexID(src.packs)
	fail := func(err error) (merkle.Root, int64, error) { return id, 0, err }
	shape := indexShape{packs: uint32(len(src.packs)), blooms: uint32(max(1, pagesOf(src.atMost*bloomPerKey, bloomBits)))}

	out := pageWriter{w: w, id: id, next: 1}
	for _, k := range src.packs {
		if err := out.room(packRecord); err != nil {
			return fail(err)
		}
		out.buf = appendPack(out.buf, k)
	}
	if err := out.end(); err != nil {
		return fail(err)
	}
	for run, err := range src.runs {
		if err == nil {
			err = out.room(runRecord)
		}
		if err != nil {
			return fail(err)
		}
		out.buf = appendRun(out.buf, run)
		shape.runs++
	}
	if err := out.end(); err != nil {
		return fail(err)
	}

	// Keys ascend, and so do their pages in the filter: one of them is open.
	filter := pageWriter{w: w, id: id, next: shape.firstBloomPage(), buf: make([]byte, pageBody)}
	out.next = shape.firstEntryPage()
	open := uint32(0)
	advance := func(to uint32) error {
		for ; open < to; open++ {
			if err := filter.close(); err != nil {
				return err
			}
			filter.buf = filter.buf[:pageBody]
			clear(filter.buf)
		}
		return nil
	}
	for e, err := range src.entries {
		if err == nil {
			err = cmp.Or(advance(bloomPage(e.root, shape.blooms)), out.room(keyRecord))
		}
		if err == nil && shape.entries%(1<<16) == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return fail(err)
		}
		for i := range bloomHashes {
			at, mask := bloomBit(e.root, i)
			filter.buf[at] |= mask
		}
		out.buf = appendEntry(out.buf, e)
		shape.entries++
	}
	if err := cmp.Or(out.end(), advance(shape.blooms), filter.flush()); err != nil {
		return fail(err)
	}
	if shape.pages() > 1<<31 {
		return fail(fmt.Errorf("%w: it would have %d pages", errIndex, shape.pages()))
	}
	head := pageWriter{w: w, id: id}
	head.buf = append(head.buf, indexMagic...)
	for _, n := range [...]uint32{indexVersion, 0, shape.packs, shape.runs, shape.blooms, 0} {
		head.buf = binary.LittleEndian.AppendUint32(head.buf, n)
	}
	head.buf = binary.LittleEndian.AppendUint64(head.buf, shape.entries)
	return id, int64(shape.pages()) * pageSize, head.end()
}

// indexFile is an open index file.
type indexFile struct {
	name    Name
	serial  int64 // for the page cache
	o       Object
	cache   *pageCache
	shape   indexShape
	packs   []indexPack
	private bool    // in a temporary file of this process
	number  []int32 // of each pack in this process
}

// openIndex reads and checks the head and the packs of an index file. What is
// malformed is errIndex; any other error is the reader's. It allocates only for
// what the object really has.
func openIndex(o Object, name Name, cache *pageCache) (*indexFile, error) {
	f := &indexFile{name: name, serial: cache.serial.Add(1), o: o, cache: cache}
	bad := func(format string, args ...any) (*indexFile, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{errIndex}, args...)...)
	}
	if o.Size() < pageSize || o.Size()%pageSize != 0 || o.Size()/pageSize > 1<<31 {
		return bad("it has %d bytes", o.Size())
	}
	head, err := f.page(0)
	if err != nil {
		return nil, err
	}
	u := binary.LittleEndian.Uint32
	if string(head[:8]) != indexMagic || u(head[8:]) != indexVersion {
		return bad("its head is not that of an index file of version %d", indexVersion)
	}
	f.shape = indexShape{u(head[16:]), u(head[20:]), u(head[24:]), binary.LittleEndian.Uint64(head[32:])}
	pages := uint64(o.Size() / pageSize)
	if f.shape.entries > pages*keysPage || f.shape.blooms == 0 || f.shape.pages() != pages {
		return bad("it has another length than it states")
	}
	var records []byte
	runs := uint32(0)
	for i := range f.shape.packs {
		p, err := f.page(1 + uint64(i/packsPage))
		if err != nil {
			return nil, err
		}
		rec := p[i%packsPage*packRecord:][:packRecord]
		k := indexPack{Name{name.Tenant, KindPack, merkle.Root(rec[:32]), u(rec[32:])}, u(rec[36:]), u(rec[40:]), u(rec[44:])}
		if i > 0 && f.packs[i-1].name.Compare(k.name) >= 0 || k.firstRun != runs || k.nRuns > f.shape.runs-runs {
			return bad("pack %d of its list is out of order", i)
		}
		runs += k.nRuns
		f.packs = append(f.packs, k)
		records = append(records, rec...)
	}
	if runs != f.shape.runs || merkle.Sum(records) != name.ID {
		return bad("its list of packs does not match its name")
	}
	return f, nil
}

// page returns a checked page, from the cache if it is there.
func (f *indexFile) page(number uint64) (*page, error) {
	key := pageKey{f.serial, uint32(number)}
	if p := f.cache.get(key); p != nil {
		return p, nil
	}
	p := new(page)
	if err := readFullAt(f.o, p[:], int64(number)*pageSize); err != nil {
		if errors.Is(err, errShort) {
			err = fmt.Errorf("%w: %w", errIndex, err)
		}
		return nil, err
	}
	if binary.LittleEndian.Uint32(p[pageBody:]) != pageSum(f.name.ID, uint32(number), p[:]) {
		return nil, fmt.Errorf("%w: page %d does not match its checksum", errIndex, number)
	}
	f.cache.put(key, p)
	return p, nil
}

// find returns the entries of a root.
func (f *indexFile) find(root merkle.Root) ([]indexEntry, error) {
	filter, err := f.page(f.shape.firstBloomPage() + uint64(bloomPage(root, f.shape.blooms)))
	if err != nil {
		return nil, err
	}
	for i := range bloomHashes {
		if at, mask := bloomBit(root, i); filter[at]&mask == 0 {
			return nil, nil
		}
	}
	i, err := f.search(root)
	if err != nil {
		return nil, err
	}
	var out []indexEntry
	for ; i < f.shape.entries && len(out) < maxCopies; i++ {
		e, err := f.entry(i)
		if err != nil {
			return nil, err
		}
		if e.root != root {
			break
		}
		out = append(out, e)
	}
	return out, nil
}

// maxCopies is how many copies of one blob are looked at in one index file.
const maxCopies = 64

func (f *indexFile) entry(i uint64) (indexEntry, error) {
	p, err := f.page(f.shape.firstEntryPage() + i/keysPage)
	if err != nil {
		return indexEntry{}, err
	}
	return parseEntry(p[i%keysPage*keyRecord:]), nil
}

// search returns the number of the first entry that is not before root. Roots
// are uniform, so that a page's place follows from the root: interpolation comes
// to the right page in a few steps; when it does not, halving goes on.
func (f *indexFile) search(root merkle.Root) (uint64, error) {
	// The answer is within pages [low, high), or the first of page high. What
	// is before page low begins with at most from, what follows with at least to.
	low, high := uint64(0), f.shape.entryPages()
	from, to := uint64(0), ^uint64(0)
	for step := 0; low < high; step++ {
		mid := low + (high-low)/2
		if at := prefix(root); step < 8 && from <= at && at <= to && from < to {
			hi, lo := bits.Mul64(at-from, high-low)
			quo, _ := bits.Div64(hi, lo, to-from)
			mid = min(low+quo, high-1)
		}
		p, err := f.page(f.shape.firstEntryPage() + mid)
		if err != nil {
			return 0, err
		}
		n := int(min(keysPage, f.shape.entries-mid*keysPage))
		first, last := p[:32], p[(n-1)*keyRecord:][:32]
		switch {
		case bytes.Compare(root[:], first) <= 0:
			high, to = mid, binary.BigEndian.Uint64(first)
		case bytes.Compare(root[:], last) > 0:
			low, from = mid+1, binary.BigEndian.Uint64(last)
		default:
			i := sort.Search(n, func(i int) bool { return bytes.Compare(p[i*keyRecord:][:32], root[:]) >= 0 })
			return mid*keysPage + uint64(i), nil
		}
	}
	return low * keysPage, nil
}

// stream yields the records of n items from a page on, reading ahead and past
// the cache.
func (f *indexFile) stream(first, n uint64, record, each int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		room := make([]byte, 64*pageSize)
		var buf []byte
		end := first + pagesOf(n, uint64(each))
		for number := first; n > 0; number++ {
			if len(buf) == 0 {
				buf = room[:min(uint64(len(room)), (end-number)*pageSize)]
				if err := readFullAt(f.o, buf, int64(number)*pageSize); err != nil {
					yield(nil, err)
					return
				}
			}
			p := buf[:pageSize]
			if binary.LittleEndian.Uint32(p[pageBody:]) != pageSum(f.name.ID, uint32(number), p) {
				yield(nil, fmt.Errorf("%w: page %d does not match its checksum", errIndex, number))
				return
			}
			for i := 0; i < each && n > 0; i++ {
				if !yield(p[i*record:][:record], nil) {
					return
				}
				n--
			}
			buf = buf[pageSize:]
		}
	}
}

// run returns a run by its number.
func (f *indexFile) run(i uint32) (indexRun, error) {
	if i >= f.shape.runs {
		return indexRun{}, fmt.Errorf("%w: run %d of %d", errIndex, i, f.shape.runs)
	}
	p, err := f.page(f.shape.firstRunPage() + uint64(i/runsPage))
	if err != nil {
		return indexRun{}, err
	}
	r := parseRun(p[i%runsPage*runRecord:])
	if r.pack >= f.shape.packs {
		return indexRun{}, fmt.Errorf("%w: pack %d of %d", errIndex, r.pack, f.shape.packs)
	}
	return r, nil
}
