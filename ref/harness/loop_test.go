package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/refdemo"
	"leafproof/ref/harness"
)

// Case 4: over a full run, with failures in it, nothing of the store's own crosses.
func TestNothingOfTheStoreCrosses(t *testing.T) {
	sc := newScene(t, setup{
		tools: []harness.Tool{echo("generate", func(json.RawMessage) {}), {
			Name: "boom", Description: "Fails.", Schema: json.RawMessage(`{"type":"object"}`),
			Do: func(context.Context, *harness.Input) (any, error) { return nil, errors.New("open /secret/path: no") },
		}},
		run: harness.RunOptions{Agent: "agent-hidden"},
	})
	doc := refdemo.Export(500, 3)
	var id string
	model := script{
		func(turn harness.Turn) harness.Reply {
			return harness.Reply{Text: "I ask for the export.", Calls: []harness.Call{{Tool: "boom", Input: json.RawMessage(`{}`)}}}
		},
		func(turn harness.Turn) harness.Reply {
			v := sc.record(jsonBlob(doc))
			if err := sc.store.Delete(t.Context(), leafproof.Owner, newest(t, sc), "x"); err != nil {
				t.Error(err)
			}
			w := sc.record(jsonBlob(doc))
			id = newest(t, sc)
			return harness.Reply{Calls: []harness.Call{
				{Tool: "read_json", Input: json.RawMessage(fmt.Sprintf(`{"source":%s}`, refTo(v, "")))},
				{Tool: "read_json", Input: json.RawMessage(fmt.Sprintf(`{"source":%s}`, refTo(w, "")))},
				{Tool: "stat", Input: json.RawMessage(fmt.Sprintf(`{"source":%s}`, refTo(w, "")))},
				{Tool: "read_text", Input: json.RawMessage(fmt.Sprintf(`{"source":%s,"offset":40}`, refTo(w, "")))},
				{Tool: "read_records", Input: json.RawMessage(fmt.Sprintf(`{"source":%s,"first":3}`, refTo(w, "")))},
				{Tool: "query_json", Input: json.RawMessage(fmt.Sprintf(`{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, refTo(w, "")))},
				{Tool: "read_json", Input: json.RawMessage(fmt.Sprintf(`{"source":%s,"path":"/nothing"}`, refTo(w, "")))},
				{Tool: "generate", Input: json.RawMessage(`{"rows":{"$ref":{"type":"Blob","source":{"type":"Message","seq":77,"part":0}}}}`)},
				{Tool: "generate", Input: json.RawMessage(`{"rows":{"$ref":{"type":"JsonQuery"}}}`)},
			}}
		},
		func(turn harness.Turn) harness.Reply {
			bad := 0
			for _, v := range turn.Messages {
				if v.IsError {
					bad++
				}
			}
			if bad != 5 { // the first, read_records (which has none), and the last three
				t.Errorf("%d of the calls failed", bad)
			}
			rows := member(t, turn.Messages[5], "value")
			return harness.Reply{Calls: []harness.Call{{Tool: "generate", Input: json.RawMessage(`{"rows":` + rows + `}`)}}}
		},
		func(turn harness.Turn) harness.Reply {
			if turn.Messages[0].IsError {
				t.Errorf("%s", turn.Messages[0].Content)
			}
			return harness.Reply{Text: "Done."}
		},
	}
	if text, err := sc.run.Loop(t.Context(), &model, "A status report, please.", 10); err != nil || text != "Done." {
		t.Fatalf("%q, %v", text, err)
	}
	st, err := sc.store.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	// What the model wrote itself is not in what crosses to it.
	for name, secret := range map[string]string{
		"key": "agent/", "agent": "agent-hidden", "id": id, "digest": strings.TrimPrefix(st.Ref.ContentHash, "blake3:"), "tenant": secretTenant,
		"folder": sc.dir, "pointer recipe": "JsonPointer", "query recipe": "JsonQuery", "manifest": st.ManifestID, "a tool's path": "/secret/path", "an id": "art_",
	} {
		if secret == "" || strings.Contains(sc.seen(), secret) {
			t.Errorf("the %s %q is in the model's view", name, secret)
		}
	}
	if len(sc.seen()) < 10_000 {
		t.Errorf("only %d bytes crossed: what was watched?", len(sc.seen()))
	}
}

// script is a model that says what it was told to.
type script []func(harness.Turn) harness.Reply

func (s *script) Next(_ context.Context, turn harness.Turn) (harness.Reply, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	return next(turn), nil
}
