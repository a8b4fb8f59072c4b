package ref

import (
	"encoding/json"

	"leafproof/selector"
)

// A ToolSpec is what a [Resolver] needs to know of a tool.
type ToolSpec struct {
	Name string
	// Schema is the tool's own JSON Schema, as its author wrote it. What is resolved is
	// held against it. nil demands nothing.
	Schema json.RawMessage
	// Lazy are the top-level properties that the tool gets as a [Handle] instead of a
	// value, where the model wrote a reference. A value that stands there in full stays.
	Lazy []string
	// Strings lets a property that takes strings alone have any value as one: JSON as
	// its text, and bytes whose media type is no text's in base64. It is for tools of
	// servers that know of no references, and say of bytes only that they are a string.
	Strings bool
}

// Resolved are a call's arguments with the references of the model resolved.
type Resolved struct {
	// Args are the arguments: what the model wrote, byte for byte, with the value in
	// place of each reference. Where Lazy has a property, its reference stands there
	// still: the tool looks into Lazy.
	Args json.RawMessage
	Lazy map[string]*Handle
	Used []Use // in the order of the arguments
}

// A Use says what a reference led to. No model reads it.
type Use struct {
	Property   string // of the call; "" where the reference was all of the input
	Ref        Ref    // as the model wrote it
	Via        Ref    // the recipe or blob that it led to; nil for a value of the transcript
	ArtifactID string // whose bytes were used; "" for a value of the transcript
	Bytes      int64  // of the value; 0 where Lazy
	Lazy       bool
	// Answer is what the store says of the read or query: what was examined, how
	// complete the capture was. nil where nothing was read.
	Answer *selector.Answer
}
