// Package leafproof is a content-addressed store for the results that AI agents'
// tools produce. A result goes in once, as exact bytes; whoever needs it later
// gets exactly those bytes, an excerpt with a proof, or a clear refusal.
//
// This package is the one door. [Init] makes a store's folder, [Open] opens it, and
// the [Store] does the rest:
//
//   - [Store.Put] takes bytes in and finds their records,
//   - [Store.Publish] signs a manifest over them and makes the artifact visible,
//   - [Store.Read] and [Store.Prove] give back parts of it, plainly or with a proof,
//   - [Store.Query] filters its records and says what it examined,
//   - [Store.Resolve], [Store.ResolveRef] and [Store.List] tell what there is,
//   - [Store.Derive] makes an artifact of the records of another,
//   - [Store.Assess] says whether one serves as evidence,
//   - [Store.SetName] and [Store.Name] keep versioned pointers,
//   - [Store.Delete] ends an artifact, and [Store.GC] reclaims what none needs;
//     [Store.Copies] lists what was made of one.
//   - [Store.Grant] and [Store.Revoke] say who else may do what, [Store.Disclosures]
//     who was shown what.
//   - [Store.Statements] lists what was signed about one since: receipts of reads,
//     tombstones, deletions.
//
// What Prove writes is checked by Verify of the package manifest/bundle, which
// needs no store.
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

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/internal/keys"
	"leafproof/manifest"
	"leafproof/merkle"
)

// Version is the release of this module.
const Version = "0.1.0-dev"

// A Caller says who asks, and why.
type Caller struct {
	// Principal is the authenticated name of whoever asks.
	Principal Principal
	// Purpose is recorded with the decision; it may be empty.
	Purpose string
}

// Owner is the caller that a store on one's own disk is used as.
var Owner = Caller{Principal: gate.Owner}

// Authority decides every disclosure. A store's are the grants in its catalogue,
// unless [WithAuthority] sets another. It has one method:
//
//	Decide(ctx context.Context, r Request) (Decision, error)
//
// Decide is asked about what will be shown, which for a proof is more than what
// was asked for, and again while a long answer is under way. An error means that
// there is no decision, and refuses.
type Authority = gate.Authority

// Request is what an [Authority] is asked. Its fields:
//
//	Principal Principal      // who asks
//	Tenant    string         // whose artifact it is; "" for an id that does not exist
//	Run       string         // the run that made it; "" for none
//	Artifact  string         // its id; "" for a listing of the tenant
//	Action    Action
//	Purpose   string         // the caller's
//	Ranges    []merkle.Range // the bytes that will be shown; none: all, where bytes are shown; one empty range: no byte
//	Records   []merkle.Range // the records that these bytes lie in; none: nobody has looked
//	Placed    merkle.Range   // the records whose places will be shown
type Request = gate.Request

// Decision is an [Authority]'s answer. The zero Decision refuses. Its fields:
//
//	Allow    bool
//	Reason   string    // why not, for the store's own log
//	NotAfter time.Time // ends an allow; zero: when the gate asks again
//	Known    bool      // with a refusal: the asker held leave, and may hear that it was withdrawn
//	Records  []merkle.Range // with an allow: the only records that may be shown; none: all
//	Grant    string    // what allowed it, for the audit log
type Decision = gate.Decision

// Principal names who asks; "" is nobody. Action is what he wants to do.
type (
	Principal = gate.Principal
	Action    = gate.Action
)

// The actions that an [Authority] is asked about.
const (
	ActionStat   = gate.Stat
	ActionRead   = gate.Read
	ActionQuery  = gate.Query
	ActionCount  = gate.Count
	ActionProve  = gate.Prove
	ActionDerive = gate.Derive
	ActionGrant  = gate.Grant
	ActionDelete = gate.Delete
)

// OwnerOnly is the authority that looks at no grants and no restrictions: the owner
// may do everything, nobody else anything.
func OwnerOnly() Authority { return gate.OwnerOnly{} }

// config are the parts of a store.
type config struct {
	objects   *cas.Store
	dir       string      // the folder; "" where there is none
	backend   cas.Backend // what objects stands on
	book      *leaseBook  // nil where there is no folder
	catalogue catalogue.Catalogue
	trust     *trustReader             // whose word counts, and what can be signed with
	policy    *manifest.Policy         // where there is no trust, in a part of a store
	given     map[string]crypto.Signer // role → the key that signs in it
	agent     *keys.Agent              // nil: there is none
	cursorKey [32]byte                 // authenticates cursors
	authority Authority
	retention map[string]int64 // see format
}

// A Store puts, publishes, reads, queries and proves artifacts. It is safe for
// concurrent use, and any number of processes may use one folder at once.
type Store struct {
	config
	id    string
	gate  *gate.Gate
	close []func() error // in order; the folder's lock is the last

	manifests  manifestCache
	indexWords indexWords
	readers    readers
	tokens     atEpoch[merkle.Root, PrincipalInfo]
	rows       atEpoch[string, catalogue.Artifact] // of those that were read
	audit      *auditor
}

// newStore puts a store together.
func newStore(ctx context.Context, c config) (*Store, error) {
	id, err := c.catalogue.StoreID(ctx)
	if err != nil {
		return nil, wireError("open", err)
	}
	if c.authority == nil {
		c.authority = newGrants(c.catalogue)
	}
	s := &Store{config: c, id: id, gate: gate.New(c.authority, c.catalogue), audit: &auditor{log: c.catalogue}}
	s.audit.entered = func(ctx context.Context) {
		_ = s.closeSegments(ctx, segmentRecords) // what fails here is done after the next
	}
	return s, nil
}

// ID is the store's own name: 32 hex digits chosen when it was made.
func (s *Store) ID() string { return s.id }

// Close releases the store. What still reads from it fails from then on.
func (s *Store) Close() error {
	errs := []error{s.audit.close()}
	s.readers.forget(true)
	for _, f := range s.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
