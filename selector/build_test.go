package selector_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/merkle"
	"leafproof/selector"
)

func TestRecords(t *testing.T) {
	type want struct {
		records     []string
		blank       int64
		undecidable int64
	}
	for name, test := range map[string]struct {
		format, at, src string
		want            want
	}{
		"ndjson":                      {"ndjson", "", "{\"a\":1}\n{\"a\":2}\n", want{[]string{`{"a":1}`, `{"a":2}`}, 0, 0}},
		"ndjson no final newline":     {"ndjson", "", "1\n2", want{[]string{`1`, `2`}, 0, 0}},
		"ndjson CRLF":                 {"ndjson", "", "1\r\n2\r\n", want{[]string{`1`, `2`}, 0, 0}},
		"ndjson lone CR at the end":   {"ndjson", "", "1\n2\r", want{[]string{"1", "2\r"}, 0, 0}},
		"ndjson blank lines":          {"ndjson", "", "\n1\n \t\r\n2\n\n", want{[]string{`1`, `2`}, 3, 0}},
		"ndjson BOM":                  {"ndjson", "", "\xef\xbb\xbf1\n2\n", want{[]string{`1`, `2`}, 0, 0}},
		"ndjson trailer":              {"ndjson", "", "{\"a\":1}\n{\"a\":2}TRAILER\n{\"a\":3}\n", want{[]string{`{"a":1}`, `{"a":2}TRAILER`, `{"a":3}`}, 0, 1}},
		"ndjson concatenated":         {"ndjson", "", "{}\n{}{}\n1 2\n", want{[]string{`{}`, `{}{}`, `1 2`}, 0, 2}},
		"ndjson duplicate names":      {"ndjson", "", "{\"a\":1,\"a\":2}\n{\"a\":1,\"\\u0061\":2}\n", want{[]string{`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`}, 0, 2}},
		"ndjson empty":                {"ndjson", "", "", want{[]string{}, 0, 0}},
		"json":                        {"json", "", " [ 1 , {\"a\":[2]},\n\"x\" ] ", want{[]string{`1`, `{"a":[2]}`, `"x"`}, 0, 0}},
		"json at a pointer":           {"json", "/d/1/rows", `{"x":0,"d":[{},{"rows":[1,2]}],"y":[3]}`, want{[]string{`1`, `2`}, 0, 0}},
		"json escaped name":           {"json", "/ä~1", `{"\u00e4/":[7]}`, want{[]string{`7`}, 0, 0}},
		"json empty":                  {"json", "", `[]`, want{[]string{}, 0, 0}},
		"json BOM":                    {"json", "", "\xef\xbb\xbf[1]", want{[]string{`1`}, 0, 0}},
		"json undecidable elements":   {"json", "", "[{\"a\":1,\"a\":2},\"\xff\",\"\\ud800\",1]", want{[]string{`{"a":1,"a":2}`, "\"\xff\"", `"\ud800"`, `1`}, 0, 3}},
		"csv":                         {"csv", "", "a,b\n1,2\n3,4\n", want{[]string{`1,2`, `3,4`}, 0, 0}},
		"csv CRLF, blank, BOM":        {"csv", "", "\xef\xbb\xbfa,b\r\n\r\n1,2\r\n", want{[]string{`1,2`}, 1, 0}},
		"csv newline in quotes":       {"csv", "", "a,b\n1,\"x\r\ny\"\n\"p\"\"q\n\",2", want{[]string{"1,\"x\r\ny\"", "\"p\"\"q\n\",2"}, 0, 0}},
		"csv quote inside a field":    {"csv", "", "a,b\n5\" disk,2\n1,2\n", want{[]string{`5" disk,2`, `1,2`}, 0, 0}},
		"csv text behind a quote":     {"csv", "", "a,b\n\"x\"y,2\n1,2\n", want{[]string{`"x"y,2`, `1,2`}, 0, 1}},
		"csv quote never closed":      {"csv", "", "a,b\n1,2\n\"x,2\n1,2\n", want{[]string{`1,2`, "\"x,2\n1,2\n"}, 0, 1}},
		"csv Latin-1":                 {"csv", "", "a,b\nM\xfcnchen,2\n", want{[]string{"M\xfcnchen,2"}, 0, 1}},
		"text":                        {"text", "", "a\n\nb\r\n", want{[]string{"a", "", "b"}, 0, 0}},
		"text final line":             {"text", "", "a\nb", want{[]string{"a", "b"}, 0, 0}},
		"text invalid UTF-8":          {"text", "", "a\n\xff\n", want{[]string{"a", "\xff"}, 0, 1}},
		"ndjson number beyond digits": {"ndjson", "", "1\n" + strings.Repeat("1", 1025) + "\n1e1000001\n1e999999\n", want{[]string{"1", strings.Repeat("1", 1025), "1e1000001", "1e999999"}, 0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			src := []byte(test.src)
			b := build(t, src, layout(t, test.format, test.at, src))
			got := want{texts(src, spans(t, b.m)), b.stats.BlankLines, b.stats.Undecidable}
			if !slices.Equal(got.records, test.want.records) || got.blank != test.want.blank || got.undecidable != test.want.undecidable {
				t.Errorf("got %+q, %d blank, %d undecidable\nwant %+q, %d, %d", got.records, got.blank, got.undecidable, test.want.records, test.want.blank, test.want.undecidable)
			}
			if int64(len(b.stats.UndecidableSpans)) != test.want.undecidable {
				t.Errorf("undecidable spans %v", b.stats.UndecidableSpans)
			}
			if b.stats.BOM != strings.HasPrefix(test.src, "\xef\xbb\xbf") {
				t.Errorf("BOM = %v", b.stats.BOM)
			}
		})
	}
}

func TestNotRecords(t *testing.T) {
	for name, test := range map[string]struct {
		format, at, src string
		offset          int64
		detail          string
	}{
		"ndjson with a NUL":         {"ndjson", "", "{}\n\x00", 3, "NUL"},
		"ndjson of invalid UTF-8":   {"ndjson", "", "{}\n\xff", 3, "UTF-8"},
		"ndjson of prose":           {"ndjson", "", "Dear all,\nhello\n", 0, "not one line"},
		"ndjson of a pretty object": {"ndjson", "", "{\n\"a\": {\n}\n}\n", 0, "not one line"},
		"json of an object":         {"json", "", ` {"a":1}`, 1, "an object, not an array"},
		"json at a string":          {"json", "/a", `{"a":"x"}`, 5, "at /a stands a string"},
		"json at nothing":           {"json", "/b", `{"a":"x"}`, -1, "nothing stands at /b"},
		"json path twice":           {"json", "/a", `{"a":[1],"a":[2]}`, 9, "twice"},
		"json path twice, escaped":  {"json", "/a/0", `{"a":[[1]],"\u0061":[2]}`, 11, "twice"},
		"json cut off":              {"json", "", `[1,2`, 4, "unexpected end"},
		"json with more behind":     {"json", "", `[1]x`, 3, "more after"},
		"json trailing comma":       {"json", "", `[1,]`, 3, "want a value"},
		"json empty":                {"json", "", ``, 0, "unexpected end"},
		"json bad element":          {"json", "", `[1,{"a":},2]`, 8, "want a value"},
		"csv with a NUL":            {"csv", "", "a,b\n\x00,1\n", 4, "NUL"},
		"csv without a row":         {"csv", "", "", 0, "no header row"},
		"csv Latin-1 header":        {"csv", "", "a,\xfc\n1,2\n", 0, "column 1"},
		"bytes":                     {"bytes", "", "abc", -1, "no records"},
	} {
		t.Run(name, func(t *testing.T) {
			src := []byte(test.src)
			_, err := tryBuild(t, src, layout(t, test.format, test.at, src))
			e, ok := errors.AsType[*selector.Error](err)
			if !errors.Is(err, selector.ErrNotRecords) || !ok {
				t.Fatalf("error = %v, want ErrNotRecords", err)
			}
			if e.Offset != test.offset || !strings.Contains(e.Detail, test.detail) {
				t.Errorf("at %d: %q, want %d: …%s…", e.Offset, e.Detail, test.offset, test.detail)
			}
		})
	}
}

// Case 61: 100 KB of [ is a depth error in linear time.
func TestDeepNesting(t *testing.T) {
	deep := bytes.Repeat([]byte("["), 100_000)
	begin := time.Now()
	_, err := tryBuild(t, deep, layout(t, "json", "", nil))
	if !errors.Is(err, selector.ErrNotRecords) || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("json: error = %v", err)
	}
	b := build(t, append(deep, "\n{}\n"...), layout(t, "ndjson", "", nil))
	if b.stats.OverLimit != 1 || b.stats.Undecidable != 1 || b.stats.Records != 2 || b.stats.Depth != 513 {
		t.Errorf("ndjson: %+v", b.stats)
	}
	w, err := selector.ParseWhere(`@.a == 1`)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Eval(deep, b.layout); got != selector.Undecidable {
		t.Errorf("Eval = %v", got)
	}
	if _, err := selector.FindPointer(t.Context(), bytes.NewReader(deep), int64(len(deep)), "/0"); !errors.Is(err, selector.ErrUndecidable) {
		t.Errorf("FindPointer: %v", err)
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
	// 512 levels are fine, 513 are not.
	for n, want := range map[int]selector.Outcome{512: selector.Unmatched, 513: selector.Undecidable} {
		p := []byte(strings.Repeat("[", n) + strings.Repeat("]", n))
		if got := w.Eval(p, b.layout); got != want {
			t.Errorf("%d levels: %v, want %v", n, got, want)
		}
	}
}

// The slow twins: whole-file splitters that are obviously right.

func slowLines(src []byte, skipBlank bool) []string {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	out := []string{}
	for line := range strings.SplitAfterSeq(string(src), "\n") {
		if line == "" {
			continue
		}
		if l, ok := strings.CutSuffix(line, "\n"); ok {
			line = strings.TrimSuffix(l, "\r")
		}
		if skipBlank && strings.Trim(line, " \t\r") == "" {
			continue
		}
		out = append(out, line)
	}
	return out
}

func slowRows(src []byte) []string {
	s := string(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")))
	out, row, field, quoted := []string{}, "", "", false
	flush := func(end bool) {
		if !end {
			row = strings.TrimSuffix(row, "\r")
		}
		if row != "" {
			out = append(out, row)
		}
		row, field, quoted = "", "", false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && (field == "" || quoted):
			if quoted && i+1 < len(s) && s[i+1] == '"' {
				row, field, i = row+`""`, field+`""`, i+1
				continue
			}
			quoted = !quoted
			row, field = row+`"`, field+`"`
		case c == '\n' && !quoted:
			flush(false)
		case c == ',' && !quoted:
			row, field = row+",", ""
		default:
			row, field = row+s[i:i+1], field+s[i:i+1]
		}
	}
	flush(true)
	return out
}

// Records and what stands between them concatenate to the file byte for byte,
// and are what the slow splitters find.
func TestRandomText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", ",", "\n", "\r\n", "\r", `"`, `""`, " ", "ab,cd\n", "\"x\ny\",1\n", "ä"}
	for i := range 2000 {
		var src []byte
		if rng.IntN(4) == 0 {
			src = append(src, "\xef\xbb\xbf"...)
		}
		for range rng.IntN(60) {
			src = append(src, alphabet[rng.IntN(len(alphabet))]...)
		}
		b := build(t, src, selector.Layout{Format: "text"})
		if got, want := texts(src, spans(t, b.m)), slowLines(src, false); !slices.Equal(got, want) {
			t.Fatalf("text %q: %q, want %q", src, got, want)
		}
		b = build(t, src, selector.Layout{Format: "csv", Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}})
		got, want := texts(src, spans(t, b.m)), slowRows(src)
		if !slices.Equal(got, want) {
			t.Fatalf("%d: csv %q: %q, want %q", i, src, got, want)
		}
		separators(t, src, spans(t, b.m))
	}
}

// separators checks that nothing but BOM, line ends and blank lines stands
// between the records.
func separators(t *testing.T, src []byte, list []selector.Span) {
	t.Helper()
	end := int64(0)
	for _, s := range append(list, selector.Span{Start: int64(len(src)), End: int64(len(src))}) {
		if s.Start < end || s.End < s.Start {
			t.Fatalf("%q: spans %v", src, list)
		}
		if gap := bytes.TrimPrefix(src[end:s.Start], []byte("\xef\xbb\xbf")); len(bytes.Trim(gap, "\r\n")) > 0 {
			t.Fatalf("%q: %q between records", src, gap)
		}
		end = s.End
	}
}

// Long input crosses the blocks that the splitters read, at every place.
func TestBlockEdges(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var nd, csv, arr bytes.Buffer
	var want []string
	csv.WriteString("k,v\n")
	arr.WriteString("[")
	for i := 0; nd.Len() < 3<<20; i++ {
		pad := strings.Repeat("xy\\\"z", rng.IntN(200))
		if i%700 == 0 {
			pad = strings.Repeat("long ", 100_000+rng.IntN(1000))
		}
		rec := fmt.Sprintf(`{"n":%d,"pad":"%s"}`, i, pad)
		want = append(want, rec)
		nd.WriteString(rec + []string{"\n", "\r\n"}[i%2])
		fmt.Fprintf(&csv, "%d,\"%s\"%s", i, strings.ReplaceAll(rec, `"`, `""`), []string{"\n", "\r\n"}[i%2])
		if i > 0 {
			arr.WriteString(", ")
		}
		arr.WriteString(rec)
	}
	arr.WriteString("]")
	for format, src := range map[string][]byte{"ndjson": nd.Bytes(), "json": arr.Bytes()} {
		b := build(t, src, layout(t, format, "", nil))
		if got := texts(src, spans(t, b.m)); !slices.Equal(got, want) {
			t.Errorf("%s: %d records, want %d, or others", format, len(got), len(want))
		}
		if b.stats.Undecidable != 0 || b.stats.LongestRecord < 500_000 {
			t.Errorf("%s: %+v", format, b.stats)
		}
	}
	src := csv.Bytes()
	b := build(t, src, layout(t, "csv", "", src[:1000]))
	if b.stats.Records != int64(len(want)) || b.stats.Undecidable != 0 || b.stats.Ragged != 0 {
		t.Errorf("csv: %+v", b.stats)
	}
	w, err := selector.ParseWhere(`{"field":"/v","equals":` + jsonString(t, want[len(want)-1]) + `}`)
	if err != nil {
		t.Fatal(err)
	}
	scan, err := selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, selector.Position{}, selector.Budget{}, nil)
	if err != nil || scan.Position.Matched != 1 {
		t.Errorf("csv query: %+v, %v", scan, err)
	}
}

func jsonString(t *testing.T, s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A record beyond the limit is listed and undecidable, without holding it.
func TestRecordLimit(t *testing.T) {
	src := []byte("[\"" + strings.Repeat("x", 5<<20) + "\",\"y\"]")
	l := layout(t, "json", "", nil)
	l.Limits.Record = 4 << 20
	b := build(t, src, l)
	if b.stats.OverLimit != 1 || b.stats.Records != 2 || b.stats.LongestRecord != 5<<20+2 {
		t.Errorf("%+v", b.stats)
	}
	w, _ := selector.ParseWhere(`@ == "y"`)
	scan, err := selector.Run(t.Context(), bytes.NewReader(src), b.m, b.layout, w, selector.Position{}, selector.Budget{}, nil)
	if err != nil || scan.Position.Undecidable != 1 || scan.Position.Matched != 1 {
		t.Errorf("%+v, %v", scan, err)
	}
	l.Limits.Record = 0 // the default: the record is within
	if b := build(t, src, l); b.stats.Undecidable != 0 {
		t.Errorf("default limit: %+v", b.stats)
	}
}

// shrinking is a source that is shorter than it says.
type shrinking struct{ n int64 }

func (s shrinking) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		if off+int64(i) >= s.n {
			return i, io.EOF
		}
		p[i] = "1\n"[(off+int64(i))%2]
	}
	return len(p), nil
}

func TestSourceShrinks(t *testing.T) {
	var out memory
	for _, format := range []string{"ndjson", "json", "csv", "text"} {
		l := layout(t, format, "", nil)
		_, _, _, err := selector.BuildMap(t.Context(), shrinking{1 << 20}, 1<<21, merkle.Root{}, l, &out)
		want := selector.ErrChanged
		if format == "json" {
			want = selector.ErrNotRecords // more after the value
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", format, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := selector.BuildMap(ctx, shrinking{1 << 20}, 1<<20, merkle.Root{}, layout(t, "text", "", nil), &out); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The public parsing suite: as a record, y_ is decidable unless it has a
// duplicate name, n_ never parses, and the scanner agrees with jsontext.
func TestJSONTestSuite(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(vectors(t, "json/JSONTestSuite"), "*", "*.json"))
	if len(files) < 300 {
		files, _ = filepath.Glob(filepath.Join(vectors(t, "json/JSONTestSuite"), "*.json"))
	}
	if len(files) < 300 {
		t.Fatalf("found %d files", len(files))
	}
	w, _ := selector.ParseWhere(`@.nothing == 1`)
	seen := map[byte]int{}
	for _, f := range files {
		p, kind := read(t, f), filepath.Base(f)[0]
		if !strings.Contains("yn", string(kind)) || !strings.HasPrefix(filepath.Base(f)[1:], "_") {
			continue
		}
		seen[kind]++
		got := w.Eval(p, layout(t, "ndjson", "", nil))
		parses := got != selector.Undecidable
		if parses != (kind == 'y') {
			t.Errorf("%s: %v", filepath.Base(f), got)
		}
		if lax := laxValid(p); kind == 'y' && !lax || kind == 'n' && lax {
			t.Errorf("%s: jsontext says %v", filepath.Base(f), lax)
		}
		// As the only element of an array, unless it breaks out of its brackets.
		src := append(append([]byte("["), p...), ']')
		b, err := tryBuild(t, src, layout(t, "json", "", nil))
		if kind == 'y' && (err != nil || b.stats.Records != 1 || b.stats.Unparseable != 0) {
			t.Errorf("%s as an element: %+v, %v", filepath.Base(f), b.stats, err)
		}
	}
	if seen['y'] != 95 || seen['n'] != 188 {
		t.Errorf("%d that must parse and %d that must not; want 95 and 188", seen['y'], seen['n'])
	}
}

func laxValid(p []byte) bool {
	return jsontext.Value(p).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// The public CSV spectrum: our decoded fields are the expected rows.
func TestCSVSpectrum(t *testing.T) {
	dir := vectors(t, "json/csv-spectrum")
	files, _ := filepath.Glob(filepath.Join(dir, "csvs", "*.csv"))
	if len(files) != 12 {
		t.Fatalf("found %d files", len(files))
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".csv")
		t.Run(name, func(t *testing.T) {
			src := read(t, f)
			if strings.HasSuffix(name, "_crlf") && !bytes.Contains(src, []byte("\r")) {
				src = bytes.ReplaceAll(src, []byte("\n"), []byte("\r\n")) // what its .gitattributes asks for
			}
			if name == "location_coordinates" { // its JSON is no array and has another telephone number
				b := build(t, src, layout(t, "csv", "", src))
				w, _ := selector.ParseWhere(`{"field":"/Location Coordinates","equals":"37�36'37.8\"N 121�2'17.9\"W"}`)
				rec := texts(src, spans(t, b.m))
				if len(rec) != 1 || w.Eval([]byte(rec[0]), b.layout) != selector.Matched {
					t.Errorf("%q, %+v", rec, b.stats)
				}
				return
			}
			var want []map[string]string
			if err := json.Unmarshal(read(t, filepath.Join(dir, "json", name+".json")), &want); err != nil {
				t.Fatal(err)
			}
			b := build(t, src, layout(t, "csv", "", src))
			if b.stats.Records != int64(len(want)) || b.stats.Undecidable != 0 {
				t.Fatalf("%+v, want %d rows", b.stats, len(want))
			}
			for i, rec := range texts(src, spans(t, b.m)) {
				for column, value := range want[i] {
					q := fmt.Sprintf(`{"field":%s,"equals":%s}`, jsonString(t, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(column)), jsonString(t, value))
					w, err := selector.ParseWhere(q)
					if err != nil {
						t.Fatal(err)
					}
					if got := w.Eval([]byte(rec), b.layout); got != selector.Matched {
						t.Errorf("row %d: %s: %v", i, q, got)
					}
				}
			}
		})
	}
}
