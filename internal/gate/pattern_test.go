package gate_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"leafproof/internal/gate"
)

func TestParsePattern(t *testing.T) {
	for text, want := range map[string]string{
		"acme": "acme", "acme/*": "acme", "acme/*/*": "acme", "*": "*", "acme/r1": "acme/r1", "acme/r*/art_1": "acme/r*/art_1",
		"*/*/art_2x": "*/*/art_2x", "a.b:c-d_e/r_1": "a.b:c-d_e/r_1",
	} {
		p, err := gate.ParsePattern(text)
		if err != nil || p.String() != want {
			t.Errorf("%q: %q, %v", text, p, err)
		}
	}
	for _, text := range []string{
		"", "/", "a/", "/a", "a//b", "a/b/c/d", "a*b", "**", "*a", "a b", ".a", "_a", "-", "a/../b", "ä", "a\n", "a\x00", "a/b/", strings.Repeat("a", 257),
	} {
		if p, err := gate.ParsePattern(text); !errors.Is(err, gate.ErrPattern) || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: %q, %v", text, p, err)
		}
	}
}

// TestPatternCovers: a pattern covers another when, and only when, it matches all that
// the other matches.
func TestPatternCovers(t *testing.T) {
	names := []string{"a", "ab", "abc", "b", ""}
	parts := []string{"*", "a", "ab", "a*", "ab*", "abc*", "b*", "b"}
	for range 3000 {
		pick := func(list []string) string { return list[rand.IntN(len(list))] }
		p := gate.Pattern{Tenant: pick(parts), Run: pick(parts), Artifact: pick(parts)}
		q := gate.Pattern{Tenant: pick(parts), Run: pick(parts), Artifact: pick(parts)}
		if rand.IntN(2) == 0 {
			q.Run, q.Artifact = p.Run, p.Artifact
		}
		all, some := true, false
		for _, x := range names {
			for _, y := range names {
				for _, z := range names {
					if q.Matches(x, y, z) {
						some = true
						all = all && p.Matches(x, y, z)
					}
				}
			}
		}
		// abc* matches one of the names alone, as abc would: a cover must do more.
		if p.Covers(q) && !all {
			t.Fatalf("%v covers %v, and does not match all of it", p, q)
		}
		if some && all && !p.Covers(q) && !strings.Contains(p.Tenant+p.Run+p.Artifact+q.Tenant+q.Run+q.Artifact, "abc*") && oneOpen(p, q) {
			t.Fatalf("%v matches all of %v, and does not cover it", p, q)
		}
	}
}

// oneOpen leaves out what five names cannot tell apart.
func oneOpen(p, q gate.Pattern) bool {
	for _, x := range [][2]string{{p.Tenant, q.Tenant}, {p.Run, q.Run}, {p.Artifact, q.Artifact}} {
		if !strings.HasSuffix(x[0], "*") && strings.HasSuffix(x[1], "*") {
			return false
		}
	}
	return true
}

// FuzzParsePattern: whatever parses is spelled so that it parses to the same, and
// covers itself.
func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"acme", "acme/r1/art_1", "a*/*/b*", "*", "a/b/c/d", "a**", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := gate.ParsePattern(s)
		if err != nil {
			return
		}
		q, err := gate.ParsePattern(p.String())
		if err != nil || q != p || !p.Covers(p) {
			t.Errorf("%q is %q, which is %q, %v", s, p, q, err)
		}
	})
}
