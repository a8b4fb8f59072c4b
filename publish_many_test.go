package leafproof_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"leafproof"
)

// BenchmarkPublishMany publishes artifacts of 2 KB from many goroutines at once.
func BenchmarkPublishMany(b *testing.B) {
	for _, workers := range []int{1, 16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("goroutines=%d", workers), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "store")
			if err := leafproof.Init(b.Context(), dir); err != nil {
				b.Fatal(err)
			}
			s, err := leafproof.Open(b.Context(), dir)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			next := make(chan int)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := range next {
						data := bytes.Repeat(fmt.Appendf(nil, "artifact %8d\n", i), 113)
						d, err := s.Put(b.Context(), bytes.NewReader(data), leafproof.PutOptions{Records: "none"})
						if err == nil {
							_, err = s.Publish(b.Context(), d, leafproof.Facts{})
						}
						if err != nil {
							b.Error(err)
							return
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
