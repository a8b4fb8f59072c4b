package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/cas/memory"
)

// slow takes a while for each pack, and may fail.
type slow struct {
	*memory.Backend
	packs atomic.Int64
	fail  atomic.Pointer[error]
}

func (b *slow) Put(ctx ctx, name cas.Name, r ioReader, size int64) error {
	if name.Kind == cas.KindPack {
		b.packs.Add(1)
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := b.fail.Load(); err != nil {
			return *err
		}
	}
	return b.Backend.Put(ctx, name, r, size)
}

// Goroutines that put at the same time share packs.
func TestGroupCommit(t *testing.T) {
	b := &slow{Backend: memory.New()}
	s := cas.New(b, cas.Options{})
	const workers, each = 16, 20
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				data := fmt.Appendf(nil, "blob %d of %d", i, w)
				if i%3 == 0 {
					data = fmt.Appendf(nil, "blob %d of all", i)
				}
				if _, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto); err != nil {
					t.Error(err)
				}
				if err := read(t, s, data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := b.packs.Load(); n > workers*each/4 {
		t.Errorf("%d packs for %d commits", n, workers*each)
	}
}

// A pack that cannot be written fails all who wait for it, and each may try
// again.
func TestGroupCommitFails(t *testing.T) {
	b := &slow{Backend: memory.New()}
	s := cas.New(b, cas.Options{})
	batches := make([]*cas.Batch, 8)
	for w := range batches {
		batches[w] = s.Begin(t.Context(), tenant)
		defer batches[w].Discard()
		if _, err := batches[w].Put(t.Context(), bytes.NewReader(numberedBlob(w)), cas.Auto); err != nil {
			t.Error(err)
		}
	}
	full := error(syscall.ENOSPC)
	for _, reason := range []*error{&full, nil} {
		b.fail.Store(reason)
		var wg sync.WaitGroup
		for w, batch := range batches {
			wg.Go(func() {
				err := batch.Commit(t.Context())
				errRead := read(t, s, numberedBlob(w))
				if reason == nil {
					if err != nil || errRead != nil {
						t.Errorf("Commit: %v; then Open: %v", err, errRead)
					}
				} else if !errors.Is(err, full) || !errors.Is(errRead, cas.ErrNotFound) {
					t.Errorf("Commit: %v; then Open: %v; want %v and not found", err, errRead, full)
				}
			})
		}
		wg.Wait()
	}
	if n := b.packs.Load(); n > 10 {
		t.Errorf("%d packs for two times 8 commits", n)
	}
}

// A commit whose context ends does not take those with it that share its pack.
func TestGroupCommitCancelled(t *testing.T) {
	b := &slow{Backend: memory.New()}
	s := cas.New(b, cas.Options{})
	for range 20 {
		var wg sync.WaitGroup
		for w := range 6 {
			c, cancel := context.WithCancel(t.Context())
			if w%2 == 0 {
				time.AfterFunc(time.Millisecond, cancel)
			}
			wg.Go(func() {
				defer cancel()
				if _, err := s.Put(c, tenant, bytes.NewReader(numberedBlob(w)), cas.Auto); err != nil && w%2 != 0 {
					t.Errorf("whose context had not ended: %v", err)
				}
			})
		}
		wg.Wait()
	}
}

func numberedBlob(i int) []byte { return fmt.Appendf(nil, "blob %d", i) }

// Stores that put, read, merge and rebuild in one folder at the same time do not
// get in each other's way.
func TestCompactConcurrent(t *testing.T) {
	dir := t.TempDir()
	compactBeside(t, dir, func(i int) *cas.Store { return onDisk(t, dir) }, 30)
}

func compactBeside(t *testing.T, dir string, open func(int) *cas.Store, n int) {
	var wg sync.WaitGroup
	for w := range 3 {
		s := open(w)
		wg.Go(func() {
			for i := range n {
				data := fmt.Appendf(nil, "blob %d of %d", i, w*(i%2))
				put(t, s, data, cas.Auto)
				for j := range i + 1 {
					if err := read(t, s, fmt.Appendf(nil, "blob %d of %d", j, w*(j%2))); err != nil {
						t.Errorf("blob %d: %v", j, err)
					}
				}
			}
		})
		wg.Go(func() {
			for i := range n / 3 {
				err := s.Compact(t.Context(), tenant)
				if err == nil && i%3 == 0 {
					err = s.RebuildIndex(t.Context(), tenant)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

const compactEnv = "LEAFPROOF_CAS_COMPACT"

// The same in several processes.
func TestCompactProcesses(t *testing.T) {
	if dir := os.Getenv(compactEnv); dir != "" {
		compactBeside(t, dir, func(int) *cas.Store {
			return cas.New(diskAt(t, dir), tiny)
		}, 20)
		return
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCompactProcesses$")
		cmd.Env = append(os.Environ(), compactEnv+"="+dir)
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("child: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	s := onDisk(t, dir)
	for w := range 3 {
		for i := range 20 {
			if err := read(t, s, fmt.Appendf(nil, "blob %d of %d", i, w*(i%2))); err != nil {
				t.Error(err)
			}
		}
	}
	if d := s.Damaged(); len(d) != 0 {
		t.Errorf("Damaged = %v", d)
	}
}
