package merkle_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leafproof/merkle"
)

// strangeCases returns excerpts of blobs of many sizes, excerpts forged for
// sizes that no blob has, and alterations of both.
func strangeCases(t *testing.T) (cases []strange) {
	rng := rand.New(rand.NewPCG(9, 10))
	sizes := []int64{0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 5000, 16_383, 16_384, 16_385, 17_409, 32_768, 40_000}
	for range 12 {
		sizes = append(sizes, rng.Int64N(9000))
	}
	for _, size := range sizes {
		data := pattern(int(size), uint64(size))
		root := merkle.Sum(data).String()
		for _, last := range []bool{false, true} {
			ranges := randomRanges(rng, size, 1+rng.IntN(3))
			file := slice(t, data, last, ranges...)
			cases = append(cases, strange{fmt.Sprintf("slice %v of %d bytes, last %v", ranges, size, last), root, file, false, nil})
		}
		for _, r := range append(randomRanges(rng, size, 1), merkle.Range{Start: 1024, End: 1024}) {
			wanted := []int64{r.Start, r.End}
			cases = append(cases, strange{fmt.Sprintf("slice of %d bytes, its range known", size), root, slice(t, data, true, r), false, wanted})
			var w bytes.Buffer
			if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), r.Start, r.End-r.Start); err != nil {
				t.Fatal(err)
			}
			cases = append(cases, strange{fmt.Sprintf("Bao slice of %d bytes", size), root, w.Bytes(), true, wanted})
		}
	}
	for _, size := range []int64{math.MaxInt64, math.MaxInt64 - 1023, math.MaxInt64 - 1024, 1<<62 + 1, 1 << 53, 5<<50 + 7, 1<<42 + 1, 1 << 42, 100_000} {
		leaves := (size-1)/1024 + 1
		for _, leaf := range []int64{0, 15, 1<<31 - 1, 1 << 32, rng.Int64N(leaves), leaves - 17, leaves - 2, leaves - 1} {
			if leaf >= leaves {
				continue
			}
			start := leaf * 1024
			r := merkle.Range{Start: start, End: min(start, size-2500) + 2500}
			cases = append(cases, forged(t, rng, size, false, r), forged(t, rng, size, true, r))
			if leaf+1 == leaves {
				cases = append(cases, forged(t, rng, size, true, merkle.Range{Start: math.MaxInt64 - 5, End: math.MaxInt64}))
			}
		}
		cases = append(cases, forged(t, rng, size, false, merkle.Range{Start: 5, End: 6}, merkle.Range{Start: size / 3, End: size / 3}, merkle.Range{Start: size, End: size}))
	}
	for _, c := range slices.Clone(cases) {
		for _, name := range slices.Sorted(maps.Keys(alterations)) {
			if bad, ok := alterations[name](rng, c); ok {
				bad.name = name + ", " + c.name
				cases = append(cases, bad)
			}
		}
		for range 6 {
			if bad, ok := alterHead(rng, c); ok {
				bad.name = "head, " + c.name
				cases = append(cases, bad)
			}
		}
	}
	return cases
}

// forged returns an excerpt of a tree of which only the path to the selected
// leaves exists. Nobody can tell it from one of a blob of that size.
func forged(t *testing.T, rng *rand.Rand, size int64, bao bool, ranges ...merkle.Range) strange {
	t.Helper()
	set := leaves(t, size, ranges...)
	unit := int64(16)
	if bao {
		unit = 1
	}
	count := (size-1)/1024 + 1
	var subtree func(lo, hi int64, flags uint32) (words, []byte)
	subtree = func(lo, hi int64, flags uint32) (value words, enc []byte) {
		selected := int64(0)
		for _, r := range set.Ranges() {
			selected += max(min(r.End, hi)-max(r.Start, lo), 0)
		}
		switch {
		case selected == 0:
			for i := range value {
				value[i] = rng.Uint32()
			}
			return value, nil
		case selected == hi-lo && selected <= unit:
			n := selected * 1024
			if hi == count {
				n -= 1023 - (size-1)%1024
			}
			p := pattern(int(n), uint64(rng.Uint32()))
			return twinValue(p, int(lo), flags), p
		}
		n := int64(1)
		for 2*n < hi-lo {
			n *= 2
		}
		left, encLeft := subtree(lo, lo+n, 0)
		right, encRight := subtree(lo+n, hi, 0)
		both := twinBytes(left, right)
		return twinCompress(twinIV, both, 0, parentFlag|flags), slices.Concat(both, encLeft, encRight)
	}
	value, enc := subtree(0, count, rootFlag)
	c := strange{name: fmt.Sprintf("forged, %d bytes %v", size, ranges), Root: merkle.Root(twinBytes(value)).String(), Bao: bao}
	if bao {
		c.Wanted = []int64{ranges[0].Start, ranges[0].End}
	} else {
		numbers := []uint64{uint64(len(set.Ranges()))}
		end := int64(0)
		for _, r := range set.Ranges() {
			numbers = append(numbers, uint64(r.Start-end), uint64(r.End-r.Start-1))
			end = r.End
		}
		c.File = head(0, numbers)
	}
	c.File = append(binary.LittleEndian.AppendUint64(c.File, uint64(size)), enc...)
	return c
}

func head(flags byte, numbers []uint64) []byte {
	b := append([]byte("lps1"), flags)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// alterations change a file or what it is compared with. What results may be
// sound, or not be possible (false).
var alterations = map[string]func(*rand.Rand, strange) (strange, bool){
	"bit": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = bytes.Clone(c.File)
		c.File[rng.IntN(len(c.File))] ^= 1 << rng.IntN(8)
		return c, true
	},
	"early bit": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = bytes.Clone(c.File)
		c.File[rng.IntN(min(len(c.File), 20))] ^= 1 << rng.IntN(8)
		return c, true
	},
	"cut": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = c.File[:rng.IntN(len(c.File))]
		return c, true
	},
	"cut by one": func(_ *rand.Rand, c strange) (strange, bool) {
		c.File = c.File[:len(c.File)-1]
		return c, true
	},
	"trailing": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = append(bytes.Clone(c.File), byte(rng.IntN(2)))
		return c, true
	},
	"root": func(rng *rand.Rand, c strange) (strange, bool) {
		at := rng.IntN(64)
		digit := "0"
		if c.Root[at] == '0' {
			digit = "1"
		}
		c.Root = c.Root[:at] + digit + c.Root[at+1:]
		return c, true
	},
	"range": func(rng *rand.Rand, c strange) (strange, bool) {
		start := []int64{0, rng.Int64N(5000), math.MaxInt64 - 4000}[rng.IntN(3)]
		c.Wanted = []int64{start, start + rng.Int64N(3000)}
		return c, true
	},
	"range nearby": func(rng *rand.Rand, c strange) (strange, bool) {
		if c.Wanted == nil || c.Wanted[1] > math.MaxInt64-2000 {
			return c, false
		}
		a := max(c.Wanted[0]-rng.Int64N(700), 0)
		c.Wanted = []int64{a, max(a, c.Wanted[1]+rng.Int64N(1000)-500)}
		return c, true
	},
	"length": func(rng *rand.Rand, c strange) (strange, bool) {
		at := 0
		if !c.Bao {
			h, ok := parseHead(c.File)
			if !ok {
				return c, false
			}
			at = h.size
		}
		c.File = bytes.Clone(c.File)
		size := binary.LittleEndian.Uint64(c.File[at:])
		switch rng.IntN(4) {
		case 0:
			size = rng.Uint64()
		case 1:
			size ^= 1 << rng.IntN(64)
		default: // often as good as the true one
			size += rng.Uint64N(2048) - 1024
		}
		binary.LittleEndian.PutUint64(c.File[at:], size)
		return c, true
	},
	"one leaf more": func(_ *rand.Rand, c strange) (strange, bool) {
		h, ok := parseHead(c.File)
		if c.Bao || !ok {
			return c, false
		}
		h.numbers[len(h.numbers)-1]++
		c.File = append(head(h.flags, h.numbers), c.File[h.size:]...)
		return c, true
	},
	"the other kind": func(_ *rand.Rand, c strange) (strange, bool) {
		c.Bao = !c.Bao
		if c.Bao && c.Wanted == nil {
			c.Wanted = []int64{0, 1}
		}
		// Python takes it for what it begins with.
		return c, c.Bao
	},
}

// sliceHead is what stands before the length in a slice file.
type sliceHead struct {
	flags   byte
	numbers []uint64
	size    int // where the length begins
}

func parseHead(file []byte) (h sliceHead, ok bool) {
	rest, ok := bytes.CutPrefix(file, []byte("lps1"))
	if !ok || len(rest) < 2 {
		return h, false
	}
	h.flags, rest = rest[0], rest[1:]
	count := 1
	for len(h.numbers) < count {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return h, false
		}
		if h.numbers = append(h.numbers, v); len(h.numbers) == 1 {
			count = 1 + 2*int(min(v, 1<<20))
		}
		rest = rest[n:]
	}
	h.size = len(file) - len(rest)
	return h, len(rest) >= 8
}

// alterHead says the same, or something near it, in a head that may not be
// canonical, and leaves the body as it is.
func alterHead(rng *rand.Rand, c strange) (strange, bool) {
	h, ok := parseHead(c.File)
	if c.Bao || !ok {
		return c, false
	}
	body := c.File[h.size:]
	leaves := max(1, (binary.LittleEndian.Uint64(body)+1023)/1024)
	at := rng.IntN(len(h.numbers))
	end := uint64(0)
	for i := 1; i < len(h.numbers); i += 2 {
		end += h.numbers[i] + h.numbers[i+1] + 1
	}
	lastRange := len(h.numbers) - 2
	switch rng.IntN(8) {
	case 0: // a number that is not in its shortest form
		b := head(h.flags, h.numbers[:at])
		b = binary.AppendUvarint(b, h.numbers[at])
		b[len(b)-1] |= 0x80
		b = append(b, strings.Repeat("\x80", rng.IntN(9))...)
		b = append(b, 0)
		c.File = slices.Concat(b, head(0, h.numbers[at+1:])[5:], body)
		return c, true
	case 1: // flags
		h.flags = byte(1) << rng.IntN(8)
	case 2: // the last range one longer, which the flag says too
		if h.flags == 1 && end == leaves-1 {
			h.numbers[lastRange+1]++
		}
		h.flags ^= byte(rng.IntN(2))
	case 3: // the last leaf as a range of its own
		if h.flags == 1 && end < leaves-1 {
			h.flags = byte(rng.IntN(2))
			h.numbers[0]++
			h.numbers = append(h.numbers, leaves-1-end, 0)
		}
	case 4: // one range as two that touch
		i := 1 + 2*rng.IntN(int(h.numbers[0]))
		if n := h.numbers[i+1]; n > 0 {
			h.numbers[0]++
			h.numbers[i+1] = n - 1
			h.numbers = slices.Insert(h.numbers, i+2, 0, 0)
		}
	case 5: // around the number of leaves
		h.numbers[at] = leaves - 1 + rng.Uint64N(4)
	case 6: // numbers that do not fit
		h.numbers[at] = []uint64{0, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64, 1<<20 + 1}[rng.IntN(8)]
	default:
		h.numbers[at] += rng.Uint64N(3) - 1
	}
	c.File = append(head(h.flags, h.numbers), body...)
	return c, true
}
