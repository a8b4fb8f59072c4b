package catalogue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

// noErr fails the test at an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func advance(t testing.TB, c catalogue.Book) int64 {
	t.Helper()
	epoch, err := c.Advance(t.Context())
	noErr(t, err)
	return epoch
}

func view(t testing.TB, c catalogue.Book, want ...string) {
	t.Helper()
	_, got, err := c.View(t.Context(), -1)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the condemned are %q, %v, want %q", got, err, want)
	}
}

func leaseEpoch(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "one"))
	first := advance(t, c)
	noErr(t, c.Enter(t.Context(), "two"))
	if second := advance(t, c); second != first+1 {
		t.Errorf("Advance = %d, then %d", first, second)
	}
	noErr(t, c.Acknowledge(t.Context(), "two", first+1, nil))
	noErr(t, c.Acknowledge(t.Context(), "two", first, nil)) // never backwards
	got, err := c.Holders(t.Context())
	want := []catalogue.Holder{{Lease: "one"}, {Lease: "two", Opened: first, Seen: first + 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Holders = %v, %v, want %v", got, err, want)
	}
	if err := c.Enter(t.Context(), "one"); err == nil {
		t.Error("an id was used twice")
	}
	if epoch, names, err := c.View(t.Context(), first+1); epoch != first+1 || names != nil || err != nil {
		t.Errorf("View = %d, %v, %v", epoch, names, err)
	}
	for range 2 {
		noErr(t, c.Leave(t.Context(), "one"))
	}
	if got, err := c.Holders(t.Context()); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("Holders = %v, %v", got, err)
	}
}

func publishUnder(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "live"))
	noErr(t, c.Enter(t.Context(), "lost"))
	noErr(t, c.Lose(t.Context(), "lost"))
	noErr(t, c.PublishUnder(t.Context(), "live", artifact(1)))
	for _, lease := range []string{"lost", "gone", ""} {
		if err := c.PublishUnder(t.Context(), lease, artifact(2)); !errors.Is(err, catalogue.ErrLease) {
			t.Errorf("under the lease %q: error = %v, want ErrLease", lease, err)
		}
		if _, err := c.Artifact(t.Context(), artifact(2).ArtifactID); !errors.Is(err, catalogue.ErrNotFound) {
			t.Errorf("under the lease %q: it was published", lease)
		}
		noErr(t, c.PublishUnder(t.Context(), lease, artifact(1))) // it is there: nothing changes
		if err := c.Acknowledge(t.Context(), lease, 0, nil); !errors.Is(err, catalogue.ErrLease) {
			t.Errorf("Acknowledge of the lease %q: error = %v, want ErrLease", lease, err)
		}
		if _, err := c.Claim(t.Context(), lease, 1, nil); !errors.Is(err, catalogue.ErrLease) {
			t.Errorf("Claim of the lease %q: error = %v, want ErrLease", lease, err)
		}
	}
	noErr(t, c.PublishUnder(t.Context(), "live", artifact(2)))
}

func condemnation(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "w"))
	noErr(t, c.Condemn(t.Context(), []string{"b", "a"}))
	epoch := advance(t, c)
	noErr(t, c.Condemn(t.Context(), []string{"a", "c", "d"})) // a keeps its epoch
	view(t, c, "a", "b", "c", "d")
	for name, test := range map[string]struct {
		before int64
		after  string
		limit  int
		want   []string
	}{
		"earlier epochs": {epoch, "", 10, []string{"a", "b"}},
		"all":            {epoch + 1, "", 10, []string{"a", "b", "c", "d"}},
		"behind one":     {epoch + 1, "a", 10, []string{"b", "c", "d"}},
		"a few":          {epoch + 1, "", 1, []string{"a"}},
		"none":           {epoch - 1, "", 10, nil},
	} {
		got, err := c.Condemned(t.Context(), test.before, test.after, test.limit)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: Condemned = %q, %v, want %q", name, got, err, test.want)
		}
	}
	noErr(t, c.Pardon(t.Context(), []string{"b", "never"}))
	noErr(t, c.Acknowledge(t.Context(), "w", epoch, []string{"c", "never"}))
	view(t, c, "a", "d")
}

func claimLater(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "w"))
	epoch := advance(t, c)
	noErr(t, c.Condemn(t.Context(), []string{"a"}))
	for before, want := range map[int64]int{epoch - 1: 0, epoch: 0} {
		if got, err := c.Claim(t.Context(), "w", before, []string{"a"}); err != nil || len(got) != want {
			t.Errorf("Claim before %d = %q, %v, want %d", before, got, err, want)
		}
	}
	if got, err := c.Claim(t.Context(), "w", epoch+1, []string{"a", "never"}); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("Claim = %q, %v", got, err)
	}
}

func claimOnce(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "one"))
	noErr(t, c.Enter(t.Context(), "two"))
	noErr(t, c.Condemn(t.Context(), []string{"a", "b"}))
	epoch := advance(t, c)
	claim := func(lease string, want ...string) {
		t.Helper()
		if got, err := c.Claim(t.Context(), lease, epoch, []string{"a", "b"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s claims %q, %v, want %q", lease, got, err, want)
		}
	}
	claim("one", "a", "b")
	claim("two")
	if got, err := c.Condemned(t.Context(), epoch, "", 10); err != nil || len(got) != 0 {
		t.Errorf("Condemned = %q, %v, want none that is claimed", got, err)
	}
	noErr(t, c.Pardon(t.Context(), []string{"a"}))
	noErr(t, c.Forget(t.Context(), "two", []string{"a"}))
	view(t, c, "a", "b")
	noErr(t, c.Forget(t.Context(), "one", []string{"a"}))
	view(t, c, "b")
	noErr(t, c.Lose(t.Context(), "one")) // its holder may still be about to delete b
	claim("two")
	noErr(t, c.Leave(t.Context(), "one"))
	claim("two", "b")
}

func claimedNotSpared(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "sweep"))
	noErr(t, c.Enter(t.Context(), "w"))
	noErr(t, c.Condemn(t.Context(), []string{"a", "b"}))
	epoch := advance(t, c)
	if _, err := c.Claim(t.Context(), "sweep", epoch, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Acknowledge(t.Context(), "w", epoch, []string{"a", "b"}); !errors.Is(err, catalogue.ErrLease) {
		t.Errorf("error = %v, want ErrLease", err)
	}
	view(t, c, "a", "b")
	if got, err := c.Holders(t.Context()); err != nil || got[1].Seen == epoch {
		t.Errorf("Holders = %v, %v: a refusal was noted as seen", got, err)
	}
}

// refusalsChangeNothing makes many changes at once, so that they share commits:
// those that are refused must not take the others along.
func refusalsChangeNothing(t *testing.T, c catalogue.Catalogue) {
	noErr(t, c.Enter(t.Context(), "w"))
	done := make(chan error)
	for i := range 50 {
		lease := "w"
		if i%2 == 1 {
			lease = "gone"
		}
		go func() { done <- c.PublishUnder(context.WithoutCancel(t.Context()), lease, artifact(i)) }()
	}
	refused := 0
	for range 50 {
		if err := <-done; errors.Is(err, catalogue.ErrLease) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	list, err := c.List(t.Context(), "local", 0, 100)
	if err != nil || len(list) != 25 || refused != 25 {
		t.Errorf("%d were published and %d refused, %v", len(list), refused, err)
	}
}

func tenantsEver(t *testing.T, c catalogue.Catalogue) {
	a, b := artifact(1), artifact(2)
	b.Tenant = "another"
	publish(t, c, a, b)
	noErr(t, c.Delete(t.Context(), a.ArtifactID, "", time.Now()))
	if got, err := c.TenantsEver(t.Context()); err != nil || !slices.Equal(got, []string{"another", "local"}) {
		t.Errorf("TenantsEver = %q, %v", got, err)
	}
}

// older makes the catalogue at path one of version 1.
func older(t *testing.T, path string) {
	t.Helper()
	raw(t, path, drop(t, path, "meta", "artifacts")+`PRAGMA user_version = 1`)
}

// drop is a statement that drops all tables but some.
func drop(t *testing.T, path string, but ...string) (text string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	noErr(t, err)
	defer db.Close()
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`)
	noErr(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		noErr(t, rows.Scan(&name))
		if !slices.Contains(but, name) {
			text += "DROP TABLE " + name + "; "
		}
	}
	noErr(t, rows.Err())
	return text
}

func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	publish(t, c, artifact(1), artifact(2))
	id, err := c.StoreID(t.Context())
	noErr(t, err)
	noErr(t, c.Close())
	older(t, path)

	_, err = catalogue.OpenSQLite(path)
	if !errors.Is(err, catalogue.ErrOlder) {
		t.Fatalf("error = %v, want ErrOlder", err)
	}
	ro, err := catalogue.OpenAsItStands(path)
	noErr(t, err)
	if a, err := ro.Artifact(t.Context(), artifact(1).ArtifactID); err != nil || a.ManifestID != artifact(1).ManifestID {
		t.Errorf("as it stands: Artifact = %v, %v", a, err)
	}
	if err := ro.Publish(t.Context(), artifact(3)); !errors.Is(err, catalogue.ErrReadOnly) {
		t.Errorf("as it stands: Publish error = %v, want ErrReadOnly", err)
	}
	noErr(t, ro.Close())
	for range 2 { // the second time there is nothing to do
		noErr(t, catalogue.UpgradeSQLite(path))
	}
	c, err = catalogue.OpenSQLite(path)
	noErr(t, err)
	defer c.Close()
	if got, err := c.StoreID(t.Context()); err != nil || got != id {
		t.Errorf("StoreID = %s, %v, want %s", got, err, id)
	}
	if list, err := c.List(t.Context(), "local", 0, 10); err != nil || len(list) != 2 {
		t.Errorf("List = %v, %v", list, err)
	}
	if epoch := advance(t, c); epoch != 1 {
		t.Errorf("the first epoch is %d", epoch)
	}
	noErr(t, c.Enter(t.Context(), "w"))
	noErr(t, c.PublishUnder(t.Context(), "w", artifact(3)))
}

func TestUpgradeRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	if err := catalogue.UpgradeSQLite(path); !errors.Is(err, catalogue.ErrMissing) {
		t.Errorf("of nothing: error = %v, want ErrMissing", err)
	}
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	noErr(t, c.Close())
	raw(t, path, `PRAGMA user_version = 6`)
	if err := catalogue.UpgradeSQLite(path); !errors.Is(err, catalogue.ErrNewer) {
		t.Errorf("of a newer one: error = %v, want ErrNewer", err)
	}
}

// TestSoft: leases come and go between changes that must last, and in one commit
// with them.
func TestSoft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	for i := range 20 {
		lease := fmt.Sprint("w", i)
		noErr(t, c.Enter(t.Context(), lease))
		noErr(t, c.PublishUnder(t.Context(), lease, artifact(i)))
		noErr(t, c.Leave(t.Context(), lease))
	}
	noErr(t, c.Close())
	c, err = catalogue.OpenSQLite(path)
	noErr(t, err)
	defer c.Close()
	list, err := c.List(t.Context(), "local", 0, 100)
	holders, errHolders := c.Holders(t.Context())
	if len(list) != 20 || len(holders) != 0 || err != nil || errHolders != nil {
		t.Errorf("%d artifacts and %d leases, %v, %v", len(list), len(holders), err, errHolders)
	}
}
