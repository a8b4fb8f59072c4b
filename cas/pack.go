package cas

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// A pack holds many small blobs and chunks in one immutable object. All integers are
// little-endian.
//
//	header   16  "lfpack1\n", version u32 = 1, 0 u32
//	runs         each: codec u32, raw length u32, stored length u32,
//	             BLAKE3 of the stored bytes (32), then the stored bytes
//	footer       runs u32, keys u32,
//	             runs × {offset of the stored bytes u64, codec u32, raw u32, stored u32, BLAKE3 (32)},
//	             keys × {root (32), run u32, offset in the raw run u32, length u32}, ascending by root
//	trailer  56  footer offset u64, footer length u64, BLAKE3 of the footer (32), "lfpackE\n"
//
// The footer alone says what the pack holds: an index over packs is a cache of
// footers. The pack's ID is the BLAKE3 of its footer, which covers every stored
// byte through the runs' digests.
const (
	packMagic   = "lfpack1\n"
	packEnd     = "lfpackE\n"
	packVersion = 1

	packHeaderSize  = 16
	runHeaderSize   = 12 + 32
	runEntrySize    = 20 + 32
	keyEntrySize    = 32 + 12
	packTrailerSize = 16 + 32 + 8

	// maxPack bounds a pack that is accepted; maxPending bounds the blobs and
	// their footer entries in one that is written.
	maxPack    = 64 << 20
	maxPending = 16 << 20
	// runSize is the raw size at which a run is closed: neighbouring chunks
	// share a run so that the codec finds something to compress.
	runSize = 64 << 10
)

// errPack says that an object is no well-formed pack.
var errPack = errors.New("not a well-formed pack")

// packRun is a run as the footer lists it.
type packRun struct {
	offset      int64 // of the stored bytes within the pack
	codec       uint32
	raw, stored uint32
	sum         [32]byte
}

// packKey is a blob as the footer lists it.
type packKey struct {
	root        merkle.Root
	run         uint32
	off, length uint32 // within the raw run
}

// packWriter gathers blobs for one pack. The zero value is empty.
type packWriter struct {
	runs []newRun
	open int // number of the run that small blobs go to, plus 1
	keys map[merkle.Root]packKey
	size int // stored bytes, and those of the footer entries
	room int // small blobs that will come, in bytes, if that is known
}

// newRun is a run to be written. A compressed one is complete.
type newRun struct {
	codec  uint32
	raw    uint32
	stored []byte
	sum    [32]byte // of stored; zero: not computed yet

	complete bool // it was added as a whole, by addRun
}

// add appends a blob of at most one group that is not in the pack yet. It
// copies p.
func (w *packWriter) add(root merkle.Root, p []byte) {
	if w.open == 0 || len(w.runs[w.open-1].stored)+len(p) > runSize {
		w.runs = append(w.runs, newRun{stored: make([]byte, 0, max(len(p), min(w.room, runSize), 4096))})
		w.open = len(w.runs)
	}
	r := &w.runs[w.open-1]
	w.enter(packKey{root, uint32(w.open - 1), r.raw, uint32(len(p))})
	r.stored = append(r.stored, p...)
	r.raw += uint32(len(p))
	w.size += len(p)
	w.room -= len(p)
}

// addRun appends a complete run with the blobs that lie in it. Those that the
// pack has already stay where they are. It keeps r.stored.
func (w *packWriter) addRun(r newRun, keys []packKey) {
	r.complete = true
	w.runs = append(w.runs, r)
	w.size += len(r.stored) + runHeaderSize + runEntrySize
	for _, k := range keys {
		if _, ok := w.keys[k.root]; !ok {
			k.run = uint32(len(w.runs) - 1)
			w.enter(k)
		}
	}
}

func (w *packWriter) enter(k packKey) {
	if w.keys == nil {
		w.keys = make(map[merkle.Root]packKey)
	}
	w.keys[k.root] = k
	w.size += keyEntrySize
}

// get returns the bytes of a blob in the pack; the caller must not change them.
func (w *packWriter) get(root merkle.Root) ([]byte, bool) {
	k, ok := w.keys[root]
	if !ok {
		return nil, false
	}
	r := w.runs[k.run]
	raw, err := decodeRun(r.codec, r.raw, r.stored, nil)
	if err != nil {
		return nil, false // not one that encodeRun made
	}
	return raw[k.off : k.off+k.length : k.off+k.length], true
}

// list returns the runs and the keys as the footer has them.
func (w *packWriter) list() ([]packRun, []packKey) {
	runs := make([]packRun, len(w.runs))
	next := int64(packHeaderSize)
	for i := range w.runs {
		r := &w.runs[i]
		if r.sum == ([32]byte{}) {
			r.sum = blake3.Sum256(r.stored)
		}
		runs[i] = packRun{next + runHeaderSize, r.codec, r.raw, uint32(len(r.stored)), r.sum}
		next = runs[i].offset + int64(len(r.stored))
	}
	keys := make([]packKey, 0, len(w.keys))
	for _, k := range w.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, packKey.compare)
	return runs, keys
}

// compare orders keys as a footer does.
func (k packKey) compare(l packKey) int { return bytes.Compare(k.root[:], l.root[:]) }

// seal returns the pack's ID, its length and its bytes, which share memory with
// w. The same blobs added in the same order give the same pack.
func (w *packWriter) seal() (id merkle.Root, size int64, parts [][]byte) {
	runs, keys := w.list()
	parts = append(parts, packHeader())
	for i, r := range runs {
		parts = append(parts, appendRunHeader(nil, r), w.runs[i].stored)
	}
	id, end := sealPack(runs, keys)
	return id, runsEnd(runs) + int64(len(end)), append(parts, end)
}

// packHeader is the header of every pack.
func packHeader() []byte {
	p := make([]byte, 0, packHeaderSize)
	p = append(p, packMagic...)
	p = binary.LittleEndian.AppendUint32(p, packVersion)
	return binary.LittleEndian.AppendUint32(p, 0)
}

// appendRunHeader appends what precedes the stored bytes of a run.
func appendRunHeader(p []byte, r packRun) []byte {
	p = binary.LittleEndian.AppendUint32(p, r.codec)
	p = binary.LittleEndian.AppendUint32(p, r.raw)
	p = binary.LittleEndian.AppendUint32(p, r.stored)
	return append(p, r.sum[:]...)
}

// runsEnd is where the last of the runs ends, and the footer begins.
func runsEnd(runs []packRun) int64 {
	if len(runs) == 0 {
		return packHeaderSize
	}
	last := runs[len(runs)-1]
	return last.offset + int64(last.stored)
}

// sealPack returns a pack's ID and its footer and trailer. The keys are ascending.
func sealPack(runs []packRun, keys []packKey) (merkle.Root, []byte) {
	length := 8 + len(runs)*runEntrySize + len(keys)*keyEntrySize
	p := make([]byte, 0, length+packTrailerSize)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(runs)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(keys)))
	for _, r := range runs {
		p = binary.LittleEndian.AppendUint64(p, uint64(r.offset))
		p = appendRunHeader(p, r)
	}
	for _, k := range keys {
		p = append(p, k.root[:]...)
		p = binary.LittleEndian.AppendUint32(p, k.run)
		p = binary.LittleEndian.AppendUint32(p, k.off)
		p = binary.LittleEndian.AppendUint32(p, k.length)
	}
	id := merkle.Sum(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(runsEnd(runs)))
	p = binary.LittleEndian.AppendUint64(p, uint64(length))
	p = append(p, id[:]...)
	return id, append(p, packEnd...)
}

// partsReader reads parts one after the other.
func partsReader(parts [][]byte) io.Reader {
	readers := make([]io.Reader, len(parts))
	for i, p := range parts {
		readers[i] = bytes.NewReader(p)
	}
	return io.MultiReader(readers...)
}

// packTail is how much of a pack's end is read at once: all of a small pack,
// and most footers.
const packTail = 32 << 10

// readFooter reads and checks the footer of a pack with this ID. Damage is
// errPack; any other error is the reader's. It reads only lengths that the
// object really has.
func readFooter(r io.ReaderAt, size int64, id merkle.Root) ([]packRun, []packKey, error) {
	if size < packHeaderSize+8+packTrailerSize || size > maxPack {
		return nil, nil, fmt.Errorf("%w: it has %d bytes", errPack, size)
	}
	tail := make([]byte, min(size, packTail))
	if err := readFullAt(r, tail, size-int64(len(tail))); err != nil {
		return nil, nil, err
	}
	trailer := tail[len(tail)-packTrailerSize:]
	if string(trailer[48:]) != packEnd {
		return nil, nil, fmt.Errorf("%w: no trailer at its end", errPack)
	}
	start, length := binary.LittleEndian.Uint64(trailer), binary.LittleEndian.Uint64(trailer[8:])
	end := uint64(size - packTrailerSize)
	if start < packHeaderSize || start > end || length != end-start {
		return nil, nil, fmt.Errorf("%w: its footer is not before its trailer", errPack)
	}
	var header [packHeaderSize]byte
	if err := readFullAt(r, header[:], 0); err != nil {
		return nil, nil, err
	}
	if string(header[:8]) != packMagic || binary.LittleEndian.Uint64(header[8:]) != packVersion {
		return nil, nil, fmt.Errorf("%w: its header is not that of a pack of version %d", errPack, packVersion)
	}
	var footer []byte
	if have := uint64(len(tail) - packTrailerSize); length <= have {
		footer = tail[have-length : have]
	} else {
		footer = make([]byte, length)
		if err := readFullAt(r, footer, int64(start)); err != nil {
			return nil, nil, err
		}
	}
	if sum := merkle.Sum(footer); sum != id || !bytes.Equal(sum[:], trailer[16:48]) {
		return nil, nil, fmt.Errorf("%w: its footer does not match its name", errPack)
	}
	return parseFooter(footer, int64(start))
}

// parseFooter reads a footer whose digest was checked; runs end before limit.
func parseFooter(p []byte, limit int64) ([]packRun, []packKey, error) {
	bad := func(what string) ([]packRun, []packKey, error) {
		return nil, nil, fmt.Errorf("%w: %s", errPack, what)
	}
	if len(p) < 8 {
		return bad("its footer is too short")
	}
	nRuns, nKeys := uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[4:]))
	if uint64(len(p)) != 8+nRuns*runEntrySize+nKeys*keyEntrySize || nKeys == 0 {
		return bad("its footer has another length than it states")
	}
	p = p[8:]
	runs := make([]packRun, nRuns)
	next := int64(packHeaderSize)
	for i := range runs {
		run := packRun{
			offset: int64(binary.LittleEndian.Uint64(p)),
			codec:  binary.LittleEndian.Uint32(p[8:]),
			raw:    binary.LittleEndian.Uint32(p[12:]),
			stored: binary.LittleEndian.Uint32(p[16:]),
			sum:    [32]byte(p[20:]),
		}
		switch {
		case run.codec == codecRaw && run.raw != run.stored, run.codec == codecZstd && (run.raw <= run.stored || run.raw > maxRun):
			return bad(fmt.Sprintf("run %d has lengths that its codec does not give", i))
		case run.codec != codecRaw && run.codec != codecZstd:
			return bad(fmt.Sprintf("codec %d is unknown to this version", run.codec))
		case run.offset != next+runHeaderSize || int64(run.stored) > limit-run.offset:
			return bad(fmt.Sprintf("run %d lies outside it", i))
		}
		next = run.offset + int64(run.stored)
		runs[i] = run
		p = p[runEntrySize:]
	}
	if next != limit {
		return bad("its runs do not fill it")
	}
	keys := make([]packKey, nKeys)
	for i := range keys {
		key := packKey{
			root:   merkle.Root(p[:32]),
			run:    binary.LittleEndian.Uint32(p[32:]),
			off:    binary.LittleEndian.Uint32(p[36:]),
			length: binary.LittleEndian.Uint32(p[40:]),
		}
		if i > 0 && bytes.Compare(keys[i-1].root[:], key.root[:]) >= 0 {
			return bad("its keys are not in order")
		}
		if uint64(key.run) >= nRuns || uint64(key.off)+uint64(key.length) > uint64(runs[key.run].raw) {
			return bad(fmt.Sprintf("key %d lies outside its run", i))
		}
		keys[i] = key
		p = p[keyEntrySize:]
	}
	return runs, keys, nil
}

// readFullAt fills p from r at off. An early end is errShort.
func readFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

// errShort says that an object ends before its stated size.
var errShort = fmt.Errorf("%w: the object is shorter than it was", ErrCorrupt)
