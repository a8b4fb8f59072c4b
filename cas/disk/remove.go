package disk

import (
	"context"
	"errors"
	"io/fs"

	"leafproof/cas"
)

var _ cas.Remover = (*Backend)(nil)

// Remove implements [cas.Remover]: it does not fsync the folders.
func (b *Backend) Remove(ctx context.Context, names ...cas.Name) error {
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.fsys.Remove(name.String()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b.fail("remove", name, err)
		}
	}
	return nil
}
