package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"leafproof/merkle"
)

// Damage is a pack or an index file that could not be read and was passed over.
// The blobs of a pack are missing until the same bytes are put again; an index
// file is made anew from the packs.
type Damage struct {
	Name Name
	Err  error
}

// packs is the index over one tenant's packs: index files, and maps for the
// newest packs, which become an index file when they are many. It is a cache of
// the packs' footers, built on first need and brought up to date by listing. The
// packs are the only truth; the index may be behind, and then a miss looks
// again.
type packs struct {
	b       Backend
	tenant  Tenant
	pages   *pageCache
	limits  indexLimits
	commits commits
	leased  bool // the Store has Leases: only a sweep deletes

	// refreshing is for whoever lists, reads footers or writes index files: one
	// at a time. It is taken before the locks below.
	refreshing sync.Mutex
	broken     map[Name]bool // index files that are not opened again
	unwritten  error         // why an index file could not be written to the store

	mu      sync.RWMutex
	loaded  bool
	listing uint64 // number of the listing begun last
	infos   []packInfo
	number  map[Name]int32
	smalls  int            // small packs that came since they were last merged
	damaged map[Name]error // passed over
	tail    *tail          // the newest packs
	frozen  *tail          // those that are being written to an index file; nil: none

	files filesLock
}

// filesLock guards the open index files. A lookup holds it while it reads pages.
type filesLock struct {
	sync.RWMutex
	open []*indexFile // the largest first
}

// packInfo is what is known of a pack.
type packInfo struct {
	name    Name
	size    int64  // of the object
	covers  int    // index files and maps that have its blobs
	seen    uint64 // the listing that had it last
	removed bool   // deleted by this process since
	durable bool   // written or confirmed by this process
}

// place is where a packed blob lies.
type place struct {
	pack        int32
	at          uint32 // offset of the run's stored bytes within the pack
	codec       uint32 // of the run
	raw, stored uint32 // of the run
	off, length uint32 // within the raw run
}

// located is a key with its place.
type located struct {
	root merkle.Root
	place
}

func newPacks(b Backend, tenant Tenant, pages *pageCache, limits indexLimits) *packs {
	return &packs{
		b: b, tenant: tenant, pages: pages, limits: limits,
		broken: make(map[Name]bool), number: make(map[Name]int32), damaged: make(map[Name]error),
		tail: newTail(),
	}
}

// load builds the index if this process has not yet.
func (x *packs) load(ctx context.Context) error {
	x.mu.RLock()
	loaded := x.loaded
	x.mu.RUnlock()
	if loaded {
		return nil
	}
	return x.refresh(ctx)
}

// refresh opens index files that are new and reads the footers of packs that
// none has. A pack or an index file that is damaged is noted and passed over: it
// never stops the others.
func (x *packs) refresh(ctx context.Context) error {
	_, err := x.look(ctx)
	return err
}

// look is refresh that also reports whether packs have come or gone since the
// last time. A listing is not of one moment: of a pack that is being merged into
// another it may have neither, and only one that brings nothing new is the whole
// truth.
func (x *packs) look(ctx context.Context) (changed bool, err error) {
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	return x.refreshLocked(ctx)
}

func (x *packs) refreshLocked(ctx context.Context) (changed bool, err error) {
	if err := x.openFiles(ctx); err != nil {
		return false, err
	}
	x.mu.Lock()
	x.listing++
	listing := x.listing
	x.mu.Unlock()
	fresh, present, err := x.list(ctx, listing)
	if err != nil {
		return false, err
	}
	for _, name := range fresh {
		keys, size, err := x.footer(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound): // deleted since it was listed
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			present[name] = true
			x.mu.Lock()
			x.damaged[name] = err
			x.mu.Unlock()
		default:
			changed = true
			x.add(name, size, keys, false)
			x.indexTail(ctx, x.limits.keys, x.limits.packs)
		}
	}
	// What this process had to read, the next one should find in an index file.
	x.indexTail(ctx, x.limits.keys, x.limits.read)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loaded = true
	for name := range x.damaged {
		if name.Kind == KindPack && !present[name] {
			delete(x.damaged, name)
		}
	}
	for _, info := range x.infos {
		if info.seen == listing-1 && !info.removed {
			changed = true // it was there, and is gone
		}
	}
	return changed, nil
}

// list lists the packs: the fresh ones are in no index file and in no map.
// present has the damaged ones that are still there.
func (x *packs) list(ctx context.Context, listing uint64) (fresh []Name, present map[Name]bool, err error) {
	present = make(map[Name]bool)
	for name, err := range x.b.List(ctx, x.tenant, KindPack, nil) {
		if err != nil {
			return nil, nil, err
		}
		x.mu.Lock()
		bad := x.damaged[name]
		if bad != nil {
			present[name] = true
		}
		number, known := x.number[name]
		if known {
			x.infos[number].seen, x.infos[number].removed = listing, false
		}
		// An object that is not a pack stays so, since objects are immutable;
		// one that could not be read, or gave fewer bytes than it has, may be
		// readable now.
		if (!known || x.infos[number].covers == 0) && (bad == nil || !errors.Is(bad, errPack) || errors.Is(bad, errShort)) {
			fresh = append(fresh, name)
		}
		x.mu.Unlock()
	}
	return fresh, present, nil
}

func (x *packs) footer(ctx context.Context, name Name) ([]located, int64, error) {
	o, err := OpenObject(ctx, x.b, name)
	if err != nil {
		return nil, 0, err
	}
	defer o.Close()
	runs, keys, err := readFooter(o, o.Size(), name.ID)
	if errors.Is(err, errShort) {
		err = fmt.Errorf("%w: %w", errPack, err)
	}
	if err != nil {
		return nil, 0, err
	}
	return locate(runs, keys), o.Size(), nil
}

func locate(runs []packRun, keys []packKey) []located {
	out := make([]located, len(keys))
	for i, k := range keys {
		run := runs[k.run]
		out[i] = located{k.root, place{
			at: uint32(run.offset), codec: run.codec, raw: run.raw, stored: run.stored,
			off: k.off, length: k.length,
		}}
	}
	return out
}

// enter gives a pack its number; mu is held.
func (x *packs) enter(name Name, size int64) int32 {
	number, ok := x.number[name]
	if !ok {
		number = int32(len(x.infos))
		x.infos = append(x.infos, packInfo{name: name})
		x.number[name] = number
	}
	x.infos[number].size = size
	return number
}

// add enters a pack's blobs; durable says that this process made sure of it.
func (x *packs) add(name Name, size int64, keys []located, durable bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	number := x.enter(name, size)
	info := &x.infos[number]
	info.durable = info.durable || durable
	info.seen, info.removed = max(info.seen, x.listing), false
	delete(x.damaged, name)
	if info.covers > 0 {
		return
	}
	info.covers++
	if size < smallPack {
		x.smalls++
	}
	x.tail.packs = append(x.tail.packs, number)
	for _, k := range keys {
		k.pack = number
		x.tail.add(k.root, k.place)
	}
}

// places returns where a blob should lie. In the maps the pack met last comes
// first: after a heal that is the good one. Packs that the last listing did not
// have come last.
func (x *packs) places(ctx context.Context, root merkle.Root) ([]place, []Name, error) {
	var all []place
	for try := 0; ; try++ {
		x.mu.RLock()
		all = x.tail.find(root, all[:0])
		if x.frozen != nil {
			all = x.frozen.find(root, all)
		}
		x.mu.RUnlock()
		var bad *indexFile
		var err error
		all, bad, err = x.findInFiles(root, all)
		if err == nil {
			break
		}
		// The file is of no more use; the footers have what it had.
		x.drop(bad, err)
		if try == maxBroken {
			return nil, nil, err
		}
		if err := x.refresh(ctx); err != nil {
			return nil, nil, err
		}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(all) > 1 {
		slices.SortStableFunc(all, func(a, b place) int {
			goneA, goneB := x.gone(a.pack), x.gone(b.pack)
			switch {
			case goneA == goneB:
				return 0
			case goneA:
				return 1
			}
			return -1
		})
	}
	names := make([]Name, len(all))
	for i, p := range all {
		names[i] = x.infos[p.pack].name
	}
	return all, names, nil
}

// maxBroken is how many index files may break during one lookup.
const maxBroken = 16

// gone reports whether this process deleted the pack, or the last listing did
// not have it; mu is held.
func (x *packs) gone(number int32) bool {
	return x.infos[number].removed || x.infos[number].seen < x.listing
}

// read returns the verified bytes of a blob and the pack they came from. When
// there is no copy, or all packs with one are gone, the error matches
// ErrNotFound; when every copy is damaged it matches ErrCorrupt, and when one
// cannot be read for another reason it is that reason, and a pack is named.
func (x *packs) read(ctx context.Context, root merkle.Root) ([]byte, Name, error) {
	places, names, err := x.places(ctx, root)
	if err != nil {
		return nil, Name{}, err
	}
	err = ErrNotFound
	var pack Name
	for i, p := range places {
		if p.length > maxChunk {
			continue // no pack of ours; do not allocate for it
		}
		data, e := x.readOne(ctx, names[i], p)
		if e == nil && merkle.Sum(data) != root {
			e = ErrCorrupt
		}
		if e == nil {
			return data, names[i], nil
		}
		if ctx.Err() != nil {
			return nil, Name{}, ctx.Err()
		}
		if pack == (Name{}) || errors.Is(err, ErrNotFound) || !errors.Is(e, ErrNotFound) && unlessDamage(e) != nil {
			err, pack = e, names[i]
		}
	}
	return nil, pack, err
}

// readOne reads what should be a blob's bytes, of which there are at most
// maxChunk.
func (x *packs) readOne(ctx context.Context, name Name, p place) ([]byte, error) {
	if p.codec == codecRaw {
		return x.readRange(ctx, name, int64(p.at)+int64(p.off), p.length)
	}
	raw, err := x.readRun(ctx, name, p)
	if err != nil {
		return nil, err
	}
	return raw[p.off : p.off+p.length : p.off+p.length], nil
}

func (x *packs) readRange(ctx context.Context, name Name, off int64, n uint32) ([]byte, error) {
	r, err := x.b.Get(ctx, name, off, int64(n))
	if err != nil {
		if errors.Is(err, ErrRange) {
			err = errShort
		}
		return nil, err
	}
	defer r.Close()
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			err = errShort
		}
		return nil, err
	}
	return data, nil
}

// noReader is the reader of a Put that is only meant to confirm a name.
type noReader struct{}

func (noReader) Read([]byte) (int, error) { return 0, ErrNotFound }

// confirm makes sure that a pack this process only found, not wrote, survives a
// crash: its writer may not have come to its last fsync. It fails with
// ErrNotFound when the pack is gone.
func (x *packs) confirm(ctx context.Context, name Name) error {
	x.mu.RLock()
	number, known := x.number[name]
	done := known && x.infos[number].durable
	x.mu.RUnlock()
	if done {
		return nil
	}
	if err := x.b.Put(ctx, name, noReader{}, 1); err != nil {
		return err
	}
	x.mu.Lock()
	if number, known := x.number[name]; known {
		x.infos[number].durable = true
	}
	x.mu.Unlock()
	return nil
}

// write makes one pack of w durable, pinned by all holds, enters it and returns
// its name.
func (x *packs) write(ctx context.Context, holds []*hold, w *packWriter) (Name, error) {
	id, size, parts := w.seal()
	name, err := x.choose(ctx, holds, id, size, func() io.Reader { return partsReader(parts) })
	if err != nil {
		return name, err
	}
	return name, x.put(ctx, name, w, partsReader(parts), size)
}

// choose returns the name to write a pack under, pinned by all holds. An object
// that stands under the pack's name already and is not the same is left alone:
// it is the next generation's.
func (x *packs) choose(ctx context.Context, holds []*hold, id merkle.Root, size int64, bytes func() io.Reader) (Name, error) {
	name, resident := Name{Tenant: x.tenant, Kind: KindPack, ID: id}, false
	for n, err := range x.b.List(ctx, x.tenant, KindPack, id[:]) {
		if err != nil {
			return name, err
		}
		name, resident = n, true
	}
	latest := name
	name, err := pinAll(ctx, holds, name)
	if err != nil || !resident || name != latest {
		return name, err
	}
	same, err := x.same(ctx, name, size, bytes())
	switch {
	case err != nil || same:
		return name, err
	case name.Gen == math.MaxUint32:
		return name, &Error{Op: "heal", Name: name, Err: fmt.Errorf("%w: no generation is left", ErrCorrupt)}
	}
	name.Gen++
	return pinAll(ctx, holds, name)
}

// writeMerged is write for what replaces other packs. Its name is never used
// again, for the generation is random: were it one that has been, another
// process might be about to delete it, because it had replaced it by a pack that
// this one replaces.
func (x *packs) writeMerged(ctx context.Context, holds []*hold, w *packWriter) (Name, error) {
	id, size, parts := w.seal()
	name, err := pinAll(ctx, holds, Name{Tenant: x.tenant, Kind: KindPack, ID: id, Gen: 1 + rand.Uint32()/2})
	if err != nil {
		return name, err
	}
	return name, x.put(ctx, name, w, partsReader(parts), size)
}

func (x *packs) put(ctx context.Context, name Name, w *packWriter, bytes io.Reader, size int64) error {
	if err := x.b.Put(ctx, name, bytes, size); err != nil {
		return err
	}
	x.add(name, size, locate(w.list()), true)
	return nil
}

// same reports whether the object name holds exactly the size bytes of want.
func (x *packs) same(ctx context.Context, name Name, size int64, want io.Reader) (bool, error) {
	o, err := OpenObject(ctx, x.b, name)
	if errors.Is(err, ErrNotFound) {
		return true, nil // gone: its name is free again
	}
	if err != nil {
		return false, err
	}
	defer o.Close()
	return sameBytes(ctx, o, size, want)
}
