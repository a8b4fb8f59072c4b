package manifest_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"leafproof/manifest"
)

// vectorKey signed everything under trust/generated.
const vectorKey = "holdfast test key 1"

// TestGeneratedEnvelope: an envelope that another program made.
func TestGeneratedEnvelope(t *testing.T) {
	key, pub := testKey(vectorKey)
	if got, err := manifest.ParsePublicKey(vector(t, "trust/generated/pub.pem")); err != nil || got != pub {
		t.Fatalf("pub.pem is %v, %v, the seed gives %v", got, err, pub)
	}
	payload := vector(t, "trust/generated/payload.json")
	pae := vector(t, "trust/generated/pae.bin")
	if got := manifest.PAE(manifest.PayloadType, payload); !bytes.Equal(got, pae) {
		t.Errorf("PAE = %q, want %q", got, pae)
	}
	if err := pub.Verify(pae, vector(t, "trust/generated/sig.bin")); err != nil {
		t.Error(err)
	}
	var theirs manifest.Envelope
	vectorJSON(t, "trust/generated/env.dsse.json", &theirs)
	if err := theirs.Check(); err != nil {
		t.Error(err)
	}
	ours, err := manifest.Sign(payload, key)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours.Bytes(), theirs.Bytes()) {
		t.Errorf("we sign %s, they %s", ours.Bytes(), theirs.Bytes())
	}
	// The file is indented: not our spelling.
	if _, err := manifest.ParseEnvelope(vector(t, "trust/generated/env.dsse.json")); !errors.Is(err, manifest.ErrNotCanonical) {
		t.Errorf("an indented envelope: %v, want ErrNotCanonical", err)
	}
	// Another product's predicate is refused by its type, though it is signed.
	if _, err := manifest.ParseManifest(payload); !errors.Is(err, manifest.ErrMalformed) || !strings.Contains(err.Error(), "predicateType") {
		t.Errorf("a foreign predicate: %v", err)
	}
}

// TestDigestTraps: a well-signed statement whose sha256 is right and whose blake3
// is not passes foreign verifiers, which are content with any digest. The traps
// carry another product's predicate; what they do to a subject is done to ours.
func TestDigestTraps(t *testing.T) {
	for name, want := range map[string]error{"b_wrongB3": manifest.ErrDigest, "b_noSha": nil} {
		t.Run(name, func(t *testing.T) {
			var bundle struct {
				Envelope struct {
					PayloadType string `json:"payloadType"`
					Payload     []byte `json:"payload"`
					Signatures  []struct {
						Sig []byte `json:"sig"`
					} `json:"signatures"`
				} `json:"dsseEnvelope"`
			}
			vectorJSON(t, "trust/generated/"+name+".json", &bundle)
			_, pub := testKey(vectorKey)
			if err := pub.Verify(manifest.PAE(bundle.Envelope.PayloadType, bundle.Envelope.Payload), bundle.Envelope.Signatures[0].Sig); err != nil {
				t.Fatalf("the trap is not even well signed: %v", err)
			}
			var trap struct {
				Subject []struct {
					Digest map[string]string `json:"digest"`
				} `json:"subject"`
			}
			if err := json.Unmarshal(bundle.Envelope.Payload, &trap); err != nil {
				t.Fatal(err)
			}
			p := predicate()
			digest := map[string]any{"blake3": p.Bytes.Root}
			if sha := trap.Subject[0].Digest["sha256"]; sha != "" {
				p.Bytes.Also = map[string]string{"sha256": sha}
				digest["sha256"] = sha
			}
			if strings.Trim(trap.Subject[0].Digest["blake3"], "0") == "" {
				digest["blake3"] = trap.Subject[0].Digest["blake3"]
			}
			_, err := manifest.ParseManifest(alter(t, statement(t, p), "/subject/0/digest", digest))
			if !errors.Is(err, want) {
				t.Errorf("error = %v, want %v", err, want)
			}
		})
	}
}

type theirVerifier struct{ pub manifest.PublicKey }

func (v theirVerifier) Verify(_ context.Context, data, sig []byte) error {
	return v.pub.Verify(data, sig)
}
func (v theirVerifier) KeyID() (string, error)   { return v.pub.Fingerprint(), nil }
func (v theirVerifier) Public() crypto.PublicKey { return nil }

// TestSecureSystemsLib: the reference implementation of DSSE reads our envelopes.
func TestSecureSystemsLib(t *testing.T) {
	env, _ := signed(t)
	_, pub := testKey("one")
	var theirs dsse.Envelope
	if err := json.Unmarshal(env.Bytes(), &theirs); err != nil {
		t.Fatal(err)
	}
	v, err := dsse.NewEnvelopeVerifier(theirVerifier{pub})
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := v.Verify(t.Context(), &theirs)
	if err != nil || len(accepted) != 1 || accepted[0].KeyID != pub.Fingerprint() {
		t.Errorf("Verify = %v, %v", accepted, err)
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := theirs.DecodeB64Payload(); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("they read %q, %v", got, err)
	}
	if got, want := manifest.PAE("a/b", []byte("é")), dsse.PAE("a/b", []byte("é")); !bytes.Equal(got, want) {
		t.Errorf("PAE = %q, want %q", got, want)
	}
	theirs.PayloadType = "application/json"
	if _, err := v.Verify(t.Context(), &theirs); err == nil {
		t.Error("the signature does not cover the type")
	}
}

func TestParseEnvelopeRefuses(t *testing.T) {
	env, _ := signed(t)
	two, _ := testKey("two")
	both, err := env.Cosign(two)
	if err != nil {
		t.Fatal(err)
	}
	swapped := []any{both.Signatures[1], both.Signatures[0]}
	most := env
	for i := range 15 {
		key, _ := testKey(fmt.Sprint(i))
		if most, err = most.Cosign(key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := manifest.ParseEnvelope(most.Bytes()); err != nil {
		t.Errorf("16 signatures: %v", err)
	}
	many, err := most.Cosign(two)
	if !errors.Is(err, manifest.ErrMalformed) || len(many.Signatures) != 17 {
		t.Errorf("Cosign to %d signatures: %v", len(many.Signatures), err)
	}
	sig := env.Signatures[0]
	for name, test := range map[string]struct {
		at    string
		value any
	}{
		"type":            {"/payloadType", "application/json"},
		"no type":         {"/payloadType", nil},
		"no payload":      {"/payload", nil},
		"unknown member":  {"/signed", true},
		"other case":      {"/Payload", "eA=="},
		"no signatures":   {"/signatures", []any{}},
		"17 signatures":   {"/signatures", many.Signatures},
		"one key twice":   {"/signatures", []any{sig, sig}},
		"not sorted":      {"/signatures", swapped},
		"no padding":      {"/payload", strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("x")), "=")},
		"URL alphabet":    {"/payload", "_-__"},
		"line break":      {"/payload", "eHh4\neHh4"},
		"left-over bits":  {"/payload", "eB=="},
		"sig of 63 bytes": {"/signatures/0/sig", base64.StdEncoding.EncodeToString(make([]byte, 63))},
		"sig not base64":  {"/signatures/0/sig", "?"},
		"keyid free text": {"/signatures/0/keyid", "my key"},
		"keyid padded":    {"/signatures/0/keyid", sig.KeyID + "="},
		"sig with a cert": {"/signatures/0/cert", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := alter(t, env.Bytes(), test.at, test.value)
			got, err := manifest.ParseEnvelope(doc)
			if !errors.Is(err, manifest.ErrMalformed) || got.Payload != "" {
				t.Errorf("ParseEnvelope(%s) = %v, %v, want ErrMalformed", doc, got, err)
			}
		})
	}
	if got, err := manifest.ParseEnvelope(both.Bytes()); err != nil || len(got.Signatures) != 2 {
		t.Errorf("two signatures: %v, %v", got, err)
	}
	large := manifest.Envelope{PayloadType: manifest.PayloadType, Payload: base64.StdEncoding.EncodeToString(make([]byte, manifest.MaxPayload)), Signatures: env.Signatures}
	if _, err := manifest.ParseEnvelope(large.Bytes()); err != nil {
		t.Errorf("the largest payload: %v", err)
	}
	large.Payload = base64.StdEncoding.EncodeToString(make([]byte, manifest.MaxPayload+1))
	if _, err := manifest.ParseEnvelope(large.Bytes()); !errors.Is(err, manifest.ErrTooLarge) {
		t.Errorf("a byte more: %v, want ErrTooLarge", err)
	}
}

// brokenSigner signs something else, as a damaged key store might.
type brokenSigner struct{ crypto.Signer }

func (b brokenSigner) Sign(rand io.Reader, _ []byte, opts crypto.SignerOpts) ([]byte, error) {
	return b.Signer.Sign(rand, []byte("something else"), opts)
}

func TestSignChecksTheSigner(t *testing.T) {
	key, _ := testKey("one")
	if _, err := manifest.Sign([]byte("x"), brokenSigner{key}); !errors.Is(err, manifest.ErrSignature) {
		t.Errorf("Sign = %v, want ErrSignature", err)
	}
	if _, err := manifest.SignSSH([]byte("x"), manifest.NamespaceManifest, brokenSigner{key}); !errors.Is(err, manifest.ErrSignature) {
		t.Errorf("SignSSH = %v, want ErrSignature", err)
	}
}
