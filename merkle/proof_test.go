package merkle_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	lukebao "lukechampine.com/blake3/bao"

	"leafproof/merkle"
)

// TestTwin10000 compares bodies and Bao slices of 10,000 random (size, ranges)
// with the twin, reads them back, and compares every single range inside its
// blob with another author's Bao too. The sizes are those around the powers of
// two up to 2 MiB, and random ones.
func TestTwin10000(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	limit := 2 << 20
	if testing.Short() {
		limit = 128 << 10
	}
	blobs := aroundPowers(limit)
	for range 20 {
		blobs = append(blobs, rng.IntN(100_000))
	}
	all := pattern(limit+1, 8)
	inside := 0
	for i, size := range blobs {
		data := all[:size]
		tr, value := tree(t, data), twinMemo()
		combined, _ := lukebao.EncodeBuf(data, 0, false)
		n := rounds(10_000) / len(blobs)
		if i == 0 {
			n += rounds(10_000) % len(blobs)
		}
		for range n {
			ranges := randomRanges(rng, int64(size), 1+rng.IntN(6))
			if size > 100_000 && rng.IntN(8) > 0 { // most excerpts are small
				for j := range ranges {
					ranges[j].End = ranges[j].Start + rng.Int64N(40_000)
				}
			}
			set := leaves(t, int64(size), ranges...)
			var w bytes.Buffer
			if err := merkle.WriteBody(&w, tr, bytes.NewReader(data), set); err != nil {
				t.Fatal(err)
			}
			if want := twinBodyOf(data, 16, twinLeaves(size, ranges), value); !bytes.Equal(w.Bytes(), want) {
				t.Fatalf("the body of %v of %d bytes differs from the twin's", ranges, size)
			}
			pieces, err := drain(merkle.NewBodyReader(&w, tr.Root(), set))
			if err != nil {
				t.Fatal(err)
			}
			checkPieces(t, pieces, data, set.Bytes())

			r := ranges[0]
			var slice bytes.Buffer
			if err := merkle.WriteBao(&slice, tr, bytes.NewReader(data), r.Start, r.End-r.Start); err != nil {
				t.Fatal(err)
			}
			if want := twinBodyOf(data, 1, twinLeaves(size, ranges[:1]), value); !bytes.Equal(slice.Bytes(), want) {
				t.Fatalf("the Bao slice of %v of %d bytes differs from the twin's", r, size)
			}
			if r.Start < r.End && r.End <= int64(size) {
				inside++
				checkLuke(t, tr.Root(), combined, slice.Bytes(), r)
			}
		}
	}
	t.Logf("%d blobs, %d slices compared with lukechampine's", len(blobs), inside)
}

// checkLuke compares a Bao slice with the one of lukechampine.com/blake3/bao and
// lets that decode ours.
func checkLuke(t *testing.T, root merkle.Root, combined, slice []byte, r merkle.Range) {
	t.Helper()
	off, n := uint64(r.Start), uint64(r.End-r.Start)
	var theirs bytes.Buffer
	if err := lukebao.ExtractSlice(&theirs, bytes.NewReader(combined), nil, 0, off, n); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(theirs.Bytes(), slice) {
		t.Fatalf("the Bao slice of %v differs from lukechampine's", r)
	}
	if _, ok := lukebao.VerifySlice(slice, 0, off, n, root); !ok {
		t.Fatalf("lukechampine's decoder refuses the slice of %v", r)
	}
}

// mutate returns b changed in one of the ways in which files are damaged or
// forged.
func mutate(rng *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	at := rng.IntN(len(b))
	if rng.IntN(3) == 0 {
		at = min(at, rng.IntN(64)) // the head and the top nodes
	}
	n := 1 + rng.IntN(min(len(b)-at, []int{1, 8, 64, 2000}[rng.IntN(4)]))
	other := rng.IntN(len(b) - n + 1)
	switch rng.IntN(8) {
	case 0:
		b[at] ^= 1 << rng.IntN(8)
	case 1:
		b[at] = byte(rng.Uint32())
	case 2: // take out
		b = append(b[:at], b[at+n:]...)
	case 3: // repeat
		b = append(b[:at+n], bytes.Clone(b)[at:]...)
	case 4: // copy from elsewhere
		copy(b[at:at+n], bytes.Clone(b[other:other+n]))
	case 5:
		clear(b[at : at+n])
	case 6: // cut
		b = b[:at]
	case 7:
		binary.LittleEndian.PutUint64(append(b, make([]byte, 8)...)[at:at+8], rng.Uint64()>>rng.IntN(64))
	}
	return b
}

// TestMutations50000 damages slice files, Bao slices and prefix proofs at random:
// no reader ever gives a wrong byte, says that a wrong size is proven, or
// accepts anything but the one encoding.
func TestMutations50000(t *testing.T) {
	rng := rand.New(rand.NewPCG(71, 72))
	type proof struct {
		data []byte
		root merkle.Root
		r    merkle.Range
		file []byte
		kind string
	}
	var proofs []proof
	for _, size := range []int{0, 100, 5000, 16_384, 20_000, 65_536, 200_000} {
		data := pattern(size, 5)
		p := proof{data: data, root: merkle.Sum(data)}
		for range 4 {
			p.r = randomRanges(rng, int64(size), 1)[0]
			p.kind = "slice"
			p.file = slice(t, data, rng.IntN(2) == 0, append(randomRanges(rng, int64(size), 2), p.r)...)
			proofs = append(proofs, p)
			var w bytes.Buffer
			if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), p.r.Start, p.r.End-p.r.Start); err != nil {
				t.Fatal(err)
			}
			p.kind, p.file = "bao", w.Bytes()
			proofs = append(proofs, p)
			p.r = merkle.Range{End: min(p.r.Start, int64(size))}
			p.kind, p.file = "prefix", prefix(t, data, p.r.End)
			proofs = append(proofs, p)
		}
	}
	same := 0
	for i := range rounds(50_000) {
		p := proofs[i%len(proofs)]
		bad := mutate(rng, p.file)
		if bytes.Equal(bad, p.file) {
			same++
			continue
		}
		var s *merkle.SliceReader
		var err error
		switch p.kind {
		case "slice":
			s, err = merkle.NewSliceReader(bytes.NewReader(bad), p.root)
		case "bao":
			s, err = merkle.NewBaoReader(bytes.NewReader(bad), p.root, p.r.Start, p.r.End-p.r.Start)
		case "prefix":
			err = merkle.VerifyPrefix(bytes.NewReader(bad), merkle.Sum(p.data[:p.r.End]), p.r.End, p.root, int64(len(p.data)))
		}
		proven := false
		for s != nil && err == nil {
			var off int64
			var b []byte
			if off, b, err = s.Next(); err == nil && !bytes.Equal(b, p.data[off:off+int64(len(b))]) {
				t.Fatalf("mutation %d of a %s: wrong bytes at %d", i, p.kind, off)
			}
			if proven = s.SizeProven(); proven && s.Size() != int64(len(p.data)) {
				t.Fatalf("mutation %d of a %s: the size %d is proven, it is %d", i, p.kind, s.Size(), len(p.data))
			}
		}
		switch {
		case err == nil:
			t.Fatalf("mutation %d of a prefix proof is accepted", i)
		case err == io.EOF && (proven || s.Size() == int64(len(p.data)) && p.kind == "bao"):
			// Another encoding of the same. A slice file whose head was changed to
			// claim another size, unproven, or other ranges, is another file.
			if p.kind == "bao" || !isEncoding(t, p.data, s, bad) {
				t.Fatalf("mutation %d of a %s is accepted", i, p.kind)
			}
		case err != io.EOF && !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed):
			t.Fatalf("mutation %d of a %s: an error of no known kind: %v", i, p.kind, err)
		}
	}
	t.Logf("%d proofs, %d mutations changed nothing", len(proofs), same)
}

// isEncoding reports whether file is what WriteSlice writes for what s read.
func isEncoding(t *testing.T, data []byte, s *merkle.SliceReader, file []byte) bool {
	t.Helper()
	set, err := merkle.LeafRanges(s.Size(), s.Ranges())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(file, slice(t, data, true, set.Bytes()...)) || bytes.Equal(file, slice(t, data, false, set.Bytes()...))
}

// TestExtremes: numbers near the ends of what 64 bits hold give a typed error or
// the proof that is specified for them, and nothing is accepted under a wrong
// root.
func TestExtremes(t *testing.T) {
	const top = math.MaxInt64
	wrong := merkle.Sum([]byte("another blob"))
	for _, size := range []int{0, 1, 1024, 5000, 40_000} {
		data := pattern(size, 6)
		tr := tree(t, data)
		for _, off := range []int64{0, int64(size) - 1, int64(size), int64(size) + 1, 1 << 53, 1 << 62, top - 1, top} {
			for _, n := range []int64{0, 1, int64(size), 1 << 53, 1 << 62, top - off, top - 1, top} {
				if off < 0 || n < 0 {
					continue
				}
				what := fmt.Sprintf("%d+%d of %d bytes", off, n, size)
				end := off + n
				if end < off {
					end = top
				}
				set := leaves(t, int64(size), merkle.Range{Start: off, End: end})
				if off >= int64(size) && (!set.HasLast() || len(set.Bytes()) != 1) {
					t.Errorf("%s: past the end is %v", what, set.Ranges())
				}
				file := slice(t, data, true, merkle.Range{Start: off, End: end})
				if s, err := readSlice(file, tr.Root()); err != nil || !s.SizeProven() || s.Size() != int64(size) {
					t.Errorf("%s: slice: %v", what, err)
				}
				if _, err := readSlice(file, wrong); !errors.Is(err, merkle.ErrMismatch) {
					t.Errorf("%s: slice under a wrong root: %v", what, err)
				}
				var w bytes.Buffer
				if err := merkle.WriteBao(&w, tr, bytes.NewReader(data), off, n); err != nil {
					t.Fatalf("%s: Bao: %v", what, err)
				}
				for _, root := range []merkle.Root{tr.Root(), wrong} {
					r, err := merkle.NewBaoReader(bytes.NewReader(w.Bytes()), root, off, n)
					if err == nil {
						_, err = drain(r)
					}
					if root == wrong && !errors.Is(err, merkle.ErrMismatch) || root != wrong && err != nil {
						t.Errorf("%s: Bao under %v: %v", what, root, err)
					}
				}
			}
		}
	}
	for name, r := range map[string]merkle.Range{
		"negative":                {Start: -1, End: 5},
		"the most negative":       {Start: math.MinInt64, End: top},
		"a sum that wrapped":      {Start: top, End: math.MinInt64},
		"backwards, at the limit": {Start: top, End: top - 1},
	} {
		if _, err := merkle.Leaves(5000, r); !errors.Is(err, merkle.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
		if err := merkle.WriteBao(io.Discard, tree(t, nil), nil, r.Start, r.End-r.Start); r.Start < 0 && !errors.Is(err, merkle.ErrRange) {
			t.Errorf("%s: Bao: %v", name, err)
		}
	}
	// Headers that claim the most that fits, and more.
	for _, size := range []uint64{top - 1, top, top + 1, math.MaxUint64} {
		head := append([]byte("lps1\x00\x01\x00\x00"), binary.LittleEndian.AppendUint64(nil, size)...)
		file := append(head, make([]byte, 8000)...)
		if _, err := readSlice(file, wrong); err == nil {
			t.Errorf("a slice of a claimed %d bytes is accepted", size)
		}
		r, err := merkle.NewBaoReader(bytes.NewReader(file[8:]), wrong, top, top)
		if err == nil {
			_, err = drain(r)
		}
		if !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
			t.Errorf("a Bao slice of a claimed %d bytes: %v", size, err)
		}
	}
	for _, size := range []int64{0, merkle.GroupSize, top - 1, top} {
		if n := merkle.OutboardSize(size); n < 0 || n > size/256 {
			t.Errorf("OutboardSize(%d) = %d", size, n)
		}
		if err := merkle.NewTree(wrong, size, &ram{}).VerifyGroups(top, nil); err == nil {
			t.Errorf("nothing at the largest group of %d bytes verifies", size)
		}
	}
}

// TestProgressCanonical: records that only a forger could write are refused too.
func TestProgressCanonical(t *testing.T) {
	const size = 10 * merkle.GroupSize
	for name, test := range map[string]struct {
		ranges []byte // their number, then gap and length - 1 of each
		err    error
	}{
		"good":                 {[]byte{2, 0, 0, 1, 7}, nil},
		"touching":             {[]byte{2, 0, 0, 0, 7}, merkle.ErrMalformed},
		"past the end":         {[]byte{2, 0, 0, 1, 8}, merkle.ErrMalformed},
		"begins at the end":    {[]byte{1, 10, 0}, merkle.ErrMalformed},
		"one too few":          {[]byte{2, 0, 0}, merkle.ErrMalformed},
		"one too many":         {[]byte{1, 0, 0, 1, 7}, merkle.ErrMalformed},
		"no number":            {nil, merkle.ErrMalformed},
		"a long zero":          {[]byte{1, 0x80, 0, 0}, merkle.ErrMalformed},
		"more than can follow": {[]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, merkle.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			root := merkle.Sum(nil)
			b := append([]byte("lpc1"), root[:]...)
			b = binary.LittleEndian.AppendUint64(b, size)
			b = append(b, test.ranges...)
			sum := merkle.DeriveKey("leafproof 2026 merkle checkpoint of a receiver", b)
			if p, err := merkle.ParseProgress(append(b, sum[:16]...), root, size); !errors.Is(err, test.err) || (p == nil) != (err != nil) {
				t.Errorf("ParseProgress = %v, %v, want %v", p, err, test.err)
			}
		})
	}
}
