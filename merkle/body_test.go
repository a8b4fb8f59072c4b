package merkle_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"leafproof/merkle"
)

// TestBodyTwin: bodies and Bao slices of random sets are the twin's, byte for
// byte, and what they give back is the blob's bytes at the set's places.
func TestBodyTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 250 {
		size := sizes[rng.IntN(len(sizes)-6)]
		if rng.IntN(2) == 0 {
			size = rng.IntN(200_000)
		}
		data := pattern(size, uint64(round))
		ranges := randomRanges(rng, int64(size), 1+rng.IntN(6))
		set := leaves(t, int64(size), ranges...)
		got := body(t, data, set)
		if want := twinBody(data, 16, twinLeaves(size, ranges)); !bytes.Equal(got, want) {
			t.Fatalf("round %d: the body of %v of %d bytes differs from the twin's", round, ranges, size)
		}
		if int64(len(got)) != merkle.BodySize(set) {
			t.Fatalf("round %d: BodySize = %d, want %d", round, merkle.BodySize(set), len(got))
		}
		more := strings.NewReader("more")
		r := merkle.NewBodyReader(io.MultiReader(iotest.OneByteReader(bytes.NewReader(got)), more), merkle.Sum(data), set)
		pieces, err := drain(r)
		if err != nil {
			t.Fatal(err)
		}
		checkPieces(t, pieces, data, set.Bytes())
		if r.SizeProven() != set.HasLast() {
			t.Errorf("SizeProven = %v with %v of %d bytes", r.SizeProven(), set.Ranges(), size)
		}
		if more.Len() != 4 {
			t.Fatalf("%d bytes after the body were read", 4-more.Len())
		}

		off, n := ranges[0].Start, ranges[0].End-ranges[0].Start
		var w bytes.Buffer
		if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), off, n); err != nil {
			t.Fatal(err)
		}
		if want := twinBody(data, 1, twinLeaves(size, ranges[:1])); !bytes.Equal(w.Bytes(), want) {
			t.Fatalf("round %d: the Bao slice of %v of %d bytes differs from the twin's", round, ranges[0], size)
		}
	}
}

// TestBodyExact: a reader that can give more than the body is not asked for it,
// and one that fails after it is not noticed.
func TestBodyExact(t *testing.T) {
	data := pattern(100_000, 1)
	set := leaves(t, 100_000, merkle.Range{Start: 5000, End: 70_000})
	b := body(t, data, set)
	rest := bytes.NewReader(append(bytes.Clone(b), make([]byte, 100_000)...))
	if _, err := drain(merkle.NewBodyReader(rest, merkle.Sum(data), set)); err != nil {
		t.Fatal(err)
	}
	if rest.Len() != 100_000 {
		t.Errorf("%d bytes after the body were read", 100_000-rest.Len())
	}
}

// TestBodySizes: the sizes that the design states.
func TestBodySizes(t *testing.T) {
	for name, test := range map[string]struct {
		size int64
		r    merkle.Range
		last bool
		want int64
	}{
		"one leaf of 1 MiB":                {1 << 20, merkle.Range{Start: 0, End: 1024}, false, 1672},
		"one leaf of 1 GiB":                {1 << 30, merkle.Range{Start: 1 << 29, End: 1<<29 + 1024}, false, 2312},
		"one leaf of 1 GiB, its last too":  {1 << 30, merkle.Range{Start: 0, End: 1024}, true, 4552},
		"one leaf of 1 TiB":                {1 << 40, merkle.Range{Start: 0, End: 1024}, false, 2952},
		"all of 1 GiB":                     {1 << 30, merkle.Range{Start: 0, End: 1 << 30}, false, 8 + 1<<30 + 64*65535},
		"all of nothing":                   {0, merkle.Range{}, false, 8},
		"all of the most that can be said": {math.MaxInt64, merkle.Range{Start: 0, End: math.MaxInt64}, false, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			set := leaves(t, test.size, test.r)
			if test.last {
				set = set.WithLast()
			}
			if got := merkle.BodySize(set); got != test.want {
				t.Errorf("BodySize = %d, want %d", got, test.want)
			}
		})
	}
	if got := merkle.BodySize(merkle.LeafSet{}); got != 0 {
		t.Errorf("BodySize of no set = %d", got)
	}
}

// flips are the blobs and sets whose every bit is flipped.
var flips = map[string]struct {
	size   int
	ranges []merkle.Range
}{
	"empty":         {0, []merkle.Range{{}}},
	"one byte":      {1, []merkle.Range{{Start: 0, End: 1}}},
	"one leaf":      {1024, []merkle.Range{{Start: 0, End: 1}}},
	"inner leaf":    {5000, []merkle.Range{{Start: 1024, End: 2048}}},
	"last leaf":     {4097, []merkle.Range{{Start: 4096, End: 4097}}},
	"two leaves":    {40_000, []merkle.Range{{Start: 3000, End: 3001}, {Start: 20_000, End: 20_001}}},
	"beside groups": {33_000, []merkle.Range{{Start: 32_768, End: 33_000}}},
}

// TestBodyFlips: a body with any one bit flipped, cut anywhere, or read with
// another root or set, is refused, and gives nothing wrong before that.
func TestBodyFlips(t *testing.T) {
	for name, test := range flips {
		t.Run(name, func(t *testing.T) {
			data := pattern(test.size, 9)
			root := merkle.Sum(data)
			set := leaves(t, int64(test.size), test.ranges...)
			good := body(t, data, set)
			check := func(what string, b []byte, root merkle.Root, set merkle.LeafSet, want error) {
				t.Helper()
				pieces, err := drain(merkle.NewBodyReader(bytes.NewReader(b), root, set))
				if !errors.Is(err, want) {
					t.Fatalf("%s: error = %v, want %v", what, err, want)
				}
				for _, p := range pieces {
					if !bytes.Equal(p.p, data[p.offset:][:len(p.p)]) {
						t.Fatalf("%s: wrong bytes came before the error", what)
					}
				}
			}
			for i := range 8 * len(good) {
				bad := bytes.Clone(good)
				bad[i/8] ^= 1 << (i % 8)
				want := merkle.ErrMismatch
				if i == 63 { // the length's top bit: no length at all
					want = merkle.ErrMalformed
				}
				check(fmt.Sprintf("bit %d flipped", i), bad, root, set, want)
			}
			for n := range good {
				check(fmt.Sprintf("cut to %d", n), good[:n], root, set, merkle.ErrMalformed)
			}
			check("another root", good, merkle.Sum([]byte("x")), set, merkle.ErrMismatch)
			check("another size", good, root, leaves(t, int64(test.size)+1, test.ranges...), merkle.ErrMismatch)
			check("no set", good, root, merkle.LeafSet{}, merkle.ErrRange)
			if test.size > 3072 {
				other := leaves(t, int64(test.size), merkle.Range{Start: 3072, End: 3073})
				if _, err := drain(merkle.NewBodyReader(bytes.NewReader(good), root, other)); err == nil {
					t.Errorf("the body was accepted for another set")
				}
			}
		})
	}
}

// TestSliceFlips: a detached file with any one bit flipped, cut anywhere or with
// something after it is refused, its head included.
// TestSlice: random detached files give the bytes asked for, prove the size
// when they should, and not before the end.
// TestSliceHeads: every way in which a head can be wrong. The good head asks for
// leaves 1:2 and 3:4 of 5,000 bytes.
// TestForgedLengths is why a length is a claim: an excerpt without the last leaf
// is accepted under many lengths, and never says that one is proven. With the
// last leaf only the true length is accepted.
// TestEmptyBlob: the empty blob is verified like any other.
// TestBaoTraps: the cases in which a known Bao implementation accepts anything.
// TestWriteRefuses: data, an outboard or a size that do not belong to the root
// never make a proof, and what was written before that verifies nothing.
func TestWriteRefuses(t *testing.T) {
	data := pattern(100_000, 1)
	root, nodes := build(t, data)
	good := merkle.NewTree(root, 100_000, bytes.NewReader(nodes))
	swapped := bytes.Clone(data)
	swapped[50_000] ^= 1
	badNodes := bytes.Clone(nodes)
	badNodes[0] ^= 1
	whole := merkle.Range{Start: 0, End: 100_000}
	for name, test := range map[string]struct {
		tree *merkle.Tree
		data io.ReaderAt
		r    merkle.Range
		err  error
	}{
		"swapped data, whole":       {good, bytes.NewReader(swapped), whole, merkle.ErrMismatch},
		"swapped data, its leaf":    {good, bytes.NewReader(swapped), merkle.Range{Start: 50_000, End: 50_001}, merkle.ErrMismatch},
		"swapped data, same group":  {good, bytes.NewReader(swapped), merkle.Range{Start: 60_000, End: 60_001}, merkle.ErrMismatch},
		"short data":                {good, bytes.NewReader(data[:99_999]), whole, merkle.ErrChanged},
		"no data":                   {good, bytes.NewReader(nil), whole, merkle.ErrChanged},
		"data that cannot be read":  {good, &broken{}, whole, errBroken},
		"wrong node":                {merkle.NewTree(root, 100_000, bytes.NewReader(badNodes)), bytes.NewReader(data), whole, merkle.ErrMismatch},
		"truncated outboard":        {merkle.NewTree(root, 100_000, bytes.NewReader(nodes[:40])), bytes.NewReader(data), whole, merkle.ErrMalformed},
		"no outboard":               {merkle.NewTree(root, 100_000, nil), bytes.NewReader(data), whole, merkle.ErrMalformed},
		"outboard cannot be read":   {merkle.NewTree(root, 100_000, &broken{}), bytes.NewReader(data), whole, errBroken},
		"another root":              {merkle.NewTree(merkle.Sum(nil), 100_000, bytes.NewReader(nodes)), bytes.NewReader(data), whole, merkle.ErrMismatch},
		"a range that is backwards": {good, bytes.NewReader(data), merkle.Range{Start: 9, End: 3}, merkle.ErrRange},
	} {
		t.Run(name, func(t *testing.T) {
			var w bytes.Buffer
			err := merkle.WriteSlice(&w, test.tree, test.data, []merkle.Range{test.r}, true)
			if !errors.Is(err, test.err) {
				t.Fatalf("error = %v, want %v", err, test.err)
			}
			if _, err := readSlice(w.Bytes(), root); err == nil {
				t.Error("what was written verifies")
			}
			if err := merkle.WriteBao(io.Discard, test.tree, test.data, test.r.Start, test.r.End-test.r.Start); err == nil {
				t.Error("a Bao slice was written")
			}
		})
	}
	// A change outside the groups that are read is none of this proof's business.
	if err := merkle.WriteSlice(io.Discard, good, bytes.NewReader(swapped), []merkle.Range{{Start: 0, End: 1}}, true); err != nil {
		t.Error(err)
	}
	set := leaves(t, 99_999, whole)
	if err := merkle.WriteBody(io.Discard, good, bytes.NewReader(data), set); !errors.Is(err, merkle.ErrRange) {
		t.Errorf("a set of another size: %v", err)
	}
	if err := merkle.WriteBody(io.Discard, good, bytes.NewReader(data), merkle.LeafSet{}); !errors.Is(err, merkle.ErrRange) {
		t.Errorf("no set: %v", err)
	}
	if err := merkle.WriteBody(failingWriter{}, good, bytes.NewReader(data), leaves(t, 100_000, whole)); !errors.Is(err, errBroken) {
		t.Errorf("a writer that fails: %v", err)
	}
}

// places notes which bytes are read.
type places struct {
	io.ReaderAt
	read []merkle.Range
}

func (p *places) ReadAt(b []byte, off int64) (int, error) {
	p.read = append(p.read, merkle.Range{Start: off, End: off + int64(len(b))})
	return p.ReaderAt.ReadAt(b, off)
}

// TestWriteReadsLittle: only the groups that hold selected leaves are read.
func TestWriteReadsLittle(t *testing.T) {
	data := pattern(1<<20, 1)
	const g = merkle.GroupSize
	for name, test := range map[string]struct{ ranges, want []merkle.Range }{
		"one leaf":       {[]merkle.Range{{Start: 5*g + 3000, End: 5*g + 3001}}, []merkle.Range{{Start: 5 * g, End: 6 * g}}},
		"two far leaves": {[]merkle.Range{{Start: 0, End: 1}, {Start: 60 * g, End: 60*g + 1}}, []merkle.Range{{Start: 0, End: g}, {Start: 60 * g, End: 61 * g}}},
		"over a border":  {[]merkle.Range{{Start: 8*g - 1, End: 8*g + 1}}, []merkle.Range{{Start: 7 * g, End: 9 * g}}},
		"whole groups":   {[]merkle.Range{{Start: 8 * g, End: 12 * g}}, []merkle.Range{{Start: 8 * g, End: 12 * g}}},
		"the end":        {[]merkle.Range{{Start: 1 << 20, End: 1 << 20}}, []merkle.Range{{Start: 63 * g, End: 64 * g}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &places{ReaderAt: bytes.NewReader(data)}
			if err := merkle.WriteBody(io.Discard, tree(t, data), r, leaves(t, 1<<20, test.ranges...)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.read, test.want) {
				t.Errorf("read %v, want %v", r.read, test.want)
			}
		})
	}
}

// TestSliceTooMany: a head that announces too many ranges is refused at once,
// not after its ranges have filled the memory.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errBroken }

// TestReadErrors: an error of the reader is no verdict on the proof.
// TestReaderMemory: the size that a proof claims costs no memory.
func TestReaderMemory(t *testing.T) {
	set := leaves(t, math.MaxInt64, merkle.Range{Start: 0, End: math.MaxInt64})
	head := bytes.Repeat([]byte{0xff}, 8)
	head[7] = 0x7f
	in := append(head, make([]byte, 64)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 20
	for range rounds {
		if _, err := drain(merkle.NewBodyReader(bytes.NewReader(in), merkle.Root{}, set)); !errors.Is(err, merkle.ErrMismatch) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / rounds; n > 80<<10 {
		t.Errorf("a reader of a claimed 2^63-1 bytes takes %d bytes of memory", n)
	}
}
