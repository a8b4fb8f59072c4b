package cas_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

func TestBatch(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	b := s.Begin(t.Context(), tenant)
	var blobs [][]byte
	for i := range 300 {
		blobs = append(blobs, random(uint64(i), i*7))
	}
	for range 2 {
		for _, data := range blobs {
			info, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto)
			if err != nil || info.Root != merkle.Sum(data) {
				t.Fatalf("Put = %+v, %v", info, err)
			}
		}
	}
	if got := objects(t, dir); len(got) != 0 {
		t.Errorf("before Commit the store has %s", count(got))
	}
	for _, data := range blobs {
		r, err := b.Open(t.Context(), merkle.Sum(data), int64(len(data)))
		if err != nil {
			t.Fatalf("Batch.Open: %v", err)
		}
		got := make([]byte, len(data))
		if _, err := r.ReadAt(got, 0); err != nil && len(data) > 0 || !bytes.Equal(got, data) {
			t.Fatalf("Batch read: %v", err)
		}
		if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("before Commit, Store.Open error = %v, want ErrNotFound", err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := count(objects(t, dir)); got != "pack 1 blob 0 obao 0" {
		t.Errorf("after Commit the store has %s", got)
	}
	for _, s := range []*cas.Store{s, onDisk(t, dir)} {
		for _, data := range blobs {
			if err := read(t, s, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := b.Put(t.Context(), bytes.NewReader(nil), cas.Auto); !errors.Is(err, cas.ErrClosed) {
		t.Errorf("Put after Commit: error = %v, want ErrClosed", err)
	}
	if err := b.Commit(t.Context()); !errors.Is(err, cas.ErrClosed) {
		t.Errorf("Commit after Commit: error = %v, want ErrClosed", err)
	}
}

func TestBatchDiscard(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	b := s.Begin(t.Context(), tenant)
	if _, err := b.Put(t.Context(), strings.NewReader("abc"), cas.Auto); err != nil {
		t.Fatal(err)
	}
	b.Discard()
	if got := objects(t, dir); len(got) != 0 {
		t.Errorf("after Discard the store has %v", got)
	}
	if err := read(t, s, []byte("abc")); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("Open error = %v, want ErrNotFound", err)
	}
}

// A batch that is larger than its buffer rolls over into several packs.
func TestBatchRollsOver(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	b := s.Begin(t.Context(), tenant)
	const n = 2500 // of 16 KiB: two and a half buffers
	for i := range uint64(n) {
		if _, err := b.Put(t.Context(), bytes.NewReader(random(i, 16384)), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	packs := objects(t, dir)["pack"]
	if len(packs) != 3 {
		t.Errorf("%d packs, want 3", len(packs))
	}
	for _, path := range packs {
		if info, err := os.Stat(path); err != nil || info.Size() > 64<<20 {
			t.Errorf("%s has %d bytes, %v", path, info.Size(), err)
		}
	}
	s = onDisk(t, dir)
	for i := range uint64(n) {
		if err := read(t, s, random(i, 16384)); err != nil {
			t.Fatal(err)
		}
	}
}

// The keys of many tiny blobs count: no pack becomes too large to be read.
func TestBatchOfTinyBlobs(t *testing.T) {
	dir := t.TempDir()
	b := onDisk(t, dir).Begin(t.Context(), tenant)
	const n = 350_000 // of 4 bytes, and 44 in the footer
	var p [4]byte
	for i := range uint32(n) {
		binary.LittleEndian.PutUint32(p[:], i)
		if _, err := b.Put(t.Context(), bytes.NewReader(p[:]), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	packs := objects(t, dir)["pack"]
	if len(packs) != 2 {
		t.Errorf("%d packs, want 2", len(packs))
	}
	for _, path := range packs {
		if info, err := os.Stat(path); err != nil || info.Size() > 17<<20 {
			t.Errorf("%s has %d bytes, %v", path, info.Size(), err)
		}
	}
	s := onDisk(t, dir)
	for _, i := range []uint32{0, n / 2, n - 1} {
		binary.LittleEndian.PutUint32(p[:], i)
		if err := read(t, s, p[:]); err != nil {
			t.Error(err)
		}
	}
}

// A batch whose packs cannot be written refuses more than its buffer takes, and
// writes what it took when it can.
func TestBatchKeepsItsBound(t *testing.T) {
	full := &fullBackend{Backend: memory.New(), full: true}
	s := cas.New(full, cas.Options{})
	b := s.Begin(t.Context(), tenant)
	var taken, refused [][]byte
	for i := range uint64(1050) { // of 16 KiB: a buffer and some
		data := random(i, 16384)
		switch _, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto); {
		case err == nil:
			taken = append(taken, data)
		case errors.Is(err, cas.ErrFull):
			refused = append(refused, data)
		default:
			t.Fatal(err)
		}
	}
	if len(taken) > 1024 {
		t.Errorf("the batch took %d blobs of 16 KiB", len(taken))
	}
	full.full = false
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, data := range taken {
		if err := read(t, s, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, data := range refused {
		if err := read(t, s, data); !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("a blob that was refused: error = %v, want ErrNotFound", err)
		}
	}
}

type fullBackend struct {
	cas.Backend
	full bool
}

func (b *fullBackend) Put(ctx ctx, name cas.Name, r io.Reader, size int64) error {
	if b.full {
		return cas.ErrFull
	}
	return b.Backend.Put(ctx, name, r, size)
}
