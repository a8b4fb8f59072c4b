package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

func openUpload(t *testing.T, s *cas.Store, id string) *cas.Upload {
	t.Helper()
	u, err := s.Upload(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// uploadFiles are the files of uploads below dir.
func uploadFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".upl-") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// An upload that is cut again and again goes on where it was, each time in
// another Store, and ends as the blob that a put would have made.
func TestUpload(t *testing.T) {
	for _, size := range []int{0, 1, 16384, 16385, 100_000, 3<<20 + 17} {
		for _, place := range []cas.Placement{cas.Auto, cas.Whole, cas.ChunkedRecords} {
			for _, pieces := range []int{1, 2, 5} {
				t.Run(fmt.Sprintf("size=%d/%s/pieces=%d", size, place, pieces), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					data := random(uint64(size), size)
					for i := range pieces {
						u := openUpload(t, onDisk(t, dir), "mine")
						if i > 0 && u.Size() != int64(i*size/pieces) {
							t.Fatalf("%d of %d bytes are there", u.Size(), i*size/pieces)
						}
						rest := io.LimitReader(bytes.NewReader(data[u.Size():]), int64((i+1)*size/pieces)-u.Size())
						if i < pieces-1 {
							rest = io.MultiReader(rest, &errReader{})
						}
						if err := u.Append(t.Context(), u.Size(), rest); i < pieces-1 != errors.Is(err, errOrdered) {
							t.Fatal(err)
						}
						if u.Root() != merkle.Sum(data[:u.Size()]) || u.Synced() != u.Size() {
							t.Fatalf("%d bytes, %d synced: another root than theirs", u.Size(), u.Synced())
						}
						u.Close()
					}
					s := onDisk(t, dir)
					u := openUpload(t, s, "mine")
					info, err := s.PutUpload(t.Context(), u, place)
					if err != nil || info.Root != merkle.Sum(data) || info.Size != int64(size) {
						t.Fatalf("%+v, %v", info, err)
					}
					if err := read(t, onDisk(t, dir), data); err != nil {
						t.Error(err)
					}
					for f, err := range s.Check(t.Context(), cas.CheckOptions{Deep: true}) {
						t.Errorf("check: %+v, %v", f, err)
					}
					if left := uploadFiles(t, dir); len(left) > 0 {
						t.Errorf("left is %q", left)
					}
					if err := u.Append(t.Context(), 0, bytes.NewReader(data)); !errors.Is(err, cas.ErrClosed) {
						t.Errorf("Append behind the end: %v", err)
					}
				})
			}
		}
	}
}

// Fill keeps what is the same, and replaces all from the first other byte on.
func TestUploadFill(t *testing.T) {
	data := random(1, 1_000_000)
	other := bytes.Clone(data)
	other[700_001] ^= 1
	for name, before := range map[string][]byte{
		"nothing": nil, "a part": data[:300_001], "all": data, "another": random(2, 500_000), "more": append(bytes.Clone(data), 1, 2, 3),
		"another in the middle": other, "a group": data[:16384], "another first byte": append([]byte{data[0] ^ 1}, data[1:]...),
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/again=%t", name, again), func(t *testing.T) {
				dir := t.TempDir()
				s := onDisk(t, dir)
				u := openUpload(t, s, "x")
				if err := u.Append(t.Context(), 0, bytes.NewReader(before)); err != nil {
					t.Fatal(err)
				}
				if again {
					u.Close()
					u = openUpload(t, s, "x")
				}
				if err := u.Fill(t.Context(), &slowly{r: bytes.NewReader(data)}); err != nil {
					t.Fatal(err)
				}
				if u.Size() != int64(len(data)) || u.Root() != merkle.Sum(data) {
					t.Fatalf("%d bytes", u.Size())
				}
				u.Close()
				u = openUpload(t, s, "x")
				if u.Size() != int64(len(data)) || u.Root() != merkle.Sum(data) {
					t.Fatalf("%d bytes when it is opened again", u.Size())
				}
				if _, err := s.PutUpload(t.Context(), u, cas.Whole); err != nil {
					t.Fatal(err)
				}
				if err := read(t, s, data); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Whatever becomes of the files of an upload between two processes, what is put
// in the end is what was sent.
func TestUploadDamaged(t *testing.T) {
	data := random(1, 200_000)
	for _, suffix := range []string{".data", ".log", ".mark"} {
		for name, harm := range map[string]func([]byte) []byte{
			"empty": func([]byte) []byte { return nil },
			"half":  func(p []byte) []byte { return p[:len(p)/2] },
			"zeros": func(p []byte) []byte { return make([]byte, len(p)) },
			"a bit": func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
			"more":  func(p []byte) []byte { return append(p, "more"...) },
			"gone":  nil,
		} {
			t.Run(name+suffix, func(t *testing.T) {
				dir := t.TempDir()
				u := openUpload(t, onDisk(t, dir), "x")
				if err := u.Append(t.Context(), 0, bytes.NewReader(data[:150_000])); err != nil {
					t.Fatal(err)
				}
				u.Close()
				for _, path := range uploadFiles(t, dir) {
					if !strings.HasSuffix(path, suffix) {
						continue
					}
					p, err := os.ReadFile(path)
					if harm == nil {
						err = os.Remove(path)
					} else if err == nil {
						err = os.WriteFile(path, harm(p), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				s := onDisk(t, dir)
				u = openUpload(t, s, "x")
				if suffix == ".log" && u.Size() != 150_000 {
					t.Errorf("%d bytes are left, and only the log was damaged", u.Size())
				}
				if err := u.Append(t.Context(), u.Size(), bytes.NewReader(data[u.Size():])); err != nil {
					t.Fatal(err)
				}
				info, err := s.PutUpload(t.Context(), u, cas.Whole)
				if name == "a bit" && suffix == ".data" { // it shows when it is put
					if !errors.Is(err, cas.ErrCorrupt) {
						t.Errorf("damaged bytes were put: %+v, %v", info, err)
					}
					if u := openUpload(t, s, "x"); u.Size() != 0 {
						t.Errorf("%d damaged bytes are kept", u.Size())
					}
					return
				}
				if err != nil || info.Root != merkle.Sum(data) {
					t.Fatalf("%+v, %v", info, err)
				}
				if err := read(t, s, data); err != nil {
					t.Error(err)
				}
				if left := uploadFiles(t, dir); len(left) > 0 {
					t.Errorf("left is %q", left)
				}
			})
		}
	}
}

// One at a time, each id by itself, and only a sender that agrees on where to go on.
func TestUploadRefuses(t *testing.T) {
	dir := t.TempDir()
	s, other := onDisk(t, dir), onDisk(t, dir)
	u := openUpload(t, s, "x")
	if err := u.Append(t.Context(), 0, strings.NewReader("abc")); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*cas.Store{"this": s, "another": other} {
		if _, err := s.Upload(t.Context(), tenant, "x"); !errors.Is(err, cas.ErrBusy) {
			t.Errorf("%s store, a second time: %v", name, err)
		}
	}
	if v := openUpload(t, other, "y"); v.Size() != 0 {
		t.Errorf("another id has %d bytes", v.Size())
	}
	for _, off := range []int64{-1, 0, 2, 4} {
		if err := u.Append(t.Context(), off, strings.NewReader("d")); !errors.Is(err, cas.ErrRange) {
			t.Errorf("Append at %d: %v", off, err)
		}
	}
	if _, err := s.Begin(t.Context(), cas.TenantOf("another")).PutUpload(t.Context(), u, cas.Auto); err == nil {
		t.Error("it was put for another tenant")
	}
	if err := u.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := openUpload(t, s, "x"); u.Size() != 0 {
		t.Errorf("%d bytes after Abort", u.Size())
	}
	plain := struct{ cas.Backend }{memory.New()}
	if _, err := cas.New(plain, cas.Options{}).Upload(t.Context(), tenant, "x"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a backend that keeps nothing: %v", err)
	}
}

// A sweep leaves an upload alone that was touched lately or is at work, and takes
// one that was not touched for long.
func TestUploadSwept(t *testing.T) {
	dir := t.TempDir()
	s := newSwept(t, diskAt(t, dir))
	u := openUpload(t, s.Store, "x")
	if err := u.Append(t.Context(), 0, bytes.NewReader(random(1, 50_000))); err != nil {
		t.Fatal(err)
	}
	u.Close()
	s.gc(t)
	s.gc(t)
	if u = openUpload(t, s.Store, "x"); u.Size() != 50_000 {
		t.Fatalf("%d bytes are left", u.Size())
	}
	age := func() {
		t.Helper()
		long := time.Now().Add(-cas.UploadKept - time.Hour)
		for _, path := range uploadFiles(t, dir) {
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	age()
	for range 3 { // somebody works on it
		if _, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots}); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Append(t.Context(), 50_000, bytes.NewReader(random(2, 50_000))); err != nil || u.Synced() != 100_000 {
		t.Errorf("%d bytes, %v", u.Synced(), err)
	}
	u.Close()
	age()
	for range 3 {
		s.gc(t)
	}
	if left := uploadFiles(t, dir); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}

func TestParseUploadMark(t *testing.T) {
	good := cas.UploadMark(7, 1000, false, merkle.Sum(nil))
	for name, c := range map[string]struct {
		p  []byte
		ok bool
	}{
		"good": {good, true}, "empty": {nil, false}, "cut": {good[:95], false}, "long": {append(bytes.Clone(good), 0), false},
		"nonce 0": {cas.UploadMark(0, 1000, false, merkle.Root{}), false}, "size below 0": {cas.UploadMark(7, -1, true, merkle.Root{}), false},
		"done": {cas.UploadMark(7, 0, true, merkle.Root{}), true},
	} {
		if _, err := cas.ParseUploadMark(c.p); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range len(good) * 8 {
		p := bytes.Clone(good)
		p[i/8] ^= 1 << (i % 8)
		if _, err := cas.ParseUploadMark(p); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("bit %d: %v", i, err)
		}
	}
}
