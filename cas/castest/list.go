package castest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"leafproof/cas"
)

func listAll(t *testing.T, b cas.Backend) {
	var want []cas.Name
	for i := range uint32(300) {
		// Spread over the folders; some IDs with several generations.
		name := numbered(cas.KindPack, i*14_316_557, 0)
		want = append(want, name)
		if i%7 == 0 {
			for _, gen := range []uint32{2, 10, math.MaxUint32} {
				name.Gen = gen
				want = append(want, name)
			}
		}
	}
	shuffled := slices.Clone(want)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for _, name := range shuffled {
		put(t, b, name, []byte("x"))
	}
	put(t, b, numbered(cas.KindBlob, 5, 0), []byte("x"))
	foreign := numbered(cas.KindPack, 6, 0)
	foreign.Tenant = other
	put(t, b, foreign, []byte("x"))

	slices.SortFunc(want, cas.Name.Compare)
	if got := list(t, b, tenant, cas.KindPack, nil); !slices.Equal(got, want) {
		t.Errorf("List = %d names, want %d in ascending order", len(got), len(want))
	}
	if got := list(t, b, other, cas.KindPack, nil); !slices.Equal(got, []cas.Name{foreign}) {
		t.Errorf("List of the other tenant = %v", got)
	}
	if got := list(t, b, other, cas.KindBlob, nil); len(got) != 0 {
		t.Errorf("List of an absent kind = %v", got)
	}
	if got := list(t, b, cas.TenantOf("nobody"), cas.KindBlob, nil); len(got) != 0 {
		t.Errorf("List of an absent tenant = %v", got)
	}
}

func listPrefix(t *testing.T, b cas.Backend) {
	names := []cas.Name{
		numbered(cas.KindBlob, 0x01000000, 0),
		numbered(cas.KindBlob, 0x01020000, 0),
		numbered(cas.KindBlob, 0x01020300, 0),
		numbered(cas.KindBlob, 0x01020300, 1),
		numbered(cas.KindBlob, 0x02020300, 0),
	}
	for _, name := range names {
		put(t, b, name, []byte("x"))
	}
	for name, test := range map[string]struct {
		prefix []byte
		want   []cas.Name
	}{
		"one byte":  {[]byte{1}, names[:4]},
		"two bytes": {[]byte{1, 2}, names[1:4]},
		"whole ID":  {names[2].ID[:], names[2:4]},
		"nothing":   {[]byte{3}, nil},
		"too long":  {append(names[2].ID[:], 0), nil},
	} {
		if got := list(t, b, tenant, cas.KindBlob, test.prefix); !slices.Equal(got, test.want) {
			t.Errorf("%s: List(%x) = %v, want %v", name, test.prefix, got, test.want)
		}
	}
}

func listStop(t *testing.T, b cas.Backend) {
	for i := range uint32(10) {
		put(t, b, numbered(cas.KindBlob, i<<24, 0), []byte("x"))
	}
	seen := 0
	for _, err := range b.List(t.Context(), tenant, cas.KindBlob, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3 {
			break // a List that goes on panics here
		}
	}
}

func listCancelled(t *testing.T, b cas.Backend) {
	put(t, b, numbered(cas.KindBlob, 1, 0), []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, kind := range []cas.Kind{cas.KindBlob, cas.KindPack} {
		var last error
		for _, err := range b.List(ctx, tenant, kind, nil) {
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("List(%v) ended with %v, want context.Canceled", kind, last)
		}
	}
}

func deleteBoth(t *testing.T, b cas.Backend) {
	keep, drop, missing := numbered(cas.KindBlob, 1, 0), numbered(cas.KindBlob, 1, 1), numbered(cas.KindBlob, 2, 0)
	put(t, b, keep, []byte("keep"))
	put(t, b, drop, []byte("drop"))
	if err := b.Delete(t.Context(), missing, drop, drop); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if err := b.Delete(t.Context()); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
	if _, err := get(t, b, drop, 0, -1); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("Get after Delete: error = %v, want ErrNotFound", err)
	}
	wantBytes(t, b, keep, []byte("keep"))
	if got := list(t, b, tenant, cas.KindBlob, nil); !slices.Equal(got, []cas.Name{keep}) {
		t.Errorf("List after Delete = %v", got)
	}
}

func deleteReput(t *testing.T, b cas.Backend) {
	data := random(20, 5000)
	put(t, b, blob(data), data)
	if err := b.Delete(t.Context(), blob(data)); err != nil {
		t.Fatal(err)
	}
	put(t, b, blob(data), data)
	wantBytes(t, b, blob(data), data)
}

func newStage(t *testing.T, b cas.Backend, pieces ...[]byte) cas.Stage {
	t.Helper()
	s, err := cas.NewStage(t.Context(), b, tenant)
	if err != nil {
		t.Fatalf("NewStage: %v", err)
	}
	t.Cleanup(func() { s.Discard() })
	var off int64
	for _, p := range pieces {
		if n, err := s.WriteAt(p, off); n != len(p) || err != nil {
			t.Fatalf("WriteAt = %d, %v", n, err)
		}
		off += int64(len(p))
	}
	return s
}

func stageCommit(t *testing.T, b cas.Backend) {
	data := random(21, 300_000)
	s := newStage(t, b, data[:1], data[1:100_000], data[100_000:])
	got := make([]byte, 1000)
	if n, err := s.ReadAt(got, 99_500); n != 1000 || err != nil || !bytes.Equal(got, data[99_500:100_500]) {
		t.Errorf("ReadAt = %d, %v", n, err)
	}
	if n, err := s.ReadAt(got, 299_900); n != 100 || err != io.EOF {
		t.Errorf("ReadAt at the end = %d, %v; want 100, EOF", n, err)
	}
	if err := s.Commit(t.Context(), blob(data), int64(len(data))); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	wantBytes(t, b, blob(data), data)
	empty := newStage(t, b)
	if err := empty.Commit(t.Context(), blob(nil), 0); err != nil {
		t.Fatalf("Commit of an empty object: %v", err)
	}
	wantBytes(t, b, blob(nil), nil)
}

func stageHidden(t *testing.T, b cas.Backend) {
	data := random(22, 1000)
	newStage(t, b, data)
	wantNothing(t, b, blob(data))
}

func stageDiscard(t *testing.T, b cas.Backend) {
	data := random(23, 1000)
	s := newStage(t, b, data)
	for range 2 {
		if err := s.Discard(); err != nil {
			t.Errorf("Discard: %v", err)
		}
	}
	if err := s.Commit(t.Context(), blob(data), 1000); err == nil {
		t.Error("Commit after Discard succeeded")
	}
	wantNothing(t, b, blob(data))
}

func stageSize(t *testing.T, b cas.Backend) {
	data := random(24, 1000)
	for _, size := range []int64{0, 999, 1001, -1} {
		s := newStage(t, b, data)
		if err := s.Commit(t.Context(), blob(data), size); !errors.Is(err, cas.ErrSize) {
			t.Errorf("Commit of 1000 bytes as %d: error = %v, want ErrSize", size, err)
		}
		wantNothing(t, b, blob(data))
	}
}

func stageTaken(t *testing.T, b cas.Backend) {
	name := numbered(cas.KindBlob, 1, 0)
	put(t, b, name, []byte("first"))
	if err := newStage(t, b, []byte("second")).Commit(t.Context(), name, 6); err != nil {
		t.Errorf("Commit to a taken name: %v", err)
	}
	wantBytes(t, b, name, []byte("first"))
}

func stageCancelled(t *testing.T, b cas.Backend) {
	data := random(25, 1000)
	s := newStage(t, b, data)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, blob(data), 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit error = %v, want context.Canceled", err)
	}
	if _, err := cas.NewStage(ctx, b, tenant); !errors.Is(err, context.Canceled) {
		t.Errorf("NewStage error = %v, want context.Canceled", err)
	}
	wantNothing(t, b, blob(data))
}

func stageUsedUp(t *testing.T, b cas.Backend) {
	data := random(26, 1000)
	s := newStage(t, b, data)
	if err := s.Commit(t.Context(), blob(data), 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte("x"), 0); err == nil {
		t.Error("WriteAt after Commit succeeded")
	}
	if err := s.Discard(); err != nil {
		t.Errorf("Discard after Commit: %v", err)
	}
	wantBytes(t, b, blob(data), data)
}

func openMissing(t *testing.T, b cas.Backend) {
	if _, err := cas.OpenObject(t.Context(), b, numbered(cas.KindBlob, 1, 0)); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("OpenObject error = %v, want ErrNotFound", err)
	}
}

func openReadAt(t *testing.T, b cas.Backend) {
	for _, size := range []int{0, 1, 16_384, 16_385, 100_000} {
		data := random(uint64(size), size)
		put(t, b, blob(data), data)
		o, err := cas.OpenObject(t.Context(), b, blob(data))
		if err != nil {
			t.Fatalf("OpenObject: %v", err)
		}
		defer o.Close()
		if o.Size() != int64(size) {
			t.Errorf("Size = %d, want %d", o.Size(), size)
		}
		// io.SectionReader and io.ReadAll exercise the rules of io.ReaderAt.
		got, err := io.ReadAll(io.NewSectionReader(o, 0, math.MaxInt64))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("reading %d bytes gave %d, error %v", size, len(got), err)
		}
		buf := make([]byte, 10)
		if n, err := o.ReadAt(buf, int64(size)-min(5, int64(size))); n != min(5, size) || err != io.EOF {
			t.Errorf("ReadAt across the end of %d = %d, %v; want %d, EOF", size, n, err, min(5, size))
		}
	}
}

func openParallel(t *testing.T, b cas.Backend) {
	data := random(27, 200_000)
	put(t, b, blob(data), data)
	o, err := cas.OpenObject(t.Context(), b, blob(data))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			buf := make([]byte, 1000)
			for range 500 {
				off := rng.IntN(len(data) - len(buf))
				if n, err := o.ReadAt(buf, int64(off)); err != nil || !bytes.Equal(buf[:n], data[off:off+1000]) {
					t.Errorf("ReadAt(%d) = %d bytes, error %v, or wrong bytes", off, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
