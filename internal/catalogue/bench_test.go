package catalogue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
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
