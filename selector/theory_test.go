package selector_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/theory/jsonpath"
)

// Another implementation of RFC 9535 selects the same nodes, where it can: it
// holds numbers as float64, and members of objects in no order.
func TestPathsTheory(t *testing.T) {
	g := newGen(13)
	g.clean = true
	// It does not read white space between the segments of a compared query, and
	// has nothing <= nothing false, against RFC 9535 section 2.3.5.2.2.
	g.theory = true
	found := 0
	for range 10_000 {
		q := g.query(false, 2)
		path := "$" + q.text[1:]
		doc := g.record()
		texts, paths, err := nodes(t, path, []byte(doc))
		if err != nil {
			t.Fatalf("%s on %s: %v", path, doc, err)
		}
		other, err := jsonpath.Parse(path)
		if err != nil {
			t.Fatalf("%s: theory: %v", path, err)
		}
		var v any
		if err := json.Unmarshal([]byte(doc), &v); err != nil {
			t.Fatal(err)
		}
		type pair struct{ path, value string }
		var got, want []pair
		for i := range paths {
			var v any
			if err := json.Unmarshal([]byte(texts[i]), &v); err != nil {
				t.Fatal(err)
			}
			got = append(got, pair{paths[i], jsonOf(t, v)})
		}
		for _, n := range other.SelectLocated(v) {
			want = append(want, pair{n.Path.String(), jsonOf(t, n.Node)})
		}
		byPath := func(a, b pair) int { return bytes.Compare([]byte(a.path), []byte(b.path)) }
		slices.SortStableFunc(got, byPath)
		slices.SortStableFunc(want, byPath)
		if !slices.Equal(got, want) {
			t.Fatalf("%s on %s:\n%q\ntheory:\n%q", path, doc, got, want)
		}
		found += len(got)
	}
	if found < 3_000 {
		t.Errorf("only %d nodes", found)
	}
}

// jsonOf writes a decoded value.
func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
