package manifest

import (
	"encoding/base32"
	"fmt"
	"maps"

	"github.com/go-json-experiment/json"

	"leafproof/merkle"
)

// MaxPayload is the largest statement, in bytes.
const MaxPayload = MaxSize

// The purposes for which ids are derived (BLAKE3 derive-key contexts).
const (
	contextArtifact = "leafproof 2026 artifact-id v1"
	contextManifest = "leafproof 2026 manifest-id v1"
)

var lowerBase32 = base32.NewEncoding(base32Lower).WithPadding(base32.NoPadding)

// derivedID is prefix and the first 160 bits of a derived key.
func derivedID(prefix, context string, p []byte) string {
	key := merkle.DeriveKey(context, p)
	return prefix + lowerBase32.EncodeToString(key[:])[:32]
}

// ArtifactID derives the id from the core of a predicate: its canonical JSON
// without /artifact_ref/artifact_id, /indexes, /issuer and /issued_at. The core
// holds the nonce, so the id is unguessable and unique for each capture, also of
// identical bytes; and nobody can give it to other capture facts. It does not
// fix issuer and indexes: [ManifestID] does. It grants nothing.
func ArtifactID(p Predicate) (string, error) {
	b, err := Canonical(coreOf(normalise(p)))
	if err != nil {
		return "", err
	}
	return derivedID("art_", contextArtifact, b), nil
}

// core is a Predicate without the members that an artifact_id does not fix. A
// member added to Predicate or ArtifactRef is added here: TestCoreIsWhole.
type core struct {
	ArtifactRef coreRef      `json:"artifact_ref"`
	Bytes       Bytes        `json:"bytes"`
	Records     *Records     `json:"records"`
	Lineage     Lineage      `json:"lineage"`
	Schema      *SchemaCheck `json:"schema,omitzero"`
	Supersedes  []Supersede  `json:"supersedes"`
	Nonce       string       `json:"nonce"`
}

type coreRef struct {
	ContentHash   string        `json:"content_hash"`
	ToolCallID    *string       `json:"tool_call_id"`
	SchemaVersion *string       `json:"schema_version"`
	CreatedAt     string        `json:"created_at"`
	SourceVersion SourceVersion `json:"source_version"`
	Completeness  Completeness  `json:"completeness"`
	Scope         Scope         `json:"scope"`
	ExpiresAt     *string       `json:"expires_at"`
	Retrieval     Retrieval     `json:"retrieval"`
}

func coreOf(p Predicate) core {
	r := p.ArtifactRef
	return core{
		ArtifactRef: coreRef{
			r.ContentHash, r.ToolCallID, r.SchemaVersion, r.CreatedAt, r.SourceVersion,
			r.Completeness, r.Scope, r.ExpiresAt, r.Retrieval,
		},
		Bytes: p.Bytes, Records: p.Records, Lineage: p.Lineage, Schema: p.Schema, Supersedes: p.Supersedes, Nonce: p.Nonce,
	}
}

// ManifestID derives the id of a signed statement from its exact payload bytes.
// More signatures over the same payload do not change it.
func ManifestID(payload []byte) string { return derivedID("mf_", contextManifest, payload) }

// normalise gives absent things their one spelling.
func normalise(p Predicate) Predicate {
	if p.Bytes.Also == nil {
		p.Bytes.Also = map[string]string{}
	}
	if len(p.ArtifactRef.Completeness.Coverage) == 0 {
		p.ArtifactRef.Completeness.Coverage = nil
	}
	return p
}

// NewStatement checks a predicate and returns the payload to sign. An empty
// artifact_id is filled in from the core; any other must be the one that
// follows from it ([ErrID]). What a nil list or map leaves open is written as
// the format demands. The rules are those of [ParseManifest].
func NewStatement(p Predicate) (payload []byte, err error) {
	const op = "make a statement"
	p = normalise(p)
	id, err := ArtifactID(p)
	if err != nil {
		return nil, err
	}
	if p.ArtifactRef.ArtifactID == "" {
		p.ArtifactRef.ArtifactID = id
	}
	c := checker{op: op}
	c.predicate(&p)
	c.id(&p, id)
	if c.err != nil {
		return nil, c.err
	}
	payload, err = Canonical(Statement{
		Type:          StatementType,
		Subject:       []Subject{{Name: id, Digest: digests(&p)}},
		PredicateType: PredicateManifest,
		Predicate:     p,
	})
	if err != nil {
		return nil, err
	}
	if len(payload) > MaxPayload {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxPayload)}
	}
	return payload, nil
}

// digests are those that the subject of a statement lists: all that the
// predicate has.
func digests(p *Predicate) map[string]string {
	d := map[string]string{"blake3": p.Bytes.Root}
	maps.Copy(d, p.Bytes.Also)
	return d
}

// ParseManifest reads the payload of an envelope and checks everything that can
// be checked without a key: that it is canonical and of this type, that no
// member is missing or unknown, that there is one subject all of whose digests
// match the predicate, that the artifact_id follows from the core, and the
// grammar of every field. It checks no signature: see [VerifyEnvelope]. The
// manifest keeps a reference to payload.
func ParseManifest(payload []byte) (*Manifest, error) {
	const op = "parse manifest"
	if err := checkCanonical(payload, MaxPayload, MaxDepth); err != nil {
		return nil, err
	}
	// The types come first: no other field means anything under another type.
	var head struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(payload, &head); err != nil {
		return nil, decodeError(err)
	}
	if head.Type != StatementType {
		return nil, &Error{op, "/_type", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(head.Type), StatementType)}
	}
	if head.PredicateType != PredicateManifest {
		return nil, &Error{op, "/predicateType", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(head.PredicateType), PredicateManifest)}
	}
	var st Statement
	if err := DecodeLimit(payload, &st, MaxPayload, MaxDepth); err != nil {
		return nil, err
	}
	c := checker{op: op}
	c.predicate(&st.Predicate)
	c.subject(st.Subject, &st.Predicate)
	if c.err != nil {
		return nil, c.err
	}
	id, err := ArtifactID(st.Predicate)
	if err != nil {
		return nil, err
	}
	if c.id(&st.Predicate, id); c.err != nil {
		return nil, c.err
	}
	root, err := merkle.ParseRoot(st.Predicate.Bytes.Root)
	if err != nil {
		return nil, &Error{op, "/predicate/bytes/root", fmt.Errorf("%w: %v", ErrMalformed, err)}
	}
	return &Manifest{
		Predicate: st.Predicate, ArtifactID: id, ManifestID: ManifestID(payload),
		Root: root, Size: st.Predicate.Bytes.Size, Payload: payload,
	}, nil
}
