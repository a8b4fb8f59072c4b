package selector_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// slowEntry is an entry of an index: a key and a record that has it.
type slowEntry struct {
	key    []byte
	record int64
}

// slowIndex is a second writer of lpi1, straight from the format's description.
func slowIndex(root merkle.Root, size int64, spec [32]byte, records int64, entries []slowEntry) []byte {
	slices.SortFunc(entries, func(a, b slowEntry) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.record, b.record))
	})
	entries = slices.CompactFunc(entries, func(a, b slowEntry) bool { return bytes.Equal(a.key, b.key) && a.record == b.record })
	le := binary.LittleEndian
	encode := func(first, end, number int) []byte {
		p := le.AppendUint64(nil, uint64(number))
		p = le.AppendUint64(p, uint64(first))
		p = append(p, 0, 0, 0, 0)
		var before []byte
		if first > 0 {
			before = entries[first-1].key
		}
		p = append(binary.AppendUvarint(p, uint64(len(before))), before...)
		for i := first; i < end; {
			j := i
			for j < end && bytes.Equal(entries[j].key, entries[i].key) {
				j++
			}
			key, shared := entries[i].key, 0
			for shared < len(key) && shared < len(before) && key[shared] == before[shared] {
				shared++
			}
			p = binary.AppendUvarint(p, uint64(shared))
			p = append(binary.AppendUvarint(p, uint64(len(key)-shared)), key[shared:]...)
			p = binary.AppendUvarint(p, uint64(j-i))
			p = binary.AppendUvarint(p, uint64(entries[i].record))
			for k := i + 1; k < j; k++ {
				p = binary.AppendUvarint(p, uint64(entries[k].record-entries[k-1].record-1))
			}
			before, i = key, j
		}
		le.PutUint16(p[16:], uint16(len(p)-20))
		return p
	}
	var pages [][]byte
	for first := 0; first < len(entries); {
		end := first + 1 + sort.Search(min(4096, len(entries)-first-1), func(n int) bool { return len(encode(first, first+2+n, len(pages))) > 4096 })
		p := encode(first, end, len(pages))
		pages = append(pages, append(p, make([]byte, 4096-len(p))...))
		first = end
	}
	distinct, tail := 0, 0
	for i, e := range entries {
		if i == 0 || !bytes.Equal(e.key, entries[i-1].key) {
			distinct++
		}
		if selector.KeyDetermined(e.key) {
			tail++
		}
	}
	h := append([]byte("LFPINDX1"), root[:]...)
	h = append(le.AppendUint64(h, uint64(size)), spec[:]...)
	for _, n := range []int{int(records), len(entries), distinct, len(pages), tail} {
		h = le.AppendUint64(h, uint64(n))
	}
	h = append(h, make([]byte, 4096-len(h))...)
	return append(h, bytes.Join(pages, nil)...)
}

// indexed is a source with a record map and an index over a path.
type indexed struct {
	built
	src    []byte
	spans  []selector.Span
	path   *selector.KeyPath
	index  []byte
	want   selector.IndexWant
	hidden []string
}

func newIndexed(t testing.TB, src []byte, l selector.Layout, path string, hidden ...string) *indexed {
	t.Helper()
	x := &indexed{built: build(t, src, l), src: src, hidden: hidden}
	x.spans = spans(t, x.m)
	var err error
	if x.path, err = selector.ParseKeyPath(path); err != nil {
		t.Fatal(err)
	}
	maker, err := x.path.Maker(x.layout, hidden)
	if err != nil {
		t.Fatal(err)
	}
	var entries []slowEntry
	for i, s := range x.spans {
		maker.Keys(src[s.Start:s.End], false, func(key []byte) { entries = append(entries, slowEntry{bytes.Clone(key), int64(i)}) })
	}
	x.use(entries)
	return x
}

// use makes an index of these entries, true or not.
func (x *indexed) use(entries []slowEntry) {
	spec := merkle.Sum([]byte(x.path.String()))
	x.index = slowIndex(merkle.Sum(x.src), int64(len(x.src)), spec, x.info.Records, slices.Clone(entries))
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(x.index[at:])) }
	x.want = selector.IndexWant{
		Path: x.path, Layout: x.layout, Redactions: x.hidden, Spec: spec, Size: int64(len(x.index)),
		Source:  selector.MapWant{Root: merkle.Sum(x.src), Size: int64(len(x.src)), Layout: x.layout, Records: x.info.Records, MapSize: x.info.Size},
		Entries: number(88), Distinct: number(96), Undetermined: number(88) - number(112),
	}
}

// ask parses a question.
func (x *indexed) ask(t testing.TB, where string, limit int64, orders ...string) selector.Asked {
	t.Helper()
	q := &selector.Query{}
	if where != "" {
		w, err := selector.ParseWhere(where)
		if err != nil {
			t.Fatal(err)
		}
		q.Where = w.WithRedactions(x.hidden)
	}
	for _, text := range orders {
		o, err := selector.ParseOrder(text)
		if err != nil {
			t.Fatal(err)
		}
		q.Order = append(q.Order, o.WithRedactions(x.hidden))
	}
	return selector.Asked{Query: q, Limit: limit}
}

// shown is what a proof shows, as if merkle had verified it.
type shown struct {
	asked             selector.Asked
	want              selector.IndexWant
	header            []byte
	pages             []merkle.Range
	pageBytes         []byte
	tail              merkle.Range
	tailBytes         []byte
	position          int64
	mapHead, mapBytes []byte
	mapLeaves         []merkle.Range
	src               []byte
	records           func(record int64, s selector.Span) []byte // nil: as they stand in src
}

// prove makes the proof of an answer.
func (x *indexed) prove(t testing.TB, asked selector.Asked) (*shown, error) {
	t.Helper()
	p := selector.Prover{Asked: asked, Want: x.want, Index: bytes.NewReader(x.index), Map: x.m, Source: bytes.NewReader(x.src)}
	o, err := p.Outline(t.Context())
	if err != nil {
		return nil, err
	}
	_, leaves, err := p.Begin(o)
	if err != nil {
		return nil, err
	}
	s := &shown{
		asked: asked, want: x.want, header: x.index[:1024], pages: o.Pages, tail: o.Tail, position: o.Shown,
		mapHead: x.bytes[:1024], mapLeaves: leaves, src: x.src,
	}
	s.pageBytes, s.tailBytes, s.mapBytes = cutRuns(x.index, 4096, 1, o.Pages), cutRuns(x.index, 4096, 1, []merkle.Range{o.Tail}), cutRuns(x.bytes, 1024, 0, leaves)
	return s, nil
}

// cutRuns returns the units that runs name, the first of which stands behind skip units.
func cutRuns(b []byte, unit, skip int64, runs []merkle.Range) []byte {
	var out []byte
	for _, r := range runs {
		if r.End > r.Start && (skip+r.End)*unit <= int64(len(b)) { // there are none otherwise
			out = append(out, b[(skip+r.Start)*unit:(skip+r.End)*unit]...)
		}
	}
	return out
}

// verify checks what is shown, and returns the rows.
func (s *shown) verify() (*selector.Proven, []int64, error) {
	c, err := selector.NewCompleteness(s.asked, s.want, s.position)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Header(s.header); err != nil {
		return nil, nil, err
	}
	if err := c.Pages(s.pages, func() io.Reader { return bytes.NewReader(s.pageBytes) }); err != nil {
		return nil, nil, err
	}
	if err := c.Undetermined(s.tail, bytes.NewReader(s.tailBytes)); err != nil {
		return nil, nil, err
	}
	var rows []int64
	emit := func(r selector.Row) error { rows = append(rows, r.Record); return nil }
	for p, err := range selector.MapSpansOf(s.mapHead, bytes.NewReader(s.mapBytes), s.mapLeaves, c.Shown(), s.want.Source) {
		if err != nil {
			return nil, nil, err
		}
		var b []byte
		if s.records != nil {
			b = s.records(p.Record, p.Span)
		} else {
			b = s.src[p.Start:p.End]
		}
		if err := c.Record(p.Record, p.Span, b, emit); err != nil {
			return nil, nil, err
		}
	}
	out, err := c.Finish(emit)
	return out, rows, err
}

// scan answers the question by looking at every record.
func (x *indexed) scan(t testing.TB, asked selector.Asked) (rows []int64, matched, undecidable int64) {
	t.Helper()
	type row struct {
		key    []byte
		record int64
	}
	var all []row
	var keys *selector.Keys
	if len(asked.Query.Order) > 0 {
		var err error
		if keys, err = selector.NewKeys(x.layout, asked.Query.Order); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range x.spans {
		b := x.src[s.Start:s.End]
		outcome := selector.Matched
		if asked.Query.Where != nil {
			outcome = asked.Query.Where.Eval(b, x.layout)
		}
		r := row{record: int64(i)}
		if outcome == selector.Matched && keys != nil {
			r.key, outcome = keys.Append(nil, b, false)
		}
		switch outcome {
		case selector.Matched:
			all = append(all, r)
		case selector.Undecidable:
			undecidable++
		}
	}
	slices.SortFunc(all, func(a, b row) int { return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.record, b.record)) })
	matched = int64(len(all))
	if asked.Limit > 0 && matched > asked.Limit {
		all = all[:asked.Limit]
	}
	for _, r := range all {
		rows = append(rows, r.record)
	}
	return rows, matched, undecidable
}

// mixed makes records in which values stand in many ways: few of them and many,
// equal ones, none, and those that cannot be told.
func mixed(n int, g *gen) []byte {
	var b bytes.Buffer
	for i := range n {
		status := pick(g, "open", "open", "closed", "void")
		switch g.IntN(60) {
		case 0:
			fmt.Fprintf(&b, `{"id":%d,"status":"open","status":"closed","n":1}`+"\n", i)
		case 1:
			fmt.Fprintf(&b, `{"id":%d,"status":"%s","n":`+"\n", i, status)
		case 2:
			fmt.Fprintf(&b, `{"id":%d,"n":null,"tags":[]}`+"\n", i)
		case 3:
			fmt.Fprintf(&b, `{"id":%d,"status":["open"],"n":{"x":1},"tags":["a","\ud800"]}`+"\n", i)
		default:
			fmt.Fprintf(&b, `{"id":%d,"status":"%s","n":%d.5e%d,"tags":["%s","%s"],"pad":"%*d"}`+"\n", i, status, g.IntN(9), g.IntN(4), pick(g, "a", "b"), pick(g, "b", "c", "d"), g.IntN(200), 0)
		}
	}
	return b.Bytes()
}

// TestComplete proves answers to many questions over several indexes and compares
// them with a scan; then it takes the proofs apart.
func TestComplete(t *testing.T) {
	g := newGen(5)
	refused := map[string]int{}
	for _, n := range []int{0, 1, 2, 40, 900, 2500} {
		src := mixed(n, g)
		for _, path := range []string{"/status", "/n", "/id", "$.tags[*]", "/nowhere"} {
			x := newIndexed(t, src, selector.Layout{Format: selector.FormatNDJSON}, path)
			for range 24 {
				asked := x.randomAsk(t, g, path, n)
				s, err := x.prove(t, asked)
				if errors.Is(err, selector.ErrUnprovable) {
					refused["unprovable"]++
					continue
				}
				if err != nil {
					t.Fatalf("%d records, %s, %s: %v", n, path, asked.Query.Normalised(x.layout), err)
				}
				x.compare(t, asked, s)
			}
		}
	}
	t.Log(refused)
}

func (x *indexed) randomAsk(t testing.TB, g *gen, path string, n int) selector.Asked {
	t.Helper()
	where := pick(g,
		`@.status == "open"`, `@.status == "none"`, `@.status != "open"`, `@.status == "open" || @.status == "void"`, `@.status < "open" || @.status > "open"`, `@.status`, `!@.status`,
		`@.n == 1.5`, `@.n >= 500`, `@.n < 2 || @.n == 15`, `@.n == null`, `@.n > 1e9`, `@.n < -1`, `@.status == "open" && @.n > 100`, `search(@.status, "pe") && @.n == 85`,
		fmt.Sprintf(`@.id == %d`, g.IntN(n+2)), fmt.Sprintf(`@.id > %d`, g.IntN(n+2)), fmt.Sprintf(`@.id < %d && @.status == "closed"`, g.IntN(n+2)),
		`@.tags[?@ == "a"]`, `@.tags[?@ == "a" || @ == "d"]`, `@.tags`, `match(@.status, "o.*")`, `@.nowhere == 1`, `!@.nowhere`, ``,
	)
	var orders []string
	switch g.IntN(4) {
	case 0:
		orders = []string{pick(g, "/n", "/id", "/status") + pick(g, "", ":desc")}
	case 1:
		if path[0] == '/' {
			orders = []string{path + pick(g, "", ":desc")}
		}
	}
	asked := x.ask(t, where, pick(g, int64(0), 1, 2, 10, 100), orders...)
	if g.IntN(4) == 0 {
		asked.Query.Order, asked.Limit, asked.Count = nil, 0, true
	}
	return asked
}

// compare holds a proven answer to that of a scan.
func (x *indexed) compare(t testing.TB, asked selector.Asked, s *shown) {
	t.Helper()
	name := fmt.Sprintf("%s over %s, limit %d, count %v, pages %v", asked.Query.Normalised(x.layout), x.path, asked.Limit, asked.Count, s.pages)
	got, rows, err := s.verify()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	wantRows, matched, undecidable := x.scan(t, asked)
	if asked.Count {
		if got.Matched != matched || rows != nil {
			t.Fatalf("%s: counted %d, want %d", name, got.Matched, matched)
		}
		return
	}
	if !slices.Equal(rows, wantRows) {
		t.Fatalf("%s: rows %v, want %v", name, rows, wantRows)
	}
	if got.Cut && len(asked.Query.Order) > 0 && got.Undecidable < x.want.Undetermined && asked.Query.Where == nil {
		t.Fatalf("%s: %d undecidable, and %d have no key", name, got.Undecidable, x.want.Undetermined)
	}
	if !got.Cut && (got.Matched != matched || got.Undecidable != undecidable) {
		t.Fatalf("%s: %d match and %d are undecidable, want %d and %d", name, got.Matched, got.Undecidable, matched, undecidable)
	}
	if got.Returned != int64(len(rows)) || got.Cut && got.Returned != asked.Limit {
		t.Fatalf("%s: %+v with %d rows", name, got, len(rows))
	}
}

// TestCompleteLong cuts answers in the order of an index that has long strings:
// what is shown must be in front of them, or is shown whole.
func TestCompleteLong(t *testing.T) {
	long := strings.Repeat("x", 97)
	src := fmt.Appendf(nil, `{"a":"b","end":1} `+"\n"+`{"a":"%sz"}`+"\n"+`{"a":"z"}`+"\n"+`{"a":"%sy"}`+"\n"+`{"a":"a"}`+"\n", long, long)
	x := newIndexed(t, src, selector.Layout{Format: selector.FormatNDJSON}, "/a")
	for _, c := range []struct {
		limit int64
		order string
		cut   bool
	}{{1, "/a", true}, {2, "/a", true}, {3, "/a", false}, {1, "/a:desc", true}, {2, "/a:desc", false}} {
		asked := x.ask(t, `@.a > "A"`, c.limit, c.order)
		s, err := x.prove(t, asked)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		x.compare(t, asked, s)
		if (s.position > 0) != c.cut {
			t.Errorf("%+v: shows %d", c, s.position)
		}
	}
}
