package selector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/merkle"
	"leafproof/selector"
)

// events makes n NDJSON records, every third open and every seventh undecidable.
func events(n int) (src []byte, open []int64, undecidable int64) {
	var b bytes.Buffer
	for i := range n {
		switch {
		case i%7 == 6:
			fmt.Fprintf(&b, `{"s":"open","s":"shut","n":%d}`+"\n", i)
			undecidable++
		case i%3 == 0:
			fmt.Fprintf(&b, `{"s":"open","n":%d,"pad":"%s"}`+"\n", i, strings.Repeat("p", i%50))
			open = append(open, int64(i))
		default:
			fmt.Fprintf(&b, `{"s":"shut","n":%d,"d":{"s":"open"}}`+"\n", i)
		}
	}
	return b.Bytes(), open, undecidable
}

type page struct {
	rows []int64
	scan selector.Scan
}

func run(t testing.TB, src []byte, b built, w *selector.Where, from selector.Position, budget selector.Budget) page {
	t.Helper()
	var p page
	var err error
	p.scan, err = selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, from, budget, func(rec int64, s selector.Span, got []byte) error {
		p.rows = append(p.rows, rec)
		if !bytes.Equal(got, src[s.Start:s.End]) {
			t.Errorf("record %d: bytes %q at %v", rec, got, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.scan.Returned != int64(len(p.rows)) {
		t.Errorf("returned %d, emitted %d", p.scan.Returned, len(p.rows))
	}
	return p
}

// Case 56: returned, matched and more are right at cap-1, cap, cap+1.
func TestRunLimit(t *testing.T) {
	src, open, undecidable := events(100)
	b, w, n := build(t, src, layout(t, "ndjson", "", nil)), where(t, `@.s == "open"`), int64(len(open))
	for limit, test := range map[int64]struct {
		stop, more string
	}{
		1:     {selector.StopPageLimit, selector.MoreYes},
		n - 1: {selector.StopPageLimit, selector.MoreYes},
		n:     {selector.StopComplete, selector.MoreNo},
		n + 1: {selector.StopComplete, selector.MoreNo},
		0:     {selector.StopComplete, selector.MoreNo},
	} {
		p := run(t, src, b, w, selector.Position{}, selector.Budget{Limit: limit})
		want := open
		if limit > 0 {
			want = open[:min(limit, n)]
		}
		if !slices.Equal(p.rows, want) || p.scan.Stop != test.stop || p.scan.More != test.more {
			t.Errorf("limit %d: %d rows, %s, more %s; want %d, %+v", limit, len(p.rows), p.scan.Stop, p.scan.More, len(want), test)
		}
		pos := p.scan.Position
		if test.stop == selector.StopComplete && (pos.Examined != 100 || pos.Undecidable != undecidable || pos.Matched != n || pos.Record != 100) {
			t.Errorf("limit %d: complete with %+v", limit, pos)
		}
		if test.more == selector.MoreYes && pos.Record != open[limit] {
			t.Errorf("limit %d: stands at %d, the next match is %d", limit, pos.Record, open[limit])
		}
	}
}

// Pages of any size, and scans cut anywhere by a budget, concatenate to the
// one-page answer with the same totals.
func TestRunPages(t *testing.T) {
	src, open, _ := events(400)
	b, w := build(t, src, layout(t, "ndjson", "", nil)), where(t, `@.s == "open"`)
	one := run(t, src, b, w, selector.Position{}, selector.Budget{})
	if !slices.Equal(one.rows, open) || len(one.scan.Undecidable) != 16 {
		t.Fatalf("one page: %v, %d undecidable spans", one.rows, len(one.scan.Undecidable))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for name, budget := range map[string]func() selector.Budget{
		"limits":       func() selector.Budget { return selector.Budget{Limit: 1 + rng.Int64N(20)} },
		"records":      func() selector.Budget { return selector.Budget{MaxRecords: 1 + rng.Int64N(40)} },
		"bytes":        func() selector.Budget { return selector.Budget{MaxBytes: 1 + rng.Int64N(900)} },
		"return bytes": func() selector.Budget { return selector.Budget{ReturnBytes: 1 + rng.Int64N(300)} },
		"all": func() selector.Budget {
			return selector.Budget{Limit: 1 + rng.Int64N(9), MaxRecords: 1 + rng.Int64N(40), MaxBytes: 1 + rng.Int64N(900), ReturnBytes: 1 + rng.Int64N(300)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				var rows []int64
				var pos selector.Position
				for pages := 0; ; pages++ {
					bud := budget()
					p := run(t, src, b, w, pos, bud)
					rows = append(rows, p.rows...)
					if bud.Limit > 0 && int64(len(p.rows)) > bud.Limit {
						t.Fatalf("%d rows, limit %d", len(p.rows), bud.Limit)
					}
					if bud.MaxRecords > 0 && p.scan.Position.Examined-pos.Examined > bud.MaxRecords {
						t.Fatalf("examined %d, budget %d", p.scan.Position.Examined-pos.Examined, bud.MaxRecords)
					}
					pos = p.scan.Position
					if p.scan.Stop == selector.StopComplete {
						break
					}
					if pages > 2000 {
						t.Fatal("no progress")
					}
				}
				if !slices.Equal(rows, open) || pos != one.scan.Position {
					t.Fatalf("pages give %d rows and %+v, want %d and %+v", len(rows), pos, len(open), one.scan.Position)
				}
			}
		})
	}
}

// Case 24: an interrupted scan says so.
func TestRunInterrupted(t *testing.T) {
	src, _, _ := events(3000)
	b, w := build(t, src, layout(t, "ndjson", "", nil)), where(t, `@.s == "nothing"`)
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, cancel2 := context.WithCancel(t.Context())
	cancel2()
	for name, test := range map[string]struct {
		ctx    context.Context
		budget selector.Budget
		stop   string
		at     int64
	}{
		"deadline":  {late, selector.Budget{}, selector.StopDeadline, 0},
		"cancelled": {gone, selector.Budget{}, selector.StopCancelled, 0},
		"records":   {t.Context(), selector.Budget{MaxRecords: 10}, selector.StopBudget, 10},
		"bytes":     {t.Context(), selector.Budget{MaxBytes: 1}, selector.StopBudget, 1},
	} {
		t.Run(name, func(t *testing.T) {
			scan, err := selector.Run(test.ctx, bytes.NewReader(src), b.m, b.layout, w, selector.Position{}, test.budget, nil)
			if err != nil || scan.Stop != test.stop || scan.More != selector.MoreUnknown || scan.Position.Record != test.at {
				t.Errorf("%+v, %v", scan, err)
			}
		})
	}
	// In the middle: the context ends while rows are emitted.
	ctx, cancel3 := context.WithCancel(t.Context())
	n := 0
	scan, err := selector.Run(ctx, bytes.NewReader(src), b.m, b.layout, nil, selector.Position{}, selector.Budget{}, func(int64, selector.Span, []byte) error {
		if n++; n == 100 {
			cancel3()
		}
		return nil
	})
	if err != nil || scan.Stop != selector.StopCancelled || scan.Position.Record < 100 || scan.Position.Record > 200 {
		t.Errorf("%+v, %v", scan, err)
	}
}

type broken struct{}

var errDisk = errors.New("disk on fire")

func (b broken) ReadAt(p []byte, off int64) (int, error) { return 0, errDisk }

func TestRunErrors(t *testing.T) {
	src, _, _ := events(10)
	b, w := build(t, src, layout(t, "ndjson", "", nil)), where(t, `@.s == "open"`)
	scan, err := selector.Run(t.Context(), broken{}, b.m, b.layout, w, selector.Position{}, selector.Budget{}, nil)
	if !errors.Is(err, errDisk) || scan.Stop != selector.StopError || scan.More != selector.MoreUnknown {
		t.Errorf("reading fails: %+v, %v", scan, err)
	}
	scan, err = selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, selector.Position{}, selector.Budget{}, func(int64, selector.Span, []byte) error { return io.ErrClosedPipe })
	if !errors.Is(err, io.ErrClosedPipe) || scan.Stop != selector.StopError || scan.Position.Record != 0 {
		t.Errorf("emitting fails: %+v, %v", scan, err)
	}
	for name, err := range map[string]error{
		"negative limit": func() error {
			_, err := selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, selector.Position{}, selector.Budget{Limit: -1}, nil)
			return err
		}(),
		"position beyond": func() error {
			_, err := selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, selector.Position{Record: 11}, selector.Budget{}, nil)
			return err
		}(),
		"other layout": func() error {
			_, err := selector.Run(t.Context(), bytes.NewReader(src), b.m, layout(t, "text", "", nil), w, selector.Position{}, selector.Budget{}, nil)
			return err
		}(),
	} {
		if _, ok := errors.AsType[*selector.Error](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An empty artifact is searched completely.
	empty := build(t, nil, layout(t, "ndjson", "", nil))
	scan, err = selector.Run(t.Context(), bytes.NewReader(nil), empty.m, empty.layout, w, selector.Position{}, selector.Budget{Limit: 1}, nil)
	if err != nil || scan.Stop != selector.StopComplete || scan.More != selector.MoreNo {
		t.Errorf("empty: %+v, %v", scan, err)
	}
}

func TestCursor(t *testing.T) {
	key, now := [32]byte{1, 2, 3}, time.Unix(1_800_000_000, 0)
	b := selector.Binding{Store: "s", Principal: "p", Tenant: "t", Run: "r", ArtifactID: "art_x", ManifestID: "mf_x", QID: "q_x", Order: "document"}
	pos := selector.Position{Record: 1, Offset: 2, Examined: 3, Matched: 4, Undecidable: 5, Bytes: 1 << 60}
	s := selector.SealCursor(key, "key-1", b, pos, now.Add(time.Minute))
	with := func(f func(*selector.Binding)) selector.Binding { c := b; f(&c); return c }
	for name, test := range map[string]struct {
		s    string
		key  [32]byte
		b    selector.Binding
		now  time.Time
		want error
	}{
		"good":           {s, key, b, now, nil},
		"last second":    {s, key, b, now.Add(59 * time.Second), nil},
		"expired":        {s, key, b, now.Add(time.Minute), selector.ErrCursorExpired},
		"other key":      {s, [32]byte{9}, b, now, selector.ErrCursorForged},
		"other store":    {s, key, with(func(b *selector.Binding) { b.Store = "o" }), now, selector.ErrCursorStore},
		"principal":      {s, key, with(func(b *selector.Binding) { b.Principal = "o" }), now, selector.ErrCursorScope},
		"tenant":         {s, key, with(func(b *selector.Binding) { b.Tenant = "o" }), now, selector.ErrCursorScope},
		"run":            {s, key, with(func(b *selector.Binding) { b.Run = "o" }), now, selector.ErrCursorScope},
		"shifted parts":  {s, key, with(func(b *selector.Binding) { b.Principal, b.Tenant = "pt", "" }), now, selector.ErrCursorScope},
		"artifact":       {s, key, with(func(b *selector.Binding) { b.ArtifactID = "o" }), now, selector.ErrCursorSnapshot},
		"manifest":       {s, key, with(func(b *selector.Binding) { b.ManifestID = "o" }), now, selector.ErrCursorSnapshot},
		"query":          {s, key, with(func(b *selector.Binding) { b.QID = "o" }), now, selector.ErrCursorQuery},
		"order":          {s, key, with(func(b *selector.Binding) { b.Order = "o" }), now, selector.ErrCursorQuery},
		"empty":          {"", key, b, now, selector.ErrCursorMalformed},
		"cut":            {s[:len(s)-1], key, b, now, selector.ErrCursorMalformed},
		"longer":         {s + "A", key, b, now, selector.ErrCursorMalformed},
		"other alphabet": {"+" + s[1:], key, b, now, selector.ErrCursorMalformed},
		"newline":        {s[:10] + "\n" + s[11:], key, b, now, selector.ErrCursorMalformed},
		"version":        {"Ag" + s[2:], key, b, now, selector.ErrCursorMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := selector.OpenCursor(test.key, test.b, test.now, test.s)
			if !errors.Is(err, test.want) {
				t.Fatalf("OpenCursor: %v, want %v", err, test.want)
			}
			if err == nil && got != pos || err != nil && got != (selector.Position{}) {
				t.Errorf("OpenCursor = %+v", got)
			}
		})
	}
	// Parts do not run into one another, whatever is in them.
	zeros := strings.Repeat("\x00", 8)
	s2 := selector.SealCursor(key, "key-1", with(func(b *selector.Binding) { b.Principal, b.Tenant = "p"+zeros+"x", "t" }), pos, now.Add(time.Minute))
	if _, err := selector.OpenCursor(key, with(func(b *selector.Binding) { b.Principal, b.Tenant = "p", "x"+zeros+"t" }), now, s2); !errors.Is(err, selector.ErrCursorScope) {
		t.Errorf("parts run together: %v", err)
	}
	// Every single character changed is refused, and none as another query's.
	for i := range len(s) {
		c := byte('A')
		if s[i] == c {
			c = 'B'
		}
		if _, err := selector.OpenCursor(key, b, now, s[:i]+string(c)+s[i+1:]); !errors.Is(err, selector.ErrCursorForged) && !errors.Is(err, selector.ErrCursorMalformed) {
			t.Errorf("character %d changed: %v", i, err)
		}
	}
	if !selector.CursorKeyedBy(s, "key-1") || selector.CursorKeyedBy(s, "key-2") || selector.CursorKeyedBy("x", "key-1") {
		t.Error("CursorKeyedBy")
	}
	if !errors.Is(selector.ErrCursorStore, selector.ErrCursorScope) {
		t.Error("another store's cursor is not out of scope")
	}
	if _, err := selector.OpenCursor(key, with(func(b *selector.Binding) { b.Principal = "o" }), now, s); errors.Is(err, selector.ErrCursorStore) {
		t.Errorf("another principal's cursor is taken for another store's: %v", err)
	}
}

// A map of another source is refused before a byte of this one is read.
func TestOpenMapOfOther(t *testing.T) {
	src, _, _ := events(10)
	b := build(t, src, layout(t, "ndjson", "", nil))
	open := func(root merkle.Root, size int64, l selector.Layout) error {
		_, err := selector.OpenMap(bytes.NewReader(b.bytes), b.info.Size, root, size, l)
		return err
	}
	for name, err := range map[string]error{
		"root":   open(merkle.Root{}, int64(len(src)), b.layout),
		"size":   open(merkle.Sum(src), int64(len(src))+1, b.layout),
		"layout": open(merkle.Sum(src), int64(len(src)), layout(t, "text", "", nil)),
	} {
		if !errors.Is(err, selector.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := selector.OpenMap(bytes.NewReader(b.bytes[:100]), 100, merkle.Sum(src), int64(len(src)), b.layout); !errors.Is(err, selector.ErrMap) {
		t.Errorf("short: %v", err)
	}
}
