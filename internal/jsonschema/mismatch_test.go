package jsonschema

import (
	"errors"
	"strings"
	"testing"
)

// TestMismatch: a refusal names the place, the rule and what is wanted, and
// repeats nothing of the value.
func TestMismatch(t *testing.T) {
	const secret = "s3cr3t"
	for name, test := range map[string]struct{ schema, value, at, rule, says string }{
		"a type":        {`{"properties":{"rows":{"items":{"properties":{"id":{"type":"integer"}}}}}}`, `{"rows":[{"id":1},{"id":"s3cr3t"},{"id":"s3cr3t"}]}`, "/rows/1/id", "type", "got string, want integer"},
		"missing":       {`{"required":["b","a"]}`, `{"s3cr3t":1}`, "", "required", `missing "b", "a"`},
		"too much":      {`{"additionalProperties":false}`, `{"s3cr3t":1}`, "", "additionalProperties", "members that are not allowed: 1"},
		"an enum":       {`{"items":{"enum":["a"]}}`, `["s3cr3t"]`, "/0", "enum", "does not satisfy enum"},
		"a pattern":     {`{"pattern":"^a"}`, `"s3cr3t"`, "", "pattern", "does not match the pattern ^a"},
		"short":         {`{"minLength":9}`, `"s3cr3t"`, "", "minLength", "6 characters, want at least 9"},
		"false":         {`{"properties":{"a":false}}`, `{"a":"s3cr3t"}`, "/a", "", "is not allowed"},
		"first of many": {`{"items":{"type":"integer"}}`, `["s3cr3t","s3cr3t",{}]`, "/0", "type", "got string, want integer"},
		"alternatives":  {`{"properties":{"a":{"anyOf":[{"type":"object","required":["x"]},{"type":"array"}]}}}`, `{"a":{"s3cr3t":1}}`, "/a", "anyOf", "does not satisfy anyOf"},
		"a reference":   {`{"$defs":{"n":{"type":"number"}},"items":{"$ref":"#/$defs/n"}}`, `["s3cr3t"]`, "/0", "type", "got string, want number"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile([]byte(test.schema))
			if err != nil {
				t.Fatal(err)
			}
			err = s.Check(t.Context(), []byte(test.value))
			m, ok := errors.AsType[*Mismatch](err)
			if !ok || !errors.Is(err, ErrInvalid) {
				t.Fatalf("Check = %v, want a mismatch", err)
			}
			at := strings.Join(append([]string{""}, m.At...), "/")
			if at != test.at || m.Rule != test.rule || m.Says != test.says || strings.Contains(m.Says, secret) {
				t.Errorf("at %q, rule %q: %q; want %q, %q: %q", at, m.Rule, m.Says, test.at, test.rule, test.says)
			}
		})
	}
}

// TestCheckWithin: other limits are other limits.
func TestCheckWithin(t *testing.T) {
	s, err := Compile([]byte(`{"items":{"type":"integer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	long := []byte("[" + strings.Repeat("1,", MaxValue) + "1]")
	if err := s.Check(t.Context(), long); !errors.Is(err, ErrUndecided) {
		t.Errorf("Check of %d bytes = %v", len(long), err)
	}
	if err := s.CheckWithin(t.Context(), long, Limits{Bytes: len(long), Steps: MaxSteps}); !errors.Is(err, ErrUndecided) {
		t.Errorf("within few steps = %v", err)
	}
	if err := s.CheckWithin(t.Context(), long, Limits{Bytes: len(long), Steps: 8 * len(long)}); err != nil {
		t.Errorf("within many = %v", err)
	}
}
