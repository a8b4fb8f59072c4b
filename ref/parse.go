package ref

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/selector"
)

// The limits of what a parser reads.
const (
	maxReference = 64 << 10 // bytes of a reference
	maxKey       = 1024     // bytes of a key
)

// Detect reports whether a JSON value is an envelope: an object whose single member is
// $ref, and that an object. It returns what the envelope holds, as it stands.
//
// {"$ref":"#/x"} is data, and so is an object with further members. What begins like an
// envelope and does not end like one is [ErrMalformed]; a $ref that holds the attributes
// of an older text form is [ErrLegacyShape], and one that holds a reference as a string
// [ErrStringified].
func Detect(raw []byte) (inner json.RawMessage, is bool, err error) {
	d := decoder(raw)
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '{' {
		return nil, false, nil
	}
	t, err = d.ReadToken()
	if err != nil || t.Kind() != '"' || t.String() != "$ref" {
		return nil, false, nil
	}
	kind := d.PeekKind()
	value, err := valueAt(d, raw)
	if err != nil {
		return nil, false, malformed(err)
	}
	var held string
	if kind == '"' {
		if held, err = text(value); err == nil && isAttributes(held) {
			return nil, false, fail(ErrLegacyShape, "$ref holds seq and part as text; "+shapeAdvice)
		}
	}
	for d.PeekKind() == '"' { // further members: it is data, unless one is a second $ref
		kind = 0
		if _, err = d.ReadToken(); err == nil {
			err = d.SkipValue()
		}
		if err != nil {
			return nil, false, malformed(err)
		}
	}
	if t, err = d.ReadToken(); err == nil && t.Kind() == '}' {
		err = ends(d)
	}
	if err != nil {
		return nil, false, malformed(err)
	}
	switch {
	case kind == '{':
		return value, true, nil
	case kind == '"' && holdsReference(held):
		return nil, false, fail(ErrStringified, "$ref holds a string: write what it holds as an object, without quotes around it")
	}
	return nil, false, nil
}

// holdsReference reports the text of what an envelope holds.
func holdsReference(s string) bool {
	if s = unwrapped(s); !strings.HasPrefix(s, "{") || len(s) > maxReference {
		return false
	}
	is := false
	err := members([]byte(s), func(name string, value []byte) error {
		if name == "type" {
			kind, err := text(value)
			is = err == nil && known[kind] != nil
		}
		return nil
	})
	return is && err == nil
}

// unwrapped is a text without the space around it, a byte order mark before it, and the
// fences of a block of code that it is.
func unwrapped(s string) string {
	s = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s), "\ufeff"))
	if inner, ok := strings.CutPrefix(s, "```"); ok {
		if inner, ok = strings.CutSuffix(inner, "```"); ok {
			return strings.TrimSpace(strings.TrimPrefix(inner, "json"))
		}
	}
	return s
}

// shapeAdvice says how a model writes a reference.
const shapeAdvice = `write {"$ref":{"type":"Message","seq":N,"part":N}} as it was given`

func malformed(err error) error {
	return &Error{Err: ErrMalformed, Detail: "the reference is no JSON of its kind; " + shapeAdvice, Cause: err}
}

// attributes are the text form of old, alone or in a tag: seq="9" part="2".
var attributes = regexp.MustCompile(`^\s*(<[A-Za-z][A-Za-z0-9_-]*(\s+[A-Za-z_-]+="[^"<>]*")*?\s+)?seq="[0-9]+"\s+part="[0-9]+"(\s+[A-Za-z_-]+="[^"<>]*")*\s*(/?>)?\s*$`)

// isAttributes reports the text form of old.
func isAttributes(s string) bool {
	return len(s) < 1024 && strings.Contains(s, `seq="`) && attributes.MatchString(s)
}

// begun is how an envelope begins that is then not well written.
var begun = regexp.MustCompile(`^\{\s*"(\$|\\u0024)ref"\s*:\s*[{"]`)

// isStringified reports a string that holds an envelope, or a string that does.
func isStringified(s string) bool {
	for range 4 {
		s = unwrapped(s)
		switch {
		case strings.HasPrefix(s, "{"):
			_, is, err := Detect([]byte(s))
			return is || err != nil && begun.MatchString(s)
		case strings.HasPrefix(s, `"`):
			inner, err := text([]byte(s))
			if err != nil {
				return false
			}
			s = inner
		default:
			return false
		}
	}
	return false
}

// ParseModel reads what an envelope holds that a model wrote: a [Message] or a [Blob],
// at every depth. A recipe is [ErrForbidden], whatever else is wrong with its members.
// An optional member that is null is not there.
func ParseModel(inner []byte, l Limits) (Ref, error) {
	return parse(inner, l.or().Parse, false)
}

// ParseServer reads what an envelope holds that the server wrote, into its own
// transcript: recipes too, which must have a pin, and messages with a seq alone.
func ParseServer(inner []byte, l Limits) (Ref, error) {
	return parse(inner, l.or().Parse, true)
}

func parse(inner []byte, depth int, server bool) (Ref, error) {
	if len(inner) > maxReference {
		return nil, fail(ErrMalformed, fmt.Sprintf("a reference of %d bytes: at most %d", len(inner), maxReference))
	}
	return parseRef(inner, depth, server)
}

// shape has the members of a reference as they stand; nil: not there.
type shape map[string][]byte

// known are the members of each type. The first of a list must be there.
var known = map[string][]string{
	TypeMessage:     {"part", "seq", "field"},
	TypeBlob:        {"", "key", "source"},
	TypeJSONPointer: {"source", "path", "pin"},
	TypeJSONQuery:   {"source", "path", "filter", "pin"},
}

// parseRef reads a reference that may have so many inside one another.
func parseRef(raw []byte, left int, server bool) (Ref, error) {
	if left <= 0 {
		return nil, fail(ErrDepth, "references inside references, deeper than is read")
	}
	s := shape{}
	if err := members(raw, func(name string, value []byte) error {
		if name == "type" || !isNull(value) || !isMember(name) {
			s[name] = value
		}
		return nil
	}); err != nil {
		return nil, malformed(err)
	}
	if s["type"] == nil {
		if s["seq"] != nil || s["part"] != nil || s["key"] != nil {
			return nil, fail(ErrLegacyShape, `a reference without "type" is of an older form; `+shapeAdvice)
		}
		return nil, fail(ErrMalformed, `a reference has a "type"; `+shapeAdvice)
	}
	kind, err := text(s["type"])
	if err != nil {
		return nil, fail(ErrMalformed, `"type" is not a string; `+shapeAdvice)
	}
	if known[kind] == nil {
		return nil, fail(ErrUnknownType, fmt.Sprintf("the type %s: it is Message or Blob", clip(kind)))
	}
	if !server && (kind == TypeJSONPointer || kind == TypeJSONQuery) {
		return nil, fail(ErrForbidden, "this type of reference is made by the server alone; forward the one that a result gave you")
	}
	delete(s, "type")
	for name := range s {
		if !isOf(kind, name) {
			return nil, fail(ErrMalformed, fmt.Sprintf("a %s has no member %s", kind, clip(name)))
		}
	}
	if must := known[kind][0]; must != "" && s[must] == nil {
		return nil, fail(ErrMalformed, fmt.Sprintf("a %s has a member %q", kind, must))
	}
	switch kind {
	case TypeMessage:
		return s.message(server)
	case TypeBlob:
		return s.blob(left, server)
	case TypeJSONPointer:
		return s.pointer(left)
	}
	return s.query(left)
}

func isOf(kind, name string) bool {
	for _, n := range known[kind] {
		if n == name && n != "" {
			return true
		}
	}
	return false
}

func isMember(name string) bool {
	for kind := range known {
		if isOf(kind, name) {
			return true
		}
	}
	return false
}

func (s shape) message(server bool) (Ref, error) {
	var m Message
	var err error
	if m.Part, err = integer(s["part"]); err != nil {
		return nil, fail(ErrMalformed, `"part" is a whole number from 0 on`)
	}
	if s["seq"] != nil {
		seq, err := integer(s["seq"])
		if err != nil {
			return nil, fail(ErrMalformed, `"seq" is a whole number from 0 on`)
		}
		m.Seq = &seq
	} else if server {
		return nil, fail(ErrMalformed, `a Message of the server's has a "seq"`)
	}
	if s["field"] != nil {
		if m.Field, err = text(s["field"]); err != nil {
			return nil, fail(ErrMalformed, `"field" is a string`)
		}
		if _, err := ParseField(m.Field); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (s shape) blob(left int, server bool) (Ref, error) {
	var b Blob
	var err error
	switch {
	case (s["key"] == nil) == (s["source"] == nil):
		return nil, fail(ErrMalformed, `a Blob has either "key" or "source"`)
	case s["source"] != nil:
		if b.Source, err = parseRef(s["source"], left-1, server); err != nil {
			return nil, err
		}
		return b, nil
	}
	if b.Key, err = text(s["key"]); err != nil || b.Key == "" || len(b.Key) > maxKey {
		return nil, fail(ErrMalformed, fmt.Sprintf(`"key" is a string of 1 to %d bytes`, maxKey))
	}
	return b, nil
}

func (s shape) pointer(left int) (Ref, error) {
	source, err := parseRef(s["source"], left-1, true)
	if err != nil {
		return nil, err
	}
	path, pin, err := s.derived()
	if err != nil {
		return nil, err
	}
	return JSONPointer{Source: source, Path: path, Pin: pin}, nil
}

func (s shape) query(left int) (Ref, error) {
	source, err := parseRef(s["source"], left-1, true)
	if err != nil {
		return nil, err
	}
	path, pin, err := s.derived()
	if err != nil {
		return nil, err
	}
	q := JSONQuery{Source: source, Path: path, Pin: pin}
	filter := s["filter"]
	switch {
	case filter == nil:
		return q, nil
	case filter[0] == '{':
		if q.Filter, err = compact(filter); err != nil {
			return nil, malformed(err)
		}
	default:
		if q.Filter, err = text(filter); err != nil || q.Filter == "" {
			return nil, fail(ErrMalformed, `"filter" is an object or a string`)
		}
	}
	if _, err := selector.ParseWhere(q.Filter); err != nil {
		return nil, &Error{Err: ErrMalformed, Detail: `"filter" is no condition`, Cause: err}
	}
	return q, nil
}

// derived reads what both recipes have.
func (s shape) derived() (path string, pin Pin, err error) {
	if path, err = text(s["path"]); err != nil {
		return "", "", fail(ErrMalformed, `a recipe has a "path", a string`)
	}
	if err := selector.CheckPointer(path); err != nil {
		return "", "", &Error{Err: ErrMalformed, Detail: `"path" is no JSON Pointer`, Cause: err}
	}
	p, err := text(s["pin"])
	if err != nil || !isPin(p) {
		return "", "", fail(ErrMalformed, `a recipe has a "pin"`)
	}
	return path, Pin(p), nil
}

const (
	pinArtifact = "art_"
	pinValue    = "blake3:"
)

// isPin reports the form of a [Pin].
func isPin(s string) bool {
	if id, ok := strings.CutPrefix(s, pinArtifact); ok {
		return len(id) == 32 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
	}
	root, ok := strings.CutPrefix(s, pinValue)
	return ok && len(root) == 64 && strings.Trim(root, "0123456789abcdef") == ""
}

// compact is a JSON value without spaces between its tokens.
func compact(value []byte) (string, error) {
	v := jsontext.Value(bytes.Clone(value))
	err := v.Compact()
	return string(v), err
}
