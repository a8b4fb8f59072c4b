package fuzz_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"leafproof/manifest"
	"leafproof/merkle"
)

// signedManifest is a small manifest, its envelope and its SSH signature, by a
// fixed key.
func signedManifest(f *testing.F) (payload []byte, env manifest.Envelope, ssh string, pub manifest.PublicKey) {
	f.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		f.Fatal(err)
	}
	root := merkle.Sum([]byte("x")).String()
	payload, err = manifest.NewStatement(manifest.Predicate{
		ArtifactRef: manifest.ArtifactRef{
			ContentHash: "blake3:" + root, CreatedAt: "2026-11-06T04:40:00Z",
			Completeness: manifest.Completeness{
				Status: manifest.StatusPartial, Coverage: map[string]any{"region": "eu-west"},
				Omissions: []manifest.Omission{{What: "us-east", Reason: "timeout"}},
			},
			Scope: manifest.Scope{TenantID: "local"},
			Retrieval: manifest.Retrieval{
				Resolver: manifest.Resolver, Consistency: manifest.Consistency,
				Selectors: []string{manifest.SelectorByteRange},
			},
		},
		Bytes:    manifest.Bytes{Size: 1, MediaType: "text/plain", Root: root, Tree: manifest.DefaultTree},
		Lineage:  manifest.Lineage{Kind: "capture"},
		Issuer:   manifest.Issuer{KeyID: pub.Fingerprint()},
		IssuedAt: "2026-11-06T04:40:01Z", Nonce: "000102030405060708090a0b0c0d0e0f",
	})
	if err != nil {
		f.Fatal(err)
	}
	if env, err = manifest.Sign(payload, key); err != nil {
		f.Fatal(err)
	}
	if ssh, err = manifest.SignSSH(payload, manifest.NamespaceManifest, key); err != nil {
		f.Fatal(err)
	}
	return payload, env, ssh, pub
}

// FuzzCanonicalJSON: what is accepted is what another canonicaliser of RFC 8785
// writes, and what our own decoder and encoder give back.
func FuzzCanonicalJSON(f *testing.F) {
	payload, env, _, _ := signedManifest(f)
	f.Add(payload)
	f.Add(env.Bytes())
	for _, s := range []string{`{"a":[1,-2,9007199254740991],"b":{"":null,"x\"y":true}}`, `["\u0000\b\\é😂"]`, `{"a":1,"a":2}`, `[1.0]`, `[-0]`, `["\ud834"]`, `[[[]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		err := manifest.CheckCanonical(doc)
		if err != nil {
			if !errors.Is(err, manifest.ErrNotCanonical) && !errors.Is(err, manifest.ErrTooLarge) {
				t.Errorf("CheckCanonical(%q) = %v", doc, err)
			}
			return
		}
		var v any
		if err := manifest.Decode(doc, &v); err != nil {
			t.Errorf("Decode(%q) = %v", doc, err)
		}
		if doc[0] != '{' && doc[0] != '[' {
			return // the twin takes no scalars
		}
		if twin, err := jcs.Transform(doc); err != nil || !bytes.Equal(twin, doc) {
			t.Errorf("the twin writes %q, %v for %q", twin, err, doc)
		}
	})
}

// FuzzEnvelope: an envelope has one spelling, and none but the one that was
// signed is vouched for.
func FuzzEnvelope(f *testing.F) {
	payload, env, ssh, pub := signedManifest(f)
	f.Add(env.Bytes(), ssh)
	f.Add(env.Bytes(), "")
	f.Add([]byte(`{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[]}`), "")
	policy := manifest.AdHoc(pub)
	at := time.Date(2026, 11, 7, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, doc []byte, ssh string) {
		e, err := manifest.ParseEnvelope(doc)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Bytes(), doc) {
			t.Errorf("%q is written as %q", doc, e.Bytes())
		}
		m, facts, err := manifest.VerifyEnvelope(e, ssh, policy, at)
		if (m == nil) != (err != nil) {
			t.Errorf("VerifyEnvelope = %v, %v", m, err)
		}
		for _, fact := range facts {
			if fact.State == manifest.Attested && !bytes.Equal(m.Payload, payload) {
				t.Errorf("a payload that was never signed is %v: %q", fact, m.Payload)
			}
		}
	})
}

// FuzzManifest: what parses is written again byte for byte, and its id follows
// from it.
func FuzzManifest(f *testing.F) {
	payload, _, _, _ := signedManifest(f)
	f.Add(payload)
	f.Add(bytes.Replace(payload, []byte(`"transform":null`), []byte(`"transform":{}`), 1))
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"urn:x-leafproof:manifest/v1"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := manifest.ParseManifest(payload)
		if err != nil {
			return
		}
		again, err := manifest.NewStatement(m.Predicate)
		if err != nil || !bytes.Equal(again, payload) {
			t.Errorf("%q is written as %q, %v", payload, again, err)
		}
		if m.ManifestID != manifest.ManifestID(payload) || m.Root.String() != m.Predicate.Bytes.Root {
			t.Errorf("ids %s, root %s", m.ManifestID, m.Root)
		}
		if diff := manifest.RefDiff(m.Predicate.ArtifactRef, m.Predicate.ArtifactRef); diff != nil {
			t.Errorf("a reference differs from itself at %q", diff)
		}
	})
}

// FuzzRefDiff: two references are the same exactly when their bytes are, and
// what is said about a difference is short whatever they hold.
func FuzzRefDiff(f *testing.F) {
	f.Add([]byte(`{"a":[1,2]}`), []byte(`{"a":[1,3],"b":null}`))
	f.Add([]byte(`{"a":[[],{"x":1}]}`), []byte(`{"a":[[0],{"y":1}]}`))
	f.Add([]byte(`{"\"":"\\","\\~/":{}}`), []byte(`{"\"":"\"","\\~0":[]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var x, y manifest.ArtifactRef
		if manifest.Decode(a, &x.Completeness.Coverage) != nil || manifest.Decode(b, &y.Completeness.Coverage) != nil {
			return
		}
		diff := manifest.RefDiff(x, y)
		if (len(diff) == 0) != bytes.Equal(a, b) || len(diff) > 17 {
			t.Errorf("%q and %q differ at %q", a, b, diff)
		}
		if back := manifest.RefDiff(y, x); !slices.Equal(diff, back) {
			t.Errorf("%q and %q differ at %q, and the other way at %q", a, b, diff, back)
		}
		for _, at := range diff {
			if len(at) > 203 {
				t.Errorf("a path of %d bytes: %q", len(at), at)
			}
		}
	})
}

// FuzzPrintable: one short line of what shows, which is shown as it is.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J  \u202e\u0301\u0301\u0301\u0301\xff")
	f.Add(strings.Repeat("\u3164é ", 100))
	f.Fuzz(func(t *testing.T, s string) {
		got := manifest.Printable(s)
		if manifest.Printable(got) != got || utf8.RuneCountInString(got) > 200 || strings.Contains(got, "  ") || strings.Trim(got, " ") != got {
			t.Errorf("%q is printed as %q", s, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%q is printed with %U", s, r)
			}
		}
	})
}

// FuzzPolicy: what parses prints as a policy that is the same.
func FuzzPolicy(f *testing.F) {
	_, _, _, pub := signedManifest(f)
	f.Add([]byte("policy p version 1\n"))
	f.Add([]byte("# c\npolicy p version 7 expires 2027-02-01T00:00:00Z\nkey " + pub.OpenSSHLine() +
		" name=a roles=manifest,audit tenants=t.*.x,u* sources=* not-before=2026-01-01T00:00:00Z not-after=2027-01-01T00:00:00Z # c\n" +
		"log log.holdfast.example/acme+4156a065+ARMPqenz9SIEvi9nNJ+aScNtG9TrlMZwvDRwgYUVwH2W\nretired " + pub.Fingerprint() + " at=2026-10-01T00:00:00Z\ncompromised " + pub.Fingerprint() + " since=2026-10-01T00:00:00.5Z\nthreshold audit 1\n"))
	f.Add([]byte("policy p version 1\nlog x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := manifest.ParsePolicy(text)
		if err != nil {
			if !errors.Is(err, manifest.ErrPolicy) {
				t.Errorf("ParsePolicy(%q) = %v", text, err)
			}
			return
		}
		again, err := manifest.ParsePolicy([]byte(p.String()))
		if err != nil || again.String() != p.String() {
			t.Errorf("%q prints as %q, which parses to %v, %v", text, p, again, err)
		}
		for _, k := range p.Keys() {
			_, _ = p.Judge(manifest.RoleManifest, "local", "", k.Public.Fingerprint(), time.Unix(0, 0))
		}
		for line := range strings.Lines(p.AllowedSigners()) {
			if f := strings.Fields(line); len(f) != 5 || f[2] != "ssh-ed25519" {
				t.Errorf("%q gives the signer %q", text, line)
			}
		}
		if next, err := p.Next(manifest.ExpireAt(time.Time{})); err == nil && (next.Version() != p.Version()+1 || len(next.Keys()) != len(p.Keys())) {
			t.Errorf("after %q comes %q", text, next)
		}
	})
}

// FuzzPolicySignatures: the next version of a policy is the one that was signed,
// and no other.
func FuzzPolicySignatures(f *testing.F) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	_, _, ssh, pub := signedManifest(f)
	line := "key " + pub.OpenSSHLine() + " name=a roles=policy tenants=*\n"
	before, err := manifest.ParsePolicy([]byte("policy p version 1\n" + line))
	if err != nil {
		f.Fatal(err)
	}
	text := []byte("policy p version 2\n" + line + "# signed\n")
	armored, err := manifest.SignSSH(text, manifest.NamespacePolicy, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, []byte(armored))
	f.Add(text, []byte(armored+armored))
	f.Add(text, []byte(ssh+armored))
	f.Add([]byte("policy p version 2\n"), []byte(nil))
	f.Fuzz(func(t *testing.T, doc, sigs []byte) {
		p, signers, err := manifest.Succeeds(before, manifest.SignedPolicy{Text: doc, Signatures: sigs})
		if err == nil && (!bytes.Equal(doc, text) || len(signers) != 1 || p.Version() != 2) {
			t.Errorf("%q with %q is %v, signed by %q", doc, sigs, p, signers)
		}
	})
}

// FuzzPublicKey: the text of a key gives a key that is written in two forms, each
// of which gives it back.
func FuzzPublicKey(f *testing.F) {
	_, _, _, pub := signedManifest(f)
	for _, s := range []string{
		pub.OpenSSHLine(), pub.OpenSSHLine() + " me@host\r\n", "# c\n\n" + pub.OpenSSHLine() + "\n", pub.PEM(), pub.PEM() + pub.PEM(),
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := manifest.ParsePublicKey(text)
		if err != nil {
			if !errors.Is(err, manifest.ErrKey) || !k.IsZero() {
				t.Errorf("ParsePublicKey(%q) = %v, %v", text, k, err)
			}
			return
		}
		for _, form := range []string{k.OpenSSHLine(), k.PEM()} {
			if again, err := manifest.ParsePublicKey([]byte(form)); err != nil || again != k {
				t.Errorf("%q is written as %q, which gives %v, %v", text, form, again, err)
			}
		}
		if again, err := manifest.NewPublicKey(k.Bytes()); err != nil || again != k {
			t.Errorf("the bytes of %s are no key: %v", k.Fingerprint(), err)
		}
	})
}

// FuzzVerifierKey: the key of a log or a witness has one spelling.
func FuzzVerifierKey(f *testing.F) {
	f.Add("log.holdfast.example/acme+4156a065+ARMPqenz9SIEvi9nNJ+aScNtG9TrlMZwvDRwgYUVwH2W")
	f.Add("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := manifest.ParseVerifierKey(s)
		if err == nil && v.String() != s {
			t.Errorf("%q is written as %q", s, v)
		}
		if err != nil && !errors.Is(err, manifest.ErrKey) && !errors.Is(err, manifest.ErrName) {
			t.Errorf("ParseVerifierKey(%q) = %v", s, err)
		}
	})
}

// FuzzSSHSIG: a signature verifies for the payload that was signed and for no
// other, and however its lines are cut, it is written in one way.
func FuzzSSHSIG(f *testing.F) {
	payload, _, ssh, pub := signedManifest(f)
	f.Add(ssh, payload)
	f.Add(ssh, []byte("x"))
	f.Add("-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAAAQ==\n-----END SSH SIGNATURE-----\n", []byte{})
	f.Fuzz(func(t *testing.T, armored string, message []byte) {
		s, err := manifest.ParseSSH(armored)
		if err != nil {
			if !s.Key().IsZero() {
				t.Errorf("ParseSSH(%q) failed but returned a key", armored)
			}
			return
		}
		if again, err := manifest.ParseSSH(s.Armor()); err != nil || again.Armor() != s.Armor() || again.Key() != s.Key() {
			t.Errorf("%q is written as %q, which gives %v", armored, s.Armor(), err)
		}
		if s.Verify(message, manifest.NamespaceManifest, pub) == nil && (s.Armor() != ssh || !bytes.Equal(message, payload)) {
			t.Errorf("%q verifies for %q", armored, message)
		}
	})
}
