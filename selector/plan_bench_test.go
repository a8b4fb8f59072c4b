package selector_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"leafproof/selector"
)

// BenchmarkConsult asks events with an index and without; LEAFPROOF_EVENTS says how
// many there are. Each line has the time with an index, and as metrics that of a
// scan, the records and bytes examined, and the bytes of the index that were read.
func BenchmarkConsult(b *testing.B) {
	n := 20_000
	if s := os.Getenv("LEAFPROOF_EVENTS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	var src bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		status := "closed"
		if rng.IntN(25) == 0 {
			status = "open"
		}
		fmt.Fprintf(&src, `{"id":"ev-%09d","ts":"2026-11-%02dT%02d:%02d:%02dZ","status":%q,"latency_ms":%d.%03d,"share":%d,"body":"%0450d"}`+"\n",
			i, 1+i*28/n, rng.IntN(24), rng.IntN(60), rng.IntN(60), status, rng.IntN(900), rng.IntN(1000), rng.IntN(100), i)
	}
	s := indexSource(b, src.Bytes(), layout(b, "ndjson", "", nil), nil)
	for _, path := range []string{"/id", "/status", "/ts", "/latency_ms", "/share"} {
		s.indexes[path] = writtenIndex(b, s, path)
	}
	for _, c := range []struct {
		name  string
		q     asked
		count bool
		path  string
	}{
		{"point", asked{where: fmt.Sprintf(`@.id == "ev-%09d"`, n/3)}, false, "/id"},
		{"absent", asked{where: `@.id == "nobody"`}, false, "/id"},
		{"4 in 100", asked{where: `@.status == "open"`}, false, "/status"},
		{"4 in 100 counted", asked{where: `@.status == "open"`}, true, "/status"},
		{"first 100 by ts", asked{order: []string{"/ts:desc"}, budget: selector.Budget{Limit: 100}}, false, "/ts"},
		{"share 1", asked{where: `@.share < 1`}, false, "/share"},
		{"share 10", asked{where: `@.share < 10`}, false, "/share"},
		{"share 25", asked{where: `@.share < 25`}, false, "/share"},
		{"share 50", asked{where: `@.share < 50`}, false, "/share"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var scan selector.Scan
			run := func(x []selector.KeyIndex) {
				task := s.task(b, c.q)
				if err := task.Consult(b.Context(), x, !c.count); err != nil {
					b.Fatal(err)
				}
				emit := func(selector.Row) error { return nil }
				if c.count {
					emit = nil
				}
				var err error
				if scan, err = task.Run(b.Context(), emit); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				run([]selector.KeyIndex{s.indexes[c.path]})
			}
			b.ReportMetric(float64(scan.Position.Examined), "records")
			b.ReportMetric(float64(scan.Position.Bytes), "bytes")
			b.ReportMetric(float64(scan.Position.Matched), "matched")
		})
		b.Run(c.name+" scanned", func(b *testing.B) {
			for b.Loop() {
				task := s.task(b, c.q)
				if _, err := task.Run(b.Context(), func(selector.Row) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
