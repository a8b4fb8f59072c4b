package ref_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leafproof/ref"
)

// TestLint: each rule of each provider. A finding is written rule@place, with a ~
// where the rewriter mends it.
func TestLint(t *testing.T) {
	many := func(n int, each func(i int) string) string {
		var list []string
		for i := range n {
			list = append(list, each(i))
		}
		return strings.Join(list, ",")
	}
	closed := func(properties, required string) string {
		return `{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`
	}
	levels := func(n int) string {
		s := `{"type":"string"}`
		for range n {
			s = closed(`"a":`+s, `"a"`)
		}
		return s
	}
	for name, test := range map[string]struct {
		p    ref.Profile
		in   string
		want []string
	}{
		"good":                {ref.ProfileAnthropic, `{"type":"object","properties":{"a":{"anyOf":[{},{}]}}}`, nil},
		"no JSON":             {ref.ProfileAnthropic, `{`, []string{"json@"}},
		"true":                {ref.ProfileMCP, `true`, []string{"root-object@"}},
		"no type":             {ref.ProfileMCP, `{"properties":{}}`, []string{"root-object@"}},
		"a type list":         {ref.ProfileAnthropic, `{"type":["object","null"]}`, []string{"root-object@"}},
		"anyOf":               {ref.ProfileAnthropic, `{"type":"object","anyOf":[{}]}`, []string{"root-composition@/anyOf"}},
		"oneOf":               {ref.ProfileAnthropic, `{"type":"object","oneOf":[{}]}`, []string{"root-composition@/oneOf"}},
		"allOf":               {ref.ProfileAnthropic, `{"type":"object","allOf":[{}]}`, []string{"root-composition@/allOf"}},
		"mcp anyOf":           {ref.ProfileMCP, `{"type":"object","anyOf":[{}]}`, []string{"root-composition@/anyOf"}},
		"gemini anyOf":        {ref.ProfileGemini, `{"type":"object","anyOf":[{"type":"object"}]}`, []string{"root-composition@/anyOf"}},
		"strict anyOf":        {ref.ProfileOpenAIStrict, closed("", "")[:len(closed("", ""))-1] + `,"anyOf":[{"type":"string"}]}`, []string{"root-composition@/anyOf"}},
		"strict enum":         {ref.ProfileOpenAIStrict, closed("", "")[:len(closed("", ""))-1] + `,"enum":[{}]}`, []string{"root-composition@/enum"}},
		"a reserved name":     {ref.ProfileMCP, `{"type":"object","properties":{"$ref":{}}}`, []string{"reserved-name@/properties/$ref"}},
		"no schema":           {ref.ProfileMCP, `{"type":"object","properties":{"a":{"type":"frob"}}}`, []string{"schema@"}},
		"a dangling one":      {ref.ProfileMCP, `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}`, []string{"schema@"}},
		"elsewhere":           {ref.ProfileMCP, `{"type":"object","properties":{"a":{"$ref":"https://x.test/s"}}}`, []string{"schema@"}},
		"another draft":       {ref.ProfileAnthropic, `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, []string{"schema@"}},
		"another draft, mcp":  {ref.ProfileMCP, `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, nil},
		"a bracket":           {ref.ProfileAnthropic, `{"type":"object","properties":{"filter[id]":{}}}`, []string{"name@/properties/filter[id]"}},
		"a bracket inside":    {ref.ProfileAnthropic, `{"type":"object","properties":{"a":{"properties":{"filter[id]":{},"$ref":{}}}}}`, nil},
		"a long name":         {ref.ProfileAnthropic, `{"type":"object","properties":{"` + strings.Repeat("x", 65) + `":{}}}`, []string{"name@/properties/" + strings.Repeat("x", 65)}},
		"gemini name":         {ref.ProfileGemini, `{"type":"object","properties":{"a-b":{"type":"string"}}}`, []string{"name@/properties/a-b"}},
		"strict, good":        {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string"}`, `"a"`), nil},
		"strict, optional":    {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string"}`, ``), []string{"~required@/properties/a"}},
		"strict, open":        {ref.ProfileOpenAIStrict, `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, []string{"~additional-properties@"}},
		"strict, a map":       {ref.ProfileOpenAIStrict, closed(`"a":{"type":"object","additionalProperties":{"type":"string"}}`, `"a"`), []string{"open-object@/properties/a"}},
		"strict, any":         {ref.ProfileOpenAIStrict, closed(`"a":{}`, `"a"`), []string{"typeless@/properties/a"}},
		"strict, true":        {ref.ProfileOpenAIStrict, closed(`"a":true`, `"a"`), []string{"boolean-schema@/properties/a"}},
		"strict, extra":       {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string"}`, `"a","b"`), []string{"required@/required"}},
		"strict, siblings":    {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string"},"b":{"$ref":"#/properties/a","description":"x"}`, `"a","b"`), []string{"~ref-siblings@/properties/b"}},
		"strict, allOf":       {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string","allOf":[{"type":"string"}]}`, `"a"`), []string{"keyword@/properties/a/allOf"}},
		"strict, levels":      {ref.ProfileOpenAIStrict, levels(10), nil},
		"strict, more levels": {ref.ProfileOpenAIStrict, levels(11), []string{"size@" + strings.Repeat("/properties/a", 10)}},
		"strict, enums":       {ref.ProfileOpenAIStrict, closed(`"a":{"type":"integer","enum":[`+many(998, func(i int) string { return fmt.Sprint(i) })+`]}`, `"a"`), nil},
		"strict, more enums":  {ref.ProfileOpenAIStrict, closed(`"a":{"type":"integer","enum":[`+many(999, func(i int) string { return fmt.Sprint(i) })+`]}`, `"a"`), []string{"size@"}},
		"strict, a long enum": {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string","enum":[`+many(251, func(i int) string { return fmt.Sprintf(`"%060d"`, i) })+`]}`, `"a"`), []string{"size@/properties/a/enum"}},
		"strict, names":       {ref.ProfileOpenAIStrict, closed(`"a":{"type":"string","const":"`+strings.Repeat("é", 120_000)+`"}`, `"a"`), []string{"size@"}},
		"gemini, good":        {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"string","format":"date-time"}},"required":["a"]}`, nil},
		"gemini, closed":      {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`, []string{"~keyword@/additionalProperties"}},
		"gemini, many":        {ref.ProfileGemini, `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"integer","exclusiveMinimum":0,"not":{"const":3}}}}`, []string{"~keyword@/$schema", "~keyword@/properties/a/exclusiveMinimum", "~keyword@/properties/a/not"}},
		"gemini, empty":       {ref.ProfileGemini, `{"type":"object","properties":{}}`, []string{"~keyword@/properties"}},
		"gemini, const":       {ref.ProfileGemini, `{"type":"object","properties":{"a":{"const":"x"}}}`, []string{"~keyword@/properties/a/const", "~typeless@/properties/a"}},
		"gemini, null too":    {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":["string","null"]}}}`, []string{"~type@/properties/a/type"}},
		"gemini, two types":   {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":["string","integer"]}}}`, []string{"type@/properties/a/type"}},
		"gemini, siblings":    {ref.ProfileGemini, `{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}],"title":"A"}}}`, []string{"~keyword@/properties/a/title"}},
		"gemini, oneOf":       {ref.ProfileGemini, `{"type":"object","properties":{"a":{"oneOf":[{"type":"string"}]}}}`, []string{"~keyword@/properties/a/oneOf"}},
		"gemini, defs":        {ref.ProfileGemini, `{"type":"object","$defs":{"x":{"const":3}},"properties":{"a":{"type":"string"}}}`, []string{"~keyword@/$defs"}},
		"gemini, $ref":        {ref.ProfileGemini, `{"type":"object","$defs":{"x":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/x"}}}`, []string{"keyword@/$defs", "keyword@/properties/a/$ref"}},
		"gemini, no items":    {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"array"}}}`, []string{"items@/properties/a"}},
		"gemini, any":         {ref.ProfileGemini, `{"type":"object","properties":{"a":{}}}`, []string{"typeless@/properties/a"}},
		"gemini, numbers":     {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"integer","enum":[1,2]}}}`, []string{"~keyword@/properties/a/enum"}},
		"gemini, extra":       {ref.ProfileGemini, `{"type":"object","properties":{"a":{"type":"string"}},"required":["b"]}`, []string{"required@/required"}},
		"no profile":          {0, `{}`, []string{"profile@"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			open := false
			for _, f := range ref.Lint(test.p, []byte(test.in)) {
				text := f.Rule + "@" + f.At
				if f.Mended {
					text = "~" + text
				}
				open = open || !f.Mended
				if got = append(got, text); f.Says == "" {
					t.Errorf("%s says nothing", text)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Fatalf("findings %q\nwant %q", got, test.want)
			}
			if open {
				return
			}
			out, err := ref.Rewrite([]byte(test.in), test.p)
			if err != nil {
				t.Fatal(err)
			}
			if left := ref.Lint(test.p, out); len(left) > 0 {
				t.Errorf("rewritten to %.500s\nwhich has %+v", out, left)
			}
		})
	}
}

// TestLintSizeCounts: the bound is on what is sent, references and all.
func TestLintSizeCounts(t *testing.T) {
	make := func(n int) []byte {
		var b, req strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"p%d":{"type":"string"}`, i)
			fmt.Fprintf(&req, `,"p%d"`, i)
		}
		return []byte(`{"type":"object","properties":{` + b.String()[1:] + `},"required":[` + req.String()[1:] + `],"additionalProperties":false}`)
	}
	for n, want := range map[int]bool{500: true, 501: false} { // two values of an enum for each reference
		got := ref.Lint(ref.ProfileOpenAIStrict, make(n))
		if (len(got) == 0) != want {
			t.Errorf("%d properties: %+v", n, got)
		}
		out, err := ref.Rewrite(make(n), ref.ProfileOpenAIStrict)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) < 256<<10 { // beyond, it is no longer judged
			if after := ref.Lint(ref.ProfileOpenAIStrict, out); (len(after) == 0) != want {
				t.Errorf("%d properties, rewritten: %+v", n, after)
			}
		}
	}
}
