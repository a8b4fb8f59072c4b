package ref

import (
	"bytes"
	"fmt"
	"strings"
)

// A Profile is what one kind of provider takes: which JSON Schema it accepts for
// a tool, and in which form a result goes to the model.
type Profile uint8

// The profiles. The zero Profile is none, and nothing accepts it.
const (
	// ProfileAnthropic: no composition at the root, an object in every result.
	ProfileAnthropic Profile = iota + 1
	// ProfileOpenAIStrict: function calling with strict: true. Every property is
	// required, what may be absent is nullable, no object is open.
	ProfileOpenAIStrict
	// ProfileGemini: the OpenAPI subset of a function declaration's parameters;
	// results are strings.
	ProfileGemini
	// ProfileMCP: a tool of a Model Context Protocol server.
	ProfileMCP
)

// Profiles lists the profiles in the order of their names.
func Profiles() []Profile {
	return []Profile{ProfileAnthropic, ProfileGemini, ProfileMCP, ProfileOpenAIStrict}
}

// The schemas of a reference.
const (
	// explicitReference names every member, so that a model that follows the
	// schema writes nothing else.
	explicitReference = `{"type":"object","properties":{"$ref":{"type":"object","properties":{` +
		`"type":{"type":"string","enum":["Message","Blob"]},` +
		`"seq":{"type":"integer"},"part":{"type":"integer"},"field":{"type":"string"},` +
		`"key":{"type":"string"},"source":{"type":"object"}},` +
		`"required":["type"],"additionalProperties":false}},"required":["$ref"],"additionalProperties":false}`
	// strictReference is flat: strict mode knows neither an open object nor an
	// absent member. [Profile.Restore] takes the nulls out again. It has no
	// source: a Message that leads to the same part says it.
	strictReference = `{"type":"object","properties":{"$ref":{"type":"object","properties":{` +
		`"type":{"type":"string","enum":["Message","Blob"]},` +
		`"seq":{"type":["integer","null"]},"part":{"type":["integer","null"]},"field":{"type":["string","null"]},` +
		`"key":{"type":["string","null"]}},` +
		`"required":["type","seq","part","field","key"],"additionalProperties":false}},"required":["$ref"],"additionalProperties":false}`
	// opaqueReference is for providers that refuse $ref as a name or an object
	// without open ends.
	opaqueReference = `{"type":"object"}`
	// referenceSays stands in an opaque alternative, which shows no form itself.
	referenceSays = `"A reference {\"$ref\": {...}} to an earlier value, as the system prompt describes it."`
	nullType      = `{"type":"null"}`
)

var profileNames = [...]string{
	ProfileAnthropic: "anthropic", ProfileOpenAIStrict: "openai-strict", ProfileGemini: "gemini", ProfileMCP: "mcp",
}

// ParseProfile reads the name of a profile: anthropic, openai-strict, gemini or
// mcp.
func ParseProfile(name string) (Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.String() == name {
			return p, nil
		}
		names = append(names, p.String())
	}
	return 0, fmt.Errorf("%w: %q, want %s", ErrProfile, name, strings.Join(names, ", "))
}

// String is the name of the profile.
func (p Profile) String() string {
	if !p.known() {
		return fmt.Sprintf("profile(%d)", uint8(p))
	}
	return profileNames[p]
}

func (p Profile) known() bool { return p > 0 && int(p) < len(profileNames) }

// reference is the schema of a reference. describes is a JSON string for its
// description; where it is empty, the profile's own stands, if it has one.
func (p Profile) reference(describes string) string {
	alternative := explicitReference
	switch p {
	case ProfileOpenAIStrict:
		alternative = strictReference
	case ProfileGemini:
		alternative = opaqueReference
		if describes == "" {
			describes = referenceSays
		}
	}
	if describes == "" {
		return alternative
	}
	return alternative[:len(alternative)-1] + `,"description":` + describes + `}`
}

// alternatives are what stands behind a property, by profile: a comma and a reference.
var alternatives = func() (list [len(profileNames)]string) {
	for _, p := range Profiles() {
		list[p] = "," + p.reference("")
	}
	return list
}()

// alternative is a comma and the schema of a reference.
func (p Profile) alternative() string { return alternatives[p] }

// isReference reports whether a schema is that of a reference, with the description
// that it has. Nothing is written to find out: most schemas are none.
func (p Profile) isReference(schema, describes []byte) bool {
	plain := alternatives[p][1:]
	if len(describes) == 0 {
		return string(schema) == plain
	}
	if p == ProfileGemini { // has a description of its own
		plain = opaqueReference
	}
	const before = `,"description":`
	head := len(plain) - 1
	at := head + len(before)
	return len(schema) == at+len(describes)+1 &&
		string(schema[:head]) == plain[:head] && string(schema[head:at]) == before && bytes.Equal(schema[at:len(schema)-1], describes)
}

// Result puts what a model may see of a result, which is one JSON value, into the
// form in which the provider takes it. For gemini that is a JSON string with the
// value's text: the structure of a function response is not text there, and a
// member "$ref" in it names a part of the response (FunctionResponse.response in
// Google's API reference). For the others it is the value as it stands.
func (p Profile) Result(view []byte) []byte {
	if p != ProfileGemini {
		return view
	}
	return []byte(quoted(string(view)))
}
