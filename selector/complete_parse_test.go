package selector_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

// TestParseNormalised reads back the normal form of random conditions: the
// condition that comes has the same form, and decides every record as the first.
func TestParseNormalised(t *testing.T) {
	g := newGen(11)
	l := selector.Layout{Format: selector.FormatNDJSON}
	conditions := []string{
		`{"field":"/a/0","equals":"x"}`, `{"field":"/é~1/01","contains":"\u007f"}`, `{"field":"/\u2028","equals":"\u2028"}`,
		`@["\u2028"] == @["\u2028"]["\u007f"]`, `"\u2028" == @.a`, `match(@.a, "a.*")`, `search(@.a, @.b)`, `match("x", "[x]")`, `length(@.a) > count(@..*)`,
		`value(@.*) != null`, `@[?@.a == $.b][::-1] `, `@[1:5:2, -1, 'k', *]`, `@..[?length(@) >= 1e3]`, `1 < 2`, `!(@.a < 0.5e-9)`, `!(@.a == 1 || !(@.b && $.c)) && (@.d || @.e)`,
		`((@.a || @.b) && (@.b || @.a)) || @.c`, `(@.a && @.a) || (@.b && !!@.b)`, `@[?((@.a || @.b) && (@.a || @.b)) || @.c]`,
	}
	for len(conditions) < 2000 {
		conditions = append(conditions, g.expr(3).text)
	}
	read := 0
	for _, text := range conditions {
		w, err := selector.ParseWhere(text)
		if err != nil {
			continue
		}
		read++
		normal := w.Normalised(l)
		q, err := selector.ParseNormalised(normal, l)
		if err != nil {
			t.Fatalf("%s: %s: %v", text, normal, err)
		}
		if got := q.Where.Normalised(l); !bytes.Equal(got, normal) {
			t.Fatalf("%s:\n%s came back as\n%s", text, normal, got)
		}
		if shown := q.Where.String(); !strings.Contains(shown, "pointer ") && !strings.Contains(shown, "contains(") {
			// What people are shown says what is evaluated.
			again, err := selector.ParseWhere(shown)
			if err != nil {
				t.Errorf("%s is shown as %s, which is no condition: %v", text, shown, err)
			} else if got := again.Normalised(l); !bytes.Equal(got, normal) {
				t.Errorf("%s is shown as %s, which says another thing:\n%s\n%s", text, shown, got, normal)
			}
		}
		for range 5 {
			r := []byte(g.record())
			if got, want := q.Where.Eval(r, l), w.Eval(r, l); got != want {
				t.Fatalf("%s, read back from %s: %s is %v, want %v", text, normal, r, got, want)
			}
		}
	}
	if read < 1000 {
		t.Errorf("only %d of %d conditions were read", read, len(conditions))
	}
}

// TestParseNormalisedOrder reads back orders.
func TestParseNormalisedOrder(t *testing.T) {
	l := selector.Layout{Format: selector.FormatJSON, Pointer: "/items"}
	for _, orders := range [][]string{nil, {"/a"}, {"/a:desc", "/b/0"}, {"/a:desc:asc"}, {"@['0'][1]:desc"}, {"@.a"}, {"/\u2028:desc"}} {
		var q selector.Query
		for _, text := range orders {
			o, err := selector.ParseOrder(text)
			if err != nil {
				t.Fatal(err)
			}
			q.Order = append(q.Order, o)
		}
		normal := q.Normalised(l)
		back, err := selector.ParseNormalised(normal, l)
		if err != nil {
			t.Fatalf("%q: %v", orders, err)
		}
		for i, o := range back.Order {
			again, err := selector.ParseOrder(o.String())
			if err != nil || again.Descending() != o.Descending() || q.Order[i].Descending() != o.Descending() {
				t.Errorf("%q came back as %q: %v", orders[i], o, err)
			}
		}
	}
}

// TestParseNormalisedRefuses refuses what is no normal form: each case alters one.
func TestParseNormalisedRefuses(t *testing.T) {
	l := selector.Layout{Format: selector.FormatNDJSON}
	const head, foot = `{"at":"","engine":"1","format":"ndjson","order":["document"],"where":`, `}`
	if _, err := selector.ParseNormalised([]byte(head+`["eq","/a",["n","1"]]`+foot), l); err != nil {
		t.Fatal(err)
	}
	deep := bytes.Repeat([]byte(`["not",`), 2000)
	deep = append(append(deep, `["exists","/a"]`...), bytes.Repeat([]byte("]"), 2000)...)
	bad := []string{
		``, `null`, `[]`, head + `1` + foot, head + `[]` + foot, head + `["eq"]` + foot, head + `["eq","/a"]` + foot,
		head + `["eq","/a",["n","1.0"]]` + foot, head + `["eq","/a",["n",1]]` + foot, head + `["eq","/a",["n","1"],[]]` + foot, head + `["eq","a",["n","1"]]` + foot,
		head + `["eq",["n","1"],"/a"]` + foot, head + `["and",["eq","/a",["n","1"]]]` + foot, head + `["and",["exists","/b"],["exists","/a"]]` + foot,
		head + `["not",["not",["exists","/a"]]]` + foot, head + `["exists",["n","1"]]` + foot, head + `["lt",["path",["w"]],["n","1"]]` + foot,
		head + `["contains","/a",["n","1"]]` + foot, head + `["nor","/a",["n","1"]]` + foot, head + `["eq","/a",["true","x"]]` + foot, head + `["eq","/a",["x","6"]]` + foot,
		head + `["eq","/a",["x","61"]]` + foot, head + `["exists",["path",["k","a"]]]` + foot, head + `["match","/a",["s","` + string(bytes.Repeat([]byte("a"), 5000)) + `"]]` + foot,
		head + ` ["eq","/a",["n","1"]]` + foot, head + `["eq","/a",["n","1"]]` + foot + "\n", head + `["eq","/a",["n","1"]],"z":"1"` + foot, head + string(deep) + foot,
		`{"at":"","engine":"2","format":"ndjson","order":["document"],"where":["and"]}`, `{"at":"/a","engine":"1","format":"ndjson","order":["document"],"where":["and"]}`,
		`{"at":"","engine":"1","format":"ndjson","order":[],"where":["and"]}`, `{"at":"","engine":"1","format":"ndjson","order":[["up","/a"],"document"],"where":["and"]}`,
		`{"at":"","engine":"1","format":"ndjson","order":["document"],"select":["/a"],"where":["and"]}`,
	}
	for _, text := range bad {
		if q, err := selector.ParseNormalised([]byte(text), l); !errors.Is(err, selector.ErrSelector) {
			t.Errorf("%.120s: %v, %v", text, q, err)
		}
	}
	if !slices.Contains(bad, "") {
		t.Error("the empty text is not tried")
	}
}
