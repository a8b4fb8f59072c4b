package fuzz_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/jsonschema"
	"leafproof/manifest"
)

// FuzzArtifactRef: a reference that somebody presents is either refused, with a
// short reason, or has one canonical form, which is read again as the same; and it
// is what was signed exactly when that form is.
func FuzzArtifactRef(f *testing.F) {
	payload, _, _, _ := signedManifest(f)
	m, err := manifest.ParseManifest(payload)
	if err != nil {
		f.Fatal(err)
	}
	signed, err := manifest.Canonical(m.Predicate.ArtifactRef)
	if err != nil {
		f.Fatal(err)
	}
	var loose bytes.Buffer
	if err := json.Indent(&loose, signed, "", "\t"); err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(loose.Bytes())
	f.Add(bytes.Replace(signed, []byte(`"local"`), []byte(`"other"`), 1))
	f.Add(bytes.Replace(signed, []byte(`"expires_at"`), []byte(`"expires_at":null,"expires_at"`), 1))
	f.Add([]byte(`{"artifact_id":"\ud800"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		ref, err := manifest.ParseRef(doc)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		canonical, err := manifest.Canonical(ref)
		if err != nil {
			t.Fatalf("%q has no canonical form: %v", doc, err)
		}
		again, err := manifest.ParseRef(canonical)
		if err != nil || manifest.RefDiff(ref, again) != nil {
			t.Errorf("%q is read again as %v, %v", canonical, again, err)
		}
		if err := manifest.CheckRef(ref, m.Predicate.ArtifactRef); (err == nil) != bytes.Equal(canonical, signed) || err != nil && !errors.Is(err, manifest.ErrRefAltered) {
			t.Errorf("%q: %v", canonical, err)
		}
	})
}

// FuzzStatedFacts: what a file may state and passes the check is what a manifest
// can say; nothing that the store computes comes from it.
func FuzzStatedFacts(f *testing.F) {
	f.Add([]byte(`{"artifact_ref":{"tool_call_id":"c","source_version":{"source_id":"s","observed_at":"2026-11-06T04:40:00Z"},
		"completeness":{"status":"partial","coverage":{"a":[1]},"records":1,"omissions":[{"what":{"x":"y"},"reason":"r","detail":null}],
		"redactions":[{"path":"/a","reason":"r"}]},"scope":{"tenant_id":"acme","run_id":"r"},"expires_at":"2027-01-01T00:00:00Z"}}`))
	f.Add([]byte(`{"lineage":{"kind":"transform","inputs":[{"artifact_id":"art_` + strings.Repeat("a", 32) + `","role":"source"}],
		"producer":{"tool":"t","outcome":"ok"},"transform":{"id":"x","spec_digest":"` + strings.Repeat("0", 64) + `","deterministic":true}},
		"supersedes":[{"artifact_id":"art_` + strings.Repeat("b", 32) + `"}],"issuer":{"id":"i"},"bytes":{"media_type":"a/b"},"records":{"format":"json","pointer":"/a"}}`))
	f.Add([]byte(`{"nonce":"00"}`))
	f.Add([]byte(`{"artifact_ref":{"expires_at":"2027-01-01T0C:00:00Z"}}`))
	f.Add([]byte(`{"issuer":{"key_id":null}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		facts, o, err := leafproof.ParseFacts(doc)
		if err == nil {
			err = facts.Check(o)
		}
		if err != nil {
			var e *leafproof.Error
			if !errors.As(err, &e) || e.Code != leafproof.CodeSelectorInvalid && e.Code != leafproof.CodeTooLarge || len(e.At) > 300 {
				t.Errorf("%q: %v (%+v)", doc, err, e)
			}
			return
		}
		if facts.Caller != (leafproof.Caller{}) || facts.ExpiresIn != 0 || facts.Partial {
			t.Errorf("%q states what it may not: %+v", doc, facts)
		}
	})
}

// FuzzJSONSchema: a schema and a value that strangers wrote end in an answer.
func FuzzJSONSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"anyOf":[{"minimum":1e3},{"pattern":"^a"}]}}}`), []byte(`{"a":1000}`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`1`))
	f.Add([]byte(`{"not":{"$ref":"#"},"uniqueItems":true,"unevaluatedProperties":false}`), []byte(`[{},{}]`))
	f.Add([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","format":"uri","dependencies":{"a":["b"]}}`), []byte(`"x:"`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		s, err := jsonschema.Compile(schema)
		if err != nil {
			if !errors.Is(err, jsonschema.ErrSchema) {
				t.Errorf("Compile(%q) = %v", schema, err)
			}
			return
		}
		first := s.Check(t.Context(), value)
		if first != nil && !errors.Is(first, jsonschema.ErrInvalid) && !errors.Is(first, jsonschema.ErrUndecided) {
			t.Errorf("Check(%q, %q) = %v", schema, value, first)
		}
		if again := s.Check(t.Context(), value); (first == nil) != (again == nil) {
			t.Errorf("Check(%q, %q) = %v, and then %v", schema, value, first, again)
		}
	})
}
