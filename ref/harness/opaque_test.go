package harness_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// An envelope that carries only strings: each is resolved to the descriptor that was
// signed, every byte verified, as data; what leads nowhere says so.
func TestOpaqueReferences(t *testing.T) {
	sc := newScene(t, setup{})
	capture := sc.record(events(facts(time.Now(), twoRegions)))
	found := sc.good("query_json", `{"source":%s}`, refTo(capture, ""))
	inline := sc.record(map[string]any{"value": 1})
	lacks := sc.record(events(facts(time.Now(), partial)))
	lost := sc.record(events(nil))
	if err := sc.store.Delete(t.Context(), leafproof.Owner, newest(t, sc), ""); err != nil {
		t.Fatal(err)
	}
	refs := []string{
		harness.Opaque(message(capture, "")), harness.Opaque(message(found, "value")), harness.Opaque(message(inline, "value")),
		harness.Opaque(message(lacks, "")), harness.Opaque(message(lost, "")), "tmp/incident.json", "leafproof-ref:99/0/", "leafproof-ref:01/0/",
	}
	want := []struct{ decision, code string }{
		{"admit", ""},
		{"admit", ""},
		{"", "evidence_insufficient"},
		{"defer", ""},
		{"refuse", "artifact_deleted"},
		{"", "ref_malformed"},
		{"", "ref_not_found"},
		{"", "ref_malformed"},
	}
	items := sc.run.Evidence(t.Context(), refs, harness.Evidence{Require: fact("region=us-east")})
	for i, item := range items {
		if item.Reference != refs[i] || !item.DataOnly {
			t.Errorf("%+v", item)
		}
		decision, code := "", ""
		if item.Assessment != nil {
			decision = item.Assessment.Decision
		}
		if item.Error != nil {
			code = string(item.Error.Code)
		}
		if i == 4 { // nothing is stated of it, and it is gone
			decision = want[i].decision
		}
		if decision != want[i].decision || code != want[i].code {
			t.Errorf("%s: %q, %q, want %+v", refs[i], decision, code, want[i])
		}
		if i < 2 {
			var d manifest.ArtifactRef
			if err := json.Unmarshal(item.Descriptor, &d); err != nil || *d.SourceVersion.SourceID != "infra.events" || !strings.Contains(item.Assessment.Identity.Reason, "every byte") {
				t.Errorf("%s: %s, %+v, %v", refs[i], item.Descriptor, item.Assessment, err)
			}
		}
	}
}

func FuzzParseOpaque(f *testing.F) {
	f.Add("leafproof-ref:42/0/value")
	f.Add("leafproof-ref:1/2/a%2Fb.c")
	f.Add("leafproof-ref:9007199254740992/0/")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := harness.ParseOpaque(s)
		if err != nil {
			return
		}
		if back := harness.Opaque(m); back != s {
			t.Fatalf("%q reads as %+v, which is %q", s, m, back)
		}
	})
}

// Each reference of a transcript is one line: alive, or why not.
func TestCheckTranscript(t *testing.T) {
	log := ref.NewMemory("run-7")
	sc := newScene(t, setup{run: harness.RunOptions{Transcript: log}})
	end := func(v harness.View) harness.View {
		if err := sc.store.Delete(t.Context(), leafproof.Owner, newest(t, sc), ""); err != nil {
			t.Fatal(err)
		}
		return v
	}
	alive := sc.record(map[string]any{"a": events(nil), "plain": 1})
	sc.good("query_json", `{"source":%s}`, refTo(alive, "a"))
	end(sc.record(events(nil)))
	sc.record(events(json.RawMessage(`{"artifact_ref":{"expires_at":"` + manifest.FormatTime(time.Now().Add(time.Hour)) + `"}}`)))
	sound := packs(t, sc.dir)
	corrupt := sc.record(jsonBlob([]byte(`["` + strings.Repeat("unique and long ", 3000) + `"]`)))
	damage(t, sc.dir, sound...)
	setClock(t, sc.dir, time.Now().Add(2*time.Hour))

	list, err := harness.CheckTranscript(t.Context(), sc.store, leafproof.Owner, log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Kind+" "+c.Field+" "+c.State)
	}
	if want := "blob a alive, recipe value alive, blob  deleted, blob  expired, blob  corrupt"; strings.Join(got, ", ") != want {
		t.Errorf("%s; want %s; %+v", strings.Join(got, ", "), want, list)
	}
	sc.fails("integrity_failed", "read_text", `{"source":%s}`, refTo(corrupt, ""))
	stranger, err := harness.CheckTranscript(t.Context(), sc.store, leafproof.Caller{Principal: "mallory"}, log)
	if err != nil || len(stranger) != 5 {
		t.Fatal(stranger, err)
	}
	for _, c := range stranger {
		if c.State != harness.Missing || c.Code != leafproof.CodeRefNotFound {
			t.Errorf("a stranger hears %+v", c)
		}
	}
}
