package ref_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"leafproof/internal/jsonschema"
	"leafproof/ref"
)

// referenceOf is what a profile writes for a reference.
func referenceOf(t testing.TB, p ref.Profile) string {
	t.Helper()
	out, err := ref.Rewrite([]byte(`{"type":"object","properties":{"x":true},"required":["x"],"additionalProperties":false}`), p, "x")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), `{"x":`)
	inner, _, _ := strings.Cut(rest, `},"required":["x"]`)
	return inner
}

// TestRewrite: what stands for a property and what does not, to the byte. In what
// is wanted, R is the reference and W(…) is {"anyOf":[…,R]}.
func TestRewrite(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"one":               {`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":W({"type":"string"})}}`},
		"order and spaces":  {"{\n \"required\" : [\"b\"],\t\"properties\":{ \"b\" : {} , \"a\":{\"type\" :\"string\"} }, \"type\":\"object\"\n}", "{\n \"required\" : [\"b\"],\t\"properties\":{ \"b\" : W({}) , \"a\":W({\"type\" :\"string\"}) }, \"type\":\"object\"\n}"},
		"true":              {`{"properties":{"a":true}}`, `{"properties":{"a":W(true)}}`},
		"false":             {`{"properties":{"a":false}}`, ``},
		"already anyOf":     {`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}}}`, `{"properties":{"a":W({"anyOf":[{"type":"string"},{"type":"null"}],"default":null})}}`},
		"nested stays":      {`{"properties":{"a":{"properties":{"b":{"type":"string"}}}}}`, `{"properties":{"a":W({"properties":{"b":{"type":"string"}}})}}`},
		"no properties":     {`{"type":"object"}`, ``},
		"empty properties":  {`{"type":"object","properties":{}}`, ``},
		"root true":         {`true`, ``},
		"root string":       {`{"type":"string"}`, ``},
		"root list":         {`[1]`, ``},
		"closed":            {`{"properties":{"a":{}},"additionalProperties":false}`, `{"properties":{"a":W({})},"additionalProperties":false}`},
		"open":              {`{"additionalProperties":{"type":"integer"}}`, `{"additionalProperties":W({"type":"integer"})}`},
		"patterns":          {`{"patternProperties":{"^x-":{"type":"integer"}}}`, `{"patternProperties":{"^x-":W({"type":"integer"})}}`},
		"root anyOf":        {`{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]}`, `{"type":"object","properties":{"a":W({})},"anyOf":[{"required":["a"]}]}`},
		"escaped name":      {`{"properties":{"\u0061\"":{}}}`, `{"properties":{"\u0061\"":W({})}}`},
		"a property $ref":   {`{"properties":{"$ref":{"type":"string"}}}`, `{"properties":{"$ref":W({"type":"string"})}}`},
		"property anyOf":    {`{"properties":{"anyOf":{"type":"array"}}}`, `{"properties":{"anyOf":W({"type":"array"})}}`},
		"named properties":  {`{"properties":{"properties":{"properties":{"properties":{}}}}}`, `{"properties":{"properties":W({"properties":{"properties":{}}})}}`},
		"to defs":           {`{"$defs":{"a":{}},"properties":{"x":{"$ref":"#/$defs/a"}}}`, `{"$defs":{"a":{}},"properties":{"x":W({"$ref":"#/$defs/a"})}}`},
		"to itself":         {`{"properties":{"child":{"$ref":"#"}}}`, `{"properties":{"child":W({"$ref":"#"})}}`},
		"to a property":     {`{"properties":{"a":{},"b":{"$ref":"#/properties/a"}}}`, `{"properties":{"a":W({}),"b":W({"$ref":"#/properties/a/anyOf/0"})}}`},
		"through one":       {`{"properties":{"a":{"items":{"type":"string"}},"b":{"$ref":"#/properties/a/items"}}}`, `{"properties":{"a":W({"items":{"type":"string"}}),"b":W({"$ref":"#/properties/a/anyOf/0/items"})}}`},
		"within itself":     {`{"properties":{"a":{"items":{"$ref":"#/properties/a"}}}}`, `{"properties":{"a":W({"items":{"$ref":"#/properties/a/anyOf/0"}})}}`},
		"from defs":         {`{"$defs":{"d":{"items":{"$ref":"#/properties/a"}}},"properties":{"a":{}}}`, `{"$defs":{"d":{"items":{"$ref":"#/properties/a/anyOf/0"}}},"properties":{"a":W({})}}`},
		"percent":           {`{"properties":{"a b/c~d":{},"x":{"$ref":"#/properties/a%20b~1c~0d"}}}`, `{"properties":{"a b/c~d":W({}),"x":W({"$ref":"#/properties/a%20b~1c~0d/anyOf/0"})}}`},
		"%24ref":            {`{"properties":{"$ref":{},"x":{"$ref":"#/properties/%24ref"}}}`, `{"properties":{"$ref":W({}),"x":W({"$ref":"#/properties/%24ref/anyOf/0"})}}`},
		"escaped reference": {`{"properties":{"a":{},"x":{"$ref":"#\/properties\/a"}}}`, `{"properties":{"a":W({}),"x":W({"$ref":"#/properties/a/anyOf/0"})}}`},
		"own id":            {`{"$id":"https://x.test/t","properties":{"a":{},"x":{"$ref":"https://x.test/t#/properties/a"}}}`, `{"$id":"https://x.test/t","properties":{"a":W({}),"x":W({"$ref":"https://x.test/t#/properties/a/anyOf/0"})}}`},
		"relative id":       {`{"$id":"https://x.test/d/t","properties":{"a":{},"x":{"$ref":"t#/properties/a"}}}`, `{"$id":"https://x.test/d/t","properties":{"a":W({}),"x":W({"$ref":"t#/properties/a/anyOf/0"})}}`},
		"a resource inside": {`{"$id":"https://x.test/t","properties":{"a":{"$id":"in","properties":{"a":{},"b":{"$ref":"#/properties/a"},"c":{"$ref":"t#/properties/a"}}}}}`, `{"$id":"https://x.test/t","properties":{"a":W({"$id":"in","properties":{"a":{},"b":{"$ref":"#/properties/a"},"c":{"$ref":"t#/properties/a/anyOf/0"}}})}}`},
		"into a resource":   {`{"properties":{"a":{"$id":"https://x.test/in","items":{}},"b":{"$ref":"https://x.test/in#/items"}}}`, `{"properties":{"a":W({"$id":"https://x.test/in","items":{}}),"b":W({"$ref":"https://x.test/in#/items"})}}`},
		"an anchor":         {`{"properties":{"a":{"$anchor":"n"},"b":{"$ref":"#n"}}}`, `{"properties":{"a":W({"$anchor":"n"}),"b":W({"$ref":"#n"})}}`},
		"data":              {`{"properties":{"a":{"const":{"$ref":"#/properties/a"},"default":{"$ref":"#/properties/a"},"enum":[{"$ref":"#/properties/a"}]}}}`, `{"properties":{"a":W({"const":{"$ref":"#/properties/a"},"default":{"$ref":"#/properties/a"},"enum":[{"$ref":"#/properties/a"}]})}}`},
		"unknown keyword":   {`{"components":{"s":{"items":{"$ref":"#/properties/a"}}},"properties":{"a":{},"b":{"$ref":"#/components/s"}}}`, `{"components":{"s":{"items":{"$ref":"#/properties/a/anyOf/0"}}},"properties":{"a":W({}),"b":W({"$ref":"#/components/s"})}}`},
		"draft 7 siblings":  {`{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://x.test/t","properties":{"a":{},"b":{"$id":"other","$ref":"#/properties/a"}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://x.test/t","properties":{"a":W({}),"b":W({"$id":"other","$ref":"#/properties/a/anyOf/0"})}}`},
		"draft 4":           {`{"$schema":"http://json-schema.org/draft-04/schema#","id":"https://x.test/t","properties":{"n":{"minimum":0,"exclusiveMinimum":true},"m":{"$ref":"t#/properties/n"}}}`, `{"$schema":"http://json-schema.org/draft-04/schema#","id":"https://x.test/t","properties":{"n":W({"minimum":0,"exclusiveMinimum":true}),"m":W({"$ref":"t#/properties/n/anyOf/0"})}}`},
		"dependencies":      {`{"properties":{"a":{}},"dependencies":{"a":["b"],"b":{"$ref":"#/properties/a"}}}`, `{"properties":{"a":W({})},"dependencies":{"a":["b"],"b":{"$ref":"#/properties/a/anyOf/0"}}}`},
		"into a list":       {`{"properties":{"a":{"prefixItems":[{},{"type":"string"}]},"b":{"$ref":"#/properties/a/prefixItems/1"}}}`, `{"properties":{"a":W({"prefixItems":[{},{"type":"string"}]}),"b":W({"$ref":"#/properties/a/anyOf/0/prefixItems/1"})}}`},
		"to nowhere":        {`{"properties":{"a":{"$ref":"#/properties/zzz"}}}`, `{"properties":{"a":W({"$ref":"#/properties/zzz"})}}`},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.in
			}
			r := referenceOf(t, ref.ProfileMCP)
			want = wrapped(want, r)
			for _, p := range []ref.Profile{ref.ProfileMCP, ref.ProfileAnthropic} {
				out, err := ref.Rewrite([]byte(test.in), p)
				if err != nil || string(out) != want {
					t.Fatalf("%v: Rewrite = %s, %v\nwant %s", p, out, err, want)
				}
				if again, err := ref.Rewrite(out, p); err != nil || !bytes.Equal(again, out) {
					t.Errorf("%v: rewritten twice: %s, %v", p, again, err)
				}
			}
			if _, err := jsonschema.Compile([]byte(test.in)); err == nil {
				if _, err := jsonschema.Compile([]byte(want)); err != nil {
					t.Errorf("what was a schema is none: %v", err)
				}
			}
		})
	}
}

// wrapped puts a reference into what a table says.
func wrapped(s, reference string) string {
	for strings.Contains(s, "W(") {
		at := strings.LastIndex(s, "W(")
		depth, end := 0, at+1
		for ; ; end++ {
			if s[end] == '(' {
				depth++
			}
			if s[end] == ')' {
				if depth--; depth == 0 {
					break
				}
			}
		}
		s = s[:at] + `{"anyOf":[` + s[at+2:end] + `,` + reference + `]}` + s[end+1:]
	}
	return s
}

func TestRewriteRefuses(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 200) + "{}" + strings.Repeat("}", 200)
	for name, test := range map[string]struct {
		in   string
		lazy []string
		says string
	}{
		"nothing":             {"", nil, "EOF"},
		"cut":                 {`{"properties":{`, nil, "EOF"},
		"two":                 {`{} {}`, nil, "follows"},
		"a name twice":        {`{"properties":{"a":{},"a":{}}}`, nil, "duplicate"},
		"surrogate":           {`{"title":"\ud800"}`, nil, "surrogate"},
		"deep":                {deep, nil, "128 levels"},
		"long":                {`{"title":"` + strings.Repeat("x", 300<<10) + `"}`, nil, "at most 262144"},
		"no such lazy":        {`{"properties":{"a":{}}}`, []string{"b"}, `"b" is not a property`},
		"lazy false":          {`{"properties":{"a":false}}`, []string{"a"}, "not a property"},
		"into a lazy one":     {`{"properties":{"a":{"items":{}},"b":{"$ref":"#/properties/a/items"}}}`, []string{"a"}, "lazy parameter /properties/a"},
		"lazy without object": {`true`, []string{"a"}, "not a property"},
	} {
		for _, p := range ref.Profiles() {
			out, err := ref.Rewrite([]byte(test.in), p, test.lazy...)
			if !errors.Is(err, ref.ErrSchema) || out != nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v: Rewrite = %.100s, %v, want an error that says %q", name, p, out, err, test.says)
			}
		}
	}
	if _, err := ref.Rewrite([]byte(`{}`), 0); !errors.Is(err, ref.ErrProfile) {
		t.Errorf("Rewrite for no profile = %v", err)
	}
}

// TestRewriteLazy: a lazy parameter is shown as a reference with the author's
// description, and nothing else of it.
func TestRewriteLazy(t *testing.T) {
	const in = `{"type":"object","properties":{"source":{"type":"string","description":"What to read \"here\"."},"path":{"type":"string"}},"required":["source","path"],"additionalProperties":false}`
	for _, p := range ref.Profiles() {
		out, err := ref.Rewrite([]byte(in), p, "source")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Properties map[string]map[string]any
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		source := got.Properties["source"]
		if source["type"] != "object" || source["description"] != `What to read "here".` || source["anyOf"] != nil {
			t.Errorf("%v: the lazy parameter is %v", p, source)
		}
		if again, err := ref.Rewrite(out, p, "source"); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%v: rewritten twice: %s, %v", p, again, err)
		}
		if again, err := ref.Rewrite(out, p); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%v: rewritten twice, not lazily: %s, %v", p, again, err)
		}
	}
	// A reference from inside goes with it.
	if _, err := ref.Rewrite([]byte(`{"properties":{"a":{"items":{"$ref":"#/properties/a"}}}}`), ref.ProfileMCP, "a"); err != nil {
		t.Error(err)
	}
}

// TestRewriteStable: the same bytes on every turn, and however tools register.
func TestRewriteStable(t *testing.T) {
	tools := realTools()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range ref.Profiles() {
		first := ""
		for turn := range 100 {
			rng.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
			out, err := ref.Declare(tools, p)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%s", out)
			if turn == 0 {
				first = text
			}
			if text != first {
				t.Fatalf("%v: turn %d differs", p, turn)
			}
			for i := 1; i < len(out); i++ {
				if out[i-1].Name >= out[i].Name {
					t.Fatalf("%v: %s stands before %s", p, out[i-1].Name, out[i].Name)
				}
			}
		}
	}
	if _, err := ref.Declare([]ref.Declaration{{Name: "a", Schema: []byte("{}")}, {Name: "a", Schema: []byte("{}")}}, ref.ProfileMCP); !errors.Is(err, ref.ErrSchema) {
		t.Errorf("two tools of one name: %v", err)
	}
}

// TestRewriteRestart: another process writes the same bytes.
func TestRewriteRestart(t *testing.T) {
	write := func() string {
		var b strings.Builder
		for _, p := range ref.Profiles() {
			out, err := ref.Declare(realTools(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range out {
				fmt.Fprintf(&b, "%v %s %s\n", p, d.Name, bytes.ReplaceAll(d.Schema, []byte("\n"), nil))
			}
		}
		return b.String()
	}
	if os.Getenv("LEAFPROOF_TEST_DECLARE") != "" {
		fmt.Print("BEGIN\n" + write() + "END\n")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRewriteRestart$")
	cmd.Env = append(os.Environ(), "LEAFPROOF_TEST_DECLARE=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), "BEGIN\n")
	if got, _, _ := strings.Cut(rest, "END\n"); got != write() {
		t.Error("another process writes other schemas")
	}
}

// TestRewriteShared: callers cannot change what others are given by changing what
// they passed.
func TestRewriteShared(t *testing.T) {
	in := []byte(`{"type":"object","properties":{"zz":{"type":"string"}}}`)
	first, err := ref.Rewrite(in, ref.ProfileMCP)
	if err != nil {
		t.Fatal(err)
	}
	before := string(first)
	copy(in[len(in)-12:], "number")
	again, err := ref.Rewrite([]byte(`{"type":"object","properties":{"zz":{"type":"string"}}}`), ref.ProfileMCP)
	if err != nil || string(again) != before {
		t.Errorf("the memory changed: %s, %v", again, err)
	}
}

// A text of escapes alone is read once, not once an escape.
func TestRewriteOfEscapes(t *testing.T) {
	long := strings.Repeat(`\\\"`, 30_000)
	schema := `{"type":"object","properties":{"a":{"type":"string","description":"` + long + `"},"b\"\\":{"const":"\\"}}}`
	got, err := ref.Rewrite([]byte(schema), ref.ProfileMCP)
	if err != nil || strings.Count(string(got), long) != 1 || !json.Valid(got) || strings.Count(string(got), `"anyOf"`) != 2 {
		t.Errorf("%.200s, %v", got, err)
	}
}
