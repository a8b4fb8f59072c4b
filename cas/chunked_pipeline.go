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
//	pack     adds the run to the batch's pack or, once the blob is too large to
//	         wait for the batch's commit, to an unfinished one in the backend
//	commit   finishes such a pack                            (beside the next one)
//
// Memory is that of the blocks, of which there are chunkBlocks, and of as many
// runs in flight. The bytes of a run stay in their block where they can.
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
	cuts  *chunker
	users atomic.Int32 // stages that still read it

	found []candidate
	late  []candidate // of scan
	begin int         // where in room the first chunk begins
	ends  []int       // where in room each chunk ends
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
	begin  int      // where in block raw begins
	block  *block   // that raw is a part of; nil: of room
	room   *runRoom // that raw stands in; nil: in block
	packed *runRoom // that the compressed bytes stand in, of a run of at most runSize
	large  *squashed
	upTo   int64 // the blob has at least so many bytes
	squash bool  // try to compress
	ready  chan struct{}
}

// Rooms, for reuse: of a run of chunks of at most runSize, and of what a codec
// makes of one, or of any run, that it cannot compress.
type (
	runRoom  [runSize + encodeMore]byte
	squashed [maxRun + encodeMore]byte
)

var (
	runRooms  = sync.Pool{New: func() any { return new(runRoom) }}
	squashers = sync.Pool{New: func() any { return new(squashed) }}
)

// pipeline is one blob on its way through the stages.
type pipeline struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	b       *Batch
	c       *chunker
	coarse  atomic.Bool // the blob is cut by another one in the end
	builder *merkle.Builder
	free    chan *block

	// Of gather, pack and commit: the keys of runs that neither the batch's pack
	// nor the index has yet.
	mu       sync.Mutex
	inFlight map[merkle.Root]int

	stream     *packStream   // of pack: the unfinished pack; nil: none
	committing chan struct{} // closed when the one before is committed; nil: none

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
	if p.coarse.Load() {
		p.recipe.chunker = coarseID
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
	cuts, at := p.c, int64(0)
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
		if cuts.id == recordChunker.id && n > 0 && at >= p.b.s.coarseFrom {
			cuts = &byteChunker
			p.coarse.Store(true)
		}
		at += int64(n)
		bl.n, bl.last, bl.cuts = n, err == io.EOF, cuts
		bl.users.Store(2)
		bl.ready = make(chan struct{})
		last := bl.last // whoever has it next may be done with it soon
		go func() {
			bl.found, bl.late = bl.cuts.scan(bl.room[:maxChunk+bl.n], maxChunk, bl.found[:0], bl.late[:0])
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
		bl.ends, open = bl.cuts.cut(bl.begin, end, bl.found, bl.last, bl.ends[:0])
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
				p.chunk(bl, start, end, bl.keys[i], bl.known[i])
				start = end
			}
		}
		if p.open != nil && p.open.block == bl {
			p.own(p.open) // the block may be needed before the run is full
		}
		p.release(bl)
	}
	if page := p.recipe.last(); len(page) > 0 && !p.failed() {
		p.page(page)
	}
	p.send(&p.open)
	p.send(&p.pages)
}

// chunk takes the chunk that is room[start:end] of a block.
func (p *pipeline) chunk(bl *block, start, end int, key merkle.Root, known bool) {
	data := bl.room[start:end]
	if !known && p.isNew(key, data) {
		p.collect(bl, start, key, data)
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
		p.collectPage(key, data)
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

// collect adds a chunk, which begins at start of the block, to the open run, and
// sends the run on before one that does not fit. As long as the chunks of a run
// follow each other in one block they are not copied. One of more than half a
// run goes alone.
func (p *pipeline) collect(bl *block, start int, key merkle.Root, data []byte) {
	if p.open != nil && len(p.open.raw)+len(data) > runSize {
		p.send(&p.open)
	}
	if p.open == nil {
		p.open = &runJob{raw: data[:0], begin: start, block: bl, squash: true, ready: make(chan struct{})}
		bl.users.Add(1)
	}
	j := p.open
	p.enter(j, key, len(data))
	if j.block == bl && j.begin+len(j.raw) == start {
		j.raw = bl.room[j.begin : start+len(data)]
	} else {
		p.own(j)
		j.raw = append(j.raw, data...)
	}
	if len(data) > runSize/2 {
		p.send(&p.open)
	}
}

// collectPage is collect for a page of the recipe.
func (p *pipeline) collectPage(key merkle.Root, data []byte) {
	if p.pages != nil && len(p.pages.raw)+len(data) > runSize {
		p.send(&p.pages)
	}
	if p.pages == nil {
		p.pages = &runJob{ready: make(chan struct{})}
	}
	p.enter(p.pages, key, len(data))
	p.own(p.pages)
	p.pages.raw = append(p.pages.raw, data...)
}

func (p *pipeline) enter(j *runJob, key merkle.Root, length int) {
	j.keys = append(j.keys, packKey{root: key, off: uint32(len(j.raw)), length: uint32(length)})
	p.mu.Lock()
	p.inFlight[key]++
	p.mu.Unlock()
}

// own copies the bytes of a run, of which there are at most runSize, out of
// their block.
func (p *pipeline) own(j *runJob) {
	if j.room != nil {
		return
	}
	j.room = runRooms.Get().(*runRoom)
	j.raw = append(j.room[:0], j.raw...)
	p.letGo(j)
}

// letGo gives the block of a run back.
func (p *pipeline) letGo(j *runJob) {
	if bl := j.block; bl != nil {
		j.block = nil
		p.release(bl)
	}
}

// send hands a run on, to be encoded beside everything else.
func (p *pipeline) send(job **runJob) {
	j := *job
	if j == nil {
		return
	}
	*job = nil
	j.upTo = p.recipe.size
	p.out <- j
	go func() {
		defer close(j.ready)
		j.encode()
	}()
}

// encode decides how the run is stored.
func (j *runJob) encode() {
	j.run = newRun{codec: codecRaw, raw: uint32(len(j.raw)), stored: j.raw}
	if j.squash && len(j.raw) <= runSize {
		j.packed = runRooms.Get().(*runRoom)
		j.run.codec, j.run.stored = encodeRun(j.raw, j.packed[:0])
	} else if j.squash {
		j.large = squashers.Get().(*squashed)
		j.run.codec, j.run.stored = encodeRun(j.raw, j.large[:0])
	}
	if j.run.codec == codecRaw && len(j.keys) == 1 {
		j.run.sum = j.keys[0].root // the same hash of the same bytes
	} else {
		j.run.sum = blake3.Sum256(j.run.stored)
	}
}

// done ends a run whose bytes are somewhere else, or not needed.
func (p *pipeline) done(j *runJob) {
	p.letGo(j)
	for _, room := range []*runRoom{j.room, j.packed} {
		if room != nil {
			runRooms.Put(room)
		}
	}
	if j.large != nil {
		squashers.Put(j.large)
	}
	j.room, j.packed, j.large, j.raw, j.run.stored = nil, nil, nil, nil, nil
}

// landed says that the batch's pack or the index has the keys, or never will.
func (p *pipeline) landed(keys []packKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		if p.inFlight[k.root]--; p.inFlight[k.root] == 0 {
			delete(p.inFlight, k.root)
		}
	}
}

// pack adds the runs to the batch's pack or to a stream.
func (p *pipeline) pack() {
	for j := range p.out {
		<-j.ready
		if !p.failed() {
			p.fail(p.store(j))
		}
		p.done(j)
	}
	if !p.failed() {
		p.fail(p.commit())
	}
	if p.stream != nil {
		p.stream.stage.Discard()
	}
	if p.committing != nil {
		<-p.committing
	}
}

// store writes a run. Those of a blob that will be durable when its Put returns
// do not wait in memory.
func (p *pipeline) store(j *runJob) error {
	if j.upTo <= p.b.s.streamFrom {
		run := j.run
		run.stored = bytes.Clone(run.stored)
		err := p.b.addRun(p.ctx, run, j.keys)
		p.landed(j.keys)
		return err
	}
	if p.stream != nil && p.stream.size+runCost(j.run, j.keys) > p.b.s.streamPack {
		if err := p.commit(); err != nil {
			return err
		}
	}
	if p.stream == nil {
		var err error
		if p.stream, err = newPackStream(p.ctx, p.b.s.b, p.b.tenant); err != nil {
			return err
		}
	}
	return p.stream.add(j.run, j.keys)
}

// commit finishes the stream's pack beside what follows, once the one before is
// finished.
func (p *pipeline) commit() error {
	if p.committing != nil {
		<-p.committing
	}
	stream, done := p.stream, make(chan struct{})
	if stream == nil || p.failed() {
		return nil
	}
	p.stream, p.committing = nil, done
	go func() {
		defer close(done)
		p.fail(p.b.s.packsOf(p.b.tenant).writeStream(p.ctx, p.b.hold, stream))
		p.landed(stream.keys)
	}()
	return nil
}
