package manifest_test

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
)

func TestVerdictOrder(t *testing.T) {
	want := strings.Fields("bytes length signature key scope commit selector answer index capture source times expiry supersession record_numbers scan")
	if got := manifest.FactNames(); !slices.Equal(got, want) {
		t.Errorf("FactNames = %v, want %v", got, want)
	}
	v := manifest.NewVerdict()
	v.Set(manifest.Fact{Name: "scan", State: manifest.Attested}, manifest.Fact{Name: "bytes", State: manifest.Proven})
	for i, f := range v.Facts {
		if f.Name != want[i] {
			t.Errorf("fact %d is %s, want %s", i, f.Name, want[i])
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a fact that nobody knows was set")
		}
	}()
	v.Set(manifest.Fact{Name: "authority"})
}

func TestExit(t *testing.T) {
	for name, test := range map[string]struct {
		states  []manifest.State // of bytes, length, signature
		require string
		exit    int
		says    string
	}{
		"nothing claimed":      {nil, "", 0, "Verified: nothing contradicts"},
		"good":                 {[]manifest.State{"proven", "proven", "attested"}, "", 0, "2 facts follow from the bytes, 1 fact rests on a signature"},
		"unverifiable":         {[]manifest.State{"proven", "proven", "unverifiable"}, "", 2, "Not verified: signature cannot be judged (why)."},
		"mismatch":             {[]manifest.State{"MISMATCH"}, "", 3, "Refused: bytes contradicts the evidence."},
		"mismatch wins":        {[]manifest.State{"MISMATCH", "MISMATCH", "unverifiable"}, "", 3, "Refused: bytes and length contradict the evidence."},
		"required, proven":     {[]manifest.State{"proven"}, "bytes", 0, "Verified"},
		"required, attested":   {[]manifest.State{"attested"}, "bytes", 2, "Not verified: bytes is attested, not proven."},
		"required, unclaimed":  {nil, "length", 2, "length is not-claimed, not proven"},
		"required, mismatch":   {[]manifest.State{"MISMATCH"}, "bytes", 3, "Refused"},
		"required and unknown": {[]manifest.State{"unverifiable"}, "length", 2, "bytes cannot be judged (why); length is not-claimed"},
	} {
		t.Run(name, func(t *testing.T) {
			v := manifest.NewVerdict()
			for i, s := range test.states {
				f := manifest.Fact{Name: manifest.FactNames()[i], State: s}
				if s == manifest.Unverifiable {
					f.Reason = "why"
				}
				v.Set(f)
			}
			if test.require != "" {
				if err := v.RequireProven(test.require); err != nil {
					t.Fatal(err)
				}
			}
			if v.Exit() != test.exit || !strings.Contains(v.Sentence(), test.says) {
				t.Errorf("exit %d, %q, want %d and %q", v.Exit(), v.Sentence(), test.exit, test.says)
			}
		})
	}
	if err := manifest.NewVerdict().RequireProven("truth"); err == nil || !strings.Contains(err.Error(), "truth") {
		t.Errorf("RequireProven of no fact: %v", err)
	}
}

// TestMismatchStays: a later check does not take back what an earlier one found.
func TestMismatchStays(t *testing.T) {
	v := manifest.NewVerdict()
	v.Set(manifest.Fact{Name: "bytes", State: manifest.Mismatch, Reason: "first"})
	v.Set(manifest.Fact{Name: "bytes", State: manifest.Proven})
	if f, _ := v.Fact("bytes"); f.State != manifest.Mismatch || v.Exit() != 3 {
		t.Errorf("bytes is %v, exit %d", f, v.Exit())
	}
}

func TestWriteTable(t *testing.T) {
	env, ssh := signed(t)
	_, fs, err := manifest.VerifyEnvelope(env, ssh, policyFor(t, "", "one"), at)
	if err != nil {
		t.Fatal(err)
	}
	v := manifest.NewVerdict()
	v.Set(fs...)
	v.Set(manifest.Fact{Name: "bytes", State: manifest.Proven, Detail: "bytes [0,31)\x1b[2J"})
	var out strings.Builder
	if err := v.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	_, pub := testKey("one")
	want := `bytes           proven                                   bytes [0,31)\x1b[2J
length          not-claimed
signature       attested(one, manifest)                  DSSE and SSH
key             attested(one, manifest)                  ` + pub.Fingerprint() + `
scope           attested(one, manifest)                  tenant tenant_acme_prod, run run_incident_042, source infra.incident-events
commit          not-claimed(no commit log)
selector        not-claimed
answer          not-claimed
index           not-claimed
capture         attested(one, manifest)                  partial, coverage {"region":"eu-west","shards":[1,2]}, 1 records, 1 omitted, 1 redacted
source          attested(one, manifest)                  source infra.incident-events, snapshot infra_snapshot_20261106_043950, observed 2026-11-06T04:39:50Z
times           attested(one, manifest)                  created 2026-11-06T04:40:00Z, issued 2026-11-06T04:40:01Z
expiry          attested(one, manifest)                  expires at 2026-11-07T04:40:00Z
supersession    not-claimed(no later statement at hand)
record_numbers  not-claimed
scan            not-claimed
authority       not assessable offline
Verified: nothing contradicts the evidence; 1 fact follows from the bytes, 7 facts rest on signatures that the policy admits.
`
	if out.String() != want {
		t.Errorf("table is\n%s\nwant\n%s", out.String(), want)
	}
	if err := v.WriteTable(failing{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestVerdictJSON(t *testing.T) {
	v := manifest.NewVerdict()
	v.Set(manifest.Fact{Name: "signature", State: manifest.Unverifiable, Reason: "no policy\xff"})
	b, err := v.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Facts     []map[string]any
		Authority string
		Exit      int
		Sentence  string
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if len(got.Facts) != 16 || got.Facts[2]["name"] != "signature" || got.Facts[2]["state"] != "unverifiable" || got.Exit != 2 ||
		got.Authority != "not assessable offline" || !strings.HasPrefix(got.Sentence, "Not verified: signature") {
		t.Errorf("JSON = %s", b)
	}
}
