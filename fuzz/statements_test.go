package fuzz_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/merkle"
)

// statements is one payload of each kind, by a fixed key.
func statements(f *testing.F) (payloads [][]byte, key ed25519.PrivateKey) {
	f.Helper()
	key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		f.Fatal(err)
	}
	head := manifest.Head{
		ArtifactID: "art_" + strings.Repeat("a", 32), ManifestID: "mf_" + strings.Repeat("b", 32), Scope: manifest.Scope{TenantID: "local"},
		Issuer: manifest.Issuer{KeyID: pub.Fingerprint()}, IssuedAt: "2026-11-06T04:50:00Z", Nonce: "000102030405060708090a0b0c0d0e0f",
	}
	root, id := merkle.Sum(nil).String(), strings.Repeat("c", 32)
	decided := manifest.Decided{Epoch: 1, CheckedAt: head.IssuedAt, MaxStaleMS: 1000}
	for _, body := range []manifest.Body{
		&manifest.IndexAdded{Head: head, Index: manifest.Index{Path: "/a", Root: root, Size: 1, Spec: map[string]any{"path": "/a"}, SpecDigest: root}},
		&manifest.Superseded{Head: head, By: manifest.Successor{ArtifactID: "art_" + id, ManifestID: "mf_" + id}, Kind: "redact"},
		&manifest.Tombstone{Head: head, RequestedBy: "owner", Authority: decided, Reason: new("asked"), EffectiveAt: head.IssuedAt},
		&manifest.Deletion{Head: head, TombstoneID: "tb_" + id, Complete: true, Locations: []manifest.Location{
			{Part: "bytes", Place: "objects", State: "deleted", Method: new("unlink"), At: &head.IssuedAt},
		}},
		&manifest.Audit{Head: head, Tool: "x", Checked: []manifest.Rebuilt{{Part: "bytes", Claimed: root, Found: root, Outcome: "same"}}},
		&manifest.Receipt{
			Head: head, Principal: "owner", Authority: decided,
			Request: manifest.Request{Action: "read", Selector: map[string]any{"bytes": []any{0.0, 9.0}}, QID: "q_" + id},
			Order:   "document", Examined: manifest.Examined{Basis: "range", Bytes: 9},
			Result: manifest.Result{Bytes: 9, Digest: root}, Completion: manifest.Completion{Stop: "complete", More: "no"},
			Capture: manifest.Captured{Status: "unknown"}, Disclosed: manifest.Disclosed{Ranges: [][2]int64{{0, 9}}, Exact: true},
			Page: manifest.Page{Number: new(int64(1))}, Assurance: "attested",
		},
		&manifest.Admission{
			Head: head, ReceiptID: "rc_" + id, ReceiptDigest: root, Size: 9, Admitted: [][2]int64{{0, 4}},
			Omitted: []manifest.Omitted{{Range: [2]int64{4, 9}, Reason: "elided"}}, SerialisedDigest: root,
		},
	} {
		payload, err := manifest.Encode(body)
		if err != nil {
			f.Fatal(err)
		}
		payloads = append(payloads, payload)
	}
	return payloads, key
}

// FuzzStatement: a payload is a statement of one kind at most, is written again
// byte for byte, and is vouched for only as it was signed.
func FuzzStatement(f *testing.F) {
	payloads, key := statements(f)
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		f.Fatal(err)
	}
	var roles []string
	for _, k := range manifest.Kinds() {
		roles = append(roles, k.Role)
	}
	policy, err := manifest.NewPolicy("p", manifest.Key{Name: "k", Public: pub, Roles: roles})
	if err != nil {
		f.Fatal(err)
	}
	genuine := map[string]manifest.Envelope{}
	for _, p := range payloads {
		f.Add(p)
		f.Add(bytes.Replace(p, []byte(`"nonce"`), []byte(`"Nonce"`), 1))
		env, err := manifest.Sign(p, key)
		if err != nil {
			f.Fatal(err)
		}
		kind, err := manifest.StatementKind(p)
		if err != nil {
			f.Fatal(err)
		}
		genuine[kind] = env
	}
	at := time.Date(2026, 11, 7, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, payload []byte) {
		parsed := 0
		for _, kind := range manifest.Kinds() {
			d, err := manifest.ParseStatement(payload, kind.PredicateType)
			if (d == nil) != (err != nil) {
				t.Fatalf("ParseStatement = %v, %v", d, err)
			}
			if err != nil {
				continue
			}
			parsed++
			if again, err := manifest.Encode(d.Body); err != nil || !bytes.Equal(again, payload) {
				t.Errorf("%q is written as %q, %v", payload, again, err)
			}
			// The signature of the genuine one of this kind, over these bytes.
			env := genuine[kind.PredicateType]
			real, err := env.PayloadBytes()
			if err != nil {
				t.Fatal(err)
			}
			forged, err := manifest.Sign(payload, key)
			if err != nil {
				t.Fatal(err)
			}
			forged.Signatures = env.Signatures
			if d, _, err := manifest.VerifyStatement(forged, kind.PredicateType, policy, at); err == nil && !bytes.Equal(real, payload) {
				t.Errorf("vouched for, never signed: %q", d.Payload)
			}
		}
		if parsed > 1 {
			t.Errorf("%q is %d kinds", payload, parsed)
		}
	})
}
