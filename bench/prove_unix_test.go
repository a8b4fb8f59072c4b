//go:build unix

package bench_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
)

// BenchmarkProve proves answers over 32 MiB of incidents with indexes of three
// fields, or over -size bytes of them, and verifies the bundles. index-B are the
// bytes of the index in a bundle with the hashes that prove them, bundle-B all.
func BenchmarkProve(b *testing.B) {
	n := int64(32 << 20)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "size" {
			n = *size
		}
	})
	name, open := incidents(b, n, false)
	b.Logf("%d incidents are open", open)
	dir := filepath.Join(b.TempDir(), "store")
	check(b, leafproof.Init(b.Context(), dir))
	s, err := leafproof.Open(b.Context(), dir)
	check(b, err)
	defer s.Close()
	f, err := os.Open(name)
	check(b, err)
	defer f.Close()
	draft, err := s.Put(b.Context(), f, leafproof.PutOptions{Name: "incidents.ndjson", Indexes: []string{"/status", "/id", "/seq"}})
	check(b, err)
	ref, err := s.Publish(b.Context(), draft, leafproof.Facts{SourceID: "infra.events"})
	check(b, err)
	text, err := os.ReadFile(leafproof.PolicyPath(dir))
	check(b, err)
	policy, err := manifest.ParsePolicy(text)
	check(b, err)
	const seq = 1<<53 + 1 + 4321
	for name, q := range map[string]leafproof.Query{
		"open":      {Where: openStatus},
		"absent":    {Where: `@.status == "lost"`},
		"absent-id": {Where: `@.id == "inc-00004321"`},
		"count":     {Where: openStatus, Count: true},
		"point":     {Where: fmt.Sprintf(`@.seq == %d`, seq)},
		"first-10":  {Where: openStatus, Limit: 10},
		"last-10":   {Where: openStatus, Limit: 10, Order: []string{"/seq:desc"}},
	} {
		var file bytes.Buffer
		var a *leafproof.ProvenAnswer
		b.Run(name+"/prove", func(b *testing.B) {
			for b.Loop() {
				file.Reset()
				a, err = s.ProveQuery(b.Context(), leafproof.Owner, ref.ArtifactID, q, &file)
				check(b, err)
			}
			if name == "open" && a.Found.Matched != int64(open) {
				b.Fatalf("%d match, want %d", a.Found.Matched, open)
			}
		})
		if a == nil {
			continue
		}
		b.Run(name+"/verify", func(b *testing.B) {
			for b.Loop() {
				res, err := bundle.Verify(bytes.NewReader(file.Bytes()), int64(file.Len()), bundle.Options{Policy: policy, At: time.Now()})
				check(b, err)
				if res.Verdict.Exit() != 0 {
					b.Fatal(res.Verdict.Sentence())
				}
			}
			index := int64(0)
			sections := a.Claim.Sections
			for _, s := range []*bundle.Section{sections.Header, sections.Pages, sections.Undetermined} {
				if s != nil {
					index += s.Length
				}
			}
			b.ReportMetric(float64(a.Found.Matched), "matched")
			b.ReportMetric(float64(index), "index-B")
			b.ReportMetric(float64(file.Len()), "bundle-B")
		})
	}
}
