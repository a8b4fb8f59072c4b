//go:build unix

package bench_test

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"
	"time"

	"leafproof/selector"
)

// BenchmarkIndex builds the indexes of six fields in one pass over 32 MiB of
// incidents, or -size bytes of them, and looks single keys up.
func BenchmarkIndex(b *testing.B) {
	n := int64(32 << 20)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "size" {
			n = *size
		}
	})
	name, open := incidents(b, n, false)
	f, err := os.Open(name)
	check(b, err)
	defer f.Close()
	info, err := f.Stat()
	check(b, err)
	m, l, trust := recordMap(b, f, info.Size(), selector.Layout{Format: selector.FormatNDJSON})
	var paths []*selector.KeyPath
	for _, text := range []string{"/status", "/service", "/metric/value", "/id", "/at", "/seq"} {
		p, err := selector.ParseKeyPath(text)
		check(b, err)
		paths = append(paths, p)
	}
	dir := b.TempDir()
	var outs []io.WriterAt
	var files []*os.File
	for _, name := range append([]string{"spill"}, "status", "service", "value", "id", "at", "seq") {
		w, err := os.Create(filepath.Join(dir, name))
		check(b, err)
		defer w.Close()
		outs, files = append(outs, w), append(files, w)
	}
	var infos []selector.IndexInfo
	b.Run("build", func(b *testing.B) {
		var peak uint64
		done := watch(&peak)
		perCPU(b, info.Size(), func() {
			build := selector.IndexBuild{Source: f, Map: m, Layout: l, Trust: trust, Paths: paths, Spill: files[0]}
			infos, err = build.Build(b.Context(), outs[1:])
			check(b, err)
		})
		done()
		total := int64(0)
		for i, x := range infos {
			total += x.Size
			b.Logf("%s: %d bytes, %.2f a record, %d keys", paths[i], x.Size, float64(x.Size)/float64(m.Records()), x.Distinct)
		}
		b.ReportMetric(100*float64(total)/float64(info.Size()), "%size")
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	})
	src := selector.IndexSource{Size: info.Size(), Records: m.Records(), Layout: l}
	x, err := selector.OpenIndex(files[1], infos[0].Size, paths[0], src)
	check(b, err)
	b.Run("equal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			from, err := x.Rank(b.Context(), selector.AppendTextKey(nil, "open"))
			check(b, err)
			to, err := x.Rank(b.Context(), append(selector.AppendTextKey(nil, "open"), 0))
			check(b, err)
			if to-from != int64(open) {
				b.Fatalf("%d entries, want %d", to-from, open)
			}
		}
	})
}

// watch notes the most memory that the runtime had from the system and in use,
// until it is told to stop.
func watch(peak *uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for ctx.Err() == nil {
			metrics.Read(s)
			*peak = max(*peak, s[0].Value.Uint64()-s[1].Value.Uint64())
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-ended }
}
