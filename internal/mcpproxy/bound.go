package mcpproxy

import (
	"encoding/json"
	"math"
)

// maxInline is the most characters of structured content that stands in a result as it
// is.
const maxInline = 6000

// unbounded is more than any result may have.
const unbounded = math.MaxInt32

// bounded says whether all values that a schema allows are short enough to stand in a
// model's view: what a tool returns then has an end that the tool itself declares. No
// single value is looked at: whether one is what the schema allows, [tool.keeps] says.
func bounded(schema json.RawMessage) bool { return longest(schema, 16) <= maxInline }

// longest is the most characters that a value has which a schema allows, as JSON
// without white space; unbounded where nothing says so. It understands what a bound is
// usually said with, and takes all else for none.
func longest(schema json.RawMessage, depth int) int {
	var s struct {
		Type       json.RawMessage            `json:"type"`
		Enum       []json.RawMessage          `json:"enum"`
		Const      json.RawMessage            `json:"const"`
		MaxLength  *int                       `json:"maxLength"`
		MaxItems   *int                       `json:"maxItems"`
		Items      json.RawMessage            `json:"items"`
		Properties map[string]json.RawMessage `json:"properties"`
		Patterns   map[string]json.RawMessage `json:"patternProperties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if depth == 0 || parse(schema, &s) != nil {
		return unbounded
	}
	if s.Const != nil {
		return len(s.Const)
	}
	if s.Enum != nil {
		most := 0
		for _, v := range s.Enum {
			most = max(most, len(v))
		}
		return most
	}
	var types []string
	var one string
	if parse(s.Type, &one) == nil {
		types = []string{one}
	} else if parse(s.Type, &types) != nil || len(types) == 0 {
		return unbounded
	}
	most := 0
	for _, t := range types {
		n := unbounded
		switch t {
		case "null", "boolean":
			n = 5
		case "integer", "number":
			n = 32 // what a program's number has; one with more digits is none's
		case "string":
			if s.MaxLength != nil && *s.MaxLength < maxInline {
				n = 6*(*s.MaxLength) + 2 // each may be escaped
			}
		case "array":
			if s.MaxItems != nil && s.Items != nil && *s.MaxItems <= maxInline {
				n = times(*s.MaxItems, longest(s.Items, depth-1)+1) + 2
			}
		case "object":
			if string(s.Additional) == "false" && s.Patterns == nil {
				n = 2
				for name, p := range s.Properties {
					n = min(unbounded, n+len(quote(name))+2+longest(p, depth-1))
				}
			}
		}
		most = max(most, n)
	}
	return min(most, unbounded)
}

func times(a, b int) int {
	if a > 0 && b > unbounded/a {
		return unbounded
	}
	return a * b
}
