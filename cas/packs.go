package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"leafproof/merkle"
)

// Damage is a pack that could not be read and was passed over. Its blobs are
// missing until the same bytes are put again.
type Damage struct {
	Name Name
	Err  error
}

// packs is the index over one tenant's packs: a cache of their footers, built
// on first need and brought up to date by listing. The packs are the only
// truth; the index may be behind, and then a miss looks again.
type packs struct {
	b      Backend
	tenant Tenant

	refreshing sync.Mutex // one listing at a time; taken before mu

	mu      sync.RWMutex
	loaded  bool
	names   []Name         // position = the pack's number
	known   map[Name]int32 // its number
	durable map[Name]bool  // written or confirmed by this process
	damaged map[Name]error // passed over
	where   map[merkle.Root]place
	again   map[merkle.Root][]place // further copies, where a blob was healed or put twice
}

// place is where a packed blob lies. Only raw runs exist so far, so it needs no
// run.
type place struct {
	pack   int32
	length uint32
	off    int64 // within the pack
}

func newPacks(b Backend, tenant Tenant) *packs {
	return &packs{
		b: b, tenant: tenant,
		known: make(map[Name]int32), durable: make(map[Name]bool), damaged: make(map[Name]error),
		where: make(map[merkle.Root]place), again: make(map[merkle.Root][]place),
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

// refresh reads the footers of packs that the index does not know. A pack that
// is damaged is noted and passed over: it never stops the others.
func (x *packs) refresh(ctx context.Context) error {
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	var fresh []Name
	present := make(map[Name]bool)
	for name, err := range x.b.List(ctx, x.tenant, KindPack, nil) {
		if err != nil {
			return err
		}
		present[name] = true
		x.mu.RLock()
		_, known := x.known[name]
		bad := x.damaged[name]
		x.mu.RUnlock()
		// An object that is not a pack stays so, since objects are immutable;
		// one that could not be read may be readable now.
		if !known && (bad == nil || !errors.Is(bad, errPack)) {
			fresh = append(fresh, name)
		}
	}
	for _, name := range fresh {
		keys, err := x.footer(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound): // deleted since it was listed
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			x.mu.Lock()
			x.damaged[name] = err
			x.mu.Unlock()
		default:
			x.add(name, keys, false)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loaded = true
	for name := range x.damaged {
		if !present[name] {
			delete(x.damaged, name)
		}
	}
	return nil
}

// located is a key with its place in the pack instead of in a run.
type located struct {
	root merkle.Root
	place
}

func (x *packs) footer(ctx context.Context, name Name) ([]located, error) {
	o, err := OpenObject(ctx, x.b, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	runs, keys, err := readFooter(o, o.Size(), name.ID)
	if errors.Is(err, errShort) {
		err = fmt.Errorf("%w: %w", errPack, err)
	}
	if err != nil {
		return nil, err
	}
	return locate(runs, keys), nil
}

func locate(runs []packRun, keys []packKey) []located {
	out := make([]located, len(keys))
	for i, k := range keys {
		out[i] = located{k.root, place{length: k.length, off: runs[k.run].offset + int64(k.off)}}
	}
	return out
}

// add enters a pack's blobs; durable says that this process made sure of it.
func (x *packs) add(name Name, keys []located, durable bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if durable {
		x.durable[name] = true
	}
	if _, ok := x.known[name]; ok {
		return
	}
	number := int32(len(x.names))
	x.names = append(x.names, name)
	x.known[name] = number
	delete(x.damaged, name)
	for _, k := range keys {
		k.pack = number
		if _, ok := x.where[k.root]; ok {
			x.again[k.root] = append(x.again[k.root], k.place)
		} else {
			x.where[k.root] = k.place
		}
	}
}

// places returns where a blob should lie, the pack met last first: after a heal
// that is the good one.
func (x *packs) places(root merkle.Root) ([]place, []Name) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	first, ok := x.where[root]
	if !ok {
		return nil, nil
	}
	all := append([]place{first}, x.again[root]...)
	slices.Reverse(all)
	names := make([]Name, len(all))
	for i, p := range all {
		names[i] = x.names[p.pack]
	}
	return all, names
}

// read returns the verified bytes of a blob and the pack they came from. When
// there is no copy, or all packs with one are gone, the error matches
// ErrNotFound; when every copy is damaged it matches ErrCorrupt, and when one
// cannot be read for another reason it is that reason, and a pack is named.
func (x *packs) read(ctx context.Context, root merkle.Root) ([]byte, Name, error) {
	places, names := x.places(root)
	err := error(ErrNotFound)
	var pack Name
	for i, p := range places {
		if p.length > merkle.GroupSize {
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

func (x *packs) readOne(ctx context.Context, name Name, p place) ([]byte, error) {
	r, err := x.b.Get(ctx, name, p.off, int64(p.length))
	if err != nil {
		if errors.Is(err, ErrRange) {
			err = errShort
		}
		return nil, err
	}
	defer r.Close()
	data := make([]byte, p.length)
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
	done := x.durable[name]
	x.mu.RUnlock()
	if done {
		return nil
	}
	if err := x.b.Put(ctx, name, noReader{}, 1); err != nil {
		return err
	}
	x.mu.Lock()
	x.durable[name] = true
	x.mu.Unlock()
	return nil
}

// write makes one pack of w durable and enters it. An object that stands under
// the pack's name already and is not the same is left alone: the next
// generation is written.
func (x *packs) write(ctx context.Context, w *packWriter) error {
	id, size, parts := w.seal()
	name, resident := Name{Tenant: x.tenant, Kind: KindPack, ID: id}, false
	for n, err := range x.b.List(ctx, x.tenant, KindPack, id[:]) {
		if err != nil {
			return err
		}
		name, resident = n, true
	}
	if resident {
		same, err := x.same(ctx, name, size, partsReader(parts))
		if err != nil {
			return err
		}
		switch {
		case !same && name.Gen == math.MaxUint32:
			return &Error{Op: "heal", Name: name, Err: fmt.Errorf("%w: no generation is left", ErrCorrupt)}
		case !same:
			name.Gen++
		}
	}
	if err := x.b.Put(ctx, name, partsReader(parts), size); err != nil {
		return err
	}
	keys, base := make([]located, 0, len(w.keys)), int64(packHeaderSize)
	starts := make([]int64, len(w.runs))
	for i, run := range w.runs {
		starts[i] = base + runHeaderSize
		base = starts[i] + int64(len(run))
	}
	for root, k := range w.keys {
		keys = append(keys, located{root, place{length: k.length, off: starts[k.run] + int64(k.off)}})
	}
	x.add(name, keys, true)
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
