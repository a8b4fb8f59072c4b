package selector_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"leafproof/selector"
)

// nodes returns the texts and the normalized paths of what a path selects.
func nodes(t testing.TB, path string, doc []byte) (texts, paths []string, err error) {
	t.Helper()
	p, err := selector.ParsePath(path)
	if err != nil {
		return nil, nil, err
	}
	for n, err := range p.Nodes(t.Context(), doc) {
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, string(doc[n.Span.Start:n.Span.End]))
		paths = append(paths, n.Path())
	}
	return texts, paths, nil
}

// compact writes JSON without white space.
func compact(t *testing.T, p []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The public compliance suite of RFC 9535.
func TestCompliance(t *testing.T) {
	var suite struct {
		Tests []struct {
			Name, Selector  string
			Document        json.RawMessage
			Result          []json.RawMessage
			Results         [][]json.RawMessage
			ResultPaths     []string   `json:"result_paths"`
			ResultsPaths    [][]string `json:"results_paths"`
			InvalidSelector bool       `json:"invalid_selector"`
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(vectors(t, "json/jsonpath-cts"), "cts.json")), &suite); err != nil {
		t.Fatal(err)
	}
	if len(suite.Tests) < 703 {
		t.Fatalf("only %d cases", len(suite.Tests))
	}
	for _, test := range suite.Tests {
		texts, paths, err := nodes(t, test.Selector, test.Document)
		if test.InvalidSelector {
			if e, ok := errors.AsType[*selector.Error](err); !ok || !errors.Is(err, selector.ErrSelector) || e.Offset < 0 || e.Offset > int64(len(test.Selector)) {
				t.Errorf("%s: %s: %v, want ErrSelector", test.Name, test.Selector, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", test.Name, test.Selector, err)
			continue
		}
		results, resultPaths := test.Results, test.ResultsPaths
		if results == nil {
			results, resultPaths = [][]json.RawMessage{test.Result}, [][]string{test.ResultPaths}
		}
		ok := false
		for i, want := range results {
			same := len(texts) == len(want) && slices.Equal(paths, resultPaths[i])
			for j := 0; same && j < len(want); j++ {
				same = compact(t, []byte(texts[j])) == compact(t, want[j])
			}
			ok = ok || same
		}
		if !ok {
			t.Errorf("%s: %s on %s: %q at %q", test.Name, test.Selector, test.Document, texts, paths)
		}
	}
	t.Logf("%d cases", len(suite.Tests))
}

// wantSelector demands a refusal with ErrSelector.
func wantSelector(t *testing.T, nothing bool, err error, what string) {
	t.Helper()
	if e, ok := errors.AsType[*selector.Error](err); !nothing || !ok || !errors.Is(err, selector.ErrSelector) || e.Detail == "" {
		t.Errorf("%q: %v, want ErrSelector", what, err)
	}
}
