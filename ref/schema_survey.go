package ref

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"leafproof/internal/jsonschema"
)

// survey is what is known of a tool's schema: where schemas stand in it and what
// refers where. The rewriter and the linters share it.
type survey struct {
	doc     []byte
	p       Profile
	parser  *treeParser
	root    *node
	schemas []*node // objects that stand where a schema stands, each before what is in it
	refs    []*node // the strings of $ref and its kin
	legacy  bool    // a draft in which $ref hides what stands beside it
	uris    map[*node]*url.URL

	wrap         string // a comma and a reference
	edits        []edit
	replacements map[*node]string
	removed      map[*node]bool
	out          []bool // which members of a schema go
	scratch      []byte // of one schema
	err          error

	lint     bool
	findings []Finding
}

// newSurvey reads a schema. The error wraps ErrSchema.
func newSurvey(doc []byte, p Profile) (*survey, error) { return surveyOf(doc, string(doc), p) }

// surveyOf is newSurvey of a document that is given in both forms.
func surveyOf(doc []byte, text string, p Profile) (*survey, error) {
	parser := treeParsers.Get().(*treeParser)
	root, err := parser.parse(doc, text, jsonschema.MaxSchema)
	if err != nil {
		parser.release()
		return nil, &Error{Detail: err.Error(), Err: ErrSchema}
	}
	s := &survey{doc: doc, p: p, root: root, parser: parser, schemas: parser.schemas, edits: parser.edits, scratch: parser.scratch}
	if root.kind != '{' {
		return s, nil
	}
	draft, _ := root.get("$schema").text(doc)
	s.legacy = strings.Contains(draft, "/draft-0")
	s.walk(root, root)
	// What is referred to is a schema, wherever it stands.
	for i := 0; i < len(s.refs); i++ {
		if to, _ := s.follow(s.refs[i]); to != nil {
			s.walk(to, s.resourceOf(to))
		}
	}
	return s, nil
}

// release ends the use of a survey and of its nodes.
func (s *survey) release() {
	s.parser.schemas, s.parser.edits, s.parser.scratch = s.schemas, s.edits, s.scratch
	s.parser.release()
}

// What stands behind a keyword.
const (
	isValue     = iota
	isSchema    // one
	isSchemas   // an array of them
	isEither    // one or an array of them
	isNamed     // an object of them
	isReference // to one
)

func behind(keyword string) int {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		return isNamed
	case "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems", "contains",
		"contentSchema", "not", "if", "then", "else":
		return isSchema
	case "items":
		return isEither
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return isSchemas
	case "$ref", "$dynamicRef", "$recursiveRef":
		return isReference
	}
	return isValue
}

// walk notes a schema and the schemas in it.
func (s *survey) walk(n, resource *node) {
	if n.kind != '{' || n.schema {
		return
	}
	n.schema = true
	if s.identity(n) != "" {
		resource = n
	}
	n.resource = resource
	s.schemas = append(s.schemas, n)
	for i, kid := range n.kids {
		switch kind := behind(n.names[i].text); {
		case kind == isValue:
		case kind == isReference && kid.kind == '"':
			s.refs = append(s.refs, kid)
		case kind == isNamed && kid.kind == '{', (kind == isSchemas || kind == isEither) && kid.kind == '[':
			for _, sub := range kid.kids {
				s.walk(sub, resource)
			}
		case kind == isSchema || kind == isEither:
			s.walk(kid, resource)
		}
	}
}

// identity is the $id of a schema, where it begins a resource of its own.
func (s *survey) identity(n *node) string {
	if s.legacy && n.get("$ref") != nil {
		return ""
	}
	id, ok := n.get("$id").text(s.doc)
	if !ok && s.legacy {
		id, _ = n.get("id").text(s.doc)
	}
	if strings.HasPrefix(id, "#") {
		return "" // an anchor, in older drafts
	}
	return id
}

// resourceOf is the resource that a place lies in.
func (s *survey) resourceOf(n *node) *node {
	for ; n.parent != nil; n = n.parent {
		if n.resource != nil {
			return n.resource
		}
	}
	return s.root
}

// uri is the base URI of a resource; nil where it is none.
func (s *survey) uri(resource *node) *url.URL {
	if u, ok := s.uris[resource]; ok {
		return u
	}
	base := &url.URL{Scheme: "leafproof", Path: "/schema"}
	if resource != s.root {
		base = s.uri(s.resourceOf(resource.parent))
	}
	u, err := url.Parse(s.identity(resource))
	switch {
	case err != nil || base == nil:
		u = nil
	default:
		u = base.ResolveReference(u)
		u.Fragment, u.RawFragment = "", ""
	}
	if s.uris == nil {
		s.uris = map[*node]*url.URL{}
	}
	s.uris[resource] = u
	return u
}

// resource finds the schema that has a URI, relative to that of another one.
func (s *survey) resource(from *node, ref string) *node {
	u, err := url.Parse(ref)
	base := s.uri(from)
	if err != nil || base == nil {
		return nil
	}
	want := base.ResolveReference(u).String()
	if u := s.uri(s.root); u != nil && u.String() == want {
		return s.root
	}
	for _, n := range s.schemas {
		if n.resource == n && n != s.root {
			if u := s.uri(n); u != nil && u.String() == want {
				return n
			}
		}
	}
	return nil
}

// follow finds what a reference leads to, and how it must read once what it
// passes has become the first of alternatives. The target is nil where the
// reference leads out of the document, to an anchor or nowhere.
func (s *survey) follow(ref *node) (target *node, moved string) {
	text, _ := ref.text(s.doc)
	uri, fragment, _ := strings.Cut(text, "#")
	at := ref.parent.resource
	if uri != "" {
		if at = s.resource(at, uri); at == nil {
			return nil, text
		}
	}
	if fragment == "" {
		return at, text
	}
	if fragment[0] != '/' {
		return nil, text
	}
	var out strings.Builder
	out.WriteString(uri + "#")
	for raw := range strings.SplitSeq(fragment[1:], "/") {
		if at = at.step(raw); at == nil {
			return nil, text
		}
		out.WriteString("/" + raw)
		if at.wrap != "" {
			out.WriteString("/anyOf/0")
		}
		if at.replaced && s.err == nil && !ref.within(at) {
			s.err = &Error{At: ref.pointer(), Detail: fmt.Sprintf("refers into the lazy parameter %s, whose schema the model is not shown", at.pointer()), Err: ErrSchema}
		}
	}
	return at, out.String()
}

// step goes to a child by a token of a JSON Pointer in a URI fragment.
func (n *node) step(raw string) *node {
	token := raw
	if strings.IndexByte(raw, '%') >= 0 {
		var err error
		if token, err = url.PathUnescape(raw); err != nil {
			return nil
		}
	}
	if strings.IndexByte(token, '~') >= 0 {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	switch n.kind {
	case '{':
		return n.get(token)
	case '[':
		i, err := strconv.ParseUint(token, 10, 31)
		if err == nil && int(i) < len(n.kids) {
			return n.kids[i]
		}
	}
	return nil
}

// within reports whether a value stands in another one or is it.
func (n *node) within(other *node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// gone reports whether the rewriter takes a value away.
func (s *survey) gone(n *node) bool {
	if len(s.removed) == 0 {
		return false
	}
	for ; n != nil; n = n.parent {
		if s.removed[n] {
			return true
		}
	}
	return false
}

// acceptsNull reports whether a schema allows null, as far as its text shows.
func (s *survey) acceptsNull(n *node, depth int) bool {
	if n.kind != '{' {
		return n.kind == 't'
	}
	if depth > maxSchemaDepth {
		return false
	}
	if t := n.get("type"); t != nil && !s.isType(n, "null") {
		return false
	}
	if c := n.get("const"); c != nil && c.kind != 'n' {
		return false
	}
	if e := n.get("enum"); e != nil && e.kind == '[' && !e.has('n') {
		return false
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		list := n.get(name)
		if list == nil || list.kind != '[' {
			continue
		}
		ok := false
		for _, k := range list.kids {
			ok = ok || s.acceptsNull(k, depth+1)
		}
		if !ok {
			return false
		}
	}
	if all := n.get("allOf"); all != nil && all.kind == '[' {
		for _, k := range all.kids {
			if !s.acceptsNull(k, depth+1) {
				return false
			}
		}
	}
	if ref := n.get("$ref"); ref != nil && ref.kind == '"' && n.resource != nil {
		to, _ := s.follow(ref)
		return to != nil && s.acceptsNull(to, depth+1)
	}
	return true
}

// has reports whether an array has an element of a kind.
func (n *node) has(kind byte) bool {
	for _, k := range n.kids {
		if k.kind == kind {
			return true
		}
	}
	return false
}

// issue notes what a profile has against a place, where the linter asks for it.
func (s *survey) issue(n *node, rule string, mended bool, format string, args ...any) {
	if s.lint {
		s.findings = append(s.findings, Finding{At: n.pointer(), Rule: rule, Says: fmt.Sprintf(format, args...), Mended: mended})
	}
}

// remove takes members out of an object.
func (s *survey) remove(n *node, out func(i int) bool) {
	leading := true // nothing stays before
	for i := range n.names {
		if !out(i) {
			leading = false
			continue
		}
		if s.removed == nil {
			s.removed = map[*node]bool{}
		}
		s.removed[n.kids[i]] = true
		from, to := n.names[i].start, n.kids[i].end
		switch {
		case !leading:
			from = n.kids[i-1].end
		case i+1 < len(n.names):
			to = n.names[i+1].start
		}
		s.edits = append(s.edits, edit{start: from, end: to, order: inserting})
	}
}

// insert adds members at the end of an object, of which something remains.
func (s *survey) insert(n *node, members string) {
	if len(n.kids) > 0 {
		members = "," + members
	}
	s.edits = append(s.edits, edit{start: n.end - 1, end: n.end - 1, order: inserting, text: members})
}
