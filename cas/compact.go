package cas

import (
	"context"
	"errors"
	"slices"

	"leafproof/merkle"
)

const (
	// smallPack is the size below which a pack is merged with others.
	smallPack = 1 << 20
	// manySmall is how many small packs a commit leaves before it merges them.
	manySmall = 64
)

// Compact writes small packs of a tenant together into larger ones and deletes
// them, and brings the index up to date. A pack with anything in it that cannot
// be read stays. The new pack is durable before an old one goes, and whoever
// still looks for a blob in an old one finds it in the new one after a listing.
//
// A Store with [Options.Leases] writes nothing: a writer may rest on an old pack
// and not know of the new one, which a sweep could then take. There the sweep
// merges packs.
func (s *Store) Compact(ctx context.Context, tenant Tenant) error {
	x := s.packsOf(tenant)
	if err := x.refresh(ctx); err != nil {
		return err
	}
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	if s.leases != nil {
		return nil
	}
	tried := make(map[Name]bool)
	for {
		names := slices.DeleteFunc(x.small(), func(n Name) bool { return tried[n] })
		if len(names) < 2 {
			return nil
		}
		merged, replaced, err := x.mergePacks(ctx, nil, names)
		if err != nil {
			return err
		}
		for _, name := range append(names[:replaced.looked], merged) {
			tried[name] = true
		}
		if err := x.remove(ctx, replaced.names); err != nil {
			return err
		}
	}
}

// tidy does after a commit what became due: newest packs into an index file,
// small packs into one. Nothing of it is needed for what was committed, so that
// a failure is left to the next one.
func (x *packs) tidy(ctx context.Context) {
	if !x.refreshing.TryLock() {
		return // somebody is at it
	}
	defer x.refreshing.Unlock()
	x.indexTail(ctx, x.limits.keys, x.limits.packs)
	if x.leased {
		return
	}
	x.mu.Lock()
	due := x.smalls >= manySmall
	if due {
		x.smalls = 0 // tried again when there are as many more
	}
	x.mu.Unlock()
	if !due {
		return
	}
	if names := x.small(); len(names) >= manySmall {
		if _, replaced, err := x.mergePacks(ctx, nil, names); err == nil {
			_ = x.remove(ctx, replaced.names)
		}
	}
}

// small returns the names of the small packs, ascending.
func (x *packs) small() []Name {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var names []Name
	for number, info := range x.infos {
		if info.covers > 0 && info.size < smallPack && !x.gone(int32(number)) {
			names = append(names, info.name)
		}
	}
	slices.SortFunc(names, Name.Compare)
	return names
}

// replaced is what mergePacks has read.
type replaced struct {
	looked int    // how many of the packs, from the first on
	names  []Name // those that are all in the new one
}

// mergePacks writes one pack with all that is in the first of the given packs,
// as many as fit, pinned by the holds, and returns which packs it replaces. One
// that is damaged or cannot be read is none of them.
func (x *packs) mergePacks(ctx context.Context, holds []*hold, names []Name) (Name, replaced, error) {
	var w packWriter
	var done replaced
	for _, name := range names {
		v, err := x.unpack(ctx, name)
		if ctx.Err() != nil {
			return Name{}, done, ctx.Err()
		}
		if err == nil && len(done.names) > 0 && w.size+v.size > maxPending {
			break
		}
		done.looked++
		if err == nil {
			w.absorb(v)
			done.names = append(done.names, name)
		}
	}
	if len(done.names) < 2 {
		done.names = nil
		return Name{}, done, nil
	}
	merged, err := x.writeMerged(ctx, holds, &w)
	if err != nil {
		return Name{}, done, err
	}
	return merged, done, nil
}

// unpack reads a pack and verifies all that is in it.
func (x *packs) unpack(ctx context.Context, name Name) (*packWriter, error) {
	return x.unpackSome(ctx, name, func(merkle.Root) (bool, error) { return true, nil })
}

// Remover is a [Backend] that can delete without making sure that the objects
// stay deleted after a crash: for those of which it does no harm when they come
// back.
type Remover interface {
	// Remove is [Backend.Delete] whose effect a crash may undo.
	Remove(ctx context.Context, names ...Name) error
}

// remove deletes packs whose blobs are elsewhere too.
func (x *packs) remove(ctx context.Context, names []Name) error {
	if len(names) == 0 {
		return nil
	}
	var err error
	if r, ok := x.b.(Remover); ok {
		err = r.Remove(ctx, names...)
	} else {
		err = x.b.Delete(ctx, names...)
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if number, ok := x.number[name]; ok {
			info := &x.infos[number]
			info.durable, info.removed = false, true
		}
	}
	return nil
}

// RebuildIndex writes a tenant's index files anew from the packs' footers and
// deletes the old ones. Damaged packs are no error; see [Store.Damaged].
func (s *Store) RebuildIndex(ctx context.Context, tenant Tenant) error {
	x := s.packsOf(tenant)
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	var old []Name
	for name, err := range x.b.List(ctx, tenant, KindIndex, nil) {
		if err != nil {
			return err
		}
		old = append(old, name)
		x.broken[name] = true // do not open it again
	}
	x.files.RLock()
	open := slices.Clone(x.files.open)
	x.files.RUnlock()
	for _, f := range open {
		x.close(f)
	}
	x.mu.Lock()
	for _, number := range x.tail.packs {
		x.infos[number].covers--
	}
	x.tail = newTail()
	x.mu.Unlock()
	x.unwritten = nil
	if _, err := x.refreshLocked(ctx); err != nil {
		return err
	}
	x.indexTail(ctx, 0, 0)
	// That a file is gone as soon as it was written is another rebuild's work.
	if err := x.unwritten; err != nil && !errors.Is(err, ErrNotFound) {
		return &Error{Op: "rebuild the index", Err: plain(err)}
	}
	if err := x.b.Delete(ctx, old...); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range old {
		delete(x.damaged, name)
	}
	return nil
}
