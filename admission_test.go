package leafproof_test

import (
	"bytes"
	"testing"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// What of an answer entered a prompt is a statement of its own, by a key of its own:
// about a receipt that the caller was given, and all of its bytes.
func TestAdmission(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("{\"a\":1}\n{\"a\":2}\n{\"a\":1}\n"), leafproof.PutOptions{}, leafproof.Facts{SourceID: "infra.x"})
	var receipt leafproof.Statement
	var rows bytes.Buffer
	answer, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: "@.a == 1", Receipt: &receipt}, func(r leafproof.Row) error {
		rows.Write(append(r.AppendText(nil), '\n'))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := []byte(`[{"a":1}]`)
	said := leafproof.Admitted{
		Receipt: &receipt, Admitted: [][2]int64{{0, 8}}, Omitted: []manifest.Omitted{{Range: [2]int64{8, 16}, Reason: "token_budget"}},
		Serialised: merkle.Sum(shown),
	}
	if _, err := s.Admit(t.Context(), leafproof.Owner, said); err == nil {
		t.Error("an admission was signed without a key for it")
	}
	if _, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{manifest.RoleAdmission}}); err != nil {
		t.Fatal(err)
	}
	st, err := s.Admit(t.Context(), leafproof.Owner, said)
	if err != nil {
		t.Fatal(err)
	}
	attested(t, s, st)
	b, ok := st.Statement.Body.(*manifest.Admission)
	if !ok || b.Size != int64(rows.Len()) || b.ReceiptID != receipt.ID || b.SerialisedDigest != merkle.Sum(shown).String() || b.ArtifactID != id {
		t.Errorf("%+v", st.Statement.Body)
	}
	as := assess(t, s, leafproof.Owner, id, leafproof.Need{Require: fact("scan=complete"), Optional: fact("admission=complete"), Answer: answer, Admission: b})
	if as.Decision != leafproof.Qualify || len(as.Unmet) != 2 || as.Unmet[0].What != "admission=complete" {
		t.Errorf("a part of a complete scan was admitted: %s, %+v", as.Decision, as.Unmet)
	}
	list, _, err := s.Statements(t.Context(), leafproof.Owner, id, 0, 10)
	if err != nil || len(list) != 2 || list[1].ID != st.ID {
		t.Errorf("%d statements, %v", len(list), err)
	}

	other := leafproof.Caller{Principal: "mallory"}
	forged := receipt
	forged.Digest[0] ^= 1
	for name, test := range map[string]struct {
		who  leafproof.Caller
		edit func(*leafproof.Admitted)
		code leafproof.Code
	}{
		"no receipt":       {leafproof.Owner, func(a *leafproof.Admitted) { a.Receipt = nil }, leafproof.CodeSelectorInvalid},
		"another's":        {other, func(*leafproof.Admitted) {}, leafproof.CodeRefNotFound},
		"another digest":   {leafproof.Owner, func(a *leafproof.Admitted) { a.Receipt = &forged }, leafproof.CodeIntegrityFailed},
		"an admission":     {leafproof.Owner, func(a *leafproof.Admitted) { a.Receipt = st }, leafproof.CodeIntegrityFailed},
		"bytes left out":   {leafproof.Owner, func(a *leafproof.Admitted) { a.Omitted = nil }, leafproof.CodeSelectorInvalid},
		"an unknown cause": {leafproof.Owner, func(a *leafproof.Admitted) { a.Omitted = []manifest.Omitted{{Range: [2]int64{8, 16}, Reason: "tired"}} }, leafproof.CodeSelectorInvalid},
	} {
		a := said
		test.edit(&a)
		if st, err := s.Admit(t.Context(), test.who, a); leafproof.CodeOf(err) != test.code || st != nil {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}
