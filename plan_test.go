package leafproof_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// planRecords writes records that share values, with some that cannot be told.
func planRecords(rng *rand.Rand, n int) []byte {
	var b bytes.Buffer
	long := strings.Repeat("é", 48)
	text := func() string {
		return []string{"a", "b", "ab", long, long + "b", long + "a", long + "aa"}[rng.IntN(7)]
	}
	for i := range n {
		switch rng.IntN(40) {
		case 0:
			fmt.Fprintf(&b, `{"i":%d,"s":"\ud800","t":[1]}`+"\n", i)
		case 1:
			fmt.Fprintf(&b, `{"i":%d,"n":1,"n":2,"s":"a"}`+"\n", i)
		case 2:
			fmt.Fprintf(&b, `{"i":%d,"n":null,"t":["x","\ud800"]}`+"\n", i)
		default:
			fmt.Fprintf(&b, `{"i":%d,"n":%d,"s":%q,"t":["x%d",%d]}`+"\n", i, rng.IntN(50), text(), rng.IntN(20), rng.IntN(9))
		}
	}
	return b.Bytes()
}

var (
	inIndex    = regexp.MustCompile(`a completed look-up of all (\d+ records) in (the index of ("[^"]*"|[^ ;.,]+)|the indexes of "[^"]*"|an index)`)
	planWheres = []string{
		"", `@.n == 7`, `@.n == 7 || @.n == 9`, `@.n >= 12 && @.n < 15`, `@.n == 3 && @.s == "a"`, `!(@.n < 48)`, `!@.n`, `@.n`, `@.n == null || @.t[?@ == "x1"]`,
		`@.s == "none"`, `match(@.s, "ab.*")`, `@.t[?@ == "x3"]`, `@.t[?@ == "x3"] && @.n > 10`, `@.i == 5 || @.n == 5`, `@.n == 1 && @.i > 30`, `@.s > "éé" && @.n == 4`,
	}
)

// sameAnswer holds an answer to the one without an index, but for how it was found.
func sameAnswer(t *testing.T, about any, got, want *selector.Answer) {
	t.Helper()
	plain := func(a *selector.Answer) string {
		n := func(p *int64) string {
			if p == nil {
				return "-"
			}
			return fmt.Sprint(*p)
		}
		return fmt.Sprintln(a.QID, a.Order, a.RecordsTotal, n(a.Matched), n(a.MatchedSoFar), a.Returned, a.Undecidable, a.UndecidableSpans, a.Stop, a.More,
			a.Assurance, inIndex.ReplaceAllString(a.Conclusion, "a completed scan of $1"))
	}
	if g, w := plain(got), plain(want); g != w {
		t.Fatalf("%+v: by %s %v\n%swithout an index\n%s", about, got.Basis, got.Indexes, g, w)
	}
	if (got.Basis == selector.BasisIndex) != (len(got.Indexes) > 0) || got.Examined.Records > want.Examined.Records {
		t.Fatalf("%+v: basis %s by %v, %d records examined, of %d", about, got.Basis, got.Indexes, got.Examined.Records, want.Examined.Records)
	}
}

// Answers of an artifact with indexes and of one without are the same: rows, order,
// counts, pages and what follows; a receipt says by what they were found.
func TestQueryByIndex(t *testing.T) {
	s, _ := newStore(t)
	data := planRecords(rand.New(rand.NewPCG(71, 1)), 900)
	facts := leafproof.Facts{SourceID: "infra.events", Redactions: []manifest.Redaction{{Path: "/z", Reason: "pii"}}}
	bare := put(t, s, data, leafproof.PutOptions{}, facts)
	with := put(t, s, data, leafproof.PutOptions{Indexes: []string{"/n", "/s", "@.t[*]"}}, facts)
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, with, "/i", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	bases := compareQueries(t, s, with, bare)
	if bases[selector.BasisIndex] < 60 || bases[selector.BasisScan] < 5 {
		t.Errorf("pages by basis: %v", bases)
	}

	// A receipt.
	var st leafproof.Statement
	a, err := s.Query(t.Context(), leafproof.Owner, with, leafproof.Query{Where: `@.n == 7`, Receipt: &st}, nil)
	if err != nil || a.Basis != selector.BasisIndex || a.Assurance != selector.AssuranceAttested || st.Receipt().Examined.Basis != "index" || *st.Receipt().Result.Matched != *a.Matched {
		t.Errorf("%+v, %v", a, err)
	}
}

// A damaged index is not used, wherever the damage is met: the answers stay what
// they are, and check tells of it.
func TestQueryByDamagedIndex(t *testing.T) {
	s, dir := newStore(t)
	data := planRecords(rand.New(rand.NewPCG(73, 1)), 24_000)
	bare := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
	with := put(t, s, data, leafproof.PutOptions{Indexes: []string{"/i", "/n", "/s"}}, leafproof.Facts{})
	list, err := s.Indexes(t.Context(), leafproof.Owner, with)
	if err != nil {
		t.Fatal(err)
	}
	queries := []leafproof.Query{
		{Where: `@.i == 20000`},
		{Where: `@.i == 20000 || @.n == 7`},
		{Where: `@.n == 7`, Limit: 5},
		{Order: []string{"/i:desc"}, Limit: 40},
		{Order: []string{"/i"}, Limit: 40},
		{Order: []string{"/s:desc"}, Limit: 20},
		{Where: `@.n == 7`, Count: true},
	}
	compare := func() map[string]int {
		t.Helper()
		bases := map[string]int{}
		for _, q := range queries {
			bases[comparePage(t, s, q, [2]string{with, bare}, [2]string{})[0].Basis]++
		}
		return bases
	}
	if bases := compare(); bases[selector.BasisIndex] != len(queries) {
		t.Errorf("before: %v", bases)
	}
	for page := range 3 { // of each index: its header, its first and its last page
		s.Close()
		done := 0
		for _, files := range objectFiles(t, dir) {
			for _, f := range files {
				fi, err := os.Stat(f)
				if err != nil || !slices.ContainsFunc(list, func(x leafproof.Index) bool { return x.Size == fi.Size() }) {
					continue
				}
				at := [3]int64{0, 4096, fi.Size() - 4096}[page] + 40
				damage(t, f, func(b []byte) []byte { b[at] ^= 1; return b })
				done++
			}
		}
		s = openStore(t, dir)
		if done < 2 {
			t.Fatalf("%d indexes are files of their own", done)
		}
		if bases := compare(); bases[selector.BasisScan] < 4 {
			t.Errorf("with page %d damaged: %v", page, bases)
		}
	}
	r, err := s.Check(t.Context(), leafproof.CheckOptions{Deep: true})
	if err != nil || len(r.Findings) == 0 {
		t.Errorf("check: %+v, %v", r, err)
	}
}

// comparePage asks two artifacts with the same bytes for a page.
func comparePage(t *testing.T, s *leafproof.Store, q leafproof.Query, ids, cursors [2]string) (answers [2]*selector.Answer) {
	t.Helper()
	var rows [2][]string
	for i, id := range ids {
		q.Cursor = cursors[i]
		var err error
		answers[i], err = s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
			rows[i] = append(rows[i], fmt.Sprint(r.Record, r.Span, string(r.Bytes)))
			return nil
		})
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
	}
	sameAnswer(t, q, answers[0], answers[1])
	if !slices.Equal(rows[0], rows[1]) {
		t.Fatalf("%+v by %v: %d rows, want %d", q, answers[0].Indexes, len(rows[0]), len(rows[1]))
	}
	return answers
}

// compareQueries asks two artifacts with the same bytes the same questions, page by
// page, and counts the pages of the first by basis.
func compareQueries(t *testing.T, s *leafproof.Store, with, bare string) map[string]int {
	t.Helper()
	bases := map[string]int{}
	for _, where := range planWheres {
		for _, order := range [][]string{nil, {"/n"}, {"/s:desc"}, {"/i:desc"}, {"/n:desc", "/s"}} {
			for _, limit := range []int64{0, 7} {
				if limit > 0 && len(order) > 1 {
					continue
				}
				q := leafproof.Query{Where: where, Order: order, Limit: limit}
				var cursors [2]string
				for page := 0; page == 0 || cursors[1] != "" && page < 4; page++ {
					answers := comparePage(t, s, q, [2]string{with, bare}, cursors)
					cursors = [2]string{answers[0].Cursor, answers[1].Cursor}
					bases[answers[0].Basis]++
				}
			}
		}
		comparePage(t, s, leafproof.Query{Where: where, Count: true}, [2]string{with, bare}, [2]string{})
	}
	return bases
}

// A cursor goes on by what it began with: a scan stays one where an index was added
// meanwhile, and where an index is gone the records behind it are all examined.
func TestCursorAndIndex(t *testing.T) {
	s, dir := newStore(t)
	data := planRecords(rand.New(rand.NewPCG(72, 1)), 12_000)
	id := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
	q := leafproof.Query{Where: `@.n == 7`, Limit: 3}
	page := func(q leafproof.Query, from string) (*selector.Answer, []int64) {
		t.Helper()
		q.Cursor = from
		var rows []int64
		a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
			rows = append(rows, r.Record)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a, rows
	}
	whole, all := page(leafproof.Query{Where: q.Where}, "")
	scanned, first := page(q, "")
	if len(all) < 8 || whole.Basis != selector.BasisScan {
		t.Fatalf("%d rows, basis %s", len(all), whole.Basis)
	}
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, id, "/n", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	indexed, again := page(q, "")
	if !slices.Equal(first, again) || indexed.Basis != selector.BasisIndex || indexed.Examined.Records >= scanned.Examined.Records {
		t.Errorf("%v, basis %s, %d records examined", again, indexed.Basis, indexed.Examined.Records)
	}
	a, rows := page(q, scanned.Cursor)
	if !slices.Equal(rows, all[3:6]) || a.Basis != selector.BasisScan || len(a.Examined.Ranges) != 1 || a.Examined.Ranges[0][1] != a.Examined.Records {
		t.Errorf("behind a scan: %v, want %v; basis %s, examined %+v", rows, all[3:6], a.Basis, a.Examined)
	}
	a, rows = page(q, indexed.Cursor)
	if !slices.Equal(rows, all[3:6]) || a.Basis != selector.BasisIndex || len(a.Examined.Ranges) != 0 {
		t.Errorf("behind a look-up: %v, want %v; basis %s, examined %+v", rows, all[3:6], a.Basis, a.Examined)
	}
	// The index's blob is gone.
	list, err := s.Indexes(t.Context(), leafproof.Owner, id)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	s.Close()
	gone := 0
	for _, files := range objectFiles(t, dir) {
		for _, f := range files {
			if fi, err := os.Stat(f); err == nil && fi.Size() == list[0].Size {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
				gone++
			}
		}
	}
	s = openStore(t, dir)
	if gone == 0 {
		t.Fatal("the index is no file of its own")
	}
	var st leafproof.Statement
	q.Receipt = &st
	a, rows = page(q, indexed.Cursor)
	if !slices.Equal(rows, all[3:6]) || a.Basis != selector.BasisIndex || st.Receipt().Examined.Basis != "index" {
		t.Errorf("behind a look-up without its index: %v, want %v; basis %s", rows, all[3:6], a.Basis)
	}
	if a, rows = page(leafproof.Query{Where: q.Where}, ""); !slices.Equal(rows, all) || a.Basis != selector.BasisScan {
		t.Errorf("without its index: %v, basis %s", rows, a.Basis)
	}
}

// Who has leave for some records, or none, gets no more from an index; a count
// from it tells no record.
func TestIndexLeave(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, numbered(300), leafproof.PutOptions{Indexes: []string{"/i", "/status"}}, leafproof.Facts{})
	who := leafproof.Caller{Principal: "bob"}
	ask := func(q leafproof.Query) (*selector.Answer, error) {
		return s.Query(t.Context(), who, id, q, func(leafproof.Row) error { t.Error("a row"); return nil })
	}
	q := leafproof.Query{Where: `@.i == 250`}
	if _, err := ask(q); leafproof.CodeOf(err) != "ref_not_found" {
		t.Error(err)
	}
	records := merkle.Range{Start: 0, End: 100}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{
		Principal: "bob", Action: leafproof.ActionRead, Pattern: "local", Records: &records,
	}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []leafproof.Query{q, {Where: q.Where, Count: true}, {Order: []string{"/i:desc"}, Limit: 1}} {
		if _, err := ask(q); err == nil {
			t.Errorf("%+v with leave to read some records", q)
		}
	}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "bob", Action: leafproof.ActionCount, Pattern: "local"}); err != nil {
		t.Fatal(err)
	}
	a, err := ask(leafproof.Query{Where: `@.status == "open"`, Count: true})
	if err != nil || *a.Matched != 200 || a.Examined.Records != 0 || a.Returned != 0 || a.Cursor != "" || a.Basis != selector.BasisIndex {
		t.Errorf("a count: %+v, %v", a, err)
	}
}
