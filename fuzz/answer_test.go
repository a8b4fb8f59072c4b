package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// answered is what FuzzAnswer's proofs are about.
type answered struct {
	data, index []byte
	m           *selector.Map
	want        selector.IndexWant
	spans       []selector.Span
}

// room is memory to read and write at.
type room struct{ b []byte }

func (r *room) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(r.b); n > 0 {
		r.b = append(r.b, make([]byte, n)...)
	}
	return copy(r.b[off:], p), nil
}

func (r *room) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r.b[min(int(off), len(r.b)):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func newAnswered(f *testing.F) *answered {
	var b bytes.Buffer
	for i := range 1500 {
		if i%90 == 7 {
			fmt.Fprintf(&b, `{"id":1,"id":2,"n":%d}`+"\n", i)
			continue
		}
		fmt.Fprintf(&b, `{"id":%d,"n":%d}`+"\n", i*7%1500, i%5)
	}
	x := &answered{data: b.Bytes()}
	check := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	size, root, mapped := int64(len(x.data)), merkle.Sum(x.data), new(room)
	info, _, l, err := selector.BuildMap(f.Context(), bytes.NewReader(x.data), size, root, selector.Layout{Format: selector.FormatNDJSON}, mapped)
	check(err)
	x.m, err = selector.OpenMap(mapped, info.Size, root, size, l)
	check(err)
	for s, err := range x.m.Spans(f.Context(), 0, info.Records) {
		check(err)
		x.spans = append(x.spans, s)
	}
	path, err := selector.ParseKeyPath("/id")
	check(err)
	spec, err := selector.IndexSpec(l, path, nil)
	check(err)
	out := new(room)
	infos, err := selector.IndexBuild{Source: bytes.NewReader(x.data), Map: x.m, Layout: l, Paths: []*selector.KeyPath{path}, Spill: new(room)}.Build(f.Context(), []io.WriterAt{out})
	check(err)
	x.index = out.b[:infos[0].Size]
	x.want = selector.IndexWant{
		Path: path, Layout: l, Spec: selector.SpecDigest(spec), Size: infos[0].Size,
		Source:  selector.MapWant{Root: root, Size: size, Layout: l, Records: info.Records, MapSize: info.Size},
		Entries: infos[0].Entries, Distinct: infos[0].Distinct, Undetermined: infos[0].Undetermined,
	}
	return x
}

var answerQuestions = []struct {
	where, order string
	count        bool
}{
	{`@.id == 700`, "", false},
	{`@.id == 700.5`, "", false},
	{`@.id >= 300 && @.id < 900`, "", false},
	{`@.id < 40 || @.id > 1450`, "", false},
	{`@.id > 100 && @.n == 3`, "/id", false},
	{`@.id > 100 && @.n == 3`, "/id:desc", false},
	{`@.id <= 900`, "", true},
	{`@.id > 1e9`, "/id:desc", false},
}

func (x *answered) ask(n, limit byte) selector.Asked {
	q := answerQuestions[int(n)%len(answerQuestions)]
	where, _ := selector.ParseWhere(q.where)
	out := selector.Asked{Query: &selector.Query{Where: where}, Limit: int64(limit % 32), Count: q.count}
	if q.order != "" {
		o, _ := selector.ParseOrder(q.order)
		out.Query.Order = []*selector.Order{o}
	}
	return out
}

// units returns runs of pages out of the index.
func (x *answered) units(runs ...merkle.Range) []byte {
	var out []byte
	for _, r := range runs {
		if a, b := (r.Start+1)*selector.IndexPageSize, (r.End+1)*selector.IndexPageSize; r.Start >= 0 && a < b && b <= int64(len(x.index)) {
			out = append(out, x.index[a:b]...)
		}
	}
	return out
}

// FuzzAnswer: whichever pages of a true index a prover shows, and whatever he says
// of the position of the last row, the verifier refuses them or finds what a scan
// finds. Where a page was altered too, as if no hash had stopped it, it does not
// crash. A proof is written as: question, limit, position, two runs of pages, the
// tail's run, and then byte places of the pages and what is changed there.
func FuzzAnswer(f *testing.F) {
	x := newAnswered(f)
	for n := range answerQuestions {
		for _, limit := range []byte{0, 5} {
			p := selector.Prover{Asked: x.ask(byte(n), limit), Want: x.want, Index: bytes.NewReader(x.index), Map: x.m, Source: bytes.NewReader(x.data)}
			o, err := p.Outline(f.Context())
			if err != nil {
				continue
			}
			seed := []byte{byte(n), limit, byte(o.Shown), byte(o.Shown >> 8), 0, 0, 0, 0, byte(o.Tail.Start), byte(o.Tail.End)}
			for i, r := range o.Pages[:min(2, len(o.Pages))] {
				seed[4+2*i], seed[5+2*i] = byte(r.Start), byte(r.End)
			}
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, proof []byte) {
		if len(proof) < 10 {
			return
		}
		asked := x.ask(proof[0], proof[1])
		run := func(i int) merkle.Range { return merkle.Range{Start: int64(proof[i]), End: int64(proof[i+1])} }
		var runs []merkle.Range
		for _, i := range []int{4, 6} {
			if r := run(i); r != (merkle.Range{}) {
				runs = append(runs, r)
			}
		}
		pages, tail := x.units(runs...), x.units(run(8))
		altered := false
		for edit := proof[10:]; len(edit) >= 3 && len(pages) > 0; edit = edit[3:] {
			altered = altered || edit[2] != 0
			pages[(int(edit[0])<<8|int(edit[1]))%len(pages)] ^= edit[2]
		}
		got, rows, err := x.verify(asked, int64(proof[2])|int64(proof[3])<<8, runs, pages, run(8), tail)
		if err != nil {
			if !errors.Is(err, selector.ErrProof) && !errors.Is(err, selector.ErrUnprovable) && !errors.Is(err, selector.ErrIndex) {
				t.Fatalf("error = %v", err)
			}
			return
		}
		if altered {
			return
		}
		want, matched := x.scan(asked)
		if asked.Count && got.Matched != matched || !asked.Count && !slices.Equal(rows, want) {
			t.Fatalf("%+v: rows %v, want %v of %d", got, rows, want, matched)
		}
	})
}

func (x *answered) verify(asked selector.Asked, position int64, runs []merkle.Range, pages []byte, tail merkle.Range, tailPages []byte) (*selector.Proven, []int64, error) {
	c, err := selector.NewCompleteness(asked, x.want, position)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Header(x.index[:merkle.LeafSize]); err != nil {
		return nil, nil, err
	}
	if err := c.Pages(runs, func() io.Reader { return bytes.NewReader(pages) }); err != nil {
		return nil, nil, err
	}
	if err := c.Undetermined(tail, bytes.NewReader(tailPages)); err != nil {
		return nil, nil, err
	}
	var rows []int64
	emit := func(r selector.Row) error { rows = append(rows, r.Record); return nil }
	for r := range c.Shown() {
		if err := c.Record(r, x.spans[r], x.data[x.spans[r].Start:x.spans[r].End], emit); err != nil {
			return nil, nil, err
		}
	}
	got, err := c.Finish(emit)
	return got, rows, err
}

// scan decides every record; rows with the same key do not occur.
func (x *answered) scan(asked selector.Asked) (rows []int64, matched int64) {
	type row struct {
		key    []byte
		record int64
	}
	var all []row
	for i, s := range x.spans {
		b := x.data[s.Start:s.End]
		if asked.Query.Where.Eval(b, x.want.Layout) != selector.Matched {
			continue
		}
		r := row{record: int64(i)}
		if len(asked.Query.Order) > 0 {
			keys, err := selector.NewKeys(x.want.Layout, asked.Query.Order)
			if err != nil {
				panic(err)
			}
			r.key, _ = keys.Append(nil, b, false)
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	matched = int64(len(all))
	if asked.Limit > 0 {
		all = all[:min(asked.Limit, matched)]
	}
	for _, r := range all {
		rows = append(rows, r.record)
	}
	return rows, matched
}
