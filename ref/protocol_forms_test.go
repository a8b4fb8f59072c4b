package ref_test

import (
	"regexp"
	"strings"
	"testing"

	"leafproof/ref"
)

// TestProtocolForms: each example in the paragraph is a reference that the parser
// reads.
func TestProtocolForms(t *testing.T) {
	examples := regexp.MustCompile(`\{"\$ref":\{.*?\}\}+`).FindAllString(ref.Protocol(), -1)
	if len(examples) != 4 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, example := range examples {
		example = strings.NewReplacer(":N", ":1", ",...", `,"part":0`).Replace(example)
		inner, is, err := ref.Detect([]byte(example))
		if err != nil || !is {
			t.Fatalf("%s is no envelope: %v", example, err)
		}
		if _, err := ref.ParseModel(inner, ref.Limits{}); err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
}
