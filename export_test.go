package leafproof

import (
	"context"
	"crypto"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// OpenOn opens a store with the keys and the policy of the one in dir, its
// objects on b, and the catalogue in a file of its own.
func OpenOn(ctx context.Context, dir, catalogueFile string, b cas.Backend) (*Store, error) {
	c := config{authority: OwnerOnly(), objects: cas.New(b, cas.Options{})}
	if err := loadKeys(dir, &c); err != nil {
		return nil, err
	}
	cat, err := catalogue.OpenSQLite(catalogueFile)
	if err != nil {
		return nil, err
	}
	c.catalogue = cat
	s, err := newStore(ctx, c)
	if err != nil {
		cat.Close()
		return nil, err
	}
	s.close = []func() error{cat.Close}
	return s, nil
}

// Signer is signer.
func (s *Store) Signer(role string) (crypto.Signer, error) { return s.signer(role) }

// SpanSet is spanSet.
type SpanSet struct{ s spanSet }

// Add is add.
func (s *SpanSet) Add(r merkle.Range) { s.s.add(r) }

// List is list.
func (s *SpanSet) List(size int64) ([][2]int64, bool) { return s.s.list(size) }
