package ref

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"leafproof/internal/jsonschema"
)

// MaxInput is the most bytes of a resolved input that are checked against a
// schema; a longer one is refused.
const MaxInput = 64 << 20

// Compiled is a tool's own schema, ready to judge resolved inputs. It is safe for
// concurrent use; checks with one Compiled wait for each other.
type Compiled struct {
	mu     sync.Mutex
	schema *jsonschema.Schema
	named  map[string]bool // every name that the schema gives to a member
}

// leftReference is what may stand for a lazy parameter in an input: the reference
// that the model wrote.
const leftReference = `{"type":"object","properties":{"$ref":{"type":"object"}},"required":["$ref"],"maxProperties":1}`

// CompileSchema reads a tool's schema as its author wrote it, not as [Rewrite]
// made it. For a property in lazy the reference may stand that the tool gets a
// handle for. The error wraps [ErrSchema].
//
// Compiled schemas are remembered, so that the second call for the same bytes
// costs little.
func CompileSchema(schema []byte, lazy ...string) (*Compiled, error) {
	return compiled.get(schema, lazy)
}

// Check says whether a resolved input satisfies the schema: nil, an [*Error] that
// wraps [ErrTypeMismatch] or, for more than [MaxInput] bytes, [ErrTooLarge], or
// the error of ctx. The error names the place in the input and what the schema
// wants there; of the input it repeats only types, lengths and names that the
// schema gives, so that a model may read it that may not see the value.
func (c *Compiled) Check(ctx context.Context, input []byte) error {
	if len(input) > MaxInput {
		return &Error{Detail: strconv.Itoa(len(input)) + " bytes, at most " + strconv.Itoa(MaxInput), Err: ErrTooLarge}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.schema.CheckWithin(ctx, input, jsonschema.Limits{
		Bytes: MaxInput,
		Steps: jsonschema.MaxSteps + 8*len(input),
	})
	if err == nil {
		return nil
	}
	if m, ok := errors.AsType[*jsonschema.Mismatch](err); ok {
		return &Error{At: c.pointer(m.At), Detail: m.Says, Err: ErrTypeMismatch}
	}
	if errors.Is(err, jsonschema.ErrUndecided) {
		return &Error{Detail: "the value cannot be judged by the tool's schema", Err: ErrTypeMismatch, Cause: err}
	}
	return err
}

// pointer is a place as a JSON Pointer. A name that the schema does not give is
// the value's own, and becomes *.
func (c *Compiled) pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		if _, err := strconv.ParseUint(name, 10, 63); err != nil && !c.named[name] {
			name = "*"
		}
		b.WriteString("/" + escapePointer(name))
	}
	return b.String()
}

// compileSchema is CompileSchema without a memory.
func compileSchema(doc []byte, lazy []string) (*Compiled, error) {
	s, err := newSurvey(doc, ProfileMCP)
	if err != nil {
		return nil, err
	}
	defer s.release()
	for _, name := range lazy {
		n := s.root.object("properties").get(name)
		if n == nil {
			return nil, &Error{Detail: "the lazy parameter " + quoted(name) + " is not a property", Err: ErrSchema}
		}
		n.wrap = "," + leftReference
	}
	s.alter()
	c := &Compiled{named: map[string]bool{}}
	if c.schema, err = jsonschema.Compile(splice(doc, s.edits)); err != nil {
		return nil, &Error{Detail: err.Error(), Err: ErrSchema, Cause: err}
	}
	for _, n := range s.schemas {
		if p := n.object("properties"); p != nil {
			for _, m := range p.names {
				c.named[m.text] = true
			}
		}
		for _, name := range n.get("required").strings(doc) {
			c.named[name] = true
		}
	}
	return c, nil
}

// compileMemo remembers compiled schemas.
type compileMemo struct {
	mu    sync.Mutex
	kept  map[rewriteKey]*Compiled
	bytes int
}

// maxCompiled is how many bytes of schemas a memo of compiled ones keeps before it
// begins anew: a compiled schema takes some twenty times its text.
const maxCompiled = 2 << 20

var compiled compileMemo

func (m *compileMemo) get(schema []byte, lazy []string) (*Compiled, error) {
	names := joinNames(lazy)
	m.mu.Lock()
	c := m.kept[rewriteKey{schema: string(schema), lazy: names}]
	m.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := compileSchema(schema, lazy)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil || m.bytes+len(schema) > maxCompiled {
		m.kept, m.bytes = map[rewriteKey]*Compiled{}, 0
	}
	m.kept[rewriteKey{schema: string(schema), lazy: names}] = c
	m.bytes += len(schema)
	return c, nil
}
