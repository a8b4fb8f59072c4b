package selector_test

import (
	"bytes"
	"fmt"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// discard is an io.WriterAt that keeps nothing.
type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func BenchmarkBuildMap(b *testing.B) {
	nd, _, _ := events(100_000)
	arr := append(append([]byte("["), bytes.ReplaceAll(bytes.TrimSpace(nd), []byte("\n"), []byte(",\n"))...), ']')
	var csv bytes.Buffer
	csv.WriteString("a,b,c\n")
	for i := range 100_000 {
		fmt.Fprintf(&csv, "%d,\"some text, quoted\",open\n", i)
	}
	for _, c := range []struct {
		format string
		src    []byte
	}{{"ndjson", nd}, {"json", arr}, {"csv", csv.Bytes()}, {"text", nd}} {
		b.Run(c.format, func(b *testing.B) {
			l := layout(b, c.format, "", c.src[:1000])
			b.SetBytes(int64(len(c.src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := selector.BuildMap(b.Context(), bytes.NewReader(c.src), int64(len(c.src)), merkle.Root{}, l, discard{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRun(b *testing.B) {
	src, _, _ := events(100_000)
	m := build(b, src, layout(b, "ndjson", "", nil))
	for name, q := range map[string]string{"equals": `@.s == "open"`, "contains": `{"field":"/pad","contains":"ppp"}`, "number": `@.n == 99999`} {
		b.Run(name, func(b *testing.B) {
			w := where(b, q)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := selector.Run(b.Context(), bytes.NewReader(src), m.m, m.layout, w, selector.Position{}, selector.Budget{}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSpans(b *testing.B) {
	src := lines(1_000_000, 20, 1)
	m := build(b, src, selector.Layout{Format: "text"})
	for _, n := range []int64{1, 10, 1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range m.m.Spans(b.Context(), 1_000_000-n, 1_000_000) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
	b.Logf("map: %.2f bytes a record", float64(m.info.Size)/1e6)
}

func BenchmarkFindPointer(b *testing.B) {
	src, _, _ := events(100_000)
	doc := append(append([]byte(`{"rows":[`), bytes.ReplaceAll(bytes.TrimSpace(src), []byte("\n"), []byte(","))...), `],"last":1}`...)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := selector.FindPointer(b.Context(), bytes.NewReader(doc), int64(len(doc)), "/last"); err != nil {
			b.Fatal(err)
		}
	}
}

// Records of the length that real events have.
func BenchmarkRunLong(b *testing.B) {
	var buf bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&buf, `{"id":%d,"status":"%s","title":"disk %d is full on host %d","detail":{"status":"open","trace":"%0200d"},"message":"%0200d"}`+"\n", i, []string{"open", "shut"}[i&1], i, i%97, i, i)
	}
	src := buf.Bytes()
	m, w := build(b, src, layout(b, "ndjson", "", nil)), where(b, `@.status == "open"`)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := selector.Run(b.Context(), bytes.NewReader(src), m.m, m.layout, w, selector.Position{}, selector.Budget{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The same with a Trust, on one goroutine and on all cores.
func BenchmarkTask(b *testing.B) {
	var buf bytes.Buffer
	for i := range 80_000 {
		fmt.Fprintf(&buf, `{"id":%d,"title":"disk %d is full on host %d","detail":{"status":"open","trace":"%0200d"},"status":"%s","message":"%0200d"}`+"\n", i, i, i%97, i, []string{"open", "shut"}[i&1], i)
	}
	src := buf.Bytes()
	m, w := build(b, src, layout(b, "ndjson", "", nil)), where(b, `@.status == "open"`)
	for _, workers := range []int{1, 0} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				t := selector.Task{Source: bytes.NewReader(src), Map: m.m, Layout: m.layout, Where: w, Trust: m.stats.Trust(), Workers: workers}
				if scan, err := t.Run(b.Context(), nil); err != nil || scan.Position.Matched != 40_000 {
					b.Fatal(scan, err)
				}
			}
		})
	}
}
