package bench_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

var size = flag.Int64("size", 256<<20, "bytes of the file that is put and read")

// A fixture is a file of incompressible bytes on disk, and a store that holds it.
type fixture struct {
	file  string
	store *leafproof.Store
	dir   string
	id    string
}

func setup(b *testing.B) *fixture {
	b.Helper()
	f := &fixture{file: filepath.Join(b.TempDir(), "data"), dir: filepath.Join(b.TempDir(), "store")}
	w, err := os.Create(f.file)
	check(b, err)
	var seed [32]byte
	_, err = io.CopyN(w, rand.NewChaCha8(seed), *size)
	check(b, err)
	check(b, w.Sync())
	check(b, w.Close())
	check(b, leafproof.Init(b.Context(), f.dir))
	f.store, err = leafproof.Open(b.Context(), f.dir)
	check(b, err)
	b.Cleanup(func() { f.store.Close() })
	f.id = f.put(b, f.store)
	return f
}

func (f *fixture) put(b *testing.B, s *leafproof.Store) string {
	b.Helper()
	r, err := os.Open(f.file)
	check(b, err)
	defer r.Close()
	d, err := s.Put(b.Context(), r, leafproof.PutOptions{Records: "none"})
	check(b, err)
	ref, err := s.Publish(b.Context(), d, leafproof.Facts{})
	check(b, err)
	return ref.ArtifactID
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// peer runs a program, and skips where the machine lacks it.
func peer(b *testing.B, name string, args ...string) {
	b.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		b.Skipf("no %s on this machine", name)
	}
	for b.Loop() {
		cmd := exec.Command(path, args...)
		out, err := cmd.StdoutPipe()
		check(b, err)
		check(b, cmd.Start())
		_, err = io.Copy(io.Discard, out)
		check(b, err)
		check(b, cmd.Wait())
	}
}

func start(b *testing.B, n int64) {
	b.SetBytes(n)
	b.ReportAllocs()
}

// BenchmarkPut keeps a file durably: every iteration in a store of its own, since
// a second put of the same bytes would store nothing.
func BenchmarkPut(b *testing.B) {
	f := setup(b)
	b.Run("tool=leafproof", func(b *testing.B) {
		start(b, *size)
		n := 0
		for b.Loop() {
			b.StopTimer()
			dir := filepath.Join(b.TempDir(), fmt.Sprint(n))
			n++
			check(b, leafproof.Init(b.Context(), dir))
			s, err := leafproof.Open(b.Context(), dir)
			check(b, err)
			b.StartTimer()
			f.put(b, s)
			b.StopTimer()
			check(b, s.Close())
			check(b, os.RemoveAll(dir))
			b.StartTimer()
		}
	})
	b.Run("tool=cp+sync", func(b *testing.B) {
		start(b, *size)
		to := filepath.Join(b.TempDir(), "copy")
		peer(b, "sh", "-c", `rm -f "$2" && cp "$1" "$2" && sync "$2"`, "sh", f.file, to)
	})
}

func BenchmarkRead(b *testing.B) {
	f := setup(b)
	b.Run("tool=leafproof", func(b *testing.B) {
		start(b, *size)
		for b.Loop() {
			_, err := f.store.Read(b.Context(), leafproof.Owner, f.id, leafproof.Selector{}, io.Discard)
			check(b, err)
		}
	})
	b.Run("tool=cat", func(b *testing.B) {
		start(b, *size)
		peer(b, "cat", f.file)
	})
}

// BenchmarkRandomRead reads 64 KiB at random offsets.
func BenchmarkRandomRead(b *testing.B) {
	const n = 64 << 10
	f := setup(b)
	rng := rand.New(rand.NewPCG(1, 2))
	at := func() int64 { return rng.Int64N(max(1, *size-n)) }
	b.Run("tool=leafproof", func(b *testing.B) {
		start(b, n)
		for b.Loop() {
			off := at()
			sel := leafproof.Selector{Bytes: &merkle.Range{Start: off, End: min(off+n, *size)}}
			_, err := f.store.Read(b.Context(), leafproof.Owner, f.id, sel, io.Discard)
			check(b, err)
		}
	})
	b.Run("tool=pread", func(b *testing.B) {
		start(b, n)
		file, err := os.Open(f.file)
		check(b, err)
		defer file.Close()
		buf := make([]byte, n)
		for b.Loop() {
			_, err := file.ReadAt(buf, at())
			check(b, err)
		}
	})
}

func BenchmarkRoot(b *testing.B) {
	f := setup(b)
	b.Run("tool=leafproof", func(b *testing.B) {
		start(b, *size)
		file, err := os.Open(f.file)
		check(b, err)
		defer file.Close()
		for b.Loop() {
			_, err := merkle.BuildAt(b.Context(), file, *size, nil)
			check(b, err)
		}
	})
	b.Run("tool=b3sum", func(b *testing.B) {
		start(b, *size)
		peer(b, "b3sum", f.file)
	})
	b.Run("tool=b3sum-no-mmap", func(b *testing.B) {
		start(b, *size)
		peer(b, "b3sum", "--no-mmap", f.file)
	})
}

// BenchmarkExcerpt writes and verifies bundles of several sizes.
func BenchmarkExcerpt(b *testing.B) {
	f := setup(b)
	text, err := os.ReadFile(leafproof.PolicyPath(f.dir))
	check(b, err)
	policy, err := manifest.ParsePolicy(text)
	check(b, err)
	for _, n := range []int64{1 << 10, 64 << 10, 1 << 20} {
		sel := leafproof.Selector{Bytes: &merkle.Range{Start: *size / 3, End: *size/3 + n}}
		var proof bytes.Buffer
		b.Run(fmt.Sprintf("step=prove/size=%d", n), func(b *testing.B) {
			start(b, n)
			for b.Loop() {
				proof.Reset()
				_, err := f.store.Prove(b.Context(), leafproof.Owner, f.id, sel, &proof)
				check(b, err)
			}
			b.ReportMetric(float64(proof.Len()), "file-bytes")
		})
		b.Run(fmt.Sprintf("step=verify/size=%d", n), func(b *testing.B) {
			start(b, n)
			for b.Loop() {
				res, err := bundle.Verify(bytes.NewReader(proof.Bytes()), int64(proof.Len()), bundle.Options{Policy: policy, At: time.Now()})
				check(b, err)
				if res.Verdict.Exit() != 0 {
					b.Fatal(res.Verdict.Sentence())
				}
			}
		})
	}
}
