package harness_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"leafproof/internal/refdemo"
	"leafproof/ref/harness"
	"leafproof/selector"
)

type selectorAnswer = selector.Answer

// Case 1, in the steps of the loop: the rows reach the other tool byte for byte as the
// filter gives them, and no byte of the document but the preview's rows is in the
// model's view. Other seeds and row counts agree with jq.
func TestStatusReport(t *testing.T) {
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("there is no jq")
	}
	for _, size := range []struct {
		rows int
		seed uint64
	}{{refdemo.Rows, 1}, {300, 2}, {1, 3}, {2017, 4}} {
		doc := refdemo.Export(size.rows, size.seed)
		var rows json.RawMessage
		sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) {
			var in struct{ Rows json.RawMessage }
			if err := json.Unmarshal(args, &in); err != nil {
				t.Error(err)
			}
			rows = in.Rows
		})}})
		export := sc.record(jsonBlob(doc))
		found := sc.good("query_json", `{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, refTo(export, ""))
		sc.good("generate", `{"rows":%s}`, member(t, found, "value"))

		cmd := exec.Command(jq, "-c", `[.items[] | select(.status == "open")] | length, .[]`)
		cmd.Stdin = bytes.NewReader(doc)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSpace(string(out)), "\n")
		var got []json.RawMessage
		if err := json.Unmarshal(rows, &got); err != nil {
			t.Fatal(err)
		}
		if strconv.Itoa(len(got)) != want[0] || member(t, found, "matched") != want[0] {
			t.Errorf("%d rows of seed %d: %d reached the tool, %s matched, jq finds %s", size.rows, size.seed, len(got), member(t, found, "matched"), want[0])
		}
		for i, row := range got {
			if !bytes.Contains(doc, row) {
				t.Fatalf("row %d is not in the document as it stands: %s", i, row)
			}
			if !sameJSON(row, []byte(want[i+1])) {
				t.Fatalf("row %d: %s, jq says %s", i, row, want[i+1])
			}
		}
		if size.rows == refdemo.Rows && len(got) != refdemo.Open {
			t.Errorf("%d open items", len(got))
		}
		absent(t, sc.seen(), doc, found)
	}
}

// sameJSON compares values, with numbers as jq reads them.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// absent demands that of the document the model's view has nothing but the rows of the
// preview: no run of 40 of its bytes outside of them.
func absent(t *testing.T, view string, doc []byte, preview harness.View) {
	t.Helper()
	view = strings.ReplaceAll(view, string(preview.Content), "")
	for at := 0; at+40 <= len(doc); at += 20 {
		if strings.Contains(view, string(doc[at:at+40])) {
			t.Fatalf("%q is in the model's view", doc[at:at+40])
		}
	}
	if len(view) > 40_000 {
		t.Errorf("the view has %d bytes besides the preview", len(view))
	}
}
