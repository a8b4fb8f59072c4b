package selector_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"leafproof/selector"
)

func find(t *testing.T, doc, pointer string) (string, error) {
	t.Helper()
	s, err := selector.FindPointer(t.Context(), strings.NewReader(doc), int64(len(doc)), pointer)
	if err != nil {
		if s != (selector.Span{}) {
			t.Errorf("FindPointer failed with %v and returned %v", err, s)
		}
		return "", err
	}
	return doc[s.Start:s.End], nil
}

func TestFindPointer(t *testing.T) {
	// RFC 6901 section 5, with white space that must not be in the spans.
	const rfc = ` { "foo": ["bar", "baz"], "": 0, "a/b": 1 , "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8 } `
	for name, test := range map[string]struct {
		doc, pointer, want string
		err                error
	}{
		"whole":                  {rfc, "", strings.TrimSpace(rfc), nil},
		"array":                  {rfc, "/foo", `["bar", "baz"]`, nil},
		"element":                {rfc, "/foo/0", `"bar"`, nil},
		"empty name":             {rfc, "/", `0`, nil},
		"slash":                  {rfc, "/a~1b", `1`, nil},
		"percent":                {rfc, "/c%d", `2`, nil},
		"caret":                  {rfc, "/e^f", `3`, nil},
		"bar":                    {rfc, "/g|h", `4`, nil},
		"backslash":              {rfc, "/i\\j", `5`, nil},
		"quote":                  {rfc, "/k\"l", `6`, nil},
		"space":                  {rfc, "/ ", `7`, nil},
		"tilde":                  {rfc, "/m~0n", `8`, nil},
		"~01 is ~1":              {`{"~1":5,"/":6}`, "/~01", `5`, nil},
		"past the end":           {rfc, "/foo/2", "", selector.ErrPointer},
		"dash":                   {rfc, "/foo/-", "", selector.ErrPointer},
		"leading zero":           {rfc, "/foo/01", "", selector.ErrPointer},
		"plus":                   {rfc, "/foo/+1", "", selector.ErrPointer},
		"2^64":                   {rfc, "/foo/18446744073709551616", "", selector.ErrPointer},
		"name on an array":       {rfc, "/foo/bar", "", selector.ErrPointer},
		"into a scalar":          {rfc, "/a~1b/0", "", selector.ErrPointer},
		"index as a name":        {`{"0":1,"01":2}`, "/01", `2`, nil},
		"null is there":          {`{"a":null}`, "/a", `null`, nil},
		"escaped name":           {`{"\u00e4\ud83d\ude00":1}`, "/ä😀", `1`, nil},
		"lone surrogate name":    {`{"\ud83d":1}`, "/\ufffd", "", selector.ErrPointer},
		"BOM":                    {"\xef\xbb\xbf[1]", "/0", `1`, nil},
		"no slash":               {rfc, "foo", "", selector.ErrSelector},
		"bad tilde":              {rfc, "/~2", "", selector.ErrSelector},
		"tilde at the end":       {rfc, "/a~", "", selector.ErrSelector},
		"invalid UTF-8":          {rfc, "/\xff", "", selector.ErrSelector},
		"duplicate":              {`{"a":1,"a":2}`, "/a", "", selector.ErrUndecidable},
		"duplicate, escaped":     {`{"a":1,"\u0061":2}`, "/a", "", selector.ErrUndecidable},
		"duplicate above":        {`{"a":{"b":1},"a":2}`, "/a/b", "", selector.ErrUndecidable},
		"duplicate of a missing": {`{"a":2,"a":{"b":1}}`, "/a/b", "", selector.ErrUndecidable},
		"duplicate elsewhere":    {`{"a":1,"b":2,"b":3}`, "/a", `1`, nil},
		"duplicate below":        {`{"a":{"b":2,"b":3}}`, "/a", `{"b":2,"b":3}`, nil},
		"syntax behind":          {`{"a":1,}`, "/a", "", selector.ErrUndecidable},
		"two values":             {`{"a":1}{"a":2}`, "/a", "", selector.ErrUndecidable},
		"empty":                  {``, "", "", selector.ErrUndecidable},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := find(t, test.doc, test.pointer)
			if !errors.Is(err, test.err) || got != test.want {
				t.Errorf("FindPointer(%q, %q) = %q, %v; want %q, %v", test.doc, test.pointer, got, err, test.want, test.err)
			}
		})
	}
}

// The test and remove operations of the JSON Patch suites say what stands, or
// does not stand, at a pointer.
func TestPatchSuites(t *testing.T) {
	type op struct {
		Op    string          `json:"op"`
		Path  *string         `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	ran := 0
	for _, file := range []string{"tests.json", "spec_tests.json"} {
		var cases []struct {
			Comment string          `json:"comment"`
			Doc     json.RawMessage `json:"doc"`
			Patch   []op            `json:"patch"`
			Error   string          `json:"error"`
		}
		if err := json.Unmarshal(read(t, vectors(t, filepath.Join("json/json-patch-tests", file))), &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			ok, only := true, len(c.Patch) > 0
			for _, o := range c.Patch {
				if o.Path == nil || o.Op != "test" && (o.Op != "remove" || len(c.Patch) > 1) || o.Op == "test" && o.Value == nil {
					only = false
					break
				}
				got, err := find(t, string(c.Doc), *o.Path)
				ok = ok && err == nil && (o.Op == "remove" || reflect.DeepEqual(decode(t, got), decode(t, string(o.Value))))
			}
			if !only {
				continue
			}
			ran++
			if ok != (c.Error == "") {
				t.Errorf("%s %q: doc %s: %v, want error %q", file, c.Comment, c.Doc, ok, c.Error)
			}
		}
	}
	if ran < 20 {
		t.Errorf("only %d cases ran", ran)
	}
}

func decode(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPointerGrammar(t *testing.T) {
	var groups []struct {
		Tests []struct {
			Description string `json:"description"`
			Data        any    `json:"data"`
			Valid       bool   `json:"valid"`
		} `json:"tests"`
	}
	if err := json.Unmarshal(read(t, vectors(t, "json/json-schema/tests/draft2020-12/optional/format/json-pointer.json")), &groups); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, g := range groups {
		for _, c := range g.Tests {
			s, ok := c.Data.(string)
			if !ok {
				continue
			}
			ran++
			if err := selector.CheckPointer(s); (err == nil) != c.Valid {
				t.Errorf("%s: CheckPointer(%q) = %v", c.Description, s, err)
			}
		}
	}
	if ran < 25 {
		t.Errorf("only %d cases ran", ran)
	}
}

// slowFind is the twin: decode, then walk.
func slowFind(v any, pointer string) (any, bool) {
	for _, tok := range strings.Split(pointer, "/")[1:] {
		tok = strings.NewReplacer("~1", "/", "~0", "~").Replace(tok)
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[tok]; !ok {
				return nil, false
			}
		case []any:
			i := strings.Index("0123456789", tok)
			if len(tok) != 1 || i < 0 || i >= len(x) {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func TestRandomPointers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	names := []string{"a", "b", "0", "1", "~", "/", "é", `"`}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := rng.IntN(5); {
		case depth > 3 || n == 0:
			return []any{nil, true, 1.5, "x\"y\\", strings.Repeat("z", rng.IntN(50))}[rng.IntN(5)]
		case n < 3:
			list := []any{}
			for range rng.IntN(4) {
				list = append(list, value(depth+1))
			}
			return list
		}
		m := map[string]any{}
		for range rng.IntN(5) {
			m[names[rng.IntN(len(names))]] = value(depth + 1)
		}
		return m
	}
	for range 3000 {
		v := value(0)
		doc, err := json.MarshalIndent(v, "", strings.Repeat(" ", rng.IntN(3)))
		if err != nil {
			t.Fatal(err)
		}
		if rng.IntN(2) == 0 {
			doc = bytes.ReplaceAll(doc, []byte("é"), []byte(`\u00E9`))
		}
		pointer := ""
		for range rng.IntN(4) {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(names[rng.IntN(len(names))])
		}
		want, ok := slowFind(v, pointer)
		got, err := find(t, string(doc), pointer)
		if ok != (err == nil) || ok && !reflect.DeepEqual(decode(t, got), want) {
			t.Fatalf("FindPointer(%s, %q) = %s, %v; want %v, %v", doc, pointer, got, err, want, ok)
		}
	}
}
