package fuzz_test

import (
	"bytes"
	"testing"

	"leafproof/selector"
)

// FuzzPlan: whatever the condition, the path and the record, a record that
// matches or cannot be decided has a key in the plan's ranges or in the tail; and
// where the plan is exact, the keys alone say so.
func FuzzPlan(f *testing.F) {
	for _, s := range [][3]string{
		{`@.a == "x" && @.b > 1`, "/a", `{"a":"x","b":2}`},
		{`!(@.a < 1.5)`, "/a", `{"a":15e-1}`},
		{`@.t[?@ == "x" || !@.a].b`, "@.t[*]", `{"t":["x",{"b":1},"\ud800"]}`},
		{`@.t[?@.c == 1].b`, "@.t[*].b", `{"t":[{"b":1,"c":1,"c":1}]}`},
		{`!@.t[?@.b != 1]`, "@.t[*].b", `{"t":[{"b":1},{}]}`},
		{`search(@.a, "^ab+") || match(@.a, "x|y.*")`, "/a", `{"a":"abb"}`},
		{`length(@['0']) != 2 || @[0] <= null`, "/0", `[null,"a"]`},
		{`{"field":"/a","contains":"x"}`, "/a", "x,y"},
		{`@.a == 1`, "/a", `{"a":1,"a":2}`},
		{`1 == 1.0 || @ == ""`, "", ``},
	} {
		f.Add(s[0], s[1], []byte(s[2]))
	}
	layouts := []selector.Layout{
		{Format: selector.FormatNDJSON},
		{Format: selector.FormatText},
		{Format: selector.FormatCSV, Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}},
		{Format: selector.FormatCSV, Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b", "b", "t"}}},
	}
	f.Fuzz(func(t *testing.T, condition, path string, record []byte) {
		w, err := selector.ParseWhere(condition)
		if err != nil {
			return
		}
		p, err := selector.ParseKeyPath(path)
		if err != nil {
			return
		}
		plan := p.Plan(w)
		if !w.Covered([]selector.Access{{Path: p, Ranges: plan.Ranges}}) {
			t.Fatalf("%s by %s: its own plan does not cover it", condition, path)
		}
		for i, r := range plan.Ranges {
			if bytes.Compare(r.From, r.To) >= 0 || i > 0 && bytes.Compare(plan.Ranges[i-1].To, r.From) >= 0 || bytes.Compare(r.To, []byte{selector.KeyRedacted}) > 0 {
				t.Fatalf("%s by %s: ranges %x", condition, path, plan.Ranges)
			}
		}
		for _, l := range layouts {
			maker, err := p.Maker(l, nil)
			if err != nil {
				continue
			}
			in, tail, n := false, false, 0
			maker.Keys(record, false, func(k []byte) {
				in, tail, n = in || plan.Has(k), tail || !selector.KeyDetermined(k), n+1
			})
			got := w.Eval(record, l)
			switch {
			case n == 0 || p.Scalar() && n > 1:
				t.Fatalf("%s of %q in %s: %d keys", path, record, l.Format, n)
			case !in && !tail && got != selector.Unmatched:
				t.Fatalf("%s by %s on %q in %s: %v, and not among %x", condition, path, record, l.Format, got, plan.Ranges)
			case plan.Exact && !tail && (got == selector.Matched) != in:
				t.Fatalf("%s by %s on %q in %s: %v, and among the exact %x: %v", condition, path, record, l.Format, got, plan.Ranges, in)
			}
		}
	})
}
