package ref_test

import (
	"bytes"
	"strings"
	"testing"

	"leafproof/ref"
)

// TestMend: what the stricter providers are given, to the byte. R, W(…) as in
// TestRewrite; N(…) is {"anyOf":[…,R,null]} with null as a type.
func TestMend(t *testing.T) {
	for name, test := range map[string]struct {
		p        ref.Profile
		in, want string
	}{
		"all there":         {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{"a":W({"type":"string"})},"required":["a"],"additionalProperties":false}`},
		"optional":          {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"]}`, `{"type":"object","properties":{"a":W({"type":"string"}),"b":N({"type":"string"})},"required":["a","b"],"additionalProperties":false}`},
		"nullable already":  {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"null"},{"type":"string"}]},"c":{"enum":["x",null]},"d":{"$ref":"#/properties/a"},"e":{"$ref":"#/$defs/s"}},"$defs":{"s":{"type":"string"}}}`, `{"type":"object","properties":{"a":W({"type":["string","null"]}),"b":W({"anyOf":[{"type":"null"},{"type":"string"}]}),"c":W({"enum":["x",null]}),"d":W({"$ref":"#/properties/a/anyOf/0"}),"e":N({"$ref":"#/$defs/s"})},"$defs":{"s":{"type":"string"}},"required":["a","b","c","d","e"],"additionalProperties":false}`},
		"nested":            {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"o":{"type":"object","properties":{"x":{"type":"integer"}}},"x":{"$ref":"#/properties/o/properties/x"}},"required":[]}`, `{"type":"object","properties":{"o":N({"type":"object","properties":{"x":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["x"],"additionalProperties":false}),"x":N({"$ref":"#/properties/o/anyOf/0/properties/x/anyOf/0"})},"required":["o","x"],"additionalProperties":false}`},
		"a note beside":     {ref.ProfileOpenAIStrict, `{"type":"object","$defs":{"s":{"type":"string"}},"properties":{"a":{"description":"x","$ref":"#/$defs/s","default":"y"}},"required":["a"],"additionalProperties":false}`, `{"type":"object","$defs":{"s":{"type":"string"}},"properties":{"a":W({"$ref":"#/$defs/s"})},"required":["a"],"additionalProperties":false}`},
		"nothing":           {ref.ProfileOpenAIStrict, `{"type":"object","properties":{}}`, `{"type":"object","properties":{},"required":[],"additionalProperties":false}`},
		"forbidden":         {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":false}}`, `{"type":"object","properties":{"a":{"anyOf":[false,{"type":"null"}]}},"required":["a"],"additionalProperties":false}`},
		"open stays":        {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{"a":W({"type":"object","additionalProperties":{"type":"string"}})},"required":["a"],"additionalProperties":false}`},
		"gemini closed":     {ref.ProfileGemini, `{"$schema":"x:y", "$id":"x:z", "type":"object" ,"properties":{"a":{"additionalProperties":false,"type":"object","properties":{"b":{"type":"string"}}}}, "additionalProperties":false}`, `{"type":"object" ,"properties":{"a":W({"type":"object","properties":{"b":{"type":"string"}}})}}`},
		"gemini all go":     {ref.ProfileGemini, `{"type":"object","properties":{"a":{ "x-a":1 , "x-b":2 }}}`, `{"type":"object","properties":{"a":W({  })}}`},
		"gemini edges":      {ref.ProfileGemini, `{"type":"object","properties":{"a":{"x-a":1,"type":"string","x-b":2,"x-c":3,"title":"T","x-d":4}}}`, `{"type":"object","properties":{"a":W({"type":"string","title":"T"})}}`},
		"gemini reworded":   {ref.ProfileGemini, `{"type":"object","properties":{"a":{"oneOf":[{"const":"x"},{"type":["null","integer"]}],"title":"A"}}}`, `{"type":"object","properties":{"a":W({"anyOf":[{"enum":["x"],"type":"string"},{"type":"integer","nullable":true}]})}}`},
		"gemini in dropped": {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"string","not":{"$ref":"#/properties/a","type":["string","null"]}}}}`, `{"type":"object","properties":{"a":W({"type":"string"})}}`},
		"gemini dead ends":  {ref.ProfileGemini, `{"type":"object","$defs":{"x":{"$ref":"#/$defs/x"}},"additionalProperties":{"$ref":"#/$defs/x"},"properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":W({"type":"string"})}}`},
		"gemini an enum":    {ref.ProfileGemini, `{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"type":"integer","enum":[1]},"c":{"properties":{"d":{"type":"string"}}}}}`, `{"type":"object","properties":{"a":W({"enum":["x","y"],"type":"string"}),"b":W({"type":"integer"}),"c":W({"properties":{"d":{"type":"string"}},"type":"object"})}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := referenceOf(t, test.p)
			want := wrapped(strings.ReplaceAll(test.want, "N(", "W(N"), r)
			for strings.Contains(want, `{"anyOf":[N`) {
				at := strings.Index(want, `{"anyOf":[N`)
				end := at + strings.Index(want[at:], r+"]}")
				want = want[:at] + `{"anyOf":[` + want[at+len(`{"anyOf":[N`):end] + r + `,{"type":"null"}]}` + want[end+len(r)+2:]
			}
			out, err := ref.Rewrite([]byte(test.in), test.p)
			if err != nil || string(out) != want {
				t.Fatalf("Rewrite = %s, %v\nwant      %s", out, err, want)
			}
			if again, err := ref.Rewrite(out, test.p); err != nil || !bytes.Equal(again, out) {
				t.Errorf("rewritten twice: %s, %v", again, err)
			}
		})
	}
}

// TestRewriteRemembers: what was rewritten is not rewritten again.
func TestRewriteRemembers(t *testing.T) {
	in := []byte(`{"type":"object","properties":{"remembered":{"type":"string"}}}`)
	first, err := ref.Rewrite(in, ref.ProfileMCP)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := ref.Rewrite(bytes.Clone(in), ref.ProfileMCP)
	other, _ := ref.Rewrite(in, ref.ProfileGemini)
	if &first[0] != &again[0] || bytes.Equal(first, other) {
		t.Error("it was made anew, or for another profile")
	}
}
