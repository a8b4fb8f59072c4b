package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
)

// progress shows on a terminal how far a long read has come. Elsewhere it is silent.
type progress struct {
	w     io.Writer
	name  string
	size  int64 // -1 where unknown
	done  atomic.Int64
	start time.Time
	quit  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// newProgress starts a progress bar, which appears after a second.
func newProgress(w io.Writer, name string, size int64) *progress {
	p := &progress{w: w, name: name, size: size, start: time.Now(), quit: make(chan struct{})}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		p.ended.Go(p.run)
	}
	return p
}

func (p *progress) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	shown := false
	for {
		select {
		case <-tick.C:
			shown = true
			fmt.Fprintf(p.w, "\r\x1b[K%s", p.line())
		case <-p.quit:
			if shown {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		}
	}
}

func (p *progress) line() string {
	done := p.done.Load()
	rate := float64(done) / time.Since(p.start).Seconds() / 1e6
	if p.size <= 0 {
		return fmt.Sprintf("%s  %.1f MB  %.0f MB/s", p.name, float64(done)/1e6, rate)
	}
	const width = 30
	filled := int(min(done, p.size) * width / p.size)
	bar := make([]byte, width)
	for i := range bar {
		bar[i] = '.'
		if i < filled {
			bar[i] = '#'
		}
	}
	return fmt.Sprintf("%s  [%s] %3d%%  %.0f MB/s", p.name, bar, min(done, p.size)*100/p.size, rate)
}

// stop takes the bar away.
func (p *progress) stop() {
	p.once.Do(func() { close(p.quit) })
	p.ended.Wait()
}

func (p *progress) reader(r io.Reader) io.Reader { return &progressReader{r, p} }

type progressReader struct {
	r io.Reader
	p *progress
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.p.done.Add(int64(n))
	return n, err
}
