package merkle_test

import (
	"encoding/binary"
	"math/bits"

	"leafproof/merkle"
)

// This file is the slow, obvious twin: BLAKE3 and the proof format written down
// from their descriptions, recursive, in memory, and sharing no code with the
// package. The tests compare the package with it byte for byte.

type words = [8]uint32

var twinIV = words{
	0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
}

const (
	chunkStart, chunkEnd, parentFlag, rootFlag = 1, 2, 4, 8
)

// twinCompress is the compression function, cut to its first eight words.
func twinCompress(h words, block []byte, counter uint64, flags uint32) (out words) {
	var padded [64]byte
	copy(padded[:], block)
	var m, v [16]uint32
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(padded[4*i:])
	}
	copy(v[:8], h[:])
	copy(v[8:], twinIV[:4])
	v[12], v[13], v[14], v[15] = uint32(counter), uint32(counter>>32), uint32(len(block)), flags
	g := func(a, b, c, d int, x, y uint32) {
		for i, w := range [2]uint32{x, y} {
			v[a] += v[b] + w
			v[d] = bits.RotateLeft32(v[d]^v[a], -[2]int{16, 8}[i])
			v[c] += v[d]
			v[b] = bits.RotateLeft32(v[b]^v[c], -[2]int{12, 7}[i])
		}
	}
	for range 7 {
		for i := range 4 {
			g(i, 4+i, 8+i, 12+i, m[2*i], m[2*i+1])
		}
		for i := range 4 {
			g(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4, m[8+2*i], m[9+2*i])
		}
		old := m
		for i, j := range [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8} {
			m[i] = old[j]
		}
	}
	for i := range out {
		out[i] = v[i] ^ v[i+8]
	}
	return out
}

func twinBytes(ws ...words) (b []byte) {
	for _, w := range ws {
		for _, x := range w {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
	}
	return b
}

// twinSplit returns how many bytes of more than 1024 are in the left subtree.
func twinSplit(n int) int {
	l := 1024
	for 2*l < n {
		l *= 2
	}
	return l
}

// twinValue returns the chaining value of the subtree of p, whose first leaf has
// this number; flags is rootFlag for the whole tree.
func twinValue(p []byte, leaf int, flags uint32) words {
	if len(p) > 1024 {
		l := twinSplit(len(p))
		both := twinBytes(twinValue(p[:l], leaf, 0), twinValue(p[l:], leaf+l/1024, 0))
		return twinCompress(twinIV, both, 0, parentFlag|flags)
	}
	h, start := twinIV, uint32(chunkStart)
	for ; len(p) > 64; p = p[64:] {
		h = twinCompress(h, p[:64], uint64(leaf), start)
		start = 0
	}
	return twinCompress(h, p, uint64(leaf), start|chunkEnd|flags)
}

func twinRoot(p []byte) merkle.Root { return merkle.Root(twinBytes(twinValue(p, 0, rootFlag))) }

// twinOutboard returns the sealed outboard: after each complete group, the
// perfect subtrees that end with it, small ones first.
func twinOutboard(p []byte) (b []byte) {
	const group = 16384
	if len(p) <= group {
		return nil
	}
	for end := group; end <= len(p); end += group {
		for n := group; end%n == 0; n *= 2 {
			b = append(b, twinBytes(twinValue(p[end-n:end], (end-n)/1024, 0))...)
		}
	}
	if rest := len(p) % group; rest > 0 {
		b = append(b, twinBytes(twinValue(p[len(p)-rest:], (len(p)-rest)/1024, 0))...)
	}
	return b
}

// twinBody returns the proof of the selected leaves; a fully selected subtree of
// at most unit leaves is sent as it is.
func twinBody(p []byte, unit int, selected []bool) []byte {
	return twinBodyOf(p, unit, selected, twinValue)
}

// twinBodyOf is twinBody with another way to get at the values.
func twinBodyOf(p []byte, unit int, selected []bool, value func(p []byte, leaf int, flags uint32) words) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(p))), twinSubtree(p, 0, unit, selected, value)...)
}

// twinMemo returns twinValue for the subtrees of one blob, each computed once.
func twinMemo() func(p []byte, leaf int, flags uint32) words {
	type key struct{ leaf, size int }
	known := map[key]words{}
	var value func(p []byte, leaf int, flags uint32) words
	value = func(p []byte, leaf int, flags uint32) words {
		k := key{leaf, len(p)}
		if _, ok := known[k]; !ok || flags != 0 {
			if len(p) <= 1024 || flags != 0 {
				return twinValue(p, leaf, flags)
			}
			l := twinSplit(len(p))
			both := twinBytes(value(p[:l], leaf, 0), value(p[l:], leaf+l/1024, 0))
			known[k] = twinCompress(twinIV, both, 0, parentFlag)
		}
		return known[k]
	}
	return value
}

func twinSubtree(p []byte, leaf, unit int, selected []bool, value func(p []byte, leaf int, flags uint32) words) []byte {
	leaves := max(1, (len(p)+1023)/1024)
	count := 0
	for _, s := range selected[leaf : leaf+leaves] {
		if s {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	if count == leaves && leaves <= unit {
		return p
	}
	l := twinSplit(len(p))
	b := twinBytes(value(p[:l], leaf, 0), value(p[l:], leaf+l/1024, 0))
	b = append(b, twinSubtree(p[:l], leaf, unit, selected, value)...)
	return append(b, twinSubtree(p[l:], leaf+l/1024, unit, selected, value)...)
}

// twinLeaves says of each leaf whether the byte ranges select it.
func twinLeaves(size int, ranges []merkle.Range) []bool {
	selected := make([]bool, max(1, (size+1023)/1024))
	for leaf := range selected {
		first, last := int64(leaf)*1024, int64(leaf+1)*1024-1 // its bytes
		if leaf == len(selected)-1 {
			last = 1<<63 - 1 // everything past the end counts as the last leaf's
		}
		for _, r := range ranges {
			if end := max(r.End, r.Start+1); r.Start <= last && first < end {
				selected[leaf] = true
			}
		}
	}
	return selected
}
