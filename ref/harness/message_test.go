package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// What no transcript can keep is an error of its own result: the other results of the
// message are recorded, and the run goes on.
func TestOneResultSpoilsNoOther(t *testing.T) {
	sc := newScene(t, setup{})
	doc := sc.record(jsonBlob([]byte(`[{"a":1}]`)))
	deep := ref.Ref(ref.Message{Seq: &doc.Seq})
	for range 12 {
		deep = ref.Blob{Source: deep}
	}
	open := &closing{Reader: strings.NewReader("x")}
	// As long as an expression may be, and longer as a part of a recipe.
	long := `"@.a == '` + strings.Repeat(`\"`, 60_000) + `'"`
	for name, value := range map[string]any{
		"a recipe too deep": harness.Recipe{Ref: deep},
		"no recipe":         harness.Recipe{},
		"no place":          harness.Raw{JSON: json.RawMessage(`{"a":1}`), Blobs: map[string]harness.Blob{"/b": {Reader: open}}},
		"two meet":          harness.Raw{JSON: json.RawMessage(`{"a":{"b":1}}`), Blobs: map[string]harness.Blob{"/a": {Reader: strings.NewReader("x")}, "/a/b": {Reader: strings.NewReader("y")}}},
		"a name twice":      json.RawMessage(`{"a":1,"\u0061":2}`),
		"no UTF-8":          json.RawMessage("\"\xff\""),
	} {
		views, err := sc.run.Record(t.Context(), harness.Result{Tool: "bad", Value: value}, harness.Result{Tool: "good", Value: 1})
		if err != nil || !views[0].IsError || views[1].IsError || string(views[1].Content) != "1" || views[0].Seq != views[1].Seq {
			t.Errorf("%s: %+v, %v", name, views, err)
		}
	}
	if open.closed != 1 {
		t.Errorf("a blob that could not be stored was closed %d times", open.closed)
	}
	views, err := sc.run.Calls(t.Context(), []harness.Call{
		{Tool: "query_json", Input: json.RawMessage(`{"source":` + refTo(doc, "") + `,"where":` + long + `}`)},
		{Tool: "read_json", Input: json.RawMessage(`{"source":` + refTo(doc, "") + `}`)},
	})
	if err != nil || views[1].IsError {
		t.Fatalf("%+v, %v", views, err)
	}
	if f := failureOf(t, views[0]); f.Code != "selector_invalid" || f.Action != "fix_call" {
		t.Errorf("%+v", f)
	}
}

// Blobs beyond what a part can have are refused before they are stored.
func TestManyBlobs(t *testing.T) {
	n := 0
	sc := newScene(t, setup{wrapper: func(s ref.Source) ref.Source {
		return &counting{Source: s, put: func(io.Reader) (ref.Marker, error) {
			n++
			return ref.Marker{Key: "agent/a/b", ArtifactID: "art_" + strings.Repeat("a", 32)}, nil
		}}
	}})
	list := make([]harness.Blob, ref.MaxSlots+1)
	for i := range list {
		list[i].Reader = strings.NewReader("x")
	}
	v := sc.record(list)
	if f := failureOf(t, v); f.Code != "too_large" || n != ref.MaxSlots {
		t.Errorf("%d stored: %s", n, v.Content)
	}
	for i := range list {
		list[i].Reader = strings.NewReader("x")
	}
	if v := sc.record(list[1:]); v.IsError {
		t.Errorf("%s", v.Content)
	}
}

// Case 51: more calls in one message than a message of the transcript has parts for.
func TestManyCalls(t *testing.T) {
	sc := newScene(t, setup{})
	calls := make([]harness.Call, ref.MaxParts+100)
	for i := range calls {
		calls[i] = harness.Call{Tool: "none", Input: json.RawMessage(`{}`)}
	}
	views, err := sc.run.Calls(t.Context(), calls)
	if err != nil || len(views) != len(calls) {
		t.Fatalf("%d views, %v", len(views), err)
	}
	seen := map[string]bool{}
	for _, v := range views {
		seen[refTo(v, "")] = true
	}
	first, err := sc.run.Resolve(t.Context(), harness.Call{Tool: "stat", Input: json.RawMessage(`{"source":` + refTo(views[len(views)-1], "") + `}`)})
	if len(seen) != len(calls) || err != nil || first == nil {
		t.Errorf("%d references, %v", len(seen), err)
	}
}

// A tool that panics while it acquires anew has failed; the run goes on.
func TestPanicWhileRecovering(t *testing.T) {
	tool := harness.Tool{
		Name: "export", Schema: json.RawMessage(`{"type":"object"}`),
		Do: func(context.Context, *harness.Input) (any, error) {
			return harness.Blob{Reader: strings.NewReader("{}\n"), Records: "ndjson", Facts: facts(testTime, partial)}, nil
		},
		Refetch: func(context.Context, harness.Earlier) (any, error) { panic("refetch") },
		Resume:  func(context.Context, harness.Earlier) (harness.Blob, error) { panic("resume") },
	}
	sc := newScene(t, setup{tools: []harness.Tool{tool}, run: harness.RunOptions{Recovery: leafproof.BudgetLimits{Attempts: 2, Time: 1 << 40, Bytes: 1 << 20}}})
	v := sc.good("export", `{}`)
	got, err := sc.run.Refetch(t.Context(), message(v, ""), harness.Evidence{Require: fact("capture=complete")})
	if err != nil || !got.IsError || strings.Contains(string(got.Content), "refetch\"") {
		t.Errorf("%s, %v", got.Content, err)
	}
	if _, err := sc.run.Resume(t.Context(), message(v, "")); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("%v", err)
	}
}

// A hidden part that a harness wrote itself is no admission, and no trouble.
func TestHiddenPartsOfOthers(t *testing.T) {
	log := ref.NewMemory("run-7")
	var got json.RawMessage
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) { got = args })}, run: harness.RunOptions{Transcript: log}})
	for _, hidden := range []string{`"a secret"`, `{"admissions":"none"}`, `{"other":1}`, `[1]`} {
		seq, err := log.Append(t.Context(), ref.Entry{Parts: []ref.Part{{Value: json.RawMessage(`{"value":[1]}`)}, {Value: json.RawMessage(hidden), Hidden: true}}})
		if err != nil {
			t.Fatal(err)
		}
		sc.good("generate", `{"rows":%s}`, string(ref.Append(nil, ref.Message{Seq: &seq, Field: "value"})))
		if string(got) != `{"rows":[1]}` {
			t.Errorf("%s", got)
		}
	}
}

// A transcript is of one run: another run does not go on with it.
func TestTranscriptOfAnotherRun(t *testing.T) {
	sc := newScene(t, setup{})
	o := harness.RunOptions{Agent: "a", Caller: leafproof.Owner, Transcript: ref.NewMemory("run-9")}
	run, err := sc.h.Begin(t.Context(), o)
	if err != nil || run.ID() != "run-9" {
		t.Errorf("%v, %v", run, err)
	}
	o.Run = "run-8"
	if _, err := sc.h.Begin(t.Context(), o); err == nil || !strings.Contains(err.Error(), "run-9") {
		t.Errorf("begun on the transcript of another: %v", err)
	}
	o.Transcript, o.Run = nil, "../run 8"
	var wire *leafproof.Error
	if _, err := sc.h.Begin(t.Context(), o); !errors.As(err, &wire) || wire.Code != leafproof.CodeSelectorInvalid {
		t.Errorf("a run that no manifest can name: %v", err)
	}
}
