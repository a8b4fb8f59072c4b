package selector_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leafproof/selector"
)

func TestConcat(t *testing.T) {
	for src, want := range map[string][]string{
		`{"a":1}{"a":2}`:                         {`{"a":1}`, `{"a":2}`},
		"{}\n[1, 2]\r\n\"x\"":                    {`{}`, `[1, 2]`, `"x"`},
		`1 2"a"true{"b":null}null[]`:             {`1`, `2`, `"a"`, `true`, `{"b":null}`, `null`, `[]`},
		"\xef\xbb\xbf {\n \"a\" : 1\n}\n{}  \n":  {"{\n \"a\" : 1\n}", `{}`},
		`{"a":1} {"a":2} TRAILER {"a":3}` + "\n": {`{"a":1}`, `{"a":2}`, `TRAILER {"a":3}`},
		`[1]truefalse []`:                        {`[1]`, `truefalse []`},
		`[1] 12,`:                                {`[1]`, `12,`},
		`[1] {"a":`:                              {`[1]`, `{"a":`},
		`{"a":1,"a":2}{"b":1}`:                   {`{"a":1,"a":2}`, `{"b":1}`},
	} {
		b := build(t, []byte(src), selector.Layout{Format: "concat"})
		if got := texts([]byte(src), spans(t, b.m)); !slices.Equal(got, want) {
			t.Errorf("%q: records %q, want %q", src, got, want)
		}
	}
	for _, src := range []string{"hello", "]", "\x00\x01", `{"a":`} {
		if _, err := tryBuild(t, []byte(src), selector.Layout{Format: "concat"}); !errors.Is(err, selector.ErrNotRecords) {
			t.Errorf("%q: %v", src, err)
		}
	}
	if b := build(t, []byte(" \n"), selector.Layout{Format: "concat"}); b.m.Records() != 0 {
		t.Errorf("white space: %d records", b.m.Records())
	}
}

// Records that touch can be selected, filtered and ordered like others.
func TestConcatQuery(t *testing.T) {
	src := []byte(`{"a":2}{"a":1}[]{"a":3} 7 x`)
	b := build(t, src, selector.Layout{Format: "concat"})
	order, err := selector.ParseOrder("/a")
	if err != nil {
		t.Fatal(err)
	}
	task := selector.Task{Source: bytes.NewReader(src), Map: b.m, Layout: b.layout, Where: where(t, `@.a < 3`), Order: []*selector.Order{order}, Trust: b.stats.Trust()}
	if p := taskPage(t, task); !slices.Equal(p.rows, []int64{1, 0}) || p.scan.Position.Undecidable != 1 {
		t.Errorf("rows %v, %+v", p.rows, p.scan)
	}
}

// The records of every format, and what stands between them, are the file.
func TestSpansConcatenate(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	pieces := []string{`{"a":1}`, "\n", "\r\n", "\n\n", " ", "\t", `"x"`, "1", ",", `"a""b"`, "\"q\r\nr\"", "é", "\r", "[1,2]", "true", "\xff", `"`, "{"}
	layouts := []selector.Layout{
		{Format: "ndjson"},
		{Format: "text"},
		{Format: "concat"},
		{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}},
		{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true}},
		{Format: "csv", Dialect: selector.Dialect{Delimiter: "\t"}},
	}
	for range 700 {
		var b strings.Builder
		b.WriteString([]string{"", "\xef\xbb\xbf", `{"a":1}` + "\n"}[rng.IntN(3)])
		for range rng.IntN(25) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		src := []byte(b.String())
		for _, l := range layouts {
			m, err := tryBuild(t, src, l)
			if err != nil {
				continue
			}
			var joined []byte
			end := int64(0)
			for i, s := range spans(t, m.m) {
				between := string(src[end:s.Start])
				if strings.Trim(strings.TrimPrefix(between, "\xef\xbb\xbf"), " \t\r\n") != "" && !(i == 0 && l.Dialect.Header) {
					t.Fatalf("%s: %q stands between records of %q", l.Format, between, src)
				}
				joined = append(append(joined, between...), src[s.Start:s.End]...)
				end = s.End
			}
			if joined = append(joined, src[end:]...); !bytes.Equal(joined, src) {
				t.Fatalf("%s: %q becomes %q", l.Format, src, joined)
			}
		}
	}
}
