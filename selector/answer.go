package selector

import "encoding/json"

// The values of Answer.Basis and Answer.Assurance.
const (
	BasisRange = "range" // records or bytes named by position
	BasisScan  = "scan"  // records examined one by one
	BasisIndex = "index"

	AssuranceAttested = "attested" // rests on the word of whoever ran it
	AssuranceProven   = "proven"   // follows from the proof and the signed roots
)

// SourceVersion says which state of which source was captured.
type SourceVersion struct {
	SourceID   *string `json:"source_id"`
	SnapshotID *string `json:"snapshot_id"`
	ObservedAt *string `json:"observed_at"`
}

// Omission is something that the producer left out of the capture.
type Omission struct {
	What   map[string]any `json:"what"`
	Reason string         `json:"reason"`
	Detail string         `json:"detail,omitempty"`
}

// Redaction is a field that the producer removed or masked.
type Redaction struct {
	Path    string `json:"path"`
	Records *int64 `json:"records"`
	Method  string `json:"method,omitempty"`
	Reason  string `json:"reason"`
}

// Capture is the capture's completeness as the manifest states it.
type Capture struct {
	Status     string         `json:"status"` // complete, partial or unknown
	Coverage   map[string]any `json:"coverage"`
	Records    *int64         `json:"records"`
	Omissions  []Omission     `json:"omissions"`
	Redactions []Redaction    `json:"redactions"`
}

// Examined says how much of the artifact was looked at.
type Examined struct {
	Records int64      `json:"records"`
	Bytes   int64      `json:"bytes"`
	Ranges  [][2]int64 `json:"ranges"` // record numbers, half open
}

// Answer is what every read and query states besides its rows. Capture
// completeness, scan completion and prompt admission are three different
// things; the last is not known here.
type Answer struct {
	ArtifactID       string          `json:"artifact_id"`
	ManifestID       string          `json:"manifest_id"`
	SourceVersion    SourceVersion   `json:"source_version"`
	Selector         json.RawMessage `json:"selector"` // normalised
	QID              string          `json:"qid"`
	Order            string          `json:"order"`
	RecordsTotal     int64           `json:"records_total"`
	Examined         Examined        `json:"examined"`
	Matched          *int64          `json:"matched,omitempty"`        // exact; only when every record was examined
	MatchedSoFar     *int64          `json:"matched_so_far,omitempty"` // otherwise
	Returned         int64           `json:"returned"`
	Undecidable      int64           `json:"undecidable"`
	UndecidableSpans []Span          `json:"undecidable_spans"` // the first 16 of this call
	Stop             string          `json:"stop"`
	More             string          `json:"more"`
	Completeness     Capture         `json:"capture_completeness"`
	Basis            string          `json:"basis"`
	Assurance        string          `json:"assurance"`
	Cursor           string          `json:"cursor,omitempty"`
	Conclusion       string          `json:"conclusion"`
	Where            *Where          `json:"-"` // for Conclude: which field was asked about
}

// OrderDocument is the order of records in the original bytes.
const OrderDocument = "document"

// Fill copies what a scan did into the answer.
func (a *Answer) Fill(s Scan) {}

// Conclude sets Conclusion to the strongest sentence that the other fields
// justify. One that begins with "no_conclusion" says that nothing follows.
func (a *Answer) Conclude() {}
