package selector_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

// pageRow is one record of the property test and what is known about it.
type pageRow struct {
	text string
	sev  int    // -1: missing, -2: undecidable
	name string // "": missing
	open bool
}

func pageRows(rng *rand.Rand, n int) (src []byte, rows []pageRow) {
	var b bytes.Buffer
	for i := range n {
		r := pageRow{sev: rng.IntN(5) - 1, open: rng.IntN(2) == 0}
		var members []string
		if r.open {
			members = append(members, []string{`"status":"open"`, `"status":"\u006fpen"`, `"st\u0061tus":"open"`}[rng.IntN(3)])
		} else {
			members = append(members, `"status":"shut"`, `"was":{"status":"open"}`)
		}
		if r.sev >= 0 {
			members = append(members, fmt.Sprintf([]string{`"sev":%d`, `"sev":%d.0`, `"sev":%de0`}[rng.IntN(3)], r.sev))
		}
		if rng.IntN(12) == 0 {
			members, r.sev = append(members, `"sev":1,"s\u0065v":2`), -2
		}
		if rng.IntN(3) > 0 {
			r.name = []string{"a", "b", "ab", "é", "z"}[rng.IntN(5)]
			members = append(members, `"name":"`+r.name+`"`)
		}
		members = append(members, fmt.Sprintf(`"i":%d`, i))
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		r.text = "{" + strings.Join(members, []string{",", " , "}[rng.IntN(2)]) + "}"
		rows = append(rows, r)
		b.WriteString(r.text + []string{"\n", "\r\n", "\n\n"}[rng.IntN(3)])
	}
	return b.Bytes(), rows
}

// For random queries, orders, page sizes and budgets that stop anywhere, the
// pages concatenate to the one-page answer, which is that of a twin that knows
// the records, and the counters end equal.
func TestPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	bySev := func(a, b pageRow) int { return cmp.Compare(a.sev, b.sev) }
	byName := func(a, b pageRow) int { return cmp.Compare(a.name, b.name) }
	down := func(f func(a, b pageRow) int) func(a, b pageRow) int {
		return func(a, b pageRow) int { return -f(a, b) }
	}
	orders := []struct {
		keys []string
		by   []func(a, b pageRow) int
		sev  bool
	}{
		{},
		{},
		{[]string{"/sev"}, []func(a, b pageRow) int{bySev}, true},
		{[]string{"/sev:desc"}, []func(a, b pageRow) int{down(bySev)}, true},
		{[]string{"/name:desc", "/sev"}, []func(a, b pageRow) int{down(byName), bySev}, true},
		{[]string{"/sev:desc", "@.name"}, []func(a, b pageRow) int{down(bySev), byName}, true},
		{[]string{"/name"}, []func(a, b pageRow) int{byName}, false},
		{[]string{"/nothing:desc"}, nil, false},
	}
	// Each condition decides from what the twin knows: 1 matched, 0 not, -1 undecidable.
	conditions := []struct {
		text string
		is   func(r pageRow) int
	}{
		{"", func(pageRow) int { return 1 }},
		{`@.status == "open"`, func(r pageRow) int { return truth(r.open) }},
		{`@.sev >= 2`, func(r pageRow) int { return tern(r.sev == -2, -1, truth(r.sev >= 2)) }},
		{`@.status == "open" && @.sev < 2`, func(r pageRow) int {
			return tern(!r.open, 0, tern(r.sev == -2, -1, truth(r.sev >= 0 && r.sev < 2)))
		}},
		{`@.status == "open" || @.sev == 3`, func(r pageRow) int { return tern(r.open, 1, tern(r.sev == -2, -1, truth(r.sev == 3))) }},
		{`@.name == "nobody"`, func(pageRow) int { return 0 }},
		{`!(@.sev == 1)`, func(r pageRow) int { return tern(r.sev == -2, -1, truth(r.sev != 1)) }},
	}
	for round := range 120 {
		n := []int{0, 1, 7, 60, 211}[rng.IntN(5)]
		src, rows := pageRows(rng, n)
		if n == 0 {
			src = []byte("\n")
		}
		b := build(t, src, layout(t, "ndjson", "", nil))
		c, o := conditions[rng.IntN(len(conditions))], orders[rng.IntN(len(orders))]
		task := selector.Task{Source: bytes.NewReader(src), Map: b.m, Layout: b.layout, Workers: 1 + rng.IntN(3)}
		if c.text != "" {
			task.Where = where(t, c.text)
		}
		for _, k := range o.keys {
			order, err := selector.ParseOrder(k)
			if err != nil {
				t.Fatal(err)
			}
			task.Order = append(task.Order, order)
		}
		if rng.IntN(2) == 0 {
			task.Trust = b.stats.Trust()
		}
		if rng.IntN(3) == 0 {
			s, err := selector.ParseSelect("/i")
			if err != nil {
				t.Fatal(err)
			}
			task.Select = []*selector.Select{s}
		}
		if n := len(o.keys); n > 0 {
			task.Spill = &spill{}
			task.SortRoom(int64(1 + rng.IntN(4000)))
		}
		var want []int64
		undecidable := int64(0)
		for i, r := range rows {
			is := c.is(r)
			if is == 1 && o.sev && r.sev == -2 {
				is = -1
			}
			if is == 1 {
				want = append(want, int64(i))
			}
			if is == -1 {
				undecidable++
			}
		}
		slices.SortStableFunc(want, func(x, y int64) int {
			for _, by := range o.by {
				if d := by(rows[x], rows[y]); d != 0 {
					return d
				}
			}
			return 0
		})
		name := fmt.Sprintf("round %d: %d records, %s by %v", round, n, c.text, o.keys)
		one := taskPage(t, task)
		if !slices.Equal(one.rows, want) || one.scan.Position.Undecidable != undecidable || one.scan.Position.Matched != int64(len(want)) ||
			one.scan.Stop != selector.StopComplete || one.scan.More != selector.MoreNo || one.scan.Position.Examined != int64(n) {
			t.Fatalf("%s: %d rows, %+v; want %d, %d undecidable", name, len(one.rows), one.scan, len(want), undecidable)
		}
		var got []int64
		for pages := 0; ; pages++ {
			if pages > 3*n+10 {
				t.Fatalf("%s: no end", name)
			}
			task.Budget = selector.Budget{}
			if rng.IntN(2) == 0 {
				task.Budget.Limit = int64(1 + rng.IntN(20))
			}
			if rng.IntN(3) == 0 {
				task.Budget.ReturnBytes = int64(1 + rng.IntN(900))
			}
			if len(o.keys) == 0 && rng.IntN(2) == 0 {
				task.Budget.MaxRecords, task.Budget.MaxBytes = int64(rng.IntN(30)), int64(rng.IntN(2000))
			}
			p := taskPage(t, task)
			got = append(got, p.rows...)
			if p.scan.Position.Examined > int64(n) || p.scan.Counted != (p.scan.Position.Examined == int64(n) && (p.scan.Stop == selector.StopComplete || len(o.keys) > 0)) {
				t.Fatalf("%s: %+v", name, p.scan)
			}
			task.From = p.scan.Position
			if p.scan.Stop == selector.StopComplete {
				break
			}
		}
		if !slices.Equal(got, want) || task.From != one.scan.Position {
			t.Fatalf("%s: pages give %v and %+v; want %v and %+v", name, got, task.From, want, one.scan.Position)
		}
		if len(o.keys) > 0 && n > 1 { // a full sort that runs out of budget has no rows
			task.From, task.Budget = selector.Position{}, selector.Budget{MaxRecords: int64(1 + rng.IntN(n-1))}
			if p := taskPage(t, task); len(p.rows) > 0 || p.scan.Stop != selector.StopBudget {
				t.Fatalf("%s: out of budget with %d rows, %+v", name, len(p.rows), p.scan)
			}
		}
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func tern(b bool, x, y int) int {
	if b {
		return x
	}
	return y
}

func taskPage(t *testing.T, task selector.Task) page {
	t.Helper()
	var p page
	var err error
	p.scan, err = task.Run(t.Context(), func(r selector.Row) error {
		p.rows = append(p.rows, r.Record)
		if len(task.Select) > 0 {
			if len(r.Selected) != 1 || len(r.Selected[0]) != 1 || string(r.Selected[0][0].Bytes) != fmt.Sprint(r.Record) || r.Selected[0][0].Path != "$['i']" {
				t.Errorf("record %d: selected %+v of %s", r.Record, r.Selected, r.Bytes)
			} else if v := r.Selected[0][0]; v.Span.Start < r.Span.Start || v.Span.End > r.Span.End || v.Span.Len() != int64(len(v.Bytes)) {
				t.Errorf("record %d at %v: value at %v", r.Record, r.Span, v.Span)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Case 60: 211 records with one tied key, in pages of 10, 25, 50, 100 and 500.
func TestTiedPages(t *testing.T) {
	var src bytes.Buffer
	for i := range 211 {
		fmt.Fprintf(&src, `{"k":"same","i":%d}`+"\n", i)
	}
	b := build(t, src.Bytes(), layout(t, "ndjson", "", nil))
	order, err := selector.ParseOrder("/k:desc")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{10, 25, 50, 100, 500} {
		task := selector.Task{Source: bytes.NewReader(src.Bytes()), Map: b.m, Layout: b.layout, Order: []*selector.Order{order}, Budget: selector.Budget{Limit: size}}
		var rows []int64
		for {
			p := taskPage(t, task)
			rows = append(rows, p.rows...)
			if task.From = p.scan.Position; p.scan.Stop == selector.StopComplete {
				break
			}
		}
		if len(rows) != 211 || !slices.IsSorted(rows) || rows[0] != 0 || rows[210] != 210 {
			t.Errorf("pages of %d: %v", size, rows)
		}
	}
}

// Selected values are spans of the source; what cannot be told makes the record
// undecidable.
func TestSelected(t *testing.T) {
	src := []byte(`{"a":{"b":[1, 2.50,"x"]},"c":null}` + "\n" + `{"a":1,"a":2}` + "\n" + `{"c":{"a":7}}` + "\n")
	b := build(t, src, layout(t, "ndjson", "", nil))
	var task selector.Task
	for _, s := range []string{"/a/b/1", "$..a", "@.c"} {
		sel, err := selector.ParseSelect(s)
		if err != nil {
			t.Fatal(err)
		}
		task.Select = append(task.Select, sel)
	}
	task.Source, task.Map, task.Layout = bytes.NewReader(src), b.m, b.layout
	var got []string
	scan, err := task.Run(t.Context(), func(r selector.Row) error {
		s := fmt.Sprint(r.Record)
		for _, list := range r.Selected {
			s += " |"
			for _, v := range list {
				s += fmt.Sprintf(" %s=%s", v.Path, src[v.Span.Start:v.Span.End])
			}
		}
		got = append(got, s)
		return nil
	})
	want := []string{
		`0 | $['a']['b'][1]=2.50 | $['a']={"b":[1, 2.50,"x"]} | $['c']=null`,
		`2 | | $['c']['a']=7 | $['c']={"a":7}`,
	}
	if err != nil || !slices.Equal(got, want) || scan.Position.Undecidable != 1 || scan.Position.Matched != 2 {
		t.Errorf("got %q, %+v, %v", got, scan, err)
	}
	sel, _ := selector.ParseSelect("/a")
	task.Select, task.Layout = []*selector.Select{sel}, selector.Layout{Format: "text"}
	task.Map = build(t, src, task.Layout).m
	if _, err := task.Run(t.Context(), func(selector.Row) error { return nil }); !errors.Is(err, selector.ErrSelector) {
		t.Errorf("a field of a line of text: %v", err)
	}
}
