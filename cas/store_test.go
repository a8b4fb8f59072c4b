package cas_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

var tenant = cas.TenantOf("test")

// sizes are those around every boundary that a blob can cross.
var sizes = []int{0, 1, 1024, 1025, 16383, 16384, 16385, 32768, 100_000, 1<<20 + 1}

func random(seed uint64, size int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	data := make([]byte, size)
	rand.NewChaCha8(key).Read(data)
	return data
}

// onDisk returns a Store of its own over the objects in dir.
func onDisk(t testing.TB, dir string) *cas.Store {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return cas.New(b, cas.Options{})
}

func put(t testing.TB, s *cas.Store, data []byte, place cas.Placement) cas.Info {
	t.Helper()
	info, err := s.Put(t.Context(), tenant, bytes.NewReader(data), place)
	if err != nil {
		t.Fatalf("Put of %d bytes: %v", len(data), err)
	}
	if info.Root != merkle.Sum(data) || info.Size != int64(len(data)) {
		t.Fatalf("Put of %d bytes = %+v", len(data), info)
	}
	return info
}

func open(t testing.TB, s *cas.Store, data []byte) *cas.Reader {
	t.Helper()
	r, err := s.Open(t.Context(), tenant, merkle.Sum(data), int64(len(data)))
	if err != nil {
		t.Fatalf("Open of %d bytes: %v", len(data), err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// read reads a whole blob, then its groups one by one from the last to the
// first, which needs every node of the outboard, or returns the first error.
func read(t testing.TB, s *cas.Store, data []byte) error {
	t.Helper()
	r, err := s.Open(t.Context(), tenant, merkle.Sum(data), int64(len(data)))
	if err != nil {
		return err
	}
	defer r.Close()
	got := make([]byte, len(data))
	n, err := r.ReadAt(got, 0)
	if !bytes.Equal(got[:n], data[:n]) {
		t.Fatalf("ReadAt returned other bytes, error %v", err)
	}
	for i := range got[n:] {
		if got[n+i] != 0 {
			t.Fatalf("ReadAt left unverified bytes behind at %d, error %v", n+i, err)
		}
	}
	if err == nil && n != len(data) {
		t.Fatalf("ReadAt = %d of %d without an error", n, len(data))
	}
	for off := (len(data) - 1) / merkle.GroupSize * merkle.GroupSize; off > 0 && err == nil; off -= merkle.GroupSize {
		p := got[:min(100, len(data)-off)]
		if _, err = r.ReadAt(p, int64(off)); err == nil && !bytes.Equal(p, data[off:off+len(p)]) {
			t.Fatalf("ReadAt(%d) returned other bytes", off)
		}
	}
	return err
}

// objects are the paths of all files below dir, by kind.
func objects(t testing.TB, dir string) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind := filepath.Base(filepath.Dir(filepath.Dir(path)))
		found[kind] = append(found[kind], path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func count(m map[string][]string) string {
	return fmt.Sprintf("pack %d blob %d obao %d", len(m["pack"]), len(m["blob"]), len(m["obao"]))
}

// A Store and a map are put through the same random operations.
func TestStoreLikeMap(t *testing.T) {
	for name, backend := range map[string]func() cas.Backend{
		"memory":   func() cas.Backend { return memory.New() },
		"fallback": func() cas.Backend { return struct{ cas.Backend }{memory.New()} },
		"disk": func() cas.Backend {
			b, err := disk.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := backend()
			s := cas.New(b, cas.Options{CacheBytes: 1 << 20})
			rng := rand.New(rand.NewPCG(1, 2))
			twin := make(map[merkle.Root][]byte)
			var roots []merkle.Root
			for range 300 {
				switch rng.IntN(4) {
				case 0: // put something, perhaps again
					data := random(rng.Uint64N(8), sizes[rng.IntN(len(sizes))])
					place := []cas.Placement{"", cas.Auto, cas.Whole, cas.Chunked, cas.ChunkedRecords}[rng.IntN(5)]
					info := put(t, s, data, place)
					if _, ok := twin[info.Root]; !ok {
						roots = append(roots, info.Root)
					}
					twin[info.Root] = data
				case 1: // forget all that is in memory
					if rng.IntN(4) == 0 {
						s = cas.New(b, cas.Options{CacheBytes: 1 << 20})
					}
				default:
					if len(roots) > 0 {
						data := twin[roots[rng.IntN(len(roots))]]
						compare(t, rng, open(t, s, data), data)
					}
				}
			}
			missing := random(99, 500)
			if err := read(t, s, missing); !errors.Is(err, cas.ErrNotFound) {
				t.Errorf("a blob never put: error = %v, want ErrNotFound", err)
			}
		})
	}
}

// compare reads some ranges of r and holds them to bytes.Reader's ReadAt.
func compare(t *testing.T, rng *rand.Rand, r *cas.Reader, data []byte) {
	t.Helper()
	twin := bytes.NewReader(data)
	for range 6 {
		off := int64(rng.IntN(len(data) + 20))
		if rng.IntN(3) == 0 {
			off = off / merkle.GroupSize * merkle.GroupSize
		}
		n := rng.IntN(len(data) + 20)
		if rng.IntN(2) == 0 {
			n = min(n, 2000)
		}
		got, want := make([]byte, n), make([]byte, n)
		gotN, gotErr := r.ReadAt(got, off)
		wantN, wantErr := twin.ReadAt(want, off)
		if n == 0 {
			wantErr = nil // both answers are allowed
			gotErr = nil
		}
		if gotN != wantN || gotErr != wantErr || !bytes.Equal(got, want) {
			t.Fatalf("ReadAt(%d bytes, %d) of %d = %d, %v; want %d, %v, same bytes %v", n, off, len(data), gotN, gotErr, wantN, wantErr, bytes.Equal(got, want))
		}
	}
}

func TestReaderIsAReaderAt(t *testing.T) {
	s := cas.New(memory.New(), cas.Options{})
	for _, size := range sizes {
		data := random(7, size)
		put(t, s, data, cas.Auto)
		r := open(t, s, data)
		if err := iotest.TestReader(io.NewSectionReader(r, 0, r.Size()), data); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := r.ReadAt(make([]byte, 1), -1); !errors.Is(err, cas.ErrRange) {
			t.Errorf("ReadAt(-1) error = %v, want ErrRange", err)
		}
		r.Close()
		if n, err := r.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt after Close = %d, %v", n, err)
		}
	}
}

// Reader.Tree makes proofs, for packed and for whole blobs.
func TestReaderTree(t *testing.T) {
	s := cas.New(memory.New(), cas.Options{})
	for _, size := range sizes {
		data := random(8, size)
		put(t, s, data, cas.Auto)
		r := open(t, s, data)
		set, err := merkle.Leaves(int64(size), merkle.Range{Start: int64(size / 3), End: int64(size/3 + 100)})
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		if err := merkle.WriteBody(&body, r.Tree(), r, set); err != nil {
			t.Errorf("%d bytes: WriteBody: %v", size, err)
			continue
		}
		br := merkle.NewBodyReader(&body, r.Root(), set)
		for {
			off, p, err := br.Next()
			if err == io.EOF {
				break
			}
			if err != nil || !bytes.Equal(p, data[off:off+int64(len(p))]) {
				t.Fatalf("%d bytes: Next at %d: %v", size, off, err)
			}
		}
	}
}

func TestPlacements(t *testing.T) {
	s := cas.New(memory.New(), cas.Options{})
	for name, test := range map[string]struct {
		size  int
		place cas.Placement
		want  cas.Placement // empty: ErrPlacement
	}{
		"auto small":     {16384, cas.Auto, cas.Packed},
		"empty is auto":  {10, "", cas.Packed},
		"auto large":     {16385, cas.Auto, cas.Whole},
		"packed small":   {100, cas.Packed, cas.Packed},
		"packed large":   {16385, cas.Packed, ""},
		"whole small":    {101, cas.Whole, cas.Whole},
		"whole empty":    {0, cas.Whole, cas.Whole},
		"whole large":    {16386, cas.Whole, cas.Whole},
		"chunked small":  {16384, cas.Chunked, cas.Packed},
		"chunked large":  {16387, cas.Chunked, cas.Chunked},
		"records large":  {16388, cas.ChunkedRecords, cas.Chunked},
		"something else": {100, "tape", ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := random(9, test.size)
			info, err := s.Put(t.Context(), tenant, bytes.NewReader(data), test.place)
			if test.want == "" {
				if !errors.Is(err, cas.ErrPlacement) || info != (cas.Info{}) {
					t.Fatalf("Put = %+v, %v; want ErrPlacement", info, err)
				}
				return
			}
			if err != nil || info.Placement != test.want {
				t.Fatalf("Put = %+v, %v; want %s", info, err, test.want)
			}
			if err := read(t, s, data); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPutFails(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	for _, have := range []int{0, 100, 16_384, 16_385, 20_000, 512 << 10, 3 << 20} {
		// io.ErrUnexpectedEOF is how a cut connection or archive ends.
		for _, reason := range []error{errors.New("source failed"), io.ErrUnexpectedEOF} {
			r := io.MultiReader(bytes.NewReader(random(1, have)), iotest.ErrReader(reason))
			if _, err := s.Put(t.Context(), tenant, r, cas.Auto); !errors.Is(err, reason) {
				t.Errorf("Put of %d bytes: error = %v, want the reader's own, %v", have, err, reason)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Put(ctx, tenant, bytes.NewReader(random(1, have)), cas.Auto); !errors.Is(err, context.Canceled) {
			t.Errorf("Put error = %v, want context.Canceled", err)
		}
	}
	if got := objects(t, dir); len(got) != 0 {
		t.Errorf("failed puts left %v", got)
	}
}

// Putting again writes nothing, also through another Store.
func TestPutAgain(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := onDisk(t, dir)
		for range 2 {
			for _, size := range sizes {
				put(t, s, random(3, size), cas.Auto)
			}
		}
	}
	if got := count(objects(t, dir)); got != "pack 6 blob 4 obao 4" {
		t.Errorf("the store has %s", got)
	}
}

// Tenants share nothing.
func TestTenantsApart(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	other := cas.TenantOf("other")
	for _, size := range []int{100, 100_000} {
		data := random(4, size)
		put(t, s, data, cas.Auto)
		if err := read(t, s, data); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(t.Context(), other, merkle.Sum(data), int64(size)); !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("the other tenant's Open: error = %v, want ErrNotFound", err)
		}
		if _, err := s.Put(t.Context(), other, bytes.NewReader(data), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(objects(t, dir)); got != "pack 2 blob 2 obao 2" {
		t.Errorf("the store has %s", got)
	}
}

// Many goroutines over two Stores put and read the same blobs.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	stores := []*cas.Store{onDisk(t, dir), onDisk(t, dir)}
	var wg sync.WaitGroup
	for g := range uint64(6) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 5))
			s := stores[g%2]
			for range 25 {
				data := random(rng.Uint64N(6), sizes[rng.IntN(len(sizes))])
				if info, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto); err != nil || info.Root != merkle.Sum(data) {
					t.Errorf("Put = %+v, %v", info, err)
					return
				}
				r, err := stores[rng.IntN(2)].Open(t.Context(), tenant, merkle.Sum(data), int64(len(data)))
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				if got, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size())); err != nil || !bytes.Equal(got, data) {
					t.Errorf("read %d bytes of %d: %v", len(got), len(data), err)
				}
				r.Close()
			}
		})
	}
	wg.Wait()
	for kind, paths := range objects(t, dir) {
		for _, path := range paths {
			if strings.Contains(path, ".tmp-") || !strings.HasSuffix(path, "-00000000") {
				t.Errorf("%s: left %s", kind, path)
			}
		}
	}
}

// One Reader serves many goroutines.
func TestReaderConcurrent(t *testing.T) {
	s := cas.New(memory.New(), cas.Options{CacheBytes: 300 << 10})
	data := random(11, 3<<20+5)
	put(t, s, data, cas.Auto)
	r := open(t, s, data)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 6))
			buf := make([]byte, 600<<10)
			for range 200 {
				p := buf[:rng.IntN(len(buf))>>rng.IntN(10)]
				off := rng.IntN(len(data) - len(p))
				if _, err := r.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
					t.Errorf("ReadAt(%d bytes, %d): %v, or wrong bytes", len(p), off, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
