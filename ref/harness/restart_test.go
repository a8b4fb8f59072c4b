package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/refdemo"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// Cases 12 and 15: a run goes on after a restart: what was shown means what it meant,
// with what of it was admitted, and the tools are declared in the same bytes.
func TestRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	open := func() *ref.File {
		f, err := ref.OpenTranscript(dir, "run-7")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	declared := func(r *harness.Run) string {
		list, err := r.Declare()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(list)
		return string(text) + r.Protocol()
	}
	ran := 0
	tool := restart(&ran, harness.Evidence{Require: fact("admission=complete", "scan=complete")})
	log := open()
	sc := newScene(t, setup{tools: []harness.Tool{tool}, run: harness.RunOptions{Transcript: log}})
	before := declared(sc.run)
	capture := sc.record(events(facts(time.Now(), twoRegions)))
	found := sc.good("query_json", `{"source":%s,"where":"@.status == \"open\""}`, refTo(capture, ""))
	sc.good("restart", `{"events":%s}`, refTo(found, "value"))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = open()
	defer log.Close()
	again := newScene(t, setup{store: sc.store, tools: []harness.Tool{tool}, run: harness.RunOptions{Transcript: log}})
	if declared(again.run) != before {
		t.Error("the tools are declared in other bytes after a restart")
	}
	again.good("restart", `{"events":%s}`, refTo(found, "value"))
	if v := again.record("more"); v.Seq <= found.Seq+1 {
		t.Errorf("seq %d after %d", v.Seq, found.Seq)
	}
	// Another run sees nothing of it.
	other := newScene(t, setup{store: sc.store, tools: []harness.Tool{tool}, run: harness.RunOptions{Run: "run-8"}})
	other.fails("ref_not_found", "restart", `{"events":%s}`, refTo(found, "value"))
	if ran != 2 {
		t.Errorf("the tool ran %d times", ran)
	}
}

// Case 13: a lazy parameter gets a handle, and no byte is read before the tool asks.
func TestLazyParameter(t *testing.T) {
	var c *counting
	before, got := -1, ""
	sc := newScene(t, setup{
		wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s}; return c },
		tools: []harness.Tool{{
			Name: "lazily", Description: "Reads when it wants to.", Lazy: []string{"doc"},
			Schema: json.RawMessage(`{"type":"object","properties":{"doc":{"type":"string"}},"required":["doc"],"additionalProperties":false}`),
			Do: func(ctx context.Context, in *harness.Input) (any, error) {
				before = c.reads + c.queries
				var out bytes.Buffer
				_, err := in.Lazy["doc"].Read(ctx, ref.Selection{}, &out)
				got = out.String()
				return nil, err
			},
		}},
	})
	v := sc.record(harness.Blob{Reader: strings.NewReader("the text")})
	sc.good("lazily", `{"doc":%s}`, refTo(v, ""))
	if before != 0 || got != "the text" || c.reads != 1 {
		t.Errorf("%d reads before the tool asked, %q then, %d in all", before, got, c.reads)
	}
	// Also where rows have to be there first, in which something is looked for.
	doc := sc.record(jsonBlob([]byte(`{"items":[{"a":1},{"a":2}]}`)))
	rows := sc.good("query_json", `{"source":%s,"path":"/items","where":"@.a > 1"}`, refTo(doc, ""))
	row := sc.good("read_json", `{"source":%s,"path":"/0/a"}`, refTo(rows, "value"))
	asked := c.reads + c.queries
	sc.good("lazily", `{"doc":%s}`, refTo(row, "value"))
	if before != asked || got != "2" || c.reads+c.queries == asked {
		t.Errorf("%d reads before the tool asked, %q then", before-asked, got)
	}
}

// Case 9: the whole input can be a reference.
func TestWholeInput(t *testing.T) {
	var got json.RawMessage
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) { got = args })}})
	v := sc.record(jsonBlob([]byte(`{"rows":[1,2],"title":"t"}`)))
	sc.good("generate", "%s", refTo(v, ""))
	if string(got) != `{"rows":[1,2],"title":"t"}` {
		t.Errorf("%s", got)
	}
	bad := sc.record(jsonBlob([]byte(`{"rows":7}`)))
	sc.fails("ref_type_mismatch", "generate", "%s", refTo(bad, ""))
}

// Case 40: what a model was shown is in the artifact's inventory, with how far a
// revocation has reached, beside exports, excerpts and what the harness's host registers.
func TestPreviewsAreCopies(t *testing.T) {
	sc := newScene(t, setup{run: harness.RunOptions{Caller: leafproof.Caller{Principal: "agent-1"}}})
	grants := granted(t, sc, "agent-1")
	v := sc.record(events(nil))
	id := newest(t, sc)
	for range 2 { // one transcript is one copy
		if got := sc.good("query_json", `{"source":%s}`, refTo(v, "")); got.Err != nil {
			t.Error(got.Err)
		}
	}
	sc.good("read_text", `{"source":%s}`, refTo(v, ""))
	who := leafproof.Caller{Principal: "agent-1"}
	if _, err := sc.store.Read(t.Context(), who, id, leafproof.Selector{Receipt: new(leafproof.Statement)}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := sc.store.RegisterCopy(t.Context(), who, leafproof.Copy{ArtifactID: id, Kind: leafproof.CopySummary, Where: "notes"}); err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		if err := sc.store.Revoke(t.Context(), leafproof.Owner, g); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := sc.store.Copies(t.Context(), leafproof.Owner, id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Kind+" "+c.Propagation)
	}
	if want := "preview pending, excerpt out_of_control, summary pending"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// A run's steps may be taken from many goroutines.
func TestConcurrentSteps(t *testing.T) {
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(json.RawMessage) {})}})
	v := sc.record(jsonBlob(refdemo.Export(60, 1)))
	var wait sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{}
	for i := range 8 {
		wait.Go(func() {
			got, err := sc.run.Call(t.Context(), harness.Call{Tool: []string{"query_json", "stat"}[i%2], Input: json.RawMessage(fmt.Sprintf(
				`{"source":%s%s}`, refTo(v, ""), []string{`,"path":"/items"`, ""}[i%2]))})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || got.IsError || seen[got.Seq] {
				t.Errorf("%s, %v, %v", got.Content, got.Err, err)
			}
			seen[got.Seq] = true
		})
	}
	wait.Wait()
}

func BenchmarkResolveRecipe(b *testing.B) {
	sc := newScene(b, setup{tools: []harness.Tool{echo("generate", func(json.RawMessage) {})}})
	export := sc.record(harness.Blob{
		Reader: bytes.NewReader(refdemo.Export(refdemo.Rows, 1)), Facts: json.RawMessage(`{"records":{"format":"json","pointer":"/items"}}`),
	})
	found := sc.good("query_json", `{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, refTo(export, ""))
	call := harness.Call{Tool: "generate", Input: json.RawMessage(`{"rows":` + refTo(found, "value") + `}`)}
	for b.Loop() {
		if _, err := sc.run.Resolve(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
