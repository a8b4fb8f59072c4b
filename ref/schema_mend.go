package ref

import (
	"bytes"
	"slices"
)

// mend puts right what a profile refuses and can be put right without refusing an
// input that the author allows (nulls aside: see [Profile.Restore]), and notes the
// rest for the linter.
func (s *survey) mend() {
	if s.p != ProfileOpenAIStrict && s.p != ProfileGemini {
		return
	}
	for _, n := range s.schemas {
		switch {
		case s.gone(n) || n.replaced:
		case s.p == ProfileOpenAIStrict:
			s.mendStrict(n)
		case s.p == ProfileGemini:
			s.mendGemini(n)
		}
	}
}

// strictUnknown reports what strict mode refuses, over "Some type-specific keywords
// are not yet supported" and "Key ordering"/"anyOf" of OpenAI's guide to Structured
// Outputs, section Supported schemas; oneOf and uniqueItems from its answers "'oneOf'
// is not permitted", "'uniqueItems' is not permitted".
func strictUnknown(keyword string) bool {
	switch keyword {
	case "allOf", "oneOf", "not", "if", "then", "else",
		"dependentRequired", "dependentSchemas", "dependencies",
		"patternProperties", "propertyNames", "minProperties", "maxProperties",
		"unevaluatedProperties", "unevaluatedItems", "additionalItems", "prefixItems",
		"contains", "minContains", "maxContains", "uniqueItems",
		"$dynamicRef", "$recursiveRef":
		return true
	}
	return false
}

// notes are keywords that describe and do not demand.
var notes = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "example": true, "$comment": true,
	"deprecated": true, "readOnly": true, "writeOnly": true,
}

// mendStrict applies the rules of strict mode to one schema: all members required,
// additionalProperties false (OpenAI's guide to Structured Outputs: "All fields
// must be required", "additionalProperties: false must always be set in objects";
// openai/openai-agents-python, src/agents/strict_schema.py, does the same).
func (s *survey) mendStrict(n *node) {
	for i, name := range n.names {
		if strictUnknown(name.text) {
			s.issue(n.kids[i], "keyword", false, "%s is not supported in strict mode", name.text)
		}
	}
	s.children(n)
	if n.get("$ref") != nil && len(n.names) > 1 {
		// "$ref cannot have keywords {'description'}", as the API answers.
		ok := !slices.ContainsFunc(n.names, func(m member) bool { return m.text != "$ref" && !notes[m.text] })
		s.issue(n, "ref-siblings", ok, "$ref stands alone in strict mode")
		if ok {
			s.remove(n, func(i int) bool { return notes[n.names[i].text] })
		}
	}
	if n != s.root && n.get("type") == nil && n.get("anyOf") == nil && n.get("$ref") == nil && n.get("enum") == nil && n.get("const") == nil && n.get("properties") == nil {
		s.issue(n, "typeless", false, "a schema needs a type in strict mode")
		return
	}
	properties := n.object("properties")
	if properties == nil {
		if s.isType(n, "object") && n.get("anyOf") == nil {
			s.issue(n, "open-object", false, "an object must list its properties in strict mode")
		}
		return
	}
	s.mendStrictObject(n, properties)
}

func (s *survey) mendStrictObject(n, properties *node) {
	required := n.get("required")
	s.undeclared(required, properties)
	missing := s.scratch[:0] // each name behind a comma
	for i, m := range properties.names {
		if required.lists(s.doc, m.text) {
			continue
		}
		missing = append(append(missing, ','), s.doc[m.start:m.end]...)
		s.issue(properties.kids[i], "required", true, "not required; strict mode wants it required, and nullable instead")
		if v := properties.kids[i]; !s.acceptsNull(v, 0) {
			v.wrap = orNull(v.wrap)
		}
	}
	more := missing
	switch {
	case required == nil:
		if len(properties.names) == 0 {
			s.issue(n, "required", true, "without required")
		}
		more = append(append(append(more, `,"required":[`...), bytes.TrimPrefix(missing, comma)...), ']')
	case required.kind == '[' && len(missing) > 0:
		text := missing
		if len(required.kids) == 0 {
			text = bytes.TrimPrefix(missing, comma)
		}
		s.edits = append(s.edits, edit{start: required.end - 1, end: required.end - 1, order: inserting, text: string(text)})
	}
	switch open := n.get("additionalProperties"); {
	case open == nil:
		s.issue(n, "additional-properties", true, "without additionalProperties; strict mode wants it false")
		more = append(more, `,"additionalProperties":false`...)
	case open.kind != 'f':
		s.issue(open, "additional-properties", false, "additionalProperties must be false in strict mode: an open object cannot be said")
	}
	s.scratch = more
	if more = more[len(missing):]; len(more) > 0 {
		// n has properties: what comes stands behind them.
		s.edits = append(s.edits, edit{start: n.end - 1, end: n.end - 1, order: inserting, text: string(more)})
	}
}

var comma = []byte(",")

// strictNullable is what stands behind a property of strict mode that may be null.
var strictNullable = ProfileOpenAIStrict.alternative() + "," + nullType

// orNull adds null to what stands behind a property.
func orNull(wrap string) string {
	switch wrap {
	case "":
		return "," + nullType
	case ProfileOpenAIStrict.alternative():
		return strictNullable
	}
	return wrap + "," + nullType
}

// isType reports whether a schema names a type, alone or among others.
func (s *survey) isType(n *node, name string) bool {
	t := n.get("type")
	return t.is(s.doc, name) || t.lists(s.doc, name)
}

// undeclared notes names that are required and no properties.
func (s *survey) undeclared(required, properties *node) {
	if !s.lint {
		return
	}
	for _, name := range required.strings(s.doc) {
		if properties.get(name) == nil {
			s.issue(required, "required", false, "%q is required and no property", name)
		}
	}
}

// children notes schemas that are true or false, and items that are a list, which
// the stricter profiles do not know.
func (s *survey) children(n *node) {
	check := func(k *node) {
		if k.kind == 't' || k.kind == 'f' {
			s.issue(k, "boolean-schema", false, "true and false are no schemas here")
		}
	}
	if p := n.object("properties"); p != nil {
		for _, k := range p.kids {
			check(k)
		}
	}
	if list := n.get("anyOf"); list != nil && list.kind == '[' {
		for _, k := range list.kids {
			check(k)
		}
	}
	if items := n.get("items"); items != nil {
		check(items)
		if items.kind == '[' {
			s.issue(items, "tuple", false, "items must be one schema")
		}
	}
}

// geminiKnown are the members of Schema in the Gemini API (ai.google.dev/api,
// Schema); any other makes the whole request fail: "Unknown name …: Cannot find
// field".
var geminiKnown = map[string]bool{
	"type": true, "format": true, "title": true, "description": true, "nullable": true, "enum": true,
	"maxItems": true, "minItems": true, "properties": true, "required": true, "minProperties": true, "maxProperties": true,
	"minLength": true, "maxLength": true, "pattern": true, "example": true, "anyOf": true, "propertyOrdering": true,
	"default": true, "items": true, "minimum": true, "maximum": true,
}

// geminiFormats are the values of format that are not refused, by type.
var geminiFormats = map[string]bool{"enum": true, "date-time": true, "float": true, "double": true, "int32": true, "int64": true}

// geminiNeeded are keywords that Gemini does not know and that cannot be dropped or
// reworded without a change of what they mean to the model.
var geminiNeeded = map[string]bool{
	"allOf": true, "prefixItems": true, "$ref": true, "$dynamicRef": true, "$recursiveRef": true,
}

// geminiTargets are keywords that decide what a $ref leads to. They go where there is
// no $ref.
var geminiTargets = map[string]bool{
	"$schema": true, "$defs": true, "definitions": true, "$id": true, "id": true, "$anchor": true, "$dynamicAnchor": true,
}

// mendGemini drops or rewords what a function declaration does not know. What it
// drops only narrows: the original schema judges the input in the end.
func (s *survey) mendGemini(n *node) {
	union := n.get("anyOf") != nil || n.get("oneOf") != nil
	out := s.out[:0]
	for i, m := range n.names {
		out = append(out, s.mendGeminiMember(n, i, m.text, union))
	}
	s.out = out
	s.children(n)
	s.remove(n, func(i int) bool { return out[i] })
	s.geminiType(n, union)
	if s.isType(n, "array") && n.get("items") == nil && n.get("prefixItems") == nil {
		s.issue(n, "items", false, "an array needs items") // "items: missing field"
	}
	if !union {
		s.undeclared(n.get("required"), n.object("properties")) // "property is not defined"
	}
}

// mendGeminiMember deals with one keyword, and reports whether it goes.
func (s *survey) mendGeminiMember(n *node, i int, name string, union bool) bool {
	k := n.kids[i]
	drop := func(why string) bool {
		if s.lint {
			s.issue(k, "keyword", true, "%s %s", name, why)
		}
		return true
	}
	switch {
	case !union && (geminiPlain(name) || name == "type" && k.kind == '"' || name == "properties" && k.kind == '{' && len(k.kids) > 0):
	case union && n != s.root && name != "anyOf" && name != "oneOf":
		// "When using any_of, it must be the only field set."
		return drop("stands beside anyOf, which must stand alone")
	case name == "oneOf" && n != s.root:
		if n.get("anyOf") != nil || k.kind != '[' {
			s.issue(k, "keyword", false, "oneOf is not known")
			return false
		}
		s.issue(k, "keyword", true, "oneOf is not known; anyOf is")
		s.rename(n, i, "anyOf")
	case name == "const" && k.kind == '"' && n.get("enum") == nil:
		s.issue(k, "keyword", true, "const is not known; an enum of one is")
		s.rename(n, i, "enum")
		s.edits = append(
			s.edits,
			edit{start: k.start, end: k.start, order: opening, text: "["},
			edit{start: k.end, end: k.end, order: closing, text: "]"},
		)
	case name == "type" && k.kind == '[':
		s.geminiTypes(n, k)
	case name == "format":
		if f, _ := k.text(s.doc); !geminiFormats[f] {
			return drop("must be enum, date-time, float, double, int32 or int64")
		}
	case name == "enum" && k.kind == '[' && slices.ContainsFunc(k.kids, func(e *node) bool { return e.kind != '"' || e.end-e.start == 2 }):
		if n.get("type") == nil {
			s.issue(k, "enum", false, "an enum has strings only, none of them empty")
			return false
		}
		return drop("has strings only, none of them empty")
	case name == "properties" && k.kind == '{' && len(k.kids) == 0:
		return drop("must not be empty") // "should be non-empty for OBJECT type"
	case geminiTargets[name] && s.refersInGemini():
		s.issue(k, "keyword", false, "%s is not known, and a $ref rests on it", name)
	case geminiNeeded[name]:
		s.issue(k, "keyword", false, "%s is not known", name)
	case name == "oneOf": // at the root, where it is another finding
	case !geminiKnown[name]:
		return drop("is not known")
	}
	return false
}

// refersInGemini reports whether a reference remains when all is dropped that
// Gemini does not know.
func (s *survey) refersInGemini() bool {
	return slices.ContainsFunc(s.refs, func(ref *node) bool {
		for k := ref; k.parent != nil; k = k.parent {
			n := k.parent
			if !n.schema || n.kind != '{' {
				continue
			}
			name := n.names[k.at].text
			union := n != s.root && (n.get("anyOf") != nil || n.get("oneOf") != nil)
			if union && name != "anyOf" && name != "oneOf" || !geminiKnown[name] && !geminiNeeded[name] && name != "oneOf" {
				return false
			}
		}
		return true
	})
}

// geminiPlain are keywords that stay whatever stands behind them.
func geminiPlain(name string) bool {
	switch name {
	case "description", "title", "items", "required", "nullable", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "default":
		return true
	}
	return false
}

// geminiTypes rewords a list of types: one beside null.
func (s *survey) geminiTypes(n, list *node) {
	var types []string
	null := false
	for _, k := range list.kids {
		if t, _ := k.text(s.doc); t == "null" {
			null = true
		} else {
			types = append(types, string(k.raw(s.doc)))
		}
	}
	if len(types) != 1 {
		s.issue(list, "type", false, "a list of types is not known") // "Proto field is not repeating"
		return
	}
	s.issue(list, "type", true, "a list of types is not known; nullable is")
	text := types[0]
	if null && n.get("nullable") == nil {
		text += `,"nullable":true`
	}
	s.edits = append(s.edits, edit{start: list.start, end: list.end, order: opening, text: text})
}

// geminiType notes a schema without a type.
func (s *survey) geminiType(n *node, union bool) {
	if union || n == s.root || n.get("type") != nil || n.get("$ref") != nil || n.get("allOf") != nil {
		return
	}
	value := n.get("enum")
	if c := n.get("const"); value == nil {
		value = c
	}
	text := value != nil && (value.kind == '"' || value.kind == '[' && len(value.kids) > 0 && len(value.strings(s.doc)) == len(value.kids))
	switch {
	case n.object("properties") != nil && len(n.object("properties").kids) > 0:
		s.issue(n, "typeless", true, "without a type")
		s.insert(n, `"type":"object"`)
	case text:
		s.issue(n, "typeless", true, "without a type")
		s.insert(n, `"type":"string"`)
	default:
		s.issue(n, "typeless", false, "a schema needs a type")
	}
}

// rename gives a member another name.
func (s *survey) rename(n *node, i int, name string) {
	m := n.names[i]
	s.edits = append(s.edits, edit{start: m.start, end: m.end, order: opening, text: quoted(name)})
}
