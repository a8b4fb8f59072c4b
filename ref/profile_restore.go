package ref

import (
	"fmt"
	"slices"

	"leafproof/internal/jsonschema"
)

// restoreSteps bounds [Profile.Restore]: how many schemas it looks at for an
// input. An input of the largest size over an ordinary schema takes a tenth.
const restoreSteps = 1 << 20

// Restore takes out of a model's input what only the profile made it write, before
// references are looked for. For openai-strict, where every member must be there,
// it removes each null that stands for an absent member: of a reference, and of an
// object whose schema does not require the member and does not allow null. schema
// is the original one. Values that the author allows stay, and so does every byte
// around what is removed. For the other profiles the input is returned as it is.
//
// The error wraps [ErrSchema] or [ErrMalformed].
func (p Profile) Restore(schema, input []byte) ([]byte, error) {
	if p != ProfileOpenAIStrict {
		return input, nil
	}
	s, err := newSurvey(schema, p)
	if err != nil {
		return nil, err
	}
	defer s.release()
	v, err := parseTree(input, jsonschema.MaxValue)
	if err != nil {
		return nil, &Error{Detail: err.Error(), Err: ErrMalformed}
	}
	r := restorer{survey: s, input: &survey{doc: input}, left: restoreSteps, envelopes: map[*node]bool{}}
	if !r.reference(v) {
		for _, k := range v.kids {
			r.reference(k)
		}
		r.value(v, []*node{s.root})
	}
	if r.left < 0 {
		return nil, &Error{Detail: fmt.Sprintf("it takes more than %d steps to take the nulls out", restoreSteps), Err: ErrMalformed}
	}
	return splice(input, r.input.edits), nil
}

type restorer struct {
	survey *survey // of the schema
	input  *survey // collects the edits
	left   int
	// envelopes are references; what is in them is not the schema's.
	envelopes map[*node]bool
}

// reference takes the nulls out of an envelope, and reports whether it is one.
func (r *restorer) reference(v *node) bool {
	inner := v.object("$ref")
	if v.kind != '{' || inner == nil || len(v.kids) != 1 {
		return false
	}
	r.envelopes[v] = true
	r.input.remove(inner, func(i int) bool { return inner.kids[i].kind == 'n' })
	return true
}

// value takes nulls out of a value that schemas apply to.
func (r *restorer) value(v *node, schemas []*node) {
	schemas = r.all(schemas)
	if len(schemas) == 0 || r.left < 0 || r.envelopes[v] {
		return
	}
	switch v.kind {
	case '[':
		for i, k := range v.kids {
			var inside []*node
			for _, s := range schemas {
				if items := s.get("items"); items != nil && items.kind == '{' {
					inside = append(inside, items)
				}
				for _, name := range []string{"prefixItems", "items"} {
					if list := s.get(name); list != nil && list.kind == '[' && i < len(list.kids) {
						inside = append(inside, list.kids[i])
					}
				}
			}
			r.value(k, inside)
		}
	case '{':
		absent := make([]bool, len(v.kids))
		for i, k := range v.kids {
			var inside []*node
			optional, null := false, false
			for _, s := range schemas {
				p := s.object("properties").get(v.names[i].text)
				if p == nil {
					continue
				}
				inside = append(inside, p)
				optional = optional || !slices.Contains(s.get("required").strings(r.survey.doc), v.names[i].text)
				null = null || r.survey.acceptsNull(p, 0)
			}
			r.left -= 1 + len(inside)
			if k.kind == 'n' {
				absent[i] = optional && !null
			} else {
				r.value(k, inside)
			}
		}
		r.input.remove(v, func(i int) bool { return absent[i] })
	}
}

// all adds to schemas those that apply to the same value: what they refer to and
// their alternatives.
func (r *restorer) all(schemas []*node) []*node {
	var out []*node
	seen := map[*node]bool{}
	var add func(n *node)
	add = func(n *node) {
		if r.left--; r.left < 0 || n.kind != '{' || seen[n] {
			return
		}
		seen[n] = true
		out = append(out, n)
		if ref := n.get("$ref"); ref != nil && ref.kind == '"' && n.resource != nil {
			if to, _ := r.survey.follow(ref); to != nil {
				add(to)
			}
		}
		for _, name := range []string{"anyOf", "oneOf", "allOf"} {
			if list := n.get(name); list != nil && list.kind == '[' {
				for _, k := range list.kids {
					add(k)
				}
			}
		}
	}
	for _, n := range schemas {
		add(n)
	}
	return out
}
