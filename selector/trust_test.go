package selector_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"leafproof/selector"
)

// spelling writes one JSON value: names and strings with and without escapes,
// white space anywhere, decoys of what a condition looks for.
func spelling(rng *rand.Rand, depth int) string {
	space := func() string { return []string{"", "", "", " ", "\t", "\r ", "  "}[rng.IntN(7)] }
	text := func() string {
		return []string{
			`"open"`, `"\u006fpen"`, `"o\u0070en"`, `"shut"`, `""`, `"\\"`, `"\\\""`, `"a,b]}:"`, `"\"status\":\"open\""`, `"{"`, `"é"`, `"\ud83d\ude00"`,
		}[rng.IntN(12)]
	}
	switch n := rng.IntN(9); {
	case n < 3 && depth > 0:
		names := []string{`"status"`, `"\u0073tatus"`, `"a"`, `"statu"`, `"status2"`, `"s"`, `"\\"`, `""`}
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		var b bytes.Buffer
		b.WriteString("{" + space())
		seen := false // of the two spellings of one name
		for i, k := range names[:rng.IntN(6)] {
			if k == `"status"` || k == `"\u0073tatus"` {
				if seen {
					continue
				}
				seen = true
			}
			if i > 0 && b.Len() > 1 && b.Bytes()[b.Len()-1] != '{' && bytes.IndexByte(b.Bytes(), ':') > 0 {
				b.WriteString("," + space())
			}
			b.WriteString(k + space() + ":" + space() + spelling(rng, depth-1) + space())
		}
		return b.String() + "}"
	case n < 5 && depth > 0:
		s := "[" + space()
		for i := range rng.IntN(4) {
			if i > 0 {
				s += "," + space()
			}
			s += spelling(rng, depth-1) + space()
		}
		return s + "]"
	case n < 7:
		return text()
	}
	return []string{"0", "-1", "1.50", "1e2", "9007199254740993", "true", "false", "null"}[rng.IntN(8)]
}

// A validated record is decided as one that is checked again.
func TestTrusted(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	l := layout(t, "ndjson", "", nil)
	var conditions []*selector.Evaluator
	for _, q := range []string{
		`@.status == "open"`, `@.status.status == "open"`, `@.a == 1.5`, `{"field":"/a/1","equals":"open"}`,
		`@[1] == "open"`, `@["\\"] == true`, `{"field":"","equals":"open"}`, `{"field":"/","contains":"o"}`, `@.a.s == null`,
	} {
		e, err := where(t, q).Evaluator(l)
		if err != nil {
			t.Fatal(err)
		}
		conditions = append(conditions, e)
	}
	hits := 0
	for range 5_000 {
		record := "{" + `"x":` + spelling(rng, 3) + `,"status":` + spelling(rng, 2) + `,"a":` + spelling(rng, 2) + "}"
		if rng.IntN(4) == 0 {
			record = spelling(rng, 3)
		}
		if build(t, []byte(record+"\n"), l).stats.Undecidable > 0 {
			continue // the generator repeated a name
		}
		for i, e := range conditions {
			slow, fast := e.Eval([]byte(record)), e.EvalTrusted([]byte(record))
			if slow != fast {
				t.Fatalf("condition %d: %s, trusted %s: %s", i, slow, fast, record)
			}
			if slow == selector.Matched {
				hits++
			}
		}
	}
	if hits < 300 {
		t.Errorf("only %d hits: nothing was compared", hits)
	}
}

// Bytes that were never valid are read without a panic.
func TestTrustedBroken(t *testing.T) {
	l := layout(t, "ndjson", "", nil)
	e, err := where(t, `@.a.b == "x"`).Evaluator(l)
	if err != nil {
		t.Fatal(err)
	}
	whole := `{"b":[1,{"a":"\\\""}],"a" : {"c":"\u0061","b" : "x"}}`
	for i := range whole {
		e.EvalTrusted([]byte(whole[:i]))
		for _, c := range []byte(`"\{}[]:, 0`) {
			p := []byte(whole)
			p[i] = c
			e.EvalTrusted(p)
			e.EvalTrusted(p[i:])
		}
	}
}

// Only records that were found undecidable are checked again, and where the
// list of them is not whole, all are.
func TestTrustSuspects(t *testing.T) {
	for _, n := range []int{1, 16, 17} {
		var src bytes.Buffer
		for i := range 100 {
			if i%5 == 3 && i < 5*n {
				fmt.Fprintf(&src, `{"s":"open","s":"open","n":%d}`+"\n", i)
			} else {
				fmt.Fprintf(&src, `{"s":"open","n":%d}`+"\n", i)
			}
		}
		b := build(t, src.Bytes(), layout(t, "ndjson", "", nil))
		task := selector.Task{Source: bytes.NewReader(src.Bytes()), Map: b.m, Layout: b.layout, Where: where(t, `@.s == "open"`), Trust: b.stats.Trust()}
		scan, err := task.Run(t.Context(), nil)
		if err != nil || scan.Position.Undecidable != int64(n) || scan.Position.Matched != int64(100-n) || len(scan.Undecidable) != min(n, 16) {
			t.Errorf("%d undecidable records: %+v, %v", n, scan, err)
		}
	}
}
