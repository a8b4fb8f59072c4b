package selector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"

	"leafproof/selector"
)

// spill is a Spill in memory that counts.
type spill struct {
	memory
	written int
}

func (s *spill) WriteAt(p []byte, off int64) (int, error) {
	s.written += len(p)
	return s.memory.WriteAt(p, off)
}

func (s *spill) ReadAt(p []byte, off int64) (int, error) { return copy(p, s.b[off:]), nil }

// keyed makes n records of which some have no key, and the order of those that do.
func keyed(n int, key func(i int) string) (src []byte, want []int64) {
	var b bytes.Buffer
	keys := map[int64]string{}
	for i := range n {
		k := key(i)
		if i%9 == 4 {
			k = "-"
		} else {
			keys[int64(i)] = k
			want = append(want, int64(i))
		}
		fmt.Fprintf(&b, "%s\n", k)
	}
	sort.SliceStable(want, func(i, j int) bool { return keys[want[i]] < keys[want[j]] })
	return b.Bytes(), want
}

func byLine(record []byte) ([]byte, bool) {
	return append(bytes.Clone(record), 0), string(record) != "-"
}

func orderedPage(t *testing.T, task selector.Task) page {
	t.Helper()
	var p page
	var err error
	p.scan, err = task.Run(t.Context(), func(r selector.Row) error {
		p.rows = append(p.rows, r.Record)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The order is that of the keys, then of the record numbers, in memory and
// through runs, at once and in pages.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	long := strings.Repeat("x", 2000)
	for name, key := range map[string]func(i int) string{
		"random":        func(int) string { return fmt.Sprint(rng.IntN(1 << 30)) },
		"tied":          func(int) string { return fmt.Sprint(rng.IntN(5)) },
		"all equal":     func(int) string { return "same" },
		"ascending":     func(i int) string { return fmt.Sprintf("%09d", i) },
		"descending":    func(i int) string { return fmt.Sprintf("%09d", 1_000_000-i) },
		"long, equal":   func(int) string { return long },
		"long prefixes": func(int) string { return long + fmt.Sprint(rng.IntN(50)) },
		"around 1 KiB":  func(int) string { return strings.Repeat("y", 1000+rng.IntN(60)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := 1500
			if strings.HasPrefix(name, "long") || strings.HasPrefix(name, "around") {
				n = 300
			}
			src, want := keyed(n, key)
			b := build(t, src, selector.Layout{Format: "text"})
			for _, memory := range []int64{0, 9000} {
				var room spill
				task := selector.Task{Source: bytes.NewReader(src), Map: b.m, Layout: b.layout, Spill: &room}
				task.SortBy(byLine, memory)
				one := orderedPage(t, task)
				if !slices.Equal(one.rows, want) {
					t.Fatalf("memory %d: %d rows in another order than %d", memory, len(one.rows), len(want))
				}
				if memory > 0 && room.written == 0 {
					t.Error("nothing was spilled")
				}
				if one.scan.Stop != selector.StopComplete || one.scan.Position.Undecidable != int64(n-len(want)) || one.scan.Position.Examined != int64(n) {
					t.Errorf("one page: %+v", one.scan)
				}
				for _, limit := range []int64{1, 10, 100, int64(len(want)) - 1, int64(len(want)), int64(len(want)) + 1} {
					var rows []int64
					task.From, task.Budget = selector.Position{}, selector.Budget{Limit: limit}
					for range n {
						if limit <= 10 && int64(len(rows)) >= 5*limit {
							rows = append(rows, want[len(rows):]...) // enough of it
							task.From = one.scan.Position
							break
						}
						p := orderedPage(t, task)
						rows = append(rows, p.rows...)
						if !p.scan.Counted || p.scan.Position.Matched != int64(len(want)) {
							t.Fatalf("limit %d: %+v", limit, p.scan)
						}
						task.From = p.scan.Position
						if p.scan.Stop == selector.StopComplete {
							break
						}
						if p.scan.Stop != selector.StopPageLimit || p.scan.More != selector.MoreYes || int64(len(p.rows)) != limit {
							t.Fatalf("limit %d: %+v", limit, p.scan)
						}
					}
					if !slices.Equal(rows, want) || task.From != one.scan.Position {
						t.Fatalf("memory %d, limit %d: %d rows, %+v; want %d, %+v", memory, limit, len(rows), task.From, len(want), one.scan.Position)
					}
				}
			}
		})
	}
}

// The first rows of many need neither room nor a spill.
func TestOrderTop(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	src, want := keyed(50_000, func(int) string { return fmt.Sprint(rng.IntN(1 << 30)) })
	b := build(t, src, selector.Layout{Format: "text"})
	task := selector.Task{Source: bytes.NewReader(src), Map: b.m, Layout: b.layout, Budget: selector.Budget{Limit: 10}}
	task.SortBy(byLine, 400_000)
	if p := orderedPage(t, task); !slices.Equal(p.rows, want[:10]) {
		t.Errorf("rows %v, want %v", p.rows, want[:10])
	}
	task.Budget.Limit = 0
	if _, err := task.Run(t.Context(), func(selector.Row) error { return nil }); !errors.Is(err, selector.ErrLimit) {
		t.Errorf("a full sort without room: %v", err)
	}
}

// A scan that is cut short has no rows in another order than the document's.
func TestOrderCutShort(t *testing.T) {
	src, want := keyed(3000, func(i int) string { return fmt.Sprint(3000 - i) })
	b := build(t, src, selector.Layout{Format: "text"})
	task := selector.Task{Source: bytes.NewReader(src), Map: b.m, Layout: b.layout}
	task.SortBy(byLine, 0)
	for name, budget := range map[string]selector.Budget{"records": {MaxRecords: 2999}, "bytes": {MaxBytes: 100}, "one row": {MaxRecords: 5, Limit: 1}} {
		task.Budget = budget
		p := orderedPage(t, task)
		if len(p.rows) > 0 || p.scan.Stop != selector.StopBudget || p.scan.More != selector.MoreUnknown || p.scan.Position.Record != 0 || p.scan.Counted {
			t.Errorf("%s: %d rows, %+v", name, len(p.rows), p.scan)
		}
	}
	task.Budget = selector.Budget{MaxRecords: 3000}
	if p := orderedPage(t, task); !slices.Equal(p.rows, want) {
		t.Errorf("a budget of all records: %d rows", len(p.rows))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	scan, err := task.Run(ctx, func(selector.Row) error { t.Error("a row of a cancelled scan"); return nil })
	if err != nil || scan.Stop != selector.StopCancelled {
		t.Errorf("cancelled: %+v, %v", scan, err)
	}
	// Cancelled between two rows: what was returned stands, and the rest follows.
	ctx, cancel = context.WithCancel(t.Context())
	var rows []int64
	scan, err = task.Run(ctx, func(r selector.Row) error {
		if rows = append(rows, r.Record); len(rows) == 7 {
			cancel()
		}
		return nil
	})
	if err != nil || scan.Stop != selector.StopCancelled || scan.More != selector.MoreYes || len(rows) != 7 {
		t.Errorf("cancelled between rows: %d rows, %+v, %v", len(rows), scan, err)
	}
	task.From = scan.Position
	if p := orderedPage(t, task); !slices.Equal(append(rows, p.rows...), want) {
		t.Errorf("what follows: %d and %d rows", len(rows), len(p.rows))
	}
}

// counting is a source that counts what is read of it.
type counting struct {
	r    *bytes.Reader
	read atomic.Int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.read.Add(int64(len(p)))
	return c.r.ReadAt(p, off)
}

// A full sort reads its source once, whatever the order, since rows of usual
// length are carried through the runs; longer ones are read again.
func TestOrderReadsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		rows, length int
		memory       int64
		limit        int64
		times        float64 // the source is read at most
	}{
		"many runs":            {6000, 100, 2000, 0, 1},
		"levels of runs":       {6000, 5, 400, 0, 1},
		"rows across a buffer": {300, 20_000, 100_000, 0, 1},
		"rows too long":        {30, 90_000, 100_000, 0, 2},
		"first rows":           {6000, 100, 40_000, 20, 1},
		"first rows of a lot":  {6000, 100, 40_000, 3000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, 3))
			keys := rng.Perm(c.rows) // each once: the sort sees no more of a record than its key
			src, want := keyed(c.rows, func(i int) string {
				return fmt.Sprintf("%09d%s", keys[i], strings.Repeat("r", rng.IntN(2*c.length)))
			})
			if c.limit > 0 {
				want = want[:c.limit]
			}
			b := build(t, src, selector.Layout{Format: "text"})
			from := &counting{r: bytes.NewReader(src)}
			var room spill
			task := selector.Task{Source: from, Map: b.m, Layout: b.layout, Spill: &room, Budget: selector.Budget{Limit: c.limit}}
			task.SortBy(func(record []byte) ([]byte, bool) {
				return append(bytes.Clone(record[:min(9, len(record))]), 0), string(record) != "-"
			}, c.memory)
			var rows []int64
			scan, err := task.Run(t.Context(), func(r selector.Row) error {
				rows = append(rows, r.Record)
				if !bytes.Equal(r.Bytes, src[r.Span.Start:r.Span.End]) {
					t.Fatalf("record %d has other bytes", r.Record)
				}
				return nil
			})
			if err != nil || !slices.Equal(rows, want) {
				t.Fatalf("%d rows of %d, %+v, %v", len(rows), len(want), scan, err)
			}
			if got := float64(from.read.Load()) / float64(len(src)); got > c.times {
				t.Errorf("read %.2f times", got)
			}
			if c.limit == 0 && room.written == 0 {
				t.Error("nothing was spilled")
			}
		})
	}
}
