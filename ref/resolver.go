package ref

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A Resolver puts values in place of references, for one run. It is safe for concurrent
// use.
type Resolver struct {
	transcript Transcript
	source     Source
	limits     Limits
	key        [32]byte // authenticates cursors into values in memory
}

// NewResolver returns a resolver of the references of one run. Zero fields of limits
// mean [DefaultLimits].
func NewResolver(t Transcript, s Source, limits Limits) *Resolver {
	return &Resolver{transcript: t, source: s, limits: limits.or(), key: newCursorKey()}
}

// Args resolves the references in a call's input, as a model wrote it, before the tool
// runs. References are looked for in two places: the whole input, and the values of its
// top-level members. All else is data, also what is resolved.
//
// A reference becomes the value that it leads to, byte for byte as it stands in the
// store: JSON as it is, the rows of a query as an array of them, text as a string, and
// other bytes as base64 where the tool's schema says so of the property
// (contentEncoding); else they are [ErrTypeMismatch], and the tool must take them
// lazily. A property in Lazy becomes a [Handle], and nothing is read for it.
//
// The result is held against the tool's own schema, which the provider of the model
// has not done. Where Args fails the tool must not run; errors are [Error], with the
// property in At, or from the schema's check the JSON Pointer of the place.
func (r *Resolver) Args(ctx context.Context, tool ToolSpec, input []byte) (*Resolved, error) {
	if int64(len(input)) > r.limits.Input {
		return nil, fail(ErrTooLarge, fmt.Sprintf("the input has %d bytes: at most %d", len(input), r.limits.Input))
	}
	c := &call{r: r, tool: tool, left: r.limits.Bytes, out: &Resolved{}}
	if err := c.resolve(ctx, input); err != nil {
		return nil, err
	}
	if tool.Schema == nil {
		return c.out, nil
	}
	schema, err := CompileSchema(tool.Schema, tool.Lazy...)
	if err != nil {
		return nil, err
	}
	if err := schema.Check(ctx, c.out.Args); err != nil {
		return nil, err
	}
	return c.out, nil
}

// Open returns a handle on what a reference of the server's leads to, such as a [Blob]
// with a name for its key. Nothing is read, and nothing is asked yet.
func (r *Resolver) Open(ref Ref) *Handle { return &Handle{r: r, ref: ref} }

// call is one call on its way.
type call struct {
	r    *Resolver
	tool ToolSpec
	left int64 // bytes that it may still be given
	out  *Resolved
	done map[string]resolved // what was resolved in it, by reference
}

type resolved struct {
	value []byte
	use   Use
}

func (c *call) resolve(ctx context.Context, input []byte) error {
	raw := bytes.Trim(input, " \t\r\n")
	if err := c.strict(raw); err != nil {
		return err
	}
	inner, is, err := c.envelope("", raw)
	switch {
	case err != nil:
		return err
	case is:
		c.out.Args, err = c.value(ctx, "", inner)
		return err
	case raw[0] != '{':
		c.out.Args = bytes.Clone(raw)
		return nil
	}
	var out []byte
	at := 0
	err = membersAt(raw, func(name string, v []byte, start int) error {
		inner, is, err := c.envelope(name, v)
		if err != nil || !is {
			return err
		}
		if slices.Contains(c.tool.Lazy, name) {
			return c.handle(ctx, name, inner)
		}
		value, err := c.value(ctx, name, inner)
		if err != nil {
			return err
		}
		out = append(append(out, raw[at:start]...), value...)
		at = start + len(v)
		return nil
	})
	c.out.Args = append(out, raw[at:]...)
	return err
}

// strict refuses an input that two readers could read in two ways.
func (c *call) strict(raw []byte) error {
	d := decoder(raw)
	err := d.SkipValue()
	if err == nil {
		err = ends(d)
	}
	if err == nil {
		return nil
	}
	if isAttributes(string(raw)) {
		return fail(ErrLegacyShape, "the input is the text form of an older reference; "+shapeAdvice)
	}
	return &Error{Err: ErrMalformed, Detail: "the input is no JSON, has a name twice or is not UTF-8", Cause: err}
}

// envelope returns what an envelope holds, and refuses what was meant to be one.
func (c *call) envelope(property string, value []byte) (inner []byte, is bool, err error) {
	if value[0] == '"' {
		s, err := text(value)
		switch {
		case err != nil:
			return nil, false, c.at(property, malformed(err))
		case isStringified(s):
			return nil, false, c.at(property, fail(ErrStringified, "a reference stands in a string: write it as an object, without quotes around it"))
		case isAttributes(s):
			return nil, false, c.at(property, fail(ErrLegacyShape, "seq and part as text are no reference; "+shapeAdvice))
		}
		return nil, false, nil
	}
	inner, is, err = Detect(value)
	return inner, is, c.at(property, err)
}

// at names the property in an error.
func (c *call) at(property string, err error) error {
	if err == nil || property == "" {
		return err
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	named := *e
	if named.At == "" {
		named.At = property
	}
	if len(named.At) > maxMediaType {
		named.At = clip(named.At)
	}
	return &named
}

// value resolves one reference of the model.
func (c *call) value(ctx context.Context, property string, inner []byte) (json.RawMessage, error) {
	ref, err := ParseModel(inner, c.r.limits)
	if err != nil {
		return nil, c.at(property, err)
	}
	as := c.form(property)
	key := fmt.Sprint(as, string(Append(nil, ref)))
	got, again := c.done[key]
	if !again {
		if got, err = c.r.resolve(ctx, ref, true, c.left, as); err != nil {
			return nil, c.at(property, err)
		}
		if c.done == nil {
			c.done = map[string]resolved{}
		}
		c.done[key] = got
	}
	if c.left -= int64(len(got.value)); c.left < 0 {
		return nil, c.at(property, tooLarge(c.r.limits.Bytes))
	}
	got.use.Property, got.use.Ref = property, ref
	c.out.Used = append(c.out.Used, got.use)
	return got.value, nil
}

// handle makes the handle of a lazy parameter.
func (c *call) handle(ctx context.Context, property string, inner []byte) error {
	ref, err := ParseModel(inner, c.r.limits)
	if err != nil {
		return c.at(property, err)
	}
	full, err := c.r.shown(ctx, ref)
	if err != nil {
		return c.at(property, err)
	}
	if c.out.Lazy == nil {
		c.out.Lazy = map[string]*Handle{}
	}
	c.out.Lazy[property] = &Handle{r: c.r, ref: full, model: true}
	c.out.Used = append(c.out.Used, Use{Property: property, Ref: ref, Lazy: true})
	return nil
}

// form is how a value is to stand in an input.
type form uint8

const (
	asValue  form = iota
	asString      // see [ToolSpec].Strings
	asBase64      // the bytes in base64, whatever they are
)

// form is how the tool's schema wants the value of a property.
func (c *call) form(property string) form {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if property == "" || !c.tool.Strings && !bytes.Contains(c.tool.Schema, []byte("contentEncoding")) ||
		json.Unmarshal(c.tool.Schema, &schema) != nil {
		return asValue
	}
	var p struct {
		Type     any    `json:"type"`
		Encoding string `json:"contentEncoding"`
	}
	switch {
	case json.Unmarshal(schema.Properties[property], &p) != nil:
	case p.Encoding == "base64":
		return asBase64
	case c.tool.Strings && p.Type == "string":
		return asString
	}
	return asValue
}

// resolve follows a reference and reads what it leads to.
func (r *Resolver) resolve(ctx context.Context, ref Ref, model bool, most int64, as form) (resolved, error) {
	p, err := r.locate(ctx, ref, model)
	if err != nil {
		return resolved{}, err
	}
	value, answer, err := r.value(ctx, p, most, as)
	if err != nil {
		return resolved{}, err
	}
	return resolved{value, Use{Ref: ref, Via: p.via, ArtifactID: p.id, Bytes: int64(len(value)), Answer: answer}}, nil
}

// locate follows a reference to its place, under the resolution cap.
func (r *Resolver) locate(ctx context.Context, ref Ref, model bool) (*place, error) {
	w := walk{r: r, left: r.limits.Resolve}
	return w.locate(ctx, ref, model)
}
