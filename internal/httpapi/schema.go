package httpapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"leafproof"
	"leafproof/selector"
)

// object is a JSON object of the description, whose members are written in the order
// of their names.
type object = map[string]any

// schemas makes JSON Schemas (2020-12) of the types that stand in requests and
// answers, so that the description cannot differ from what is sent.
type schemas struct {
	defs object
	// strict refuses members that are not described, also in answers: for tests.
	// Whoever reads answers should pass over what he does not know.
	strict bool
	names  map[reflect.Type]string
}

// named are the types whose schema does not follow from their fields.
var named = map[reflect.Type]object{
	reflect.TypeFor[time.Time]():           {"type": "string", "format": "date-time", "description": "RFC 3339"},
	reflect.TypeFor[selector.Span]():       span("a half-open range"),
	reflect.TypeFor[[2]int64]():            span("a half-open range: the first, and the first that is not in it"),
	reflect.TypeFor[leafproof.Principal](): {"type": "string", "maxLength": 128, "description": "the name of a principal"},
	reflect.TypeFor[leafproof.Action]():    {"type": "string", "enum": []string{"stat", "read", "query", "count", "prove", "derive", "grant", "delete"}},
	reflect.TypeFor[leafproof.Remedy]():    {"type": "string", "enum": []string{"fix_call", "refetch", "wait", "defer", "stop", ""}, "description": "what the caller can do about it"},
	reflect.TypeFor[leafproof.Code]():      {"type": "string", "pattern": "^[a-z_]*$", "description": "the reason, as on every face of the store"},
	reflect.TypeFor[[]byte]():              {"type": "string", "contentEncoding": "base64"},
	reflect.TypeFor[anyValue]():            {"description": "any JSON value, as it stands in the artifact"},
	reflect.TypeFor[stated]():              statedValue,
	reflect.TypeFor[normalisedSelector]():  normalised,
	reflect.TypeFor[derivationSpec]():      specOfDerivation,
	reflect.TypeFor[beginning]():           {"oneOf": []any{ref("UploadState"), ref("ArtifactRef")}},
	reflect.TypeFor[map[string]string]():   {"type": "object", "additionalProperties": object{"type": "string"}},
}

// Types that stand for values whose form no Go type has.
type (
	anyValue           struct{}
	stated             struct{}
	normalisedSelector struct{}
	derivationSpec     struct{}
	beginning          struct{}
)

func span(what string) object {
	return object{
		"type": "array", "description": what, "minItems": 2, "maxItems": 2,
		"items": object{"type": "integer", "format": "int64", "minimum": 0},
	}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

var (
	statedValue = object{
		"description": "what a producer states: canonical JSON, without fractions",
		"anyOf": []any{
			object{"type": []string{"string", "integer", "boolean", "null"}},
			object{"type": "array", "items": ref("Stated")},
			object{"type": "object", "additionalProperties": ref("Stated")},
		},
	}
	expression = object{
		"description": "a normalised expression (docs/FORMAT.md): an operator and its operands",
		"type":        "array", "minItems": 1, "items": ref("Term"),
	}
	term = object{
		"description": "a part of a normalised expression",
		"anyOf":       []any{object{"type": "string"}, object{"type": "array", "items": ref("Term")}},
	}
	pair = object{"type": "array", "minItems": 2, "maxItems": 2, "items": object{"type": "string", "pattern": "^[0-9]+$"}}

	normalised = object{
		"description": "the normalised selector (docs/FORMAT.md), of which qid is the digest",
		"oneOf": []any{
			object{"type": "object", "required": []string{"bytes"}, "additionalProperties": false, "properties": object{"bytes": pair}},
			object{"type": "object", "required": []string{"records"}, "additionalProperties": false, "properties": object{"records": pair}},
			object{"type": "object", "required": []string{"pointer"}, "additionalProperties": false, "properties": object{"pointer": ref("Term")}},
			ref("NormalisedQuery"),
		},
	}
	normalisedQuery = object{
		"type": "object", "required": []string{"at", "engine", "format", "order", "where"}, "additionalProperties": false,
		"properties": object{
			"at": object{"type": "string"}, "engine": object{"type": "string"}, "format": object{"type": "string"},
			"dialect": object{"type": "object", "additionalProperties": ref("Term")},
			"order":   object{"type": "array", "items": ref("Term")}, "select": object{"type": "array", "items": ref("Term")},
			"where": ref("Expression"),
		},
	}
	specOfDerivation = object{
		"description": "what the digest spec_digest of the transform is of", "type": "object",
		"required": []string{"columns", "format", "query"}, "additionalProperties": false,
		"properties": object{
			"columns": object{"type": "array", "items": object{"type": "string"}}, "format": object{"type": "string"},
			"query": ref("NormalisedQuery"),
		},
	}
)

// freeJSON are the types whose raw members are other people's JSON.
var freeJSON = []reflect.Type{
	reflect.TypeFor[runTool](), reflect.TypeFor[shownTool](), reflect.TypeFor[toolCall](), reflect.TypeFor[toolCalled](),
	reflect.TypeFor[toolView](), reflect.TypeFor[toolResult](),
}

var anyJSON = object{"description": "any JSON value: a tool's schema, an input, a result"}

func newSchemas(strict bool) *schemas {
	return &schemas{strict: strict, names: map[reflect.Type]string{}, defs: object{
		"Stated": statedValue, "Expression": expression, "Term": term, "NormalisedQuery": normalisedQuery,
	}}
}

// of is the schema of a type: a reference for a struct.
func (s *schemas) of(t reflect.Type, request bool) any {
	if fixed := named[t]; fixed != nil {
		return fixed
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), request)
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0, "maximum": 1<<53 - 1}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem(), request)}
	case reflect.Map: // coverage alone
		return object{"type": "object", "additionalProperties": ref("Stated")}
	case reflect.Interface:
		return ref("Stated")
	case reflect.Struct:
		return ref(s.define(t, request))
	}
	panic("no schema for " + t.String())
}

// define enters the schema of a struct, and returns its name.
func (s *schemas) define(t reflect.Type, request bool) string {
	if name, ok := s.names[t]; ok {
		return name
	}
	name := schemaName(t)
	if _, taken := s.defs[name]; taken {
		panic("two types are named " + name)
	}
	s.names[t] = name
	def := object{"type": "object"}
	s.defs[name] = def
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		member, optional, ok := memberOf(f)
		if !ok {
			continue
		}
		schema := s.member(t, f, request)
		if f.Type.Kind() == reflect.Pointer && !optional || f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Interface {
			schema = nullable(schema)
		}
		if text := descriptions[name+"."+member]; text != "" {
			schema = described(schema, text)
		}
		properties[member] = schema
		if !optional {
			required = append(required, member)
		}
	}
	def["properties"] = properties
	if len(required) > 0 {
		def["required"] = required
	}
	if request || s.strict {
		def["additionalProperties"] = false
	}
	if text := descriptions[name]; text != "" {
		def["description"] = text
	}
	return name
}

// member is the schema of a field.
func (s *schemas) member(t reflect.Type, f reflect.StructField, request bool) any {
	if f.Type == reflect.TypeFor[json.RawMessage]() {
		switch {
		case t == reflect.TypeFor[selector.Answer]():
			return normalised
		case t == reflect.TypeFor[derived]():
			return specOfDerivation
		case slices.Contains(freeJSON, t):
			return anyJSON
		}
		panic("no schema for " + t.String() + "." + f.Name)
	}
	if tag := f.Tag.Get("enum"); tag != "" {
		return object{"type": "string", "enum": strings.Split(tag, ",")}
	}
	return s.of(f.Type, request)
}

// memberOf is how a field is written.
func memberOf(f reflect.StructField) (name string, optional, ok bool) {
	tag, has := f.Tag.Lookup("json")
	if !has || tag == "-" || !f.IsExported() {
		return "", false, false
	}
	name, rest, _ := strings.Cut(tag, ",")
	return name, strings.Contains(rest, "omit"), true
}

// schemaName is a type's name in the description.
func schemaName(t reflect.Type) string {
	if name, ok := renamed[t]; ok {
		return name
	}
	r := []rune(t.Name())
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

// nullable is a schema or null.
func nullable(schema any) any {
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}

// described is a schema with a description of its own.
func described(schema any, text string) any {
	out := object{}
	for k, v := range schema.(object) {
		out[k] = v
	}
	out["description"] = text
	return out
}

// descriptions say of types and members what their names do not.
var descriptions = map[string]string{
	"ArtifactRef":              "what a harness or agent may hold; it grants nothing. All ten members are there, null where not given",
	"ArtifactRef.content_hash": "blake3: and the root of the exact bytes, as b3sum prints it",
	"ArtifactRef.expires_at":   "the end of its availability; null: none",
	"Completeness.status":      "complete, partial or unknown; unknown is never read as complete",
	"Completeness.coverage":    "what the capture covers; null: not stated",
	"Part":                     "at most one of bytes, records and pointer; none: all bytes",
	"Part.bytes":               "byte offsets, half open",
	"Part.records":             "record numbers from 0, half open",
	"Part.pointer":             "a JSON Pointer (RFC 6901) into a JSON document",
	"Part.whole":               "of a proof of a pointer: show the whole document, which alone proves the place",
	"Part.receipt":             "sign a receipt of the read",
	"PartAnswer.encoding":      "of data: utf-8, or base64 where the bytes are no UTF-8",
	"Question.where":           "an RFC 9535 expression in which @ is the record, or {\"field\":…,\"equals\"|\"contains\":…} as text",
	"Question.order_by":        "P or P:desc, a JSON Pointer or JSONPath; then as in the document",
	"Question.select":          "parts of each record in place of the record",
	"Question.limit":           "rows at most",
	"Question.cursor":          "answer.cursor of the page before",
	"Question.count":           "the number alone: no row is shown",
	"Question.max_records":     "examine so many records at most",
	"Question.max_bytes":       "examine so many bytes at most",
	"Question.return_bytes":    "so many bytes of rows at most, and one row at least",
	"Page.error":               "why the scan did not reach its end",
	"Row":                      "one of value, text, base64 and selected",
	"Row.record":               "its number, from 0",
	"Row.span":                 "where it stands in the artifact",
	"Row.text":                 "of a row or line that is no JSON value",
	"Row.base64":               "of one that is no UTF-8",
	"Row.selected":             "for each of select the values that it has in the record",
	"Answer":                   "what an answer rests on: capture completeness, scan completion and prompt admission are three things, the last of which is not known here",
	"Answer.matched":           "exact: every record was examined",
	"Answer.matched_so_far":    "in place of matched, where not every record was",
	"Answer.undecidable":       "records about which the condition cannot be told",
	"Answer.conclusion":        "the strongest sentence that the facts justify",
	"Answer.cursor":            "goes on here, for 15 minutes, with the same question by the same caller",
	"Derivation.where":         "the condition; absent, it holds for every record",
	"Derivation.run_id":        "the run of the new artifact; absent, the older one's",
	"Need.require":             "facts without which it is not to be used, each K=V as in region=eu-west",
	"Need.optional":            "facts whose lack is to be said",
	"Need.max_age_seconds":     "since the source was observed",
	"Need.deep":                "read and verify every byte",
	"NewGrant.pattern":         "tenant[/run[/artifact]], * allowed",
	"NewGrant.records":         "the only records that may be shown",
	"NewName.if_seq":           "the version that the name must have now: 0 for none; absent: any",
	"NewName.tenant_id":        "for the owner of the store alone",
	"Problem.at":               "what it is about: an id, a member (JSON Pointer), a header, a parameter",
	"Problem.message":          "the detail, under the name that it has on every face of the store",
	"Problem.retryable":        "the same request may succeed later",
	"Statement.envelope":       "DSSE; the payload is an in-toto statement",
	"SignedManifest":           "both signatures are of one payload; whose word counts is for the reader's trust policy",
	"Assessment.decision":      "admit, qualify, defer or refuse",
	"Listing.next":             "the cursor to go on with; absent at the end",
	"UploadState.offset":       "how many bytes are here",
}
