//go:build linux

package cas_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/merkle"
)

// manyEnv is how many small blobs TestManyBlobs stores: 2000000 is what it is for.
const manyEnv = "LEAFPROOF_MANY"

// numberedRoots are the roots of numbered blobs, but of each so many'th, found
// anew each time: a catalogue has them on a disk.
type numberedRoots struct{ count, size, not int }

func (r *numberedRoots) Tenants(ctx) ([]cas.Tenant, error) { return []cas.Tenant{tenant}, nil }

func (r *numberedRoots) Roots(_ ctx, _ cas.Tenant, after int64, keep func(...merkle.Root)) (int64, error) {
	for i := int(after); i < r.count; i++ {
		if i%r.not > 0 {
			keep(merkle.Sum(numberedBytes(i, r.size)))
		}
	}
	return int64(r.count), nil
}

// TestManyBlobs opens, checks and sweeps a store of very many small blobs within
// 256 MiB, which is what GOMEMLIMIT would set. It takes minutes, and runs when it
// is asked for.
func TestManyBlobs(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv(manyEnv))
	if err != nil {
		t.Skip("set " + manyEnv + " to a number of blobs")
	}
	const limit = 256 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	dir := t.TempDir()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := newSwept(t, b)
	const size, step = 120, 20_000
	each := func(what string, n int, do func()) {
		t.Helper()
		begin := time.Now()
		do()
		took := time.Since(begin)
		t.Logf("%-28s %8.1f s, %7.2f µs a blob; peak memory %d MB", what, took.Seconds(), took.Seconds()*1e6/float64(n), peakMemory(t)>>20)
	}
	each("put", count, func() {
		for i := 0; i < count; i += step {
			batch := s.Begin(t.Context(), tenant)
			for j := i; j < min(i+step, count); j++ {
				if _, err := batch.Put(t.Context(), bytes.NewReader(numberedBytes(j, size)), cas.Auto); err != nil {
					t.Fatal(err)
				}
			}
			if err := batch.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			batch.Discard()
		}
	})
	fresh := s.another(t)
	each("open", 1, func() {
		if err := fresh.Scan(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	})
	const gets = 20_000
	each("get", gets, func() {
		for i := range gets {
			if err := read(t, fresh, numberedBytes(1+i*(count/gets)/10*10, size)); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, deep := range []bool{false, true} {
		what := map[bool]string{false: "check", true: "check, deep"}[deep]
		each(what, count, func() {
			for f, err := range fresh.Check(t.Context(), cas.CheckOptions{Deep: deep}) {
				t.Fatalf("%+v, %v", f, err)
			}
		})
	}
	for _, not := range []int{10, 2} { // one of ten is garbage, then one of two
		each(fmt.Sprintf("gc of one of %d", not), count, func() {
			report, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: &numberedRoots{count, size, not}})
			if err != nil || len(report.Kept) > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
		})
	}
	if peak := peakMemory(t); peak > limit {
		t.Errorf("%d MB of memory, and the limit is %d", peak>>20, limit>>20)
	}
}
