package leafproof_test

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// reader lets the owner do everything and reader nothing but stat and read.
type reader struct{ deny string }

func (r reader) Decide(_ context.Context, q leafproof.Request) (leafproof.Decision, error) {
	switch {
	case q.Principal == leafproof.Owner.Principal:
		return leafproof.Decision{Allow: true}, nil
	case q.Principal != "reader" || q.Artifact == r.deny:
		return leafproof.Decision{}, nil
	}
	return leafproof.Decision{Allow: q.Action == leafproof.ActionStat || q.Action == leafproof.ActionRead}, nil
}

var asReader = leafproof.Caller{Principal: "reader"}

func superseding(id, kind string) leafproof.Facts {
	return leafproof.Facts{Caller: leafproof.Owner, Supersedes: []manifest.Supersede{{ArtifactID: id, Kind: kind}}}
}

// An older artifact says what takes its place, in what is told of it and in every
// answer, and stays what it is. A signed statement says the same.
func TestSupersededIsAnAdvisory(t *testing.T) {
	s, dir := newStore(t)
	old := put(t, s, []byte(`{"a":1}`+"\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	if st, err := s.Resolve(t.Context(), leafproof.Owner, old); err != nil || st.SupersededBy != nil {
		t.Fatalf("%+v, %v", st, err)
	}
	second := put(t, s, []byte(`{"a":2}`+"\n"), leafproof.PutOptions{Records: "ndjson"}, superseding(old, "correct"))
	third := put(t, s, []byte(`{"a":3}`+"\n"), leafproof.PutOptions{Records: "ndjson"}, superseding(old, ""))
	if got := read(t, s, old, leafproof.Selector{}); string(got) != `{"a":1}`+"\n" {
		t.Errorf("the older one reads %q", got)
	}
	st, err := s.Resolve(t.Context(), leafproof.Owner, old)
	if err != nil || len(st.SupersededBy) != 2 || st.SupersededBy[0].ArtifactID != third || st.SupersededBy[0].Kind != "reacquire" || st.SupersededBy[1].ArtifactID != second {
		t.Fatalf("superseded by %+v, %v", st, err)
	}
	a, err := s.Read(t.Context(), leafproof.Owner, old, leafproof.Selector{}, io.Discard)
	if err != nil || len(a.SupersededBy) != 2 {
		t.Errorf("a read says %+v, %v", a, err)
	}
	if a, err = s.Query(t.Context(), leafproof.Owner, old, leafproof.Query{Where: `@.a == 1`}, nil); err != nil || len(a.SupersededBy) != 2 || a.ArtifactID != old {
		t.Errorf("a query says %+v, %v", a, err)
	}
	if a, err = s.Query(t.Context(), leafproof.Owner, second, leafproof.Query{Where: `@.a == 2`}, nil); err != nil || a.SupersededBy != nil {
		t.Errorf("of the newer one: %+v, %v", a, err)
	}
	list, _, err := s.Statements(t.Context(), leafproof.Owner, old, 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d statements, %v", len(list), err)
	}
	body, ok := list[0].Statement.Body.(*manifest.Superseded)
	if !ok || body.By.ArtifactID != second || body.Kind != "correct" || body.ArtifactID != old {
		t.Errorf("it says %+v", list[0].Statement.Body)
	}
	// What was deleted takes nobody's place, and who may not know of it does not hear.
	if err := s.Delete(t.Context(), leafproof.Owner, third, ""); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = openStore(t, dir, leafproof.WithAuthority(reader{deny: second}))
	if st, err := s.Resolve(t.Context(), leafproof.Owner, old); err != nil || len(st.SupersededBy) != 1 || st.SupersededBy[0].ArtifactID != second {
		t.Errorf("the owner hears %+v, %v", st, err)
	}
	if st, err := s.Resolve(t.Context(), asReader, old); err != nil || st.SupersededBy != nil {
		t.Errorf("the reader hears %+v, %v", st, err)
	}
	// A catalogue that is made anew from the objects knows it too.
	s.Close()
	if err := os.Remove(filepath.Join(dir, "catalogue.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	if st, err := s.Resolve(t.Context(), leafproof.Owner, old); err != nil || len(st.SupersededBy) != 1 || st.SupersededBy[0].ArtifactID != second {
		t.Errorf("after a repair: %+v, %v", st, err)
	}
}

// A name means one artifact at a time, in versions, and nothing to whom its
// artifact is hidden.
func TestNames(t *testing.T) {
	s, dir := newStore(t)
	one := put(t, s, []byte("1\n"), leafproof.PutOptions{}, leafproof.Facts{})
	two := put(t, s, []byte("2\n"), leafproof.PutOptions{}, leafproof.Facts{})
	other := put(t, s, []byte("3\n"), leafproof.PutOptions{Tenant: "other"}, leafproof.Facts{})
	ctx, owner := t.Context(), leafproof.Owner
	for i, step := range []struct {
		id    string
		ifSeq int64
		code  leafproof.Code
		seq   int64
	}{
		{one, 0, "", 1},
		{two, 0, leafproof.CodeNameConflict, 0},
		{two, 1, "", 2},
		{one, leafproof.AnySeq, "", 3},
		{other, leafproof.AnySeq, leafproof.CodeRefNotFound, 0},
		{"art_x", 3, leafproof.CodeRefMalformed, 0},
		{one, -2, leafproof.CodeSelectorInvalid, 0},
	} {
		n, err := s.SetName(ctx, owner, "", "latest", step.id, step.ifSeq)
		if (err == nil) != (step.code == "") || err != nil && leafproof.CodeOf(err) != step.code || n.Seq != step.seq {
			t.Errorf("step %d: %+v, %v; want %d, %q", i, n, err, step.seq, step.code)
		}
	}
	if n, err := s.Name(ctx, owner, "", "latest", 0); err != nil || n.ArtifactID != one || n.Seq != 3 || n.SetBy != "owner" || n.SetAt.IsZero() {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := s.Name(ctx, owner, "local", "latest", 2); err != nil || n.ArtifactID != two {
		t.Errorf("version 2: %+v, %v", n, err)
	}
	// Two snapshots under one name: what is in hand still gives its own bytes (case 21).
	for id, want := range map[string]string{one: "1\n", two: "2\n"} {
		var got bytes.Buffer
		if a, err := s.Read(ctx, owner, id, leafproof.Selector{}, &got); err != nil || got.String() != want || a.ArtifactID != id {
			t.Errorf("%s: %q, %v; want %q", id, got.String(), err, want)
		}
	}
	s.Close()
	s = openStore(t, dir, leafproof.WithAuthority(reader{deny: one}))
	_, hidden := s.Name(ctx, asReader, "", "latest", 0)
	_, never := s.Name(ctx, asReader, "", "never", 0)
	if leafproof.CodeOf(hidden) != leafproof.CodeRefNotFound || strings.ReplaceAll(hidden.Error(), "latest", "never") != never.Error() {
		t.Errorf("a hidden name: %v; one that never was: %v", hidden, never)
	}
	if n, err := s.Name(ctx, asReader, "", "latest", 2); err != nil || n.ArtifactID != two {
		t.Errorf("the version that he may know of: %+v, %v", n, err)
	}
	if _, err := s.SetName(ctx, asReader, "", "latest", two, 3); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("a reader set it: %v", err)
	}
	for _, bad := range []string{"", "a/b", "-x", strings.Repeat("n", 129)} {
		if _, err := s.Name(ctx, owner, "", bad, 0); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("the name %q: %v", bad, err)
		}
	}
	// A name of what was deleted stays, and what it means is deleted.
	if err := s.Delete(ctx, owner, one, ""); err != nil {
		t.Fatal(err)
	}
	n, err := s.Name(ctx, owner, "", "latest", 0)
	if err != nil || n.ArtifactID != one {
		t.Fatalf("%+v, %v", n, err)
	}
	if _, err := s.Resolve(ctx, owner, n.ArtifactID); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
		t.Errorf("what it means: %v", err)
	}
}

// The inventory lists exports, excerpts, derived artifacts and what a harness
// registered, and the end of the artifact reaches each as far as it can.
func TestCopies(t *testing.T) {
	s, _ := newStore(t)
	ctx, owner := t.Context(), leafproof.Owner
	id := put(t, s, []byte("{\"a\":1}\n{\"a\":2}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if _, err := s.Prove(ctx, owner, id, leafproof.Selector{Records: &merkle.Range{Start: 0, End: 1}}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Slice(ctx, owner, id, merkle.Range{Start: 0, End: 3}, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(ctx, owner, id, leafproof.Selector{Receipt: &leafproof.Statement{}}, io.Discard); err != nil {
		t.Fatal(err)
	}
	d, err := s.Derive(ctx, owner, id, leafproof.Derivation{Where: "@.a == 2"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Derive(ctx, owner, d.Ref.ArtifactID, leafproof.Derivation{Where: "@.a == 2"})
	if err != nil {
		t.Fatal(err)
	}
	var frame leafproof.Copy
	for _, kind := range []string{leafproof.CopyCache, leafproof.CopySummary, leafproof.CopyPrinted, leafproof.CopyDataframe} {
		frame, err = s.RegisterCopy(ctx, owner, leafproof.Copy{ArtifactID: id, Kind: kind, Where: "kernel 3", Controller: "harness"})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCopies(t, s, id, "export out_of_control, export out_of_control, excerpt out_of_control, derived live, cache live, summary live, printed out_of_control, dataframe live")
	if err := s.Delete(ctx, owner, id, "asked to"); err != nil {
		t.Fatal(err)
	}
	wantCopies(t, s, id, "export out_of_control, export out_of_control, excerpt out_of_control, derived pending, cache pending, summary pending, printed out_of_control, dataframe pending")
	// What was derived is not deleted by that, and says that its input is gone.
	if st, err := s.Resolve(ctx, owner, d.Ref.ArtifactID); err != nil || len(st.InputsDeleted) != 1 || st.InputsDeleted[0] != id {
		t.Errorf("the derived one says %+v, %v", st, err)
	}
	if c, err := s.UpdateCopy(ctx, owner, frame.ID, leafproof.PropagationDone, "dropped"); err != nil || c.Propagation != "done" || c.Note != "dropped" {
		t.Errorf("%+v, %v", c, err)
	}
	deleted, err := s.DeleteDerived(ctx, owner, id)
	if err != nil || len(deleted) != 2 || deleted[0] != d.Ref.ArtifactID || deleted[1] != again.Ref.ArtifactID {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	wantCopies(t, s, id, "export out_of_control, export out_of_control, excerpt out_of_control, derived done, cache pending, summary pending, printed out_of_control, dataframe done")
	wantCopies(t, s, d.Ref.ArtifactID, "derived done")
	if late, err := s.RegisterCopy(ctx, owner, leafproof.Copy{ArtifactID: id, Kind: leafproof.CopyPreview, Where: "turn 4"}); err != nil || late.Propagation != "pending" || late.Controller != "owner" {
		t.Errorf("registered late: %+v, %v", late, err)
	}
	for what, c := range map[string]leafproof.Copy{
		"no kind":   {ArtifactID: id, Kind: "derived", Where: "x"},
		"nowhere":   {ArtifactID: id, Kind: "cache"},
		"a control": {ArtifactID: id, Kind: "cache", Where: "a\x00b"},
		"too long":  {ArtifactID: id, Kind: "cache", Where: strings.Repeat("x", 1025)},
	} {
		if _, err := s.RegisterCopy(ctx, owner, c); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.UpdateCopy(ctx, owner, frame.ID, "live", ""); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
		t.Errorf("back to life: %v", err)
	}
	_, unknown := s.UpdateCopy(ctx, owner, "cp_x", "done", "")
	_, foreign := s.UpdateCopy(ctx, asReader, frame.ID, "done", "")
	if leafproof.CodeOf(unknown) != leafproof.CodeRefNotFound || leafproof.CodeOf(foreign) != leafproof.CodeRefNotFound {
		t.Errorf("%v, %v", unknown, foreign)
	}
}

func wantCopies(t *testing.T, s *leafproof.Store, id, want string) {
	t.Helper()
	list, next, err := s.Copies(t.Context(), leafproof.Owner, id, 0, 100)
	if err != nil || next != 0 {
		t.Fatal(err, next)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Kind+" "+c.Propagation)
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("the copies of %s:\n%s\nwant\n%s", id, strings.Join(got, ", "), want)
	}
}

// Case 33: after its standard time an artifact is refused, though its bytes exist; what its
// put says wins. The clock that decides is the catalogue's: one that was ahead at a
// commit, and was set back, revives nothing.
func TestExpiry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir, leafproof.WithRetention("", time.Hour), leafproof.WithRetention("long", 48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir)
	one := []byte("{\"a\":1}\n")
	ids := map[string]string{
		"standard": put(t, s, one, leafproof.PutOptions{}, leafproof.Facts{}),
		"said":     put(t, s, one, leafproof.PutOptions{}, leafproof.Facts{ExpiresIn: 24 * time.Hour}),
		"never":    put(t, s, one, leafproof.PutOptions{}, leafproof.Facts{NeverExpires: true}),
		"tenant's": put(t, s, one, leafproof.PutOptions{Tenant: "long"}, leafproof.Facts{}),
	}
	if d, err := s.Put(t.Context(), bytes.NewReader(one), leafproof.PutOptions{}); err != nil {
		t.Fatal(err)
	} else if _, err := s.Publish(t.Context(), d, leafproof.Facts{NeverExpires: true, ExpiresIn: 1}); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
		t.Errorf("never, and in a moment: %v", err)
	}
	s.Close()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalogue.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE meta SET clock = ?`, time.Now().Add(2*time.Hour).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s = openStore(t, dir)
	for what, id := range ids {
		var out bytes.Buffer
		_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
		if what == "standard" {
			if leafproof.CodeOf(err) != leafproof.CodeArtifactExpired || out.Len() > 0 {
				t.Errorf("%s: %q, %v", what, out.Bytes(), err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, opt := range map[string]leafproof.InitOption{
		"nothing": leafproof.WithRetention("", 0), "less": leafproof.WithRetention("t", -time.Hour), "no tenant": leafproof.WithRetention("a/b", time.Hour),
	} {
		if err := leafproof.Init(t.Context(), filepath.Join(t.TempDir(), "s"), opt); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Where a leave ends, the copies of who held it wait for whoever controls them, but
// for what he may have under another grant. What was shown is out of control.
func TestWithdrawal(t *testing.T) {
	s, _ := newStore(t)
	ctx, owner := t.Context(), leafproof.Owner
	kept := put(t, s, []byte("1\n"), leafproof.PutOptions{}, leafproof.Facts{RunID: "run-1"})
	id := put(t, s, []byte("2\n"), leafproof.PutOptions{}, leafproof.Facts{RunID: "run-2"})
	grant := func(name, action, pattern string) string {
		t.Helper()
		g, err := s.Grant(ctx, owner, leafproof.GrantSpec{Principal: leafproof.Principal(name), Action: leafproof.Action(action), Pattern: pattern})
		if err != nil {
			t.Fatal(err)
		}
		return g.ID
	}
	revoked := grant("ann", "read", "local")
	grant("ann", "stat", "local")
	grant("ann", "query", "local/run-1")
	grant("bob", "stat", "local")
	grant("bob", "read", "local")
	for _, who := range []leafproof.Principal{"ann", "bob"} {
		for _, id := range []string{kept, id} {
			if _, err := s.RegisterCopy(ctx, leafproof.Caller{Principal: who}, leafproof.Copy{ArtifactID: id, Kind: leafproof.CopyCache, Where: string(who), Controller: "harness"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ann := leafproof.Caller{Principal: "ann"}
	if _, err := s.Read(ctx, ann, id, leafproof.Selector{Receipt: &leafproof.Statement{}}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(ctx, owner, revoked); err != nil {
		t.Fatal(err)
	}
	wantCopies(t, s, id, "cache pending, cache live, excerpt out_of_control")
	wantCopies(t, s, kept, "cache live, cache live")
	if _, err := s.Read(ctx, ann, id, leafproof.Selector{}, io.Discard); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
		t.Errorf("a read after it: %v", err)
	}
	if a := assess(t, s, ann, id, leafproof.Need{}); a.Decision != leafproof.Refuse || a.Authority.Code != leafproof.CodeAccessRevoked || a.Identity.State != leafproof.Holds {
		t.Errorf("assessed: %+v", a)
	}
	// He sees what he holds, and can say that it is gone.
	mine, _, err := s.Copies(ctx, ann, id, 0, 10)
	if err != nil || len(mine) != 2 || mine[0].Holder != "ann" {
		t.Fatalf("ann sees %+v, %v", mine, err)
	}
	if c, err := s.UpdateCopy(ctx, ann, mine[0].ID, leafproof.PropagationDone, ""); err != nil || c.Propagation != "done" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := s.RegisterCopy(ctx, ann, leafproof.Copy{ArtifactID: id, Kind: leafproof.CopyCache, Where: "x", Holder: "bob"}); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
		t.Errorf("in another's name: %v", err)
	}
	if _, err := s.Restrict(ctx, owner, "local/run-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unrestrict(ctx, owner, "local/run-1"); err != nil {
		t.Fatal(err)
	}
	wantCopies(t, s, kept, "cache pending, cache pending")
	if err := s.RemovePrincipal(ctx, owner, "bob"); err != nil {
		t.Fatal(err)
	}
	wantCopies(t, s, id, "cache done, cache pending, excerpt out_of_control")
}

// A stream that is under way ends when its artifact does.
func TestStreamEndsWithItsArtifact(t *testing.T) {
	s, dir := newStore(t)
	other := openStore(t, dir)
	const size = 4 << 20
	deleted := put(t, s, random(size, 3), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	expired := put(t, s, random(size, 4), leafproof.PutOptions{Records: "none"}, leafproof.Facts{ExpiresIn: 1500 * time.Millisecond})
	var wg sync.WaitGroup
	for id, want := range map[string]leafproof.Code{deleted: leafproof.CodeArtifactDeleted, expired: leafproof.CodeArtifactExpired} {
		wg.Go(func() {
			got := &slow{rest: 1100 * time.Millisecond, begin: func() error {
				if id == expired {
					time.Sleep(600 * time.Millisecond)
					return nil
				}
				return other.Delete(t.Context(), leafproof.Owner, id, "")
			}}
			_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, got)
			if leafproof.CodeOf(err) != want || got.n == 0 || got.n > 64<<10 {
				t.Errorf("%s after %d bytes: %v", want, got.n, err)
			}
		})
	}
	wg.Wait()
}

// slow takes one piece, does something, and waits.
type slow struct {
	rest  time.Duration
	begin func() error
	n     int
}

func (w *slow) Write(b []byte) (int, error) {
	if w.n == 0 {
		if err := w.begin(); err != nil {
			return 0, err
		}
		time.Sleep(w.rest)
	}
	w.n += len(b)
	return len(b), nil
}

// What was deleted and what was revoked stay so in a backup that is put to use, and
// when the catalogue is lost and made anew.
func TestBackUpDeleteRestore(t *testing.T) {
	s, dir := newStore(t)
	ctx, owner := t.Context(), leafproof.Owner
	id := put(t, s, []byte("secret\n"), leafproof.PutOptions{}, leafproof.Facts{})
	kept := put(t, s, []byte("kept\n"), leafproof.PutOptions{}, leafproof.Facts{})
	g, err := s.Grant(ctx, owner, leafproof.GrantSpec{Principal: "ann", Action: leafproof.ActionRead, Pattern: "local"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(ctx, owner, g.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, owner, id, "asked to"); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backup")
	if _, err := leafproof.Backup(ctx, dir, to, leafproof.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, "keys", "cursor")) // a backup has none
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "keys", "cursor"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, dir := range map[string]string{"the store": dir, "its backup": to} {
		if what == "the store" {
			s.Close()
			if err := os.Remove(filepath.Join(dir, "catalogue.db")); err != nil {
				t.Fatal(err)
			}
			if _, err := leafproof.Repair(ctx, dir, leafproof.CheckOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		r := openStore(t, dir)
		var out bytes.Buffer
		if _, err := r.Read(ctx, owner, id, leafproof.Selector{}, &out); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted || out.Len() > 0 {
			t.Errorf("%s, restored: %q, %v", what, out.Bytes(), err)
		}
		if _, err := r.Read(ctx, leafproof.Caller{Principal: "ann"}, kept, leafproof.Selector{}, &out); err == nil || out.Len() > 0 {
			t.Errorf("%s, restored: a revoked reader got %q", what, out.Bytes())
		}
	}
}
