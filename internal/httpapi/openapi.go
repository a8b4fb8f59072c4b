package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

// Description is the OpenAPI 3.1 description of a server, as /openapi.json answers
// it. It is made of the table of routes and of the types that are sent.
func Description() []byte { return describe(false) }

func describe(strict bool) []byte {
	b, err := json.MarshalIndent(newDescription(strict), "", "  ")
	if err != nil {
		panic(err) // it is made of strings, numbers and lists
	}
	return append(b, '\n')
}

func (c *call) describe() error { return c.jsonBytes(http.StatusOK, c.s.description()) }

// operation is what the description says of a route.
type operation struct {
	tag     string
	summary string
	more    string
	params  []param
	body    any      // of a JSON body, a value of its type; nil: it has none
	bodies  []string // of other bodies, their media types; "*" is any
	answers []reply
}

// param is a parameter of the query or a header.
type param struct {
	name, in, what string
	schema         object
}

// reply is an answer that is no problem.
type reply struct {
	status  int
	what    string
	json    any      // a value of its type; nil: it has none
	media   []string // other bodies that it may have
	headers []string
}

func newDescription(strict bool) object {
	s := newSchemas(strict)
	paths := object{}
	server := &Server{}
	for _, rt := range server.table() {
		op, ok := operations[rt.op]
		if !ok {
			panic("nothing is said of " + rt.op)
		}
		item, _ := paths[rt.path].(object)
		if item == nil {
			item = object{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = s.operation(rt, op)
	}
	s.of(reflect.TypeFor[Problem](), false)
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Leafproof", "version": leafproof.Version, "license": object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
			"description": "A content-addressed store for the results that tools produce: exact bytes in, exact bytes, proofs or clear refusals out.\n\n" +
				"Answers may have members that are not described here; pass over them. Requests may not.",
		},
		"servers":  []any{object{"url": "http://127.0.0.1:7117", "description": "where leafproof serve listens if nothing else is said"}},
		"security": []any{object{"bearer": []string{}}, object{"certificate": []string{}}},
		"tags": []any{
			object{"name": "artifacts", "description": "putting, finding and ending artifacts"},
			object{"name": "answers", "description": "what is in them, and proofs of it"},
			object{"name": "leave", "description": "who may do what"},
			object{"name": "names", "description": "versioned pointers"},
			object{"name": "uploads", "description": "artifacts whose bytes come in parts"},
			object{"name": "runs", "description": "the reference layer: values that a model never holds"},
			object{"name": "server", "description": "about the server itself"},
		},
		"paths": paths,
		"components": object{
			"schemas": s.defs,
			"securitySchemes": object{
				"bearer":      object{"type": "http", "scheme": "bearer", "description": "the token that leafproof principal add printed"},
				"certificate": object{"type": "mutualTLS", "description": "a client certificate that names a principal"},
			},
			"responses": object{"Problem": object{
				"description": "what went wrong: RFC 9457, with the code, remedy and place that every face of the store has",
				"content":     object{"application/problem+json": object{"schema": ref("Problem")}},
			}},
		},
	}
}

// operation describes one route.
func (s *schemas) operation(rt route, op operation) object {
	out := object{"operationId": rt.op, "summary": op.summary, "tags": []string{op.tag}}
	if op.more != "" {
		out["description"] = op.more
	}
	if rt.open && !rt.ownerOnly {
		out["security"] = []any{}
	}
	params := []any{}
	for _, part := range rt.parts {
		if part[0] == '{' {
			name := part[1 : len(part)-1]
			params = append(params, object{"name": name, "in": "path", "required": true, "schema": pathSchemas[name]})
		}
	}
	list := op.params
	if !rt.open {
		list = append(list[:len(list):len(list)], param{purposeHeader, "header", "why the caller asks; a grant may demand it", object{"type": "string", "maxLength": 128}})
	}
	for _, p := range list {
		params = append(params, object{"name": p.name, "in": p.in, "description": p.what, "schema": p.schema})
	}
	if len(params) > 0 {
		out["parameters"] = params
	}
	content := object{}
	if op.body != nil {
		content["application/json"] = object{"schema": s.of(reflect.TypeOf(op.body), true)}
	}
	for _, media := range op.bodies {
		content[strings.Replace(media, "*", "*/*", 1)] = bodySchema(media)
	}
	if len(content) > 0 {
		out["requestBody"] = object{"required": op.body != nil, "content": content}
	}
	answers := object{"default": object{"$ref": "#/components/responses/Problem"}}
	for _, a := range op.answers {
		answers[strconv.Itoa(a.status)] = s.answer(a)
	}
	out["responses"] = answers
	return out
}

// bodySchema is the schema of a body that is not JSON.
func bodySchema(media string) object {
	if media != "multipart/form-data" {
		return object{}
	}
	return object{"schema": object{
		"type": "object", "required": []string{"content"}, "additionalProperties": false,
		"properties": object{
			"facts":     object{"type": "string", "contentMediaType": "application/json", "description": "facts as leafproof put --manifest reads them"},
			"arguments": object{"type": "string", "format": "binary", "description": "the exact bytes of the tool call's arguments"},
			"content":   object{"type": "string", "format": "binary", "description": "the artifact's bytes; the last part"},
		},
	}}
}

func (s *schemas) answer(a reply) object {
	out := object{"description": a.what}
	content := object{}
	if a.json != nil {
		content["application/json"] = object{"schema": s.of(reflect.TypeOf(a.json), false)}
	}
	for _, media := range a.media {
		content[strings.Replace(media, "*", "*/*", 1)] = object{}
	}
	if len(content) > 0 {
		out["content"] = content
	}
	if len(a.headers) > 0 {
		headers := object{}
		for _, h := range a.headers {
			headers[h] = object{"description": headerTexts[h], "schema": object{"type": "string"}}
		}
		out["headers"] = headers
	}
	return out
}

// page is the JSON answer to a query, which is written row by row.
type page struct {
	Rows    []row                `json:"rows"`
	Answer  *selector.Answer     `json:"answer,omitempty"`
	Error   *Problem             `json:"error,omitempty"`
	Receipt *leafproof.Statement `json:"receipt,omitempty"`
}

// row is one of its rows: value, text or base64, or selected.
type row struct {
	Record   int64          `json:"record"`
	Span     selector.Span  `json:"span"`
	Value    *anyValue      `json:"value,omitempty"`
	Text     string         `json:"text,omitempty"`
	Base64   string         `json:"base64,omitempty"`
	Selected [][]selectedIn `json:"selected,omitempty"`
}

// selectedIn is a value that a selection has in a record.
type selectedIn struct {
	Path   string        `json:"path"`
	Span   selector.Span `json:"span"`
	Value  *anyValue     `json:"value,omitempty"`
	Text   string        `json:"text,omitempty"`
	Base64 string        `json:"base64,omitempty"`
}

// signed is the body of GET /v1/artifacts/{id}/manifest.
type signed struct {
	Manifest manifest.Envelope `json:"manifest"`
	SSH      string            `json:"ssh"`
}

// renamed are types whose name in the description is another than in the code.
var renamed = map[reflect.Type]string{
	reflect.TypeFor[asked]():                  "Part",
	reflect.TypeFor[part]():                   "PartAnswer",
	reflect.TypeFor[selectedIn]():             "SelectedValue",
	reflect.TypeFor[signed]():                 "SignedManifest",
	reflect.TypeFor[manifest.Omission]():      "Omission",
	reflect.TypeFor[selector.Omission]():      "CaptureOmission",
	reflect.TypeFor[selector.Redaction]():     "CaptureRedaction",
	reflect.TypeFor[selector.SourceVersion](): "AnswerSourceVersion",
	reflect.TypeFor[leafproof.Point]():        "UnmetPoint",
	reflect.TypeFor[lineage]():                "LineageAnswer",
}
