package catalogue_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leafproof/internal/catalogue"

	"golang.org/x/mod/sumdb/tlog"
)

// BenchmarkPublish: publishers=1 pays one sync each, publishers=16 share them.
func BenchmarkPublish(b *testing.B) {
	for _, publishers := range []int{1, 16} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			c := create(b)
			b.ReportAllocs()
			var next atomic.Int64
			b.SetParallelism(publishers) // times GOMAXPROCS, so at least as many
			if publishers == 1 {
				for b.Loop() {
					publish(b, c, artifact(int(next.Add(1))))
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.Publish(b.Context(), artifact(int(next.Add(1)))); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkEpoch is what the gate pays before every 64 KiB.
func BenchmarkEpoch(b *testing.B) {
	c := create(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Epoch(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkArtifact(b *testing.B) {
	c := create(b)
	for n := range 1000 {
		publish(b, c, artifact(n))
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = (n + 7) % 1000
		if _, err := c.Artifact(b.Context(), artifact(n).ArtifactID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLog is what the commit log costs: publishing with and without a leaf,
// one by one and 512 in a commit, and a proof in a log of 10^6 leaves.
func BenchmarkLog(b *testing.B) {
	seal := func(int64, tlog.Hash, time.Time) ([]byte, error) { return make([]byte, 500), nil }
	for _, logged := range []bool{false, true} {
		row := func(n int) catalogue.Artifact {
			if logged {
				return leafRow(n)
			}
			return artifact(n)
		}
		b.Run(fmt.Sprintf("one/logged=%v", logged), func(b *testing.B) {
			c := create(b)
			c.Seal(seal)
			for n := 0; b.Loop(); n++ {
				publish(b, c, row(n))
			}
		})
		b.Run(fmt.Sprintf("batch/logged=%v", logged), func(b *testing.B) {
			c := create(b)
			c.Seal(seal)
			n := 0
			for b.Loop() {
				var all sync.WaitGroup
				for range 512 {
					n++
					a := row(n)
					all.Go(func() {
						if err := c.Publish(b.Context(), a); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
		})
	}
	b.Run("prove/leaves=1000000", func(b *testing.B) {
		const size = 1_000_000
		c := create(b)
		list := make([]catalogue.Leaf, 0, 10_000)
		for n := range size {
			if list = append(list, leaf(n)); len(list) == cap(list) {
				if err := catalogue.AppendUnchecked(b.Context(), c, list...); err != nil {
					b.Fatal(err)
				}
				list = list[:0]
			}
		}
		i := int64(0)
		for b.Loop() {
			i = (i + 617_353) % size
			if _, err := tlog.ProveRecord(size, i, c.LogHashes(b.Context())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
