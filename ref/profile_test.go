package ref_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leafproof/ref"
)

func TestProfileNames(t *testing.T) {
	for _, p := range ref.Profiles() {
		if got, err := ref.ParseProfile(p.String()); err != nil || got != p {
			t.Errorf("ParseProfile(%q) = %v, %v", p.String(), got, err)
		}
	}
	for _, s := range []string{"", "Anthropic", "openai", "gemini "} {
		if p, err := ref.ParseProfile(s); !errors.Is(err, ref.ErrProfile) || p != 0 {
			t.Errorf("ParseProfile(%q) = %v, %v", s, p, err)
		}
	}
	if s := ref.Profile(99).String(); s != "profile(99)" {
		t.Errorf("an unknown profile is %q", s)
	}
}

// TestResult: a Gemini model reads the text of the result, so that no member $ref
// stands in the structure of a function response.
func TestResult(t *testing.T) {
	const view = `{"value":{"$ref":{"type":"Message","seq":1,"part":0}},"n":13911860366432393,"s":"\u00e9\"é"}`
	for _, p := range ref.Profiles() {
		got := p.Result([]byte(view))
		if p != ref.ProfileGemini {
			if string(got) != view {
				t.Errorf("%v: Result = %s", p, got)
			}
			continue
		}
		var text string
		if err := json.Unmarshal(got, &text); err != nil || text != view {
			t.Errorf("%v: Result = %s, %v", p, got, err)
		}
	}
}

func TestRestore(t *testing.T) {
	const schema = `{"type":"object","$defs":{"row":{"type":"object","properties":{"id":{"type":"integer"},"tag":{"type":"string"}},"required":["id"]}},
"properties":{"a":{"type":"string"},"n":{"type":["string","null"]},"must":{"type":"string"},"any":{},
"o":{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"},"z":{"enum":["z",null]}}},
"rows":{"type":"array","items":{"$ref":"#/$defs/row"}},
"u":{"anyOf":[{"$ref":"#/$defs/row"},{"type":"string"}]},"t":{"type":"array","prefixItems":[{"$ref":"#/$defs/row"}]}},"required":["must"]}`
	for name, test := range map[string]struct{ in, want string }{
		"nothing":         {`{"must":"x"}`, `{"must":"x"}`},
		"absent":          {`{"a":null,"must":"x"}`, `{"must":"x"}`},
		"the last":        {`{"must":"x" , "a":null }`, `{"must":"x" }`},
		"all":             {`{"a":null,"o":null,"rows":null}`, `{}`},
		"allowed":         {`{"n":null,"any":null}`, `{"n":null,"any":null}`},
		"required":        {`{"must":null}`, `{"must":null}`},
		"not declared":    {`{"other":null}`, `{"other":null}`},
		"inside":          {`{"o":{"x":null,"y":null,"z":null}}`, `{"o":{"z":null}}`},
		"in a list":       {`{"rows":[{"id":1,"tag":null},{"id":2,"tag":"t"},null]}`, `{"rows":[{"id":1},{"id":2,"tag":"t"},null]}`},
		"in a union":      {`{"u":{"id":1,"tag":null}}`, `{"u":{"id":1}}`},
		"in a tuple":      {`{"t":[{"id":1,"tag":null},{"id":1,"tag":null}]}`, `{"t":[{"id":1},{"id":1,"tag":null}]}`},
		"a reference":     {`{"rows":{"$ref":{"type":"Message","seq":null,"part":2,"field":null,"key":null}}}`, `{"rows":{"$ref":{"type":"Message","part":2}}}`},
		"all a reference": {`{"$ref":{"type":"Blob","seq":null,"part":null,"field":null,"key":"k"}}`, `{"$ref":{"type":"Blob","key":"k"}}`},
		"a deeper one":    {`{"rows":[{"$ref":{"type":"Message","seq":null}}]}`, `{"rows":[{"$ref":{"type":"Message","seq":null}}]}`},
		"digits stay":     {`{ "any" : [13911860366432393, 1.50e+2, "\u00e9"], "a":null}`, `{ "any" : [13911860366432393, 1.50e+2, "\u00e9"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ref.ProfileOpenAIStrict.Restore([]byte(schema), []byte(test.in))
			if err != nil || string(got) != test.want {
				t.Errorf("Restore = %s, %v, want %s", got, err, test.want)
			}
			for _, p := range ref.Profiles() {
				if p == ref.ProfileOpenAIStrict {
					continue
				}
				if got, err := p.Restore(nil, []byte(test.in)); err != nil || string(got) != test.in {
					t.Errorf("%v: Restore = %s, %v", p, got, err)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		schema, in string
		err        error
	}{
		"no schema": {`{`, `{}`, ref.ErrSchema},
		"no input":  {`{}`, `{`, ref.ErrMalformed},
		"twice":     {`{}`, `{"a":1,"a":1}`, ref.ErrMalformed},
	} {
		if out, err := ref.ProfileOpenAIStrict.Restore([]byte(test.schema), []byte(test.in)); !errors.Is(err, test.err) || out != nil {
			t.Errorf("%s: Restore = %s, %v", name, out, err)
		}
	}
}

// TestRestoreEnds: a schema that leads everywhere at once has an end.
func TestRestoreEnds(t *testing.T) {
	var defs []string
	for range 200 {
		defs = append(defs, `{"$ref":"#"},{"properties":{"a":{"$ref":"#"}}}`)
	}
	schema := `{"anyOf":[` + strings.Join(defs, ",") + `]}`
	input := strings.Repeat(`{"a":`, 100) + "null" + strings.Repeat("}", 100)
	if _, err := ref.ProfileOpenAIStrict.Restore([]byte(schema), []byte(input)); err != nil && !errors.Is(err, ref.ErrMalformed) {
		t.Error(err)
	}
	wide := `{"items":{"anyOf":[` + strings.Join(defs, ",") + `]}}`
	if _, err := ref.ProfileOpenAIStrict.Restore([]byte(wide), []byte("["+strings.Repeat("{},", 100_000)+"{}]")); !errors.Is(err, ref.ErrMalformed) {
		t.Errorf("it took all the steps: %v", err)
	}
}
