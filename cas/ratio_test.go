package cas_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

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
