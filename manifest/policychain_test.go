package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
)

// signedPolicy signs a text with the keys of these names.
func signedPolicy(t testing.TB, text string, names ...string) manifest.SignedPolicy {
	t.Helper()
	s := manifest.SignedPolicy{Text: []byte(text)}
	for _, name := range names {
		key, _ := testKey(name)
		armored, err := manifest.SignSSH(s.Text, manifest.NamespacePolicy, key)
		if err != nil {
			t.Fatal(err)
		}
		s.Signatures = append(s.Signatures, armored...)
	}
	return s
}

func policyKey(name, rest string) string {
	_, pub := testKey(name)
	return "key " + pub.OpenSSHLine() + " name=" + name + " " + rest + "\n"
}

func TestSucceeds(t *testing.T) {
	print := func(name string) string { _, pub := testKey(name); return pub.Fingerprint() }
	root := policyKey("a", "roles=policy tenants=*") + policyKey("b", "roles=policy tenants=*") + policyKey("m", "roles=manifest tenants=*")
	two := "threshold policy 2\n"
	bare := policyKey("m", "roles=manifest tenants=*")
	for name, test := range map[string]struct {
		before string // "" is none
		after  string
		by     []string
		n      int // signers that count
		err    error
	}{
		"one of two":                       {"policy p version 1\n" + root, "policy p version 2\n" + root, []string{"a"}, 1, nil},
		"both":                             {"policy p version 1\n" + root, "policy p version 2\n" + root, []string{"a", "b"}, 2, nil},
		"nobody":                           {"policy p version 1\n" + root, "policy p version 2\n" + root, nil, 0, manifest.ErrUnsigned},
		"a key of another role":            {"policy p version 1\n" + root, "policy p version 2\n" + root, []string{"m"}, 0, manifest.ErrUnsigned},
		"a stranger":                       {"policy p version 1\n" + root, "policy p version 2\n" + root, []string{"z"}, 0, manifest.ErrUnsigned},
		"a stranger beside":                {"policy p version 1\n" + root, "policy p version 2\n" + root, []string{"z", "a"}, 1, nil},
		"the new version's own keys alone": {"policy p version 1\n" + root, "policy p version 2\n" + policyKey("z", "roles=policy tenants=*"), []string{"z"}, 0, manifest.ErrUnsigned},
		"handed on":                        {"policy p version 1\n" + root, "policy p version 2\n" + policyKey("z", "roles=policy tenants=*"), []string{"b"}, 1, nil},
		"below the threshold":              {"policy p version 1\n" + root + two, "policy p version 2\n" + root, []string{"a"}, 1, manifest.ErrUnsigned},
		"the threshold of the new version": {"policy p version 1\n" + root, "policy p version 2\n" + root + two, []string{"a"}, 1, nil},
		"a retired key":                    {"policy p version 1\n" + root + "retired " + print("a") + " at=2099-01-01T00:00:00Z\n", "policy p version 2\n" + root, []string{"a"}, 0, manifest.ErrUnsigned},
		"a stolen key":                     {"policy p version 1\n" + root + "compromised " + print("a") + " since=2099-01-01T00:00:00Z\n", "policy p version 2\n" + root, []string{"a", "b"}, 1, nil},
		"after the last key's end":         {"policy p version 1\n" + policyKey("a", "roles=policy tenants=*") + "retired " + print("a") + " at=2099-01-01T00:00:00Z\n", "policy p version 2\n" + policyKey("z", "roles=policy tenants=*"), []string{"z", "a"}, 0, manifest.ErrUnsigned},
		"an older version":                 {"policy p version 3\n" + root, "policy p version 2\n" + root, []string{"a"}, 0, manifest.ErrPolicy},
		"the same version":                 {"policy p version 2\n" + root, "policy p version 2\n" + root, []string{"a"}, 0, manifest.ErrPolicy},
		"a version left out":               {"policy p version 1\n" + root, "policy p version 3\n" + root, []string{"a"}, 0, manifest.ErrPolicy},
		"another name":                     {"policy p version 1\n" + root, "policy q version 2\n" + root, []string{"a"}, 0, manifest.ErrPolicy},
		"the first":                        {"", "policy p version 1\n" + root, []string{"a"}, 1, nil},
		"the first, by nobody":             {"", "policy p version 1\n" + root, nil, 0, manifest.ErrUnsigned},
		"the first, by a stranger":         {"", "policy p version 1\n" + root, []string{"z"}, 0, manifest.ErrUnsigned},
		"the first, below its threshold":   {"", "policy p version 1\n" + root + two, []string{"b"}, 1, manifest.ErrUnsigned},
		"an old store's":                   {"", "policy p version 1\n" + bare, nil, 0, nil},
		"an old store's next":              {"policy p version 1\n" + bare, "policy p version 2\n" + root, []string{"a"}, 1, nil},
		"an old store's next, by nobody":   {"policy p version 1\n" + bare, "policy p version 2\n" + root, nil, 0, manifest.ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			var before *manifest.Policy
			if test.before != "" {
				before = parsePolicy(t, test.before)
			}
			after, signers, err := manifest.Succeeds(before, signedPolicy(t, test.after, test.by...))
			if !errors.Is(err, test.err) || err == nil && (after.String() != parsePolicy(t, test.after).String() || len(signers) != test.n) {
				t.Errorf("Succeeds = %v, %q, %v, want %d signers, %v", after, signers, err, test.n, test.err)
			}
		})
	}
}

// A signature counts only over this text, in this namespace.
func TestSucceedsRefuses(t *testing.T) {
	root := policyKey("a", "roles=policy tenants=*") + policyKey("b", "roles=policy tenants=*")
	before := parsePolicy(t, "policy p version 1\n"+root)
	good := signedPolicy(t, "policy p version 2\n"+root, "a")
	key, _ := testKey("a")
	asManifest, err := manifest.SignSSH(good.Text, manifest.NamespaceManifest, key)
	if err != nil {
		t.Fatal(err)
	}
	other := signedPolicy(t, "policy p version 2\n"+root+"# x\n", "a")
	for name, test := range map[string]struct {
		text, sigs string
		err        error
	}{
		"a byte more":       {string(good.Text) + "#\n", string(good.Signatures), manifest.ErrSignature},
		"another namespace": {string(good.Text), asManifest, manifest.ErrSignature},
		"of another text":   {string(good.Text), string(other.Signatures), manifest.ErrSignature},
		"twice":             {string(good.Text), string(good.Signatures) + string(good.Signatures), manifest.ErrMalformed},
		"something after":   {string(good.Text), string(good.Signatures) + "\n", manifest.ErrMalformed},
		"cut":               {string(good.Text), string(good.Signatures[:100]), manifest.ErrMalformed},
		"huge":              {string(good.Text), strings.Repeat("A", 1<<20), manifest.ErrTooLarge},
		"no policy":         {"hello\n", string(good.Signatures), manifest.ErrPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := manifest.Succeeds(before, manifest.SignedPolicy{Text: []byte(test.text), Signatures: []byte(test.sigs)})
			if !errors.Is(err, test.err) {
				t.Errorf("error = %v, want %v", err, test.err)
			}
		})
	}
	many := manifest.SignedPolicy{Text: good.Text}
	for i := range manifest.MaxSignatures + 1 {
		many.Signatures = append(many.Signatures, signedPolicy(t, string(good.Text), fmt.Sprint(i)).Signatures...)
	}
	if _, _, err := manifest.Succeeds(before, many); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("too many signatures: %v", err)
	}
}

func TestPolicyNext(t *testing.T) {
	_, one := testKey("one")
	_, two := testKey("two")
	_, three := testKey("three")
	p := parsePolicy(t, "policy p version 4 expires 2027-01-01T00:00:00Z\nkey "+one.OpenSSHLine()+" name=a roles=manifest tenants=* sources=*\n")
	log, err := manifest.LogKey("log.example/x", three)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	next, err := p.Next(
		manifest.AddKey(manifest.Key{Name: "b", Public: two, Roles: []string{"audit"}}), manifest.AddLog(log),
		manifest.Retire(one.Fingerprint(), later), manifest.Retire(one.Fingerprint(), later.Add(time.Hour)), // an end is never put off
		manifest.Compromise(three.Fingerprint(), later), manifest.Demand("audit", 1), manifest.ExpireAt(time.Time{}),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := "policy p version 5\nkey " + one.OpenSSHLine() + " name=a roles=manifest tenants=* sources=*\nkey " + two.OpenSSHLine() +
		" name=b roles=audit tenants=* sources=*\nlog " + log.String() + "\nretired " + one.Fingerprint() + " at=2026-11-01T00:00:00Z\ncompromised " +
		three.Fingerprint() + " since=2026-11-01T00:00:00Z\nthreshold audit 1\n"
	if next.String() != want {
		t.Errorf("next is\n%s, want\n%s", next, want)
	}
	if p.Version() != 4 || len(p.Keys()) != 1 || p.StateOf(one, later) != manifest.KeyActive {
		t.Errorf("the version before has changed: %s", p)
	}
	for k, want := range map[manifest.PublicKey]string{one: manifest.KeyRetired, two: manifest.KeyActive, three: manifest.KeyCompromised, {}: manifest.KeyUnknown} {
		if got := next.StateOf(k, later); got != want {
			t.Errorf("state %q, want %q", got, want)
		}
	}
	for name, test := range map[string]struct {
		change manifest.Change
		err    error
	}{
		"a key twice":      {manifest.AddKey(manifest.Key{Name: "c", Public: one, Roles: []string{"audit"}}), manifest.ErrPolicy},
		"a log that signs": {manifest.AddLog(manifest.VerifierKey{Name: "x", Public: two}), manifest.ErrKey},
		"a name twice":     {manifest.AddKey(manifest.Key{Name: "a", Public: two, Roles: []string{"audit"}}), manifest.ErrPolicy},
		"retire nobody":    {manifest.Retire(two.Fingerprint(), later), manifest.ErrUnknownKey},
		"too much":         {manifest.Demand("manifest", 2), manifest.ErrPolicy},
		"no role":          {manifest.Demand("king", 1), nil}, // is not written
	} {
		if _, err := p.Next(test.change); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
	}
	if _, err := manifest.AdHoc(one).Next(); !errors.Is(err, manifest.ErrPolicy) {
		t.Errorf("an ad-hoc policy has a next version: %v", err)
	}
}

// What is known of a statement's age lets a retired key's word stand, and only what
// a witness saw that of a stolen one.
func TestJudgeEvidence(t *testing.T) {
	p := parsePolicy(t, fullPolicy())
	day := func(s string) time.Time {
		got, err := manifest.ParseTime(s + "T00:00:00Z")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, test := range map[string]struct {
		key      string
		evidence manifest.Evidence
		err      error
	}{
		"retired, nothing known":            {"three", manifest.Evidence{}, manifest.ErrRetired},
		"retired, logged before":            {"three", manifest.Evidence{Logged: day("2026-09-30")}, nil},
		"retired, witnessed before":         {"three", manifest.Evidence{Logged: day("2026-10-02"), Witnessed: day("2026-09-30")}, nil},
		"retired, logged at the end":        {"three", manifest.Evidence{Logged: day("2026-10-01")}, manifest.ErrKeyEnded},
		"retired, logged after":             {"three", manifest.Evidence{Logged: day("2026-10-02")}, manifest.ErrKeyEnded},
		"stolen, nothing known":             {"four", manifest.Evidence{}, manifest.ErrCompromised},
		"stolen, logged before":             {"four", manifest.Evidence{Logged: day("2026-01-02")}, manifest.ErrCompromised},
		"stolen, witnessed before":          {"four", manifest.Evidence{Witnessed: day("2026-09-19")}, nil},
		"stolen, witnessed after":           {"four", manifest.Evidence{Logged: day("2026-01-02"), Witnessed: day("2026-09-20")}, manifest.ErrKeyEnded},
		"its window is over, logged within": {"one", manifest.Evidence{Logged: day("2026-12-31")}, nil},
		"its window is over":                {"one", manifest.Evidence{}, manifest.ErrTimeWindow},
		"logged before its window":          {"one", manifest.Evidence{Logged: day("2025-12-31")}, manifest.ErrTimeWindow},
	} {
		t.Run(name, func(t *testing.T) {
			_, pub := testKey(test.key)
			_, err := p.Given(test.evidence).Judge("manifest", "tenant_acme_prod", "infra.x", pub.Fingerprint(), day("2027-01-02"))
			if !errors.Is(err, test.err) {
				t.Errorf("Judge = %v, want %v", err, test.err)
			}
		})
	}
}

func TestPolicyExpired(t *testing.T) {
	p := parsePolicy(t, fullPolicy())
	end := p.Expires()
	if err := p.Expired(end.Add(-1)); err != nil {
		t.Error(err)
	}
	if err := p.Expired(end); !errors.Is(err, manifest.ErrPolicyExpired) {
		t.Errorf("Expired = %v", err)
	}
	// Offline it is said, and what was signed is judged all the same.
	env, armored := signed(t)
	_, one := testKey("one")
	old := parsePolicy(t, "policy p version 1 expires 2026-01-01T00:00:00Z\nkey "+one.OpenSSHLine()+" name=a roles=manifest tenants=*\n")
	_, facts, err := manifest.VerifyEnvelope(env, armored, old, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range facts {
		if f.Name == manifest.FactKey && (f.State != manifest.Attested || !strings.Contains(f.Detail, "policy expired at 2026-01-01T00:00:00Z")) {
			t.Errorf("key is %+v", f)
		}
	}
}

// TestAllowedSigners: ssh-keygen enforces role, scope and window with the file
// that a policy gives.
func TestAllowedSigners(t *testing.T) {
	p := parsePolicy(t, fullPolicy())
	line := func(name string) string { _, pub := testKey(name); return pub.OpenSSHLine() + " " }
	want := `tenant_acme_prod/infra.* namespaces="manifest@leafproof",valid-after="20260101000000Z",valid-before="20261231235959Z" ` + line("one") + "ingest-eu\n" +
		`*/* namespaces="receipt@leafproof,tombstone@leafproof,deletion@leafproof" ` + line("two") + "store-1\n" +
		`tenant_*/*,lab.*.prod/* namespaces="manifest@leafproof,audit@leafproof" ` + line("five") + "wide\n"
	if got := p.AllowedSigners(); got != want {
		t.Errorf("AllowedSigners =\n%swant\n%s", got, want)
	}
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	signers := file("allowed_signers", want)
	message := statement(t, predicate())
	verify := func(signer, role, principal, when string, message []byte) error {
		t.Helper()
		key, _ := testKey(signer)
		armored, err := manifest.SignSSH(statement(t, predicate()), role+"@leafproof", key)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), tool, "-Y", "verify", "-f", signers, "-I", principal, "-n", role+"@leafproof",
			"-Overify-time="+when, "-s", file("sig", armored))
		cmd.Stdin = bytes.NewReader(message)
		return cmd.Run()
	}
	altered := bytes.Clone(message)
	altered[len(altered)/2] ^= 1
	for name, test := range map[string]struct {
		signer, role, principal, when string
		message                       []byte
		ok                            bool
	}{
		"good":                       {"one", "manifest", "tenant_acme_prod/infra.incident-events", "20261106044000Z", message, true},
		"the first moment":           {"one", "manifest", "tenant_acme_prod/infra.x", "20260101000000Z", message, true},
		"the last second":            {"one", "manifest", "tenant_acme_prod/infra.x", "20261231235959Z", message, true},
		"before the window":          {"one", "manifest", "tenant_acme_prod/infra.x", "20251231235959Z", message, false},
		"the window's end":           {"one", "manifest", "tenant_acme_prod/infra.x", "20270101000000Z", message, false},
		"wrong role":                 {"one", "receipt", "tenant_acme_prod/infra.x", "20261106044000Z", message, false},
		"wrong tenant":               {"one", "manifest", "tenant_other/infra.x", "20261106044000Z", message, false},
		"wrong source":               {"one", "manifest", "tenant_acme_prod/billing.x", "20261106044000Z", message, false},
		"no source":                  {"one", "manifest", manifest.Principal("tenant_acme_prod", ""), "20261106044000Z", message, false},
		"a byte altered":             {"one", "manifest", "tenant_acme_prod/infra.x", "20261106044000Z", altered, false},
		"another key":                {"two", "manifest", "tenant_acme_prod/infra.x", "20261106044000Z", message, false},
		"a retired key":              {"three", "manifest", "tenant_acme_prod/infra.x", "20260106044000Z", message, false},
		"a stolen key":               {"four", "manifest", "tenant_acme_prod/infra.x", "20260106044000Z", message, false},
		"any source, none":           {"five", "manifest", manifest.Principal("tenant_x", ""), "20261106044000Z", message, true},
		"a star as a segment":        {"five", "audit", "lab.7.prod/x", "20261106044000Z", message, true},
		"a star is several segments": {"five", "audit", "lab.7.8.prod/x", "20261106044000Z", message, true}, // weaker than Judge
	} {
		t.Run(name, func(t *testing.T) {
			if err := verify(test.signer, test.role, test.principal, test.when, test.message); (err == nil) != test.ok {
				t.Errorf("ssh-keygen -Y verify: %v", err)
			}
		})
	}
}

// A policy that ssh-keygen signed is signed for us, and the other way.
func TestPolicySSHKeygen(t *testing.T) {
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	dir := t.TempDir()
	theirKey := filepath.Join(dir, "offline")
	if out, err := exec.CommandContext(t.Context(), tool, "-q", "-t", "ed25519", "-N", "", "-f", theirKey).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line, err := os.ReadFile(theirKey + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	pub, err := manifest.ParsePublicKey(line)
	if err != nil {
		t.Fatal(err)
	}
	text := "policy p version 1\nkey " + pub.OpenSSHLine() + " name=offline roles=policy tenants=*\n"
	path := filepath.Join(dir, "next")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "-q", "-Y", "sign", "-f", theirKey, "-n", manifest.NamespacePolicy, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sigs, err := os.ReadFile(path + ".sig")
	if err != nil {
		t.Fatal(err)
	}
	p, signers, err := manifest.Succeeds(nil, manifest.SignedPolicy{Text: []byte(text), Signatures: sigs})
	if err != nil || len(signers) != 1 || signers[0] != pub.Fingerprint() {
		t.Fatalf("Succeeds = %v, %v, %v", p, signers, err)
	}
	signers2 := filepath.Join(dir, "allowed_signers")
	if err := os.WriteFile(signers2, []byte(p.AllowedSigners()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), tool, "-Y", "verify", "-f", signers2, "-I", "store/policy", "-n", manifest.NamespacePolicy, "-s", path+".sig")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
