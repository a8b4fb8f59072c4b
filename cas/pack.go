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

// A pack holds many small blobs in one immutable object. All integers are
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
	// runSize is the raw size at which a run is closed: neighbouring blobs
	// share a run so that a later codec finds something to compress.
	runSize = 64 << 10

	codecRaw = 0
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
	runs [][]byte // raw bytes; the last one is open
	keys map[merkle.Root]packKey
	size int // bytes of the blobs and of their footer entries
}

// add appends a blob of at most one group that is not in the pack yet. It
// copies p.
func (w *packWriter) add(root merkle.Root, p []byte) {
	last := len(w.runs) - 1
	if last < 0 || len(w.runs[last])+len(p) > runSize {
		w.runs = append(w.runs, make([]byte, 0, max(len(p), 4096)))
		last++
	}
	if w.keys == nil {
		w.keys = make(map[merkle.Root]packKey)
	}
	w.keys[root] = packKey{root, uint32(last), uint32(len(w.runs[last])), uint32(len(p))}
	w.runs[last] = append(w.runs[last], p...)
	w.size += len(p) + keyEntrySize
}

// get returns the bytes of a blob in the pack; the caller must not change them.
func (w *packWriter) get(root merkle.Root) ([]byte, bool) {
	k, ok := w.keys[root]
	if !ok {
		return nil, false
	}
	return w.runs[k.run][k.off : k.off+k.length : k.off+k.length], true
}

// seal returns the pack's ID, its length and its bytes, which share memory with
// w. The same blobs added in the same order give the same pack.
func (w *packWriter) seal() (id merkle.Root, size int64, parts [][]byte) {
	header := make([]byte, 0, packHeaderSize)
	header = append(header, packMagic...)
	header = binary.LittleEndian.AppendUint32(header, packVersion)
	header = binary.LittleEndian.AppendUint32(header, 0)
	parts = append(parts, header)
	offset := int64(len(header))

	footer := make([]byte, 0, 8+len(w.runs)*runEntrySize+len(w.keys)*keyEntrySize)
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(w.runs)))
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(w.keys)))
	for _, raw := range w.runs {
		sum := blake3.Sum256(raw)
		lengths := make([]byte, 0, runHeaderSize)
		lengths = binary.LittleEndian.AppendUint32(lengths, codecRaw)
		lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(raw)))
		lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(raw)))
		footer = binary.LittleEndian.AppendUint64(footer, uint64(offset+runHeaderSize))
		footer = append(footer, lengths...)
		footer = append(footer, sum[:]...)
		parts = append(parts, append(lengths, sum[:]...), raw)
		offset += int64(runHeaderSize + len(raw))
	}
	keys := make([]packKey, 0, len(w.keys))
	for _, k := range w.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b packKey) int { return bytes.Compare(a.root[:], b.root[:]) })
	for _, k := range keys {
		footer = append(footer, k.root[:]...)
		footer = binary.LittleEndian.AppendUint32(footer, k.run)
		footer = binary.LittleEndian.AppendUint32(footer, k.off)
		footer = binary.LittleEndian.AppendUint32(footer, k.length)
	}
	id = merkle.Sum(footer)
	trailer := make([]byte, 0, packTrailerSize)
	trailer = binary.LittleEndian.AppendUint64(trailer, uint64(offset))
	trailer = binary.LittleEndian.AppendUint64(trailer, uint64(len(footer)))
	trailer = append(trailer, id[:]...)
	trailer = append(trailer, packEnd...)
	parts = append(parts, footer, trailer)
	return id, offset + int64(len(footer)+len(trailer)), parts
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
		if run.codec != codecRaw {
			return bad(fmt.Sprintf("codec %d is unknown to this version", run.codec))
		}
		if run.offset != next+runHeaderSize || int64(run.stored) > limit-run.offset || run.raw != run.stored {
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
