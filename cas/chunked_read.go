package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"leafproof/merkle"
)

// chunkedData reads the bytes of a chunked blob as if they lay in one object. It
// trusts what it reads, as an Object may: the Reader above checks all of it.
type chunkedData struct {
	s      *Store
	x      *packs
	ctx    context.Context // carries values only
	batch  *Batch          // has chunks that are in no pack yet; nil: none
	recipe *recipe
	packs  *openPacks
	// strict reads each chunk by itself, past what is kept of decoded runs, and
	// takes only a copy that has the chunk's key: what a Reader turns to when
	// the bytes do not verify.
	strict bool
}

// openChunked opens a blob by its recipe. A missing recipe is ErrNotFound.
func (s *Store) openChunked(ctx context.Context, tenant Tenant, root merkle.Root, size int64) (*Reader, error) {
	data, err := s.openRecipeOf(ctx, tenant, root, size)
	if err != nil {
		return nil, err
	}
	nodes, err := s.openObject(ctx, Name{Tenant: tenant, Kind: KindOutboard, ID: root}, merkle.OutboardSize(size))
	if err != nil {
		data.Close()
		if errors.Is(err, ErrNotFound) {
			err = fmt.Errorf("%w: its outboard is missing", ErrCorrupt) // without %w: the chunks are there
		}
		return nil, err
	}
	tree := merkle.NewTree(root, size, nodes)
	return &Reader{
		root: root, size: size, tree: tree,
		s: s, tenant: tenant, data: data, nodes: nodes, proof: merkle.NewVerifier(tree),
	}, nil
}

// openRecipeOf opens the newest recipe of a blob that is sound.
func (s *Store) openRecipeOf(ctx context.Context, tenant Tenant, root merkle.Root, size int64) (*chunkedData, error) {
	name, err := s.latest(ctx, Name{Tenant: tenant, Kind: KindRecipe, ID: root})
	if err != nil {
		return nil, err
	}
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return nil, err
	}
	r, err := openRecipe(o, o.Size(), size)
	if err != nil {
		o.Close()
		return nil, &Error{Op: "open", Name: name, Err: err}
	}
	x := s.packsOf(tenant)
	if err := x.load(ctx); err != nil {
		o.Close()
		return nil, err
	}
	return &chunkedData{s: s, x: x, ctx: context.WithoutCancel(ctx), recipe: r, packs: newOpenPacks(s.b, o)}, nil
}

func (d *chunkedData) Size() int64  { return d.recipe.size }
func (d *chunkedData) Close() error { return d.packs.close() }

// ReadAt fills p, which lies within the blob.
func (d *chunkedData) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		at := off + int64(done)
		if at >= d.recipe.size {
			return done, io.EOF
		}
		n, err := d.readPage(p[done:], at)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// readPage reads what one page of the recipe has of the bytes from off on.
func (d *chunkedData) readPage(p []byte, off int64) (int, error) {
	i, start, err := d.recipe.find(off)
	if err != nil {
		return 0, err
	}
	e, end, err := d.recipe.page(i)
	if err != nil {
		return 0, err
	}
	page, err := d.pageBytes(e)
	if err != nil {
		return 0, fmt.Errorf("page %d of the recipe: %w", i, err)
	}
	done := 0
	for i := 0; i < len(page)/recipeEntrySize && done < len(p); i++ {
		chunk := entryAt(page, i)
		next := start + int64(chunk.length)
		if chunk.length == 0 || chunk.length > maxChunk || next > end {
			break
		}
		if at := off + int64(done); at < next {
			n := min(len(p)-done, int(next-at))
			if err := d.readChunk(chunk, p[done:done+n], uint32(at-start)); err != nil {
				return done, fmt.Errorf("chunk %s: %w", chunk.key, err)
			}
			done += n
		}
		start = next
	}
	if done == 0 {
		return 0, fmt.Errorf("%w: page %d does not have the chunks that it should", errRecipe, i)
	}
	return done, nil
}

// pageBytes returns the bytes of a page, checked against its key.
func (d *chunkedData) pageBytes(e recipeEntry) ([]byte, error) {
	key := runKey{d.x.tenant, e.key, 0, pageOfRecipe}
	if p, ok := d.s.runs.get(key); ok && len(p) == int(e.length) {
		return p, nil
	}
	p := make([]byte, e.length)
	if err := d.readChecked(e, p); err != nil {
		return nil, err
	}
	d.s.runs.put(key, p)
	return p, nil
}

// readChunk fills p with the bytes of a chunk from number from on.
func (d *chunkedData) readChunk(e recipeEntry, p []byte, from uint32) error {
	if d.strict {
		whole := make([]byte, e.length)
		if err := d.readChecked(e, whole); err != nil {
			return err
		}
		copy(p, whole[from:])
		return nil
	}
	if ok, err := d.pending(e, p, from); ok || err != nil {
		return err
	}
	places, names, err := d.x.places(d.ctx, e.key)
	if err != nil {
		return err
	}
	if len(places) == 0 {
		return ErrCorrupt // the strict look finds out
	}
	return d.readAt(names[0], places[0], e, p, from)
}

// readChecked fills p with a whole chunk of which some copy has the right key.
// Packs that are new since the index was made are looked for before it gives up,
// until nothing new comes.
func (d *chunkedData) readChecked(e recipeEntry, p []byte) error {
	if ok, err := d.pending(e, p, 0); ok && merkle.Sum(p) == e.key || err != nil {
		return err
	}
	failed := error(ErrNotFound)
	changed := true
	for looks := 0; looks <= maxLooks && changed; looks++ {
		if looks > 0 {
			var err error
			if changed, err = d.x.look(d.ctx); err != nil {
				return err
			}
		}
		places, names, err := d.x.places(d.ctx, e.key)
		if err != nil {
			return err
		}
		for i := range places {
			err := d.readAt(names[i], places[i], e, p, 0)
			if err == nil && merkle.Sum(p) == e.key {
				return nil
			}
			if err == nil {
				err = &Error{Op: "read", Name: names[i], Err: ErrCorrupt}
			}
			if errors.Is(failed, ErrNotFound) || !errors.Is(err, ErrNotFound) && unlessDamage(err) != nil {
				failed = err
			}
		}
	}
	if errors.Is(failed, ErrNotFound) {
		return fmt.Errorf("%w: it is in no pack", ErrCorrupt)
	}
	if errors.Is(failed, errPack) && !errors.Is(failed, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, failed)
	}
	return failed
}

// pending reads a chunk that is in the batch's pack.
func (d *chunkedData) pending(e recipeEntry, p []byte, from uint32) (bool, error) {
	if d.batch == nil {
		return false, nil
	}
	b := d.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.w.keys[e.key]
	if !ok || k.length != e.length {
		return false, nil
	}
	r := b.w.runs[k.run]
	if !r.complete {
		copy(p, r.stored[k.off+from:k.off+k.length])
		return true, nil
	}
	key := runKey{b.tenant, merkle.Root(r.sum), 0, pendingRun}
	raw, ok := d.s.runs.get(key)
	if !ok {
		var err error
		if raw, err = decodeRun(r.codec, r.raw, r.stored, nil); err != nil {
			return false, err
		}
		if r.codec != codecRaw {
			d.s.runs.put(key, raw)
		}
	}
	copy(p, raw[k.off+from:k.off+k.length])
	return true, nil
}

// readAt fills p from a copy of a chunk: of a compressed run all is read and
// decoded, of another one no more than p.
func (d *chunkedData) readAt(name Name, at place, e recipeEntry, p []byte, from uint32) error {
	if at.length != e.length || uint64(at.off)+uint64(at.length) > uint64(at.raw) || at.codec != codecRaw && at.raw > maxRun {
		return ErrCorrupt
	}
	key := runKey{name.Tenant, name.ID, name.Gen, at.at}
	if at.codec != codecRaw && !d.strict && d.s.runs.copy(key, at.raw, p, at.off+from) {
		return nil
	}
	o, done, err := d.packs.get(d.ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if at.codec == codecRaw {
		return readFullAt(o, p, int64(at.at)+int64(at.off)+int64(from))
	}
	if at.stored > at.raw {
		return ErrCorrupt
	}
	room := squashers.Get().(*squashed)
	defer squashers.Put(room)
	stored := room[:at.stored]
	if err := readFullAt(o, stored, int64(at.at)); err != nil {
		return err
	}
	run := decodedRun{room: newRoom(at.raw)}
	if run.p, err = decodeRun(at.codec, at.raw, stored, run.room.bytes()); err != nil {
		run.room.free()
		return err
	}
	copy(p, run.p[at.off+from:])
	if d.strict {
		run.room.free()
	} else {
		d.s.runs.keep(key, run)
	}
	return nil
}

// openPacks keeps the packs open that one Reader reads from.
type openPacks struct {
	b      Backend
	recipe Object

	mu   sync.RWMutex // held for reading while an object is read
	open *simplelru.LRU[Name, Object]
}

// maxOpenPacks bounds the file handles of one Reader.
const maxOpenPacks = 16

func newOpenPacks(b Backend, recipe Object) *openPacks {
	o := &openPacks{b: b, recipe: recipe}
	o.open, _ = simplelru.NewLRU(maxOpenPacks, func(_ Name, o Object) { o.Close() }) // fails for size ≤ 0 only
	return o
}

// get returns an open pack and what to call when it was read.
func (o *openPacks) get(ctx context.Context, name Name) (Object, func(), error) {
	o.mu.RLock()
	if object, ok := o.open.Peek(name); ok {
		return object, o.mu.RUnlock, nil
	}
	o.mu.RUnlock()
	object, err := OpenObject(ctx, o.b, name)
	if err != nil {
		return nil, nil, err
	}
	o.mu.Lock()
	if _, ok := o.open.Get(name); ok { // another one was faster
		object.Close()
	} else {
		o.open.Add(name, object)
	}
	o.mu.Unlock()
	o.mu.RLock()
	if object, ok := o.open.Peek(name); ok {
		return object, o.mu.RUnlock, nil
	}
	o.mu.RUnlock()
	return o.get(ctx, name) // many others came between
}

func (o *openPacks) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open.Purge()
	if o.recipe == nil {
		return nil
	}
	return o.recipe.Close()
}

// runKey names what a runCache keeps: a run of a pack, or, with an at that no
// run has, a page of a recipe by its key, a run that waits by its digest, or
// nothing, of a cached blob that was found to be whole.
type runKey struct {
	tenant Tenant
	id     merkle.Root
	gen    uint32
	at     uint32
}

const (
	pageOfRecipe = math.MaxUint32
	pendingRun   = math.MaxUint32 - 1
	cachedBlob   = math.MaxUint32 - 2
)

// runCacheBytes bounds the decoded runs and pages that a Store keeps.
const runCacheBytes = 4 << 20

// runCache keeps decoded runs, the least recently used leaving first. It is
// bounded in bytes. They are not verified yet: whoever uses them does that. A scan
// decodes one run after another, so the rooms of those that leave are used again.
type runCache struct {
	max int

	mu   sync.Mutex
	size int
	used *simplelru.LRU[runKey, decodedRun]
}

// decodedRun is what a runCache keeps.
type decodedRun struct {
	p    []byte
	room room // that p stands in, if nobody else looks at it; else none
}

// cost is about what it takes in memory.
func (r decodedRun) cost() int { return max(len(r.p), len(r.room.bytes())) }

func newRunCache(max int) *runCache {
	c := &runCache{max: max}
	c.used, _ = simplelru.NewLRU(math.MaxInt, func(_ runKey, r decodedRun) { // fails for size ≤ 0 only
		c.size -= r.cost()
		r.room.free()
	})
	return c
}

// get returns what nobody may change.
func (c *runCache) get(key runKey) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.used.Get(key)
	if ok && !r.room.none() { // it has a reader from now on
		c.size -= r.cost()
		r.room = room{}
		c.used.Add(key, r)
		c.size += r.cost()
	}
	return r.p, ok
}

// copy fills p with the bytes from number from on of a run of size bytes, and
// reports whether it is there and has them.
func (c *runCache) copy(key runKey, size uint32, p []byte, from uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.used.Get(key)
	if !ok || uint32(len(r.p)) != size || uint64(from)+uint64(len(p)) > uint64(size) {
		return false
	}
	copy(p, r.p[from:])
	return true
}

// put keeps p, which nobody may change any more.
func (c *runCache) put(key runKey, p []byte) { c.keep(key, decodedRun{p: p}) }

// keep is put of a run with its room, both of which the caller gives away.
func (c *runCache) keep(key runKey, r decodedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used.Remove(key)
	c.used.Add(key, r)
	for c.size += r.cost(); c.size > c.max; {
		c.used.RemoveOldest()
	}
}

// room is memory for a decoded run: one of both, or none.
type room struct {
	small *runRoom
	large *squashed
}

// newRoom returns a room for a run of n bytes, and for what a decoder writes
// behind it.
func newRoom(n uint32) room {
	if n <= runSize {
		return room{small: runRooms.Get().(*runRoom)}
	}
	return room{large: squashers.Get().(*squashed)}
}

func (r room) none() bool { return r == room{} }

func (r room) bytes() []byte {
	switch {
	case r.small != nil:
		return r.small[:]
	case r.large != nil:
		return r.large[:]
	}
	return nil
}

// free gives the room away for further use.
func (r room) free() {
	if r.small != nil {
		runRooms.Put(r.small)
	}
	if r.large != nil {
		squashers.Put(r.large)
	}
}
