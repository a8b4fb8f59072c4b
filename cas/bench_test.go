package cas_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/cas/disk"
)

// BenchmarkPut stores new blobs, durably. The bytes of each differ in the
// first eight, so that none is there already.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{2 << 10, 100 << 10, 64 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			s := onDisk(b, b.TempDir())
			data := random(1, size)
			i := uint64(0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				i++
				copy(data, fmt.Sprintf("%08x", i))
				if _, err := s.Put(b.Context(), tenant, bytes.NewReader(data), cas.Auto); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBatch stores 1,000 new blobs of 2 KB in one group commit.
func BenchmarkBatch(b *testing.B) {
	s := onDisk(b, b.TempDir())
	data := random(1, 2000)
	i := uint64(0)
	b.SetBytes(1000 * int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		batch := s.Begin(b.Context(), tenant)
		for range 1000 {
			i++
			copy(data, fmt.Sprintf("%08x", i))
			if _, err := batch.Put(b.Context(), bytes.NewReader(data), cas.Auto); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Commit(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

const benchSize = 256 << 20

// benchReaders returns a verified reader of benchSize bytes and the plain file
// behind it.
func benchReaders(b *testing.B) map[string]io.ReaderAt {
	dir := b.TempDir()
	backend, err := disk.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { backend.Close() })
	s := cas.New(backend, cas.Options{})
	data := random(1, benchSize)
	put(b, s, data, cas.Auto)
	paths, err := filepath.Glob(filepath.Join(dir, "*", "blob", "*", "*"))
	if err != nil || len(paths) != 1 {
		b.Fatalf("%v %v", paths, err)
	}
	plain, err := os.Open(paths[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { plain.Close() })
	return map[string]io.ReaderAt{"verified": open(b, s, data), "pread": plain}
}

// BenchmarkSequential reads a blob from start to end with buffers of some
// sizes.
func BenchmarkSequential(b *testing.B) {
	for name, r := range benchReaders(b) {
		for _, buffer := range []int{4 << 10, 32 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("reader=%s/buffer=%d", name, buffer), func(b *testing.B) {
				buf := make([]byte, buffer)
				b.SetBytes(benchSize)
				b.ReportAllocs()
				for b.Loop() {
					for off := int64(0); off < benchSize; off += int64(buffer) {
						if _, err := r.ReadAt(buf, off); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkRandom reads 64 KiB at random, unaligned places.
func BenchmarkRandom(b *testing.B) {
	for name, r := range benchReaders(b) {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("reader=%s/size=%d", name, size), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				buf := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.ReadAt(buf, rng.Int64N(benchSize-int64(size))); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRatio reads random, unaligned places by pread and verified, in turns,
// and reports the ratio of the median times.
func BenchmarkRatio(b *testing.B) {
	readers := benchReaders(b)
	plain, verified := readers["pread"], readers["verified"]
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20} {
		b.Run("size="+name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			buf := make([]byte, size)
			var times [2][]time.Duration
			b.ReportAllocs()
			for b.Loop() {
				for i := range 2 {
					off := rng.Int64N(benchSize - int64(size))
					r, start := plain, time.Now()
					if i == 1 {
						r = verified
					}
					if _, err := r.ReadAt(buf, off); err != nil {
						b.Fatal(err)
					}
					times[i] = append(times[i], time.Since(start))
				}
			}
			slices.Sort(times[0])
			slices.Sort(times[1])
			p, v := times[0][len(times[0])/2], times[1][len(times[1])/2]
			b.ReportMetric(float64(v)/float64(p), "×pread")
			b.ReportMetric(float64(p.Nanoseconds()), "pread-ns")
			b.ReportMetric(float64(v.Nanoseconds()), "verified-ns")
		})
	}
}

// chunkedSize is that of the blobs in [BenchmarkChunkedPut].
const chunkedSize = 64 << 20

// BenchmarkChunkedRandom reads 64 KiB at random, unaligned places of a chunked
// blob.
func BenchmarkChunkedRandom(b *testing.B) {
	for name, data := range map[string][]byte{"lines": lines(1, chunkedSize), "random": random(1, chunkedSize)} {
		b.Run("bytes="+name, func(b *testing.B) {
			s := onDisk(b, b.TempDir())
			place := cas.Chunked
			if name == "lines" {
				place = cas.ChunkedRecords
			}
			put(b, s, data, place)
			r := open(b, s, data)
			rng := rand.New(rand.NewPCG(1, 1))
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.ReadAt(buf, rng.Int64N(chunkedSize-int64(len(buf)))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChunkerScan finds the places where chunks may end.
func BenchmarkChunkerScan(b *testing.B) {
	data := random(1, 1<<20)
	for id, c := range cas.Chunkers() {
		b.Run(fmt.Sprintf("chunker=%d", id), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				c.Cut(data, func() int { return len(data) })
			}
		})
	}
}
