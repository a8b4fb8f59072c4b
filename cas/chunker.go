package cas

import (
	"encoding/binary"
	"sync"

	"leafproof/merkle"
)

// A chunker cuts a blob where its bytes say so, so that an edit moves only the
// cuts beside it. It is a gear hash over the last 64 bytes with two masks: a
// place is a candidate when the hash has zeros under the loose mask, and a
// strict one when it has them under both. A chunk ends at the first candidate
// that is min bytes into it and strict, or normal bytes into it, or after max
// bytes. Candidates depend on the 64 bytes before them alone, and only picking
// among them (one in some thousand bytes) needs to know the last cut: so any
// number of workers scan one blob, and the cuts are those of a serial scan.
//
// Why not RepMax (sizes in [n, 2n), the strongest hash of a window): measured on
// 276 MB of generated incident events with 1% of the rows edited, at a mean of
// some 6.9 KiB each, the bytes that are new after scattered edits are
//
//	RepMax, n = 5 KiB, horizon 8 n      20.3%, 9.2 MB after zstd
//	gear, one mask, 3 KiB to 28 KiB     24.8%, 11.3 MB
//	this one                            21.6%, 9.8 MB
//
// and 1.4% after edits in bursts for all. RepMax must keep the hashes of a
// horizon and look back over them; this one keeps none, at 1.9 GB a
// CPU-second. max is at least four times the mean: fewer than 1 chunk in 1,000
// ends there, where an edit could shift content from chunk to chunk.
//
// The cuts of an id never change: another way to cut is another id.
type chunker struct {
	id               uint32
	min, normal, max int
	loose, strict    uint64 // strict has the bits of loose and more
}

// The chunkers by id.
var (
	recordChunker = chunker{1, 2 << 10, 6656, 32 << 10, gearMask(10), gearMask(14)}
	byteChunker   = chunker{2, 16 << 10, 60 << 10, 256 << 10, gearMask(13), gearMask(17)}
)

// Of a blob of records that is very large the chunks become coarse: with 7 KiB
// each, an index over 100 GiB would be a gigabyte. What begins in a block at or
// behind byte coarseFrom is cut by the byteChunker, and the recipe has coarseID.
const (
	coarseFrom = 4 << 30
	coarseID   = 3
)

// maxChunk bounds a chunk of any chunker.
const maxChunk = 256 << 10

// gearWindow is how many bytes before a place decide whether it is a candidate.
const gearWindow = 64

// gearMask returns a mask of the n bits below the top one.
func gearMask(n int) uint64 { return (1<<n - 1) << (63 - n) }

// gearContext is the derive-key context of the gear table: number i of it is the
// first 8 bytes, little-endian, of BLAKE3-derive-key(gearContext, byte i).
const gearContext = "leafproof 2026 cas gear table v1"

// It takes most of a millisecond to make, which a program that cuts nothing
// should not spend: who reads it calls makeGear first.
var (
	gear     [256]uint64
	makeGear = sync.OnceFunc(func() {
		for i := range gear {
			key := merkle.DeriveKey(gearContext, []byte{byte(i)})
			gear[i] = binary.LittleEndian.Uint64(key[:])
		}
	})
)

// candidate is a place in a block where a chunk may end: twice the number of
// bytes before it, plus 1 if it is strict.
type candidate uint32

func (c candidate) at() int      { return int(c >> 1) }
func (c candidate) strict() bool { return c&1 != 0 }

// scan appends the candidates p with from < p ≤ len(data) to out, ascending. The
// bytes before from are what precedes in the blob: at least gearWindow-1 of them
// unless the blob begins there. late is room for its own use, empty and for reuse
// as it is returned.
func (c *chunker) scan(data []byte, from int, out, late []candidate) (all, room []candidate) {
	makeGear()
	// One hash waits for itself two cycles a byte. Two that do not wait for each
	// other take the same time; more do not fit into the registers.
	half := (len(data) - from) / 2
	if half < gearWindow {
		h := gearAt(data, from)
		for i := from; i < len(data); {
			if i, h = gearStep(data, i, h, c.loose); h&c.loose == 0 {
				out = c.note(out, i, h)
			}
		}
		return out, late
	}
	first, second := data[from:from+half], data[from+half:from+2*half]
	h0, h1 := gearAt(data, from), gearAt(data, from+half)
	for i := 0; i < half; {
		i, h0, h1 = gearSteps(first, second, i, h0, h1, c.loose)
		if h0&c.loose == 0 {
			out = c.note(out, from+i, h0)
		}
		if h1&c.loose == 0 {
			late = c.note(late, from+half+i, h1)
		}
	}
	out = append(out, late...)
	for i := from + 2*half; i < len(data); { // one byte at most
		if i, h1 = gearStep(data, i, h1, c.loose); h1&c.loose == 0 {
			out = c.note(out, i, h1)
		}
	}
	return out, late
}

// gearSteps hashes two pieces of one length from byte i on, side by side, up to
// the first place where one of them has no bit of the mask, or to their end. It
// calls nothing, so that all it needs stays in registers: with the candidates
// noted in the loop, a scan takes twice the time.
func gearSteps(a, b []byte, i int, ha, hb, mask uint64) (int, uint64, uint64) {
	b = b[:len(a)]
	t := &gear
	for uint(i) < uint(len(a)) {
		ha = ha<<1 + t[a[i]]
		hb = hb<<1 + t[b[i]]
		i++
		if ha&mask == 0 || hb&mask == 0 {
			break
		}
	}
	return i, ha, hb
}

// gearStep is gearSteps with one piece.
func gearStep(p []byte, i int, h, mask uint64) (int, uint64) {
	for uint(i) < uint(len(p)) {
		h = h<<1 + gear[p[i]]
		i++
		if h&mask == 0 {
			break
		}
	}
	return i, h
}

// note appends the place before byte at, where the hash is h.
func (c *chunker) note(out []candidate, at int, h uint64) []candidate {
	if h&c.strict == 0 {
		return append(out, candidate(at<<1|1))
	}
	return append(out, candidate(at<<1))
}

// gearAt is the hash of the bytes before from.
func gearAt(data []byte, from int) (h uint64) {
	for _, b := range data[max(0, from-gearWindow):from] {
		h = h<<1 + gear[b]
	}
	return h
}

// cut appends the ends of the chunks of a block to ends and returns where the
// open chunk begins. The block's data begins at from, and its candidates are
// those of scan; start is where the open chunk begins, which is at or before
// from. With last the blob ends where the block does, and so does its last chunk.
func (c *chunker) cut(start, end int, found []candidate, last bool, ends []int) ([]int, int) {
	take := func(at int) {
		ends = append(ends, at)
		start = at
	}
	for _, f := range found {
		for f.at()-start > c.max {
			take(start + c.max)
		}
		if n := f.at() - start; n >= c.normal || n >= c.min && f.strict() || n == c.max {
			take(f.at())
		}
	}
	for end-start >= c.max {
		take(start + c.max)
	}
	if last && end > start {
		take(end)
	}
	return ends, start
}
