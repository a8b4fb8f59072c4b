package merkle_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"leafproof/merkle"
)

// blockSizes are blobs of one to many blocks of 1 MiB, with every kind of end.
var blockSizes = []int{
	0, 1, 16384, 16385, 100_000, 1 << 20, 1<<20 + 1, 1<<20 + 16384, 2 << 20,
	3<<20 - 5, 3<<20 + 40_000, 5 << 20, 8 << 20, 9<<20 + 1, 11<<20 + 333_333,
}

// A Verifier, fresh or long used, with room for all that it proved or for next
// to nothing, says what Tree.VerifyGroups says of right and of wrong data.
func TestVerifierLikeTree(t *testing.T) {
	for _, size := range blockSizes {
		for _, limits := range [][2]int{{1024, 256}, {1, 1}, {3, 2}} {
			t.Run(fmt.Sprintf("size=%d/limits=%v", size, limits), func(t *testing.T) {
				data := pattern(size, 1)
				tr := tree(t, data)
				v := merkle.NewVerifier(tr)
				v.Limit(limits)
				rng := rand.New(rand.NewPCG(uint64(size), 1))
				groups := max(1, (size+merkle.GroupSize-1)/merkle.GroupSize)
				for range 200 {
					first := rng.IntN(groups)
					end := min(groups, first+1+rng.IntN(groups)>>rng.IntN(10))
					p := bytes.Clone(data[first*merkle.GroupSize : min(end*merkle.GroupSize, size)])
					if len(p) > 0 && rng.IntN(2) == 0 {
						p[rng.IntN(len(p))] ^= 1 << rng.IntN(8)
					}
					want := tr.VerifyGroups(int64(first), p)
					got := v.VerifyGroups(int64(first), parts(rng, p)...)
					if (got == nil) != (want == nil) || errors.Is(got, merkle.ErrMismatch) != errors.Is(want, merkle.ErrMismatch) {
						t.Fatalf("groups %d:%d: error = %v, the tree says %v", first, end, got, want)
					}
				}
				if groups > 1 {
					if err := v.VerifyGroups(1, data[:merkle.GroupSize]); err == nil {
						t.Error("the first group verifies as the second")
					}
				}
			})
		}
	}
}

// parts cuts p at some groups' ends.
func parts(rng *rand.Rand, p []byte) (out [][]byte) {
	for rng.IntN(4) > 0 {
		n := min(len(p), (1+rng.IntN(1+len(p)/merkle.GroupSize))*merkle.GroupSize)
		out, p = append(out, p[:n]), p[n:]
	}
	return append(out, p)
}

func TestVerifierRange(t *testing.T) {
	data := pattern(40000, 7)
	v := merkle.NewVerifier(tree(t, data))
	for name, test := range map[string]struct {
		first int64
		parts [][]byte
	}{
		"nothing":           {0, nil},
		"empty parts":       {0, [][]byte{nil, {}}},
		"negative":          {-1, [][]byte{data[:merkle.GroupSize]}},
		"part of a group":   {0, [][]byte{data[:1024]}},
		"one byte short":    {2, [][]byte{data[2*merkle.GroupSize : len(data)-1]}},
		"partial then more": {0, [][]byte{data, {0}}},
		"cut in a group":    {0, [][]byte{data[:100], data[100:]}},
		"past the end":      {3, [][]byte{data[:1]}},
		"far past the end":  {1 << 62, [][]byte{data[:merkle.GroupSize]}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := v.VerifyGroups(test.first, test.parts...); !errors.Is(err, merkle.ErrRange) {
				t.Errorf("error = %v, want ErrRange", err)
			}
		})
	}
}

// A wrong node anywhere never lets wrong data through; the outboard mended,
// everything passes again.
func TestVerifierWrongNodes(t *testing.T) {
	const size = 3<<20 + 40_000
	data := pattern(size, 2)
	root, nodes := build(t, data)
	rng := rand.New(rand.NewPCG(2, 2))
	refused := false
	for at := 0; at < len(nodes); at += 32 {
		board := &ram{b: bytes.Clone(nodes)}
		board.b[at+rng.IntN(32)] ^= 1
		v := merkle.NewVerifier(merkle.NewTree(root, size, board))
		check := func(g int) error {
			p := data[g*merkle.GroupSize : min((g+1)*merkle.GroupSize, size)]
			err := v.VerifyGroups(int64(g), p)
			if err != nil && !errors.Is(err, merkle.ErrMismatch) {
				t.Fatalf("wrong node %d, group %d: %v", at/32, g, err)
			}
			q := bytes.Clone(p)
			q[rng.IntN(len(q))] ^= 1
			if v.VerifyGroups(int64(g), q) == nil {
				t.Fatalf("wrong node %d: wrong data pass as group %d", at/32, g)
			}
			return err
		}
		groups := (size + merkle.GroupSize - 1) / merkle.GroupSize
		order := rng.Perm(groups)[:40]
		for _, g := range order {
			refused = check(g) != nil || refused
		}
		copy(board.b, nodes)
		for _, g := range order {
			if err := check(g); err != nil {
				t.Fatalf("node %d mended, group %d: %v", at/32, g, err)
			}
		}
	}
	if !refused {
		t.Error("no wrong node was met")
	}
}

// A truncated, missing or unreadable outboard is told apart as by a Tree.
func TestVerifierOutboardErrors(t *testing.T) {
	data := pattern(3<<20+40_000, 3)
	root, nodes := build(t, data)
	p := data[:merkle.GroupSize]
	for name, test := range map[string]struct {
		nodes io.ReaderAt
		want  error
	}{
		"empty":       {bytes.NewReader(nil), merkle.ErrMalformed},
		"half a node": {bytes.NewReader(nodes[:16]), merkle.ErrMalformed},
		"one block":   {bytes.NewReader(nodes[:127*32]), merkle.ErrMalformed},
		"none":        {nil, merkle.ErrMalformed},
		"broken":      {&broken{}, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			v := merkle.NewVerifier(merkle.NewTree(root, int64(len(data)), test.nodes))
			if err := v.VerifyGroups(0, p); !errors.Is(err, test.want) {
				t.Errorf("error = %v, want %v", err, test.want)
			}
		})
	}
}

// countingAt counts reads.
type countingAt struct {
	io.ReaderAt
	reads, bytes int
}

func (c *countingAt) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

// Once the upper part is proven, a check costs one read of a block's nodes, one
// that follows another in its block costs none, and none allocates.
func TestVerifierSteady(t *testing.T) {
	const blocks = 37
	data := pattern(blocks<<20+5000, 4)
	root, nodes := build(t, data)
	board := &countingAt{ReaderAt: bytes.NewReader(nodes)}
	v := merkle.NewVerifier(merkle.NewTree(root, int64(len(data)), board))
	check := func(block, group int) {
		first := block*64 + group
		if err := v.VerifyGroups(int64(first), data[first*merkle.GroupSize:(first+1)*merkle.GroupSize]); err != nil {
			t.Fatal(err)
		}
	}
	for b := range blocks {
		check(b, b)
	}
	if board.reads > 3*blocks {
		t.Errorf("%d reads of the outboard to prove %d blocks", board.reads, blocks)
	}
	board.reads, board.bytes = 0, 0
	rng := rand.New(rand.NewPCG(4, 4))
	last := blocks - 1
	for range 300 {
		b := (last + 1 + rng.IntN(blocks-1)) % blocks
		check(b, rng.IntN(64))
		last = b
	}
	if board.reads != 300 || board.bytes > 300*4096 {
		t.Errorf("300 checks at random read the outboard %d times, %d bytes", board.reads, board.bytes)
	}
	check(9, 0)
	board.reads = 0
	for g := range 64 {
		check(9, g)
	}
	if board.reads != 0 {
		t.Errorf("checks in one block read the outboard %d times", board.reads)
	}
	if n := testing.AllocsPerRun(100, func() { check(rng.IntN(blocks), rng.IntN(64)) }); n != 0 {
		t.Errorf("%v allocations a check", n)
	}
}

func TestVerifierConcurrent(t *testing.T) {
	data := pattern(9<<20+1, 5)
	v := merkle.NewVerifier(tree(t, data))
	v.Limit([2]int{4, 2})
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 5))
			for range 300 {
				first := rng.IntN(9 * 64)
				p := data[first*merkle.GroupSize : (first+1)*merkle.GroupSize]
				if g == 0 {
					p = bytes.Clone(p)
					p[0] ^= 1
				}
				if err := v.VerifyGroups(int64(first), p); (err == nil) == (g == 0) {
					t.Errorf("group %d: %v", first, err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkVerifier checks groups at random places of 64 MiB.
func BenchmarkVerifier(b *testing.B) {
	data := pattern(64<<20, 6)
	tr := tree(b, data)
	v := merkle.NewVerifier(tr)
	for name, verify := range map[string]func(int64, []byte) error{
		"tree":     tr.VerifyGroups,
		"verifier": func(first int64, p []byte) error { return v.VerifyGroups(first, p) },
	} {
		for _, size := range []int{16 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("by=%s/size=%d", name, size), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(6, 6))
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					first := rng.IntN((len(data) - size) / merkle.GroupSize)
					if err := verify(int64(first), data[first*merkle.GroupSize:][:size]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
