package fuzz_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/selector"
)

// FuzzPath: a path is refused with a place inside it, or selects values of the
// document: each is one JSON value, stands at its JSON Pointer, and is the one
// that its normalized path selects.
func FuzzPath(f *testing.F) {
	for _, s := range [][2]string{
		{`$..a[?@.b > 1, -1, ::2]`, `{"a":[{"b":2},{"b":1}],"c":{"a":[1,2,3]}}`},
		{`$['\u0061',"b"][*]`, `{"a":{"x":"\ud83d\ude00"},"b":[true,null]}`},
		{`$[?match(@, "[a-c]+") && !(@ == $[0])]`, `["abc","b",1e0]`},
		{`$[?count(@..*) >= length(value($..x))]`, `[[1,[2]],{"x":"y"}]`},
		{`$[9007199254740991:-9007199254740991:-1]`, `[[],{}]`},
		{`$.a`, `{"a":1,"\u0061":2}`},
	} {
		f.Add(s[0], []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, path string, doc []byte) {
		p, err := selector.ParsePath(path)
		if err != nil {
			selectorTyped(t, err, selector.ErrSelector)
			return
		}
		n := 0
		for node, err := range p.Nodes(t.Context(), doc) {
			if err != nil {
				selectorTyped(t, err, selector.ErrUndecidable)
				return
			}
			if n++; n > 100 {
				return
			}
			value := doc[node.Span.Start:node.Span.End]
			if !jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || len(bytes.TrimSpace(value)) != len(value) {
				t.Fatalf("%s on %q: a node %q", path, doc, value)
			}
			at, err := selector.FindPointer(t.Context(), bytes.NewReader(doc), int64(len(doc)), node.Pointer())
			if err != nil || at != node.Span {
				t.Fatalf("%s on %q: %s is at %v, the node at %v: %v", path, doc, node.Pointer(), at, node.Span, err)
			}
			one, err := selector.ParsePath(node.Path())
			if err != nil || !one.Singular() {
				t.Fatalf("%s: normalized to %s: %v", path, node.Path(), err)
			}
			for again, err := range one.Nodes(t.Context(), doc) {
				if err != nil || again.Span != node.Span {
					t.Fatalf("%s on %q: %s selects %v: %v", path, doc, node.Path(), again.Span, err)
				}
			}
		}
	})
}

// FuzzEval: on any bytes the trusting path stays within them, and on a record
// without a fault it decides as the checking one does; a condition and its
// double negation decide alike and have one name.
func FuzzEval(f *testing.F) {
	for _, s := range [][2]string{
		{`@.a == "x" && @.b[1] >= 2`, `{"c":{"d":"}]\"","e":[{}]},"a":"\u0078","b":[1,2.0]}`},
		{`@.a.b == 1 || @.a`, `{"a" : {"b":1e0} }`},
		{`search(@.a, "x+") || @..b == 1`, `{"a":"xx"}`},
		{`@[?@.x == $.y][0]`, `{"y":1,"z":{"x":1}}`},
		{`{"field":"/a/0","contains":"é"}`, `{"a":["\u00e9"]}`},
		{`length(@.a) < count(@.*)`, `{"a":{"b":1,"b":2}}`},
	} {
		f.Add(s[0], []byte(s[1]))
	}
	l, err := selector.NewLayout(selector.FormatNDJSON, "", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string, record []byte) {
		w, err := selector.ParseWhere(s)
		if err != nil {
			return
		}
		e, err := w.Evaluator(l)
		if err != nil {
			t.Fatal(err)
		}
		quick, slow := e.EvalTrusted(record), e.Eval(record)
		if jsontext.Value(record).IsValid() && len(record) < 100_000 && !bytes.ContainsAny(record, "eE") && bytes.Count(record, []byte("["))+bytes.Count(record, []byte("{")) < 500 && quick != slow {
			t.Fatalf("%s on %q: %v, trusted %v", s, record, slow, quick)
		}
		if again := e.Eval(record); again != slow {
			t.Fatalf("%s on %q: %v, then %v", s, record, slow, again)
		}
		if strings.TrimLeft(s, " \t\r\n")[0] == '{' || len(s) > 1000 {
			return
		}
		twice, err := selector.ParseWhere("!(!(" + s + "))")
		if err != nil {
			return // nested too deeply
		}
		if twice.QID(l) != w.QID(l) || twice.Eval(record, l) != slow {
			t.Fatalf("%s: negated twice %s", s, twice.Normalised(l))
		}
	})
}

// FuzzPattern: a regular expression is one or is none, and never takes long.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{`a.c`, `[^a-c\]-]*`, `\p{Lu}{2,3}`, `(a|b|)+`, `(a{9}){9}`, `[`, `^a$`, `\d`} {
		f.Add(s, "abc")
	}
	l, err := selector.NewLayout(selector.FormatNDJSON, "", nil)
	if err != nil {
		f.Fatal(err)
	}
	w, err := selector.ParseWhere(`match(@.s, @.p) || search(@.s, @.p)`)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := selector.ParseWhere(`match(@.s, @.p)`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		p, err := jsontext.AppendQuote(nil, pattern)
		if err != nil {
			return
		}
		q, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			return
		}
		record := []byte(`{"s":` + string(q) + `,"p":` + string(p) + `}`)
		if whole.Eval(record, l) == selector.Matched && w.Eval(record, l) != selector.Matched {
			t.Fatalf("%q matches all of %q and no part", pattern, s)
		}
	})
}

// FuzzKey: of two values one has the lesser typed key, or they have the same, as
// the comparisons of conditions say too; and keys are no beginning of others.
func FuzzKey(f *testing.F) {
	for _, s := range [][2]string{
		{"1", "1.0"}, {"-1e5", "-99999.9"}, {`"a"`, `"a\u0000"`}, {"null", "false"}, {"[]", "{}"}, {"0", "-0e9"}, {`"\ud800"`, "1e1000001"},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	l, err := selector.NewLayout(selector.FormatNDJSON, "", nil)
	if err != nil {
		f.Fatal(err)
	}
	less, err := selector.ParseWhere(`@[0] < @[1]`)
	if err != nil {
		f.Fatal(err)
	}
	equal, err := selector.ParseWhere(`@[0] == @[1]`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := selector.AppendKey(nil, a, selector.Limits{}), selector.AppendKey(nil, b, selector.Limits{})
		if len(x) == 0 || len(x) < len(y) && bytes.HasPrefix(y, x) {
			t.Fatalf("%q and %q: %x, %x", a, b, x, y)
		}
		if !selector.KeyDetermined(x) || !selector.KeyDetermined(y) {
			return
		}
		pair := append(append(append([]byte("["), a...), ','), append(bytes.Clone(b), ']')...)
		if x[0] == y[0] && (x[0] == selector.KeyNumber || x[0] == selector.KeyString) && selector.KeyExact(x) && selector.KeyExact(y) {
			if got := less.Eval(pair, l); (got == selector.Matched) != (bytes.Compare(x, y) < 0) {
				t.Fatalf("%s < %s: %v, keys %x %x", a, b, got, x, y)
			}
		}
		if selector.KeyExact(x) && selector.KeyExact(y) {
			if got := equal.Eval(pair, l); (got == selector.Matched) != bytes.Equal(x, y) {
				t.Fatalf("%s == %s: %v, keys %x %x", a, b, got, x, y)
			}
		}
	})
}
