package selector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"

	"leafproof/selector"
)

type previewed struct {
	Preview json.RawMessage `json:"preview"`
	Elided  []struct {
		At    string `json:"at"`
		Kind  string `json:"kind"`
		Shown int64  `json:"shown"`
		Total int64  `json:"total"`
	} `json:"elided"`
	More  int64  `json:"more_elided"`
	Shape string `json:"shape"`
}

func preview(t testing.TB, doc string, chars int) previewed {
	t.Helper()
	p, err := selector.Preview(t.Context(), strings.NewReader(doc), selector.Span{End: int64(len(doc))}, chars)
	if err != nil {
		t.Fatal(err)
	}
	again, err := selector.Preview(t.Context(), strings.NewReader(doc), selector.Span{End: int64(len(doc))}, chars)
	if err != nil || !bytes.Equal(p, again) {
		t.Fatalf("not the same again: %v", err)
	}
	return checkPreview(t, p, chars)
}

func checkPreview(t testing.TB, p []byte, chars int) (out previewed) {
	t.Helper()
	if n := len(utf16.Encode([]rune(string(p)))); n > chars {
		t.Errorf("%d characters, at most %d", n, chars)
	}
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %.300s", err, p)
	}
	if out.Elided == nil || len(out.Elided) > 20 {
		t.Errorf("elided: %v", out.Elided)
	}
	return out
}

// Case 5: valid JSON of at most 6,000 characters, also of hostile input.
func TestPreviewHostile(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `"key%d":%d,`, i, i)
	}
	keys := "{" + b.String() + `"z":0}`
	for name, doc := range map[string]string{
		"a long string":   `"` + strings.Repeat("lorem ipsum ", 90_000) + `"`,
		"escapes":         `"` + strings.Repeat(`\u00e9\n`, 100_000) + `"`,
		"surrogates":      `{"s":"` + strings.Repeat(`\ud83d\ude00`, 1000) + `"}`,
		"emoji":           `["` + strings.Repeat("😀", 100_000) + `"]`,
		"not UTF-8":       `{"s":"` + strings.Repeat("\xff\xfe", 1000) + `"}`,
		"many keys":       keys,
		"depth":           strings.Repeat(`{"a":[`, 4999) + "1" + strings.Repeat(`]}`, 4999),
		"a long name":     `{"` + strings.Repeat("n", 100_000) + `":1,"b":2}`,
		"a long number":   `[` + strings.Repeat("9", 100_000) + `]`,
		"wide rows":       "[" + strings.Repeat(keys[:strings.Index(keys, `"key900"`)]+`"q":0},`, 20) + "0]",
		"rows in rows":    "[" + strings.Repeat(`[[[[[[1,2,3],"x"]]]]],`, 10_000) + "0]",
		"empty":           "[]",
		"a scalar":        " null ",
		"twice":           `{"a":1,"\u0061":2,"b":{"c":1,"c":2}}`,
		"quotes in names": `{"\"a\\":{"~/":["x"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, chars := range []int{selector.PreviewChars, 1000, selector.MinPreview} {
				p := preview(t, doc, chars)
				if name != "empty" && name != "a scalar" && name != "quotes in names" && len(p.Elided)+int(p.More) == 0 {
					t.Errorf("%d: nothing elided: %s", chars, p.Preview)
				}
			}
		})
	}
	if _, err := selector.Preview(t.Context(), strings.NewReader(`{"a":`), selector.Span{End: 5}, 1000); err == nil {
		t.Error("a document that does not parse")
	}
}

// Rows are dropped before columns, the counts are true, numbers stand as they
// stand, and the shape says what all rows have.
func TestPreviewRows(t *testing.T) {
	var rows []string
	for i := range 148 {
		note := `"disk"`
		if i == 140 {
			note = "null"
		}
		row := fmt.Sprintf(`{"id":%d,"n":13911860366432393.50,"status":"open","note":%s,"message":"%s"}`, i, note, strings.Repeat("long ", 60))
		if i == 147 {
			row = `{"id":147}`
		}
		rows = append(rows, row)
	}
	doc := `{"total":148,"items":[` + strings.Join(rows, ",") + `]}`
	p := preview(t, doc, selector.PreviewChars)
	var got struct {
		Total int
		Items []map[string]json.RawMessage
	}
	if err := json.Unmarshal(p.Preview, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Items) < 5 || len(got.Items) == 148 || len(got.Items[0]) != 5 || string(got.Items[3]["id"]) != "3" || string(got.Items[0]["n"]) != "13911860366432393.50" {
		t.Errorf("%d rows: %s", len(got.Items), p.Preview)
	}
	if e := p.Elided[0]; e.At != "/items" || e.Kind != "items" || e.Shown != int64(len(got.Items)) || e.Total != 148 {
		t.Errorf("elided %+v", p.Elided)
	}
	if e := p.Elided[1]; e.At != "/items/0/message" || e.Kind != "string" || e.Total != 300 || e.Shown > 300 {
		t.Errorf("elided %+v", p.Elided)
	}
	if want := "{total: number, items: [{id: number, n?: number, status?: string, note?: string|null, message?: string}]}"; p.Shape != want {
		t.Errorf("shape %s, want %s", p.Shape, want)
	}
	small := `{"items":[{"a":1.0},{"a":2}]}`
	if p := preview(t, small, selector.PreviewChars); string(p.Preview) != small || len(p.Elided) != 0 {
		t.Errorf("a small value: %s, %v", p.Preview, p.Elided)
	}
}

// The preview of the rows of a result begins with them.
func TestPreviewOfRows(t *testing.T) {
	src := []byte(`{"a":1}` + "\n" + `{"a":2}` + "\n" + `{"a":[]}` + "\n")
	b := build(t, src, layout(t, "ndjson", "", nil))
	var spans iter.Seq2[selector.Span, error] = b.m.Spans(t.Context(), 0, 3)
	p, err := selector.PreviewRows(t.Context(), bytes.NewReader(src), spans, 148, 6000)
	if err != nil {
		t.Fatal(err)
	}
	out := checkPreview(t, p, 6000)
	if string(out.Preview) != `[{"a":1},{"a":2},{"a":[]}]` || out.Elided[0].Total != 148 || out.Shape != "[{a: number|[]}]" {
		t.Errorf("%s", p)
	}
}

// Random documents: valid, short enough, and every number and name is the
// document's.
func TestPreviewRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 500 {
		doc := `{"x":` + spelling(rng, 6) + `,"y":[` + spelling(rng, 4) + "," + spelling(rng, 5) + `]}`
		preview(t, doc, 200+rng.IntN(2000))
	}
}

func FuzzPreview(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x\u00e9",{"b":null}],"a":2}`), 200)
	f.Add([]byte(`[[[[[["\ud83d\ude00"]]]]]]`), 300)
	f.Fuzz(func(t *testing.T, doc []byte, chars int) {
		chars = selector.MinPreview + max(0, chars)%6000
		p, err := selector.Preview(t.Context(), bytes.NewReader(doc), selector.Span{End: int64(len(doc))}, chars)
		if err == nil {
			checkPreview(t, p, chars)
		} else if json.Valid(doc) {
			t.Fatalf("no preview of a valid document: %v", err)
		}
	})
}
