package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/ref"
)

// problem is an error as a model reads it.
type problem struct {
	Code      leafproof.Code   `json:"code"`
	Message   string           `json:"message"`
	Retryable bool             `json:"retryable"`
	Action    leafproof.Remedy `json:"action"`
	At        string           `json:"at,omitempty"`
}

// failure is the answer to a call that failed.
type failure struct {
	DataOnly bool `json:"data_only"`
	*problem
}

// plain are the messages of failures whose reason is the store's own business: it
// may name files, digests or tenants.
var plain = map[leafproof.Code]string{
	leafproof.CodeInternal:             "the store failed; whoever runs it finds the reason in its log",
	leafproof.CodeIntegrityFailed:      "what is stored failed a check: nothing of it was given out",
	leafproof.CodeStoreFull:            "the store has no room: nothing was published",
	leafproof.CodeAuthorityUnavailable: "it could not be decided whether you may have this",
	leafproof.CodeNameConflict:         "something else was changed meanwhile",
}

// problem is what is told of an error.
func (f *face) problem(ctx context.Context, what string, err error) *problem {
	e, ok := errors.AsType[*leafproof.Error](err)
	if !ok {
		e = &leafproof.Error{Code: leafproof.CodeInternal, Message: err.Error(), Action: leafproof.Stop}
	}
	p := &problem{e.Code, cut(e.Message), e.Retryable, e.Action, cut(e.At)} // they may quote what was sent
	if text, ok := plain[e.Code]; ok {
		f.log.ErrorContext(ctx, "mcp", "call", what, "code", e.Code, "error", err)
		p.Message, p.At = text, ""
		if leafproof.CheckID(e.At) == nil {
			p.At = e.At
		}
	}
	return p
}

// invalid is an error about the arguments of a call.
func invalid(at, format string, args ...any) error {
	return &leafproof.Error{Code: leafproof.CodeRequestInvalid, Message: fmt.Sprintf(format, args...), Action: leafproof.FixCall, At: at}
}

// maxDepth is how deep arguments may be nested.
const maxDepth = 64

// decode reads arguments: an object with members that the tool has, in their own
// case, each once. A member that is null is not given.
func decode(args []byte, into any) error {
	if len(args) == 0 {
		args = []byte("{}")
	}
	if err := shallow(args); err != nil {
		return err
	}
	err := v2.Unmarshal(args, into, v2.RejectUnknownMembers(true))
	var semantic *v2.SemanticError
	var syntax *jsontext.SyntacticError
	var own *leafproof.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		e := *own
		if errors.As(err, &semantic) && semantic.JSONPointer != "" { // where the artifact is named
			e.At = string(semantic.JSONPointer)
			e.Message = strings.Replace(e.Message, "/artifact_id:", e.At+":", 1)
		}
		return &e
	case errors.As(err, &semantic):
		at := string(semantic.JSONPointer)
		if at == "" {
			return invalid("", "the arguments are no object")
		}
		if errors.Is(err, v2.ErrUnknownName) {
			return invalid(at, "%s: there is no such argument", at)
		}
		if semantic.GoType == nil || semantic.JSONKind == 0 {
			return invalid(at, "%s: not what this argument takes", at)
		}
		if semantic.JSONKind == '0' && semantic.GoType.Kind() == reflect.Int64 {
			return invalid(at, "%s: not a whole number, in digits, within ±2^63", at)
		}
		return invalid(at, "%s: a JSON %s is not what this argument takes", at, kindName(semantic.JSONKind))
	case errors.As(err, &syntax):
		at := string(syntax.JSONPointer)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return invalid(at, "%s: the member stands twice", at)
		}
		return invalid(at, "the arguments are not JSON: at byte %d", syntax.ByteOffset)
	}
	return invalid("", "the arguments cannot be read")
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	case '[':
		return "array"
	}
	return "value"
}

// shallow refuses what is nested too deep, before anything is built of it.
func shallow(args []byte) error {
	if depth(args) > maxDepth {
		return invalid("", "the arguments are nested deeper than %d levels", maxDepth)
	}
	return nil
}

// depth is how deep JSON is nested. Of what is no JSON it is any number.
func depth(text []byte) int {
	level, most := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			level++
			most = max(most, level)
		case '}', ']':
			level--
		}
	}
	return most
}

// marshal writes an answer. The text and the structured content are these bytes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// A target is the artifact that a call is about: its id, or a reference to it.
type target string

// UnmarshalJSON reads "art_…" or {"$ref":{"type":"Blob","key":"art_…"}}.
func (t *target) UnmarshalJSON(text []byte) error {
	id, err := parseTarget(text)
	*t = target(id)
	return err
}

func parseTarget(text []byte) (string, error) {
	const at = "/artifact_id"
	var id string
	if len(text) > 0 && text[0] == '"' {
		if err := v2.Unmarshal(text, &id); err != nil {
			return "", invalid(at, "%s: not a string in UTF-8", at)
		}
		if inner := bytes.TrimSpace([]byte(id)); len(inner) > 0 && inner[0] == '{' {
			return "", refError(&ref.Error{At: at, Err: ref.ErrStringified})
		}
		return id, leafproof.CheckID(id)
	}
	inner, is, err := ref.Detect(text)
	if err != nil {
		return "", refError(err)
	}
	if !is {
		return "", refError(&ref.Error{At: at, Err: ref.ErrMalformed, Detail: "neither an id nor a reference"})
	}
	r, err := ref.ParseModel(inner, ref.DefaultLimits)
	if err != nil {
		return "", refError(err)
	}
	blob, ok := r.(ref.Blob)
	if !ok || blob.Key == "" { // this server keeps no messages
		return "", refError(&ref.Error{At: at, Err: ref.ErrNotFound})
	}
	return blob.Key, leafproof.CheckID(blob.Key)
}

// refError is an error about a reference, in the store's form. Its text is fit for a
// model.
func refError(err error) error {
	e := *leafproof.Wire(err)
	if e.At == "" {
		e.At = "/artifact_id"
	}
	return &e
}

// reference is how a model names an artifact that it was told of.
type reference struct {
	Ref blobRef `json:"$ref"`
}

type blobRef struct {
	Type string `json:"type"`
	Key  string `json:"key"`
}

func referenceTo(id string) reference { return reference{blobRef{"Blob", id}} }
