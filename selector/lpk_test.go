package selector_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"leafproof/selector"
)

// The bytes of typed keys, which indexes hold.
func TestAppendKey(t *testing.T) {
	long := strings.Repeat("a", 97)
	sum := blake3.Sum256([]byte(long))
	zeros := blake3.Sum256([]byte(strings.Repeat("\x00", 97)))
	for in, want := range map[string]string{
		`null`:                                   "20",
		`false`:                                  "30",
		`true`:                                   "31",
		`0`:                                      "4080",
		`-0.0e7`:                                 "4080",
		`1`:                                      "40c0" + "8000000000000001" + "02" + "00",
		`1.0`:                                    "40c0" + "8000000000000001" + "02" + "00",
		`10e-1`:                                  "40c0" + "8000000000000001" + "02" + "00",
		`120`:                                    "40c0" + "8000000000000003" + "0203" + "00",
		`0.009`:                                  "40c0" + "7ffffffffffffffe" + "0a" + "00",
		`-1`:                                     "4040" + "7ffffffffffffffe" + "fd" + "ff",
		`1e999999`:                               "40c0" + "80000000000f4240" + "02" + "00",
		`1e1000000`:                              "e2",
		`1e-1000001`:                             "40c0" + "7ffffffffff0bdc0" + "02" + "00",
		`1e-1000002`:                             "e2",
		`""`:                                     "500000",
		`"a"`:                                    "50610000",
		`"a\u0000b"`:                             "506100ff620000",
		`"é"`:                                    "50c3a90000",
		`"\ud83d\ude00"`:                         "50f09f98800000",
		`"\ud800"`:                               "e2",
		`[]`:                                     "60",
		`[1,2]`:                                  "60",
		` { "a" : 1 } `:                          "70",
		`{"a":1}x`:                               "e2",
		`{"a":1} {}`:                             "e2",
		``:                                       "e2",
		`[1,]`:                                   "e2",
		"\"\xff\"":                               "e2",
		`"` + long + `"`:                         "50" + strings.Repeat("61", 96) + "0001" + hex.EncodeToString(sum[:]),
		`"` + long[1:] + `"`:                     "50" + strings.Repeat("61", 96) + "0000",
		`"` + strings.Repeat(`\u0000`, 97) + `"`: "50" + strings.Repeat("00ff", 96) + "0001" + hex.EncodeToString(zeros[:]),
		strings.Repeat("[", 513) + strings.Repeat("]", 513): "e2",
		strings.Repeat("[", 512) + strings.Repeat("]", 512): "60",
	} {
		if got := hex.EncodeToString(selector.AppendKey(nil, []byte(in), selector.Limits{})); got != want {
			t.Errorf("%.60s: %s, want %s", in, got, want)
		}
	}
	if got := hex.EncodeToString(selector.AppendKey(nil, []byte(`12345`), selector.Limits{Digits: 4})); got != "e2" {
		t.Errorf("beyond a lower limit: %s", got)
	}
	if got := hex.EncodeToString(selector.AppendTextKey([]byte{1}, "a")); got != "0150610000" {
		t.Errorf("text: %s", got)
	}
	for key, want := range map[string][2]bool{ // exact, determined
		"10": {true, true}, "4080": {true, true}, "60": {false, true}, "e1": {false, false}, "": {false, false},
		"500000": {true, true}, "5000ff0000": {true, true}, "50" + strings.Repeat("61", 96) + "0001" + hex.EncodeToString(sum[:]): {false, true},
		"50": {false, true}, "5000": {false, true},
	} {
		p, _ := hex.DecodeString(key)
		if got := [2]bool{selector.KeyExact(p), selector.KeyDetermined(p)}; got != want {
			t.Errorf("%.20s: exact, determined %v, want %v", key, got, want)
		}
	}
}

// order is the slow comparison of two values; nil is missing.
func order(a, b *datum) int {
	rank := func(d *datum) int {
		if d == nil {
			return 0
		}
		return 1 + strings.IndexByte("nft0\"[{", d.kind)
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 || a == nil {
		return c
	}
	switch a.kind {
	case '0':
		return a.num.Cmp(b.num)
	case '"':
		return slices.Compare([]rune(a.str), []rune(b.str))
	}
	return 0
}

// The order of keys is the order of values.
func TestKeyOrder(t *testing.T) {
	g := newGen(14)
	g.clean = true
	values := []string{"1e1000", "-1e1000", "1e-1000", "-1e-1000", "9007199254740993", "9007199254740992", `"` + strings.Repeat("b", 95) + `"`, `"` + strings.Repeat("b", 96) + `"`, `"` + strings.Repeat("b", 97) + `"`, `"` + strings.Repeat("b", 96) + `\u0000"`, `"\u0000"`, `"\u0000\u0000"`, `"\u0001"`, `"\uffff"`, `"\ud800\udc00"`}
	for range 300 {
		values = append(values, g.value(1))
	}
	for range 100 {
		n := new(big.Rat).SetFrac64(int64(g.IntN(2001)-1000), 1).FloatString(0)
		values = append(values, n+pick(g, "", ".5", ".25", "e-3", "e3", ".0"))
	}
	var keys [][]byte
	var data []*datum
	for _, v := range values {
		keys, data = append(keys, selector.AppendKey(nil, []byte(v), selector.Limits{})), append(data, decoded([]byte(v)))
	}
	for i, a := range data {
		for j, b := range data {
			if got, want := bytes.Compare(keys[i], keys[j]), order(a, b); got != want && !(len(a.str) > 96 && len(b.str) > 96) {
				t.Fatalf("%s and %s: %d, want %d (%x, %x)", values[i], values[j], got, want, keys[i], keys[j])
			}
		}
	}
}

func TestParseOrder(t *testing.T) {
	for in, want := range map[string]string{
		"/ts":          `["asc","/ts"]`,
		"/ts:asc":      `["asc","/ts"]`,
		"/ts:desc":     `["desc","/ts"]`,
		"/a:desc:asc":  `["asc","/a:desc"]`,
		"":             `["asc",""]`,
		":desc":        `["desc",""]`,
		"@.a[0]:desc":  `["desc",["path",["k","a"],["i","0"]]]`,
		"$.a":          `["asc","/a"]`,
		"$['x:desc']":  `["asc","/x:desc"]`,
		"@.a[-1]":      `["asc",["path",["k","a"],["i","-1"]]]`,
		"/a/0":         `["asc","/a/0"]`,
		"/" + "\u2028": `["asc",["path",["k",["x","e280a8"]]]]`,
		"/a~1b:desc":   `["desc","/a~1b"]`,
	} {
		o, err := selector.ParseOrder(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		n := string(selector.Query{Order: []*selector.Order{o}}.Normalised(layout(t, "ndjson", "", nil)))
		if full := `{"at":"","engine":"1","format":"ndjson","order":[` + want + `,"document"],"where":["and"]}`; n != full {
			t.Errorf("%q: %s, want %s", in, n, full)
		}
		if o.String() != in || o.Descending() != strings.HasSuffix(in, ":desc") {
			t.Errorf("%q: %v %v", in, o, o.Descending())
		}
	}
	for _, in := range []string{"ts", "/a~", "@.*", "$..a", "@.a[", "@.a:down", "/\xff"} {
		o, err := selector.ParseOrder(in)
		wantSelector(t, o == nil, err, in)
	}
	for _, in := range []string{"ts", "/a~", "@.a[", "$.a x"} {
		s, err := selector.ParseSelect(in)
		wantSelector(t, s == nil, err, in)
	}
}

// Records sorted by their keys are in the order that the slow comparison gives.
func TestKeys(t *testing.T) {
	g := newGen(15)
	nd := layout(t, "ndjson", "", nil)
	var orders []*selector.Order
	for _, s := range []string{"/a:desc", "@.b", "@.c[-1]:desc"} {
		o, err := selector.ParseOrder(s)
		if err != nil {
			t.Fatal(err)
		}
		orders = append(orders, o)
	}
	keys, err := selector.NewKeys(nd, orders)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		record string
		key    []byte
		values [3]*datum
	}
	var rows []row
	undecided := 0
	for range 3_000 {
		record := `{"x":` + g.value(1)
		for _, n := range []string{"a", "b", "c"} {
			if g.IntN(4) > 0 {
				record += `,"` + n + `":` + g.value(2)
			}
		}
		record += "}"
		d := decoded([]byte(record))
		var values [3]*datum
		bad := false
		for i, form := range [][]any{{"path", []any{"k", "a"}}, {"path", []any{"k", "b"}}, {"path", []any{"k", "c"}, []any{"i", "-1"}}} {
			values[i] = twin{d}.value(form, d)
			bad = bad || values[i] == undecidable
		}
		key, got := keys.Append([]byte{7}, []byte(record), false)
		if (got == selector.Undecidable) != bad || got == selector.Unmatched || key[0] != 7 || bad && len(key) != 1 {
			t.Fatalf("%s: %v, %x", record, got, key)
		}
		if bad {
			undecided++
			continue
		}
		if d.told() {
			if again, _ := keys.Append([]byte{7}, []byte(record), true); !bytes.Equal(again, key) {
				t.Fatalf("%s: trusted %x, checked %x", record, again, key)
			}
		}
		rows = append(rows, row{record, key, values})
	}
	if undecided < 50 || len(rows) < 500 {
		t.Errorf("%d undecided, %d rows", undecided, len(rows))
	}
	for range 100_000 {
		a, b := rows[g.IntN(len(rows))], rows[g.IntN(len(rows))]
		want := cmp.Or(-order(a.values[0], b.values[0]), order(a.values[1], b.values[1]), -order(a.values[2], b.values[2]))
		if got := bytes.Compare(a.key, b.key); got != want {
			t.Fatalf("%s and %s: %d, want %d", a.record, b.record, got, want)
		}
		if len(a.key) < len(b.key) && bytes.HasPrefix(b.key, a.key) {
			t.Fatalf("%x begins %x", a.key, b.key)
		}
	}
}

func TestKeysRows(t *testing.T) {
	csv := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b", "b"}}}
	o, err := selector.ParseOrder("/a")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := selector.NewKeys(csv, []*selector.Order{o})
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{`x,y`: "50780000", `"x""",y`: "5078220000", ``: "500000", `"x`: ""} {
		key, _ := keys.Append(nil, []byte(row), false)
		if got := hex.EncodeToString(key); got != want {
			t.Errorf("%s: %s, want %s", row, got, want)
		}
	}
	hidden, err := selector.NewKeys(csv, []*selector.Order{o.WithRedactions([]string{"/a"})})
	if err != nil {
		t.Fatal(err)
	}
	if _, got := hidden.Append(nil, []byte("x,y"), false); got != selector.Undecidable {
		t.Errorf("redacted: %v", got)
	}
	for _, s := range []string{"/z", "/a/b", ""} {
		if o, err = selector.ParseOrder(s); err != nil {
			t.Fatal(err)
		}
		k, err := selector.NewKeys(csv, []*selector.Order{o})
		wantSelector(t, k == nil, err, s)
	}
}
