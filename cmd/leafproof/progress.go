package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
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

// newProgress starts a progress bar, which appears after a second where standard
// error is a terminal. size is -1 where it is not known.
func newProgress(cmd *cobra.Command, name string, size int64) *progress {
	p := &progress{w: cmd.ErrOrStderr(), name: name, size: size, start: time.Now(), quit: make(chan struct{})}
	if isTerminal(p.w) {
		p.ended.Go(p.run)
	}
	return p
}

// outputProgress is newProgress for what is written to standard output. It stays
// silent when that is a terminal too.
func outputProgress(cmd *cobra.Command, name string, size int64) *progress {
	if isTerminal(cmd.OutOrStdout()) {
		return &progress{quit: make(chan struct{})}
	}
	return newProgress(cmd, name, size)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
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

// add counts n bytes as done.
func (p *progress) add(n int64) { p.done.Add(n) }

func (p *progress) reader(r io.Reader) io.Reader { return &progressReader{r, p} }

type progressReader struct {
	r io.Reader
	p *progress
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.p.add(int64(n))
	return n, err
}

// progressReaderAt counts what is read, and reads no more once ctx has ended.
type progressReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
	p   *progress
}

func (r progressReaderAt) ReadAt(b []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.ReadAt(b, off)
	r.p.add(int64(n))
	return n, err
}

type progressWriter struct {
	w io.Writer
	p *progress
}

func (w progressWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.p.add(int64(n))
	return n, err
}
