package rootfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/afero"

	"leafproof/internal/rootfs"
)

func open(t testing.TB, dir string) *rootfs.FS {
	t.Helper()
	fsys, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return fsys
}

func writing(s string) func(afero.File) error {
	return func(f afero.File) error {
		_, err := f.WriteString(s)
		return err
	}
}

// files are the names of all files below dir.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	fsys := open(t, dir)
	if err := rootfs.Publish(fsys, "a/b/name", false, writing("one")); err != nil {
		t.Fatal(err)
	}
	called := false
	err := rootfs.Publish(fsys, "a/b/name", false, func(afero.File) error { called = true; return nil })
	if !errors.Is(err, fs.ErrExist) || called {
		t.Errorf("Publish to a taken name = %v, callback called: %v", err, called)
	}
	if got := content(t, filepath.Join(dir, "a/b/name")); got != "one" {
		t.Errorf("the file has %q", got)
	}
	if err := rootfs.Publish(fsys, "a/b/name", true, writing("two")); err != nil {
		t.Fatal(err)
	}
	if err := rootfs.Publish(fsys, "top", true, writing("three")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "a/b/name")); got != "two" {
		t.Errorf("after replacing, the file has %q", got)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a/b/name", "top"}) {
		t.Errorf("files = %v", got)
	}
}

// A writer that is overtaken between its check and its link does not replace.
func TestPublishOvertaken(t *testing.T) {
	dir := t.TempDir()
	fsys := open(t, dir)
	err := rootfs.Publish(fsys, "name", false, func(f afero.File) error {
		if err := rootfs.Publish(fsys, "name", false, writing("first")); err != nil {
			t.Error(err)
		}
		return writing("second")(f)
	})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("Publish error = %v, want ErrExist", err)
	}
	if got := content(t, filepath.Join(dir, "name")); got != "first" {
		t.Errorf("the file has %q", got)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"name"}) {
		t.Errorf("files = %v", got)
	}
}

// Of many writers of one name one wins, and its file is whole.
func TestPublishRace(t *testing.T) {
	dir := t.TempDir()
	var won sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), 10_000)
			switch err := rootfs.Publish(open(t, dir), "x/name", false, writing(text)); {
			case err == nil:
				won.Store(text, true)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	winners := 0
	won.Range(func(text, _ any) bool {
		winners++
		if got := content(t, filepath.Join(dir, "x/name")); got != text {
			t.Error("the file is not the winner's")
		}
		return true
	})
	if winners != 1 {
		t.Errorf("%d writers were told they won", winners)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"x/name"}) {
		t.Errorf("files = %v", got)
	}
}

func TestTempDiscard(t *testing.T) {
	dir := t.TempDir()
	fsys := open(t, dir)
	temp, err := rootfs.NewTemp(fsys, "tmp")
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 1 || !strings.HasPrefix(got[0], "tmp/.tmp-") {
		t.Errorf("files = %v, want one unfinished", got)
	}
	for range 2 {
		if err := temp.Discard(); err != nil {
			t.Error(err)
		}
	}
	if err := temp.Commit("name", false); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Discard: error = %v, want ErrClosed", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("files = %v", got)
	}
}

// Nothing outside the directory is reached, by any spelling.
func TestConfined(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	fsys := open(t, dir)
	for _, name := range []string{"../secret", "link/secret", "a/../../secret", filepath.Join(outside, "secret")} {
		if f, err := fsys.Open(name); err == nil {
			f.Close()
			t.Errorf("Open(%q) succeeded", name)
		} else if f != nil {
			t.Errorf("Open(%q) returned a file with its error", name)
		}
		if err := rootfs.Publish(fsys, name+"-new", true, writing("x")); err == nil {
			t.Errorf("Publish(%q) succeeded", name+"-new")
		}
	}
	if got := files(t, outside); !slices.Equal(got, []string{"secret", "store/link"}) {
		t.Errorf("files = %v", got)
	}
}

// faulty fails the n-th operation that can fail, counted from 0.
type faulty struct {
	*rootfs.FS
	left   int
	linked bool // a Link succeeded
}

var errFault = errors.New("injected fault")

func (f *faulty) fault() error {
	if f.left--; f.left == -1 {
		return errFault
	}
	return nil
}

func (f *faulty) Open(name string) (afero.File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

func (f *faulty) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

func (f *faulty) Mkdir(name string, perm fs.FileMode) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.Mkdir(name, perm)
}

func (f *faulty) Stat(name string) (fs.FileInfo, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

func (f *faulty) Link(a, b string) error {
	if err := f.fault(); err != nil {
		return err
	}
	err := f.FS.Link(a, b)
	f.linked = f.linked || err == nil
	return err
}

func (f *faulty) Rename(a, b string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.Rename(a, b)
}

type faultyFile struct {
	afero.File
	fs *faulty
}

func (f *faultyFile) Sync() error {
	if err := f.fs.fault(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) WriteString(s string) (int, error) {
	if err := f.fs.fault(); err != nil {
		return 0, err
	}
	return f.File.WriteString(s)
}

func (f *faultyFile) Close() error {
	err := f.File.Close()
	if e := f.fs.fault(); e != nil {
		return e
	}
	return err
}

// Whichever step fails, Publish reports it, leaves no unfinished file, and
// leaves the name as it was or (after the link or rename) wholly new.
func TestPublishFaults(t *testing.T) {
	for _, replace := range []bool{false, true} {
		steps, linked := 0, 0
		for ; ; steps++ {
			dir := t.TempDir()
			if replace {
				if err := os.MkdirAll(filepath.Join(dir, "a"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "a/name"), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fsys := &faulty{FS: open(t, dir), left: steps}
			err := rootfs.Publish(fsys, "a/name", replace, writing("new"))
			if fsys.left >= 0 {
				if err != nil {
					t.Fatalf("without a fault: %v", err)
				}
				break // every step has failed once
			}
			if !errors.Is(err, errFault) {
				t.Errorf("replace %v, step %d: error = %v, want the fault", replace, steps, err)
			}
			got := files(t, dir)
			switch {
			case !replace && !fsys.linked && len(got) != 0:
				t.Errorf("step %d left %v", steps, got)
			case !replace && !fsys.linked:
			case !slices.Equal(got, []string{"a/name"}):
				t.Errorf("replace %v, step %d left %v", replace, steps, got)
			case !replace:
				if c := content(t, filepath.Join(dir, "a/name")); c != "new" {
					t.Errorf("step %d: the file has %q", steps, c)
				}
				linked++
			default:
				if c := content(t, filepath.Join(dir, "a/name")); c != "old" && c != "new" {
					t.Errorf("replace, step %d: the file has %q", steps, c)
				}
			}
		}
		if steps < 10 {
			t.Errorf("only %d steps were tried", steps)
		}
		if !replace && linked == 0 {
			t.Error("no step after the link was tried")
		}
	}
}

// The writer's last fsync fails, while another process has met the name, flushed
// it and told its caller that the file is there: so it stays there.
func TestPublishFaultAfterAnother(t *testing.T) {
	dir := t.TempDir()
	other := open(t, dir)
	acknowledged := false
	fsys := &hooked{FS: open(t, dir), sync: func() error {
		if _, err := other.Stat("a/name"); err != nil {
			return nil // not linked yet
		}
		err := rootfs.Publish(other, "a/name", false, writing("new"))
		acknowledged = errors.Is(err, fs.ErrExist) && rootfs.SyncDirs(other, "a") == nil
		return errFault
	}}
	if err := rootfs.Publish(fsys, "a/name", false, writing("new")); !errors.Is(err, errFault) || !acknowledged {
		t.Fatalf("Publish error = %v, the other's success: %v", err, acknowledged)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a/name"}) || content(t, filepath.Join(dir, "a/name")) != "new" {
		t.Errorf("an acknowledged file is gone: files = %v", got)
	}
	// Trying again finds it, and flushing the directory now succeeds.
	if err := rootfs.Publish(other, "a/name", false, writing("new")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("trying again: error = %v, want ErrExist", err)
	}
	if err := rootfs.SyncDirs(other, "a"); err != nil {
		t.Error(err)
	}
}

// hooked calls sync in place of each fsync.
type hooked struct {
	*rootfs.FS
	sync func() error
}

func (h *hooked) Open(name string) (afero.File, error) { return h.OpenFile(name, os.O_RDONLY, 0) }

func (h *hooked) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	file, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &hookedFile{file, h}, nil
}

type hookedFile struct {
	afero.File
	h *hooked
}

func (f *hookedFile) Sync() error { return f.h.sync() }

const traceEnv = "LEAFPROOF_ROOTFS_TRACE"

// TestPublishTrace watches the system calls of one Publish and holds them to
// the order in its comment.
func TestPublishTrace(t *testing.T) {
	if dir := os.Getenv(traceEnv); dir != "" {
		fsys, err := rootfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := rootfs.Publish(fsys, "a/b/name", false, writing("payload")); err != nil {
			t.Fatal(err)
		}
		if err := rootfs.Publish(fsys, "a/b/other", true, writing("payload")); err != nil {
			t.Fatal(err)
		}
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs strace, which is for linux")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace in PATH")
	}
	dir := t.TempDir()
	log := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", log,
		"-e", "trace=mkdirat,openat,write,fsync,fdatasync,close,linkat,renameat,renameat2,unlinkat",
		os.Args[0], "-test.run=^TestPublishTrace$")
	cmd.Env = append(os.Environ(), traceEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("ptrace")) {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	got := steps(content(t, log), dir)
	want := []string{
		"mkdirat /a", "fsync /", "mkdirat /a/b", "fsync /a",
		"create /a/b/TEMP", "write /a/b/TEMP", "fsync /a/b/TEMP", "close /a/b/TEMP",
		"linkat /a/b/TEMP name", "unlinkat /a/b/TEMP", "fsync /a/b",
		"create /a/b/TEMP", "write /a/b/TEMP", "fsync /a/b/TEMP", "close /a/b/TEMP",
		"renameat /a/b/TEMP other", "fsync /a/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("system calls:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var (
	tempName = regexp.MustCompile(`\.tmp-[0-9a-f]{32}`)
	fdPath   = regexp.MustCompile(`^(\w+)\(\d+<([^>]*)>`)
	atPath   = regexp.MustCompile(`^(\w+)\(\d+<([^>]*)>, "([^"]*)"`)
	twoPaths = regexp.MustCompile(`^(\w+)\(\d+<([^>]*)>, "([^"]*)", \d+<[^>]*>, "([^"]*)"`)
)

// steps picks from a trace what changes or flushes something below dir.
func steps(trace, dir string) []string {
	var out []string
	for line := range strings.Lines(tempName.ReplaceAllString(trace, "TEMP")) {
		_, call, _ := strings.Cut(line, " ") // the pid
		call = strings.TrimSpace(call)
		if !strings.Contains(call, dir) || strings.Contains(call, ") = -1 ") {
			continue
		}
		short := func(path string) string {
			return "/" + strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		}
		name, _, _ := strings.Cut(call, "(")
		switch name {
		case "fsync", "fdatasync", "write", "close":
			m := fdPath.FindStringSubmatch(call)
			if m == nil || name == "close" && !strings.HasSuffix(m[2], "TEMP") {
				continue // closing a directory says nothing
			}
			out = append(out, name+" "+short(m[2]))
		case "openat":
			if m := atPath.FindStringSubmatch(call); m != nil && strings.Contains(call, "O_CREAT|O_EXCL") {
				out = append(out, "create "+short(m[2]+"/"+m[3]))
			}
		case "mkdirat", "unlinkat":
			if m := atPath.FindStringSubmatch(call); m != nil {
				out = append(out, name+" "+short(m[2]+"/"+m[3]))
			}
		case "linkat", "renameat", "renameat2":
			if m := twoPaths.FindStringSubmatch(call); m != nil {
				out = append(out, strings.TrimSuffix(name, "2")+" "+short(m[2]+"/"+m[3])+" "+m[4])
			}
		}
	}
	return out
}
