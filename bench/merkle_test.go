package bench_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof/merkle"
)

// giB is the size of the blob for which the sizes of proofs are stated.
const giB = 1 << 30

// file returns a file of -size incompressible bytes, which are in the page cache
// since they were just written.
func file(b *testing.B) *os.File {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "data"))
	check(b, err)
	b.Cleanup(func() { f.Close() })
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), *size)
	check(b, err)
	return f
}

// A runner is one way to hash the file, run once.
type runner struct {
	name string
	run  func()
}

// beside runs all in turn, again and again, and returns the shortest time of
// each: what else the machine does hits them alike.
func beside(b *testing.B, all []runner) map[string]time.Duration {
	best := map[string]time.Duration{}
	for b.Loop() {
		for _, r := range all {
			start := time.Now()
			r.run()
			if d := time.Since(start); best[r.name] == 0 || d < best[r.name] {
				best[r.name] = d
			}
		}
	}
	b.ReportMetric(0, "ns/op") // the time of all together says nothing
	return best
}

// rate reports the speed of the shortest time.
func rate(b *testing.B, d time.Duration, unit string) {
	b.ReportMetric(float64(*size)/1e9/d.Seconds(), unit)
}

// program returns a runner of a program on the file.
func program(b *testing.B, name, path string, args ...string) runner {
	return runner{name, func() {
		out, err := exec.Command(path, args...).CombinedOutput()
		if err != nil {
			b.Fatalf("%s: %v\n%s", name, err, out)
		}
	}}
}

// read returns a runner that only reads the file, as a build does, in two
// goroutines: no build that reads into a buffer takes less.
func read(b *testing.B, f *os.File) runner {
	return runner{"read", func() {
		var readers sync.WaitGroup
		for i := range int64(2) {
			readers.Go(func() {
				p := make([]byte, 256<<10)
				for at := i * int64(len(p)); at < *size; at += 2 * int64(len(p)) {
					if _, err := f.ReadAt(p, at); err != nil && err != io.EOF {
						b.Error(err)
					}
				}
			})
		}
		readers.Wait()
	}}
}

// BenchmarkMerkleBuild prints how the root and outboard of a file compare with
// b3sum's root alone in the best of its modes, on all cores and on one, and how
// reading the file alone does on two. Run it with -size 1073741824 and
// -benchtime 5x or more.
func BenchmarkMerkleBuild(b *testing.B) {
	b3sum, err := exec.LookPath("b3sum")
	if err != nil {
		b.Skip("no b3sum on this machine")
	}
	f := file(b)
	nodes, err := os.Create(filepath.Join(b.TempDir(), "nodes"))
	check(b, err)
	defer nodes.Close()
	build := func(workers int) func() {
		return func() {
			_, err := merkle.BuildAtWorkers(b.Context(), f, *size, nodes, workers)
			check(b, err)
		}
	}
	best := beside(b, []runner{
		{"2", build(2)},
		program(b, "b3sum", b3sum, f.Name()),
		program(b, "b3sum no-mmap", b3sum, "--no-mmap", f.Name()),
		{"1", build(1)},
		program(b, "b3sum 1", b3sum, "--num-threads", "1", f.Name()),
		program(b, "b3sum 1 no-mmap", b3sum, "--num-threads", "1", "--no-mmap", f.Name()),
		read(b, f),
	})
	one := min(best["b3sum 1"], best["b3sum 1 no-mmap"])
	all := min(one, best["b3sum"], best["b3sum no-mmap"])
	b.ReportMetric(all.Seconds()/best["2"].Seconds(), "×b3sum-2-workers")
	b.ReportMetric(one.Seconds()/best["1"].Seconds(), "×b3sum-1-worker")
	b.ReportMetric(all.Seconds()/best["read"].Seconds(), "×b3sum-2-reading-alone")
	rate(b, best["2"], "GB/s-2-workers")
	rate(b, best["1"], "GB/s-1-worker")
	rate(b, all, "GB/s-b3sum")
	rate(b, one, "GB/s-b3sum-1")
}

// BenchmarkMerkleSum prints the wall time of `leafproof sum` as a part of
// b3sum's: in its default mode and in its best.
func BenchmarkMerkleSum(b *testing.B) {
	b3sum, err := exec.LookPath("b3sum")
	if err != nil {
		b.Skip("no b3sum on this machine")
	}
	bin := filepath.Join(b.TempDir(), "leafproof")
	if out, err := exec.Command("go", "build", "-o", bin, "leafproof/cmd/leafproof").CombinedOutput(); err != nil {
		b.Skipf("cannot build the command: %v\n%s", err, out)
	}
	f := file(b)
	best := beside(b, []runner{
		program(b, "leafproof", bin, "sum", f.Name()),
		program(b, "b3sum", b3sum, f.Name()),
		program(b, "b3sum no-mmap", b3sum, "--no-mmap", f.Name()),
	})
	b.ReportMetric(best["leafproof"].Seconds()/best["b3sum"].Seconds(), "×b3sum's-time")
	b.ReportMetric(best["leafproof"].Seconds()/min(best["b3sum"], best["b3sum no-mmap"]).Seconds(), "×its-best-time")
	rate(b, best["leafproof"], "GB/s")
}

// each runs f again and again, and reports the shortest time besides the usual
// mean: on a machine that others use, the mean says more about them.
func each(b *testing.B, f func()) {
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Nanoseconds()), "ns-at-best")
}

// BenchmarkMerkleProof makes and verifies excerpts of a file.
func BenchmarkMerkleProof(b *testing.B) {
	f := file(b)
	nodes, err := os.Create(filepath.Join(b.TempDir(), "nodes"))
	check(b, err)
	defer nodes.Close()
	root, err := merkle.BuildAt(b.Context(), f, *size, nodes)
	check(b, err)
	tree := merkle.NewTree(root, *size, nodes)
	for _, test := range []struct {
		name string
		n    int64
	}{{"1KiB", 1 << 10}, {"1MiB", 1 << 20}} {
		start := *size/3 - *size/3%merkle.LeafSize
		set, err := merkle.Leaves(*size, merkle.Range{Start: start, End: start + test.n})
		check(b, err)
		var body bytes.Buffer
		b.Run("make="+test.name, func(b *testing.B) {
			b.SetBytes(test.n)
			b.ReportAllocs()
			each(b, func() {
				body.Reset()
				check(b, merkle.WriteBody(&body, tree, f, set))
			})
		})
		body.Reset()
		check(b, merkle.WriteBody(&body, tree, f, set))
		b.Run("verify="+test.name, func(b *testing.B) {
			b.SetBytes(test.n)
			b.ReportAllocs()
			each(b, func() {
				r := merkle.NewBodyReader(bytes.NewReader(body.Bytes()), root, set)
				for {
					_, _, err := r.Next()
					if err == io.EOF {
						return
					}
					check(b, err)
				}
			})
		})
	}
}

// fileSize returns the size of the detached slice file of a set: its head and
// its body, which has the last leaf.
func fileSize(set merkle.LeafSet) int64 {
	head := binary.AppendUvarint([]byte("lps1\x00"), uint64(len(set.Ranges())))
	end := int64(0)
	for _, r := range set.Ranges() {
		head = binary.AppendUvarint(head, uint64(r.Start-end))
		head = binary.AppendUvarint(head, uint64(r.End-r.Start-1))
		end = r.End
	}
	return int64(len(head)) + merkle.BodySize(set.WithLast())
}

// BenchmarkMerkleProofSize prints the sizes of proofs from 1 GiB, the largest of
// many at random places and at the borders that cost most.
func BenchmarkMerkleProofSize(b *testing.B) {
	set := func(ranges ...merkle.Range) merkle.LeafSet {
		s, err := merkle.Leaves(giB, ranges...)
		check(b, err)
		return s
	}
	// largest returns the most that size says of n bytes at a multiple of unit.
	largest := func(n, unit int64, size func(merkle.LeafSet) int64) (most int64) {
		rng := rand.New(rand.NewPCG(1, 2))
		places := []int64{0, giB / 2, giB/2 - unit, giB/2 - n/2/unit*unit, giB - n, giB - n - unit}
		for range 20_000 {
			places = append(places, rng.Int64N((giB-n)/unit)*unit)
		}
		for _, at := range places {
			most = max(most, size(set(merkle.Range{Start: at, End: at + n})))
		}
		return most
	}
	over := func(size int64) float64 { return 100 * float64(size-1<<20) / (1 << 20) }
	for b.Loop() {
		b.ReportMetric(float64(largest(1<<10, 1<<10, merkle.BodySize)), "leaf-body-bytes")
		b.ReportMetric(float64(largest(1<<10, 1<<10, fileSize)), "leaf-file-bytes")
		b.ReportMetric(float64(largest(1<<10, 1, fileSize)), "any-1KiB-file-bytes")
		b.ReportMetric(over(largest(1<<20, merkle.GroupSize, merkle.BodySize)), "%-over-1MiB-of-groups-body")
		b.ReportMetric(over(largest(1<<20, 1, fileSize)), "%-over-any-1MiB-file")
		rng := rand.New(rand.NewPCG(3, 4))
		var scattered []merkle.Range
		for range 1000 {
			at := rng.Int64N(giB - 200)
			scattered = append(scattered, merkle.Range{Start: at, End: at + 200})
		}
		b.ReportMetric(float64(fileSize(set(scattered...)))/1e6, "MB-1000x200B-file")
	}
	b.ReportMetric(0, "ns/op")
}
