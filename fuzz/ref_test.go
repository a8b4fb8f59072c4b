package fuzz_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/ref"
)

// referenceSeeds are envelopes and what nearly is one.
var referenceSeeds = []string{
	`{"$ref":{"type":"Message","seq":42,"part":2,"field":"result.value"}}`, `{"$ref":{"type":"Message","part":0}}`,
	`{"$ref":{"type":"Blob","source":{"type":"JsonPointer","source":{"type":"Message","seq":1,"part":0},"path":"/a","pin":"art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}}`,
	`{"$ref":{"type":"JsonQuery","source":{"type":"Blob","key":"k"},"path":"","filter":{"field":"/a","equals":1.0},"pin":"art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}`,
	`{"$ref":{"source":{"type":"Blob","key":"x"},"type":"\u004asonPointer","path":""}}`, `{"$ref":{"seq":1,"part":2}}`,
	`{"\u0024ref":{"type":"Blob","key":"agent/a/b"}}`, `{"$ref":"seq=\"1\" part=\"2\""}`, `{"$ref":{},"$ref":{}}`, `{"$ref":"#/x"}`,
}

// recipe reports a reference that has a recipe at any depth.
func recipe(r ref.Ref) bool {
	switch r := r.(type) {
	case nil, ref.Message:
		return false
	case ref.Blob:
		return recipe(r.Source)
	}
	return true
}

// referenceTyped checks that an error is one of the package's.
func referenceTyped(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*ref.Error](err); !ok || leafproof.CodeOf(err) == leafproof.CodeInternal {
		t.Fatalf("an error of no kind: %v", err)
	}
}

// FuzzReference: whatever the bytes, a model's parser returns no recipe, a parser's
// result is written and read again the same, and errors have a code.
func FuzzReference(f *testing.F) {
	for _, s := range referenceSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		inner, is, err := ref.Detect(raw)
		if err != nil {
			referenceTyped(t, err)
		}
		if !is {
			inner = raw
		}
		model, err := ref.ParseModel(inner, ref.Limits{})
		if err != nil {
			referenceTyped(t, err)
		}
		if recipe(model) {
			t.Fatalf("a model wrote %s", inner)
		}
		server, err := ref.ParseServer(inner, ref.Limits{})
		if err != nil {
			referenceTyped(t, err)
		}
		for _, r := range []ref.Ref{model, server} {
			if r == nil {
				continue
			}
			text := ref.Append(nil, r)
			again, is, err := ref.Detect(text)
			if err != nil || !is {
				t.Fatalf("%s: %v, %v", text, is, err)
			}
			parse := ref.ParseServer
			if !recipe(r) {
				parse = ref.ParseModel
			}
			back, err := parse(again, ref.Limits{})
			if err != nil || !bytes.Equal(ref.Append(nil, back), text) {
				t.Fatalf("%s: then %v, %v", text, back, err)
			}
		}
	})
}

// FuzzReferenceCall: whatever a model writes as the input of a tool, it learns nothing
// of what was not shown to it: another agent's blobs, its own agent's that were not
// shown, hidden parts.
func FuzzReferenceCall(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "store")
	if err := leafproof.Init(f.Context(), dir); err != nil {
		f.Fatal(err)
	}
	s, err := leafproof.Open(f.Context(), dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	put := func(agent, text string) (ref.Source, ref.Marker) {
		source, err := s.References(f.Context(), leafproof.Owner, leafproof.ReferenceOptions{Run: "run-" + agent, Agent: agent})
		if err != nil {
			f.Fatal(err)
		}
		m, err := source.Put(f.Context(), ref.New{CallID: "c", MediaType: "application/json"}, strings.NewReader(text))
		if err != nil {
			f.Fatal(err)
		}
		return source, m
	}
	const secret = "d34db33fsecret"
	_, theirs := put("other", `["`+secret+`"]`)
	_, hidden := put("own", `["`+secret+`"]`)
	source, shown := put("own", `{"items":[{"a":1},{"a":2}]}`)
	tr := ref.NewMemory("run-own")
	for _, e := range []ref.Entry{
		{Parts: []ref.Part{{Value: json.RawMessage(`{"x":[1,{"y":"z"}],"file":null}`), Slots: []ref.Slot{{Field: "file", Marker: &shown}}}}},
		{Parts: []ref.Part{{Value: json.RawMessage(`"` + secret + `"`), Hidden: true}, {Value: json.RawMessage(`null`), Hidden: true, Slots: []ref.Slot{{Marker: &hidden}}}}},
		{Turn: 2, Parts: []ref.Part{{Value: json.RawMessage(`{"v":null}`), Slots: []ref.Slot{{
			Field: "v", Recipe: ref.JSONQuery{Source: ref.Message{Seq: new(uint64(1)), Field: "file"}, Path: "/items", Pin: ref.Pin(shown.ArtifactID)},
		}}}}},
		{Turn: 2, Parts: []ref.Part{{Value: json.RawMessage(`"` + secret + `"`)}}},
		{Turn: 3, Fork: 3, Parts: []ref.Part{{Value: json.RawMessage(`1`)}}},
	} {
		if _, err := tr.Append(f.Context(), e); err != nil {
			f.Fatal(err)
		}
	}
	r := ref.NewResolver(tr, source, ref.Limits{})
	for _, s := range referenceSeeds {
		f.Add([]byte(s))
		f.Add([]byte(`{"a":` + s + `,"lazy":` + s + `}`))
	}
	for _, m := range []ref.Marker{theirs, hidden, shown} {
		f.Add(ref.Append(nil, ref.Blob{Key: m.Key}))
		f.Add([]byte(`{"lazy":` + string(ref.Append(nil, ref.Blob{Key: m.ArtifactID})) + `}`))
	}
	for seq := range uint64(7) {
		f.Add(ref.Append(nil, ref.Message{Seq: &seq, Part: seq % 2, Field: "v"}))
		f.Add([]byte(`{"lazy":` + string(ref.Append(nil, ref.Blob{Source: ref.Message{Seq: &seq}})) + `}`))
	}
	spec := ref.ToolSpec{Name: "t", Lazy: []string{"lazy"}}
	f.Fuzz(func(t *testing.T, input []byte) {
		if bytes.Contains(input, []byte(secret)) {
			t.Skip()
		}
		got, err := r.Args(t.Context(), spec, input)
		if err != nil {
			referenceTyped(t, err)
			for _, told := range []string{secret, theirs.ArtifactID, hidden.Key, shown.ArtifactID, shown.Key} {
				if strings.Contains(err.Error(), told) && !bytes.Contains(input, []byte(told)) {
					t.Fatalf("%q: the error tells %s: %v", input, told, err)
				}
			}
			return
		}
		text := []byte(got.Args)
		for _, h := range got.Lazy {
			v, _, err := h.Value(t.Context())
			if err != nil {
				referenceTyped(t, err)
			}
			text = append(text, v...)
		}
		if bytes.Contains(text, []byte(secret)) {
			t.Fatalf("%q discloses %s", input, text)
		}
		if !jsontext.Value(got.Args).IsValid() {
			t.Fatalf("%q became %q", input, got.Args)
		}
	})
}

// FuzzField: what splits joins again, and leads where a slow walk leads.
func FuzzField(f *testing.F) {
	for _, s := range []string{"", "a", `a\.b.0`, `\\.`, "a..b", `x\`, "items.1.id", "items.01"} {
		f.Add(s, []byte(`{"a":{"":{"b":1}},"items":[{"id":1},{"id":[2]}],"a.b":["x"],"\\":{"":3}}`))
	}
	f.Fuzz(func(t *testing.T, field string, value []byte) {
		path, err := ref.ParseField(field)
		if err != nil {
			referenceTyped(t, err)
			return
		}
		if back := ref.JoinField(path...); back != field {
			t.Fatalf("%q: %q joins to %q", field, path, back)
		}
		tr := ref.NewMemory("")
		if _, err := tr.Append(t.Context(), ref.Entry{Parts: []ref.Part{{Value: value}}}); err != nil {
			referenceTyped(t, err)
			return
		}
		input := ref.Append(nil, ref.Message{Seq: new(uint64(1)), Field: field})
		got, err := ref.NewResolver(tr, nil, ref.Limits{}).Args(t.Context(), ref.ToolSpec{}, input)
		want, ok := fieldTwin(value, path)
		if (err == nil) != ok || err != nil && !errors.Is(err, ref.ErrNotFound) {
			t.Fatalf("%q in %s: %v; want %v", field, value, err, ok)
		}
		if err == nil && !sameJSON(got.Args, want) {
			t.Fatalf("%q in %s: %s, want %s", field, value, got.Args, want)
		}
	})
}

// fieldTwin walks down one name at a time, reading all of the value each time.
func fieldTwin(value json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, name := range path {
		var members map[string]json.RawMessage
		var elements []json.RawMessage
		if json.Unmarshal(value, &members) == nil && members != nil {
			v, ok := members[name]
			if !ok {
				return nil, false
			}
			value = v
			continue
		}
		i, err := strconv.Atoi(name)
		if json.Unmarshal(value, &elements) != nil || err != nil || strconv.Itoa(i) != name || i < 0 || i >= len(elements) {
			return nil, false
		}
		value = elements[i]
	}
	return value, true
}

// sameJSON compares without the spaces around and between tokens.
func sameJSON(a, b []byte) bool {
	x, y := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	return x.Compact() == nil && y.Compact() == nil && bytes.Equal(x, y)
}

// FuzzMarker: whatever a marker says, what a model reads of it is JSON of four members
// with an address that is written the same again, and nothing else of the marker; and
// the transcript gives the marker back as it was.
func FuzzMarker(f *testing.F) {
	f.Add("agent/a/b", int64(2214731), "application/json", uint64(42), "file")
	f.Add("k", int64(0), "text/plain\",\"x\":\"", uint64(1), `a\.b`)
	f.Fuzz(func(t *testing.T, key string, size int64, media string, seq uint64, name string) {
		m := ref.Marker{Key: key, ArtifactID: "art_" + strings.Repeat("q", 32), Size: size, MediaType: media}
		field := ref.JoinField(name)
		if _, err := ref.ParseField(field); err != nil || size < 0 || seq > 1<<53-1 || name == "" {
			return
		}
		text := m.ForModel(seq, 3, field).Append(nil)
		var view struct {
			Opaque *bool
			Value  json.RawMessage
			Size   *int64
			Format struct{ MediaType string }
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&view); err != nil || !*view.Opaque || *view.Size != size || len(view.Format.MediaType) > 64 {
			t.Fatalf("%s: %v", text, err)
		}
		inner, is, err := ref.Detect(view.Value)
		back, parseErr := ref.ParseModel(inner, ref.Limits{})
		if err != nil || !is || parseErr != nil || !bytes.Equal(ref.Append(nil, back), view.Value) {
			t.Fatalf("%s: %v, %v", view.Value, err, parseErr)
		}
		value, err := json.Marshal(map[string]any{name: nil})
		if err != nil {
			t.Fatal(err)
		}
		tr := ref.NewMemory("")
		if _, err := tr.Append(t.Context(), ref.Entry{Parts: []ref.Part{{Value: value, Slots: []ref.Slot{{Field: field, Marker: &m}}}}}); err != nil {
			referenceTyped(t, err)
			return
		}
		e, err := tr.Entry(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := *e.Parts[0].Slots[0].Marker; got != m {
			t.Fatalf("%+v, want %+v", got, m)
		}
	})
}

// FuzzTranscript: a transcript of any bytes is read or refused with a typed error, and
// what was read is read again.
func FuzzTranscript(f *testing.F) {
	head := `{"format":"leafproof transcript","version":1,"run":"r"}` + "\n"
	f.Add([]byte(head))
	f.Add([]byte(head + `{"seq":1,"turn":1,"chain":"00000000000000000000000000000000"}` + "\n"))
	f.Add([]byte(head + `{"seq":1,"tu`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tr, err := ref.ReadTranscript(bytes.NewReader(text))
		if err != nil {
			referenceTyped(t, err)
			return
		}
		for seq := uint64(1); seq <= tr.Len(); seq++ {
			e, err := tr.Entry(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range e.Parts {
				if _, err := p.View(seq, uint64(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
