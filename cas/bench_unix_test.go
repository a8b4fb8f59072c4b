//go:build unix

package cas_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"leafproof/cas"
)

// BenchmarkChunkedPut stores a blob in chunks, durably, in a new store each time,
// and reports the CPU time a GiB and the bytes stored for each of the blob.
func BenchmarkChunkedPut(b *testing.B) {
	for name, bench := range map[string]struct {
		data  []byte
		place cas.Placement
	}{
		"lines": {lines(1, chunkedSize), cas.ChunkedRecords}, "random": {random(1, chunkedSize), cas.Chunked},
	} {
		b.Run("bytes="+name, func(b *testing.B) {
			b.SetBytes(chunkedSize)
			b.ReportAllocs()
			var took time.Duration
			var kept int64
			for b.Loop() {
				dir := b.TempDir()
				s := onDisk(b, dir)
				before := cpuTime(b)
				if _, err := s.Put(b.Context(), tenant, bytes.NewReader(bench.data), bench.place); err != nil {
					b.Fatal(err)
				}
				took += cpuTime(b) - before
				kept = stored(b, dir)
				os.RemoveAll(dir)
			}
			b.ReportMetric(took.Seconds()/float64(b.N)*(1<<30)/chunkedSize, "cpu-s/GiB")
			b.ReportMetric(float64(kept)/chunkedSize, "stored/byte")
		})
	}
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
