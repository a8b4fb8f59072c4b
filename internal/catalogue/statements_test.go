package catalogue_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// said makes the n-th statement, about an artifact. It is no object.
func said(n int, about catalogue.Artifact) catalogue.Statement {
	return catalogue.Statement{
		StatementID: fmt.Sprintf("rc_%06d", n), Kind: "urn:test", Tenant: about.Tenant, ArtifactID: about.ArtifactID,
		IssuedAt: time.Date(2026, 1, 2, 3, 4, n, 56789000, time.UTC), Envelope: []byte{'{', byte(n), 0xff},
	}
}

// object makes a statement one that stands as an object.
func object(st catalogue.Statement) catalogue.Statement {
	st.ObjectRoot, st.ObjectSize = merkle.Sum(st.Envelope), int64(len(st.Envelope))
	return st
}

func statements(t testing.TB, c catalogue.Catalogue, id string) []catalogue.Statement {
	t.Helper()
	list, err := c.StatementsOf(t.Context(), id, 0, 100)
	noErr(t, err)
	return list
}

func idsOf(list []catalogue.Statement) string {
	ids := make([]string, len(list))
	for i, st := range list {
		ids[i] = st.StatementID
	}
	return strings.Join(ids, " ")
}

func statementComesBack(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	publish(t, c, a, artifact(2))
	noErr(t, c.Enter(t.Context(), "w"))
	bare, full := said(1, a), object(said(2, a))
	full.Cursor = merkle.Sum([]byte("cursor"))
	for i, st := range []catalogue.Statement{bare, full} {
		st.Seq = 77
		noErr(t, c.State(t.Context(), "w", st))
		st.Seq = int64(i + 1)
		list := statements(t, c, a.ArtifactID)
		if len(list) != i+1 || fmt.Sprint(list[i]) != fmt.Sprint(st) {
			t.Errorf("StatementsOf = %v\nwant      %v", list[i], st)
		}
		if got, err := c.ObjectsOf(t.Context(), a.ArtifactID, "urn:test"); err != nil || idsOf(got) != []string{"", "rc_000002"}[i] {
			t.Errorf("ObjectsOf = %s, %v", idsOf(got), err)
		}
		list[i].Envelope[0] = 'x'
		if again := statements(t, c, a.ArtifactID); again[i].Envelope[0] != '{' {
			t.Error("a change of the answer changed the catalogue")
		}
	}
	for limit := 1; limit < 4; limit++ {
		var got []catalogue.Statement
		for after := int64(0); ; {
			list, err := c.StatementsOf(t.Context(), a.ArtifactID, after, limit)
			noErr(t, err)
			if got = append(got, list...); len(list) < limit {
				break
			}
			after = list[len(list)-1].Seq
		}
		if idsOf(got) != "rc_000001 rc_000002" {
			t.Errorf("in pages of %d: %s", limit, idsOf(got))
		}
	}
	for id, kind := range map[string]string{a.ArtifactID: "urn:other", artifact(2).ArtifactID: "urn:test"} {
		if got, err := c.ObjectsOf(t.Context(), id, kind); err != nil || len(got) > 0 {
			t.Errorf("ObjectsOf(%s, %s) = %s, %v", id, kind, idsOf(got), err)
		}
	}
	if list := statements(t, c, artifact(2).ArtifactID); list != nil {
		t.Errorf("about another artifact: %v", list)
	}
	if _, err := c.StatementsOf(t.Context(), a.ArtifactID, 0, 0); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("a limit of 0: %v", err)
	}
}

func statementOnce(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	if err := c.State(t.Context(), "", said(1, a)); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("about nothing: error = %v, want ErrNotFound", err)
	}
	publish(t, c, a)
	other := said(1, a)
	other.Envelope = []byte("another")
	for _, st := range []catalogue.Statement{said(1, a), said(1, a), other} {
		noErr(t, c.State(t.Context(), "", st))
	}
	if list := statements(t, c, a.ArtifactID); len(list) != 1 || string(list[0].Envelope) == "another" {
		t.Errorf("StatementsOf = %v", list)
	}
	for name, change := range map[string]func(*catalogue.Statement){
		"no id":         func(st *catalogue.Statement) { st.StatementID = "" },
		"no kind":       func(st *catalogue.Statement) { st.Kind = "" },
		"no tenant":     func(st *catalogue.Statement) { st.Tenant = "" },
		"no artifact":   func(st *catalogue.Statement) { st.ArtifactID = "" },
		"no time":       func(st *catalogue.Statement) { st.IssuedAt = time.Time{} },
		"no envelope":   func(st *catalogue.Statement) { st.Envelope = nil },
		"a huge one":    func(st *catalogue.Statement) { st.Envelope = make([]byte, 2<<20+1) },
		"a root alone":  func(st *catalogue.Statement) { st.ObjectRoot = merkle.Sum(nil) },
		"a size alone":  func(st *catalogue.Statement) { st.ObjectSize = 1 },
		"a size less 0": func(st *catalogue.Statement) { st.ObjectRoot, st.ObjectSize = merkle.Sum(nil), -1 },
	} {
		st := said(2, a)
		change(&st)
		if err := c.State(t.Context(), "", st); !errors.Is(err, catalogue.ErrInvalid) {
			t.Errorf("%s: error = %v, want ErrInvalid", name, err)
		}
	}
}

func statementUnder(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	publish(t, c, a)
	noErr(t, c.Enter(t.Context(), "w"))
	noErr(t, c.Enter(t.Context(), "lost"))
	noErr(t, c.Lose(t.Context(), "lost"))
	for _, lease := range []string{"gone", "lost"} {
		for name, err := range map[string]error{
			"State":    c.State(t.Context(), lease, object(said(1, a))),
			"Finish":   c.Finish(t.Context(), lease, object(said(1, a))),
			"DeleteBy": c.DeleteBy(t.Context(), lease, "r", time.Now(), object(said(1, a)), merkle.Root{}, 0),
		} {
			if !errors.Is(err, catalogue.ErrLease) {
				t.Errorf("%s under the lease %q: error = %v, want ErrLease", name, lease, err)
			}
		}
	}
	if got, err := c.Artifact(t.Context(), a.ArtifactID); err != nil || got.DeletedAt != nil {
		t.Errorf("deleted all the same: %v, %v", got, err)
	}
	if list := statements(t, c, a.ArtifactID); list != nil {
		t.Errorf("stated all the same: %v", list)
	}
	noErr(t, c.State(t.Context(), "w", object(said(1, a))))
}

func unfinished(t testing.TB, c catalogue.Catalogue) string {
	t.Helper()
	list, err := c.Unfinished(t.Context(), 0, 100)
	noErr(t, err)
	var text []string
	for _, u := range list {
		text = append(text, fmt.Sprintf("%s by %s, map %d", u.Artifact.ArtifactID, u.StatementID, u.MapSize))
		for _, x := range u.Indexes {
			text[len(text)-1] += fmt.Sprintf(", index %d", x.Size)
		}
		if u.Artifact.DeletedAt == nil || u.MapRoot.IsZero() != (u.MapSize == 0) {
			t.Errorf("unfinished: %v", u)
		}
	}
	return strings.Join(text, "; ")
}

func deleteBy(t *testing.T, c catalogue.Catalogue) {
	a, b := artifact(1), artifact(2)
	publish(t, c, a, b)
	noErr(t, c.Enter(t.Context(), "w"))
	when := time.Date(2026, 5, 6, 7, 8, 9, 123000, time.UTC)
	noErr(t, c.DeleteBy(t.Context(), "w", "second", when, object(said(2, b)), merkle.Root{}, 0))
	noErr(t, c.DeleteBy(t.Context(), "w", "asked", when, object(said(1, a)), merkle.Sum(nil), 2048, catalogue.Blob{Root: merkle.Sum(nil), Size: 8192}))
	noErr(t, c.DeleteBy(t.Context(), "w", "again", when.Add(time.Hour), object(said(3, a)), merkle.Root{}, 0))
	got, err := c.Artifact(t.Context(), a.ArtifactID)
	if err != nil || got.DeletedAt == nil || !got.DeletedAt.Equal(when) || got.DeleteReason != "asked" {
		t.Errorf("Artifact = %v, %v", got, err)
	}
	if got := idsOf(statements(t, c, a.ArtifactID)); got != "rc_000001" {
		t.Errorf("the statements are %s", got)
	}
	if got, want := unfinished(t, c), a.ArtifactID+" by rc_000001, map 2048, index 8192; "+b.ArtifactID+" by rc_000002, map 0"; got != want {
		t.Errorf("unfinished: %s, want %s", got, want)
	}
	// One that was deleted without a tombstone stays so.
	d := artifact(4)
	publish(t, c, d)
	noErr(t, c.Delete(t.Context(), d.ArtifactID, "", when))
	noErr(t, c.DeleteBy(t.Context(), "w", "late", when, object(said(4, d)), merkle.Root{}, 0))
	if list := statements(t, c, d.ArtifactID); list != nil {
		t.Errorf("StatementsOf = %v", list)
	}
	if err := c.DeleteBy(t.Context(), "w", "", when, object(said(5, artifact(5))), merkle.Root{}, 0); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("of nothing: error = %v, want ErrNotFound", err)
	}
	if err := c.DeleteBy(t.Context(), "w", "", time.Time{}, object(said(5, a)), merkle.Root{}, 0); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("without a time: error = %v, want ErrInvalid", err)
	}
}

func finishes(t *testing.T, c catalogue.Catalogue) {
	a, b := artifact(1), artifact(2)
	publish(t, c, a, b)
	noErr(t, c.Enter(t.Context(), "w"))
	for i, x := range []catalogue.Artifact{a, b} {
		noErr(t, c.DeleteBy(t.Context(), "w", "", time.Now(), object(said(i, x)), merkle.Root{}, 0))
	}
	noErr(t, c.State(t.Context(), "w", object(said(10, a))))
	if got := unfinished(t, c); strings.Count(got, "by") != 2 {
		t.Errorf("unfinished: %s", got)
	}
	for range 2 {
		noErr(t, c.Finish(t.Context(), "w", object(said(11, a))))
	}
	if got := unfinished(t, c); got != b.ArtifactID+" by rc_000001, map 0" {
		t.Errorf("unfinished: %s", got)
	}
	if list, err := c.Unfinished(t.Context(), 2, 1); err != nil || list != nil {
		t.Errorf("behind the last: %v, %v", list, err)
	}
}

func before(t *testing.T, c catalogue.Catalogue) {
	a := artifact(1)
	publish(t, c, a)
	cursor := merkle.Sum([]byte("c"))
	for n := range 3 {
		st := said(n, a)
		if n < 2 {
			st.Cursor = cursor
		}
		noErr(t, c.State(t.Context(), "", st))
	}
	if st, err := c.Before(t.Context(), cursor); err != nil || st.StatementID != "rc_000001" {
		t.Errorf("Before = %v, %v", st, err)
	}
	for _, none := range []merkle.Root{{}, merkle.Sum([]byte("d"))} {
		if st, err := c.Before(t.Context(), none); !errors.Is(err, catalogue.ErrNotFound) {
			t.Errorf("Before(%s) = %v, %v, want ErrNotFound", none, st, err)
		}
	}
}

func objectsOf(t *testing.T, c catalogue.Catalogue) {
	a, b := artifact(1), artifact(2)
	b.Tenant = "another"
	publish(t, c, a, b)
	noErr(t, c.Enter(t.Context(), "w"))
	for _, st := range []catalogue.Statement{said(0, a), object(said(1, a)), object(said(2, b)), object(said(3, a))} {
		noErr(t, c.State(t.Context(), "w", st))
	}
	for tenant, want := range map[string]string{"local": "rc_000001 rc_000003", "another": "rc_000002", "": "rc_000001 rc_000002 rc_000003", "none": ""} {
		list, err := c.Objects(t.Context(), tenant, 0, 10)
		if err != nil || idsOf(list) != want {
			t.Errorf("Objects(%q) = %s, %v, want %s", tenant, idsOf(list), err, want)
		}
	}
}

// A catalogue of version 2 has no statements until it is upgraded, and reads as it
// stands before.
func TestUpgradeStatements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	a := artifact(1)
	publish(t, c, a)
	noErr(t, c.Enter(t.Context(), "w"))
	noErr(t, c.Close())
	raw(t, path, drop(t, path, "meta", "artifacts", "sweep", "leases", "condemned")+`PRAGMA user_version = 2`)
	ro, err := catalogue.OpenAsItStands(path)
	noErr(t, err)
	if list := statements(t, ro, a.ArtifactID); list != nil || unfinished(t, ro) != "" {
		t.Errorf("as it stands: %v", list)
	}
	if holders, err := ro.Holders(t.Context()); err != nil || len(holders) != 1 {
		t.Errorf("as it stands: Holders = %v, %v", holders, err)
	}
	noErr(t, ro.Close())
	if _, err := catalogue.OpenSQLite(path); !errors.Is(err, catalogue.ErrOlder) {
		t.Errorf("error = %v, want ErrOlder", err)
	}
	noErr(t, catalogue.UpgradeSQLite(path))
	c, err = catalogue.OpenSQLite(path)
	noErr(t, err)
	defer c.Close()
	noErr(t, c.State(t.Context(), "w", object(said(1, a))))
	if problems, err := c.Integrity(t.Context()); err != nil || problems != nil {
		t.Errorf("Integrity = %q, %v", problems, err)
	}
}

// What is said survives the loss of the catalogue as far as its rows can be read,
// and what a tombstone ended is unfinished until a statement finishes it.
func TestRestoreStatements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.db")
	c, err := catalogue.CreateSQLite(path)
	noErr(t, err)
	a, b := artifact(1), artifact(2)
	publish(t, c, a, b)
	noErr(t, c.Enter(t.Context(), "w"))
	for i, x := range []catalogue.Artifact{a, b} {
		st := object(said(i, x))
		st.Kind = "tombstone"
		noErr(t, c.DeleteBy(t.Context(), "w", "r", time.Now(), st, merkle.Root{}, 0))
	}
	noErr(t, c.Finish(t.Context(), "w", object(said(5, b))))
	noErr(t, c.Close())
	old := catalogue.Salvage(t.Context(), path)
	if !old.Whole || !old.WholeStatements || idsOf(old.Statements) != "rc_000000 rc_000001 rc_000005" {
		t.Fatalf("Salvage = %+v", old)
	}
	to := filepath.Join(t.TempDir(), "catalogue.db")
	stray := said(9, artifact(9)) // about nothing that is there
	_, err = catalogue.Restore(t.Context(), to, catalogue.Restored{
		Rows: slices.Values(old.Rows), Statements: append(old.Statements, stray, old.Statements[0]),
		Tombstone: "tombstone", Finished: map[string]bool{b.ArtifactID: true},
	})
	noErr(t, err)
	c, err = catalogue.OpenSQLite(to)
	noErr(t, err)
	defer c.Close()
	if got := idsOf(statements(t, c, b.ArtifactID)); got != "rc_000001 rc_000005" {
		t.Errorf("the statements are %s", got)
	}
	if got := unfinished(t, c); got != a.ArtifactID+" by rc_000000, map 0" {
		t.Errorf("unfinished: %s", got)
	}
	// Without the table, nothing is read and nothing is whole.
	db, err := sql.Open("sqlite", path)
	noErr(t, err)
	_, err = db.Exec(`DROP TABLE statements`)
	noErr(t, errors.Join(err, db.Close()))
	if old := catalogue.Salvage(t.Context(), path); !old.Whole || old.WholeStatements || old.Statements != nil {
		t.Errorf("Salvage without the table = %+v", old)
	}
}
