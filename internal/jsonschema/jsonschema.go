// Package jsonschema checks JSON values against a JSON Schema that a stranger may
// have written: drafts 4, 6, 7, 2019-09 and 2020-12.
//
// The validator behind it is github.com/santhosh-tekuri/jsonschema, which compares
// numbers exactly and notices references that go round in circles. This package
// bounds it: nothing is fetched from a network or a disk, a document that refers
// outside itself does not compile; schemas and values have limits of size, depth
// and numbers; and a check takes at most [MaxSteps] steps, since a small schema can
// ask for more work than the age of the universe allows. Regular expressions are
// Go's, which take linear time.
package jsonschema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// The limits.
const (
	MaxSchema = 256 << 10 // bytes of a schema
	MaxValue  = 1 << 20   // bytes of a value
	MaxDepth  = 256       // arrays and objects inside one another, of both
	MaxDigits = 1024      // significant and other digits of a number, of both
	// MaxExponent is the highest absolute exponent of a number.
	MaxExponent = 1000
	// MaxSteps is how many times a check may look at a value: once for each
	// schema that applies to it.
	MaxSteps = 1 << 19
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrSchema: the document is no schema that can be checked against.
	ErrSchema = errors.New("not a usable JSON Schema")
	// ErrInvalid: the value does not satisfy the schema.
	ErrInvalid = errors.New("does not satisfy the schema")
	// ErrUndecided: the value cannot be judged: it is no JSON, has a name twice or
	// exceeds a limit.
	ErrUndecided = errors.New("cannot be judged by the schema")
)

// Schema is a compiled schema. It is not safe for concurrent use.
type Schema struct {
	compiled *validator.Schema
	ctx      context.Context // of the check under way
	steps    int             // left to it
	most     int             // that it had
}

// root is what the document is called while it is compiled. No document can be
// loaded under that name or another.
const root = "leafproof:///schema"

// nowhere loads nothing.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, which is not in the document, and nothing is fetched", url)
}

// Compile reads a schema. The error wraps [ErrSchema].
func Compile(doc []byte) (_ *Schema, err error) {
	if len(doc) > MaxSchema {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrSchema, len(doc), MaxSchema)
	}
	v, err := decode(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	switch v.(type) {
	case bool, map[string]any:
	default:
		return nil, fmt.Errorf("%w: neither an object nor true or false", ErrSchema)
	}
	c := validator.NewCompiler()
	c.UseLoader(nowhere{})
	if err := c.AddResource(root, v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	s := &Schema{}
	s.compiled, err = c.Compile(root)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, firstLines(err))
	}
	w := walker{schema: s, seen: map[*validator.Schema]bool{}}
	if err := w.walk(s.compiled); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return s, nil
}

// firstLines is a message of the validator in one line without its name for the
// document.
func firstLines(err error) string {
	const most = 300
	text := strings.ReplaceAll(err.Error(), root+"#", "#")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Check says whether a JSON value satisfies the schema: nil, or an error that wraps
// [ErrInvalid] (a [*Mismatch]) or [ErrUndecided], or that of ctx.
func (s *Schema) Check(ctx context.Context, value []byte) error {
	return s.CheckWithin(ctx, value, Limits{Bytes: MaxValue, Steps: MaxSteps})
}

// Limits bound one check for a caller that expects other values than
// [Schema.Check] does.
type Limits struct {
	Bytes int // of the value
	Steps int // looks at a value, as [MaxSteps] counts them
}

// CheckWithin is [Schema.Check] within other limits.
func (s *Schema) CheckWithin(ctx context.Context, value []byte, most Limits) error {
	if len(value) > most.Bytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrUndecided, len(value), most.Bytes)
	}
	v, err := decode(value)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	return s.check(ctx, v, most.Steps)
}

// stop ends a check from inside the validator.
type stop struct{ err error }

// CheckValue is [Schema.Check] of a value in memory: nil, bool, string,
// json.Number, []any or map[string]any.
func (s *Schema) CheckValue(ctx context.Context, v any) error { return s.check(ctx, v, MaxSteps) }

func (s *Schema) check(ctx context.Context, v any, steps int) (err error) {
	s.ctx, s.steps, s.most = ctx, steps, steps
	defer func() {
		s.ctx = nil
		switch r := recover().(type) {
		case nil:
		case stop:
			err = r.err
		default:
			panic(r)
		}
	}()
	if err := s.compiled.Validate(v); err != nil {
		return mismatch(err)
	}
	return nil
}

// spend counts steps, and stops a check that has none left or is not wanted any
// longer.
func (s *Schema) spend(n int) {
	const look = 1 << 12 // steps between two looks at the context
	if s.ctx == nil {
		return // a format that is tried out while a schema is compiled
	}
	before := s.steps
	s.steps -= n
	if s.steps < 0 {
		panic(stop{fmt.Errorf("%w: it takes more than %d steps", ErrUndecided, s.most)})
	}
	if before/look != s.steps/look {
		if err := s.ctx.Err(); err != nil {
			panic(stop{err})
		}
	}
}

// walker puts a counter in front of every schema of a document. The validator has
// no limit of its own, but it asks a schema's format before it goes on to what is
// inside the value. (Schemas that refuse the value by its type are done before;
// they are paid for by the one that they stand in.)
type walker struct {
	schema *Schema
	seen   map[*validator.Schema]bool
}

func (w *walker) walk(s *validator.Schema) error {
	if s == nil || w.seen[s] {
		return nil
	}
	w.seen[s] = true
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return errors.New("$dynamicRef and $recursiveRef are not supported; use $ref")
	}
	here := []*validator.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} // apply to the same value
	here = append(append(append(here, s.AllOf...), s.AnyOf...), s.OneOf...)
	for _, sub := range s.DependentSchemas {
		here = append(here, sub)
	}
	inside := []*validator.Schema{ // apply to what is in it
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems,
	}
	inside = append(inside, s.PrefixItems...)
	for _, sub := range s.Properties {
		inside = append(inside, sub)
	}
	for _, sub := range s.PatternProperties {
		inside = append(inside, sub)
	}
	for _, sub := range s.Dependencies {
		if sub, ok := sub.(*validator.Schema); ok {
			here = append(here, sub)
		}
	}
	for _, sub := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch sub := sub.(type) {
		case *validator.Schema:
			inside = append(inside, sub)
		case []*validator.Schema:
			inside = append(inside, sub...)
		}
	}
	w.count(s, 1+len(here), 4+len(s.PatternProperties))
	for _, sub := range append(here, inside...) {
		if err := w.walk(sub); err != nil {
			return err
		}
	}
	return nil
}

// count makes a schema pay: so much for itself, and so much for every member or
// element of a value.
func (w *walker) count(s *validator.Schema, self, each int) {
	asked := s.Format
	count := &validator.Format{Name: "counted"}
	if asked != nil {
		count.Name = asked.Name
	}
	owner := w.schema
	count.Validate = func(v any) error {
		n := self
		switch v := v.(type) {
		case map[string]any:
			n += each * len(v)
		case []any:
			n += each * len(v)
		case string:
			n += len(v) / 256 // patterns take their time
		}
		owner.spend(n)
		if asked != nil {
			return asked.Validate(v)
		}
		return nil
	}
	s.Format = count
}
