package selector_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// fit shows the pages of the record map that fit the pages of the index, as a
// prover does who knows what the verifier will look for.
func (s *shown) fit(x *indexed) error {
	c, err := selector.NewCompleteness(s.asked, s.want, s.position)
	if err == nil {
		err = c.Header(s.header)
	}
	if err == nil {
		err = c.Pages(s.pages, func() io.Reader { return bytes.NewReader(s.pageBytes) })
	}
	if err == nil {
		err = c.Undetermined(s.tail, bytes.NewReader(s.tailBytes))
	}
	if err != nil {
		return err
	}
	s.mapLeaves = nil
	var held merkle.Range
	at := int64(0)
	for r := range c.Shown() {
		for ; r >= held.End; at++ {
			if held, err = selector.PageRecords(x.bytes[(at+1)*1024 : (at+2)*1024]); err != nil {
				return err
			}
			if r < held.End {
				if n := len(s.mapLeaves); n > 0 && s.mapLeaves[n-1].End == at+1 {
					s.mapLeaves[n-1].End++
				} else {
					s.mapLeaves = append(s.mapLeaves, merkle.Range{Start: at + 1, End: at + 2})
				}
			}
		}
	}
	s.mapBytes = cutRuns(x.bytes, 1024, 0, s.mapLeaves)
	return nil
}

// runsOf returns the runs of a set of numbers below 64.
func runsOf(set uint64) (runs []merkle.Range) {
	for i := range int64(64) {
		if set>>i&1 == 0 {
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].End == i {
			runs[n-1].End++
		} else {
			runs = append(runs, merkle.Range{Start: i, End: i + 1})
		}
	}
	return runs
}

// TestCompleteProver tries, for small indexes of records of every format, all
// choices of pages and of the tail, and several positions, each with the pages of
// the map that fit. What is accepted is true, and of an answer there is one proof.
func TestCompleteProver(t *testing.T) {
	value := func(i int) string { // some of them often, and few on a page
		k := i * 7919 % 211
		if k > 140 {
			k = 7
		}
		return fmt.Sprintf(`"%c%03d%s"`, "mnopq"[k%5], k, strings.Repeat(string(rune('A'+k%26)), 85))
	}
	odd := func(i int) string {
		switch i % 29 {
		case 3:
			return `"\ud800"`
		case 8:
			return "null"
		case 11:
			return "[" + value(i) + "," + value(i+1) + `,"\ud800"]`
		}
		return value(i)
	}
	var lines, array, values, rows, text strings.Builder
	array.WriteString(`{"rows": [`)
	rows.WriteString("a,b\n")
	for i := range 300 {
		rec := fmt.Sprintf(`{"a":%s,"b":%d,"t":[%s,%s]}`, odd(i), i%7, odd(i), odd(i+9))
		fmt.Fprintf(&lines, "%s%s%s\n", []string{"", " ", "\t"}[i%3], rec, []string{" ", "", "", "\r"}[i%4])
		fmt.Fprintf(&array, "%s\n %s", []string{"", " ,"}[min(i, 1)], rec)
		fmt.Fprintf(&values, "%s%s", rec, []string{" ", "", "\n"}[i%3])
		fmt.Fprintf(&rows, "%s,%d%s\n", value(i), i%7, []string{"", "", ",more"}[i%3])
		fmt.Fprintf(&text, "%s\n", strings.Trim(value(i), `"`))
	}
	fmt.Fprintf(&lines, `{"a":1,"a":2,"b":3}`+"\n"+`{"a":`+"\n")
	array.WriteString("]}")
	rows.WriteString(`"x"y,1` + "\n")
	many, first := value(7), `"m00`
	tried, accepted := 0, 0
	for i, c := range []struct {
		layout selector.Layout
		src    string
		path   string
		at     string // the path as a condition has it
	}{
		{selector.Layout{Format: selector.FormatNDJSON}, lines.String(), "/a", "@.a"},
		{selector.Layout{Format: selector.FormatNDJSON}, lines.String(), "@.t[*]", "@.t[*]"},
		{selector.Layout{Format: selector.FormatJSON, Pointer: "/rows"}, array.String(), "/a", "@.a"},
		{selector.Layout{Format: selector.FormatConcat}, values.String(), "/a", "@.a"},
		{selector.Layout{Format: selector.FormatCSV, Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true}}, rows.String(), "/a", "@.a"},
		{selector.Layout{Format: selector.FormatText}, text.String(), "", "@"},
	} {
		if testing.Short() && i > 1 {
			break
		}
		x := newIndexed(t, []byte(c.src), c.layout, c.path)
		pages := x.want.Size/4096 - 1
		if pages < 3 || pages > 7 {
			t.Fatalf("%s: %d pages", c.layout.Format, pages)
		}
		for _, q := range []struct {
			where, order string
			limit        int64
			count        bool
		}{
			{where: `%s == ` + many},
			{where: `%s == "none"`},
			{where: `%s == ` + many, limit: 3},
			{where: `%s > ` + many, limit: 4},
			{where: `%s < "a"`},
			{where: `%s > "z"`},
			{where: `%s > ` + many, limit: 5, order: "asc"},
			{where: `%s < ` + many, limit: 5, order: "desc"},
			{where: `%s >= ` + first + `" && %s < "n"`, limit: 40, order: "desc"},
			{where: `%s == ` + many + ` || %s > "q"`},
			{where: `%s >= ` + many, count: true},
			{where: `%s == "none"`, count: true},
			{where: `%s`, count: true},
			{where: `!(%s != ` + many + `)`, limit: 2},
		} {
			if strings.Contains(c.path, "*") && (q.count || q.order != "") {
				continue
			}
			where := strings.ReplaceAll(q.where, "%s", c.at)
			if i := strings.Index(c.at, "[*]"); i > 0 && where != c.at {
				where = strings.ReplaceAll(q.where, "%s", "@")
				where = c.at[:i] + "[?" + where + "]"
			}
			asked := x.ask(t, where, q.limit)
			if asked.Count = q.count; q.order != "" {
				asked = x.ask(t, where, q.limit, c.path+":"+q.order)
			}
			name := fmt.Sprintf("%s %+v by %s", c.layout.Format, q, c.path)
			honest, err := x.prove(t, asked)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			truth, matched, undecidable := x.scan(t, asked)
			proofs := 0
			try := func(set uint64, tail merkle.Range, position int64) {
				s := honest.fork()
				s.show(x, runsOf(set)...)
				s.showTail(x, tail)
				s.position = position
				tried++
				if s.fit(x) != nil {
					return
				}
				got, rows, err := s.verify()
				if err != nil {
					return
				}
				accepted++
				if position == honest.position {
					proofs++
				}
				switch {
				case q.count && (got.Matched > matched || got.Matched+got.Undecidable < matched+undecidable), !q.count && !slices.Equal(rows, truth),
					!q.count && !got.Cut && (got.Matched != matched || got.Undecidable != undecidable):
					t.Errorf("%s: pages %v, tail %v, position %d: %+v, rows %v, want %v, %d and %d", name, s.pages, tail, position, got, rows, truth, matched, undecidable)
				}
			}
			tails := []merkle.Range{{}}
			for a := range pages {
				tails = append(tails, merkle.Range{Start: a, End: pages}, merkle.Range{Start: a, End: max(a+1, pages-1)})
			}
			slices.SortFunc(tails, func(a, b merkle.Range) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
			tails = slices.Compact(tails)
			positions := []int64{honest.position}
			if q.limit > 0 {
				positions = append(positions, 0, honest.position+1, max(honest.position-1, 0))
			}
			slices.Sort(positions)
			positions = slices.Compact(positions)
			for set := range uint64(1) << pages {
				for _, tail := range tails {
					for _, position := range positions {
						try(set, tail, position)
					}
				}
			}
			if proofs != 1 {
				t.Errorf("%s: %d proofs are accepted", name, proofs)
			}
		}
	}
	t.Logf("%d choices, %d accepted", tried, accepted)
}
