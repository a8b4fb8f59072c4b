package selector

import (
	"encoding/base32"
	"strconv"
	"strings"

	"leafproof/merkle"
)

// Outcome is what a condition says about one record.
type Outcome uint8

// The three outcomes. The zero Outcome is Undecidable: nothing is decided by
// default.
const (
	Undecidable Outcome = iota
	Unmatched
	Matched
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Matched:
		return "matched"
	case Unmatched:
		return "unmatched"
	}
	return "undecidable"
}

// The operators of a comparison.
const (
	opEquals   = "eq"
	opContains = "contains"
)

// literal is the constant of a comparison.
type literal struct {
	kind byte // as a token's: '"', '0', 't', 'f', 'n'
	text string
	num  decimal
}

// Where is a parsed condition on one record.
type Where struct {
	op       string
	path     []step
	lit      literal
	redacted bool
}

// WithRedactions returns the condition for an artifact whose producer removed
// or masked the values at paths, JSON Pointers into a record: a condition on
// such a field, or on one within or around it, is undecidable for every record.
func (w *Where) WithRedactions(paths []string) *Where {
	out := *w
	field := w.Field() + "/"
	for _, p := range paths {
		if strings.HasPrefix(field, p+"/") || strings.HasPrefix(p+"/", field) {
			out.redacted = true
		}
	}
	return &out
}

// Fields returns the JSON Pointers that the condition reads, in the order in
// which they are first written and each once; for a query that may select
// several values, the pointer up to the first step that does.
func (w *Where) Fields() []string { return []string{w.Field()} }

// RedactedBy reports whether a redaction of the value at pointer makes the
// condition undecidable for every record.
func (w *Where) RedactedBy(pointer string) bool { return w.WithRedactions([]string{pointer}).redacted }

// Field returns the JSON Pointer that the condition reads.
func (w *Where) Field() string { return pointerText(w.path) }

// Normalised returns the query in its one spelling: canonical JSON of strings,
// arrays and objects, with the engine's version, the format and the order, but
// no limit or budget.
func (w *Where) Normalised(l Layout) []byte {
	b := appendText([]byte(`{"at":`), l.Pointer)
	if l.Format == FormatCSV {
		b = appendText(append(b, `,"dialect":{"delimiter":`...), l.Dialect.Delimiter)
		b = appendText(append(b, `,"header":`...), strconv.FormatBool(l.Dialect.Header))
		b = appendText(append(b, `,"quote":`...), l.Dialect.Quote)
		b = append(b, '}')
	}
	b = appendText(append(b, `,"engine":`...), EngineVersion)
	b = appendText(append(b, `,"format":`...), l.Format)
	b = append(b, `,"order":["`+OrderDocument+`"],"where":["`+w.op+`",`...)
	b = append(appendPath(b, w.path), ',')
	return append(w.lit.append(b), `]}`...)
}

// appendPath appends a path as the JSON Pointer that means the same, or, where
// a step is only a name or only an index, as ["path", ["k", name] | ["i", n]…].
func appendPath(b []byte, path []step) []byte {
	native := true
	for _, st := range path {
		native = native && st.named && st.index == arrayIndex(st.name)
	}
	if native {
		return appendText(b, pointerText(path))
	}
	b = append(b, `["path"`...)
	for _, st := range path {
		if st.named {
			b = append(appendText(append(b, `,["k",`...), st.name), ']')
		} else {
			b = append(appendInt(append(b, `,["i",`...), st.index), ']')
		}
	}
	return append(b, ']')
}

// append appends the literal as ["s", text], ["n", minimal decimal], ["true"],
// ["false"] or ["null"].
func (l literal) append(b []byte) []byte {
	switch l.kind {
	case '"':
		if !canonicalText(l.text) {
			return appendText(b, l.text) // ["x", hex]
		}
		return append(appendString(append(b, `["s",`...), l.text), ']')
	case '0':
		return append(b, `["n","`+l.num.String()+`"]`...)
	case 't':
		return append(b, `["true"]`...)
	case 'f':
		return append(b, `["false"]`...)
	}
	return append(b, `["null"]`...)
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// QID names the normalised query: "q_" and 32 letters or digits.
func (w *Where) QID(l Layout) string { return QID(w.Normalised(l)) }

// QID names a normalised selector: "q_" and the first 32 letters of the base32
// of its BLAKE3 derive-key hash.
func QID(normalised []byte) string {
	d := merkle.DeriveKey("leafproof 2026 query v1", normalised)
	return "q_" + lowerBase32.EncodeToString(d[:])[:32]
}

// RangeSelector returns the normalised form of a selection by position: the
// kind "bytes" or "records" and the half-open range [a, b).
func RangeSelector(kind string, a, b int64) []byte {
	out := appendText([]byte("{"), kind)
	out = appendInt(append(out, `:[`...), a)
	out = appendInt(append(out, ','), b)
	return append(out, `]}`...)
}

// PointerSelector returns the normalised form of a selection by JSON Pointer.
func PointerSelector(pointer string) []byte {
	return append(appendText([]byte(`{"pointer":`), pointer), '}')
}
