package jsonschema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	const event = `{"type":"object","required":["status"],"properties":{"status":{"enum":["open","closed"]},"n":{"type":"integer","maximum":9007199254740993}},"additionalProperties":false}`
	for name, test := range map[string]struct {
		schema, value string
		err           error
	}{
		"good":                    {event, ` {"status":"open","n":1.0} `, nil},
		"missing":                 {event, `{"n":1}`, ErrInvalid},
		"not in the list":         {event, `{"status":"x"}`, ErrInvalid},
		"an exact number":         {event, `{"status":"open","n":9007199254740993}`, nil},
		"one more":                {event, `{"status":"open","n":9007199254740994}`, ErrInvalid},
		"exact const":             {`{"const":9007199254740993}`, `9007199254740992`, ErrInvalid},
		"decimal multiple":        {`{"multipleOf":0.1}`, `0.3`, nil},
		"a large number":          {`{"maximum":1e400}`, `1e399`, nil},
		"true":                    {`true`, `[]`, nil},
		"false":                   {`false`, `[]`, ErrInvalid},
		"draft 4":                 {`{"$schema":"http://json-schema.org/draft-04/schema#","maximum":3,"exclusiveMaximum":true}`, `3`, ErrInvalid},
		"inner reference":         {`{"$defs":{"a":{"type":"string"}},"items":{"$ref":"#/$defs/a"}}`, `["x",1]`, ErrInvalid},
		"inner anchor":            {`{"$id":"https://example.com/s","$defs":{"a":{"$anchor":"x","type":"string"}},"$ref":"https://example.com/s#x"}`, `1`, ErrInvalid},
		"recursive":               {`{"type":"object","properties":{"child":{"$ref":"#"}},"additionalProperties":false}`, `{"child":{"child":{"x":1}}}`, ErrInvalid},
		"circle":                  {`{"$ref":"#"}`, `1`, ErrInvalid},
		"twice":                   {`true`, `{"a":1,"a":1}`, ErrUndecided},
		"surrogate":               {`true`, `"\ud800"`, ErrUndecided},
		"nothing":                 {`true`, ``, ErrUndecided},
		"cut":                     {`true`, `{"a":[`, ErrUndecided},
		"two":                     {`true`, `1 2`, ErrUndecided},
		"deep":                    {`true`, strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), ErrUndecided},
		"digits":                  {`true`, strings.Repeat("1", MaxDigits+1), ErrUndecided},
		"exponent":                {`true`, `1e1000000000`, ErrUndecided},
		"long":                    {`true`, `"` + strings.Repeat("x", MaxValue) + `"`, ErrUndecided},
		"a pattern that branches": {`{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 1000) + `b"`, ErrInvalid},
		"formats are notes":       {`{"format":"date"}`, `"x"`, nil},
		"formats of draft 7":      {`{"$schema":"http://json-schema.org/draft-07/schema#","format":"date"}`, `"x"`, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile([]byte(test.schema))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // a schema is used again and again
				if err := s.Check(t.Context(), []byte(test.value)); !errors.Is(err, test.err) || err != nil && strings.ContainsAny(err.Error(), "\n") {
					t.Errorf("Check = %v, want %v", err, test.err)
				}
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, test := range map[string]struct{ schema, says string }{
		"no JSON":           {`{`, "ends inside"},
		"a number":          {`7`, "neither an object"},
		"twice":             {`{"type":"string","type":"null"}`, "duplicate"},
		"no type":           {`{"type":"frob"}`, "metaschema"},
		"zero":              {`{"multipleOf":0}`, "metaschema"},
		"a page":            {`{"$ref":"https://example.com/x.json"}`, "nothing is fetched"},
		"a neighbour":       {`{"$id":"https://example.com/a/b","$ref":"c"}`, "https://example.com/a/c"},
		"a file":            {`{"$ref":"file:///etc/hostname"}`, "nothing is fetched"},
		"a path":            {`{"$ref":"other.json"}`, "nothing is fetched"},
		"a language":        {`{"$schema":"https://example.com/lang"}`, "nothing is fetched"},
		"nowhere":           {`{"$ref":"#/$defs/a"}`, ""},
		"a look-ahead":      {`{"pattern":"(?=a)"}`, ""},
		"dynamic":           {`{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"}}`, "use $ref"},
		"the meta schema":   {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "use $ref"},
		"a huge exponent":   {`{"maximum":1e99999}`, "exponent"},
		"more than a limit": {`{"description":"` + strings.Repeat("x", MaxSchema) + `"}`, "at most"},
	} {
		s, err := Compile([]byte(test.schema))
		if !errors.Is(err, ErrSchema) || s != nil || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 500 {
			t.Errorf("%s: Compile = %v, %v, want an error that says %q", name, s, err, test.says)
		}
	}
}

// bombs are small schemas that ask for far more work than anybody has time for.
func bombs() map[string][2]string {
	both := func(op string, depth int, leaf string) string {
		var b strings.Builder
		b.WriteString(`{"$defs":{`)
		for i := range depth {
			fmt.Fprintf(&b, `"a%d":{"%s":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, op, i+1, i+1)
		}
		fmt.Fprintf(&b, `"a%d":%s},"$ref":"#/$defs/a0"}`, depth, leaf)
		return b.String()
	}
	nested := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	nestedObject := strings.Repeat(`{"ab":`, 200) + "1" + strings.Repeat("}", 200)
	return map[string][2]string{
		"allOf":           {both("allOf", 60, `true`), `1`},
		"anyOf, no luck":  {both("anyOf", 60, `{"type":"string"}`), `1`},
		"oneOf":           {both("oneOf", 60, `false`), `1`},
		"not anyOf":       {strings.Replace(both("anyOf", 60, `{"type":"string"}`), `"$ref":"#/$defs/a0"}`, `"not":{"$ref":"#/$defs/a0"}}`, 1), `1`},
		"contains, items": {`{"contains":{"$ref":"#"},"items":{"$ref":"#"}}`, nested},
		"not, in a list":  {`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"contains":{"$ref":"#/$defs/a"},"prefixItems":[{"$ref":"#/$defs/a"}],"items":{"$ref":"#/$defs/a"},"minItems":1}}}`, nested},
		"patterns":        {`{"patternProperties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`, nestedObject},
		"not, patterns":   {`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"object","patternProperties":{"a":{"$ref":"#/$defs/a"},"b":{"$ref":"#/$defs/a"}}}}}`, nestedObject},
		"wide":            {both("allOf", 60, `{"type":"array"}`), `[1]`},
	}
}

// TestBombs: a check ends whatever the schema asks for.
func TestBombs(t *testing.T) {
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			s, err := Compile([]byte(bomb[0]))
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := s.Check(t.Context(), []byte(bomb[1])); !errors.Is(err, ErrUndecided) {
				t.Errorf("Check = %v, want ErrUndecided", err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	s, err := Compile([]byte(bombs()["allOf"][0]))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(ctx, []byte(`1`)); !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v", err)
	}
	// A check that was stopped leaves nothing behind.
	if err := s.Check(t.Context(), []byte(`1`)); !errors.Is(err, ErrUndecided) {
		t.Errorf("the next check = %v", err)
	}
}

// TestSuite runs a draft of the public JSON Schema test suite, whose folder of
// .json files LEAFPROOF_JSONSCHEMA_SUITE names. Schemas that refer outside
// themselves are passed over.
func TestSuite(t *testing.T) {
	dir := os.Getenv("LEAFPROOF_JSONSCHEMA_SUITE")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Skip("the suite is not at hand")
	}
	ran, passed := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Schema json.RawMessage
			Tests  []struct {
				Description string
				Data        json.RawMessage
				Valid       bool
			}
		}
		if err := json.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			s, err := Compile(g.Schema)
			if err != nil {
				passed += len(g.Tests)
				continue
			}
			for _, c := range g.Tests {
				ran++
				if err := s.Check(t.Context(), c.Data); (err == nil) != c.Valid {
					t.Errorf("%s: %s: %s: %v", filepath.Base(file), c.Description, c.Data, err)
				}
			}
		}
	}
	t.Logf("%d cases, %d passed over", ran, passed)
}

func BenchmarkCheck(b *testing.B) {
	s, err := Compile([]byte(`{"type":"object","required":["status"],"properties":{"status":{"enum":["open","closed"]},"n":{"type":"integer"},"title":{"type":"string","maxLength":200}}}`))
	if err != nil {
		b.Fatal(err)
	}
	value := []byte(`{"id":"e-000001","status":"open","n":17,"title":"disk full on host 12","at":"2026-11-06T04:40:00Z","tags":["a","b"]}`)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Check(b.Context(), value); err != nil {
			b.Fatal(err)
		}
	}
}
