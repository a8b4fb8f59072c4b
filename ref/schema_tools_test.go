package ref_test

import (
	"fmt"
	"testing"

	"leafproof/internal/jsonschema"
	"leafproof/ref"
)

// realTools are tools in the styles that authors and generators write.
func realTools() []ref.Declaration {
	return []ref.Declaration{
		{Name: "generate_pdf", Schema: []byte(`{"type":"object","properties":{"title":{"type":"string"},"rows":{"type":"array","items":{"type":"object"}}},"required":["rows"]}`)},
		{Name: "read_json", Lazy: []string{"source"}, Schema: []byte(`{"type":"object","properties":{"source":{"type":"object","description":"The document."},"path":{"type":"string","default":""},"page":{"type":"integer","minimum":0}},"required":["source"],"additionalProperties":false}`)},
		// a Python library's models: titles, defaults, anyOf for optional ones, definitions
		{Name: "create_ticket", Schema: []byte(`{"$defs":{"Priority":{"enum":["low","high"],"title":"Priority","type":"string"},"Person":{"properties":{"name":{"title":"Name","type":"string"},"email":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"Email"}},"required":["name"],"title":"Person","type":"object"}},"properties":{"summary":{"maxLength":200,"title":"Summary","type":"string"},"priority":{"$ref":"#/$defs/Priority","default":"low"},"watchers":{"default":[],"items":{"$ref":"#/$defs/Person"},"title":"Watchers","type":"array"}},"required":["summary"],"title":"CreateTicket","type":"object"}`)},
		// a TypeScript library's: draft 7, closed, references into the first use of a type
		{Name: "move_item", Schema: []byte(`{"type":"object","properties":{"from":{"type":"object","properties":{"list":{"type":"string","format":"uuid"},"index":{"type":"integer","minimum":0}},"required":["list","index"],"additionalProperties":false},"to":{"$ref":"#/properties/from"},"note":{"type":"string"}},"required":["from","to"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}`)},
		{Name: "set_mode", Schema: []byte(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"mode":{"anyOf":[{"type":"string","const":"auto"},{"type":"string","const":"manual"}]},"level":{"type":["integer","null"],"exclusiveMinimum":0}},"additionalProperties":false}`)},
		// nothing to say
		{Name: "list_projects", Schema: []byte(`{"type":"object","properties":{}}`)},
		{Name: "ping", Schema: []byte(`{"type":"object"}`)},
		// a shell and a file tool
		{Name: "bash", Schema: []byte(`{"type":"object","properties":{"command":{"type":"string","description":"The command to run."},"timeout":{"type":"number","description":"Milliseconds, at most 600000."},"background":{"type":"boolean"}},"required":["command"],"additionalProperties":false}`)},
		{Name: "edit_file", Schema: []byte("{\n  \"type\": \"object\",\n  \"properties\": {\n    \"path\": { \"type\": \"string\" },\n    \"edits\": {\n      \"type\": \"array\",\n      \"items\": {\n        \"type\": \"object\",\n        \"properties\": { \"old\": { \"type\": \"string\" }, \"new\": { \"type\": \"string\" } },\n        \"required\": [\"old\", \"new\"]\n      },\n      \"minItems\": 1\n    }\n  },\n  \"required\": [\"path\", \"edits\"]\n}\n")},
		// a query language in a tree
		{Name: "search", Schema: []byte(`{"type":"object","properties":{"where":{"$ref":"#/definitions/cond"},"limit":{"type":"integer","minimum":1,"maximum":100}},"required":["where"],"definitions":{"cond":{"type":"object","properties":{"field":{"type":"string"},"equals":{},"and":{"type":"array","items":{"$ref":"#/definitions/cond"}}}}}}`)},
		// a discriminated union
		{Name: "draw", Schema: []byte(`{"type":"object","properties":{"shape":{"oneOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"]},{"type":"object","properties":{"kind":{"const":"box"},"w":{"type":"number"},"h":{"type":"number"}},"required":["kind","w","h"]}]}},"required":["shape"]}`)},
		// open maps
		{Name: "set_env", Schema: []byte(`{"type":"object","properties":{"name":{"type":"string"}},"additionalProperties":{"type":"string"}}`)},
		{Name: "headers", Schema: []byte(`{"type":"object","properties":{"url":{"type":"string","format":"uri"},"headers":{"type":"object","additionalProperties":{"type":"string"}}},"patternProperties":{"^x-":{"type":"string"}},"required":["url"]}`)},
		// conditions between properties
		{Name: "pay", Schema: []byte(`{"type":"object","properties":{"method":{"type":"string","enum":["card","transfer"]},"iban":{"type":"string"},"card":{"type":"string","pattern":"^[0-9]{16}$"}},"required":["method"],"dependentRequired":{"iban":["method"]}}`)},
		// a root that no provider takes
		{Name: "update_issue", Schema: []byte(`{"type":"object","properties":{"id":{"type":"integer"},"title":{"type":"string"},"body":{"type":"string"}},"required":["id"],"anyOf":[{"required":["title"]},{"required":["body"]}]}`)},
		{Name: "legacy", Schema: []byte(`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x.test/legacy","type":"object","properties":{"n":{"type":"number","minimum":0,"exclusiveMinimum":true},"m":{"$ref":"http://x.test/legacy#/properties/n"}}}`)},
		{Name: "filters", Schema: []byte(`{"type":"object","properties":{"filter[id]":{"type":"string"},"fields":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}`)},
		{Name: "matrix", Schema: []byte(`{"type":"object","properties":{"rows":{"type":"array","items":{"type":"array","items":{"type":"number"}}},"origin":{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}],"items":false}},"required":["rows"]}`)},
		{Name: "strict_ready", Schema: []byte(`{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":["string","null"],"enum":["C","F",null]}},"required":["city","unit"],"additionalProperties":false}`)},
	}
}

// TestRealTools: what a provider takes of each tool, before and after.
func TestRealTools(t *testing.T) {
	refused := map[ref.Profile]map[string]bool{
		ref.ProfileAnthropic: {"update_issue": true, "filters": true, "legacy": true},
		ref.ProfileMCP:       {"update_issue": true},
		ref.ProfileGemini: {
			"update_issue": true, "filters": true, "create_ticket": true, "move_item": true, "search": true, "legacy": true, "matrix": true,
		},
		ref.ProfileOpenAIStrict: {
			"generate_pdf": true, "ping": true, "search": true, "draw": true, "set_env": true, "headers": true, "pay": true,
			"update_issue": true, "filters": true, "matrix": true, "read_json": false,
		},
	}
	for _, tool := range realTools() {
		for _, p := range ref.Profiles() {
			t.Run(fmt.Sprintf("%s for %v", tool.Name, p), func(t *testing.T) {
				open := 0
				for _, f := range ref.Lint(p, tool.Schema) {
					if !f.Mended {
						open++
					}
				}
				if tool.Name == "read_json" { // its source is declared as a reference alone
					open = 0
				}
				if (open > 0) != refused[p][tool.Name] {
					t.Errorf("findings: %+v", ref.Lint(p, tool.Schema))
				}
				out, err := ref.Rewrite(tool.Schema, p, tool.Lazy...)
				if err != nil {
					t.Fatal(err)
				}
				if left := ref.Lint(p, out); (len(left) > 0) != refused[p][tool.Name] {
					t.Errorf("findings after: %+v\n%s", left, out)
				}
				if _, err := jsonschema.Compile(out); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				if _, err := ref.CompileSchema(tool.Schema, tool.Lazy...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
