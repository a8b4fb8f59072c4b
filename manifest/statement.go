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
	b, err := Canonical(normalise(p))
	if err != nil {
		return "", err
	}
	return coreID(b), nil
}

// coreID derives the id from a predicate in canonical JSON.
func coreID(predicate []byte) string {
	core := rewrite(make([]byte, 0, len(predicate)), predicate, func(out, name, value []byte) ([]byte, bool) {
		switch string(name) {
		case "indexes", "issued_at", "issuer":
			return out, false
		case "artifact_ref":
			return rewrite(out, value, func(out, name, value []byte) ([]byte, bool) {
				if string(name) == "artifact_id" {
					return out, false
				}
				return append(out, value...), true
			}), true
		}
		return append(out, value...), true
	})
	return derivedID("art_", contextArtifact, core)
}

// rewrite appends an object in canonical JSON with the members that keep lets
// pass: it appends the value of one and says true.
func rewrite(out, object []byte, keep func(out, name, value []byte) ([]byte, bool)) []byte {
	c := cursor{b: object}
	out = append(out, '{')
	first := len(out)
	for more := c.enter(); more; more = c.next() {
		raw := c.text()
		c.pos++ // the colon
		value := c.skip()
		before := len(out)
		if before > first {
			out = append(out, ',')
		}
		out = append(append(out, raw...), ':')
		var kept bool
		if out, kept = keep(out, raw[1:len(raw)-1], value); !kept {
			out = out[:before]
		}
	}
	return append(out, '}')
}

// ManifestID derives the id of a signed statement from its exact payload bytes.
// More signatures over the same payload do not change it.
func ManifestID(payload []byte) string { return derivedID("mf_", contextManifest, payload) }

// normalise gives absent things their one spelling, and lists of their own, none of
// which is nil.
func normalise(p Predicate) Predicate {
	if p.Bytes.Also == nil {
		p.Bytes.Also = map[string]string{}
	}
	c := &p.ArtifactRef.Completeness
	if len(c.Coverage) == 0 {
		c.Coverage = nil
	}
	c.Omissions, c.Redactions = ownList(c.Omissions), ownList(c.Redactions)
	p.ArtifactRef.Retrieval.Selectors = ownList(p.ArtifactRef.Retrieval.Selectors)
	p.Indexes, p.Supersedes, p.Lineage.Inputs = ownList(p.Indexes), ownList(p.Supersedes), ownList(p.Lineage.Inputs)
	return p
}

func ownList[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

// noID stands in a predicate until its core gives the id.
const noID = "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// What stands around a predicate in the canonical JSON of a statement, and around
// the id in that of a predicate.
const (
	beforeID        = `{"artifact_ref":{"artifact_id":"`
	beforePredicate = `{"_type":"` + StatementType + `","predicate":`
	afterPredicate  = `,"predicateType":"` + PredicateManifest + `","subject":[{"digest":{"blake3":"`
)

// NewStatement checks a predicate and returns the payload to sign. An empty
// artifact_id is filled in from the core; any other must be the one that
// follows from it ([ErrID]). What a nil list or map leaves open is written as
// the format demands. The rules are those of [ParseManifest].
func NewStatement(p Predicate) (payload []byte, err error) {
	m, err := NewManifest(p)
	if err != nil {
		return nil, err
	}
	return m.Payload, nil
}

// NewManifest is [NewStatement] with what [ParseManifest] finds in the payload.
func NewManifest(p Predicate) (*Manifest, error) {
	const op = "make a statement"
	p = normalise(p)
	given := p.ArtifactRef.ArtifactID
	p.ArtifactRef.ArtifactID = noID
	// The statement is one level around the predicate.
	predicate, err := canonical(p, MaxDepth-1)
	if err != nil {
		return nil, err
	}
	id := coreID(predicate)
	if p.ArtifactRef.ArtifactID = given; given == "" {
		p.ArtifactRef.ArtifactID = id
	}
	c := checker{op: op}
	c.predicate(&p)
	c.id(&p, id)
	if c.err != nil {
		return nil, c.err
	}
	root, err := merkle.ParseRoot(p.Bytes.Root)
	if err != nil {
		return nil, &Error{op, "/predicate/bytes/root", fmt.Errorf("%w: %v", ErrMalformed, err)}
	}
	copy(predicate[len(beforeID):], id)
	payload := make([]byte, 0, len(beforePredicate)+len(predicate)+len(afterPredicate)+256)
	payload = append(append(append(payload, beforePredicate...), predicate...), afterPredicate...)
	payload = append(payload, p.Bytes.Root...)
	if sum, ok := p.Bytes.Also["sha256"]; ok {
		payload = append(append(payload, `","sha256":"`...), sum...)
	}
	payload = append(append(append(payload, `"},"name":"`...), id...), `"}]}`...)
	if len(payload) > MaxPayload {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxPayload)}
	}
	return &Manifest{
		Predicate: p, ArtifactID: id, ManifestID: ManifestID(payload), Root: root, Size: p.Bytes.Size, Payload: payload,
	}, nil
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
	if err := checkTypes(payload); err != nil {
		return nil, err
	}
	var st Statement
	if err := decodeChecked(payload, &st); err != nil {
		return nil, err
	}
	c := checker{op: op}
	c.predicate(&st.Predicate)
	c.subject(st.Subject, &st.Predicate)
	if c.err != nil {
		return nil, c.err
	}
	id := coreID(member(payload, "predicate"))
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

// Clone returns a manifest that shares nothing with m but the payload. m came from
// [ParseManifest] or [NewManifest], and nobody changed it.
func (m *Manifest) Clone() (*Manifest, error) {
	var st Statement
	if err := json.Unmarshal(m.Payload, &st); err != nil {
		return nil, decodeError(err)
	}
	c := *m
	c.Predicate = st.Predicate
	return &c, nil
}

// checkTypes checks what kind of statement a payload in canonical JSON is.
func checkTypes(payload []byte) error {
	const op = "parse manifest"
	var head struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(payload, &head); err != nil {
		return decodeError(err)
	}
	if head.Type != StatementType {
		return &Error{op, "/_type", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(head.Type), StatementType)}
	}
	if head.PredicateType != PredicateManifest {
		return &Error{op, "/predicateType", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(head.PredicateType), PredicateManifest)}
	}
	return nil
}

// member returns the value of a member of an object in canonical JSON; nil where
// there is none.
func member(object []byte, name string) []byte {
	c := cursor{b: object}
	for got, more := c.member(c.enter()); more; got, more = c.member(c.next()) {
		if value := c.skip(); string(got) == name {
			return value
		}
	}
	return nil
}
