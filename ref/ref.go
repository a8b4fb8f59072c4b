// Package ref lets a model pass values that it never holds. A value stays in the
// store; the model sees a short reference to it, writes the reference where the value
// belongs, and what runs the tool puts the value there before the tool starts.
//
//	{"$ref":{"type":"Message","seq":42,"part":0,"field":"value"}}
//
// There is one envelope, one union of four references, and one [Resolver]. A model may
// write two of the four: [Message], which names a place of its own conversation, and
// [Blob], which names stored bytes. [JSONPointer] and [JSONQuery] say how a value
// follows from another one: only the server makes them, and no model reads them.
//
// # What a reference says, and what it does not
//
// A model's reference says which of the things that this run has shown to it is
// meant; it gives leave for nothing. What it leads to is read through a [Source],
// which asks the authority on every call, as whoever the run acts for. A guessed key,
// another run's message and a part that was never shown are [ErrNotFound], all alike.
//
// A recipe says which artifact was previewed, and resolves to that artifact's values
// or fails. That the bytes are those that were captured is the store's to prove (it
// verifies each), who captured them the manifest's to say, and what they mean nobody's:
// a resolved value is data. Nothing in it is looked at for references.
package ref

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// A Ref is a reference: a [Message], [Blob], [JSONPointer] or [JSONQuery], never a
// pointer to one.
type Ref interface {
	// Type is the value of the member "type".
	Type() string
	// appendTo writes the reference without its envelope.
	appendTo(dst []byte) []byte
}

// The types of references.
const (
	TypeMessage     = "Message"
	TypeBlob        = "Blob"
	TypeJSONPointer = "JsonPointer"
	TypeJSONQuery   = "JsonQuery"
)

// A Message names a place of the transcript.
type Message struct {
	// Seq is the message; nil is the one of the current turn that has such a part,
	// which must be the only one: else [ErrAmbiguousTurn].
	Seq  *uint64
	Part uint64 // which part of the message, from 0
	// Field is a dot path into the part's value (see [ParseField]); "" is all of it.
	Field string
}

// A Blob names stored bytes: by their key, or as what another reference leads to.
// Exactly one of the two is set.
type Blob struct {
	Key    string
	Source Ref
}

// A JSONPointer is a recipe: the value at a path of a JSON document.
type JSONPointer struct {
	Source Ref
	Path   string // RFC 6901; "" is the whole document
	// Pin is what Source led to when the recipe was made; see [Pin]. A recipe whose
	// source leads to anything else is [ErrStalePath].
	Pin Pin
}

// A JSONQuery is a recipe: those elements of an array that satisfy a condition, as an
// array. Of an artifact with other records than an array's elements, it takes these.
type JSONQuery struct {
	Source Ref
	Path   string // RFC 6901: where the array stands
	// Filter is a condition as [selector.ParseWhere] reads it, which the short form
	// {"field":…,"equals":…} and {"field":…,"contains":…} is too; "" holds for all.
	Filter string
	Pin    Pin // as in JSONPointer
}

// Type returns "Message".
func (Message) Type() string { return TypeMessage }

// Type returns "Blob".
func (Blob) Type() string { return TypeBlob }

// Type returns "JsonPointer".
func (JSONPointer) Type() string { return TypeJSONPointer }

// Type returns "JsonQuery".
func (JSONQuery) Type() string { return TypeJSONQuery }

// A Pin says which bytes a recipe was made from: an artifact's id, or for a value that
// stands in the transcript "blake3:" and the 64 hex digits of its exact bytes' root.
// "" pins nothing; the parser for the server's references demands one of recipes.
type Pin string

// Append appends a reference in its envelope, {"$ref":…}, as JSON without spaces:
// members in the order type, seq, part, field, key, source, path, filter, pin. A filter
// in the short form is an object, another one a string.
func Append(dst []byte, r Ref) []byte {
	dst = append(dst, `{"$ref":`...)
	return append(r.appendTo(dst), '}')
}

func (m Message) appendTo(dst []byte) []byte {
	dst = append(dst, `{"type":"Message"`...)
	if m.Seq != nil {
		dst = strconv.AppendUint(append(dst, `,"seq":`...), *m.Seq, 10)
	}
	dst = strconv.AppendUint(append(dst, `,"part":`...), m.Part, 10)
	return append(appendMember(dst, "field", m.Field), '}')
}

func (b Blob) appendTo(dst []byte) []byte {
	dst = appendMember(append(dst, `{"type":"Blob"`...), "key", b.Key)
	return append(appendSource(dst, b.Source), '}')
}

func (p JSONPointer) appendTo(dst []byte) []byte {
	dst = appendSource(append(dst, `{"type":"JsonPointer"`...), p.Source)
	dst = appendString(append(dst, `,"path":`...), p.Path)
	return append(appendMember(dst, "pin", string(p.Pin)), '}')
}

func (q JSONQuery) appendTo(dst []byte) []byte {
	dst = appendSource(append(dst, `{"type":"JsonQuery"`...), q.Source)
	dst = appendString(append(dst, `,"path":`...), q.Path)
	if short, err := compact([]byte(q.Filter)); err == nil && short[0] == '{' {
		dst = append(append(dst, `,"filter":`...), short...)
	} else {
		dst = appendMember(dst, "filter", q.Filter)
	}
	return append(appendMember(dst, "pin", string(q.Pin)), '}')
}

func appendSource(dst []byte, r Ref) []byte {
	if r == nil {
		return dst
	}
	return r.appendTo(append(dst, `,"source":`...))
}

// appendMember appends a member with a string value, unless it is empty.
func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(append(append(append(dst, ',', '"'), name...), '"', ':'), value)
}

// appendString appends a JSON string; what is not UTF-8 in it becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // only ill-formed UTF-8 is one, and it was replaced
		return out
	}
	return out
}

// Limits bound what references may ask for. Zero fields mean [DefaultLimits].
type Limits struct {
	Parse   int   // references inside one another that a parser accepts: the validation cap
	Resolve int   // references that one leads through to its value: the resolution cap, below Parse
	Input   int64 // bytes of a call's arguments
	Bytes   int64 // bytes of all values that one call is given
}

// DefaultLimits are the limits that zero fields mean.
var DefaultLimits = Limits{Parse: 8, Resolve: 5, Input: 1 << 20, Bytes: 16 << 20}

// or fills in what is not set.
func (l Limits) or() Limits {
	d := DefaultLimits
	if l.Parse > 0 {
		d.Parse = l.Parse
	}
	if l.Resolve > 0 {
		d.Resolve = l.Resolve
	}
	d.Resolve = min(d.Resolve, d.Parse)
	if l.Input > 0 {
		d.Input = l.Input
	}
	if l.Bytes > 0 {
		d.Bytes = l.Bytes
	}
	return d
}
