package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"leafproof/cas"
)

// A blob that is too large to wait goes into packs while it is cut. They are as
// good as others: it is read from them, it is not stored twice, neither within
// itself nor with the next put, and nothing else is left in the store.
func TestStream(t *testing.T) {
	half := lines(1, 1<<20)
	for name, data := range map[string][]byte{
		"lines": lines(2, 3<<20), "random": random(3, 3<<20), "twice": append(bytes.Clone(half), half...),
		"short": random(4, 100_000), // does not reach the stream
	} {
		for _, place := range chunkedPlaces {
			t.Run(fmt.Sprintf("%s/%s", name, place), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s := onDisk(t, dir)
				cas.Stream(s, 200_000, 400_000)
				batch := s.Begin(t.Context(), tenant)
				defer batch.Discard()
				small := numberedBytes(1, 500)
				for _, p := range [][]byte{small, data} {
					if _, err := batch.Put(t.Context(), bytes.NewReader(p), place); err != nil {
						t.Fatal(err)
					}
				}
				if err := batch.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, s := range []*cas.Store{s, onDisk(t, dir)} {
					if err := errors.Join(read(t, s, data), read(t, s, small)); err != nil {
						t.Error(err)
					}
				}
				before := stored(t, dir)
				if name == "twice" && before > int64(len(data))*6/10 {
					t.Errorf("%d bytes stored of %d", before, len(data))
				}
				put(t, s, data, place)
				if again := stored(t, dir); again != before {
					t.Errorf("%d bytes stored, and %d when it is put again", before, again)
				}
				if s.Damaged() != nil {
					t.Error(s.Damaged())
				}
				noneUnfinished(t, dir)
			})
		}
	}
}

// noneUnfinished fails when an unfinished file is left below dir.
func noneUnfinished(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".tmp-") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A reader that fails while packs are written leaves nothing unfinished, and what
// was written serves the next put.
func TestStreamFails(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	cas.Stream(s, 200_000, 400_000)
	data := random(1, 3<<20)
	_, err := s.Put(t.Context(), tenant, io.MultiReader(bytes.NewReader(data[:2<<20]), &errReader{}), cas.Chunked)
	if !errors.Is(err, errOrdered) {
		t.Fatalf("%v", err)
	}
	noneUnfinished(t, dir)
	put(t, s, data, cas.Chunked)
	if err := read(t, s, data); err != nil {
		t.Error(err)
	}
	if n := stored(t, dir); n > 3<<20+200_000 {
		t.Errorf("%d bytes stored of %d", n, len(data))
	}
}

// Several streams into one store, of blobs that share their bytes.
func TestStreamConcurrent(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	cas.Stream(s, 100_000, 200_000)
	shared := lines(1, 1<<20)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			data := append(bytes.Clone(shared), lines(uint64(10+i), 300_000)...)
			if _, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.ChunkedRecords); err != nil {
				t.Error(err)
				return
			}
			if err := read(t, s, data); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	noneUnfinished(t, dir)
}
