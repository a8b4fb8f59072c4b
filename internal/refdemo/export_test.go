package refdemo

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The export of the story has its size and its open items; the same seed gives the same.
func TestExport(t *testing.T) {
	for _, test := range []struct{ rows, open int }{{Rows, Open}, {300, 5}, {1, 1}, {0, 0}} {
		doc := Export(test.rows, 7)
		if !bytes.Equal(doc, Export(test.rows, 7)) {
			t.Errorf("%d rows: not the same again", test.rows)
		}
		var all struct{ Items []struct{ Status string } }
		if err := json.Unmarshal(doc, &all); err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, i := range all.Items {
			if i.Status == "open" {
				open++
			}
		}
		if len(all.Items) != test.rows || open != test.open {
			t.Errorf("%d items, %d open; want %d and %d", len(all.Items), open, test.rows, test.open)
		}
	}
	if n := len(Export(Rows, 1)); n < 2_050_000 || n > 2_150_000 {
		t.Errorf("the export has %d bytes", n)
	}
}
