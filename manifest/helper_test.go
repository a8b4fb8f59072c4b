package manifest_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/merkle"
)

// vector reads a file of the shared test vectors, or skips.
func vector(t testing.TB, name string) []byte {
	t.Helper()
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Skipf("test vectors are absent: %v", err)
	}
	return b
}

// vectorJSON decodes a vector with the standard library's decoder.
func vectorJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := json.Unmarshal(vector(t, name), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// testKey makes the same key for the same name.
func testKey(name string) (crypto.Signer, manifest.PublicKey) {
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		panic(err)
	}
	return key, pub
}

const content = "the value the model never held\n"

// predicate is the incident snapshot of the README, signed by the key "one".
func predicate() manifest.Predicate {
	_, pub := testKey("one")
	root := merkle.Sum([]byte(content)).String()
	return manifest.Predicate{
		ArtifactRef: manifest.ArtifactRef{
			ContentHash: "blake3:" + root, ToolCallID: new("call_incident_042"), SchemaVersion: new("example.incident-snapshot.v1"),
			CreatedAt: "2026-11-06T04:40:00Z",
			SourceVersion: manifest.SourceVersion{
				SourceID: new("infra.incident-events"), SnapshotID: new("infra_snapshot_20261106_043950"), ObservedAt: new("2026-11-06T04:39:50Z"),
			},
			Completeness: manifest.Completeness{
				Status: manifest.StatusPartial, Coverage: map[string]any{"region": "eu-west", "shards": []any{1.0, 2.0}}, Records: new(int64(1)),
				Omissions:  []manifest.Omission{{What: map[string]any{"region": "us-east"}, Reason: "timeout", Detail: new("3 attempts")}},
				Redactions: []manifest.Redaction{{Path: "/user/email", Records: new(int64(1)), Method: new("drop"), Reason: "policy:pii.v3"}},
			},
			Scope:     manifest.Scope{TenantID: "tenant_acme_prod", RunID: new("run_incident_042")},
			ExpiresAt: new("2026-11-07T04:40:00Z"),
			Retrieval: manifest.Retrieval{
				Resolver: manifest.Resolver, Consistency: manifest.Consistency,
				Selectors: []string{manifest.SelectorByteRange, manifest.SelectorRecordRange, manifest.SelectorQuery},
			},
		},
		Bytes: manifest.Bytes{Size: int64(len(content)), MediaType: "application/x-ndjson", Root: root, Tree: manifest.DefaultTree},
		Records: &manifest.Records{
			Format: "ndjson", Limits: manifest.Limits{Depth: 512, Digits: 1024, Exponent: 1_000_000, Record: 64 << 20}, Count: 1,
			Flags: manifest.Flags{Depth: 2, LongestRecord: 30}, Map: &manifest.MapRef{Root: root, Size: 2048},
		},
		Lineage: manifest.Lineage{Kind: "capture", Producer: &manifest.Producer{
			Tool: "incidents", ToolVersion: new("1.2"), Outcome: "ok", StartedAt: new("2026-11-06T04:39:50.25Z"),
		}},
		Issuer:   manifest.Issuer{KeyID: pub.Fingerprint()},
		IssuedAt: "2026-11-06T04:40:01Z",
		Nonce:    "000102030405060708090a0b0c0d0e0f",
	}
}

// at is a time at which everything in predicate is current.
var at = time.Date(2026, 11, 6, 5, 0, 0, 0, time.UTC)

func statement(t testing.TB, p manifest.Predicate) []byte {
	t.Helper()
	payload, err := manifest.NewStatement(p)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// signed returns an envelope and SSH signature of predicate by the key "one".
func signed(t testing.TB) (manifest.Envelope, string) {
	t.Helper()
	key, _ := testKey("one")
	payload := statement(t, predicate())
	env, err := manifest.Sign(payload, key)
	if err != nil {
		t.Fatal(err)
	}
	ssh, err := manifest.SignSSH(payload, manifest.NamespaceManifest, key)
	if err != nil {
		t.Fatal(err)
	}
	return env, ssh
}
