package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
		"nothing claimed": {nil, "", 0, "Verified: nothing is said about the bytes, the length of the whole, "},
		"good": {
			[]manifest.State{"proven", "proven", "attested"},
			"", 0,
			"Verified: anybody can check by calculation, against the signed record, the bytes and the length of the whole; somebody signed the record, and your policy accepts the signature; nothing is said about the signer's right",
		},
		"unverifiable": {
			[]manifest.State{"proven", "proven", "unverifiable"},
			"", 2,
			"Not verified: the signature cannot be judged (why); anybody can check by calculation, against a record that anybody may have made, the bytes and the length of the whole; nothing is said",
		},
		"mismatch":             {[]manifest.State{"MISMATCH"}, "", 3, "Refused: do not rely on this, for the evidence contradicts the bytes."},
		"mismatch wins":        {[]manifest.State{"MISMATCH", "MISMATCH", "unverifiable"}, "", 3, "Refused: do not rely on this, for the evidence contradicts the bytes and the length of the whole."},
		"required, proven":     {[]manifest.State{"proven"}, "bytes", 0, "Verified"},
		"required, attested":   {[]manifest.State{"attested"}, "bytes", 2, "Not verified: bytes is attested, not proven; somebody vouches, with a signature that your policy accepts, for the bytes; nothing"},
		"required, unclaimed":  {nil, "length", 2, "Not verified: length is not-claimed, not proven; nothing"},
		"required, mismatch":   {[]manifest.State{"MISMATCH"}, "bytes", 3, "Refused"},
		"required and unknown": {[]manifest.State{"unverifiable"}, "length", 2, "Not verified: the bytes cannot be judged (why); length is not-claimed, not proven; nothing"},
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
	// The caller prefixes it with the name of its option.
	if err := manifest.NewVerdict().RequireProven("truth"); err == nil || !strings.HasPrefix(err.Error(), `no fact is called "truth"; there are bytes, length,`) {
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
commit          not-claimed(no proof of it)
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
Verified: anybody can check by calculation, against the signed record, the bytes; one vouches, with a signature that your policy accepts, for the owner, how complete the recording is (partial), the source, the dates of the record and the date until which it is offered; nothing is said about the length of the whole, the date of filing, the place they were taken from, how complete the answer is, the honesty of the index, any replacement, the numbers of the records or how far the search went; whether anybody was allowed to have these bytes cannot be judged offline.
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
	v.Set(
		manifest.Fact{Name: "bytes", State: manifest.Proven, Detail: "a\u202eb\u009bc\x1bd\x7fe\U000e0001f  g<é\xff"},
		manifest.Fact{Name: "signature", State: manifest.Attested, By: "a\u2066", Role: "manifest"},
		manifest.Fact{Name: "capture", State: manifest.Attested, By: "a", Role: "manifest", Detail: strings.Repeat("é", 2003)},
		manifest.Fact{Name: "expiry", State: manifest.Attested, By: "a", Role: "manifest", Detail: "expired at noon\u202e", Lapsed: true},
	)
	if err := v.RequireProven("signature"); err != nil {
		t.Fatal(err)
	}
	v.RequireCurrent()
	std, err := json.Marshal(map[string]any{"verdict": v, "value": *v})
	if err != nil {
		t.Fatal(err)
	}
	exp, err := v2.Marshal(map[string]any{"verdict": v, "value": *v}, jsontext.PreserveRawStrings(true))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"encoding/json": std, "go-json-experiment": exp} {
		t.Run(name, func(t *testing.T) {
			for _, r := range string(b) {
				if !unicode.IsPrint(r) {
					t.Errorf("%U stands in the JSON", r)
				}
			}
			for _, want := range []string{`a\u202eb\u009bc\u001bd\u007fe\udb40\udc01f  g`, `"by":"a\u2066"`, `é… and 3 more"`} {
				if !bytes.Contains(b, []byte(want)) {
					t.Errorf("it lacks %s: %s", want, b)
				}
			}
			var got map[string]struct {
				Facts     []map[string]any `json:"facts"`
				Authority string           `json:"authority"`
				Exit      int              `json:"exit"`
				Sentence  string           `json:"sentence"`
			}
			d := json.NewDecoder(bytes.NewReader(b))
			d.DisallowUnknownFields()
			if err := d.Decode(&got); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			if len(got) != 2 || !reflect.DeepEqual(got["verdict"], got["value"]) {
				t.Errorf("a pointer and a value differ: %s", b)
			}
			j := got["verdict"]
			if len(j.Facts) != 16 || j.Authority != "not assessable offline" || j.Exit != 2 ||
				!strings.HasPrefix(j.Sentence, `Not verified: signature is attested, not proven; expired at noon\u202e; anybody can check `) ||
				!strings.HasSuffix(j.Sentence, "; whether anybody was allowed to have these bytes cannot be judged offline.") {
				t.Errorf("%d facts, authority %q, exit %d, %q", len(j.Facts), j.Authority, j.Exit, j.Sentence)
			}
			for i, want := range []map[string]any{
				0: {"name": "bytes", "state": "proven", "detail": "a\u202eb\u009bc\x1bd\x7fe\U000e0001f  g<é\ufffd"},
				1: {"name": "length", "state": "not-claimed"},
				2: {"name": "signature", "state": "attested", "by": "a\u2066", "role": "manifest"},
			} {
				if !reflect.DeepEqual(j.Facts[i], want) {
					t.Errorf("fact %d is %v, want %v", i, j.Facts[i], want)
				}
			}
			if f := j.Facts[12]; f["lapsed"] != true {
				t.Errorf("expiry is %v", f)
			}
		})
	}
}

// TestForeignText: whatever a statement says, the lines of a verdict stay lines.
func TestForeignText(t *testing.T) {
	const evil = "x\n\x1b[2J\u009b1A\u202eproven\u2066          attested\r\U000e0041\x00\xff\u3164\u00ad"
	v := manifest.NewVerdict()
	for i, name := range manifest.FactNames() {
		f := manifest.Fact{Name: name, State: manifest.Unverifiable, Reason: evil + strings.Repeat("r", 1000), Detail: evil + strings.Repeat("d", 1000)}
		if i%2 == 1 {
			f = manifest.Fact{Name: name, State: manifest.Attested, By: evil + strings.Repeat("b", 1000), Role: evil, Detail: strings.Repeat(" ", 1000) + evil, Lapsed: true}
		}
		v.Set(f)
	}
	v.RequireCurrent()
	var out strings.Builder
	if err := v.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 19 || lines[18] != "" {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for i, line := range lines {
		most := 700
		if i == 17 {
			most = 4000 // the sentence: at most a voucher or a reason for each fact
		}
		if n := utf8.RuneCountInString(line); n > most {
			t.Errorf("line %d has %d characters", i, n)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) || r == '\u3164' {
				t.Errorf("line %d has %U", i, r)
			}
		}
	}
	if s := v.Sentence(); !strings.Contains(lines[17], s) || !strings.HasPrefix(s, "Not verified: ") || strings.Contains(s, "  ") {
		t.Errorf("sentence %q", s)
	}
}

// TestPolicyPastItsDate: the sentence warns of it, and nothing else changes.
func TestPolicyPastItsDate(t *testing.T) {
	env, ssh := signed(t)
	_, pub := testKey("one")
	p := parsePolicy(t, "policy p version 1 expires 2026-11-06T04:59:59Z\nkey "+pub.OpenSSHLine()+" name=one roles=manifest tenants=*\n")
	for when, warns := range map[time.Time]bool{at: true, at.Add(-time.Minute): false} {
		_, fs, err := manifest.VerifyEnvelope(env, ssh, p, when)
		if err != nil {
			t.Fatal(err)
		}
		v := manifest.NewVerdict()
		v.Set(fs...)
		v.RequireCurrent()
		if got := strings.Contains(v.Sentence(), "; the policy is past its date, so ask for a newer one; "); got != warns || v.Exit() != 0 {
			t.Errorf("as of %s: exit %d, %s", when, v.Exit(), v.Sentence())
		}
	}
}
