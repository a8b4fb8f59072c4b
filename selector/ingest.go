package selector

import (
	"context"
	"io"

	"leafproof/merkle"
)

// An Ingest does what [BuildMap] does with bytes that are written to it in
// order, on a goroutine of its own, while the writer does something else with
// them. It holds at most about a MiB of them.
//
// Either [Ingest.Finish] or [Ingest.Stop] ends it.
type Ingest struct {
	ctx     context.Context
	cancel  context.CancelFunc
	build   *builder
	open    *block // the block that is being filled
	n       int    // bytes in it
	size    int64  // written
	blocks  chan ingestBlock
	started bool
	done    chan struct{} // closed when the pass has ended
	err     error         // why it ended, once done is closed
}

type ingestBlock struct {
	room *block
	n    int
}

// ingestAhead is how many blocks a writer may be ahead of the pass.
const ingestAhead = 3

// NewIngest begins a pass that divides what will be written into records as l
// says and writes the record map to out. It fails as BuildMap does for a bad
// layout.
func NewIngest(ctx context.Context, l Layout, out io.WriterAt) (*Ingest, error) {
	b, err := newBuilder(l, out)
	if err != nil {
		return nil, err
	}
	g := &Ingest{build: b, blocks: make(chan ingestBlock, ingestAhead), done: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g, nil
}

// Write takes the next bytes. It never fails: what goes wrong is told by
// Finish.
func (g *Ingest) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if g.open == nil {
			g.open = blockPool.Get().(*block)
		}
		n := copy(g.open[headroom+g.n:], p)
		g.n += n
		g.size += int64(n)
		p = p[n:]
		if g.n == blockSize {
			g.send()
		}
	}
	return total, nil
}

// send gives the open block to the pass, which the first block begins.
func (g *Ingest) send() {
	if !g.started {
		g.started = true
		go g.run()
	}
	select {
	case g.blocks <- ingestBlock{g.open, g.n}:
	case <-g.done: // it needs no more
		blockPool.Put(g.open)
	}
	g.open, g.n = nil, 0
}

func (g *Ingest) run() {
	defer close(g.done)
	in := &stream{ctx: g.ctx, fetch: g.fetch}
	g.err = g.build.build(in)
	in.close()
}

func (g *Ingest) fetch(int64) (*block, int, error) {
	select {
	case b, ok := <-g.blocks:
		if !ok {
			return nil, 0, io.EOF
		}
		return b.room, b.n, nil
	case <-g.ctx.Done():
		return nil, 0, g.ctx.Err()
	}
}

// end lets the pass come to its end and waits for it.
func (g *Ingest) end() {
	switch {
	case g.started:
		if g.n > 0 {
			g.send()
		}
		close(g.blocks)
		<-g.done
	default: // all of it is in the open block: no goroutine is worth it
		g.started = true
		if g.n > 0 {
			g.blocks <- ingestBlock{g.open, g.n}
			g.open, g.n = nil, 0
		}
		close(g.blocks)
		g.run()
	}
}

// Finish ends the pass: what was written is all of the source, whose root is
// given. src has the same bytes and is read only where there are records longer
// than 1 MiB. The results are those of BuildMap.
func (g *Ingest) Finish(src io.ReaderAt, root merkle.Root) (MapInfo, Stats, Layout, error) {
	defer g.cancel()
	g.end()
	if g.err != nil {
		return MapInfo{}, g.build.stats, g.build.layout, g.err
	}
	return g.build.finish(g.ctx, src, g.size, root)
}

// Stop ends a pass whose result nobody wants.
func (g *Ingest) Stop() {
	g.cancel()
	if g.open != nil {
		blockPool.Put(g.open)
		g.open, g.n = nil, 0
	}
	if g.started {
		<-g.done
	}
}
