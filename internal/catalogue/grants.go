package catalogue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"leafproof/merkle"
)

// Pattern says which artifacts a grant or a restriction is about, as text that
// the gate compares; the catalogue does not.
type Pattern struct{ Tenant, Run, Artifact string }

// Principal is one who may be given leave.
type Principal struct {
	Name      string
	Tenant    string      // the only one that he ever sees
	Run       *string     // the only run of it, where not nil
	TokenHash merkle.Root // of his bearer token; zero for none
	CreatedAt time.Time   // kept to the microsecond, as all times are
	RemovedAt *time.Time  // nil while he is not removed
}

// Grant is a leave that was given.
type Grant struct {
	GrantID   string // no two have the same
	Principal string // whose it is
	Action    string
	Pattern   Pattern
	Records   *merkle.Range // the only record numbers, where not nil
	Purpose   string        // the only purpose; "" for any
	NotAfter  *time.Time    // nil for never
	// Parent is the grant that this one narrows, and Under the one that let its
	// holder give it; "" where the owner gave it. It ends with either.
	Parent, Under string
	GrantedBy     string
	CreatedAt     time.Time
	RevokedAt     *time.Time // nil while it stands
	Seq           int64      // the order of giving, from 1, with gaps; set by the catalogue
}

// Restriction denies what its pattern is about to everybody.
type Restriction struct {
	Pattern   Pattern
	CreatedAt time.Time
	By        string
}

// Rights are what decides about a principal's requests, at one moment.
type Rights struct {
	Epoch        int64
	Principal    *Principal // nil: there is none of the name
	Grants       []Grant    // those of the principal that were not revoked, by Seq
	Held         []Pattern  // of those that were
	Restrictions []Restriction
}

// MaxGrants is the most grants that one principal has at a time, and MaxRestrictions
// the most restrictions of a store: they are all looked at.
const (
	MaxGrants       = 10_000
	MaxRestrictions = 10_000
)

// Grants is the part of a catalogue that says what is allowed. Each change raises
// the policy epoch and enters its record in the same transaction; one that changes
// nothing does neither.
type Grants interface {
	// AddPrincipal enters a principal. [ErrExists] is one of the name that was not
	// removed, unless he has no token yet and the same tenant and run: then he gets
	// this one.
	AddPrincipal(ctx context.Context, p Principal, record Disclosure) error
	// RemovePrincipal ends a principal: his token is forgotten and his grants are
	// revoked, with those that rest on them. An unknown or removed one is
	// [ErrNoPrincipal].
	RemovePrincipal(ctx context.Context, name string, at time.Time, record Disclosure) error
	// Principal returns a principal that was not removed, or ErrNoPrincipal.
	Principal(ctx context.Context, name string) (Principal, error)
	// PrincipalByToken is Principal by the hash of a token.
	PrincipalByToken(ctx context.Context, hash merkle.Root) (Principal, error)
	// Principals lists those that were not removed by name, from the first behind
	// after on; at most limit, which is from 1 to [MaxList].
	Principals(ctx context.Context, after string, limit int) ([]Principal, error)

	// Grant enters a grant. Where there is no principal of its name, p is entered
	// first. A parent or Under that does not stand is [ErrNoGrant].
	Grant(ctx context.Context, g Grant, p Principal, record Disclosure) error
	// Revoke ends a grant and all that rest on it. An unknown one is ErrNoGrant,
	// one that is revoked already no error.
	Revoke(ctx context.Context, id string, at time.Time, record Disclosure) error
	// GrantOf returns a grant, also one that was revoked.
	GrantOf(ctx context.Context, id string) (Grant, error)
	// GrantsOf lists the grants of a principal ("" is everybody) with Seq > after,
	// also those that were revoked, by Seq; at most limit.
	GrantsOf(ctx context.Context, principal string, after int64, limit int) ([]Grant, error)

	// Restrict enters a restriction. One that stands is no error.
	Restrict(ctx context.Context, r Restriction, record Disclosure) error
	// Unrestrict ends a restriction, which is named by its whole pattern.
	Unrestrict(ctx context.Context, p Pattern, record Disclosure) error
	// Restrictions lists all, in the order of their patterns.
	Restrictions(ctx context.Context) ([]Restriction, error)

	// Rights returns what decides about a principal, as it stood at one moment.
	Rights(ctx context.Context, principal string) (Rights, error)
	// RaiseEpoch raises the policy epoch for a change that stands elsewhere.
	RaiseEpoch(ctx context.Context) error
	// Quick returns the policy epoch and the time without waiting for anything. It
	// is not ok where that cannot be: [Catalogue.Epoch] tells then. It sees each
	// change that was committed before, of any process, as Epoch does.
	Quick() (epoch int64, now time.Time, ok bool)
	// Stands reports whether the policy epoch is known to be epoch still, as Quick
	// does. It says no where it does not know.
	Stands(epoch int64) bool
	// Watches reports whether Stands ever knows: as long as no change is under way.
	Watches() bool
}

// grantSchema belongs to version 4 of the schema. A row of principals or grants is
// never removed, so that nobody who held a leave is told that he never did.
const grantSchema = `
CREATE TABLE principals (
	name       TEXT    PRIMARY KEY,
	tenant     TEXT    NOT NULL,
	run        TEXT,
	token_hash BLOB    UNIQUE CHECK (length(token_hash) = 32),
	created_at INTEGER NOT NULL,
	removed_at INTEGER,
	CHECK (removed_at IS NULL OR token_hash IS NULL)
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	grant_id     TEXT    NOT NULL UNIQUE,
	principal    TEXT    NOT NULL,
	action       TEXT    NOT NULL,
	tenant       TEXT    NOT NULL,
	run          TEXT    NOT NULL,
	artifact     TEXT    NOT NULL,
	record_start INTEGER CHECK (record_start >= 0),
	record_end   INTEGER CHECK (record_end > record_start),
	purpose      TEXT    NOT NULL,
	not_after    INTEGER,
	parent       TEXT    NOT NULL,
	under        TEXT    NOT NULL,
	granted_by   TEXT    NOT NULL,
	created_at   INTEGER NOT NULL,
	revoked_at   INTEGER,
	CHECK ((record_start IS NULL) = (record_end IS NULL))
) STRICT;

CREATE INDEX grants_of_principal ON grants (principal, seq);

CREATE INDEX grants_by_parent ON grants (parent) WHERE parent <> '';

CREATE INDEX grants_by_under ON grants (under) WHERE under <> '';

CREATE TABLE restrictions (
	tenant     TEXT    NOT NULL,
	run        TEXT    NOT NULL,
	artifact   TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	made_by    TEXT    NOT NULL,
	PRIMARY KEY (tenant, run, artifact)
) STRICT, WITHOUT ROWID;
`

func (p Principal) check() error {
	if p.Name == "" || p.Tenant == "" || p.Run != nil && *p.Run == "" || !validTime(p.CreatedAt) {
		return &Error{Op: "add principal", Subject: p.Name, Err: ErrInvalid, Detail: "a name is empty or the time is missing"}
	}
	return nil
}

func (p Principal) clone() Principal {
	p.CreatedAt = micro(p.CreatedAt)
	if p.Run != nil {
		p.Run = new(*p.Run)
	}
	if p.RemovedAt != nil {
		p.RemovedAt = new(micro(*p.RemovedAt))
	}
	return p
}

// takes says whether a principal's row may become p: it was removed, or only lacks
// the token.
func (p Principal) takes(q Principal) bool {
	if p.RemovedAt != nil {
		return true
	}
	sameRun := p.Run == q.Run || p.Run != nil && q.Run != nil && *p.Run == *q.Run
	return p.TokenHash.IsZero() && !q.TokenHash.IsZero() && p.Tenant == q.Tenant && sameRun
}

func (p Pattern) check(op string) error {
	if p.Tenant == "" || p.Run == "" || p.Artifact == "" {
		return &Error{Op: op, Subject: p.String(), Err: ErrInvalid, Detail: "a part of the pattern is empty"}
	}
	return nil
}

func (p Pattern) String() string { return p.Tenant + "/" + p.Run + "/" + p.Artifact }

func (g Grant) check() error {
	wrong := ""
	switch {
	case g.GrantID == "" || g.Principal == "" || g.Action == "" || g.GrantedBy == "":
		wrong = "an id, a name or the action is empty"
	case !validTime(g.CreatedAt) || g.NotAfter != nil && !validTime(*g.NotAfter):
		wrong = "a time is not between the years 1 and 9999"
	case g.Records != nil && (g.Records.Start < 0 || g.Records.End <= g.Records.Start):
		wrong = fmt.Sprintf("records %d:%d are none", g.Records.Start, g.Records.End)
	case g.Parent == g.GrantID || g.Under == g.GrantID:
		wrong = "it is its own parent"
	}
	if wrong != "" {
		return &Error{Op: "grant", Subject: g.GrantID, Err: ErrInvalid, Detail: wrong}
	}
	return g.Pattern.check("grant")
}

func (g Grant) clone() Grant {
	g.CreatedAt = micro(g.CreatedAt)
	if g.Records != nil {
		g.Records = new(*g.Records)
	}
	if g.NotAfter != nil {
		g.NotAfter = new(micro(*g.NotAfter))
	}
	if g.RevokedAt != nil {
		g.RevokedAt = new(micro(*g.RevokedAt))
	}
	return g
}

// tooMany refuses a grant or restriction beyond the bound.
func tooMany(op, subject string, limit int) error {
	return &Error{Op: op, Subject: subject, Err: ErrTooMany, Detail: fmt.Sprintf("at most %d at a time", limit)}
}

// The engine in memory.

// allowed is the state of [Memory]'s Grants.
type allowed struct {
	epoch        int64
	principals   map[string]Principal
	grants       []Grant // grants[i].Seq == i+1
	restrictions []Restriction
}

// changed raises the epoch and enters the record of a change, with m locked.
func (m *Memory) changed(record Disclosure) {
	m.allowed.epoch++
	record.Epoch = m.allowed.epoch
	m.disclose(record)
	m.tick()
}

// AddPrincipal implements [Grants].
func (m *Memory) AddPrincipal(ctx context.Context, p Principal, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if old, ok := m.allowed.principals[p.Name]; ok && !old.takes(p) {
		return &Error{Op: "add principal", Subject: p.Name, Err: ErrExists}
	}
	m.enterPrincipal(p)
	m.changed(record)
	return nil
}

func (m *Memory) enterPrincipal(p Principal) {
	if m.allowed.principals == nil {
		m.allowed.principals = map[string]Principal{}
	}
	p.RemovedAt = nil
	if old, ok := m.allowed.principals[p.Name]; ok && old.RemovedAt == nil {
		p.CreatedAt = old.CreatedAt // it only lacked the token
	}
	m.allowed.principals[p.Name] = p.clone()
}

// RemovePrincipal implements [Grants].
func (m *Memory) RemovePrincipal(ctx context.Context, name string, at time.Time, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	p, ok := m.allowed.principals[name]
	if !ok || p.RemovedAt != nil {
		return noPrincipal("remove principal", name)
	}
	p.RemovedAt, p.TokenHash = new(micro(at)), merkle.Root{}
	m.allowed.principals[name] = p
	m.revoke(at, func(g *Grant) bool { return g.Principal == name })
	m.changed(record)
	return nil
}

func noPrincipal(op, name string) error {
	return &Error{Op: op, Subject: name, Err: ErrNoPrincipal}
}

func noGrant(op, id string) error { return &Error{Op: op, Subject: id, Err: ErrNoGrant} }

// revoke ends the grants that first names, and all that rest on them.
func (m *Memory) revoke(at time.Time, first func(*Grant) bool) (n int) {
	gone := map[string]bool{}
	// A grant comes after what it rests on.
	for i := range m.allowed.grants {
		g := &m.allowed.grants[i]
		if !first(g) && !gone[g.Parent] && !gone[g.Under] {
			continue
		}
		if gone[g.GrantID] = true; g.RevokedAt == nil {
			g.RevokedAt = new(micro(at))
			n++
		}
	}
	return n
}

// Principal implements [Grants].
func (m *Memory) Principal(ctx context.Context, name string) (Principal, error) {
	return m.principal(ctx, name, func(p Principal) bool { return p.Name == name })
}

// PrincipalByToken implements [Grants].
func (m *Memory) PrincipalByToken(ctx context.Context, hash merkle.Root) (Principal, error) {
	return m.principal(ctx, "of a token", func(p Principal) bool { return !hash.IsZero() && p.TokenHash == hash })
}

func (m *Memory) principal(ctx context.Context, name string, is func(Principal) bool) (Principal, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Principal{}, err
	}
	for _, p := range m.allowed.principals {
		if is(p) && p.RemovedAt == nil {
			return p.clone(), nil
		}
	}
	return Principal{}, noPrincipal("look up principal", name)
}

// Principals implements [Grants].
func (m *Memory) Principals(ctx context.Context, after string, limit int) ([]Principal, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("principals", limit); err != nil {
		return nil, err
	}
	var names []string
	for name, p := range m.allowed.principals {
		if name > after && p.RemovedAt == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var list []Principal
	for _, name := range names[:min(limit, len(names))] {
		list = append(list, m.allowed.principals[name].clone())
	}
	return list, nil
}

// Grant implements [Grants].
func (m *Memory) Grant(ctx context.Context, g Grant, p Principal, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := g.check(); err != nil {
		return err
	}
	live := 0
	for _, o := range m.allowed.grants {
		if o.GrantID == g.GrantID {
			return &Error{Op: "grant", Subject: g.GrantID, Err: ErrExists}
		}
		if o.Principal == g.Principal && o.RevokedAt == nil {
			live++
		}
	}
	if live >= MaxGrants {
		return tooMany("grant", g.Principal, MaxGrants)
	}
	for _, id := range []string{g.Parent, g.Under} {
		if id != "" && !slices.ContainsFunc(m.allowed.grants, func(o Grant) bool { return o.GrantID == id && o.RevokedAt == nil }) {
			return noGrant("grant under", id)
		}
	}
	if old, ok := m.allowed.principals[g.Principal]; !ok || old.RemovedAt != nil {
		if err := p.check(); err != nil {
			return err
		}
		m.enterPrincipal(p)
	}
	g = g.clone()
	g.RevokedAt, g.Seq = nil, int64(len(m.allowed.grants)+1)
	m.allowed.grants = append(m.allowed.grants, g)
	m.changed(record)
	return nil
}

// Revoke implements [Grants].
func (m *Memory) Revoke(ctx context.Context, id string, at time.Time, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(m.allowed.grants, func(g Grant) bool { return g.GrantID == id }) {
		return noGrant("revoke", id)
	}
	if m.revoke(at, func(g *Grant) bool { return g.GrantID == id }) > 0 {
		m.changed(record)
	}
	return nil
}

// GrantOf implements [Grants].
func (m *Memory) GrantOf(ctx context.Context, id string) (Grant, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Grant{}, err
	}
	for _, g := range m.allowed.grants {
		if g.GrantID == id {
			return g.clone(), nil
		}
	}
	return Grant{}, noGrant("look up grant", id)
}

// GrantsOf implements [Grants].
func (m *Memory) GrantsOf(ctx context.Context, principal string, after int64, limit int) ([]Grant, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("grants", limit); err != nil {
		return nil, err
	}
	var list []Grant
	for _, g := range m.allowed.grants {
		if g.Seq > after && (principal == "" || g.Principal == principal) && len(list) < limit {
			list = append(list, g.clone())
		}
	}
	return list, nil
}

// Restrict implements [Grants].
func (m *Memory) Restrict(ctx context.Context, r Restriction, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := r.Pattern.check("restrict"); err != nil {
		return err
	}
	if m.restricts(r.Pattern) {
		return nil
	}
	if len(m.allowed.restrictions) >= MaxRestrictions {
		return tooMany("restrict", r.Pattern.String(), MaxRestrictions)
	}
	r.CreatedAt = micro(r.CreatedAt)
	m.allowed.restrictions = append(m.allowed.restrictions, r)
	slices.SortFunc(m.allowed.restrictions, func(a, b Restriction) int { return comparePatterns(a.Pattern, b.Pattern) })
	m.changed(record)
	return nil
}

func comparePatterns(a, b Pattern) int {
	return slices.Compare([]string{a.Tenant, a.Run, a.Artifact}, []string{b.Tenant, b.Run, b.Artifact})
}

func (m *Memory) restricts(p Pattern) bool {
	return slices.ContainsFunc(m.allowed.restrictions, func(r Restriction) bool { return r.Pattern == p })
}

// Unrestrict implements [Grants].
func (m *Memory) Unrestrict(ctx context.Context, p Pattern, record Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if !m.restricts(p) {
		return noRestriction(p)
	}
	m.allowed.restrictions = slices.DeleteFunc(m.allowed.restrictions, func(r Restriction) bool { return r.Pattern == p })
	m.changed(record)
	return nil
}

func noRestriction(p Pattern) error {
	return &Error{Op: "unrestrict", Subject: p.String(), Err: ErrNoRestriction}
}

// Restrictions implements [Grants].
func (m *Memory) Restrictions(ctx context.Context) ([]Restriction, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	return slices.Clone(m.allowed.restrictions), err
}

// Rights implements [Grants].
func (m *Memory) Rights(ctx context.Context, principal string) (Rights, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Rights{}, err
	}
	r := Rights{Epoch: m.allowed.epoch, Restrictions: slices.Clone(m.allowed.restrictions)}
	if p, ok := m.allowed.principals[principal]; ok {
		r.Principal = new(p.clone())
	}
	for _, g := range m.allowed.grants {
		switch {
		case g.Principal != principal:
		case g.RevokedAt == nil:
			r.Grants = append(r.Grants, g.clone())
		case !slices.Contains(r.Held, g.Pattern):
			r.Held = append(r.Held, g.Pattern)
		}
	}
	return r, nil
}

// RaiseEpoch implements [Grants].
func (m *Memory) RaiseEpoch(ctx context.Context) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		m.allowed.epoch++
	}
	return err
}

// Quick implements [Grants].
func (m *Memory) Quick() (int64, time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allowed.epoch, m.tick(), !m.closed
}

// Watches implements [Grants].
func (m *Memory) Watches() bool { return true }

// Stands implements [Grants].
func (m *Memory) Stands(epoch int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allowed.epoch == epoch && !m.closed
}
