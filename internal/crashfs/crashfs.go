// Package crashfs is a file system in memory that can lose power.
//
// [FS] is an [afero.Fs] with hard links and directories that can be flushed. It
// keeps apart what programs see, what the last flush made durable, and what lies
// between. [FS.Crash] returns what a power cut at this moment may leave, as a
// new FS that can be written and cut again; [FS.Fork] returns what a killed
// process leaves, where nothing is lost and nothing becomes durable.
// [FS.Observe] calls a test after every operation, so that it can take such a
// copy there. [FS.Inject] makes operations fail.
//
// # What it models
//
// Of a file that was not flushed, each page of 4096 bytes that changed is kept
// or not: then the page is what it was at the last flush, or zeros. The length
// is the old one, the new one, or one between. Of a directory that was not
// flushed, each change of an entry (made, linked, renamed, removed) is kept or
// not, independently of all others, also of those in other directories, and of
// the data of the file that it names; a flush of a file does not keep its name.
// A rename within one directory is kept as a whole; one between two directories
// may leave both names, or none. That is what POSIX permits and more than any
// one file system does: ext4, xfs and btrfs order many of these.
//
// A flush that fails loses the file's changed pages for good: programs see them
// on, the next flush succeeds, and a crash drops them all the same unless they
// were written anew. A directory's flush that fails leaves its changes as they
// were: a file system with a journal stops taking writes instead.
//
// # What it does not model
//
// A page that changed twice between two flushes is the old or the last one,
// never the one between. There are no torn pages, no bits that rot, no writes
// that go to another place, and no disk that lies about a flush, except for
// [Sabotage]. Modes and owners are kept and not enforced; there are no symbolic
// links, mappings or locks; free space is what [Fault] says it is.
package crashfs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/afero"
)

// FS is the file system. Names are slash-separated and relative; "." is its
// root. It is safe for concurrent use.
type FS struct {
	mu       sync.Mutex
	root     *node
	last     uint64 // the latest number of a node or a change
	count    int    // operations so far
	log      []Operation
	observer func(Operation)
	sabotage Sabotage
	faults   []*fault
	hits     int
}

var _ afero.Fs = (*FS)(nil)

// Sabotage turns flushes into lies: they succeed and keep nothing. A crash test
// that passes all the same tests nothing.
type Sabotage struct {
	FileSync bool // of files
	DirSync  bool // of directories
}

// Op is a kind of operation, or a set of them.
type Op uint32

// The operations.
const (
	OpOpen     Op = 1 << iota // of a file or directory that is there
	OpCreate                  // of a file that is not there yet
	OpMkdir                   //
	OpStat                    // of a name or an open file
	OpRead                    //
	OpReadDir                 //
	OpWrite                   //
	OpTruncate                //
	OpSync                    // of a file
	OpSyncDir                 // of a directory
	OpClose                   //
	OpLink                    //
	OpRename                  //
	OpRemove                  //
	OpChange                  // of mode, owner or times
	opEnd

	Any       = opEnd - 1
	Mutations = OpCreate | OpMkdir | OpWrite | OpTruncate | OpLink | OpRename | OpRemove // change what programs see
	Flushes   = OpSync | OpSyncDir                                                       // change what a crash leaves
	Growths   = OpCreate | OpMkdir | OpWrite | OpLink | OpRename                         // need space
	Opens     = OpOpen | OpCreate                                                        // need a file handle
)

var opNames = []string{
	"open", "create", "mkdir", "stat", "read", "readdir", "write", "truncate", "fsync", "fsync dir", "close",
	"link", "rename", "remove", "change",
}

// String names the operations of a set.
func (o Op) String() string {
	if o == Any {
		return "any"
	}
	var names []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Operation is one that a program made, whether it succeeded or not.
type Operation struct {
	Number int // from 1
	Op     Op
	Name   string
	To     string // the second name of a link or rename
	Offset int64  // of a read or write
	Size   int    // the bytes asked for
	Err    error
}

// New returns an empty file system.
func New() *FS {
	f := &FS{}
	f.root = f.newNode(fs.ModeDir | 0o700)
	return f
}

// Observe sets what is called after every operation, by the goroutine that made
// it, before it gets its answer; nil is nothing. It may use f.
func (f *FS) Observe(call func(Operation)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observer = call
}

// Log returns the operations so far. A copy of an FS begins with none.
func (f *FS) Log() []Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Sabotage sets which flushes lie from now on.
func (f *FS) Sabotage(s Sabotage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sabotage = s
}

// run makes one operation: body, unless a fault comes in its place.
func (f *FS) run(o Operation, body func() error) error {
	return f.runOr(o, body, func(bool) {})
}

// runOr is run for what leaves something when a fault strikes: failed is then
// called in place of body.
func (f *FS) runOr(o Operation, body func() error, failed func(short bool)) error {
	f.mu.Lock()
	f.count++
	o.Number = f.count
	if hit := f.hit(o.Op); hit != nil {
		o.Err = hit.Err
		if hit.Done {
			_ = body()
		} else {
			failed(hit.Short)
		}
	} else {
		o.Err = body()
	}
	if _, typed := o.Err.(*os.LinkError); o.Err != nil && !typed && o.Op != OpRead {
		o.Err = &fs.PathError{Op: o.Op.String(), Path: o.Name, Err: o.Err}
	}
	f.log = append(f.log, o)
	observer := f.observer
	f.mu.Unlock()
	if observer != nil {
		observer(o)
	}
	return o.Err
}

// Name implements [afero.Fs].
func (f *FS) Name() string { return "crashfs" }

// lookup finds the node of a name.
func (f *FS) lookup(name string) (*node, error) {
	n := f.root
	name = path.Clean(name)
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.names[part]
		if !ok {
			return nil, syscall.ENOENT // also "..", which leads out
		}
		n = next
	}
	return n, nil
}

// parent finds the directory that a name lies in.
func (f *FS) parent(name string) (dir *node, base string, err error) {
	name = path.Clean(name)
	base = path.Base(name)
	if base == "." || base == ".." || base == "/" {
		return nil, "", syscall.EINVAL
	}
	if dir, err = f.lookup(path.Dir(name)); err != nil {
		return nil, "", err
	}
	if !dir.isDir() {
		return nil, "", syscall.ENOTDIR
	}
	return dir, base, nil
}

// Create implements [afero.Fs].
func (f *FS) Create(name string) (afero.File, error) {
	return f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Open implements [afero.Fs]. A directory can be opened, to list or flush it.
func (f *FS) Open(name string) (afero.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile implements [afero.Fs].
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	f.mu.Lock()
	_, err := f.lookup(name)
	f.mu.Unlock()
	op := OpOpen
	if err != nil && flag&os.O_CREATE != 0 {
		op = OpCreate
	}
	var file *handle
	err = f.run(Operation{Op: op, Name: name}, func() error {
		n, err := f.lookup(name)
		switch {
		case err == nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
			return syscall.EEXIST
		case err == syscall.ENOENT && flag&os.O_CREATE != 0:
			dir, base, err := f.parent(name)
			if err != nil {
				return err
			}
			n = f.newNode(perm.Perm())
			dir.set(f.number(), entry{base, n})
		case err != nil:
			return err
		}
		writes := flag&(os.O_WRONLY|os.O_RDWR) != 0
		if writes && n.isDir() {
			return syscall.EISDIR
		}
		if writes && flag&os.O_TRUNC != 0 {
			n.truncate(0)
		}
		file = &handle{fsys: f, node: n, name: name, flag: flag}
		return nil
	})
	if err != nil {
		return nil, err // also when a fault let it be made: nobody has the handle
	}
	return file, nil
}

// Mkdir implements [afero.Fs].
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.run(Operation{Op: OpMkdir, Name: name}, func() error {
		if _, err := f.lookup(name); err == nil {
			return syscall.EEXIST
		}
		dir, base, err := f.parent(name)
		if err != nil {
			return err
		}
		dir.set(f.number(), entry{base, f.newNode(fs.ModeDir | perm.Perm())})
		return nil
	})
}

// MkdirAll implements [afero.Fs].
func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	if info, err := f.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if dir := path.Dir(path.Clean(name)); dir != "." {
		if err := f.MkdirAll(dir, perm); err != nil {
			return err
		}
	}
	return f.Mkdir(name, perm)
}

// Link makes newname a second name of the file oldname. A taken newname is
// [fs.ErrExist].
func (f *FS) Link(oldname, newname string) error {
	return f.run(Operation{Op: OpLink, Name: oldname, To: newname}, func() error {
		fail := func(err error) error { return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: err} }
		n, err := f.lookup(oldname)
		if err != nil {
			return fail(err)
		}
		if _, err := f.lookup(newname); err == nil {
			return fail(syscall.EEXIST)
		}
		dir, base, err := f.parent(newname)
		if err != nil {
			return fail(err)
		}
		if n.isDir() {
			return fail(syscall.EPERM)
		}
		dir.set(f.number(), entry{base, n})
		return nil
	})
}

// Rename implements [afero.Fs]. A directory stays within its parent.
func (f *FS) Rename(oldname, newname string) error {
	return f.run(Operation{Op: OpRename, Name: oldname, To: newname}, func() error {
		fail := func(err error) error { return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err} }
		n, err := f.lookup(oldname)
		if err != nil {
			return fail(err)
		}
		from, oldBase, err := f.parent(oldname)
		if err != nil {
			return fail(err)
		}
		to, newBase, err := f.parent(newname)
		if err != nil {
			return fail(err)
		}
		switch target := to.names[newBase]; {
		case target == n:
			return nil
		case n.isDir() && from != to:
			return fail(syscall.EXDEV)
		case target != nil && target.isDir() && !n.isDir():
			return fail(syscall.EISDIR)
		case target != nil && !target.isDir() && n.isDir():
			return fail(syscall.ENOTDIR)
		case target != nil && len(target.names) > 0:
			return fail(syscall.ENOTEMPTY)
		}
		if from == to {
			from.set(f.number(), entry{oldBase, nil}, entry{newBase, n})
			return nil
		}
		to.set(f.number(), entry{newBase, n})
		from.set(f.number(), entry{oldBase, nil})
		return nil
	})
}

// Remove implements [afero.Fs].
func (f *FS) Remove(name string) error {
	return f.run(Operation{Op: OpRemove, Name: name}, func() error {
		n, err := f.lookup(name)
		if err != nil {
			return err
		}
		if n.isDir() && len(n.names) > 0 {
			return syscall.ENOTEMPTY
		}
		dir, base, err := f.parent(name)
		if err != nil {
			return err
		}
		dir.set(f.number(), entry{base, nil})
		return nil
	})
}

// RemoveAll implements [afero.Fs], one Remove after another.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	n, err := f.lookup(name)
	var below []string
	if err == nil && n.isDir() {
		below = slices.Sorted(maps.Keys(n.names))
	}
	f.mu.Unlock()
	if err == syscall.ENOENT {
		return nil
	}
	for _, base := range below {
		if err := f.RemoveAll(path.Join(name, base)); err != nil {
			return err
		}
	}
	return f.Remove(name)
}

// Stat implements [afero.Fs].
func (f *FS) Stat(name string) (info fs.FileInfo, err error) {
	err = f.run(Operation{Op: OpStat, Name: name}, func() error {
		n, err := f.lookup(name)
		if err == nil {
			info = n.info(path.Base(name))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Chmod implements [afero.Fs]. Nothing enforces the mode.
func (f *FS) Chmod(name string, mode fs.FileMode) error {
	return f.change(name, func(n *node) { n.mode = n.mode.Type() | mode.Perm() })
}

// Chown implements [afero.Fs] and forgets the owner.
func (f *FS) Chown(name string, _, _ int) error { return f.change(name, func(*node) {}) }

// Chtimes implements [afero.Fs]. There is no time of access.
func (f *FS) Chtimes(name string, _, mtime time.Time) error {
	return f.change(name, func(n *node) { n.mtime = mtime })
}

func (f *FS) change(name string, do func(*node)) error {
	return f.run(Operation{Op: OpChange, Name: name}, func() error {
		n, err := f.lookup(name)
		if err == nil {
			do(n)
		}
		return err
	})
}
