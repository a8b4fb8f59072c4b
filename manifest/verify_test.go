package manifest_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"leafproof/manifest"
)

func policyFor(t testing.TB, options string, names ...string) *manifest.Policy {
	t.Helper()
	var text strings.Builder
	text.WriteString("policy p version 1\n")
	for _, name := range names {
		_, pub := testKey(name)
		text.WriteString("key " + pub.OpenSSHLine() + " name=" + name + " roles=manifest tenants=tenant_acme_* sources=infra.*\n")
	}
	return parsePolicy(t, text.String()+options)
}

// facts gives "state(by, role)" or "state(reason)" by name.
func facts(fs []manifest.Fact) map[string]string {
	m := map[string]string{}
	for _, f := range fs {
		m[f.Name] = f.String()
	}
	return m
}

func TestVerifyEnvelope(t *testing.T) {
	_, pubOne := testKey("one")
	two, pubTwo := testKey("two")
	env, ssh := signed(t)
	payload, err := env.PayloadBytes()
	if err != nil {
		t.Fatal(err)
	}
	both, err := env.Cosign(two)
	if err != nil {
		t.Fatal(err)
	}
	byTwo, err := manifest.Sign(payload, two)
	if err != nil {
		t.Fatal(err)
	}
	sshBy := func(payload []byte, namespace string, key string) string {
		s, _ := testKey(key)
		armored, err := manifest.SignSSH(payload, namespace, s)
		if err != nil {
			t.Fatal(err)
		}
		return armored
	}
	badSig := env
	badSig.Signatures = []manifest.Signature{{KeyID: pubOne.Fingerprint(), Sig: byTwo.Signatures[0].Sig}}
	badCosigner := both
	badCosigner.Signatures = []manifest.Signature{both.Signatures[0], both.Signatures[1]}
	for i := range badCosigner.Signatures {
		badCosigner.Signatures[i].Sig = both.Signatures[1-i].Sig
	}
	// A key that the policy admits signs a manifest that names another issuer, and
	// puts nothing under the issuer's keyid.
	forged := both
	forged.Signatures = slices.Clone(both.Signatures)
	for i := range forged.Signatures {
		if forged.Signatures[i].KeyID == pubOne.Fingerprint() {
			forged.Signatures[i].Sig = base64.StdEncoding.EncodeToString(make([]byte, 64))
		}
	}
	retired := "retired " + pubOne.Fingerprint() + " at=2026-10-01T00:00:00Z\n"
	const vouched = "attested(one, manifest)"
	for name, test := range map[string]struct {
		env    manifest.Envelope
		ssh    string
		policy *manifest.Policy
		want   map[string]string // the facts that are looked at
		exit   int
	}{
		"good": {env, ssh, policyFor(t, "", "one"), map[string]string{
			"signature": vouched, "key": vouched, "scope": vouched, "capture": vouched, "source": vouched, "times": vouched, "expiry": vouched,
			"supersession": "not-claimed(no later statement at hand)", "commit": "not-claimed(no proof of it)",
		}, 0},
		"without ssh": {env, "", policyFor(t, "", "one"), map[string]string{"signature": vouched}, 0},
		"no policy": {env, ssh, nil, map[string]string{
			"signature": "unverifiable(no policy)", "key": "unverifiable(no policy)", "scope": "unverifiable(no policy)", "capture": "unverifiable(no policy)",
			"source": "unverifiable(no policy)", "times": "unverifiable(no policy)", "expiry": "unverifiable(no policy)", "commit": "not-claimed(no proof of it)",
		}, 2},
		"ad-hoc key": {env, ssh, manifest.AdHoc(pubOne), map[string]string{
			"signature": "attested(" + pubOne.Fingerprint() + ", manifest)", "key": "attested(" + pubOne.Fingerprint() + ", manifest)",
			"scope": "not-claimed(ad-hoc key)", "times": "not-claimed(ad-hoc key)", "capture": "attested(" + pubOne.Fingerprint() + ", manifest)",
		}, 0},
		"another ad-hoc key": {env, ssh, manifest.AdHoc(pubTwo), map[string]string{"signature": "unverifiable(unknown key " + pubOne.Fingerprint() + ")"}, 2},
		"unknown key":        {env, ssh, policyFor(t, "", "two"), map[string]string{"signature": "unverifiable(unknown key " + pubOne.Fingerprint() + ")", "capture": "unverifiable(unknown key " + pubOne.Fingerprint() + ")"}, 2},
		"retired key":        {env, ssh, policyFor(t, retired, "one"), map[string]string{"signature": "unverifiable(retired key, no time evidence)", "times": "unverifiable(retired key, no time evidence)"}, 2},
		"bad signature":      {badSig, "", policyFor(t, "", "one"), map[string]string{"signature": "MISMATCH(the signature by " + pubOne.Fingerprint() + " does not verify)", "key": "unverifiable(bad signature)"}, 3},
		"bad, key unknown, ssh tells": {badSig, ssh, policyFor(t, "", "two"), map[string]string{
			"signature": "MISMATCH(the signature by " + pubOne.Fingerprint() + " does not verify)",
		}, 3},
		"bad, key unknown":    {badSig, "", policyFor(t, "", "two"), map[string]string{"signature": "unverifiable(unknown key " + pubOne.Fingerprint() + ")"}, 2},
		"issuer did not sign": {byTwo, "", policyFor(t, "", "one", "two"), map[string]string{"signature": "MISMATCH(the manifest names the issuer " + pubOne.Fingerprint() + ", which did not sign it)"}, 3},
		"ssh by another":      {env, sshBy(payload, manifest.NamespaceManifest, "two"), policyFor(t, "", "one", "two"), map[string]string{"signature": "MISMATCH(the SSH signature is by " + pubTwo.Fingerprint() + ", which did not sign the envelope)"}, 3},
		"ssh by the cosigner": {both, sshBy(payload, manifest.NamespaceManifest, "two"), policyFor(t, "", "one", "two"), map[string]string{"signature": "MISMATCH(the SSH signature is not by the issuer " + pubOne.Fingerprint() + ")"}, 3},
		"ssh of another":      {env, sshBy([]byte("other"), manifest.NamespaceManifest, "one"), policyFor(t, "", "one"), map[string]string{"signature": "MISMATCH(the SSH signature: signature does not verify)"}, 3},
		"ssh, other purpose":  {env, sshBy(payload, "receipt@leafproof", "one"), nil, map[string]string{"signature": `MISMATCH(the SSH signature: signature does not verify: its namespace is "receipt@leafproof", not "manifest@leafproof")`}, 3},
		"ssh malformed":       {env, ssh + "x", nil, map[string]string{"signature": "MISMATCH(the SSH signature: malformed: the armor's first or last line is not as ssh-keygen writes it)"}, 3},
		"two of two":          {both, ssh, policyFor(t, "threshold manifest 2\n", "one", "two"), map[string]string{"signature": "attested(one+two, manifest)"}, 0},
		"one of two":          {env, ssh, policyFor(t, "threshold manifest 2\n", "one", "two"), map[string]string{"signature": "unverifiable(too few signatures: 1 of 2 that the policy asks for)"}, 2},
		"two, one known":      {both, ssh, policyFor(t, "", "one"), map[string]string{"signature": vouched}, 0},
		"a cosigner's is bad": {badCosigner, "", policyFor(t, "", "two"), map[string]string{"signature": "MISMATCH(the signature by " + pubTwo.Fingerprint() + " does not verify)"}, 3},
		"issuer forged": {forged, "", policyFor(t, "", "two"), map[string]string{
			"signature": "unverifiable(unknown key " + pubOne.Fingerprint() + ")", "capture": "unverifiable(unknown key " + pubOne.Fingerprint() + ")",
		}, 2},
		"issuer unknown, not forged": {both, "", policyFor(t, "", "two"), map[string]string{"key": "unverifiable(unknown key " + pubOne.Fingerprint() + ")"}, 2},
		"issuer forged, ssh tells":   {forged, ssh, policyFor(t, "", "two"), map[string]string{"signature": "MISMATCH(the signature by " + pubOne.Fingerprint() + " does not verify)"}, 3},
		"issuer forged, key known":   {forged, "", policyFor(t, "", "one", "two"), map[string]string{"signature": "MISMATCH(the signature by " + pubOne.Fingerprint() + " does not verify)"}, 3},
		"issuer retired, cosigned":   {both, "", policyFor(t, retired, "one", "two"), map[string]string{"signature": "attested(two, manifest)"}, 0},
		"cosigner of the scope":      {both, ssh, policyFor(t, "", "two"), map[string]string{"signature": "attested(two, manifest)"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, fs, err := manifest.VerifyEnvelope(test.env, test.ssh, test.policy, at)
			if err != nil {
				t.Fatal(err)
			}
			if m.ArtifactID != wantArtifactID {
				t.Errorf("artifact %s", m.ArtifactID)
			}
			got := facts(fs)
			for name, want := range test.want {
				if got[name] != want {
					t.Errorf("%s is %s, want %s", name, got[name], want)
				}
			}
			v := manifest.NewVerdict()
			v.Set(fs...)
			if v.Exit() != test.exit {
				t.Errorf("exit %d, want %d", v.Exit(), test.exit)
			}
			for _, f := range fs {
				if f.State == manifest.Proven {
					t.Errorf("%s is proven, which nothing here can be", f.Name)
				}
			}
		})
	}
}

// TestVerifyScope: a good signature by a key that may not speak for this.
func TestVerifyScope(t *testing.T) {
	env, ssh := signed(t)
	_, pub := testKey("one")
	for name, test := range map[string]struct{ options, says string }{
		"role":    {"roles=receipt tenants=*", "key has not this role: a may not speak as manifest"},
		"tenant":  {"roles=manifest tenants=tenant_other", "key may not speak for this scope: a may not speak for tenant tenant_acme_prod"},
		"source":  {"roles=manifest tenants=* sources=billing.*", "key may not speak for this scope: a may not speak for source infra.incident-events"},
		"too old": {"roles=manifest tenants=* not-after=2026-11-01T00:00:00Z", "outside the key's time window: a was good until 2026-11-01T00:00:00Z"},
		"too new": {"roles=manifest tenants=* not-before=2026-12-01T00:00:00Z", "outside the key's time window: a is good from 2026-12-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parsePolicy(t, "policy p version 1\nkey "+pub.OpenSSHLine()+" name=a "+test.options+"\n")
			_, fs, err := manifest.VerifyEnvelope(env, ssh, p, at)
			if err != nil {
				t.Fatal(err)
			}
			got := facts(fs)
			for _, name := range []string{"signature", "key", "scope", "capture", "source", "times", "expiry"} {
				if want := "unverifiable(" + test.says + ")"; got[name] != want {
					t.Errorf("%s is %s, want %s", name, got[name], want)
				}
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	env, ssh := signed(t)
	for name, test := range map[string]struct {
		at     time.Time
		detail string
		exit   int // with RequireCurrent
	}{
		"before":   {at, "expires at 2026-11-07T04:40:00Z", 0},
		"the end":  {time.Date(2026, 11, 7, 4, 40, 0, 0, time.UTC), "expired at 2026-11-07T04:40:00Z", 2},
		"long ago": {at.AddDate(10, 0, 0), "expired at 2026-11-07T04:40:00Z", 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, fs, err := manifest.VerifyEnvelope(env, ssh, policyFor(t, "", "one"), test.at)
			if err != nil {
				t.Fatal(err)
			}
			v := manifest.NewVerdict()
			v.Set(fs...)
			f, _ := v.Fact(manifest.FactExpiry)
			if f.State != manifest.Attested || f.Detail != test.detail || v.Exit() != 0 {
				t.Errorf("expiry is %v %q, exit %d", f, f.Detail, v.Exit())
			}
			v.RequireCurrent()
			if v.Exit() != test.exit || test.exit > 0 && !strings.Contains(v.Sentence(), test.detail) {
				t.Errorf("exit %d, want %d: %s", v.Exit(), test.exit, v.Sentence())
			}
		})
	}
}

func TestVerifyMalformed(t *testing.T) {
	env, ssh := signed(t)
	policy := policyFor(t, "", "one")
	key, _ := testKey("one")
	foreign, err := manifest.Sign([]byte(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"urn:x-leafproof:tombstone/v1"}`), key)
	if err != nil {
		t.Fatal(err)
	}
	// A good signature over a statement of another type is no manifest.
	if m, _, err := manifest.VerifyEnvelope(foreign, "", policy, at); m != nil || !errors.Is(err, manifest.ErrMalformed) || errors.Is(err, manifest.ErrSignature) {
		t.Errorf("a tombstone as a manifest: %v, %v", m, err)
	}
	damaged := env
	payload, _ := env.PayloadBytes()
	payload[0] = 'x'
	damaged.Payload = base64.StdEncoding.EncodeToString(payload)
	m, fs, err := manifest.VerifyEnvelope(damaged, ssh, policy, at)
	if m != nil || !errors.Is(err, manifest.ErrSignature) || !strings.HasPrefix(facts(fs)["signature"], "MISMATCH") {
		t.Errorf("a damaged payload: %v, %v, %v", m, fs, err)
	}
	empty := manifest.Envelope{}
	if _, _, err := manifest.VerifyEnvelope(empty, "", nil, at); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("an empty envelope: %v", err)
	}
}

// TestEveryBit flips each bit of an envelope in turn, in the long payload one bit
// of every fifth byte: none is accepted, and the checks that refuse them are counted.
func TestEveryBit(t *testing.T) {
	env, ssh := signed(t)
	policy := policyFor(t, "", "one")
	doc := env.Bytes()
	refused := map[string]int{}
	start := bytes.Index(doc, []byte(env.Payload))
	bits := 0
	for i := range len(doc) * 8 {
		if at := i / 8; at > start+64 && at < start+len(env.Payload)-64 && (at%5 > 0 || i%8 != at%8) {
			continue
		}
		bits++
		flipped := bytes.Clone(doc)
		flipped[i/8] ^= 1 << (i % 8)
		got, err := manifest.ParseEnvelope(flipped)
		if err != nil {
			refused["form of the envelope"]++
			continue
		}
		_, fs, err := manifest.VerifyEnvelope(got, ssh, policy, at)
		v := manifest.NewVerdict()
		v.Set(fs...)
		switch f, _ := v.Fact(manifest.FactSignature); {
		case errors.Is(err, manifest.ErrSignature):
			refused["signature, payload damaged too"]++
		case err != nil:
			refused["other"]++
		case v.Exit() == 3 && strings.Contains(f.Reason, "SSH"):
			refused["SSH signature"]++
		case v.Exit() == 3:
			refused["signature"]++
		default:
			t.Fatalf("bit %d flipped: exit %d", i, v.Exit())
		}
	}
	t.Logf("%d bits: %v", bits, refused)
	if refused["other"] > 0 || refused["SSH signature"] == 0 || refused["form of the envelope"] == 0 {
		t.Errorf("refused by %v", refused)
	}

	// Inside the decoded payload, where the form cannot help, and without the SSH
	// signature: the DSSE signature alone refuses every bit.
	payload, err := env.PayloadBytes()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(payload); i += 3 {
		flipped := bytes.Clone(payload)
		flipped[i] ^= 1 << (i % 8)
		one := env
		one.Payload = base64.StdEncoding.EncodeToString(flipped)
		_, fs, err := manifest.VerifyEnvelope(one, "", policy, at)
		if f := facts(fs)["signature"]; !strings.HasPrefix(f, "MISMATCH(the signature by") || err != nil && !errors.Is(err, manifest.ErrSignature) {
			t.Fatalf("payload byte %d flipped: %s, %v", i, f, err)
		}
	}

	// And every bit of the SSH signature beside a good envelope.
	for i := range len(ssh) * 8 {
		flipped := []byte(ssh)
		flipped[i/8] ^= 1 << (i % 8)
		_, fs, err := manifest.VerifyEnvelope(env, string(flipped), policy, at)
		if f := facts(fs)["signature"]; err != nil || !strings.HasPrefix(f, "MISMATCH(the SSH signature") {
			t.Fatalf("bit %d of the SSH signature flipped: %s, %v", i, f, err)
		}
	}
}

func BenchmarkVerifyEnvelope(b *testing.B) {
	env, ssh := signed(b)
	policy := policyFor(b, "", "one")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := manifest.VerifyEnvelope(env, ssh, policy, at); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSecureSystemsLibAltered: the reference implementation of DSSE refuses our
// envelope with a byte of the payload or of the signature altered.
func TestSecureSystemsLibAltered(t *testing.T) {
	env, _ := signed(t)
	_, pub := testKey("one")
	v, err := dsse.NewEnvelopeVerifier(theirVerifier{pub})
	if err != nil {
		t.Fatal(err)
	}
	flip := func(text string, at int) string {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		b[at%len(b)] ^= 1
		return base64.StdEncoding.EncodeToString(b)
	}
	for i := -1; i < 2000; i += 97 {
		for _, what := range []string{"payload", "signature"} {
			their := dsse.Envelope{PayloadType: env.PayloadType, Payload: env.Payload, Signatures: []dsse.Signature{{KeyID: env.Signatures[0].KeyID, Sig: env.Signatures[0].Sig}}}
			switch {
			case i < 0: // as it is
			case what == "payload":
				their.Payload = flip(their.Payload, i)
			default:
				their.Signatures[0].Sig = flip(their.Signatures[0].Sig, i)
			}
			if _, err := v.Verify(t.Context(), &their); (err == nil) != (i < 0) {
				t.Errorf("byte %d of the %s: %v", i, what, err)
			}
		}
	}
}

// TestFreeText: what a statement may say freely does not pass for more of a detail.
func TestFreeText(t *testing.T) {
	p := predicate()
	p.ArtifactRef.SourceVersion.SnapshotID = new(`7, observed 2030-01-01T00:00:00Z "x"`)
	key, pub := testKey("one")
	payload := statement(t, p)
	env, err := manifest.Sign(payload, key)
	if err != nil {
		t.Fatal(err)
	}
	_, facts, err := manifest.VerifyEnvelope(env, "", manifest.AdHoc(pub), at)
	if err != nil {
		t.Fatal(err)
	}
	v := manifest.NewVerdict()
	v.Set(facts...)
	const want = `source infra.incident-events, snapshot "7, observed 2030-01-01T00:00:00Z \"x\"", observed 2026-11-06T04:39:50Z`
	if f, _ := v.Fact(manifest.FactSource); f.Detail != want {
		t.Errorf("source is %s, want %s", f.Detail, want)
	}
	r := receiptBody(t, "one")
	r.Principal = "bob at 2030-01-01T00:00:00Z, complete: 0 bytes disclosed"
	if got := r.String(); !strings.HasPrefix(got, `query by "bob at 2030-01-01T00:00:00Z, complete: 0 bytes disclosed" at 2026-11-06T04:50:00Z, page_limit: `) {
		t.Errorf("the receipt says %s", got)
	}
}

// TestBeforeItsTime: who asks about a moment before the statement was made is told.
func TestBeforeItsTime(t *testing.T) {
	env, ssh := signed(t)
	p := predicate()
	issued, err := manifest.ParseTime(p.IssuedAt)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]string{
		issued:                       "created " + p.ArtifactRef.CreatedAt + ", issued " + p.IssuedAt,
		issued.Add(-time.Nanosecond): "created " + p.ArtifactRef.CreatedAt + ", issued " + p.IssuedAt + ", after " + manifest.FormatTime(issued.Add(-1)) + ", as of which this is judged",
	} {
		_, facts, err := manifest.VerifyEnvelope(env, ssh, policyFor(t, "", "one"), at)
		if err != nil {
			t.Fatal(err)
		}
		v := manifest.NewVerdict()
		v.Set(facts...)
		if f, _ := v.Fact(manifest.FactTimes); f.Detail != want {
			t.Errorf("times is %s, want %s", f.Detail, want)
		}
	}
}
