package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

// Bounds of what an answer says besides rows and bytes: a manifest may hold a MiB.
const (
	maxText     = 2000 // characters of one text
	maxListed   = 16   // omissions, redactions, successors, columns, ranges
	maxCoverage = 4096 // bytes of a coverage that is told whole
	maxName     = 128  // characters of a name: a snapshot, a call, a schema, a column, a media type
	maxColumns  = 4096 // bytes of the names of columns that are told
)

// artifactView is what a model is told of an artifact.
type artifactView struct {
	DataOnly      bool                 `json:"data_only"`
	ArtifactID    string               `json:"artifact_id"`
	Reference     reference            `json:"reference"`
	Resource      string               `json:"resource"`
	Size          int64                `json:"size"`
	Format        *formatView          `json:"format"` // null: not told
	CreatedAt     string               `json:"created_at"`
	ExpiresAt     *string              `json:"expires_at"`
	SourceVersion sourceView           `json:"source_version"`
	Completeness  completenessView     `json:"completeness"`
	ToolCallID    *string              `json:"tool_call_id,omitempty"`
	SchemaVersion *string              `json:"schema_version,omitempty"`
	SchemaFailed  *int64               `json:"schema_failed,omitempty"`
	Selectors     []string             `json:"selectors"`
	Indexes       []string             `json:"indexes,omitempty"` // the paths that indexes are over
	SupersededBy  []selector.Successor `json:"superseded_by,omitempty"`
	InputsDeleted []string             `json:"inputs_deleted,omitempty"`
	Notes         []string             `json:"notes,omitempty"`
}

// formatView says how the bytes are to be taken.
type formatView struct {
	MediaType string       `json:"mediaType"`
	Records   *recordsView `json:"records"` // null: it has no records
}

type recordsView struct {
	Format  string   `json:"format"`
	Pointer string   `json:"pointer,omitempty"`
	Columns []string `json:"columns,omitempty"`
	Count   int64    `json:"count"`
}

type sourceView struct {
	SourceID   *string `json:"source_id"`
	SnapshotID *string `json:"snapshot_id"`
	ObservedAt *string `json:"observed_at"`
}

// completenessView says how complete the capture is. Lists that are long are cut,
// and what is left out is counted.
type completenessView struct {
	Status          string               `json:"status"`
	Coverage        json.RawMessage      `json:"coverage"`
	CoveragePreview json.RawMessage      `json:"coverage_preview,omitempty"`
	Records         *int64               `json:"records"`
	Omissions       []selector.Omission  `json:"omissions"`
	Redactions      []selector.Redaction `json:"redactions"`
	NotListed       int                  `json:"not_listed,omitempty"`
}

// view is what a model is told of an artifact; with m nil, what its reference says.
func view(ctx context.Context, ref manifest.ArtifactRef, m *manifest.Manifest, size int64) *artifactView {
	v := &artifactView{
		DataOnly: true, ArtifactID: ref.ArtifactID, Reference: referenceTo(ref.ArtifactID), Resource: uriPrefix + ref.ArtifactID,
		Size: size, CreatedAt: ref.CreatedAt, ExpiresAt: ref.ExpiresAt, SourceVersion: sourceOf(selector.SourceVersion(ref.SourceVersion)),
		Completeness: completeness(ctx, capture(ref.Completeness)),
		ToolCallID:   namePointer(ref.ToolCallID), SchemaVersion: namePointer(ref.SchemaVersion), Selectors: ref.Retrieval.Selectors,
	}
	if m == nil {
		return v
	}
	v.Format = &formatView{MediaType: cutTo(m.Predicate.Bytes.MediaType, maxName)}
	if r := m.Predicate.Records; r != nil {
		v.Format.Records = &recordsView{Format: r.Format, Pointer: r.Pointer, Count: r.Count}
		if r.Dialect != nil {
			v.Format.Records.Columns = columns(r.Dialect.Columns)
		}
	}
	if c := m.Predicate.Schema; c != nil {
		v.SchemaFailed = &c.Failed
	}
	return v
}

// sourceOf is a source version with a snapshot's name of a bounded length.
func sourceOf(v selector.SourceVersion) sourceView {
	v.SourceID, v.SnapshotID = namePointer(v.SourceID), namePointer(v.SnapshotID)
	return sourceView(v)
}

// columns are the first names of columns that there is room for.
func columns(all []string) []string {
	var out []string
	room := maxColumns
	for _, c := range all {
		c = cutTo(c, maxName)
		if room -= len(c) + len(`"",`); room < 0 {
			break
		}
		out = append(out, c)
	}
	return out
}

// link is the artifact as a resource, for hosts that open those.
func (v *artifactView) link() *mcp.ResourceLink {
	l := &mcp.ResourceLink{URI: v.Resource, Name: v.ArtifactID, Size: &v.Size}
	if v.Format != nil {
		l.MIMEType = v.Format.MediaType
	}
	return l
}

// capture is what a manifest says of a capture, in the words of an answer.
func capture(c manifest.Completeness) selector.Capture {
	out := selector.Capture{Status: c.Status, Coverage: c.Coverage, Records: c.Records}
	for _, o := range c.Omissions {
		out.Omissions = append(out.Omissions, selector.Omission{What: o.What, Reason: o.Reason, Detail: o.Detail})
	}
	for _, r := range c.Redactions {
		out.Redactions = append(out.Redactions, selector.Redaction{Path: r.Path, Records: r.Records, Method: r.Method, Reason: r.Reason})
	}
	return out
}

func completeness(ctx context.Context, c selector.Capture) completenessView {
	v := completenessView{Status: c.Status, Records: c.Records, Coverage: json.RawMessage("null"), Omissions: []selector.Omission{}, Redactions: []selector.Redaction{}}
	if c.Coverage != nil {
		text, err := marshal(c.Coverage)
		switch {
		case err != nil: // it was parsed from JSON
		case len(text) <= maxCoverage:
			v.Coverage = text
		default:
			v.CoveragePreview, _ = selector.Preview(ctx, bytes.NewReader(text), selector.Span{End: int64(len(text))}, maxText)
		}
	}
	for _, o := range c.Omissions[:min(len(c.Omissions), maxListed)] {
		if text, err := marshal(o.What); err != nil || len(text) > maxText {
			o.What = cut(string(text))
		}
		o.Reason, o.Detail = cut(o.Reason), cutPointer(o.Detail)
		v.Omissions = append(v.Omissions, o)
	}
	for _, r := range c.Redactions[:min(len(c.Redactions), maxListed)] {
		r.Path, r.Reason, r.Method = cut(r.Path), cut(r.Reason), cutPointer(r.Method)
		v.Redactions = append(v.Redactions, r)
	}
	v.NotListed = len(c.Omissions) - len(v.Omissions) + len(c.Redactions) - len(v.Redactions)
	return v
}

// cut shortens a text of more than maxText bytes, and says so by an ellipsis.
func cut(s string) string { return cutTo(s, maxText) }

// cutTo is cut for another length than maxText.
func cutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func namePointer(s *string) *string {
	if s == nil {
		return nil
	}
	return new(cutTo(*s, maxName))
}

func cutPointer(s *string) *string {
	if s == nil {
		return nil
	}
	return new(cut(*s))
}

// answerView is what a model is told that an answer rests on.
type answerView struct {
	DataOnly         bool                 `json:"data_only"`
	ArtifactID       string               `json:"artifact_id"`
	Reference        reference            `json:"reference"`
	SourceVersion    sourceView           `json:"source_version"`
	Selector         json.RawMessage      `json:"selector"`
	Order            string               `json:"order,omitempty"`
	RecordsTotal     int64                `json:"records_total"`
	Examined         selector.Examined    `json:"examined"`
	Matched          *int64               `json:"matched,omitempty"`
	MatchedSoFar     *int64               `json:"matched_so_far,omitempty"`
	Returned         int64                `json:"returned"`
	Undecidable      int64                `json:"undecidable"`
	UndecidableSpans []selector.Span      `json:"undecidable_spans"`
	Stop             string               `json:"stop"`
	More             string               `json:"more"`
	Completeness     completenessView     `json:"capture_completeness"`
	Basis            string               `json:"basis"`
	Assurance        string               `json:"assurance"`
	Indexes          []string             `json:"indexes,omitempty"` // the paths of those that told which records to examine
	Cursor           string               `json:"cursor,omitempty"`
	Conclusion       string               `json:"conclusion"`
	SupersededBy     []selector.Successor `json:"superseded_by,omitempty"`
	*problem
}

func answered(ctx context.Context, a *selector.Answer) answerView {
	v := answerView{
		DataOnly: true, ArtifactID: a.ArtifactID, Reference: referenceTo(a.ArtifactID),
		SourceVersion: sourceOf(a.SourceVersion),
		Selector:      a.Selector, Order: a.Order, RecordsTotal: a.RecordsTotal, Examined: a.Examined,
		Matched: a.Matched, MatchedSoFar: a.MatchedSoFar, Returned: a.Returned,
		Undecidable: a.Undecidable, UndecidableSpans: a.UndecidableSpans, Stop: a.Stop, More: a.More,
		Completeness: completeness(ctx, a.Completeness), Basis: a.Basis, Assurance: a.Assurance, Indexes: a.Indexes, Cursor: a.Cursor,
		Conclusion: cut(a.Conclusion), SupersededBy: a.SupersededBy[:min(len(a.SupersededBy), maxListed)],
	}
	v.Examined.Ranges = a.Examined.Ranges[:min(len(a.Examined.Ranges), maxListed)]
	if v.Examined.Ranges == nil {
		v.Examined.Ranges = [][2]int64{}
	}
	if v.UndecidableSpans == nil {
		v.UndecidableSpans = []selector.Span{}
	}
	return v
}

// unfinished puts a failure into an answer that says how far it came. A scan that
// was interrupted is one that can be gone on with.
func (v *answerView) unfinished(p *problem) bool {
	v.problem = p
	return p.Code == leafproof.CodeScanIncomplete
}

// isText says whether bytes of a media type are shown as text, where they are UTF-8.
func isText(mediaType string) bool {
	t, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return false
	}
	if strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+json") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+yaml") {
		return true
	}
	switch strings.TrimPrefix(t, "application/") {
	case "json", "x-ndjson", "ndjson", "jsonl", "x-jsonlines", "json-seq", "xml", "yaml", "x-yaml", "toml", "sql", "javascript", "x-javascript", "graphql", "x-sh", "csv":
		return true
	}
	return false
}

// textPage returns how many of the bytes of a page are text: all but a character
// that goes on behind the page, where last is false. None are, where the bytes are
// not UTF-8: they are shown in base64.
func textPage(b []byte, last bool) (int, bool) {
	n := len(b)
	if !last {
		for back := 1; back < utf8.UTFMax && back <= n; back++ {
			if c := b[n-back]; utf8.RuneStart(c) {
				if c >= utf8.RuneSelf && !utf8.FullRune(b[n-back:]) {
					n -= back
				}
				break
			}
		}
	}
	if n == 0 && len(b) > 0 {
		return len(b), false
	}
	return n, utf8.Valid(b[:n])
}
