package cas

import (
	"encoding/binary"

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
// horizon and look back over them; this one keeps none, at 1.3 GB a
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

// maxChunk bounds a chunk of any chunker.
const maxChunk = 256 << 10

// gearWindow is how many bytes before a place decide whether it is a candidate.
const gearWindow = 64

// gearMask returns a mask of the n bits below the top one.
func gearMask(n int) uint64 { return (1<<n - 1) << (63 - n) }

// gearContext is the derive-key context of the gear table: number i of it is the
// first 8 bytes, little-endian, of BLAKE3-derive-key(gearContext, byte i).
const gearContext = "leafproof 2026 cas gear table v1"

var gear = func() (t [256]uint64) {
	for i := range t {
		key := merkle.DeriveKey(gearContext, []byte{byte(i)})
		t[i] = binary.LittleEndian.Uint64(key[:])
	}
	return t
}()

// candidate is a place in a block where a chunk may end: twice the number of
// bytes before it, plus 1 if it is strict.
type candidate uint32

func (c candidate) at() int      { return int(c >> 1) }
func (c candidate) strict() bool { return c&1 != 0 }

// scan appends the candidates p with from < p ≤ len(data) to out, ascending. The
// bytes before from are what precedes in the blob: at least gearWindow-1 of them
// unless the blob begins there.
func (c *chunker) scan(data []byte, from int, out []candidate) []candidate {
	const lanes = 4 // one hash waits for itself two cycles a byte; four do not
	lane := (len(data) - from) / lanes
	if lane < gearWindow {
		return c.scanTail(data, from, out)
	}
	var found [lanes - 1][]candidate
	a, b := from, from+lane
	x, y := b+lane, b+2*lane
	h0, h1, h2, h3 := gearAt(data, a), gearAt(data, b), gearAt(data, x), gearAt(data, y)
	d0, d1, d2, d3 := data[a:a+lane], data[b:b+lane], data[x:x+lane], data[y:y+lane]
	d1, d2, d3 = d1[:len(d0)], d2[:len(d0)], d3[:len(d0)] // no bounds checks below
	mask, t := c.loose, &gear
	for i := range d0 {
		h0 = h0<<1 + t[d0[i]]
		h1 = h1<<1 + t[d1[i]]
		h2 = h2<<1 + t[d2[i]]
		h3 = h3<<1 + t[d3[i]]
		if h0&mask == 0 {
			out = c.note(out, a+i+1, h0)
		}
		if h1&mask == 0 {
			found[0] = c.note(found[0], b+i+1, h1)
		}
		if h2&mask == 0 {
			found[1] = c.note(found[1], x+i+1, h2)
		}
		if h3&mask == 0 {
			found[2] = c.note(found[2], y+i+1, h3)
		}
	}
	for _, f := range found {
		out = append(out, f...)
	}
	return c.scanTail(data, y+lane, out)
}

// scanTail is scan, one byte after the other.
func (c *chunker) scanTail(data []byte, from int, out []candidate) []candidate {
	h := gearAt(data, from)
	for i := from; i < len(data); i++ {
		h = h<<1 + gear[data[i]]
		if h&c.loose == 0 {
			out = c.note(out, i+1, h)
		}
	}
	return out
}

//go:noinline
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
