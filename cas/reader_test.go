package cas_test

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

// watched counts what is read from open blobs.
type watched struct {
	cas.Backend
	cas.Opener
	reads, bytes atomic.Int64
}

type watchedObject struct {
	cas.Object
	w    *watched
	name cas.Name
}

func (o watchedObject) ReadAt(p []byte, off int64) (int, error) {
	if o.name.Kind == cas.KindBlob || o.name.Kind == cas.KindPack {
		o.w.reads.Add(1)
		o.w.bytes.Add(int64(len(p)))
	}
	return o.Object.ReadAt(p, off)
}

func (w *watched) OpenAt(ctx ctx, name cas.Name) (cas.Object, error) {
	o, err := w.Opener.OpenAt(ctx, name)
	if err != nil {
		return nil, err
	}
	return watchedObject{o, w, name}, nil
}

func (w *watched) reset() { w.reads.Store(0); w.bytes.Store(0) }

// What short reads come back to is read once while it is in the cache, also by
// another Reader; long reads push nothing out.
func TestReaderCache(t *testing.T) {
	b := memory.New()
	w := &watched{Backend: b, Opener: b}
	const room = 10
	s := cas.New(w, cas.Options{CacheBytes: room * 17_000})
	data := random(1, 4<<20)
	put(t, s, data, cas.Auto)
	buf := make([]byte, 1<<20)
	at := func(r *cas.Reader, off, n int) {
		t.Helper()
		if _, err := r.ReadAt(buf[:n], int64(off)); err != nil || !bytes.Equal(buf[:n], data[off:off+n]) {
			t.Fatalf("ReadAt(%d bytes, %d): %v, or wrong bytes", n, off, err)
		}
	}
	short := func(r *cas.Reader) {
		t.Helper()
		for g := range room - 1 {
			at(r, g*200_000+5000, 100)
		}
	}
	r := open(t, s, data)
	short(r)
	if n := w.reads.Load(); n < room-1 {
		t.Fatalf("%d reads of the object for %d groups", n, room-1)
	}
	r.Close() // the last group too
	r = open(t, s, data)
	for range 3 {
		w.reset()
		short(r)
		if n := w.reads.Load(); n != 0 {
			t.Errorf("short reads that come back made %d reads of the object", n)
		}
		for off := 7; off < 3<<20; off += 150_000 {
			at(r, off, 100_000)
		}
	}
	// Of two groups the one that was used lately stays.
	at(r, 5000, 100)
	for g := range room - 2 {
		at(r, 2<<20+g*50_000, 100)
	}
	w.reset()
	at(r, 5000, 100)
	if w.reads.Load() != 0 {
		t.Error("a group that was used lately left the cache")
	}
	// More groups than there is room for: the least recently used leave.
	for g := range 2 * room {
		at(r, 2<<20+g*50_000, 100)
	}
	w.reset()
	at(r, 5000, 100)
	if w.reads.Load() == 0 {
		t.Error("the cache keeps more than its room")
	}
	// Reads that follow each other read each group once, and leave nothing.
	w.reset()
	for off := 3 << 20; off < 4<<20; off += 1000 {
		at(r, off, min(1000, 4<<20-off))
	}
	if n := w.bytes.Load(); n > 1<<20+merkle.GroupSize {
		t.Errorf("1 MiB in pieces of 1,000 bytes read %d bytes of the object", n)
	}
	w.reset()
	at(r, 2<<20+(2*room-2)*50_000, 100)
	if w.reads.Load() != 0 {
		t.Error("reads that follow each other pushed out what short reads may come back to")
	}
}

// A read of whole groups reads exactly them, and an unaligned one the groups
// that it touches.
func TestReaderReadsNoMore(t *testing.T) {
	b := memory.New()
	w := &watched{Backend: b, Opener: b}
	s := cas.New(w, cas.Options{CacheBytes: -1})
	data := random(2, 3<<20+5000)
	put(t, s, data, cas.Auto)
	rng := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		r := open(t, s, data)
		off := rng.IntN(len(data))
		n := rng.IntN(len(data)-off) >> rng.IntN(12)
		p := make([]byte, n)
		w.reset()
		if _, err := r.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+n]) {
			t.Fatalf("ReadAt(%d bytes, %d): %v, or wrong bytes", n, off, err)
		}
		r.Close()
		if n == 0 {
			continue
		}
		first, end := off/merkle.GroupSize*merkle.GroupSize, min(len(data), (off+n+merkle.GroupSize-1)/merkle.GroupSize*merkle.GroupSize)
		if got := int(w.bytes.Load()); got != end-first {
			t.Errorf("ReadAt(%d bytes, %d) read %d bytes of the object, want %d", n, off, got, end-first)
		}
	}
}

// Reads allocate nothing once the cache is full.
func TestReaderAllocations(t *testing.T) {
	s := cas.New(onDiskBackend(t), cas.Options{CacheBytes: 100_000})
	data := random(3, 5<<20)
	put(t, s, data, cas.Auto)
	r := open(t, s, data)
	rng := rand.New(rand.NewPCG(3, 3))
	for name, test := range map[string]struct {
		size   int
		random bool
	}{
		"short random":     {1000, true},
		"long random":      {64 << 10, true},
		"short sequential": {4 << 10, false},
		"long sequential":  {32 << 10, false},
		"huge sequential":  {1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			buf, next := make([]byte, test.size), 0
			one := func() {
				off := next
				if next += test.size; next > len(data)-test.size {
					next = 0
				}
				if test.random {
					off = rng.IntN(len(data) - test.size)
				}
				if _, err := r.ReadAt(buf, int64(off)); err != nil {
					t.Fatal(err)
				}
			}
			for range 500 {
				one()
			}
			if n := testing.AllocsPerRun(300, one); n != 0 {
				t.Errorf("%v allocations a read", n)
			}
		})
	}
}
