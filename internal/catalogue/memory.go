package catalogue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a Catalogue that lasts as long as its process.
type Memory struct {
	mu     sync.Mutex
	rows   []Artifact // rows[i].Seq == i+1
	byID   map[string]int
	bySeal map[string]bool // the manifest ids
	clock  time.Time
	store  string
	closed bool
	book   book
	said   said
	logged logged

	allowed allowed
	audited audited
	names   map[nameKey][]Name
	copies  []Copy // copies[i].Seq == i+1
	links   []Supersession
}

// NewMemory returns an empty catalogue of a new store.
func NewMemory() *Memory {
	return &Memory{byID: map[string]int{}, bySeal: map[string]bool{}, store: newStoreID(), book: newBook()}
}

// open locks m. The caller unlocks it, also on an error.
func (m *Memory) open(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		return &Error{Op: "use", Subject: "the catalogue in memory", Err: ErrClosed}
	}
	return ctx.Err()
}

// Publish implements [Catalogue].
func (m *Memory) Publish(ctx context.Context, a Artifact) error {
	return m.publish(ctx, a, func() error { return nil })
}

// publish publishes a, if may allows a new row.
func (m *Memory) publish(ctx context.Context, a Artifact, may func() error) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	if i, ok := m.byID[a.ArtifactID]; ok {
		return republish(m.rows[i], a)
	}
	if m.bySeal[a.ManifestID] {
		return &Error{Op: "publish", Subject: a.ArtifactID, Err: ErrExists, Detail: "its manifest belongs to another artifact"}
	}
	if err := may(); err != nil {
		return err
	}
	a = a.clone()
	a.DeletedAt, a.DeleteReason, a.Seq = nil, "", int64(len(m.rows)+1)
	links := a
	a.Supersedes, a.Inputs, a.Superseded = nil, nil, false
	m.byID[a.ArtifactID], m.bySeal[a.ManifestID] = len(m.rows), true
	leaf := a.Leaf
	a.Leaf = Leaf{}
	m.rows = append(m.rows, a)
	m.link(links)
	m.tick()
	m.enter(a.ArtifactID, leaf)
	m.seal()
	return nil
}

// Artifact implements [Catalogue].
func (m *Memory) Artifact(ctx context.Context, id string) (Artifact, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Artifact{}, err
	}
	if i, ok := m.byID[id]; ok {
		a := m.rows[i].clone()
		a.Superseded = m.superseded(id)
		return a, nil
	}
	return Artifact{}, notFound("look up", id)
}

// List implements [Catalogue].
func (m *Memory) List(ctx context.Context, tenant string, after int64, limit int) ([]Artifact, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList(tenant, limit); err != nil {
		return nil, err
	}
	var list []Artifact
	for _, a := range m.rows {
		if a.Tenant == tenant && a.Seq > after && a.DeletedAt == nil && len(list) < limit {
			list = append(list, a.clone())
		}
	}
	return list, nil
}

// Tenants implements [Catalogue].
func (m *Memory) Tenants(ctx context.Context) ([]string, error) {
	return m.tenants(ctx, func(a Artifact) bool { return a.DeletedAt == nil })
}

// TenantsEver implements [Catalogue].
func (m *Memory) TenantsEver(ctx context.Context) ([]string, error) {
	return m.tenants(ctx, func(Artifact) bool { return true })
}

func (m *Memory) tenants(ctx context.Context, counts func(Artifact) bool) ([]string, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var tenants []string
	for _, a := range m.rows {
		if counts(a) {
			tenants = append(tenants, a.Tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants), nil
}

// Delete implements [Catalogue].
func (m *Memory) Delete(ctx context.Context, id, reason string, at time.Time) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := checkDelete(id, at); err != nil {
		return err
	}
	i, ok := m.byID[id]
	if !ok {
		return notFound("delete", id)
	}
	if a := &m.rows[i]; a.DeletedAt == nil {
		a.DeletedAt, a.DeleteReason = new(micro(at)), reason
		m.allowed.epoch++
		m.endCopies(id, at)
		m.tick()
	}
	return nil
}

// Epoch implements [Catalogue].
func (m *Memory) Epoch(ctx context.Context) (int64, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	return m.allowed.epoch, err
}

// Now implements [Catalogue].
func (m *Memory) Now(ctx context.Context) (time.Time, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return time.Time{}, err
	}
	return m.tick(), nil
}

// StoreID implements [Catalogue].
func (m *Memory) StoreID(ctx context.Context) (string, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	return m.store, err
}

// Close implements [Catalogue].
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// tick moves the clock, forward only.
func (m *Memory) tick() time.Time {
	if now := micro(time.Now()); now.After(m.clock) {
		m.clock = now
	}
	return m.clock
}

// micro is a time as a catalogue keeps it.
func micro(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// clone shares no pointer with a, and has its times as a catalogue keeps them.
func (a Artifact) clone() Artifact {
	c := a
	if a.Run != nil {
		c.Run = new(*a.Run)
	}
	if a.SourceID != nil {
		c.SourceID = new(*a.SourceID)
	}
	c.CreatedAt = micro(a.CreatedAt)
	if a.ExpiresAt != nil {
		c.ExpiresAt = new(micro(*a.ExpiresAt))
	}
	if a.DeletedAt != nil {
		c.DeletedAt = new(micro(*a.DeletedAt))
	}
	return c
}
