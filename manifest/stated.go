package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Stated is what a producer may say of an artifact in a file of its own: a
// [Predicate] without what the store finds out or decides. A member that is
// absent or null is not stated.
type Stated struct {
	ArtifactRef StatedRef     `json:"artifact_ref"`
	Bytes       StatedBytes   `json:"bytes"`
	Records     StatedRecords `json:"records"`
	Lineage     StatedLineage `json:"lineage"`
	Supersedes  []Supersede   `json:"supersedes"`
	Issuer      StatedIssuer  `json:"issuer"`
}

// StatedRef is the part of an [ArtifactRef] that a producer may state.
type StatedRef struct {
	ToolCallID    *string            `json:"tool_call_id"`
	SchemaVersion *string            `json:"schema_version"`
	SourceVersion SourceVersion      `json:"source_version"`
	Completeness  StatedCompleteness `json:"completeness"`
	Scope         StatedScope        `json:"scope"`
	ExpiresAt     *string            `json:"expires_at"`
}

// StatedCompleteness is [Completeness]; a status that is not stated follows from
// the rest.
type StatedCompleteness struct {
	Status     *string        `json:"status"`
	Coverage   map[string]any `json:"coverage"`
	Records    *int64         `json:"records"`
	Omissions  []Omission     `json:"omissions"`
	Redactions []Redaction    `json:"redactions"`
}

// StatedScope is [Scope].
type StatedScope struct {
	TenantID *string `json:"tenant_id"`
	RunID    *string `json:"run_id"`
}

// StatedBytes is the part of [Bytes] that a producer may state.
type StatedBytes struct {
	MediaType *string `json:"media_type"`
}

// StatedRecords is the part of [Records] that a producer may state.
type StatedRecords struct {
	Format  *string `json:"format"`
	Pointer *string `json:"pointer"`
}

// StatedLineage is [Lineage]. Of an input, content_hash and manifest_id may be
// left out.
type StatedLineage struct {
	Kind      *string         `json:"kind"`
	Producer  *StatedProducer `json:"producer"`
	Inputs    []Input         `json:"inputs"`
	Transform *Transform      `json:"transform"`
}

// StatedProducer is the part of [Producer] that a producer may state.
type StatedProducer struct {
	Tool        string  `json:"tool"`
	ToolVersion *string `json:"tool_version"`
	Outcome     *string `json:"outcome"`
	StartedAt   *string `json:"started_at"`
	FinishedAt  *string `json:"finished_at"`
}

// StatedIssuer is the part of [Issuer] that a producer may state.
type StatedIssuer struct {
	ID *string `json:"id"`
}

// notStated are the members of a predicate that are not for a producer to state,
// and why.
var notStated = map[string]string{
	"/artifact_ref/artifact_id":          "it follows from the signed facts",
	"/artifact_ref/content_hash":         "it is the hash of the stored bytes",
	"/artifact_ref/created_at":           "the store's clock says it",
	"/artifact_ref/retrieval":            "it follows from the bytes and the record format",
	"/bytes/also":                        "it is computed from the bytes",
	"/bytes/root":                        "it is computed from the bytes",
	"/bytes/size":                        "it is computed from the bytes",
	"/bytes/tree":                        "the format has one",
	"/indexes":                           "they are computed from the bytes",
	"/issued_at":                         "the store's clock says it",
	"/issuer/key_id":                     "it is the key that signs",
	"/lineage/producer/arguments_digest": "the store makes it, with a key of the tenant",
	"/nonce":                             "it is drawn at random",
	"/records/count":                     "it is found in the bytes",
	"/records/dialect":                   "it is found in the bytes",
	"/records/flags":                     "they are found in the bytes",
	"/records/limits":                    "they are the store's",
	"/records/map":                       "it is made from the bytes",
	"/schema":                            "the check is made by the store",
}

// ParseStated reads such a file: one JSON object of at most [MaxSize] bytes and
// [MaxDepth] levels, laid out as its writer likes. A member that stands twice, is
// unknown, or is not for the producer to state is refused. The error is an
// [*Error] whose At is the JSON Pointer of the place.
//
// What the strings hold is checked by [NewStatement].
func ParseStated(b []byte) (*Stated, error) {
	const op = "read stated facts"
	canonical, err := Canonicalise(b, MaxSize, MaxDepth)
	if s, ok := errors.AsType[*SyntaxError](err); ok {
		reason := s.Reason
		if s.Offset >= 0 {
			reason = fmt.Sprintf("byte %d: %s", s.Offset, reason)
		}
		return nil, &Error{op, s.Pointer, fmt.Errorf("%w: %s", ErrMalformed, reason)}
	}
	if err != nil {
		return nil, err
	}
	if canonical[0] != '{' {
		return nil, &Error{op, "", fmt.Errorf("%w: not a JSON object", ErrMalformed)}
	}
	var s Stated
	err = decodeLoose(canonical, &s)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Op = op
		if why, ok := notStated[e.At]; ok {
			e.Err = fmt.Errorf("%w: this is not stated: %s", ErrMalformed, why)
		}
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// CheckStated checks what a producer states in a predicate before there are bytes:
// the grammar of every field, and that they have a canonical form. What a store
// computes need not be filled in. A place in the error is a pointer into the
// predicate, as in /artifact_ref/scope/run_id.
func CheckStated(p Predicate) error {
	p = normalise(p)
	hex64 := strings.Repeat("0", 64)
	digits := strings.Repeat("a", 32)
	p.Indexes, p.Schema, p.Bytes.Root, p.Bytes.Tree = nil, nil, hex64, DefaultTree
	p.ArtifactRef.ArtifactID, p.ArtifactRef.ContentHash, p.Nonce = "art_"+digits, "blake3:"+hex64, hex64[:32]
	p.ArtifactRef.CreatedAt, p.IssuedAt = FormatTime(time.Unix(0, 0)), FormatTime(time.Unix(0, 0))
	p.ArtifactRef.Retrieval = Retrieval{Resolver: Resolver, Consistency: Consistency}
	p.Issuer.KeyID = PublicKey{}.Fingerprint()
	p.Lineage.Inputs = slices.Clone(p.Lineage.Inputs)
	for i := range p.Lineage.Inputs {
		if in := &p.Lineage.Inputs[i]; in.ContentHash == "" {
			in.ContentHash = "blake3:" + hex64
		}
		if in := &p.Lineage.Inputs[i]; in.ManifestID == "" {
			in.ManifestID = "mf_" + digits
		}
	}
	c := checker{op: "check facts"}
	c.predicate(&p)
	if c.err == nil {
		b, err := Canonical(p)
		if err != nil {
			c.err = err
		} else if len(b) > MaxPayload {
			c.fail("", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), MaxPayload))
		}
	}
	if e, ok := errors.AsType[*Error](c.err); ok {
		e.At = strings.TrimPrefix(e.At, "/predicate")
	}
	return c.err
}
