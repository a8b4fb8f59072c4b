package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

// TestSweepLost: a living writer that does not acknowledge loses its lease after
// the patience, by a clock of the test, and is refused.
func TestSweepLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(t, memory.New())
		if err := s.book.enter(t.Context(), "stopped"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r := s.gc(t)
		if waited := time.Since(begin); waited < cas.DefaultPatience || waited > 2*cas.DefaultPatience || r.Lost != 1 {
			t.Errorf("after %v: %+v", waited, r)
		}
		if err := s.roots.publish(s.book, "stopped", merkle.Root{1}); !errors.Is(err, cas.ErrLease) {
			t.Errorf("publish: %v", err)
		}
		begin = time.Now()
		if r := s.gc(t); time.Since(begin) > time.Second || r.Lost != 0 {
			t.Errorf("a lost lease is waited for again: %v", time.Since(begin))
		}
		// It is not let in again, and what it puts then is refused at once.
		b := s.Begin(t.Context(), tenant)
		defer b.Discard()
		if _, err := b.Put(t.Context(), strings.NewReader("abc"), cas.Auto); err != nil {
			t.Fatal(err)
		}
		if err := s.book.Lose(t.Context(), b.Lease()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.book.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := b.Put(t.Context(), strings.NewReader("def"), cas.Auto); !errors.Is(err, cas.ErrLease) {
			t.Errorf("Put under a lost lease: %v", err)
		}
		again := s.Begin(t.Context(), tenant)
		defer again.Discard()
		if _, err := again.Put(t.Context(), strings.NewReader("def"), cas.Auto); err != nil {
			t.Errorf("Put of a new batch: %v", err)
		}
		s.Close()
	})
}

// TestSweepLeftovers: what a dead writer has not finished goes, what a living
// one has begun stays.
func TestSweepLeftovers(t *testing.T) {
	dir := t.TempDir()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := newSwept(t, b)
	s.keep(t, random(1, 100_000))
	dead := filepath.Join(dir, tenant.String(), "tmp", ".tmp-00000000000000000000000000000000")
	if err := os.WriteFile(dead, []byte("unfinished"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	other := s.another(t)
	batch := other.Begin(t.Context(), tenant)
	defer batch.Discard()
	done := make(chan error)
	go func() {
		_, err := batch.Put(context.WithoutCancel(t.Context()), r, cas.Whole)
		done <- err
	}()
	big := random(2, 100_000)
	if _, err := w.Write(big[:50_000]); err != nil { // it is in the middle now
		t.Fatal(err)
	}
	for range 3 {
		if r := s.gc(t); r.Leftovers != 0 {
			t.Fatalf("beside a writer from before: %+v", r)
		}
	}
	if _, err := w.Write(big[50_000:]); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	batch.Discard()
	other.Close()
	if r := s.gc(t); r.Leftovers != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover: %v", err)
	}
}

// TestSweepModel lets random writers, readers and sweeps work on one store, and
// compares with a set.
func TestSweepModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { sweepModel(t, seed) })
	}
}

func sweepModel(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := newSwept(t, memory.New())
	stores := []*cas.Store{s.Store, s.another(t), s.another(t)}
	type held struct {
		*cas.Batch
		data [][]byte
	}
	var open []held
	live := make(map[int][]byte) // by number in roots
	contents := func() []byte {  // few, so that they meet again
		i := rnd.Uint64N(40)
		return random(i, []int{10, 700, 5000, 20_000, 40_000}[i%5])
	}
	for range 250 {
		switch op := rnd.IntN(10); {
		case op < 2:
			open = append(open, held{Batch: stores[rnd.IntN(3)].Begin(t.Context(), tenant)})
		case op < 5 && len(open) > 0:
			h := &open[rnd.IntN(len(open))]
			data := contents()
			if _, err := h.Put(t.Context(), bytes.NewReader(data), cas.Auto); err != nil {
				t.Fatal(err)
			}
			h.data = append(h.data, data)
		case op < 7 && len(open) > 0:
			i := rnd.IntN(len(open))
			h := open[i]
			open = slices.Delete(open, i, i+1)
			if rnd.IntN(3) > 0 && len(h.data) > 0 {
				if err := h.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, data := range h.data {
					if err := s.roots.publish(s.book, h.Lease(), merkle.Sum(data)); err != nil {
						t.Fatal(err)
					}
					live[len(s.roots.list)-1] = data
				}
			}
			h.Discard()
		case op < 8:
			for i := range live {
				s.roots.end(i)
				delete(live, i)
				break
			}
		case op < 9:
			report, err := stores[rnd.IntN(3)].Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots})
			if err != nil || len(report.Kept) > 0 || report.Lost > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
		default:
			for _, data := range live {
				if err := read(t, stores[rnd.IntN(3)], data); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, h := range open {
		h.Discard()
	}
	s.gc(t)
	s.gc(t)
	want := make(map[merkle.Root]bool)
	for _, data := range live {
		want[merkle.Sum(data)] = true
		for _, store := range append(stores, s.another(t)) {
			if err := read(t, store, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, text := range s.names(t) {
		name, err := cas.ParseName(text)
		if err != nil || name.Kind != cas.KindPack && !want[name.ID] {
			t.Errorf("%s is left over (%v)", text, err)
		}
	}
	var packed, needed int
	for _, text := range s.names(t) {
		name, _ := cas.ParseName(text)
		if name.Kind != cas.KindPack {
			continue
		}
		for root, size := range packKeys(t, s.b, name) {
			packed += size
			if want[root] {
				needed += size
			}
		}
	}
	if 10*needed < 7*packed {
		t.Errorf("of %d bytes in packs %d are needed", packed, needed)
	}
}
