package cas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"leafproof/merkle"
)

// holes says how much of a pack is needed.
type holes struct {
	size       int64 // of the object
	live, dead int64 // raw bytes of its blobs
	keys       int   // blobs that are needed
}

// worth reports whether a pack is better written anew or deleted.
func (t *tenantSweep) worth(h holes) bool {
	return h.keys == 0 || 100*h.live < packLive*(h.live+h.dead) ||
		h.dead > 0 && t.o.Thorough != nil && t.o.Thorough(t.tenant)
}

// look reads a pack's footer.
func (t *tenantSweep) look(ctx context.Context, name Name) (h holes, err error) {
	o, err := OpenObject(ctx, t.s.b, name)
	if err != nil {
		return h, err
	}
	defer o.Close()
	_, keys, err := readFooter(o, o.Size(), name.ID)
	if err != nil {
		return h, err
	}
	h.size = o.Size()
	for _, k := range keys {
		if t.marks.has(k.root) {
			h.keys++
			h.live += int64(k.length)
		} else {
			h.dead += int64(k.length)
		}
	}
	return h, nil
}

// condemnPacks condemns packs with many holes, and small ones when there are
// many: what is needed of them is written anew when they are deleted. A pack
// that cannot be read stays.
func (t *tenantSweep) condemnPacks(ctx context.Context) error {
	var candidates, small []Name
	for name, err := range t.s.b.List(ctx, t.tenant, KindPack, nil) {
		if err != nil {
			return t.keep(ctx, err)
		}
		h, err := t.look(ctx, name)
		switch {
		case err != nil:
			if err := t.keepPack(ctx, name, err); err != nil {
				return err
			}
		case t.worth(h):
			candidates = append(candidates, name)
		case h.size < smallPack:
			small = append(small, name)
		}
	}
	if len(candidates) > 0 {
		if err := t.marks.extend(ctx); err != nil {
			return t.keep(ctx, fmt.Errorf("tenant %s: %w", t.tenant, err))
		}
	}
	if len(small) < manySmall {
		small = nil
	}
	var names []string
	for _, name := range candidates {
		if h, err := t.look(ctx, name); err == nil && t.worth(h) {
			names = append(names, name.String())
		}
	}
	for _, name := range small {
		names = append(names, name.String())
	}
	return t.sentence(ctx, names)
}

func (t *tenantSweep) keepPack(ctx context.Context, name Name, err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return t.keep(ctx, fmt.Errorf("%s: %w", name, err))
}

// deletePacks deletes condemned packs: those that nothing is needed of first,
// then those whose blobs could be written anew.
func (t *tenantSweep) deletePacks(ctx context.Context, names []Name) error {
	var empty, spared []string
	var rest []Name
	for _, name := range names {
		h, err := t.look(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound), err == nil && h.keys == 0:
			empty = append(empty, name.String())
		case err != nil:
			if err := t.keepPack(ctx, name, err); err != nil {
				return err
			}
			spared = append(spared, name.String())
		case !t.worth(h) && h.size >= smallPack: // what it has is needed again
			spared = append(spared, name.String())
		default:
			rest = append(rest, name)
		}
	}
	if err := t.spare(ctx, spared); err != nil {
		return err
	}
	if err := t.destroy(ctx, empty, t.removePacks); err != nil {
		return err
	}
	if err := t.rewrite(ctx, rest); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	return t.dropIndex(ctx)
}

// dropIndex deletes the index files of a tenant that has no pack left. They are a
// cache, of nothing then; who has one open goes on with it.
func (t *tenantSweep) dropIndex(ctx context.Context) error {
	for _, err := range t.s.b.List(ctx, t.tenant, KindPack, nil) {
		return err // there is one, or it cannot be known
	}
	var names []Name
	for name, err := range t.s.b.List(ctx, t.tenant, KindIndex, nil) {
		if err != nil {
			return t.keep(ctx, err)
		}
		names = append(names, name)
	}
	if err := t.s.b.Delete(ctx, names...); err != nil {
		return t.keep(ctx, err)
	}
	return nil
}

func (t *tenantSweep) removePacks(ctx context.Context, texts []string) []removal {
	out := t.removeObjects(ctx, texts)
	for i, text := range texts {
		if name, bad := ParseName(text); out[i].err == nil && bad == nil {
			t.s.packsOf(t.tenant).removed(name)
		}
	}
	return out
}

// removed notes that this process deleted a pack.
func (x *packs) removed(name Name) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number, ok := x.number[name]; ok {
		x.infos[number].durable, x.infos[number].removed = false, true
	}
}

// rewrite writes the blobs that are needed of condemned packs into new ones,
// as many as fit into each, and deletes the old ones when that is durable.
func (t *tenantSweep) rewrite(ctx context.Context, names []Name) error {
	if len(names) == 0 {
		return nil
	}
	x := t.s.packsOf(t.tenant)
	if err := x.refresh(ctx); err != nil {
		return t.keep(ctx, err)
	}
	var w packWriter
	var done []string
	flush := func() error {
		if len(w.keys) > 0 {
			name, err := x.write(ctx, []*hold{t.hold}, &w)
			if err != nil {
				w, done = packWriter{}, nil
				// No room, say: the old packs stay, condemned.
				return t.keep(ctx, fmt.Errorf("%d packs are not written anew: %w", len(names), err))
			}
			o, err := OpenObject(ctx, t.s.b, name)
			if err != nil {
				return err
			}
			t.report.Written += o.Size()
			o.Close()
			x.tidy(ctx) // or the new packs' keys all stay in memory
		}
		t.report.Rewritten += int64(len(done))
		err := t.destroy(ctx, done, t.removePacks)
		w, done = packWriter{}, nil
		return err
	}
	for _, name := range names {
		v, err := t.needs(ctx, x, &w, name)
		if err != nil {
			if err := t.keepPack(ctx, name, err); err != nil {
				return err
			}
			if err := t.spare(ctx, []string{name.String()}); err != nil {
				return err
			}
			continue
		}
		if len(w.keys) > 0 && w.size+v.size > maxPending {
			if err := flush(); err != nil {
				return err
			}
		}
		w.absorb(v)
		done = append(done, name.String())
	}
	return flush()
}

// needs reads the blobs of a pack that are needed and have no sound copy in a
// pack that stays. A blob that is damaged here and nowhere sound is an error:
// its pack stays, for whoever repairs it.
func (t *tenantSweep) needs(ctx context.Context, x *packs, w *packWriter, name Name) (*packWriter, error) {
	v, err := x.unpackSome(ctx, name, func(root merkle.Root) (bool, error) {
		if !t.marks.has(root) {
			return false, nil
		}
		if _, ok := w.keys[root]; ok {
			return false, nil // it is written with this pack
		}
		stays, err := t.elsewhere(ctx, x, root)
		return !stays, err
	})
	return v, err
}

// elsewhere reports whether a pack that is not condemned has a sound copy of a
// blob, and pins it. Pinned first and read then, it stays until this sweep has
// deleted the other copy.
func (t *tenantSweep) elsewhere(ctx context.Context, x *packs, root merkle.Root) (bool, error) {
	places, names, err := x.places(ctx, root)
	if err != nil {
		return false, err
	}
	for i, p := range places {
		ok, err := t.hold.pin(ctx, names[i])
		if err != nil {
			return false, err
		}
		if !ok || p.length > maxChunk {
			continue
		}
		data, err := x.readOne(ctx, names[i], p)
		if err != nil || merkle.Sum(data) != root {
			continue
		}
		if err := x.confirm(ctx, names[i]); err == nil {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// unpackSome reads those blobs of a pack that want says, and verifies them. A run
// that is compressed or has chunks is taken as it is if all of it is wanted.
func (x *packs) unpackSome(ctx context.Context, name Name, want func(merkle.Root) (bool, error)) (*packWriter, error) {
	o, err := OpenObject(ctx, x.b, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	runs, keys, err := readFooter(o, o.Size(), name.ID)
	if err != nil {
		return nil, err
	}
	wanted, all := make([][]packKey, len(runs)), make([]int, len(runs))
	for _, k := range keys {
		all[k.run]++
		ok, err := want(k.root)
		if err != nil {
			return nil, err
		}
		if ok {
			wanted[k.run] = append(wanted[k.run], k)
		}
	}
	w := new(packWriter)
	for i, r := range runs {
		if len(wanted[i]) == 0 {
			continue
		}
		stored := make([]byte, r.stored)
		if err := readFullAt(o, stored, r.offset); err != nil {
			return nil, err
		}
		raw, err := decodeRun(r.codec, r.raw, stored, nil)
		if err != nil {
			return nil, err
		}
		large := false
		slices.SortFunc(wanted[i], func(a, b packKey) int { return cmp.Compare(a.off, b.off) })
		for _, k := range wanted[i] {
			if merkle.Sum(raw[k.off:k.off+k.length]) != k.root {
				return nil, fmt.Errorf("blob %s: %w", k.root, ErrCorrupt)
			}
			large = large || k.length > merkle.GroupSize
		}
		switch {
		case len(wanted[i]) == all[i] && (r.codec != codecRaw || large):
			w.addRun(newRun{codec: r.codec, raw: r.raw, stored: stored}, wanted[i])
		case r.codec != codecRaw || large:
			w.addRun(pick(raw, wanted[i]))
		default:
			for _, k := range wanted[i] {
				w.add(k.root, raw[k.off:k.off+k.length])
			}
		}
	}
	return w, nil
}

// pick makes a run of some of the blobs of another one.
func pick(raw []byte, keys []packKey) (newRun, []packKey) {
	var rest []byte
	moved := make([]packKey, len(keys))
	for i, k := range keys {
		moved[i] = packKey{k.root, 0, uint32(len(rest)), k.length}
		rest = append(rest, raw[k.off:k.off+k.length]...)
	}
	codec, stored := encodeRun(rest, nil)
	return newRun{codec: codec, raw: uint32(len(rest)), stored: stored}, moved
}
