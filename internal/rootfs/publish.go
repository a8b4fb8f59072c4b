package rootfs

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/afero"
)

// tempPrefix begins the name of every unfinished file. What a dead writer
// leaves under such a name was never published and can be removed by hand.
const tempPrefix = ".tmp-"

// Publish writes a file so that after a nil return it survives a crash under
// its name, whole; after an error the name is as it was before, or the file
// stands there whole, and no temporary file is left. The write callback fills
// the file; its error is returned as it is.
//
// With replace the name may be taken and changes from the old file to the new
// one in one step. Without it a taken name is [fs.ErrExist] and write is not
// called, or its work is thrown away when another process was faster; the
// resident file is not touched. It may not be durable yet, for its writer may
// be before its last fsync or have failed there: who takes the name for a
// success calls [SyncDirs] first.
//
// The sequence, as strace shows it (the mkdirat lines only where a directory
// is new; the first fsync of a parent also where this process meets a
// directory for the first time, because another process may have made it and
// not yet fsynced it):
//
//	mkdirat  DIR/a            fsync DIR
//	mkdirat  DIR/a/b          fsync DIR/a
//	openat   DIR/a/b/.tmp-R   O_CREAT|O_EXCL; R = 16 random bytes
//	write    …
//	fsync    DIR/a/b/.tmp-R   a failure is final: the file is given up
//	close                     checked
//	linkat   .tmp-R → NAME    fails when NAME exists; then unlinkat .tmp-R
//	renameat .tmp-R → NAME    instead of the two, with replace
//	fsync    DIR/a/b          a failure leaves the name
//
// The fsync of the file stands for the design's fdatasync: an [afero.File] has
// the one Sync, and a new file's size has changed, so that fdatasync would have
// to write the inode as well.
//
// When the last fsync fails, the file stands under its name, its bytes are on
// disk, and only the name may be lost in a crash. It is not taken back: another
// process may have met it, made its own fsync of the directory, and told its
// caller that the file is durable. Nor is the failure final for the name, as it
// is for a file whose own fsync failed: there the kernel may have dropped bytes
// that no later fsync can bring back, while here a caller that tries again
// either finds the name and flushes the directory anew, or finds that it is
// gone and writes the file anew. What no program can rule out is that the
// kernel dropped the directory's block with the failure and reports success for
// the next fsync; a file system that can (ext4 with a journal, xfs, btrfs) stops
// taking writes instead.
func Publish(fsys afero.Fs, name string, replace bool, write func(afero.File) error) error {
	if !replace {
		if err := absent(fsys, name); err != nil {
			return err
		}
	}
	temp, err := NewTemp(fsys, path.Dir(name))
	if err != nil {
		return err
	}
	defer temp.Discard()
	if err := write(temp.file); err != nil {
		return err
	}
	return temp.Commit(name, replace)
}

// Temp is an unfinished file: for a writer that learns its name only at the
// end. Everything else uses [Publish].
type Temp struct {
	fsys afero.Fs
	name string
	file afero.File // nil once committed or discarded
}

// NewTemp makes an empty unfinished file in dir, which is created if it is
// missing. It may be committed to a name in another directory of the same file
// system.
func NewTemp(fsys afero.Fs, dir string) (*Temp, error) {
	if err := MakeDirs(fsys, dir); err != nil {
		return nil, err
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	name := path.Join(dir, tempPrefix+hex.EncodeToString(random[:]))
	file, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	return &Temp{fsys: fsys, name: name, file: file}, nil
}

// OpenTemp opens an unfinished file that is kept under a name of its own, or makes
// one, as flag says to OpenFile. Nobody else may know the file by another name.
// Of a new one the name survives a crash once its directory is flushed.
func OpenTemp(fsys afero.Fs, name string, flag int) (*Temp, error) {
	file, err := fsys.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return &Temp{fsys: fsys, name: name, file: file}, nil
}

// Close closes the file and leaves it where it is. After Commit or Discard it
// does nothing.
func (t *Temp) Close() error {
	if t.file == nil {
		return nil
	}
	file := t.file
	t.file = nil
	return file.Close()
}

// File is the open file; it is nil after Commit, Discard or Close.
func (t *Temp) File() afero.File { return t.file }

// Commit gives the file its name, durably; see [Publish] for what that means.
// Whatever it returns, the Temp is used up.
func (t *Temp) Commit(name string, replace bool) (err error) {
	if t.file == nil {
		return fs.ErrClosed
	}
	defer func() {
		if e := t.Discard(); err == nil {
			err = e
		}
	}()
	if !replace {
		if err := absent(t.fsys, name); err != nil {
			return err
		}
	}
	dir := path.Dir(name)
	if err := MakeDirs(t.fsys, dir); err != nil {
		return err
	}
	// After a failed fsync the kernel may have dropped the dirty pages and
	// would report success the next time: so there is no next time.
	if err := t.file.Sync(); err != nil {
		return err
	}
	file := t.file
	t.file = nil
	if err := file.Close(); err != nil {
		t.remove()
		return err
	}
	if err := move(t.fsys, t.name, name, replace); err != nil {
		t.remove()
		return err
	}
	return SyncDir(t.fsys, dir) // on failure the name stays: see Publish
}

// CommitLoose gives the file its name and waits for no disk: after a crash the
// name may be gone, or stand there with any part of the bytes. A taken name is
// [fs.ErrExist]. Whatever it returns, the Temp is used up.
func (t *Temp) CommitLoose(name string) (err error) {
	if t.file == nil {
		return fs.ErrClosed
	}
	defer func() {
		if e := t.Discard(); err == nil {
			err = e
		}
	}()
	if err := t.fsys.MkdirAll(path.Dir(name), dirMode); err != nil {
		return err
	}
	return t.giveName(name)
}

// CommitAll is Commit, without replacing, of several files at once: each
// directory is flushed once for all files in it. A name that is taken stays as it
// is and counts as committed, durably. After an error some may have their names.
// Whatever it returns, the temps are used up.
func CommitAll(temps []*Temp, names []string) (err error) {
	defer func() {
		for _, t := range temps {
			if e := t.Discard(); err == nil {
				err = e
			}
		}
	}()
	var dirs []string
	for i, t := range temps {
		if t.file == nil {
			return fs.ErrClosed
		}
		dir := path.Dir(names[i])
		if !slices.Contains(dirs, dir) {
			if err := MakeDirs(t.fsys, dir); err != nil {
				return err
			}
			dirs = append(dirs, dir)
		}
		if err := t.file.Sync(); err != nil { // final, as in Commit
			return err
		}
	}
	for i, t := range temps {
		if err := t.giveName(names[i]); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, dir := range dirs {
		if err := SyncDir(temps[0].fsys, dir); err != nil {
			return err
		}
	}
	return nil
}

// giveName closes the file and gives it its name, which no flush follows.
func (t *Temp) giveName(name string) error {
	file := t.file
	t.file = nil
	if err := file.Close(); err != nil {
		return errors.Join(err, t.remove())
	}
	if err := move(t.fsys, t.name, name, false); err != nil {
		return errors.Join(err, t.remove())
	}
	return nil
}

// Discard throws the file away. After Commit or Discard it does nothing.
func (t *Temp) Discard() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return errors.Join(err, t.remove())
}

func (t *Temp) remove() error {
	if err := t.fsys.Remove(t.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// linker is an afero.Fs that can make hard links: the only portable way to
// take a name without replacing what another process put there.
type linker interface {
	Link(oldname, newname string) error
}

// renaming serialises the check-then-rename of file systems without Link.
var renaming sync.Mutex

// move gives the closed file temp its final name. temp is gone afterwards when
// it returns nil.
func move(fsys afero.Fs, temp, name string, replace bool) error {
	if replace {
		return fsys.Rename(temp, name)
	}
	if l, ok := fsys.(linker); ok {
		err := l.Link(temp, name)
		if err == nil {
			return fsys.Remove(temp)
		}
		if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EPERM) {
			return err
		}
		// A file system without hard links (FAT, some network mounts).
	}
	// Not safe against another process, which is harmless here: two writers
	// of one immutable name write the same bytes.
	renaming.Lock()
	defer renaming.Unlock()
	if err := absent(fsys, name); err != nil {
		return err
	}
	return fsys.Rename(temp, name)
}

// absent returns nil when nothing stands at name.
func absent(fsys afero.Fs, name string) error {
	switch _, err := fsys.Stat(name); {
	case err == nil:
		return &fs.PathError{Op: "publish", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

// MakeDirs creates dir and its parents where they are missing and makes each
// one's entry in its parent durable. One flush of a parent does it for all that is
// in it by then, so that an [FS] flushes it again only for what comes later.
func MakeDirs(fsys afero.Fs, dir string) error {
	memo, _ := fsys.(*FS)
	if dir == "." || dir == "/" || memo != nil && memo.settled(dir) {
		return nil
	}
	if err := MakeDirs(fsys, path.Dir(dir)); err != nil {
		return err
	}
	if err := fsys.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var there []string
	if memo != nil {
		there = memo.names(path.Dir(dir))
	}
	if err := SyncDir(fsys, path.Dir(dir)); err != nil {
		return err
	}
	if memo != nil {
		memo.settle(append(there, dir)...)
	}
	return nil
}

// SyncDirs makes sure that the names in dir survive a crash, and dir's own name
// and its parents' as well.
func SyncDirs(fsys afero.Fs, dir string) error {
	if err := MakeDirs(fsys, dir); err != nil {
		return err
	}
	return SyncDir(fsys, dir)
}

// SyncDir fsyncs a directory: the names in it survive a crash afterwards.
func SyncDir(fsys afero.Fs, dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory handle cannot be flushed; NTFS journals names
	}
	d, err := fsys.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return fmt.Errorf("fsync of directory: %w", err)
	}
	return d.Close()
}
