// Package catalogue is the list of what a store has published, and the place
// where publication happens: an artifact exists when, and only when, its row
// has been committed.
//
// A catalogue proves nothing. The signed manifest says what an artifact is, and
// its root says which bytes it has; the row only leads to them. Whoever can
// write the file can hide artifacts or name others, but cannot make wrong bytes
// pass for right ones. It keeps no copy of a manifest and no bytes.
//
// There are two engines behind [Catalogue]: [SQLite], which lasts and which
// several processes use at once, and [Memory], which does not. The tests of
// this package hold both to one suite.
package catalogue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leafproof/merkle"
)

// Artifact is one row: what leads from an artifact's id to its manifest and its
// bytes. The first ten fields never change once published.
type Artifact struct {
	ArtifactID   string
	ManifestID   string // no two artifacts have the same
	Tenant       string
	Run          *string     // nil for none
	SourceID     *string     // nil for none
	Root         merkle.Root // of the bytes
	Size         int64       // of the bytes
	EnvelopeRoot merkle.Root // of the signed manifest, which is a blob too
	EnvelopeSize int64
	// CreatedAt and ExpiresAt are kept to the microsecond and come back in
	// UTC. An ExpiresAt of nil is never.
	CreatedAt time.Time
	ExpiresAt *time.Time

	DeletedAt    *time.Time // nil while the artifact is not deleted
	DeleteReason string     // empty while the artifact is not deleted
	Seq          int64      // the order of publication, from 1, with gaps; set by Publish
	// Leaf goes into the commit log with the artifact; it does not come back.
	Leaf Leaf

	// Supersedes and Inputs are what its manifest says of other artifacts. Publish
	// enters them; no call returns them. By is ignored, and so is At.
	Supersedes []Supersession
	Inputs     []string
	// Superseded says that another artifact takes its place: see
	// [Lifecycle.Successors]. Only the call Artifact sets it.
	Superseded bool
}

// Catalogue lists the artifacts of a store. It is safe for concurrent use, and
// it works on one state: what one call committed every later call sees, in this
// process and in others.
type Catalogue interface {
	Book
	Statements
	Commits
	Grants
	Audit
	Lifecycle
	// Publish makes an artifact exist; when it returns nil, the row survives a
	// crash. Publishing is once per artifact id: the same manifest id again
	// changes nothing and is not an error, another one is [ErrExists], and an id
	// that was deleted is [ErrDeleted]. A commit with an unknown outcome is
	// looked up, so that an error means the artifact does not exist now. The
	// fields Seq, DeletedAt and DeleteReason of a are ignored. It asks for no
	// lease: a sweep must be impossible meanwhile, or what the artifact rests on
	// be safe from it.
	Publish(ctx context.Context, a Artifact) error
	// PublishUnder is Publish for what was put under a lease. If the lease is
	// lost or gone the artifact is not published, and the error is [ErrLease]:
	// both are looked at in one transaction.
	PublishUnder(ctx context.Context, lease string, a Artifact) error
	// Artifact returns the row of an id, or [ErrNotFound]. The row of a deleted
	// artifact is returned too, with DeletedAt set.
	Artifact(ctx context.Context, id string) (Artifact, error)
	// List returns the artifacts of one tenant with Seq > after, in the order
	// of Seq, without deleted ones; at most limit, which is from 1 to
	// [MaxList]. Fewer than limit are the last ones.
	List(ctx context.Context, tenant string, after int64, limit int) ([]Artifact, error)
	// Tenants returns the tenants that have artifacts which are not deleted, in
	// the order of their bytes.
	Tenants(ctx context.Context) ([]string, error)
	// TenantsEver returns all tenants that artifacts were ever published for, in
	// the order of their bytes.
	TenantsEver(ctx context.Context) ([]string, error)
	// Delete ends an artifact. Its row stays, and its id is never free again.
	// Deleting it again changes nothing and is not an error. An unknown id is
	// ErrNotFound.
	Delete(ctx context.Context, id, reason string, at time.Time) error
	// Epoch returns the policy epoch: it grows whenever what is allowed changes.
	Epoch(ctx context.Context) (int64, error)
	// Now returns the time by which this catalogue judges. It is the machine's
	// clock, but never before a time that Now returned here or that stood on
	// the clock at a commit: a clock set back revives nothing.
	Now(ctx context.Context) (time.Time, error)
	// StoreID returns the name that the store got when it was made.
	StoreID(ctx context.Context) (string, error)
	// Close ends the use of the catalogue. Only the first call does anything.
	Close() error
}

// MaxList is the most artifacts that one List returns.
const MaxList = 10_000

// The errors that callers tell apart, with [errors.Is].
var (
	ErrNotFound = errors.New("no such artifact")
	ErrExists   = errors.New("exists already")
	ErrDeleted  = errors.New("the artifact was deleted")
	ErrInvalid  = errors.New("not a valid request") // a bug of the caller
	ErrClosed   = errors.New("the catalogue is closed")

	ErrNoPrincipal   = errors.New("no such principal")
	ErrNoGrant       = errors.New("no such grant")
	ErrNoRestriction = errors.New("no such restriction")
	ErrTooMany       = errors.New("too many of them")

	ErrMissing  = errors.New("there is no catalogue")
	ErrDamaged  = errors.New("the catalogue is damaged")
	ErrOlder    = errors.New("the catalogue was made by an older leafproof and must be upgraded")
	ErrLease    = errors.New("the writer's lease was lost to a sweep")
	ErrNewer    = errors.New("the catalogue was made by a newer leafproof")
	ErrReadOnly = errors.New("the catalogue cannot be written")
	ErrFull     = errors.New("no space left for the catalogue")
	ErrBusy     = errors.New("the catalogue is busy: another process holds it")
)

// Error says which operation on what failed, and why. Match the reason with
// [errors.Is].
type Error struct {
	Op      string // the operation, as in "publish"
	Subject string // an artifact id, or the file of the catalogue
	Detail  string // what was found; may be empty
	Hint    string // what a person can do about it; may be empty
	Err     error  // the reason, never nil
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Op, e.Subject, e.Err)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// check refuses a row that no artifact can have, before it is committed.
func (a Artifact) check() error {
	wrong := ""
	switch {
	case a.ArtifactID == "" || a.ManifestID == "" || a.Tenant == "":
		wrong = "an id or the tenant is empty"
	case a.Size < 0 || a.EnvelopeSize <= 0:
		wrong = "a size is out of range"
	case a.EnvelopeRoot.IsZero() || a.Root.IsZero():
		wrong = "a root is missing"
	case !validTime(a.CreatedAt) || a.ExpiresAt != nil && !validTime(*a.ExpiresAt):
		wrong = "a time is not between the years 1 and 9999"
	default:
		wrong = a.checkLinks()
	}
	if wrong == "" {
		return nil
	}
	return &Error{Op: "publish", Subject: a.ArtifactID, Err: ErrInvalid, Detail: wrong}
}

// validTime refuses the zero time, which is a forgotten one, and times that
// RFC 3339 cannot write.
func validTime(t time.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && year >= 1 && year <= 9999
}

// republish says what publishing a means when old has its id already.
func republish(old, a Artifact) error {
	switch {
	case old.ManifestID != a.ManifestID:
		return &Error{
			Op: "publish", Subject: a.ArtifactID, Err: ErrExists,
			Detail: "with the manifest " + old.ManifestID,
		}
	case old.DeletedAt != nil:
		return &Error{Op: "publish", Subject: a.ArtifactID, Err: ErrDeleted}
	}
	return nil
}

func checkDelete(id string, at time.Time) error {
	if id == "" || !validTime(at) {
		return &Error{Op: "delete", Subject: id, Err: ErrInvalid, Detail: "the id or the time is missing"}
	}
	return nil
}

func checkList(tenant string, limit int) error {
	if tenant == "" || limit < 1 || limit > MaxList {
		return &Error{
			Op: "list", Subject: tenant, Err: ErrInvalid,
			Detail: fmt.Sprintf("it takes a tenant and a limit from 1 to %d", MaxList),
		}
	}
	return nil
}

func notFound(op, id string) error { return &Error{Op: op, Subject: id, Err: ErrNotFound} }
