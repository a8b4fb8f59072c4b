// Package leafproof is a content-addressed store for the results that AI agents'
// tools produce. A result goes in once, as exact bytes; whoever needs it later
// gets exactly those bytes, an excerpt with a proof, or a clear refusal.
//
// This package is the one door. A [Store] is opened with [Open] (a folder made by
// [Init]) or put together with [New], and does six things:
//
//   - [Store.Put] takes bytes in and finds their records,
//   - [Store.Publish] signs a manifest over them and makes the artifact visible,
//   - [Store.Read] and [Store.Prove] give back parts of it, plainly or with a proof,
//   - [Store.Query] filters its records and says what it examined,
//   - [Store.Resolve] and [Store.List] tell what there is,
//   - [Store.Delete] ends an artifact.
//
// # The path of a byte
//
// Put streams it into cas, which hashes it into a BLAKE3 tree while it is
// written; selector notes where its record begins and ends; Publish binds root,
// record map and capture facts into a signed manifest, and the catalogue's
// transaction makes the artifact visible. On the way back the gate asks
// [Authority], cas verifies the byte against the tree, and the gate is asked
// again at every flush.
//
// # Three questions
//
// merkle proves that bytes stand at a place of an artifact; the manifest vouches
// for who captured them, how completely, from which version of the source;
// Authority allows a reader to have them now. Passing one check never stands in
// for another.
package leafproof

import (
	"context"
	"crypto"
	"errors"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
)

// Version is the release of this module.
const Version = "0.1.0-dev"

// A Caller says who asks, and why.
type Caller struct {
	// Principal is the authenticated name of whoever asks.
	Principal gate.Principal
	// Purpose is recorded with the decision; it may be empty.
	Purpose string
}

// Owner is the caller that a store on one's own disk is used as.
var Owner = Caller{Principal: gate.Owner}

// Authority decides every disclosure. See [Config].
type Authority = gate.Authority

// The parts of an authority's question and answer.
type (
	// Request is what an [Authority] is asked.
	Request = gate.Request
	// Decision is its answer.
	Decision = gate.Decision
)

// OwnerOnly is the authority of a store that has no grants: the owner may do
// everything, nobody else anything.
func OwnerOnly() Authority { return gate.OwnerOnly{} }

// Config are the parts of a store. All but Authority must be set.
type Config struct {
	Objects   *cas.Store
	Catalogue catalogue.Catalogue
	Signer    crypto.Signer    // signs manifests; Ed25519
	Policy    *manifest.Policy // says which keys' word counts here
	CursorKey [32]byte         // authenticates cursors
	Authority Authority        // nil: OwnerOnly
}

// A Store puts, publishes, reads, queries and proves artifacts. It is safe for
// concurrent use, and any number of processes may use one folder at once.
type Store struct {
	objects   *cas.Store
	catalogue catalogue.Catalogue
	signer    crypto.Signer
	key       manifest.PublicKey
	policy    *manifest.Policy
	cursorKey [32]byte
	id        string
	gate      *gate.Gate
	close     []func() error
}

// New returns a store over the given parts.
func New(ctx context.Context, c Config) (*Store, error) {
	key, err := manifest.PublicKeyOf(c.Signer)
	if err != nil {
		return nil, err
	}
	id, err := c.Catalogue.StoreID(ctx)
	if err != nil {
		return nil, wireError("open", err)
	}
	if c.Authority == nil {
		c.Authority = OwnerOnly()
	}
	s := &Store{
		objects: c.Objects, catalogue: c.Catalogue, signer: c.Signer, key: key,
		policy: c.Policy, cursorKey: c.CursorKey, id: id,
	}
	s.gate = gate.New(c.Authority, c.Catalogue)
	return s, nil
}

// ID is the store's own name: 32 hex digits chosen when it was made.
func (s *Store) ID() string { return s.id }

// Policy is the trust policy that the store judges manifests by.
func (s *Store) Policy() *manifest.Policy { return s.policy }

// Close releases the store. Readings taken from it fail from then on.
func (s *Store) Close() error {
	var errs []error
	errs = append(errs, s.catalogue.Close())
	for _, f := range s.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Now is the catalogue's clock, which decides expiry and stamps new artifacts.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.catalogue.Now(ctx) }
