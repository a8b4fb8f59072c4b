package merkle_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"leafproof/merkle"
)

func BenchmarkSum(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			data := pattern(size, 1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				merkle.Sum(data)
			}
		})
	}
}

// discardAt keeps nothing.
type discardAt struct{}

func (discardAt) WriteAt(p []byte, off int64) (int, error) { return len(p), nil }

// BenchmarkBuilder writes pieces of 64 KiB, as io.Copy from a large buffer does.
func BenchmarkBuilder(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			data := pattern(size, 1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				w := merkle.NewBuilder(discardAt{})
				for p := data; len(p) > 0; p = p[min(len(p), 64<<10):] {
					w.Write(p[:min(len(p), 64<<10)])
				}
				if _, err := w.Seal(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBuildAt(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20, 64 << 20, 256 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			data := bytes.NewReader(pattern(size, 1))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := merkle.BuildAt(b.Context(), data, int64(size), discardAt{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// excerpts are the lengths of the excerpts of 64 MiB that the benchmarks below
// write and verify.
var excerpts = []int64{1 << 10, 64 << 10, 1 << 20, 64 << 20}

const excerptFrom = 64 << 20

// excerptSet begins inside a group, so that both edges are cut, unless it is all.
func excerptSet(b *testing.B, n int64) merkle.LeafSet {
	start := min(int64(20<<20+3*merkle.LeafSize), excerptFrom-n)
	return leaves(b, excerptFrom, merkle.Range{Start: start, End: start + n})
}

func BenchmarkWriteBody(b *testing.B) {
	data := pattern(excerptFrom, 1)
	tr := tree(b, data)
	for _, n := range excerpts {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			set := excerptSet(b, n)
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				if err := merkle.WriteBody(io.Discard, tr, bytes.NewReader(data), set); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBodyReader(b *testing.B) {
	data := pattern(excerptFrom, 1)
	root := merkle.Sum(data)
	for _, n := range excerpts {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			set := excerptSet(b, n)
			in := body(b, data, set)
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				r := merkle.NewBodyReader(bytes.NewReader(in), root, set)
				for {
					if _, _, err := r.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkVerifyGroups(b *testing.B) {
	data := pattern(excerptFrom, 1)
	tr := tree(b, data)
	for _, n := range []int64{16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			first := int64(20<<20) / merkle.GroupSize
			p := data[20<<20:][:n]
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				if err := tr.VerifyGroups(first, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
