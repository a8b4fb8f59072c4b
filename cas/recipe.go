package cas

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// A recipe says which chunks a blob is made of, in two levels. Its entries, one
// for each chunk in the blob's order, stand in pages, which are chunks
// themselves: snapshots that share chunks share most of their pages. The recipe
// object lists the pages. All integers are little-endian.
//
//	header   32  "lfrcpe1\n", version u32 = 1, chunker u32, size of the blob u64, pages u32, 0 u32
//	pages    each: end u64, the number of the blob's bytes up to the end of the page's last chunk;
//	             key (32), the BLAKE3 of the page's bytes; length of the page u32
//	trailer  32  BLAKE3 of all that precedes
//
//	page     each entry: key (32), the BLAKE3 of the chunk's bytes; length of the chunk u32
//
// The object is named by the blob's root. Nothing in it has to be trusted: what
// it leads to is checked against the root like all that is read. The checksum
// only tells a damaged recipe from a damaged chunk.
const (
	recipeMagic   = "lfrcpe1\n"
	recipeVersion = 1

	recipeHeaderSize  = 32
	recipePageSize    = 8 + 32 + 4
	recipeTrailerSize = 32
	recipeEntrySize   = 32 + 4

	// A page ends after an entry whose key ends in seven zero bits, once it has
	// minPage entries, or after maxPage of them: so pages too are cut by content.
	minPage = 32
	maxPage = 512

	// recipeInMemory is up to which size a recipe object is kept in memory while
	// its blob is read: enough for a blob of some 20 GiB. Of a longer one the
	// pages are searched in the object.
	recipeInMemory = 1 << 20
)

// errRecipe says that an object is no well-formed recipe of its blob.
var errRecipe = fmt.Errorf("%w: not a well-formed recipe", ErrCorrupt)

// recipeEntry is one chunk of a blob, or one page of a recipe.
type recipeEntry struct {
	key    merkle.Root
	length uint32
}

// recipeWriter makes a recipe while a blob is cut.
type recipeWriter struct {
	chunker uint32
	size    int64
	page    []byte // entries of the open page
	pages   []byte // as the object has them
}

// add enters the next chunk. If that completes a page it returns the page, which
// is good until the next call, as a chunk to be stored.
func (w *recipeWriter) add(key merkle.Root, length int) (page []byte) {
	if len(w.page) == cap(w.page) && cap(w.page) == 0 {
		w.page = make([]byte, 0, maxPage*recipeEntrySize)
	}
	if w.full() {
		w.page = w.page[:0]
	}
	w.page = append(w.page, key[:]...)
	w.page = binary.LittleEndian.AppendUint32(w.page, uint32(length))
	w.size += int64(length)
	if !w.full() {
		return nil
	}
	return w.page
}

// full reports whether the open page is complete.
func (w *recipeWriter) full() bool {
	n := len(w.page) / recipeEntrySize
	return n >= maxPage || n >= minPage && w.page[len(w.page)-5]&0x7f == 0
}

// last returns the last page, if it was not returned yet.
func (w *recipeWriter) last() (page []byte) {
	if w.full() {
		return nil
	}
	return w.page
}

// enter lists a page that add or last returned.
func (w *recipeWriter) enter(key merkle.Root, page []byte) {
	w.pages = binary.LittleEndian.AppendUint64(w.pages, uint64(w.size))
	w.pages = append(w.pages, key[:]...)
	w.pages = binary.LittleEndian.AppendUint32(w.pages, uint32(len(page)))
}

// seal returns the recipe object.
func (w *recipeWriter) seal() []byte {
	p := make([]byte, 0, recipeHeaderSize+len(w.pages)+recipeTrailerSize)
	p = append(p, recipeMagic...)
	p = binary.LittleEndian.AppendUint32(p, recipeVersion)
	p = binary.LittleEndian.AppendUint32(p, w.chunker)
	p = binary.LittleEndian.AppendUint64(p, uint64(w.size))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(w.pages)/recipePageSize))
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = append(p, w.pages...)
	sum := blake3.Sum256(p)
	return append(p, sum[:]...)
}

// recipe is an open recipe object, whose checksum was right when it was opened.
type recipe struct {
	size  int64
	pages int
	r     io.ReaderAt
}

// openRecipe checks the recipe object in r, of n bytes, for a blob of size bytes.
// Damage is errRecipe; any other error is the reader's. Memory is bounded
// whatever the object says.
func openRecipe(r io.ReaderAt, n, size int64) (*recipe, error) {
	pages := (n - recipeHeaderSize - recipeTrailerSize) / recipePageSize
	if n != recipeHeaderSize+pages*recipePageSize+recipeTrailerSize || pages < 1 {
		return nil, fmt.Errorf("%w: it has %d bytes", errRecipe, n)
	}
	if n <= recipeInMemory {
		p := make([]byte, n)
		if err := readFullAt(r, p, 0); err != nil {
			return nil, err
		}
		r = bytes.NewReader(p)
	}
	hasher := blake3.New()
	switch copied, err := io.Copy(hasher, io.NewSectionReader(r, 0, n-recipeTrailerSize)); {
	case err != nil:
		return nil, err
	case copied != n-recipeTrailerSize:
		return nil, errShort
	}
	var sum [recipeTrailerSize]byte
	var head [recipeHeaderSize]byte
	if err := errors.Join(readFullAt(r, sum[:], n-recipeTrailerSize), readFullAt(r, head[:], 0)); err != nil {
		return nil, err
	}
	if !bytes.Equal(hasher.Sum(nil), sum[:]) {
		return nil, fmt.Errorf("%w: its checksum is another", errRecipe)
	}
	if string(head[:8]) != recipeMagic || binary.LittleEndian.Uint32(head[8:]) != recipeVersion || binary.LittleEndian.Uint32(head[28:]) != 0 {
		return nil, fmt.Errorf("%w: its header is not that of version %d", errRecipe, recipeVersion)
	}
	c := &recipe{size: size, pages: int(pages), r: r}
	_, end, err := c.page(c.pages - 1)
	switch {
	case err != nil:
		return nil, err
	case int64(binary.LittleEndian.Uint32(head[24:])) != pages, binary.LittleEndian.Uint64(head[16:]) != uint64(size), end != size:
		return nil, fmt.Errorf("%w: it is for other bytes than %d", errRecipe, size)
	}
	return c, nil
}

// page returns page number i, and how many bytes of the blob end with it.
func (c *recipe) page(i int) (recipeEntry, int64, error) {
	var p [recipePageSize]byte
	if err := readFullAt(c.r, p[:], recipeHeaderSize+int64(i)*recipePageSize); err != nil {
		return recipeEntry{}, 0, err
	}
	e := recipeEntry{merkle.Root(p[8:40]), binary.LittleEndian.Uint32(p[40:])}
	end := binary.LittleEndian.Uint64(p[:])
	if end > uint64(c.size) || e.length == 0 || e.length > maxPage*recipeEntrySize || e.length%recipeEntrySize != 0 {
		return recipeEntry{}, 0, fmt.Errorf("%w: its page %d", errRecipe, i)
	}
	return e, int64(end), nil
}

// find returns the number of the page that has the blob's byte off, and where in
// the blob that page begins.
func (c *recipe) find(off int64) (i int, start int64, err error) {
	i = sort.Search(c.pages, func(i int) bool {
		_, end, e := c.page(i)
		if e != nil {
			err = e
		}
		return end > off
	})
	if err == nil && i > 0 {
		_, start, err = c.page(i - 1)
	}
	if err == nil && (i == c.pages || start > off) {
		err = fmt.Errorf("%w: its pages are not in order", errRecipe)
	}
	return i, start, err
}

// entryAt is entry number i of a page whose bytes were checked.
func entryAt(page []byte, i int) recipeEntry {
	p := page[i*recipeEntrySize:]
	return recipeEntry{merkle.Root(p[:32]), binary.LittleEndian.Uint32(p[32:])}
}
