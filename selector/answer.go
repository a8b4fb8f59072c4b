package selector

import (
	"encoding/json"
	"strings"
)

// The values of Answer.Basis and Answer.Assurance.
const (
	BasisRange = "range" // records or bytes named by position
	BasisScan  = "scan"  // records examined one by one
	BasisIndex = "index"

	AssuranceAttested = "attested" // rests on the word of whoever ran it
	AssuranceProven   = "proven"   // follows from the proof and the signed roots
)

// OrderText names an order: the keys as they were written, then "document".
func OrderText(orders []*Order) string {
	s := ""
	for _, o := range orders {
		s += strings.TrimSuffix(o.String(), ":asc") + ", "
	}
	return s + OrderDocument
}

// OrderDocument is the order of records in the original bytes.
const OrderDocument = "document"

// SourceVersion says which state of which source was captured.
type SourceVersion struct {
	SourceID   *string `json:"source_id"`
	SnapshotID *string `json:"snapshot_id"`
	ObservedAt *string `json:"observed_at"`
}

// Omission is something that the producer left out of the capture.
type Omission struct {
	What   any     `json:"what"` // a string or an object
	Reason string  `json:"reason"`
	Detail *string `json:"detail"`
}

// Redaction is a field that the producer removed or masked.
type Redaction struct {
	Path    string  `json:"path"`
	Records *int64  `json:"records"` // how many records were changed; null: not stated
	Method  *string `json:"method"`
	Reason  string  `json:"reason"`
}

// Capture is the capture's completeness as the manifest states it.
type Capture struct {
	Status     string         `json:"status"` // complete, partial or unknown
	Coverage   map[string]any `json:"coverage"`
	Records    *int64         `json:"records"`
	Omissions  []Omission     `json:"omissions"`
	Redactions []Redaction    `json:"redactions"`
}

// Successor is an artifact that takes the place of the one that was asked for. It
// is an advisory: the answer is about the one that was asked for.
type Successor struct {
	ArtifactID string `json:"artifact_id"`
	Kind       string `json:"kind"` // reacquire, correct, redact or transform
	At         string `json:"at"`   // when it was published
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
	Matched          *int64          `json:"matched,omitempty"`        // exact: every record was examined
	MatchedSoFar     *int64          `json:"matched_so_far,omitempty"` // otherwise
	Returned         int64           `json:"returned"`                 // by this page
	Undecidable      int64           `json:"undecidable"`
	UndecidableSpans []Span          `json:"undecidable_spans"` // the first 16 of this page
	Stop             string          `json:"stop"`
	More             string          `json:"more"`
	Completeness     Capture         `json:"capture_completeness"`
	Basis            string          `json:"basis"`
	Assurance        string          `json:"assurance"`
	Indexes          []string        `json:"indexes,omitempty"` // the paths of the indexes that told which records to examine
	Cursor           string          `json:"cursor,omitempty"`
	Conclusion       string          `json:"conclusion"`
	SupersededBy     []Successor     `json:"superseded_by,omitempty"` // the latest first, as far as the reader may know
	Query            *Query          `json:"-"`                       // for Conclude: what was asked; nil for a read by position
	through          int64           // records that are accounted for
}

// Fill copies what a scan did into the answer. Counts are those since the
// beginning of the first page, Returned and UndecidableSpans those of this one.
func (a *Answer) Fill(s Scan) {
	p := s.Position
	a.Examined = Examined{Records: p.Examined, Bytes: p.Bytes, Ranges: [][2]int64{}}
	for _, r := range s.Ranges {
		a.Examined.Ranges = append(a.Examined.Ranges, [2]int64{r.Start, r.End})
	}
	a.Matched, a.MatchedSoFar = nil, new(p.Matched)
	if s.Counted || s.Stop == StopComplete {
		a.Matched, a.MatchedSoFar = a.MatchedSoFar, nil
	}
	a.Returned, a.Undecidable = s.Returned, p.Undecidable
	a.UndecidableSpans = append([]Span{}, s.Undecidable...)
	a.Stop, a.More = s.Stop, s.More
	a.through = max(s.Through, p.Examined)
	if s.Indexed {
		a.Basis, a.Indexes, a.through = BasisIndex, s.Indexes, s.Through
	}
	if a.Basis == BasisIndex && a.Matched != nil {
		a.through = a.RecordsTotal
	}
}
