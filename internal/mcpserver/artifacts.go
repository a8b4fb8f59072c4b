package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"leafproof"
	"leafproof/manifest"
)

type putArgs struct {
	Content    *string         `json:"content"`
	Encoding   *string         `json:"encoding"`
	MediaType  *string         `json:"media_type"`
	Records    *string         `json:"records"`
	At         *string         `json:"at"`
	Index      []string        `json:"index"`
	ToolCallID *string         `json:"tool_call_id"`
	SourceID   *string         `json:"source_id"`
	SnapshotID *string         `json:"snapshot_id"`
	ObservedAt *string         `json:"observed_at"`
	Schema     *string         `json:"schema_version"`
	Coverage   json.RawMessage `json:"coverage"`
	Omissions  json.RawMessage `json:"omissions"`
	Redactions json.RawMessage `json:"redactions"`
	Supersedes []target        `json:"supersedes"`
	Partial    *bool           `json:"partial"`
	ExpiresIn  *int64          `json:"expires_in_seconds"`
}

// indexMemory is how much memory the building of a call's indexes may take.
const indexMemory = 16 << 20

// bytes is the content.
func (a putArgs) bytes() ([]byte, error) {
	if a.Content == nil {
		return nil, invalid("/content", "/content is missing")
	}
	switch encoding := text(a.Encoding); encoding {
	case "", "utf-8":
		return within([]byte(*a.Content), nil)
	case "base64":
		return within(base64.StdEncoding.Strict().DecodeString(*a.Content))
	default:
		return nil, invalid("/encoding", "/encoding: neither utf-8 nor base64")
	}
}

func within(b []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, invalid("/content", "/content: not base64 with padding and without line ends")
	}
	if len(b) > MaxPut {
		return nil, &leafproof.Error{
			Code: leafproof.CodeTooLarge, Message: "/content: more than 8 MiB; put it over HTTP or with the command leafproof put", Action: leafproof.FixCall, At: "/content",
		}
	}
	return b, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// facts are what is stated of the content, in the store's own form: what it refuses
// in a file of facts, it refuses here.
func (a putArgs) facts(who Identity) (leafproof.Facts, leafproof.PutOptions, error) {
	type object = map[string]any
	version := object{"source_id": a.SourceID, "snapshot_id": a.SnapshotID, "observed_at": a.ObservedAt}
	complete := object{}
	for name, stated := range map[string]json.RawMessage{"coverage": a.Coverage, "omissions": a.Omissions, "redactions": a.Redactions} {
		if stated != nil {
			complete[name] = stated
		}
	}
	ref := object{"tool_call_id": a.ToolCallID, "schema_version": a.Schema, "source_version": version, "completeness": complete}
	doc := object{"artifact_ref": ref, "bytes": object{"media_type": a.MediaType}, "records": object{"format": a.Records, "pointer": a.At}}
	stated, err := json.Marshal(doc)
	if err != nil {
		return leafproof.Facts{}, leafproof.PutOptions{}, invalid("/coverage", "/coverage: not JSON")
	}
	f, o, err := leafproof.ParseFacts(stated)
	if err != nil {
		return f, o, placed(err)
	}
	f.Caller, f.RunID, o.Tenant = who.Caller, who.Run, who.Tenant
	o.Indexes, o.IndexMemory = a.Index, indexMemory
	if len(a.Supersedes) > maxListed {
		return f, o, invalid("/supersedes", "/supersedes: %d artifacts, at most %d", len(a.Supersedes), maxListed)
	}
	for _, id := range a.Supersedes {
		f.Supersedes = append(f.Supersedes, manifest.Supersede{ArtifactID: string(id)})
	}
	f.Partial = a.Partial != nil && *a.Partial
	if a.ExpiresIn != nil {
		if *a.ExpiresIn < 1 || *a.ExpiresIn > int64(100*365*24*time.Hour/time.Second) {
			return f, o, invalid("/expires_in_seconds", "/expires_in_seconds: from a second to a hundred years")
		}
		f.ExpiresIn = time.Duration(*a.ExpiresIn) * time.Second
	}
	return f, o, placed(f.Check(o))
}

// placed names the argument where a fact stood, instead of its place in a manifest.
func placed(err error) error {
	e, ok := err.(*leafproof.Error)
	if !ok {
		return err
	}
	for _, p := range [][2]string{
		{"/artifact_ref/source_version", ""},
		{"/artifact_ref/completeness", ""},
		{"/artifact_ref", ""},
		{"/bytes", ""},
		{"/records/format", "/records"},
		{"/records/pointer", "/at"},
	} {
		if rest, ok := strings.CutPrefix(e.At, p[0]); ok {
			at := p[1] + rest
			return &leafproof.Error{Code: e.Code, Message: strings.ReplaceAll(e.Message, e.At, at), Retryable: e.Retryable, Action: e.Action, At: at}
		}
	}
	what := e.At
	if what == "" {
		what, _, _ = strings.Cut(e.Message, ":")
	}
	if at := map[string]string{"index": "/index", "pointer": "/at", "records": "/records"}[what]; at != "" {
		return &leafproof.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Action: e.Action, At: at}
	}
	return err
}

// put keeps content as an artifact.
func (f *face) put(ctx context.Context, a putArgs) (any, error) {
	content, err := a.bytes()
	if err != nil {
		return nil, err
	}
	facts, o, err := a.facts(f.who)
	if err != nil {
		return nil, err
	}
	draft, err := f.store.Put(ctx, bytes.NewReader(content), o)
	if err != nil {
		return nil, placed(err)
	}
	ref, err := f.store.Publish(ctx, draft, facts)
	if err != nil {
		return nil, err
	}
	v, err := f.made(ctx, ref, draft.Size())
	if err != nil {
		return nil, err
	}
	v.Notes = append(v.Notes, "records: "+cut(draft.Chosen()))
	if n := draft.Undecidable(); n > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("undecidable records: %d; no query will match or rule them out", n))
	}
	for _, h := range draft.StillHeld() {
		v.Notes = append(v.Notes, cut("redacted, and still there: "+h.Path))
	}
	return v, nil
}

// made is what is told of an artifact to whoever put it. Who may put need not be
// one who may look.
func (f *face) made(ctx context.Context, ref manifest.ArtifactRef, size int64) (*artifactView, error) {
	st, err := f.store.Resolve(ctx, f.who.Caller, ref.ArtifactID)
	switch leafproof.CodeOf(err) {
	case leafproof.CodeRefNotFound, leafproof.CodeAccessRevoked:
		return view(ctx, ref, nil, size), nil
	}
	if err != nil {
		return nil, err
	}
	v := view(ctx, ref, st.Manifest, size)
	for _, x := range st.Indexes {
		v.Indexes = append(v.Indexes, cut(x.Path))
	}
	return v, nil
}

type statArgs struct {
	Artifact target `json:"artifact_id"`
}

func (f *face) stat(ctx context.Context, a statArgs) (any, error) {
	if a.Artifact == "" {
		return nil, invalid("/artifact_id", "/artifact_id is missing")
	}
	st, err := f.store.Resolve(ctx, f.who.Caller, string(a.Artifact))
	if err != nil {
		return nil, err
	}
	v := view(ctx, st.Ref, st.Manifest, st.Manifest.Size)
	for _, x := range st.Indexes {
		v.Indexes = append(v.Indexes, cut(x.Path))
	}
	v.SupersededBy = st.SupersededBy[:min(len(st.SupersededBy), maxListed)]
	v.InputsDeleted = st.InputsDeleted[:min(len(st.InputsDeleted), maxListed)]
	return v, nil
}

type listArgs struct {
	Limit  *int64  `json:"limit"`
	Cursor *string `json:"cursor"`
}

// listView is a page of a listing.
type listView struct {
	DataOnly  bool        `json:"data_only"`
	Artifacts []entryView `json:"artifacts"`
	More      string      `json:"more"`
	Cursor    string      `json:"cursor,omitempty"`
}

type entryView struct {
	ArtifactID string    `json:"artifact_id"`
	Size       int64     `json:"size"`
	SourceID   *string   `json:"source_id"`
	CreatedAt  time.Time `json:"created_at"`
}

const (
	defaultEntries = 25
	maxEntries     = 100
)

func (f *face) list(ctx context.Context, a listArgs) (any, error) {
	if a.Limit != nil && *a.Limit < 1 {
		return nil, invalid("/limit", "/limit: %d is less than 1", *a.Limit)
	}
	entries, next, err := f.entries(ctx, text(a.Cursor), int(min(or(a.Limit, defaultEntries), maxEntries)))
	if err != nil {
		return nil, err
	}
	v := &listView{DataOnly: true, Artifacts: []entryView{}, More: more(next != ""), Cursor: next}
	for _, e := range entries {
		v.Artifacts = append(v.Artifacts, entryView{e.ArtifactID, e.Size, e.SourceID, e.CreatedAt.UTC()})
	}
	return v, nil
}

// entries is a page of the tenant's artifacts that the caller may know of. A page
// may be short, or empty, and not be the last.
func (f *face) entries(ctx context.Context, cursor string, limit int) ([]leafproof.Entry, string, error) {
	after := int64(0)
	if cursor != "" {
		n, err := strconv.ParseUint(cursor, 10, 63)
		if err != nil || n == 0 || !utf8.ValidString(cursor) || cursor != strconv.FormatUint(n, 10) {
			return nil, "", &leafproof.Error{Code: leafproof.CodeCursorMalformed, Message: "/cursor: not one of this listing", Action: leafproof.FixCall, At: "/cursor"}
		}
		after = int64(n)
	}
	list, next, err := f.store.List(ctx, f.who.Caller, f.who.Tenant, after, limit)
	if err != nil || next == 0 {
		return list, "", err
	}
	return list, strconv.FormatInt(next, 10), nil
}
