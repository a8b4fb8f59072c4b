package cas

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"

	"leafproof/merkle"
)

// statedSize is the size of the blob that a recipe says it is for.
func statedSize(r io.ReaderAt) (int64, error) {
	var p [8]byte
	err := readFullAt(r, p[:], 16)
	return int64(binary.LittleEndian.Uint64(p[:])), err
}

// soundRecipe reports whether an object is a well-formed recipe.
func soundRecipe(o Object) (bool, error) {
	size, err := statedSize(o)
	if err == nil {
		_, err = openRecipe(o, o.Size(), size)
	}
	return err == nil, err
}

// recipeRefs yields the keys of a recipe's pages and chunks. Of a recipe that a
// later one has superseded, it yields what can be read.
func recipeRefs(ctx context.Context, s *Store, name Name) iter.Seq2[merkle.Root, error] {
	return func(yield func(merkle.Root, error) bool) {
		latest, err := s.latest(ctx, name)
		if err == nil {
			err = s.recipeRefs(ctx, name, func(key merkle.Root) bool { return yield(key, nil) })
		}
		if err != nil && (ctx.Err() != nil || latest == name) {
			yield(merkle.Root{}, err)
		}
	}
}

func (s *Store) recipeRefs(ctx context.Context, name Name, yield func(merkle.Root) bool) error {
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return err
	}
	defer o.Close()
	size, err := statedSize(o)
	if err != nil {
		return err
	}
	r, err := openRecipe(o, o.Size(), size)
	if err != nil {
		return err
	}
	for i := range r.pages {
		e, _, err := r.page(i)
		if err != nil {
			return err
		}
		if !yield(e.key) {
			return nil
		}
		page, _, err := s.readPacked(ctx, name.Tenant, e.key)
		if err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
		for i := range len(page) / recipeEntrySize {
			if !yield(entryAt(page, i).key) {
				return nil
			}
		}
	}
	return nil
}
