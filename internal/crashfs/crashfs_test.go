package crashfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/spf13/afero"

	"leafproof/internal/crashfs"
	"leafproof/internal/rootfs"
)

// write makes a file of these bytes and flushes nothing.
func write(t testing.TB, fsys afero.Fs, name, text string) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, fsys afero.Fs, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := fsys.Open(name)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tree is every file's content and every directory, as "name: bytes" lines.
func tree(t testing.TB, fsys afero.Fs) string {
	t.Helper()
	var lines []string
	err := afero.Walk(fsys, ".", func(name string, info fs.FileInfo, err error) error {
		if err != nil || name == "." {
			return err
		}
		if info.IsDir() {
			lines = append(lines, name+"/")
			return nil
		}
		text, err := afero.ReadFile(fsys, name)
		lines = append(lines, name+": "+strings.ReplaceAll(string(text), "\x00", "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestCrash tells for small histories which states a crash may leave, all of
// them and no other.
func TestCrash(t *testing.T) {
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		do      func(f *crashfs.FS)
		nothing string
		all     string
		some    []string // beside these two
	}{
		"no flush": {
			do:  func(f *crashfs.FS) { write(t, f, "a", "xy") },
			all: "a: xy", some: []string{"a: ", "a: 00", "a: x"},
		},
		"file flushed, name not": {
			do:  func(f *crashfs.FS) { write(t, f, "a", "xy"); flush(t, f, "a") },
			all: "a: xy",
		},
		"name flushed, file not": {
			do:      func(f *crashfs.FS) { write(t, f, "a", "xy"); flush(t, f, ".") },
			nothing: "a: ", all: "a: xy", some: []string{"a: 00", "a: x"},
		},
		"both flushed": {
			do:      func(f *crashfs.FS) { write(t, f, "a", "xy"); flush(t, f, "a", ".") },
			nothing: "a: xy", all: "a: xy",
		},
		"overwritten": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "xy")
				flush(t, f, "a", ".")
				h, err := f.OpenFile("a", os.O_RDWR, 0)
				must(err)
				_, err = h.WriteAt([]byte("pq"), 0)
				must(err)
			},
			nothing: "a: xy", all: "a: pq",
		},
		"appended": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "x")
				flush(t, f, "a", ".")
				h, err := f.OpenFile("a", os.O_RDWR|os.O_APPEND, 0)
				must(err)
				_, err = h.Write([]byte("y"))
				must(err)
			},
			nothing: "a: x", all: "a: xy", some: []string{"a: x0"},
		},
		"truncated": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "xy")
				flush(t, f, "a", ".")
				h, err := f.OpenFile("a", os.O_RDWR, 0)
				must(err)
				must(h.Truncate(0))
			},
			nothing: "a: xy", all: "a: ", some: []string{"a: 0", "a: 00"},
		},
		"directory, its parent not flushed": {
			do: func(f *crashfs.FS) {
				must(f.Mkdir("d", 0o700))
				write(t, f, "d/a", "x")
				flush(t, f, "d/a", "d")
			},
			all: "d/\nd/a: x",
		},
		"directory, itself not flushed": {
			do: func(f *crashfs.FS) {
				must(f.Mkdir("d", 0o700))
				write(t, f, "d/a", "x")
				flush(t, f, "d/a", ".")
			},
			nothing: "d/", all: "d/\nd/a: x",
		},
		"link": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "x")
				flush(t, f, "a", ".")
				must(f.Link("a", "b"))
				must(f.Remove("a"))
			},
			nothing: "a: x", all: "b: x", some: []string{"a: x\nb: x", ""},
		},
		"rename in one directory": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "x")
				write(t, f, "b", "y")
				flush(t, f, "a", "b", ".")
				must(f.Rename("a", "b"))
			},
			nothing: "a: x\nb: y", all: "b: x",
		},
		"rename between two": {
			do: func(f *crashfs.FS) {
				must(f.Mkdir("d", 0o700))
				write(t, f, "a", "x")
				flush(t, f, "a", ".")
				must(f.Rename("a", "d/a"))
			},
			nothing: "a: x\nd/", all: "d/\nd/a: x", some: []string{"a: x\nd/\nd/a: x", "d/"},
		},
		"removed": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "x")
				flush(t, f, "a", ".")
				must(f.Remove("a"))
			},
			nothing: "a: x", all: "",
		},
		"written before the link, flushed by another name": {
			do: func(f *crashfs.FS) {
				write(t, f, "a", "x")
				must(f.Link("a", "b"))
				flush(t, f, "b", ".")
			},
			nothing: "a: x\nb: x", all: "a: x\nb: x",
		},
		"a flush that failed": {
			do: func(f *crashfs.FS) {
				h, err := f.Create("a")
				must(err)
				_, err = h.Write([]byte("xy"))
				must(err)
				f.Inject(crashfs.Fault{Op: crashfs.OpSync})
				if err := h.Sync(); !errors.Is(err, syscall.EIO) {
					t.Errorf("the flush that fails gives %v", err)
				}
				must(h.Sync()) // and this one lies
				flush(t, f, ".")
				if text, _ := afero.ReadFile(f, "a"); string(text) != "xy" {
					t.Errorf("after the flush failed, programs see %q", text)
				}
			},
			nothing: "a: 00", all: "a: 00",
		},
		"a flush that failed, and the bytes written anew": {
			do: func(f *crashfs.FS) {
				h, err := f.Create("a")
				must(err)
				_, err = h.Write([]byte("xy"))
				must(err)
				f.Inject(crashfs.Fault{Op: crashfs.OpSync})
				_ = h.Sync()
				_, err = h.WriteAt([]byte("xy"), 0)
				must(err)
				must(h.Sync())
				flush(t, f, ".")
			},
			nothing: "a: xy", all: "a: xy",
		},
		"sabotaged flush of files": {
			do: func(f *crashfs.FS) {
				f.Sabotage(crashfs.Sabotage{FileSync: true})
				write(t, f, "a", "xy")
				flush(t, f, "a", ".")
			},
			nothing: "a: ", all: "a: xy", some: []string{"a: 00", "a: x"},
		},
		"sabotaged flush of directories": {
			do: func(f *crashfs.FS) {
				f.Sabotage(crashfs.Sabotage{DirSync: true})
				write(t, f, "a", "xy")
				flush(t, f, "a", ".")
			},
			nothing: "", all: "a: xy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := crashfs.New()
			test.do(f)
			before := tree(t, f)
			fork := f.Fork()
			if got := tree(t, fork); got != before {
				t.Errorf("a fork has %q, not %q", got, before)
			}
			for what, f := range map[string]*crashfs.FS{"crash": f, "crash of a fork": fork} {
				seen := map[string]bool{}
				for seed := range uint64(300) {
					left := f.Crash(crashfs.Some, seed)
					state := tree(t, left)
					seen[state] = true
					if again := tree(t, f.Crash(crashfs.Some, seed)); again != state {
						t.Fatalf("%s: one seed leaves %q and %q", what, state, again)
					}
					if after := tree(t, left.Crash(crashfs.Nothing, 0)); after != state {
						t.Fatalf("%s: it left %q, and the next crash took %q", what, state, after)
					}
				}
				want := append([]string{test.nothing, test.all}, test.some...)
				for state := range seen {
					if !slices.Contains(want, state) {
						t.Errorf("%s left %q", what, state)
					}
				}
				for _, state := range want {
					if !seen[state] {
						t.Errorf("%s never left %q", what, state)
					}
				}
				if got := tree(t, f.Crash(crashfs.Nothing, 0)); got != test.nothing {
					t.Errorf("%s left %q of nothing, want %q", what, got, test.nothing)
				}
				if got := tree(t, f.Crash(crashfs.Everything, 0)); got != test.all {
					t.Errorf("%s left %q of everything, want %q", what, got, test.all)
				}
			}
			if after := tree(t, f); after != before {
				t.Errorf("the copies changed the original from %q to %q", before, after)
			}
		})
	}
}

// TestPages: pages of a long file are lost one by one, and a copy shares none
// that is written later.
func TestPages(t *testing.T) {
	f := crashfs.New()
	h, err := f.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Repeat([]byte{1}, 10_000)
	if _, err := h.Write(old); err != nil {
		t.Fatal(err)
	}
	flush(t, f, "a", ".")
	if _, err := h.WriteAt(bytes.Repeat([]byte{2}, 20_000), 0); err != nil {
		t.Fatal(err)
	}
	whole := f.Crash(crashfs.Everything, 0)
	fork := f.Fork()
	shapes := map[string]bool{}
	for seed := range uint64(200) {
		text, err := afero.ReadFile(f.Crash(crashfs.Some, seed), "a")
		if err != nil || len(text) < len(old) || len(text) > 20_000 {
			t.Fatalf("%d bytes are left, %v", len(text), err)
		}
		shape := ""
		for i := 0; i < len(text); i += 4096 {
			part := text[i:min(i+4096, len(text))]
			if part[0] != part[len(part)-1] && i != 8192 {
				t.Fatalf("the page at %d is torn", i)
			}
			shape += string('0' + part[0])
		}
		shapes[shape] = true
	}
	for _, want := range []string{"111", "22222", "22100", "11100", "222"} {
		if !shapes[want] {
			t.Errorf("no crash left the pages %s", want)
		}
	}
	if len(shapes) < 12 {
		t.Errorf("200 crashes left only %d shapes", len(shapes))
	}
	if _, err := h.WriteAt(bytes.Repeat([]byte{3}, 20_000), 0); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]*crashfs.FS{"crash": whole, "fork": fork} {
		if text, _ := afero.ReadFile(other, "a"); !bytes.Equal(text, bytes.Repeat([]byte{2}, 20_000)) {
			t.Errorf("a write shows in a %s taken before", name)
		}
	}
}

// TestTwin makes random operations here and in a folder of the machine.
func TestTwin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		real, err := rootfs.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer real.Close()
		ours := crashfs.New()
		names := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"}
		for step := range 300 {
			a, b := names[rng.IntN(len(names))], names[rng.IntN(len(names))]
			off, size, kind := rng.Int64N(9000), rng.IntN(9000), rng.IntN(9)
			flags := []int{
				os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL,
				os.O_WRONLY | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_APPEND,
			}
			flag := flags[rng.IntN(len(flags))]
			text := bytes.Repeat([]byte{byte('a' + step%26)}, size)
			do := func(fsys interface {
				afero.Fs
				Link(a, b string) error
			},
			) error {
				switch kind {
				case 0:
					return fsys.Mkdir(a, 0o700)
				case 1:
					return fsys.Remove(a)
				case 2:
					if info, err := fsys.Stat(a); err == nil && info.IsDir() {
						return nil // ours keeps a directory in its parent
					}
					return fsys.Rename(a, b)
				case 3:
					return fsys.Link(a, b)
				}
				h, err := fsys.OpenFile(a, flag, 0o600)
				if err != nil {
					return err
				}
				defer h.Close()
				switch kind {
				case 4:
					return h.Truncate(off)
				case 5:
					if flag&os.O_APPEND == 0 {
						_, err = h.WriteAt(text, off)
					}
					return err
				}
				_, err1 := h.Write(text)
				_, err2 := h.Write(text[:size/2])
				return errors.Join(err1, err2)
			}
			errReal, errOurs := do(real), do(ours)
			two := kind == 2 || kind == 3 // which of two names is to blame differs
			if (errReal == nil) != (errOurs == nil) ||
				!two && errors.Is(errReal, fs.ErrExist) != errors.Is(errOurs, fs.ErrExist) ||
				!two && errors.Is(errReal, fs.ErrNotExist) != errors.Is(errOurs, fs.ErrNotExist) {
				t.Fatalf("seed %d, step %d, kind %d of %s, %s: %v here, %v there", seed, step, kind, a, b, errOurs, errReal)
			}
		}
		if a, b := tree(t, ours), tree(t, real); a != b {
			t.Fatalf("seed %d: the trees differ:\n%.300s\n%.300s", seed, a, b)
		}
		if seed > 0 {
			continue // the rest takes half a second
		}
		var all []string
		for line := range strings.Lines(tree(t, ours)) {
			name, _, _ := strings.Cut(line, ":")
			all = append(all, strings.TrimRight(name, "/\n"))
		}
		if err := fstest.TestFS(afero.NewIOFS(ours), all...); err != nil {
			t.Error(err)
		}
	}
}

// TestParallelReaders: ReadAt and WriteAt have no place of their own.
func TestParallelReaders(t *testing.T) {
	f := crashfs.New()
	h, err := f.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 100_000)
	for i := range want {
		want[i] = byte(i / 7)
	}
	if _, err := h.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		rng := rand.New(rand.NewPCG(uint64(worker), 1))
		wg.Go(func() {
			for range 200 {
				off := rng.IntN(len(want))
				p := make([]byte, rng.IntN(len(want)-off)+1)
				if n, err := h.ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, want[off:off+n]) {
					t.Errorf("ReadAt(%d at %d) = %d, %v", len(p), off, n, err)
					return
				}
				if _, err := h.WriteAt(p, int64(off)); err != nil {
					t.Error(err)
				}
				f.Crash(crashfs.Some, 1)
			}
		})
	}
	wg.Wait()
	if at, err := h.Seek(0, io.SeekCurrent); at != 0 || err != nil {
		t.Errorf("after ReadAt and WriteAt the handle stands at %d, %v", at, err)
	}
	if n, err := h.ReadAt(make([]byte, 10), int64(len(want))-3); n != 3 || err != io.EOF {
		t.Errorf("ReadAt over the end = %d, %v, want 3, EOF", n, err)
	}
}

func TestFaults(t *testing.T) {
	open := func(f *crashfs.FS) error {
		h, err := f.Open("a")
		if err == nil {
			h.Close()
		}
		return err
	}
	setup := func() *crashfs.FS {
		f := crashfs.New()
		write(t, f, "a", "0123456789")
		return f
	}
	t.Run("the Nth, once", func(t *testing.T) {
		f := setup()
		f.Inject(crashfs.Fault{Op: crashfs.OpOpen, N: 2, Err: syscall.EMFILE})
		for i, want := range []error{nil, syscall.EMFILE, nil} {
			if err := open(f); !errors.Is(err, want) {
				t.Errorf("open %d = %v, want %v", i, err, want)
			}
		}
		if f.Hits() != 1 {
			t.Errorf("Hits = %d", f.Hits())
		}
	})
	t.Run("the Nth of any, for good, then lifted", func(t *testing.T) {
		f := setup()
		f.Inject(crashfs.Fault{N: 3, Forever: true})
		for i, want := range []error{nil, syscall.EIO, syscall.EIO} { // open and close are two
			if err := open(f); !errors.Is(err, want) {
				t.Errorf("open %d = %v, want %v", i, err, want)
			}
		}
		f.Inject()
		if err := open(f); err != nil || f.Hits() != 0 {
			t.Errorf("after the fault is lifted: %v", err)
		}
	})
	t.Run("no space", func(t *testing.T) {
		f := setup()
		f.Inject(crashfs.Fault{Op: crashfs.Growths, Forever: true, Err: syscall.ENOSPC})
		if _, err := f.Create("b"); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Create = %v", err)
		}
		if text, err := afero.ReadFile(f, "a"); string(text) != "0123456789" || err != nil {
			t.Errorf("reading = %q, %v", text, err)
		}
		if err := f.Remove("a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("short", func(t *testing.T) {
		f := setup()
		h, err := f.OpenFile("a", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Inject(crashfs.Fault{Op: crashfs.OpRead, Short: true, Forever: true})
		p := make([]byte, 10)
		if n, err := h.ReadAt(p, 0); n != 5 || err != io.ErrUnexpectedEOF {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		if text, err := io.ReadAll(io.LimitReader(h, 10)); string(text) != "0123456789" || err != nil {
			t.Errorf("ReadAll = %q, %v", text, err)
		}
		f.Inject(crashfs.Fault{Op: crashfs.OpWrite, Short: true, Err: syscall.ENOSPC})
		if n, err := h.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("WriteAt = %d, %v", n, err)
		}
		if text, _ := afero.ReadFile(f, "a"); string(text) != "ab23456789" {
			t.Errorf("the file has %q", text)
		}
	})
	t.Run("done, and failed", func(t *testing.T) {
		f := setup()
		f.Inject(crashfs.Fault{Op: crashfs.OpLink, Done: true})
		if err := f.Link("a", "b"); !errors.Is(err, syscall.EIO) {
			t.Errorf("Link = %v", err)
		}
		if got := tree(t, f); got != "a: 0123456789\nb: 0123456789" {
			t.Errorf("there is %q", got)
		}
	})
	t.Run("close", func(t *testing.T) {
		f := setup()
		h, err := f.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		f.Inject(crashfs.Fault{Op: crashfs.OpClose})
		if err := h.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("Close = %v", err)
		}
		if err := h.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a second Close = %v", err)
		}
	})
}

// TestPublish: the durable-write function of this module, cut at every
// operation, leaves the old or the new file; what it has told stands.
func TestPublish(t *testing.T) {
	text := strings.Repeat("leaf", 3000)
	publish := func(f *crashfs.FS, replace bool, text string) error {
		return rootfs.Publish(f, "d/e/name", replace, func(h afero.File) error {
			_, err := h.WriteString(text)
			return err
		})
	}
	for _, test := range []struct {
		name     string
		replace  bool
		sabotage crashfs.Sabotage
		bad      bool
	}{
		{"link", false, crashfs.Sabotage{}, false},
		{"replace", true, crashfs.Sabotage{}, false},
		{"no flush of files", false, crashfs.Sabotage{FileSync: true}, true},
		{"no flush of directories", false, crashfs.Sabotage{DirSync: true}, true},
		{"replace, no flush of files", true, crashfs.Sabotage{FileSync: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := crashfs.New()
			allowed := []string{""}
			if test.replace {
				if err := publish(f, false, "old"); err != nil {
					t.Fatal(err)
				}
				allowed = []string{"old"}
			}
			f.Sabotage(test.sabotage)
			allowed = append(allowed, text)
			bad, states := "", 0
			check := func(o string) {
				for seed := range uint64(60) {
					left := f.Crash(crashfs.Kept(seed%3), seed)
					got, err := afero.ReadFile(left, "d/e/name")
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Fatal(err)
					}
					states++
					if !slices.Contains(allowed, string(got)) {
						bad = o
					}
				}
			}
			f.Observe(func(o crashfs.Operation) { check(o.Op.String() + " " + path.Base(o.Name)) })
			if err := publish(f, test.replace, text); err != nil {
				t.Fatal(err)
			}
			allowed = []string{text}
			check("the end")
			if (bad != "") != test.bad {
				t.Errorf("of %d states one is bad: %q; want one: %t", states, bad, test.bad)
			}
		})
	}
}

func TestLog(t *testing.T) {
	f := crashfs.New()
	seen := 0
	f.Observe(func(o crashfs.Operation) {
		if seen++; o.Number != seen {
			t.Errorf("operation %d is numbered %d", seen, o.Number)
		}
	})
	write(t, f, "a", "xyz")
	if _, err := f.Stat("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := f.Link("a", "b"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range f.Log() {
		got = append(got, strings.TrimSpace(o.Op.String()+" "+o.Name+" "+o.To))
	}
	if want := []string{"create a", "write a", "close a", "stat b", "link a b"}; !slices.Equal(got, want) || seen != 5 {
		t.Errorf("the log is %q (%d seen), want %q", got, seen, want)
	}
}
