package selector_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"leafproof/selector"
)

func where(t testing.TB, s string) *selector.Where {
	t.Helper()
	w, err := selector.ParseWhere(s)
	if err != nil {
		t.Fatalf("ParseWhere(%q): %v", s, err)
	}
	return w
}

func TestEval(t *testing.T) {
	const m, u, q = selector.Matched, selector.Unmatched, selector.Undecidable
	nd := layout(t, "ndjson", "", nil)
	for name, test := range map[string]struct {
		where, record string
		want          selector.Outcome
	}{
		"string":                        {`@.s == "open"`, `{"s":"open"}`, m},
		"other string":                  {`@.s == "open"`, `{"s":"opens"}`, u},
		"nested decoy":                  {`@.s == "open"`, `{"d":{"s":"open"},"s":"shut"}`, u},
		"escaped value":                 {`@.s == "open"`, `{"s":"\u006fpen"}`, m},
		"escaped name":                  {`@.s == "open"`, `{"\u0073":"open"}`, m},
		"surrogate pair":                {`@.s == "😀"`, `{"s":"\ud83d\ude00"}`, m},
		"no normalisation":              {`@.s == "é"`, `{"s":"e\u0301"}`, u},
		"missing is not null":           {`@.s == null`, `{}`, u},
		"null":                          {`@.s == null`, `{"s":null}`, m},
		"null is not false":             {`@.s == false`, `{"s":null}`, u},
		"true":                          {`@.s == true`, `{"s":true}`, m},
		"no coercion of strings":        {`@.s == 1`, `{"s":"1"}`, u},
		"no coercion of booleans":       {`@.s == 1`, `{"s":true}`, u},
		"1 = 1.0":                       {`@.n == 1`, `{"n":1.0}`, m},
		"1 = 1e0":                       {`@.n == 1`, `{"n":1e0}`, m},
		"1 = 10E-1":                     {`@.n == 1.0`, `{"n":10E-1}`, m},
		"-0 = 0":                        {`@.n == 0`, `{"n":-0.0e5}`, m},
		"-1 is not 1":                   {`@.n == 1`, `{"n":-1}`, u},
		"digit for digit":               {`@.id == 13911860366432393`, `{"id":13911860366432393}`, m},
		"digit for digit, other":        {`@.id == 13911860366432393`, `{"id":13911860366432392}`, u},
		"2^53+1":                        {`@.n == 9007199254740992`, `{"n":9007199254740993}`, u},
		"beyond float64":                {`@.n == 1e400`, `{"n":10e399}`, m},
		"object":                        {`@.s == "x"`, `{"s":{"x":1}}`, u},
		"array index":                   {`@.a[1] == 2`, `{"a":[1,2]}`, m},
		"index of an object":            {`@.a[1] == 2`, `{"a":{"1":2}}`, u},
		"name of an array":              {`@.a['1'] == 2`, `{"a":[1,2]}`, u},
		"pointer enters both, array":    {`{"field":"/a/1","equals":2}`, `{"a":[1,2]}`, m},
		"pointer enters both, object":   {`{"field":"/a/1","equals":2}`, `{"a":{"1":2}}`, m},
		"root":                          {`@ == 7`, ` 7 `, m},
		"literal first":                 {`"open" == @.s`, `{"s":"open"}`, m},
		"contains":                      {`{"field":"/s","contains":"pe"}`, `{"s":"open"}`, m},
		"contains nothing":              {`{"field":"/s","contains":""}`, `{"s":"open"}`, m},
		"contains, not":                 {`{"field":"/s","contains":"x"}`, `{"s":"open"}`, u},
		"contains, number":              {`{"field":"/s","contains":"1"}`, `{"s":11}`, u},
		"contains, through an escape":   {`{"field":"/s","contains":"a/b"}`, `{"s":"xa\/b"}`, m},
		"duplicate on the path":         {`@.a == 1`, `{"a":1,"a":2}`, q},
		"duplicate through an escape":   {`@.a == 1`, `{"a":1,"\u0061":2}`, q},
		"duplicate elsewhere":           {`@.a == 1`, `{"a":1,"b":1,"b":2}`, m},
		"duplicate of a missing path":   {`@.a.b == 1`, `{"a":{},"a":{"b":1}}`, q},
		"lone surrogate selected":       {`@.s == "x"`, `{"s":"\ud800"}`, q},
		"two high surrogates":           {`@.s == "�"`, `{"s":"\ud800\ud800"}`, q},
		"surrogates the wrong way":      {`@.s == "�"`, `{"s":"\udc00\ud800"}`, q},
		"surrogate before a letter":     {`@.s == "�"`, `{"s":"\ud800abcdef"}`, q},
		"lone surrogate elsewhere":      {`@.s == "x"`, `{"s":"x","t":"\ud800"}`, m},
		"invalid UTF-8 anywhere":        {`@.s == "x"`, "{\"s\":\"x\",\"t\":\"\xff\"}", q},
		"too many digits":               {`@.n == 1`, `{"n":` + strings.Repeat("1", 1025) + `}`, q},
		"digits that are zeros":         {`@.n == 1`, `{"n":1.` + strings.Repeat("0", 2000) + `}`, m},
		"exponent too large":            {`@.n == "x"`, `{"n":1e1000000}`, q},
		"exponent at the limit":         {`@.n == 1`, `{"n":1e999999}`, u},
		"exponent too small":            {`@.n == 1`, `{"n":1e-1000002}`, q},
		"endless exponent":              {`@.n == 1`, `{"n":1e99999999999999999999}`, q},
		"zero with an endless exponent": {`@.n == 0`, `{"n":0e99999999999999999999}`, m},
		"number elsewhere":              {`@.s == "x"`, `{"s":"x","n":1e1000001}`, m},
		"does not parse":                {`@.a == 2`, `{"a":2}TRAILER`, q},
		"two values":                    {`@.a == 2`, `{"a":2} {"a":2}`, q},
		"empty":                         {`@.a == 2`, ``, q},
		"NaN":                           {`@.a == 2`, `{"a":NaN}`, q},
	} {
		t.Run(name, func(t *testing.T) {
			if got := where(t, test.where).Eval([]byte(test.record), nd); got != test.want {
				t.Errorf("%s on %.80s: %v, want %v", test.where, test.record, got, test.want)
			}
		})
	}
}

func TestEvalRows(t *testing.T) {
	const m, u, q = selector.Matched, selector.Unmatched, selector.Undecidable
	named := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b", "b", "1"}}}
	bare := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ";", Quote: `"`}}
	text := selector.Layout{Format: "text"}
	for name, test := range map[string]struct {
		l             selector.Layout
		where, record string
		want          selector.Outcome
	}{
		"column":                 {named, `{"field":"/a","equals":"x"}`, `x,y,z`, m},
		"column, JSONPath":       {named, `@.a == "x"`, `x,y,z`, m},
		"column named like 1":    {named, `{"field":"/1","equals":"w"}`, `x,w,z,w`, m},
		"quoted":                 {named, `{"field":"/a","equals":"x,\"y\""}`, `"x,""y""",2`, m},
		"a number is a string":   {named, `{"field":"/a","equals":1}`, `1,2`, u},
		"contains":               {named, `{"field":"/a","contains":"1"}`, `21,2`, m},
		"no such column":         {named, `{"field":"/z","equals":"x"}`, `x`, u},
		"short row":              {named, `{"field":"/1","equals":""}`, `x`, u},
		"two columns, one name":  {named, `{"field":"/b","equals":"y"}`, `x,y,z`, q},
		"broken behind":          {named, `{"field":"/a","equals":"x"}`, `x,"y"z`, q},
		"open quote":             {named, `{"field":"/a","equals":"x"}`, `x,"y`, q},
		"invalid UTF-8":          {named, `{"field":"/a","equals":"x"}`, "x,\xff", q},
		"index":                  {bare, `{"field":"/1","equals":"y"}`, `x;y`, m},
		"index, JSONPath":        {bare, `@[1] == "y"`, `x;y`, m},
		"name without a header":  {bare, `{"field":"/a","equals":"x"}`, `x;y`, u},
		"row has no depth":       {bare, `{"field":"/1/0","equals":"y"}`, `x;y`, u},
		"empty field":            {bare, `{"field":"/1","equals":""}`, `x;`, m},
		"line":                   {text, `{"field":"","contains":"err"}`, `an error`, m},
		"line, equal":            {text, `@ == "x"`, `x`, m},
		"line has no member":     {text, `@.a == "x"`, `x`, u},
		"line of invalid UTF-8":  {text, `@ == "x"`, "\xff", q},
		"bytes have no records":  {selector.Layout{Format: "bytes"}, `@ == "x"`, "x", q},
		"invalid layout decides": {selector.Layout{Format: "xml"}, `@ == "x"`, "x", q},
	} {
		t.Run(name, func(t *testing.T) {
			if got := where(t, test.where).Eval([]byte(test.record), test.l); got != test.want {
				t.Errorf("%s on %s: %v, want %v", test.where, test.record, got, test.want)
			}
		})
	}
}

func TestRedactions(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	for path, want := range map[string]selector.Outcome{
		"/a/b":   selector.Undecidable,
		"/a":     selector.Undecidable,
		"/a/b/c": selector.Undecidable,
		"":       selector.Undecidable,
		"/a/bb":  selector.Matched,
		"/b":     selector.Matched,
	} {
		if got := where(t, `@.a.b == 1`).WithRedactions([]string{path}).Eval([]byte(`{"a":{"b":1}}`), nd); got != want {
			t.Errorf("redacted %q: %v, want %v", path, got, want)
		}
	}
}

func TestParseWhereRefuses(t *testing.T) {
	for in, test := range map[string]struct {
		offset int64
		detail string
	}{
		``:                                     {0, "unexpected end"},
		`status == "open"`:                     {0, "@.name"},
		`@.a == 1 &&`:                          {11, "unexpected end"},
		`@.a == 1 & @.b == 2`:                  {9, "unexpected"},
		`@.a == 1 || && @.b`:                   {12, "want @ or a literal"},
		`!@.a == 1`:                            {1, "in parentheses"},
		`!1 == 1`:                              {1, "in parentheses"},
		`!!@.a`:                                {1, "want @ or a literal"},
		`(@.a == 1`:                            {9, "want )"},
		`@.a == 1)`:                            {8, "unexpected"},
		`@.a == (1)`:                           {7, "want @ or a literal"},
		`1`:                                    {1, "want =="},
		`true`:                                 {4, "want =="},
		`length(@.a)`:                          {11, "want =="},
		`count(@.*)`:                           {10, "want =="},
		`match(@.a, "x") == true`:              {0, "cannot be compared"},
		`true == search(@.a, "x")`:             {8, "cannot be compared"},
		`length(@.*) == 1`:                     {7, "takes one value"},
		`length(match(@.a, "x")) == 1`:         {7, "is true or false"},
		`count(1) == 1`:                        {6, "takes a query"},
		`count(length(@.a)) == 1`:              {6, "takes a query"},
		`match(@.a)`:                           {0, "takes 2 arguments, not 1"},
		`length() == 1`:                        {0, "takes 1 arguments, not 0"},
		`search (@.a, "x")`:                    {0, "want @ or a literal"},
		`lower(@.a) == "x"`:                    {0, "no function lower()"},
		`@..a == 1`:                            {0, "may select several"},
		`@.* == 1`:                             {0, "may select several"},
		`@[*] == 1`:                            {0, "may select several"},
		`@[0:1] == 1`:                          {0, "may select several"},
		`@['a','b'] == 1`:                      {0, "may select several"},
		`1 == @[?@.a]`:                         {5, "may select several"},
		`@[?@.a == ]`:                          {10, "want @ or a literal"},
		`@[?@.a]x`:                             {7, "want =="},
		`@[1:2:3:4]`:                           {7, "want ] or a comma"},
		`@[-0]`:                                {2, "leading zeros"},
		`@[9007199254740992]`:                  {2, "2^53"},
		`@[]`:                                  {2, "want a quoted name"},
		`@.a ==`:                               {6, "unexpected end"},
		`@[01] == 1`:                           {2, "leading zeros"},
		`@. == 1`:                              {2, "want a name"},
		`@.1 == 1`:                             {2, "want a name"},
		`@.a = 1`:                              {4, "= alone compares nothing"},
		`@.a == 01`:                            {8, "behind a number"},
		`@.a == -`:                             {8, "not a number"},
		`@.a == 1.`:                            {9, "not a number"},
		`@.a == "x`:                            {9, "does not end"},
		`@.a == "\'"`:                          {8, "unknown escape"},
		`@.a == '\"'`:                          {8, "unknown escape"},
		`@.a == "\ud800"`:                      {8, "lone surrogate"},
		`@.a == nullx`:                         {11, "unexpected"},
		`@.a == 1e1000001`:                     {7, "beyond"},
		`@.a == [1]`:                           {7, "want @ or a literal"},
		`@.a == 1 x`:                           {9, "unexpected"},
		"@.a == \"\xff\"":                      {8, "UTF-8"},
		`{"field":"status","equals":1}`:        {9, `did you mean "/status"`},
		`{"field":"/~2","equals":1}`:           {9, "~ must be followed"},
		`{"field":"/a","field":"/b"}`:          {14, `"field" here`},
		`{"field":"/a","equals":1,"equals":2}`: {25, `"equals" here`},
		`{"field":"/a","equals":1,"contains":"x"}`: {25, `"contains" here`},
		`{"field":"/a","Equals":1}`:                {14, `"Equals" here`},
		`{"field":"/a"}`:                           {0, "needs"},
		`{"equals":1}`:                             {0, "needs"},
		`{}`:                                       {0, "needs"},
		`{"field":1,"equals":1}`:                   {9, "not a string"},
		`{"field":"/a","equals":{}}`:               {23, "no literal"},
		`{"field":"/a","contains":1}`:              {25, "takes a string"},
		`{"field":"/a","equals":1}}`:               {25, "more after"},
		`{"field":"/a","equals":1`:                 {24, "unexpected end"},
		`{"field":"/a","equals":"\udc00"}`:         {23, "lone surrogate"},
	} {
		t.Run(in, func(t *testing.T) {
			w, err := selector.ParseWhere(in)
			e, ok := errors.AsType[*selector.Error](err)
			if !errors.Is(err, selector.ErrSelector) || !ok || w != nil {
				t.Fatalf("ParseWhere = %v, %v; want ErrSelector", w, err)
			}
			if e.Offset != test.offset || !strings.Contains(e.Detail, test.detail) {
				t.Errorf("at %d: %q; want at %d: …%s…", e.Offset, e.Detail, test.offset, test.detail)
			}
		})
	}
}

// Every group has one meaning, and one spelling for it.
func TestNormalised(t *testing.T) {
	nd := layout(t, "ndjson", "", nil)
	for want, group := range map[string][]string{
		`["eq","/status",["s","open"]]`: {
			`@.status == "open"`, `@["status"]=='open'`, `"open" == @.status`, `@.status=="\u006fpen"`,
			`{"field":"/status","equals":"open"}`, ` { "equals" : "open", "field" : "/status" } `,
		},
		`["eq","/a/b",["n","250"]]`:                     {`@.a.b == 250`, `@ .a ['b'] == 2.5e2`, `@.a.b == 250.000`, `{"field":"/a/b","equals":250}`},
		`["eq","/a",["n","0"]]`:                         {`@.a == 0`, `@.a == -0`, `@.a == 0e9`, `@.a == -0.000`},
		`["eq","/a",["n","-0.00125"]]`:                  {`@.a == -125e-5`, `@.a == -0.0012500`},
		`["eq","/a",["n","1e30"]]`:                      {`@.a == 1e30`, `@.a == 1000000000000000000000000000000`},
		`["eq","/a",["n","13911860366432393"]]`:         {`@.a == 13911860366432393`, `@.a == 13911860366432393.0`},
		`["eq","/a",["null"]]`:                          {`@.a == null`, `{"field":"/a","equals":null}`},
		`["eq","/a",["true"]]`:                          {`@.a == true`},
		`["eq","/a",["false"]]`:                         {`@.a == false`},
		`["contains","/a",["s","x"]]`:                   {`{"field":"/a","contains":"x"}`},
		`["eq","/a/0",["n","1"]]`:                       {`{"field":"/a/0","equals":1}`},
		`["eq",["path",["k","a"],["i","0"]],["n","1"]]`: {`@.a[0] == 1`},
		`["eq",["path",["k","a"],["k","0"]],["n","1"]]`: {`@.a['0'] == 1`},
		`["eq","",["s","ä\n"]]`:                         {`@ == "ä\n"`, `@ == '\u00e4\u000a'`},
		`["eq","/a~1b~0",["x","7f"]]`:                   {`@['a/b~'] == "\u007f"`},
		`["eq",["x","2fe280a8"],["x","e280a9"]]`:        {`@["\u2028"] == "\u2029"`},
	} {
		for _, in := range group {
			full := string(where(t, in).Normalised(nd))
			if got := `{"at":"","engine":"1","format":"ndjson","order":["document"],"where":` + want + `}`; full != got {
				t.Errorf("%s: %s\nwant %s", in, full, got)
			}
			if !json.Valid([]byte(full)) {
				t.Errorf("%s: not JSON: %s", in, full)
			}
		}
	}
	w := where(t, `@.a == 1`)
	got := string(w.Normalised(layout(t, "csv", "", []byte("a;b\n1;2\n"))))
	if want := `{"at":"","dialect":{"delimiter":";","header":"true","quote":"\""},"engine":"1","format":"csv","order":["document"],"where":["eq","/a",["n","1"]]}`; got != want {
		t.Errorf("csv: %s\nwant %s", got, want)
	}
	// The id is fixed for ever: a change of it is a change of the format.
	if got := w.QID(nd); got != goldenQID {
		t.Errorf("QID = %s", got)
	}
	if w.QID(nd) == w.QID(layout(t, "json", "", nil)) || w.QID(nd) == where(t, `@.a == 2`).QID(nd) {
		t.Error("two queries, one qid")
	}
}

const goldenQID = "q_yoevgsmjl7o5d6qi6nlagmm7oy52ibem"

// Equality of numbers against exact rationals.
func TestRandomNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	nd := layout(t, "ndjson", "", nil)
	number := func() string {
		s := []string{"", "-"}[rng.IntN(2)] + strconv.Itoa(rng.IntN(20))
		if rng.IntN(2) == 0 {
			s += "." + strconv.Itoa(rng.IntN(20)) + strings.Repeat("0", rng.IntN(3))
		}
		if rng.IntN(2) == 0 {
			s += []string{"e", "E"}[rng.IntN(2)] + []string{"", "+", "-"}[rng.IntN(3)] + strconv.Itoa(rng.IntN(4))
		}
		return s
	}
	equal := 0
	for range 20_000 {
		a, b := number(), number()
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		want := selector.Unmatched
		if x.Cmp(y) == 0 {
			want, equal = selector.Matched, equal+1
		}
		w := where(t, "@ == "+a)
		if got := w.Eval([]byte(b), nd); got != want {
			t.Fatalf("%s == %s: %v, want %v", a, b, got, want)
		}
		if same := string(w.Normalised(nd)) == string(where(t, "@ == "+b).Normalised(nd)); same != (want == selector.Matched) {
			t.Fatalf("%s and %s: same spelling %v", a, b, same)
		}
		// The normalised number reads back as itself.
		var n struct{ Where []json.RawMessage }
		var lit []string
		if err := json.Unmarshal(w.Normalised(nd), &n); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(n.Where[2], &lit); err != nil {
			t.Fatal(err)
		}
		if z, ok := new(big.Rat).SetString(lit[1]); !ok || z.Cmp(x) != 0 {
			t.Fatalf("%s is normalised to %s", a, lit[1])
		}
	}
	if equal < 50 {
		t.Errorf("only %d equal pairs", equal)
	}
}
