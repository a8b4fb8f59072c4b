package ref

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/internal/jsonschema"
)

// maxSchemaDepth is how deep arrays and objects of a tool's schema may nest.
const maxSchemaDepth = 128

// node is a JSON value with its place in the text, so that a document can be
// changed in a few places and keep every other byte.
type node struct {
	kind       byte // as of jsontext: { [ " 0 t f n
	start, end int
	parent     *node
	at         int      // which child of its parent it is
	names      []member // of an object, parallel to kids
	kids       []*node  // members or elements

	// What the rewriter notes.
	schema   bool   // stands where a schema stands
	resource *node  // the schema whose $id it is read under
	wrap     string // what stands behind it as alternatives: ,B,C
	replaced bool   // by another text
}

// member is the name of a member.
type member struct {
	text       string // unquoted
	start, end int    // with its quotes
}

// parseTree reads a document strictly: no name stands twice, strings are valid
// Unicode.
func parseTree(doc []byte, most int) (*node, error) {
	if len(doc) > most {
		return nil, fmt.Errorf("%d bytes, at most %d", len(doc), most)
	}
	p := treeParser{d: jsontext.NewDecoder(bytes.NewBuffer(doc))}
	n, err := p.value()
	if err == nil {
		if _, err = p.d.ReadToken(); err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = fmt.Errorf("something follows the value")
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// parseSchema is parseTree of a schema.
func parseSchema(doc []byte) (*node, error) {
	n, err := parseTree(doc, jsonschema.MaxSchema)
	if err != nil {
		return nil, &Error{Detail: err.Error(), Err: ErrSchema}
	}
	return n, nil
}

type treeParser struct {
	d    *jsontext.Decoder
	slab []node
}

func (p *treeParser) new() *node {
	if len(p.slab) == cap(p.slab) {
		p.slab = make([]node, 0, 64)
	}
	p.slab = p.slab[:len(p.slab)+1]
	return &p.slab[len(p.slab)-1]
}

func (p *treeParser) value() (*node, error) {
	n := p.new()
	n.kind = byte(p.d.PeekKind())
	if n.kind != '{' && n.kind != '[' {
		raw, err := p.d.ReadValue()
		if err != nil {
			return nil, err
		}
		n.end = int(p.d.InputOffset())
		n.start = n.end - len(raw)
		return n, nil
	}
	if _, err := p.d.ReadToken(); err != nil {
		return nil, err
	}
	if p.d.StackDepth() > maxSchemaDepth {
		return nil, fmt.Errorf("more than %d levels", maxSchemaDepth)
	}
	n.start = int(p.d.InputOffset()) - 1
	for k := p.d.PeekKind(); k != '}' && k != ']'; k = p.d.PeekKind() {
		if n.kind == '{' {
			raw, err := p.d.ReadValue()
			if err != nil {
				return nil, err
			}
			m := member{end: int(p.d.InputOffset())}
			m.start = m.end - len(raw)
			m.text = unquoted(raw)
			n.names = append(n.names, m)
		}
		kid, err := p.value()
		if err != nil {
			return nil, err
		}
		kid.parent, kid.at = n, len(n.kids)
		n.kids = append(n.kids, kid)
	}
	if _, err := p.d.ReadToken(); err != nil {
		return nil, err
	}
	n.end = int(p.d.InputOffset())
	return n, nil
}

// unquoted is the text of a JSON string that is known to be one.
func unquoted(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	out, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// quoted is a text as a JSON string.
func quoted(s string) string {
	out, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd"))
	if err != nil {
		return `""`
	}
	return string(out)
}

// get is the member of an object with a name, or nil.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.names {
		if n.names[i].text == name {
			return n.kids[i]
		}
	}
	return nil
}

// object is get of a member that is an object; otherwise nil.
func (n *node) object(name string) *node {
	if m := n.get(name); m != nil && m.kind == '{' {
		return m
	}
	return nil
}

// text is the value of a string; ok is false for other values.
func (n *node) text(doc []byte) (s string, ok bool) {
	if n == nil || n.kind != '"' {
		return "", false
	}
	return unquoted(doc[n.start:n.end]), true
}

// strings is the strings of an array.
func (n *node) strings(doc []byte) []string {
	if n == nil || n.kind != '[' {
		return nil
	}
	var out []string
	for _, k := range n.kids {
		if s, ok := k.text(doc); ok {
			out = append(out, s)
		}
	}
	return out
}

// raw is a value as it stands.
func (n *node) raw(doc []byte) []byte { return doc[n.start:n.end] }

// pointer is the place of a value in its document, as a JSON Pointer.
func (n *node) pointer() string {
	var tokens []string
	for ; n != nil && n.parent != nil; n = n.parent {
		if n.parent.kind == '{' {
			tokens = append(tokens, escapePointer(n.parent.names[n.at].text))
		} else {
			tokens = append(tokens, strconv.Itoa(n.at))
		}
	}
	var b strings.Builder
	for _, t := range slices.Backward(tokens) {
		b.WriteByte('/')
		b.WriteString(t)
	}
	return b.String()
}

// escapePointer writes a name as a token of a JSON Pointer (RFC 6901, section 3).
func escapePointer(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// edit replaces a part of a document. What lies within a part that another edit
// replaces is dropped.
type edit struct {
	start, end int
	order      int // of edits that start at one place
	text       string
}

// The order of edits at one place: what closes a value comes before what opens
// the next.
const (
	closing = iota
	inserting
	opening
)

// splice applies edits; those of one place and order stand in the order given.
func splice(doc []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.order - b.order
	})
	grown := len(doc)
	for _, e := range edits {
		grown += len(e.text)
	}
	out := make([]byte, 0, grown)
	at := 0
	for _, e := range edits {
		if e.start < at {
			continue
		}
		out = append(append(out, doc[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, doc[at:]...)
}
