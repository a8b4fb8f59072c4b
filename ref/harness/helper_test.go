package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// scene is a store, a harness and a run whose view is watched.
type scene struct {
	t     testing.TB
	dir   string
	store *leafproof.Store
	h     *harness.Harness
	run   *harness.Run

	mu   sync.Mutex
	view bytes.Buffer // all that crossed into the model's view
}

// setup says what is special about a scene.
type setup struct {
	tools   []harness.Tool
	opts    harness.Options
	run     harness.RunOptions
	store   *leafproof.Store
	wrapper func(ref.Source) ref.Source
}

const secretTenant = "acme-hidden"

func newScene(t testing.TB, s setup) *scene {
	t.Helper()
	sc := &scene{t: t, store: s.store}
	if sc.store == nil {
		sc.dir = filepath.Join(t.TempDir(), "store")
		if err := leafproof.Init(t.Context(), sc.dir); err != nil {
			t.Fatal(err)
		}
		var err error
		if sc.store, err = leafproof.Open(t.Context(), sc.dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sc.store.Close() })
	}
	s.opts.Store = sc.store
	h, err := harness.New(s.opts, s.tools...)
	if err != nil {
		t.Fatal(err)
	}
	sc.h = h
	sc.run = sc.begin(s)
	return sc
}

func (sc *scene) begin(s setup) *harness.Run {
	sc.t.Helper()
	o := s.run
	if o.Agent == "" {
		o.Agent = "agent/7 ../x"
	}
	if o.Run == "" {
		o.Run = "run-7"
	}
	if o.Tenant == "" {
		o.Tenant = secretTenant
	}
	if o.Caller.Principal == "" {
		o.Caller = leafproof.Owner
	}
	if s.wrapper != nil {
		src, err := sc.store.References(sc.t.Context(), o.Caller, leafproof.ReferenceOptions{Tenant: o.Tenant, Run: o.Run, Agent: o.Agent})
		if err != nil {
			sc.t.Fatal(err)
		}
		o.Source = s.wrapper(src)
	}
	o.Watch = func(c harness.Crossing) {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		sc.view.Write(c.Bytes)
		sc.view.WriteByte('\n')
	}
	run, err := sc.h.Begin(sc.t.Context(), o)
	if err != nil {
		sc.t.Fatal(err)
	}
	return run
}

// seen is all that crossed into the model's view.
func (sc *scene) seen() string {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.view.String()
}

// record records one result.
func (sc *scene) record(value any) harness.View {
	sc.t.Helper()
	views, err := sc.run.Record(sc.t.Context(), harness.Result{CallID: "c1", Tool: "export", Value: value})
	if err != nil {
		sc.t.Fatal(err)
	}
	return views[0]
}

// call makes a call; input may have %s for references.
func (sc *scene) call(tool, input string, refs ...any) harness.View {
	sc.t.Helper()
	v, err := sc.run.Call(sc.t.Context(), harness.Call{ID: "c", Tool: tool, Input: json.RawMessage(fmt.Sprintf(input, refs...))})
	if err != nil {
		sc.t.Fatalf("%s %s: %v", tool, input, err)
	}
	return v
}

// good is call, for one that must not fail.
func (sc *scene) good(tool, input string, refs ...any) harness.View {
	sc.t.Helper()
	v := sc.call(tool, input, refs...)
	if v.IsError {
		sc.t.Fatalf("%s %s: %s (%v)", tool, fmt.Sprintf(input, refs...), v.Content, v.Err)
	}
	if !v.DataOnly {
		sc.t.Errorf("%s: a result that does not say data_only", tool)
	}
	return v
}

// fails is call, for one that must fail with a code.
func (sc *scene) fails(code, tool, input string, refs ...any) failure {
	sc.t.Helper()
	v := sc.call(tool, input, refs...)
	f := failureOf(sc.t, v)
	if !v.IsError || f.Code != code {
		sc.t.Errorf("%s %s: %s (%v), want %s", tool, fmt.Sprintf(input, refs...), v.Content, v.Err, code)
	}
	return f
}

// failure is what a model reads of an error.
type failure struct {
	Code, Message, Action string
	Retryable             bool
	Gate                  *harness.Decision
	Kept                  *bool
	Answer                map[string]any
}

func failureOf(t testing.TB, v harness.View) failure {
	t.Helper()
	var body struct {
		Error    failure
		DataOnly bool `json:"data_only"`
	}
	if err := json.Unmarshal(v.Content, &body); err != nil {
		t.Fatalf("%s: %v", v.Content, err)
	}
	if v.IsError && !body.DataOnly {
		t.Errorf("an error that does not say data_only: %s", v.Content)
	}
	return body.Error
}

// member is a member of a result.
func member(t testing.TB, v harness.View, name string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(v.Content, &all); err != nil {
		t.Fatalf("%s: %v", v.Content, err)
	}
	return string(all[name])
}

// refTo is a reference to a field of a result.
func refTo(v harness.View, field string) string {
	return string(ref.Append(nil, ref.Message{Seq: &v.Seq, Part: v.Part, Field: field}))
}

func chars(p []byte) int { return len(utf16.Encode([]rune(string(p)))) }

func jsonBlob(doc []byte) harness.Blob {
	return harness.Blob{Reader: bytes.NewReader(doc), MediaType: "application/json"}
}

// echo is a tool that gives what it was called with to a function.
func echo(name string, got func(args json.RawMessage)) harness.Tool {
	return harness.Tool{
		Name: name, Description: "Takes rows.",
		Schema: json.RawMessage(`{"type":"object","properties":{"rows":{"type":"array"},"title":{"type":"string"}},"required":["rows"],"additionalProperties":false}`),
		Do: func(_ context.Context, in *harness.Input) (any, error) {
			got(in.Args)
			return map[string]any{"ok": true}, nil
		},
	}
}

// counting counts what is asked of a source.
type counting struct {
	ref.Source
	mu                          sync.Mutex
	stats, reads, queries, puts int
	put                         func(io.Reader) (ref.Marker, error) // in place of the source's
}

func (c *counting) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *counting) Stat(ctx context.Context, key string) (ref.Info, error) {
	c.count(&c.stats)
	return c.Source.Stat(ctx, key)
}

func (c *counting) Read(ctx context.Context, id string, what ref.Selection, w io.Writer) (*selectorAnswer, error) {
	c.count(&c.reads)
	return c.Source.Read(ctx, id, what, w)
}

func (c *counting) Query(ctx context.Context, id string, q ref.Query, emit func(ref.Row) error) (*selectorAnswer, error) {
	c.count(&c.queries)
	return c.Source.Query(ctx, id, q, emit)
}

func (c *counting) Put(ctx context.Context, what ref.New, r io.Reader) (ref.Marker, error) {
	c.count(&c.puts)
	if c.put != nil {
		return c.put(r)
	}
	return c.Source.Put(ctx, what, r)
}

// lines are n records of which every third is open.
func lines(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"status":%q,"n":13911860366432393}`+"\n", i, []string{"open", "shut", "shut"}[i%3])
	}
	return []byte(b.String())
}

// testTime is a moment of the past.
var testTime = time.Date(2026, 11, 6, 4, 10, 0, 0, time.UTC)

// big reports whether tests may take minutes and gigabytes.
func big() bool { return os.Getenv("LEAFPROOF_BIG") != "" }
