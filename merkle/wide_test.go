package merkle

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// Codes returns the names of the codes that this processor can run, the one that
// it is given first. The last is guts, whose values the others must have.
func Codes() (codes []string) {
	if wider {
		codes = append(codes, "16 lanes")
	}
	if wide {
		codes = append(codes, "8 lanes")
	}
	return append(codes, "guts")
}

// WithCode runs f with one of the codes. Nothing else may run meanwhile.
func WithCode(code string, f func()) {
	defer func(was, wasWider bool) { wide, wider = was, wasWider }(wide, wider)
	wide, wider = code != "guts", code == "16 lanes"
	f()
}

// with returns what f returns with one of the codes.
func with[T any](code string, f func() T) (v T) {
	WithCode(code, func() { v = f() })
	return v
}

// wideCodes runs a test with each of the codes but guts.
func wideCodes(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	codes := Codes()
	if len(codes) == 1 {
		t.Skip("this processor has no wide code")
	}
	for _, code := range codes[:len(codes)-1] {
		WithCode(code, func() { t.Run(code, test) })
	}
}

func random(t *testing.T, n int, seed byte) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := rand.NewChaCha8([32]byte{seed}).Read(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWideLeaves holds the wide code to guts, for every number of leaves, places
// whose counters fill both halves, and memory that begins and ends anywhere.
func TestWideLeaves(t *testing.T) { wideCodes(t, hasWideLeaves) }

func hasWideLeaves(t *testing.T) {
	const slack = 67
	memory := random(t, GroupSize+slack, 1)
	for n := LeafSize + 1; n <= GroupSize; n += 251 {
		for _, size := range []int{n, (n + LeafSize - 1) / LeafSize * LeafSize} {
			for i, leaf := range []int64{0, 16, 48, 1<<32 - 16, 1 << 32, 1<<40 + 16, math.MaxInt64/LeafSize - 15} {
				from := (size + 13*i) % slack
				for _, p := range [][]byte{memory[from : from+size], memory[from : from+size : from+size]} {
					for _, root := range []bool{false, true} {
						got := leavesCV(p, leaf, root)
						if want := with("guts", func() cv { return leavesCV(p, leaf, root) }); got != want {
							t.Fatalf("%d bytes from leaf %d on, root %v: %x, guts says %x", size, leaf, root, got, want)
						}
					}
				}
			}
		}
	}
}

func TestWideParents(t *testing.T) { wideCodes(t, hasWideParents) }

func hasWideParents(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var v values
		for i := range v {
			for j := range v[i] {
				v[i][j] = rng.Uint32()
			}
		}
		up, n := v, 1+rng.IntN(wideLanes)
		up.parents(n)
		for i := range n {
			if want := parentCV(&v[2*i], &v[2*i+1], false); up[i] != want {
				t.Fatalf("parent %d of %x is %x, guts says %x", i, v, up[i], want)
			}
		}
	}
}

// TestGroupTree asks for every subtree inside groups of every length.
func TestGroupTree(t *testing.T) { wideCodes(t, hasGroupTree) }

func hasGroupTree(t *testing.T) {
	for n := 2; n <= groupLeaves; n++ {
		for _, size := range []int{n*LeafSize - LeafSize + 1, n * LeafSize} {
			p := random(t, size, byte(n))
			var tree groupTree
			tree.fill(p, 32)
			var check func(lo, hi int64)
			check = func(lo, hi int64) {
				for _, root := range []bool{false, lo == 0 && hi == int64(n)} {
					part := p[lo*LeafSize : min(hi*LeafSize, int64(size))]
					want := with("guts", func() cv { return leavesCV(part, 32+lo, root) })
					if root && hi-lo < 2 {
						continue
					}
					if got := tree.value(lo, hi, root); got != want {
						t.Fatalf("leaves %d:%d of %d bytes, root %v: %x, want %x", lo, hi, size, root, got, want)
					}
				}
				if hi-lo > 1 {
					mid := lo + split(hi-lo)
					check(lo, mid)
					check(mid, hi)
				}
			}
			check(0, int64(n))
		}
	}
}

// TestWidePiece compares values and nodes of pieces of every size.
func TestWidePiece(t *testing.T) { wideCodes(t, hasWidePiece) }

func hasWidePiece(t *testing.T) {
	data := random(t, GroupSize<<largeHeight, 1)
	type done struct {
		cv    cv
		nodes []byte
	}
	for h := range largeHeight + 1 {
		for _, group := range []int64{0, 16, 1<<28 - 16, 1 << 28, 1 << 40} {
			p := data[:GroupSize<<h]
			task := func() done {
				c, nodes := pieceCV(p, group, nil)
				return done{c, nodes}
			}
			got, want := task(), with("guts", task)
			if got.cv != want.cv || !bytes.Equal(got.nodes, want.nodes) {
				t.Fatalf("height %d from group %d on: %x %x, want %x %x", h, group, got.cv, got.nodes, want.cv, want.nodes)
			}
		}
	}
}

// BenchmarkPiece hashes what a worker of BuildAt reads at once.
func BenchmarkPiece(b *testing.B) {
	p := make([]byte, GroupSize<<largeHeight)
	out := make([]byte, 0, nodeSize*taskNodes(largeHeight))
	run := func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			pieceCV(p, 0, out)
		}
	}
	for _, code := range Codes() {
		WithCode(code, func() { b.Run("code="+code, run) })
	}
}
