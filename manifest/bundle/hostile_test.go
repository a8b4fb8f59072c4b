package bundle_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// signAs is source, signed by another key that calls itself the issuer.
func signAs(t testing.TB, data []byte, key string) bundle.Source {
	t.Helper()
	src := sourceOf(t, data, "text", func(p *manifest.Predicate) {
		pub, err := manifest.PublicKeyOf(signer(key))
		if err != nil {
			t.Fatal(err)
		}
		p.Issuer.KeyID = pub.Fingerprint()
	})
	var err error
	if src.Envelope, err = manifest.Sign(src.Manifest.Payload, signer(key)); err != nil {
		t.Fatal(err)
	}
	if src.SSH, err = manifest.SignSSH(src.Manifest.Payload, manifest.NamespaceManifest, signer(key)); err != nil {
		t.Fatal(err)
	}
	return src
}

// TestHostile is what somebody without the key can make of a bundle. Whatever it
// is, it is refused, or found to have nobody to vouch for it, with the reason.
func TestHostile(t *testing.T) {
	data := lines(300)
	some := merkle.Range{Start: 2000, End: 2600}
	src := source(t, data, "text")
	of := func(src bundle.Source) []byte {
		b, err := bundle.Bytes(src, some)
		return write(t, b, err)
	}
	file := of(src)
	edit := func(old, new string) []byte {
		if !bytes.Contains(file, []byte(old)) {
			t.Fatalf("the file has no %s", old)
		}
		return reseal(bytes.Replace(file, []byte(old), []byte(new), 1))
	}
	with := func(f func(*bundle.Source)) []byte {
		changed := src
		f(&changed)
		return of(changed)
	}
	// payload signs other bytes with the right key: what nobody but the signer can do.
	payload := func(f func(string) string) []byte {
		text := f(string(src.Manifest.Payload))
		if text == string(src.Manifest.Payload) {
			t.Fatal("the payload did not change")
		}
		env, err := manifest.Sign([]byte(text), signer("one"))
		if err != nil {
			t.Fatal(err)
		}
		return with(func(s *bundle.Source) { s.Envelope, s.SSH = env, "" })
	}
	swap := func(old, new string) []byte {
		return payload(func(s string) string { return strings.Replace(s, old, new, 1) })
	}
	sig, id := src.Envelope.Signatures[0], src.Envelope.Signatures[0].KeyID
	elsewhere := signAs(t, bytes.ToUpper(data), "mallory")
	posing := elsewhere
	posing.Envelope.Signatures = []manifest.Signature{{KeyID: id, Sig: elsewhere.Envelope.Signatures[0].Sig}}
	issued := sourceOf(t, bytes.ToUpper(data), "text", func(*manifest.Predicate) {}) // names the issuer that signs for the reader
	byMallory, err := manifest.Sign(issued.Manifest.Payload, signer("mallory"))
	if err != nil {
		t.Fatal(err)
	}
	pretended := issued
	pretended.Envelope = byMallory
	pretended.Envelope.Signatures = []manifest.Signature{{KeyID: id, Sig: byMallory.Signatures[0].Sig}}
	pretended.SSH = ""
	pem := "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA"
	receipt := signBody(t, receiptFor(t, src, selector.RangeSelector("bytes", 2000, 2600), data[2000:2600]), "store")
	for name, test := range map[string]struct {
		file []byte
		fact string // whose reason is looked at; "" for a malformed file
		exit int
		says string
	}{
		"all of it replaced, another key":      {of(elsewhere), manifest.FactSignature, 2, "unverifiable(unknown key "},
		"all of it replaced, the key's name":   {of(posing), manifest.FactSignature, 3, "MISMATCH("},
		"all of it replaced, the issuer's too": {of(pretended), manifest.FactSignature, 3, "MISMATCH(the signature by " + id + " does not verify)"},
		"all of it replaced, the old id": {payload(func(s string) string {
			return strings.ReplaceAll(s, src.Manifest.Root.String(), elsewhere.Manifest.Root.String())
		}), "", 3, "id does not match its statement"},
		"another payload, the old signature": {with(func(s *bundle.Source) {
			s.Envelope.Payload = base64.StdEncoding.EncodeToString(elsewhere.Manifest.Payload)
		}), manifest.FactSignature, 3, "MISMATCH(the signature by " + id + " does not verify)"},
		"a receipt for a manifest":   {with(func(s *bundle.Source) { s.Envelope, s.SSH = receipt, "" }), "", 3, `/predicateType: malformed: "urn:x-leafproof:read-receipt/v1" is not "urn:x-leafproof:manifest/v1"`},
		"another payload type":       {edit(`"payloadType":"application/vnd.in-toto+json"`, `"payloadType":"application/json"`), "", 3, "/payloadType"},
		"no signature":               {with(func(s *bundle.Source) { s.Envelope.Signatures = nil }), "", 3, "0 signatures"},
		"the same signature twice":   {with(func(s *bundle.Source) { s.Envelope.Signatures = []manifest.Signature{sig, sig} }), "", 3, "a key stands twice"},
		"no known key":               {with(func(s *bundle.Source) { *s = signAs(t, data, "nobody") }), manifest.FactKey, 2, "unverifiable(unknown key "},
		"its own key in the header":  {edit(`{"claims"`, `{"claims"`+`:[],"key":"`+pem+`","claims"`), "", 3, "header"},
		"its own key in front":       {edit(`,"manifest":{`, `,"keys":["`+pem+`"],"manifest":{`), "", 3, "header"},
		"its own key in a statement": {swap(`"issuer":{"id":null,`, `"issuer":{"id":null,"key":"`+pem+`",`), "", 3, "unknown member"},
		"a member twice":             {edit(`"ssh":"`, `"ssh":"","ssh":"`), "", 3, "header"},
		"a member twice, signed":     {swap(`"scope":{`, `"scope":{},"scope":{`), "", 3, "twice"},
		"Scope beside scope":         {edit(`"scope":{`, `"Scope":{"run_id":null,"tenant_id":"evil"},"scope":{`), "", 3, "header"},
		"Scope beside scope, signed": {payload(func(s string) string {
			return strings.Replace(s, `"artifact_ref":{`, `"artifact_ref":{"Scope":{"run_id":null,"tenant_id":"evil"},`, 1)
		}), "", 3, "unknown member"},
		"Scope for scope":           {edit(`"scope":{`, `"Scope":{`), "", 3, "header"},
		"a NUL in a name":           {swap(`"tenant_id":"acme"`, `"tenant_id":"ac\u0000e"`), "", 3, "not a name"},
		"a NUL in a member":         {edit(`"claims"`, `"cl\u0000aims"`), "", 3, "header"},
		"1e400":                     {swap(`"records":{"count":`, `"records":{"count":1e400,"x":`), "", 3, "not a plain integer"},
		"1e400 in the claim":        {edit(fmt.Sprintf(`"size":%d}`, len(data)), `"size":1e400}`), "", 3, "not a plain integer"},
		"a lone surrogate":          {swap(`"region":"eu"`, `"region":"\ud834"`), "", 3, "surrogate"},
		"a lone surrogate, header":  {edit(`"ssh":"`, `"ssh":"\udc00`), "", 3, "surrogate"},
		"10,000 levels":             {swap(`"coverage":{"region":"eu"}`, `"coverage":`+strings.Repeat(`{"a":`, 10_000)+"1"+strings.Repeat("}", 10_000)), "", 3, "levels"},
		"10,000 levels, header":     {edit(`"claims":[`, `"claims":`+strings.Repeat("[", 10_000)), "", 3, "levels"},
		"DSSE good, SSH bad":        {badSSHBits(t, src, file), manifest.FactSignature, 3, "MISMATCH(the SSH signature: signature does not verify"},
		"DSSE good, SSH of another": {badSSH(t, src, file), manifest.FactSignature, 3, "MISMATCH(the SSH signature: signature does not verify"},
		"DSSE good, SSH by another": {with(func(s *bundle.Source) {
			s.SSH = signAs(t, data, "two").SSH
		}), manifest.FactSignature, 3, "MISMATCH(the SSH signature"},
		"DSSE bad, SSH good": {badSignature(t, src, file), manifest.FactSignature, 3, "MISMATCH(the signature by " + id + " does not verify)"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := verify(test.file, storePolicy(t), nil)
			if test.fact == "" {
				if !errors.Is(err, bundle.ErrMalformed) || !strings.Contains(err.Error(), test.says) {
					t.Fatalf("error = %.300v, want ErrMalformed that says %q", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f, _ := res.Verdict.Fact(test.fact)
			if !strings.HasPrefix(f.String(), test.says) || res.Verdict.Exit() != test.exit {
				t.Errorf("%s is %s, exit %d; want %s and %d", test.fact, f, res.Verdict.Exit(), test.says, test.exit)
			}
			for _, f := range res.Verdict.Facts {
				if f.State == manifest.Attested {
					t.Errorf("%s is %s", f.Name, f)
				}
			}
		})
	}
}

// badSSHBits flips a bit in the SSH signature.
func badSSHBits(t testing.TB, src bundle.Source, file []byte) []byte {
	t.Helper()
	i := bytes.Index(file, []byte("END SSH")) - 40
	out := bytes.Clone(file)
	if out[i] ^= 1; out[i] == '\\' || out[i] == '"' {
		t.Fatal("that byte is no base64")
	}
	return reseal(out)
}

// TestOneKeyTwoNames, case 65: a key that a policy admits counts once, under whatever names
// it signs or stands.
func TestOneKeyTwoNames(t *testing.T) {
	one, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	line := func(name string) string {
		return "key " + one.OpenSSHLine() + " name=" + name + " roles=manifest tenants=*\n"
	}
	if _, err := manifest.ParsePolicy([]byte("policy p version 1\n" + line("a") + line("b") + "threshold manifest 2\n")); !errors.Is(err, manifest.ErrPolicy) {
		t.Errorf("a policy with one key under two names: error = %v, want ErrPolicy", err)
	}
	two, err := manifest.PublicKeyOf(signer("two"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.ParsePolicy([]byte("policy p version 1\n" + line("a") + "key " + two.OpenSSHLine() + " name=b roles=manifest tenants=*\nthreshold manifest 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	src := source(t, lines(20), "text")
	both, err := src.Envelope.Cosign(signer("two"))
	if err != nil {
		t.Fatal(err)
	}
	twice := src.Envelope
	twice.Signatures = []manifest.Signature{src.Envelope.Signatures[0], {KeyID: two.Fingerprint(), Sig: src.Envelope.Signatures[0].Sig}}
	if twice.Signatures[0].KeyID > twice.Signatures[1].KeyID {
		twice.Signatures[0], twice.Signatures[1] = twice.Signatures[1], twice.Signatures[0]
	}
	for name, test := range map[string]struct {
		env  manifest.Envelope
		exit int
		says string
	}{
		"two keys":                     {both, 0, "attested(a+b, manifest)"},
		"one":                          {src.Envelope, 2, "unverifiable(too few signatures: 1 of 2"},
		"one signature under two keys": {twice, 3, "MISMATCH(the signature by " + two.Fingerprint()},
	} {
		src.Envelope = test.env
		b, err := bundle.Bytes(src, merkle.Range{Start: 3, End: 9})
		res, err := verify(write(t, b, err), p, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if f, _ := res.Verdict.Fact(manifest.FactSignature); !strings.HasPrefix(f.String(), test.says) || res.Verdict.Exit() != test.exit {
			t.Errorf("%s: signature is %s, exit %d; want %s and %d", name, f, res.Verdict.Exit(), test.says, test.exit)
		}
	}
}
