package selector_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

// Nodes are spans of the document, in its order, with paths and pointers.
func TestNodes(t *testing.T) {
	doc := []byte("\xef\xbb\xbf" + ` {"b" : [ 1 , {"x\u0041'\\\n/~":2.50} ] ,"a":{"c":null}} `)
	p, err := selector.ParsePath("$..*")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for n, err := range p.Nodes(t.Context(), doc) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n.Path()+" "+n.Pointer()+" "+string(doc[n.Span.Start:n.Span.End]))
	}
	want := []string{
		`$['b'] /b [ 1 , {"x\u0041'\\\n/~":2.50} ]`,
		`$['a'] /a {"c":null}`,
		`$['b'][0] /b/0 1`,
		`$['b'][1] /b/1 {"x\u0041'\\\n/~":2.50}`,
		`$['b'][1]['xA\'\\\n/~'] /b/1/xA'\` + "\n" + `~1~0 2.50`,
		`$['a']['c'] /a/c null`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	n := 0
	for range p.Nodes(t.Context(), doc) {
		if n++; n == 2 {
			break
		}
	}
	if p.String() != "$..*" || p.Singular() || n != 2 {
		t.Error(p.String(), p.Singular(), n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range p.Nodes(ctx, doc) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	for path, doc := range map[string]string{
		"$.a":          `{"a":1,"a":2}`,
		"$.*":          `{"b":0,"a":1,"\u0061":2}`,
		"$..b":         `{"a":{"c":1,"c":1}}`,
		"$[?@ == 'x']": `["\ud800"]`,
		"$[?@ == 1]":   `[1e1000001]`,
		"$":            `{"a":1}x`,
		"$[0]":         `[1`,
		"$[1]":         "[1,\"\xff\"]",
		"$[2]":         strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		"$[3]":         ``,
	} {
		if _, _, err := nodes(t, path, []byte(doc)); !errors.Is(err, selector.ErrUndecidable) {
			t.Errorf("%s on %.30s: %v, want ErrUndecidable", path, doc, err)
		}
	}
	for path, doc := range map[string]string{
		"$.b":                              `{"a":1,"a":2,"b":1}`,
		"$" + strings.Repeat("[0]", 9_999): strings.Repeat("[", 10_000) + "1" + strings.Repeat("]", 10_000),
		"$[0].*":                           `[{"x":"\ud800"}]`,
	} {
		if texts, _, err := nodes(t, path, []byte(doc)); err != nil || len(texts) != 1 {
			t.Errorf("%.30s on %.30s: %q, %v", path, doc, texts, err)
		}
	}
}

// Selections give the record's own bytes.
func TestSelection(t *testing.T) {
	csv := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b/c", "d", "d"}}}
	bare := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}}
	nd, text := layout(t, "ndjson", "", nil), selector.Layout{Format: "text"}
	for name, test := range map[string]struct {
		l            selector.Layout
		from, record string
		want         string
		undecidable  bool
	}{
		"pointer":         {nd, "/a/1", `{"a":[1,2.0]}`, "$['a'][1] 2.0", false},
		"pointer, a name": {nd, "/a/1", `{"a":{"1":"x"}}`, `$['a']['1'] "x"`, false},
		"record":          {nd, "", ` {"a":1} `, `$ {"a":1}`, false},
		"nothing":         {nd, "/b", `{"a":1}`, "", false},
		"path":            {nd, "$.a[?@ > 1]", `{"a":[1,2, 3]}`, "$['a'][1] 2|$['a'][2] 3", false},
		"path from @":     {nd, "@..x", `{"a":[{"x":1},{"x":2}]}`, "$['a'][0]['x'] 1|$['a'][1]['x'] 2", false},
		"twice":           {nd, "/a", `{"a":1,"\u0061":2}`, "", true},
		"partly told":     {nd, "@.a[?@.x == 1]", `{"a":[{"x":1},{"x":1,"x":1}]}`, "", true},
		"does not parse":  {nd, "/a", `{"a":1`, "", true},
		"column":          {csv, "/a", `x,"y"`, "$['a'] x", false},
		"column, quoted":  {csv, "/b~1c", `x,"y,""z"`, `$['b/c'] "y,""z"`, false},
		"short row":       {csv, "/b~1c", `x`, "", false},
		"columns alike":   {csv, "/d", `x,y,z,z`, "", true},
		"broken row":      {csv, "/b~1c", `x,"y"z`, "", true},
		"by position":     {bare, "/1", `x,y`, "$[1] y", false},
		"line":            {text, "", `a line`, "$ a line", false},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := selector.ParseSelect(test.from)
			if err != nil {
				t.Fatal(err)
			}
			s, err := from.Selection(test.l)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the room is used again
				var got []string
				ok := s.Each([]byte(test.record), func(n selector.Node) bool {
					got = append(got, n.Path()+" "+test.record[n.Span.Start:n.Span.End])
					return true
				})
				if strings.Join(got, "|") != test.want || ok == test.undecidable {
					t.Errorf("%q, told %v; want %q", got, ok, test.want)
				}
			}
		})
	}
	for from, l := range map[string]selector.Layout{"/z": csv, "/a/b": csv, "@.*": csv, "/a": text, "/x": bare} {
		s, err := selector.ParseSelect(from)
		if err != nil {
			t.Fatal(err)
		}
		sel, err := s.Selection(l)
		wantSelector(t, sel == nil, err, from)
	}
	var list []*selector.Select
	for _, s := range []string{"/a", "$.a[*]", "@[?@.x == 1.0]"} {
		sel, err := selector.ParseSelect(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, sel)
	}
	q := selector.Query{Where: where(t, "@.a"), Select: list}
	want := `{"at":"","engine":"1","format":"ndjson","order":["document"],"select":["/a",["path",["k","a"],["w"]],["path",["f",["eq","/x",["n","1"]]]]],"where":["exists","/a"]}`
	if got := string(q.Normalised(nd)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The syntax of RFC 9485, and what it means, by way of match().
func TestPatterns(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	for pattern, test := range map[string]struct{ yes, no string }{
		`a.c`:            {"abc a\u2028c a😀c", "a\nc a\rc ac abcd"},
		`a*b+c?`:         {"b aabbc", "a acc"},
		`a{2}`:           {"aa", "a aaa"},
		`a{2,}`:          {"aa aaaaa", "a"},
		`a{0,2}`:         {" a aa", "aaa"},
		`(ab|c)*`:        {" abcab", "a"},
		`a|`:             {"a ", "b"},
		`()`:             {"", "a"},
		`[a-cx]`:         {"b x", "d -"},
		`[^a-c]`:         {"d \n", "a"},
		`[-a]`:           {"- a", "b"},
		`[a-]`:           {"- a", "b"},
		`[^-]`:           {"a", "-"},
		`[\]\[\^\\]`:     {"] [ ^ \\", "a"},
		`[.$&&]`:         {". $ &", "a"},
		`\p{Lu}\P{L}`:    {"A1 É-", "a1 AA"},
		`[\p{Nd}_]+`:     {"1_٣", "a"},
		`[^\p{L}]`:       {"1", "a"},
		`\n\r\t\.\-\|`:   {"\n\r\t.-|", "n"},
		`\(\)\*\+\?\{\}`: {"()*+?{}", "x"},
		`a/"'<#é😀`:       {"a/\"'<#é😀", "a"},
		`\p{C}`:          {"\u0001", "a"},
		"":               {"", "a"},
	} {
		w := where(t, `match(@.s, @.p)`)
		for want, list := range map[selector.Outcome]string{selector.Matched: test.yes, selector.Unmatched: test.no} {
			for s := range strings.SplitSeq(list, " ") {
				record := `{"s":` + jsonOf(t, s) + `,"p":` + jsonOf(t, pattern) + `}`
				if got := w.Eval([]byte(record), nd); got != want {
					t.Errorf("%q on %q: %v, want %v", pattern, s, got, want)
				}
			}
		}
	}
	for _, bad := range []string{
		"*", "a**", "a*?", "a{", "a{}", "a{,2}", "a{2,1}", "a{x}", "a}", "(a", "a)", "[", "[]", "[^]", "[a", "[b-a]", "[a-b-c]", "[--a]", "]", `\`, `\d`, `\w`, `\b`, `\x41`, `\u0041`,
		`\p`, `\p{`, `\p{}`, `\p{Q}`, `\p{Lx}`, `\p{Latin}`, `\pL`, `[a&&\d]`, "(?i)a", "(?:a)", "a++", "+", "?", "{1}", "|*",
	} {
		w := where(t, `search(@.s, `+jsonOf(t, bad)+`)`)
		if got := w.Eval([]byte(`{"s":"a]}^"}`), nd); got != selector.Unmatched {
			t.Errorf("%q: %v", bad, got)
		}
		err := w.Fits(nd)
		wantSelector(t, true, err, bad)
	}
}

// What cannot be told is undecidable everywhere alike: in a condition, as a key
// of an index or an order, selected, at a pointer and on a path.
func TestAlike(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	from, err := selector.ParseSelect("/a")
	if err != nil {
		t.Fatal(err)
	}
	selection, err := from.Selection(nd)
	if err != nil {
		t.Fatal(err)
	}
	by, err := selector.ParseOrder("/a")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := selector.NewKeys(nd, []*selector.Order{by})
	if err != nil {
		t.Fatal(err)
	}
	index, err := selector.ParseKeyPath("/a")
	if err != nil {
		t.Fatal(err)
	}
	maker, err := index.Maker(nd, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":1,"b":{},"a":1}`, `{"a":2}TRAILER`, `{"a":2`, strings.Repeat("[", 100_000),
	} {
		for _, c := range []string{`@.a == 1`, `@.a`, `!@.a`, `@.a > 1`, `@.*`, `@..a`, `count(@.a) == 1`, `{"field":"/a","equals":1}`} {
			if got := where(t, c).Eval([]byte(record), nd); got != selector.Undecidable {
				t.Errorf("%s on %.30s: %v", c, record, got)
			}
		}
		if selection.Each([]byte(record), func(selector.Node) bool { return true }) {
			t.Errorf("%.30s: selected", record)
		}
		if _, got := keys.Append(nil, []byte(record), false); got != selector.Undecidable {
			t.Errorf("%.30s: ordered: %v", record, got)
		}
		if key := keysOf(t, maker, record, false); len(key) != 1 || key[0] != "e1" && key[0] != "e2" {
			t.Errorf("%.30s: indexed as %s", record, key)
		}
		if _, err := selector.FindPointer(t.Context(), strings.NewReader(record), int64(len(record)), "/a"); !errors.Is(err, selector.ErrUndecidable) {
			t.Errorf("%.30s: at a pointer: %v", record, err)
		}
		for _, path := range []string{"$.a", "$.*", "$..a"} {
			if _, _, err := nodes(t, path, []byte(record)); !errors.Is(err, selector.ErrUndecidable) {
				t.Errorf("%.30s: %s: %v", record, path, err)
			}
		}
	}
}
