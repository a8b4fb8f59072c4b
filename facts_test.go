package leafproof_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// whole are facts in which nothing is left out that a producer may say.
func whole(input, old string) leafproof.Facts {
	at := time.Date(2026, 11, 6, 4, 39, 50, 0, time.UTC)
	return leafproof.Facts{
		Caller: leafproof.Owner,
		RunID:  "run_1", ToolCallID: "call_1", SchemaVersion: "example.v1", SourceID: "infra.events", SnapshotID: "s 1", ObservedAt: at,
		Coverage:   map[string]any{"region": "eu-west", "shards": []any{1.0, 2.0}},
		Omissions:  []manifest.Omission{{What: "us-east", Reason: "timeout", Detail: new("3 attempts")}},
		Redactions: []manifest.Redaction{{Path: "/user/email", Records: new(int64(1)), Method: new("drop"), Reason: "policy:pii.v3"}},
		ExpiresIn:  time.Hour,
		Producer: &leafproof.Producer{
			Tool: "sql", ToolVersion: "1.2", Arguments: []byte(`{"q":1}`), Outcome: "partial", StartedAt: at, FinishedAt: at.Add(time.Second),
		},
		Inputs:     []manifest.Input{{ArtifactID: input, Role: "source", SelectorDigest: new(strings.Repeat("0", 64))}},
		Transform:  &manifest.Transform{ID: "filter.v1", SpecDigest: strings.Repeat("1", 64), CodeDigest: new(strings.Repeat("2", 64)), Deterministic: true},
		Supersedes: []manifest.Supersede{{ArtifactID: old}},
		IssuerID:   "the filter",
	}
}

// TestWholePredicate: everything that a producer may say stands in the manifest.
func TestWholePredicate(t *testing.T) {
	s, _ := newStore(t)
	input := put(t, s, []byte("{\"a\":1}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	old := put(t, s, []byte("{\"a\":2}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	data := []byte("{\"user\":{\"name\":\"x\"}}\n")
	f := whole(input, old)
	id := put(t, s, data, leafproof.PutOptions{SHA256: true, Records: "ndjson", MediaType: "application/x-events+ndjson"}, f)
	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Resolve(t.Context(), leafproof.Owner, input)
	if err != nil {
		t.Fatal(err)
	}
	p := st.Manifest.Predicate
	created, err := manifest.ParseTime(p.ArtifactRef.CreatedAt)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := s.ArgumentsDigest("", f.Producer.Arguments)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	want := p // what the store decides is as it is
	want.ArtifactRef.ToolCallID, want.ArtifactRef.SchemaVersion = new("call_1"), new("example.v1")
	want.ArtifactRef.SourceVersion = manifest.SourceVersion{SourceID: new("infra.events"), SnapshotID: new("s 1"), ObservedAt: new("2026-11-06T04:39:50Z")}
	want.ArtifactRef.Completeness = manifest.Completeness{
		Status: "partial", Coverage: f.Coverage, Records: new(int64(1)), Omissions: f.Omissions, Redactions: f.Redactions,
	}
	want.ArtifactRef.Scope = manifest.Scope{TenantID: "local", RunID: new("run_1")}
	want.ArtifactRef.ExpiresAt = new(manifest.FormatTime(created.Add(time.Hour)))
	want.Bytes.Also = map[string]string{"sha256": hex.EncodeToString(sum[:])}
	want.Bytes.MediaType = "application/x-events+ndjson"
	want.Lineage = manifest.Lineage{
		Kind: "transform",
		Producer: &manifest.Producer{
			Tool: "sql", ToolVersion: new("1.2"), ArgumentsDigest: &digest, Outcome: "partial",
			StartedAt: new("2026-11-06T04:39:50Z"), FinishedAt: new("2026-11-06T04:39:51Z"),
		},
		Inputs: []manifest.Input{{
			ArtifactID: input, ContentHash: in.Ref.ContentHash, ManifestID: in.ManifestID, SelectorDigest: new(strings.Repeat("0", 64)), Role: "source",
		}},
		Transform: f.Transform,
	}
	want.Supersedes = []manifest.Supersede{{ArtifactID: old, Kind: "reacquire"}}
	want.Issuer.ID = new("the filter")
	got, err := manifest.Canonical(p)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := manifest.Canonical(want); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the predicate is\n%s\nwant\n%s, %v", got, b, err)
	}
	// Nothing changed the older ones.
	for _, id := range []string{input, old} {
		if st, err := s.Resolve(t.Context(), leafproof.Owner, id); err != nil || len(st.Manifest.Predicate.Supersedes) > 0 {
			t.Errorf("%s: %v, %v", id, st, err)
		}
	}
}

// TestFactsFromFile: what a manifest says, without what the store computes, is a
// file of facts that says it again.
func TestFactsFromFile(t *testing.T) {
	s, _ := newStore(t)
	input := put(t, s, []byte("{\"a\":1}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	old := put(t, s, []byte("{\"a\":2}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	f := whole(input, old)
	f.Producer.Arguments = nil
	first, err := s.Resolve(t.Context(), leafproof.Owner, put(t, s, []byte("{\"a\":3}\n"), leafproof.PutOptions{}, f))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(first.Manifest.Payload, &doc); err != nil {
		t.Fatal(err)
	}
	stated := doc["predicate"].(map[string]any)
	for {
		b, err := json.MarshalIndent(stated, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		again, o, err := leafproof.ParseFacts(b)
		if err != nil {
			e := err.(*leafproof.Error)
			if !strings.Contains(e.Message, "this is not stated") || e.Code != leafproof.CodeSelectorInvalid {
				t.Fatal(err)
			}
			without(stated, strings.Split(e.At, "/")[1:])
			continue
		}
		again.Caller = leafproof.Owner
		if err := again.Check(o); err != nil {
			t.Fatal(err)
		}
		second, err := s.Resolve(t.Context(), leafproof.Owner, put(t, s, []byte("{\"a\":3}\n"), o, again))
		if err != nil {
			t.Fatal(err)
		}
		a, b2 := first.Manifest.Predicate, second.Manifest.Predicate
		a.Nonce, a.IssuedAt, a.ArtifactRef.ArtifactID, a.ArtifactRef.CreatedAt = "", "", "", ""
		b2.Nonce, b2.IssuedAt, b2.ArtifactRef.ArtifactID, b2.ArtifactRef.CreatedAt = "", "", "", ""
		x, _ := manifest.Canonical(a)
		y, _ := manifest.Canonical(b2)
		if !bytes.Equal(x, y) {
			t.Errorf("the file gives\n%s\nwant\n%s", y, x)
		}
		return
	}
}

func without(m map[string]any, path []string) {
	if len(path) == 1 {
		delete(m, path[0])
		return
	}
	without(m[path[0]].(map[string]any), path[1:])
}

// TestStatus: how complete a capture is follows from what is said of it.
func TestStatus(t *testing.T) {
	s, _ := newStore(t)
	coverage := map[string]any{"region": "eu"}
	left := []manifest.Omission{{What: "us", Reason: "timeout"}}
	for want, list := range map[string][]leafproof.Facts{
		"unknown": {
			{},
			{Coverage: coverage, Producer: &leafproof.Producer{Tool: "x", Outcome: "error"}},
			{Coverage: coverage, Status: "unknown"},
			{Redactions: []manifest.Redaction{{Path: "/a", Reason: "pii"}}},
		},
		"complete": {
			{Coverage: coverage},
			{Status: "complete"},
			{Coverage: coverage, Producer: &leafproof.Producer{Tool: "x"}},
			{Coverage: coverage, Redactions: []manifest.Redaction{{Path: "/a", Reason: "pii"}}},
		},
		"partial": {
			{Partial: true},
			{Omissions: left},
			{Coverage: coverage, Omissions: left},
			{Coverage: coverage, Producer: &leafproof.Producer{Tool: "x", Outcome: "partial"}},
		},
	} {
		for _, f := range list {
			st, err := s.Resolve(t.Context(), leafproof.Owner, put(t, s, []byte("x"), leafproof.PutOptions{}, f))
			if err != nil || st.Ref.Completeness.Status != want {
				t.Errorf("%+v: %v, %v, want %s", f, st.Ref.Completeness, err, want)
			}
		}
	}
}

// TestFactsRefused: what does not hold is refused at its place, before the bytes
// are put where that can be told, and nothing is published.
func TestFactsRefused(t *testing.T) {
	s, _ := newStore(t)
	here := put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	there := put(t, s, []byte("{}\n"), leafproof.PutOptions{Tenant: "other"}, leafproof.Facts{})
	gone := put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	expired := put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{ExpiresAt: time.Now().Add(-time.Hour)})
	if err := s.Delete(t.Context(), leafproof.Owner, gone, ""); err != nil {
		t.Fatal(err)
	}
	nobody := "art_" + strings.Repeat("a", 32)
	input := func(id string) leafproof.Facts {
		return leafproof.Facts{Caller: leafproof.Owner, Lineage: "import", Inputs: []manifest.Input{{ArtifactID: id, Role: "source"}}}
	}
	over := func(id string) leafproof.Facts {
		return leafproof.Facts{Caller: leafproof.Owner, Supersedes: []manifest.Supersede{{ArtifactID: id}}}
	}
	schema := func(id string) leafproof.Facts { return leafproof.Facts{Caller: leafproof.Owner, SchemaVersion: id} }
	const c, l = "/artifact_ref/completeness", "/lineage"
	for name, test := range map[string]struct {
		f     leafproof.Facts
		code  leafproof.Code
		at    string
		early bool // Check tells
	}{
		"source":              {leafproof.Facts{SourceID: "a b"}, leafproof.CodeSelectorInvalid, "/artifact_ref/source_version/source_id", true},
		"status":              {leafproof.Facts{Status: "done"}, leafproof.CodeSelectorInvalid, c + "/status", true},
		"complete, with gaps": {leafproof.Facts{Status: "complete", Omissions: []manifest.Omission{{What: "a", Reason: "b"}}}, leafproof.CodeSelectorInvalid, c + "/status", true},
		"no reason":           {leafproof.Facts{Omissions: []manifest.Omission{{What: "a"}}}, leafproof.CodeSelectorInvalid, c + "/omissions/0/reason", true},
		"redaction path":      {leafproof.Facts{Redactions: []manifest.Redaction{{Path: "a", Reason: "b"}}}, leafproof.CodeSelectorInvalid, c + "/redactions/0/path", true},
		"another count":       {leafproof.Facts{Records: new(int64(2))}, leafproof.CodeSelectorInvalid, c + "/records", false},
		"a float":             {leafproof.Facts{Coverage: map[string]any{"share": 0.5}}, leafproof.CodeSelectorInvalid, "", true},
		"too much":            {leafproof.Facts{ToolCallID: strings.Repeat("x", manifest.MaxPayload)}, leafproof.CodeTooLarge, "", true},
		"deep":                {leafproof.Facts{Coverage: deep(40)}, leafproof.CodeSelectorInvalid, "", true},
		"two expiries":        {leafproof.Facts{ExpiresIn: 1, ExpiresAt: time.Now()}, leafproof.CodeSelectorInvalid, "/artifact_ref/expires_at", true},
		"before it began":     {leafproof.Facts{ExpiresIn: -1}, leafproof.CodeSelectorInvalid, "/artifact_ref/expires_at", true},
		"outcome":             {leafproof.Facts{Producer: &leafproof.Producer{Tool: "x", Outcome: "fine"}}, leafproof.CodeSelectorInvalid, l + "/producer/outcome", true},
		"no tool":             {leafproof.Facts{Producer: &leafproof.Producer{Outcome: "ok"}}, leafproof.CodeSelectorInvalid, l + "/producer/tool", true},
		"lineage":             {leafproof.Facts{Lineage: "guess"}, leafproof.CodeSelectorInvalid, l + "/kind", true},
		"no inputs":           {leafproof.Facts{Transform: &manifest.Transform{ID: "a", SpecDigest: strings.Repeat("0", 64)}}, leafproof.CodeSelectorInvalid, l + "/inputs", true},
		"inputs of a capture": {leafproof.Facts{Inputs: input(here).Inputs}, leafproof.CodeSelectorInvalid, l + "/inputs", true},
		"input nowhere":       {input(nobody), leafproof.CodeRefNotFound, l + "/inputs/0", false},
		"input of another":    {input(there), leafproof.CodeRefNotFound, l + "/inputs/0", false},
		"input deleted":       {input(gone), leafproof.CodeArtifactDeleted, l + "/inputs/0", false},
		"input expired":       {input(expired), leafproof.CodeArtifactExpired, l + "/inputs/0", false},
		"input unseen":        {leafproof.Facts{Lineage: "import", Inputs: input(here).Inputs}, leafproof.CodeRefNotFound, l + "/inputs/0", false},
		"another content_hash": {leafproof.Facts{
			Caller: leafproof.Owner, Lineage: "import",
			Inputs: []manifest.Input{{ArtifactID: here, Role: "source", ContentHash: "blake3:" + strings.Repeat("0", 64)}},
		}, leafproof.CodeRefAltered, l + "/inputs/0/content_hash", false},
		"another manifest_id": {leafproof.Facts{
			Caller: leafproof.Owner, Lineage: "import",
			Inputs: []manifest.Input{{ArtifactID: here, Role: "source", ManifestID: "mf_" + strings.Repeat("a", 32)}},
		}, leafproof.CodeRefAltered, l + "/inputs/0/manifest_id", false},
		"supersedes nowhere":  {over(nobody), leafproof.CodeRefNotFound, "/supersedes/0", false},
		"supersedes another":  {over(there), leafproof.CodeRefNotFound, "/supersedes/0", false},
		"supersedes deleted":  {over(gone), leafproof.CodeArtifactDeleted, "/supersedes/0", false},
		"supersedes unseen":   {leafproof.Facts{Supersedes: over(here).Supersedes}, leafproof.CodeRefNotFound, "/supersedes/0", false},
		"supersedes nonsense": {over("x"), leafproof.CodeSelectorInvalid, "/supersedes/0/artifact_id", true},
		"supersedes twice": {leafproof.Facts{
			Caller: leafproof.Owner, Supersedes: append(over(here).Supersedes, over(here).Supersedes...),
		}, leafproof.CodeSelectorInvalid, "/supersedes/1", true},
		"supersedes in a new way": {leafproof.Facts{
			Caller: leafproof.Owner, Supersedes: []manifest.Supersede{{ArtifactID: here, Kind: "replace"}},
		}, leafproof.CodeSelectorInvalid, "/supersedes/0/kind", true},
		"schema nowhere":    {schema(nobody), leafproof.CodeRefNotFound, "/artifact_ref/schema_version", false},
		"schema of another": {schema(there), leafproof.CodeRefNotFound, "/artifact_ref/schema_version", false},
		"schema unseen":     {leafproof.Facts{SchemaVersion: here}, leafproof.CodeRefNotFound, "/artifact_ref/schema_version", false},
	} {
		t.Run(name, func(t *testing.T) {
			for when, err := range map[string]error{"Check": test.f.Check(leafproof.PutOptions{}), "Publish": publish(t, s, "{}\n", test.f)} {
				if when == "Check" && !test.early {
					if err != nil {
						t.Errorf("Check = %v", err)
					}
					continue
				}
				e, ok := err.(*leafproof.Error)
				if !ok || e.Code != test.code || e.At != test.at {
					t.Errorf("%s = %v (%+v), want %s at %s", when, err, e, test.code, test.at)
				}
			}
		})
	}
	list, _, err := s.List(t.Context(), leafproof.Owner, "", 0, 10)
	if err != nil || len(list) != 1 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := publish(t, s, "{}\n", over(expired)); err != nil {
		t.Errorf("to reacquire what has expired: %v", err)
	}
}

func deep(n int) map[string]any {
	m := map[string]any{"x": "y"}
	for range n {
		m = map[string]any{"x": m}
	}
	return m
}

func publish(t *testing.T, s *leafproof.Store, data string, f leafproof.Facts) error {
	t.Helper()
	d, err := s.Put(t.Context(), strings.NewReader(data), leafproof.PutOptions{Records: "ndjson"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Publish(t.Context(), d, f)
	return err
}

// TestArgumentsDigest: the digest is BLAKE3 under a key that derives from the
// store's secret and the tenant's name, and lasts.
func TestArgumentsDigest(t *testing.T) {
	s, dir := newStore(t)
	args := []byte(`{"q":"select 1"}`)
	got, err := s.ArgumentsDigest("acme", args)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "keys", "tenants"))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != 32 {
		t.Fatalf("keys/tenants = %q", text)
	}
	want := merkle.Keyed(merkle.DeriveKey("leafproof 2026 arguments key v1", append(secret, "acme"...)), args)
	if got != hex.EncodeToString(want[:]) {
		t.Errorf("ArgumentsDigest = %s, want %x", got, want)
	}
	other, err := s.ArgumentsDigest("other", args)
	if err != nil || other == got {
		t.Errorf("another tenant's is %s, %v", other, err)
	}
	if again, err := openStore(t, dir).ArgumentsDigest("acme", args); err != nil || again != got {
		t.Errorf("opened again, it is %s, %v, want %s", again, err, got)
	}
	if _, err := s.ArgumentsDigest("a/b", args); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
		t.Errorf("a tenant of no name: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys", "tenants"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ArgumentsDigest("acme", args); err == nil || !strings.Contains(err.Error(), "64 hex digits") {
		t.Errorf("a damaged secret: %v", err)
	}
}

// TestSchemaCheck: records are checked one by one against a schema artifact, and
// the manifest says how many failed and where the first ones stand.
func TestSchemaCheck(t *testing.T) {
	s, _ := newStore(t)
	schema := func(text string) string {
		return put(t, s, []byte(text), leafproof.PutOptions{Records: "none", MediaType: "application/schema+json"}, leafproof.Facts{})
	}
	open := schema(`{"type":"object","required":["status"],"properties":{"status":{"enum":["open","closed"]}}}`)
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "{\"n\":%d}\n", i)
	}
	for name, test := range map[string]struct {
		schema, data    string
		o               leafproof.PutOptions
		checked, failed int64
		spans           [][2]int64
	}{
		"good":            {open, "{\"status\":\"open\"}\n{\"status\":\"closed\"}\n", leafproof.PutOptions{}, 2, 0, nil},
		"one fails":       {open, "{\"status\":\"open\"}\n{\"status\":1}\n", leafproof.PutOptions{}, 2, 1, [][2]int64{{18, 30}}},
		"not judged":      {open, "{\"status\":\"open\",\"status\":\"open\"}\n{\n{\"status\":\"open\"}\n", leafproof.PutOptions{Records: "ndjson"}, 3, 2, [][2]int64{{0, 33}, {34, 35}}},
		"many":            {open, many.String(), leafproof.PutOptions{}, 1000, 1000, nil},
		"array":           {open, `{"items":[{"status":"open"},{"status":"x"}]}`, leafproof.PutOptions{At: "/items"}, 2, 1, [][2]int64{{28, 42}}},
		"document":        {open, `{"status":"open"}`, leafproof.PutOptions{Records: "none", MediaType: "application/json"}, 1, 0, nil},
		"document, wrong": {open, ` {"status":"x"} `, leafproof.PutOptions{Records: "none", MediaType: "application/json"}, 1, 1, [][2]int64{{0, 16}}},
		"csv":             {open, "id,status\n1,open\n2,\"x\"\n", leafproof.PutOptions{Records: "csv"}, 2, 1, [][2]int64{{17, 22}}},
		"text":            {schema(`{"maxLength":2}`), "ab\nabc\n", leafproof.PutOptions{Records: "text"}, 2, 1, [][2]int64{{3, 6}}},
		"a long record":   {schema(`true`), "{\"a\":\"" + strings.Repeat("x", 2<<20) + "\"}\n{}\n", leafproof.PutOptions{Records: "ndjson"}, 2, 1, [][2]int64{{0, 2<<20 + 8}}},
		"a long line":     {schema(`true`), strings.Repeat("x", 2<<20) + "\nx\n", leafproof.PutOptions{Records: "text"}, 2, 1, [][2]int64{{0, 2 << 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := s.Put(t.Context(), strings.NewReader(test.data), test.o)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := s.Publish(t.Context(), d, leafproof.Facts{Caller: leafproof.Owner, SchemaVersion: test.schema})
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Resolve(t.Context(), leafproof.Owner, ref.ArtifactID)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := s.Resolve(t.Context(), leafproof.Owner, test.schema)
			if err != nil {
				t.Fatal(err)
			}
			got := st.Manifest.Predicate.Schema
			if got == nil || got.Checked != test.checked || got.Failed != test.failed || got.ContentHash != sc.Ref.ContentHash || *ref.SchemaVersion != test.schema {
				t.Fatalf("the check says %+v", got)
			}
			if test.spans != nil && fmt.Sprint(got.Spans) != fmt.Sprint(test.spans) || int64(len(got.Spans)) != min(16, test.failed) {
				t.Errorf("spans %v, want %v", got.Spans, test.spans)
			}
		})
	}
	for name, test := range map[string]struct {
		schema, data string
		o            leafproof.PutOptions
		code         leafproof.Code
	}{
		"no schema":       {put(t, s, []byte("hello"), leafproof.PutOptions{}, leafproof.Facts{}), "{}\n", leafproof.PutOptions{Records: "ndjson"}, leafproof.CodeSelectorInvalid},
		"it looks around": {schema(`{"$ref":"https://example.com/s"}`), "{}\n", leafproof.PutOptions{Records: "ndjson"}, leafproof.CodeSelectorInvalid},
		"too large":       {schema(`{"title":"` + strings.Repeat("x", 300_000) + `"}`), "{}\n", leafproof.PutOptions{Records: "ndjson"}, leafproof.CodeTooLarge},
		"no JSON":         {open, "\x00\x01", leafproof.PutOptions{}, leafproof.CodeNotRecords},
	} {
		d, err := s.Put(t.Context(), strings.NewReader(test.data), test.o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Publish(t.Context(), d, leafproof.Facts{Caller: leafproof.Owner, SchemaVersion: test.schema})
		e, ok := err.(*leafproof.Error)
		if !ok || e.Code != test.code || e.At != "/artifact_ref/schema_version" {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
	st, err := s.Resolve(t.Context(), leafproof.Owner, put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{SchemaVersion: "example.v1"}))
	if err != nil || st.Manifest.Predicate.Schema != nil {
		t.Errorf("a schema that is declared was checked: %v, %v", st.Manifest.Predicate.Schema, err)
	}
}

// TestStillHeld: a redaction that removed nothing is noticed.
func TestStillHeld(t *testing.T) {
	s, _ := newStore(t)
	const lines = "{\"a\":1}\n{\"a\":2,\"user\":{\"email\":\"x\"},\"n\":null}\n{\"d\":1,\"d\":2}\n{broken\n"
	for name, test := range map[string]struct {
		data string
		o    leafproof.PutOptions
		r    manifest.Redaction
		want []leafproof.Held
	}{
		"there":        {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/user/email"}, []leafproof.Held{{Path: "/user/email", Record: 1}}},
		"in the first": {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/a", Method: new("drop")}, []leafproof.Held{{Path: "/a", Record: 0}}},
		"masked":       {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/a", Method: new("mask")}, nil},
		"gone":         {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/user/name"}, nil},
		"null":         {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/n"}, nil},
		"twice":        {lines, leafproof.PutOptions{Records: "ndjson"}, manifest.Redaction{Path: "/d"}, []leafproof.Held{{Path: "/d", Record: 2}}},
		"a document":   {`{"a":{"b":false}}`, leafproof.PutOptions{Records: "none", MediaType: "application/json"}, manifest.Redaction{Path: "/a/b"}, []leafproof.Held{{Path: "/a/b", Record: -1}}},
		"csv":          {"id,e~mail\n1,\n2,x\n", leafproof.PutOptions{Records: "csv"}, manifest.Redaction{Path: "/e~0mail"}, []leafproof.Held{{Path: "/e~0mail", Record: 1}}},
		"csv, gone":    {"id,mail\n1,\n", leafproof.PutOptions{Records: "csv"}, manifest.Redaction{Path: "/name"}, nil},
		"bytes":        {"\x00", leafproof.PutOptions{}, manifest.Redaction{Path: "/a"}, nil},
	} {
		d, err := s.Put(t.Context(), strings.NewReader(test.data), test.o)
		if err != nil {
			t.Fatal(err)
		}
		test.r.Reason = "pii"
		if _, err := s.Publish(t.Context(), d, leafproof.Facts{Redactions: []manifest.Redaction{test.r}}); err != nil {
			t.Fatal(err)
		}
		if got := d.StillHeld(); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: StillHeld = %v, want %v", name, got, test.want)
		}
	}
}

// TestAlteredRef, case 31: a reference in which anything was edited is refused, with the
// places.
func TestAlteredRef(t *testing.T) {
	s, _ := newStore(t)
	input := put(t, s, []byte("{\"a\":1}\n"), leafproof.PutOptions{}, leafproof.Facts{})
	st, err := s.Resolve(t.Context(), leafproof.Owner, put(t, s, []byte("{\"a\":3}\n"), leafproof.PutOptions{}, whole(input, input)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(st.Ref, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new, at string }{
		"nothing":      {"", "", ""},
		"tenant":       {`"local"`, `"acme"`, "/scope/tenant_id"},
		"digest":       {`"content_hash": "blake3:`, `"content_hash": "blake3:0`, "/content_hash"},
		"expiry":       {`"expires_at": "20`, `"expires_at": "21`, "/expires_at"},
		"completeness": {`"partial"`, `"complete"`, "/completeness/status"},
		"omissions":    {"\"omissions\": [\n", "\"omissions\": [{\"what\":\"x\",\"reason\":\"y\",\"detail\":null},\n", "/completeness/omissions"},
		"selectors":    {`"byte_range"`, `"pointer"`, "/retrieval/selectors/0"},
	} {
		ref, err := manifest.ParseRef([]byte(strings.Replace(string(b), test.old, test.new, 1)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = s.ResolveRef(t.Context(), leafproof.Owner, ref)
		if (err == nil) != (test.at == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (leafproof.CodeOf(err) != leafproof.CodeRefAltered || !strings.Contains(err.Error(), " at "+test.at)) {
			t.Errorf("%s: %v, want ref_altered at %s", name, err, test.at)
		}
	}
}
