package cas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"leafproof/merkle"
)

// FaultChunks is a chunked blob of which chunks are damaged or missing: its
// recipe is sound.
const FaultChunks Fault = "damaged chunks"

// recipeGroup checks the generations of a recipe, and the chunks that the one
// leads to which readers take.
func (c *check) recipeGroup(names []Name) []Finding {
	last := names[len(names)-1]
	found := generations(names[:len(names)-1], func(name Name) *Finding {
		_, f := c.recipeSize(name)
		return f
	})
	for i := range found {
		found[i].Superseded = true
	}
	size, f := c.recipeSize(last)
	switch {
	case f != nil && f.Fault == "":
		return found
	case f != nil:
		f.Blobs = []BlobDamage{{Root: last.ID, Size: -1}}
		return append(found, *f)
	}
	c.visit(last, size, one(last.ID))
	return append(found, c.recipe(last, size)...)
}

// recipeSize checks a recipe object by itself, and returns the blob's size.
func (c *check) recipeSize(name Name) (int64, *Finding) {
	o, f := c.open(name)
	if f != nil {
		return 0, f
	}
	defer o.Close()
	size, err := sizeInRecipe(o)
	if err == nil {
		_, err = openRecipe(o, o.Size(), size)
	}
	if err == nil {
		return size, nil
	}
	return 0, new(c.describe(name, o, FaultBytes, err))
}

// sizeInRecipe reads the size of the blob that a recipe claims to be for.
func sizeInRecipe(o Object) (int64, error) {
	var head [recipeHeaderSize]byte
	if err := readFullAt(o, head[:], 0); err != nil {
		return 0, err
	}
	size := binary.LittleEndian.Uint64(head[16:])
	if size <= merkle.GroupSize || size > 1<<62 {
		return 0, fmt.Errorf("%w: a blob of %d bytes", errRecipe, size)
	}
	return int64(size), nil
}

// recipe checks what a sound recipe leads to, and the outboard beside it.
func (c *check) recipe(name Name, size int64) []Finding {
	affected := []BlobDamage{{Root: name.ID, Size: size}}
	nodesName, nodes, bad := c.outboardOf(name)
	switch {
	case bad != nil && bad.Fault == FaultUnread:
		return []Finding{*bad}
	case bad != nil:
		bad.Blobs = affected
		return []Finding{*bad}
	case nodes == nil:
		return []Finding{{Name: name, Fault: FaultOutboard, Blobs: affected, Err: errors.New("readers cannot check its bytes")}}
	}
	defer nodes.Close()
	want := merkle.OutboardSize(size)
	if nodes.Size() != want {
		f := c.describe(nodesName, nodes, FaultLength, fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, nodes.Size(), want))
		f.Blobs = affected
		return []Finding{f}
	}
	if !c.o.Deep {
		return c.present(name, size)
	}
	compare := &comparison{have: nodes}
	root, err := c.rootOfChunks(name, size, compare)
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil
	case err != nil && unlessDamage(err) != nil && !errors.Is(err, ErrNotFound):
		return []Finding{{Name: name, Fault: FaultUnread, Err: err}}
	case err != nil || root != name.ID:
		return c.chunks(name, size, err)
	case compare.err != nil:
		return []Finding{c.describe(nodesName, nodes, FaultBytes, compare.err)}
	case compare.wrong > 0:
		f := c.describe(nodesName, nodes, FaultBytes, fmt.Errorf("%w: %d of its values, the first at byte %d", ErrCorrupt, compare.wrong, compare.first))
		f.Blobs = affected
		return []Finding{f}
	}
	return nil
}

// present is what a shallow check asks of the chunks: that some pack has each page
// and each chunk. Only a blob that lacks one is read.
func (c *check) present(name Name, size int64) []Finding {
	x := c.s.packsOf(name.Tenant)
	err := x.load(c.ctx)
	for key, e := range c.s.Chunks(c.ctx, name.Tenant, name.ID, size) {
		var found bool
		if err = errors.Join(err, e); err == nil {
			found, err = x.has(c.ctx, key)
		}
		if err != nil {
			break
		}
		if !found {
			return c.chunks(name, size, fmt.Errorf("%w: no pack has the chunk %s", ErrCorrupt, key))
		}
	}
	if err != nil && c.ctx.Err() == nil {
		return []Finding{{Name: name, Fault: FaultUnread, Err: err}}
	}
	return nil
}

// has reports whether a pack that is there has a blob or chunk by this key. A
// miss looks for packs that others have added or merged, until nothing new comes.
func (x *packs) has(ctx context.Context, key merkle.Root) (bool, error) {
	for looks, changed := 0, true; looks <= maxLooks && changed; looks++ {
		if looks > 0 {
			var err error
			if changed, err = x.look(ctx); err != nil {
				return false, err
			}
		}
		places, _, err := x.places(ctx, key)
		if err != nil {
			return false, err
		}
		x.mu.RLock()
		there := slices.ContainsFunc(places, func(p place) bool { return !x.gone(p.pack) })
		x.mu.RUnlock()
		if there {
			return true, nil
		}
	}
	return false, nil
}

func (c *check) rootOfChunks(name Name, size int64, compare *comparison) (merkle.Root, error) {
	data, err := c.s.openRecipeOf(c.ctx, name.Tenant, name.ID, size)
	if err != nil {
		return merkle.Root{}, err
	}
	defer data.Close()
	return build(c, pacedObject{data, c}, compare)
}

// chunks says which bytes of a blob are lost with its chunks: none where another
// copy of each damaged one is sound, which is found with the packs.
func (c *check) chunks(name Name, size int64, why error) []Finding {
	bad, err := c.s.Unreadable(c.ctx, name.Tenant, name.ID, size)
	if err != nil {
		return []Finding{{Name: name, Fault: FaultUnread, Err: err}}
	}
	if len(bad) == 0 {
		return nil
	}
	if why == nil {
		why = fmt.Errorf("%w: the chunks that it leads to are not its blob's", ErrCorrupt)
	}
	return []Finding{{Name: name, Fault: FaultChunks, Blobs: []BlobDamage{{Root: name.ID, Size: size, Ranges: bad}}, Err: why}}
}

// Chunks yields the keys of the chunks of a chunked blob, and of the pages of its
// recipe, some more than once: nothing for a blob that is not chunked, or whose
// recipe does not open. A page that cannot be read is passed over. A yielded
// error is that of reading, not of damage, and the last.
func (s *Store) Chunks(ctx context.Context, tenant Tenant, root merkle.Root, size int64) iter.Seq2[merkle.Root, error] {
	return func(yield func(merkle.Root, error) bool) {
		if size <= merkle.GroupSize {
			return
		}
		data, err := s.openRecipeOf(ctx, tenant, root, size)
		if err != nil {
			if unlessDamage(err) != nil && !errors.Is(err, ErrNotFound) {
				yield(merkle.Root{}, err)
			}
			return
		}
		defer data.Close()
		for i := range data.recipe.pages {
			e, _, err := data.recipe.page(i)
			if err != nil {
				return
			}
			if !yield(e.key, nil) {
				return
			}
			page, err := data.pageBytes(e)
			if ctx.Err() != nil {
				yield(merkle.Root{}, ctx.Err())
				return
			}
			for j := 0; err == nil && j < len(page)/recipeEntrySize; j++ {
				if !yield(entryAt(page, j).key, nil) {
					return
				}
			}
		}
	}
}
