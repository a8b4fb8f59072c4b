package verifycmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"leafproof"
	"leafproof/internal/verifycmd"
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
