package refdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"leafproof"
	"leafproof/ref/harness"
)

// Options say how the story goes.
type Options struct {
	Rows int
	Seed uint64
	// Tool is the name of the tool that makes the report, and Report makes it of the
	// rows, as they stand in the document.
	Tool   string
	Report func(ctx context.Context, title string, rows []json.RawMessage) (harness.Blob, error)
}

// Told is what happened.
type Told struct {
	Document  []byte
	View      []byte            // all that was serialised for the model
	Wrote     []string          // the inputs of the model's calls
	Results   []harness.View    // what the model read of them
	Rows      []json.RawMessage // what the report's tool was given
	Text      string            // what the model said in the end
	Reference string            // the reference to the report
	Run       *harness.Run
}

// Shown counts the document's items that are in the model's view, as they stand.
func (t *Told) Shown() (n int) {
	var doc struct{ Items []json.RawMessage }
	if json.Unmarshal(t.Document, &doc) != nil {
		return -1
	}
	for _, item := range doc.Items {
		if bytes.Contains(t.View, item) {
			n++
		}
	}
	return n
}

// Tell plays the status report through on a store: a user asks for the open items of a
// project as a report.
func Tell(ctx context.Context, s *leafproof.Store, o Options) (*Told, error) {
	t := &Told{Document: Export(o.Rows, o.Seed)}
	export := harness.Tool{
		Name: "export_items", Description: "Exports the project's work items.",
		Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Do: func(context.Context, *harness.Input) (any, error) {
			return harness.Blob{
				Reader: bytes.NewReader(t.Document), MediaType: "application/json",
				Facts: json.RawMessage(`{"records":{"format":"json","pointer":"/items"},"artifact_ref":{"source_version":{"source_id":"tracker.items"},"completeness":{"coverage":{"project":"Northwind"}}}}`),
			}, nil
		},
	}
	report := harness.Tool{
		Name: o.Tool, Description: "Makes a report of rows.",
		Schema: json.RawMessage(`{"type":"object","properties":{"title":{"type":"string"},"rows":{"type":"array"}},"required":["title","rows"],"additionalProperties":false}`),
		Do: func(ctx context.Context, in *harness.Input) (any, error) {
			var args struct {
				Title string            `json:"title"`
				Rows  []json.RawMessage `json:"rows"`
			}
			if err := json.Unmarshal(in.Args, &args); err != nil {
				return nil, err
			}
			t.Rows = args.Rows
			return o.Report(ctx, args.Title, args.Rows)
		},
	}
	h, err := harness.New(harness.Options{Store: s}, export, report)
	if err != nil {
		return nil, err
	}
	t.Run, err = h.Begin(ctx, harness.RunOptions{Agent: "reporter", Caller: leafproof.Owner, Watch: func(c harness.Crossing) {
		t.View = append(append(t.View, c.Bytes...), '\n')
	}})
	if err != nil {
		return nil, err
	}
	t.Text, err = t.Run.Loop(ctx, &scripted{told: t, tool: o.Tool}, "Please write a status report of the open items.", 8)
	return t, err
}

// scripted is a model that does what the story needs, with what it reads alone.
type scripted struct {
	told *Told
	tool string
	step int
}

// Next implements [harness.Model].
func (m *scripted) Next(_ context.Context, turn harness.Turn) (harness.Reply, error) {
	m.step++
	if m.step == 1 {
		return m.call("export_items", `{}`)
	}
	last := turn.Messages[0]
	m.told.Results = append(m.told.Results, last)
	if last.IsError {
		return harness.Reply{}, fmt.Errorf("%s: %w", last.Content, last.Err)
	}
	var read struct {
		Value   json.RawMessage `json:"value"`
		Matched int64           `json:"matched"`
	}
	if err := json.Unmarshal(last.Content, &read); err != nil {
		return harness.Reply{}, err
	}
	switch m.step {
	case 2:
		return m.call("query_json", fmt.Sprintf(`{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, read.Value))
	case 3:
		return m.call(m.tool, fmt.Sprintf(`{"title":"Status report: %d open items","rows":%s}`, read.Matched, read.Value))
	}
	m.told.Reference = string(read.Value)
	return harness.Reply{Text: "The report is done."}, nil
}

func (m *scripted) call(tool, input string) (harness.Reply, error) {
	m.told.Wrote = append(m.told.Wrote, input)
	return harness.Reply{Calls: []harness.Call{{ID: fmt.Sprint("call_", m.step), Tool: tool, Input: json.RawMessage(input)}}}, nil
}
