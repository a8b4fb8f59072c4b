package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/ref"
	"leafproof/selector"
)

// Shipped are the tools that every harness has. None of them can return an unbounded
// value: each result has at most [ResultChars] characters, is valid JSON, lists what
// it leaves out, and says data_only.
func Shipped() []Tool {
	const source = `"source":{"type":"object","description":"A reference to the value."}`
	return []Tool{
		{
			Name:        "read_json",
			Description: "Preview a JSON document, or the value at a JSON Pointer in it, and get a reference to that exact value for other tools.",
			Schema: json.RawMessage(`{"type":"object","properties":{` + source +
				`,"path":{"type":"string","description":"A JSON Pointer such as /items; the whole document without it."}},"required":["source"],"additionalProperties":false}`),
			Lazy: []string{"source"}, Do: readJSON,
		},
		{
			Name: "query_json",
			Description: "Filter the elements of an array (or the records of a file). Returns a preview of the matching ones, exact counts, and a reference to all of them, " +
				"which other tools take in place of the rows.",
			Schema: json.RawMessage(`{"type":"object","properties":{` + source +
				`,"path":{"type":"string","description":"A JSON Pointer to the array, such as /items; without it the records of the file."}` +
				`,"filter":{"type":"object","description":"The condition: equals or contains.","properties":{"field":{"type":"string","description":"A JSON Pointer into the element, such as /status."},` +
				`"equals":{"description":"The value.","anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"}]},"contains":{"type":"string","description":"A part of the text."}},"required":["field"],"additionalProperties":false}` +
				`,"where":{"type":"string","description":"In place of filter, an RFC 9535 expression such as @.status == \"open\" && @.sev >= 3."}` +
				`,"cursor":{"type":"string","description":"Goes on where an earlier page of the same query ended."}},"required":["source"],"additionalProperties":false}`),
			Lazy: []string{"source"}, Do: queryJSON,
		},
		{
			Name:        "read_text",
			Description: "Read a page of a text, or of any bytes (then in base64). The pages put together are the exact bytes.",
			Schema: json.RawMessage(`{"type":"object","properties":{` + source +
				`,"offset":{"type":"integer","minimum":0,"description":"The byte to begin at: 0, or next of the page before."}},"required":["source"],"additionalProperties":false}`),
			Lazy: []string{"source"}, Do: readText,
		},
		{
			Name:        "read_records",
			Description: "Read records by number: elements of an array, lines, rows.",
			Schema: json.RawMessage(`{"type":"object","properties":{` + source +
				`,"first":{"type":"integer","minimum":0,"description":"The number of the first record, from 0: 0, or next of the page before."}` +
				`,"count":{"type":"integer","minimum":1,"description":"How many at most."}},"required":["source"],"additionalProperties":false}`),
			Lazy: []string{"source"}, Do: readRecords,
		},
		{
			Name:        "stat",
			Description: "Say what a value is: its size and kind, what it was captured from and when, and what it covers or lacks.",
			Schema:      json.RawMessage(`{"type":"object","properties":{` + source + `},"required":["source"],"additionalProperties":false}`),
			Lazy:        []string{"source"}, Do: stat,
		},
	}
}

// shown is a result of a shipped tool: what the model reads, with slots, and what of
// the answer is in it.
type shown struct {
	body  []byte
	slots []ref.Slot
	says  *admitted
}

// refRoom is kept free in a result for the reference in it, whose seq is not known yet.
const refRoom = 110

// envelope begins a result.
type envelope struct{ b []byte }

func newEnvelope() *envelope { return &envelope{[]byte(`{"data_only":true`)} }

func (e *envelope) raw(name string, value []byte) {
	e.b = append(append(append(append(e.b, ',', '"'), name...), '"', ':'), value...)
}

func (e *envelope) number(name string, n int64) { e.raw(name, strconv.AppendInt(nil, n, 10)) }
func (e *envelope) flag(name string, on bool)   { e.raw(name, strconv.AppendBool(nil, on)) }
func (e *envelope) text(name, s string)         { e.raw(name, quote(s)) }

// members takes in the members of an object.
func (e *envelope) members(object []byte) {
	e.b = append(append(e.b, ','), object[1:len(object)-1]...)
}

// room is how many characters are left for a part of the result.
func (e *envelope) room(after int) int { return ResultChars - units(e.b) - refRoom - after - 1 }

// end ends the result, with a slot for a recipe where there is one.
func (e *envelope) end(recipe ref.Ref, says *admitted) *shown {
	s := &shown{says: says}
	if recipe != nil {
		e.raw("value", null)
		s.slots = []ref.Slot{{Field: "value", Recipe: recipe}}
	}
	s.body = append(e.b, '}')
	return s
}

// whole is a whole number of a call's. A schema's integer may be written 1.0 or 1e3.
type whole int64

// UnmarshalJSON implements [json.Unmarshaler].
func (w *whole) UnmarshalJSON(text []byte) error {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*w = whole(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "", "A number of the call is no whole one, or too large.")
	}
	*w = whole(f)
	return nil
}

func quote(s string) []byte {
	out, _ := jsontext.AppendQuote(nil, s) // what is not UTF-8 becomes U+FFFD
	return out
}

// source opens what the call's source leads to.
func (in *Input) source(ctx context.Context) (*value, error) {
	h := in.Lazy["source"]
	if h == nil {
		return nil, refuse(leafproof.CodeRefMalformed, leafproof.FixCall, "source", "source takes a reference, as in {\"$ref\":{…}}.")
	}
	return openValue(ctx, h)
}

// readJSON is the tool read_json.
func readJSON(ctx context.Context, in *Input) (any, error) {
	var args struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(in.Args, &args); err != nil {
		return nil, err
	}
	v, err := in.source(ctx)
	if err != nil {
		return nil, err
	}
	span := selector.Span{End: v.size}
	if args.Path != "" {
		if span, err = selector.FindPointer(ctx, v.src, v.size, args.Path); err != nil {
			return nil, err
		}
	}
	e := newEnvelope()
	if v.answer != nil {
		e.raw("answer", answerFacts(v.answer, "", false))
	}
	const after = len(`,"complete":false`)
	preview, err := selector.Preview(ctx, v.src, span, e.room(after))
	if err != nil {
		return nil, err
	}
	e.members(preview)
	complete := bytes.Contains(preview, []byte(`,"elided":[],"shape"`)) && isWhole(ctx, v, span, preview)
	e.flag("complete", complete)
	says := said(v.answer, span.Len())
	if says != nil && complete {
		says.admit(span.Len())
	} else if says != nil {
		says.omit(span.Len(), ReasonElided)
	}
	return e.end(ref.JSONPointer{Source: v.h.Ref(), Path: args.Path, Pin: v.to.Pin}, says), nil
}

// previewMember is what a preview has in its member preview.
func previewMember(preview []byte) json.RawMessage {
	var p struct {
		Preview json.RawMessage `json:"preview"`
	}
	if json.Unmarshal(preview, &p) != nil {
		return nil
	}
	return p.Preview
}

// isWhole reports whether a preview shows all of a value, compared byte for byte. A
// value that is much longer than a preview is not looked at.
func isWhole(ctx context.Context, v *value, span selector.Span, preview []byte) bool {
	if span.Len() > 8*ResultChars {
		return false
	}
	raw := make([]byte, span.Len())
	if n, err := v.src.ReadAt(raw, span.Start); n < len(raw) || ctx.Err() != nil {
		_ = err // what cannot be read was not shown whole
		return false
	}
	return bytes.Equal(compact(raw), compact(previewMember(preview)))
}

// answerFacts are what a model reads of an answer besides its rows.
func answerFacts(a *selector.Answer, where string, query bool) []byte {
	e := &envelope{[]byte(`{"capture":`)}
	e.b = append(e.b, quote(a.Completeness.Status)...)
	for _, f := range []struct {
		name string
		text *string
	}{{"source", a.SourceVersion.SourceID}, {"snapshot", a.SourceVersion.SnapshotID}, {"observed_at", a.SourceVersion.ObservedAt}} {
		if f.text != nil {
			e.text(f.name, clip(*f.text, 128))
		}
	}
	if len(a.SupersededBy) > 0 {
		e.flag("superseded", true)
	}
	if query {
		e.text("where", clip(where, 300))
		e.text("order", a.Order)
		e.number("examined", a.Examined.Records)
		e.number("undecidable", a.Undecidable)
		e.text("stop", a.Stop)
		e.text("conclusion", clip(clean(a.Conclusion), 700))
	}
	return append(e.b, '}')
}

// condition is the condition of a call of query_json.
func condition(filter json.RawMessage, where string) (string, error) {
	switch {
	case filter != nil && where != "":
		return "", refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "where", "filter and where exclude each other.")
	case filter != nil:
		return string(filter), nil
	}
	return where, nil
}

// cursorRoom is kept free for a cursor.
const cursorRoom = 420

// queryJSON is the tool query_json.
func queryJSON(ctx context.Context, in *Input) (any, error) {
	var args struct {
		Path   string          `json:"path"`
		Filter json.RawMessage `json:"filter"`
		Where  string          `json:"where"`
		Cursor string          `json:"cursor"`
	}
	if err := json.Unmarshal(in.Args, &args); err != nil {
		return nil, err
	}
	where, err := condition(args.Filter, args.Where)
	if err != nil {
		return nil, err
	}
	h := in.Lazy["source"]
	if h == nil {
		return nil, refuse(leafproof.CodeRefMalformed, leafproof.FixCall, "source", "source takes a reference, as in {\"$ref\":{…}}.")
	}
	to, err := h.Target(ctx)
	if err != nil {
		return nil, err
	}
	if args.Path == "" && to.Info != nil && to.Value == nil && to.Path == "" && to.Filter == nil {
		args.Path = to.Info.Pointer // the records of the artifact
	}
	var rows kept
	var receipt *leafproof.Statement
	q := ref.Query{Where: where, Cursor: args.Cursor, Receipt: in.Run.receipt(&receipt)}
	answer, err := h.Query(ctx, args.Path, q, func(r ref.Row) error {
		rows.row(r)
		return nil
	})
	if err != nil {
		return nil, interrupted(err, answer, where)
	}
	e := newEnvelope()
	e.raw("answer", answerFacts(answer, where, true))
	matched := rows.all
	if answer.Matched != nil {
		matched = *answer.Matched // of all pages
	}
	const after = len(`,"returned":000000,"matched":0000000000000000000,"total":0000000000000000000,"complete":false,"cursor":""`) + cursorRoom
	preview, listed, err := rows.preview(ctx, rows.all, e.room(after))
	if err != nil {
		return nil, err
	}
	e.members(preview)
	returned := int64(len(listed))
	e.number("returned", returned)
	e.number("matched", matched)
	e.number("total", answer.RecordsTotal)
	e.flag("complete", returned == rows.all && args.Cursor == "")
	if returned < rows.all && returned > 0 {
		q.Limit, q.Receipt = returned, nil
		page, err := h.Query(ctx, args.Path, q, nil) // no row is shown again
		if err != nil {
			return nil, err
		}
		if page.Cursor != "" && len(page.Cursor) <= cursorRoom {
			e.text("cursor", page.Cursor)
		}
	}
	says := rows.says(answer, listed)
	if says != nil {
		says.receipt = receipt
	}
	return e.end(ref.JSONQuery{Source: h.Ref(), Path: args.Path, Filter: where, Pin: to.Pin}, says), nil
}

// interrupted adds to the error of a scan what it examined.
func interrupted(err error, a *selector.Answer, where string) error {
	if a == nil {
		return err
	}
	f := FailureOf(err)
	f.Answer = answerFacts(a, where, true)
	return errors.Join(&refusal{f}, err)
}

// readText is the tool read_text.
func readText(ctx context.Context, in *Input) (any, error) {
	var args struct {
		Offset whole `json:"offset"`
	}
	if err := json.Unmarshal(in.Args, &args); err != nil {
		return nil, err
	}
	v, err := in.source(ctx)
	if err != nil {
		return nil, err
	}
	offset := int64(args.Offset)
	if offset > v.size {
		return nil, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "offset", "The value has %d bytes.", v.size)
	}
	e := newEnvelope()
	e.number("offset", offset)
	e.number("total", v.size)
	room := e.room(len(`,"base64":"","next":0000000000000000000,"complete":false`))
	to := min(v.size, offset+int64(3*room))
	window, err := v.part(ctx, offset, to)
	if err != nil {
		return nil, err
	}
	n, quoted, isText := 0, []byte(`""`), true
	if len(window) > 0 {
		n, quoted, isText = cut(window, room, to < v.size)
	}
	next := offset + int64(n)
	e.number("next", next)
	e.flag("complete", next == v.size)
	if name := "text"; isText {
		e.raw(name, quoted)
	} else {
		e.raw("base64", quoted)
	}
	says := said(v.answer, v.size)
	if says != nil {
		says.omit(offset, ReasonBudget)
		says.admit(int64(n))
		says.omit(v.size-next, ReasonBudget)
	}
	return e.end(nil, says), nil
}

// readRecords is the tool read_records.
func readRecords(ctx context.Context, in *Input) (any, error) {
	var args struct {
		First whole `json:"first"`
		Count whole `json:"count"`
	}
	if err := json.Unmarshal(in.Args, &args); err != nil {
		return nil, err
	}
	v, err := in.source(ctx)
	if err != nil {
		return nil, err
	}
	var rows kept
	first := int64(args.First)
	total, answer, err := v.records(ctx, first, int64(args.Count), &rows)
	if err != nil {
		return nil, err
	}
	e := newEnvelope()
	if answer != nil {
		e.raw("answer", answerFacts(answer, "", false))
	}
	e.number("first", first)
	e.number("total", total)
	const after = len(`,"returned":000000,"next":0000000000000000000,"complete":false,"elided":[],"preview":[]`)
	room := e.room(after)
	exact, n := []byte{'['}, 0
	for _, s := range rows.spans {
		row := compact(rows.bytes[s.Start:s.End])
		if room -= units(row) + 1; room < 0 {
			break
		}
		if n++; n > 1 {
			exact = append(exact, ',')
		}
		exact = append(exact, row...)
	}
	intact := n
	if n == 0 && len(rows.spans) > 0 { // one that is too long is shown with parts left out
		rows.spans = rows.spans[:1]
		preview, _, err := rows.preview(ctx, 1, e.room(after))
		if err != nil {
			return nil, err
		}
		n = 1
		e.members(preview)
	} else {
		e.raw("preview", append(exact, ']'))
		e.raw("elided", []byte("[]"))
	}
	if rows.cut && n == len(rows.spans) {
		e.flag("record_cut", true)
		intact = 0 // it is the only one
	}
	e.number("returned", int64(n))
	next := first + int64(n)
	e.number("next", next)
	e.flag("complete", next >= total)
	return e.end(nil, rows.given(answer, n, intact)), nil
}

// stat is the tool stat.
func stat(ctx context.Context, in *Input) (any, error) {
	v, err := in.source(ctx)
	if err != nil {
		return nil, err
	}
	e := newEnvelope()
	e.number("size", v.size)
	if !v.whole {
		e.text("media_type", "application/json")
		e.flag("captured", false)
		return e.end(nil, nil), nil
	}
	info := v.to.Info
	e.text("media_type", ref.Marker{MediaType: info.MediaType}.ForModel(0, 0, "").MediaType)
	e.text("format", info.Format)
	e.number("records", info.Records)
	if info.Pointer != "" {
		e.text("path", clip(info.Pointer, 200))
	}
	facts, err := describe(info.Ref)
	if err != nil {
		return nil, err
	}
	preview, err := selector.Preview(ctx, bytes.NewReader(facts), selector.Span{End: int64(len(facts))}, e.room(0))
	if err != nil {
		return nil, err
	}
	e.members(preview)
	return e.end(nil, nil), nil
}

// describe is what a model may read of a descriptor: neither digest nor tenant.
func describe(descriptor json.RawMessage) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(descriptor, &all); err != nil {
		return nil, fmt.Errorf("a descriptor that is no object: %w", err)
	}
	e := &envelope{[]byte(`{"data_only":true`)}
	for _, name := range []string{"source_version", "completeness", "created_at", "expires_at", "schema_version"} {
		if v, ok := all[name]; ok && string(v) != "null" {
			e.raw(name, artifactIDs.ReplaceAll(v, []byte("an artifact")))
		}
	}
	return append(e.b, '}'), nil
}
