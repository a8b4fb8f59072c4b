package selector_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// slowMap is a second writer of lpr1, straight from the format's description.
func slowMap(root merkle.Root, size int64, digest [32]byte, list []selector.Span) []byte {
	le := binary.LittleEndian
	var pages [][]byte
	var entries []byte
	var count, first, base, end int64
	closePage := func() {
		p := le.AppendUint64(nil, uint64(first))
		p = le.AppendUint64(p, uint64(base))
		p = le.AppendUint16(p, uint16(count))
		p = le.AppendUint16(p, uint16(len(entries)))
		p = append(p, entries...)
		pages = append(pages, append(p, make([]byte, 1024-len(p))...))
	}
	for i, s := range list {
		e := binary.AppendUvarint(nil, uint64(s.Start-end))
		e = binary.AppendUvarint(e, uint64(s.End-s.Start))
		if 20+len(entries)+len(e) > 1024 {
			closePage()
			entries, count, first, base = nil, 0, int64(i), end
		}
		entries, count, end = append(entries, e...), count+1, s.End
	}
	if count > 0 {
		closePage()
	}
	h := append([]byte("LFPRMAP1"), root[:]...)
	h = le.AppendUint64(h, uint64(size))
	h = append(h, digest[:]...)
	h = le.AppendUint64(h, uint64(len(list)))
	h = le.AppendUint64(h, uint64(len(pages)))
	h = append(h, make([]byte, 1024-len(h))...)
	return append(h, bytes.Join(pages, nil)...)
}

// lines makes n text lines of random length.
func lines(n, length int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 9))
	var b []byte
	for range n {
		b = append(b, bytes.Repeat([]byte("x"), rng.IntN(length+1))...)
		b = append(b, '\n')
	}
	return b
}

func TestMapTwin(t *testing.T) {
	for _, n := range []int{0, 1, 2, 333, 334, 335, 502, 503, 1004, 1005, 40_000} {
		for _, length := range []int{0, 3, 200, 5000} {
			if n*length > 10_000_000 {
				continue
			}
			src := lines(n, length, uint64(n))
			b := build(t, src, selector.Layout{Format: "text"})
			list := spans(t, b.m)
			if len(list) != n || b.info.Records != int64(n) || b.m.Records() != int64(n) {
				t.Fatalf("%d lines: %d spans, %d records", n, len(list), b.info.Records)
			}
			if want := slowMap(merkle.Sum(src), int64(len(src)), b.layout.Digest(), list); !bytes.Equal(b.bytes, want) {
				t.Errorf("%d lines of up to %d bytes: the map differs from its twin's", n, length)
			}
		}
	}
}

func want(src []byte, b built) selector.MapWant {
	return selector.MapWant{Root: merkle.Sum(src), Size: int64(len(src)), Layout: b.layout, Records: b.info.Records, MapSize: b.info.Size}
}

// Every range: Spans, and Pages with MapSpans, give what the whole map gives.
func TestMapRanges(t *testing.T) {
	src := lines(3000, 300, 1)
	b := build(t, src, selector.Layout{Format: "text"})
	all, w := spans(t, b.m), want(src, b)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		a := rng.Int64N(3000)
		z := a + 1 + rng.Int64N(min(3000-a, 1<<rng.IntN(12)))
		var got []selector.Span
		for s, err := range b.m.Spans(t.Context(), a, z) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
		if !slices.Equal(got, all[a:z]) {
			t.Fatalf("Spans(%d, %d) = %v", a, z, got)
		}
		leaves, err := b.m.Pages(a, z)
		if err != nil {
			t.Fatal(err)
		}
		got, err = selector.MapSpans(b.bytes[:1024], b.bytes[leaves.Start*1024:leaves.End*1024], leaves.Start, a, z, w)
		if err != nil || !slices.Equal(got, all[a:z]) {
			t.Fatalf("MapSpans(%d, %d) = %v, %v", a, z, got, err)
		}
		// One page more or fewer, on either side, is refused.
		for _, d := range [][2]int64{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
			r := merkle.Range{Start: leaves.Start + d[0], End: leaves.End + d[1]}
			if r.Start < 1 || r.End > b.info.Size/1024 || r.End < r.Start {
				continue
			}
			if _, err := selector.MapSpans(b.bytes[:1024], b.bytes[r.Start*1024:r.End*1024], r.Start, a, z, w); !errors.Is(err, selector.ErrMap) {
				t.Fatalf("[%d, %d) with leaves %v instead of %v: %v", a, z, r, leaves, err)
			}
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {2, 1}, {0, 3001}, {3001, 3001}} {
		if _, err := b.m.Pages(r[0], r[1]); !errors.Is(err, selector.ErrRange) {
			t.Errorf("Pages(%d, %d): %v", r[0], r[1], err)
		}
		for _, err := range b.m.Spans(t.Context(), r[0], r[1]) {
			if !errors.Is(err, selector.ErrRange) {
				t.Errorf("Spans(%d, %d): %v", r[0], r[1], err)
			}
		}
	}
	if _, err := b.m.Pages(5, 5); !errors.Is(err, selector.ErrRange) {
		t.Errorf("Pages of an empty range: %v", err)
	}
	for range b.m.Spans(t.Context(), 0, 3000) { // stopping early is no error and yields nothing more
		break
	}
}

// Each tampering is refused for its own reason.
func TestMapTampered(t *testing.T) {
	src := lines(2000, 200, 2)
	b := build(t, src, selector.Layout{Format: "text"})
	w := want(src, b)
	le := binary.LittleEndian
	page := func(p []byte, i int) []byte { return p[1024*(1+i) : 1024*(2+i)] }
	for name, test := range map[string]struct {
		change func(p []byte)
		detail string
	}{
		"magic":              {func(p []byte) { p[7] = '2' }, "no LFPRMAP1 header"},
		"other source":       {func(p []byte) { p[8] ^= 1 }, "another source"},
		"other size":         {func(p []byte) { p[40] ^= 1 }, "source of"},
		"other layout":       {func(p []byte) { p[48] ^= 1 }, "another record layout"},
		"other count":        {func(p []byte) { p[80] ^= 1 }, "1999 records, want 2000|2001 records, want 2000"},
		"huge count":         {func(p []byte) { p[87] = 0x7f }, "out of range"},
		"other page count":   {func(p []byte) { p[88] ^= 1 }, "pages in a map of"},
		"header padding":     {func(p []byte) { p[1023] = 1 }, "padding"},
		"first record":       {func(p []byte) { le.PutUint64(page(p, 1), 1) }, "does not continue"},
		"first record late":  {func(p []byte) { le.PutUint64(page(p, 1), 1999) }, "records 1999"},
		"negative record":    {func(p []byte) { page(p, 1)[7] = 0x80 }, "out of range"},
		"base":               {func(p []byte) { page(p, 1)[8] ^= 1 }, "does not continue"},
		"page 0 base":        {func(p []byte) { page(p, 0)[8] ^= 1 }, "does not begin at 0"},
		"count too large":    {func(p []byte) { page(p, 0)[16]++ }, "not minimal|bytes of entries|does not continue|touches"},
		"count zero":         {func(p []byte) { le.PutUint16(page(p, 1)[16:], 0) }, "out of range"},
		"used too small":     {func(p []byte) { page(p, 1)[18]-- }, "padding"},
		"used beyond a page": {func(p []byte) { page(p, 1)[19] = 0xff }, "out of range"},
		"gap zero":           {func(p []byte) { page(p, 1)[20] = 0 }, "touches"},
		"varint not minimal": {func(p []byte) { page(p, 1)[20] = 0x81; page(p, 1)[21] = 0 }, "not minimal"},
		"record too long": {func(p []byte) {
			q := page(p, 1)
			copy(q[21:], bytes.Repeat([]byte{0xff}, 8))
			q[29] = 0x7f
		}, "ends behind the source"},
		"last page padding": {func(p []byte) { p[len(p)-1] = 1 }, "padding"},
		"pages swapped": {func(p []byte) {
			a := bytes.Clone(page(p, 0))
			copy(page(p, 0), page(p, 1))
			copy(page(p, 1), a)
		}, "does not begin at 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := bytes.Clone(b.bytes)
			test.change(p)
			got, err := selector.MapSpans(p[:1024], p[1024:], 1, 0, 2000, w)
			if !errors.Is(err, selector.ErrMap) || got != nil {
				t.Fatalf("MapSpans = %d spans, %v; want ErrMap", len(got), err)
			}
			if !containsAny(err.Error(), test.detail) {
				t.Errorf("refused with %v, want …%s…", err, test.detail)
			}
			// The store's side refuses what it reads of it, too.
			m, err := selector.OpenMap(bytes.NewReader(p), int64(len(p)), w.Root, w.Size, w.Layout)
			if err == nil {
				for _, err = range m.Spans(t.Context(), 0, m.Records()) {
					if err != nil {
						break
					}
				}
			}
			if name != "other count" && !errors.Is(err, selector.ErrMap) {
				t.Errorf("Spans: %v, want ErrMap", err)
			}
		})
	}
}

func containsAny(s, alternatives string) bool {
	for _, a := range bytes.Split([]byte(alternatives), []byte("|")) {
		if bytes.Contains([]byte(s), a) {
			return true
		}
	}
	return false
}

// Two more spellings of the spans of "a\nb\n", both refused: pages that are not
// filled, and a varint that is not minimal.
func TestMapOtherSpellings(t *testing.T) {
	le := binary.LittleEndian
	root, l := merkle.Sum([]byte("a\nb\n")), selector.Layout{Format: "text"}
	digest := l.Digest()
	for name, test := range map[string]struct {
		pages  [][]byte // their beginnings
		detail string
	}{
		"canonical": {[][]byte{append(make([]byte, 16), 2, 0, 4, 0, 0, 1, 1, 1)}, ""},
		"not filled": {[][]byte{
			append(make([]byte, 16), 1, 0, 2, 0, 0, 1),
			{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 1},
		}, "fits into the page before"},
		"not minimal": {[][]byte{append(make([]byte, 16), 2, 0, 5, 0, 0x80, 0, 1, 1, 1)}, "not minimal"},
		"cut off":     {[][]byte{append(make([]byte, 16), 2, 0, 4, 0, 0, 1, 1, 0x81)}, "not minimal"},
	} {
		p := make([]byte, 1024*(1+len(test.pages)))
		copy(p, "LFPRMAP1")
		copy(p[8:], root[:])
		le.PutUint64(p[40:], 4)
		copy(p[48:], digest[:])
		le.PutUint64(p[80:], 2)
		le.PutUint64(p[88:], uint64(len(test.pages)))
		for i, page := range test.pages {
			copy(p[1024*(1+i):], page)
		}
		w := selector.MapWant{Root: root, Size: 4, Layout: l, Records: 2, MapSize: int64(len(p))}
		got, err := selector.MapSpans(p[:1024], p[1024:], 1, 0, 2, w)
		if test.detail == "" {
			if want := []selector.Span{{Start: 0, End: 1}, {Start: 2, End: 3}}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		} else if !errors.Is(err, selector.ErrMap) || !containsAny(err.Error(), test.detail) {
			t.Errorf("%s: %v, want %s", name, err, test.detail)
		}
	}
}

// Single-bit flips of header and pages: refused, or the spans stay the same.
func TestMapBitFlips(t *testing.T) {
	src := lines(700, 30, 3)
	b := build(t, src, selector.Layout{Format: "text"})
	w, all := want(src, b), spans(t, b.m)
	other := 0
	for bit := range len(b.bytes) * 8 {
		p := bytes.Clone(b.bytes)
		p[bit/8] ^= 1 << (bit % 8)
		got, err := selector.MapSpans(p[:1024], p[1024:], 1, 0, 700, w)
		if err == nil && slices.Equal(got, all) {
			t.Fatalf("bit %d changes nothing: a second spelling", bit)
		}
		if err == nil {
			other++ // another valid map: merkle's business
		}
	}
	t.Logf("%d of %d flips make another well-formed map", other, len(b.bytes)*8)
}

func TestLayoutDigest(t *testing.T) {
	base := selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a", "b"}}}
	seen := map[[32]byte]string{}
	for name, l := range map[string]selector.Layout{
		"base":      base,
		"ndjson":    {Format: "ndjson"},
		"json":      {Format: "json"},
		"json at":   {Format: "json", Pointer: "/a"},
		"delimiter": {Format: "csv", Dialect: selector.Dialect{Delimiter: ";", Quote: `"`, Header: true, Columns: []string{"a", "b"}}},
		"quote":     {Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Header: true, Columns: []string{"a", "b"}}},
		"columns":   {Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"a,b"}}},
		"limit":     {Format: "ndjson", Limits: selector.Limits{Depth: 511}},
	} {
		d := l.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
	if (selector.Layout{Format: "ndjson"}).Digest() != (selector.Layout{Format: "ndjson", Limits: selector.DefaultLimits}).Digest() {
		t.Error("defaults written out change the digest")
	}
	if got := fmt.Sprintf("%x", base.Digest()); got != goldenLayout {
		t.Errorf("Digest = %s", got)
	}
}

const goldenLayout = "2c1413835db467765a7d9e91afc2d5475200f6b631b1ef48fdf9410ba4e4829d"

func TestLayoutRefused(t *testing.T) {
	for name, l := range map[string]selector.Layout{
		"format":           {Format: "xml"},
		"none":             {},
		"pointer":          {Format: "ndjson", Pointer: "/a"},
		"dialect":          {Format: "text", Dialect: selector.Dialect{Delimiter: ","}},
		"no delimiter":     {Format: "csv"},
		"long delimiter":   {Format: "csv", Dialect: selector.Dialect{Delimiter: "::"}},
		"newline":          {Format: "csv", Dialect: selector.Dialect{Delimiter: "\n"}},
		"same quote":       {Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: ","}},
		"columns":          {Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Columns: []string{"a"}}},
		"negative limit":   {Format: "text", Limits: selector.Limits{Depth: -1}},
		"excessive limit":  {Format: "text", Limits: selector.Limits{Record: 1 << 40}},
		"excessive digits": {Format: "text", Limits: selector.Limits{Digits: 1025}},
	} {
		if _, err := tryBuild(t, []byte("a\n"), l); !errors.Is(err, selector.ErrLayout) {
			t.Errorf("%s: %v, want ErrLayout", name, err)
		}
	}
	if _, err := tryBuild(t, []byte("[]"), selector.Layout{Format: "json", Pointer: "a"}); !errors.Is(err, selector.ErrSelector) {
		t.Errorf("bad pointer: %v, want ErrSelector", err)
	}
}
