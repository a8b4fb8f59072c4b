package ref

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxSchemaDepth is how deep arrays and objects of a tool's schema may nest.
const maxSchemaDepth = 128

// node is a JSON value with its place in the text, so that a document can be
// changed in a few places and keep every other byte.
type node struct {
	kind       byte // as of jsontext: { [ " 0 t f n
	schema     bool // stands where a schema stands
	replaced   bool // by another text
	at         int  // which child of its parent it is
	start, end int
	parent     *node
	names      []member // of an object, parallel to kids
	kids       []*node  // members or elements
	resource   *node    // the schema whose $id it is read under
	wrap       string   // what stands behind it as alternatives: ,B,C
}

// member is the name of a member.
type member struct {
	text       string // unquoted
	start, end int    // with its quotes
}

// parseTree reads a document strictly: no name stands twice, strings are valid
// Unicode.
func parseTree(doc []byte, most int) (*node, error) {
	return new(treeParser).parse(doc, string(doc), most)
}

// parse reads a document, which is given in both forms.
func (p *treeParser) parse(doc []byte, text string, most int) (*node, error) {
	if len(doc) > most {
		return nil, fmt.Errorf("%d bytes, at most %d", len(doc), most)
	}
	if !jsontext.Value(doc).IsValid() {
		return nil, invalid(doc)
	}
	p.doc, p.at = text, 0
	p.space()
	n := p.value(0)
	if n == nil {
		return nil, fmt.Errorf("more than %d levels", maxSchemaDepth)
	}
	return n, nil
}

// invalid says why a document is not valid.
func invalid(doc []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	err := d.SkipValue()
	if err == nil {
		_, err = d.ReadToken()
	}
	switch err {
	case nil:
		return errors.New("something follows the value")
	case io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// treeParser makes few allocations: nodes, names and children are cut from larger
// pieces, and names are parts of one copy of the document.
type treeParser struct {
	doc   string
	at    int // where it reads
	nodes []node
	kids  []*node  // of the containers that are open
	names []member // of them
	cutK  []*node
	cutN  []member

	schemas []*node // room for a survey
	edits   []edit
	scratch []byte
}

// treeParsers are kept for schemas, which come by the hundred.
var treeParsers = sync.Pool{New: func() any { return new(treeParser) }}

// release lets the memory be used again. No node of the parser may be used then.
func (p *treeParser) release() {
	const most = 1 << 14 // values; more are not kept
	if cap(p.nodes) > most || cap(p.cutK) > most || cap(p.cutN) > most {
		return
	}
	clear(p.nodes)
	clear(p.cutK)
	clear(p.cutN)
	clear(p.kids[:cap(p.kids)])
	clear(p.names[:cap(p.names)])
	clear(p.schemas)
	clear(p.edits)
	*p = treeParser{
		nodes: p.nodes[:0], kids: p.kids[:0], names: p.names[:0], cutK: p.cutK[:0], cutN: p.cutN[:0],
		schemas: p.schemas[:0], edits: p.edits[:0], scratch: p.scratch[:0],
	}
	treeParsers.Put(p)
}

// piece is how many values a document is expected to have at most.
func (p *treeParser) piece() int { return max(64, min(len(p.doc)/8, 4096)) }

func (p *treeParser) new() *node {
	if len(p.nodes) == cap(p.nodes) {
		p.nodes = make([]node, 0, p.piece())
	}
	p.nodes = p.nodes[:len(p.nodes)+1]
	return &p.nodes[len(p.nodes)-1]
}

// cut copies items to their place.
func cut[T any](from *[]T, items []T, piece int) []T {
	if len(items) == 0 {
		return nil
	}
	if cap(*from)-len(*from) < len(items) {
		*from = make([]T, 0, max(piece, len(items)))
	}
	at := len(*from)
	*from = append(*from, items...)
	return (*from)[at:len(*from):len(*from)]
}

// unquoted is the text of a string that stands at a place.
func (p *treeParser) unquoted(start, end int) string {
	if s := p.doc[start+1 : end-1]; strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return unquoted([]byte(p.doc[start:end]))
}

// value reads the value that begins here, of a document that is known to be valid;
// nil where it is too deep.
func (p *treeParser) value(depth int) *node {
	n := p.new()
	n.start, n.kind = p.at, p.doc[p.at]
	switch n.kind {
	case '"':
		p.text()
	case '{', '[':
		if depth == maxSchemaDepth || !p.container(n, depth) {
			return nil
		}
	case 't', 'n':
		p.at += 4
	case 'f':
		p.at += 5
	default:
		n.kind = '0'
		for p.at < len(p.doc) && strings.IndexByte("+-.0123456789Ee", p.doc[p.at]) >= 0 {
			p.at++
		}
	}
	n.end = p.at
	return n
}

// container reads what is in an object or array.
func (p *treeParser) container(n *node, depth int) bool {
	kids, names := len(p.kids), len(p.names)
	p.at++
	for p.space(); p.doc[p.at] != '}' && p.doc[p.at] != ']'; p.space() {
		if p.doc[p.at] == ',' {
			p.at++
			p.space()
		}
		if n.kind == '{' {
			m := member{start: p.at}
			p.text()
			m.end = p.at
			m.text = p.unquoted(m.start, m.end)
			p.names = append(p.names, m)
			p.space()
			p.at++ // the colon
			p.space()
		}
		kid := p.value(depth + 1)
		if kid == nil {
			return false
		}
		kid.parent, kid.at = n, len(p.kids)-kids
		p.kids = append(p.kids, kid)
	}
	p.at++
	n.kids, n.names = cut(&p.cutK, p.kids[kids:], p.piece()), cut(&p.cutN, p.names[names:], p.piece())
	p.kids, p.names = p.kids[:kids], p.names[:names]
	return true
}

func (p *treeParser) space() {
	for p.at < len(p.doc) && (p.doc[p.at] == ' ' || p.doc[p.at] == '\n' || p.doc[p.at] == '\t' || p.doc[p.at] == '\r') {
		p.at++
	}
}

// text steps over a string.
func (p *treeParser) text() {
	p.at++
	for end := p.at; ; {
		if end <= p.at {
			end = p.at + strings.IndexByte(p.doc[p.at:], '"')
		}
		escape := strings.IndexByte(p.doc[p.at:end], '\\')
		if escape < 0 {
			p.at = end + 1
			return
		}
		p.at += escape + 2 // behind what is escaped
	}
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

// is reports whether a value is a string with a text.
func (n *node) is(doc []byte, text string) bool {
	if n == nil || n.kind != '"' {
		return false
	}
	if raw := doc[n.start+1 : n.end-1]; bytes.IndexByte(raw, '\\') < 0 {
		return string(raw) == text
	}
	return unquoted(doc[n.start:n.end]) == text
}

// lists reports whether an array has a string with a text.
func (n *node) lists(doc []byte, text string) bool {
	if n == nil || n.kind != '[' {
		return false
	}
	for _, k := range n.kids {
		if k.is(doc, text) {
			return true
		}
	}
	return false
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

// The bits of an edit's number, and of that with its order, which has two. A document
// has at most 2^27 bytes and so fewer edits than 2^30.
const (
	countBits = 30
	placeBits = countBits + 2
)

// splice applies edits; those of one place and order stand in the order given.
func splice(doc []byte, edits []edit) []byte {
	// Sorted are their places, which are numbers, and not the edits themselves.
	order, sorted := make([]uint64, 0, 64), true
	grown := len(doc)
	for i, e := range edits {
		grown += len(e.text)
		key := uint64(e.start)<<placeBits | uint64(e.order)<<countBits | uint64(i)
		sorted = sorted && (i == 0 || order[i-1] < key)
		order = append(order, key)
	}
	if !sorted {
		slices.Sort(order)
	}
	out := make([]byte, 0, grown)
	at := 0
	for _, key := range order {
		e := &edits[key&(1<<countBits-1)]
		if e.start < at {
			continue
		}
		out = append(append(out, doc[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, doc[at:]...)
}
