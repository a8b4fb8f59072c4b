package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"leafproof/cas"
)

var _ cas.StrayRemover = (*Backend)(nil)

// RemoveStray implements [cas.StrayRemover]. It refuses whatever is not named
// like an unfinished file.
func (b *Backend) RemoveStray(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !strings.HasPrefix(path.Base(name), tempPrefix) {
		return b.fail("remove", cas.Name{}, fmt.Errorf("%s is not unfinished", name))
	}
	err := b.fsys.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b.fail("remove", cas.Name{}, err)
}
