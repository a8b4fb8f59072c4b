package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/merkle"
	"leafproof/selector"
)

type readArgs struct {
	Artifact    target  `json:"artifact_id"`
	Offset      *int64  `json:"offset"`
	Length      *int64  `json:"length"`
	FirstRecord *int64  `json:"first_record"`
	MaxRecords  *int64  `json:"max_records"`
	Pointer     *string `json:"pointer"`
	Preview     *bool   `json:"preview"`
}

// check refuses a call that asks for two things.
func (a readArgs) check() error {
	ways := 0
	for _, on := range []bool{
		a.Offset != nil || a.Length != nil, a.FirstRecord != nil || a.MaxRecords != nil, a.Pointer != nil, a.Preview != nil && *a.Preview,
	} {
		if on {
			ways++
		}
	}
	switch {
	case a.Artifact == "":
		return invalid("/artifact_id", "/artifact_id is missing")
	case ways > 1:
		return invalid("", "offset and length, first_record and max_records, pointer, and preview exclude each other")
	case a.Offset != nil && *a.Offset < 0:
		return invalid("/offset", "/offset: %d is less than 0", *a.Offset)
	case a.Length != nil && *a.Length < 1:
		return invalid("/length", "/length: %d is less than 1", *a.Length)
	case a.FirstRecord != nil && *a.FirstRecord < 0:
		return invalid("/first_record", "/first_record: %d is less than 0", *a.FirstRecord)
	case a.MaxRecords != nil && *a.MaxRecords < 1:
		return invalid("/max_records", "/max_records: %d is less than 1", *a.MaxRecords)
	}
	return nil
}

// read gives a page of an artifact: bytes, records, the value at a pointer, or a
// preview of it all.
func (f *face) read(ctx context.Context, a readArgs) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	switch id := string(a.Artifact); {
	case a.FirstRecord != nil || a.MaxRecords != nil:
		return f.readRecords(ctx, id, or(a.FirstRecord, 0), min(or(a.MaxRecords, defaultRows), maxRows))
	case a.Pointer != nil:
		return f.readPointer(ctx, id, *a.Pointer)
	case a.Preview != nil && *a.Preview:
		return f.readPreview(ctx, id)
	default:
		return f.readBytes(ctx, id, or(a.Offset, 0), min(or(a.Length, PageBytes), MaxPage))
	}
}

func or(p *int64, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return *p
}

// bytesView is a page of bytes: as text where the artifact is text, else in base64.
type bytesView struct {
	answerView
	Size       int64  `json:"size"`
	Offset     int64  `json:"offset"`
	Length     int64  `json:"length"` // bytes of the artifact in this page
	Encoding   string `json:"encoding"`
	Content    any    `json:"content"`
	NextOffset *int64 `json:"next_offset"` // null at the end
}

// page reads up to n bytes from an offset on. Pages that begin where the one before
// ended are the artifact, byte for byte.
func (f *face) page(ctx context.Context, id string, off, n int64) (*selector.Answer, *bytesView, string, error) {
	c, err := f.store.Content(ctx, f.who.Caller, id)
	if err != nil {
		return nil, nil, "", err
	}
	defer c.Close()
	if off > c.Size() {
		return nil, nil, "", &leafproof.Error{
			Code: leafproof.CodeSelectorInvalid, Action: leafproof.FixCall, At: "/offset",
			Message: fmt.Sprintf("/offset: %d is behind the end of %s, which has %d bytes", off, id, c.Size()),
		}
	}
	r := merkle.Range{Start: off, End: min(off+min(n, MaxPage), c.Size())}
	var buf bytes.Buffer
	a, err := f.store.Read(ctx, f.who.Caller, id, leafproof.Selector{Bytes: &r}, &buf)
	if err != nil {
		return nil, nil, "", err
	}
	v := &bytesView{Size: c.Size(), Offset: off, Encoding: "base64", Content: buf.Bytes(), Length: int64(buf.Len())}
	if isText(c.MediaType()) {
		if n, ok := textPage(buf.Bytes(), r.End == c.Size()); ok {
			v.Encoding, v.Content, v.Length = "utf-8", string(buf.Bytes()[:n]), int64(n)
		}
	}
	if next := off + v.Length; next < c.Size() {
		v.NextOffset = &next
	}
	return a, v, c.MediaType(), nil
}

func (f *face) readBytes(ctx context.Context, id string, off, n int64) (any, error) {
	a, v, _, err := f.page(ctx, id, off, n)
	if err != nil {
		return nil, err
	}
	v.answerView = answered(ctx, a)
	v.More = more(v.NextOffset != nil)
	return v, nil
}

func more(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// errFull ends a read whose page is full.
var errFull = errors.New("the page is full")

// limited takes up to left bytes.
type limited struct {
	b    bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errFull
	}
	l.left -= len(p)
	return l.b.Write(p)
}

// rowView is a record. One that is JSON stands as it is in the artifact, digit for
// digit; one that is too long for a page is shown by a preview.
type rowView struct {
	Record   int64           `json:"record"`
	Span     selector.Span   `json:"span"`
	Value    json.RawMessage `json:"value,omitempty"`
	Text     *string         `json:"text,omitempty"`
	Base64   []byte          `json:"base64,omitempty"`
	Preview  json.RawMessage `json:"preview,omitempty"`
	Selected [][]valueView   `json:"selected,omitempty"`
	NotShown int             `json:"not_shown,omitempty"` // values that were selected, and had no room
}

type valueView struct {
	Path string `json:"path"`
	shown
}

// shown is one value, in the form that it has room for.
type shown struct {
	Value   json.RawMessage `json:"value,omitempty"`
	Text    *string         `json:"text,omitempty"`
	Base64  []byte          `json:"base64,omitempty"`
	Preview json.RawMessage `json:"preview,omitempty"`
}

// maxNested is how deep a value is nested that stands as JSON in an answer: readers
// of JSON give up somewhere.
const maxNested = 64

// show gives bytes the form that a model reads. They are no longer than a page.
func show(b []byte, asJSON bool) (s shown) {
	switch {
	case asJSON && jsontext.Value(b).IsValid() && depth(b) <= maxNested:
		s.Value = json.RawMessage(b)
	default:
		if n, ok := textPage(b, true); ok && n == len(b) {
			s.Text = new(string(b))
		} else {
			s.Base64 = b
		}
	}
	return s
}

// showLong gives bytes that are too long for a page the form of a preview; where
// they are no JSON, their beginning.
func showLong(ctx context.Context, src io.ReaderAt, span selector.Span, asJSON bool) (shown, error) {
	if asJSON {
		if p, err := selector.Preview(ctx, src, span, PreviewChars); err == nil {
			return shown{Preview: p}, nil
		} else if !errors.Is(err, selector.ErrUndecidable) {
			return shown{}, err
		}
	}
	b := make([]byte, min(span.Len(), PreviewChars))
	if n, err := src.ReadAt(b, span.Start); n < len(b) && err != nil {
		return shown{}, err
	}
	n, ok := textPage(b, false)
	if !ok {
		n = min(n, PreviewChars*3/4)
	}
	frame := struct {
		Preview  any    `json:"preview"`
		Encoding string `json:"encoding"`
		Shown    int    `json:"shown"`
		Total    int64  `json:"total"`
	}{string(b[:n]), "utf-8", n, span.Len()}
	if !ok {
		frame.Preview, frame.Encoding = b[:n], "base64"
	}
	text, err := marshal(frame)
	return shown{Preview: text}, err
}

// recordsPage is a page of records.
type recordsPage struct {
	answerView
	Rows       []rowView `json:"rows"`
	NextRecord *int64    `json:"next_record"` // null at the end
}

// readRecords gives the records from a first one on that a page has room for.
func (f *face) readRecords(ctx context.Context, id string, first, n int64) (any, error) {
	st, err := f.store.Resolve(ctx, f.who.Caller, id)
	switch leafproof.CodeOf(err) {
	case leafproof.CodeRefNotFound, leafproof.CodeAccessRevoked:
		st, err = nil, nil // there may be leave to read, and none to know more
	}
	if err != nil {
		return nil, err
	}
	asJSON := false
	if st != nil {
		if r := st.Manifest.Predicate.Records; r != nil {
			asJSON = r.Format == selector.FormatJSON || r.Format == selector.FormatNDJSON || r.Format == selector.FormatConcat
			if first > r.Count {
				return nil, invalid("/first_record", "/first_record: %s has %d records", id, r.Count)
			}
			n = min(n, r.Count-first, max(1, 2*PageBytes*r.Count/max(1, st.Manifest.Size)))
		}
	}
	var spans []selector.Span
	sel := leafproof.Selector{Records: &merkle.Range{Start: first, End: first + n}, Each: func(_ int64, s selector.Span) { spans = append(spans, s) }}
	out := &limited{left: PageBytes}
	a, err := f.store.Read(ctx, f.who.Caller, id, sel, out)
	if errors.Is(err, errFull) { // those that there is room for, and no more
		fit, room := 0, int64(PageBytes)
		for fit < len(spans) && spans[fit].Len() < room {
			room -= spans[fit].Len() + 1
			fit++
		}
		if fit == 0 {
			return f.longRecord(ctx, id, first, spans[0], asJSON)
		}
		sel.Records, spans, out = &merkle.Range{Start: first, End: first + int64(fit)}, nil, &limited{left: PageBytes}
		a, err = f.store.Read(ctx, f.who.Caller, id, sel, out)
	}
	if err != nil {
		return nil, err
	}
	v := &recordsPage{answerView: answered(ctx, a), Rows: []rowView{}}
	for i, text := 0, out.b.Bytes(); i < len(spans); i++ {
		row := newRow(first+int64(i), spans[i])
		row.set(show(text[:spans[i].Len():spans[i].Len()], asJSON))
		v.Rows, text = append(v.Rows, row), text[spans[i].Len()+1:]
	}
	v.goOn(first + int64(len(spans)))
	return v, nil
}

func newRow(n int64, s selector.Span) rowView { return rowView{Record: n, Span: s} }

func (r *rowView) set(s shown) {
	r.Value, r.Text, r.Base64, r.Preview = s.Value, s.Text, s.Base64, s.Preview
}

// goOn says where the next page begins.
func (v *recordsPage) goOn(next int64) {
	if next < v.RecordsTotal {
		v.NextRecord = &next
	}
	v.More = more(v.NextRecord != nil)
}

// longRecord is a page of one record that has no room in it.
func (f *face) longRecord(ctx context.Context, id string, n int64, span selector.Span, asJSON bool) (any, error) {
	src, err := f.source(ctx, id)
	if err != nil {
		return nil, err
	}
	defer src.close()
	s, err := showLong(ctx, src, span, asJSON)
	if err != nil {
		return nil, err
	}
	// What the page rests on: a read of the record's first byte.
	a, err := f.store.Read(ctx, f.who.Caller, id, leafproof.Selector{Bytes: &merkle.Range{Start: span.Start, End: span.Start}}, io.Discard)
	if err != nil {
		return nil, err
	}
	row := newRow(n, span)
	row.set(s)
	v := &recordsPage{answerView: answered(ctx, a), Rows: []rowView{row}}
	v.Returned, v.Conclusion = 1, previewed
	v.goOn(n + 1)
	return v, nil
}

// previewed is the conclusion of an answer that shows a preview.
const previewed = "A preview: what was left out of it is counted beside it, and nothing follows about that. Read the span as bytes to have it whole."

// valuePage is the value at a pointer, or a preview of it.
type valuePage struct {
	answerView
	Span selector.Span `json:"span"` // where it stands: read the bytes from there on to have it whole
	shown
}

func (f *face) readPointer(ctx context.Context, id, pointer string) (any, error) {
	var spans []selector.Span
	out := &limited{left: PageBytes}
	a, err := f.store.Read(ctx, f.who.Caller, id, leafproof.Selector{Pointer: &pointer, Each: func(_ int64, s selector.Span) { spans = append(spans, s) }}, out)
	full := errors.Is(err, errFull)
	if err != nil && !full || len(spans) != 1 {
		return nil, err
	}
	if !full {
		v := &valuePage{answerView: answered(ctx, a), Span: spans[0]}
		v.shown = show(bytes.TrimSuffix(out.b.Bytes(), []byte("\n")), true)
		return v, nil
	}
	src, err := f.source(ctx, id)
	if err != nil {
		return nil, err
	}
	defer src.close()
	s, err := showLong(ctx, src, spans[0], true)
	if err != nil {
		return nil, err
	}
	a, err = f.store.Read(ctx, f.who.Caller, id, leafproof.Selector{Bytes: &merkle.Range{Start: spans[0].Start, End: spans[0].Start}}, io.Discard)
	if err != nil {
		return nil, err
	}
	v := &valuePage{answerView: answered(ctx, a), Span: spans[0], shown: s}
	v.Selector, v.More, v.Conclusion = selector.PointerSelector(pointer), more(true), previewed
	return v, nil
}

// source is an artifact's bytes for those who read here and there: each window of
// them is read, verified and asked for once.
type source struct {
	ctx     context.Context
	content *leafproof.Content
	at      int64
	window  []byte
}

const sourceWindow = 1 << 20

func (f *face) source(ctx context.Context, id string) (*source, error) {
	c, err := f.store.Content(ctx, f.who.Caller, id)
	if err != nil {
		return nil, err
	}
	return &source{ctx: ctx, content: c}, nil
}

func (s *source) close() { s.content.Close() }

// ReadAt implements [io.ReaderAt] for one reader at a time.
func (s *source) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= s.content.Size() {
			return n, io.EOF
		}
		if at < s.at || at >= s.at+int64(len(s.window)) {
			buf := bytes.NewBuffer(s.window[:0])
			if err := s.content.Write(s.ctx, merkle.Range{Start: at, End: min(at+sourceWindow, s.content.Size())}, buf, nil); err != nil {
				return n, err
			}
			s.at, s.window = at, buf.Bytes()
		}
		n += copy(p[n:], s.window[at-s.at:])
	}
	return n, nil
}

// readPreview shows the outline of an artifact.
func (f *face) readPreview(ctx context.Context, id string) (any, error) {
	src, err := f.source(ctx, id)
	if err != nil {
		return nil, err
	}
	defer src.close()
	a, err := f.store.Read(ctx, f.who.Caller, id, leafproof.Selector{Bytes: &merkle.Range{}}, io.Discard)
	if err != nil {
		return nil, err
	}
	v := &valuePage{answerView: answered(ctx, a), Span: selector.Span{End: src.content.Size()}}
	v.Selector, v.More, v.Conclusion = json.RawMessage(`{"kind":"preview"}`), more(true), previewed
	lines := slices.Contains([]string{"application/x-ndjson", "application/ndjson", "application/jsonl"}, src.content.MediaType())
	if lines && a.RecordsTotal > 0 {
		v.Preview, err = f.previewRows(ctx, id, a.RecordsTotal, src)
	}
	if v.Preview == nil && (err == nil || errors.Is(err, selector.ErrUndecidable)) {
		v.shown, err = showLong(ctx, src, v.Span, isText(src.content.MediaType()))
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// previewRows shows the first records as an array.
func (f *face) previewRows(ctx context.Context, id string, total int64, src io.ReaderAt) (json.RawMessage, error) {
	var spans []selector.Span
	sel := leafproof.Selector{Records: &merkle.Range{End: min(total, 200)}, Each: func(_ int64, s selector.Span) { spans = append(spans, s) }}
	if _, err := f.store.Read(ctx, f.who.Caller, id, sel, &limited{}); err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	each := func(yield func(selector.Span, error) bool) {
		for _, s := range spans {
			if !yield(s, nil) {
				return
			}
		}
	}
	return selector.PreviewRows(ctx, src, each, total, PreviewChars)
}
