package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

// tiny makes an index file of every ten keys, and keeps one page in memory.
var tiny = cas.Options{IndexBytes: 6400, CacheBytes: -1}

// names lists what a backend has of a kind.
func names(t testing.TB, b cas.Backend, kind cas.Kind) []cas.Name {
	t.Helper()
	var out []cas.Name
	for name, err := range b.List(t.Context(), tenant, kind, nil) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, name)
	}
	return out
}

func putMany(t testing.TB, s *cas.Store, blobs ...[]byte) {
	t.Helper()
	b := s.Begin(t.Context(), tenant)
	defer b.Discard()
	for _, data := range blobs {
		if _, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A store under random work with tiny index files agrees with a map: also when
// index files are damaged, deleted or rebuilt, packs are merged, and several
// Stores share it.
func TestIndexLikeMap(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			b := newChanging(memory.New())
			stores := []*cas.Store{cas.New(b, tiny), cas.New(b, tiny)}
			twin := make(map[merkle.Root][]byte)
			var all [][]byte
			for step := range 300 {
				s := stores[rng.IntN(len(stores))]
				switch op := rng.IntN(20); {
				case op < 9:
					var blobs [][]byte
					for range 1 + rng.IntN(6) {
						blobs = append(blobs, random(uint64(rng.IntN(3000)), rng.IntN(200)))
					}
					putMany(t, s, blobs...)
					for _, data := range blobs {
						if twin[merkle.Sum(data)] == nil {
							all = append(all, data)
						}
						twin[merkle.Sum(data)] = append([]byte{}, data...)
					}
				case op < 11:
					stores[rng.IntN(len(stores))] = cas.New(b, tiny)
				case op == 11:
					if err := s.Compact(t.Context(), tenant); err != nil {
						t.Fatal(err)
					}
				case op == 12:
					if err := s.RebuildIndex(t.Context(), tenant); err != nil {
						t.Fatal(err)
					}
				case op == 13:
					if files := names(t, b, cas.KindIndex); len(files) > 0 {
						b.flip(t, files[rng.IntN(len(files))], rng)
					}
				case op == 14:
					if files := names(t, b, cas.KindIndex); len(files) > 0 {
						b.Delete(t.Context(), files[rng.IntN(len(files))])
					}
				case op == 15:
					if err := s.Scan(t.Context(), tenant); err != nil {
						t.Fatal(err)
					}
				}
				for range 5 {
					if len(all) > 0 {
						if err := read(t, s, all[rng.IntN(len(all))]); err != nil {
							t.Fatalf("step %d: %v", step, err)
						}
					}
				}
				absent := random(uint64(100_000+step), 50)
				if err := read(t, s, absent); !errors.Is(err, cas.ErrNotFound) {
					t.Fatalf("step %d: a blob that was never put: %v", step, err)
				}
			}
			for _, s := range append(stores, cas.New(b, tiny), cas.New(b, cas.Options{})) {
				for _, data := range all {
					if err := read(t, s, data); err != nil {
						t.Fatal(err)
					}
				}
				for _, d := range s.Damaged() {
					if d.Name.Kind != cas.KindIndex {
						t.Errorf("Damaged has %v: %v", d.Name, d.Err)
					}
				}
			}
		})
	}
}

// changing is a backend some of whose objects read otherwise than they were put,
// and that counts how often packs are opened.
type changing struct {
	*memory.Backend
	changed map[cas.Name][]byte
	opened  atomic.Int64
}

func newChanging(b *memory.Backend) *changing {
	return &changing{Backend: b, changed: make(map[cas.Name][]byte)}
}

// flip changes one byte of an object.
func (c *changing) flip(t *testing.T, name cas.Name, rng *rand.Rand) {
	o, err := c.OpenAt(t.Context(), name)
	if err != nil {
		return
	}
	p := make([]byte, o.Size())
	o.ReadAt(p, 0)
	p[rng.IntN(len(p))] ^= byte(1 + rng.IntN(255))
	c.changed[name] = p
}

// Delete also ends the change: a name that is used again after it has new bytes.
func (c *changing) Delete(ctx ctx, list ...cas.Name) error {
	for _, name := range list {
		delete(c.changed, name)
	}
	return c.Backend.Delete(ctx, list...)
}

type changedObject struct{ *bytes.Reader }

func (changedObject) Close() error { return nil }

func (c *changing) OpenAt(ctx ctx, name cas.Name) (cas.Object, error) {
	if name.Kind == cas.KindPack {
		c.opened.Add(1)
	}
	if p, ok := c.changed[name]; ok {
		return changedObject{bytes.NewReader(p)}, nil
	}
	return c.Backend.OpenAt(ctx, name)
}

// indexedStore is a backend with small blobs in three packs and one index file
// over them.
func indexedStore(t *testing.T) (*changing, [][]byte) {
	b := newChanging(memory.New())
	s := cas.New(b, cas.Options{})
	var blobs [][]byte
	for i := range 9 {
		blobs = append(blobs, random(uint64(i), i*31))
	}
	for i := 0; i < len(blobs); i += 3 {
		putMany(t, s, blobs[i:i+3]...)
	}
	if err := s.RebuildIndex(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if files := names(t, b, cas.KindIndex); len(files) != 1 {
		t.Fatalf("%d index files, want 1", len(files))
	}
	return b, blobs
}

// An index file is damaged at every byte: the blobs read right all the same, and
// a file that was met damaged is reported.
func TestIndexDamageEverywhere(t *testing.T) {
	b, blobs := indexedStore(t)
	file := names(t, b, cas.KindIndex)[0]
	o, err := b.OpenAt(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	good := make([]byte, o.Size())
	o.ReadAt(good, 0)
	rng := rand.New(rand.NewPCG(1, 2))
	absent := random(77, 100)
	reported := 0
	try := func(title string, p []byte) {
		b.changed[file] = p
		s := cas.New(b, cas.Options{})
		for _, data := range blobs {
			if err := read(t, s, data); err != nil {
				t.Fatalf("%s: %v", title, err)
			}
		}
		if err := read(t, s, absent); !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("%s: a blob that was never put: %v", title, err)
		}
		reported += len(s.Damaged())
	}
	step := 7
	if everyOperation() {
		step = 1
	}
	n := 0
	for at := 0; at < len(good); at += step {
		p := bytes.Clone(good)
		p[at] ^= byte(1 + rng.IntN(255))
		try(fmt.Sprintf("byte %d", at), p)
		n++
	}
	if reported != n {
		t.Errorf("of %d damaged files, %d were reported", n, reported)
	}
	for title, damage := range damages {
		reported = 0
		if try(title, damage(bytes.Clone(good))); reported != 1 {
			t.Errorf("%s: reported %d files", title, reported)
		}
	}
	for at := range len(good) / 64 {
		reported = 0
		if try(fmt.Sprintf("cut at %d", at*64), good[:at*64]); reported != 1 {
			t.Errorf("cut at %d: reported %d files", at*64, reported)
		}
	}
	// Pages that are sound, in the place of others.
	for i := range len(good) / 4096 {
		for j := range len(good) / 4096 {
			if i != j {
				p := bytes.Clone(good)
				copy(p[i*4096:][:4096], good[j*4096:])
				try(fmt.Sprintf("page %d as %d", j, i), p)
			}
		}
	}
}

// A store that has been indexed is opened without reading its packs, and few
// index files remain.
func TestIndexOpen(t *testing.T) {
	b := newChanging(memory.New())
	opts := cas.Options{IndexBytes: 64 << 10} // an index file of every hundred keys
	s := cas.New(&noRemove{b, b, b}, opts)
	const packs = 1000
	for i := range packs {
		putMany(t, s, fmt.Appendf(nil, "blob %d", i), fmt.Appendf(nil, "another %d", i))
	}
	if n := len(names(t, b, cas.KindPack)); n < packs {
		t.Fatalf("%d packs, want %d and merged ones", n, packs)
	}
	if n := len(names(t, b, cas.KindIndex)); n > 8 {
		t.Errorf("%d index files over %d keys", n, 2*packs)
	}
	b.opened.Store(0)
	s = cas.New(b, opts)
	for i := range packs {
		if err := read(t, s, fmt.Appendf(nil, "another %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.opened.Load(); n > 100 {
		t.Errorf("%d packs were opened", n)
	}
	if d := s.Damaged(); len(d) != 0 {
		t.Errorf("Damaged = %v", d)
	}
}

// noRemove hides packs from deletion, so that merging them leaves them all.
type noRemove struct {
	cas.Backend
	cas.Stager
	cas.Opener
}

func (n *noRemove) Delete(ctx ctx, all ...cas.Name) error {
	for _, name := range all {
		if name.Kind == cas.KindPack {
			return errors.ErrUnsupported
		}
	}
	return n.Backend.Delete(ctx, all...)
}

// Where index files cannot be written, the store is read as ever.
func TestIndexReadOnly(t *testing.T) {
	b := memory.New()
	s := cas.New(b, cas.Options{})
	var blobs [][]byte
	for i := range 200 {
		blobs = append(blobs, random(uint64(i), 50))
		if i%5 == 4 {
			putMany(t, s, blobs[i-4:]...)
		}
	}
	s = cas.New(readOnly{b}, tiny)
	for _, data := range blobs {
		if err := read(t, s, data); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(names(t, b, cas.KindIndex)); n != 0 {
		t.Errorf("%d index files were written to a read-only store", n)
	}
}

type readOnly struct{ cas.Backend }

func (readOnly) Put(ctx, cas.Name, ioReader, int64) error { return os.ErrPermission }

// Small packs become few; a Store that knew the old ones reads on, and one that
// knows nothing finds all.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	s, other := onDisk(t, dir), onDisk(t, dir)
	var blobs [][]byte
	for i := range 50 {
		blobs = append(blobs, random(uint64(i), 100+i))
		put(t, s, blobs[i], cas.Auto)
	}
	for _, data := range blobs {
		if err := read(t, other, data); err != nil {
			t.Fatal(err)
		}
	}
	damaged := objects(t, dir)["pack"][0]
	rewrite(t, damaged, func(p []byte) []byte { p[70] ^= 1; return p })
	if err := s.Compact(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if got := objects(t, dir)["pack"]; len(got) != 2 || got[0] != damaged && got[1] != damaged {
		t.Errorf("after Compact: %v; want one pack and the damaged one", got)
	}
	rewrite(t, damaged, func(p []byte) []byte { p[70] ^= 1; return p })
	for title, s := range map[string]*cas.Store{"the same": s, "one that knew": other, "a new one": onDisk(t, dir)} {
		for _, data := range blobs {
			if err := read(t, s, data); err != nil {
				t.Errorf("%s: %v", title, err)
			}
		}
		putMany(t, s, blobs...)
	}
	if err := s.Compact(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if got := objects(t, dir)["pack"]; len(got) != 1 {
		t.Errorf("after the second Compact: %v", got)
	}
	if err := s.Compact(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	for _, data := range blobs {
		if err := read(t, other, data); err != nil {
			t.Error(err)
		}
	}
}

// Commits merge small packs when they have become many.
func TestCommitsMerge(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	for i := range 200 {
		put(t, s, random(uint64(i), 300), cas.Auto)
	}
	if n := len(objects(t, dir)["pack"]); n > 64+2 {
		t.Errorf("%d packs after 200 commits", n)
	}
	for _, s := range []*cas.Store{s, onDisk(t, dir)} {
		for i := range 200 {
			if err := read(t, s, random(uint64(i), 300)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// FuzzIndex reads a store through an index file of any content: each blob is
// right, or it is not found where the file claims to know its pack.
func FuzzIndex(f *testing.F) {
	b := newChanging(memory.New())
	s := cas.New(b, cas.Options{})
	blobs := [][]byte{random(1, 40), random(2, 50), random(3, 1000)}
	for _, data := range blobs {
		putMany(f, s, data)
	}
	if err := s.RebuildIndex(f.Context(), tenant); err != nil {
		f.Fatal(err)
	}
	file := names(f, b, cas.KindIndex)[0]
	o, err := b.OpenAt(f.Context(), file)
	if err != nil {
		f.Fatal(err)
	}
	good := make([]byte, o.Size())
	o.ReadAt(good, 0)
	f.Add(uint32(100), []byte{1})
	f.Add(uint32(4096), []byte{0, 0, 0, 0})
	f.Add(uint32(len(good)-4096), []byte("entries"))
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		p := append([]byte{}, good...)
		page := int(at) / 4096 * 4096 % len(p)
		copy(p[page+int(at)%4092:page+4092], change)
		cas.SealPage(file.ID, p, page/4096)
		b.changed[file] = p
		s := cas.New(b, cas.Options{})
		for _, data := range blobs {
			if err := read(t, s, data); err != nil && !errors.Is(err, cas.ErrNotFound) && !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
		}
	})
}
