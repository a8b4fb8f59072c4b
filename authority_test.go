package leafproof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/merkle"
)

// granting is a store without objects: what is needed to give leave and to ask.
func granting(t testing.TB, c catalogue.Catalogue) *Store {
	t.Helper()
	s, err := newStore(t.Context(), config{catalogue: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); c.Close() })
	return s
}

func give(t testing.TB, s *Store, who Caller, spec GrantSpec) string {
	t.Helper()
	g, err := s.Grant(t.Context(), who, spec)
	if err != nil {
		t.Fatalf("grant %+v: %v", spec, err)
	}
	return g.ID
}

// TestActionsAndRelations: every action for everybody who may stand in a relation to
// an artifact. What no row allows is refused.
func TestActionsAndRelations(t *testing.T) {
	as := func(p Principal) Caller { return Caller{Principal: p} }
	grant := func(t *testing.T, s *Store, p Principal, a Action, pattern string) string {
		return give(t, s, Owner, GrantSpec{Principal: p, Action: a, Pattern: pattern})
	}
	const pattern = "acme/r1"
	revoke := func(t *testing.T, s *Store, id string) {
		if err := s.Revoke(t.Context(), Owner, id); err != nil {
			t.Fatal(err)
		}
	}
	member := func(t *testing.T, s *Store, name Principal, tenant string, run *string) {
		if _, err := s.AddPrincipal(t.Context(), Owner, name, tenant, run); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		who  Principal
		set  func(t *testing.T, s *Store, a Action)
		want error // nil for an allow
	}{
		"owner":         {gate.Owner, func(*testing.T, *Store, Action) {}, nil},
		"anonymous":     {"", func(*testing.T, *Store, Action) {}, gate.ErrDenied},
		"never granted": {"alice", func(*testing.T, *Store, Action) {}, gate.ErrDenied},
		"granted":       {"alice", func(t *testing.T, s *Store, a Action) { grant(t, s, "alice", a, pattern) }, nil},
		"another's grant": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "bob", a, pattern)
		}, gate.ErrDenied},
		"narrowed to the artifact": {"alice", func(t *testing.T, s *Store, a Action) { grant(t, s, "alice", a, "acme/r1/art_1") }, nil},
		"narrowed to another": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "alice", a, "acme/r1/art_2")
		}, gate.ErrDenied},
		"for another purpose": {"alice", func(t *testing.T, s *Store, a Action) {
			give(t, s, Owner, GrantSpec{Principal: "alice", Action: a, Pattern: pattern, Purpose: "other"})
		}, gate.ErrRevoked},
		"every other action": {"alice", func(t *testing.T, s *Store, a Action) {
			for _, other := range gate.Actions() {
				if other != a {
					grant(t, s, "alice", other, pattern)
				}
			}
		}, gate.ErrRevoked},
		"expired": {"alice", func(t *testing.T, s *Store, a Action) {
			give(t, s, Owner, GrantSpec{Principal: "alice", Action: a, Pattern: pattern, NotAfter: time.Now().Add(20 * time.Millisecond)})
			time.Sleep(25 * time.Millisecond)
		}, gate.ErrRevoked},
		"revoked": {"alice", func(t *testing.T, s *Store, a Action) { revoke(t, s, grant(t, s, "alice", a, pattern)) }, gate.ErrRevoked},
		"passed on": {"bob", func(t *testing.T, s *Store, a Action) {
			member(t, s, "bob", "acme", nil)
			grant(t, s, "alice", a, "acme")
			if a != gate.Grant {
				grant(t, s, "alice", gate.Grant, "acme")
			}
			give(t, s, as("alice"), GrantSpec{Principal: "bob", Action: a, Pattern: pattern})
		}, nil},
		"revoked parent": {"bob", func(t *testing.T, s *Store, a Action) {
			member(t, s, "bob", "acme", nil)
			id := grant(t, s, "alice", a, "acme")
			if a != gate.Grant {
				grant(t, s, "alice", gate.Grant, "acme")
			}
			give(t, s, as("alice"), GrantSpec{Principal: "bob", Action: a, Pattern: pattern})
			revoke(t, s, id)
		}, gate.ErrRevoked},
		"revoked leave to pass on": {"bob", func(t *testing.T, s *Store, a Action) {
			member(t, s, "bob", "acme", nil)
			grant(t, s, "alice", a, "acme")
			id := grant(t, s, "alice", gate.Grant, "acme/r*")
			give(t, s, as("alice"), GrantSpec{Principal: "bob", Action: a, Pattern: pattern})
			revoke(t, s, id)
			if a == gate.Grant { // the wide one served for both
				for _, g := range must(s.Grants(t.Context(), Owner, "alice")) {
					revoke(t, s, g.ID)
				}
			}
		}, gate.ErrRevoked},
		"restricted": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "alice", a, pattern)
			must(s.Restrict(t.Context(), Owner, "*/r1"))
		}, gate.ErrRevoked},
		"restricted, without a grant": {"alice", func(t *testing.T, s *Store, _ Action) {
			must(s.Restrict(t.Context(), Owner, "acme"))
		}, gate.ErrDenied},
		"owner, restricted": {gate.Owner, func(t *testing.T, s *Store, _ Action) {
			must(s.Restrict(t.Context(), Owner, "acme/r1/art_1"))
		}, gate.ErrRevoked},
		"restricted elsewhere": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "alice", a, pattern)
			must(s.Restrict(t.Context(), Owner, "acme/r1/art_2"))
			must(s.Restrict(t.Context(), Owner, "acm"))
		}, nil},
		"other run": {"alice", func(t *testing.T, s *Store, a Action) { grant(t, s, "alice", a, "acme/r2") }, gate.ErrDenied},
		"bound to another run": {"alice", func(t *testing.T, s *Store, a Action) {
			member(t, s, "alice", "acme", new("r2"))
			grant(t, s, "alice", a, "acme")
		}, gate.ErrDenied},
		"bound to the run": {"alice", func(t *testing.T, s *Store, a Action) {
			member(t, s, "alice", "acme", new("r1"))
			grant(t, s, "alice", a, "acme")
		}, nil},
		"other tenant": {"alice", func(t *testing.T, s *Store, a Action) {
			member(t, s, "alice", "beta", nil)
			grant(t, s, "alice", a, "*")
		}, gate.ErrDenied},
		"removed": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "alice", a, pattern)
			if err := s.RemovePrincipal(t.Context(), Owner, "alice"); err != nil {
				t.Fatal(err)
			}
		}, gate.ErrRevoked},
		"removed and added again": {"alice", func(t *testing.T, s *Store, a Action) {
			grant(t, s, "alice", a, pattern)
			if err := s.RemovePrincipal(t.Context(), Owner, "alice"); err != nil {
				t.Fatal(err)
			}
			member(t, s, "alice", "acme", nil)
		}, gate.ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, a := range gate.Actions() {
				s := granting(t, catalogue.NewMemory())
				test.set(t, s, a)
				r := Request{Principal: test.who, Tenant: "acme", Run: "r1", Artifact: "art_1", Action: a}
				for range 2 { // the second time it is remembered
					if _, err := s.gate.Disclose(t.Context(), r); !errors.Is(err, test.want) {
						t.Errorf("%s: error = %v, want %v", a, err, test.want)
					}
				}
				r.Action = "write" // no action: nobody may
				if _, err := s.gate.Disclose(t.Context(), r); !errors.Is(err, gate.ErrDenied) {
					t.Errorf("an unknown action: error = %v", err)
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestGrantsUnavailable: an authority that cannot read its grants lets nobody see
// anything, also the owner.
func TestGrantsUnavailable(t *testing.T) {
	c := catalogue.NewMemory()
	s := granting(t, c)
	give(t, s, Owner, GrantSpec{Principal: "alice", Action: gate.Read, Pattern: "acme"})
	r := Request{Principal: "alice", Tenant: "acme", Artifact: "art_1", Action: gate.Read}
	p, err := s.gate.Disclose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, who := range []Principal{"alice", gate.Owner} {
		r.Principal = who
		if _, err := s.gate.Disclose(t.Context(), r); !errors.Is(err, gate.ErrUnavailable) || CodeOf(wireError("", err)) != CodeAuthorityUnavailable {
			t.Errorf("%s: error = %v", who, err)
		}
	}
	if err := p.Check(t.Context()); !errors.Is(err, gate.ErrUnavailable) {
		t.Errorf("a permit of before: %v", err)
	}
}

// model is what the grants should allow, found out slowly: from everything that was
// ever done, each time anew.
type model struct {
	grants     []modelGrant
	principals map[Principal]modelPrincipal
	restricted map[string]bool
}

type modelPrincipal struct {
	tenant string
	run    string // "" for none
}

type modelGrant struct {
	g       Grant
	revoked bool
}

// stands reports whether a grant and everything that it rests on was not revoked.
func (m *model) stands(id string) bool {
	for _, g := range m.grants {
		if g.g.ID == id {
			return !g.revoked && (g.g.Parent == "" || m.stands(g.g.Parent)) && (g.g.Under == "" || m.stands(g.g.Under))
		}
	}
	return false
}

// matchSlow compares a pattern part by part, character by character.
func matchSlow(pattern string, names ...string) bool {
	parts := append(strings.Split(pattern, "/"), "*", "*")
	for i, name := range names {
		p := parts[i]
		if strings.HasSuffix(p, "*") {
			p = p[:len(p)-1]
			if len(name) >= len(p) {
				name = name[:len(p)]
			}
		}
		if p != name {
			return false
		}
	}
	return true
}

func (m *model) decide(r Request) error {
	restricted := false
	for p := range m.restricted {
		restricted = restricted || matchSlow(p, r.Tenant, r.Run, r.Artifact)
	}
	if r.Principal == gate.Owner {
		if restricted {
			return gate.ErrRevoked
		}
		return nil
	}
	p, ok := m.principals[r.Principal]
	if !ok || p.tenant != r.Tenant || p.run != "" && p.run != r.Run {
		return gate.ErrDenied
	}
	held, allowed := false, false
	for _, g := range m.grants {
		if g.g.Principal != r.Principal || !matchSlow(g.g.Pattern, r.Tenant, r.Run, r.Artifact) {
			continue
		}
		held = true
		if m.stands(g.g.ID) && g.g.Action == r.Action && (g.g.Purpose == "" || g.g.Purpose == r.Purpose) {
			allowed = true
		}
	}
	switch {
	case allowed && !restricted:
		return nil
	case held:
		return gate.ErrRevoked
	}
	return gate.ErrDenied
}

// TestGrantsModel: random sequences of changes, and after each what may be done,
// beside the model.
func TestGrantsModel(t *testing.T) {
	for engine, open := range map[string]func(t *testing.T) catalogue.Catalogue{
		"memory": func(*testing.T) catalogue.Catalogue { return catalogue.NewMemory() },
		"sqlite": func(t *testing.T) catalogue.Catalogue {
			return must(catalogue.CreateSQLite(filepath.Join(t.TempDir(), "catalogue")))
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 1))
			s := granting(t, open(t))
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			m := &model{principals: map[Principal]modelPrincipal{}, restricted: map[string]bool{}}
			steps := 400
			if testing.Short() || engine == "sqlite" {
				steps = 120
			}
			allowed := 0
			for step := range steps {
				m.step(t, s, rng)
				for range 20 {
					r := Request{
						Principal: pick[Principal](rng, "alice", "bob", "carol", "owner"), Tenant: pick(rng, "acme", "acme2", "beta"), Run: pick(rng, "", "r1", "r2"),
						Artifact: pick(rng, "art_1", "art_2"), Action: pick(rng, gate.Read, gate.Query, gate.Grant), Purpose: pick(rng, "", "p"),
					}
					_, err := s.gate.Disclose(t.Context(), r)
					want := m.decide(r)
					if !errors.Is(err, want) {
						t.Fatalf("step %d: %+v: %v, the model says %v", step, r, err, want)
					}
					if want == nil && r.Principal != gate.Owner {
						allowed++
					}
				}
			}
			if allowed == 0 {
				t.Error("nothing was ever allowed")
			}
		})
	}
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// step makes one change at random, and notes it.
func (m *model) step(t *testing.T, s *Store, rng *rand.Rand) {
	ctx := t.Context()
	pattern := pick(rng, "acme", "acme/r1", "acme/r1/art_1", "acme/*/art_2", "acme*", "*", "*/r*", "beta", "beta/r2")
	switch rng.IntN(10) {
	case 0, 1, 2, 3, 4:
		who := Owner
		if rng.IntN(3) == 0 {
			who = Caller{Principal: pick[Principal](rng, "alice", "bob", "carol")}
		}
		g, err := s.Grant(ctx, who, GrantSpec{
			Principal: pick[Principal](rng, "alice", "bob", "carol"), Action: pick(rng, gate.Read, gate.Query, gate.Grant, gate.Grant),
			Pattern: pattern, Purpose: pick(rng, "", "", "p"),
		})
		if err != nil {
			if code := CodeOf(err); code != CodeAccessRevoked && code != CodeRefNotFound && code != CodeSelectorInvalid {
				t.Fatalf("grant: %v", err)
			}
			return
		}
		if who != Owner && (!m.covers(g.Parent, who.Principal, g) || !m.covers(g.Under, who.Principal, g)) {
			t.Fatalf("%s passed on what does not stand, or more than that: %+v", who.Principal, g)
		}
		if _, ok := m.principals[g.Principal]; !ok {
			tenant, _, _ := strings.Cut(pattern, "/")
			if strings.HasSuffix(tenant, "*") {
				tenant = DefaultTenant
			}
			m.principals[g.Principal] = modelPrincipal{tenant: tenant}
		}
		m.grants = append(m.grants, modelGrant{g: g})
	case 5, 6:
		if len(m.grants) > 0 {
			g := &m.grants[rng.IntN(len(m.grants))]
			if err := s.Revoke(ctx, Owner, g.g.ID); err != nil {
				t.Fatal(err)
			}
			g.revoked = true
		}
	case 7:
		if rng.IntN(3) == 0 {
			m.restricted[must(s.Restrict(ctx, Owner, pattern))] = true
		}
	case 8:
		for p := range m.restricted {
			must(s.Unrestrict(ctx, Owner, p))
			delete(m.restricted, p)
		}
	case 9:
		name, tenant := pick[Principal](rng, "alice", "bob", "carol"), pick(rng, "acme", "acme", "acme2", "beta")
		if rng.IntN(4) == 0 && s.RemovePrincipal(ctx, Owner, name) == nil {
			delete(m.principals, name)
			for i := range m.grants {
				if m.grants[i].g.Principal == name {
					m.grants[i].revoked = true
				}
			}
		}
		run := pick(rng, "", "", "r1")
		var bound *string
		if run != "" {
			bound = &run
		}
		if _, err := s.AddPrincipal(ctx, Owner, name, tenant, bound); err == nil {
			m.principals[name] = modelPrincipal{tenant, run}
		}
	}
}

// covers reports whether a grant stands, is who's, and is as wide as g.
func (m *model) covers(id string, who Principal, g Grant) bool {
	i := slices.IndexFunc(m.grants, func(o modelGrant) bool { return o.g.ID == id })
	if i < 0 || m.grants[i].g.Principal != who || !m.stands(id) {
		return false
	}
	// All that there is and g matches, it matches too.
	for _, tenant := range []string{"acme", "acme2", "beta"} {
		for _, run := range []string{"", "r1", "r2", "x"} {
			for _, artifact := range []string{"art_1", "art_2", "y"} {
				if matchSlow(g.Pattern, tenant, run, artifact) && !matchSlow(m.grants[i].g.Pattern, tenant, run, artifact) {
					return false
				}
			}
		}
	}
	return true
}

// TestRecordsOnly: a grant for some records lets these be shown and nothing else.
func TestRecordsOnly(t *testing.T) {
	s := granting(t, catalogue.NewMemory())
	for _, r := range []merkle.Range{{Start: 10, End: 11}, {Start: 20, End: 30}} {
		give(t, s, Owner, GrantSpec{Principal: "alice", Action: gate.Prove, Pattern: "acme", Records: &r})
	}
	bytes := []merkle.Range{{Start: 100, End: 200}}
	for name, test := range map[string]struct {
		change func(*Request)
		want   error
	}{
		"nothing yet":              {func(r *Request) { r.Ranges = []merkle.Range{{}} }, nil},
		"nobody has looked":        {func(*Request) {}, gate.ErrRecords},
		"all bytes":                {func(r *Request) { r.Ranges = nil }, gate.ErrRecords},
		"one":                      {func(r *Request) { r.Records = []merkle.Range{{Start: 10, End: 11}} }, nil},
		"two runs":                 {func(r *Request) { r.Records = []merkle.Range{{Start: 10, End: 11}, {Start: 25, End: 30}} }, nil},
		"one too many":             {func(r *Request) { r.Records = []merkle.Range{{Start: 10, End: 12}} }, gate.ErrRecords},
		"one of two":               {func(r *Request) { r.Records = []merkle.Range{{Start: 10, End: 11}, {Start: 11, End: 12}} }, gate.ErrRecords},
		"the place of a neighbour": {func(r *Request) { r.Records, r.Placed = []merkle.Range{{Start: 10, End: 11}}, merkle.Range{End: 512} }, gate.ErrRecords},
		"its own place": {func(r *Request) {
			r.Records, r.Placed = []merkle.Range{{Start: 10, End: 11}}, merkle.Range{Start: 10, End: 11}
		}, nil},
		"a place alone": {func(r *Request) { r.Ranges, r.Placed = []merkle.Range{{}}, merkle.Range{Start: 9, End: 10} }, gate.ErrRecords},
	} {
		r := Request{Principal: "alice", Tenant: "acme", Artifact: "art_1", Action: gate.Prove, Ranges: bytes}
		test.change(&r)
		if _, err := s.gate.Disclose(t.Context(), r); !errors.Is(err, test.want) {
			t.Errorf("%s: error = %v, want %v", name, err, test.want)
		}
	}
	give(t, s, Owner, GrantSpec{Principal: "alice", Action: gate.Prove, Pattern: "acme"})
	if _, err := s.gate.Disclose(t.Context(), Request{Principal: "alice", Tenant: "acme", Artifact: "art_1", Action: gate.Prove}); err != nil {
		t.Errorf("with a grant for all beside it: %v", err)
	}
}

// TestPositions: places in lists that are shown come back, and say nothing.
func TestPositions(t *testing.T) {
	s := &Store{}
	s.cursorKey[0] = 1
	alice, bob, owner := s.positions(Caller{Principal: "alice"}), s.positions(Caller{Principal: "bob"}), s.positions(Owner)
	ascends := 0
	for n := range int64(2000) {
		a := alice.show(n)
		if alice.hide(a) != n || a < 0 || a >= 1<<52 || (a == 0) != (n == 0) {
			t.Fatalf("%d is shown as %d, which is %d", n, a, alice.hide(a))
		}
		if n > 0 && (a == bob.show(n) || a == n) {
			t.Errorf("%d is shown as %d", n, a)
		}
		if owner.show(n) != n || owner.hide(n) != n {
			t.Errorf("the owner sees %d as %d", n, owner.show(n))
		}
		if alice.show(n+1) > a {
			ascends++
		}
	}
	if ascends < 800 || ascends > 1200 {
		t.Errorf("of 2000 places %d are followed by a greater one", ascends)
	}
}

func BenchmarkDecision(b *testing.B) {
	c := must(catalogue.CreateSQLite(filepath.Join(b.TempDir(), "catalogue")))
	s := granting(b, c)
	for n := range 100 {
		give(b, s, Owner, GrantSpec{Principal: "alice", Action: gate.Read, Pattern: fmt.Sprintf("acme/r%d", n)})
	}
	r := Request{Principal: "alice", Tenant: "acme", Run: "r50", Artifact: "art_1", Action: gate.Read, Ranges: []merkle.Range{{Start: 0, End: 10}}}
	p := must(s.gate.Disclose(context.Background(), r))
	b.Run("disclose", func(b *testing.B) {
		for b.Loop() {
			must(s.gate.Disclose(context.Background(), r))
		}
	})
	b.Run("check", func(b *testing.B) {
		p = must(s.gate.Disclose(context.Background(), r))
		for b.Loop() {
			if err := p.Check(context.Background()); err != nil {
				p = must(s.gate.Disclose(context.Background(), r))
			}
		}
	})
}

// TestRunBoundPassesOn: who is bound to a run passes on no more than what he sees of
// it, however wide his grants are written.
func TestRunBoundPassesOn(t *testing.T) {
	s, run := granting(t, catalogue.NewMemory()), "r1"
	if _, err := s.AddPrincipal(t.Context(), Owner, "alice", "local", &run); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddPrincipal(t.Context(), Owner, "bob", "local", nil); err != nil {
		t.Fatal(err)
	}
	give(t, s, Owner, GrantSpec{Principal: "alice", Action: gate.Read, Pattern: "local"})
	give(t, s, Owner, GrantSpec{Principal: "alice", Action: gate.Grant, Pattern: "local"})
	for pattern, ok := range map[string]bool{
		"local": false, "local/*": false, "local/r*": false, "local/r1*": false, "local/r2": false, "local/*/art_x": false,
		"local/r1": true, "local/r1/art_x": true,
	} {
		_, err := s.Grant(t.Context(), Caller{Principal: "alice"}, GrantSpec{Principal: "bob", Action: gate.Read, Pattern: pattern})
		if ok && err != nil || !ok && (err == nil || CodeOf(err) != CodeAccessRevoked) {
			t.Errorf("%s: %v, want leave: %v", pattern, err, ok)
		}
	}
}

// removing removes the principal of a grant just before it is entered.
type removing struct{ catalogue.Catalogue }

func (r removing) Grant(ctx context.Context, g catalogue.Grant, p catalogue.Principal, d catalogue.Disclosure) error {
	if err := r.RemovePrincipal(ctx, p.Name, g.CreatedAt, d); err != nil {
		return err
	}
	return r.Catalogue.Grant(ctx, g, p, d)
}

// TestGrantRevivesNoToken: a grant that comes at the same time as the removal of its
// principal does not let his token in again.
func TestGrantRevivesNoToken(t *testing.T) {
	c := catalogue.NewMemory()
	s := granting(t, c)
	token, err := s.AddPrincipal(t.Context(), Owner, "bob", "local", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.catalogue = removing{c}
	give(t, s, Owner, GrantSpec{Principal: "bob", Action: gate.Read, Pattern: "local"})
	if who, err := s.Authenticate(t.Context(), token); !errors.Is(err, ErrToken) {
		t.Errorf("the token of one who was removed lets in %v, %v", who, err)
	}
}
