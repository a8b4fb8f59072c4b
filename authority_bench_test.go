//go:build unix

package leafproof

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"leafproof/internal/gate"
)

// BenchmarkReadPath reads with and without what authority and audit add: a principal
// with a grant, in turn with the same reads of the same bytes with no gate and no log.
// It reports the processor time of both, that of the log's commits included, and how
// much more the first takes.
func BenchmarkReadPath(b *testing.B) {
	ctx := context.Background()
	dir := filepath.Join(b.TempDir(), "store")
	if err := Init(ctx, dir); err != nil {
		b.Fatal(err)
	}
	s := must(Open(ctx, dir))
	defer s.Close()
	give(b, s, Owner, GrantSpec{Principal: "alice", Action: gate.Read, Pattern: "local"})
	alice := Caller{Principal: "alice"}
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		data := make([]byte, size)
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		id := must(s.Publish(ctx, must(s.Put(ctx, bytes.NewReader(data), PutOptions{})), Facts{})).ArtifactID
		name := map[int]string{64 << 10: "64K", 1 << 20: "1M", 16 << 20: "16M"}[size]
		bare := func() {
			row := must(s.catalogue.Artifact(ctx, id))
			a := s.artifact(alice, row, gate.Read)
			if err := s.available(ctx, row); err != nil {
				b.Fatal(err)
			}
			var err error
			if a.signed, a.m, err = s.load(ctx, row); err != nil {
				b.Fatal(err)
			}
			if a.later, err = a.successors(ctx); err != nil {
				b.Fatal(err)
			}
			r := must(a.data(ctx))
			p := must(a.part(ctx, Selector{}, r))
			if err := p.write(io.Discard, r); err != nil {
				b.Fatal(err)
			}
			a.rangeAnswer(p)
			r.Close()
		}
		b.Run(name, func(b *testing.B) {
			var with, without time.Duration
			for b.Loop() {
				begin := processorTime()
				must(s.Read(ctx, alice, id, Selector{}, io.Discard))
				middle := processorTime()
				bare()
				with, without = with+middle-begin, without+processorTime()-middle
			}
			begin := processorTime()
			if err := s.audit.flush(ctx); err != nil {
				b.Fatal(err)
			}
			with += processorTime() - begin
			b.ReportMetric(float64(with.Nanoseconds())/float64(b.N), "gated-ns/op")
			b.ReportMetric(float64(without.Nanoseconds())/float64(b.N), "bare-ns/op")
			b.ReportMetric(100*(float64(with)/float64(without)-1), "more-%")
		})
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkForeign asks, in turn, for an artifact of another tenant and for one that
// never was. What a stranger can measure is the difference.
func BenchmarkForeign(b *testing.B) {
	ctx := context.Background()
	dir := filepath.Join(b.TempDir(), "store")
	if err := Init(ctx, dir); err != nil {
		b.Fatal(err)
	}
	s := must(Open(ctx, dir))
	defer s.Close()
	id := must(s.Publish(ctx, must(s.Put(ctx, bytes.NewReader([]byte("x")), PutOptions{Tenant: "acme"})), Facts{})).ArtifactID
	give(b, s, Owner, GrantSpec{Principal: "mallory", Action: gate.Read, Pattern: "local"})
	ask := func(id string) time.Duration {
		begin := processorTime()
		if _, err := s.Read(ctx, Caller{Principal: "mallory"}, id, Selector{}, io.Discard); CodeOf(err) != CodeRefNotFound {
			b.Fatal(err)
		}
		return processorTime() - begin
	}
	var foreign, missing time.Duration
	for b.Loop() {
		foreign += ask(id)
		missing += ask("art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	}
	b.ReportMetric(float64(foreign.Nanoseconds())/float64(b.N), "foreign-ns/op")
	b.ReportMetric(float64(missing.Nanoseconds())/float64(b.N), "missing-ns/op")
}
