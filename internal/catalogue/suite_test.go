package catalogue_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// The suite that every engine passes: one subtest per promise of the
// interface.
func TestCatalogue(t *testing.T) {
	for engine, open := range map[string]func(t *testing.T) catalogue.Catalogue{
		"memory": func(*testing.T) catalogue.Catalogue { return catalogue.NewMemory() },
		"sqlite": func(t *testing.T) catalogue.Catalogue { return create(t) },
	} {
		for _, test := range []struct {
			name string
			run  func(*testing.T, catalogue.Catalogue)
		}{
			{"Publish/comes back", comesBack},
			{"Publish/once", publishOnce},
			{"Publish/refuses what no artifact is", refusesInvalid},
			{"Publish/one of many wins", oneWins},
			{"Publish/heeds a context that ended", heedsContext},
			{"Artifact/unknown", unknown},
			{"List/pages", pages},
			{"List/keeps tenants apart", tenantsApart},
			{"List/refuses a limit", refusesLimit},
			{"Delete/leaves the row", deleteLeavesRow},
			{"Delete/is for ever", deleteForEver},
			{"Now/never goes back", clockForward},
			{"StoreID/is a name", storeID},
			{"Epoch/begins at 0", epochZero},
			{"Book/a lease sees the epoch it was opened in", leaseEpoch},
			{"Book/publishing needs a live lease", publishUnder},
			{"Book/the condemned are listed, pardoned and spared", condemnation},
			{"Book/what was condemned in this epoch cannot be claimed", claimLater},
			{"Book/a claim is for one alone, until it leaves", claimOnce},
			{"Book/what is claimed cannot be spared", claimedNotSpared},
			{"Book/refusals change nothing", refusalsChangeNothing},
			{"TenantsEver/knows the deleted", tenantsEver},
			{"State/comes back", statementComesBack},
			{"State/is once, and about what was published", statementOnce},
			{"State/needs a live lease, where one is named", statementUnder},
			{"DeleteBy/both or neither", deleteBy},
			{"Finish/ends what is unfinished", finishes},
			{"Before/is the latest with the cursor", before},
			{"Objects/are those of the tenant", objectsOf},
			{"Names/have versions", namesVersions},
			{"Names/are compared and swapped", namesCompareAndSwap},
			{"Successors/are known at once", successors},
			{"Copies/hear of the end", copiesWait},
			{"Copies/are marked by who controls them", copiesMarked},
			{"Grants/each change counts once", changesCount},
			{"Grants/come back, and end with what they rest on", rightsCascade},
			{"Grants/a token finds its principal", tokensFind},
			{"Audit/has records and segments", auditSegments},
			{"Log/grows with what is published", logGrows},
			{"Log/goes on when nobody can seal", logSkips},
			{"Log/enters once what comes twice", logOnce},
			{"Log/takes statements and what has no row", logStatements},
			{"Log/takes what was published before it", logBackfills},
			{"Log/keeps what witnesses signed", logWitnessed},
			{"Close/ends everything", closeEnds},
		} {
			t.Run(engine+"/"+test.name, func(t *testing.T) {
				c := open(t)
				t.Cleanup(func() { c.Close() })
				test.run(t, c)
			})
		}
	}
}

func create(t testing.TB) *catalogue.SQLite {
	t.Helper()
	c, err := catalogue.CreateSQLite(filepath.Join(t.TempDir(), "catalogue"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// artifact makes the n-th row of the tenant "local"; all its fields differ from
// those of another n.
func artifact(n int) catalogue.Artifact {
	seed := binary.BigEndian.AppendUint64(nil, uint64(n))
	return catalogue.Artifact{
		ArtifactID: fmt.Sprintf("art_%06d", n), ManifestID: fmt.Sprintf("mf_%06d", n), Tenant: "local",
		Run: new(fmt.Sprintf("run-%d", n)), SourceID: new(fmt.Sprintf("source-%d", n)),
		Root: merkle.Sum(seed), Size: int64(n), EnvelopeRoot: merkle.Sum(append(seed, 1)), EnvelopeSize: int64(1000 + n),
		CreatedAt: time.Date(2026, 1, 2, 3, 4, n, 56789000, time.UTC),
		ExpiresAt: new(time.Date(9999, 1, 2, 3, 4, 5, n*1000, time.UTC)),
	}
}

func publish(t testing.TB, c catalogue.Catalogue, list ...catalogue.Artifact) {
	t.Helper()
	for _, a := range list {
		if err := c.Publish(t.Context(), a); err != nil {
			t.Fatalf("publish %s: %v", a.ArtifactID, err)
		}
	}
}

// text spells a row with what its pointers point to.
func text(a catalogue.Artifact) string {
	s := fmt.Sprintf("%s %s %s %s %d %s %d %v %q %d", a.ArtifactID, a.ManifestID, a.Tenant, a.Root, a.Size,
		a.EnvelopeRoot, a.EnvelopeSize, a.CreatedAt, a.DeleteReason, a.Seq)
	for _, p := range []*string{a.Run, a.SourceID} {
		if p != nil {
			s += fmt.Sprintf(" %q", *p)
		} else {
			s += " null"
		}
	}
	for _, p := range []*time.Time{a.ExpiresAt, a.DeletedAt} {
		if p != nil {
			s += fmt.Sprintf(" %v", *p)
		} else {
			s += " null"
		}
	}
	return s
}

func comesBack(t *testing.T, c catalogue.Catalogue) {
	full, bare := artifact(1), artifact(2)
	bare.Run, bare.SourceID, bare.ExpiresAt, bare.Size = nil, nil, nil, 0
	odd := artifact(3)
	odd.Tenant, odd.Run = "x';--\x00é", new("")
	odd.CreatedAt = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	for i, a := range []catalogue.Artifact{full, bare, odd} {
		a.Seq, a.DeletedAt, a.DeleteReason = 77, new(time.Now()), "ignored"
		publish(t, c, a)
		a.Seq, a.DeletedAt, a.DeleteReason = int64(i+1), nil, ""
		got, err := c.Artifact(t.Context(), a.ArtifactID)
		if err != nil || text(got) != text(a) {
			t.Errorf("Artifact = %s, %v\nwant       %s", text(got), err, text(a))
		}
	}
	// Times are kept to the microsecond, in UTC.
	a := artifact(4)
	a.CreatedAt = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("east", 3600))
	publish(t, c, a)
	got, err := c.Artifact(t.Context(), a.ArtifactID)
	if want := time.Date(2026, 1, 2, 2, 4, 5, 123456000, time.UTC); err != nil || got.CreatedAt != want {
		t.Errorf("CreatedAt = %v, %v, want %v", got.CreatedAt, err, want)
	}
	// What comes back is the caller's own.
	*got.Run = "changed"
	if again, _ := c.Artifact(t.Context(), a.ArtifactID); *again.Run != *a.Run {
		t.Error("a change of the answer changed the catalogue")
	}
}

func publishOnce(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	publish(t, c, a, a)
	other := artifact(2)
	for name, change := range map[string]func(*catalogue.Artifact){
		"another manifest":            func(a *catalogue.Artifact) { a.ManifestID = other.ManifestID },
		"the manifest of another one": func(a *catalogue.Artifact) { a.ArtifactID = other.ArtifactID },
	} {
		b := a
		change(&b)
		err := c.Publish(t.Context(), b)
		if e, ok := errors.AsType[*catalogue.Error](err); !ok || !errors.Is(err, catalogue.ErrExists) || e.Subject != b.ArtifactID {
			t.Errorf("%s: error = %v, want ErrExists for %s", name, err, b.ArtifactID)
		}
	}
	list, err := c.List(t.Context(), "local", 0, 10)
	if err != nil || len(list) != 1 || list[0].ManifestID != a.ManifestID {
		t.Errorf("List = %v, %v, want the first one alone", list, err)
	}
}

func refusesInvalid(t *testing.T, c catalogue.Catalogue) {
	for name, change := range map[string]func(*catalogue.Artifact){
		"no artifact id":          func(a *catalogue.Artifact) { a.ArtifactID = "" },
		"no manifest id":          func(a *catalogue.Artifact) { a.ManifestID = "" },
		"no tenant":               func(a *catalogue.Artifact) { a.Tenant = "" },
		"no root":                 func(a *catalogue.Artifact) { a.Root = merkle.Root{} },
		"no envelope root":        func(a *catalogue.Artifact) { a.EnvelopeRoot = merkle.Root{} },
		"a negative size":         func(a *catalogue.Artifact) { a.Size = -1 },
		"an empty envelope":       func(a *catalogue.Artifact) { a.EnvelopeSize = 0 },
		"no creation time":        func(a *catalogue.Artifact) { a.CreatedAt = time.Time{} },
		"an expiry in year 10000": func(a *catalogue.Artifact) { a.ExpiresAt = new(a.ExpiresAt.AddDate(1, 0, 0)) },
	} {
		a := artifact(1)
		change(&a)
		if err := c.Publish(t.Context(), a); !errors.Is(err, catalogue.ErrInvalid) {
			t.Errorf("%s: error = %v, want ErrInvalid", name, err)
		}
	}
	if list, err := c.List(t.Context(), "local", 0, 10); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v, want none", list, err)
	}
}

// oneWins: of many that publish one id with manifests of their own at once,
// one is told nil, and it is the one that stands.
func oneWins(t *testing.T, c catalogue.Catalogue) {
	const racers, rounds = 8, 20
	for n := range rounds {
		var wg sync.WaitGroup
		errs := make([]error, racers)
		for i := range racers {
			wg.Go(func() {
				a := artifact(n)
				a.ManifestID = fmt.Sprintf("%s_%d", a.ManifestID, i)
				errs[i] = c.Publish(t.Context(), a)
			})
		}
		wg.Wait()
		winner := slices.Index(errs, nil)
		if winner < 0 {
			t.Fatalf("round %d: nobody won: %v", n, errs)
		}
		for i, err := range errs {
			if i != winner && !errors.Is(err, catalogue.ErrExists) {
				t.Errorf("round %d: racer %d heard %v beside the winner %d", n, i, err, winner)
			}
		}
		a := artifact(n)
		got, err := c.Artifact(t.Context(), a.ArtifactID)
		if want := fmt.Sprintf("%s_%d", a.ManifestID, winner); err != nil || got.ManifestID != want {
			t.Errorf("round %d: %s stands, %v, want %s", n, got.ManifestID, err, want)
		}
	}
}

func heedsContext(t *testing.T, c catalogue.Catalogue) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Publish(ctx, artifact(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish: error = %v, want Canceled", err)
	}
	if _, err := c.Artifact(t.Context(), artifact(1).ArtifactID); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("Artifact: error = %v, want ErrNotFound", err)
	}
}

func unknown(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	for _, id := range []string{"", "art_000002", "ART_000001", "art_%", "art_000001 "} {
		if a, err := c.Artifact(t.Context(), id); !errors.Is(err, catalogue.ErrNotFound) || a.ArtifactID != "" {
			t.Errorf("Artifact(%q) = %v, %v, want ErrNotFound", id, a.ArtifactID, err)
		}
	}
}

func pages(t *testing.T, c catalogue.Catalogue) {
	var want []string
	for n := range 25 {
		publish(t, c, artifact(n))
		want = append(want, artifact(n).ArtifactID)
	}
	for limit := 1; limit <= 26; limit++ {
		var got []string
		for after := int64(0); ; {
			list, err := c.List(t.Context(), "local", after, limit)
			if err != nil || len(list) > limit {
				t.Fatalf("List(after %d, limit %d) = %d rows, %v", after, limit, len(list), err)
			}
			for _, a := range list {
				if a.Seq <= after {
					t.Fatalf("Seq %d after %d", a.Seq, after)
				}
				after = a.Seq
				got = append(got, a.ArtifactID)
			}
			if len(list) < limit {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("in pages of %d: %v", limit, got)
		}
	}
}

func tenantsApart(t *testing.T, c catalogue.Catalogue) {
	for n, tenant := range []string{"a", "b", "A", "a"} {
		a := artifact(n)
		a.Tenant = tenant
		publish(t, c, a)
	}
	for tenant, want := range map[string]int{"a": 2, "b": 1, "A": 1, "c": 0, "%": 0} {
		list, err := c.List(t.Context(), tenant, 0, 10)
		if err != nil || len(list) != want {
			t.Errorf("List(%q) = %d rows, %v, want %d", tenant, len(list), err, want)
		}
	}
	if got, err := c.Tenants(t.Context()); err != nil || !slices.Equal(got, []string{"A", "a", "b"}) {
		t.Errorf("Tenants = %q, %v", got, err)
	}
	if err := c.Delete(t.Context(), artifact(1).ArtifactID, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Tenants(t.Context()); err != nil || !slices.Equal(got, []string{"A", "a"}) {
		t.Errorf("Tenants after the only artifact of b was deleted = %q, %v", got, err)
	}
}

func refusesLimit(t *testing.T, c catalogue.Catalogue) {
	for _, limit := range []int{-1, 0, catalogue.MaxList + 1} {
		if _, err := c.List(t.Context(), "local", 0, limit); !errors.Is(err, catalogue.ErrInvalid) {
			t.Errorf("limit %d: error = %v, want ErrInvalid", limit, err)
		}
	}
	if _, err := c.List(t.Context(), "", 0, 1); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("no tenant: error = %v, want ErrInvalid", err)
	}
}

func deleteLeavesRow(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1), artifact(2))
	at := time.Date(2026, 5, 6, 7, 8, 9, 123000, time.UTC)
	id := artifact(1).ArtifactID
	for _, reason := range []string{"asked by the user", "again"} {
		if err := c.Delete(t.Context(), id, reason, at); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Hour)
	}
	want := artifact(1)
	want.Seq, want.DeletedAt, want.DeleteReason = 1, new(at.Add(-2*time.Hour)), "asked by the user"
	if got, err := c.Artifact(t.Context(), id); err != nil || text(got) != text(want) {
		t.Errorf("Artifact = %s, %v\nwant       %s", text(got), err, text(want))
	}
	list, err := c.List(t.Context(), "local", 0, 10)
	if err != nil || len(list) != 1 || list[0].ArtifactID != artifact(2).ArtifactID {
		t.Errorf("List = %v, %v, want the second alone", list, err)
	}
	if err := c.Delete(t.Context(), "art_unknown", "r", at); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("Delete of an unknown id: error = %v, want ErrNotFound", err)
	}
	for name, err := range map[string]error{
		"no id":   c.Delete(t.Context(), "", "r", at),
		"no time": c.Delete(t.Context(), artifact(2).ArtifactID, "r", time.Time{}),
	} {
		if !errors.Is(err, catalogue.ErrInvalid) {
			t.Errorf("Delete with %s: error = %v, want ErrInvalid", name, err)
		}
	}
	// An empty reason is one too.
	if err := c.Delete(t.Context(), artifact(2).ArtifactID, "", at); err != nil {
		t.Errorf("Delete without a reason: %v", err)
	}
}

func deleteForEver(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	publish(t, c, a)
	if err := c.Delete(t.Context(), a.ArtifactID, "r", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), a); !errors.Is(err, catalogue.ErrDeleted) {
		t.Errorf("the same again: error = %v, want ErrDeleted", err)
	}
	a.ManifestID = "mf_other"
	if err := c.Publish(t.Context(), a); !errors.Is(err, catalogue.ErrExists) {
		t.Errorf("with another manifest: error = %v, want ErrExists", err)
	}
	publish(t, c, artifact(2))
	if got, err := c.Artifact(t.Context(), artifact(2).ArtifactID); err != nil || got.Seq <= 1 {
		t.Errorf("the next Seq = %d, %v", got.Seq, err)
	}
}

func clockForward(t *testing.T, c catalogue.Catalogue) {
	before := time.Now().Truncate(time.Microsecond)
	for n := range 50 {
		now, err := c.Now(t.Context())
		if err != nil || now.Before(before) {
			t.Fatalf("Now = %v, %v, after %v", now, err, before)
		}
		if ahead := time.Until(now); ahead > time.Minute {
			t.Fatalf("Now is %v ahead", ahead)
		}
		before = now
		publish(t, c, artifact(n)) // with an ExpiresAt in the year 9999, which moves no clock
	}
}

func storeID(t *testing.T, c catalogue.Catalogue) {
	id, err := c.StoreID(t.Context())
	if err != nil || !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{20,127}$`).MatchString(id) {
		t.Errorf("StoreID = %q, %v", id, err)
	}
}

func epochZero(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	if epoch, err := c.Epoch(t.Context()); err != nil || epoch != 0 {
		t.Errorf("Epoch = %d, %v, want 0", epoch, err)
	}
}

func closeEnds(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	_, artifactErr := c.Artifact(ctx, artifact(1).ArtifactID)
	_, listErr := c.List(ctx, "local", 0, 1)
	_, epochErr := c.Epoch(ctx)
	_, nowErr := c.Now(ctx)
	_, storeErr := c.StoreID(ctx)
	for name, err := range map[string]error{
		"Publish":  c.Publish(ctx, artifact(2)),
		"Delete":   c.Delete(ctx, artifact(1).ArtifactID, "r", time.Now()),
		"Artifact": artifactErr, "List": listErr, "Epoch": epochErr, "Now": nowErr, "StoreID": storeErr,
	} {
		if !errors.Is(err, catalogue.ErrClosed) {
			t.Errorf("%s after Close: error = %v, want ErrClosed", name, err)
		}
	}
}
