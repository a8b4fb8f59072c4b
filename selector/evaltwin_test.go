package selector_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"testing"

	"leafproof/selector"
)

// The evaluator, on its checking and on its trusting path, decides as the twin
// does, and so does the normalised form.
func TestEvalTwin(t *testing.T) {
	g := newGen(11)
	nd := layout(t, "ndjson", "", nil)
	counts := map[selector.Outcome]int{}
	for range 6_000 {
		g.clean = g.IntN(3) == 0
		e := g.expr(2)
		w, err := selector.ParseWhere(e.text)
		if err != nil {
			t.Fatalf("%s: %v", e.text, err)
		}
		form, err := normalForm(w.Normalised(nd))
		if err != nil {
			t.Fatalf("%s: %v", e.text, err)
		}
		ev, err := w.Evaluator(nd)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			record := g.record()
			d := decoded([]byte(record))
			if d == nil {
				t.Fatalf("the twin does not decode %s", record)
			}
			want := twin{d}.holds(e.form, d)
			counts[want]++
			if got := ev.Eval([]byte(record)); got != want {
				t.Fatalf("%s on %s: %v, want %v", e.text, record, got, want)
			}
			if got := (twin{d}).holds(form, d); got != want {
				t.Fatalf("%s on %s: its normal form %s is %v, want %v", e.text, record, w.Normalised(nd), got, want)
			}
			if wholly(d) {
				if got := ev.EvalTrusted([]byte(record)); got != want {
					t.Fatalf("%s on %s, trusted: %v, want %v", e.text, record, got, want)
				}
			}
		}
	}
	t.Log(counts)
	for o := range maps.Keys(counts) {
		if counts[o] < 250 {
			t.Errorf("only %d times %v", counts[o], o)
		}
	}
}

// wholly reports whether everything in a value can be told.
func wholly(d *datum) bool { return d.told() }

// Conditions that differ only in what normalising takes away have one name; its
// rewritings are tried one by one.
func TestNormalisedTwin(t *testing.T) {
	g := newGen(12)
	nd := layout(t, "ndjson", "", nil)
	qid := func(s string) string { return where(t, s).QID(nd) }
	for range 1_500 {
		a, b, c := g.expr(1).text, g.expr(1).text, g.expr(1).text
		a, b, c = "("+a+")", "("+b+")", "("+c+")"
		for _, pair := range [][2]string{
			{a + "&&" + b, b + " && " + a},
			{a + "||" + b, b + "||" + a},
			{a + "&&(" + b + "&&" + c + ")", "(" + a + "&&" + b + ")&&" + c},
			{a + "||(" + b + "||" + c + ")", c + "||" + b + "||" + a + "||" + b},
			{a + "&&" + a, a},
			{a + "||" + a, a},
			{"!(!" + a + ")", a},
			{"!(" + a + "&&" + b + ")", "!" + a + "||!" + b},
			{"!(" + a + "||" + b + ")", "!" + a + "&&!" + b},
		} {
			if qid(pair[0]) != qid(pair[1]) {
				t.Fatalf("%s and %s:\n%s\n%s", pair[0], pair[1], where(t, pair[0]).Normalised(nd), where(t, pair[1]).Normalised(nd))
			}
		}
	}
	// And no more than that.
	for _, pair := range [][2]string{
		{`!(@.a < 1)`, `@.a >= 1`},
		{`!(@.a == 1)`, `@.a != 1`},
		{`@.a < 1`, `1 > @.a`},
		{`@.a && (@.a || @.b)`, `@.a`},
		{`@.a && !@.a`, `@.b && !@.b`},
		{`@.a == 1`, `$.a == 1`},
		{`@['a','b']`, `@['b','a']`},
		{`@..a`, `@..['a','a']`},
		{`"\u007f" < "x"`, `@["\u007f"] < "x"`},
		{`"/\u007f" < "x"`, `@["\u007f"] < "x"`},
		{`@ < "/\u007f"`, `@ < @["\u007f"]`},
		{`@.a['0'] == 1`, `@.a[0] == 1`},
	} {
		if qid(pair[0]) == qid(pair[1]) {
			t.Errorf("%s and %s have one name", pair[0], pair[1])
		}
	}
	// The normal form is canonical JSON: reading and writing it changes nothing.
	for range 500 {
		n := where(t, g.expr(2).text).Normalised(nd)
		var v any
		if err := json.Unmarshal(n, &v); err != nil {
			t.Fatalf("%s: %v", n, err)
		}
	}
}

// FuzzEvalTwin: the twin decides as the evaluator does, on any record.
func FuzzEvalTwin(f *testing.F) {
	g := newGen(17)
	for range 60 {
		f.Add(g.expr(2).text, []byte(g.record()))
	}
	nd := layout(f, "ndjson", "", nil)
	f.Fuzz(func(t *testing.T, s string, record []byte) {
		if len(record) > 5_000 || len(s) > 500 || longExponent.Match(record) {
			return // the twin is slow
		}
		w, err := selector.ParseWhere(s)
		if err != nil || w.Fits(nd) != nil {
			return
		}
		form, err := normalForm(w.Normalised(nd))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(form); foreignPattern.Match(b) {
			return // the twin has Go's regular expressions
		}
		d := decoded(record)
		want := selector.Undecidable
		if d != nil {
			want = twin{d}.holds(form, d)
		}
		if got := w.Eval(record, nd); got != want {
			t.Fatalf("%s on %q: %v, want %v", s, record, got, want)
		}
	})
}

var (
	longExponent   = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)
	foreignPattern = regexp.MustCompile(`"(match|search)"`)
)
