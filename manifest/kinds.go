package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// The predicateTypes of what is said about an artifact after it was published.
const (
	PredicateIndex     = "urn:x-leafproof:index/v1"
	PredicateSupersede = "urn:x-leafproof:supersede/v1"
	PredicateTombstone = "urn:x-leafproof:tombstone/v1"
	PredicateDeletion  = "urn:x-leafproof:deletion/v1"
	PredicateAudit     = "urn:x-leafproof:audit/v1"
	PredicateReceipt   = "urn:x-leafproof:read-receipt/v1"
	PredicateAdmission = "urn:x-leafproof:admission/v1"
)

// contextStatement is the purpose for which the ids of these statements are derived.
const contextStatement = "leafproof 2026 statement-id v1"

// digestManifestID is the digest by which a subject names an artifact through its
// manifest. The artifact's own digest does not stand in these statements: they
// outlive the bytes, and it would confirm a guess of what the bytes were.
const digestManifestID = "leafproof.manifest_id"

// Kind is one kind of statement besides the manifest.
type Kind struct {
	PredicateType string
	Role          string // in which a key must be admitted to say it
	prefix        string // of the ids
	parse         func([]byte) (Body, []Subject, error)
}

// kinds are all of them.
var kinds = []Kind{
	{PredicateIndex, RoleIndex, "ix_", parseBody[*IndexAdded]},
	{PredicateSupersede, RoleSupersede, "su_", parseBody[*Superseded]},
	{PredicateTombstone, RoleTombstone, "tb_", parseBody[*Tombstone]},
	{PredicateDeletion, RoleDeletion, "dl_", parseBody[*Deletion]},
	{PredicateAudit, RoleAudit, "au_", parseBody[*Audit]},
	{PredicateReceipt, RoleReceipt, "rc_", parseBody[*Receipt]},
	{PredicateAdmission, RoleAdmission, "ad_", parseBody[*Admission]},
}

// Kinds returns the kinds of statements besides the manifest.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindOf finds a kind by its predicateType.
func KindOf(predicateType string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.PredicateType == predicateType })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Head is how the predicate of every kind begins: which artifact it is about, who
// says it, and when. Tenant, run and source are what the signer says they are;
// [Head.Fits] compares them with the manifest.
type Head struct {
	ArtifactID string  `json:"artifact_id"`
	ManifestID string  `json:"manifest_id"`
	Scope      Scope   `json:"scope"`
	SourceID   *string `json:"source_id"` // a name; null: the artifact has none
	Issuer     Issuer  `json:"issuer"`
	IssuedAt   string  `json:"issued_at"`
	Nonce      string  `json:"nonce"` // see [NewNonce]; it keeps a digest of the statement from telling what it says
}

// Body is the predicate of a statement: [*IndexAdded], [*Superseded],
// [*Tombstone], [*Deletion], [*Audit], [*Receipt] or [*Admission].
type Body interface {
	// About returns the part that all kinds have.
	About() *Head
	predicateType() string
	digest() (name, value string) // of the subject
	check(c *checker)
}

// About implements [Body].
func (h *Head) About() *Head { return h }

// digest is that of the subject, for the kinds that are about an artifact.
func (h *Head) digest() (name, value string) { return digestManifestID, h.ManifestID }

// Fits says whether the statement is about the artifact of a manifest. The error
// wraps [ErrID], or [ErrScope] where tenant, run or source are not its own.
func (h *Head) Fits(m *Manifest) error {
	ref := &m.Predicate.ArtifactRef
	const op = "compare with the manifest"
	switch {
	case h.ArtifactID != m.ArtifactID:
		return &Error{op, "/predicate/artifact_id", fmt.Errorf("%w: it is about %s, not %s", ErrID, quote(h.ArtifactID), m.ArtifactID)}
	case h.ManifestID != m.ManifestID:
		return &Error{op, "/predicate/manifest_id", fmt.Errorf("%w: it is about the manifest %s, not %s", ErrID, quote(h.ManifestID), m.ManifestID)}
	case h.Scope.TenantID != ref.Scope.TenantID:
		return &Error{op, "/predicate/scope/tenant_id", fmt.Errorf("%w: it is about tenant %s, the artifact is of %s", ErrScope, quote(h.Scope.TenantID), ref.Scope.TenantID)}
	case !sameText(h.Scope.RunID, ref.Scope.RunID):
		return &Error{op, "/predicate/scope/run_id", fmt.Errorf("%w: the artifact is of another run", ErrScope)}
	case !sameText(h.SourceID, ref.SourceVersion.SourceID):
		return &Error{op, "/predicate/source_id", fmt.Errorf("%w: the artifact is of another source", ErrScope)}
	}
	return nil
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

func (h *Head) check(c *checker) {
	c.must(isID(h.ArtifactID, "art_"), "/artifact_id", "%s is not an artifact_id", quote(h.ArtifactID))
	c.must(isID(h.ManifestID, "mf_"), "/manifest_id", "%s is not a manifest_id", quote(h.ManifestID))
	c.name(h.Scope.TenantID, "/scope/tenant_id")
	if h.Scope.RunID != nil {
		c.name(*h.Scope.RunID, "/scope/run_id")
	}
	if h.SourceID != nil {
		c.name(*h.SourceID, "/source_id")
	}
	c.text(h.Issuer.ID, "/issuer/id")
	c.must(isFingerprint(h.Issuer.KeyID), "/issuer/key_id", "%s is not a SHA256: fingerprint", quote(h.Issuer.KeyID))
	c.time(h.IssuedAt, "/issued_at")
	c.must(isHex(h.Nonce, 32), "/nonce", "not 32 lower-case hex digits")
}

// statementOf is an in-toto Statement v1 with a predicate of one kind.
type statementOf[B Body] struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     B         `json:"predicate"`
}

func parseBody[B Body](payload []byte) (Body, []Subject, error) {
	var st statementOf[B]
	if err := DecodeLimit(payload, &st, MaxPayload, MaxDepth); err != nil {
		return nil, nil, err
	}
	return st.Predicate, st.Subject, nil
}

// Document is a statement that was parsed and found consistent. That it is
// consistent says nothing about who wrote it: see [VerifyStatement].
type Document struct {
	Kind    Kind
	ID      string // of the statement, as in "rc_…": it follows from the payload
	Body    Body
	Payload []byte // the exact bytes that are signed
}

// Encode checks a body and returns the payload to sign. The rules are those of
// [ParseStatement].
func Encode(b Body) (payload []byte, err error) {
	const op = "make a statement"
	c := checker{op: op}
	b.About().check(&c)
	b.check(&c)
	if c.err != nil {
		return nil, c.err
	}
	name, value := b.digest()
	payload, err = Canonical(statementOf[Body]{
		Type:          StatementType,
		Subject:       []Subject{{Name: b.About().ArtifactID, Digest: map[string]string{name: value}}},
		PredicateType: b.predicateType(),
		Predicate:     b,
	})
	if err != nil {
		return nil, err
	}
	if len(payload) > MaxPayload {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxPayload)}
	}
	return payload, nil
}

// ParseStatement reads a payload of the kind that has the predicateType want, and
// of no other: the type is compared before any other field is looked at. It checks
// what can be checked without a key: that it is canonical, that no member is
// missing or unknown, that there is one subject whose one digest is that of the
// predicate, and the grammar of every field. It checks no signature. The document
// keeps a reference to payload.
func ParseStatement(payload []byte, want string) (*Document, error) {
	const op = "parse statement"
	kind, ok := KindOf(want)
	if !ok {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: no statement has the predicateType %s", ErrUnsupported, quote(want))}
	}
	if err := checkCanonical(payload, MaxPayload, MaxDepth); err != nil {
		return nil, err
	}
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
	if head.PredicateType != want {
		return nil, &Error{op, "/predicateType", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(head.PredicateType), want)}
	}
	body, subjects, err := kind.parse(payload)
	if err != nil {
		return nil, err
	}
	c := checker{op: op}
	body.About().check(&c)
	body.check(&c)
	c.about(subjects, body)
	if c.err != nil {
		return nil, c.err
	}
	return &Document{Kind: kind, ID: kind.id(payload), Body: body, Payload: payload}, nil
}

// id derives the id of a statement from its exact payload.
func (k Kind) id(payload []byte) string { return derivedID(k.prefix, contextStatement, payload) }

// StatementKind returns the predicateType that a payload claims, without any other
// look at it: [ParseStatement] is what checks it.
func StatementKind(payload []byte) (predicateType string, err error) {
	if err := checkCanonical(payload, MaxPayload, MaxDepth); err != nil {
		return "", err
	}
	var head struct {
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(payload, &head); err != nil {
		return "", decodeError(err)
	}
	return head.PredicateType, nil
}

// about checks that the statement has one subject, which is what its predicate is
// about.
func (c *checker) about(subjects []Subject, b Body) {
	if len(subjects) != 1 {
		c.fail("/subject", fmt.Errorf("%w: %d subjects, exactly one is allowed", ErrMalformed, len(subjects)))
		return
	}
	s, id := subjects[0], b.About().ArtifactID
	if s.Name != id {
		c.fail("/subject/0/name", fmt.Errorf("%w: the subject is %s, the predicate is about %s", ErrID, quote(s.Name), quote(id)))
	}
	name, value := b.digest()
	for _, n := range slices.Sorted(maps.Keys(s.Digest)) {
		if n != name || s.Digest[n] != value {
			c.fail(cutPointer("/subject/0/digest/"+string(appendToken(nil, []byte(n)))), fmt.Errorf("%w: the subject's is not the one of the predicate", ErrDigest))
		}
	}
	if len(s.Digest) != 1 {
		c.fail("/subject/0/digest", fmt.Errorf("%w: %d digests, exactly %s is allowed", ErrDigest, len(s.Digest), name))
	}
}

// ranges checks half-open ranges that are not empty, ascend and do not touch.
func (c *checker) ranges(list [][2]int64, at string) {
	last := int64(-1)
	for i, r := range list {
		c.must(r[0] >= 0 && r[0] < r[1] && r[0] > last, fmt.Sprintf("%s/%d", at, i), "[%d,%d) is empty, or does not come behind the one before", r[0], r[1])
		last = r[1]
	}
}

// short demands text of at most limit bytes that is not empty.
func (c *checker) short(s string, limit int, at string) {
	c.must(s != "" && len(s) <= limit, at, "%d bytes, one to %d are allowed", len(s), limit)
	c.must(!strings.ContainsRune(s, 0), at, "it holds a NUL")
}
