package ref

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// The errors of schemas, for [errors.Is].
var (
	// ErrSchema: a tool's schema cannot be used.
	ErrSchema = errors.New("not a usable tool schema")
	// ErrProfile: there is no such profile.
	ErrProfile = errors.New("no such provider profile")
)

// Rewrite makes a tool's schema one that shows a model where it may write a
// reference: each top-level property becomes
//
//	{"anyOf":[ORIGINAL,REFERENCE]}
//
// and a property in lazy, whose value the tool reads through a handle, becomes
// REFERENCE alone with the author's description. Schemas for further members
// (patternProperties, additionalProperties) are treated alike. The root gets no
// composition, no $defs are added, and every other byte stays as the author
// wrote it, so that the same schema is the same text on every turn. References
// inside the schema that lead into or through a property are led to the place
// where it now stands.
//
// The profile's own rules come on top: for openai-strict every property is
// required, what was not is nullable, and no object is open; for gemini the
// keywords that a function declaration does not know are dropped. What a profile
// refuses and the rewriter does not put right, [Lint] tells; Rewrite leaves it.
//
// Rewriting what was rewritten changes nothing. A schema that is not an object
// (true, false) has no properties and stays as it is. The error wraps [ErrSchema]
// or [ErrProfile]. What Rewrite returns is shared: do not change it.
func Rewrite(schema []byte, p Profile, lazy ...string) ([]byte, error) {
	return rewritten.get(schema, p, lazy)
}

// A Declaration is a tool as it is registered, or as a model is shown it.
type Declaration struct {
	Name        string
	Description string
	Schema      []byte   // of its input
	Lazy        []string // properties whose value the tool reads through a handle
}

// Declare rewrites the schemas of tools and sorts them by name, so that the
// declarations are the same bytes however the tools were registered. Two tools of
// one name are refused.
func Declare(tools []Declaration, p Profile) ([]Declaration, error) {
	out := slices.Clone(tools)
	slices.SortFunc(out, func(a, b Declaration) int { return cmp.Compare(a.Name, b.Name) })
	for i := range out {
		if i > 0 && out[i].Name == out[i-1].Name {
			return nil, &Error{Detail: fmt.Sprintf("two tools are named %q", out[i].Name), Err: ErrSchema}
		}
	}
	// Those that nobody has seen on all cores: a first turn may bring hundreds.
	var unseen []*Declaration
	for i := range out {
		schema, ok := rewritten.look(out[i].Schema, p, joinNames(out[i].Lazy))
		if !ok {
			unseen = append(unseen, &out[i])
			continue
		}
		out[i].Schema = schema
	}
	errs := make([]error, len(unseen))
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(unseen)) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(unseen)); i = taken.Add(1) - 1 {
				d := unseen[i]
				d.Schema, errs[i] = Rewrite(d.Schema, p, d.Lazy...)
			}
		})
	}
	workers.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", unseen[i].Name, err)
		}
	}
	return out, nil
}

// rewrite is Rewrite without a memory, of a schema that is given in both forms.
func rewrite(doc []byte, text string, p Profile, lazy []string) ([]byte, error) {
	if !p.known() {
		return nil, fmt.Errorf("%w: %v", ErrProfile, p)
	}
	s, err := surveyOf(doc, text, p)
	if err != nil {
		return nil, err
	}
	defer s.release()
	if err := s.offer(lazy); err != nil {
		return nil, err
	}
	s.mend()
	s.alter()
	if s.err != nil {
		return nil, s.err
	}
	return splice(doc, s.edits), nil
}

// offer marks where a reference may stand.
func (s *survey) offer(lazy []string) error {
	s.wrap = s.p.alternative()
	properties := s.root.object("properties")
	for _, name := range lazy {
		n := properties.get(name)
		if n == nil || n.kind != '{' && n.kind != 't' {
			return &Error{Detail: fmt.Sprintf("the lazy parameter %q is not a property", name), Err: ErrSchema}
		}
		describes := ""
		if d := n.get("description"); d != nil && d.kind == '"' {
			describes = string(d.raw(s.doc))
		}
		s.replace(n, s.p.reference(describes))
	}
	if properties != nil {
		for _, n := range properties.kids {
			s.alternative(n)
		}
	}
	if s.p == ProfileOpenAIStrict || s.p == ProfileGemini {
		return nil // has no further members
	}
	if patterns := s.root.object("patternProperties"); patterns != nil {
		for _, n := range patterns.kids {
			s.alternative(n)
		}
	}
	for _, name := range []string{"additionalProperties", "unevaluatedProperties"} {
		if n := s.root.object(name); n != nil && len(n.kids) > 0 {
			s.alternative(n)
		}
	}
	return nil
}

// alternative lets a reference stand for a property.
func (s *survey) alternative(n *node) {
	if !n.replaced && s.takes(n) {
		n.wrap = s.wrap
	}
}

// takes reports whether a property is given a reference as an alternative. One that
// is forbidden stays so, also where strict mode has made it nullable.
func (s *survey) takes(n *node) bool {
	switch n.kind {
	case 't':
		return true
	case '{':
		if len(n.names) == 1 {
			if list := n.get("anyOf"); list != nil && list.kind == '[' && len(list.kids) > 0 && list.kids[0].kind == 'f' {
				return false // forbidden
			}
		}
		return !s.offers(n)
	}
	return false
}

// offers reports whether a schema already allows a reference, as Rewrite writes
// it.
func (s *survey) offers(n *node) bool {
	var describes []byte
	if d := n.get("description"); d != nil && d.kind == '"' {
		describes = d.raw(s.doc)
	}
	if s.p.isReference(n.raw(s.doc), describes) {
		return true
	}
	if len(n.names) != 1 {
		return false
	}
	list := n.get("anyOf")
	if list == nil || list.kind != '[' {
		return false
	}
	for _, k := range list.kids {
		if k.kind == '{' && k != n && s.offers(k) {
			return true
		}
	}
	return false
}

func (s *survey) replace(n *node, text string) {
	if s.replacements == nil {
		s.replacements = map[*node]string{}
	}
	n.replaced, s.replacements[n] = true, text
}

// alter turns the marks into edits.
func (s *survey) alter() {
	for _, ref := range s.refs {
		text, _ := ref.text(s.doc)
		if _, moved := s.follow(ref); moved != text {
			s.edits = append(s.edits, edit{start: ref.start, end: ref.end, order: opening, text: quoted(moved)})
		}
	}
	var each func(n *node)
	each = func(n *node) {
		switch {
		case n.replaced:
			text := s.replacements[n]
			if n.wrap != "" {
				text = `{"anyOf":[` + text + n.wrap + `]}`
			}
			s.edits = append(s.edits, edit{start: n.start, end: n.end, order: opening, text: text})
			return
		case n.wrap != "":
			s.edits = append(
				s.edits,
				edit{start: n.start, end: n.start, order: opening, text: `{"anyOf":[`},
				edit{start: n.end, end: n.end, order: closing, text: n.wrap},
				edit{start: n.end, end: n.end, order: closing, text: `]}`},
			)
		}
		for _, k := range n.kids {
			each(k)
		}
	}
	each(s.root)
}

// rewriteMemo remembers what schemas became.
type rewriteMemo struct {
	mu    sync.RWMutex
	kept  map[rewriteKey][]byte
	bytes int
}

type rewriteKey struct {
	schema, lazy string
	p            Profile
}

// maxRemembered is how many bytes of schemas a memo keeps before it begins anew.
const maxRemembered = 32 << 20

var rewritten rewriteMemo

// look finds a schema by all of its bytes, which the map hashes: no digest can be
// made to collide.
func (m *rewriteMemo) look(schema []byte, p Profile, names string) ([]byte, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out, ok := m.kept[rewriteKey{schema: string(schema), lazy: names, p: p}]
	return out, ok
}

func (m *rewriteMemo) get(schema []byte, p Profile, lazy []string) ([]byte, error) {
	names := joinNames(lazy)
	if out, ok := m.look(schema, p, names); ok {
		return out, nil
	}
	text := string(schema)
	out, err := rewrite(schema, text, p, lazy)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	size := len(schema) + len(out) + len(names)
	if m.kept == nil || m.bytes+size > maxRemembered {
		m.kept, m.bytes = map[rewriteKey][]byte{}, 0
	}
	m.kept[rewriteKey{schema: text, lazy: names, p: p}] = out
	m.bytes += size
	return out, nil
}

// joinNames is a set of names as one string.
func joinNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	names = slices.Clone(names)
	slices.Sort(names)
	var b strings.Builder
	for _, n := range slices.Compact(names) {
		fmt.Fprintf(&b, "%d:%s", len(n), n)
	}
	return b.String()
}
