package cas

import (
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/merkle"
)

// Uncached returns a Store over the same Backend that knows and remembers
// nothing of it: what it reads was read from there and then.
func (s *Store) Uncached() *Store { return New(s.b, Options{CacheBytes: -1}) }

// Unreadable returns the bytes of a blob, in order, that cannot be read and
// verified as the store stands: none when the blob is whole. A blob that is not
// there at all is ErrNotFound. An error of reading that says nothing about the
// stored bytes is returned.
//
// It reads all of the blob, through the cache if this Store has one; see
// [Store.Uncached].
func (s *Store) Unreadable(ctx context.Context, tenant Tenant, root merkle.Root, size int64) ([]merkle.Range, error) {
	r, err := s.Open(ctx, tenant, root, size)
	if err == nil {
		defer r.Close()
		return unreadable(ctx, r)
	}
	if errors.Is(err, ErrNotFound) || unlessDamage(err) != nil {
		return nil, err
	}
	if size > merkle.GroupSize {
		if bad, ok := s.wholeUnproven(ctx, tenant, root, size); ok {
			return bad, nil
		}
	}
	return []merkle.Range{{Start: 0, End: size}}, nil
}

// wholeUnproven tells what the objects of a whole blob still prove, where they
// have not the lengths that a reader demands.
func (s *Store) wholeUnproven(ctx context.Context, tenant Tenant, root merkle.Root, size int64) ([]merkle.Range, bool) {
	var objects [2]Object
	for i, kind := range []Kind{KindBlob, KindOutboard} {
		name, err := s.latest(ctx, Name{Tenant: tenant, Kind: kind, ID: root})
		if err != nil {
			return nil, false
		}
		if objects[i], err = OpenObject(ctx, s.b, name); err != nil {
			return nil, false
		}
		defer objects[i].Close()
	}
	bad, err := unproven(ctx, root, size, objects[0], objects[1])
	return bad, err == nil && len(bad) > 0
}

// unproven returns the ranges of a blob that data and outboard do not prove.
func unproven(ctx context.Context, root merkle.Root, size int64, data, nodes io.ReaderAt) ([]merkle.Range, error) {
	var bad []merkle.Range
	next := int64(0)
	for r, err := range merkle.NewTree(root, size, nodes).ValidRanges(ctx, data) {
		if err != nil {
			return nil, err
		}
		if r.Start > next {
			bad = append(bad, merkle.Range{Start: next, End: r.Start})
		}
		next = r.End
	}
	if next < size {
		bad = append(bad, merkle.Range{Start: next, End: size})
	}
	return bad, nil
}

// unreadable reads a blob through, one group at a time: a longer read may
// succeed where the values that a shorter one needs are damaged.
func unreadable(ctx context.Context, r *Reader) ([]merkle.Range, error) {
	var bad []merkle.Range
	var group [merkle.GroupSize]byte
	for off := int64(0); off < r.Size(); off += merkle.GroupSize {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end := min(off+merkle.GroupSize, r.Size())
		_, err := r.ReadAt(group[:end-off], off)
		if err == nil || err == io.EOF {
			continue
		}
		// Parts that are gone say of the blob what damaged ones say.
		if err := unlessDamage(err); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if last := len(bad) - 1; last >= 0 && bad[last].End == off {
			bad[last].End = end
		} else {
			bad = append(bad, merkle.Range{Start: off, End: end})
		}
	}
	return bad, nil
}

// Repair mends what a finding of a deep [Store.Check] tells of, where the bytes
// it takes are still there: a missing or damaged outboard from its blob, a blob
// from a sound object of a lower generation, a pack whose footer is whole, the
// index. The mended object is written beside the damaged one, which stays, but
// for index files. It returns what was done in a few words, "" when nothing
// could be. No sweep may run meanwhile.
func (s *Store) Repair(ctx context.Context, f Finding) (string, error) {
	if !f.Harms() || f.Name == (Name{}) {
		return "", nil
	}
	switch f.Name.Kind {
	case KindPack:
		return s.repairPack(ctx, f.Name)
	case KindBlob:
		if f.Fault == FaultOutboard {
			return s.repairOutboard(ctx, f.Name)
		}
		return s.repairBlob(ctx, f.Name)
	case KindRecipe:
		if f.Fault == FaultOutboard {
			return s.repairOutboard(ctx, f.Name)
		}
		return "", nil
	case KindOutboard:
		for _, kind := range []Kind{KindBlob, KindRecipe} {
			name, err := s.latest(ctx, Name{Tenant: f.Name.Tenant, Kind: kind, ID: f.Name.ID})
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return "", err
			}
			if done, err := s.repairOutboard(ctx, name); done != "" || err != nil {
				return done, err
			}
		}
		return "", nil
	case KindIndex:
		if err := s.RebuildIndex(ctx, f.Name.Tenant); err != nil {
			return "", err
		}
		return "the index was written anew", nil
	}
	return "", nil
}

// bytesOf opens the bytes that a blob object holds or a recipe leads to.
func (s *Store) bytesOf(ctx context.Context, name Name) (Object, error) {
	o, err := OpenObject(ctx, s.b, name)
	if err != nil || name.Kind != KindRecipe {
		return o, err
	}
	defer o.Close()
	size, err := sizeInRecipe(o)
	if err != nil {
		return nil, err
	}
	return s.openRecipeOf(ctx, name.Tenant, name.ID, size)
}

// repairOutboard computes the outboard of a blob anew, and keeps it when the
// blob has its root.
func (s *Store) repairOutboard(ctx context.Context, blob Name) (string, error) {
	o, err := s.bytesOf(ctx, blob)
	if err != nil {
		return "", unlessDamage(err)
	}
	defer o.Close()
	nodes, err := NewStage(ctx, s.b, blob.Tenant)
	if err != nil {
		return "", err
	}
	defer nodes.Discard()
	size := o.Size()
	root, err := merkle.BuildAt(ctx, o, size, nodes)
	if err != nil {
		return "", unlessDamage(err)
	}
	n := merkle.OutboardSize(size)
	if root != blob.ID || n == 0 {
		return "", nil
	}
	err = s.settle(ctx, nil, Name{Tenant: blob.Tenant, Kind: KindOutboard, ID: root}, nodes, n, func(o Object) (bool, error) {
		return sameBytes(ctx, o, n, io.NewSectionReader(nodes, 0, n))
	})
	if err != nil {
		return "", err
	}
	return "its outboard was computed anew", nil
}

// repairBlob puts a sound lower generation on top.
func (s *Store) repairBlob(ctx context.Context, bad Name) (string, error) {
	var sound *Name
	for name, err := range s.b.List(ctx, bad.Tenant, KindBlob, bad.ID[:]) {
		if err != nil {
			return "", err
		}
		if name.Gen >= bad.Gen {
			continue
		}
		o, err := OpenObject(ctx, s.b, name)
		if err != nil {
			continue
		}
		root, err := merkle.BuildAt(ctx, o, o.Size(), nil)
		o.Close()
		if err == nil && root == name.ID {
			sound = &name
		}
	}
	if sound == nil {
		return "", nil
	}
	r, err := s.b.Get(ctx, *sound, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if _, err := s.putWhole(ctx, bad.Tenant, nil, nil, r); err != nil {
		return "", err
	}
	return fmt.Sprintf("written anew from generation %08x", sound.Gen), nil
}

// Tenants returns the tenants that have objects; see [ListTenants].
func (s *Store) Tenants(ctx context.Context) ([]Tenant, error) {
	var out []Tenant
	for t, err := range ListTenants(ctx, s.b) {
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
