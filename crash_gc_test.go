package leafproof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"leafproof"
	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
)

// sweepLeft sweeps what a crash left, with a new process: it finishes what the
// one that lost power had begun, loses nothing, and leaves nothing that no
// artifact needs.
func (h *crashHistory) sweepLeft(s *leafproof.Store) error {
	if h.every > 1 && h.states%3 != 0 {
		return nil
	}
	if err := sweepClean(s); err != nil {
		return err
	}
	if err := checkVisible(s, h.told); err != nil {
		return err
	}
	return checkEnded(s, h.ended)
}

// sweepClean sweeps until there is no more to do, and looks for what is left.
func sweepClean(s *leafproof.Store) error {
	for range 2 { // the first one may only have found what a dead writer left
		r, err := s.GC(context.Background(), leafproof.GCOptions{})
		if err != nil {
			return err
		}
		if len(r.Kept) > 0 || r.Unfinished > 0 {
			return fmt.Errorf("it kept %s, and %d deletions are unfinished", strings.Join(r.Kept, "; "), r.Unfinished)
		}
	}
	r, err := s.Check(context.Background(), leafproof.CheckOptions{})
	if err != nil {
		return err
	}
	if r.Unreferenced > 0 || r.Damaged() {
		return fmt.Errorf("%d objects that nothing needs are left: %+v", r.Unreferenced, r.Findings)
	}
	return nil
}

// runGC is a history of sweeps: artifacts of each kind end, some share a pack or
// chunks with others that stay, some bytes were never published. Between two
// sweeps what was swept is put again. prepared is called before the first one.
func (h *crashHistory) runGC(prepared func()) {
	ctx := context.Background()
	plain := leafproof.PutOptions{Records: "none"}
	base := sampleRecords("shared", 600)
	h.quiet = true
	h.publish(base, leafproof.PutOptions{})
	big, small := random(40_000, 11), random(500, 12)
	ends := []string{
		h.publish(append(bytes.Clone(base), sampleRecords("its own", 400)...), leafproof.PutOptions{}),
		h.publish(big, plain), h.publish(small, plain),
	}
	h.publish(random(30_000, 13), plain)
	for _, data := range [][]byte{random(700, 14), random(20_000, 15)} { // nobody publishes them
		d, err := h.s.Put(ctx, bytes.NewReader(data), plain)
		if err = errors.Join(err, d.Batch().Commit(ctx), d.Discard()); err != nil {
			h.t.Fatal(err)
		}
	}
	// A pack of which a part is needed, which a sweep writes anew.
	holed := random(3000, 16)
	d, err := h.s.Put(ctx, bytes.NewReader(holed), plain)
	if err == nil {
		_, err = d.Batch().Put(ctx, bytes.NewReader(random(16_000, 17)), cas.Auto)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	ref, err := h.s.Publish(ctx, d, leafproof.Facts{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.told[ref.ArtifactID] = holed
	for _, id := range ends {
		h.told[id] = nil
		if err := h.s.Delete(ctx, leafproof.Owner, id, "no longer needed"); err != nil {
			h.t.Fatal(err)
		}
	}
	h.ended, h.quiet = ends[0], false
	prepared()
	h.objects.Observe(h.look)
	defer h.objects.Observe(nil)
	h.gc()
	h.publish(big, plain)
	h.publish(small, plain)
	h.gc()
}

func (h *crashHistory) gc() {
	h.t.Helper()
	if len(h.problems) > 0 {
		return
	}
	r, err := h.s.GC(context.Background(), leafproof.GCOptions{})
	if err != nil || len(r.Kept) > 0 {
		h.problems = append(h.problems, fmt.Sprintf("gc: %v, kept %q", err, r.Kept))
		return
	}
	h.swept.Deleted += r.Deleted
	h.swept.Rewritten += r.Rewritten
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut(readCatalogue(h.t, h.name), "after a gc")
}

// runMerge is a sweep that writes many small packs into one.
func (h *crashHistory) runMerge() {
	h.quiet = true
	for i := range 64 {
		h.publish(random(40, uint64(i)), leafproof.PutOptions{Records: "none"})
	}
	h.objects.Observe(h.look)
	defer h.objects.Observe(nil)
	h.gc()
}

// TestCrashGC cuts sweeps, with the real catalogue, after their operations on
// objects, and within the commits between these: after each the artifacts stand,
// and another sweep ends the work. With LEAFPROOF_EVERY_OPERATION it is all of them.
func TestCrashGC(t *testing.T) {
	needFlushes(t)
	for name, of := range map[string]struct {
		every, step int
		run         func(*crashHistory)
	}{
		"holes": {8, 8_000, func(h *crashHistory) { h.runGC(func() {}) }},
		"merge": {30, 40_000, (*crashHistory).runMerge}, // to look at so many artifacts takes longer
	} {
		t.Run(name, func(t *testing.T) {
			h := newCrashHistory(t)
			h.sweeps = true
			h.sample(of.every, of.step)
			h.moments = rand.IntN(h.every)
			of.run(h)
			for _, p := range h.problems {
				t.Error(p)
			}
			t.Logf("%d states at %d operations", h.states, h.moments)
			if h.moments < 70 || h.swept.Deleted < 5 || h.swept.Rewritten < 1 {
				t.Errorf("only %d operations, %+v: this shows nothing", h.moments, h.swept)
			}
		})
	}
}

// TestCrashGCSabotaged: sweeps that flush nothing, that delete a pack before the
// one in its place is there, or whose catalogue forgets, are caught.
func TestCrashGCSabotaged(t *testing.T) {
	needFlushes(t)
	if testing.Short() {
		t.Skip("it is about the full run of the test above")
	}
	caught := func(t *testing.T, h *crashHistory) {
		t.Helper()
		if len(h.problems) == 0 {
			t.Errorf("%d states, and none shows it", h.states)
		} else {
			t.Logf("after %d states: %.300s", h.states, h.problems[0])
		}
	}
	for name, sabotage := range map[string]crashfs.Sabotage{
		"files": {FileSync: true}, "directories": {DirSync: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCrashHistory(t)
			h.every, h.step = 2, 6_000 // one state is enough
			h.runGC(func() { h.objects.Sabotage(sabotage) })
			caught(t, h)
		})
	}
	t.Run("packs in the wrong order", func(t *testing.T) {
		h := newCrashHistory(t)
		b := &hasty{Backend: disk.New(h.objects)}
		h.open(b)
		h.runGC(func() { b.on.Store(true) })
		caught(t, h)
	})
	// What a catalogue leaves that does not flush before the objects go.
	t.Run("the catalogue's log", func(t *testing.T) {
		h := newCrashHistory(t)
		id := h.publish(random(20_000, 1), leafproof.PutOptions{})
		before := readCatalogue(t, h.name)
		delete(h.told, id)
		if err := h.s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
			t.Fatal(err)
		}
		h.gc()
		if len(h.problems) > 0 {
			t.Fatal(h.problems)
		}
		h.cut(before, "after a gc whose commits are lost")
		caught(t, h)
	})
}

// hasty deletes the packs of a tenant before it puts one in their place, and not
// after.
type hasty struct {
	cas.Backend
	on atomic.Bool // for one put
}

func (b *hasty) Put(ctx context.Context, name cas.Name, r io.Reader, size int64) error {
	if name.Kind == cas.KindPack && b.on.CompareAndSwap(true, false) {
		var old []cas.Name
		for n, err := range b.List(ctx, name.Tenant, cas.KindPack, nil) {
			if err != nil {
				return err
			}
			old = append(old, n)
		}
		old = slices.DeleteFunc(old, func(n cas.Name) bool { return n == name })
		if err := b.Delete(ctx, old...); err != nil {
			return err
		}
	}
	return b.Backend.Put(ctx, name, r, size)
}
