package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// A harness in 40 lines: two tools, and the two calls that a model makes. The rows go
// from one to the other, and the model passes on their address.
func Example() {
	ctx := context.Background()
	tmp, err := os.MkdirTemp("", "leafproof-example-*")
	check(err)
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "store")
	check(leafproof.Init(ctx, dir)) // once
	store, err := leafproof.Open(ctx, dir)
	check(err)
	defer store.Close()

	list := harness.Tool{
		Name: "list_tickets", Description: "Lists all tickets.", Schema: json.RawMessage(`{"type":"object","properties":{}}`),
		Do: func(context.Context, *harness.Input) (any, error) {
			tickets := strings.NewReader(`[{"id":1,"status":"open"},{"id":2,"status":"shut"},{"id":3,"status":"open"}]`)
			return harness.Blob{Reader: tickets, MediaType: "application/json"}, nil
		},
	}
	mail := harness.Tool{
		Name: "mail", Description: "Mails rows to somebody.",
		Schema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"rows":{"type":"array"}},"required":["to","rows"]}`),
		Do: func(_ context.Context, in *harness.Input) (any, error) {
			fmt.Printf("the tool receives %s\n", in.Args)
			return map[string]bool{"sent": true}, nil
		},
	}
	h, err := harness.New(harness.Options{Store: store}, list, mail)
	check(err)
	run, err := h.Begin(ctx, harness.RunOptions{Agent: "clerk", Caller: leafproof.Owner, Profile: ref.ProfileAnthropic})
	check(err)
	tools, err := run.Declare() // goes to the provider as it is, and run.Protocol() into the system prompt
	check(err)
	fmt.Printf("%d tools\n", len(tools))

	for _, call := range []harness.Call{ // what the model says
		{ID: "1", Tool: "list_tickets", Input: json.RawMessage(`{}`)},
		{ID: "2", Tool: "query_json", Input: json.RawMessage(`{"source":{"$ref":{"type":"Message","seq":1,"part":0}},"where":"@.status == \"open\""}`)},
		{ID: "3", Tool: "mail", Input: json.RawMessage(`{"to":"ada","rows":{"$ref":{"type":"Message","seq":2,"part":0,"field":"value"}}}`)},
	} {
		view, err := run.Call(ctx, call)
		check(err)
		fmt.Printf("the model reads %.122s\n", view.Content) // the result of the call
	}

	// Output:
	// 7 tools
	// the model reads {"opaque":true,"value":{"$ref":{"type":"Message","seq":1,"part":0}},"size":76,"format":{"mediaType":"application/json"}}
	// the model reads {"data_only":true,"answer":{"capture":"unknown","where":"@.status == \"open\"","order":"document","examined":3,"undecidabl
	// the tool receives {"to":"ada","rows":[{"id":1,"status":"open"},{"id":3,"status":"open"}]}
	// the model reads {"sent":true}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
