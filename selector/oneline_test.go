package selector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// oneLine is a JSON array in one line, made as it is read: so many rows of
// oneLineRow bytes, and a comma or the closing bracket behind each.
type oneLine int64

const oneLineRow = 1000

var oneLineText = strings.Repeat("x", oneLineRow)

func (n oneLine) size() int64 { return 1 + int64(n)*(oneLineRow+1) }

func (n oneLine) row(i int64) string {
	head := fmt.Sprintf(`{"id":%d,"status":"open","text":"`, i)
	return head + oneLineText[:oneLineRow-len(head)-2] + `"}`
}

func (n oneLine) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) && off < n.size() {
		piece := "["
		if off > 0 {
			i, within := (off-1)/(oneLineRow+1), (off-1)%(oneLineRow+1)
			end := ","
			if i == int64(n)-1 {
				end = "]"
			}
			piece = (n.row(i) + end)[within:]
		}
		k := copy(p[done:], piece)
		done, off = done+k, off+int64(k)
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// Case 52: of JSON in one line there is a preview that shows something, and pages
// that keep to their cap and come to the exact bytes.
func TestOneLine(t *testing.T) {
	for _, doc := range []oneLine{100, 100_000} { // 100 KB, 100 MB
		t.Run(fmt.Sprintf("%d bytes", doc.size()), func(t *testing.T) {
			if doc > 1000 && testing.Short() {
				t.Skip("100 MB, in short mode")
			}
			p, err := selector.Preview(t.Context(), doc, selector.Span{End: doc.size()}, selector.PreviewChars)
			if err != nil {
				t.Fatal(err)
			}
			shown := checkPreview(t, p, selector.PreviewChars)
			var rows []map[string]any
			if err := json.Unmarshal(shown.Preview, &rows); err != nil || len(rows) == 0 || rows[0]["status"] != "open" {
				t.Errorf("the preview shows %d rows (%v): %.200s", len(rows), err, p)
			}
			if e := shown.Elided[0]; e.At != "" || e.Kind != "items" || e.Total != int64(doc) {
				t.Errorf("elided: %+v", e)
			}

			var out memory
			info, stats, l, err := selector.BuildMap(t.Context(), doc, doc.size(), merkle.Root{}, layout(t, "json", "", nil), &out)
			if err != nil {
				t.Fatal(err)
			}
			m, err := selector.OpenMap(bytes.NewReader(out.b), info.Size, merkle.Root{}, doc.size(), l)
			if err != nil {
				t.Fatal(err)
			}
			limit := doc.size() / 24
			task := selector.Task{Source: doc, Map: m, Layout: l, Trust: stats.Trust(), Budget: selector.Budget{ReturnBytes: limit}}
			next, at := int64(0), int64(1) // behind the bracket
			for task.From.Record < int64(doc) {
				page := int64(0)
				scan, err := task.Run(t.Context(), func(r selector.Row) error {
					if r.Record != next || r.Span.Start != at || string(r.Bytes) != doc.row(next) {
						return fmt.Errorf("record %d at %v is %.60s, want %d at %d", r.Record, r.Span, r.Bytes, next, at)
					}
					next, at, page = next+1, r.Span.End+1, page+r.Span.Len() // behind the comma
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if page > limit || scan.Position.Record <= task.From.Record {
					t.Fatalf("a page of %d bytes, at most %d; from %+v to %+v", page, limit, task.From, scan.Position)
				}
				task.From = scan.Position
			}
			if next != int64(doc) || at != doc.size() {
				t.Errorf("the pages come to %d records and %d bytes, want %d and %d", next, at, doc, doc.size())
			}
		})
	}
}
