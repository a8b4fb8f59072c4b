package ref_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leafproof/internal/jsonschema"
	"leafproof/ref"
)

// schemaMaker makes random schemas together with values that satisfy them, so that
// a test knows of a value that it is valid without asking the code under test.
type schemaMaker struct {
	*rand.Rand
	strict bool              // only what strict mode can say
	plain  bool              // only what Gemini can say
	defs   map[string]maker  // by name
	props  map[string]maker  // earlier properties of the root, by name
	text   map[string]string // their schemas
}

// maker makes a value: plain is as an author would write it, strict as strict mode
// makes a model write it, with a null for what is absent.
type maker func() (plain, strict string)

func (m *schemaMaker) schema(depth int) (string, maker) {
	n := 12
	if depth <= 0 {
		n = 6
	}
	switch m.IntN(n) {
	case 0:
		return `{"type":"string"}`, m.constant(`"s"`, `""`, `"\u00e9"`)
	case 1:
		return `{"type":"string","enum":["a","b"]}`, m.constant(`"a"`, `"b"`)
	case 2:
		return `{"type":"integer","minimum":1}`, m.constant("1", "12")
	case 3:
		return `{"type":"boolean","description":"yes or no"}`, m.constant("true", "false")
	case 4:
		if m.plain {
			return `{"type":"number"}`, m.constant("1.5", "-2")
		}
		return `{"type":["number","null"]}`, m.constant("1.5", "null")
	case 5:
		if len(m.props) > 0 && !m.plain {
			names := slices.Sorted(mapKeys(m.props))
			name := names[m.IntN(len(names))]
			return fmt.Sprintf(`{"$ref":"#/properties/%s"}`, name), m.props[name]
		}
		return `{"type":"integer"}`, m.constant("3")
	case 6, 7:
		items, value := m.schema(depth - 1)
		return `{"type":"array","items":` + items + `}`, func() (string, string) {
			var plain, strict []string
			for range m.IntN(3) {
				p, s := value()
				plain, strict = append(plain, p), append(strict, s)
			}
			return "[" + strings.Join(plain, ",") + "]", "[" + strings.Join(strict, ",") + "]"
		}
	case 8:
		a, va := m.schema(depth - 1)
		b, vb := m.schema(depth - 1)
		return `{"anyOf":[` + a + `,` + b + `]}`, func() (string, string) {
			if m.IntN(2) == 0 {
				return va()
			}
			return vb()
		}
	case 9:
		if len(m.defs) > 0 && !m.plain {
			names := slices.Sorted(mapKeys(m.defs))
			name := names[m.IntN(len(names))]
			return fmt.Sprintf(`{"$ref":"#/$defs/%s"}`, name), m.defs[name]
		}
		fallthrough
	default:
		return m.object(depth-1, false)
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (m *schemaMaker) constant(values ...string) maker {
	return func() (string, string) {
		v := values[m.IntN(len(values))]
		return v, v
	}
}

// object makes an object, or the root.
func (m *schemaMaker) object(depth int, root bool) (string, maker) {
	var schemas, required []string
	type property struct {
		name     string
		value    maker
		required bool
	}
	var properties []property
	for i := range 1 + m.IntN(4) {
		name := fmt.Sprintf("p%d", i)
		schema, value := m.schema(depth)
		p := property{name, value, m.IntN(2) == 0}
		if root {
			m.props[name] = value
			m.text[name] = schema
		}
		schemas = append(schemas, quote(name)+":"+schema)
		if p.required {
			required = append(required, quote(name))
		}
		properties = append(properties, p)
	}
	text := `{"type":"object","properties":{` + strings.Join(schemas, ",") + `}`
	if len(required) > 0 || m.IntN(2) == 0 {
		text += `,"required":[` + strings.Join(required, ",") + `]`
	}
	open := !m.strict && m.IntN(3) == 0
	switch {
	case open:
		text += `,"additionalProperties":{"type":"integer"}`
	case m.IntN(2) == 0:
		text += `,"additionalProperties":false`
	}
	return text + "}", func() (string, string) {
		var plain, strict []string
		for _, p := range properties {
			a, b := p.value()
			if p.required || m.IntN(2) == 0 {
				plain, strict = append(plain, quote(p.name)+":"+a), append(strict, quote(p.name)+":"+b)
			} else {
				strict = append(strict, quote(p.name)+":null")
			}
		}
		if open && m.IntN(2) == 0 {
			plain = append(plain, `"more":7`)
		}
		return "{" + strings.Join(plain, ",") + "}", "{" + strings.Join(strict, ",") + "}"
	}
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

func (m *schemaMaker) root() (string, maker) {
	m.defs, m.props, m.text = map[string]maker{}, map[string]maker{}, map[string]string{}
	defs := ""
	if !m.plain && m.IntN(2) == 0 {
		var list []string
		for i := range 1 + m.IntN(2) {
			schema, value := m.schema(2)
			name := fmt.Sprintf("d%d", i)
			list = append(list, quote(name)+":"+schema)
			m.defs[name] = value
		}
		defs = `,"$defs":{` + strings.Join(list, ",") + `}}`
	}
	text, value := m.object(3, true)
	if defs != "" {
		text = text[:len(text)-1] + defs
	}
	return text, value
}

// TestRewriteMeans: every input that the author allows is allowed by what the
// model is shown (with nulls for what is absent, in strict mode), and a reference
// is allowed in place of every property. The schema that is shown passes the
// provider's linter wherever the linter says that it will.
func TestRewriteMeans(t *testing.T) {
	envelopes := map[ref.Profile]string{
		ref.ProfileAnthropic:    `{"$ref":{"type":"Message","seq":42,"part":2,"field":"a.b"}}`,
		ref.ProfileMCP:          `{"$ref":{"type":"Blob","source":{"type":"Message","part":0}}}`,
		ref.ProfileGemini:       `{"$ref":{"type":"Message","part":0}}`,
		ref.ProfileOpenAIStrict: `{"$ref":{"type":"Message","seq":null,"part":2,"field":null,"key":null}}`,
	}
	rounds := 80
	if testing.Short() {
		rounds = 30
	}
	passed := map[ref.Profile]int{}
	for seed := range rounds {
		for _, p := range ref.Profiles() {
			m := &schemaMaker{Rand: rand.New(rand.NewPCG(uint64(seed), 7)), strict: p == ref.ProfileOpenAIStrict, plain: p == ref.ProfileGemini}
			text, value := m.root()
			shown, err := ref.Rewrite([]byte(text), p)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var open []ref.Finding
			for _, f := range ref.Lint(p, []byte(text)) {
				if !f.Mended {
					open = append(open, f)
				}
			}
			if left := ref.Lint(p, shown); len(open) == 0 && len(left) > 0 {
				t.Fatalf("%v: %s\nbecame %s\nwhich has %+v", p, text, shown, left)
			}
			if len(open) == 0 {
				passed[p]++
			}
			original, err := jsonschema.Compile([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			compiled, err := jsonschema.Compile(shown)
			if err != nil {
				t.Fatalf("%v: %s\nbecame %s: %v", p, text, shown, err)
			}
			for range 3 {
				plain, strict := value()
				if err := original.Check(t.Context(), []byte(plain)); err != nil {
					t.Fatalf("the maker is wrong: %s\n%s: %v", text, plain, err)
				}
				if p == ref.ProfileOpenAIStrict {
					restored, err := p.Restore([]byte(text), []byte(strict))
					if err != nil {
						t.Fatal(err)
					}
					if err := original.Check(t.Context(), restored); err != nil {
						t.Fatalf("%s\n%s restored to %s: %v", text, strict, restored, err)
					}
					plain = strict
				}
				if err := compiled.Check(t.Context(), []byte(plain)); err != nil {
					t.Fatalf("%v: %s\nbecame %s\nrefuses %s: %v", p, text, shown, plain, err)
				}
				for name := range m.props {
					input := replaced(t, plain, name, envelopes[p])
					if err := compiled.Check(t.Context(), input); err != nil {
						t.Fatalf("%v: %s\nbecame %s\nrefuses %s: %v", p, text, shown, input, err)
					}
				}
			}
		}
	}
	for _, p := range ref.Profiles() {
		if passed[p] < rounds/4 {
			t.Errorf("%v: only %d of %d schemas had nothing that is not mended: the test shows little", p, passed[p], rounds)
		}
	}
}

// replaced puts a value in place of a property.
func replaced(t *testing.T, input, name, value string) []byte {
	t.Helper()
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(input), &members); err != nil {
		t.Fatal(err)
	}
	members[name] = json.RawMessage(value)
	out, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// twin rewrites as slowly and plainly as it can be said, without the order of
// members.
func twin(doc []byte, reference string) any {
	var v, r any
	json.Unmarshal(doc, &v)
	json.Unmarshal([]byte(reference), &r)
	through := regexp.MustCompile(`^(#/properties/[^/]*)`)
	var move func(v any) any
	move = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if s, ok := x.(string); ok && k == "$ref" {
					v[k] = through.ReplaceAllString(s, "$1/anyOf/0")
				} else {
					v[k] = move(x)
				}
			}
		case []any:
			for i := range v {
				v[i] = move(v[i])
			}
		}
		return v
	}
	root := move(v).(map[string]any)
	if more, ok := root["additionalProperties"].(map[string]any); ok {
		root["additionalProperties"] = map[string]any{"anyOf": []any{more, r}}
	}
	properties := root["properties"].(map[string]any)
	for name, x := range properties {
		properties[name] = map[string]any{"anyOf": []any{x, r}}
	}
	return root
}

func TestRewriteTwin(t *testing.T) {
	r := referenceOf(t, ref.ProfileMCP)
	for seed := range 300 {
		m := &schemaMaker{Rand: rand.New(rand.NewPCG(uint64(seed), 11))}
		text, _ := m.root()
		out, err := ref.Rewrite([]byte(text), ref.ProfileMCP)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if want := twin([]byte(text), r); !reflect.DeepEqual(got, want) {
			w, _ := json.Marshal(want)
			t.Fatalf("%s\nbecame %s\nwant   %s", text, out, w)
		}
		// Nothing but the insertions differs.
		more := len(m.text) + strings.Count(string(out), `"additionalProperties":{"anyOf":[`)
		grown := more*len(`{"anyOf":[,]}`+r) + strings.Count(string(out), "/anyOf/0")*len("/anyOf/0")
		if len(out) != len(text)+grown || !subsequence(text, string(out)) {
			t.Fatalf("%s\nbecame %s", text, out)
		}
	}
}

// subsequence reports whether s is what is left of t without some of its bytes.
func subsequence(s, t string) bool {
	for i := range len(t) {
		if s != "" && s[0] == t[i] {
			s = s[1:]
		}
	}
	return s == ""
}
