package cas_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// damages are the ways in which a file goes bad, applied to its bytes.
var damages = map[string]func(p []byte) []byte{
	"first byte flipped":  func(p []byte) []byte { p[0] ^= 1; return p },
	"middle byte flipped": func(p []byte) []byte { p[len(p)/2] ^= 0x80; return p },
	"last byte flipped":   func(p []byte) []byte { p[len(p)-1] ^= 1; return p },
	"one byte short":      func(p []byte) []byte { return p[:len(p)-1] },
	"half":                func(p []byte) []byte { return p[:len(p)/2] },
	"empty":               func(p []byte) []byte { return nil },
	"zero-filled":         func(p []byte) []byte { clear(p); return p },
	"one byte longer":     func(p []byte) []byte { return append(p, 0) },
	"foreign":             func(p []byte) []byte { return []byte(strings.Repeat("not what was here\n", 4000)) },
}

// rewrite changes a file where it stands, so that open handles see it.
func rewrite(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(bytes.Clone(old)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantCorrupt holds an error to what a caller is promised about damage.
func wantCorrupt(t *testing.T, err error, root merkle.Root) {
	t.Helper()
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("error = %v, want ErrCorrupt", err)
		return
	}
	if e, ok := errors.AsType[*cas.Error](err); !ok || e.Root != root {
		t.Errorf("error %v does not name the root", err)
	}
}

// A whole blob with a damaged object is an error, never bytes; putting it again
// heals it, for this Store and for others.
func TestDamageWhole(t *testing.T) {
	data := random(1, 19<<14+100) // more than the cache takes at once
	for _, kind := range []string{"blob", "obao"} {
		for name, damage := range damages {
			t.Run(kind+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				s := onDisk(t, dir)
				root := put(t, s, data, cas.Auto).Root
				rewrite(t, objects(t, dir)[kind][0], damage)
				s = onDisk(t, dir)
				wantCorrupt(t, read(t, s, data), root)

				put(t, s, data, cas.Auto)
				if err := read(t, s, data); err != nil {
					t.Errorf("after a second Put: %v", err)
				}
				if err := read(t, onDisk(t, dir), data); err != nil {
					t.Errorf("after a second Put, another Store: %v", err)
				}
				got := objects(t, dir)
				if len(got[kind]) != 2 || !strings.HasSuffix(got[kind][1], "-00000001") || len(got["blob"])+len(got["obao"]) != 3 {
					t.Errorf("the heal left %v", got)
				}
				put(t, s, data, cas.Auto)
				if again := objects(t, dir); count(again) != count(got) {
					t.Errorf("a third Put wrote: %s, then %s", count(got), count(again))
				}
			})
		}
	}
}

// The object changes after Open: reads fail and name the range.
func TestDamageAfterOpen(t *testing.T) {
	data := random(2, 40<<14+100)
	for _, kind := range []string{"blob", "obao"} {
		for name, damage := range damages {
			if name == "one byte longer" {
				continue // what was there at Open still is
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				s := onDisk(t, dir)
				root := put(t, s, data, cas.Auto).Root
				r := open(t, s, data)
				rewrite(t, objects(t, dir)[kind][0], damage)
				buf := make([]byte, len(data))
				n, err := r.ReadAt(buf, 0)
				if kind == "obao" {
					// All the data are there: they prove themselves.
					if err != nil || !bytes.Equal(buf, data) {
						t.Errorf("ReadAt of everything: %v", err)
					}
				} else if wantCorrupt(t, err, root); n != 0 || !bytes.Equal(buf, make([]byte, len(buf))) {
					t.Errorf("ReadAt of one window returned %d bytes, or left some", n)
				}
				// Single leaves: right bytes or ErrCorrupt around them.
				bad := 0
				for off := 0; off < len(data); off += 5000 {
					p := buf[:min(1000, len(data)-off)]
					_, err := r.ReadAt(p, int64(off))
					if err == nil {
						if !bytes.Equal(p, data[off:off+len(p)]) {
							t.Fatalf("ReadAt(%d) returned other bytes", off)
						}
						continue
					}
					bad++
					wantCorrupt(t, err, root)
					e, _ := errors.AsType[*cas.Error](err)
					if e.Start > int64(off+len(p)) || e.End < int64(off) || e.End > r.Size() {
						t.Errorf("ReadAt(%d) error names bytes %d:%d", off, e.Start, e.End)
					}
				}
				if bad == 0 {
					t.Error("no short read met the damage")
				}
			})
		}
	}
}

// A file that was swapped for another whole blob of the same size.
func TestSwapped(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	a, b := random(3, 100_000), random(4, 100_000)
	put(t, s, a, cas.Auto)
	pathA := objects(t, dir)["blob"][0]
	put(t, s, b, cas.Auto)
	for _, path := range objects(t, dir)["blob"] {
		if path != pathA {
			if err := os.Rename(path, pathA); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantCorrupt(t, read(t, s, a), merkle.Sum(a))
	if err := read(t, s, b); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the blob whose object went away: error = %v, want ErrNotFound", err)
	}
	put(t, s, a, cas.Auto)
	put(t, s, b, cas.Auto)
	for _, data := range [][]byte{a, b} {
		if err := read(t, s, data); err != nil {
			t.Errorf("after heals: %v", err)
		}
	}
}

func TestMissingOutboard(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	data := random(5, 100_000)
	put(t, s, data, cas.Auto)
	if err := os.Remove(objects(t, dir)["obao"][0]); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, read(t, s, data), merkle.Sum(data))
	put(t, s, data, cas.Auto)
	if err := read(t, s, data); err != nil {
		t.Error(err)
	}
}

// A stated size that is not the blob's is an error, also where it would only
// change the last byte.
func TestWrongSize(t *testing.T) {
	s := cas.New(cas.Backend(onDiskBackend(t)), cas.Options{})
	for _, size := range []int{0, 100, 16384, 16385, 100_000} {
		data := random(6, size)
		put(t, s, data, cas.Auto)
		for _, stated := range []int64{-1, 0, 1, 99, 101, 16384, 16385, 16386, 99_999, 1 << 40} {
			if stated == int64(size) {
				continue
			}
			r, err := s.Open(t.Context(), tenant, merkle.Sum(data), stated)
			if err == nil {
				r.Close()
				t.Errorf("Open of %d bytes as %d succeeded", size, stated)
			} else if stated >= 0 && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNotFound) {
				t.Errorf("Open of %d bytes as %d: %v", size, stated, err)
			}
		}
	}
}

// A damaged pack never stops the store: other packs are read, the damage is
// reported, and the same blobs can be put again.
func TestDamagePack(t *testing.T) {
	small := [][]byte{random(1, 500), random(2, 16384), {}}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := onDisk(t, dir)
			sound := random(3, 700)
			put(t, s, sound, cas.Auto)
			before := objects(t, dir)["pack"][0]
			putAll(t, s, small)
			var path string
			for _, p := range objects(t, dir)["pack"] {
				if p != before {
					path = p
				}
			}
			rewrite(t, path, damage)

			s = onDisk(t, dir)
			if err := read(t, s, sound); err != nil {
				t.Fatalf("a blob of another pack: %v", err)
			}
			bad := 0
			for _, data := range small {
				if err := read(t, s, data); err != nil {
					bad++
					wantCorrupt(t, err, merkle.Sum(data))
					if !strings.Contains(err.Error(), filepath.Base(path)) {
						t.Errorf("error %v does not name the pack", err)
					}
				}
			}
			if damaged := s.Damaged(); name != "middle byte flipped" {
				if len(damaged) != 1 || !strings.HasSuffix(path, filepath.FromSlash(damaged[0].Name.String())) || bad != len(small) {
					t.Errorf("Damaged = %v, %d blobs bad; want the one pack and all", damaged, bad)
				}
			} else if bad != 1 {
				t.Errorf("%d blobs are bad after one flipped byte in a blob, want 1", bad)
			}

			putAll(t, s, small)
			for _, s := range []*cas.Store{s, onDisk(t, dir)} {
				for _, data := range append(small, sound) {
					if err := read(t, s, data); err != nil {
						t.Errorf("after a second Put: %v", err)
					}
				}
			}
		})
	}
}

func putAll(t *testing.T, s *cas.Store, blobs [][]byte) {
	t.Helper()
	b := s.Begin(t.Context(), tenant)
	for _, data := range blobs {
		if _, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A pack is flipped or cut at every byte: each blob reads right or not at all.
func TestDamagePackEverywhere(t *testing.T) {
	dir := t.TempDir()
	small := [][]byte{random(1, 40), random(2, 30), {}}
	putAll(t, onDisk(t, dir), small)
	path := objects(t, dir)["pack"][0]
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for at := range good {
		for _, change := range []func([]byte) []byte{
			func(p []byte) []byte { p[at] ^= byte(1 + rng.IntN(255)); return p },
			func(p []byte) []byte { return p[:at] },
		} {
			if err := os.WriteFile(path, change(bytes.Clone(good)), 0o600); err != nil {
				t.Fatal(err)
			}
			s := onDisk(t, dir)
			for _, data := range small {
				if err := read(t, s, data); err != nil {
					wantCorrupt(t, err, merkle.Sum(data))
				}
			}
		}
	}
}

// Packs that vanish, as by another process's sweep, do not confuse an index
// that knew them.
func TestPackGone(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	data := random(1, 500)
	put(t, s, data, cas.Auto)
	if err := os.Remove(objects(t, dir)["pack"][0]); err != nil {
		t.Fatal(err)
	}
	if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("Open error = %v, want ErrNotFound", err)
	}
	put(t, s, data, cas.Auto)
	if err := read(t, s, data); err != nil {
		t.Error(err)
	}
	if len(s.Damaged()) != 0 {
		t.Errorf("Damaged = %v", s.Damaged())
	}
}

// A lying backend: reads give other bytes from one call to the next.
type liar struct {
	cas.Backend
	cas.Opener
	rng *rand.Rand
}

type lyingObject struct {
	cas.Object
	rng *rand.Rand
}

func (o lyingObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if n > 0 && o.rng.IntN(3) == 0 {
		p[o.rng.IntN(n)] ^= 1 << o.rng.IntN(8)
	}
	return n, err
}

func (l liar) OpenAt(ctx ctx, name cas.Name) (cas.Object, error) {
	o, err := l.Opener.OpenAt(ctx, name)
	if err != nil {
		return nil, err
	}
	return lyingObject{o, l.rng}, nil
}

func TestLyingBackend(t *testing.T) {
	b := onDiskBackend(t)
	data := random(1, 1<<20)
	put(t, cas.New(b, cas.Options{}), data, cas.Auto)
	rng := rand.New(rand.NewPCG(3, 3))
	s := cas.New(liar{b, b, rng}, cas.Options{CacheBytes: 200 << 10})
	r := open(t, s, data)
	good, bad := 0, 0
	buf := make([]byte, 200<<10)
	for range 2000 {
		p := buf[:rng.IntN(len(buf))>>rng.IntN(8)]
		off := rng.IntN(len(data) - len(p))
		n, err := r.ReadAt(p, int64(off))
		if !bytes.Equal(p[:n], data[off:off+n]) {
			t.Fatal("bytes that do not match the root came through")
		}
		if err == nil {
			good++
		} else if bad++; !errors.Is(err, cas.ErrCorrupt) || err == io.EOF {
			t.Fatalf("error = %v, want ErrCorrupt", err)
		}
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d reads were good and %d bad: the liar did not test anything", good, bad)
	}
}
