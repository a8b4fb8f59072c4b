package bundle_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// BenchmarkVerify is a whole verification in process: line 1, header, signatures,
// policy, claim.
func BenchmarkVerify(b *testing.B) {
	data, doc := lines(3000), document(20_000)
	src := source(b, data, "text")
	asked := selector.RangeSelector("bytes", 5000, 6024)
	bundles := map[string]func() (*bundle.Bundle, error){
		"bytes=1KiB": func() (*bundle.Bundle, error) { return bundle.Bytes(src, merkle.Range{Start: 5000, End: 6024}) },
		"bytes=1KiB, with a receipt": func() (*bundle.Bundle, error) {
			out, err := bundle.Bytes(src, merkle.Range{Start: 5000, End: 6024})
			if err != nil {
				return nil, err
			}
			return out, out.AddReceipt(signBody(b, receiptFor(b, src, asked, data[5000:6024]), "store"))
		},
		"records=10": func() (*bundle.Bundle, error) { return bundle.Records(b.Context(), src, 700, 710) },
		"pointer, whole document": func() (*bundle.Bundle, error) {
			return bundle.Pointer(b.Context(), source(b, doc, ""), "/items/700", true)
		},
	}
	p := storePolicy(b)
	for name, f := range bundles {
		b.Run(name, func(b *testing.B) {
			made, err := f()
			file := write(b, made, err)
			b.SetBytes(int64(len(file)))
			b.ReportAllocs()
			for b.Loop() {
				res, err := verify(file, p, io.Discard)
				if err != nil || res.Verdict.Exit() != 0 {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestBounded verifies bundles of 24 MiB from a file: all that is ever allocated
// for one is far below 32 MiB, whatever the claim.
func TestBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes large files")
	}
	const size, limit = 24 << 20, 4 << 20
	var b bytes.Buffer
	b.WriteString(`{"items":[0`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, ",\n {\"id\":%d,\"text\":%q}", i, "some text to fill the row with, of no interest to anybody who reads it")
	}
	b.WriteString("]}")
	doc := b.Bytes()
	src := source(t, doc, "text")
	for name, f := range map[string]func() (*bundle.Bundle, error){
		"bytes":   func() (*bundle.Bundle, error) { return bundle.Bytes(src, merkle.Range{Start: 0, End: size}) },
		"records": func() (*bundle.Bundle, error) { return bundle.Records(t.Context(), src, 0, 200_000) },
		"pointer": func() (*bundle.Bundle, error) { return bundle.Pointer(t.Context(), src, "/items/1000", true) },
	} {
		t.Run(name, func(t *testing.T) {
			made, err := f()
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Create(filepath.Join(t.TempDir(), "e.proof"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			n, err := made.WriteTo(file)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			res, err := bundle.Verify(file, n, bundle.Options{Policy: policy(t, "one"), At: at, Out: io.Discard})
			runtime.ReadMemStats(&after)
			if err != nil || res.Verdict.Exit() != 0 {
				t.Fatal(err)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > limit {
				t.Errorf("%d bytes were allocated for a bundle of %d", got, n)
			} else {
				t.Logf("%d bytes were allocated for a bundle of %d", got, n)
			}
		})
	}
}
