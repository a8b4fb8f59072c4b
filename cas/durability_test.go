package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// A blob of each durability is read back, also from another Store, and counts as
// there when it comes again.
func TestDurability(t *testing.T) {
	for _, d := range []cas.Durability{"", cas.Durable, cas.Grouped, cas.Cached} {
		for _, size := range []int{0, 1, 16384, 16385, 100_000, 3 << 20} {
			t.Run(fmt.Sprintf("%s/size=%d", d, size), func(t *testing.T) {
				dir := t.TempDir()
				s := onDisk(t, dir)
				data := random(uint64(size), size)
				for range 2 {
					b := s.Begin(t.Context(), tenant)
					defer b.Discard()
					for range 2 {
						info, err := b.PutAs(t.Context(), bytes.NewReader(data), cas.Auto, d)
						if err != nil || info.Root != merkle.Sum(data) || info.Size != int64(size) {
							t.Fatalf("%+v, %v", info, err)
						}
					}
					r, err := b.Open(t.Context(), merkle.Sum(data), int64(size))
					if err != nil {
						t.Fatal(err)
					}
					r.Close()
					if err := b.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range []*cas.Store{s, onDisk(t, dir)} {
					if err := read(t, s, data); err != nil {
						t.Error(err)
					}
				}
				noneUnfinished(t, dir)
				files := 0
				for _, names := range objects(t, dir) {
					files += len(names)
				}
				if files > 2 {
					t.Errorf("%d objects: %v", files, objects(t, dir))
				}
			})
		}
	}
	if _, err := onDisk(t, t.TempDir()).PutAs(t.Context(), tenant, bytes.NewReader(nil), "", "eternal"); err == nil {
		t.Error("an unknown durability was taken")
	}
}

// A batch that is discarded has stored nothing of what was grouped.
func TestGroupedDiscarded(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	b := s.Begin(t.Context(), tenant)
	data := random(1, 50_000)
	if _, err := b.PutAs(t.Context(), bytes.NewReader(data), cas.Whole, cas.Grouped); err != nil {
		t.Fatal(err)
	}
	if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("before the commit: %v", err)
	}
	if err := b.Discard(); err != nil {
		t.Fatal(err)
	}
	noneUnfinished(t, dir)
	if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("after the discard: %v", err)
	}
}

// However a cached blob is damaged, it is a miss; putting it again heals it, and
// as a durable one it is stored apart.
func TestCachedTorn(t *testing.T) {
	for _, size := range []int{1000, 100_000} {
		for name, tear := range map[string]func(p []byte) []byte{
			"empty": func([]byte) []byte { return nil },
			"half":  func(p []byte) []byte { return p[:len(p)/2] },
			"zeros": func(p []byte) []byte { return make([]byte, len(p)) },
			"a bit": func(p []byte) []byte { p[len(p)/3] ^= 4; return p },
			"last":  func(p []byte) []byte { p[len(p)-1] ^= 4; return p },
			"long":  func(p []byte) []byte { return append(p, 0) },
		} {
			t.Run(fmt.Sprintf("%s/size=%d", name, size), func(t *testing.T) {
				dir := t.TempDir()
				s := onDisk(t, dir)
				data := random(1, size)
				put := func(d cas.Durability) {
					t.Helper()
					if _, err := s.PutAs(t.Context(), tenant, bytes.NewReader(data), cas.Auto, d); err != nil {
						t.Fatal(err)
					}
				}
				put(cas.Cached)
				paths, _ := filepath.Glob(filepath.Join(dir, "*", "cach", "*", "*"))
				if len(paths) != 1 {
					t.Fatalf("%q", paths)
				}
				text, err := os.ReadFile(paths[0])
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(paths[0], tear(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
					t.Errorf("a torn one: %v", err)
				}
				for f, err := range s.Check(t.Context(), cas.CheckOptions{Deep: true}) {
					t.Errorf("check: %+v, %v", f, err)
				}
				put(cas.Cached)
				if err := read(t, onDisk(t, dir), data); err != nil {
					t.Errorf("put again: %v", err)
				}
				put(cas.Durable)
				if err := os.RemoveAll(filepath.Join(dir, tenant.String(), "cach")); err != nil {
					t.Fatal(err)
				}
				if err := read(t, onDisk(t, dir), data); err != nil {
					t.Errorf("the durable one: %v", err)
				}
			})
		}
	}
}

// A sweep takes cached blobs that nothing needs, and leaves the others.
func TestCachedSwept(t *testing.T) {
	s := newSwept(t, onDiskBackend(t))
	needed, garbage := random(1, 50_000), random(2, 50_000)
	for _, data := range [][]byte{needed, garbage} {
		b := s.Begin(t.Context(), tenant)
		if _, err := b.PutAs(t.Context(), bytes.NewReader(data), cas.Auto, cas.Cached); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(data, needed) {
			if err := s.roots.publish(s.book, b.Lease(), merkle.Sum(data)); err != nil {
				t.Fatal(err)
			}
		}
		b.Discard()
	}
	s.gc(t)
	if err := read(t, s.another(t), needed); err != nil {
		t.Error(err)
	}
	if err := read(t, s.another(t), garbage); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the one that nothing needs: %v", err)
	}
}

// A cached put flushes nothing, and a batch of many whole blobs that are grouped
// flushes each file and each folder once.
func TestDurabilityFlushes(t *testing.T) {
	needFlushes(t)
	const blobs = 40
	count := func(d cas.Durability) (files, dirs int) {
		fsys, before := crashfs.New(), 0
		s := cas.New(disk.New(fsys), cas.Options{})
		for round := range 2 { // in the second one all folders are there
			if round == 1 {
				before = len(fsys.Log())
			}
			b := s.Begin(t.Context(), tenant)
			for i := range blobs {
				if _, err := b.PutAs(t.Context(), bytes.NewReader(random(uint64(round*1000+i), 20_000)), cas.Auto, d); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.Discard()
		}
		for _, o := range fsys.Log()[before:] {
			switch o.Op {
			case crashfs.OpSync:
				files++
			case crashfs.OpSyncDir:
				// Folders above, and those of unfinished files, are flushed once by
				// a process on real files.
				if strings.Count(o.Name, "/") == 2 {
					dirs++
				}
			}
		}
		return files, dirs
	}
	durable, durableDirs := count(cas.Durable)
	grouped, groupedDirs := count(cas.Grouped)
	if files, dirs := count(cas.Cached); files+dirs != 0 {
		t.Errorf("cached blobs: %d flushes of files, %d of folders", files, dirs)
	}
	if durable != 2*blobs || grouped != 2*blobs || groupedDirs >= durableDirs {
		t.Errorf("durable: %d and %d flushes, grouped: %d and %d", durable, durableDirs, grouped, groupedDirs)
	}
	t.Logf("durable: %d and %d flushes, grouped: %d and %d", durable, durableDirs, grouped, groupedDirs)
}
