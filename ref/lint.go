package ref

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"leafproof/internal/jsonschema"
)

// A Finding is what a provider has against a tool's schema.
type Finding struct {
	At   string // JSON Pointer into the schema; "" is its root
	Rule string // which rule, in a word: root-composition, root-object, …
	Says string // what is wrong, in words
	// Mended says that [Rewrite] puts it right. A finding that is not mended makes
	// the provider refuse the request, as a rule the whole of it with every other
	// tool's schema.
	Mended bool
}

// Lint says what a provider has against a tool's schema, by the rules that it has
// published or answers with; nil where it would take it. Those about the root stand
// first, the others schema by schema. Where all of them are Mended, what [Rewrite]
// returns has none.
//
// Bounds are those of what is sent: the references that Rewrite adds count.
func Lint(p Profile, schema []byte) []Finding {
	if !p.known() {
		return []Finding{{Rule: "profile", Says: ErrProfile.Error()}}
	}
	s, err := newSurvey(schema, p)
	if err != nil {
		return []Finding{{Rule: "json", Says: err.Error()}}
	}
	defer s.release()
	s.lint = true
	if s.root.kind != '{' {
		s.issue(s.root, "root-object", false, "the root must be an object that says \"type\":\"object\"")
		return s.findings
	}
	s.lintRoot()
	s.lintValid()
	switch p {
	case ProfileAnthropic:
		s.lintNames(anthropicName)
	case ProfileGemini:
		s.lintNames(geminiName)
	}
	s.mend()
	if p == ProfileOpenAIStrict {
		s.lintSize()
	}
	return s.findings
}

// lintRoot holds what every profile wants of a root.
//
// No composition: Anthropic's API answers "input_schema does not support oneOf,
// allOf, or anyOf at the top level" (anthropics/claude-code #27337), OpenAI's "schema
// must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the
// top level" (langchain-ai/langchainjs #9804); an MCP server's tools reach both.
// Type object: both, Gemini's "functionDeclaration parameters schema should be of
// type OBJECT", and the MCP specification (Tool.inputSchema).
func (s *survey) lintRoot() {
	if t, _ := s.root.get("type").text(s.doc); t != "object" {
		s.issue(s.root, "root-object", false, "the root must say \"type\":\"object\"")
	}
	refused := []string{"anyOf", "oneOf", "allOf"}
	if s.p == ProfileOpenAIStrict {
		refused = append(refused, "enum", "const", "not")
	}
	for _, name := range refused {
		if n := s.root.get(name); n != nil {
			s.issue(n, "root-composition", false, "%s at the root makes the provider refuse every request", name)
		}
	}
	if n := s.root.object("properties").get("$ref"); n != nil {
		s.issue(n, "reserved-name", false, "an input with this property alone reads as a reference")
	}
}

// lintValid asks whether the schema is one. Anthropic's API holds it against draft
// 2020-12, whatever it says of itself ("It must match JSON Schema draft 2020-12").
func (s *survey) lintValid() {
	doc := s.doc
	if s.p == ProfileAnthropic && s.root.get("$schema") != nil {
		other := &survey{doc: s.doc}
		other.remove(s.root, func(i int) bool { return s.root.names[i].text == "$schema" })
		doc = splice(s.doc, other.edits)
	}
	if _, err := jsonschema.Compile(doc); err != nil {
		s.issue(s.root, "schema", false, "%s", strings.TrimPrefix(err.Error(), jsonschema.ErrSchema.Error()+": "))
	}
}

var (
	// "Property keys should match pattern", as Anthropic's API answers; it looks at
	// the top level only (aws-solutions-library-samples/accelerated-intelligent-
	// document-processing-on-aws #709), so that the $ref of a reference passes.
	anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	// FunctionDeclaration.parameters of Google's Vertex AI reference.
	geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)
)

func (s *survey) lintNames(allowed *regexp.Regexp) {
	p := s.root.object("properties")
	if p == nil {
		return
	}
	for i, m := range p.names {
		if !allowed.MatchString(m.text) {
			s.issue(p.kids[i], "name", false, "a property's name must match %s", allowed)
		}
	}
}

// The bounds of OpenAI's guide to Structured Outputs, section Supported schemas:
// "A schema may have up to 5000 object properties total, with up to 10 levels of
// nesting"; "total string length of all property names, definition names, enum
// values, and const values cannot exceed 120,000 characters"; "up to 1000 enum
// values across all enum properties"; "for a single enum property with string
// values, the total string length of all enum values cannot exceed 15,000
// characters when there are more than 250 enum values".
const (
	strictProperties = 5000
	strictLevels     = 10
	strictText       = 120_000
	strictEnums      = 1000
	strictLongEnum   = 250
	strictEnumText   = 15_000
)

// strictSize is what strict mode counts.
type strictSize struct{ properties, text, enums int }

func (z *strictSize) add(o strictSize, times int) {
	z.properties += o.properties * times
	z.text += o.text * times
	z.enums += o.enums * times
}

// referenceSize is the size of one reference in strict mode.
var referenceSize = func() strictSize {
	s, err := newSurvey([]byte(strictReference), ProfileOpenAIStrict)
	if err != nil {
		panic(err)
	}
	defer s.release()
	return s.size()
}()

func (s *survey) lintSize() {
	z := s.size()
	if p := s.root.object("properties"); p != nil {
		for _, n := range p.kids {
			if s.takes(n) {
				z.add(referenceSize, 1)
			}
		}
	}
	for _, bound := range []struct {
		name      string
		got, most int
	}{
		{"properties in all", z.properties, strictProperties},
		{"characters of names and enum values", z.text, strictText},
		{"enum values", z.enums, strictEnums},
	} {
		if bound.got > bound.most {
			s.issue(s.root, "size", false, "%d %s with the references, at most %d", bound.got, bound.name, bound.most)
		}
	}
	for _, n := range s.schemas {
		if properties := n.object("properties"); properties != nil {
			levels := 0
			for up := n; up != nil; up = up.parent {
				if up.schema && up.get("properties") != nil {
					levels++
				}
			}
			if levels == strictLevels+1 {
				s.issue(n, "size", false, "%d levels of objects, at most %d", levels, strictLevels)
			}
		}
	}
}

// size counts, and notes a single enum that is too long.
func (s *survey) size() strictSize {
	var z strictSize
	for _, n := range s.schemas {
		for _, name := range []string{"properties", "$defs", "definitions"} {
			names := n.object(name)
			if names == nil {
				continue
			}
			for _, m := range names.names {
				z.text += utf8.RuneCountInString(m.text)
			}
			if name == "properties" {
				z.properties += len(names.names)
			}
		}
		c, _ := n.get("const").text(s.doc)
		z.text += utf8.RuneCountInString(c)
		if list := n.get("enum"); list != nil && list.kind == '[' {
			text := 0
			for _, v := range list.strings(s.doc) {
				text += utf8.RuneCountInString(v)
			}
			z.text += text
			z.enums += len(list.kids)
			if len(list.kids) > strictLongEnum && text > strictEnumText {
				s.issue(list, "size", false, "%d values of %d characters in one enum, at most %d characters beyond %d values", len(list.kids), text, strictEnumText, strictLongEnum)
			}
		}
	}
	return z
}
