package ref_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"leafproof"
	"leafproof/merkle"
	"leafproof/ref"
)

// Each error has the code of the design on the wire, also where the store's own error
// led to it.
func TestCodes(t *testing.T) {
	for err, want := range map[error]leafproof.Code{
		ref.ErrMalformed: "ref_malformed", ref.ErrUnknownType: "ref_unknown_type", ref.ErrLegacyShape: "ref_legacy_shape",
		ref.ErrStringified: "ref_stringified", ref.ErrDepth: "ref_depth", ref.ErrCycle: "ref_depth",
		ref.ErrForbidden: "ref_derivation_forbidden", ref.ErrNotFound: "ref_not_found", ref.ErrStalePath: "ref_stale_path",
		ref.ErrAmbiguousTurn: "ref_ambiguous_turn", ref.ErrTypeMismatch: "ref_type_mismatch",
		ref.ErrKernelGone: "kernel_generation_gone", ref.ErrTooLarge: "too_large", ref.ErrIncomplete: "scan_incomplete", ref.ErrTranscript: "integrity_failed",
		ref.ErrEntry: "selector_invalid", ref.ErrSchema: "selector_invalid",
	} {
		stored := &leafproof.Error{Code: leafproof.CodeAccessRevoked, Message: "art_x"}
		for _, e := range []error{&ref.Error{Err: err}, &ref.Error{Err: err, Cause: stored}, fmt.Errorf("x: %w", &ref.Error{Err: err})} {
			if got := leafproof.CodeOf(e); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
			if w := leafproof.Wire(e); w.Code != want || w.Action == "" || strings.Contains(w.Message, "art_") {
				t.Errorf("%v: %+v", err, w)
			}
		}
		e := &ref.Error{Err: stored, Detail: "what the reference leads to could not be read", At: "rows"}
		if w := leafproof.Wire(e); w.Code != leafproof.CodeAccessRevoked || w.Message != "rows: what the reference leads to could not be read" {
			t.Errorf("an error of the store: %+v", w)
		}
	}
	if !errors.Is(ref.ErrCycle, ref.ErrDepth) || errors.Is(ref.ErrDepth, ref.ErrCycle) {
		t.Error("a cycle is a depth of its own kind")
	}
}

// A source is of one tenant and agent, whatever leave its caller has.
func TestReferencesAreOfOneTenant(t *testing.T) {
	r := newRun(t)
	ctx := t.Context()
	other, err := r.store.References(ctx, leafproof.Owner, leafproof.ReferenceOptions{Tenant: "acme", Run: "run-1", Agent: "agent-1"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := other.Put(ctx, ref.New{MediaType: "text/plain"}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	missing := "art_" + strings.Repeat("a", 32)
	for _, key := range []string{m.Key, m.ArtifactID, missing} {
		_, err := r.source.Stat(ctx, key)
		if leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
			t.Errorf("Stat(%q): %v", key, err)
		}
	}
	for _, id := range []string{m.ArtifactID, missing} {
		_, read := r.source.Read(ctx, id, ref.Selection{}, new(bytes.Buffer))
		_, query := r.source.Query(ctx, id, ref.Query{}, nil)
		for _, err := range []error{read, query} {
			if got := leafproof.Wire(err); got == nil || got.Code != leafproof.CodeRefNotFound || got.Message != id+": no such artifact" {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if _, err := r.store.AddPrincipal(ctx, leafproof.Owner, "bob", "acme", new("run-7")); err != nil {
		t.Fatal(err)
	}
	bob := leafproof.Caller{Principal: "bob"}
	for o, ok := range map[leafproof.ReferenceOptions]bool{
		{Tenant: "acme", Run: "run-7"}: true, {Tenant: "acme", Run: "run-8"}: false, {Tenant: "acme"}: false, {Run: "run-7"}: false,
		{Tenant: "../acme"}: false,
	} {
		if _, err := r.store.References(ctx, bob, o); (err == nil) != ok {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// What a harness says of new bytes cannot make a put fail: strings that no manifest can
// hold are escaped, a media type that is none is not stated.
func TestPutTakesAnyStrings(t *testing.T) {
	r := newRun(t)
	for _, s := range []string{"", "\x00", "\xff\xfe", "\ud7ff\U0010ffff", strings.Repeat("é", 4000), "a\nb", `"`, "../x"} {
		m, err := r.source.Put(t.Context(), ref.New{CallID: s, Tool: s, MediaType: s, Name: s, Arguments: []byte(s)}, strings.NewReader("x"))
		if err != nil {
			t.Errorf("%.20q: %v", s, err)
			continue
		}
		if m.Size != 1 || m.MediaType == "" {
			t.Errorf("%.20q: %+v", s, m)
		}
		r.append(ref.Entry{Parts: []ref.Part{{Value: []byte(`null`), Tool: s, CallID: s, Slots: []ref.Slot{{Marker: &m}}}}})
	}
}

// The first bytes of a transcript file, worked out by hand.
func TestTranscriptBytes(t *testing.T) {
	const head = `{"format":"leafproof transcript","version":1,"run":"r\"1"}` + "\n"
	const body = `{"seq":1,"turn":3,"role":"tool","parts":[{"text":"[\n1]","hidden":true,"tool":"t","call_id":"c"}]`
	derive := func(parts ...string) string {
		sum := merkle.DeriveKey("leafproof 2026 transcript-chain v1", []byte(strings.Join(parts, "")))
		return string(sum[:16])
	}
	first := derive(strings.Repeat("\x00", 16), head)
	text := head + body + fmt.Sprintf(`,"chain":"%x"}`, derive(first, body)) + "\n"
	tr, err := ref.ReadTranscript(strings.NewReader(text))
	if err != nil || tr.Run() != `r"1` || tr.Len() != 1 {
		t.Fatalf("%v", err)
	}
	e, err := tr.Entry(t.Context(), 1)
	if err != nil || e.Turn != 3 || string(e.Parts[0].Value) != "[\n1]" || !e.Parts[0].Hidden {
		t.Errorf("%+v, %v", e, err)
	}
}
