package leafproof

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"leafproof/internal/gate"
	"leafproof/internal/jsonschema"
	"leafproof/manifest"
	"leafproof/selector"
)

// Held is a redaction whose path still leads to a value.
type Held struct {
	Path   string // of the redaction
	Record int64  // the first record that has a value there; −1: the document has one
}

// StillHeld lists the redactions of a published draft that removed nothing, as far
// as can be seen: their path still leads to a value that is not null, and their
// method is not one that leaves one there (mask, tokenise). A declaration changes
// no byte, so this is a reason to look again.
func (d *Draft) StillHeld() []Held { return d.held }

// Schema is what a published draft's check against a schema artifact found; nil
// where none was made.
func (d *Draft) Schema() *manifest.SchemaCheck { return d.schema }

// judge looks at the records in the light of the facts: whether they satisfy the
// schema, and whether what is said to be redacted is gone.
func (s *Store) judge(ctx context.Context, d *Draft, f Facts) error {
	schema, err := s.schema(ctx, d, f)
	if err != nil {
		return err
	}
	gone := d.redacted(f.Redactions)
	if schema == nil && len(gone) == 0 {
		return nil
	}
	return d.eachValue(ctx, func(rec int64, span selector.Span, value []byte) error {
		for i := 0; i < len(gone); i++ {
			held, err := d.holds(ctx, value, gone[i])
			if err != nil {
				return err
			}
			if held {
				d.held = append(d.held, Held{gone[i].path, rec})
				gone = append(gone[:i:i], gone[i+1:]...)
				i--
			}
		}
		if schema == nil {
			if len(gone) == 0 {
				return errEnough
			}
			return nil
		}
		return d.check(ctx, schema, span, value)
	})
}

// errEnough ends a walk over records early.
var errEnough = errors.New("enough was seen")

// schema returns the schema that the facts name as an artifact; nil for none.
func (s *Store) schema(ctx context.Context, d *Draft, f Facts) (*jsonschema.Schema, error) {
	const at = "/artifact_ref/schema_version"
	if CheckID(f.SchemaVersion) != nil {
		return nil, nil
	}
	a, err := s.linked(ctx, f.Caller, d.tenant, f.SchemaVersion, gate.Read)
	if err != nil {
		return nil, named(at, err)
	}
	if d.mapped == nil && !d.isJSON() {
		return nil, fail(CodeNotRecords, FixCall, at, "%s: a JSON Schema is named, but these bytes are neither JSON nor records (%s)", at, d.media)
	}
	if a.m.Size > jsonschema.MaxSchema {
		return nil, fail(CodeTooLarge, FixCall, at, "%s: %s has %d bytes, a schema at most %d", at, f.SchemaVersion, a.m.Size, jsonschema.MaxSchema)
	}
	var text bytes.Buffer
	if _, err := s.Read(ctx, f.Caller, f.SchemaVersion, Selector{}, &text); err != nil {
		return nil, named(at, err)
	}
	compiled, err := jsonschema.Compile(text.Bytes())
	if err != nil {
		return nil, fail(CodeSelectorInvalid, FixCall, at, "%s: %s is %v", at, f.SchemaVersion, err)
	}
	d.schema = &manifest.SchemaCheck{ContentHash: a.m.Predicate.ArtifactRef.ContentHash}
	return compiled, nil
}

// check checks one value, and counts.
func (d *Draft) check(ctx context.Context, schema *jsonschema.Schema, span selector.Span, value []byte) error {
	err := jsonschema.ErrUndecided // of one that is too long
	switch {
	case value == nil:
	case d.layout.Format == selector.FormatCSV:
		fields, ok := selector.Fields(value, d.layout.Dialect)
		if ok {
			err = schema.CheckValue(ctx, d.row(fields))
		}
	case d.layout.Format == selector.FormatText:
		err = schema.CheckValue(ctx, strings.ToValidUTF8(string(value), "\ufffd"))
	default:
		err = schema.Check(ctx, value)
	}
	d.schema.Checked++
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jsonschema.ErrInvalid) && !errors.Is(err, jsonschema.ErrUndecided):
		return err
	}
	d.schema.Failed++
	if len(d.schema.Spans) < manifest.MaxFailedSpans {
		d.schema.Spans = append(d.schema.Spans, [2]int64{span.Start, span.End})
	}
	return nil
}

// row is a CSV row as a JSON value: an object of its columns' strings, or an array
// where the columns have no names.
func (d *Draft) row(fields []string) any {
	if !d.layout.Dialect.Header {
		list := make([]any, len(fields))
		for i, v := range fields {
			list[i] = v
		}
		return list
	}
	object := make(map[string]any, len(fields))
	for i, name := range d.layout.Dialect.Columns {
		if i < len(fields) {
			object[name] = fields[i]
		}
	}
	return object
}

// gonePath is a path at which no value should be left.
type gonePath struct {
	path   string
	column int // csv: of the field; −1 where there is none
}

// redacted are the redactions that say that nothing is left.
func (d *Draft) redacted(list []manifest.Redaction) []gonePath {
	if d.mapped == nil && !d.isJSON() || d.layout.Format == selector.FormatText {
		return nil // there are no fields
	}
	var out []gonePath
	for _, r := range list {
		if r.Method != nil && *r.Method != "drop" {
			continue
		}
		g := gonePath{r.Path, -1}
		if d.layout.Format == selector.FormatCSV {
			for i, name := range d.layout.Dialect.Columns {
				if r.Path == "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name) {
					g.column = i
				}
			}
		}
		out = append(out, g)
	}
	return out
}

// holds reports whether a path leads to a value that is not null. Of a name that
// stands twice there is no telling, so it does.
func (d *Draft) holds(ctx context.Context, value []byte, g gonePath) (bool, error) {
	if d.layout.Format == selector.FormatCSV {
		fields, _ := selector.Fields(value, d.layout.Dialect)
		return g.column >= 0 && g.column < len(fields) && fields[g.column] != "", nil
	}
	span, err := selector.FindPointer(ctx, bytes.NewReader(value), int64(len(value)), g.path)
	switch {
	case errors.Is(err, selector.ErrPointer):
		return false, nil
	case errors.Is(err, selector.ErrUndecidable):
		return bytes.Contains(value, []byte(`"`)) && strings.Contains(err.Error(), "twice"), nil
	case err != nil:
		return false, err
	}
	return string(value[span.Start:span.End]) != "null", nil
}

// eachValue gives every record, or the document where there are none, to f. One
// that is longer than a schema may look at is given as what cannot be judged: nil.
// The bytes are verified, and valid until f returns.
func (d *Draft) eachValue(ctx context.Context, f func(rec int64, span selector.Span, value []byte) error) error {
	src, err := d.batch.Open(ctx, d.info.Root, d.info.Size)
	if err != nil {
		return err
	}
	defer src.Close()
	if d.mapped == nil {
		whole := selector.Span{Start: 0, End: d.info.Size}
		value, err := readValue(src, whole)
		if err == nil {
			err = f(-1, whole, value)
		}
		if errors.Is(err, errEnough) {
			err = nil
		}
		return err
	}
	file, err := d.batch.Open(ctx, d.mapped.Root, d.mapped.Size)
	if err != nil {
		return err
	}
	defer file.Close()
	m, err := selector.OpenMap(file, d.mapped.Size, d.info.Root, d.info.Size, d.layout)
	if err != nil {
		return err
	}
	win := window{data: src, buf: make([]byte, copyBuffer)}
	rec := int64(0)
	for span, err := range m.Spans(ctx, 0, m.Records()) {
		if err != nil {
			return err
		}
		value, err := win.value(span)
		if err == nil {
			err = f(rec, span, value)
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		rec++
	}
	return nil
}

// value returns the bytes of a record, from the window where they fit.
func (w *window) value(span selector.Span) ([]byte, error) {
	if span.Len() > int64(len(w.buf)) {
		return readValue(w.data, span)
	}
	if span.Start < w.off || span.End > w.off+int64(w.n) {
		n, err := w.data.ReadAt(w.buf, span.Start)
		if int64(n) < span.Len() {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		w.off, w.n = span.Start, n
	}
	return w.buf[span.Start-w.off : span.End-w.off], nil
}

// readValue reads a value of its own; nil for one that is too long.
func readValue(src io.ReaderAt, span selector.Span) ([]byte, error) {
	if span.Len() > jsonschema.MaxValue {
		return nil, nil
	}
	b := make([]byte, span.Len())
	if n, err := src.ReadAt(b, span.Start); n < len(b) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}
