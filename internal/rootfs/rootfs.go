// Package rootfs keeps a directory tree behind [os.Root] and writes files so
// that they survive a crash.
//
// [FS] is an [afero.Fs] whose every path is resolved inside one directory: a
// symbolic link or a ".." that leads out of it is refused by the kernel-backed
// os.Root, not by comparing strings. [Publish] and [Temp.Commit] are the one
// place that knows in which order a durable write happens.
//
// What it does not do: it does not stop another process from changing the same
// directory, and it can promise no more than the file system and the disk
// keep of an fsync. An afero.Fs other than [FS] gives the same results but
// only the durability that its own Sync has ([afero.MemMapFs] has none).
package rootfs

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/afero"
)

// Modes of what this package creates: a store holds what only its owner reads.
const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// FS is an [afero.Fs] confined to one directory, plus Link. Names are
// slash-separated and relative to that directory; "." is the directory. It is
// safe for concurrent use.
type FS struct {
	root *os.Root

	mu    sync.Mutex
	known map[string]bool // directories whose entry in their parent is on disk
}

var _ afero.Fs = (*FS)(nil)

// Open confines an FS to dir, which must exist.
func Open(dir string) (*FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &FS{root: root, known: map[string]bool{".": true}}, nil
}

// Close releases the directory; files opened through the FS stay open.
func (f *FS) Close() error { return f.root.Close() }

// Name returns the directory as it was given to [Open].
func (f *FS) Name() string { return f.root.Name() }

// Link makes newname a second name of the file oldname; it fails with
// [fs.ErrExist] when newname is taken. It never replaces.
func (f *FS) Link(oldname, newname string) error { return f.root.Link(oldname, newname) }

// Create opens name for reading and writing, empty.
func (f *FS) Create(name string) (afero.File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
}

// Open opens name for reading.
func (f *FS) Open(name string) (afero.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is [os.Root.OpenFile].
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	file, err := f.root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // never a typed nil inside the interface
	}
	return file, nil
}

// Mkdir is [os.Root.Mkdir].
func (f *FS) Mkdir(name string, perm fs.FileMode) error { return f.root.Mkdir(name, perm) }

// MkdirAll is [os.Root.MkdirAll]. It fsyncs nothing; [Publish] makes the
// directories it needs durably by itself.
func (f *FS) MkdirAll(name string, perm fs.FileMode) error { return f.root.MkdirAll(name, perm) }

// Remove is [os.Root.Remove].
func (f *FS) Remove(name string) error { return f.root.Remove(name) }

// RemoveAll is [os.Root.RemoveAll].
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	f.known = map[string]bool{".": true}
	f.mu.Unlock()
	return f.root.RemoveAll(name)
}

// Rename is [os.Root.Rename]: it replaces newname.
func (f *FS) Rename(oldname, newname string) error { return f.root.Rename(oldname, newname) }

// Stat is [os.Root.Stat].
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.root.Stat(name) }

// Chmod is [os.Root.Chmod].
func (f *FS) Chmod(name string, mode fs.FileMode) error { return f.root.Chmod(name, mode) }

// Chown is [os.Root.Chown].
func (f *FS) Chown(name string, uid, gid int) error { return f.root.Chown(name, uid, gid) }

// Chtimes is [os.Root.Chtimes].
func (f *FS) Chtimes(name string, atime, mtime time.Time) error {
	return f.root.Chtimes(name, atime, mtime)
}

// names returns the paths of what is in dir, of at most 1024, but for hidden
// files. What cannot be listed has none.
func (f *FS) names(dir string) []string {
	d, err := f.root.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	list, _ := d.Readdirnames(1024)
	list = slices.DeleteFunc(list, func(name string) bool { return strings.HasPrefix(name, ".") })
	for i, name := range list {
		list[i] = path.Join(dir, name)
	}
	return list
}

// settled reports whether this process has already made sure that dir's entry
// in its parent is on disk; settle records it.
func (f *FS) settled(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[dir]
}

func (f *FS) settle(dirs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dir := range dirs {
		f.known[dir] = true
	}
}
