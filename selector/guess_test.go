package selector_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/selector"
)

// What an evaluator learned from earlier records changes no verdict on a later
// one: members that go, come, trade places, and are spelled or spaced in another
// way.
func TestEvaluatorRemembersNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	names := []string{`"s"`, `"\u0073"`, `"t"`, `"status"`, `"statuz"`, `"severity"`, `"severitz"`, `"stat\u0075s"`, `"a much longer name than most are"`, `"x{y"`, `"q\"s"`, `""`, `"` + strings.Repeat("n", 80) + `"`}
	for i := range 90 { // more than are remembered
		names = append(names, fmt.Sprintf(`"m%d"`, i))
	}
	values := []string{`"open"`, `"op\u0065n"`, `1`, `null`, `{"s":"open"}`, `["open"]`, `{"s":{"s":"shut","t":"open"}}`, `"s\\"`, `"\"s\":\"open\""`}
	spaces := []string{"", "", "", " ", "  \t"}
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	var order []int
	record := func() string {
		if len(order) == 0 || rng.IntN(20) == 0 {
			order = rng.Perm(len(names))[:1+rng.IntN(14)]
		}
		var b strings.Builder
		b.WriteString(pick(spaces) + "{")
		for i, k := range order {
			if rng.IntN(12) == 0 {
				continue
			}
			if b.String()[b.Len()-1] != '{' {
				b.WriteString(pick(spaces) + "," + pick(spaces))
			}
			name := names[k]
			if rng.IntN(12) == 0 {
				name = names[rng.IntN(13)]
			}
			b.WriteString(name + pick(spaces) + ":" + pick(spaces) + pick(values))
			if rng.IntN(40) == 0 && i < 3 {
				break
			}
		}
		return b.String() + "}"
	}
	for _, text := range []string{`@.status == "open"`, `@.s == "open" || @.t.s == "shut"`, `@.s.s.t == "open"`, `@.m7 == 1 && @.s != null`, `@[""] == "open"`, `@.severity == "open"`} {
		w := where(t, text)
		l := layout(t, "ndjson", "", nil)
		e, err := w.Evaluator(l)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[selector.Outcome]int{}
		for range 4000 {
			r := []byte(record())
			want := w.Eval(r, l)
			if got := e.Eval(r); got != want {
				t.Fatalf("%s of %s: %v, by itself %v", text, r, got, want)
			}
			seen[want]++
			if !jsontext.Value(r).IsValid() {
				continue // a name stands twice: it would not be trusted
			}
			if got := e.EvalTrusted(r); got != want {
				t.Fatalf("%s of %s, trusted: %v, by itself %v", text, r, got, want)
			}
		}
		if seen[selector.Matched] < 3 || seen[selector.Unmatched] < 500 {
			t.Errorf("%s: %v", text, seen)
		}
	}
}
