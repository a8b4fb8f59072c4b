package cas

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"leafproof/merkle"
)

// The pack's inside, for tests in cas_test.

// SealPack returns a pack of these blobs.
func SealPack(blobs ...[]byte) (merkle.Root, []byte) {
	var w packWriter
	for _, p := range blobs {
		w.add(merkle.Sum(p), p)
	}
	id, size, parts := w.seal()
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	if int64(len(out)) != size {
		panic("seal states another size than it has")
	}
	return id, out
}

// ParsePackFooter returns the blobs' places in a footer that passes.
func ParsePackFooter(p []byte, limit int64) (map[merkle.Root][2]int64, error) {
	runs, keys, err := parseFooter(p, limit)
	if err != nil {
		return nil, err
	}
	out := make(map[merkle.Root][2]int64)
	for _, k := range locate(runs, keys) {
		out[k.root] = [2]int64{int64(k.at) + int64(k.off), int64(k.length)}
	}
	return out, nil
}

// Chunkers are all of them, by id.
func Chunkers() map[uint32]*chunker {
	return map[uint32]*chunker{1: &recordChunker, 2: &byteChunker}
}

// Cut returns the ends of the chunks of p, which are found in blocks of the sizes
// that block returns, each scanned by a goroutine of its own.
func (c *chunker) Cut(p []byte, block func() int) (ends []int) {
	var bounds []int
	for at := 0; at < len(p); {
		at = min(len(p), at+block())
		bounds = append(bounds, at)
	}
	found := make([][]candidate, len(bounds))
	var all sync.WaitGroup
	for i, end := range bounds {
		from := 0
		if i > 0 {
			from = bounds[i-1]
		}
		all.Go(func() { found[i], _ = c.scan(p[:end], from, nil, nil) })
	}
	all.Wait()
	start := 0
	for i, end := range bounds {
		ends, start = c.cut(start, end, found[i], i == len(bounds)-1, ends)
	}
	return ends
}

// Bounds returns the sizes that say where a chunk may end, and the bits of the masks.
func (c *chunker) Bounds() (least, normal, most int, loose, strict uint64) {
	return c.min, c.normal, c.max, c.loose, c.strict
}

// GearTable is the gear table.
func GearTable() [256]uint64 {
	makeGear()
	return gear
}

// SealRun returns a pack of one compressed run that states these lengths.
func SealRun(root merkle.Root, length, raw uint32, stored []byte) (merkle.Root, []byte) {
	var w packWriter
	w.addRun(newRun{codec: codecZstd, raw: raw, stored: stored}, []packKey{{root: root, length: length}})
	id, _, parts := w.seal()
	return id, bytes.Join(parts, nil)
}

// DecodeRun is decodeRun of a compressed run.
func DecodeRun(raw uint32, stored []byte) ([]byte, error) {
	return decodeRun(codecZstd, raw, stored, nil)
}

// OpenRecipe returns the keys and lengths of the pages of a recipe object.
func OpenRecipe(p []byte, size int64) (pages []string, err error) {
	r, err := openRecipe(bytes.NewReader(p), int64(len(p)), size)
	if err != nil {
		return nil, err
	}
	for i := range r.pages {
		e, end, err := r.page(i)
		if err != nil {
			return nil, err
		}
		pages = append(pages, fmt.Sprintf("%s %d %d", e.key, e.length, end))
	}
	return pages, nil
}

// Stream makes chunked puts into s write packs of at most pack bytes straight
// into the backend once their blob has from bytes.
func Stream(s *Store, from int64, pack int) { s.streamFrom, s.streamPack = from, pack }

// UploadMark returns the mark of an upload.
func UploadMark(nonce uint64, size int64, done bool, root merkle.Root) []byte {
	return uploadMark{nonce, size, done, root}.bytes()
}

// ParseUploadMark returns the bytes of what is read from a mark.
func ParseUploadMark(p []byte) ([]byte, error) {
	m, err := parseUploadMark(p)
	return m.bytes(), err
}

// Coarse makes the chunks of records coarse from this byte of a blob on.
func Coarse(s *Store, from int64) { s.coarseFrom = from }

// SetUploadMark replaces the mark of an upload by any bytes.
func (s *Store) SetUploadMark(ctx context.Context, t Tenant, id string, mark []byte) error {
	return s.b.(Uploader).SetMark(ctx, t, uploadKey(id), mark)
}
