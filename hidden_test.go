package leafproof_test

import (
	"io"
	"slices"
	"testing"

	"leafproof"
	"leafproof/cas"
	"leafproof/manifest"
	"leafproof/merkle"
)

// TestNobodysGrants: nobody is not everybody.
func TestNobodysGrants(t *testing.T) {
	s, _ := newStore(t)
	grant(t, s, "alice", leafproof.ActionRead, "local")
	if list, err := s.Grants(t.Context(), as(""), ""); err == nil || len(list) > 0 {
		t.Errorf("nobody sees %v, %v", list, err)
	}
}

// TestPointerBesideRecords: leave for some records of a document does not tell what
// stands in the others, nor that nothing does.
func TestPointerBesideRecords(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(`[{"a":1},{"secret":2}]`), leafproof.PutOptions{Records: "json"}, leafproof.Facts{})
	for _, action := range []leafproof.Action{leafproof.ActionRead, leafproof.ActionProve} {
		if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{
			Principal: "alice", Action: action, Pattern: "local", Records: &merkle.Range{Start: 0, End: 1},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pointer := range []string{"/1/secret", "/1/other", "/9"} {
		_, read := s.Read(t.Context(), as("alice"), id, leafproof.Selector{Pointer: &pointer}, io.Discard)
		_, prove := s.Prove(t.Context(), as("alice"), id, leafproof.Selector{Pointer: &pointer}, io.Discard)
		if leafproof.CodeOf(read) != leafproof.CodeAccessRevoked || leafproof.CodeOf(prove) != leafproof.CodeAccessRevoked {
			t.Errorf("%s: %v, %v", pointer, read, prove)
		}
	}
	pointer := "/0/a"
	if _, err := s.Read(t.Context(), as("alice"), id, leafproof.Selector{Pointer: &pointer}, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestCountsOfOthers: the places in an inventory do not tell how many copies there are
// of what a caller may not know of, and serve to go on from.
func TestCountsOfOthers(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("mine\n"), leafproof.PutOptions{}, leafproof.Facts{RunID: "r1"})
	foreign := put(t, s, []byte("not mine\n"), leafproof.PutOptions{}, leafproof.Facts{RunID: "r2"})
	grant(t, s, "alice", leafproof.ActionStat, "local/r1")
	if _, err := s.RegisterCopy(t.Context(), leafproof.Owner, leafproof.Copy{ArtifactID: foreign, Kind: leafproof.CopyCache, Where: "there"}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for range 3 {
		c, err := s.RegisterCopy(t.Context(), as("alice"), leafproof.Copy{ArtifactID: id, Kind: leafproof.CopyCache, Where: "here"})
		if err != nil {
			t.Fatal(err)
		}
		if want = append(want, c.ID); c.Seq < 1000 {
			t.Errorf("she sees that there are %d copies in the store", c.Seq)
		}
	}
	var got []string
	for after := int64(0); ; {
		list, next, err := s.Copies(t.Context(), as("alice"), id, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			got = append(got, c.ID)
		}
		if after = next; next == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("page by page: %v, want %v", got, want)
	}
}

// TestDeletedInputOfOthers: that an input was deleted hears who may know of it.
func TestDeletedInputOfOthers(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("{\"a\":1}\n{\"a\":2}\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{RunID: "r1"})
	d, err := s.Derive(t.Context(), leafproof.Owner, id, leafproof.Derivation{Where: "@.a == 2", RunID: "r2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
		t.Fatal(err)
	}
	grant(t, s, "alice", leafproof.ActionStat, "local/r2")
	grant(t, s, "bob", leafproof.ActionStat, "local")
	for who, want := range map[leafproof.Principal]int{"alice": 0, "bob": 1} {
		st, err := s.Resolve(t.Context(), as(who), d.Ref.ArtifactID)
		if err != nil || len(st.InputsDeleted) != want {
			t.Errorf("%s: %v, %v", who, st, err)
		}
	}
}

// TestCopyHeedsRevoke: a copy to another store is in the audit log, and ends with the
// leave to read what it copies.
func TestCopyHeedsRevoke(t *testing.T) {
	_, dir := newStore(t)
	_, other := newStore(t)
	admitting(t, dir, other)
	from, to := openStore(t, dir), openStore(t, other)
	id := put(t, from, random(8<<20, 1), leafproof.PutOptions{Place: cas.Whole}, leafproof.Facts{})
	grant(t, from, "alice", leafproof.ActionStat, "local")
	g := grant(t, from, "alice", leafproof.ActionRead, "local")
	var bytes, late int64
	err := from.CopyTo(t.Context(), as("alice"), to, leafproof.CopyOptions{Progress: func(n int64) {
		if bytes == 0 {
			revoke(t, from, g)
		} else {
			late += n
		}
		bytes += n
	}}, id)
	if leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || late > 64<<10 {
		t.Errorf("after the revocation: %d bytes, %v", late, err)
	}
	if _, err := to.Resolve(t.Context(), leafproof.Owner, id); err == nil || leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("the other store has it: %v", err)
	}
	list, err := from.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{ArtifactID: id, Principal: "alice", Limit: 10})
	if err != nil || len(list) != 1 || list[0].GrantID != g {
		t.Errorf("the audit log has %v, %v", list, err)
	}
	grant(t, from, "alice", leafproof.ActionRead, "local")
	if err := from.CopyTo(t.Context(), as("alice"), to, leafproof.CopyOptions{}, id); err != nil {
		t.Error(err)
	}
}

// TestHiddenSuccessor: the statement that an artifact was superseded names the one that
// takes its place, and so is shown to whoever may know of both.
func TestHiddenSuccessor(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("1"), leafproof.PutOptions{}, leafproof.Facts{RunID: "r1"})
	put(t, s, []byte("2"), leafproof.PutOptions{}, leafproof.Facts{
		Caller: leafproof.Owner, RunID: "r2", Supersedes: []manifest.Supersede{{ArtifactID: id, Kind: "correct"}},
	})
	grant(t, s, "alice", leafproof.ActionStat, "local/r1")
	grant(t, s, "alice", leafproof.ActionGrant, "local/r1")
	grant(t, s, "bob", leafproof.ActionStat, "local")
	for who, want := range map[leafproof.Principal]int{"alice": 0, "bob": 1, leafproof.Owner.Principal: 1} {
		if list, _, err := s.Statements(t.Context(), as(who), id, 0, 10); err != nil || len(list) != want {
			t.Errorf("%s sees %v, %v", who, list, err)
		}
	}
}

// TestLogProofIsRecorded: that an artifact was committed is told on the record.
func TestLogProofIsRecorded(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("1"), leafproof.PutOptions{}, leafproof.Facts{})
	g := grant(t, s, "alice", leafproof.ActionStat, "local")
	if _, err := s.LogProof(t.Context(), as("alice"), id); err != nil {
		t.Fatal(err)
	}
	list, err := s.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{ArtifactID: id, Principal: "alice", Limit: 10})
	if err != nil || len(list) != 1 || list[0].GrantID != g {
		t.Errorf("the audit log has %v, %v", list, err)
	}
}

// TestDeriveElsewhere: leave to derive is not leave to bring the rows to another run,
// where somebody may read who may not read here.
func TestDeriveElsewhere(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("{\"n\":1}\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{RunID: "r1"})
	grant(t, s, "alice", leafproof.ActionDerive, "local/r1")
	grant(t, s, "alice", leafproof.ActionRead, "local/r9")
	d := leafproof.Derivation{Where: "@.n == 1"}
	for run, want := range map[string]leafproof.Code{"": "", "r1": "", "r9": leafproof.CodeAccessRevoked} {
		d.RunID = run
		if _, err := s.Derive(t.Context(), as("alice"), id, d); err != nil != (want != "") || err != nil && leafproof.CodeOf(err) != want {
			t.Errorf("into run %q: %v, want %q", run, err, want)
		}
	}
	grant(t, s, "alice", leafproof.ActionGrant, "local/r1")
	if _, err := s.Derive(t.Context(), as("alice"), id, d); err != nil {
		t.Errorf("with leave to pass it on: %v", err)
	}
}

// TestCountOfABeginning: leave to count tells how many records match, and not which.
func TestCountOfABeginning(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("{\"n\":0}\n{\"n\":1}\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	grant(t, s, "alice", leafproof.ActionCount, "local")
	q := leafproof.Query{Where: "@.n == 1", Count: true}
	a, err := s.Query(t.Context(), as("alice"), id, q, nil)
	if err != nil || a.Matched == nil || *a.Matched != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, bound := range []func(*leafproof.Query){
		func(q *leafproof.Query) { q.MaxRecords = 1 },
		func(q *leafproof.Query) { q.MaxBytes = 8 },
	} {
		part := q
		bound(&part)
		if a, err := s.Query(t.Context(), as("alice"), id, part, nil); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || a != nil {
			t.Errorf("%+v, %v", a, err)
		}
	}
}
