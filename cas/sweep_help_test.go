package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// book is a catalogue in memory as a sweep's book, in which a test can let
// writers die. It can be copied, as it stands after each change.
type book struct {
	memory *catalogue.Memory

	mu    sync.Mutex
	next  int
	dead  map[string]bool
	log   []func(*catalogue.Memory) // all changes, in order
	sweep func()                    // called at each claim
}

func newBook() *book { return &book{memory: catalogue.NewMemory(), dead: make(map[string]bool)} }

// fork returns what another process finds when this one has died.
func (b *book) fork() *book {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := newBook()
	f.next, f.log = b.next, slices.Clone(b.log)
	for _, change := range f.log {
		change(f.memory)
	}
	f.killAll()
	return f
}

// killAll lets all leases' processes die.
func (b *book) killAll() {
	list, _ := b.memory.Holders(context.Background())
	for _, h := range list {
		b.dead[h.Lease] = true
	}
}

// change makes a change, and notes it if it was made.
func change[T any](b *book, ctx ctx, op func(context.Context, *catalogue.Memory) (T, error)) (T, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, err := op(ctx, b.memory)
	if err == nil {
		b.log = append(b.log, func(m *catalogue.Memory) { _, _ = op(context.Background(), m) })
	}
	if errors.Is(err, catalogue.ErrLease) {
		err = fmt.Errorf("%w: %w", cas.ErrLease, err)
	}
	return out, err
}

// changeOnly is change for what returns nothing else.
func changeOnly(b *book, ctx ctx, op func(context.Context, *catalogue.Memory) error) error {
	_, err := change(b, ctx, func(ctx context.Context, m *catalogue.Memory) (struct{}, error) { return struct{}{}, op(ctx, m) })
	return err
}

func (b *book) enter(ctx ctx, id string) error {
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Enter(ctx, id) })
}

func (b *book) OpenLease(ctx ctx) (string, error) {
	b.mu.Lock()
	b.next++
	id := fmt.Sprint("lease ", b.next)
	b.mu.Unlock()
	return id, b.enter(ctx, id)
}

func (b *book) CloseLease(ctx ctx, id string) error {
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Leave(ctx, id) })
}

func (b *book) View(ctx ctx, have int64) (int64, []string, error) { return b.memory.View(ctx, have) }

func (b *book) Acknowledge(ctx ctx, id string, epoch int64, spared []string) error {
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Acknowledge(ctx, id, epoch, spared) })
}

func (b *book) Advance(ctx ctx) (int64, error) {
	return change(b, ctx, func(ctx context.Context, m *catalogue.Memory) (int64, error) { return m.Advance(ctx) })
}

func (b *book) Lose(ctx ctx, id string) error {
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Lose(ctx, id) })
}

func (b *book) Condemn(ctx ctx, names []string) error {
	names = slices.Clone(names)
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Condemn(ctx, names) })
}

func (b *book) Condemned(ctx ctx, before int64, after string, limit int) ([]string, error) {
	return b.memory.Condemned(ctx, before, after, limit)
}

func (b *book) Pardon(ctx ctx, names []string) error {
	names = slices.Clone(names)
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Pardon(ctx, names) })
}

func (b *book) Claim(ctx ctx, id string, before int64, names []string) ([]string, error) {
	if b.sweep != nil {
		b.sweep()
	}
	names = slices.Clone(names)
	return change(b, ctx, func(ctx context.Context, m *catalogue.Memory) ([]string, error) {
		return m.Claim(ctx, id, before, names)
	})
}

func (b *book) Forget(ctx ctx, id string, names []string) error {
	names = slices.Clone(names)
	return changeOnly(b, ctx, func(ctx context.Context, m *catalogue.Memory) error { return m.Forget(ctx, id, names) })
}

func (b *book) Holders(ctx ctx) ([]cas.Holder, error) {
	list, err := b.memory.Holders(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cas.Holder
	for _, h := range list {
		out = append(out, cas.Holder{Lease: h.Lease, Opened: h.Opened, Seen: h.Seen, Lost: h.Lost, Dead: b.dead[h.Lease]})
	}
	return out, err
}

// published is the slow twin of a catalogue: what was published, in order.
type published struct {
	mu   sync.Mutex
	list []merkle.Root
	gone map[int]bool
	fail error
}

func (p *published) Tenants(ctx) ([]cas.Tenant, error) { return []cas.Tenant{tenant}, nil }

func (p *published) Roots(_ ctx, t cas.Tenant, after int64, keep func(...merkle.Root)) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t != tenant {
		return after, nil
	}
	for i := int(after); i < len(p.list); i++ {
		if !p.gone[i] {
			keep(p.list[i])
		}
	}
	return int64(len(p.list)), p.fail
}

// publish is what the root package does: a look at the lease and the row, in one
// transaction.
func (p *published) publish(b *book, lease string, roots ...merkle.Root) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, err := b.memory.Holders(context.Background())
	if err != nil {
		return err
	}
	for _, h := range list {
		if h.Lease == lease && !h.Lost {
			p.list = append(p.list, roots...)
			return nil
		}
	}
	return cas.ErrLease
}

func (p *published) end(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = make(map[int]bool)
	}
	p.gone[i] = true
}

// fork returns a copy.
func (p *published) fork() *published {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &published{list: slices.Clone(p.list), gone: maps.Clone(p.gone), fail: p.fail}
}

// swept is a store that can be swept.
type swept struct {
	*cas.Store
	b     cas.Backend
	book  *book
	roots *published
}

func newSwept(t testing.TB, b cas.Backend) *swept {
	t.Helper()
	s := &swept{b: b, book: newBook(), roots: new(published)}
	s.Store = s.another(t)
	return s
}

// another is the same store in another process.
func (s *swept) another(t testing.TB) *cas.Store {
	t.Helper()
	other := cas.New(s.b, cas.Options{Leases: s.book})
	t.Cleanup(func() { other.Close() })
	return other
}

func (s *swept) gc(t testing.TB) cas.SweepReport {
	t.Helper()
	report, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range report.Kept {
		t.Errorf("kept: %v", err)
	}
	return report
}

// keep puts blobs and publishes them; it returns the number of the first.
func (s *swept) keep(t testing.TB, blobs ...[]byte) int {
	t.Helper()
	b := s.Begin(t.Context(), tenant)
	defer b.Discard()
	var roots []merkle.Root
	for _, data := range blobs {
		info, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, info.Root)
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.roots.publish(s.book, b.Lease(), roots...); err != nil {
		t.Fatal(err)
	}
	return len(s.roots.list) - len(roots)
}

// names lists the objects but for index files, which are a cache.
func (s *swept) names(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, kind := range cas.Kinds() {
		for name, err := range s.b.List(t.Context(), tenant, kind, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if kind != cas.KindIndex {
				names = append(names, name.String())
			}
		}
	}
	return names
}

// packKeys reads a pack's keys with their lengths.
func packKeys(t testing.TB, b cas.Backend, name cas.Name) map[merkle.Root]int {
	t.Helper()
	r, err := b.Get(t.Context(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := cas.PackKeys(p, name.ID)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
