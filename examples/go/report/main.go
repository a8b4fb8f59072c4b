// Command report is a harness in Go over HTTP: an export of some megabytes is filtered and
// handed to a tool that makes a report, and the model reads markers and a preview.
//
//	leafproof demo refs -o items.json    # an export
//	leafproof serve --ephemeral          # prints the socket and a token
//	LEAFPROOF_URL=unix:/… LEAFPROOF_TOKEN=lpt_… go run ./examples/go/report items.json report.json
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"leafproof/client"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./examples/go/report ITEMS.json REPORT.json")
		os.Exit(64)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, items, report string) error {
	c, err := client.New(os.Getenv("LEAFPROOF_URL"), client.Options{Token: os.Getenv("LEAFPROOF_TOKEN")})
	if err != nil {
		return err
	}
	defer c.Close()
	export := client.Tool{
		Name: "export_items", Description: "Export all work items of the project.", Schema: json.RawMessage(`{"type":"object","properties":{}}`),
		Do: func(context.Context, *client.Input) (any, error) {
			f, err := os.Open(items)
			return client.Blob{Reader: f, MediaType: "application/json"}, err
		},
	}
	generate := client.Tool{
		Name: "generate_report", Description: "Make a report of rows.",
		Schema: json.RawMessage(`{"type":"object","properties":{"title":{"type":"string"},"rows":{"type":"array"}},"required":["title","rows"]}`),
		Do: func(_ context.Context, in *client.Input) (any, error) {
			return map[string]string{"written": report}, os.WriteFile(report, in.Args, 0o600)
		},
	}
	r, err := c.Begin(ctx, client.RunOptions{Agent: "reporter"}, export, generate)
	if err != nil {
		return err
	}
	// r.Protocol goes into the system prompt and r.Shown to the model, which stands here as
	// what it would write: it has read the markers alone.
	var read struct {
		Value   json.RawMessage `json:"value"`
		Matched int             `json:"matched"`
	}
	for i, write := range []func() (tool, input string){
		func() (string, string) { return "export_items", `{}` },
		func() (string, string) {
			return "query_json", fmt.Sprintf(`{"source":%s,"path":"/items","filter":{"field":"/status","equals":"open"}}`, read.Value)
		},
		func() (string, string) {
			return "generate_report", fmt.Sprintf(`{"title":"Status report: %d open items","rows":%s}`, read.Matched, read.Value)
		},
	} {
		tool, input := write()
		v, err := r.Call(ctx, fmt.Sprintf("call-%d", i), tool, json.RawMessage(input))
		if err != nil {
			return err
		}
		fmt.Printf("%s reads %.120s\n", tool, v.Content)
		if v.IsError {
			return fmt.Errorf("%s: %s", tool, v.Content)
		}
		if err := json.Unmarshal(v.Content, &read); err != nil {
			return err
		}
	}
	return nil
}
