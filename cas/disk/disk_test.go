package disk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/cas/castest"
	"leafproof/cas/disk"
	"leafproof/internal/rootfs"
	"leafproof/merkle"
)

func open(t *testing.T, dir string) *disk.Backend {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestBackend(t *testing.T) {
	castest.Run(t, func(t *testing.T) cas.Backend {
		dir := t.TempDir()
		t.Cleanup(func() { noTemps(t, dir) })
		return open(t, dir)
	})
}

// noTemps fails when an unfinished file is left below dir.
func noTemps(t *testing.T, dir string) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".tmp-") {
			t.Errorf("left behind: %s", path)
		}
		return nil
	})
}

func name(data []byte) cas.Name {
	return cas.Name{Tenant: cas.TenantOf("disk"), Kind: cas.KindBlob, ID: merkle.Sum(data)}
}

func put(t *testing.T, b cas.Backend, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name(data), bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func TestOpenMakesTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "objects")
	b := open(t, dir)
	put(t, b, []byte("abc"))
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name([]byte("abc")).String()))); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "objects")} {
		if _, err := disk.Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open(%s) error = %v, want one that names it", dir, err)
		}
	}
}

// Files that are not objects are not listed, whoever made them.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	data := []byte("abc")
	put(t, b, data)
	path := filepath.Join(dir, filepath.FromSlash(name(data).String()))
	fan := filepath.Dir(path)
	for _, foreign := range []string{
		filepath.Join(fan, ".tmp-00112233445566778899aabbccddeeff"),
		filepath.Join(fan, "README"),
		filepath.Join(fan, strings.ToUpper(filepath.Base(path))),
		filepath.Join(fan, strings.Repeat("ff", 32)+"-00000000"), // in the wrong folder
		filepath.Join(filepath.Dir(fan), "a file in place of a folder"),
	} {
		if err := os.WriteFile(foreign, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for got, err := range b.List(t.Context(), name(data).Tenant, cas.KindBlob, nil) {
		if err != nil || got != name(data) {
			t.Errorf("List yields %v, %v", got, err)
		}
		count++
	}
	if count != 1 {
		t.Errorf("List yields %d names, want 1", count)
	}
}

// A symbolic link that leads out of the folder is not followed.
func TestEscape(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	data := []byte("abc")
	path := filepath.Join(dir, filepath.FromSlash(name(data).String()))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, path); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if r, err := b.Get(t.Context(), name(data), 0, -1); err == nil {
		r.Close()
		t.Error("Get followed a link out of the store")
	}
}

// A directory where an object should be is an error, not an object.
func TestDirectoryInPlace(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	n := name([]byte("abc"))
	if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(n.String())), 0o700); err != nil {
		t.Fatal(err)
	}
	if o, err := b.OpenAt(t.Context(), n); err == nil {
		o.Close()
		t.Error("OpenAt opened a directory")
	} else if !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("OpenAt error = %v, want ErrCorrupt", err)
	}
}

// The abilities of afero's own file systems are enough for one process.
func TestOtherFileSystem(t *testing.T) {
	b := disk.New(afero.NewBasePathFs(afero.NewOsFs(), t.TempDir()))
	data := []byte("abc")
	put(t, b, data)
	put(t, b, data)
	r, err := b.Get(t.Context(), name(data), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make([]byte, 2)
	if _, err := r.Read(got); err != nil || string(got) != "bc" {
		t.Errorf("Read = %q, %v", got, err)
	}
}

// full is a file system where writing fails after some bytes, as a full, a
// quota-bound or a read-only one does.
type full struct {
	*rootfs.FS
	err  error
	left int
}

type fullFile struct {
	afero.File
	full *full
}

func (f *full) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fullFile{file, f}, nil
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.full.left -= len(p); f.full.left < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: f.full.err}
	}
	return f.File.Write(p)
}

func (f *fullFile) WriteAt(p []byte, off int64) (int, error) {
	if f.full.left -= len(p); f.full.left < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: f.full.err}
	}
	return f.File.WriteAt(p, off)
}

// A full disk is ErrFull, other refusals name the folder; neither leaves
// anything, and what was there stays readable.
func TestFull(t *testing.T) {
	for title, test := range map[string]struct {
		err  error
		want string
		full bool
	}{
		"no space":  {syscall.ENOSPC, "no space left", true},
		"quota":     {syscall.EDQUOT, "no space left", true},
		"read-only": {syscall.EROFS, "is on a read-only file system", false},
		"denied":    {syscall.EACCES, "no permission", false},
		"broken":    {syscall.EIO, "input/output error", false},
	} {
		t.Run(title, func(t *testing.T) {
			dir := t.TempDir()
			root, err := rootfs.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			put(t, disk.New(root), []byte("abc"))
			for _, room := range []int{0, 100_000} {
				b := disk.New(&full{root, test.err, room})
				s := cas.New(b, cas.Options{})
				for _, size := range []int{1000, 16_384, 1 << 20} {
					_, err := s.Put(t.Context(), cas.TenantOf("full"), bytes.NewReader(make([]byte, size)), cas.Auto)
					if room > size && size < 1<<20 {
						continue
					}
					if errors.Is(err, cas.ErrFull) != test.full || err == nil ||
						!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
						t.Errorf("Put of %d bytes with room for %d: error = %v", size, room, err)
					}
				}
				r, err := b.Get(t.Context(), name([]byte("abc")), 0, -1)
				if err != nil {
					t.Fatal(err)
				}
				r.Close()
			}
			noTemps(t, dir)
		})
	}
}

func TestReadOnly(t *testing.T) {
	b := disk.New(afero.NewReadOnlyFs(afero.NewOsFs()))
	err := b.Put(t.Context(), name(nil), bytes.NewReader(nil), 0)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("Put error = %v", err)
	}
}
