package harness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/refdemo"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// Case 2: the marker is the exact JSON, for 2 KB and 2 MB alike; what has no blob
// inlines byte for byte.
func TestMarkerOrInline(t *testing.T) {
	sc := newScene(t, setup{})
	for _, n := range []int{2 << 10, 2 << 20} {
		v := sc.record(jsonBlob(append(append([]byte(`["`), bytes.Repeat([]byte("x"), n-4)...), '"', ']')))
		want := fmt.Sprintf(`{"opaque":true,"value":{"$ref":{"type":"Message","seq":%d,"part":0}},"size":%d,"format":{"mediaType":"application/json"}}`, v.Seq, n)
		if string(v.Content) != want {
			t.Errorf("%d bytes: %s, want %s", n, v.Content, want)
		}
	}
	large := map[string]any{"text": strings.Repeat("<plain & long>", 100_000), "key": "k", "seq": 9, "part": 2}
	want, err := json.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	if v := sc.record(large); !bytes.Equal(v.Content, want) {
		t.Error("a plain object did not inline as it is")
	}
	for _, raw := range []string{`{ "b" : 1.0,  "a":[1e0, "\u0041"] }`, `"text"`, `null`, ` [1] `, `{"$ref":"#/components/x"}`} {
		if v := sc.record(json.RawMessage(raw)); string(v.Content) != raw {
			t.Errorf("%s became %s", raw, v.Content)
		}
	}
}

// Blobs leave a result at any place of any value, each replaced where it stood.
func TestBlobsAnywhere(t *testing.T) {
	type report struct {
		Title string         `json:"title"`
		File  *harness.Blob  `json:"file"`
		None  *harness.Blob  `json:"none"`
		Pages []harness.Blob `json:"pages"`
		More  map[string]any `json:"more"`
	}
	blob := func(s string) harness.Blob {
		return harness.Blob{Reader: strings.NewReader(s), MediaType: "text/plain"}
	}
	b := blob("file")
	sc := newScene(t, setup{})
	v := sc.record(report{Title: "t", File: &b, Pages: []harness.Blob{blob("p0"), blob("p1")}, More: map[string]any{"a.b": []any{1, blob("deep")}}})
	for field, want := range map[string]string{"file": "file", "pages.0": "p0", "pages.1": "p1", `more.a\.b.1`: "deep"} {
		page := sc.good("read_text", `{"source":%s}`, refTo(v, field))
		if got := member(t, page, "text"); got != `"`+want+`"` {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
		if !strings.Contains(string(v.Content), refTo(v, field)) {
			t.Errorf("%s is not named in %s", field, v.Content)
		}
	}
	if !strings.Contains(string(v.Content), `"none":null`) {
		t.Errorf("%s", v.Content)
	}
	same := strings.NewReader("once")
	for name, bad := range map[string]any{
		"no reader":      harness.Blob{},
		"one twice":      []harness.Blob{{Reader: same}, {Reader: same}},
		"in a marshaler": hiding{blob("x")},
		"no JSON":        json.RawMessage(`{"a":`),
		"a name twice":   json.RawMessage(`{"a":1,"a":2}`),
		"an empty name":  map[string]harness.Blob{"": blob("x")},
		"too deep":       deep(blob("x"), 80),
		"a broken read":  harness.Blob{Reader: io.MultiReader(strings.NewReader("half"), broken{})},
		"a channel":      make(chan int),
		"a panic":        panicking{},
	} {
		if v := sc.record(bad); !v.IsError || failureOf(t, v).Code == "" || strings.Contains(string(v.Content), "half") {
			t.Errorf("%s: %s", name, v.Content)
		}
	}
}

// hiding writes its own JSON, and would write out the blob in it.
type hiding struct{ b harness.Blob }

func (h hiding) MarshalJSON() ([]byte, error) { return json.Marshal(map[string]any{"b": h.b}) }

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("no") }

func deep(b harness.Blob, n int) any {
	var v any = b
	for range n {
		v = map[string]any{"a": v}
	}
	return v
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the connection broke off") }

// What an MCP server answers: images, audio and embedded blobs are Blobs; text is a
// value, or content where the tool is declared so.
func TestContent(t *testing.T) {
	sc := newScene(t, setup{})
	raw := json.RawMessage(`{"content":[{"type":"text","text":"two files"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},` +
		`{"type":"resource","resource":{"uri":"file:///x","mimeType":"application/pdf","blob":"d29ybGQ="}}],"isError":false}`)
	for _, opaque := range []bool{false, true} {
		r, err := harness.FromContent(raw, opaque)
		if err != nil {
			t.Fatal(err)
		}
		v := sc.record(r)
		if strings.Contains(string(v.Content), "aGVsbG8") || strings.Contains(string(v.Content), "d29ybGQ") || strings.Contains(string(v.Content), "two files") == opaque {
			t.Errorf("%s", v.Content)
		}
		if page := sc.good("read_text", `{"source":%s}`, refTo(v, "content.1.data")); member(t, page, "text") != `"hello"` {
			t.Errorf("%s", page.Content)
		}
		if page := sc.good("read_text", `{"source":%s}`, refTo(v, "content.2.resource.blob")); member(t, page, "text") != `"world"` {
			t.Errorf("%s", page.Content)
		}
	}
	// As a result's value, by what the tool is declared to return.
	for _, opaque := range []bool{false, true} {
		sc := newScene(t, setup{tools: []harness.Tool{{Name: "export", Schema: json.RawMessage(`{"type":"object"}`), OpaqueText: opaque}}})
		v := sc.record(harness.Content(raw))
		if v.IsError || strings.Contains(string(v.Content), "two files") == opaque || strings.Contains(string(v.Content), "aGVsbG8") {
			t.Errorf("%s", v.Content)
		}
		if v := sc.record(harness.Content(`{"content":[{"type":"text","text":"no"}],"isError":true}`)); !v.IsError {
			t.Errorf("%s", v.Content)
		}
		if v := sc.record(harness.Content(`7`)); !v.IsError || v.Err == nil {
			t.Errorf("%s", v.Content)
		}
	}
	for _, bad := range []string{`7`, `{"content":7}`, `{"content":[{"type":"image"}]}`, `{"content":[{"type":"image","data":"!!"}]}`} {
		r, err := harness.FromContent(json.RawMessage(bad), false)
		if err == nil && !sc.record(r).IsError {
			t.Errorf("%s was taken", bad)
		}
	}
}

// Whatever an MCP server answers, there is no panic, and what is taken out of it stands
// where it says.
func FuzzFromContent(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},{"type":"text","text":"x"}]}`), true)
	f.Add([]byte(`[{"type":"resource","resource":{"blob":"d29ybGQ=","text":"both"}}]`), false)
	f.Fuzz(func(t *testing.T, raw []byte, opaque bool) {
		r, err := harness.FromContent(raw, opaque)
		if err != nil {
			return
		}
		for at, b := range r.Blobs {
			if !strings.HasPrefix(at, "/") || b.Reader == nil {
				t.Errorf("%q: %+v", at, b)
			}
			_, _ = io.Copy(io.Discard, b.Reader)
		}
	})
}

// Case 3: the heap does not grow with the blob. LEAFPROOF_BIG lets it have 256 MiB.
func TestBlobStreams(t *testing.T) {
	size := int64(48 << 20)
	if big() {
		size = 256 << 20
	}
	sc := newScene(t, setup{})
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	v := sc.record(harness.Blob{Reader: &generated{n: size, every: 8 << 20, tick: func() {
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapInuse)
	}}})
	if v.IsError {
		t.Fatalf("%s: %v", v.Content, v.Err)
	}
	if grown := int64(peak) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes for a blob of %d", grown, size)
	} else {
		t.Logf("the heap grew by %d KiB for a blob of %d MiB", grown>>10, size>>20)
	}
}

// generated gives n bytes, and ticks.
type generated struct {
	n, at, every int64
	tick         func()
}

func (g *generated) Read(p []byte) (int, error) {
	if g.at == g.n {
		return 0, io.EOF
	}
	k := min(int64(len(p)), g.n-g.at)
	for i := range p[:k] {
		x := uint64(g.at+int64(i)) * 0x9E3779B97F4A7C15
		p[i] = byte(x >> 56)
	}
	if g.at/g.every != (g.at+k)/g.every {
		g.tick()
	}
	g.at += k
	return int(k), nil
}

// Case 7: at query_json the store is asked for the preview alone; resolving asks once.
func TestLazy(t *testing.T) {
	var c *counting
	sc := newScene(t, setup{
		tools:   []harness.Tool{echo("generate", func(json.RawMessage) {})},
		wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s}; return c },
	})
	export := sc.record(harness.Blob{
		Reader: bytes.NewReader(refdemo.Export(300, 1)), MediaType: "application/json", Facts: json.RawMessage(`{"records":{"format":"json","pointer":"/items"}}`),
	})
	puts := c.puts
	found := sc.good("query_json", `{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, refTo(export, ""))
	if c.queries != 1 || c.reads != 0 || c.puts != puts {
		t.Errorf("query_json asked %d queries, %d reads, %d puts", c.queries, c.reads, c.puts-puts)
	}
	sc.good("generate", `{"rows":%s}`, member(t, found, "value"))
	if c.queries != 2 || c.reads != 0 || c.puts != puts {
		t.Errorf("after the use %d queries, %d reads, %d puts", c.queries, c.reads, c.puts-puts)
	}
}

// Case 6: preview and reference name the same value.
func TestPreviewAndReference(t *testing.T) {
	var got struct{ Rows json.RawMessage }
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) {
		if err := json.Unmarshal(args, &got); err != nil {
			t.Error(err)
		}
	})}})
	doc := refdemo.Export(200, 5)
	v := sc.record(jsonBlob(doc))
	for _, call := range []string{
		`read_json {"source":%s,"path":"/items"}`,
		`query_json {"source":%s,"path":"/items"}`,
		`query_json {"source":%s,"path":"/items","where":"@.owner == \"ada\""}`,
	} {
		tool, input, _ := strings.Cut(call, " ")
		found := sc.good(tool, input, refTo(v, ""))
		sc.good("generate", `{"rows":%s}`, member(t, found, "value"))
		var preview, rows []json.RawMessage
		if err := errors.Join(json.Unmarshal([]byte(member(t, found, "preview")), &preview), json.Unmarshal(got.Rows, &rows)); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for i, p := range preview {
			if bytes.Equal(p, rows[i]) {
				whole++
			} else if !sameStart(p, rows[i]) {
				t.Fatalf("%s: the preview has %s, the tool got %s", call, p, rows[i])
			}
		}
		if len(preview) < 5 || len(rows) < len(preview) || whole == 0 {
			t.Errorf("%s: %d rows shown, %d whole, %d given", call, len(preview), whole, len(rows))
		}
		if tool == "read_json" && !bytes.Contains(doc, got.Rows) {
			t.Error("the value is not the document's, byte for byte")
		}
	}
}

// sameStart compares the ids of two rows.
func sameStart(a, b []byte) bool {
	var x, y struct{ ID int64 }
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// Cases 8, 14, 15, 53: what a model may not write, the tool does not run for.
func TestRefusedCalls(t *testing.T) {
	ran := 0
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(json.RawMessage) { ran++ })}})
	export := sc.record(jsonBlob(refdemo.Export(30, 1)))
	shown := refTo(export, "")
	for input, code := range map[string]string{
		`{"rows":{"$ref":{"type":"JsonPointer","source":{"type":"Message","seq":1,"part":0},"path":"/items"}}}`:                        "ref_derivation_forbidden",
		`{"rows":{"$ref":{"type":"Blob","source":{"type":"JsonQuery","source":{"type":"Message","seq":1,"part":0},"path":"/items"}}}}`: "ref_derivation_forbidden",
		`{"rows":{"$ref":{"seq":1,"part":0}}}`:                              "ref_legacy_shape",
		`{"rows":"seq=\"9\" part=\"2\""}`:                                   "ref_legacy_shape",
		`{"rows":"{\"$ref\":{\"type\":\"Message\",\"seq\":1,\"part\":0}}"}`: "ref_stringified",
		`{"rows":{"$ref":{"type":"Message","seq":99,"part":0}}}`:            "ref_not_found",
		`{"rows":{"$ref":{"type":"Message","seq":1,"part":3}}}`:             "ref_not_found",
		`{"rows":{"$ref":{"type":"Blob","key":"agent/other/c1-abcdefgh"}}}`: "ref_not_found",
		`{"rows":{"$ref":{"type":"Thing","seq":1}}}`:                        "ref_unknown_type",
		`{"rows":` + shown + `,"rows":[]}`:                                  "ref_malformed",
		`{"title":"no rows"}`:                                               "ref_type_mismatch",
		`{"rows":` + shown + `}`:                                            "ref_type_mismatch", // an object is no array
	} {
		sc.fails(code, "generate", "%s", input)
	}
	sc.fails("selector_invalid", "no_such_tool", `{}`)
	if ran != 0 {
		t.Errorf("the tool ran %d times", ran)
	}
	sc.good("generate", `{"rows":[{"key":"k","seq":9,"part":2}]}`) // data
	if ran != 1 {
		t.Error("the tool did not run for data")
	}
}

// Case 51: empty and repeated call ids give distinct references.
func TestRepeatedCallIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector finds nothing new in it")
	}
	sc := newScene(t, setup{})
	const n = 500
	var results []harness.Result
	for i := range n {
		id := []string{"", "same"}[i%2]
		results = append(results, harness.Result{CallID: id, Tool: "export", Value: harness.Blob{Reader: strings.NewReader(fmt.Sprint("result ", i))}})
	}
	views, err := sc.run.Record(t.Context(), results...)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, v := range views {
		x := refTo(v, "")
		if seen[x] || !strings.Contains(string(v.Content), x) {
			t.Fatalf("%d: %s is not its own", i, x)
		}
		if seen[x] = true; i%50 == 0 || i == n-1 {
			if page := sc.good("read_text", `{"source":%s}`, x); member(t, page, "text") != fmt.Sprintf("%q", fmt.Sprint("result ", i)) {
				t.Errorf("%d: %s", i, page.Content)
			}
		}
	}
}

// Case 56: returned, matched and total are right around what a preview holds.
func TestCounts(t *testing.T) {
	sc := newScene(t, setup{})
	v := sc.record(harness.Blob{Reader: bytes.NewReader(lines(3000))})
	fits := int(number(t, sc.good("query_json", `{"source":%s}`, refTo(v, "")), "returned")) // with room for a cursor
	for {
		v := sc.record(harness.Blob{Reader: bytes.NewReader(lines(fits + 1)), Records: "ndjson"})
		if member(t, sc.good("query_json", `{"source":%s}`, refTo(v, "")), "complete") != "true" {
			break
		}
		fits++
	}
	if fits < 20 || fits > 200 {
		t.Fatalf("%d rows fit", fits)
	}
	for _, n := range []int{fits - 1, fits, fits + 1} {
		v := sc.record(harness.Blob{Reader: bytes.NewReader(lines(n)), Records: "ndjson"})
		page := sc.good("query_json", `{"source":%s}`, refTo(v, ""))
		var rows struct {
			Preview  []json.RawMessage
			Complete bool
		}
		if err := json.Unmarshal(page.Content, &rows); err != nil {
			t.Fatal(err)
		}
		want := int64(min(n, len(rows.Preview)))
		if number(t, page, "returned") != want || number(t, page, "matched") != int64(n) || number(t, page, "total") != int64(n) || rows.Complete != (want == int64(n)) {
			t.Errorf("of %d rows: returned %s, matched %s, total %s, complete %v; %d are shown", n,
				member(t, page, "returned"), member(t, page, "matched"), member(t, page, "total"), rows.Complete, len(rows.Preview))
		}
		if n > fits && rows.Complete {
			t.Errorf("%d rows are all shown, where %d fit", n, fits)
		}
	}
}

func number(t testing.TB, v harness.View, name string) int64 {
	t.Helper()
	var n int64
	if err := json.Unmarshal([]byte(member(t, v, name)), &n); err != nil {
		t.Fatalf("%s of %s: %v", name, v.Content, err)
	}
	return n
}

// The pages of a query concatenate to its rows, and each begins where the last ended.
func TestQueryPages(t *testing.T) {
	sc := newScene(t, setup{})
	v := sc.record(harness.Blob{Reader: bytes.NewReader(lines(600))})
	var got []string
	cursor := ""
	for pages := 0; pages < 30; pages++ {
		page := sc.good("query_json", `{"source":%s,"where":"@.status == \"open\""%s}`, refTo(v, ""), cursor)
		var body struct {
			Preview []json.RawMessage
			Cursor  string
			Matched int
		}
		if err := json.Unmarshal(page.Content, &body); err != nil {
			t.Fatal(err)
		}
		for _, r := range body.Preview {
			got = append(got, string(r))
		}
		if body.Matched != 200 {
			t.Errorf("%d matched", body.Matched)
		}
		if body.Cursor == "" {
			break
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, body.Cursor)
	}
	var want []string
	for i, l := range strings.Split(strings.TrimSpace(string(lines(600))), "\n") {
		if i%3 == 0 {
			want = append(want, l)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d rows on the pages, %d match", len(got), len(want))
	}
}

// newest is the artifact that was published last.
func newest(t testing.TB, sc *scene) string {
	t.Helper()
	list, _, err := sc.store.List(t.Context(), leafproof.Owner, secretTenant, 0, 10_000)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d artifacts, %v", len(list), err)
	}
	return list[len(list)-1].ArtifactID
}
