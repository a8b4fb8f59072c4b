package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	upload := uploadKeyOf(path.Base(name)) != ""
	if !strings.HasPrefix(path.Base(name), tempPrefix) && !upload {
		return b.fail("remove", cas.Name{}, fmt.Errorf("%s is not unfinished", name))
	}
	if upload {
		if err := b.idle(name); err != nil {
			return err
		}
	}
	err := b.fsys.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b.fail("remove", cas.Name{}, err)
}

// idle returns nil when nobody works on the upload that a file belongs to.
func (b *Backend) idle(name string) error {
	dir, key := path.Dir(name), uploadKeyOf(path.Base(name))
	files, err := b.names(dir, uploadPrefix+key+"-")
	if err != nil {
		return b.fail("remove", cas.Name{}, err)
	}
	for _, file := range files {
		p, err := b.part(dir+"/"+file, os.O_RDWR)
		if err == nil {
			err = p.Close()
		}
		if err != nil && !errors.Is(err, cas.ErrNotFound) {
			return err
		}
	}
	return nil
}
