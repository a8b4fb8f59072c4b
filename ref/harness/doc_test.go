package harness_test

import (
	"os"
	"strings"
	"testing"

	"leafproof/ref"
)

// docs/HARNESS.md has the paragraph for the prompt as it is, and says of every code
// what a model should do.
func TestHarnessDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/HARNESS.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n> "+ref.Protocol()+"\n") {
		t.Error("the paragraph is another one")
	}
	codes, err := os.ReadFile("../../errors.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(codes)) {
		name, code, ok := strings.Cut(line, "Code = \"")
		if !ok || !strings.HasPrefix(strings.TrimSpace(name), "Code") {
			continue
		}
		code = code[:strings.Index(code, `"`)]
		switch n++; code {
		case "ref_altered", "name_conflict", "unauthenticated", "request_invalid": // no model causes them
			continue
		}
		if !strings.Contains(string(text), code) {
			t.Errorf("the code %s is not in it", code)
		}
	}
	if n < 25 {
		t.Errorf("only %d codes were found", n)
	}
}
