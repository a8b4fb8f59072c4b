package fuzz_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/internal/jsonschema"
	"leafproof/ref"
)

// FuzzToolSchema: of any bytes the rewriter makes strict JSON that is a schema
// where the bytes were one, leaves the members of the root and their order alone,
// changes nothing the second time, and leaves a linter nothing that it promised to
// mend. Every input that satisfies the schema satisfies what a model is shown by
// the profiles that take nothing away, and a reference may stand for a property.
func FuzzToolSchema(f *testing.F) {
	for _, s := range [][2]string{
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}},"required":["a"]}`, `{"a":"x"}`},
		{`{"$id":"https://x.test/t","properties":{"a b":{"items":{"$ref":"t#/properties/a%20b"}},"c":true,"d":false}}`, `{"a b":[[]]}`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","id":"u:x","properties":{"n":{"exclusiveMinimum":true,"minimum":1}},"additionalProperties":{"$ref":"#/properties/n"}}`, `{"n":2}`},
		{`{"type":"object","anyOf":[{"required":["a"]}],"properties":{"a":{"oneOf":[{"const":"x"},{"type":["null","integer"]}],"title":"t"}}}`, `{"a":null}`},
		{`{"type":"object","properties":{"o":{"type":"object","properties":{"x":{"enum":["a"]}},"additionalProperties":false}},"additionalProperties":false}`, `{"o":{}}`},
		{`{"$defs":{"a":{"$anchor":"n","items":{"$ref":"#"}}},"properties":{"\u0061":{"$ref":"#n"}},"patternProperties":{"^x":{}}}`, `{"x":{"$ref":{}}}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, schema, input []byte) {
		original, invalid := jsonschema.Compile(schema)
		for _, p := range ref.Profiles() {
			out, err := ref.Rewrite(schema, p)
			if err != nil {
				if !errors.Is(err, ref.ErrSchema) || out != nil {
					t.Fatalf("Rewrite = %q, %v", out, err)
				}
				continue
			}
			if !jsontext.Value(out).IsValid() {
				t.Fatalf("%v: %q became %q", p, schema, out)
			}
			if again, err := ref.Rewrite(out, p); err == nil && !bytes.Equal(again, out) {
				t.Fatalf("%v: %q became %q, then %q", p, schema, out, again)
			}
			mended := true
			for _, finding := range ref.Lint(p, schema) {
				mended = mended && finding.Mended
			}
			if left := ref.Lint(p, out); mended && len(left) > 0 && len(out) <= jsonschema.MaxSchema {
				t.Fatalf("%v: %q became %q, which has %+v", p, schema, out, left)
			}
			if _, err := p.Restore(schema, input); err != nil && !errors.Is(err, ref.ErrMalformed) {
				t.Fatal(err)
			}
			if invalid != nil || p == ref.ProfileGemini || p == ref.ProfileOpenAIStrict {
				continue
			}
			if a, b := rootNames(schema), rootNames(out); a != b {
				t.Fatalf("%v: the root had %s, and has %s", p, a, b)
			}
			shown, err := jsonschema.Compile(out)
			if err != nil {
				if len(out) > jsonschema.MaxSchema {
					continue
				}
				t.Fatalf("%v: %q became %q: %v", p, schema, out, err)
			}
			if bytes.Contains(input, []byte(`$ref`)) || bytes.Contains(input, []byte(`\u`)) || bytes.Contains(schema, []byte("not")) || bytes.Contains(schema, []byte("oneOf")) || bytes.Contains(schema, []byte("if")) || bytes.ContainsAny(schema, `\`) {
				continue // what may refuse more where a part accepts more
			}
			if original.Check(t.Context(), input) == nil {
				if err := shown.Check(t.Context(), input); errors.Is(err, jsonschema.ErrInvalid) {
					t.Fatalf("%v: %q became %q, which refuses %q: %v", p, schema, out, input, err)
				}
			}
		}
		if c, err := ref.CompileSchema(schema); err == nil {
			if err := c.Check(t.Context(), input); err != nil && !errors.Is(err, ref.ErrTypeMismatch) {
				t.Fatal(err)
			}
		} else if !errors.Is(err, ref.ErrSchema) {
			t.Fatal(err)
		}
	})
}

// rootNames is the names of an object's members as they stand.
func rootNames(doc []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	var b bytes.Buffer
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		b.Write(name)
		if err != nil || d.SkipValue() != nil {
			return ""
		}
	}
	return b.String()
}
