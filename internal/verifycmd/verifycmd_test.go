package verifycmd_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"leafproof"
	"leafproof/internal/verifycmd"
	"leafproof/manifest"
	"leafproof/merkle"
)

// run verifies a bundle and returns what was printed.
func run(t *testing.T, o verifycmd.Options) (string, int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code, err := verifycmd.Run(o, &out, &errOut)
	if err != nil {
		t.Fatalf("exit %d: %v", code, err)
	}
	return out.String(), code
}

// TestForeignText: what a producer wrote stands in the JSON as it is, and nothing
// in it acts on a terminal or turns the text around.
func TestForeignText(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(ctx, dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const evil = "snap\u202eevil\u2066\u00ad\u200b é \U000e0041"
	d, err := s.Put(ctx, strings.NewReader(`{"a\u202e":1}`), leafproof.PutOptions{Name: "x.json"})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(ctx, d, leafproof.Facts{SnapshotID: evil, SourceID: "infra.events", Coverage: map[string]any{"what": evil}, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	pointer := "/a\u202e"
	for name, sel := range map[string]leafproof.Selector{
		"bytes":   {Bytes: &merkle.Range{Start: 0, End: 4}},
		"pointer": {Pointer: &pointer, Whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "e.proof")
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := s.Prove(ctx, leafproof.Owner, ref.ArtifactID, sel, f); err != nil {
				t.Fatal(err)
			}
			o := verifycmd.Options{File: file, Policy: leafproof.PolicyPath(dir), JSON: true}
			text, code := run(t, o)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, text)
			}
			for _, r := range strings.TrimSuffix(text, "\n") {
				if !unicode.IsPrint(r) {
					t.Errorf("%U stands in the JSON", r)
				}
			}
			var got struct {
				Ref   struct{ SourceVersion struct{ SnapshotID string } }
				Claim struct{ Pointer *string }
			}
			dec := json.NewDecoder(strings.NewReader(strings.ReplaceAll(strings.ReplaceAll(text, "source_version", "SourceVersion"), "snapshot_id", "SnapshotID")))
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Ref.SourceVersion.SnapshotID != evil {
				t.Errorf("the snapshot is %q, want %q", got.Ref.SourceVersion.SnapshotID, evil)
			}
			if sel.Pointer != nil && (got.Claim.Pointer == nil || *got.Claim.Pointer != pointer) {
				t.Errorf("the claim is %v, want %q", got.Claim.Pointer, pointer)
			}
			o.JSON = false
			text, _ = run(t, o)
			for _, r := range text {
				if !unicode.IsPrint(r) && r != '\n' {
					t.Errorf("%U stands in the table", r)
				}
			}
			// Expiry is judged as of the time asked about.
			o.At, o.RequireCurrent = time.Now().Add(2*time.Hour).Format(time.RFC3339), true
			if text, code := run(t, o); code != verifycmd.ExitUnverifiable || !strings.Contains(text, "Not verified: expired at ") {
				t.Errorf("exit %d after its expiry: %s", code, text)
			}
		})
	}
}

// TestLater: the tombstone of an artifact that was ended after the excerpt was made.
func TestLater(t *testing.T) {
	ctx := t.Context()
	s := newStrangers(t)
	dir := t.TempDir()
	file, later := filepath.Join(dir, "e.proof"), filepath.Join(dir, "tombstone.json")
	if err := os.WriteFile(file, s.proofs["bytes"], 0o600); err != nil {
		t.Fatal(err)
	}
	o := verifycmd.Options{File: file, Policy: leafproof.PolicyPath(s.dir), RequireCurrent: true}
	if text, code := run(t, o); code != 0 {
		t.Fatalf("exit %d: %s", code, text)
	}
	if err := s.store.Delete(ctx, leafproof.Owner, s.ids["bytes"], "asked for"); err != nil {
		t.Fatal(err)
	}
	st, err := s.store.Tombstone(ctx, leafproof.Owner, s.ids["bytes"])
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "\n"} {
		if err := os.WriteFile(later, append(st.Envelope.Bytes(), end...), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Later = []string{later}
		text, code := run(t, o)
		if code != verifycmd.ExitUnverifiable || !strings.Contains(text, "supersession    attested(store-tombstone, tombstone)") || !strings.Contains(text, "Not verified: ended by its store at ") {
			t.Errorf("exit %d: %s", code, text)
		}
	}
	// Before it took effect, the excerpt was current.
	o.At = time.Now().Add(-time.Hour).Format(time.RFC3339)
	if text, code := run(t, o); code != 0 {
		t.Errorf("exit %d an hour before: %s", code, text)
	}
	for _, other := range []string{"records", "empty"} {
		if err := os.WriteFile(file, s.proofs[other], 0o600); err != nil {
			t.Fatal(err)
		}
		if text, code := run(t, o); code != verifycmd.ExitUnverifiable || !strings.Contains(text, "unverifiable(the later statement is about "+s.ids["bytes"]) {
			t.Errorf("%s: exit %d: %s", other, code, text)
		}
	}
	garbage, kind := st.Envelope, `{"_type":"x","predicateType":"`+manifest.PredicateTombstone+`"}`
	for _, text := range []string{
		`{"payloadType":"x"}`,
		string(manifest.Envelope{PayloadType: garbage.PayloadType, Payload: base64.StdEncoding.EncodeToString([]byte("x")), Signatures: garbage.Signatures}.Bytes()),
		string(manifest.Envelope{PayloadType: garbage.PayloadType, Payload: base64.StdEncoding.EncodeToString([]byte(kind)), Signatures: garbage.Signatures}.Bytes()),
	} {
		if err := os.WriteFile(later, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code, err := verifycmd.Run(o, &out, &out); code != verifycmd.ExitUsage || err == nil {
			t.Errorf("%s is no statement: exit %d, %v", text, code, err)
		}
	}
}

// TestExpectArtifact: an excerpt of another artifact of the same store is not what
// was asked for.
func TestExpectArtifact(t *testing.T) {
	s := newStrangers(t)
	file := filepath.Join(t.TempDir(), "e.proof")
	if err := os.WriteFile(file, s.proofs["bytes"], 0o600); err != nil {
		t.Fatal(err)
	}
	o := verifycmd.Options{File: file, Policy: leafproof.PolicyPath(s.dir), ExpectBytes: "1500:30000", Out: filepath.Join(t.TempDir(), "out")}
	for id, exit := range map[string]int{"": 0, s.ids["bytes"]: 0, s.ids["records"]: 3} {
		o.ExpectArtifact = id
		text, code := run(t, o)
		if code != exit || exit == 3 && !strings.Contains(text, "selector        MISMATCH(expected a part of "+id+", the bundle is about "+s.ids["bytes"]+")") {
			t.Errorf("%q: exit %d: %s", id, code, text)
		}
	}
	for _, bad := range []verifycmd.Options{
		{File: file, ExpectArtifact: "e.proof"},
		{File: file, At: "0001-01-01T00:00:00Z"}, // the zero time, which would be none
		{File: file, Out: filepath.Dir(file) + "/./e.proof"},
	} {
		var out bytes.Buffer
		if code, err := verifycmd.Run(bad, &out, &out); code != verifycmd.ExitUsage || err == nil {
			t.Errorf("%+v: exit %d, %v", bad, code, err)
		}
	}
	if err := (verifycmd.Options{}).Given("expect-artifact"); err == nil {
		t.Error("an empty --expect-artifact passes")
	}
}
