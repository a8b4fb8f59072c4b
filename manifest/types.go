package manifest

import "leafproof/merkle"

// The fixed words of a statement.
const (
	// StatementType is the _type of every statement (in-toto Statement v1).
	StatementType = "https://in-toto.io/Statement/v1"
	// PredicateManifest is the predicateType of a manifest.
	PredicateManifest = "urn:x-leafproof:manifest/v1"
	// PayloadType is the type that a signature covers with the payload (DSSE).
	PayloadType = "application/vnd.in-toto+json"

	// Resolver and Consistency are the only values that retrieval may hold.
	Resolver    = "artifact.read.v1"
	Consistency = "pinned_snapshot"
)

// The selectors that [Retrieval] may list, in the order in which it lists them.
const (
	SelectorByteRange   = "byte_range"
	SelectorRecordRange = "record_range"
	SelectorPointer     = "pointer"
	SelectorQuery       = "query"
)

// The values of [Completeness].Status.
const (
	StatusComplete = "complete"
	StatusPartial  = "partial"
	StatusUnknown  = "unknown"
)

// ArtifactRef is the ten-field descriptor of an artifact that a harness or an
// agent may hold. It grants nothing. In JSON all ten members are present, null
// where not given; times have the one spelling of [FormatTime].
type ArtifactRef struct {
	ArtifactID    string        `json:"artifact_id"`  // see [ArtifactID]
	ContentHash   string        `json:"content_hash"` // "blake3:" and the root of the exact stored bytes
	ToolCallID    *string       `json:"tool_call_id"`
	SchemaVersion *string       `json:"schema_version"`
	CreatedAt     string        `json:"created_at"` // when the stored artifact was made
	SourceVersion SourceVersion `json:"source_version"`
	Completeness  Completeness  `json:"completeness"`
	Scope         Scope         `json:"scope"`
	ExpiresAt     *string       `json:"expires_at"` // the availability deadline; null: none
	Retrieval     Retrieval     `json:"retrieval"`
}

// SourceVersion is which observation of which source was captured.
type SourceVersion struct {
	SourceID   *string `json:"source_id"` // a name, see [CheckName]
	SnapshotID *string `json:"snapshot_id"`
	ObservedAt *string `json:"observed_at"`
}

// Completeness is what the producer says about its capture: what it covers and
// what was left out or removed.
type Completeness struct {
	Status string `json:"status"` // complete, partial or unknown; unknown is never read as complete
	// Coverage bounds the capture, as in {"region":"eu-west"}; nil (null): not stated.
	Coverage   map[string]any `json:"coverage"`
	Records    *int64         `json:"records"` // the number of records captured; null: not stated
	Omissions  []Omission     `json:"omissions"`
	Redactions []Redaction    `json:"redactions"`
}

// Omission is something that the capture should have covered and does not.
type Omission struct {
	What   any     `json:"what"` // a non-empty string or object
	Reason string  `json:"reason"`
	Detail *string `json:"detail"`
}

// Redaction is something that the producer removed from the records.
type Redaction struct {
	Path    string  `json:"path"`    // the field, an RFC 6901 pointer into each record
	Records *int64  `json:"records"` // how many records were changed; null: not stated
	Method  *string `json:"method"`  // drop, mask or tokenise; null: not stated
	Reason  string  `json:"reason"`
}

// Scope is which tenant and run own the artifact.
type Scope struct {
	TenantID string  `json:"tenant_id"` // a name, see [CheckName]
	RunID    *string `json:"run_id"`    // a name
}

// Retrieval is how the artifact may be read.
type Retrieval struct {
	Resolver    string   `json:"resolver"`    // always [Resolver]
	Consistency string   `json:"consistency"` // always [Consistency]
	Selectors   []string `json:"selectors"`   // a subset of byte_range, record_range, pointer, query, in this order
}

// Predicate is the body of a manifest: everything that is signed about an
// artifact.
type Predicate struct {
	ArtifactRef ArtifactRef `json:"artifact_ref"`
	Bytes       Bytes       `json:"bytes"`
	Records     *Records    `json:"records"` // null: the artifact has no record structure
	Indexes     []Index     `json:"indexes"` // by path, each once
	Lineage     Lineage     `json:"lineage"`
	// Schema is the check of the JSON Schema that schema_version names; the member
	// is absent where none was made: the schema is then declared, not checked.
	Schema     *SchemaCheck `json:"schema,omitzero"`
	Supersedes []Supersede  `json:"supersedes"`
	Issuer     Issuer       `json:"issuer"`
	IssuedAt   string       `json:"issued_at"`
	Nonce      string       `json:"nonce"` // 16 random bytes in lower-case hex, see [NewNonce]
}

// MaxFailedSpans is how many failures a [SchemaCheck] names.
const MaxFailedSpans = 16

// SchemaCheck says how the bytes stood up to the JSON Schema artifact that
// schema_version names, when they were published. It is the issuer's word, but
// whoever has both artifacts can check it again.
type SchemaCheck struct {
	ContentHash string `json:"content_hash"` // of the schema's bytes
	Checked     int64  `json:"checked"`      // records, or 1 for a document without records
	// Failed counts those that do not satisfy the schema or that cannot be judged:
	// no JSON, a name twice, beyond the limits of the check.
	Failed int64 `json:"failed"`
	// Spans are the bytes [from, to) of the first of them.
	Spans [][2]int64 `json:"spans"`
}

// Bytes describes the stored bytes.
type Bytes struct {
	Size      int64             `json:"size"`       // in bytes
	MediaType string            `json:"media_type"` // as in "application/x-ndjson"
	Root      string            `json:"root"`       // BLAKE3 of the bytes, 64 lower-case hex digits
	Also      map[string]string `json:"also"`       // other digests; only "sha256" is known
	Tree      Tree              `json:"tree"`       // see [DefaultTree]
}

// Tree names the hash tree that proofs cut; version 1 knows one.
type Tree struct {
	Hash  string `json:"hash"`  // "blake3"
	Leaf  int64  `json:"leaf"`  // bytes in a leaf
	Group int64  `json:"group"` // bytes in a group
}

// DefaultTree is the tree of every manifest of version 1.
var DefaultTree = Tree{Hash: "blake3", Leaf: merkle.LeafSize, Group: merkle.GroupSize}

// Records describes the record structure that ingest found.
type Records struct {
	Format  string   `json:"format"`  // json, ndjson, csv, text or concat
	Pointer string   `json:"pointer"` // RFC 6901, of the array; only json may have one that is not ""
	Dialect *Dialect `json:"dialect"` // csv only, else null
	Limits  Limits   `json:"limits"`
	Count   int64    `json:"count"` // records
	Flags   Flags    `json:"flags"`
	Map     *MapRef  `json:"map"` // the record map (lpr1); null: none was made
}

// Dialect is how a CSV file is cut.
type Dialect struct {
	Delimiter string   `json:"delimiter"` // one ASCII character
	Quote     string   `json:"quote"`     // one ASCII character, or empty for none
	Header    bool     `json:"header"`    // the first row names the columns and is no record
	Columns   []string `json:"columns"`   // the names, in order; empty without a header
}

// Limits are the bounds beyond which a record is undecidable.
type Limits struct {
	Depth    int64 `json:"depth"`    // nesting
	Digits   int64 `json:"digits"`   // significant digits of a number
	Exponent int64 `json:"exponent"` // of the normalised number, absolute
	Record   int64 `json:"record"`   // bytes in a record
}

// Flags are facts that ingest found while it cut the records. They are counts
// of records unless said otherwise.
type Flags struct {
	BlankLines     int64 `json:"blank_lines"` // lines that hold no record
	BOM            bool  `json:"bom"`         // the file begins with a byte order mark
	Depth          int64 `json:"depth"`       // the deepest nesting of any record
	DuplicateNames int64 `json:"duplicate_names"`
	Escapes        int64 `json:"escapes"`
	InvalidUTF8    int64 `json:"invalid_utf8"`
	LongestRecord  int64 `json:"longest_record"` // bytes
	OverLimit      int64 `json:"over_limit"`
	Ragged         int64 `json:"ragged"`      // csv rows with another number of fields than the first
	Undecidable    int64 `json:"undecidable"` // that some query cannot decide, for any of these reasons
	// UndecidableSpans are the bytes [from, to) of the first [MaxFailedSpans] of
	// them; the member is absent where there are none, or where they were not listed.
	UndecidableSpans [][2]int64 `json:"undecidable_spans,omitzero"`
	Unparseable      int64      `json:"unparseable"` // that are not one value of the format
}

// MapRef is the blob that holds the record map.
type MapRef struct {
	Root string `json:"root"`
	Size int64  `json:"size"` // bytes
}

// Index describes the blob that holds a field index (lpi1). The numbers are those of
// its header.
type Index struct {
	Path         string         `json:"path"` // a JSON Pointer into a record, or a JSONPath query from @
	Root         string         `json:"root"` // BLAKE3 of the index's bytes
	Size         int64          `json:"size"` // bytes
	Entries      int64          `json:"entries"`
	Distinct     int64          `json:"distinct"`     // keys
	Undetermined int64          `json:"undetermined"` // entries whose key cannot be told
	Spec         map[string]any `json:"spec"`         // by which it was built: whoever has the bytes can build it again
	SpecDigest   string         `json:"spec_digest"`
}

// IndexOver says in words what an index with this path is over.
func IndexOver(path string) string {
	if path == "" {
		return "whole records"
	}
	return path
}

// Lineage is where the bytes came from.
type Lineage struct {
	Kind      string     `json:"kind"`      // capture, transform or import
	Producer  *Producer  `json:"producer"`  // the tool; null: not stated
	Inputs    []Input    `json:"inputs"`    // a transform has at least one, a capture none
	Transform *Transform `json:"transform"` // of a transform, else null
}

// Producer is the tool call that made the bytes.
type Producer struct {
	Tool            string  `json:"tool"`
	ToolVersion     *string `json:"tool_version"`
	ArgumentsDigest *string `json:"arguments_digest"` // 64 hex digits, keyed per tenant
	Outcome         string  `json:"outcome"`          // ok, partial or error
	StartedAt       *string `json:"started_at"`
	FinishedAt      *string `json:"finished_at"`
}

// Input is an artifact that a derived one was made from.
type Input struct {
	ArtifactID     string  `json:"artifact_id"`
	ContentHash    string  `json:"content_hash"`
	ManifestID     string  `json:"manifest_id"`
	SelectorDigest *string `json:"selector_digest"` // 64 hex digits; null: all of it
	Role           string  `json:"role"`            // a name, as in "source"
}

// Transform is what turned the inputs into the bytes.
type Transform struct {
	ID            string  `json:"id"`          // as in "leafproof.query.v1"
	SpecDigest    string  `json:"spec_digest"` // 64 hex digits
	CodeDigest    *string `json:"code_digest"` // 64 hex digits
	Deterministic bool    `json:"deterministic"`
}

// Supersede names an older artifact that this one takes the place of. The older
// one stays what it is.
type Supersede struct {
	ArtifactID string `json:"artifact_id"`
	Kind       string `json:"kind"` // reacquire, correct, redact or transform
}

// Issuer is who signs.
type Issuer struct {
	ID    *string `json:"id"`     // free text; it decides nothing
	KeyID string  `json:"key_id"` // the signing key's fingerprint, see [PublicKey.Fingerprint]
}

// Statement is an in-toto Statement v1 with exactly one subject.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is what a statement is about. Every digest listed must match.
type Subject struct {
	Name   string            `json:"name"` // the artifact_id
	Digest map[string]string `json:"digest"`
}

// Manifest is a statement that was parsed and found consistent. That it is
// consistent says nothing about who wrote it: see [VerifyEnvelope].
type Manifest struct {
	Predicate  Predicate
	ArtifactID string
	ManifestID string
	Root       merkle.Root
	Size       int64
	Payload    []byte // the exact bytes that are signed
}
