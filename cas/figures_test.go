package cas_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/merkle"
)

const fsyncEnv = "LEAFPROOF_CAS_FSYNC"

// numbered returns blob i of n bytes: no two are the same.
func numberedBytes(i, n int) []byte {
	p := make([]byte, n)
	binary.LittleEndian.PutUint64(p, uint64(i)*0x9e3779b97f4a7c15)
	copy(p[8:], fmt.Sprint("blob ", i))
	return p
}

func putBatch(t testing.TB, s *cas.Store, from, to, size int) {
	t.Helper()
	b := s.Begin(t.Context(), tenant)
	defer b.Discard()
	for i := from; i < to; i++ {
		if _, err := b.Put(t.Context(), bytes.NewReader(numberedBytes(i, size)), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A batch of 20,000 blobs of 2 KB costs at most 20 fsyncs, in a store that does
// not exist yet.
func TestBatchFsyncs(t *testing.T) {
	if dir := os.Getenv(fsyncEnv); dir != "" {
		begin := time.Now()
		putBatch(t, onDisk(t, dir), 0, 20_000, 2000)
		fmt.Printf("took %v\n", time.Since(begin))
		return
	}
	if testing.Short() {
		t.Skip("traces a process")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace")
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-c", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync", "-o", trace,
		os.Args[0], "-test.run=^TestBatchFsyncs$", "-test.v")
	cmd.Env = append(os.Environ(), fsyncEnv+"="+filepath.Join(dir, "store"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("strace does not work here: %v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	total := regexp.MustCompile(`(?m)^\s*\S+\s+\S+\s+\S*\s*?(\d+)\s+(?:\d+ )?\s*(fsync|fdatasync|syncfs)$`)
	n := 0
	for _, m := range total.FindAllStringSubmatch(string(text), -1) {
		calls, _ := strconv.Atoi(m[1])
		n += calls
	}
	t.Logf("%d fsyncs; %s", n, regexp.MustCompile(`took .*`).Find(out))
	if n == 0 || n > 20 {
		t.Errorf("%d fsyncs for 20,000 blobs, want at most 20:\n%s", n, text)
	}
}

// BenchmarkGroupCommit puts blobs of 2 KB, each durable when its put returns.
func BenchmarkGroupCommit(b *testing.B) {
	for _, workers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", workers), func(b *testing.B) {
			s := onDisk(b, b.TempDir())
			next := make(chan int)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := range next {
						if _, err := s.Put(b.Context(), tenant, bytes.NewReader(numberedBytes(i, 2000)), cas.Auto); err != nil {
							b.Error(err)
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				next <- i
				i++
			}
			close(next)
			wg.Wait()
		})
	}
}

// BenchmarkDurablePut compares one durable small put with appending the same
// bytes to a file and an fsync, in turns.
func BenchmarkDurablePut(b *testing.B) {
	dir := b.TempDir()
	s := onDisk(b, filepath.Join(dir, "store"))
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var puts, appends []time.Duration
	i := 0
	for b.Loop() {
		data := numberedBytes(i, 2000)
		i++
		begin := time.Now()
		if _, err := s.Put(b.Context(), tenant, bytes.NewReader(data), cas.Auto); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		puts, appends = append(puts, middle.Sub(begin)), append(appends, time.Since(middle))
	}
	slices.Sort(puts)
	slices.Sort(appends)
	put, add := puts[len(puts)/2], appends[len(appends)/2]
	b.ReportMetric(float64(put)/float64(add), "put/append")
	b.ReportMetric(float64(puts[len(puts)*98/100].Microseconds()), "put-p98-µs")
	b.ReportMetric(float64(puts[len(puts)-1].Microseconds()), "put-max-µs")
	b.ReportMetric(float64(put.Microseconds()), "put-µs")
	b.ReportMetric(float64(add.Microseconds()), "append-µs")
}

// BenchmarkSmallBlobs opens stores of many small blobs, and gets blobs from them
// that are there and that are not. LEAFPROOF_BLOBS=1000000 adds one that large.
func BenchmarkSmallBlobs(b *testing.B) {
	counts := []int{1_000, 10_000, 100_000}
	if n, err := strconv.Atoi(os.Getenv("LEAFPROOF_BLOBS")); err == nil {
		counts = append(counts, n)
	}
	for _, count := range counts {
		dir := b.TempDir()
		s := onDisk(b, dir)
		begin := time.Now()
		for i := 0; i < count; i += 1000 {
			putBatch(b, s, i, i+1000, 200)
		}
		b.Logf("%d blobs put in %v, %.1f µs each", count, time.Since(begin), float64(time.Since(begin).Microseconds())/float64(count))
		rng := rand.New(rand.NewPCG(1, 1))
		b.Run(fmt.Sprintf("open/blobs=%d", count), func(b *testing.B) {
			for b.Loop() {
				if err := onDisk(b, dir).Scan(b.Context(), tenant); err != nil {
					b.Fatal(err)
				}
			}
		})
		s = onDisk(b, dir)
		b.Run(fmt.Sprintf("get/blobs=%d", count), func(b *testing.B) {
			for b.Loop() {
				data := numberedBytes(rng.IntN(count), 200)
				r, err := s.Open(b.Context(), tenant, merkle.Sum(data), 200)
				if err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
		b.Run(fmt.Sprintf("put/blobs=%d", count), func(b *testing.B) {
			batch := s.Begin(b.Context(), tenant)
			defer batch.Discard()
			i := 1 << 40
			for b.Loop() {
				i++
				if _, err := batch.Put(b.Context(), bytes.NewReader(numberedBytes(i, 200)), cas.Auto); err != nil {
					b.Fatal(err)
				}
			}
		})
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.Logf("%d blobs: heap %d MB, from the system %d MB", count, m.HeapAlloc>>20, m.Sys>>20)
	}
}
