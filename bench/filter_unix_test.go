//go:build unix

package bench_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"leafproof"
	"leafproof/bench"
	"leafproof/cas"
	"leafproof/merkle"
	"leafproof/selector"
)

var proseBytes = flag.Int("body", 0, "bytes of prose in each incident")

// incidents writes events of some 540 bytes, or with prose of more, and returns how
// many are open. A quarter has the status of another event nested before its own, a
// tenth quotes one in a message, and of the open ones a tenth spells its status with
// an escape.
func incidents(b *testing.B, size int64, array bool) (name string, open int) {
	b.Helper()
	name = filepath.Join(b.TempDir(), "incidents")
	f, err := os.Create(name)
	check(b, err)
	open, err = bench.Incidents(f, 7, size, array, *proseBytes)
	check(b, err)
	check(b, f.Close())
	return name, open
}

// cpu is the processor time of this process and of those it waited for.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		check(b, syscall.Getrusage(who, &u))
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}

// perCPU runs one loop and reports its megabytes for each second of processor
// time.
func perCPU(b *testing.B, size int64, once func()) {
	b.Helper()
	before := cpu(b)
	n := 0
	for b.Loop() {
		once()
		n++
	}
	b.SetBytes(size)
	b.ReportMetric(float64(size)*float64(n)/1e6/(cpu(b)-before).Seconds(), "MB/cpu-s")
}

const openStatus = `@.status == "open"`

// BenchmarkFilter filters one field of -size bytes of NDJSON: with the engine
// over the bare file, through a store that verifies what it reads, and with jq.
// Every hit count is checked.
func BenchmarkFilter(b *testing.B) {
	name, open := incidents(b, *size, false)
	f, err := os.Open(name)
	check(b, err)
	defer f.Close()
	fi, err := f.Stat()
	check(b, err)
	where, err := selector.ParseWhere(openStatus)
	check(b, err)
	m, l, trust := recordMap(b, f, fi.Size(), selector.Layout{Format: selector.FormatNDJSON})
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("tool=engine/workers=%d", workers), func(b *testing.B) {
			perCPU(b, fi.Size(), func() {
				t := selector.Task{Source: f, Map: m, Layout: l, Where: where, Trust: trust, Workers: workers}
				scan, err := t.Run(b.Context(), nil)
				check(b, err)
				hits(b, scan.Position.Matched, open)
			})
		})
	}
	for _, place := range []string{"chunked", "whole"} {
		b.Run("tool=store/place="+place, func(b *testing.B) {
			s, id := keep(b, name, leafproof.PutOptions{Records: "ndjson", Place: cas.Placement(place)})
			b.ResetTimer()
			perCPU(b, fi.Size(), func() {
				a, err := s.Query(b.Context(), leafproof.Owner, id, leafproof.Query{Where: openStatus, Count: true}, nil)
				check(b, err)
				hits(b, *a.Matched, open)
			})
		})
	}
	b.Run("tool=jq", func(b *testing.B) {
		if _, err := exec.LookPath("jq"); err != nil {
			b.Skip("no jq on this machine")
		}
		perCPU(b, fi.Size(), func() {
			out, err := exec.Command("jq", "-c", `select(.status=="open")|1`, name).Output()
			check(b, err)
			hits(b, int64(bytes.Count(out, []byte("\n"))), open)
		})
	})
	// LEAFPROOF_FILTER_PEERS has other programs, "name=path" each, that are given
	// the file's name and print the number of hits first.
	for _, p := range strings.Fields(os.Getenv("LEAFPROOF_FILTER_PEERS")) {
		tool, path, _ := strings.Cut(p, "=")
		b.Run("tool="+tool, func(b *testing.B) {
			perCPU(b, fi.Size(), func() {
				out, err := exec.Command(path, name).Output()
				check(b, err)
				n, err := strconv.ParseInt(strings.Fields(string(out))[0], 10, 64)
				check(b, err)
				hits(b, n, open)
			})
		})
	}
}

func hits(b *testing.B, got int64, want int) {
	b.Helper()
	if got != int64(want) {
		b.Fatalf("%d hits, want %d", got, want)
	}
}

func recordMap(b *testing.B, f *os.File, size int64, l selector.Layout) (*selector.Map, selector.Layout, selector.Trust) {
	b.Helper()
	out, err := os.CreateTemp(b.TempDir(), "map")
	check(b, err)
	b.Cleanup(func() { out.Close() })
	info, stats, l, err := selector.BuildMap(b.Context(), f, size, merkle.Root{}, l, out)
	check(b, err)
	m, err := selector.OpenMap(out, info.Size, merkle.Root{}, size, l)
	check(b, err)
	return m, l, stats.Trust()
}

// keep puts a file into a store of its own.
func keep(b *testing.B, name string, o leafproof.PutOptions) (*leafproof.Store, string) {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "store")
	check(b, leafproof.Init(b.Context(), dir))
	s, err := leafproof.Open(b.Context(), dir)
	check(b, err)
	b.Cleanup(func() { s.Close() })
	f, err := os.Open(name)
	check(b, err)
	defer f.Close()
	d, err := s.Put(b.Context(), f, o)
	check(b, err)
	ref, err := s.Publish(b.Context(), d, leafproof.Facts{})
	check(b, err)
	return s, ref.ArtifactID
}

// BenchmarkIngest puts -size bytes of NDJSON with and without their records; the
// difference is what the pass over them costs.
func BenchmarkIngest(b *testing.B) {
	name, _ := incidents(b, *size, false)
	for _, records := range []string{"none", "ndjson"} {
		b.Run("records="+records, func(b *testing.B) {
			before := cpu(b)
			n := 0
			for b.Loop() {
				keep(b, name, leafproof.PutOptions{Records: records, Place: "whole"})
				n++
			}
			b.ReportMetric((cpu(b)-before).Seconds()/float64(n), "cpu-s/op")
		})
	}
}

// BenchmarkFirstPage asks a single JSON array of -size bytes for its first ten
// hits, and for ten records at three places.
func BenchmarkFirstPage(b *testing.B) {
	name, _ := incidents(b, *size, true)
	s, id := keep(b, name, leafproof.PutOptions{Records: "json"})
	b.Run("query", func(b *testing.B) {
		for b.Loop() {
			a, err := s.Query(b.Context(), leafproof.Owner, id, leafproof.Query{Where: openStatus, Limit: 10}, func(leafproof.Row) error { return nil })
			check(b, err)
			if a.Returned != 10 || a.More != selector.MoreYes {
				b.Fatalf("%d rows, more %s", a.Returned, a.More)
			}
		}
	})
	st, err := s.Resolve(b.Context(), leafproof.Owner, id)
	check(b, err)
	total := st.Manifest.Predicate.Records.Count
	for place, first := range map[string]int64{"begin": 0, "middle": total / 2, "end": total - 10} {
		b.Run("records="+place, func(b *testing.B) {
			for b.Loop() {
				var out bytes.Buffer
				_, err := s.Read(b.Context(), leafproof.Owner, id, leafproof.Selector{Records: &merkle.Range{Start: first, End: first + 10}}, &out)
				check(b, err)
			}
		})
	}
}
