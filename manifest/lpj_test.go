package manifest_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"leafproof/manifest"
)

func TestCheckCanonical(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, test := range map[string]struct {
		in      string
		reason  string // empty: canonical
		offset  int64
		pointer string
	}{
		"object":                {`{"a":1,"b":[true,false,null],"c":"x"}`, "", 0, ""},
		"scalar":                {`"x"`, "", 0, ""},
		"largest integers":      {`[9007199254740991,-9007199254740991,0]`, "", 0, ""},
		"short escapes":         {`"\b\t\n\f\r\"\\"`, "", 0, ""},
		"control escape":        {`"\u0000\u001f"`, "", 0, ""},
		"raw unicode":           {`"Åé😂"`, "", 0, ""},
		"U+0080 in a value":     {"\"\u0080\"", "", 0, ""},
		"name with a quote":     {`{"a\"b":1,"a\\c":2}`, "", 0, ""},
		"empty name":            {`{"":1}`, "", 0, ""},
		"depth 32":              {deep(32), "", 0, ""},
		"depth 33":              {deep(33), "more than 32 levels", 32, strings.Repeat("/0", 32)},
		"empty":                 {``, "ends inside", 0, ""},
		"white space before":    {` 1`, "white space", 0, ""},
		"white space after":     {"1\n", "something follows", 1, ""},
		"white space in object": {`{"a": 1}`, "white space", 5, "/a"},
		"white space in array":  {`[1, 2]`, "white space", 3, "/1"},
		"white space in name":   {`{ "a":1}`, "without a name", 1, ""},
		"two values":            {`{}{}`, "something follows", 2, ""},
		"unsorted":              {`{"b":1,"a":2}`, "not in sorted order", 7, "/a"},
		"duplicate":             {`{"a":1,"a":2}`, "stands twice", 7, "/a"},
		"nested duplicate":      {`{"x":[0,{"a~/b":1,"a~/b":2}]}`, "stands twice", 18, "/x/1/a~0~1b"},
		"name not ASCII":        {`{"é":1}`, "printable ASCII", 2, ""},
		"name with escape":      {`{"\u0061":1}`, "needless escape", 2, ""},
		"name with newline":     {`{"\n":1}`, "printable ASCII", 2, ""},
		"name with DEL":         {"{\"\x7f\":1}", "U+007F", 2, ""},
		"float":                 {`[1.5]`, "not a plain integer", 1, "/0"},
		"integral float":        {`[1.0]`, "not a plain integer", 1, "/0"},
		"exponent":              {`[1e3]`, "not a plain integer", 1, "/0"},
		"too large":             {`[9007199254740992]`, "2^53", 1, "/0"},
		"far too large":         {`[` + strings.Repeat("9", 1000) + `]`, "2^53", 1, "/0"},
		"too small":             {`[-9007199254740992]`, "2^53", 1, "/0"},
		"negative zero":         {`[-0]`, "negative zero", 1, "/0"},
		"leading zero":          {`[01]`, "leading zero", 1, "/0"},
		"minus alone":           {`[-]`, "without digits", 1, "/0"},
		"plus":                  {`[+1]`, "cannot begin with", 1, "/0"},
		"NaN":                   {`[NaN]`, "cannot begin with", 1, "/0"},
		"bad literal":           {`[nul]`, "not a value", 1, "/0"},
		"lone surrogate":        {`["\ud834"]`, "surrogate", 2, "/0"},
		"escaped pair":          {`["\ud83d\ude02"]`, "surrogate", 2, "/0"},
		"needless escape":       {`["\u0041"]`, "needless escape", 2, "/0"},
		"escaped slash":         {`["\/"]`, "needless or unknown", 2, "/0"},
		"long newline":          {`["\u000a"]`, "needless escape", 2, "/0"},
		"upper-case escape":     {`["\u001F"]`, "upper-case", 2, "/0"},
		"short escape":          {`["\u00"]`, "four hex digits", 2, "/0"},
		"signed escape":         {`["\u+01f"]`, "four hex digits", 2, "/0"},
		"raw control":           {"[\"\x01\"]", "raw control", 2, "/0"},
		"DEL":                   {"[\"\x7f\"]", "U+007F", 2, "/0"},
		"U+2028":                {"[\"\u2028\"]", "U+2028", 2, "/0"},
		"U+2029":                {"[\"\u2029\"]", "U+2029", 2, "/0"},
		"invalid UTF-8":         {"[\"\xff\"]", "invalid UTF-8", 2, "/0"},
		"encoded surrogate":     {"[\"\xed\xa0\x80\"]", "invalid UTF-8", 2, "/0"},
		"BOM":                   {"\ufeff1", "cannot begin with", 0, ""},
		"trailing comma":        {`[1,]`, "cannot begin with", 3, "/1"},
		"trailing comma object": {`{"a":1,}`, "without a name", 7, ""},
		"no comma":              {`[1 2]`, "neither a comma", 2, "/0"},
		"no colon":              {`{"a"1}`, "colon", 4, "/a"},
		"open array":            {`[1`, "neither a comma", 2, "/0"},
		"open object":           {`{"a":1`, "neither a comma", 6, "/a"},
		"open string":           {`"a`, "ends inside a string", 2, ""},
		"open escape":           {`"a\`, "ends inside a string", 2, ""},
		"single quotes":         {`{'a':1}`, "without a name", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := manifest.CheckCanonical([]byte(test.in))
			if test.reason == "" {
				if err != nil {
					t.Fatalf("%s: %v", test.in, err)
				}
				return
			}
			if !errors.Is(err, manifest.ErrNotCanonical) {
				t.Fatalf("%s: error = %v, want ErrNotCanonical", test.in, err)
			}
			e, _ := errors.AsType[*manifest.SyntaxError](err)
			if e == nil || !strings.Contains(e.Reason, test.reason) || e.Offset != test.offset || e.Pointer != test.pointer {
				t.Errorf("%s: %#v, want %q at byte %d in %q", test.in, e, test.reason, test.offset, test.pointer)
			}
		})
	}
}

func TestSizeLimit(t *testing.T) {
	doc := []byte(`"` + strings.Repeat("a", manifest.MaxSize-2) + `"`)
	if err := manifest.CheckCanonical(doc); err != nil {
		t.Error(err)
	}
	if err := manifest.CheckCanonical(append(doc, ' ')); !errors.Is(err, manifest.ErrTooLarge) {
		t.Errorf("one byte more: %v, want ErrTooLarge", err)
	}
	// Depth costs no memory: the limit is met before the stack grows.
	if n := testing.AllocsPerRun(10, func() { manifest.CheckCanonical(bytes.Repeat([]byte("["), manifest.MaxSize)) }); n > 60 {
		t.Errorf("%v allocations for a megabyte of brackets", n)
	}
}

// TestJCSVectors: two of the official documents of RFC 8785 lie in our subset;
// the others are refused, each for what it has outside of it.
func TestJCSVectors(t *testing.T) {
	for name, reason := range map[string]string{
		"arrays": "", "unicode": "",
		"french": "printable ASCII", "structures": "printable ASCII", "values": "not a plain integer", "weird": "printable ASCII",
	} {
		t.Run(name, func(t *testing.T) {
			want := bytes.TrimRight(vector(t, "json/jcs/testdata/output/"+name+".json"), "\n")
			err := manifest.CheckCanonical(want)
			if reason != "" {
				if !errors.Is(err, manifest.ErrNotCanonical) || !strings.Contains(err.Error(), reason) {
					t.Errorf("error = %v, want %q", err, reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var v any
			vectorJSON(t, "json/jcs/testdata/input/"+name+".json", &v)
			got, err := manifest.Canonical(v)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Canonical = %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestJCSNegatives(t *testing.T) {
	var cases []struct {
		Name  string `json:"name"`
		Input string `json:"input_hex"`
	}
	vectorJSON(t, "json/jcs/negative.json", &cases)
	if len(cases) != 13 {
		t.Errorf("%d cases, want 13", len(cases))
	}
	for _, c := range cases {
		in, err := hex.DecodeString(c.Input)
		if err != nil {
			t.Fatal(err)
		}
		if err := manifest.CheckCanonical(in); !errors.Is(err, manifest.ErrNotCanonical) {
			t.Errorf("%s: %q: error = %v, want ErrNotCanonical", c.Name, in, err)
		}
	}
}

// randomValue makes a value of the subset.
func randomValue(r *rand.Rand, depth int) any {
	kind := r.IntN(8)
	if depth == 0 {
		kind = r.IntN(5)
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		n := r.Int64N(1 << 53)
		return json.Number(fmt.Sprint((n >> r.IntN(53)) * int64(1-2*r.IntN(2))))
	case 3, 4:
		return randomText(r)
	case 5:
		a := make([]any, r.IntN(4))
		for i := range a {
			a[i] = randomValue(r, depth-1)
		}
		return a
	default:
		m := map[string]any{}
		for range r.IntN(5) {
			name := make([]byte, r.IntN(5))
			for i := range name {
				name[i] = byte(0x20 + r.IntN(0x5f))
			}
			m[string(name)] = randomValue(r, depth-1)
		}
		return m
	}
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(12) {
		c := rune(r.IntN(0x80))
		switch r.IntN(4) {
		case 0:
			c = rune(r.IntN(0x20))
		case 1:
			c = rune(0x80 + r.IntN(0xd000-0x80))
		case 2:
			c = rune(0x10000 + r.IntN(0x10000))
		}
		if c != 0x7f && c != 0x2028 && c != 0x2029 {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// TestTwinJCS: on the subset, our canonical form is that of an independent
// implementation of RFC 8785, and only that is accepted.
func TestTwinJCS(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := randomValue(r, 4)
		plain, err := json.MarshalIndent(v, " ", "\t") // spaces, HTML escapes: far from canonical
		if err != nil {
			t.Fatal(err)
		}
		want, err := jcs.Transform(append(append([]byte(`{"v":`), plain...), '}')) // it takes no bare scalars
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := manifest.Canonical(map[string]any{"v": jsonNumbers(v)})
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: Canonical = %s, %v, want %s", seed, got, err, want)
		}
		if err := manifest.CheckCanonical(want); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, want, err)
		}
		var back any
		if err := manifest.Decode(want, &back); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// A flipped bit either breaks it or gives another canonical document,
		// which the twin must write the same.
		flipped := bytes.Clone(want)
		flipped[r.IntN(len(flipped))] ^= 1 << r.IntN(8)
		if manifest.CheckCanonical(flipped) == nil {
			if again, err := jcs.Transform(flipped); err == nil && !bytes.Equal(again, flipped) {
				t.Fatalf("seed %d: %q is accepted, the twin writes %q", seed, flipped, again)
			}
		}
	}
}

// jsonNumbers turns the exact decimals into integers, as a Go caller has them.
func jsonNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case []any:
		for i := range v {
			v[i] = jsonNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = jsonNumbers(v[k])
		}
	}
	return v
}

func TestCanonicalRefuses(t *testing.T) {
	type loop struct{ Next *loop }
	cycle := &loop{}
	cycle.Next = cycle
	for name, v := range map[string]any{
		"float":         1.5,
		"huge float":    1e300,
		"large integer": int64(1) << 53,
		"uint64":        ^uint64(0),
		"bad UTF-8":     "\xff",
		"DEL":           "\x7f",
		"U+2028":        "\u2028",
		"name":          map[string]int{"é": 1},
		"channel":       make(chan int),
		"cycle":         cycle,
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := manifest.Canonical(v); err == nil || b != nil {
				t.Errorf("Canonical = %q, %v, want an error", b, err)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
		N    *int64 `json:"n"`
	}
	type doc struct {
		In   inner  `json:"in"`
		List []int  `json:"list"`
		Opt  string `json:"opt,omitempty"`
		Pair [2]int `json:"pair"`
	}
	for name, test := range map[string]struct {
		in string
		ok bool
		at string
	}{
		"good":              {`{"in":{"n":null,"name":"x"},"list":[1],"pair":[1,2]}`, true, ""},
		"optional":          {`{"in":{"n":1,"name":"x"},"list":[],"opt":"o","pair":[1,2]}`, true, ""},
		"unknown member":    {`{"in":{"m":1,"n":null,"name":"x"},"list":[],"pair":[1,2]}`, false, "/in/m"},
		"other case":        {`{"In":{"n":null,"name":"x"},"list":[],"pair":[1,2]}`, false, "/In"},
		"missing member":    {`{"in":{"name":"x"},"list":[],"pair":[1,2]}`, false, "/in/n"},
		"null list":         {`{"in":{"n":null,"name":"x"},"list":null,"pair":[1,2]}`, false, "/list"},
		"null string":       {`{"in":{"n":null,"name":null},"list":[],"pair":[1,2]}`, false, "/in/name"},
		"empty optional":    {`{"in":{"n":1,"name":"x"},"list":[],"opt":"","pair":[1,2]}`, false, "/opt"},
		"other type":        {`{"in":{"n":"1","name":"x"},"list":[],"pair":[1,2]}`, false, "/in/n"},
		"too long an array": {`{"in":{"n":1,"name":"x"},"list":[],"pair":[1,2,3]}`, false, "/pair"},
	} {
		t.Run(name, func(t *testing.T) {
			var d doc
			err := manifest.Decode([]byte(test.in), &d)
			if test.ok {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, _ := errors.AsType[*manifest.Error](err)
			if strings.HasPrefix(name, "unknown") && !strings.Contains(err.Error(), "unknown member") {
				t.Errorf("error = %v does not say that the member is unknown", err)
			}
			if e == nil || !errors.Is(err, manifest.ErrMalformed) || !strings.HasPrefix(e.At, test.at) {
				t.Errorf("error = %v, want ErrMalformed at %s", err, test.at)
			}
		})
	}
}

func BenchmarkCheckCanonical(b *testing.B) {
	doc := statement(b, predicate())
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if err := manifest.CheckCanonical(doc); err != nil {
			b.Fatal(err)
		}
	}
}
