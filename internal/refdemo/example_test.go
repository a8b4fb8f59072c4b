package refdemo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-pdf/fpdf"

	"leafproof"
	"leafproof/internal/refdemo"
	"leafproof/ref/harness"
)

// The status report: a user asks for the open items of a project as a PDF. The export
// of 2.1 MB never enters the model's view; the 148 rows reach generate_pdf as they
// stand in it.
func Example_statusReport() {
	ctx := context.Background()
	tmp, err := os.MkdirTemp("", "leafproof-example-*")
	check(err)
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "store")
	check(leafproof.Init(ctx, dir))
	s, err := leafproof.Open(ctx, dir)
	check(err)
	defer s.Close()

	var pdf []byte
	told, err := refdemo.Tell(ctx, s, refdemo.Options{
		Rows: refdemo.Rows, Seed: 1, Tool: "generate_pdf",
		Report: func(_ context.Context, title string, rows []json.RawMessage) (harness.Blob, error) {
			b, err := generatePDF(title, rows)
			pdf = b
			return harness.Blob{Reader: bytes.NewReader(b), MediaType: "application/pdf"}, err
		},
	})
	check(err)

	fmt.Printf("the export has %.1f MB\n", float64(len(told.Document))/1e6)
	fmt.Printf("generate_pdf was given %d rows\n", len(told.Rows))
	for _, r := range told.Rows {
		if !bytes.Contains(told.Document, r) || !bytes.Contains(r, []byte(`"status":"open"`)) {
			fmt.Printf("not a row of the document: %s\n", r)
		}
	}
	fmt.Println("the model wrote", told.Wrote[2])
	fmt.Println("and read", string(told.Results[0].Content))
	fmt.Println("a PDF:", bytes.HasPrefix(pdf, []byte("%PDF-")) && bytes.Contains(pdf, []byte("%%EOF")))
	fmt.Println("the items in the model's view are those of the preview:", told.Shown() > 0 && told.Shown() < 40)
	fmt.Println("its view has less than 25 KB:", len(told.View) < 25_000)

	// Output:
	// the export has 2.1 MB
	// generate_pdf was given 148 rows
	// the model wrote {"title":"Status report: 148 open items","rows":{"$ref":{"type":"Message","seq":3,"part":0,"field":"value"}}}
	// and read {"opaque":true,"value":{"$ref":{"type":"Message","seq":2,"part":0}},"size":2100218,"format":{"mediaType":"application/json"}}
	// a PDF: true
	// the items in the model's view are those of the preview: true
	// its view has less than 25 KB: true
}

func generatePDF(title string, rows []json.RawMessage) ([]byte, error) {
	doc := fpdf.New("P", "mm", "A4", "")
	doc.SetFont("Helvetica", "", 9)
	doc.AddPage()
	doc.Cell(0, 6, title)
	for _, r := range rows {
		var item struct {
			ID           int64
			Title, Owner string
		}
		if err := json.Unmarshal(r, &item); err != nil {
			return nil, err
		}
		doc.Ln(5)
		doc.Cell(0, 5, fmt.Sprintf("%d  %s  (%s)", item.ID, item.Title, item.Owner))
	}
	var out bytes.Buffer
	err := doc.Output(&out)
	return out.Bytes(), err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
