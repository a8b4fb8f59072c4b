package ref_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"leafproof"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// run is a run over a store on disk, with what it asks of the store counted.
type run struct {
	t      testing.TB
	store  *leafproof.Store
	source *counted
	tr     *ref.Memory
	r      *ref.Resolver
}

// counted counts what is asked of a source.
type counted struct {
	ref.Source
	stats, reads, queries int
}

func (c *counted) Stat(ctx context.Context, key string) (ref.Info, error) {
	c.stats++
	return c.Source.Stat(ctx, key)
}

func (c *counted) Read(ctx context.Context, id string, what ref.Selection, w io.Writer) (*selector.Answer, error) {
	c.reads++
	return c.Source.Read(ctx, id, what, w)
}

func (c *counted) Query(ctx context.Context, id string, q ref.Query, emit func(ref.Row) error) (*selector.Answer, error) {
	c.queries++
	return c.Source.Query(ctx, id, q, emit)
}

func newRun(t testing.TB) *run {
	t.Helper()
	dir := t.TempDir() + "/store"
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return (&run{t: t, store: s}).of(leafproof.Owner, "run-1", "agent-1")
}

// of is another run over the same store.
func (r *run) of(who leafproof.Caller, name, agent string) *run {
	r.t.Helper()
	source, err := r.store.References(r.t.Context(), who, leafproof.ReferenceOptions{Run: name, Agent: agent})
	if err != nil {
		r.t.Fatal(err)
	}
	out := &run{t: r.t, store: r.store, source: &counted{Source: source}, tr: ref.NewMemory(name)}
	out.r = ref.NewResolver(out.tr, out.source, ref.Limits{})
	return out
}

func (r *run) put(data []byte, what ref.New) ref.Marker {
	r.t.Helper()
	m, err := r.source.Put(r.t.Context(), what, bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *run) append(e ref.Entry) uint64 {
	r.t.Helper()
	seq, err := r.tr.Append(r.t.Context(), e)
	if err != nil {
		r.t.Fatal(err)
	}
	return seq
}

// blob appends a message that is a blob alone.
func (r *run) blob(m ref.Marker) uint64 {
	r.t.Helper()
	return r.append(tool(`null`, ref.Slot{Marker: &m}))
}

// tool is the message of a tool that returned a value.
func tool(value string, slots ...ref.Slot) ref.Entry {
	return ref.Entry{Role: "tool", Parts: []ref.Part{{Value: json.RawMessage(value), Slots: slots}}}
}

func (r *run) args(input string) (*ref.Resolved, error) {
	return r.r.Args(r.t.Context(), ref.ToolSpec{Name: "t"}, []byte(input))
}

// gives checks what an input resolves to.
func (r *run) gives(input, want string) *ref.Resolved {
	r.t.Helper()
	got, err := r.args(input)
	if err != nil {
		r.t.Fatalf("%s: %v", input, err)
	}
	if string(got.Args) != want {
		r.t.Fatalf("%s:\n got %.300s\nwant %.300s", input, got.Args, want)
	}
	return got
}

// fails checks that an input is refused, with an error that tells a model nothing of
// the store.
func (r *run) fails(input string, want error) error {
	r.t.Helper()
	got, err := r.args(input)
	if !errors.Is(err, want) || got != nil {
		r.t.Fatalf("%s: %v, %v; want %v", input, got, err, want)
	}
	for _, secret := range []string{"art_", "agent/", "blake3:", "local", "JsonPointer", "JsonQuery"} {
		if strings.Contains(err.Error(), secret) {
			r.t.Errorf("%s: the error tells %q: %v", input, secret, err)
		}
	}
	return err
}

func message(seq uint64, field string) string {
	return string(ref.Append(nil, ref.Message{Seq: &seq, Field: field}))
}

func at(seq uint64, field string) ref.Message { return ref.Message{Seq: &seq, Field: field} }

// export is a document of items, and the rows of it that are open, as they stand there.
func export(items int) (doc []byte, open []string) {
	var b bytes.Buffer
	b.WriteString(`{"project":"x","items":[` + "\n")
	for i := range items {
		status := "closed"
		if i%7 == 3 {
			status = "open"
		}
		row := fmt.Sprintf(`{"id": %d, "n":13911860366432393.%d00, "status":%q, "title":"item é %d", "text":%q}`,
			i, i%10, status, i, strings.Repeat("lorem ipsum ", 8))
		if status == "open" {
			open = append(open, row)
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString(row)
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), open
}

const openFilter = `{"field":"/status","equals":"open"}`

// query appends the result of a query over a blob: a preview and a recipe.
func (r *run) query(source ref.Ref, id, path, filter string) uint64 {
	r.t.Helper()
	return r.append(tool(`{"preview":[],"value":null}`, ref.Slot{
		Field: "value", Recipe: ref.JSONQuery{Source: source, Path: path, Filter: filter, Pin: ref.Pin(id)},
	}))
}

// Cases 1 and 7: a recipe is evaluated when it is used, once, and gives the exact bytes
// of the rows; until then nothing is read, and nothing is stored.
func TestCase7RecipesAreLazy(t *testing.T) {
	r := newRun(t)
	doc, open := export(1036)
	if len(open) != 148 {
		t.Fatalf("%d rows", len(open))
	}
	m := r.put(doc, ref.New{
		CallID: "call_1", Tool: "export", MediaType: "application/json", Facts: []byte(`{"records":{"format":"json","pointer":"/items"}}`),
	})
	seq := r.blob(m)
	rows := r.query(at(seq, ""), m.ArtifactID, "/items", openFilter)
	if n := r.source.stats + r.source.reads + r.source.queries; n != 0 {
		t.Errorf("%d calls before any use", n)
	}
	got := r.gives(`{"title":"Status","rows":`+message(rows, "value")+`}`, `{"title":"Status","rows":[`+strings.Join(open, ",")+`]}`)
	if n := r.source.reads + r.source.queries; n != 1 {
		t.Errorf("%d reads and queries for one use", n)
	}
	u := got.Used[0]
	if u.ArtifactID != m.ArtifactID || u.Property != "rows" || u.Via.Type() != ref.TypeJSONQuery ||
		u.Answer == nil || *u.Answer.Matched != 148 || u.Answer.RecordsTotal != 1036 {
		t.Errorf("used %+v", u)
	}
	list, _, err := r.store.List(t.Context(), leafproof.Owner, "", 0, 100)
	if err != nil || len(list) != 1 {
		t.Errorf("the store has %d artifacts, %v", len(list), err)
	}
	// The same rows out of a document whose records are something else.
	other := r.put([]byte(`{"a":{"items":`+string(doc[bytes.IndexByte(doc, '['):])+`}`), ref.New{MediaType: "application/json", Records: "none"})
	seq = r.blob(other)
	rows = r.query(at(seq, ""), other.ArtifactID, "/a/items", `@.status == "open"`)
	r.gives(message(rows, "value"), `[`+strings.Join(open, ",")+`]`)
}

// Case 9: where references are looked for, and where an object is data.
func TestCase9WhereReferencesStand(t *testing.T) {
	r := newRun(t)
	seq := r.append(tool(`{"a":{"b":[10,{"c":"x"}]},"d.e":1.50}`))
	r.gives(message(seq, "a"), `{"b":[10,{"c":"x"}]}`)
	r.gives("\n "+message(seq, "")+" ", `{"a":{"b":[10,{"c":"x"}]},"d.e":1.50}`)
	r.gives(`{ "x" : `+message(seq, "a.b.1.c")+` , "y":`+message(seq, `d\.e`)+`}`, `{ "x" : "x" , "y":1.50}`)
	r.gives(`{"x":{"\u0024ref":{"part":0,"type":"Message","seq":1}}}`, `{"x":{"a":{"b":[10,{"c":"x"}]},"d.e":1.50}}`)
	for _, data := range []string{
		`{"x":{"y":` + message(seq, "") + `}}`,
		`{"x":[` + message(seq, "") + `]}`,
		`[` + message(seq, "") + `]`,
		`{"$ref":"#/components/x"}`,
		`{"x":{"$ref":"#/components/x"}}`,
		`{"x":{"$ref":{"type":"Message","seq":1,"part":0},"y":1}}`,
		`{"x":"the text {\"$ref\":{\"type\":\"Message\",\"seq\":1,\"part\":0}} inside another"}`,
		`"x"`, `1`, `null`, `{}`,
	} {
		got := r.gives(data, data)
		if len(got.Used) != 0 {
			t.Errorf("%s: used %+v", data, got.Used)
		}
	}
	// What is resolved is data: references in it are not looked for.
	hostile := r.append(tool(`{"x":` + message(seq, "") + `,"y":1}`))
	r.gives(message(hostile, ""), `{"x":`+message(seq, "")+`,"y":1}`)
	m := r.put([]byte(`{"x":`+message(seq, "")+`}`), ref.New{MediaType: "application/json"})
	r.gives(message(r.blob(m), ""), `{"x":`+message(seq, "")+`}`)
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `{"x":{"a":1,"\u0061":2}}`, "{\"a\":\"\xff\"}", `{} {}`, `{"a":{"$ref":{},"$ref":{}}}`} {
		r.fails(bad, ref.ErrMalformed)
	}
}

// Case 10: each of the caps and a cycle has its own error.
func TestCase10CapsAndCycles(t *testing.T) {
	r := newRun(t)
	doc, open := export(20)
	m := r.put(doc, ref.New{MediaType: "application/json"})
	seq := r.blob(m)
	rows := r.query(at(seq, ""), m.ArtifactID, "/items", openFilter)
	blobs := func(n int, inner string) string {
		return `{"$ref":` + strings.Repeat(`{"type":"Blob","source":`, n) + inner + strings.Repeat("}", n) + `}`
	}
	inner := fmt.Sprintf(`{"type":"Message","seq":%d,"part":0}`, seq)
	r.gives(blobs(4, inner), string(bytes.TrimSpace(doc)))
	if err := r.fails(blobs(5, inner), ref.ErrDepth); !strings.Contains(err.Error(), "followed") {
		t.Errorf("the resolution cap: %v", err)
	}
	r.fails(blobs(7, inner), ref.ErrDepth)
	if err := r.fails(blobs(8, inner), ref.ErrDepth); !strings.Contains(err.Error(), "read") {
		t.Errorf("the validation cap: %v", err)
	}
	// Blob(source: JsonQuery(source: Message)), made by the server.
	chain := r.append(tool(`null`, ref.Slot{Recipe: ref.Blob{Source: ref.JSONQuery{
		Source: at(seq, ""), Path: "/items", Filter: openFilter, Pin: ref.Pin(m.ArtifactID),
	}}}))
	r.gives(message(chain, ""), `[`+strings.Join(open, ",")+`]`)
	// A recipe over the rows of a recipe.
	first := r.append(tool(`null`, ref.Slot{Recipe: ref.JSONPointer{Source: at(rows, "value"), Path: "/0/id", Pin: ref.Pin(m.ArtifactID)}}))
	r.gives(message(first, ""), "3")

	next := first + 1
	loop := r.append(tool(`{"a":null,"b":null}`,
		ref.Slot{Field: "a", Recipe: ref.JSONPointer{Source: at(next, "b"), Pin: ref.Pin(m.ArtifactID)}},
		ref.Slot{Field: "b", Recipe: ref.JSONPointer{Source: at(next, "a"), Pin: ref.Pin(m.ArtifactID)}}))
	if loop != next {
		t.Fatal(loop, next)
	}
	r.fails(message(loop, "a"), ref.ErrCycle)
	self := r.append(tool(`null`, ref.Slot{Recipe: ref.Blob{Source: at(loop+1, "")}}))
	r.fails(message(self, ""), ref.ErrCycle)
	if _, err := r.args(blobs(5, inner)); errors.Is(err, ref.ErrCycle) {
		t.Error("depth alone is a cycle")
	}
}

// Case 11: a recipe whose source leads to something else now, or whose path is gone,
// fails in one sentence, also where the path still leads somewhere.
func TestCase11StalePaths(t *testing.T) {
	r := newRun(t)
	ctx := t.Context()
	first := r.put([]byte(`{"items":[{"a":1},{"a":2}]}`), ref.New{MediaType: "application/json"})
	second := r.put([]byte(`{"items":[{"a":7}]}`), ref.New{MediaType: "application/json"})
	set := func(id string) {
		if _, err := r.store.SetName(ctx, leafproof.Owner, "", "latest", id, leafproof.AnySeq); err != nil {
			t.Fatal(err)
		}
	}
	set(first.ArtifactID)
	name := ref.Blob{Key: "name/latest"}
	pin := ref.Pin(first.ArtifactID)
	seq := r.append(tool(`{"items":null,"rows":null,"gone":null,"inline":null,"other":null,"plain":[1,2]}`,
		ref.Slot{Field: "items", Recipe: ref.JSONPointer{Source: name, Path: "/items", Pin: pin}},
		ref.Slot{Field: "rows", Recipe: ref.JSONQuery{Source: name, Path: "/items", Filter: `@.a > 0`, Pin: pin}},
		ref.Slot{Field: "gone", Recipe: ref.JSONPointer{Source: ref.Blob{Key: first.Key}, Path: "/nothing", Pin: pin}},
		ref.Slot{Field: "inline", Recipe: ref.JSONPointer{Source: at(3, "plain"), Path: "/1", Pin: "blake3:" + ref.Pin(merkle.Sum([]byte(`[1,2]`)).String())}},
		ref.Slot{Field: "other", Recipe: ref.JSONQuery{Source: at(3, "plain"), Path: "", Pin: "blake3:" + ref.Pin(merkle.Sum([]byte(`[1,2,3]`)).String())}},
	))
	r.append(tool(`1`))
	r.append(tool(`{"plain":[1,2]}`))
	r.gives(message(seq, "items"), `[{"a":1},{"a":2}]`)
	r.gives(message(seq, "rows"), `[{"a":1},{"a":2}]`)
	r.gives(message(seq, "inline"), `2`)
	set(second.ArtifactID)
	for _, field := range []string{"items", "rows", "gone", "other"} {
		err := r.fails(`{"x":`+message(seq, field)+`}`, ref.ErrStalePath)
		if !strings.Contains(err.Error(), "Derived JSON path") || !strings.HasSuffix(err.Error(), "no longer exists.") {
			t.Errorf("%s: %v", field, err)
		}
		if leafproof.CodeOf(err) != leafproof.CodeRefStalePath {
			t.Errorf("%s: code %s", field, leafproof.CodeOf(err))
		}
	}
	set(first.ArtifactID)
	r.gives(message(seq, "rows"), `[{"a":1},{"a":2}]`)
}

// Case 13: a lazy parameter is a handle, and no byte is read before the tool asks; then
// each read asks anew.
func TestCase13LazyParameters(t *testing.T) {
	r := newRun(t)
	doc, open := export(60)
	m := r.put(doc, ref.New{MediaType: "application/json"})
	seq := r.blob(m)
	rows := r.query(at(seq, ""), m.ArtifactID, "/items", openFilter)
	spec := ref.ToolSpec{
		Schema: json.RawMessage(`{"type":"object","properties":{"source":{"type":"string"},"n":{"type":"number"}},"required":["source"]}`),
		Lazy:   []string{"source"},
	}
	input := `{"source":` + message(rows, "value") + `,"n":1}`
	got, err := r.r.Args(t.Context(), spec, []byte(input))
	if err != nil {
		t.Fatal(err)
	}
	if n := r.source.stats + r.source.reads + r.source.queries; n != 0 || string(got.Args) != input || !got.Used[0].Lazy {
		t.Errorf("%d calls, %s, %+v", n, got.Args, got.Used)
	}
	h := got.Lazy["source"]
	v, use, err := h.Value(t.Context())
	if err != nil || string(v) != `[`+strings.Join(open, ",")+`]` || use.ArtifactID != m.ArtifactID {
		t.Errorf("%.100s, %+v, %v", v, use, err)
	}
	n := 0
	answer, err := h.Query(t.Context(), "", ref.Query{Where: `@.id > 10`, Limit: 2}, func(ref.Row) error { n++; return nil })
	if err != nil || n != 2 || answer.Cursor == "" {
		t.Errorf("%d rows, %+v, %v", n, answer, err)
	}

	whole, err := r.r.Args(t.Context(), spec, []byte(`{"source":`+message(seq, "")+`}`))
	if err != nil {
		t.Fatal(err)
	}
	h = whole.Lazy["source"]
	f, err := h.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := r.source.reads
	text := make([]byte, 20)
	for _, off := range []int64{0, 40, int64(len(doc)) - 20} {
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f, text); err != nil || !bytes.Equal(text, doc[off:off+20]) {
			t.Errorf("at %d: %q, %v", off, text, err)
		}
	}
	if r.source.reads != before+3 {
		t.Errorf("%d reads of the store for 3", r.source.reads-before)
	}
	// What the model may not mean is refused before the tool runs; a plain value stays.
	for _, bad := range []string{message(seq+9, ""), message(seq, "nothing"), `{"$ref":{"type":"Blob","key":"` + m.Key + `"}}`} {
		if _, err := r.r.Args(t.Context(), spec, []byte(`{"source":`+bad+`}`)); !errors.Is(err, ref.ErrNotFound) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if got, err := r.r.Args(t.Context(), spec, []byte(`{"source":"plain"}`)); err != nil || got.Lazy != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Case 14: the shapes of old are refused where a reference stands, and data elsewhere.
func TestCase14LegacyShapes(t *testing.T) {
	r := newRun(t)
	r.append(tool(`1`))
	for _, bad := range []string{
		`{"$ref":{"seq":1,"part":0}}`, `{"x":{"$ref":{"seq":1,"part":0}}}`,
		`{"x":{"$ref":{"key":"agent/a/b"}}}`, `{"x":{"$ref":{"key":"k","size":1,"mediaType":"x/y"}}}`,
		`{"x":{"$ref":"seq=\"1\" part=\"0\""}}`, `{"x":"seq=\"1\" part=\"0\""}`,
		`{"x":"<attachment seq=\"1\" part=\"0\"/>"}`, `"seq=\"1\" part=\"0\""`, `seq="1" part="0"`,
	} {
		r.fails(bad, ref.ErrLegacyShape)
	}
	for _, data := range []string{
		`{"seq":1,"part":0}`, `{"x":{"seq":1,"part":0}}`, `{"key":"k","value":1}`, `{"x":{"key":"k","size":1}}`,
		`{"x":"the chair seq=\"1\" part=\"0\" is here"}`, `{"x":"seq=1 part=0"}`,
	} {
		r.gives(data, data)
	}
}

// Case 15: what a model may mean.
func TestCase15OnlyWhatWasShown(t *testing.T) {
	r := newRun(t)
	ctx := t.Context()
	secret := r.put([]byte("secret"), ref.New{CallID: "c", MediaType: "text/plain"})
	foreign := r.of(leafproof.Owner, "run-2", "agent-2")
	theirs := foreign.put([]byte("theirs"), ref.New{MediaType: "text/plain"})
	shown := r.put([]byte("shown"), ref.New{MediaType: "text/plain"})
	one := r.append(ref.Entry{Turn: 1, Parts: []ref.Part{
		{Value: json.RawMessage(`{"a":[1,{"b":2}]}`)},
		{Value: json.RawMessage(`null`), Hidden: true, Slots: []ref.Slot{{Marker: &secret}}},
	}})
	two := r.append(ref.Entry{Turn: 1, Parts: []ref.Part{{Value: json.RawMessage(`"two"`)}}, Keys: []ref.Marker{shown}})
	key := func(k string) string {
		return `{"x":` + string(ref.Append(nil, ref.Blob{Key: k})) + `}`
	}
	part := func(seq, part uint64, field string) string {
		return `{"x":` + string(ref.Append(nil, ref.Message{Seq: &seq, Part: part, Field: field})) + `}`
	}
	r.gives(part(one, 0, "a.1.b"), `{"x":2}`)
	r.gives(part(two, 0, ""), `{"x":"two"}`)
	r.gives(key(shown.Key), `{"x":"shown"}`)
	for name, bad := range map[string]string{
		"a key of this agent that was not shown": key(secret.Key), "another agent's key": key(theirs.Key),
		"an artifact's id": key(shown.ArtifactID), "a guessed key": key("agent/agent-1/c"), "a name": key("name/latest"),
		"a future seq": part(two+1, 0, ""), "seq 0": part(0, 0, ""), "the largest seq": part(1<<53-1, 0, ""),
		"a part that is not there": part(two, 1, ""), "a hidden part": part(one, 1, ""),
		"no such field": part(one, 0, "b"), "no such index": part(one, 0, "a.2"), "an index with a zero before it": part(one, 0, "a.00"),
	} {
		t.Run(name, func(t *testing.T) {
			err := r.fails(bad, ref.ErrNotFound)
			if leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
				t.Errorf("code %s", leafproof.CodeOf(err))
			}
		})
	}
	if n := r.source.stats + r.source.reads; n != 2 { // of the key that was shown
		t.Errorf("%d calls of the store", n)
	}

	// The current turn.
	r.fails(`{"x":{"$ref":{"type":"Message","part":0}}}`, ref.ErrAmbiguousTurn)
	r.fails(`{"x":{"$ref":{"type":"Message","part":1}}}`, ref.ErrAmbiguousTurn)
	three := r.append(ref.Entry{Turn: 2, Parts: []ref.Part{{Value: json.RawMessage(`3`)}}})
	r.gives(`{"x":{"$ref":{"type":"Message","part":0}}}`, `{"x":3}`)

	// What was hidden is shown later; a fork hides what came after, and rebinds nothing.
	r.append(ref.Entry{Shows: []ref.Place{{Seq: one, Part: 1}}})
	r.gives(part(one, 1, ""), `{"x":"secret"}`)
	fork := r.append(ref.Entry{Fork: two, Parts: []ref.Part{{Value: json.RawMessage(`"retry"`)}}})
	r.gives(part(two, 0, ""), `{"x":"two"}`)
	r.gives(part(fork, 0, ""), `{"x":"retry"}`)
	r.fails(part(three, 0, ""), ref.ErrNotFound)
	r.fails(part(one, 1, ""), ref.ErrNotFound)
	if e, err := r.tr.Entry(ctx, three); err != nil || string(e.Parts[0].Value) != "3" {
		t.Errorf("the abandoned message is %+v, %v", e, err)
	}
	r.append(ref.Entry{Compact: fork})
	r.gives(part(one, 0, "a.0"), `{"x":1}`)

	// generate_pdf's output is a new blob, with a reference of its own.
	pdf := r.put([]byte("%PDF-1.7\x00\xff"), ref.New{CallID: "c", Tool: "generate_pdf", MediaType: "application/pdf"})
	seq := r.blob(pdf)
	view, err := r.tr.Entry(ctx, seq)
	if err != nil {
		t.Fatal(err)
	}
	marker, err := view.Parts[0].View(seq, 0)
	if want := fmt.Sprintf(`{"opaque":true,"value":{"$ref":{"type":"Message","seq":%d,"part":0}},"size":10,"format":{"mediaType":"application/pdf"}}`, seq); err != nil || string(marker) != want {
		t.Errorf("%s, %v", marker, err)
	}
}

// Random references over a store of foreign keys and hidden parts disclose nothing, and
// those that are refused are all refused alike.
func TestRandomReferencesDiscloseNothing(t *testing.T) {
	r := newRun(t)
	rng := rand.New(rand.NewPCG(5, 6))
	secret := func(s *run, what ref.New) ref.Marker { return s.put([]byte(`"secret"`), what) }
	theirs := secret(r.of(leafproof.Owner, "run-2", "agent-2"), ref.New{CallID: "c"})
	ours := secret(r, ref.New{CallID: "c"})
	shown := r.put([]byte(`{"a":[1,2]}`), ref.New{CallID: "c", MediaType: "application/json"})
	for i := range uint64(12) {
		e := ref.Entry{Turn: 1 + i/4}
		for range 3 {
			p := ref.Part{Value: json.RawMessage(`{"x":null,"y":"open"}`), Slots: []ref.Slot{{Field: "x", Marker: &shown}}}
			if rng.IntN(2) == 0 {
				p = ref.Part{Value: json.RawMessage(`{"x":null,"y":"secret"}`), Slots: []ref.Slot{{Field: "x", Marker: &ours}}, Hidden: true}
			}
			e.Parts = append(e.Parts, p)
		}
		if i == 9 {
			e.Fork = 5
		}
		r.append(e)
	}
	keys := []string{theirs.Key, ours.Key, theirs.ArtifactID, shown.ArtifactID, shown.Key, "agent/agent-1/", "name/x", "x"}
	var random func(depth int) ref.Ref
	random = func(depth int) ref.Ref {
		switch n := rng.IntN(6); {
		case n == 0:
			return ref.Blob{Key: keys[rng.IntN(len(keys))]}
		case n == 1 && depth > 0:
			return ref.Blob{Source: random(depth - 1)}
		}
		m := ref.Message{Part: rng.Uint64N(4), Field: []string{"", "x", "y", "x.value", "x.size", "z"}[rng.IntN(6)]}
		if rng.IntN(8) > 0 {
			m.Seq = new(rng.Uint64N(15))
		}
		return m
	}
	resolved := 0
	for range 1500 {
		text := ref.Append(nil, random(4))
		got, err := r.args(`{"v":` + string(text) + `}`)
		switch {
		case err == nil && (bytes.Contains(got.Args, []byte("secret")) || bytes.Contains(got.Args, []byte("art_"))):
			t.Fatalf("%s discloses %s", text, got.Args)
		case err == nil:
			resolved++
		case !errors.Is(err, ref.ErrNotFound) && !errors.Is(err, ref.ErrAmbiguousTurn) && !errors.Is(err, ref.ErrDepth):
			t.Fatalf("%s: %v", text, err)
		case strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "art_"):
			t.Fatalf("%s tells %v", text, err)
		}
	}
	if resolved < 100 || resolved > 1200 {
		t.Errorf("%d of 1500 resolved: the test looks at one kind alone", resolved)
	}
	if r.source.queries != 0 {
		t.Error("a query without a recipe")
	}
}

// Case 51: empty and repeated call ids, and strings that want to be paths, make keys
// and references that are all different.
func TestCase51CallIDs(t *testing.T) {
	r := newRun(t)
	n := 500
	if testing.Short() {
		n = 50
	}
	hostile := []string{"", "call_1", "../../etc/passwd", "a/b", "\x00\xff", strings.Repeat("x", 5000), "é", "%2E"}
	keys, ids := map[string]bool{}, map[string]bool{}
	markers := make([]ref.Marker, n)
	var wait sync.WaitGroup
	for w := range 10 { // puts side by side share a flush of the disk
		wait.Go(func() {
			for i := w; i < n; i += 10 {
				m, err := r.source.Put(t.Context(), ref.New{
					CallID: hostile[i%len(hostile)], Tool: hostile[(i+1)%len(hostile)], MediaType: "text/plain",
				}, strings.NewReader(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				}
				markers[i] = m
			}
		})
	}
	wait.Wait()
	for i, m := range markers {
		seq := r.append(ref.Entry{Parts: []ref.Part{{Value: json.RawMessage("null"), CallID: "", Slots: []ref.Slot{{Marker: &m}}}}})
		keys[m.Key], ids[fmt.Sprint(seq)] = true, true
		if strings.Count(m.Key, "/") != 2 || strings.Contains(m.Key, "..") || len(m.Key) > 300 {
			t.Errorf("key %q", m.Key)
		}
		r.gives(`{"x":`+message(seq, "")+`}`, fmt.Sprintf(`{"x":"%d"}`, i))
		info, err := r.source.Stat(t.Context(), m.Key)
		if err != nil || info.ArtifactID != m.ArtifactID {
			t.Errorf("%q: %+v, %v", m.Key, info, err)
		}
	}
	if len(keys) != n || len(ids) != n {
		t.Errorf("%d keys and %d references of %d", len(keys), len(ids), n)
	}
	// Of an agent with a name like that, and for another agent.
	evil := r.of(leafproof.Owner, "run-1", "../agent-1/")
	m := evil.put([]byte("x"), ref.New{CallID: "c"})
	if strings.Count(m.Key, "/") != 2 || strings.Contains(m.Key, "..") {
		t.Errorf("key %q", m.Key)
	}
	if _, err := r.source.Stat(t.Context(), m.Key); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("another agent's key: %v", err)
	}
}

// Case 53: an envelope sent as a string.
func TestCase53Stringified(t *testing.T) {
	r := newRun(t)
	r.append(tool(`[1]`))
	quote := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	}
	envelope := message(1, "")
	for _, bad := range []string{
		quote(envelope), `{"x":` + quote(envelope) + `}`, `{"x":` + quote("\n "+envelope+" ") + `}`,
		`{"x":` + quote(quote(envelope)) + `}`, `{"x":` + quote(`{"$ref":{"seq":1,"part":0}}`) + `}`,
		`{"x":` + quote(`{"\u0024ref":{}}`) + `}`, `{"x":` + quote(`{"$ref":{},"$ref":{}}`) + `}`,
		// What the envelope holds as a string; and as a block of code, or behind a byte order mark.
		`{"x":{"$ref":` + quote(`{"type":"Message","seq":1,"part":0}`) + `}}`, `{"$ref":` + quote(` {"part":0,"type":"Message"}`) + `}`,
		`{"x":{"$ref":` + quote(`{"type":"JsonPointer"}`) + `}}`, `{"x":` + quote(`{"$ref":"{\"type\":\"Blob\",\"key\":\"k\"}"}`) + `}`,
		`{"x":` + quote("```json\n"+envelope+"\n```") + `}`, `{"x":` + quote("```\n"+envelope+"```\n") + `}`,
		`{"x":` + quote("\ufeff"+envelope) + `}`,
	} {
		err := r.fails(bad, ref.ErrStringified)
		if leafproof.CodeOf(err) != leafproof.CodeRefStringified {
			t.Errorf("code %s", leafproof.CodeOf(err))
		}
	}
	for _, data := range []string{
		`{"x":` + quote(`{"$ref":"#/x"}`) + `}`, `{"x":{"y":` + quote(envelope) + `}}`, `{"x":` + quote(`{"$ref":{},"y":1}`) + `}`,
		`{"x":` + quote(`{"$ref" is how one refers}`) + `}`, `{"x":` + quote("```json\n{}\n```") + `}`, `{"x":` + quote("```") + `}`,
		`{"x":{"$ref":` + quote(`{"type":"object"}`) + `}}`, `{"x":{"$ref":` + quote(`Message`) + `}}`,
	} {
		r.gives(data, data)
	}
}

// What bytes of each kind become, and what a tool's schema says of it.
func TestResolvedValues(t *testing.T) {
	r := newRun(t)
	spec := ref.ToolSpec{Schema: json.RawMessage(`{"type":"object","properties":{
		"any":{},"rows":{"type":"array","items":{"type":"object"}},"b64":{"type":"string","contentEncoding":"base64"}}}`)}
	blob := func(data string, what ref.New) string { return message(r.blob(r.put([]byte(data), what)), "") }
	digits := blob(` {"n":13911860366432393, "x":1.0e0}`+"\n", ref.New{MediaType: "application/json"})
	text := blob("a\n\"b\"\u2028", ref.New{MediaType: "text/plain"})
	lines := blob("{\"a\":1}\n{\"a\":2}\n", ref.New{MediaType: "application/x-ndjson", Records: "ndjson"})
	pdf := blob("%PDF\x00\xff", ref.New{MediaType: "application/pdf"})
	liar := blob("{not json", ref.New{MediaType: "application/json", Records: "none"})
	for name, test := range map[string]struct {
		in, want string
		err      error
	}{
		"JSON, digit for digit": {`{"any":` + digits + `}`, `{"any":{"n":13911860366432393, "x":1.0e0}}`, nil},
		"text":                  {`{"any":` + text + `}`, `{"any":"a\n\"b\"` + "\u2028" + `"}`, nil},
		"lines are text":        {`{"any":` + lines + `}`, `{"any":"{\"a\":1}\n{\"a\":2}\n"}`, nil},
		"bytes in base64":       {`{"b64":` + pdf + `}`, `{"b64":"JVBERgD/"}`, nil},
		"text in base64":        {`{"b64":` + text + `}`, `{"b64":"YQoiYiLigKg="}`, nil},
		"bytes":                 {`{"any":` + pdf + `}`, "", ref.ErrTypeMismatch},
		"no JSON":               {`{"any":` + liar + `}`, "", ref.ErrTypeMismatch},
		"another type":          {`{"rows":` + digits + `}`, "", ref.ErrTypeMismatch},
		"not all elements":      {`{"rows":[1]}`, "", ref.ErrTypeMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.r.Args(t.Context(), spec, []byte(test.in))
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if err == nil && string(got.Args) != test.want {
				t.Errorf("%s, want %s", got.Args, test.want)
			}
		})
	}
	asStrings := spec
	ascii := blob("PNG", ref.New{MediaType: "image/png", Records: "none"})
	asStrings.Strings = true
	asStrings.Schema = json.RawMessage(`{"type":"object","properties":{"any":{},"s":{"type":"string"},"b64":{"type":"string","contentEncoding":"base64"}}}`)
	for in, want := range map[string]string{
		`{"s":` + digits + `}`:   `{"s":" {\"n\":13911860366432393, \"x\":1.0e0}\n"}`,
		`{"s":` + text + `}`:     `{"s":"a\n\"b\"` + "\u2028" + `"}`,
		`{"s":` + pdf + `}`:      `{"s":"JVBERgD/"}`,
		`{"s":` + ascii + `}`:    `{"s":"UE5H"}`, // by its type, not by what it looks like
		`{"b64":` + text + `}`:   `{"b64":"YQoiYiLigKg="}`,
		`{"any":` + digits + `}`: `{"any":{"n":13911860366432393, "x":1.0e0}}`,
	} {
		if got, err := r.r.Args(t.Context(), asStrings, []byte(in)); err != nil || string(got.Args) != want {
			t.Errorf("as strings, %s: %s %v, want %s", in, got.Args, err, want)
		}
	}
	small := ref.NewResolver(r.tr, r.source, ref.Limits{Bytes: 30, Input: 400})
	if _, err := small.Args(t.Context(), spec, []byte(`{"any":`+digits+`}`)); !errors.Is(err, ref.ErrTooLarge) {
		t.Errorf("35 bytes of 30: %v", err)
	}
	if _, err := small.Args(t.Context(), spec, []byte(`{"any":`+text+`,"b64":`+text+`,"c":`+text+`}`)); !errors.Is(err, ref.ErrTooLarge) {
		t.Errorf("three values of 10 to 14 bytes: %v", err)
	}
	if _, err := small.Args(t.Context(), spec, []byte(`{"x":"`+strings.Repeat("x", 400)+`"}`)); !errors.Is(err, ref.ErrTooLarge) {
		t.Errorf("a long input: %v", err)
	}
}

// A field leads through what the model was shown: into a marker's facts, and no further.
func TestFieldsOfMarkers(t *testing.T) {
	r := newRun(t)
	m := r.put([]byte(`{"a":1}`), ref.New{MediaType: "application/json"})
	seq := r.append(tool(`{"name":"x","file":null,"list":[null,2]}`,
		ref.Slot{Field: "file", Marker: &m}, ref.Slot{Field: "list.0", Marker: &m}))
	view := fmt.Sprintf(`{"opaque":true,"value":{"$ref":{"type":"Message","seq":%d,"part":0,"field":"file"}},"size":7,"format":{"mediaType":"application/json"}}`, seq)
	r.gives(message(seq, "file"), `{"a":1}`)
	r.gives(message(seq, "file.value"), `{"a":1}`)
	r.gives(message(seq, "list.0"), `{"a":1}`)
	r.gives(message(seq, "file.size"), `7`)
	r.gives(message(seq, "file.format.mediaType"), `"application/json"`)
	r.gives(message(seq, ""), `{"name":"x","file":`+view+`,"list":[`+strings.ReplaceAll(view, `"field":"file"`, `"field":"list.0"`)+`,2]}`)
	for _, field := range []string{"file.a", "file.value.a", "file.value.$ref", "file.key", "list.0.0", "name.x"} {
		r.fails(message(seq, field), ref.ErrNotFound)
	}
}

// A principal who loses leave between two uses hears so; one who never had it hears
// that there is nothing.
func TestTheGateIsAskedOnEachUse(t *testing.T) {
	r := newRun(t)
	ctx := t.Context()
	m := r.put([]byte(`[1]`), ref.New{MediaType: "application/json"})
	if _, err := r.store.AddPrincipal(ctx, leafproof.Owner, "ann", "", nil); err != nil {
		t.Fatal(err)
	}
	ann := r.of(leafproof.Caller{Principal: "ann"}, "run-1", "agent-1")
	seq := ann.blob(m)
	refused := func(want leafproof.Code) {
		t.Helper()
		got, err := ann.args(message(seq, ""))
		if leafproof.CodeOf(err) != want || got != nil || strings.Contains(err.Error(), "art_") || strings.Contains(leafproof.Wire(err).Message, "art_") {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	refused(leafproof.CodeRefNotFound)
	var grants []string
	for _, action := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead} {
		g, err := r.store.Grant(ctx, leafproof.Owner, leafproof.GrantSpec{Principal: "ann", Action: action, Pattern: "local"})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g.ID)
	}
	ann.gives(message(seq, ""), `[1]`)
	for _, id := range grants {
		if err := r.store.Revoke(ctx, leafproof.Owner, id); err != nil {
			t.Fatal(err)
		}
	}
	refused(leafproof.CodeAccessRevoked)
}
