package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/internal/flock"
	"leafproof/internal/rootfs"
)

// The files of an upload lie where other unfinished objects do:
//
//	<tenant>/tmp/.upl-<key>.mark           how much of it was synced
//	<tenant>/tmp/.upl-<key>-<nonce>.data   its bytes; who works on it holds a lock on this file
//	<tenant>/tmp/.upl-<key>-<nonce>.log    their outboard
const uploadPrefix = ".upl-"

// maxMark bounds a mark that is read.
const maxMark = 1 << 10

var _ cas.Uploader = (*Backend)(nil)

func uploadName(t cas.Tenant, key cas.UploadKey) string {
	return fmt.Sprintf("%s/%s/%s%x", t, stageDir, uploadPrefix, key)
}

func partName(t cas.Tenant, key cas.UploadKey, part cas.UploadPart) string {
	kind := "data"
	if part.Log {
		kind = "log"
	}
	return fmt.Sprintf("%s-%016x.%s", uploadName(t, key), part.Nonce, kind)
}

// uploadKeyOf is the key, in hex, that a file of an upload belongs to, "" for any
// other file.
func uploadKeyOf(file string) string {
	const digits = 2 * len(cas.UploadKey{})
	rest, ok := strings.CutPrefix(file, uploadPrefix)
	if !ok || len(rest) <= digits || rest[digits] != '-' && rest[digits] != '.' {
		return ""
	}
	return rest[:digits]
}

// CreatePart implements [cas.Uploader].
func (b *Backend) CreatePart(ctx context.Context, t cas.Tenant, key cas.UploadKey, part cas.UploadPart) (cas.PartStage, error) {
	err := ctx.Err()
	if err == nil {
		err = rootfs.MakeDirs(b.fsys, t.String()+"/"+stageDir)
	}
	if err != nil {
		return nil, b.fail("upload", cas.Name{}, err)
	}
	return b.part(partName(t, key, part), os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// OpenPart implements [cas.Uploader].
func (b *Backend) OpenPart(ctx context.Context, t cas.Tenant, key cas.UploadKey, part cas.UploadPart) (cas.PartStage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return b.part(partName(t, key, part), os.O_RDWR)
}

func (b *Backend) part(name string, flag int) (cas.PartStage, error) {
	temp, err := rootfs.OpenTemp(b.fsys, name, flag)
	if err == nil {
		if err = b.lock(name, temp.File()); err != nil {
			err = errors.Join(err, temp.Close())
		}
	}
	if err != nil {
		return nil, b.fail("upload", cas.Name{}, err)
	}
	return &part{stage: stage{b: b, temp: temp}, name: name}, nil
}

// lock excludes everybody else from a part for as long as it is open.
func (b *Backend) lock(name string, file afero.File) error {
	f, ok := file.(*os.File)
	if !ok { // a file system of this process alone
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.parts[name] {
			return cas.ErrBusy
		}
		if b.parts == nil {
			b.parts = make(map[string]bool)
		}
		b.parts[name] = true
		return nil
	}
	if err := flock.Open(f); err != nil {
		if errors.Is(err, flock.ErrHeld) {
			err = cas.ErrBusy
		}
		return err
	}
	// Whoever had the lock before may have taken the file's name away.
	here, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := b.fsys.Stat(name)
	if err == nil && !os.SameFile(here, there) {
		err = fs.ErrNotExist
	}
	return err
}

// part is a [cas.PartStage].
type part struct {
	stage
	name string
	once sync.Once
}

func (p *part) unlock() {
	p.once.Do(func() { // a lock of the operating system ends with the file
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		delete(p.b.parts, p.name)
	})
}

func (p *part) Commit(ctx context.Context, name cas.Name, size int64) error {
	defer p.unlock()
	return p.stage.Commit(ctx, name, size)
}

func (p *part) Discard() error {
	defer p.unlock()
	return p.stage.Discard()
}

func (p *part) Close() error {
	defer p.unlock()
	return p.temp.Close()
}

func (p *part) Length() (int64, error) {
	if p.temp.File() == nil {
		return 0, fs.ErrClosed
	}
	info, err := p.temp.File().Stat()
	if err != nil {
		return 0, p.b.fail("upload", cas.Name{}, err)
	}
	return info.Size(), nil
}

func (p *part) Truncate(size int64) error {
	if p.temp.File() == nil {
		return fs.ErrClosed
	}
	return p.b.fail("upload", cas.Name{}, p.temp.File().Truncate(size))
}

func (p *part) Sync() error {
	if p.temp.File() == nil {
		return fs.ErrClosed
	}
	return p.b.fail("upload", cas.Name{}, p.temp.File().Sync())
}

// Mark implements [cas.Uploader].
func (b *Backend) Mark(ctx context.Context, t cas.Tenant, key cas.UploadKey) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := b.fsys.Open(uploadName(t, key) + ".mark")
	if err != nil {
		return nil, b.fail("upload", cas.Name{}, err)
	}
	defer f.Close()
	p, err := io.ReadAll(io.LimitReader(f, maxMark))
	return p, b.fail("upload", cas.Name{}, err)
}

// SetMark implements [cas.Uploader].
func (b *Backend) SetMark(ctx context.Context, t cas.Tenant, key cas.UploadKey, mark []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := rootfs.Publish(b.fsys, uploadName(t, key)+".mark", true, func(f afero.File) error {
		_, err := f.Write(mark)
		return err
	})
	return b.fail("upload", cas.Name{}, err)
}

// RemoveUpload implements [cas.Uploader].
func (b *Backend) RemoveUpload(ctx context.Context, t cas.Tenant, key cas.UploadKey, keep uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir := t.String() + "/" + stageDir
	prefix := fmt.Sprintf("%s%x", uploadPrefix, key)
	names, err := b.names(dir, prefix)
	for _, name := range names {
		rest := strings.TrimPrefix(name, prefix)
		if keep != 0 && (rest == ".mark" || strings.HasPrefix(rest, fmt.Sprintf("-%016x.", keep))) {
			continue
		}
		if e := b.fsys.Remove(dir + "/" + name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return b.fail("upload", cas.Name{}, err)
}
