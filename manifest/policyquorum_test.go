package manifest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
)

// witnesses are lines of n witnesses, w1 and so on.
func witnesses(t testing.TB, n int) string {
	t.Helper()
	var b strings.Builder
	for i := 1; i <= n; i++ {
		_, pub := testKey(fmt.Sprintf("witness %d", i))
		key, err := manifest.WitnessKey(fmt.Sprintf("w%d.example", i), pub)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "witness w%d %s\n", i, key)
	}
	return b.String()
}

// TestQuorum holds the time of a quorum to what C2SP tlog-policy says of its example.
func TestQuorum(t *testing.T) {
	p := parsePolicy(t, "policy p version 1\n"+witnesses(t, 6)+
		"group X 2 w1 w2 w3\ngroup Y any w4 w5 w6\ngroup X-and-Y all X Y\nquorum X-and-Y\n")
	if again := parsePolicy(t, p.String()); again.String() != p.String() || again.Quorum() != "X-and-Y" || len(again.Groups()) != 3 {
		t.Errorf("String is not read back:\n%s", p)
	}
	if next, err := p.Next(); err != nil || next.Quorum() != "X-and-Y" {
		t.Errorf("the next version has lost the quorum: %v", err)
	}
	at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }
	for range 500 {
		seen, x, y := map[string]time.Time{}, []int{}, []int{}
		for i := 1; i <= 6; i++ {
			if rand.N(2) == 0 {
				continue
			}
			s := rand.N(20)
			seen[fmt.Sprintf("w%d", i)] = at(s)
			if i <= 3 {
				x = append(x, s)
			} else {
				y = append(y, s)
			}
		}
		// The first second by which two of x and one of y had cosigned.
		first := -1
		for s := 0; s < 20 && first < 0; s++ {
			count := func(list []int) (n int) {
				for _, v := range list {
					if v <= s {
						n++
					}
				}
				return n
			}
			if count(x) >= 2 && count(y) >= 1 {
				first = s
			}
		}
		got, ok := p.QuorumMet(seen)
		if ok != (first >= 0) || ok && !got.Equal(at(first)) {
			t.Fatalf("x %v, y %v: met %v at %v, want second %d", x, y, ok, got, first)
		}
	}
	none := parsePolicy(t, "policy p version 1\n"+witnesses(t, 2)+"quorum none\n")
	if got, ok := none.QuorumMet(nil); !ok || !got.IsZero() {
		t.Errorf("no quorum: %v, %v", got, ok)
	}
	if got, ok := none.QuorumMet(map[string]time.Time{"w1": at(5), "w2": at(3)}); !ok || !got.Equal(at(3)) {
		t.Errorf("no quorum, two witnesses: %v, %v", got, ok)
	}
}

func TestQuorumRefuses(t *testing.T) {
	head := "policy p version 1\n" + witnesses(t, 3)
	for name, test := range map[string]struct {
		text string
		err  error
		says string
	}{
		"group of nobody":       {"group g any w9\n", manifest.ErrMalformed, `"w9"`},
		"group defined later":   {"group g any h\ngroup h any w1\n", manifest.ErrMalformed, `"h"`},
		"group without members": {"group g any\n", manifest.ErrMalformed, "want group"},
		"one voice twice":       {"group g 2 w1 w1\n", manifest.ErrMalformed, "twice"},
		"one voice in two":      {"group g any w1 w2\ngroup h any w2 w3\n", manifest.ErrMalformed, "another group"},
		"name of a witness":     {"group w1 any w2\n", manifest.ErrPolicy, "second witness or group"},
		"name none":             {"group none any w2\n", manifest.ErrPolicy, "none"},
		"more than there are":   {"group g 3 w1 w2\n", manifest.ErrMalformed, "number"},
		"none of them":          {"group g 0 w1 w2\n", manifest.ErrMalformed, "number"},
		"quorum of nobody":      {"quorum q\n", manifest.ErrMalformed, `"q"`},
		"quorum twice":          {"quorum w1\nquorum w1\n", manifest.ErrMalformed, "second quorum"},
		"quorum none, then one": {"quorum none\nquorum w1\n", manifest.ErrMalformed, "second quorum"},
		"quorum alone":          {"quorum\n", manifest.ErrMalformed, "want quorum"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.ParsePolicy([]byte(head + test.text))
			if !errors.Is(err, manifest.ErrPolicy) || !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error = %v, want %v with %q", err, test.err, test.says)
			}
		})
	}
}
