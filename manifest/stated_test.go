package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leafproof/manifest"
)

// TestCanonicalise: the layout is free, nothing else is.
func TestCanonicalise(t *testing.T) {
	for in, want := range map[string]string{
		" { \"b\" : 1 ,\n\t\"a\":[ ] } \r\n": `{"a":[],"b":1}`,
		`"\u0041\/"`:                         `"A/"`,
		`{"é":1}`:                            "!member name",
		`[1.0]`:                              "!plain integer",
		`[1e2]`:                              "!plain integer",
		`[9007199254740993]`:                 "!decimal string",
		`[-0]`:                               "!negative zero",
		`{"a":1,"b":{"a":1,"a":2}}`:          "!/b/a: the member stands twice",
		`{"a":1} 2`:                          "!byte 8: something follows",
		`{"a":`:                              "!ends inside",
		``:                                   "!no value",
		" \n":                                "!no value",
		`["\ud834"]`:                         "!surrogate",
		"[\"\xff\"]":                         "!UTF-8",
		"\ufeff{}":                           "!",
		`{"a":{"b":[1,2}}`:                   "!/a/b",
		strings.Repeat("[", 32) + strings.Repeat("]", 32):           strings.Repeat("[", 32) + strings.Repeat("]", 32),
		strings.Repeat("[", 33) + strings.Repeat("]", 33):           "!more than 32 levels",
		strings.Repeat(`{"a":`, 200000):                             "!more than 32 levels",
		"{\"a\":\"" + strings.Repeat("x", manifest.MaxSize) + "\"}": "!too large",
	} {
		got, err := manifest.Canonicalise([]byte(in), manifest.MaxSize, manifest.MaxDepth)
		reason, bad := strings.CutPrefix(want, "!")
		switch {
		case bad && (err == nil || !strings.Contains(pointerOf(err)+": "+err.Error(), reason)):
			t.Errorf("Canonicalise(%.40q) = %.40q, %v, want an error with %q", in, got, err, reason)
		case !bad && (err != nil || string(got) != want):
			t.Errorf("Canonicalise(%.40q) = %.40q, %v, want %.40q", in, got, err, want)
		case err == nil && manifest.CheckCanonical(got) != nil:
			t.Errorf("Canonicalise(%.40q) = %.40q: %v", in, got, manifest.CheckCanonical(got))
		}
	}
}

func pointerOf(err error) string {
	if s, ok := errors.AsType[*manifest.SyntaxError](err); ok {
		return s.Pointer
	}
	if e, ok := errors.AsType[*manifest.Error](err); ok {
		return e.At
	}
	return ""
}

// TestCanonicaliseTwin: whatever has a canonical form is brought to it from any
// layout.
func TestCanonicaliseTwin(t *testing.T) {
	payload := statement(t, predicate())
	var loose bytes.Buffer
	if err := json.Indent(&loose, payload, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Canonicalise(loose.Bytes(), manifest.MaxSize, manifest.MaxDepth)
	if err != nil || !bytes.Equal(got, payload) {
		t.Errorf("Canonicalise = %s, %v, want %s", got, err, payload)
	}
}

func TestParseRef(t *testing.T) {
	want := predicate().ArtifactRef
	b, err := manifest.Canonical(want)
	if err != nil {
		t.Fatal(err)
	}
	var loose bytes.Buffer
	if err := json.Indent(&loose, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	got, err := manifest.ParseRef(loose.Bytes())
	if err != nil || manifest.RefDiff(got, want) != nil {
		t.Errorf("ParseRef = %v, %v", got, err)
	}
	for name, test := range map[string]struct{ old, new, at string }{
		"a member missing": {`"expires_at":"2026-11-07T04:40:00Z",`, ``, "/expires_at"},
		"unknown":          {`"expires_at"`, `"Expires_at":null,"expires_at"`, "/Expires_at"},
		"twice":            {`"expires_at"`, `"expires_at":null,"expires_at"`, "/expires_at"},
		"another type":     {`"tenant_acme_prod"`, `7`, "/scope/tenant_id"},
		"null list":        {`"selectors":["byte_range","record_range","query"]`, `"selectors":null`, "/retrieval/selectors"},
	} {
		bad := strings.Replace(string(b), test.old, test.new, 1)
		if bad == string(b) {
			t.Fatalf("%s: nothing to replace in %s", name, b)
		}
		ref, err := manifest.ParseRef([]byte(bad))
		if err == nil || pointerOf(err) != test.at || manifest.RefDiff(ref, manifest.ArtifactRef{}) != nil {
			t.Errorf("%s: ParseRef = %v, %v at %q, want an error at %s", name, ref, err, pointerOf(err), test.at)
		}
	}
}

func TestParseStated(t *testing.T) {
	s, err := manifest.ParseStated([]byte(`{
	  "artifact_ref": {"tool_call_id": "c1", "source_version": {"source_id": "infra"},
	    "completeness": {"status": "partial", "coverage": {"shards": [1, 2]}, "omissions": [{"what": "us-east", "reason": "timeout"}]},
	    "scope": {"tenant_id": "acme", "run_id": null}},
	  "lineage": {"kind": "transform", "inputs": [{"artifact_id": "art_x", "role": "source"}]},
	  "supersedes": [{"artifact_id": "art_y", "kind": "correct"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := s.ArtifactRef.Completeness
	if *s.ArtifactRef.ToolCallID != "c1" || *c.Status != "partial" || c.Omissions[0].Reason != "timeout" || s.ArtifactRef.Scope.RunID != nil ||
		s.Lineage.Inputs[0].Role != "source" || s.Supersedes[0].Kind != "correct" || s.Issuer.ID != nil {
		t.Errorf("ParseStated = %+v", s)
	}
	if s, err := manifest.ParseStated([]byte(`{}`)); err != nil || s == nil {
		t.Errorf("nothing stated: %v, %v", s, err)
	}
	for in, at := range map[string]string{
		`{"x":1}`: "/x", `{"bytes":{"Media_type":"a/b"}}`: "/bytes/Media_type",
		`{"bytes":{"media_type":7}}`: "/bytes/media_type", `{"bytes":[]}`: "/bytes",
		`{"issuer":{"id":"a","id":"b"}}`:                                "/issuer/id",
		`{"lineage":{"inputs":[{"role":"a"},{"roll":"b"}]}}`:            "/lineage/inputs/1/roll",
		`{"lineage":{"producer":{"tool":"a","arguments_digest":null}}}`: "/lineage/producer/arguments_digest",
		`{"artifact_ref":{"completeness":{"coverage":{"share":0.5}}}}`:  "/artifact_ref/completeness/coverage/share",
		`[]`: "", `7`: "", `{`: "",
	} {
		s, err := manifest.ParseStated([]byte(in))
		if !errors.Is(err, manifest.ErrMalformed) || s != nil || pointerOf(err) != at {
			t.Errorf("ParseStated(%s) = %v, %v at %q, want an error at %q", in, s, err, pointerOf(err), at)
		}
	}
}

// TestNothingComputedIsStated: every member of a predicate that a producer may not
// state is refused by name, and says why.
func TestNothingComputedIsStated(t *testing.T) {
	var doc any
	p := predicate()
	p.Lineage.Inputs, p.Lineage.Transform = nil, nil
	if err := json.Unmarshal(statement(t, p), &doc); err != nil {
		t.Fatal(err)
	}
	refused := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		members, _ := v.(map[string]any)
		for name, value := range members {
			at := at + "/" + name
			one := value
			for _, token := range slicesBackward(strings.Split(at, "/")[1:]) {
				one = map[string]any{token: one}
			}
			b, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			_, err = manifest.ParseStated(b)
			switch {
			case err == nil:
			case pointerOf(err) == at && strings.Contains(err.Error(), "this is not stated: "):
				refused++
			case strings.HasPrefix(pointerOf(err), at+"/"):
				walk(at, value)
			default:
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	walk("", doc.(map[string]any)["predicate"])
	if refused != 18 {
		t.Errorf("%d members were refused, want 18", refused)
	}
}

func slicesBackward(s []string) []string {
	out := make([]string, 0, len(s))
	for i := len(s) - 1; i >= 0; i-- {
		out = append(out, s[i])
	}
	return out
}

func TestCheckStated(t *testing.T) {
	if err := manifest.CheckStated(manifest.Predicate{}); err == nil {
		t.Error("a predicate without a tenant passed")
	}
	for name, test := range map[string]struct {
		change func(*manifest.Predicate)
		at     string
	}{
		"good":        {func(*manifest.Predicate) {}, ""},
		"good, empty": {func(p *manifest.Predicate) { p.Bytes.Root, p.Nonce, p.Issuer.KeyID = "", "", "" }, ""},
		"input": {func(p *manifest.Predicate) {
			p.Lineage = manifest.Lineage{Kind: "import", Inputs: []manifest.Input{{ArtifactID: wantArtifactID, Role: "source"}}}
		}, ""},
		"input role": {func(p *manifest.Predicate) {
			p.Lineage = manifest.Lineage{Kind: "import", Inputs: []manifest.Input{{ArtifactID: wantArtifactID}}}
		}, "/lineage/inputs/0/role"},
		"run":      {func(p *manifest.Predicate) { p.ArtifactRef.Scope.RunID = new("a b") }, "/artifact_ref/scope/run_id"},
		"complete": {func(p *manifest.Predicate) { p.ArtifactRef.Completeness.Status = "complete" }, "/artifact_ref/completeness/status"},
	} {
		p := predicate()
		test.change(&p)
		err := manifest.CheckStated(p)
		if (err == nil) != (test.at == "") || pointerOf(err) != test.at {
			t.Errorf("%s: CheckStated = %v at %q, want %q", name, err, pointerOf(err), test.at)
		}
	}
}
