package selector_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// indexedSource is a source with its map, and indexes over it.
type indexedSource struct {
	built
	src     []byte
	indexes map[string]selector.KeyIndex
}

func indexSource(t testing.TB, src []byte, l selector.Layout, redactions []string, paths ...string) indexedSource {
	t.Helper()
	s := indexedSource{built: build(t, src, l), src: src, indexes: map[string]selector.KeyIndex{}}
	for _, p := range paths {
		if len(src)%2 == 0 {
			s.indexes[p] = listIndex(t, s, p, redactions)
		} else {
			s.indexes[p] = writtenIndex(t, s, p, redactions...)
		}
	}
	return s
}

// writtenIndex is an index as it is stored.
func writtenIndex(t testing.TB, s indexedSource, path string, redactions ...string) *selector.Index {
	t.Helper()
	list := listIndex(t, s, path, redactions)
	of := selector.IndexSource{Root: merkle.Sum(s.src), Size: int64(len(s.src)), Records: s.m.Records(), Layout: s.layout, Redactions: redactions}
	b, err := selector.WriteIndex(of, list.path, list.list)
	if err != nil {
		t.Fatal(err)
	}
	x, err := selector.OpenIndex(bytes.NewReader(b), int64(len(b)), list.path, of)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// keyList is the slow index: all its entries, in order.
type keyList struct {
	path *selector.KeyPath
	list []selector.KeyEntry
}

func listIndex(t testing.TB, s indexedSource, path string, redactions []string) *keyList {
	t.Helper()
	x := &keyList{path: keyPath(t, path)}
	m, err := x.path.Maker(s.layout, redactions)
	if err != nil {
		t.Fatal(err)
	}
	for i, span := range spans(t, s.m) {
		m.Keys(s.src[span.Start:span.End], false, func(k []byte) {
			x.list = append(x.list, selector.KeyEntry{Key: bytes.Clone(k), Record: int64(i)})
		})
	}
	order := func(a, b selector.KeyEntry) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), cmp.Compare(a.Record, b.Record))
	}
	slices.SortFunc(x.list, order)
	x.list = slices.CompactFunc(x.list, func(a, b selector.KeyEntry) bool { return order(a, b) == 0 })
	return x
}

func (x *keyList) Path() *selector.KeyPath { return x.path }
func (x *keyList) Entries() int64          { return int64(len(x.list)) }
func (x *keyList) Tail() int64 {
	n, _ := x.Rank(context.Background(), []byte{selector.KeyRedacted})
	return n
}

func (x *keyList) Rank(_ context.Context, key []byte) (int64, error) {
	n, _ := slices.BinarySearchFunc(x.list, key, func(e selector.KeyEntry, key []byte) int {
		if bytes.Compare(e.Key, key) < 0 {
			return -1
		}
		return 1
	})
	return int64(n), nil
}

func (x *keyList) Run(_ context.Context, from, to int64) iter.Seq2[selector.KeyEntry, error] {
	return func(yield func(selector.KeyEntry, error) bool) {
		for _, e := range x.list[from:to] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// asked is a question for tests.
type asked struct {
	where      string
	order      []string
	sel        []string
	redactions []string
	budget     selector.Budget
}

func (s indexedSource) task(t testing.TB, q asked) selector.Task {
	t.Helper()
	task := selector.Task{Source: bytes.NewReader(s.src), Map: s.m, Layout: s.layout, Trust: s.stats.Trust(), Budget: q.budget, Spill: &memorySpill{}}
	if q.where != "" {
		task.Where = where(t, q.where).WithRedactions(q.redactions)
	}
	for _, o := range q.order {
		order, err := selector.ParseOrder(o)
		if err != nil {
			t.Fatal(err)
		}
		task.Order = append(task.Order, order.WithRedactions(q.redactions))
	}
	for _, one := range q.sel {
		c, err := selector.ParseSelect(one)
		if err != nil {
			t.Fatal(err)
		}
		task.Select = append(task.Select, c)
	}
	return task
}

type memorySpill struct{ memory }

func (m *memorySpill) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m.b).ReadAt(p, off)
}

// told is all that an answer says that does not depend on how it was found.
type told struct {
	rows   []string
	answer selector.Answer
}

// onPage runs a page of a task and tells it; indexes nil is a scan.
func onPage(t testing.TB, task selector.Task, indexes []selector.KeyIndex, q *selector.Query, from selector.Position, count bool) (told, selector.Scan) {
	t.Helper()
	task.From = from
	if indexes != nil {
		if err := task.Consult(t.Context(), indexes, !count); err != nil {
			t.Fatal(err)
		}
	}
	var out told
	emit := func(r selector.Row) error {
		text := fmt.Sprint(r.Record, r.Span, string(r.Bytes))
		for _, values := range r.Selected {
			for _, v := range values {
				text += fmt.Sprint(v.Path, v.Span, string(v.Bytes))
			}
		}
		out.rows = append(out.rows, text)
		return nil
	}
	if count {
		emit = nil
	}
	scan, err := task.Run(t.Context(), emit)
	if err != nil {
		t.Fatal(err)
	}
	a := &out.answer
	a.Query, a.Basis, a.RecordsTotal = q, selector.BasisScan, task.Map.Records()
	a.Fill(scan)
	a.Conclude()
	return out, scan
}

var lookedUp = regexp.MustCompile(`a completed look-up of all (\d+ records?) in (the index(es)? of ("[^"]*"|[^;.,"]*?)|an index)([;.,]| This)`)

// plain takes out of an answer how it was found.
func (a told) plain() string {
	x := a.answer
	x.Conclusion = lookedUp.ReplaceAllString(x.Conclusion, "a completed scan of $1$5")
	matched := "?"
	if x.Matched != nil {
		matched = fmt.Sprint("=", *x.Matched)
	} else if x.MatchedSoFar != nil {
		matched = fmt.Sprint(">=", *x.MatchedSoFar)
	}
	return fmt.Sprintln(strings.Join(a.rows, "\n"), matched, x.Returned, x.Undecidable, x.UndecidableSpans, x.Stop, x.More, x.Conclusion)
}

var planOrders = []string{":desc", "/0", "/a", "/a:desc", "/b", "/b:desc", "@[0]", "/a/b:desc", "@.a", "none", "none", "none", "none", "none"}

// planSource writes records that random conditions ask for, mostly of JSON, with
// indexes.
func (g *gen) planSource(t testing.TB, round, n int, redactions []string) indexedSource {
	var src bytes.Buffer
	l := layout(t, "ndjson", "", nil)
	paths := []string{"/a", "/b", "@.a[*]", "/a/b", "@[0]"}
	text := func() string { return strings.ReplaceAll(pick(g, genStrings...), "\n", " ") }
	switch round % 8 {
	case 5:
		l = selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true}}
		src.WriteString("a,b,c,0\n")
		paths = []string{"/a", "/b", "/0"}
	case 6:
		l, paths = layout(t, "text", "", nil), []string{""}
	}
	for range n {
		switch round % 8 {
		case 5:
			src.WriteString(text() + "," + pick(g, text(), text(), `"x"y`) + pick(g, "\n", ","+text()+"\n"))
		case 6:
			src.WriteString(text() + pick(g, "", "", "\xff") + "\n")
		default:
			src.WriteString(strings.ReplaceAll(g.planRecord(), "\n", " ") + "\n")
		}
	}
	return indexSource(t, src.Bytes(), l, redactions, paths...)
}

// fits reports whether records can have a path.
func (s indexedSource) fits(t testing.TB, path string) bool {
	t.Helper()
	path = strings.TrimSuffix(path, ":desc")
	p, err := selector.ParseKeyPath(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Maker(s.layout, nil)
	return err == nil
}

// Answers with and without indexes are the same: rows, order, counts, where a
// page ends and what follows from it.
func TestConsultSame(t *testing.T) {
	g := newGen(62)
	used, walked, tallied, cut := 0, 0, 0, 0
	for round := range 16 {
		g.clean = round%4 == 3
		n := 1 + g.IntN(200)
		var redactions []string
		if g.IntN(5) == 0 {
			redactions = []string{pick(g, "/a", "/b", "/c", "/a/b")}
		}
		s := g.planSource(t, round, n, redactions)
		for range 40 {
			q := asked{redactions: redactions}
			switch g.IntN(8) {
			case 0:
			case 1, 2:
				q.where = pick(g, "@.a == ", "@[0] == ", "@.b >= ", "@.a.b != ") + g.literal().text + pick(g, "", " && "+g.planExpr(0))
			case 3:
				q.where = "@.a == " + g.literal().text + " || @.b == " + g.literal().text
			default:
				q.where = g.planExpr(2)
			}
			if _, err := selector.ParseWhere(q.where); err != nil && q.where != "" {
				continue
			}
			if o := pick(g, planOrders...); o != "none" && s.fits(t, o) {
				q.order = append(q.order, o)
				if g.IntN(8) == 0 && s.fits(t, "/c") {
					q.order = append(q.order, "/c")
				}
			}
			if sel := pick(g, "/a", "@.b", "@.a[*]", ""); g.IntN(4) == 0 && s.fits(t, sel) {
				q.sel = append(q.sel, sel)
			}
			if g.IntN(3) > 0 {
				q.budget.Limit = int64(1 + g.IntN(20))
			}
			if g.IntN(8) == 0 {
				q.budget.ReturnBytes = int64(1 + g.IntN(400))
			}
			var some []selector.KeyIndex
			for _, p := range slices.Sorted(maps.Keys(s.indexes)) {
				if g.IntN(3) > 0 {
					some = append(some, s.indexes[p])
				}
			}
			task := s.task(t, q)
			query := &selector.Query{Where: task.Where, Order: task.Order, Select: task.Select}
			count := g.IntN(2) == 0 && len(q.order)+len(q.sel) == 0
			if count {
				q.budget = selector.Budget{}
				task.Budget = q.budget
			}
			var from [2]selector.Position
			for page := 0; ; page++ {
				want, scan := onPage(t, task, nil, query, from[0], count)
				got, indexed := onPage(t, task, some, query, from[1], count)
				if got.plain() != want.plain() {
					t.Fatalf("%+v, page %d, %d records, by %v:\n%s\nwithout an index:\n%s", q, page, n, indexed.Indexes, got.plain(), want.plain())
				}
				switch {
				case indexed.Indexed != (indexed.Indexes != nil), indexed.Position.Examined > int64(n), indexed.Position.Bytes > int64(len(s.src)):
					t.Fatalf("%+v: %+v", q, indexed)
				case !indexed.Indexed:
				case count && indexed.Position.Examined < scan.Position.Matched:
					tallied++
				case len(q.order) == 1 && scan.Position.Matched > indexed.Position.Examined:
					walked++
				default:
					used++
				}
				from = [2]selector.Position{scan.Position, indexed.Position}
				if indexed.Position.Record != scan.Position.Record {
					t.Fatalf("%+v: stands at %d, want %d", q, indexed.Position.Record, scan.Position.Record)
				}
				if scan.More != selector.MoreYes || page == 5 || len(q.order) > 0 && scan.Returned == 0 {
					break
				}
				cut++
			}
		}
	}
	if used < 90 || walked < 15 || tallied < 4 || cut < 300 {
		t.Errorf("%d by candidates, %d in order, %d by ranks, %d further pages", used, walked, tallied, cut)
	}
}

// Pages that a budget stops anywhere are the pieces of the one-page answer.
func TestConsultPages(t *testing.T) {
	g := newGen(63)
	nd := layout(t, "ndjson", "", nil)
	var src bytes.Buffer
	long := strings.Repeat("é", 48)
	for i := range 200 {
		fmt.Fprintf(&src, `{"n":%d,"s":%q,"x":%d}`+"\n", g.IntN(30), pick(g, "a", long, long+"b", long+"a", long+"aa", long+"é", "z")+fmt.Sprint(g.IntN(3)), i)
	}
	src.WriteString("{\"n\":1,\"s\":\"\\ud800\"}\n{\"n\":2\n")
	s := indexSource(t, src.Bytes(), nd, nil, "/n", "/s")
	all := []selector.KeyIndex{s.indexes["/n"], s.indexes["/s"]}
	for _, q := range []asked{
		{where: `@.n == 7`},
		{where: `@.n == 7 || @.n == 9`},
		{where: `@.n >= 12 && @.n < 15 && @.x > 20`},
		{order: []string{"/s"}},
		{order: []string{"/s:desc"}},
		{order: []string{"/n:desc"}},
		{where: `@.s > "` + long + `a"`, order: []string{"/s:desc"}},
		{where: `@.s != "` + long + `a0"`, order: []string{"/s"}},
		{where: `search(@.s, "^` + long + `")`, order: []string{"/s:desc"}},
		{where: `@.n == 7`, order: []string{"/s:desc"}},
	} {
		task := s.task(t, q)
		whole, _ := onPage(t, task, nil, nil, selector.Position{}, false)
		for _, budget := range []selector.Budget{{Limit: 1}, {Limit: 7}, {Limit: 50, MaxRecords: 9}, {Limit: 3, MaxRecords: 5, ReturnBytes: 300}, {ReturnBytes: 500}, {Limit: 90, MaxBytes: 700}} {
			task.Budget = budget
			var rows []string
			var from selector.Position
			pages := 0
			for {
				got, scan := onPage(t, task, all, nil, from, false)
				rows = append(rows, got.rows...)
				pages++
				if scan.More == selector.MoreNo {
					if scan.Position.Matched != int64(len(whole.rows)) {
						t.Errorf("%+v by %+v: %d matched, want %d", q, budget, scan.Position.Matched, len(whole.rows))
					}
					break
				}
				if len(q.order) > 0 && scan.Returned == 0 {
					rows = whole.rows // out of budget before the first row
					break
				}
				from = scan.Position
			}
			if !slices.Equal(rows, whole.rows) || pages > 2_000 {
				t.Errorf("%+v by %+v: %d rows on %d pages, want %d", q, budget, len(rows), pages, len(whole.rows))
			}
		}
	}
}

// failing is an index that can be read so many times.
type failing struct {
	selector.KeyIndex
	left *int
}

var errFails = errors.New("cannot be read")

func (x failing) Rank(ctx context.Context, key []byte) (int64, error) {
	if *x.left--; *x.left < 0 {
		return 0, errFails
	}
	return x.KeyIndex.Rank(ctx, key)
}

func (x failing) Run(ctx context.Context, from, to int64) iter.Seq2[selector.KeyEntry, error] {
	return func(yield func(selector.KeyEntry, error) bool) {
		for e, err := range x.KeyIndex.Run(ctx, from, to) {
			if *x.left--; *x.left < 0 {
				yield(selector.KeyEntry{}, errFails)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// An index that cannot be read any more, at any point, leaves the answer as it is.
func TestConsultFails(t *testing.T) {
	g := newGen(64)
	nd := layout(t, "ndjson", "", nil)
	var src bytes.Buffer
	long := strings.Repeat("a", 96)
	for i := range 120 {
		fmt.Fprintf(&src, `{"n":%d,"s":%q,"x":%d}`+"\n", g.IntN(20), pick(g, "a", long+"b", long+"ab")+fmt.Sprint(g.IntN(3)), i)
	}
	src.WriteString("{\"n\":1,\"s\":\"\\ud800\"}\n")
	s := indexSource(t, src.Bytes(), nd, nil, "/n", "/s")
	midway := 0
	for _, q := range []asked{
		{where: `@.n == 7`},
		{order: []string{"/s:desc"}, budget: selector.Budget{Limit: 30}},
		{order: []string{"/n"}, budget: selector.Budget{Limit: 20}},
	} {
		task := s.task(t, q)
		query := &selector.Query{Where: task.Where, Order: task.Order}
		want, _ := onPage(t, task, nil, query, selector.Position{}, false)
		for reads := range 60 {
			left := reads
			x := failing{s.indexes["/n"], &left}
			if len(q.order) > 0 && q.order[0] != "/n" {
				x.KeyIndex = s.indexes["/s"]
			}
			task := s.task(t, q)
			if err := task.Consult(t.Context(), []selector.KeyIndex{x}, true); err != nil && !errors.Is(err, errFails) {
				t.Fatal(err)
			}
			planned := left >= 0
			got, scan := onPage(t, task, nil, query, selector.Position{}, false)
			if got.plain() != want.plain() {
				t.Fatalf("%+v after %d reads:\n%s\nwant:\n%s", q, reads, got.plain(), want.plain())
			}
			if planned && !scan.Indexed {
				midway++
			}
		}
	}
	if midway < 20 {
		t.Errorf("only %d faults on the way", midway)
	}
}
