package cas

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// A blob is cut and stored by stages that work at the same time, each on what
// the one before hands on, in order:
//
//	read     fills blocks from the reader
//	tree     hashes each block into the blob's tree          (beside all below)
//	scan     finds the places where chunks may end           (a goroutine a block)
//	cut      picks the ends of the chunks
//	key      hashes each chunk, compares it with the store's (a goroutine a block)
//	gather   collects the chunks that are new in runs, and the recipe
//	encode   compresses a run                                (a goroutine a run)
//	pack     adds the run to the batch's pack
//
// Memory is that of the blocks, of which there are chunkBlocks, and of as many
// runs in flight.
const (
	chunkBlocks = 6
	blockSize   = 1 << 20
	runsAhead   = 16
)

// block is a piece of a blob on its way through the stages.
type block struct {
	// room has the block's n bytes from maxChunk on; what the last chunk of the
	// block before has in that one is copied to the place before them.
	room  [maxChunk + blockSize]byte
	n     int
	last  bool
	users atomic.Int32 // stages that still read it

	found []candidate
	begin int   // where in room the first chunk begins
	ends  []int // where in room each chunk ends
	keys  []merkle.Root
	known []bool        // sound in the store already
	ready chan struct{} // closed when the goroutine of this stage is done
}

// blocks are for reuse.
var blocks = sync.Pool{New: func() any { return new(block) }}

// runJob is a run on its way to the pack.
type runJob struct {
	run    newRun
	keys   []packKey
	raw    []byte
	room   *[runSize]byte // that raw stands in; nil: in memory of its own size
	squash bool           // try to compress
	ready  chan struct{}
}

// rawRuns are rooms for the raw bytes of runs; squashed are those for compressed
// ones.
var (
	rawRuns  = sync.Pool{New: func() any { return new([runSize]byte) }}
	squashed = sync.Pool{New: func() any { return new([maxRun]byte) }}
)

// pipeline is one blob on its way through the stages.
type pipeline struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	b       *Batch
	c       *chunker
	builder *merkle.Builder
	free    chan *block

	// Of gather and pack: the keys of runs that the pack does not have yet.
	mu       sync.Mutex
	inFlight map[merkle.Root]int

	open   *runJob // of chunks
	pages  *runJob // of the recipe's pages
	recipe recipeWriter
	out    chan *runJob
}

// ingestChunked cuts in and adds its new chunks to the batch's pack, and its tree
// to nodes. It returns the root, the size and the recipe object; the chunks are
// durable when the batch's pack is.
func (b *Batch) ingestChunked(ctx context.Context, c *chunker, in io.Reader, nodes io.WriterAt) (merkle.Root, int64, []byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &pipeline{
		ctx: ctx, cancel: cancel, b: b, c: c, builder: merkle.NewBuilder(nodes),
		free: make(chan *block, chunkBlocks), inFlight: make(map[merkle.Root]int),
		recipe: recipeWriter{chunker: c.id}, out: make(chan *runJob, runsAhead),
	}
	p.builder.SetWorkers(1)
	for range chunkBlocks {
		p.free <- nil // made when first used: a small blob needs one
	}
	tree := make(chan *block, chunkBlocks)
	scanned, keyed := make(chan *block, chunkBlocks), make(chan *block, chunkBlocks)
	var stages sync.WaitGroup
	stages.Go(func() { p.hashTree(tree) })
	stages.Go(func() { p.cutBlocks(scanned, keyed) })
	stages.Go(func() { p.gather(keyed) })
	stages.Go(p.pack)
	err := p.read(in, tree, scanned)
	if err != nil {
		cancel(err)
	}
	close(tree)
	close(scanned)
	stages.Wait()
	for range chunkBlocks {
		if bl := <-p.free; bl != nil {
			blocks.Put(bl)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return merkle.Root{}, 0, nil, err
	}
	root, err := p.builder.Seal()
	return root, p.recipe.size, p.recipe.seal(), err
}

// fail ends the work. The stages then only pass on what they get.
func (p *pipeline) fail(err error) {
	if err != nil {
		p.cancel(err)
	}
}

func (p *pipeline) failed() bool { return p.ctx.Err() != nil }

// release gives a block back once all its users have.
func (p *pipeline) release(bl *block) {
	if bl.users.Add(-1) == 0 {
		p.free <- bl
	}
}

func (p *pipeline) read(in io.Reader, tree, scanned chan<- *block) error {
	var context [gearWindow]byte // the last bytes before the block
	for {
		var bl *block
		select {
		case bl = <-p.free:
		case <-p.ctx.Done():
			return nil // whoever cancelled has the reason
		}
		if bl == nil {
			bl = blocks.Get().(*block)
		}
		copy(bl.room[maxChunk-gearWindow:], context[:])
		n, err := fillFrom(in, bl.room[maxChunk:])
		if err != nil && err != io.EOF {
			p.free <- bl
			return err
		}
		copy(context[:], bl.room[maxChunk+n-gearWindow:maxChunk+n])
		bl.n, bl.last = n, err == io.EOF
		bl.users.Store(2)
		bl.ready = make(chan struct{})
		last := bl.last // whoever has it next may be done with it soon
		go func() {
			bl.found = p.c.scan(bl.room[:maxChunk+bl.n], maxChunk, bl.found[:0])
			close(bl.ready)
		}()
		scanned <- bl
		tree <- bl
		if last {
			return nil
		}
	}
}

func (p *pipeline) hashTree(in <-chan *block) {
	for bl := range in {
		if !p.failed() {
			_, err := p.builder.Write(bl.room[maxChunk : maxChunk+bl.n])
			p.fail(err)
		}
		p.release(bl)
	}
}

// cutBlocks ends the chunks of each block. The chunk that is open at a block's
// end goes in front of the next one.
func (p *pipeline) cutBlocks(in <-chan *block, out chan<- *block) {
	defer close(out)
	var rest [maxChunk]byte
	carry := 0
	for bl := range in {
		<-bl.ready
		bl.begin = maxChunk - carry
		copy(bl.room[bl.begin:], rest[:carry])
		end := maxChunk + bl.n
		var open int
		bl.ends, open = p.c.cut(bl.begin, end, bl.found, bl.last, bl.ends[:0])
		carry = copy(rest[:], bl.room[open:end])
		bl.ready = make(chan struct{})
		go func() {
			defer close(bl.ready)
			p.key(bl)
		}()
		out <- bl
	}
}

// key hashes the chunks of a block and looks which of them the store has.
func (p *pipeline) key(bl *block) {
	bl.keys, bl.known = bl.keys[:0], bl.known[:0]
	start := bl.begin
	for _, end := range bl.ends {
		if p.failed() {
			return
		}
		chunk := bl.room[start:end]
		key := merkle.Root(blake3.Sum256(chunk))
		known, err := p.b.holdsChunk(p.ctx, key, chunk)
		p.fail(err)
		bl.keys, bl.known = append(bl.keys, key), append(bl.known, known)
		start = end
	}
}

// gather writes the recipe and collects the new chunks in runs.
func (p *pipeline) gather(in <-chan *block) {
	defer close(p.out)
	for bl := range in {
		<-bl.ready
		if !p.failed() {
			start := bl.begin
			for i, end := range bl.ends {
				p.chunk(bl.keys[i], bl.room[start:end], bl.known[i])
				start = end
			}
		}
		p.release(bl)
	}
	if page := p.recipe.last(); len(page) > 0 && !p.failed() {
		p.page(page)
	}
	p.send(&p.open)
	p.send(&p.pages)
}

func (p *pipeline) chunk(key merkle.Root, data []byte, known bool) {
	if !known && !p.isNew(key, data) {
		known = true
	}
	if !known {
		p.collect(&p.open, key, data, true)
	}
	if page := p.recipe.add(key, len(data)); page != nil {
		p.page(page)
	}
}

// page stores a page of the recipe. Its keys are random: no codec helps.
func (p *pipeline) page(data []byte) {
	key := merkle.Root(blake3.Sum256(data))
	known, err := p.b.holdsChunk(p.ctx, key, data)
	p.fail(err)
	if !known && p.isNew(key, data) {
		p.collect(&p.pages, key, data, false)
	}
	p.recipe.enter(key, data)
}

// isNew reports whether a chunk that the store did not have, or not sound, when
// its block was looked at is neither on its way nor in the batch's pack, nor
// has become durable since.
func (p *pipeline) isNew(key merkle.Root, data []byte) bool {
	p.mu.Lock()
	flying := p.inFlight[key] > 0
	p.mu.Unlock()
	if flying || p.b.pends(key) {
		return false
	}
	known, err := p.b.holdsChunk(p.ctx, key, data)
	p.fail(err)
	return !known
}

// collect adds a chunk to a run, and sends the run on before one that does not
// fit. A run that begins with a chunk of more than half its size gets no more than
// that, and its bytes are not copied again.
func (p *pipeline) collect(job **runJob, key merkle.Root, data []byte, squash bool) {
	if *job != nil && ((*job).room == nil || len((*job).raw)+len(data) > runSize) {
		p.send(job)
	}
	if *job == nil {
		*job = &runJob{squash: squash, ready: make(chan struct{})}
		if len(data) <= runSize/2 {
			(*job).room = rawRuns.Get().(*[runSize]byte)
			(*job).raw = (*job).room[:0]
		}
	}
	j := *job
	j.keys = append(j.keys, packKey{root: key, off: uint32(len(j.raw)), length: uint32(len(data))})
	if j.raw == nil {
		j.raw = bytes.Clone(data)
	} else {
		j.raw = append(j.raw, data...)
	}
	p.mu.Lock()
	p.inFlight[key]++
	p.mu.Unlock()
}

// send hands a run on, to be encoded beside everything else.
func (p *pipeline) send(job **runJob) {
	j := *job
	if j == nil {
		return
	}
	*job = nil
	p.out <- j
	go func() {
		defer close(j.ready)
		j.encode()
	}()
}

// encode decides how the run is stored. The stored bytes get memory of their own
// size: they wait in the batch's pack.
func (j *runJob) encode() {
	j.run = newRun{codec: codecRaw, raw: uint32(len(j.raw))}
	stored := j.raw
	if j.squash {
		room := squashed.Get().(*[maxRun]byte)
		defer squashed.Put(room)
		j.run.codec, stored = encodeRun(j.raw, room[:0])
	}
	j.run.stored = stored
	if j.room != nil || j.run.codec != codecRaw {
		j.run.stored = bytes.Clone(stored)
	}
	if j.run.codec == codecRaw && len(j.keys) == 1 {
		j.run.sum = j.keys[0].root // the same hash of the same bytes
	} else {
		j.run.sum = blake3.Sum256(stored)
	}
	if j.room != nil {
		rawRuns.Put(j.room)
	}
	j.raw, j.room = nil, nil
}

// pack adds the runs to the batch's pack.
func (p *pipeline) pack() {
	for j := range p.out {
		<-j.ready
		if !p.failed() {
			p.fail(p.b.addRun(p.ctx, j.run, j.keys))
		}
		p.mu.Lock()
		for _, k := range j.keys {
			if p.inFlight[k.root]--; p.inFlight[k.root] == 0 {
				delete(p.inFlight, k.root)
			}
		}
		p.mu.Unlock()
	}
}
