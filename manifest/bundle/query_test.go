package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// incidents are records whose field n has many values, status few, and id one each.
func incidents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		switch i % 97 {
		case 5:
			fmt.Fprintf(&b, `{"id":%d,"status":"open","status":"void"}`+"\n", i)
		default:
			fmt.Fprintf(&b, `{"id":%d,"status":"%s","n":%d,"text":"%s"}`+"\n", i, []string{"open", "closed", "closed", "void"}[i*i%11%4], i*7919%500, strings.Repeat("x", i%37))
		}
	}
	return b.Bytes()
}

// withIndex signs a manifest over data that names indexes over paths.
func withIndex(t testing.TB, data []byte, paths ...string) (bundle.Source, []bundle.IndexSource) {
	t.Helper()
	plain := source(t, data, "ndjson")
	slices.Sort(paths)
	var indexes []bundle.IndexSource
	for _, path := range paths {
		indexes = append(indexes, indexOf(t, plain, data, path))
	}
	src := sourceOf(t, data, "ndjson", func(p *manifest.Predicate) {
		for _, x := range indexes {
			p.Indexes = append(p.Indexes, x.Facts)
		}
	})
	return src, indexes
}

// indexOf builds an index.
func indexOf(t testing.TB, src bundle.Source, data []byte, path string) bundle.IndexSource {
	t.Helper()
	key, err := selector.ParseKeyPath(path)
	if err != nil {
		t.Fatal(err)
	}
	rec := src.Manifest.Predicate.Records
	layout := bundle.Layout(rec)
	m, err := selector.OpenMap(src.Map, src.MapTree.Size(), src.Tree.Root(), src.Tree.Size(), layout)
	if err != nil {
		t.Fatal(err)
	}
	var out memory
	infos, err := selector.IndexBuild{Source: bytes.NewReader(data), Map: m, Layout: layout, Paths: []*selector.KeyPath{key}, Spill: new(room)}.Build(t.Context(), []io.WriterAt{&out})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := selector.IndexSpec(layout, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	index := out.b[:infos[0].Size]
	facts := manifest.Index{
		Path: key.Canonical(), Size: infos[0].Size, Entries: infos[0].Entries, Distinct: infos[0].Distinct, Undetermined: infos[0].Undetermined,
		SpecDigest: merkle.Root(selector.SpecDigest(spec)).String(),
	}
	if err := json.Unmarshal(spec, &facts.Spec); err != nil {
		t.Fatal(err)
	}
	tr := tree(t, index)
	facts.Root = tr.Root().String()
	return bundle.IndexSource{Facts: facts, Data: bytes.NewReader(index), Tree: tr}
}

// room is room in memory.
type room struct{ memory }

func (r *room) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(r.b)) {
		return 0, io.EOF
	}
	n := copy(p, r.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// ask parses a question about a source.
func ask(t testing.TB, where string, limit int64, orders ...string) selector.Asked {
	t.Helper()
	w, err := selector.ParseWhere(where)
	if err != nil {
		t.Fatal(err)
	}
	q := &selector.Query{Where: w}
	for _, text := range orders {
		o, err := selector.ParseOrder(text)
		if err != nil {
			t.Fatal(err)
		}
		q.Order = append(q.Order, o)
	}
	return selector.Asked{Query: q, Limit: limit}
}

func prove(t testing.TB, src bundle.Source, x bundle.IndexSource, asked selector.Asked) (*bundle.QueryBundle, []byte) {
	t.Helper()
	b, err := bundle.Query(t.Context(), src, x, asked)
	if err != nil {
		t.Fatal(err)
	}
	return b, write(t, b.Bundle, nil)
}

// rowsOf evaluates a condition for every line.
func rowsOf(data []byte, where string) (rows []string) {
	w, _ := selector.ParseWhere(where)
	for line := range bytes.Lines(data) {
		if w.Eval(bytes.TrimSuffix(line, []byte("\n")), selector.Layout{Format: "ndjson"}) == selector.Matched {
			rows = append(rows, string(line))
		}
	}
	return rows
}

// TestQueryBundle proves answers of every kind and reads them back.
func TestQueryBundle(t *testing.T) {
	data := incidents(4000)
	src, x := withIndex(t, data, "/id", "/n", "/status")
	id, number, status := x[0], x[1], x[2]
	counted := func(a selector.Asked) selector.Asked { a.Count = true; return a }
	count := counted(ask(t, `@.n == 77`, 0))
	for _, c := range []struct {
		x      bundle.IndexSource
		asked  selector.Asked
		where  string
		says   string // of the fact answer
		end    string // the conclusion's beginning
		order  func([]string) []string
		noRows bool
	}{
		{x: status, where: `@.status == "open"`, asked: ask(t, `@.status == "open"`, 0), says: "records, 42 undecidable", end: "At least "},
		{x: status, where: `@.status == "lost"`, asked: ask(t, `@.status == "lost"`, 0), says: "0 of 4000 records, 42 undecidable", end: "no_conclusion: "},
		{x: id, where: `@.id == 12.5`, asked: ask(t, `@.id == 12.5`, 0), says: "0 of 4000 records, 0 undecidable", end: "No record with @.id == 12.5 in the captured coverage (region eu) "},
		{x: id, where: `@.id == 1234`, asked: ask(t, `@.id == 1234`, 0), says: "1 of 4000", end: "Exactly 1 record with @.id == 1234 in the captured coverage (region eu) "},
		{x: number, where: `@.n == 77 || @.n == 78`, asked: ask(t, `@.n == 77 || @.n == 78`, 0), says: "of 4000 records, 0 undecidable", end: "Exactly "},
		{x: number, where: `@.n == 77 && @.status == "open"`, asked: ask(t, `@.n == 77 && @.status == "open"`, 0), says: "of 4000 records", end: "Exactly "},
		{x: number, where: `@.n == 77`, asked: count, says: "8 of 4000 records, 0 undetermined in the index", end: "Exactly 8 records with @.n == 77 ", noRows: true},
		{x: status, where: `@.status == "open"`, asked: counted(ask(t, `@.status == "open"`, 0)), says: "42 undetermined in the index", end: "At least ", noRows: true},
		{x: status, where: `@.status == "lost"`, asked: counted(ask(t, `@.status == "lost"`, 0)), says: "0 of 4000 records, 42 undetermined", end: "no_conclusion: no record that the index determines with ", noRows: true},
		{x: status, where: `@.status == "closed"`, asked: ask(t, `@.status == "closed"`, 7), says: "the first 7 rows", end: "These are the first 7 records ", order: func(r []string) []string { return r[:7] }},
		{x: id, where: `@.id < 1000`, asked: ask(t, `@.id < 1000`, 3, "/id:desc"), says: "the first 3 rows", end: "These are the first 3 records ", order: func(r []string) []string {
			slices.Reverse(r)
			return r[:3]
		}},
		{x: id, where: `@.id < 1000`, asked: ask(t, `@.id < 1000`, 3, "/id"), says: "the first 3 rows", end: "These are the first 3 records ", order: func(r []string) []string { return r[:3] }},
	} {
		b, file := prove(t, src, c.x, c.asked)
		var out bytes.Buffer
		res, err := verify(file, policy(t, "one"), &out)
		if err != nil {
			t.Fatalf("%s: %v", c.where, err)
		}
		f, _ := res.Verdict.Fact(manifest.FactAnswer)
		if res.Verdict.Exit() != 0 || f.State != manifest.Proven || !strings.Contains(f.Detail, c.says) || !strings.HasPrefix(res.Answer.Conclusion, c.end) {
			t.Errorf("%s: exit %d, %s (%s): %s", c.where, res.Verdict.Exit(), f, f.Detail, res.Answer.Conclusion)
		}
		if f, _ := res.Verdict.Fact(manifest.FactIndex); f.String() != "attested(one, manifest)" {
			t.Errorf("%s: index %s", c.where, f)
		}
		want := rowsOf(data, c.where)
		if c.order != nil {
			want = c.order(want)
		}
		if c.noRows {
			want = nil
		}
		if out.String() != strings.Join(want, "") {
			t.Errorf("%s: %d bytes of rows, want %d rows:\n%s", c.where, out.Len(), len(want), out.String())
		}
		if !c.noRows && len(want) == 0 != (b.Leaves().Size() == 0) && c.x.Facts.Undetermined == 0 {
			t.Errorf("%s: %d rows, leaves %v", c.where, len(want), b.Leaves())
		}
		if res.Claim.String() != b.Claim().String() {
			t.Errorf("the claim is %q and %q", res.Claim, b.Claim())
		}
	}
}

// readBytes counts what is read.
type readBytes struct {
	io.ReaderAt
	n int64
}

func (r *readBytes) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	r.n += int64(n)
	return n, err
}

// TestQueryBundleOnce: with room for a section the artifact is read once, and the
// bundle is the same.
func TestQueryBundleOnce(t *testing.T) {
	data := incidents(9000)
	src, x := withIndex(t, data, "/id", "/status")
	for _, asked := range []selector.Asked{ask(t, `@.status == "open"`, 0), ask(t, `@.id > 100`, 7, "/id:desc"), ask(t, `@.id < 4000 && @.n == 7`, 0), ask(t, `@.status == "lost"`, 0)} {
		index := x[0]
		if strings.Contains(asked.Query.Where.String(), "status") {
			index = x[1]
		}
		_, want := prove(t, src, index, asked)
		read, once := &readBytes{ReaderAt: bytes.NewReader(data)}, src
		once.Data, once.Room = read, func() (selector.Spill, error) { return new(room), nil }
		b, err := bundle.Query(t.Context(), once, index, asked)
		if err != nil {
			t.Fatal(err)
		}
		var rows, again int
		for _, n := range []*int{&rows, &again} {
			if err := b.Rows(t.Context(), func(selector.Row) error { *n++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		file := write(t, b.Bundle, nil)
		if !bytes.Equal(file, want) || int64(rows) != b.Found.Returned || again != rows {
			t.Errorf("%s: another bundle, of %d and %d rows", b.Claim(), rows, again)
		}
		groups := int64(0) // of 16 KiB, which is what a proof reads
		for _, r := range b.Leaves().Ranges() {
			groups += (r.End-1)/16 - r.Start/16 + 1
		}
		if asked.Limit == 0 && read.n > min(groups*16<<10, int64(len(data))) {
			t.Errorf("%s: %d bytes were read of %d", b.Claim(), read.n, groups*16<<10)
		}
	}
}

// TestQueryBundleExpect holds claims to the question of whoever verifies.
func TestQueryBundleExpect(t *testing.T) {
	data := incidents(500)
	src, x := withIndex(t, data, "/id")
	_, file := prove(t, src, x[0], ask(t, `@.id < 100`, 5, "/id:desc"))
	for name, c := range map[string]struct {
		q    bundle.Question
		says string
	}{
		"the same":      {bundle.Question{Where: `100 > @["id"]`, Limit: 5, Order: []string{"/id:desc"}}, "expected query 100 > @.id"},
		"that question": {bundle.Question{Where: `@["id"]<1e2`, Limit: 5, Order: []string{"@.id:desc"}}, ""},
		"another limit": {bundle.Question{Where: `@.id < 100`, Limit: 6, Order: []string{"/id:desc"}}, "expected a limit of 6"},
		"no limit":      {bundle.Question{Where: `@.id < 100`, Order: []string{"/id:desc"}}, "expected a limit of 0"},
		"up":            {bundle.Question{Where: `@.id < 100`, Limit: 5, Order: []string{"/id"}}, "expected query @.id < 100, ordered by /id"},
		"no order":      {bundle.Question{Where: `@.id < 100`, Limit: 5}, "expected query @.id < 100, the bundle claims"},
		"a count":       {bundle.Question{Where: `@.id < 100`, Limit: 5, Order: []string{"/id:desc"}, Count: true}, "expected a count, the bundle claims"},
		"another value": {bundle.Question{Where: `@.id < 101`, Limit: 5, Order: []string{"/id:desc"}}, "expected query @.id < 101"},
	} {
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy(t, "one"), At: at, ExpectQuery: &c.q})
		if err != nil {
			t.Fatal(err)
		}
		f, _ := res.Verdict.Fact(manifest.FactSelector)
		if (f.State == manifest.Mismatch) != (c.says != "") || !strings.Contains(f.Reason, c.says) {
			t.Errorf("%s: %s", name, f)
		}
	}
	// Who waits for records must not take a count, which has none, for their absence.
	asked := ask(t, `@.id < 100`, 0)
	asked.Count = true
	_, file = prove(t, src, x[0], asked)
	for count, want := range map[bool]manifest.State{true: manifest.Attested, false: manifest.Mismatch} {
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy(t, "one"), At: at, ExpectQuery: &bundle.Question{Where: `@.id < 100`, Count: count}})
		if err != nil {
			t.Fatal(err)
		}
		if f, _ := res.Verdict.Fact(manifest.FactSelector); f.State != want {
			t.Errorf("a count, expected %v: %s", count, f)
		}
	}
}

// sectionsOf returns where the sections of a query claim stand in a file.
func sectionsOf(t testing.TB, file []byte) (h map[string]any, names []string, at map[string][2]int) {
	t.Helper()
	lines := bytes.SplitN(file, []byte("\n"), 3)
	d := json.NewDecoder(bytes.NewReader(lines[1]))
	d.UseNumber()
	if err := d.Decode(&h); err != nil {
		t.Fatal(err)
	}
	off := len(file) - len(lines[2])
	at = map[string][2]int{}
	sections := h["claims"].([]any)[0].(map[string]any)["sections"].(map[string]any)
	for _, name := range []string{"header", "pages", "undetermined", "map", "records"} {
		s, ok := sections[name].(map[string]any)
		if !ok {
			continue
		}
		n, _ := s["length"].(json.Number).Int64()
		names, at[name] = append(names, name), [2]int{off, off + int(n)}
		off += int(n)
	}
	return h, names, at
}

// TestQueryBundleFlips alters every section of several bundles by a bit and repairs
// line 1; and the members of the claim. All are refused, each by the fact it is of.
func TestQueryBundleFlips(t *testing.T) {
	data := incidents(9000)
	src, x := withIndex(t, data, "/id", "/status")
	p := policy(t, "one")
	reasons := map[string]int{}
	for _, file := range [][]byte{
		second(prove(t, src, x[1], ask(t, `@.status == "closed"`, 9))), second(prove(t, src, x[0], ask(t, `@.id == 3.5`, 0))), second(prove(t, src, x[0], ask(t, `@.id > 100`, 4, "/id:desc"))),
	} {
		_, names, at := sectionsOf(t, file)
		for _, name := range names {
			for i := at[name][0]; i < at[name][1]; i += 1 + (at[name][1]-at[name][0])/60 {
				mutant := bytes.Clone(file)
				mutant[i] ^= 1 << (i % 8)
				res, err := verify(reseal(mutant), p, nil)
				switch {
				case err != nil && errors.Is(err, bundle.ErrMalformed):
					reasons[name+": malformed"]++
				case err != nil:
					t.Fatal(err)
				case res.Verdict.Exit() != 3:
					t.Errorf("%s: byte %d altered: exit %d", name, i-at[name][0], res.Verdict.Exit())
				default:
					for _, f := range res.Verdict.Facts {
						if f.State == manifest.Mismatch {
							reasons[name+": "+f.Name]++
						}
					}
				}
			}
		}
	}
	want := map[string]string{"header": "index", "pages": "index", "undetermined": "index", "map": "record_numbers", "records": "bytes"}
	for name, fact := range want {
		if reasons[name+": "+fact] == 0 {
			t.Errorf("no alteration of %s was told by the fact %s: %v", name, fact, reasons)
		}
	}
	t.Log(slices.Sorted(maps.Keys(reasons)))
}

func second[A, B any](_ A, b B) B { return b }

// TestQueryBundleClaims alters the members of a claim, with line 1 put right.
func TestQueryBundleClaims(t *testing.T) {
	data := incidents(1500)
	src, x := withIndex(t, data, "/id", "/status")
	_, file := prove(t, src, x[0], ask(t, `@.id >= 100 && @.id < 600`, 4, "/id:desc"))
	h, _, _ := sectionsOf(t, file)
	body := bytes.SplitN(file, []byte("\n"), 3)[2]
	claim := func(h map[string]any) map[string]any { return h["claims"].([]any)[0].(map[string]any) }
	section := func(h map[string]any, name string) map[string]any {
		return claim(h)["sections"].(map[string]any)[name].(map[string]any)
	}
	number := func(n int64) json.Number { return json.Number(fmt.Sprint(n)) }
	for name, c := range map[string]struct {
		alter func(h map[string]any)
		want  string // the fact that tells, or malformed
	}{
		"as it is":            {func(map[string]any) {}, ""},
		"another limit":       {func(h map[string]any) { claim(h)["limit"] = number(3) }, manifest.FactAnswer},
		"no limit":            {func(h map[string]any) { delete(claim(h), "limit"); delete(claim(h), "shown") }, "malformed"},
		"another position":    {func(h map[string]any) { claim(h)["shown"] = number(5) }, manifest.FactAnswer},
		"a position of 0":     {func(h map[string]any) { claim(h)["shown"] = number(0) }, "malformed"},
		"no position":         {func(h map[string]any) { delete(claim(h), "shown") }, "malformed"},
		"the other direction": {func(h map[string]any) { claim(h)["query"].(map[string]any)["order"].([]any)[0].([]any)[0] = "asc" }, manifest.FactAnswer},
		"document order":      {func(h map[string]any) { q := claim(h)["query"].(map[string]any); q["order"] = q["order"].([]any)[1:] }, "malformed"},
		"another condition": {func(h map[string]any) {
			claim(h)["query"].(map[string]any)["where"] = []any{"ge", "/id", []any{"n", "100"}}
		}, manifest.FactAnswer},
		"no normal form": {func(h map[string]any) {
			claim(h)["query"].(map[string]any)["where"] = []any{"ge", "/id", []any{"n", "1e2"}}
		}, "malformed"},
		"another index": {func(h map[string]any) { claim(h)["index"].(map[string]any)["path"] = "/status" }, "malformed"},
		"another index's root": {func(h map[string]any) {
			claim(h)["index"] = map[string]any{"path": "/status", "root": x[1].Facts.Root, "size": number(x[1].Facts.Size)}
		}, manifest.FactAnswer},
		"a count":  {func(h map[string]any) { claim(h)["count"] = true }, manifest.FactAnswer},
		"no count": {func(h map[string]any) { claim(h)["count"] = false }, "malformed"},
		"pages moved": {func(h map[string]any) {
			l := section(h, "pages")["leaves"].([]any)[0].([]any)
			l[0], l[1] = number(4), number(8)
		}, "malformed"},
		"half a page":       {func(h map[string]any) { section(h, "pages")["leaves"].([]any)[0].([]any)[0] = number(5) }, "malformed"},
		"another leaf":      {func(h map[string]any) { section(h, "header")["leaves"] = []any{[]any{number(1), number(2)}} }, "malformed"},
		"no map":            {func(h map[string]any) { delete(claim(h)["sections"].(map[string]any), "map") }, "malformed"},
		"a range beside it": {func(h map[string]any) { claim(h)["range"] = []any{number(0), number(1)} }, "malformed"},
		"another kind":      {func(h map[string]any) { claim(h)["kind"] = "records" }, "malformed"},
		"leaves of records": {func(h map[string]any) { section(h, "records")["leaves"] = []any{[]any{number(0), number(1)}} }, "malformed"},
		"a shorter section": {func(h map[string]any) {
			s := section(h, "records")
			n, _ := s["length"].(json.Number).Int64()
			s["length"] = number(n - 1)
		}, "malformed"},
	} {
		text, _ := json.Marshal(h)
		var altered map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&altered); err != nil {
			t.Fatal(err)
		}
		c.alter(altered)
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(altered); err != nil {
			t.Fatal(err)
		}
		res, err := verify(reseal(append(append([]byte("x\n"), line.Bytes()...), body...)), policy(t, "one"), nil)
		switch {
		case err != nil && c.want == "malformed" && errors.Is(err, bundle.ErrMalformed):
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "" && name == "as it is":
			if res.Verdict.Exit() != 0 {
				t.Errorf("%s: %s", name, res.Verdict.Sentence())
			}
		case res.Verdict.Exit() != 3:
			t.Errorf("%s: exit %d", name, res.Verdict.Exit())
		case c.want != "":
			if f, _ := res.Verdict.Fact(c.want); f.State != manifest.Mismatch {
				t.Errorf("%s: %s is %s: %s", name, c.want, f, res.Verdict.Sentence())
			}
		}
	}
}

// TestQueryBundleRebuild makes the index again from the artifact's bytes, from
// others, and where a false one was signed: it lacks a record, and no proof shows it.
func TestQueryBundleRebuild(t *testing.T) {
	data := incidents(700)
	src, x := withIndex(t, data, "/id", "/status")
	lie := bytes.Replace(data, []byte(`"status":"closed"`), []byte(`"status":"cloaks"`), 1)
	falseOne := indexOf(t, source(t, lie, "ndjson"), lie, "/status")
	falseOne = relabel(t, falseOne, src)
	liar := sourceOf(t, data, "ndjson", func(p *manifest.Predicate) { p.Indexes = []manifest.Index{falseOne.Facts} })
	_, honest := prove(t, src, x[1], ask(t, `@.status == "open"`, 0))
	b, err := bundle.Query(t.Context(), liar, falseOne, ask(t, `@.status == "lost"`, 0))
	if err != nil {
		t.Fatal(err)
	}
	forged := write(t, b.Bundle, nil)
	convicts, err := bundle.Evidence(liar, nil)
	evidence := write(t, convicts, err)
	clears, err := bundle.Evidence(src, nil)
	cleared := write(t, clears, err)
	said := signBody(t, &manifest.IndexAdded{Head: headOf(t, src, "store"), Index: falseOne.Facts}, "store")
	later, err := bundle.Evidence(src, &said)
	added := write(t, later, err)
	// A false record map convicts too, without any index.
	misplaced := sourceOf(t, data, "ndjson", func(p *manifest.Predicate) { p.Records.Map.Root = merkle.Sum(lie).String() })
	wrongMap, err := bundle.Evidence(misplaced, nil)
	unmapped := write(t, wrongMap, err)
	plain, err := bundle.Evidence(source(t, data, "ndjson"), nil)
	mapped := write(t, plain, err)
	for name, c := range map[string]struct {
		file, from []byte
		index      string
		exit       int
	}{
		"a false map":               {unmapped, data, "not-claimed", 3},
		"a true map":                {mapped, data, "not-claimed", 0},
		"a map of other bytes":      {mapped, lie, "unverifiable(the index was not built again: ", 2},
		"evidence":                  {evidence, data, "MISMATCH(built again from the artifact's bytes the index over /status has the root ", 3},
		"evidence of a later index": {added, data, "MISMATCH(built again from the artifact's bytes the index over /status has the root ", 3},
		"no evidence":               {cleared, data, "proven", 0},
		"an honest index":           {honest, data, "proven", 0},
		"other bytes":               {honest, lie, "unverifiable(the index was not built again: these are not the artifact's bytes", 2},
		"a false index":             {forged, data, "MISMATCH(built again from the artifact's bytes the index over /status has the root ", 3},
		"a false one, not built":    {forged, nil, "attested(one, manifest)", 0},
	} {
		o := bundle.Options{Policy: policy(t, "one"), At: at}
		if c.from != nil {
			o.Rebuild = &bundle.Rebuild{Data: bytes.NewReader(c.from), Size: int64(len(c.from)), Room: func() (selector.Spill, error) { return new(room), nil }}
		}
		res, err := bundle.Verify(bytes.NewReader(c.file), int64(len(c.file)), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if f, _ := res.Verdict.Fact(manifest.FactIndex); !strings.HasPrefix(f.String(), c.index) || res.Verdict.Exit() != c.exit {
			t.Errorf("%s: index is %s, exit %d", name, f, res.Verdict.Exit())
		}
	}
}

// relabel makes an index say that it is of another source of the same size.
func relabel(t testing.TB, x bundle.IndexSource, src bundle.Source) bundle.IndexSource {
	t.Helper()
	index := make([]byte, x.Facts.Size)
	if _, err := x.Data.ReadAt(index, 0); err != nil {
		t.Fatal(err)
	}
	root := src.Tree.Root()
	copy(index[8:], root[:])
	x.Tree, x.Data = tree(t, index), bytes.NewReader(index)
	x.Facts.Root = x.Tree.Root().String()
	return x
}

// TestQueryBundleAdded proves an answer with an index that a later statement names,
// and refuses the statement where it is forged, of another artifact, or needless.
func TestQueryBundleAdded(t *testing.T) {
	data := incidents(300)
	src, other := source(t, data, "ndjson"), source(t, incidents(301), "ndjson")
	x := indexOf(t, src, data, "/id")
	named, _ := withIndex(t, data, "/id")
	state := func(about bundle.Source) *manifest.Envelope {
		env := signBody(t, &manifest.IndexAdded{Head: headOf(t, about, "store"), Index: x.Facts}, "store")
		return &env
	}
	forged := forge(*state(src))
	key, err := manifest.PublicKeyOf(signer("store"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.NewPolicy("test", manifest.Key{Name: "one", Public: one, Roles: []string{manifest.RoleManifest}}, manifest.Key{Name: "store", Public: key, Roles: []string{manifest.RoleIndex}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		src   bundle.Source
		added *manifest.Envelope
		p     *manifest.Policy
		index string // "": malformed
	}{
		"as it is":            {src, state(src), p, "attested(store, index)"},
		"another role":        {src, state(src), policy(t, "one"), "unverifiable("},
		"no policy":           {src, state(src), nil, "unverifiable(no policy)"},
		"forged":              {src, &forged, p, "MISMATCH(the statement of the index: "},
		"of another artifact": {src, state(other), p, ""},
		"none":                {src, nil, p, ""},
		"needless":            {named, state(named), p, ""},
	} {
		x.Added = c.added
		_, file := prove(t, c.src, x, ask(t, `@.id == 7`, 0))
		res, err := verify(file, c.p, nil)
		if c.index == "" {
			if !errors.Is(err, bundle.ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f, _ := res.Verdict.Fact(manifest.FactIndex)
		if answer, _ := res.Verdict.Fact(manifest.FactAnswer); !strings.HasPrefix(f.String(), c.index) || answer.State != manifest.Proven {
			t.Errorf("%s: index %s, answer %s", name, f, answer)
		}
	}
}
