package fuzz_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/merkle"
	"leafproof/selector"
)

// selectorMemory is an io.WriterAt in memory.
type selectorMemory struct{ b []byte }

func (m *selectorMemory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// FuzzRecords: whatever the bytes, each format either refuses them with a typed
// error or gives ascending spans, and its own map verifies and answers.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{
		"", "{\"a\":1}\n{\"a\":2}TRAILER\n", "[1,{\"a\":[2]}]", "a,b\n\"x\ny\",2\r\n", "\xef\xbb\xbfline\r\n\r\n", "{\"a\":1,\"\\u0061\":2}\n", "[[[[[", "\"\\ud800\"\n", "1e1000001\n", "{}[]1 true\"x\"{\"a\":1}", "{\"a\":1}{\"a\":",
	} {
		f.Add([]byte(s), "/a")
	}
	f.Fuzz(func(t *testing.T, src []byte, pointer string) {
		detected, why := selector.Detect(src, "", "")
		if why == "" {
			t.Error("Detect says nothing")
		}
		root := merkle.Sum(src)
		for _, format := range []string{detected.Format, "ndjson", "json", "csv", "text", "concat"} {
			l := detected
			if format != detected.Format {
				var err error
				if l, err = selector.NewLayout(format, "", src); err != nil {
					t.Fatal(err)
				}
			}
			var out selectorMemory
			info, stats, l, err := selector.BuildMap(t.Context(), bytes.NewReader(src), int64(len(src)), root, l, &out)
			if err != nil {
				selectorTyped(t, err, selector.ErrNotRecords)
				continue
			}
			if stats.Records != info.Records || info.Size != int64(len(out.b)) || stats.Undecidable > stats.Records {
				t.Fatalf("%s: %+v %+v", format, info, stats)
			}
			selectorMap(t, src, root, out.b, l, info)
			selectorIngest(t, src, root, l, out.b, stats)
			if where, err := selector.ParseWhere(`{"field":"/a","equals":1}`); err == nil {
				selectorScan(t, src, root, out.b, l, info, where, stats.Trust())
			}
		}
	})
}

// selectorMap verifies a whole map and checks its spans.
func selectorMap(t *testing.T, src []byte, root merkle.Root, m []byte, l selector.Layout, info selector.MapInfo) {
	t.Helper()
	if info.Records == 0 {
		return
	}
	want := selector.MapWant{Root: root, Size: int64(len(src)), Layout: l, Records: info.Records, MapSize: info.Size}
	list, err := selector.MapSpans(m[:1024], m[1024:], 1, 0, info.Records, want)
	if err != nil {
		t.Fatalf("%s: a map just built: %v", l.Format, err)
	}
	end := int64(-1)
	for _, s := range list {
		touch := l.Format == selector.FormatConcat && s.Start == end && s.End > s.Start
		if s.Start <= end && end >= 0 && !touch || s.End < s.Start || s.End > int64(len(src)) {
			t.Fatalf("%s: spans %v", l.Format, list)
		}
		end = s.End
		if l.Format == selector.FormatText && bytes.ContainsRune(src[s.Start:s.End], '\n') {
			t.Fatalf("a line with a line end: %q", src[s.Start:s.End])
		}
	}
}

// selectorScan holds a scan to single evaluations.
func selectorScan(t *testing.T, src []byte, root merkle.Root, b []byte, l selector.Layout, info selector.MapInfo, where *selector.Where, trust selector.Trust) {
	t.Helper()
	m, err := selector.OpenMap(bytes.NewReader(b), info.Size, root, int64(len(src)), l)
	if err != nil {
		t.Fatal(err)
	}
	var matched, undecidable int64
	for s, err := range m.Spans(t.Context(), 0, m.Records()) {
		if err != nil {
			t.Fatal(err)
		}
		switch where.Eval(src[s.Start:s.End], l) {
		case selector.Matched:
			matched++
		case selector.Undecidable:
			undecidable++
		}
	}
	order, err := selector.ParseOrder("@[0]")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []selector.Task{{}, {Trust: trust}, {Workers: 3}, {Order: []*selector.Order{order}}} {
		task.Source, task.Map, task.Layout, task.Where = bytes.NewReader(src), m, l, where
		if task.Order != nil && order.Fits(l) != nil {
			continue
		}
		var rows int64
		scan, err := task.Run(t.Context(), func(r selector.Row) error {
			if rows++; !bytes.Equal(r.Bytes, src[r.Span.Start:r.Span.End]) {
				t.Fatalf("record %d: %q", r.Record, r.Bytes)
			}
			return nil
		})
		p := scan.Position
		if err != nil || p.Matched != rows || p.Examined != info.Records || p.Undecidable < undecidable || task.Order == nil && (p.Matched != matched || p.Undecidable != undecidable) {
			t.Fatalf("scan %+v, %v, %d rows; want %d matched, %d undecidable", scan, err, rows, matched, undecidable)
		}
	}
}

// selectorIngest holds a pass over what is written to a pass over a source.
func selectorIngest(t *testing.T, src []byte, root merkle.Root, l selector.Layout, want []byte, stats selector.Stats) {
	t.Helper()
	if l.Dialect.Header {
		l.Dialect.Columns = nil // they are found again
	}
	var out selectorMemory
	g, err := selector.NewIngest(t.Context(), l, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][]byte{src[:len(src)/3], src[len(src)/3:]} {
		if _, err := g.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	_, got, _, err := g.Finish(bytes.NewReader(src), root)
	if err != nil || !bytes.Equal(out.b, want) || !reflect.DeepEqual(got, stats) {
		t.Fatalf("%s: written, it is %+v, %v; want %+v", l.Format, got, err, stats)
	}
}

// selectorTyped demands a typed error with one of the reasons.
func selectorTyped(t *testing.T, err error, reasons ...error) {
	t.Helper()
	if _, ok := errors.AsType[*selector.Error](err); !ok {
		t.Fatalf("not a typed error: %v", err)
	}
	for _, r := range reasons {
		if errors.Is(err, r) {
			return
		}
	}
	t.Fatalf("%v is none of %v", err, reasons)
}

// FuzzWhere: a condition either is refused with a place inside it or has a
// normalised form, which is valid JSON without numbers, and decides any record.
func FuzzWhere(f *testing.F) {
	for _, s := range []string{
		`@.a == 1`, `@['a'][0]=="x"`, `{"field":"/a","contains":"x"}`, `"\ud83d\ude00" == @`, `@.a == 1 && @.b == 2`, `@.a == 1e-999999`, `{"field":"~","equals":`, `@["\'"] == '\''`,
	} {
		f.Add(s, []byte(`{"a":1}`))
	}
	layout, err := selector.NewLayout(selector.FormatNDJSON, "", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string, record []byte) {
		w, err := selector.ParseWhere(s)
		if err != nil {
			selectorTyped(t, err, selector.ErrSelector)
			if e, _ := errors.AsType[*selector.Error](err); e.Offset < 0 || e.Offset > int64(len(s)) {
				t.Fatalf("%q: refused at %d", s, e.Offset)
			}
			return
		}
		n := w.Normalised(layout)
		d := jsontext.NewDecoder(bytes.NewReader(n))
		for range bytes.Count(n, []byte{'"'}) + bytes.Count(n, []byte{'['}) + 10 {
			tok, err := d.ReadToken()
			if err != nil {
				break
			}
			if tok.Kind() == '0' {
				t.Fatalf("%q: a number in %s", s, n)
			}
		}
		if !jsontext.Value(n).IsValid() || len(w.QID(layout)) != 34 {
			t.Fatalf("%q: normalised to %s", s, n)
		}
		// The scanner accepts what jsontext accepts, up to the depth limit.
		valid := utf8.Valid(record) && jsontext.Value(record).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if got := w.Eval(record, layout); !valid && got != selector.Undecidable {
			t.Fatalf("%q on %q, which does not parse: %v", s, record, got)
		}
		if nowhere, err := selector.ParseWhere(`@["no such name anywhere"] == 1`); err != nil {
			t.Fatal(err)
		} else if got := nowhere.Eval(record, layout); valid && got == selector.Undecidable && bytes.Count(record, []byte("[")) < 400 && !bytes.Contains(record, []byte("no such")) && bytes.Count(record, []byte("{")) < 100 {
			t.Fatalf("%q parses and is undecidable", record)
		}
	})
}

// FuzzPointer: the span of a pointer holds one JSON value.
func FuzzPointer(f *testing.F) {
	for _, s := range [][2]string{{`{"a":[1,2]}`, "/a/1"}, {`{"a/b":{"~":0}}`, "/a~1b/~0"}, {`{"a":1,"a":2}`, "/a"}, {"\xef\xbb\xbf[[]]", "/0"}, {"[", ""}} {
		f.Add([]byte(s[0]), s[1])
	}
	f.Fuzz(func(t *testing.T, src []byte, pointer string) {
		s, err := selector.FindPointer(t.Context(), bytes.NewReader(src), int64(len(src)), pointer)
		if err != nil {
			selectorTyped(t, err, selector.ErrSelector, selector.ErrPointer, selector.ErrUndecidable)
			if selector.CheckPointer(pointer) != nil != errors.Is(err, selector.ErrSelector) {
				t.Fatalf("CheckPointer(%q) and %v", pointer, err)
			}
			return
		}
		p := src[s.Start:s.End]
		if !jsontext.Value(p).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || len(bytes.TrimSpace(p)) != len(p) {
			t.Fatalf("%q at %q is %q", src, pointer, p)
		}
	})
}

// FuzzCursor: nobody without the key makes a cursor.
func FuzzCursor(f *testing.F) {
	key, b, now := [32]byte{1}, selector.Binding{Store: "s", QID: "q"}, time.Unix(1_800_000_000, 0)
	good := selector.SealCursor(key, "k", b, selector.Position{Record: 7}, now.Add(time.Hour))
	f.Add(good)
	f.Add(good[:20])
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := selector.OpenCursor(key, b, now, s)
		if err == nil && s != good {
			t.Fatalf("forged: %q gives %+v", s, p)
		}
		if err != nil {
			selectorTyped(t, err, selector.ErrCursorMalformed, selector.ErrCursorForged)
		}
	})
}

// FuzzMap: pages that verify are the one spelling of their spans.
func FuzzMap(f *testing.F) {
	src := bytes.Repeat([]byte("some line\nx\n\n"), 300)
	layout, root := selector.Layout{Format: selector.FormatText}, merkle.Sum(src)
	var good selectorMemory
	info, _, layout, err := selector.BuildMap(f.Context(), bytes.NewReader(src), int64(len(src)), root, layout, &good)
	if err != nil {
		f.Fatal(err)
	}
	want := selector.MapWant{Root: root, Size: int64(len(src)), Layout: layout, Records: info.Records, MapSize: info.Size}
	f.Add(good.b[:1024], good.b[1024:], int64(1), int64(0), info.Records)
	f.Add(good.b[:1024], good.b[1024:2048], int64(1), int64(3), int64(5))
	f.Add(good.b[:1000], good.b[1024:2048], int64(2), int64(-3), int64(5))
	f.Fuzz(func(t *testing.T, header, pages []byte, first, a, b int64) {
		list, err := selector.MapSpans(header, pages, first, a, b, want)
		if err != nil {
			selectorTyped(t, err, selector.ErrMap, selector.ErrRange)
			return
		}
		if int64(len(list)) != b-a || !bytes.Equal(header, good.b[:1024]) {
			t.Fatalf("%d spans of [%d, %d)", len(list), a, b)
		}
		for i, s := range list {
			if s.Start < 0 || s.End < s.Start || s.End > want.Size || i > 0 && s.Start <= list[i-1].End {
				t.Fatalf("spans %v", list)
			}
		}
		// The same header and spans in another map: only the same pages.
		if m, err := selector.OpenMap(bytes.NewReader(append(bytes.Clone(header), pages...)), want.MapSize, root, want.Size, layout); err == nil && first == 1 && a == 0 && b == want.Records {
			i := 0
			for s, err := range m.Spans(t.Context(), a, b) {
				if err != nil || s != list[i] {
					t.Fatalf("record %d: %v, %v; MapSpans gave %v", i, s, err, list[i])
				}
				i++
			}
		}
	})
}
