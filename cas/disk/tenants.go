package disk

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"leafproof/cas"
)

var (
	_ cas.TenantLister = (*Backend)(nil)
	_ cas.StrayLister  = (*Backend)(nil)
)

// parseTenant reads the name of a tenant's folder.
func parseTenant(s string) (t cas.Tenant, ok bool) {
	if len(s) != 2*len(t) {
		return t, false
	}
	_, err := hex.Decode(t[:], []byte(s))
	return t, err == nil && t.String() == s
}

// isDir reports whether name is a folder; what is gone is none.
func (b *Backend) isDir(name string) (dir bool, size int64, err error) {
	info, err := b.fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	if info.IsDir() {
		return true, 0, nil
	}
	return false, info.Size(), nil
}

// Tenants implements [cas.TenantLister]: the folders that have a tenant's name.
func (b *Backend) Tenants(ctx context.Context) iter.Seq2[cas.Tenant, error] {
	return func(yield func(cas.Tenant, error) bool) {
		err := ctx.Err()
		var names []string
		if err == nil {
			names, err = b.names(".", "")
		}
		for _, name := range names {
			t, ok := parseTenant(name)
			if !ok {
				continue
			}
			var dir bool
			if dir, _, err = b.isDir(name); err != nil {
				break
			}
			if dir && !yield(t, nil) {
				return
			}
		}
		if err != nil {
			yield(cas.Tenant{}, b.fail("list tenants", cas.Name{}, err))
		}
	}
}

// tempPrefix begins the names of rootfs's unfinished files.
const tempPrefix = ".tmp-"

// Strays implements [cas.StrayLister]. It holds the names of one folder at a
// time, and goes down only where objects can be.
func (b *Backend) Strays(ctx context.Context) iter.Seq2[cas.Stray, error] {
	return func(yield func(cas.Stray, error) bool) {
		w := strayWalk{b: b, ctx: ctx, yield: yield}
		if err := w.folder(".", 0); err != nil && !errors.Is(err, errStopped) {
			yield(cas.Stray{}, b.fail("look through the folder", cas.Name{}, err))
		}
	}
}

var errStopped = errors.New("stopped")

type strayWalk struct {
	b     *Backend
	ctx   context.Context
	yield func(cas.Stray, error) bool
}

// folder looks through dir, which is that many levels below the backend's: 1 is a
// tenant's, 2 that of a kind, 3 that of a first byte, in which the objects are.
func (w *strayWalk) folder(dir string, level int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := w.b.names(dir, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		p := strings.TrimPrefix(dir+"/"+name, "./")
		if level == 3 {
			if _, err := cas.ParseName(p); err == nil {
				continue
			}
		}
		isDir, size, err := w.b.isDir(p)
		if err != nil {
			return err
		}
		if isDir && mayHoldObjects(strings.Split(p, "/")) {
			if err := w.folder(p, level+1); err != nil {
				return err
			}
			continue
		}
		stray := cas.Stray{Path: p, Size: size, Unfinished: !isDir && strings.HasPrefix(name, tempPrefix)}
		if key := uploadKeyOf(name); key != "" && !isDir {
			stray.Unfinished, stray.Upload = true, dir+"/"+key
			if info, err := w.b.fsys.Stat(p); err == nil { // else it is gone
				stray.Modified = info.ModTime()
			}
		}
		if !w.yield(stray, nil) {
			return errStopped
		}
	}
	return nil
}

// mayHoldObjects reports whether a folder's path is the beginning of an object's
// name, or where unfinished objects lie.
func mayHoldObjects(parts []string) bool {
	if _, ok := parseTenant(parts[0]); !ok || len(parts) > 3 {
		return false
	}
	if len(parts) == 1 || len(parts) == 2 && parts[1] == stageDir {
		return true
	}
	if !slices.ContainsFunc(cas.Kinds(), func(k cas.Kind) bool { return k.String() == parts[1] }) {
		return false
	}
	if len(parts) == 2 {
		return true
	}
	b, err := hex.DecodeString(parts[2])
	return err == nil && len(b) == 1 && hex.EncodeToString(b) == parts[2]
}
