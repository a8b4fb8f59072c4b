package leafproof

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
)

// A GrantSpec says which leave is to be given.
type GrantSpec struct {
	Principal Principal
	Action    Action
	// Pattern is tenant[/run[/artifact]]: each part a name, the beginning of names
	// with a * behind it, or *, which stands for what is left out too.
	Pattern string
	// Records, where not nil, are the only records that may be shown. It goes with
	// read and prove.
	Records *merkle.Range
	// Purpose, where not "", is the only purpose that may be asked for.
	Purpose string
	// NotAfter ends the leave; zero is never.
	NotAfter time.Time
}

// A Grant is a leave that was given.
type Grant struct {
	ID        string     `json:"id"`
	Principal Principal  `json:"principal"`
	Action    Action     `json:"action"`
	Pattern   string     `json:"pattern"`
	Records   *[2]int64  `json:"records"` // the only records that may be shown, half open; nil: all
	Purpose   string     `json:"purpose"`
	NotAfter  *time.Time `json:"not_after"`
	// Parent is the grant that this one narrows, and Under the one that let its
	// holder give it; "" where the owner gave it. It ends with either.
	Parent    string     `json:"parent"`
	Under     string     `json:"under"`
	GrantedBy Principal  `json:"granted_by"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

func grantOf(g catalogue.Grant) Grant {
	var records *[2]int64
	if g.Records != nil {
		records = &[2]int64{g.Records.Start, g.Records.End}
	}
	return Grant{
		ID: g.GrantID, Principal: Principal(g.Principal), Action: Action(g.Action), Pattern: gate.Pattern(g.Pattern).String(),
		Records: records, Purpose: g.Purpose, NotAfter: g.NotAfter, Parent: g.Parent, Under: g.Under,
		GrantedBy: Principal(g.GrantedBy), CreatedAt: g.CreatedAt, RevokedAt: g.RevokedAt,
	}
}

// Grant gives leave. The owner may give any: where there is no principal of the name,
// it becomes one of the tenant that the pattern names ([DefaultTenant] where it names
// several), without a token. Somebody else may pass on what he holds himself, if he
// holds the action grant for it too, to a principal of his tenant; and only less,
// never more: the new grant ends with those that it rests on.
func (s *Store) Grant(ctx context.Context, who Caller, spec GrantSpec) (Grant, error) {
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return Grant{}, wireError("grant", err)
	}
	pattern, err := spec.check(now)
	if err != nil {
		return Grant{}, err
	}
	g := catalogue.Grant{
		GrantID: "gr_" + strings.ToLower(rand.Text()), Principal: string(spec.Principal), Action: string(spec.Action),
		Pattern: catalogue.Pattern(pattern), Records: spec.Records, Purpose: spec.Purpose, GrantedBy: string(who.Principal), CreatedAt: now,
	}
	if !spec.NotAfter.IsZero() {
		g.NotAfter = &spec.NotAfter
	}
	if who.Principal != gate.Owner {
		if err := s.passOn(ctx, who, &g, now); err != nil {
			return Grant{}, err
		}
	}
	p, err := s.grantee(ctx, who, pattern, g)
	if err != nil {
		return Grant{}, err
	}
	p.TokenHash = merkle.Root{} // if he is removed meanwhile, the grant makes one of the name, whom the old token does not let in
	err = s.catalogue.Grant(ctx, g, p, s.changed(who, now, "grant", p.Tenant, g.GrantID, grantOf(g)))
	if errors.Is(err, catalogue.ErrNoGrant) {
		return Grant{}, mayNotGrant(who, spec) // it was revoked meanwhile
	}
	return grantOf(g), wireError("grant", err)
}

// check refuses what no grant can be.
func (spec GrantSpec) check(now time.Time) (gate.Pattern, error) {
	pattern, err := gate.ParsePattern(spec.Pattern)
	if err != nil {
		return pattern, wireError("pattern", err)
	}
	if err := checkPrincipal(spec.Principal); err != nil {
		return pattern, err
	}
	known := false
	var all []string
	for _, a := range gate.Actions() {
		known = known || a == spec.Action
		all = append(all, string(a))
	}
	switch {
	case !known:
		return pattern, fail(CodeSelectorInvalid, FixCall, "action", "%q is no action: %s", string(spec.Action), strings.Join(all, ", "))
	case spec.Records != nil && spec.Action != gate.Read && spec.Action != gate.Prove:
		return pattern, fail(CodeSelectorInvalid, FixCall, "records", "records go with read and prove: what %s tells is about all of them", spec.Action)
	case spec.Records != nil && (spec.Records.Start < 0 || spec.Records.End <= spec.Records.Start):
		return pattern, fail(CodeSelectorInvalid, FixCall, "records", "records %d:%d are none", spec.Records.Start, spec.Records.End)
	case len(spec.Purpose) > maxNamed || !utf8.ValidString(spec.Purpose) || strings.ContainsRune(spec.Purpose, 0):
		return pattern, fail(CodeSelectorInvalid, FixCall, "purpose", "a purpose is text of at most %d bytes", maxNamed)
	case !spec.NotAfter.IsZero() && !spec.NotAfter.After(now):
		return pattern, fail(CodeSelectorInvalid, FixCall, "not_after", "it would have ended at %s: it is %s",
			spec.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case spec.NotAfter.UTC().Year() > 9999:
		return pattern, fail(CodeSelectorInvalid, FixCall, "not_after", "the year %d has no spelling", spec.NotAfter.Year())
	}
	return pattern, nil
}

// checkPrincipal refuses what cannot be the name of a principal other than the owner.
func checkPrincipal(name Principal) error {
	if err := manifest.CheckName(string(name)); err != nil {
		return wireError("principal", err)
	}
	if name == gate.Owner {
		return fail(CodeSelectorInvalid, FixCall, "principal", "the owner of the store needs no leave, and has no token")
	}
	return nil
}

// grantee returns the principal that a grant is for, as it is entered if it is not
// there. A grant that could never let him do anything is refused.
func (s *Store) grantee(ctx context.Context, who Caller, pattern gate.Pattern, g catalogue.Grant) (catalogue.Principal, error) {
	p, err := s.catalogue.Principal(ctx, g.Principal)
	switch {
	case errors.Is(err, catalogue.ErrNoPrincipal) && who.Principal == gate.Owner:
		p = catalogue.Principal{Name: g.Principal, Tenant: pattern.Tenant, CreatedAt: g.CreatedAt}
		if strings.HasSuffix(p.Tenant, "*") {
			p.Tenant = DefaultTenant
		}
	case err != nil && !errors.Is(err, catalogue.ErrNoPrincipal):
		return p, wireError(g.Principal, err)
	}
	if who.Principal != gate.Owner {
		// Whether another tenant has a principal of the name, he must not learn.
		own, ownErr := s.catalogue.Principal(ctx, string(who.Principal))
		if ownErr != nil || err != nil || p.Tenant != own.Tenant {
			return p, fail(CodeRefNotFound, FixCall, g.Principal, "%s: no such principal", g.Principal)
		}
	}
	if !(gate.Pattern{Tenant: pattern.Tenant, Run: "*", Artifact: "*"}).Matches(p.Tenant, "", "") {
		return p, fail(CodeSelectorInvalid, FixCall, "pattern", "%s is of tenant %s, and never sees another: %s is none of it", p.Name, p.Tenant, pattern)
	}
	if p.Run != nil && !(gate.Pattern{Tenant: "*", Run: pattern.Run, Artifact: "*"}).Matches("", *p.Run, "") {
		if who.Principal != gate.Owner { // who need not know of the run
			return p, fail(CodeSelectorInvalid, FixCall, "pattern", "%s is of another run, and never sees any of %s", p.Name, pattern)
		}
		return p, fail(CodeSelectorInvalid, FixCall, "pattern", "%s is of run %s, and never sees another: %s is none of it", p.Name, *p.Run, pattern)
	}
	return p, nil
}

// passOn makes g rest on grants that who holds, and no wider than they are.
func (s *Store) passOn(ctx context.Context, who Caller, g *catalogue.Grant, now time.Time) error {
	refuse := mayNotGrant(who, GrantSpec{Principal: Principal(g.Principal), Action: Action(g.Action), Pattern: gate.Pattern(g.Pattern).String()})
	rights, err := s.catalogue.Rights(ctx, string(who.Principal))
	if err != nil {
		return wireError("grant", err)
	}
	if rights.Principal == nil || rights.Principal.RemovedAt != nil {
		return refuse
	}
	// His grants may speak of more than the run that he is bound to: what he holds does not.
	if run := rights.Principal.Run; run != nil && !(gate.Pattern{Tenant: "*", Run: *run, Artifact: "*"}).Covers(gate.Pattern(g.Pattern)) {
		return refuse
	}
	under := holds(rights, gate.Grant, *g, now, func(o catalogue.Grant) bool {
		return o.Records == nil && (o.Purpose == "" || o.Purpose == who.Purpose)
	})
	parent := holds(rights, Action(g.Action), *g, now, func(o catalogue.Grant) bool {
		inside := o.Records == nil || g.Records != nil && o.Records.Start <= g.Records.Start && g.Records.End <= o.Records.End
		return inside && (o.Purpose == "" || g.Purpose == "" || o.Purpose == g.Purpose)
	})
	if under == nil || parent == nil {
		return refuse
	}
	g.Parent, g.Under = parent.GrantID, under.GrantID
	if g.Purpose == "" {
		g.Purpose = parent.Purpose
	}
	for _, o := range []*catalogue.Grant{parent, under} {
		if o.NotAfter != nil && (g.NotAfter == nil || g.NotAfter.After(*o.NotAfter)) {
			g.NotAfter = o.NotAfter
		}
	}
	return nil
}

// holds returns a grant for an action that stands, covers the pattern of g, and
// serves; of several, the last to end. One that ends before g is to end serves only
// where g names no end.
func holds(rights catalogue.Rights, action Action, g catalogue.Grant, now time.Time, serves func(catalogue.Grant) bool) (best *catalogue.Grant) {
	for i := range rights.Grants {
		o := &rights.Grants[i]
		if Action(o.Action) != action || !gate.Pattern(o.Pattern).Covers(gate.Pattern(g.Pattern)) || !serves(*o) {
			continue
		}
		if o.NotAfter != nil && (!now.Before(*o.NotAfter) || g.NotAfter != nil && g.NotAfter.After(*o.NotAfter)) {
			continue
		}
		if best == nil || best.NotAfter != nil && (o.NotAfter == nil || o.NotAfter.After(*best.NotAfter)) {
			best = o
		}
	}
	return best
}

func mayNotGrant(who Caller, spec GrantSpec) error {
	return fail(CodeAccessRevoked, Stop, spec.Pattern, "%s may not give leave to %s %s: who passes leave on must hold it, and the leave to grant, at least so far and so long",
		who.Principal, spec.Action, spec.Pattern)
}

// ownerOnly refuses everybody but the owner.
func ownerOnly(who Caller, what string) error {
	if who.Principal == gate.Owner {
		return nil
	}
	return fail(CodeAccessRevoked, Stop, "", "only the owner of the store may %s", what)
}

// Revoke takes leave back, and what rests on it. When it returns nil, no disclosure
// under it begins in any process, and one that is under way ends within 64 KiB or a
// second. The owner may revoke every grant, somebody else those that he gave. One that
// is revoked already is no error. What its holder has of the artifacts is from then on
// to be ended by whoever controls it: see [Store.Copies].
func (s *Store) Revoke(ctx context.Context, who Caller, id string) error {
	absent := fail(CodeRefNotFound, FixCall, id, "%s: no such grant", id)
	g, err := s.catalogue.GrantOf(ctx, id)
	switch {
	case errors.Is(err, catalogue.ErrNoGrant):
		return absent
	case err != nil:
		return wireError(id, err)
	case who.Principal != gate.Owner && (who.Principal == "" || string(who.Principal) != g.GrantedBy):
		return absent
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return wireError(id, err)
	}
	err = s.catalogue.Revoke(ctx, id, now, s.changed(who, now, "revoke", g.Pattern.Tenant, id, grantOf(g)))
	s.gate.Settle(ctx)
	if err != nil {
		return wireError(id, err)
	}
	if g.RevokedAt != nil { // the inventory is walked once more
		now = *g.RevokedAt
	}
	return wireError(id, s.withdrawGrants(ctx, now))
}

// Grants returns the grants of a principal ("" is everybody's), also those that were
// revoked, in the order in which they were given. Somebody other than the owner sees
// his own.
func (s *Store) Grants(ctx context.Context, who Caller, principal Principal) ([]Grant, error) {
	if who.Principal != principal || who.Principal == "" { // nobody has none, and "" asks for everybody's
		if err := ownerOnly(who, "list the grants of others"); err != nil {
			return nil, err
		}
	}
	out := []Grant{}
	for after := int64(0); ; {
		list, err := s.catalogue.GrantsOf(ctx, string(principal), after, catalogue.MaxList)
		if err != nil {
			return nil, wireError("grants", err)
		}
		for _, g := range list {
			out, after = append(out, grantOf(g)), g.Seq
		}
		if len(list) < catalogue.MaxList {
			return out, nil
		}
	}
}

// A Restriction denies what its pattern is about, to everybody and above every grant.
type Restriction struct {
	Pattern   string    `json:"pattern"`
	CreatedAt time.Time `json:"created_at"`
	By        Principal `json:"by"`
}

// Restrict denies everything about the artifacts of a pattern, also to the owner,
// until it is lifted: nothing of them is shown, and none of them is ended. Only the
// owner may. It returns the pattern as it is listed.
func (s *Store) Restrict(ctx context.Context, who Caller, pattern string) (string, error) {
	return s.restriction(ctx, who, pattern, "restrict", func(p catalogue.Pattern, now time.Time, d catalogue.Disclosure) error {
		err := s.catalogue.Restrict(ctx, catalogue.Restriction{Pattern: p, CreatedAt: now, By: string(who.Principal)}, d)
		if err != nil {
			return err
		}
		return s.withdrawAll(ctx, gate.Pattern(p))
	})
}

// Unrestrict lifts a restriction, which is named by its whole pattern.
func (s *Store) Unrestrict(ctx context.Context, who Caller, pattern string) (string, error) {
	return s.restriction(ctx, who, pattern, "unrestrict", func(p catalogue.Pattern, _ time.Time, d catalogue.Disclosure) error {
		err := s.catalogue.Unrestrict(ctx, p, d)
		if errors.Is(err, catalogue.ErrNoRestriction) {
			return fail(CodeRefNotFound, FixCall, pattern, "%s: no such restriction", gate.Pattern(p))
		}
		return err
	})
}

func (s *Store) restriction(ctx context.Context, who Caller, text, op string, do func(catalogue.Pattern, time.Time, catalogue.Disclosure) error) (string, error) {
	if err := ownerOnly(who, op+" artifacts"); err != nil {
		return "", err
	}
	p, err := gate.ParsePattern(text)
	if err != nil {
		return "", wireError("pattern", err)
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return "", wireError(op, err)
	}
	d := s.changed(who, now, op, "", "", map[string]string{"pattern": p.String()})
	if !strings.HasSuffix(p.Tenant, "*") {
		d.Tenant = p.Tenant
	}
	err = do(catalogue.Pattern(p), now, d)
	s.gate.Settle(ctx)
	return p.String(), wireError(op, err)
}

// Restrictions returns all restrictions, in the order of their patterns. Only the
// owner may.
func (s *Store) Restrictions(ctx context.Context, who Caller) ([]Restriction, error) {
	if err := ownerOnly(who, "list restrictions"); err != nil {
		return nil, err
	}
	list, err := s.catalogue.Restrictions(ctx)
	if err != nil {
		return nil, wireError("restrictions", err)
	}
	out := make([]Restriction, 0, len(list))
	for _, r := range list {
		out = append(out, Restriction{gate.Pattern(r.Pattern).String(), r.CreatedAt, Principal(r.By)})
	}
	return out, nil
}
