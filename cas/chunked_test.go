package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

var chunkedPlaces = []cas.Placement{cas.Chunked, cas.ChunkedRecords}

// A batch reads what waits for its commit, and a new Store what was committed.
func TestChunkedRoundTrip(t *testing.T) {
	for _, size := range []int{16385, 100_000, 1 << 20, 1<<20 + 1, 1<<22 - 1, 1 << 22, 1<<22 + 1, 9 << 20} {
		for kind, data := range map[string][]byte{"random": random(uint64(size), size), "lines": lines(uint64(size), size)} {
			for _, place := range chunkedPlaces {
				t.Run(fmt.Sprintf("%s/%s/size=%d", place, kind, size), func(t *testing.T) {
					backend := memory.New()
					s := cas.New(backend, cas.Options{CacheBytes: -1})
					b := s.Begin(t.Context(), tenant)
					defer b.Discard()
					// Reads that return one byte, and an end that comes with bytes.
					info, err := b.Put(t.Context(), &slowly{r: bytes.NewReader(data)}, place)
					if err != nil || info != (cas.Info{Root: merkle.Sum(data), Size: int64(size), Placement: cas.Chunked}) {
						t.Fatalf("Put = %+v, %v", info, err)
					}
					r, err := b.Open(t.Context(), info.Root, info.Size)
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					compare(t, rand.New(rand.NewPCG(1, 1)), r, data)
					if err := b.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					compare(t, rand.New(rand.NewPCG(1, 2)), r, data)
					for _, s := range []*cas.Store{s, cas.New(backend, cas.Options{})} {
						if err := read(t, s, data); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}

// slowly returns few bytes at a time.
type slowly struct {
	r io.Reader
	n int
}

func (s *slowly) Read(p []byte) (int, error) {
	s.n++
	return s.r.Read(p[:min(len(p), 1+s.n%7*9000)])
}

// ordered notes the kinds in the order in which objects became durable.
type ordered struct {
	cas.Backend
	mu     sync.Mutex
	puts   []cas.Kind
	failAt cas.Kind
}

var errOrdered = errors.New("not now")

func (o *ordered) Put(ctx ctx, name cas.Name, r io.Reader, size int64) error {
	if name.Kind == o.failAt {
		return errOrdered
	}
	err := o.Backend.Put(ctx, name, r, size)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.puts = append(o.puts, name.Kind)
	return err
}

// The recipe comes last, and not without the rest. A commit that failed can be
// tried again.
func TestChunkedOrder(t *testing.T) {
	data := lines(1, 3<<20)
	o := &ordered{Backend: memory.New()}
	put(t, cas.New(o, cas.Options{}), data, cas.ChunkedRecords)
	if want := []cas.Kind{cas.KindPack, cas.KindOutboard, cas.KindRecipe}; !slices.Equal(o.puts, want) {
		t.Errorf("durable in the order %v, want %v", o.puts, want)
	}
	for _, kind := range []cas.Kind{cas.KindPack, cas.KindOutboard, cas.KindRecipe} {
		t.Run("fails at "+kind.String(), func(t *testing.T) {
			o := &ordered{Backend: memory.New(), failAt: kind}
			s := cas.New(o, cas.Options{})
			b := s.Begin(t.Context(), tenant)
			defer b.Discard()
			if _, err := b.Put(t.Context(), bytes.NewReader(data), cas.ChunkedRecords); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(t.Context()); !errors.Is(err, errOrdered) {
				t.Fatalf("Commit = %v", err)
			}
			if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
				t.Fatalf("after a failed commit: %v", err)
			}
			o.failAt = 0
			if err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := read(t, s, data); err != nil {
				t.Error(err)
			}
		})
	}
}

// stored is the number of bytes below dir, without the index.
func stored(t testing.TB, dir string) (n int64) {
	for kind, paths := range objects(t, dir) {
		for _, path := range paths {
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if kind != "index" {
				n += fi.Size()
			}
		}
	}
	return n
}

// Versions of a blob share what they have in common.
func TestChunkedDeduplicates(t *testing.T) {
	const size = 16 << 20
	first := lines(1, size)
	edit := func(at []int) []byte {
		p := bytes.Clone(first)
		for _, i := range at {
			copy(p[i:], "edited")
		}
		return p
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var scattered, bursts []int
	for range 480 { // 1% of the rows
		scattered = append(scattered, rng.IntN(size-10))
	}
	for range 6 {
		at := rng.IntN(size - 100_000)
		for i := range 80 {
			bursts = append(bursts, at+i*350)
		}
	}
	dir := t.TempDir()
	s := onDisk(t, dir)
	put(t, s, first, cas.ChunkedRecords)
	before := stored(t, dir)
	if before > size/3 {
		t.Errorf("the first version takes %d bytes", before)
	}
	for _, test := range []struct {
		name string
		data []byte
		most int64
	}{
		{"the same again", first, 0},
		{"bytes before it", append(lines(7, 1000), first...), 150_000},
		{"edits in bursts", edit(bursts), 350_000},
		{"edits all over", edit(scattered), before / 2},
		{"half of it", first[size/2:], 150_000},
	} {
		put(t, s, test.data, cas.ChunkedRecords)
		after := stored(t, dir)
		if after-before > test.most {
			t.Errorf("%s: %d bytes more, want at most %d", test.name, after-before, test.most)
		}
		before = after
		if err := read(t, s, test.data); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	// Within one blob.
	dir = t.TempDir()
	put(t, onDisk(t, dir), bytes.Repeat(random(1, 1<<20), 8), cas.ChunkedRecords)
	if n := stored(t, dir); n > 2<<20 {
		t.Errorf("a blob of eight times the same takes %d bytes", n)
	}
}

// Whatever is done to one of its objects, a blob reads as its bytes or as
// ErrCorrupt; the same bytes put again heal it.
func TestChunkedDamage(t *testing.T) {
	data := append(lines(1, 300_000), random(1, 200_000)...)
	damage := map[string]func([]byte) []byte{
		"empty":  func([]byte) []byte { return nil },
		"cut":    func(p []byte) []byte { return p[:len(p)/2] },
		"longer": func(p []byte) []byte { return append(p, 0) },
		"zeros":  func(p []byte) []byte { return make([]byte, len(p)) },
	}
	for i := range 24 {
		damage[fmt.Sprintf("bit at %d/24", i)] = func(p []byte) []byte { p[i*(len(p)-1)/23] ^= 4; return p }
	}
	for _, kind := range []string{"pack", "obao", "rcpe"} {
		for name, change := range damage {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				put(t, onDisk(t, dir), data, cas.ChunkedRecords)
				paths := objects(t, dir)[kind]
				if len(paths) != 1 {
					t.Fatal(paths)
				}
				rewrite(t, paths[0], change)
				s := onDisk(t, dir)
				err := read(t, s, data)
				if err == nil {
					t.Log("harmless")
				} else {
					wantCorrupt(t, err, merkle.Sum(data))
				}
				put(t, s, data, cas.ChunkedRecords)
				for _, s := range []*cas.Store{s, onDisk(t, dir)} {
					if err := read(t, s, data); err != nil {
						t.Errorf("after the same bytes were put again: %v", err)
					}
				}
			})
		}
		t.Run(kind+"/gone", func(t *testing.T) {
			dir := t.TempDir()
			put(t, onDisk(t, dir), data, cas.ChunkedRecords)
			if err := os.Remove(objects(t, dir)[kind][0]); err != nil {
				t.Fatal(err)
			}
			for _, index := range objects(t, dir)["index"] {
				os.Remove(index)
			}
			s := onDisk(t, dir)
			err := read(t, s, data)
			if kind == "rcpe" {
				if !errors.Is(err, cas.ErrNotFound) {
					t.Errorf("error = %v, want ErrNotFound", err)
				}
			} else {
				wantCorrupt(t, err, merkle.Sum(data))
			}
			put(t, s, data, cas.ChunkedRecords)
			if err := read(t, s, data); err != nil {
				t.Error(err)
			}
		})
	}
}

// A blob that lies in an object of its own, which is damaged, is healed by its
// chunks.
func TestChunkedHealsWhole(t *testing.T) {
	data := lines(1, 200_000)
	dir := t.TempDir()
	s := onDisk(t, dir)
	put(t, s, data, cas.Whole)
	rewrite(t, objects(t, dir)["blob"][0], func(p []byte) []byte { p[100_000] ^= 1; return p })
	wantCorrupt(t, read(t, s, data), merkle.Sum(data))
	put(t, s, data, cas.ChunkedRecords)
	if err := read(t, s, data); err != nil {
		t.Error(err)
	}
}

// What a compressed run declares is not believed.
func TestBomb(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	huge := enc.EncodeAll(make([]byte, 64<<20), nil)
	small := enc.EncodeAll(make([]byte, 1000), nil)
	// Magic; one segment with 8 bytes of content size; 2 GiB; an RLE block of 128 KiB, and another of the same.
	two := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0x02, 0, 0x10, 'a', 0x03, 0, 0x10, 'a'}
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x02, 0, 0x10, 'a', 0x03, 0, 0x10, 'a'} // a window of 2 GiB, no size
	for name, test := range map[string]struct {
		raw    uint32
		stored []byte
		ok     bool
	}{
		"good":              {1000, small, true},
		"one byte less":     {999, small, false},
		"one byte more":     {1001, small, false},
		"64 MiB":            {1000, huge, false},
		"64 MiB as stated":  {64 << 20, huge, false},
		"declares 2 GiB":    {200_000, two, false},
		"window of 2 GiB":   {200_000, window, false},
		"states 2 GiB":      {2 << 30, two, false},
		"two frames":        {2000, append(bytes.Clone(small), small...), true}, // as long as both make what is stated
		"a frame and waste": {1000, append(bytes.Clone(small), 1, 2, 3, 4, 5), false},
		"empty":             {10, nil, false},
		"no frame":          {10, []byte("0123456789"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := cas.DecodeRun(test.raw, test.stored)
			runtime.ReadMemStats(&after)
			if (err == nil) != test.ok || test.ok && len(p) != int(test.raw) {
				t.Errorf("DecodeRun = %d bytes, %v", len(p), err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
				t.Errorf("it took %d bytes of memory", took)
			}
		})
	}
	// In a pack that is otherwise sound.
	root := merkle.Sum(make([]byte, 1000))
	id, pack := cas.SealRun(root, 1000, 200_000, two)
	b := memory.New()
	if err := b.Put(t.Context(), cas.Name{Tenant: tenant, Kind: cas.KindPack, ID: id}, bytes.NewReader(pack), int64(len(pack))); err != nil {
		t.Fatal(err)
	}
	if err := read(t, cas.New(b, cas.Options{}), make([]byte, 1000)); !errors.Is(err, cas.ErrCorrupt) && err == nil {
		t.Errorf("error = %v", err)
	}
}

// A read decodes and reads no more than the runs that it touches.
func TestChunkedReadsNoMore(t *testing.T) {
	data := lines(1, 16<<20)
	disk := onDiskBackend(t)
	w := &watched{Backend: disk, Opener: disk}
	put(t, cas.New(w, cas.Options{}), data, cas.ChunkedRecords)
	r := open(t, cas.New(w, cas.Options{}), data)
	rng := rand.New(rand.NewPCG(1, 1))
	p := make([]byte, 1000)
	for range 50 {
		off := rng.IntN(len(data) - len(p))
		w.reset()
		if _, err := r.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
			t.Fatal(err)
		}
		// A group and its edges lie in three runs at most, of 64 KiB before they
		// were compressed; a page of the recipe has 18 KiB.
		if n := w.bytes.Load(); n > 3*64<<10+18<<10 {
			t.Fatalf("for %d bytes, %d were read", len(p), n)
		}
	}
}

// peak notes the most memory in use while it is read.
type peak struct {
	r    io.Reader
	most uint64
}

func (k *peak) Read(p []byte) (int, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	k.most = max(k.most, m.HeapInuse)
	return k.r.Read(p[:min(len(p), 1<<20)])
}

// Memory does not grow with the blob.
func TestChunkedMemory(t *testing.T) {
	for _, place := range chunkedPlaces {
		s := onDisk(t, t.TempDir())
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		k := &peak{r: io.LimitReader(rand.NewChaCha8([32]byte{1}), 96<<20)}
		if _, err := s.Put(t.Context(), tenant, k, place); err != nil {
			t.Fatal(err)
		}
		if took := int64(k.most) - int64(before.HeapInuse); took > 64<<20 {
			t.Errorf("%s: 96 MiB took %d MiB of heap", place, took>>20)
		}
	}
}

// Goroutines put overlapping blobs into one batch and into batches of their own.
func TestChunkedConcurrent(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	base := lines(1, 6<<20)
	shared := s.Begin(t.Context(), tenant)
	defer shared.Discard()
	var all sync.WaitGroup
	var failed atomic.Int32
	blob := func(i int) []byte { return base[i*100_000 : len(base)-(i%3)*2_000_000] }
	for i := range 8 {
		all.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = shared.Put(t.Context(), bytes.NewReader(blob(i)), cas.ChunkedRecords)
			} else {
				_, err = s.Put(t.Context(), tenant, bytes.NewReader(blob(i)), cas.ChunkedRecords)
			}
			if err != nil {
				t.Error(err)
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if err := shared.Commit(t.Context()); err != nil || failed.Load() > 0 {
		t.Fatal(err)
	}
	s = onDisk(t, dir)
	for i := range 8 {
		if err := read(t, s, blob(i)); err != nil {
			t.Errorf("blob %d: %v", i, err)
		}
	}
	if n := stored(t, dir); n > 12<<20 {
		t.Errorf("eight blobs that overlap take %d bytes", n)
	}
}

// errReader fails after some bytes.
type errReader struct{ n int }

func (e *errReader) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, errOrdered
	}
	n := min(len(p), e.n)
	e.n -= n
	return n, nil
}

// A reader that fails, and a context that ends, leave no blob and no goroutine
// that waits for ever.
func TestChunkedFails(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	for _, n := range []int{17_000, 1 << 20, 5_000_000} {
		if _, err := s.Put(t.Context(), tenant, &errReader{n}, cas.Chunked); !errors.Is(err, errOrdered) {
			t.Errorf("a reader that fails after %d bytes: %v", n, err)
		}
	}
	before := runtime.NumGoroutine()
	for i := range 10 {
		c, cancel := contextThatEnds(t)
		data := random(uint64(i), 8<<20)
		if _, err := s.Put(c, tenant, io.MultiReader(bytes.NewReader(data[:4<<20]), onRead(cancel), bytes.NewReader(data[4<<20:])), cas.Chunked); err == nil {
			t.Error("a put succeeded whose context ended")
		}
	}
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Errorf("%d goroutines, %d before", after, before)
	}
	if left := objects(t, dir); len(left["rcpe"]) > 0 || len(left["blob"]) > 0 {
		t.Errorf("objects are left: %v", left)
	}
	if tmp, _ := filepath.Glob(filepath.Join(dir, "*", "tmp", "*")); len(tmp) > 0 {
		t.Errorf("unfinished files are left: %v", tmp)
	}
}

func TestOpenRecipe(t *testing.T) {
	b := memory.New()
	data := lines(1, 1<<20)
	put(t, cas.New(b, cas.Options{}), data, cas.ChunkedRecords)
	all := names(t, b, cas.KindRecipe)
	if len(all) != 1 || all[0].ID != merkle.Sum(data) {
		t.Fatal(all)
	}
	r, err := b.Get(t.Context(), all[0], 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	good, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := cas.OpenRecipe(good, int64(len(data)))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	if got := merkle.Sum(good).String()[:32]; got != "4fccf928d6da8ae1520c363f805acd94" {
		t.Errorf("the recipe of the same bytes is another: %s", got)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := cas.OpenRecipe(bad, int64(len(data))); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("a bit of byte %d changed: %v", i, err)
		}
		if _, err := cas.OpenRecipe(good[:i], int64(len(data))); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := cas.OpenRecipe(good, int64(len(data))+1); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("of another size: %v", err)
	}
}
