package selector_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

func keyPath(t testing.TB, s string) *selector.KeyPath {
	t.Helper()
	p, err := selector.ParseKeyPath(s)
	if err != nil {
		t.Fatalf("ParseKeyPath(%q): %v", s, err)
	}
	return p
}

// planText spells a plan: from-to in hex, with = where it is exact, and all
// where it narrows nothing.
func planText(p selector.KeyPlan) string {
	var parts []string
	for _, r := range p.Ranges {
		from, to := hex.EncodeToString(r.From), hex.EncodeToString(r.To)
		if to == from+"00" {
			parts = append(parts, from)
		} else {
			parts = append(parts, from+"-"+to)
		}
	}
	text := strings.Join(parts, " ")
	if !p.Narrows() {
		text = "all"
	}
	if p.Exact {
		text = "= " + text
	}
	return strings.TrimSpace(text)
}

// How conditions map to the keys of an index.
func TestPlan(t *testing.T) {
	long, zone := strings.Repeat("a", 97), "50"+strings.Repeat("61", 96)
	longKey := hex.EncodeToString(selector.AppendTextKey(nil, long))
	for _, test := range []struct{ path, where, want string }{
		{"/a", `@.a == "x"`, "= 50780000"},
		{"/a", `"x" == $.a`, "= 50780000"},
		{"/a", `{"field":"/a","equals":"x"}`, "= 50780000"},
		{"@['a']", `{"field":"/a","equals":1.0}`, "= 40c080000000000000010200"},
		{"/a", `@.a == null`, "= 20"},
		{"/a", `@.a != null`, "= 10-20 2000-e0"},
		{"/a", `!(@.a == true)`, "= 10-31 3100-e0"},
		{"/a", `@.a == "x" || @.a == "w" || @.a == false`, "= 30 50770000 50780000"},
		{"/a", `@.a >= 1 && @.a < 2`, "= 40c080000000000000010200-40c080000000000000010300"},
		{"/a", `1 <= @.a && 2 > @.a`, "= 40c080000000000000010200-40c080000000000000010300"},
		{"/a", `@.a > 0`, "= 408000-50"},
		{"/a", `@.a <= 0`, "= 40-408000"},
		{"/a", `@.a < -0`, "= 40-4080"},
		{"/a", `@.a >= "b" && @.a <= "b"`, "= 50620000"},
		{"/a", `@.a < null || @.a > true`, "="},
		{"/a", `@.a <= null`, "= 20"},
		{"/a", `@.a`, "= 20-e0"},
		{"/a", `!@.a`, "= 10-20"},
		{"/a", `!(@.a < 1)`, "= 10-40 40c080000000000000010200-e0"},
		{"/a", `@.a == 1 && @.b == 2`, "40c080000000000000010200"},
		{"/a", `@.a == 1 || @.b == 2`, "all"},
		{"/a", `!(@.a == 1 && @.b == 2)`, "all"},
		{"/a", `!(@.a != 1 || @.b == 2)`, "40c080000000000000010200"},
		{"/a", `@.b == 2`, "all"},
		{"/a", `1 == 1`, "= all"},
		{"/a", `1 == 2 || @.a == null`, "= 20"},
		{"/a", `1 == 2`, "="},
		{"/a", `@.a == @.b`, "all"},
		{"/a", `@.a.b == 1`, "all"},
		{"/a/b", `@.a.b == 1`, "= 40c080000000000000010200"},
		{"/a", `length(@.a) == 2`, "50-e0"},
		{"/a", `length(@.a) != 2`, "all"},
		{"/a", `length(@.a) == "x"`, "50-e0"},
		{"/a", `{"field":"/a","contains":"x"}`, "50-60"},
		// Patterns.
		{"/a", `match(@.a, "ab")`, "= 5061620000"},
		{"/a", `match(@.a, "ab.*")`, "506162-506163"},
		{"/a", `match(@.a, "ab*")`, "5061-5062"},
		{"/a", `match(@.a, "ab+")`, "5061-5062"},
		{"/a", `match(@.a, "a{2}b")`, "50-60"},
		{"/a", `match(@.a, "a\\.b\\n(x|y)")`, "50612e620a-50612e620b"},
		{"/a", `match(@.a, "ab|c")`, "50-60"},
		{"/a", `match(@.a, "a(b|c)")`, "5061-5062"},
		{"/a", `match(@.a, "a[|]b")`, "5061-5062"},
		{"/a", `match(@.a, "a\\|b")`, "= 50617c620000"},
		{"/a", `match(@.a, "[a]b")`, "50-60"},
		{"/a", `match(@.a, "\\p{L}b")`, "50-60"},
		{"/a", `match(@.a, "")`, "= 500000"},
		{"/a", `search(@.a, "ab")`, "50-60"},
		{"/a", `search(@.a, "^ab")`, "= 506162-506163"},
		{"/a", `search(@.a, "^ab$")`, "= 5061620000"},
		{"/a", `search(@.a, "^ab.")`, "506162-506163"},
		{"/a", `search(@.a, "^*ab")`, "50-60"},
		{"/a", `search(@.a, "(^a)b")`, "50-60"},
		{"/a", `search(@.a, "^a|b")`, "50-60"},
		{"/a", `!search(@.a, "^ab")`, "= 10-506162 506163-e0"},
		{"/a", `match(@.a, @.p)`, "all"},
		{"/a", `match(@.a, "é.*")`, "50c3a9-50c3aa"},
		{"/a", `search(@.a, "^` + long + `")`, zone + "0001-" + zone + "0002"},
		{"/a", `search(@.a, "^a\u0000")`, "= 506100ff-506101"},
		// Strings that the key does not spell out.
		{"/a", `@.a == "` + long + `"`, "= " + longKey},
		{"/a", `@.a < "` + long + `"`, "50-" + zone + "0002"},
		{"/a", `@.a >= "` + long + `"`, zone + "0001-60"},
		{"/a", `!(@.a < "` + long + `")`, "10-50 " + zone + "0001-e0"},
		{"/a", `@.a <= "` + long[:96] + `"`, "= 50-" + zone + "000000"},
		// Names, indexes and the tokens of pointers, which may be either.
		{"/0", `@['0'] == 1`, "40c080000000000000010200"},
		{"/0", `@[0] == 1`, "40c080000000000000010200"},
		{"/0", `@[0] != 1`, "all"},
		{"/0", `{"field":"/0","equals":1}`, "= 40c080000000000000010200"},
		{"@[0]", `{"field":"/0","equals":1}`, "all"},
		{"@['0']", `@[0] == 1`, "all"},
		{"@[-1]", `@[-1] == 1`, "= 40c080000000000000010200"},
		// Several keys a record.
		{"@.t[*]", `@.t[?@ == "x"]`, "= 50780000"},
		{"@.t[*]", `@.t[?@ == "x" || @ == "y"]`, "= 50780000 50790000"},
		{"@.t[*]", `@.t[?@ >= 1 && @ < 2]`, "= 40c080000000000000010200-40c080000000000000010300"},
		{"@.t[*]", `@.t[?@ == "x"] && @.t[?@ > 1]`, "50780000"},
		{"@.t[*]", `@.t[?@ == "x"] || @.t[?@ == "y"]`, "= 50780000 50790000"},
		{"@.t[*]", `!@.t[?@ == "x"]`, "10-50780000 5078000000-e0"},
		{"@.t[*]", `@.t[*]`, "= 20-e0"},
		{"@.t[*]", `!@.t[*]`, "= 10-20"},
		{"@.t[*]", `@.t[?!(@ == "x")]`, "= 20-50780000 5078000000-e0"},
		{"@.t[*]", `@.t[0] == "x"`, "50780000"},
		{"@.t[*]", `@.t[0] != "x"`, "all"},
		{"@.t[*]", `@.t[0]`, "20-e0"},
		{"@.t[*]", `@.t == "x"`, "all"},
		{"@.t[*]", `@.t[?@.b == 1]`, "20-e0"},
		{"@.t[*].b", `@.t[?@.b == 1]`, "= 40c080000000000000010200"},
		{"@.t[*].b", `@.t[?@.b == 1 && @.c == 2]`, "40c080000000000000010200"},
		{"@.t[*].b", `@.t[?@.b != 1]`, "all"},
		{"@.t[*].b", `@.t[?!@.b]`, "all"},
		{"@.t[*].b", `@.t[*].b`, "= 20-e0"},
		{"@.t[*].b", `@.t[?@.b == 1].c`, "40c080000000000000010200"},
		{"@.t[*].b", `@.t[?@.c == 1].b`, "all"}, // an undecidable @.c leaves all undecidable, with @.b or without
		{"@.t[*].b", `@.t[?@.b == 1].b`, "= 40c080000000000000010200"},
		{"@.t[*].b", `@.t[?@.b]`, "= 20-e0"},
		{"@.t[*].b", `@.t[?@.b == $.x]`, "all"},
		{"@.t[*].b[*]", `@.t[?@.b[?@ == 1]]`, "= 40c080000000000000010200"},
		{"@.t[*].b[*]", `@.t[*].b[?@ == 1]`, "= 40c080000000000000010200"},
		{"@.t[*].b[*]", `@.t[?!@.b[*]]`, "all"},
		{"@.t[*]", `@.t[?@ == 1 || @ == 2 || @ == 3 || @ == 4]`, "all"}, // it may visit too much
		{"@.t[*]", `@.t[?search(@, $.p)]`, "all"},
		{"@.t[*]", `@..[?@ == 1]`, "all"},
	} {
		if got := planText(keyPath(t, test.path).Plan(where(t, test.where))); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.where, test.path, got, test.want)
		}
	}
	if got := planText(keyPath(t, "/a").Plan(nil)); got != "= all" {
		t.Errorf("no condition: %s", got)
	}
	redacted := where(t, `@.a == 1 && @.b == 2`).WithRedactions([]string{"/a"})
	if a, b := planText(keyPath(t, "/a").Plan(redacted)), planText(keyPath(t, "/b").Plan(redacted)); a != "all" || b != "40c080000000000000010300" {
		t.Errorf("redacted: %s, %s", a, b)
	}
}

// planPaths are paths of indexes that random conditions ask for.
var planPaths = []string{
	"", "/a", "/b", "/a/b", "/0", "@['0']", "@[0]", "@[-1]", "/a/0", "@.a[0]", "@.a['0']", "/c", "/1",
	"@[*]", "@.a[*]", "@.b[*]", "@.a[*].b", "@[*].a", "@[*][*]", "@[*].a[*]", "@.a[*].b[*]", "/0/a",
}

// planExpr writes a condition that asks much of a few paths.
func (g *gen) planExpr(depth int) string {
	if depth > 0 && g.IntN(2) == 0 {
		sign := pick(g, " && ", " || ")
		text := "(" + g.planExpr(depth-1) + sign + g.planExpr(depth-1) + ")"
		return pick(g, "", "", "!") + text
	}
	path := pick(g, "@", "@.a", "@.b", "@.a.b", "@['0']", "@[0]", "@[-1]", "@.a[0]", "@.a['0']", "$.a", "@.c")
	long := strings.Repeat("a", 96)
	literal := func() string {
		if g.IntN(4) == 0 {
			return `"` + long + pick(g, "", "a", "b", "ab") + `"`
		}
		return g.literal().text
	}
	pattern := func() string {
		return `"` + pick(g, "", "^") + pick(g, "a", "ab", "a.c", "a\\\\.c", "o", "open", "x\\n", "é", long+"a", "a*", "(a|b)", "a|b", "", "[ab]") + pick(g, "", "", "b", ".*", "$", "+", "?") + `"`
	}
	sign := func() string { return pick(g, " == ", " != ", " < ", " <= ", " > ", " >= ") }
	filter := func() string {
		inner := pick(g, "@", "@", "@.a", "@.b", "@[0]", "@['0']")
		switch g.IntN(6) {
		case 0:
			return inner
		case 1:
			return "!" + inner
		case 2:
			return "search(" + inner + ", " + pattern() + ")"
		case 3:
			return inner + sign() + literal() + pick(g, " && ", " || ") + pick(g, "@", "@.a") + sign() + literal()
		}
		return pick(g, "", "!") + "(" + inner + sign() + literal() + ")"
	}
	switch g.IntN(8) {
	case 0:
		return pick(g, "", "!") + path
	case 1:
		return pick(g, "", "!") + pick(g, "match", "search") + "(" + path + ", " + pattern() + ")"
	case 2, 3:
		segs := pick(g, "[?"+filter()+"]", "[?"+filter()+"]", "[*]", "[*].a", "[?"+filter()+"].b", "[*][?"+filter()+"]", "[?@["+pick(g, "*", "?"+filter())+"]]")
		return pick(g, "", "", "!") + pick(g, "@", "@.a", "@.b") + segs
	case 4:
		return "length(" + path + ")" + sign() + literal()
	case 5:
		return g.expr(0).text
	case 6:
		return literal() + sign() + path
	}
	return pick(g, "", "!") + "(" + path + sign() + literal() + ")"
}

// planRecord writes a record that planExpr's conditions may hold for.
func (g *gen) planRecord() string {
	if g.IntN(4) == 0 {
		return g.value(4)
	}
	long := strings.Repeat("a", 96)
	var parts []string
	for _, name := range []string{"a", "b", "c", "0"} {
		switch g.IntN(6) {
		case 0:
		case 1:
			parts = append(parts, `"`+name+`":"`+long+pick(g, "", "a", "b", "ab", "aa")+`"`)
		case 2:
			parts = append(parts, `"`+name+`":["a",`+g.value(1)+`]`)
		case 3:
			parts = append(parts, `"`+name+`":[{"a":`+g.value(1)+`,"b":`+g.value(0)+`}]`)
		default:
			parts = append(parts, `"`+name+`":`+g.value(2))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// checkPlan holds a plan to what the evaluator says of a record.
func checkPlan(t testing.TB, p *selector.KeyPath, plan selector.KeyPlan, keys [][]byte, told selector.Outcome, about func() string) {
	t.Helper()
	in, tail := false, false
	for _, k := range keys {
		in, tail = in || plan.Has(k), tail || !selector.KeyDetermined(k)
	}
	switch {
	case len(keys) == 0:
		t.Fatalf("%s: no key", about())
	case !in && !tail && told != selector.Unmatched:
		t.Fatalf("%s: %v, and no key of the plan %s", about(), told, planText(plan))
	case plan.Exact && !tail && (told == selector.Matched) != in:
		t.Fatalf("%s: %v, and the exact plan %s has it: %v", about(), told, planText(plan), in)
	}
}

// A record that matches or cannot be decided stands in the plan's ranges or in
// the tail; where the plan is exact, so does no other.
func TestPlanSound(t *testing.T) {
	g := newGen(61)
	nd := layout(t, "ndjson", "", nil)
	makers := make([]*selector.KeyMaker, len(planPaths))
	var paths []*selector.KeyPath
	for i, s := range planPaths {
		paths = append(paths, keyPath(t, s))
		var err error
		if makers[i], err = paths[i].Maker(nd, nil); err != nil {
			t.Fatal(err)
		}
	}
	type keyed struct {
		record string
		keys   [][][]byte // by path
	}
	var records []keyed
	for range 600 {
		r := keyed{record: g.planRecord(), keys: make([][][]byte, len(paths))}
		for i, m := range makers {
			m.Keys([]byte(r.record), false, func(k []byte) { r.keys[i] = append(r.keys[i], bytes.Clone(k)) })
		}
		records = append(records, r)
	}
	narrow, exact, several, outcomes := 0, 0, 0, map[selector.Outcome]int{}
	for range 3_000 {
		text := g.planExpr(3)
		w, err := selector.ParseWhere(text)
		if err != nil {
			continue // too large a pattern, by chance
		}
		e, err := w.Evaluator(nd)
		if err != nil {
			t.Fatal(err)
		}
		back, err := selector.ParseNormalised(w.Normalised(nd), nd)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		plans := make([]selector.KeyPlan, len(paths))
		for i, p := range paths {
			plans[i] = p.Plan(w)
			if got, want := planText(p.Plan(back.Where)), planText(plans[i]); got != want {
				t.Fatalf("%s, read back from its normal form, by %s: %s, want %s", text, planPaths[i], got, want)
			}
			if plans[i].Narrows() {
				narrow++
			}
			if plans[i].Exact {
				exact++
			}
		}
		chosen := []*selector.KeyPath{paths[1], paths[2], paths[3], paths[14]}
		accesses := w.Access(chosen, func(i int, ranges []selector.KeyRange) int64 { return int64(100*len(ranges) + i) })
		if len(accesses) > 1 {
			several++
		}
		if accesses != nil && !w.Covered(accesses) {
			t.Fatalf("%s: its accesses do not cover it", text)
		}
		for range 25 {
			r := records[g.IntN(len(records))]
			told := e.Eval([]byte(r.record))
			outcomes[told]++
			for i, p := range paths {
				checkPlan(t, p, plans[i], r.keys[i], told, func() string { return text + " on " + r.record + " by " + planPaths[i] })
			}
			if accesses == nil || told == selector.Unmatched {
				continue
			}
			found := false
			for _, a := range accesses {
				for _, k := range r.keys[slices.Index(paths, a.Path)] {
					found = found || selector.KeyPlan{Ranges: a.Ranges}.Has(k) || !selector.KeyDetermined(k)
				}
			}
			if !found {
				t.Fatalf("%s on %s: %v, and in none of the accesses", text, r.record, told)
			}
		}
	}
	t.Log(narrow, exact, several, outcomes)
	if narrow < 3_000 || exact < 1_000 || several < 20 || outcomes[selector.Matched] < 5_000 || outcomes[selector.Undecidable] < 1_000 {
		t.Errorf("narrow %d, exact %d, of several %d, outcomes %v", narrow, exact, several, outcomes)
	}
}

// Spellings of one condition have one plan.
func TestPlanNormal(t *testing.T) {
	for _, test := range [][]string{
		{`@.a == 1 || (@.a == 2 || @.a == 1)`, `@.a == 2.0 || @.a == 1`, `!(@.a != 1 && !(@.a == 2))`},
		{`@.t[?@ == "x"] && (@.b == 1 && @.t[?@ > 1])`, `(@.t[?@ > 1.0] && @.t[?"x" == @]) && $.b == 1`},
		{`!(!@.a || @.a == null)`, `@.a && !(@.a == null)`},
		{`!(@.t[?@ == "x"] || !@.t[?@ > 1])`, `!@.t[?@ == "x"] && @.t[?@ > 1]`},
		{`@.t[?!(@ == "x" || !(@ > 1))]`, `@.t[?!(@ == "x") && @ > 1]`},
		{`@.t[?@ == 1] && @.t[?@ == 1]`, `@.t[?@ == 1]`},
	} {
		for _, path := range []string{"/a", "/b", "@.t[*]"} {
			want := planText(keyPath(t, path).Plan(where(t, test[0])))
			for _, s := range test[1:] {
				if got := planText(keyPath(t, path).Plan(where(t, s))); got != want {
					t.Errorf("%s of %s: %s, but for %s %s", s, path, got, test[0], want)
				}
			}
		}
	}
}

// What covers a condition, and what does not.
func TestCovered(t *testing.T) {
	point := func(path, literal string) selector.Access {
		return selector.Access{Path: keyPath(t, path), Ranges: keyPath(t, path).Plan(where(t, "@"+strings.ReplaceAll(path, "/", ".")+" == "+literal)).Ranges}
	}
	a1, a2, b2 := point("/a", "1"), point("/a", "2"), point("/b", "2")
	both := selector.Access{Path: a1.Path, Ranges: append(slices.Clone(a1.Ranges), a2.Ranges...)}
	for _, test := range []struct {
		where    string
		accesses []selector.Access
		want     bool
	}{
		{`@.a == 1`, []selector.Access{a1}, true},
		{`@.a == 1`, []selector.Access{a2}, false},
		{`@.a == 1`, []selector.Access{both}, true},
		{`@.a == 1`, nil, false},
		{`1 == 2`, nil, false},
		{`@.a == 1 || @.b == 2`, []selector.Access{a1, b2}, true},
		{`@.a == 1 || @.b == 2`, []selector.Access{a1}, false},
		{`@.a == 1 && @.b == 2`, []selector.Access{b2}, true},
		{`!(@.a != 1 && @.b != 2)`, []selector.Access{b2, a1}, true},
		{`!(@.a != 1 && @.b != 2)`, []selector.Access{b2}, false},
		{`@.c == 1 && (@.a == 1 || @.b == 2)`, []selector.Access{b2, a1}, true},
		{`@.c == 1 || (@.a == 1 || @.b == 2)`, []selector.Access{b2, a1}, false},
		{`@.a == 1 || @.a == 2`, []selector.Access{both}, true},
		{`@.a == 1 || @.a == 2`, []selector.Access{{Path: a1.Path, Ranges: []selector.KeyRange{both.Ranges[1], both.Ranges[0]}}}, false},
		{`@.a == 1`, []selector.Access{{Path: a1.Path, Ranges: []selector.KeyRange{{From: nil, To: []byte{0xe0}}}}}, false},
		{`@.a == 1`, []selector.Access{{Path: a1.Path, Ranges: []selector.KeyRange{{From: []byte{0x10}, To: []byte{0xe1}}}}}, false},
		{`@.a == 1`, []selector.Access{{Path: a1.Path, Ranges: []selector.KeyRange{selector.Determined()}}}, true},
		{`@.a == 1`, []selector.Access{{Path: a1.Path, Ranges: []selector.KeyRange{{From: []byte{0x10}, To: []byte{0x40}}, {From: []byte{0x40}, To: []byte{0xe0}}}}}, false},
		{`@.a == 1`, []selector.Access{{Ranges: a1.Ranges}}, false},
	} {
		if got := where(t, test.where).Covered(test.accesses); got != test.want {
			t.Errorf("%s by %d accesses: %v", test.where, len(test.accesses), got)
		}
	}
}

// Which indexes are worth opening.
func TestServes(t *testing.T) {
	for _, test := range []struct {
		path, where, order string
		want               bool
	}{
		{"/a", `@.a == 1 || @.b == 2`, "", true},
		{"/b", `!(@.a == 1 && @.b == 2)`, "", true},
		{"/c", `@.a == 1 || @.b == 2`, "", false},
		{"/a", `@.a == @.b`, "", false},
		{"/a", `length(@.a) != 2`, "", true}, // the must of it
		{"/a", ``, "/a:desc", true},
		{"/a", `@.b == 1`, "/b", false},
		{"@.a[*]", `@.b == 1`, "@.a", false},
		{"@.a[*]", `@.b == 1 && @.a[?@ == 1]`, "", true},
	} {
		var w *selector.Where
		var orders []*selector.Order
		if test.where != "" {
			w = where(t, test.where)
		}
		if test.order != "" {
			o, err := selector.ParseOrder(test.order)
			if err != nil {
				t.Fatal(err)
			}
			orders = append(orders, o)
		}
		if got := keyPath(t, test.path).Serves(w, orders); got != test.want {
			t.Errorf("%s for %s by %s: %v", test.path, test.where, test.order, got)
		}
	}
}

// A condition of the longest kind is planned in a moment.
func TestPlanLarge(t *testing.T) {
	var b strings.Builder
	for i := range 5_000 {
		if i > 0 {
			b.WriteString("||")
		}
		fmt.Fprintf(&b, "@.a==%d", i*7919%5_000)
	}
	w := where(t, b.String())
	p := keyPath(t, "/a")
	if plan := p.Plan(w); len(plan.Ranges) != 5_000 || !plan.Exact {
		t.Errorf("%d ranges, exact %v", len(plan.Ranges), plan.Exact)
	}
	got := w.Access([]*selector.KeyPath{p, keyPath(t, "/b")}, func(int, []selector.KeyRange) int64 { return 1 })
	if len(got) != 1 || !w.Covered(got) {
		t.Errorf("%d accesses", len(got))
	}
}
