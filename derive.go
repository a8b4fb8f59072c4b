package leafproof

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"leafproof/cas"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// TransformQuery is the transform of the artifacts that [Store.Derive] makes.
const TransformQuery = "leafproof.query.v1"

// Derivation says what a new artifact has of an older one: the records that satisfy
// a condition, whole or parts of them.
type Derivation struct {
	// Where is the condition; see [selector.ParseWhere]. Empty, it holds for every
	// record.
	Where string
	// Select has the parts of each record that the new one has, in order; none are
	// whole records. Where and Select are not both empty.
	Select []Column

	// RunID is the run of the new artifact; "" is the older one's. For another, leave
	// to grant the older one is needed: who may read there could read the rows.
	RunID      string
	ToolCallID string
	// ExpiresAt and ExpiresIn end its availability, which never lasts longer than that
	// of the older one.
	ExpiresAt time.Time
	ExpiresIn time.Duration
	// Place says how to store it: see [PutOptions].
	Place cas.Placement
	// Progress, where set, is told how many bytes were read, in steps.
	Progress func(bytes int64)
}

// Column is a part of each record.
type Column struct {
	// Name is the member of the new record, or the column of its row; "" is the last
	// token of Path.
	Name string
	// Path selects the value; see [selector.ParseSelect]. Where it may select several,
	// the member is an array.
	Path string
}

// Derived is what [Store.Derive] made.
type Derived struct {
	Ref manifest.ArtifactRef
	// Answer is what the condition was asked of, and what was examined.
	Answer *selector.Answer
	// Spec is what the digest spec_digest of the transform is of: canonical JSON.
	Spec json.RawMessage
}

// Derive makes a new artifact of the records of an older one: its own id, hash and
// coverage, with the older one as its input. The older one stays what it is. The
// caller must have leave to derive; what he may see of the new artifact is asked when
// he reads it.
//
// Records go over as they stand, a line end after each: those of json, ndjson and
// concat make ndjson (line breaks inside a value become spaces), rows of csv make csv
// of the same dialect, lines make lines. With Select, a record becomes an object with
// a member for each column that has a value, or a row with the fields as they stand.
//
// The new artifact observed what the older one did: source, snapshot and observed_at
// are its own, so a copy does not look fresher than what it was made from. Its
// coverage is the older one's, narrowed by the condition (derived_where) and the
// columns (derived_select); omissions and redactions go over. A record about which the
// condition cannot be decided is not in it, and then it is partial, with an omission
// that counts them. A scan that does not reach its end makes no artifact.
func (s *Store) Derive(ctx context.Context, who Caller, id string, d Derivation) (*Derived, error) {
	a, err := s.find(ctx, who, id, gate.Derive)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	if d.RunID != "" && d.RunID != value(a.row.Run) {
		if err := s.mayPassOn(ctx, who, id); err != nil {
			return nil, err
		}
	}
	if d.Where == "" && len(d.Select) == 0 {
		return nil, fail(CodeSelectorInvalid, FixCall, "where", "a copy of all of it is the same artifact: a condition or a selection is missing")
	}
	q := Query{Where: d.Where, Progress: d.Progress}
	names, err := d.columns(&q)
	if err != nil {
		return nil, err
	}
	answer, task, err := a.ask(q)
	if err != nil {
		return nil, wireError(id, err)
	}
	w, err := newRowWriter(task, names)
	if err != nil {
		return nil, err
	}
	facts, err := a.derivedFacts(who, d, names, answer, w.layout.Format)
	if err != nil {
		return nil, err
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, io.Discard), permit, a.request)
	if err != nil {
		return nil, wireError(id, err)
	}
	draft, err := s.putRows(ctx, a, q, task, answer, w, gated, d)
	if err != nil {
		return nil, wireError(id, err)
	}
	// The new artifact tells at least how many there are.
	if err := a.disclosed(ctx, permit, Shown{Rows: &answer.Returned, QID: answer.QID}); err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	if answer.Undecidable > 0 {
		facts.f.Status = manifest.StatusPartial
		facts.f.Omissions = append(facts.f.Omissions, manifest.Omission{
			What:   map[string]any{"records": answer.Undecidable},
			Reason: "undecidable", Detail: new("the condition could not be decided about these records of " + id),
		})
	}
	ref, err := s.Publish(ctx, draft, facts.f)
	if err != nil {
		return nil, err
	}
	return &Derived{Ref: ref, Answer: answer, Spec: facts.spec}, nil
}

// mayPassOn refuses who has no leave to let others have an artifact.
func (s *Store) mayPassOn(ctx context.Context, who Caller, id string) error {
	a, err := s.find(ctx, who, id, gate.Grant)
	if err != nil {
		return err
	}
	_, err = a.permit(ctx)
	return err
}

// columns settles the names of what is selected.
func (d Derivation) columns(q *Query) (names []string, err error) {
	for i, c := range d.Select {
		name := c.Name
		if name == "" {
			name = c.Path
			if at := strings.LastIndexByte(c.Path, '/'); strings.HasPrefix(c.Path, "/") {
				name = strings.NewReplacer("~1", "/", "~0", "~").Replace(c.Path[at+1:])
			}
		}
		if name == "" {
			return nil, fail(CodeSelectorInvalid, FixCall, "select", "column %d has no name: %q gives none", i+1, c.Path)
		}
		if _, err := manifest.Canonical(name); err != nil || len(name) > maxNamed {
			return nil, fail(CodeSelectorInvalid, FixCall, "select", "column %d: a name has at most %d bytes, and only characters that a manifest may hold", i+1, maxNamed)
		}
		if slices.Contains(names, name) {
			return nil, fail(CodeSelectorInvalid, FixCall, "select", "two columns have the name %q", name)
		}
		names = append(names, name)
		q.Select = append(q.Select, c.Path)
	}
	return names, nil
}

// putRows runs the task, and puts what it selects while it is found.
func (s *Store) putRows(ctx context.Context, a *artifact, q Query, task *selector.Task, answer *selector.Answer, w *rowWriter, gated io.Writer, d Derivation) (*Draft, error) {
	r, pipe := io.Pipe()
	var scan selector.Scan
	scanned := make(chan error, 1)
	go func() {
		w.out = pipe
		err := w.begin()
		if err == nil {
			scan, err = a.scan(ctx, q, *task, func(row selector.Row) error {
				text := w.row(row)
				if _, err := gated.Write(text); err != nil {
					return err
				}
				return w.write(text)
			})
		}
		if err == nil && scan.Stop != selector.StopComplete {
			err = incomplete(a.row.ArtifactID, scan.Stop, nil)
		}
		err = errors.Join(err, w.flush(err))
		pipe.CloseWithError(err) // nil: the end of the rows
		scanned <- err
	}()
	draft, err := s.Put(ctx, r, w.options(a, d))
	r.CloseWithError(errAbandoned)
	scanErr := <-scanned
	if scanErr != nil && !errors.Is(scanErr, errAbandoned) {
		err = scanErr
	}
	if err != nil {
		if draft != nil {
			draft.Discard()
		}
		return nil, err
	}
	answer.Fill(scan)
	answer.Conclude()
	return draft, nil
}

// errAbandoned ends the scan for rows that nobody takes.
var errAbandoned = errors.New("the rows are not taken any more")

// derivedFacts are the facts of a derived artifact, and the spec of its transform.
type derivedFacts struct {
	f    Facts
	spec []byte
}

func (a *artifact) derivedFacts(who Caller, d Derivation, names []string, answer *selector.Answer, format string) (derivedFacts, error) {
	ref := a.m.Predicate.ArtifactRef
	spec, err := derivedSpec(answer.Selector, names, format)
	if err != nil {
		return derivedFacts{}, err
	}
	digest := merkle.Sum(spec).String()
	selected := merkle.Sum(answer.Selector).String()
	c := ref.Completeness
	f := Facts{
		Caller: who, RunID: cmp.Or(d.RunID, value(ref.Scope.RunID)), ToolCallID: d.ToolCallID,
		SourceID: value(ref.SourceVersion.SourceID), SnapshotID: value(ref.SourceVersion.SnapshotID),
		Status: c.Status, Coverage: narrowed(c.Coverage, d, names), Omissions: slices.Clone(c.Omissions),
		Redactions: carried(c.Redactions, d, names), Lineage: "transform",
		Producer: &Producer{Tool: "leafproof derive", ToolVersion: Version},
		Inputs: []manifest.Input{{
			ArtifactID: a.row.ArtifactID, ContentHash: ref.ContentHash, ManifestID: a.m.ManifestID,
			SelectorDigest: &selected, Role: "source",
		}},
		Transform: &manifest.Transform{ID: TransformQuery, SpecDigest: digest, Deterministic: true},
		ExpiresAt: d.ExpiresAt, ExpiresIn: d.ExpiresIn, within: a.row.ExpiresAt,
	}
	if ref.SourceVersion.ObservedAt != nil {
		if f.ObservedAt, err = manifest.ParseTime(*ref.SourceVersion.ObservedAt); err != nil {
			return derivedFacts{}, err
		}
	}
	return derivedFacts{f, spec}, nil
}

// derivedSpec says in canonical JSON how the bytes follow from those of the input:
// whoever has both can do it again.
func derivedSpec(query []byte, names []string, format string) ([]byte, error) {
	var normalised any
	if err := json.Unmarshal(query, &normalised); err != nil {
		return nil, err
	}
	return manifest.Canonical(map[string]any{"columns": append([]string{}, names...), "format": format, "query": normalised})
}

// narrowed is what the coverage says once a condition and a selection were put to it.
func narrowed(coverage map[string]any, d Derivation, names []string) map[string]any {
	out := make(map[string]any, len(coverage)+2)
	for k, v := range coverage {
		out[k] = v
	}
	add := func(key string, v any) {
		switch old := out[key].(type) {
		case nil:
			out[key] = []any{v}
		case []any:
			out[key] = append(slices.Clone(old), v)
		default:
			out[key] = []any{old, v}
		}
	}
	if d.Where != "" {
		add("derived_where", d.Where)
	}
	if len(names) > 0 {
		list := make([]any, len(names))
		for i, n := range names {
			list[i] = n + "=" + d.Select[i].Path
		}
		add("derived_select", list)
	}
	return out
}

// carried are the redactions of the input, at the places where the columns have them.
// How many records of the selected ones they changed is not known.
func carried(list []manifest.Redaction, d Derivation, names []string) (out []manifest.Redaction) {
	for _, r := range list {
		r.Records = nil
		if len(names) == 0 {
			out = append(out, r)
			continue
		}
		for i, name := range names {
			at, path := "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), d.Select[i].Path
			below, inside := strings.CutPrefix(r.Path, path)
			isPointer := path == "" || path[0] == '/'
			switch {
			case isPointer && inside && (below == "" || below[0] == '/'):
				at += below
			case isPointer && !strings.HasPrefix(path, r.Path+"/") && r.Path != "":
				continue
			}
			moved := r
			moved.Path = at
			out = append(out, moved)
		}
	}
	return out
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// rowWriter writes the records of a derived artifact.
type rowWriter struct {
	out    io.Writer
	layout selector.Layout // of what it writes
	from   string          // the format of what it reads
	names  [][]byte        // with Select: JSON strings, or the columns as they are
	many   []bool
	text   []byte
	buf    []byte
}

func newRowWriter(task *selector.Task, names []string) (*rowWriter, error) {
	w := &rowWriter{from: task.Layout.Format, layout: task.Layout, buf: make([]byte, 0, copyBuffer)}
	switch w.from {
	case selector.FormatText:
		if len(names) > 0 {
			return nil, fail(CodeSelectorInvalid, FixCall, "select", "a line has no parts to select")
		}
	case selector.FormatCSV:
		if len(names) > 0 {
			w.layout.Dialect.Columns = names
		}
	default:
		w.layout = selector.Layout{Format: selector.FormatNDJSON}
	}
	for i, name := range names {
		text := []byte(name)
		if w.from != selector.FormatCSV {
			quoted, err := manifest.Canonical(name)
			if err != nil {
				return nil, err
			}
			text = quoted
		}
		w.names, w.many = append(w.names, text), append(w.many, !task.Select[i].Singular())
	}
	return w, nil
}

// options say what a put of the rows is.
func (w *rowWriter) options(a *artifact, d Derivation) PutOptions {
	o := PutOptions{Tenant: a.row.Tenant, Records: w.layout.Format, Place: d.Place}
	if w.layout.Format == selector.FormatCSV {
		dialect := &w.layout.Dialect
		o.CSV = CSV{Delimiter: &dialect.Delimiter, Quote: &dialect.Quote, Header: &dialect.Header}
	}
	return o
}

// begin writes what stands before the first record.
func (w *rowWriter) begin() error {
	d := w.layout.Dialect
	if w.layout.Format != selector.FormatCSV || !d.Header {
		return nil
	}
	for i, name := range d.Columns {
		if i > 0 {
			w.text = append(w.text, d.Delimiter...)
		}
		if strings.ContainsAny(name, d.Delimiter+d.Quote+"\r\n") || name == "" && len(d.Columns) == 1 {
			if d.Quote == "" {
				return fail(CodeSelectorInvalid, FixCall, "select", "the column %q cannot be written without quotes", name)
			}
			name = d.Quote + strings.ReplaceAll(name, d.Quote, d.Quote+d.Quote) + d.Quote
		}
		w.text = append(w.text, name...)
	}
	w.text = append(w.text, '\n')
	return w.write(w.text)
}

// row returns the text of a row with its line end, valid until the next.
func (w *rowWriter) row(r selector.Row) []byte {
	w.text = w.text[:0]
	switch {
	case len(w.names) == 0:
		w.text = append(w.text, r.Bytes...)
	case w.from == selector.FormatCSV:
		for i := range w.names {
			if i > 0 {
				w.text = append(w.text, w.layout.Dialect.Delimiter...)
			}
			if i < len(r.Selected) && len(r.Selected[i]) > 0 {
				w.text = append(w.text, r.Selected[i][0].Bytes...)
			}
		}
	default:
		w.object(r.Selected)
	}
	if isJSON(w.from) {
		// In a JSON value a line break is white space: in a string it would be escaped.
		for i, b := range w.text {
			if b == '\n' || b == '\r' {
				w.text[i] = ' '
			}
		}
	}
	w.text = append(w.text, '\n')
	return w.text
}

// object appends an object with a member for each column that has a value.
func (w *rowWriter) object(selected [][]selector.Value) {
	w.text = append(w.text, '{')
	for i, values := range selected {
		if len(values) == 0 && !w.many[i] {
			continue
		}
		if len(w.text) > 1 {
			w.text = append(w.text, ',')
		}
		w.text = append(append(w.text, w.names[i]...), ':')
		if !w.many[i] {
			w.text = append(w.text, values[0].Bytes...)
			continue
		}
		w.text = append(w.text, '[')
		for j, v := range values {
			if j > 0 {
				w.text = append(w.text, ',')
			}
			w.text = append(w.text, v.Bytes...)
		}
		w.text = append(w.text, ']')
	}
	w.text = append(w.text, '}')
}

// write gathers small rows.
func (w *rowWriter) write(text []byte) error {
	if len(w.buf)+len(text) > cap(w.buf) {
		if err := w.flush(nil); err != nil {
			return err
		}
	}
	if len(text) > cap(w.buf) {
		_, err := w.out.Write(text)
		return err
	}
	w.buf = append(w.buf, text...)
	return nil
}

// flush writes what was gathered, unless the rows ended in an error.
func (w *rowWriter) flush(failed error) error {
	if failed != nil || len(w.buf) == 0 {
		return nil
	}
	_, err := io.Copy(w.out, bytes.NewReader(w.buf))
	w.buf = w.buf[:0]
	return err
}
