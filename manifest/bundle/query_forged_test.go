package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// forged is a bundle of an answer as whoever holds all the true bytes can make it
// at will: every section is a true body, over leaves of its maker's choice.
type forged struct {
	t        testing.TB
	src      bundle.Source
	x        bundle.IndexSource
	header   map[string]any
	sections map[string][]byte
	spell    func(line []byte) []byte // the header's line; nil: as it is
}

// takeApart takes an honest bundle apart.
func takeApart(t testing.TB, src bundle.Source, x bundle.IndexSource, file []byte) *forged {
	f := &forged{t: t, src: src, x: x, sections: map[string][]byte{}}
	h, names, at := sectionsOf(t, file)
	for _, name := range names {
		f.sections[name] = file[at[name][0]:at[name][1]]
	}
	f.header = h
	return f
}

func (f *forged) claim() map[string]any { return f.header["claims"].([]any)[0].(map[string]any) }

func (f *forged) section(name string) map[string]any {
	s, ok := f.claim()["sections"].(map[string]any)[name].(map[string]any)
	if !ok {
		s = map[string]any{}
		f.claim()["sections"].(map[string]any)[name] = s
	}
	return s
}

// pages is how many pages the index has.
func (f *forged) pages() int64 { return f.x.Facts.Size/4096 - 1 }

// show puts true leaves into a section; said is what the claim says they are.
func (f *forged) show(name string, said any, leaves ...[2]int64) {
	tr, data := f.x.Tree, f.x.Data
	switch name {
	case "map":
		tr, data = f.src.MapTree, f.src.Map
	case "records":
		tr, data = f.src.Tree, f.src.Data
	}
	f.sections[name] = body(f.t, tr, data, leaves...)
	s := f.section(name)
	if delete(s, "leaves"); said != nil {
		s["leaves"] = said
	}
}

// showPages shows pages of the index as they are.
func (f *forged) showPages(name string, from, to int64) {
	leaves := [2]int64{(from + 1) * 4, (to + 1) * 4}
	f.show(name, [][2]int64{leaves}, leaves)
}

// body is a proof body of leaves.
func body(t testing.TB, tr *merkle.Tree, data io.ReaderAt, leaves ...[2]int64) []byte {
	t.Helper()
	var ranges []merkle.Range
	for _, l := range leaves {
		ranges = append(ranges, merkle.Range{Start: l[0], End: l[1]})
	}
	set, err := merkle.LeafRanges(tr.Size(), ranges)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := merkle.WriteBody(&out, tr, data, set); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// file puts the lengths and line 1 right.
func (f *forged) file() []byte {
	order := []string{"header", "pages", "undetermined", "map", "proof", "document", "records"}
	var sections []byte
	for _, name := range order {
		if b, ok := f.sections[name]; ok {
			f.section(name)["length"] = len(b)
			sections = append(sections, b...)
		}
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(f.header); err != nil {
		f.t.Fatal(err)
	}
	b := line.Bytes()
	if f.spell != nil {
		b = f.spell(b)
	}
	return reseal(slices.Concat([]byte("x\n"), b, sections))
}

// TestQueryForged makes bundles that show true leaves, but others than they should,
// or say things of them that are not so. No verifier takes one, ours or a stranger's.
func TestQueryForged(t *testing.T) {
	var data bytes.Buffer
	for i := range 30_000 { // an index of some 90 pages
		fmt.Fprintf(&data, `{"v":"%05d %x"}`+"\n", i/2, i*i)
	}
	for i := range 300 {
		fmt.Fprintf(&data, `{"v":%d,"v":%d}`+"\n", i, i)
	}
	for range 6_000 { // one key on several pages
		data.WriteString(`{"v":"99999"}` + "\n")
	}
	src, xs := withIndex(t, data.Bytes(), "/v")
	x := xs[0]
	there := fmt.Sprintf("%05d %x", 7000, 14000*14000)
	question := func(value string) *forged {
		_, file := prove(t, src, x, ask(t, `{"field":"/v","equals":`+value+`}`, 0))
		return takeApart(t, src, x, file)
	}
	absent, one, many := `"07000"`, `"`+there+`"`, `"99999"`
	run := func(f *forged) (int64, int64) { // the pages that the honest bundle shows
		l := f.section("pages")["leaves"].([]any)[0].([]any)
		a, _ := l[0].(json.Number).Int64()
		b, _ := l[1].(json.Number).Int64()
		return a/4 - 1, b/4 - 1
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(from)) {
				t.Fatalf("no %s in the header", from)
			}
			return bytes.Replace(b, []byte(from), []byte(to), 1)
		}
	}
	literal := func(f *forged, lit ...any) {
		f.claim()["query"].(map[string]any)["where"] = []any{"eq", "/v", lit}
	}
	var cases []strangerCase
	var names []string
	for _, c := range []struct {
		name, value string
		alter       func(f *forged)
	}{
		{"as it is", one, func(*forged) {}},
		{"an empty run of pages", absent, func(f *forged) { f.show("pages", [][2]int64{{4, 4}}, [2]int64{4, 8}) }},
		{"a run that ends before it begins", absent, func(f *forged) { f.show("pages", [][2]int64{{12, 4}}, [2]int64{4, 8}) }},
		{"an empty run, which swallows the section's first byte", absent, func(f *forged) {
			literal(f, "s", there)
			// As a varint its length is a byte 255, which goes on in the next.
			f.show("pages", [][2]int64{{4, 4}}, [2]int64{4, 4 + 127 + 128 + 1})
			f.sections["pages"] = append([]byte{1}, f.sections["pages"]...)
		}},
		{"leaves that are fractions", absent, func(f *forged) {
			a, b := run(f)
			f.section("pages")["leaves"] = [][2]float64{{float64(4*a + 4), float64(4*b+4) - 0.5}}
		}},
		{"no leaf as false", `1`, func(f *forged) { f.section("map")["leaves"] = []any{[]any{false, json.Number("2")}} }},
		{"the header's leaf as false", absent, func(f *forged) { f.section("header")["leaves"] = []any{[]any{false, true}} }},
		{"false as a literal", `false`, func(f *forged) { literal(f, false) }},
		{"leaves as text", absent, func(f *forged) {
			a, b := run(f)
			f.section("pages")["leaves"] = [][2]string{{fmt.Sprint(4*a + 4), fmt.Sprint(4*b + 4)}}
		}},
		{"a page too many in front", absent, func(f *forged) { a, b := run(f); f.showPages("pages", a-1, b) }},
		{"a page too many behind", absent, func(f *forged) { a, b := run(f); f.showPages("pages", a, b+1) }},
		{"a page too few", many, func(f *forged) { a, b := run(f); f.showPages("pages", a+1, b) }},
		{"a page of the tail too many", absent, func(f *forged) {
			l := f.section("undetermined")["leaves"].([]any)[0].([]any)
			a, _ := l[0].(json.Number).Int64()
			f.showPages("undetermined", a/4-2, f.pages())
		}},
		{"a page of the map too many", one, func(f *forged) {
			last := f.src.MapTree.Size() / 1024
			l := f.section("map")["leaves"].([]any)
			var leaves [][2]int64
			for _, r := range l {
				a, _ := r.([]any)[0].(json.Number).Int64()
				b, _ := r.([]any)[1].(json.Number).Int64()
				leaves = append(leaves, [2]int64{a, b})
			}
			if n := len(leaves) - 1; leaves[n][1] < last {
				leaves[n][1]++
			} else {
				leaves[n][0]--
			}
			f.show("map", leaves, leaves...)
		}},
		{"the map without its header", one, func(f *forged) {
			l := f.section("map")["leaves"].([]any)
			var leaves [][2]int64
			for _, r := range l {
				a, _ := r.([]any)[0].(json.Number).Int64()
				b, _ := r.([]any)[1].(json.Number).Int64()
				leaves = append(leaves, [2]int64{max(1, a), b})
			}
			if leaves[0][0] == leaves[0][1] {
				leaves = leaves[1:]
			}
			f.show("map", leaves, leaves...)
		}},
		{"the header's leaves as others", one, func(f *forged) { f.section("header")["leaves"] = [][2]int64{{0, 2}} }},
		{"a section that is none of its own", one, func(f *forged) { f.sections["proof"] = []byte("anything"); f.section("proof") }},
		{"a section without a byte", one, func(f *forged) { f.sections["document"] = nil; f.section("document") }},
		{"a section with leaves that follow", one, func(f *forged) { f.section("records")["leaves"] = [][2]int64{{0, 1}} }},
		{"a member too many", one, func(f *forged) { f.claim()["range"] = [2]int64{0, 1} }},
		{"a member of a section too many", one, func(f *forged) { f.section("pages")["size"] = 1 }},
		{"a count that is none", one, func(f *forged) { f.claim()["count"] = nil }},
		{"a name twice", one, func(f *forged) { f.spell = replace(`"kind":"query"`, `"kind":"bytes","kind":"query"`) }},
		{"white space", one, func(f *forged) { f.spell = replace(`"kind":"query"`, `"kind": "query"`) }},
		{"an escape", one, func(f *forged) { f.spell = replace(`"kind":"query"`, `"kind":"\u0071uery"`) }},
		{"names out of order", one, func(f *forged) {
			f.spell = func(b []byte) []byte {
				return append(append([]byte(`{"ssh":`), b[bytes.LastIndex(b, []byte(`"ssh":`))+6:len(b)-2]...), append([]byte(","), append(bytes.TrimSuffix(b[1:bytes.LastIndex(b, []byte(`,"ssh":`))], nil), "}\n"...)...)...)
			}
		}},
		{"another reference", one, func(f *forged) { f.header["ref"].(map[string]any)["created_at"] = "2026-01-01T00:00:00Z" }},
		{"a number as true in the reference", one, func(f *forged) {
			f.header["ref"].(map[string]any)["completeness"].(map[string]any)["records"] = json.Number("36300.0")
		}},
		{"an unknown member of the header", one, func(f *forged) { f.header["more"] = 1 }},
		{"no literal", absent, func(f *forged) { literal(f, "constructor") }},
		{"a number that is empty", `1`, func(f *forged) { literal(f, "n") }},
		{"a number in another spelling", `1`, func(f *forged) { literal(f, "n", "1.0") }},
		{"a number with zeros", `1`, func(f *forged) { literal(f, "n", "00") }},
		{"a number with a sign too many", `1`, func(f *forged) { literal(f, "n", "1e--5") }},
		{"a number in other digits", `1`, func(f *forged) { literal(f, "n", "٣") }},
		{"a text in hex that needs none", `"b"`, func(f *forged) { literal(f, "x", "61") }},
		{"hex in another spelling", `"\u007f"`, func(f *forged) { literal(f, "x", "7F") }},
		{"hex with a space", `"\u007f"`, func(f *forged) { literal(f, "x", "7f ") }},
		{"a text that needs hex", `"\u2028"`, func(f *forged) { literal(f, "s", "\u2028") }},
		{"a word with more", `true`, func(f *forged) { literal(f, "true", "x") }},
		{"a text with more", `"x"`, func(f *forged) { literal(f, "s", "x", "y") }},
	} {
		f := question(c.value)
		c.alter(f)
		b := f.file()
		res, err := verify(b, policy(t, "one"), nil)
		if ok := err == nil && res.Verdict.Exit() == 0; ok != (c.name == "as it is") {
			t.Errorf("%s: accepted is %v: %v", c.name, ok, err)
		}
		cases, names = append(cases, strangerCase{b, src.Manifest.Payload}), append(names, c.name)
	}
	askStrangers(t, cases, func(t *testing.T, who string, i int, v verdict) {
		if ok := v.Refused == ""; ok != (names[i] == "as it is") {
			t.Errorf("%s: accepted is %v: %s", names[i], ok, v.Refused)
		} else if strings.Contains(v.Refused, "Cannot read") {
			t.Logf("%s: %s", names[i], v.Refused)
		}
	})
}
