package selector_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// fork returns a copy of what is shown that can be altered.
func (s *shown) fork() *shown {
	f := *s
	q := *s.asked.Query
	f.asked.Query = &q
	f.pages, f.mapLeaves = slices.Clone(s.pages), slices.Clone(s.mapLeaves)
	f.header, f.pageBytes, f.tailBytes = bytes.Clone(s.header), bytes.Clone(s.pageBytes), bytes.Clone(s.tailBytes)
	f.mapHead, f.mapBytes = bytes.Clone(s.mapHead), bytes.Clone(s.mapBytes)
	return &f
}

// show puts other pages of the index in the place of those shown: a prover cannot
// make a page, but chooses which to show.
func (s *shown) show(x *indexed, runs ...merkle.Range) {
	s.pages, s.pageBytes = runs, cutRuns(x.index, 4096, 1, runs)
}

func (s *shown) showTail(x *indexed, run merkle.Range) {
	s.tail, s.tailBytes = run, cutRuns(x.index, 4096, 1, []merkle.Range{run})
}

// attack is a proof that somebody altered, and why it is refused.
type attack struct {
	name  string
	proof string // one of the honest proofs
	alter func(s *shown)
	want  string
}

// TestCompleteAttacks alters proofs as a prover could who shows true leaves, but
// others than he should, and as somebody whom merkle did not stop. Each is refused
// for a reason of its own.
func TestCompleteAttacks(t *testing.T) {
	g := newGen(21)
	src := mixed(9000, g)
	l := selector.Layout{Format: selector.FormatNDJSON}
	status, ids, numbers := newIndexed(t, src, l, "/status"), newIndexed(t, src, l, "/id"), newIndexed(t, src, l, "/n")
	other := newIndexed(t, mixed(9000, g), l, "/status")
	honest := map[string]*shown{}
	home := map[string]*indexed{}
	add := func(name string, x *indexed, where string, limit int64, count bool, orders ...string) {
		asked := x.ask(t, where, limit, orders...)
		asked.Count = count
		s, err := x.prove(t, asked)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		x.compare(t, asked, s)
		honest[name], home[name] = s, x
	}
	add("open", status, `@.status == "open"`, 0, false)
	add("range", ids, `@.id >= 2000 && @.id < 6000`, 0, false)
	add("two", ids, `@.id == 100 || @.id == 8000`, 0, false)
	add("none", ids, `@.id == 4000.5`, 0, false)
	add("none low", ids, `@.id == -1`, 0, false)
	add("none high", ids, `@.id == 1e9`, 0, false)
	add("count", ids, `@.id >= 2000 && @.id < 6000`, 0, true)
	add("first", status, `@.status == "open"`, 10, false)
	add("rest", status, `@.status == "open" && @.n > 100`, 10, false)
	add("up", ids, `@.id >= 2000`, 10, false, "/id")
	add("down", ids, `@.id < 6000`, 10, false, "/id:desc")
	add("many down", ids, `@.id < 6000 && @.status == "void"`, 300, false, "/id:desc")
	add("in document", numbers, `@.n > 100`, 10, false)
	for limit := int64(10); honest["gap"] == nil; limit++ { // a row behind which a candidate is none
		add("gap", status, `@.status == "open" && @.n > 100`, limit+1, false)
		next := honest["gap"].position
		add("gap", status, `@.status == "open" && @.n > 100`, limit, false)
		if next == honest["gap"].position+1 {
			delete(honest, "gap")
		}
	}
	run := func(a, b int64) merkle.Range { return merkle.Range{Start: a, End: b} }
	first := func(name string) merkle.Range { return honest[name].pages[0] }
	flip := func(b []byte, at int) { b[at] ^= 1 }
	keyAt := func(page int64) string { // a condition on the last key of a page
		for n := range int64(9000) {
			n = (9000/(ids.want.Size/4096-1)*page + n) % 9000
			asked := ids.ask(t, fmt.Sprintf(`@.id == %d`, n), 0)
			if s, err := ids.prove(t, asked); err == nil && len(s.pages) == 1 && s.pages[0] == run(page, page+2) {
				return fmt.Sprintf(`@.id == %d`, n)
			}
		}
		t.Fatal("no key ends a page")
		return ""
	}
	edge := keyAt(first("none").Start)
	attacks := []attack{
		{"the first page dropped", "range", func(s *shown) { s.show(ids, run(s.pages[0].Start+1, s.pages[0].End)) }, "the beginning of the keys 0 is not shown"},
		{"the last page dropped", "range", func(s *shown) { s.show(ids, run(s.pages[0].Start, s.pages[0].End-1)) }, "the end of the keys 0 is not shown"},
		{"a page in the middle dropped", "range", func(s *shown) {
			m := s.pages[0].Start + 1
			s.show(ids, run(s.pages[0].Start, m), run(m+1, s.pages[0].End))
		}, "the end of the keys 0 is not shown"},
		{"a page dropped, the others joined", "range", func(s *shown) {
			s.pageBytes = append(s.pageBytes[:4096:4096], s.pageBytes[2*4096:]...)
			s.pages[0].End--
		}, "page"},
		{"a page twice", "range", func(s *shown) { s.pageBytes = append(s.pageBytes[:4096:4096], s.pageBytes...); s.pages[0].End++ }, "page"},
		{"a run twice", "range", func(s *shown) { s.show(ids, s.pages[0], s.pages[0]) }, "comes behind page"},
		{"two pages swapped", "range", func(s *shown) {
			a := bytes.Clone(s.pageBytes[:4096])
			copy(s.pageBytes, s.pageBytes[4096:2*4096])
			copy(s.pageBytes[4096:], a)
		}, "page"},
		{"all pages moved", "range", func(s *shown) { s.pages[0].Start++; s.pages[0].End++ }, "page"},
		{"a run cut in two", "range", func(s *shown) {
			s.pages = []merkle.Range{run(s.pages[0].Start, s.pages[0].Start+1), run(s.pages[0].Start+1, s.pages[0].End)}
		}, "the end of the keys 0 is not shown"},
		{"a page before", "range", func(s *shown) { s.show(ids, run(s.pages[0].Start-1, s.pages[0].End)) }, "is not needed"},
		{"a page behind", "range", func(s *shown) { s.show(ids, run(s.pages[0].Start, s.pages[0].End+1)) }, "is not needed"},
		{"runs backwards", "two", func(s *shown) { s.show(ids, s.pages[1], s.pages[0]) }, "no page shows that the keys 0 are complete"},
		{"the first of two ranges dropped", "two", func(s *shown) { s.show(ids, s.pages[1]) }, "no page shows that the keys 0 are complete"},
		{"the second of two ranges dropped", "two", func(s *shown) { s.show(ids, s.pages[0]) }, "no page shows that the keys 1 are complete"},
		{"no page", "range", func(s *shown) { s.show(ids) }, "no page shows that the keys 0 are complete"},

		{"absence at the start", "open", func(s *shown) { s.asked = status.ask(t, `@.status == "closed"`, 0) }, ""},
		{"absence at the end", "open", func(s *shown) {
			s.asked = status.ask(t, `@.status == "void"`, 0)
			s.show(status, run(s.want.Size/4096-2, s.want.Size/4096-1))
			s.showTail(status, merkle.Range{})
		}, "the beginning of the keys 0 is not shown"},
		{"absence beside a match, its page not shown", "none", func(s *shown) { s.asked = ids.ask(t, edge, 0); s.show(ids, run(s.pages[0].Start+1, s.pages[0].End+1)) }, "the beginning of the keys 0 is not shown"},
		{"absence beside a match, the next page not shown", "none", func(s *shown) { s.asked = ids.ask(t, edge, 0) }, "the end of the keys 0 is not shown"},
		{"absence on another page", "none", func(s *shown) { s.show(ids, run(0, 1)) }, "is not needed"},
		{"absence behind the end", "none high", func(s *shown) { s.show(ids, run(s.pages[0].Start-1, s.pages[0].End-1)) }, "is not needed"},
		{"absence in front of the start", "none low", func(s *shown) { s.show(ids, run(1, 2)) }, "no page shows that the keys 0 are complete"},
		{"inclusion as absence", "first", func(s *shown) { s.position, s.asked.Limit = 0, 0 }, "the end of the keys 0 is not shown"},
		{"a cut answer as a whole one", "up", func(s *shown) { s.position = 0 }, "the end of the keys 0 is not shown"},

		{"a count that begins later", "count", func(s *shown) { s.show(ids, run(s.pages[0].Start+1, s.pages[0].End+1), s.pages[1]) }, "the beginning of the keys is not shown"},
		{"a count that begins earlier", "count", func(s *shown) { s.show(ids, run(s.pages[0].Start-1, s.pages[0].End-1), s.pages[1]) }, "is not needed"},
		{"a count that ends earlier", "count", func(s *shown) { s.show(ids, s.pages[0], run(s.pages[1].Start-1, s.pages[1].End-1)) }, "is not needed"},
		{"a count that ends later", "count", func(s *shown) { s.show(ids, s.pages[0], run(s.pages[1].Start+1, s.pages[1].End+1)) }, "is behind the keys"},
		{"a count without an end", "count", func(s *shown) { s.show(ids, s.pages[0]) }, "the end of the keys is not shown"},
		{"a count with a page between", "count", func(s *shown) { s.show(ids, run(s.pages[0].Start, s.pages[0].End+1), s.pages[1]) }, "is not needed"},
		{"a count with a tail", "count", func(s *shown) { s.showTail(ids, run(s.want.Size/4096-2, s.want.Size/4096-1)) }, "a count shows no page of the tail"},
		{"the rank of a page", "range", func(s *shown) { flip(s.pageBytes, 4096+8) }, "does not continue page"},
		{"the rank of the first page", "none low", func(s *shown) { flip(s.pageBytes, 8) }, "begins with entry 1"},
		{"the tail's rank", "open", func(s *shown) { flip(s.header, 112); s.want.Undetermined = -s.want.Undetermined }, "its statement says"},
		{"the entries in the header", "open", func(s *shown) { flip(s.header, 88) }, ""},
		{"the keys in the header", "open", func(s *shown) { flip(s.header, 96) }, "its statement says"},
		{"the records in the header", "open", func(s *shown) { flip(s.header, 80) }, ""},

		{"an index of another path", "open", func(s *shown) { s.header = ids.index[:1024] }, ""},
		{"an index of another path of the same size", "open", func(s *shown) { flip(s.header, 50) }, "of another path, or of other rules"},
		{"an index of another artifact", "open", func(s *shown) { s.header, s.want.Size = other.index[:1024], int64(len(other.index)) }, "of another artifact"},
		{"the pages of another artifact", "open", func(s *shown) { s.pageBytes = cutRuns(other.index, 4096, 1, s.pages) }, ""},

		{"the tail hidden", "open", func(s *shown) { s.showTail(status, merkle.Range{}) }, "undetermined entries are shown"},
		{"the tail's last page hidden", "range", func(s *shown) { s.showTail(ids, run(s.tail.Start, s.tail.End-1)) }, ""},
		{"another page as the tail", "range", func(s *shown) { s.showTail(ids, run(s.tail.Start-1, s.tail.End-1)) }, "has no part of the tail"},
		{"bytes behind the pages", "range", func(s *shown) { s.pageBytes = append(s.pageBytes, 0) }, "bytes behind the last page"},
		{"bytes behind the tail", "range", func(s *shown) { s.tailBytes = append(s.tailBytes, 0) }, "bytes behind the last page"},
		{"bytes behind the map", "range", func(s *shown) { s.mapBytes = append(s.mapBytes, 0) }, "bytes behind the last page"},
		{"pages cut off", "range", func(s *shown) { s.pageBytes = s.pageBytes[:len(s.pageBytes)-1] }, "the pages end before page"},
		{"the map cut off", "range", func(s *shown) { s.mapBytes = s.mapBytes[:len(s.mapBytes)-1] }, "the pages end before leaf"},
		{"a page of the map dropped", "open", func(s *shown) { s.mapLeaves[0].Start++; s.mapBytes = s.mapBytes[1024:] }, "is on no page"},
		{"a record moved by a byte", "none", func(s *shown) {
			s.asked, s.position = ids.ask(t, `@.id == 4000`, 0), 0
			p, _ := ids.prove(t, s.asked)
			*s = *p.fork()
			s.records = func(_ int64, x selector.Span) []byte { return src[x.Start+1 : x.End+1] }
		}, "more than a line"},
		{"a record cut by a byte", "none", func(s *shown) {
			s.asked = ids.ask(t, `@.id == 4000`, 0)
			p, _ := ids.prove(t, s.asked)
			*s = *p.fork()
			s.records = func(_ int64, x selector.Span) []byte { return src[x.Start : x.End-1] }
		}, "under keys that it does not have"},
		{"a record with the end of its line", "range", func(s *shown) {
			s.records = func(_ int64, x selector.Span) []byte { return src[x.Start : x.End+1] }
		}, "more than a line"},
		{"another record's bytes", "range", func(s *shown) {
			s.records = func(int64, selector.Span) []byte { return []byte(`{"id":1}`) }
		}, ""},

		{"a greater limit", "first", func(s *shown) { s.asked.Limit += 5 }, "candidates for 15 rows"},
		{"a lesser limit", "first", func(s *shown) { s.asked.Limit-- }, "rows are asked for"},
		{"a range cut short", "rest", func(s *shown) { s.position-- }, "rows are asked for"},
		{"candidates behind the last row", "gap", func(s *shown) { s.position++ }, "the last candidate shown is no row"},
		{"more candidates than there are", "rest", func(s *shown) { s.position = 1 << 40 }, "are claimed"},
		{"fewer candidates than rows", "up", func(s *shown) { s.position = 9 }, "candidates for 10 rows"},
		{"no limit", "up", func(s *shown) { s.asked.Limit = 0 }, "candidates for 0 rows"},
		{"down as up", "down", func(s *shown) { s.asked = ids.ask(t, `@.id < 6000`, 10, "/id") }, "the beginning of the keys 0 is not shown"},
		{"up as down", "up", func(s *shown) { s.asked = ids.ask(t, `@.id >= 2000`, 10, "/id:desc") }, "the end of the keys 0 is not shown"},
		{"down without its end", "down", func(s *shown) { s.show(ids, run(s.pages[0].Start-1, s.pages[0].End-1)) }, "is not shown"},
		{"down with a page below", "down", func(s *shown) { s.show(ids, run(s.pages[0].Start-1, s.pages[0].End)) }, "the first page is not needed"},
		{"down with a page less", "many down", func(s *shown) { s.show(ids, run(s.pages[0].Start+1, s.pages[0].End)) }, "are claimed"},
		{"up with a page more", "up", func(s *shown) { s.show(ids, run(s.pages[0].Start, s.pages[0].End+1)) }, "is not needed"},
		{"document order as the index's", "in document", func(s *shown) { s.asked = numbers.ask(t, `@.n > 100`, 10, "/n") }, ""},
		{"another field's order", "in document", func(s *shown) { s.asked = numbers.ask(t, `@.n > 100`, 10, "/id") }, "not that of the index"},
		{"another condition", "open", func(s *shown) { s.asked = status.ask(t, `@.status == "void"`, 0) }, ""},
	}
	for _, a := range attacks {
		s := honest[a.proof].fork()
		a.alter(s)
		_, rows, err := s.verify()
		if err == nil {
			t.Errorf("%s: accepted with %d rows", a.name, len(rows))
		} else if !strings.Contains(err.Error(), a.want) {
			t.Errorf("%s: %v, want %q", a.name, err, a.want)
		}
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

// genuine reports whether what is shown are bytes of the index and the map at the
// places that are claimed: no other passes merkle.
func (s *shown) genuine(x *indexed) bool {
	return bytes.Equal(s.header, x.index[:1024]) && bytes.Equal(s.pageBytes, cutRuns(x.index, 4096, 1, s.pages)) &&
		bytes.Equal(s.tailBytes, cutRuns(x.index, 4096, 1, []merkle.Range{s.tail})) && bytes.Equal(s.mapBytes, cutRuns(x.bytes, 1024, 0, s.mapLeaves))
}

// TestCompleteMutations alters proofs at random. What is accepted all the same, and
// is made of leaves that there are, must be true: it is compared with a scan. A
// page with another key in the place of a true one is a false index, which only
// its root tells. LEAFPROOF_MUTATIONS says how many.
func TestCompleteMutations(t *testing.T) {
	count := 400
	if s := os.Getenv("LEAFPROOF_MUTATIONS"); s != "" {
		count, _ = strconv.Atoi(s)
	}
	g := newGen(77)
	src := mixed(1200, g)
	type base struct {
		x *indexed
		s *shown
	}
	var bases []base
	for _, path := range []string{"/status", "/n", "/id", "$.tags[*]"} {
		x := newIndexed(t, src, selector.Layout{Format: selector.FormatNDJSON}, path)
		for n := 0; n < 20; {
			asked := x.randomAsk(t, g, path, 1200)
			if s, err := x.prove(t, asked); err == nil {
				bases = append(bases, base{x, s})
				n++
			}
		}
	}
	reasons := map[string]int{}
	truths := 0
	for range count {
		b := bases[g.IntN(len(bases))]
		s := b.s.fork()
		for range 1 + g.IntN(2) {
			mutate(t, g, b.x, s, bases[g.IntN(len(bases))].s)
		}
		got, rows, err := s.verify()
		if err != nil {
			if !errors.Is(err, selector.ErrProof) && !errors.Is(err, selector.ErrUnprovable) && !errors.Is(err, selector.ErrMap) && !errors.Is(err, selector.ErrIndex) {
				t.Fatalf("error %v", err)
			}
			reasons[digits.ReplaceAllString(err.Error(), "N")]++
			continue
		}
		if !s.genuine(b.x) {
			reasons["(accepted here) the bytes are not those under the signed root, and merkle refuses them"]++
			continue
		}
		want, matched, undecidable := b.x.scan(t, s.asked)
		switch {
		case s.asked.Count && got.Matched != matched, !s.asked.Count && !slices.Equal(rows, want),
			!s.asked.Count && !got.Cut && (got.Matched != matched || got.Undecidable != undecidable):
			t.Fatalf("accepted %s over %s, limit %d, count %v: %d rows, %d matched, want %d and %d", s.asked.Query.Normalised(b.x.layout), b.x.path, s.asked.Limit, s.asked.Count, len(rows), got.Matched, len(want), matched)
		}
		truths++
	}
	var list strings.Builder
	for _, why := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return reasons[b] - reasons[a] }) {
		fmt.Fprintf(&list, "\n%8d  %s", reasons[why], why)
	}
	t.Logf("%d mutations: none accepted that is untrue, %d were another true answer or none at all; refused:%s", count, truths, list.String())
}

// mutate alters one thing: which leaves are shown, what is claimed and asked, or a
// few bytes, as if merkle had let them pass.
func mutate(t testing.TB, g *gen, x *indexed, s, other *shown) {
	t.Helper()
	pages := s.want.Size/4096 - 1
	nudge := func(v *int64) { *v += pick(g, int64(-1), 1, -1, 1, 2, 7) }
	someBytes := func(b []byte) {
		for range 1 + g.IntN(3) {
			if len(b) > 0 {
				b[g.IntN(len(b))] ^= 1 << g.IntN(8)
			}
		}
	}
	clamp := func(r merkle.Range) merkle.Range {
		r.Start, r.End = min(max(r.Start, 0), pages), min(max(r.End, 0), pages)
		return r
	}
	switch g.IntN(14) {
	case 0, 1, 2: // other pages
		if len(s.pages) == 0 {
			return
		}
		i := g.IntN(len(s.pages))
		if nudge(&s.pages[i].Start); g.IntN(2) == 0 {
			nudge(&s.pages[i].End)
		}
		s.pages[i] = clamp(s.pages[i])
		s.show(x, s.pages...)
	case 3: // a run more or less
		if n := len(s.pages); n > 0 && g.IntN(2) == 0 {
			i := g.IntN(n)
			s.show(x, slices.Delete(s.pages, i, i+1)...)
		} else {
			from := g.Int64N(pages + 1)
			s.show(x, slices.Insert(s.pages, g.IntN(n+1), clamp(merkle.Range{Start: from, End: from + 1}))...)
		}
	case 4:
		nudge(&s.tail.Start)
		s.showTail(x, clamp(s.tail))
	case 5:
		nudge(&s.position)
		s.position = max(s.position, 0)
	case 6:
		nudge(&s.asked.Limit)
		s.asked.Limit = max(s.asked.Limit, 0)
	case 7: // another question
		s.asked = x.randomAsk(t, g, x.path.String(), 1200)
	case 8:
		s.position, s.pages, s.tail, s.pageBytes, s.tailBytes = other.position, slices.Clone(other.pages), other.tail, bytes.Clone(other.pageBytes), bytes.Clone(other.tailBytes)
		s.mapLeaves, s.mapBytes = slices.Clone(other.mapLeaves), bytes.Clone(other.mapBytes)
	case 9:
		someBytes(s.header)
	case 10:
		someBytes(s.pageBytes)
	case 11:
		someBytes(s.tailBytes)
	case 12:
		s.asked.Count = !s.asked.Count
	case 13:
		switch g.IntN(3) {
		case 0:
			s.pageBytes = append(s.pageBytes, 0)
		case 1:
			s.tailBytes = append(s.tailBytes, 0)
		default:
			if len(s.mapLeaves) > 0 {
				i := g.IntN(len(s.mapLeaves))
				nudge(&s.mapLeaves[i].End)
				last := int64(len(x.bytes) / 1024)
				s.mapLeaves[i].End = min(max(s.mapLeaves[i].End, s.mapLeaves[i].Start), last)
				s.mapBytes = cutRuns(x.bytes, 1024, 0, s.mapLeaves)
			}
		}
	}
}
