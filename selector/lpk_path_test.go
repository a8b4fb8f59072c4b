package selector_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

func keysOf(t *testing.T, m *selector.KeyMaker, record string, trusted bool) []string {
	t.Helper()
	var out []string
	m.Keys([]byte(record), trusted, func(key []byte) { out = append(out, hex.EncodeToString(key)) })
	return out
}

func TestKeyMaker(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	csv := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b", "b"}}}
	for name, test := range map[string]struct {
		l            selector.Layout
		path, record string
		want         string
	}{
		"value":                 {nd, "/a", `{"a":"x"}`, "50780000"},
		"missing":               {nd, "/a", `{"b":"x"}`, "10"},
		"null":                  {nd, "/a", `{"a":null}`, "20"},
		"ambiguous":             {nd, "/a", `{"a":1,"\u0061":2}`, "e1"},
		"ambiguous elsewhere":   {nd, "/a", `{"a":true,"b":1,"b":2}`, "31"},
		"ambiguous above":       {nd, "/a/b", `{"a":{},"a":{"b":1}}`, "e1"},
		"unparseable":           {nd, "/a", `{"a":1`, "e2"},
		"surrogate":             {nd, "/a", `{"a":"\ud800"}`, "e2"},
		"too many digits":       {nd, "/a", `{"a":` + strings.Repeat("1", 1025) + `}`, "e2"},
		"array":                 {nd, "/a", `{"a":[1]}`, "60"},
		"from the end":          {nd, "@.a[-1]", `{"a":[1,"x"]}`, "50780000"},
		"each":                  {nd, "$.a[*]", `{"a":["x",null,"x"]}`, "50780000 20 50780000"},
		"each of none":          {nd, "$.a[*]", `{"a":[]}`, "10"},
		"each of a missing":     {nd, "$.a[*].b", `{}`, "10"},
		"each, one ambiguous":   {nd, "$.a[*].b", `{"a":[{"b":true},{"b":1,"b":1}]}`, "31 e1"},
		"each, one unparseable": {nd, "$.a[*]", `{"a":[true,"\ud800"]}`, "31 e2"},
		"column":                {csv, "/a", `x,y`, "50780000"},
		"columns alike":         {csv, "/b", `x,y`, "e1"},
		"broken row":            {csv, "/a", `x,"y"z`, "e2"},
		"line":                  {selector.Layout{Format: "text"}, "", `x`, "50780000"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := selector.ParseKeyPath(test.path)
			if err != nil {
				t.Fatal(err)
			}
			var redacted []string
			if test.path != "" {
				redacted = append(redacted, "/c")
			}
			m, err := p.Maker(test.l, redacted)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(keysOf(t, m, test.record, false), " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if p.Scalar() == strings.Contains(test.path, "*") || p.String() != test.path {
				t.Error(p.Scalar(), p.String())
			}
			if m, err = p.Maker(test.l, []string{test.path, "/a/0", "/b"}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(keysOf(t, m, test.record, false), " "); got != "e0" {
				t.Errorf("redacted: %s", got)
			}
		})
	}
	for _, s := range []string{"a", "$..a", "@[?@.x]", "@[0:1]", "@['a','b']", "@.a["} {
		p, err := selector.ParseKeyPath(s)
		wantSelector(t, p == nil, err, s)
	}
	for s, want := range map[string]string{"/a": `"/a"`, "$.a[*]": `["path",["k","a"],["w"]]`, "@.a[0]": `["path",["k","a"],["i","0"]]`, "/a/0": `"/a/0"`} {
		p, err := selector.ParseKeyPath(s)
		if err != nil || string(p.Normalised()) != want {
			t.Errorf("%s: %s, %v", s, p.Normalised(), err)
		}
	}
}

// A scalar path has one key a record, the one of the value that the twin finds;
// its tail is what a comparison finds undecidable.
func TestKeyMakerTwin(t *testing.T) {
	g := newGen(18)
	nd := layout(t, "ndjson", "", nil)
	tail := 0
	for range 4_000 {
		q := g.query(true, 0)
		p, err := selector.ParseKeyPath(q.text)
		if err != nil {
			t.Fatalf("%s: %v", q.text, err)
		}
		m, err := p.Maker(nd, nil)
		if err != nil {
			t.Fatal(err)
		}
		record := g.record()
		d := decoded([]byte(record))
		v := twin{d}.value(q.form, d)
		got := keysOf(t, m, record, false)
		told := where(t, q.text+" == 'x'").Eval([]byte(record), nd)
		key, _ := hex.DecodeString(got[0])
		switch {
		case len(got) != 1:
			t.Fatalf("%s on %s: %s", q.text, record, got)
		case selector.KeyDetermined(key) != (v != undecidable) || selector.KeyDetermined(key) != (told != selector.Undecidable):
			t.Fatalf("%s on %s: %s, value %v, == %v", q.text, record, got, v, told)
		case !selector.KeyDetermined(key):
			tail++
		case (v == nil) != (got[0] == "10"), v != nil && v.kind == '"' && got[0] != hex.EncodeToString(selector.AppendTextKey(nil, v.str)):
			t.Fatalf("%s on %s: %s, value %v", q.text, record, got, v)
		}
		if d.told() && !slices.Equal(got, keysOf(t, m, record, true)) {
			t.Fatalf("%s on %s: trusted %s, checked %s", q.text, record, keysOf(t, m, record, true), got)
		}
	}
	if tail < 20 {
		t.Errorf("only %d in the tail", tail)
	}
}
