package selector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/selector"
)

// Whole expressions of RFC 9535, with Kleene's logic.
func TestEvalLogic(t *testing.T) {
	const m, u, q = selector.Matched, selector.Unmatched, selector.Undecidable
	nd := layout(t, "ndjson", "", nil)
	for name, test := range map[string]struct {
		where, record string
		want          selector.Outcome
	}{
		"and":                            {`@.s == "open" && @.sev >= 3`, `{"s":"open","sev":3}`, m},
		"and, one false":                 {`@.s == "open" && @.sev >= 3`, `{"s":"open","sev":2.9}`, u},
		"or binds less":                  {`@.a == 1 || @.b == 1 && @.c == 1`, `{"a":1}`, m},
		"parentheses":                    {`(@.a == 1 || @.b == 1) && @.c == 1`, `{"a":1}`, u},
		"false and undecidable":          {`@.a == 1 && @.b == 1`, `{"a":1,"a":1,"b":2}`, u},
		"undecidable and false":          {`@.b == 1 && @.a == 1`, `{"a":1,"a":1,"b":2}`, u},
		"true and undecidable":           {`@.a == 1 && @.b == 1`, `{"a":1,"a":1,"b":1}`, q},
		"true or undecidable":            {`@.a == 1 || @.b == 1`, `{"a":1,"a":1,"b":1}`, m},
		"false or undecidable":           {`@.a == 1 || @.b == 1`, `{"a":1,"a":1,"b":2}`, q},
		"not undecidable":                {`!(@.a == 1)`, `{"a":1,"a":1}`, q},
		"a record that does not parse":   {`@.a == 1 || true == true`, `{"a":1`, q},
		"not less is not at least":       {`!(@.a < 1)`, `{"a":"x"}`, m},
		"at least, another kind":         {`@.a >= 1`, `{"a":"x"}`, u},
		"strings by code point":          {`@.a < "\uffff"`, `{"a":"\ud800\udc00"}`, u},
		"null <= null":                   {`@.a <= null`, `{"a":null}`, m},
		"missing equals missing":         {`@.a == @.b`, `{}`, m},
		"missing is not null":            {`@.a == @.b`, `{"b":null}`, u},
		"two fields, exact":              {`@.a == @.b`, `{"a":9007199254740993,"b":9007199254740992}`, u},
		"two fields, 1 = 1e0":            {`@.a == @.b`, `{"a":1,"b":1e0}`, m},
		"$ is the record":                {`@.a[?@ == $.b]`, `{"a":[1,2],"b":2}`, m},
		"objects in another order":       {`@.a == @.b`, `{"a":{"x":1,"y":[2]},"b":{"y":[2.0],"\u0078":1}}`, m},
		"arrays in another order":        {`@.a == @.b`, `{"a":[1,2],"b":[2,1]}`, u},
		"objects, long":                  {`@.a == @.b`, `{"a":{"x":"` + strings.Repeat("x", 99) + `","y":{}},"b":{"y":{},"x":"` + strings.Repeat("x", 99) + `"}}`, m},
		"objects, long, other":           {`@.a == @.b`, `{"a":{"x":"` + strings.Repeat("x", 99) + `"},"b":{"x":"` + strings.Repeat("x", 98) + `y"}}`, u},
		"a duplicate within":             {`@.a == @.b`, `{"a":{"x":1},"b":{"x":1,"x":1}}`, q},
		"a surrogate within":             {`@.a == @.b`, `{"a":["\ud800"],"b":["\ud800"]}`, q},
		"a number within":                {`@.a == @.b`, `{"a":[1e1000001],"b":[1]}`, q},
		"array and object":               {`@.a == @.b`, `{"a":[1e1000001],"b":{}}`, u},
		"1 within, differently":          {`@.a == @.b`, `{"a":[1],"b":["1"]}`, u},
		"exists":                         {`@.a`, `{"a":null}`, m},
		"exists not":                     {`!@.a`, `{"b":null}`, m},
		"exists, duplicate":              {`@.a`, `{"a":1,"a":2}`, q},
		"exists, lone surrogate":         {`@.a`, `{"a":"\ud800"}`, m},
		"descent":                        {`@..b`, `{"a":[{"b":1}]}`, m},
		"descent meets a duplicate":      {`@..b`, `{"a":[{"c":1,"c":1}]}`, q},
		"descent finds it all the same":  {`@..b`, `{"b":1,"a":[{"c":1,"c":1}]}`, m},
		"wildcard, duplicate":            {`@.* == 1`[:3], `{"a":1,"\u0061":2}`, q},
		"wildcard, name of a surrogate":  {`@.*`, `{"\ud800":1}`, q},
		"filter":                         {`@.a[?@.x == 1 && @.y > 2]`, `{"a":[{"x":1,"y":2},{"x":1,"y":3}]}`, m},
		"filter, undecided":              {`@.a[?@.x == 1]`, `{"a":[{"x":2},{"x":1,"x":1}]}`, q},
		"filter, undecided but another":  {`@.a[?@.x == 1]`, `{"a":[{"x":1,"x":1},{"x":1}]}`, m},
		"count":                          {`count(@.a[*]) == 2`, `{"a":[1,2]}`, m},
		"count, undecided":               {`count(@.a[?@.x == 1]) == 1`, `{"a":[{"x":1,"x":1},{"x":1}]}`, q},
		"length of a string":             {`length(@.a) == 2`, `{"a":"😀é"}`, m},
		"length of a number":             {`length(@.a) == @.z`, `{"a":12}`, m},
		"length of a doubled object":     {`length(@.a) == 2`, `{"a":{"x":1,"x":1}}`, q},
		"value":                          {`value(@..x) == 1`, `{"a":{"x":1}}`, m},
		"value of several":               {`value(@..x) == 1`, `{"a":{"x":1},"x":1}`, u},
		"match is whole":                 {`match(@.a, "b.?")`, `{"a":"abc"}`, u},
		"search is not":                  {`search(@.a, "b.?")`, `{"a":"abc"}`, m},
		"search, escaped":                {`search(@.a, "dis[jk]")`, `{"a":"a d\u0069sk"}`, m},
		"search, no string":              {`search(@.a, "1")`, `{"a":1}`, u},
		"search, lone surrogate":         {`search(@.a, "a")`, `{"a":"a\ud800"}`, q},
		"no regular expression":          {`search(@.a, "[")`, `{"a":"["}`, u},
		"no regular expression, negated": {`!search(@.a, "[")`, `{"a":"["}`, m},
		"pattern of the record":          {`match(@.a, @.p)`, `{"a":"xx","p":"x{2}"}`, m},
		"pattern of the record, too big": {`match(@.a, @.p)`, `{"a":"xx","p":"x{2000}"}`, q},
		"pattern of the record, bad":     {`match(@.a, @.p)`, `{"a":"xx","p":"(x"}`, u},
		"index from the end":             {`@.a[-1] == 2`, `{"a":[1,2]}`, m},
		"pointer and name":               {`@['0'] == 1 || @[0] == 1`, `[1]`, m},
		"constant":                       {`1 == 1.0`, `{}`, m},
		"constant length":                {`length("ab") == 2`, `{}`, m},
	} {
		t.Run(name, func(t *testing.T) {
			w := where(t, test.where)
			if got := w.Eval([]byte(test.record), nd); got != test.want {
				t.Errorf("%s on %.80s: %v, want %v", test.where, test.record, got, test.want)
			}
		})
	}
}

// What is asked of a redacted field is undecidable; the rest decides.
func TestRedactionsLogic(t *testing.T) {
	const m, u, q = selector.Matched, selector.Unmatched, selector.Undecidable
	nd := layout(t, "ndjson", "", nil)
	record := []byte(`{"a":1,"b":2,"c":{"d":3},"l":[{"x":1}]}`)
	for _, test := range []struct {
		where, redacted string
		want            selector.Outcome
		all             bool // nothing is left to decide
	}{
		{`@.a == 1 && @.b == 2`, "/a", q, false},
		{`@.a == 1 && @.b == 3`, "/a", u, false},
		{`@.a == 1 || @.b == 2`, "/a", m, false},
		{`@.a == 1 || @.a == 2`, "/a", q, true},
		{`!(@.a == 2)`, "/a", q, true},
		{`@.a`, "/a", q, true},
		{`@.*`, "/zz", q, true},
		{`@.c.*`, "/a", m, false},
		{`@.c.*`, "/c/e", q, true},
		{`@..x`, "/a", q, true},
		{`@.l[?@.x == 1]`, "/l/0/x", q, true},
		{`@.l[?@.x == 1]`, "/a", m, false},
		{`@.l[?$.a == 1]`, "/a", q, true},
		{`@.l[0].x == 1`, "/l/1", m, false},
		{`@.l[-1].x == 1`, "/l/1", q, true},
		{`@.l[0:1]`, "/l/x", m, false},
		{`@.l[0,1]`, "/l/1", q, true},
		{`count(@.c.d) == 1`, "/c", q, true},
		{`length(@.c) == 1`, "/c/z", q, true},
		{`@ == 1`, "/z", q, true},
		{`$.a == 1`, "/a", q, true},
		{`1 == 1`, "", m, false},
		{`@.c == @.b`, "/b", q, true},
	} {
		w := where(t, test.where)
		if got := w.WithRedactions([]string{"/nowhere/x", test.redacted}).Eval(record, nd); got != test.want && test.redacted != "" {
			t.Errorf("%s without %s: %v, want %v", test.where, test.redacted, got, test.want)
		}
		if got := w.RedactedBy(test.redacted); got != test.all {
			t.Errorf("%s without %s: all gone %v", test.where, test.redacted, got)
		}
	}
}

func TestFields(t *testing.T) {
	for in, want := range map[string][]string{
		`@.a == 1 && @.b.c == 2 || @.a > 3`:         {"/a", "/b/c"},
		`length(@['x/y']) == count(@.l[?@.z == 1])`: {"/x~1y", "/l"},
		`@.a[-1] == 1`:                {"/a"},
		`@..x`:                        {""},
		`1 == 1`:                      nil,
		`match(@.a, $.p)`:             {"/a", "/p"},
		`{"field":"/a/0","equals":1}`: {"/a/0"},
	} {
		if got := where(t, in).Fields(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// Rows and lines are asked as the JSON values that they stand for.
func TestEvalRowsTwin(t *testing.T) {
	g := newGen(16)
	names := []string{"a", "b", "c", "0", "1"}
	bare := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}}
	named := bare
	named.Dialect.Header, named.Dialect.Columns = true, names
	counts := map[selector.Outcome]int{}
	for range 4_000 {
		e := g.expr(2)
		w := where(t, e.text)
		var fields []string
		var row, object, array strings.Builder
		for i := range 1 + g.IntN(5) {
			f := pick(g, "a", "b", "open", "", "1", "é", `q"q`, "x,y")
			fields = append(fields, f)
			if i > 0 {
				row.WriteByte(',')
				object.WriteByte(',')
				array.WriteByte(',')
			}
			row.WriteString(`"` + strings.ReplaceAll(f, `"`, `""`) + `"`)
			fmt.Fprintf(&object, "%s:%s", g.str(names[i]), g.str(f))
			array.WriteString(g.str(f))
		}
		for _, c := range []struct {
			l      selector.Layout
			record string
			json   string
		}{
			{named, row.String(), "{" + object.String() + "}"},
			{bare, row.String(), "[" + array.String() + "]"},
			{selector.Layout{Format: "text"}, fields[0], g.str(fields[0])},
		} {
			d := decoded([]byte(c.json))
			want := twin{d}.holds(e.form, d)
			counts[want]++
			ev, err := w.Evaluator(c.l)
			if err != nil {
				t.Fatal(err)
			}
			if got := ev.Eval([]byte(c.record)); got != want {
				t.Fatalf("%s on %s row %s: %v, want %v", e.text, c.l.Format, c.record, got, want)
			}
			if got := ev.EvalTrusted([]byte(c.record)); got != want {
				t.Fatalf("%s on %s row %s, trusted: %v, want %v", e.text, c.l.Format, c.record, got, want)
			}
		}
	}
	if counts[selector.Matched] < 1_000 || counts[selector.Undecidable] > 0 {
		t.Errorf("outcomes %v", counts)
	}
}

// No input takes more than linear time, or it meets a limit.
func TestHostile(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	many := func(n int, f func(int) string, sep string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(sep)
			}
			b.WriteString(f(i))
		}
		return b.String()
	}
	same := func(s string) func(int) string { return func(int) string { return s } }
	records := map[string]string{
		"100 KB of [":           strings.Repeat("[", 100_000),
		"1 MB of backslashes":   `{"a":"` + strings.Repeat(`\`, 1_000_000) + `"}`,
		"1 MB, odd":             `{"a":"` + strings.Repeat(`\`, 1_000_001) + `"}`,
		"1 MB of quotes":        `{"a":"` + strings.Repeat(`\"`, 500_000) + `"}`,
		"sparse backslashes":    `{"a":"` + strings.Repeat(strings.Repeat("x", 70)+`\"`, 14_000) + `"}`,
		"100,000 equal keys":    "{" + many(100_000, same(`"a":1`), ",") + "}",
		"20,000 long like keys": "{" + many(20_000, func(i int) string { return fmt.Sprintf(`"kkkkkkkkkkkkkkkkkkkkk%d":1`, i) }, ",") + "}",
		"a wide array":          `{"a":[` + many(50_000, same("1"), ",") + `]}`,
		"an array of objects":   `{"a":[` + many(10_000, func(i int) string { return fmt.Sprintf(`{"x":%d}`, i) }, ",") + `]}`,
		"deep as allowed":       strings.Repeat(`{"a":`, 512) + "1" + strings.Repeat("}", 512),
		"brackets in strings":   `{"x":{"y":"` + strings.Repeat("{}[]", 200_000) + `"},"a":1}`,
		"a long number":         `{"a":` + strings.Repeat("9", 1_000_000) + `}`,
		"a long exponent":       `{"a":1e` + strings.Repeat("9", 1_000_000) + `}`,
	}
	conditions := map[string]string{
		"field":             `@.a == "x"`,
		"not there":         `@.zzz == 1`,
		"wildcard":          `@.*`,
		"descent, thrice":   `@..*..*..zz`,
		"filter in filter":  `@.a[?$.a[?@.x == 77]]`,
		"every pair":        `@.a[?@.x == count($.a[?@.x == 77])]`,
		"pairs of its own":  `@.*[?@[?$.a[?@ == @]]]`,
		"many selectors":    `@['a','b'` + strings.Repeat(`,'zz'`, 1_000) + `]`,
		"many indexes":      `@.a[0` + strings.Repeat(`,49999`, 1_000) + `]`,
		"whole in whole":    `@.a[?@ == $.a]`,
		"whole, compared":   `@.a == $`,
		"backward slices":   `@.a[::-1][::-1]`,
		"many terms":        many(4_000, func(i int) string { return fmt.Sprintf("@.a%d==1", i) }, "||"),
		"search of a":       `search(@.a, "(a*)*b")`,
		"length of a":       `length(@.a) == 1`,
		"search everywhere": `@..[?search(@, "(x|xx|xxx)*y")]`,
	}
	for cname, c := range conditions {
		w := where(t, c)
		for rname, r := range records {
			begin := time.Now()
			got := w.Eval([]byte(r), nd)
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("%s on %s takes %v", cname, rname, took)
			} else if took > time.Second {
				t.Logf("%s on %s takes %v: %v", cname, rname, took, got)
			}
		}
	}
	// Conditions beyond their limits.
	for name, c := range map[string]string{
		"100,000 terms":       many(100_000, same("@.a==1"), "&&"),
		"64 KB of (":          strings.Repeat("(", 60_000) + "@.a" + strings.Repeat(")", 4_000),
		"nested filters":      "@" + strings.Repeat("[?@", 10_000) + strings.Repeat("]", 10_000),
		"nested functions":    strings.Repeat("length(", 6_000) + "@" + strings.Repeat(")", 6_000) + "==1",
		"a long pattern":      `search(@.a, "` + strings.Repeat("a", 5_000) + `")`,
		"a large repetition":  `search(@.a, "a{1001}")`,
		"repeated repetition": `search(@.a, "((a{100}){100}){100}")`,
		"nested groups":       `search(@.a, "` + strings.Repeat("(", 1_000) + strings.Repeat(")", 1_000) + `")`,
	} {
		w, err := selector.ParseWhere(c)
		wantSelector(t, w == nil, err, name)
	}
	// The longest that are read.
	for name, c := range map[string]string{
		"a conjunction": many(7_000, func(i int) string { return fmt.Sprintf("@.a==%d", i%7) }, "&&"),
		"negations":     strings.Repeat("!(", 120) + "@.a" + strings.Repeat(")", 120),
		"a long path":   "@" + strings.Repeat(".a", 32_000),
	} {
		begin := time.Now()
		w := where(t, c)
		_ = w.QID(nd)
		_ = w.WithRedactions([]string{"/a", "/b"}).Fields()
		_ = w.Eval([]byte(`{"a":1}`), nd)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s takes %v", name, took)
		}
	}
}
