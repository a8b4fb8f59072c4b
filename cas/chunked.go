package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/merkle"
)

// chunkedBlob is a blob whose chunks are in the batch's pack or durable, and
// whose outboard and recipe are written once all of them are durable.
type chunkedBlob struct {
	root   merkle.Root
	size   int64
	nodes  *lazyStage // the outboard
	recipe []byte
}

// maxWaiting is up to which size a chunked blob waits for the batch's commit; a
// larger one is durable when its Put returns. Its outboard is in memory then.
const maxWaiting = 4 << 20

// putChunked cuts head followed by r into chunks. Its order makes a crash
// harmless: the chunks are durable before the outboard, and that before the
// recipe, without which nobody looks for the others.
func (b *Batch) putChunked(ctx context.Context, c *chunker, head []byte, r io.Reader) (Info, error) {
	fail := func(root merkle.Root, err error) (Info, error) {
		return Info{}, &Error{Op: "put", Root: root, Err: plain(err)}
	}
	if err := b.s.packsOf(b.tenant).load(ctx); err != nil {
		return fail(merkle.Root{}, err)
	}
	nodes := &lazyStage{open: func() (Stage, error) { return NewStage(ctx, b.s.b, b.tenant) }, b: b.s.b}
	root, size, recipe, err := b.ingestChunked(ctx, c, io.MultiReader(bytes.NewReader(head), r), nodes)
	if err != nil {
		nodes.Discard()
		return fail(merkle.Root{}, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		nodes.Discard()
		return fail(root, ErrClosed)
	}
	if b.waiting == nil {
		b.waiting = make(map[merkle.Root]*chunkedBlob)
	}
	b.waiting[root] = &chunkedBlob{root, size, nodes, recipe}
	b.waits += len(nodes.memory) + len(recipe)
	if size > maxWaiting || b.waits > maxPending/4 {
		if err := b.settleAll(ctx); err != nil {
			delete(b.waiting, root)
			nodes.Discard()
			return fail(root, err)
		}
	}
	return Info{root, size, Chunked}, nil
}

// settleAll makes everything put so far durable; b.mu is held. After an error it
// may be tried again.
func (b *Batch) settleAll(ctx context.Context) error {
	if err := b.flush(ctx); err != nil {
		return err
	}
	if err := b.settleGrouped(ctx); err != nil {
		return err
	}
	for root, c := range b.waiting {
		if err := b.settleChunked(ctx, c); err != nil {
			return err
		}
		delete(b.waiting, root)
	}
	b.waits = 0
	return nil
}

// settleChunked writes the outboard and the recipe of a blob whose chunks are
// durable. Those that are there and the same stay.
func (b *Batch) settleChunked(ctx context.Context, c *chunkedBlob) error {
	n := merkle.OutboardSize(c.size)
	err := b.s.settle(ctx, b.hold, Name{Tenant: b.tenant, Kind: KindOutboard, ID: c.root}, c.nodes, n, func(o Object) (bool, error) {
		return sameBytes(ctx, o, n, io.NewSectionReader(c.nodes, 0, n))
	})
	if err != nil {
		return err
	}
	recipe := &lazyStage{memory: c.recipe, b: b.s.b}
	n = int64(len(c.recipe))
	return b.s.settle(ctx, b.hold, Name{Tenant: b.tenant, Kind: KindRecipe, ID: c.root}, recipe, n, func(o Object) (bool, error) {
		return sameBytes(ctx, o, n, bytes.NewReader(c.recipe))
	})
}

// openWaiting opens a blob that waits for the commit.
func (b *Batch) openWaiting(c *chunkedBlob, size int64) (*Reader, error) {
	fail := func(err error) (*Reader, error) { return nil, &Error{Op: "open", Root: c.root, Err: err} }
	if size != c.size {
		return fail(fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, c.size, size))
	}
	r, err := openRecipe(bytes.NewReader(c.recipe), int64(len(c.recipe)), size)
	if err != nil {
		return fail(err)
	}
	data := &chunkedData{
		s: b.s, x: b.s.packsOf(b.tenant), ctx: context.Background(),
		batch: b, recipe: r, packs: newOpenPacks(b.s.b, nil),
	}
	nodes := bytesObject{bytes.NewReader(c.nodes.memory)}
	tree := merkle.NewTree(c.root, size, nodes)
	return &Reader{
		root: c.root, size: size, tree: tree,
		s: b.s, tenant: b.tenant, data: data, nodes: nodes, proof: merkle.NewVerifier(tree),
	}, nil
}

// bytesObject is an Object in memory.
type bytesObject struct{ *bytes.Reader }

func (bytesObject) Close() error { return nil }

// holdsChunk reports whether a sound copy of a chunk is in a pack that will stay,
// and makes sure that this pack is durable. Sound means that all its bytes were
// compared.
func (b *Batch) holdsChunk(ctx context.Context, key merkle.Root, chunk []byte) (bool, error) {
	x := b.s.packsOf(b.tenant)
	places, _, err := x.places(ctx, key)
	if err != nil || len(places) == 0 {
		return false, err
	}
	return b.relies(ctx, x, func() (Name, error) { return b.s.sameChunk(ctx, x, key, chunk) })
}

// sameChunk returns a pack that has these very bytes under the key, with the
// errors of packs.read.
func (s *Store) sameChunk(ctx context.Context, x *packs, key merkle.Root, chunk []byte) (Name, error) {
	places, names, err := x.places(ctx, key)
	if err != nil {
		return Name{}, err
	}
	err = ErrNotFound
	for i, p := range places {
		e := error(ErrCorrupt)
		if p.length == uint32(len(chunk)) {
			var data []byte
			if data, e = s.readPlace(ctx, x, names[i], p); e == nil && !bytes.Equal(data, chunk) {
				e = ErrCorrupt
			}
		}
		if e == nil {
			return names[i], nil
		}
		if ctx.Err() != nil {
			return Name{}, ctx.Err()
		}
		if errors.Is(err, ErrNotFound) || !errors.Is(e, ErrNotFound) && unlessDamage(e) != nil {
			err = e
		}
	}
	return Name{}, err
}

// readPlace is packs.readOne that keeps the run it decodes for the next chunk.
func (s *Store) readPlace(ctx context.Context, x *packs, name Name, p place) ([]byte, error) {
	if p.codec == codecRaw {
		return x.readOne(ctx, name, p)
	}
	key := runKey{name.Tenant, name.ID, name.Gen, p.at}
	run, ok := s.runs.get(key)
	if !ok || uint64(p.off)+uint64(p.length) > uint64(len(run)) {
		var err error
		if run, err = x.readRun(ctx, name, p); err != nil {
			return nil, err
		}
		s.runs.put(key, run)
	}
	return run[p.off : p.off+p.length], nil
}

// pends reports whether a chunk is in the batch's pack.
func (b *Batch) pends(key merkle.Root) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.w.keys[key]
	return ok
}

// addRun adds a run to the batch's pack, which is written before if it would
// exceed its bounds.
func (b *Batch) addRun(ctx context.Context, r newRun, keys []packKey) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if b.w.size+len(r.stored)+len(keys)*keyEntrySize > maxPending {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.w.addRun(r, keys)
	return nil
}

// lazyStage is a Stage that keeps a small object in memory until its commit.
type lazyStage struct {
	open   func() (Stage, error)
	b      Backend
	memory []byte
	stage  Stage // nil as long as memory has it
}

// lazyMemory is more than the outboard of a blob of maxWaiting bytes.
const lazyMemory = 32 << 10

func (s *lazyStage) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if s.stage == nil && end <= lazyMemory {
		if end > int64(len(s.memory)) {
			s.memory = append(s.memory, make([]byte, end-int64(len(s.memory)))...)
		}
		return copy(s.memory[off:], p), nil
	}
	if s.stage == nil {
		stage, err := s.open()
		if err != nil {
			return 0, err
		}
		s.stage = stage
		if _, err := stage.WriteAt(s.memory, 0); err != nil {
			return 0, err
		}
		s.memory = nil
	}
	return s.stage.WriteAt(p, off)
}

func (s *lazyStage) ReadAt(p []byte, off int64) (int, error) {
	if s.stage != nil {
		return s.stage.ReadAt(p, off)
	}
	return bytes.NewReader(s.memory).ReadAt(p, off)
}

func (s *lazyStage) Commit(ctx context.Context, name Name, size int64) error {
	if s.stage != nil {
		return s.stage.Commit(ctx, name, size)
	}
	if size != int64(len(s.memory)) {
		return &Error{Op: "commit", Name: name, Err: ErrSize}
	}
	return s.b.Put(ctx, name, bytes.NewReader(s.memory), size)
}

func (s *lazyStage) Discard() error {
	if s.stage != nil {
		return s.stage.Discard()
	}
	return nil
}
