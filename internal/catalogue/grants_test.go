package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

var noon = time.Date(2026, 11, 6, 12, 0, 0, 0, time.UTC)

// record is what the n-th change is entered as.
func record(n int) catalogue.Disclosure {
	return catalogue.Disclosure{At: noon, Principal: "owner", Action: "change", Shown: fmt.Sprint(n)}
}

// granted makes the grant id of alice to read everything of the tenant local.
func granted(id string) catalogue.Grant {
	return catalogue.Grant{
		GrantID: id, Principal: "alice", Action: "read", Pattern: catalogue.Pattern{Tenant: "local", Run: "*", Artifact: "*"},
		Records: &merkle.Range{Start: 10, End: 11}, Purpose: "p", NotAfter: new(noon.Add(time.Hour)), GrantedBy: "owner", CreatedAt: noon,
	}
}

func alice() catalogue.Principal {
	return catalogue.Principal{Name: "alice", Tenant: "local", Run: new("r1"), CreatedAt: noon}
}

func epochOf(t *testing.T, c catalogue.Catalogue) int64 {
	t.Helper()
	epoch, err := c.Epoch(t.Context())
	noErr(t, err)
	if quick, _, ok := c.Quick(); ok && quick != epoch {
		t.Errorf("Quick = %d, Epoch = %d", quick, epoch)
	}
	return epoch
}

// Each change raises the epoch by one and enters one record, one that changes
// nothing does neither.
func changesCount(t *testing.T, c catalogue.Catalogue) {
	ctx := t.Context()
	g := granted("gr_1")
	child := granted("gr_2")
	child.Parent, child.Principal = "gr_1", "bob"
	bob := catalogue.Principal{Name: "bob", Tenant: "local", CreatedAt: noon, TokenHash: merkle.Sum([]byte("t"))}
	lock := catalogue.Restriction{Pattern: catalogue.Pattern{Tenant: "a", Run: "*", Artifact: "*"}, CreatedAt: noon, By: "owner"}
	publish(t, c, artifact(1))
	for n, step := range []struct {
		name    string
		do      func(catalogue.Disclosure) error
		err     error
		changes bool
	}{
		{"grant makes the principal", func(d catalogue.Disclosure) error { return c.Grant(ctx, g, alice(), d) }, nil, true},
		{"the same id", func(d catalogue.Disclosure) error { return c.Grant(ctx, g, alice(), d) }, catalogue.ErrExists, false},
		{"a token for one without", func(d catalogue.Disclosure) error {
			p := alice()
			p.TokenHash = merkle.Sum([]byte("a"))
			return c.AddPrincipal(ctx, p, d)
		}, nil, true},
		{"a second token", func(d catalogue.Disclosure) error { return c.AddPrincipal(ctx, alice(), d) }, catalogue.ErrExists, false},
		{"another", func(d catalogue.Disclosure) error { return c.AddPrincipal(ctx, bob, d) }, nil, true},
		{"a child", func(d catalogue.Disclosure) error { return c.Grant(ctx, child, bob, d) }, nil, true},
		{"restrict", func(d catalogue.Disclosure) error { return c.Restrict(ctx, lock, d) }, nil, true},
		{"restrict again", func(d catalogue.Disclosure) error { return c.Restrict(ctx, lock, d) }, nil, false},
		{"unrestrict", func(d catalogue.Disclosure) error { return c.Unrestrict(ctx, lock.Pattern, d) }, nil, true},
		{"unrestrict again", func(d catalogue.Disclosure) error { return c.Unrestrict(ctx, lock.Pattern, d) }, catalogue.ErrNoRestriction, false},
		{"revoke", func(d catalogue.Disclosure) error { return c.Revoke(ctx, "gr_1", noon, d) }, nil, true},
		{"revoke what went with it", func(d catalogue.Disclosure) error { return c.Revoke(ctx, "gr_2", noon, d) }, nil, false},
		{"revoke nothing", func(d catalogue.Disclosure) error { return c.Revoke(ctx, "gr_3", noon, d) }, catalogue.ErrNoGrant, false},
		{"a child of what was revoked", func(d catalogue.Disclosure) error {
			child.GrantID = "gr_4"
			return c.Grant(ctx, child, bob, d)
		}, catalogue.ErrNoGrant, false},
		{"under what was revoked", func(d catalogue.Disclosure) error {
			child.GrantID, child.Parent, child.Under = "gr_4", "", "gr_1"
			return c.Grant(ctx, child, bob, d)
		}, catalogue.ErrNoGrant, false},
		{"remove", func(d catalogue.Disclosure) error { return c.RemovePrincipal(ctx, "bob", noon, d) }, nil, true},
		{"remove again", func(d catalogue.Disclosure) error { return c.RemovePrincipal(ctx, "bob", noon, d) }, catalogue.ErrNoPrincipal, false},
		{"add one that was removed", func(d catalogue.Disclosure) error { return c.AddPrincipal(ctx, bob, d) }, nil, true},
		{"no pattern", func(d catalogue.Disclosure) error {
			bad := granted("gr_5")
			bad.Pattern.Run = ""
			return c.Grant(ctx, bad, bob, d)
		}, catalogue.ErrInvalid, false},
		{"no records", func(d catalogue.Disclosure) error {
			bad := granted("gr_5")
			bad.Records = &merkle.Range{Start: 3, End: 3}
			return c.Grant(ctx, bad, bob, d)
		}, catalogue.ErrInvalid, false},
	} {
		before := epochOf(t, c)
		if err := step.do(record(n)); !errors.Is(err, step.err) {
			t.Fatalf("%s: error = %v, want %v", step.name, err, step.err)
		}
		want := before
		if step.changes {
			want++
		}
		if got := epochOf(t, c); got != want {
			t.Errorf("%s: epoch %d after %d, want %d", step.name, got, before, want)
		}
		log, err := c.Disclosures(ctx, catalogue.Asked{Limit: 100})
		noErr(t, err)
		if entered := len(log) > 0 && log[len(log)-1].Shown == fmt.Sprint(n); entered != step.changes {
			t.Errorf("%s: its record was entered: %t", step.name, entered)
		} else if entered && log[len(log)-1].Epoch != want {
			t.Errorf("%s: recorded at epoch %d, want %d", step.name, log[len(log)-1].Epoch, want)
		}
	}
	before := epochOf(t, c)
	noErr(t, c.Delete(ctx, artifact(1).ArtifactID, "r", noon))
	noErr(t, c.Delete(ctx, artifact(1).ArtifactID, "r", noon))
	noErr(t, c.RaiseEpoch(ctx))
	if got := epochOf(t, c); got != before+2 {
		t.Errorf("after a deletion and a change elsewhere: epoch %d after %d", got, before)
	}
}

// A grant comes back as it was given, and the cascade reaches all that rests on one.
func rightsCascade(t *testing.T, c catalogue.Catalogue) {
	ctx := t.Context()
	chain := []catalogue.Grant{granted("gr_0"), granted("gr_1"), granted("gr_2"), granted("gr_3"), granted("gr_4")}
	chain[1].Parent, chain[2].Under, chain[3].Parent = "gr_0", "gr_1", "gr_2" // gr_4 rests on nothing
	chain[4].Records, chain[4].NotAfter, chain[4].Pattern.Tenant = nil, nil, "lo*"
	for n, g := range chain {
		noErr(t, c.Grant(ctx, g, alice(), record(n)))
	}
	r, err := c.Rights(ctx, "alice")
	noErr(t, err)
	for i := range r.Grants {
		want := chain[i]
		want.Seq = r.Grants[i].Seq
		if !reflect.DeepEqual(r.Grants[i], want) {
			t.Errorf("grant %d = %+v, want %+v", i, r.Grants[i], want)
		}
	}
	if len(r.Grants) != 5 || r.Held != nil || r.Epoch != epochOf(t, c) || r.Principal == nil || *r.Principal.Run != "r1" {
		t.Errorf("Rights = %+v", r)
	}
	noErr(t, c.Revoke(ctx, "gr_1", noon.Add(time.Minute), record(9)))
	r, err = c.Rights(ctx, "alice")
	noErr(t, err)
	if ids := grantIDs(r.Grants); !slices.Equal(ids, []string{"gr_0", "gr_4"}) || !slices.Equal(r.Held, []catalogue.Pattern{chain[1].Pattern}) {
		t.Errorf("after the revocation: %v, held %v", ids, r.Held)
	}
	if g, err := c.GrantOf(ctx, "gr_3"); err != nil || g.RevokedAt == nil || !g.RevokedAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("GrantOf = %+v, %v", g, err)
	}
	if list, err := c.GrantsOf(ctx, "", 0, 2); err != nil || !slices.Equal(grantIDs(list), []string{"gr_0", "gr_1"}) {
		t.Errorf("GrantsOf = %v, %v", grantIDs(list), err)
	} else if list, err = c.GrantsOf(ctx, "alice", list[1].Seq, 9); err != nil || len(list) != 3 {
		t.Errorf("the next page = %v, %v", grantIDs(list), err)
	}
	noErr(t, c.RemovePrincipal(ctx, "alice", noon, record(10)))
	if r, err = c.Rights(ctx, "alice"); err != nil || len(r.Grants) != 0 || len(r.Held) != 2 || r.Principal.RemovedAt == nil {
		t.Errorf("of a removed one: %+v, %v", r, err)
	}
	if r, err = c.Rights(ctx, "mallory"); err != nil || r.Principal != nil || r.Grants != nil || r.Held != nil {
		t.Errorf("of nobody: %+v, %v", r, err)
	}
}

func grantIDs(list []catalogue.Grant) (ids []string) {
	for _, g := range list {
		ids = append(ids, g.GrantID)
	}
	return ids
}

func tokensFind(t *testing.T, c catalogue.Catalogue) {
	ctx := t.Context()
	hash := merkle.Sum([]byte("token"))
	for n, name := range []string{"carol", "bob"} {
		noErr(t, c.AddPrincipal(ctx, catalogue.Principal{Name: name, Tenant: "acme", CreatedAt: noon, TokenHash: merkle.Sum([]byte{byte(n)})}, record(n)))
	}
	noErr(t, c.AddPrincipal(ctx, catalogue.Principal{Name: "dave", Tenant: "acme", CreatedAt: noon, TokenHash: hash}, record(3)))
	if p, err := c.PrincipalByToken(ctx, hash); err != nil || p.Name != "dave" || p.Tenant != "acme" || p.Run != nil {
		t.Errorf("PrincipalByToken = %+v, %v", p, err)
	}
	for name, hash := range map[string]merkle.Root{"another": merkle.Sum([]byte("x")), "the zero hash": {}} {
		if _, err := c.PrincipalByToken(ctx, hash); !errors.Is(err, catalogue.ErrNoPrincipal) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	list, err := c.Principals(ctx, "bob", 10)
	if err != nil || len(list) != 2 || list[0].Name != "carol" || list[1].Name != "dave" {
		t.Errorf("Principals = %v, %v", list, err)
	}
	noErr(t, c.RemovePrincipal(ctx, "dave", noon, record(4)))
	if _, err := c.PrincipalByToken(ctx, hash); !errors.Is(err, catalogue.ErrNoPrincipal) {
		t.Errorf("a token of one that was removed: error = %v", err)
	}
	if _, err := c.Principal(ctx, "dave"); !errors.Is(err, catalogue.ErrNoPrincipal) {
		t.Errorf("one that was removed: error = %v", err)
	}
}

func auditSegments(t *testing.T, c catalogue.Catalogue) {
	ctx := t.Context()
	list := []catalogue.Disclosure{record(1), record(2), record(3)}
	list[1].ArtifactID, list[1].Tenant, list[1].Purpose, list[1].GrantID, list[1].Epoch = "art_1", "local", "p", "gr_1", 7
	list[2].Principal = "bob"
	noErr(t, c.Disclose(ctx, list))
	bad := record(4)
	bad.Action = ""
	if err := c.Disclose(ctx, []catalogue.Disclosure{record(5), bad}); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("error = %v, want ErrInvalid", err)
	}
	for name, test := range map[string]struct {
		asked catalogue.Asked
		want  []int
	}{
		"all": {catalogue.Asked{Limit: 10}, []int{0, 1, 2}}, "a page": {catalogue.Asked{After: 1, Limit: 1}, []int{1}},
		"an artifact": {catalogue.Asked{ArtifactID: "art_1", Limit: 10}, []int{1}}, "a principal": {catalogue.Asked{Principal: "bob", Limit: 10}, []int{2}},
	} {
		got, err := c.Disclosures(ctx, test.asked)
		noErr(t, err)
		if len(got) != len(test.want) {
			t.Errorf("%s: %v", name, got)
			continue
		}
		for i, n := range test.want {
			want := list[n]
			if want.Seq = int64(n + 1); got[i] != want {
				t.Errorf("%s: %+v, want %+v", name, got[i], want)
			}
		}
	}
	if last, err := c.LastSegment(ctx); err != nil || last.Number != 0 {
		t.Errorf("LastSegment of none = %v, %v", last, err)
	}
	one := catalogue.Segment{Envelope: []byte("signed"), Number: 1, First: 1, Last: 2, Records: 2, Digest: merkle.Sum(nil), ClosedAt: noon}
	two := catalogue.Segment{Number: 2, First: 3, Last: 3, Records: 1, Digest: merkle.Sum([]byte{1}), ClosedAt: noon}
	for _, step := range []struct {
		seg catalogue.Segment
		err error
	}{{two, catalogue.ErrExists}, {one, nil}, {one, catalogue.ErrExists}, {two, nil}, {catalogue.Segment{Number: 3}, catalogue.ErrInvalid}} {
		if err := c.CloseSegment(ctx, step.seg, catalogue.Leaf{}); !errors.Is(err, step.err) {
			t.Errorf("segment %d: error = %v, want %v", step.seg.Number, err, step.err)
		}
	}
	if last, err := c.LastSegment(ctx); err != nil || last.Number != 2 {
		t.Errorf("LastSegment = %v, %v", last, err)
	}
	got, err := c.Segments(ctx, 0, 10)
	if err != nil || !reflect.DeepEqual(got, []catalogue.Segment{one, two}) {
		t.Errorf("Segments = %v, %v", got, err)
	}
}

// What one process commits another's Quick sees at once, without a look at the
// database where nothing changed.
func TestMark(t *testing.T) {
	a := create(t)
	path := catalogue.PathOf(a)
	b, err := catalogue.OpenSQLite(path)
	noErr(t, err)
	defer b.Close()
	for want := range int64(20) {
		if got, err := b.Epoch(t.Context()); err != nil || got != want {
			t.Fatalf("Epoch = %d, %v, want %d", got, err, want)
		}
		if got, _, ok := b.Quick(); !ok || got != want {
			t.Fatalf("Quick = %d, %t, want %d", got, ok, want)
		}
		publish(t, a, artifact(int(want))) // no change of the policy
		if got, _, ok := b.Quick(); !ok || got != want {
			t.Fatalf("after a publication: Quick = %d, %t, want %d", got, ok, want)
		}
		noErr(t, a.RaiseEpoch(t.Context()))
		if got, _, ok := b.Quick(); ok {
			t.Fatalf("after a change: Quick = %d of before", got)
		}
	}
	noErr(t, b.Close())
	if _, _, ok := b.Quick(); ok {
		t.Error("Quick answers on a closed catalogue")
	}
}

// A process that dies between the announcement of a change and its end leaves the
// others with the right epoch.
func TestMarkCrash(t *testing.T) {
	a := create(t)
	epochOf(t, a)
	catalogue.AnnounceChange(a)
	if _, _, ok := a.Quick(); ok {
		t.Error("a change is under way, and Quick knows the epoch")
	}
	if got, err := a.Epoch(t.Context()); err != nil || got != 0 {
		t.Errorf("Epoch = %d, %v", got, err)
	}
	if _, _, ok := a.Quick(); ok {
		t.Error("the change may have been committed, and Quick knows the epoch")
	}
	noErr(t, a.RaiseEpoch(t.Context())) // the next change heals it
	if got := epochOf(t, a); got != 1 {
		t.Errorf("Epoch = %d", got)
	}
	if _, _, ok := a.Quick(); !ok {
		t.Error("Quick does not answer again")
	}
}

// A catalogue of version 3 has no grants, and restricts nobody, as it stands.
func TestUpgradeGrants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	publish(t, c, artifact(1))
	noErr(t, c.Close())
	older(t, path)
	ro, err := catalogue.OpenAsItStands(path)
	noErr(t, err)
	if r, err := ro.Rights(t.Context(), "alice"); err != nil || !reflect.DeepEqual(r, catalogue.Rights{}) {
		t.Errorf("Rights = %+v, %v", r, err)
	}
	if _, err := ro.Principal(t.Context(), "alice"); !errors.Is(err, catalogue.ErrNoPrincipal) {
		t.Errorf("Principal: error = %v", err)
	}
	if err := ro.Grant(t.Context(), granted("gr_1"), alice(), record(1)); !errors.Is(err, catalogue.ErrReadOnly) {
		t.Errorf("Grant: error = %v", err)
	}
	noErr(t, ro.Close())
	noErr(t, catalogue.UpgradeSQLite(path))
	c, err = catalogue.OpenSQLite(path)
	noErr(t, err)
	defer c.Close()
	noErr(t, c.Grant(t.Context(), granted("gr_1"), alice(), record(1)))
}

// A copy of a catalogue allows nothing: what was revoked after it was made must not
// stand again where it is put to use.
func TestSnapshotAllowsNothing(t *testing.T) {
	c := create(t)
	p := alice()
	p.TokenHash = merkle.Sum([]byte("t"))
	noErr(t, c.AddPrincipal(t.Context(), p, record(0)))
	noErr(t, c.Grant(t.Context(), granted("gr_1"), p, record(1)))
	lock := catalogue.Restriction{Pattern: catalogue.Pattern{Tenant: "a", Run: "*", Artifact: "*"}, CreatedAt: noon, By: "owner"}
	noErr(t, c.Restrict(t.Context(), lock, record(2)))
	path := filepath.Join(t.TempDir(), "copy")
	noErr(t, c.Snapshot(t.Context(), path))
	d, err := catalogue.OpenSQLite(path)
	noErr(t, err)
	defer d.Close()
	r, err := d.Rights(t.Context(), "alice")
	if err != nil || len(r.Grants) != 0 || len(r.Held) != 1 || len(r.Restrictions) != 1 || r.Epoch <= epochOf(t, c) {
		t.Errorf("Rights in the copy = %+v, %v", r, err)
	}
	if _, err := d.PrincipalByToken(t.Context(), p.TokenHash); !errors.Is(err, catalogue.ErrNoPrincipal) {
		t.Errorf("a token in the copy: error = %v", err)
	}
	if problems, err := d.Integrity(t.Context()); err != nil || problems != nil {
		t.Errorf("Integrity = %v, %v", problems, err)
	}
}

func BenchmarkQuick(b *testing.B) {
	c := create(b)
	if _, err := c.Epoch(context.Background()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Epoch(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
