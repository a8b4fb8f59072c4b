package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

// check runs a check to its end.
func check(t testing.TB, s *cas.Store, o cas.CheckOptions) []cas.Finding {
	t.Helper()
	var out []cas.Finding
	for f, err := range s.Check(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Err == nil {
			t.Errorf("a finding without an error: %+v", f)
		}
		out = append(out, f)
	}
	return out
}

func harmful(found []cas.Finding) []cas.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f cas.Finding) bool { return !f.Harms() })
}

// touches reports whether the findings name a blob, or leave open which they touch.
func touches(found []cas.Finding, root merkle.Root) bool {
	return slices.ContainsFunc(found, func(f cas.Finding) bool {
		return f.All || slices.ContainsFunc(f.Blobs, func(b cas.BlobDamage) bool { return b.Root == root })
	})
}

// checkedStore has a whole blob, a small whole one, and two packs.
func checkedStore(t testing.TB, dir string) map[string][]byte {
	s := onDisk(t, dir)
	blobs := map[string][]byte{
		"whole": random(1, 19<<14+100), "other": random(2, 2<<14), "small": random(3, 900),
		"chunked":  bytes.Repeat(random(6, 9_000), 30),
		"packed a": random(4, 3000), "packed b": random(5, 70), "empty": {},
	}
	put(t, s, blobs["whole"], cas.Whole)
	put(t, s, blobs["other"], cas.Whole)
	put(t, s, blobs["small"], cas.Whole)
	put(t, s, blobs["chunked"], cas.Chunked)
	put(t, s, blobs["packed a"], cas.Packed)
	put(t, s, blobs["packed b"], cas.Packed)
	put(t, s, blobs["empty"], cas.Packed)
	if err := s.RebuildIndex(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	return blobs
}

func TestCheckSound(t *testing.T) {
	dir := t.TempDir()
	blobs := checkedStore(t, dir)
	for _, deep := range []bool{false, true} {
		var read int64
		var mu sync.Mutex
		roots := make(map[merkle.Root]int)
		found := check(t, onDisk(t, dir), cas.CheckOptions{
			Deep:     deep,
			Progress: func(n int64) { mu.Lock(); read += n; mu.Unlock() },
			Visit: func(_ cas.Name, _ int64, in iter.Seq[merkle.Root]) {
				for r := range in {
					roots[r]++
				}
			},
		})
		if len(found) != 0 {
			t.Errorf("deep %v: found %+v in a sound store", deep, found)
		}
		for name, data := range blobs {
			if roots[merkle.Sum(data)] != 1 {
				t.Errorf("deep %v: %s was visited %d times", deep, name, roots[merkle.Sum(data)])
			}
		}
		if all := int64(21<<14 + 1000); deep != (read > all) {
			t.Errorf("deep %v: read %d bytes", deep, read)
		}
	}
}

// Every damage of every kind of object is found, is laid to the blobs it
// touches and to no others, and, where the bytes are still there, is mended.
func TestCheckDamage(t *testing.T) {
	for _, kind := range []string{"blob", "obao", "pack", "index", "rcpe"} {
		for name, damage := range damages {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				blobs := checkedStore(t, dir)
				path := objects(t, dir)[kind][0]
				rewrite(t, path, damage)
				s := onDisk(t, dir)
				found := harmful(check(t, s, cas.CheckOptions{Deep: true}))
				if len(found) == 0 {
					t.Fatal("nothing was found")
				}
				if strings.HasPrefix(name, "empty") && found[0].Fault != cas.FaultEmpty ||
					name == "zero-filled" && found[0].Fault != cas.FaultZeros {
					t.Errorf("fault = %q", found[0].Fault)
				}
				for what, data := range blobs {
					err := read(t, onDisk(t, dir), data)
					if err != nil && !touches(found, merkle.Sum(data)) {
						t.Errorf("%s does not read (%v), and the findings do not name it: %+v", what, err, found)
					}
					bad, err := s.Uncached().Unreadable(t.Context(), tenant, merkle.Sum(data), int64(len(data)))
					if whole := read(t, onDisk(t, dir), data) == nil; err != nil || whole != (len(bad) == 0) && len(data) > 0 {
						t.Errorf("%s: reads %v, Unreadable = %v, %v", what, whole, bad, err)
					}
				}
				mended := false
				for _, f := range found {
					done, err := s.Repair(t.Context(), f)
					if err != nil {
						t.Fatal(err)
					}
					mended = mended || done != ""
				}
				left := harmful(check(t, onDisk(t, dir), cas.CheckOptions{Deep: true}))
				wantMended := kind == "obao" || kind == "index" || kind == "pack" && !slices.Contains([]string{"empty", "half", "zero-filled", "foreign", "middle byte flipped"}, name)
				if mended != (len(left) == 0) || wantMended && !mended {
					t.Errorf("mended %v, and left is %+v", mended, left)
				}
				if _, err := os.Stat(path); err != nil && kind != "index" {
					t.Errorf("the damaged object is gone: %v", err)
				}
				// The same bytes again heal what no repair can.
				s = onDisk(t, dir)
				for what, data := range blobs {
					place := cas.Whole
					switch {
					case what == "chunked":
						place = cas.Chunked
					case strings.HasPrefix(what, "packed") || what == "empty":
						place = cas.Packed
					}
					put(t, s, data, place)
					if err := read(t, onDisk(t, dir), data); err != nil {
						t.Errorf("%s after a second put: %v", what, err)
					}
				}
			})
		}
	}
}

func TestCheckMissing(t *testing.T) {
	for kind, fault := range map[string]cas.Fault{"obao": cas.FaultOutboard, "blob": cas.FaultOrphan} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			blobs := checkedStore(t, dir)
			gone := ""
			for _, path := range objects(t, dir)[kind] {
				if strings.Contains(path, merkle.Sum(blobs["whole"]).String()) {
					gone = path
				}
			}
			if err := os.Remove(gone); err != nil {
				t.Fatal(err)
			}
			for _, deep := range []bool{false, true} {
				found := check(t, onDisk(t, dir), cas.CheckOptions{Deep: deep})
				if len(found) != 1 || found[0].Fault != fault || !touches(found, merkle.Sum(blobs["whole"])) {
					t.Fatalf("deep %v: found %+v", deep, found)
				}
			}
			s := onDisk(t, dir)
			if kind == "obao" {
				f := check(t, s, cas.CheckOptions{Deep: true})[0]
				if done, err := s.Repair(t.Context(), f); err != nil || done == "" {
					t.Fatalf("Repair = %q, %v", done, err)
				}
				if err := read(t, onDisk(t, dir), blobs["whole"]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// What is no object is told of, and harms nothing.
func TestCheckStrays(t *testing.T) {
	dir := t.TempDir()
	checkedStore(t, dir)
	folder := tenant.String()
	strays := map[string]cas.Fault{
		"README": cas.FaultForeign, folder + "/blob/00/x": cas.FaultForeign, folder + "/blob/zz": cas.FaultForeign,
		folder + "/tmp/.tmp-0011": cas.FaultTemp, folder + "/pack/0a/.tmp-22": cas.FaultTemp, folder + "/else": cas.FaultForeign,
		strings.Repeat("f", 31): cas.FaultForeign,
	}
	for name := range strays {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got := make(map[string]cas.Fault)
	for _, f := range check(t, onDisk(t, dir), cas.CheckOptions{}) {
		if f.Harms() {
			t.Errorf("%+v harms", f)
		}
		got[f.Path] = f.Fault
	}
	if fmt.Sprint(got) != fmt.Sprint(strays) {
		t.Errorf("strays = %v, want %v", got, strays)
	}
}

// A check that is interrupted at any object and goes on from where it was finds
// what an uninterrupted one finds, each once.
func TestCheckResume(t *testing.T) {
	dir := t.TempDir()
	checkedStore(t, dir)
	for _, paths := range objects(t, dir) {
		for _, p := range paths {
			rewrite(t, p, damages["last byte flipped"])
		}
	}
	key := func(f cas.Finding) string { return f.Name.String() + " " + string(f.Fault) }
	var want []string
	for _, f := range check(t, onDisk(t, dir), cas.CheckOptions{Deep: true}) {
		want = append(want, key(f))
	}
	if len(want) < 5 {
		t.Fatalf("only %d findings", len(want))
	}
	for step := 1; step < 5; step++ {
		var got []string
		for from, rounds := "", 0; ; rounds++ {
			if rounds > 50 {
				t.Fatal("it never ends")
			}
			ctx, cancel := context.WithCancel(t.Context())
			steps := 0
			o := cas.CheckOptions{Deep: true, From: from, Position: func(p string) {
				from = p
				if steps++; steps == step {
					cancel()
				}
			}}
			var err error
			for f, e := range onDisk(t, dir).Check(ctx, o) {
				if err = e; e == nil {
					got = append(got, key(f))
				}
			}
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in steps of %d: found %d, want %d", step, len(got), len(want))
		}
	}
	for _, err := range onDisk(t, dir).Check(t.Context(), cas.CheckOptions{From: "nowhere"}) {
		if !errors.Is(err, cas.ErrName) {
			t.Errorf("a position that is none: %v", err)
		}
	}
}

func TestCheckRate(t *testing.T) {
	dir := t.TempDir()
	checkedStore(t, dir)
	start := time.Now()
	check(t, onDisk(t, dir), cas.CheckOptions{Deep: true, BytesPerSecond: 2 << 20}) // of some 350 KB
	if took := time.Since(start); took < 120*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// flipped is a Backend with one object changed.
type flipped struct {
	*memory.Backend
	name cas.Name
	data []byte
}

func (f flipped) OpenAt(ctx context.Context, name cas.Name) (cas.Object, error) {
	if name == f.name {
		return readerObject{bytes.NewReader(f.data)}, nil
	}
	return f.Backend.OpenAt(ctx, name)
}

func (f flipped) Get(ctx context.Context, name cas.Name, off, n int64) (io.ReadCloser, error) {
	if name != f.name {
		return f.Backend.Get(ctx, name, off, n)
	}
	if n < 0 {
		n = int64(len(f.data)) - off
	}
	return io.NopCloser(bytes.NewReader(f.data[off : off+n])), nil
}

type readerObject struct{ *bytes.Reader }

func (readerObject) Close() error { return nil }

// One bit of each byte of each object of a store of 64 KiB is flipped: a deep
// check finds each, and no read gives a wrong byte. No byte of an object is
// irrelevant. Without LEAFPROOF_EXHAUSTIVE, which takes half a minute, it is
// each thirteenth byte.
func TestCheckEveryByte(t *testing.T) {
	b := memory.New()
	s := cas.New(b, cas.Options{})
	blobs := [][]byte{random(1, 2<<14+100), bytes.Repeat(random(6, 2_000), 15), random(2, 1000), random(3, 10_000), random(4, 3)}
	put(t, s, blobs[0], cas.Auto)
	put(t, s, blobs[1], cas.Chunked)
	batch := s.Begin(t.Context(), tenant)
	for _, p := range blobs[2:] {
		if _, err := batch.Put(t.Context(), bytes.NewReader(p), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.RebuildIndex(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	stride := 13
	switch {
	case os.Getenv("LEAFPROOF_EXHAUSTIVE") != "":
		stride = 1
	case testing.Short(): // under the race detector
		stride = 130
	}
	type flip struct {
		name cas.Name
		data []byte
		at   int
	}
	work := make(chan flip)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for w := range work {
				data := bytes.Clone(w.data)
				data[w.at] ^= 1 << (w.at % 8)
				s := cas.New(flipped{b, w.name, data}, cas.Options{CacheBytes: -1})
				found := harmful(check(t, s, cas.CheckOptions{Deep: true}))
				own := slices.DeleteFunc(slices.Clone(found), func(f cas.Finding) bool {
					return f.Fault == cas.FaultChunks && w.name.Kind == cas.KindPack // whom it reaches
				})
				if len(own) != 1 || own[0].Name != w.name {
					t.Errorf("byte %d of %v: found %+v", w.at, w.name, found)
				}
				for _, p := range blobs {
					got, err := readBack(t.Context(), s, p)
					if !bytes.Equal(got, p[:len(got)]) || err == nil && len(got) != len(p) {
						t.Errorf("byte %d of %v: a read gave wrong bytes", w.at, w.name)
					}
					if err != nil && !touches(found, merkle.Sum(p)) {
						t.Errorf("byte %d of %v: a blob does not read, and is not named", w.at, w.name)
					}
				}
			}
		})
	}
	total := 0
	for _, kind := range cas.Kinds() {
		for name, err := range b.List(t.Context(), tenant, kind, nil) {
			if err != nil {
				t.Fatal(err)
			}
			r, err := b.Get(t.Context(), name, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(r)
			for at := 0; at < len(data); at += stride {
				work <- flip{name, data, at}
				total++
			}
		}
	}
	close(work)
	workers.Wait()
	t.Logf("%d bytes flipped", total)
}

func readBack(ctx context.Context, s *cas.Store, p []byte) ([]byte, error) {
	r, err := s.Open(ctx, tenant, merkle.Sum(p), int64(len(p)))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	got := make([]byte, len(p))
	n, err := r.ReadAt(got, 0)
	if err == io.EOF {
		err = nil
	}
	return got[:n], err
}

// TestCheckShallowChunks: also without reading the bytes, a check tells that a
// pack with chunks is gone, and which bytes went with it; with a second copy of
// them none did.
func TestCheckShallowChunks(t *testing.T) {
	dir := t.TempDir()
	s := onDisk(t, dir)
	cas.Stream(s, 0, 200_000) // several packs
	data := random(1, 1_000_000)
	put(t, s, data, cas.Chunked)
	check := func() (found []cas.Finding) {
		for f, err := range onDisk(t, dir).Check(t.Context(), cas.CheckOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Harms() {
				found = append(found, f)
			}
		}
		return found
	}
	if found := check(); len(found) > 0 {
		t.Fatalf("a sound store: %+v", found)
	}
	packs, err := filepath.Glob(filepath.Join(dir, "*", "pack", "*", "*"))
	if err != nil || len(packs) < 3 {
		t.Fatalf("%q, %v", packs, err)
	}
	all := 0
	for _, pack := range packs {
		text, err := os.ReadFile(pack)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(pack); err != nil {
			t.Fatal(err)
		}
		found := check()
		if len(found) != 1 || found[0].Fault != cas.FaultChunks || len(found[0].Blobs) != 1 || len(found[0].Blobs[0].Ranges) == 0 {
			t.Errorf("without %s: %+v", filepath.Base(pack), found)
		} else if lost := sizeOf(found[0].Blobs[0].Ranges); lost > int64(len(text))+2*merkle.GroupSize {
			all++ // the pack with the recipe's page, without which nothing is found
		}
		if err := os.WriteFile(pack, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found := check(); len(found) > 0 || all > 1 {
		t.Errorf("all is back: %+v; with %d packs too much was lost", found, all)
	}
}

func sizeOf(ranges []merkle.Range) (n int64) {
	for _, r := range ranges {
		n += r.End - r.Start
	}
	return n
}
