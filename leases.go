package leafproof

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
)

// leasesDir holds a file for each lease. Its holder keeps it locked, so that the
// operating system tells when a holder has died.
const leasesDir = "leases"

// leaseBook is the catalogue's book with the locks that belong to it.
type leaseBook struct {
	rows catalogue.Catalogue
	dir  string // of the locks

	mu    sync.Mutex
	locks map[string]*flock.Lock // of the leases that this process holds
}

var _ cas.Book = (*leaseBook)(nil)

func newLeaseBook(rows catalogue.Catalogue, storeDir string) *leaseBook {
	return &leaseBook{rows: rows, dir: filepath.Join(storeDir, leasesDir), locks: make(map[string]*flock.Lock)}
}

// leaseName is what a lease's id must look like before it becomes a file's name.
func leaseName(id string) bool {
	const prefix, length = "ls_", 26
	rest, ok := strings.CutPrefix(id, prefix)
	return ok && len(rest) == length && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// told gives the catalogue's reasons the names that cas knows them by.
func (b *leaseBook) told(err error) error {
	switch {
	case errors.Is(err, catalogue.ErrLease):
		return fmt.Errorf("%w: %w", cas.ErrLease, err)
	case errors.Is(err, catalogue.ErrFull):
		return fmt.Errorf("%w: %w", cas.ErrFull, err)
	}
	return err
}

// OpenLease implements [cas.Leases]: the lock first, then the row, so that a row
// without a lock is that of a dead process.
func (b *leaseBook) OpenLease(ctx context.Context) (string, error) {
	const tries = 8 // a sweep may be looking at the file just now
	for try := 0; ; try++ {
		id := "ls_" + strings.ToLower(rand.Text())
		lock, err := b.lock(id)
		if errors.Is(err, flock.ErrHeld) && try < tries {
			continue
		}
		if err != nil {
			return "", b.explain(err)
		}
		b.mu.Lock()
		b.locks[id] = lock
		b.mu.Unlock()
		if err := b.rows.Enter(ctx, id); err != nil {
			return "", errors.Join(b.told(err), b.unlock(id))
		}
		return id, nil
	}
}

// lock makes the file of a lease and locks it.
func (b *leaseBook) lock(id string) (*flock.Lock, error) {
	path := filepath.Join(b.dir, id)
	if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := flock.Exclusive(path)
	if err != nil {
		return nil, err
	}
	// A sweep that took the file for a leftover, before it was locked, may have
	// removed it. From now on it does not.
	if _, err := os.Stat(path); err != nil {
		lock.Close()
		return nil, &flock.Error{Path: path, Err: flock.ErrHeld}
	}
	return lock, nil
}

func (b *leaseBook) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: %w", b.dir, cas.ErrFull, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is on a read-only file system: %w", b.dir, err)
	}
	return err
}

func (b *leaseBook) unlock(id string) error {
	b.mu.Lock()
	lock := b.locks[id]
	delete(b.locks, id)
	b.mu.Unlock()
	if lock == nil {
		return nil
	}
	// The name first: nobody finds it unlocked.
	return errors.Join(remove(filepath.Join(b.dir, id)), lock.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// View implements [cas.Leases].
func (b *leaseBook) View(ctx context.Context, have int64) (int64, []string, error) {
	epoch, names, err := b.rows.View(ctx, have)
	return epoch, names, b.told(err)
}

// Acknowledge implements [cas.Leases].
func (b *leaseBook) Acknowledge(ctx context.Context, lease string, epoch int64, spared []string) error {
	return b.told(b.rows.Acknowledge(ctx, lease, epoch, spared))
}

// CloseLease implements [cas.Leases]. A sweep calls it for a dead process too.
func (b *leaseBook) CloseLease(ctx context.Context, lease string) error {
	if err := b.rows.Leave(ctx, lease); err != nil {
		return b.told(err)
	}
	b.mu.Lock()
	_, own := b.locks[lease]
	b.mu.Unlock()
	switch {
	case own:
		return b.unlock(lease)
	case leaseName(lease):
		return remove(filepath.Join(b.dir, lease))
	}
	return nil
}

// Advance implements [cas.Epochs].
func (b *leaseBook) Advance(ctx context.Context) (int64, error) {
	epoch, err := b.rows.Advance(ctx)
	return epoch, b.told(err)
}

// Lose implements [cas.Epochs].
func (b *leaseBook) Lose(ctx context.Context, lease string) error {
	return b.told(b.rows.Lose(ctx, lease))
}

// Holders implements [cas.Epochs].
func (b *leaseBook) Holders(ctx context.Context) ([]cas.Holder, error) {
	list, err := b.rows.Holders(ctx)
	if err != nil {
		return nil, b.told(err)
	}
	out := make([]cas.Holder, len(list))
	for i, h := range list {
		out[i] = cas.Holder{Lease: h.Lease, Opened: h.Opened, Seen: h.Seen, Lost: h.Lost, Dead: b.dead(h.Lease)}
	}
	return out, nil
}

// dead reports whether nobody holds the lock of a lease. In doubt somebody does.
func (b *leaseBook) dead(id string) bool {
	b.mu.Lock()
	_, own := b.locks[id]
	b.mu.Unlock()
	if own {
		return false
	}
	if !leaseName(id) {
		return true // no program of ours made that row
	}
	path := filepath.Join(b.dir, id)
	if _, err := os.Stat(path); err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	lock, err := flock.Shared(path)
	if err != nil {
		return false
	}
	lock.Close()
	return true
}

// tidy removes the files of leases that have no row: those of processes that
// died between the two.
func (b *leaseBook) tidy(ctx context.Context) error {
	entries, err := os.ReadDir(b.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	holders, err := b.rows.Holders(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, h := range holders {
		known[h.Lease] = true
	}
	for _, e := range entries {
		if !leaseName(e.Name()) || known[e.Name()] {
			continue
		}
		path := filepath.Join(b.dir, e.Name())
		lock, err := flock.Exclusive(path)
		if err != nil {
			continue // somebody is about to enter it
		}
		err = errors.Join(remove(path), lock.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// Condemn implements [cas.Sentences].
func (b *leaseBook) Condemn(ctx context.Context, names []string) error {
	return b.told(b.rows.Condemn(ctx, names))
}

// Condemned implements [cas.Sentences].
func (b *leaseBook) Condemned(ctx context.Context, before int64, after string, limit int) ([]string, error) {
	names, err := b.rows.Condemned(ctx, before, after, limit)
	return names, b.told(err)
}

// Pardon implements [cas.Sentences].
func (b *leaseBook) Pardon(ctx context.Context, names []string) error {
	return b.told(b.rows.Pardon(ctx, names))
}

// Claim implements [cas.Sentences].
func (b *leaseBook) Claim(ctx context.Context, lease string, before int64, names []string) ([]string, error) {
	claimed, err := b.rows.Claim(ctx, lease, before, names)
	return claimed, b.told(err)
}

// Forget implements [cas.Sentences].
func (b *leaseBook) Forget(ctx context.Context, lease string, names []string) error {
	return b.told(b.rows.Forget(ctx, lease, names))
}
