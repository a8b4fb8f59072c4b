package leafproof_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

func alarms(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"severity":"%s","text":"%s"}`+"\n", i, []string{"info", "warning", "error"}[i*i%7%3], strings.Repeat("x", i%50))
	}
	return b.Bytes()
}

func verifyFile(t testing.TB, s *leafproof.Store, file []byte) (*bundle.Result, string) {
	t.Helper()
	var rows bytes.Buffer
	res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: s.Policy(), At: time.Now(), Out: &rows})
	if err != nil {
		t.Fatal(err)
	}
	return res, rows.String()
}

// TestProveQuery proves answers with indexes of a put and of later, and says why
// others have no proof.
func TestProveQuery(t *testing.T) {
	s, _ := newStore(t)
	data := alarms(2000)
	id := put(t, s, data, leafproof.PutOptions{Records: "ndjson", Indexes: []string{"/severity"}}, leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}})
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, id, "/id", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		q     leafproof.Query
		index string // who vouches for it
		end   string
		rows  int
	}{
		"absence":     {leafproof.Query{Where: `@.severity == "critical"`}, "attested(store, manifest)", `No record with @.severity == "critical" in the captured coverage (region eu-west)`, 0},
		"one":         {leafproof.Query{Where: `@.id == 77 && @.severity != "critical"`}, "attested(store, index)", "Exactly 1 record ", 1},
		"the last":    {leafproof.Query{Where: `@.severity == "info"`, Order: []string{"/id:desc"}, Limit: 5}, "attested(store, index)", "These are the first 5 records ", 5},
		"a count":     {leafproof.Query{Where: `@.severity == "warning"`, Count: true}, "attested(store, manifest)", "Exactly ", 0},
		"with a note": {leafproof.Query{Where: `@.id < 3`, Receipt: new(leafproof.Statement)}, "attested(store, index)", "Exactly 3 records ", 3},
	} {
		var file bytes.Buffer
		a, err := s.ProveQuery(t.Context(), leafproof.Owner, id, c.q, &file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		res, rows := verifyFile(t, s, file.Bytes())
		f, _ := res.Verdict.Fact(manifest.FactIndex)
		if res.Verdict.Exit() != 0 || f.String() != c.index || !strings.HasPrefix(res.Answer.Conclusion, c.end) || strings.Count(rows, "\n") != c.rows || res.Answer.Conclusion != a.Conclusion {
			t.Errorf("%s: exit %d, index %s, %d rows: %s\n%s", name, res.Verdict.Exit(), f, strings.Count(rows, "\n"), res.Answer.Conclusion, res.Verdict.Sentence())
		}
		said := a.Matched
		if a.Found.Cut {
			said = a.MatchedSoFar
		}
		if a.Basis != "index" || a.Assurance != "proven" || len(a.Indexes) != 1 || said == nil || *said != a.Found.Matched || (a.Examined.Bytes > 0) != (a.Found.Shown > 0) || a.QID == "" || a.RecordsTotal != 2000 {
			t.Errorf("%s: the answer says %+v, and %v matched", name, a.Answer, said)
		}
		if c.q.Receipt == nil {
			continue
		}
		attested(t, s, c.q.Receipt)
		r := c.q.Receipt.Receipt()
		if x := r.Disclosed.Index; x == nil || x.Path != "/id" || len(x.Pages) != 1 || *r.Disclosed.Placed != [2]int64{0, 2000} || r.Assurance != "proven" || r.Result.Returned != 3 || r.Examined.Basis != "index" || r.Examined.Records != 3 || r.Examined.Bytes != a.Examined.Bytes {
			t.Errorf("the receipt says %+v of %+v", r.Disclosed.Index, r)
		}
		if f, _ := res.Verdict.Fact(manifest.FactScan); f.State != manifest.Attested {
			t.Errorf("%s: scan is %s", name, f)
		}
	}
	for where, why := range map[string]string{
		`search(@.severity, "rit")`: "a substring or a pattern rules out no string", `@.text == "x"`: "a substring, a pattern, or another field is asked for",
		`@.id == 1 || @.severity == "info"`: "prove each part by itself", `@.id == 1 || @.text == "x"`: "another field",
	} {
		_, err := s.ProveQuery(t.Context(), leafproof.Owner, id, leafproof.Query{Where: where}, io.Discard)
		if leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", where, err, why)
		}
	}
	plain := put(t, s, data, leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	if _, err := s.ProveQuery(t.Context(), leafproof.Owner, plain, leafproof.Query{Where: `@.id == 1`}, io.Discard); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid || !strings.Contains(err.Error(), "has no index") {
		t.Errorf("without an index: %v", err)
	}
}

// TestProveQueryGrants (case 77): who has leave for some records, or for another
// action, gets no proof of an answer, which says something of every record; what is
// shown is recorded.
func TestProveQueryGrants(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, alarms(500), leafproof.PutOptions{Records: "ndjson", Indexes: []string{"/id"}}, leafproof.Facts{})
	who := leafproof.Caller{Principal: "alice"}
	ask := func() error {
		_, err := s.ProveQuery(t.Context(), who, id, leafproof.Query{Where: `@.id == 7`}, io.Discard)
		return err
	}
	grant := func(spec leafproof.GrantSpec) {
		t.Helper()
		spec.Principal, spec.Pattern = who.Principal, "local"
		if _, err := s.Grant(t.Context(), leafproof.Owner, spec); err != nil {
			t.Fatal(err)
		}
	}
	if code := leafproof.CodeOf(ask()); code != leafproof.CodeRefNotFound {
		t.Errorf("without leave: %s", code)
	}
	grant(leafproof.GrantSpec{Action: leafproof.ActionQuery})
	grant(leafproof.GrantSpec{Action: leafproof.ActionProve, Records: &merkle.Range{Start: 7, End: 8}})
	if err := ask(); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
		t.Errorf("with leave for that record alone: %v", err)
	}
	for _, q := range []leafproof.Query{
		{Where: `@.text >= ""`, Order: []string{"/severity"}}, {Where: `search(@.id, "x")`}, {Where: `@.id == 7`, Count: true}, {Where: `@.id == 7`, Limit: 1, Order: []string{"/text"}},
	} { // nor why there is none
		if _, err := s.ProveQuery(t.Context(), who, id, q, io.Discard); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
			t.Errorf("with leave for that record alone, of %+v: %v", q, err)
		}
	}
	var one bytes.Buffer
	if _, err := s.Prove(t.Context(), who, id, leafproof.Selector{Records: &merkle.Range{Start: 7, End: 8}}, &one); err == nil {
		t.Error("a proof of one record shows the places of its neighbours, and was given")
	}
	grant(leafproof.GrantSpec{Action: leafproof.ActionProve})
	if err := ask(); err != nil {
		t.Errorf("with leave for all: %v", err)
	}
	list, err := s.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{ArtifactID: id, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range list {
		found = found || d.Principal == who.Principal && strings.Contains(string(d.Shown), `"placed":[0,500],"index":"/id","pages":[[0,1]]`)
	}
	if !found {
		t.Errorf("no record of the pages that were shown: %+v", list)
	}
}

// TestAudit builds again what was signed, and signs that it is the same.
func TestAudit(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, alarms(700), leafproof.PutOptions{Records: "ndjson", Indexes: []string{"/id", "/severity"}}, leafproof.Facts{})
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, id, "/text", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Audit(t.Context(), leafproof.Owner, id, leafproof.AuditOptions{Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	attested(t, s, a.Statement)
	if a.Differs || len(a.Checked) != 5 {
		t.Errorf("%d things were compared, differs %v", len(a.Checked), a.Differs)
	}
	for _, r := range a.Checked {
		if r.Outcome != manifest.OutcomeSame {
			t.Errorf("%+v", r)
		}
	}
	if code := leafproof.CodeOf(func() error {
		_, err := s.Audit(t.Context(), leafproof.Caller{Principal: "mallory"}, id, leafproof.AuditOptions{})
		return err
	}()); code != leafproof.CodeRefNotFound {
		t.Errorf("a stranger hears %s", code)
	}
}

// TestAuditFalse: an index that the bytes do not give is told, in a statement and in
// evidence that convinces others; and it does not go along to another store.
func TestAuditFalse(t *testing.T) {
	s, dir := newStore(t)
	data := alarms(300)
	id := put(t, s, data, leafproof.PutOptions{Records: "ndjson", Indexes: []string{"/id"}}, leafproof.Facts{})
	if err := s.SayFalseIndex(t.Context(), id, "/severity"); err != nil {
		t.Fatal(err)
	}
	var file nopCloser
	a, err := s.Audit(t.Context(), leafproof.Owner, id, leafproof.AuditOptions{Tool: "test", Evidence: func() (io.WriteCloser, error) { return &file, nil }})
	if err != nil {
		t.Fatal(err)
	}
	attested(t, s, a.Statement)
	for _, r := range a.Checked {
		if lie := r.Path != nil && *r.Path == "/severity"; (r.Outcome == manifest.OutcomeDiffers) != lie {
			t.Errorf("%+v", r)
		}
	}
	res, err := bundle.Verify(bytes.NewReader(file.Bytes()), int64(file.Len()), bundle.Options{Policy: s.Policy(), At: time.Now(), Rebuild: &bundle.Rebuild{
		Data: bytes.NewReader(data), Size: int64(len(data)), Room: func() (selector.Spill, error) { return new(spill), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := res.Verdict.Fact(manifest.FactIndex); !a.Differs || f.State != manifest.Mismatch || res.Verdict.Exit() != 3 {
		t.Errorf("differs %v, the evidence says %s, exit %d", a.Differs, f, res.Verdict.Exit())
	}
	// Who may not prove all of it gets the verdict, and no evidence.
	who := leafproof.Caller{Principal: "alice"}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: who.Principal, Action: leafproof.ActionDerive, Pattern: "local"}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Audit(t.Context(), who, id, leafproof.AuditOptions{Evidence: func() (io.WriteCloser, error) { t.Error("evidence was written"); return &file, nil }})
	if err == nil || b == nil || !b.Differs {
		t.Errorf("with leave to derive: %+v, %v", b, err)
	}
	_, other := newStore(t)
	text, err := os.ReadFile(leafproof.PublicKeyPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	key, err := manifest.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	to := openStore(t, other)
	if _, err := to.ChangePolicy(t.Context(), manifest.AddKey(manifest.Key{Name: "theirs", Public: key, Roles: []string{manifest.RoleManifest, manifest.RoleIndex}})); err != nil {
		t.Fatal(err)
	}
	var without []string
	if err := s.CopyTo(t.Context(), leafproof.Owner, to, leafproof.CopyOptions{Without: func(_, path string, err error) { without = append(without, path+": "+err.Error()) }}, id); err != nil {
		t.Fatal(err)
	}
	if len(without) != 1 || !strings.Contains(without[0], "the bytes give another one") || indexesOf(t, to, id) != "/id" {
		t.Errorf("copied without %q, with %s", without, indexesOf(t, to, id))
	}
}

// nopCloser is a buffer to write to.
type nopCloser struct{ bytes.Buffer }

func (*nopCloser) Close() error { return nil }

// spill is room in memory.
type spill struct{ b []byte }

func (s *spill) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(s.b); n > 0 {
		s.b = append(s.b, make([]byte, n)...)
	}
	return copy(s.b[off:], p), nil
}

func (s *spill) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(s.b).ReadAt(p, off) }
