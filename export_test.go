package leafproof

import (
	"context"
	"crypto"
	"path/filepath"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/merkle"
	"leafproof/selector"
)

// OpenOn opens a store with the keys and the policy of the one in dir, its
// objects on b, and the catalogue and the leases in a folder of their own.
func OpenOn(ctx context.Context, dir, state string, b cas.Backend) (*Store, error) {
	c := config{authority: OwnerOnly(), dir: state, backend: b}
	if err := loadKeys(dir, &c); err != nil {
		return nil, err
	}
	cat, err := catalogue.OpenSQLite(filepath.Join(state, catalogueFile))
	if err != nil {
		return nil, err
	}
	c.catalogue, c.book = cat, newLeaseBook(cat, state)
	c.objects = cas.New(b, cas.Options{Leases: c.book})
	s, err := newStore(ctx, c)
	if err != nil {
		cat.Close()
		return nil, err
	}
	s.close = []func() error{c.objects.Close, cat.Close}
	s.catalogue.Seal(s.seal)
	return s, s.beginLog(ctx)
}

// Signer is signer.
func (s *Store) Signer(role string) (crypto.Signer, error) { return s.signer(role) }

// SpanSet is spanSet.
type SpanSet struct{ s spanSet }

// Add is add.
func (s *SpanSet) Add(r merkle.Range) { s.s.add(r) }

// List is list.
func (s *SpanSet) List(size int64) ([][2]int64, bool) { return s.s.list(size) }

// Batch is what a draft holds.
func (d *Draft) Batch() *cas.Batch { return d.batch }

// SayFalseIndex has the store sign that an artifact has an index over a path with a
// root that no index has.
func (s *Store) SayFalseIndex(ctx context.Context, id, path string) error {
	a, err := s.find(ctx, Owner, id, gate.Derive)
	if err != nil {
		return err
	}
	p, err := selector.ParseKeyPath(path)
	if err != nil {
		return err
	}
	x, err := indexFacts(a.layout(), p, a.redacted(), selector.IndexInfo{Size: 8192, Entries: a.m.Predicate.Records.Count, Distinct: 1})
	if err != nil {
		return err
	}
	x.Root = merkle.Sum([]byte(path)).String()
	batch := s.objects.Begin(ctx, cas.TenantOf(a.row.Tenant))
	defer batch.Discard()
	_, err = a.stateIndex(ctx, batch, x)
	return err
}
