package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"leafproof/client"
	"leafproof/internal/httpapi"
)

// A harness over the client: a result of bytes is read by reference, by a tool of the
// server, by one that gets the value and by one that reads it lazily.
func TestRun(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := []byte(`{"items":[{"id":1,"s":"open"},{"id":2,"s":"shut"},{"id":3,"s":"open"}]}`)
	schema := json.RawMessage(`{"type":"object","properties":{"rows":{"type":"array"}},"required":["rows"]}`)
	var args []byte
	tools := []client.Tool{
		{Name: "export", Schema: json.RawMessage(`{"type":"object","properties":{}}`), Do: func(context.Context, *client.Input) (any, error) {
			return client.Blob{Reader: bytes.NewReader(data), MediaType: "application/json"}, nil
		}},
		{Name: "count", Schema: schema, Do: func(_ context.Context, in *client.Input) (any, error) {
			args = in.Args
			return map[string]int{"n": bytes.Count(in.Args, []byte("id"))}, nil
		}},
		{Name: "length", Schema: json.RawMessage(`{"type":"object","properties":{"file":{"type":"string"}},"required":["file"]}`), Lazy: []string{"file"}, Do: func(ctx context.Context, in *client.Input) (any, error) {
			r, err := in.Open(ctx, "file")
			if err != nil {
				return nil, err
			}
			defer r.Close()
			b, err := io.ReadAll(r)
			return len(b), err
		}},
		{Name: "fails", Schema: json.RawMessage(`{"type":"object","properties":{}}`), Do: func(context.Context, *client.Input) (any, error) {
			return nil, errors.New("the printer is on fire")
		}},
	}
	r, err := w.client(w.alice).Begin(t.Context(), client.RunOptions{Agent: "a"}, tools...)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Shown) != 9 || r.Protocol == "" {
		t.Errorf("%d tools", len(r.Shown))
	}
	call := func(tool, input string, isError bool) map[string]any {
		t.Helper()
		v, err := r.Call(t.Context(), "c", tool, json.RawMessage(input))
		if err != nil || v.IsError != isError {
			t.Fatalf("%s: %s, %v", tool, v.Content, err)
		}
		out := map[string]any{}
		if err := json.Unmarshal(v.Content, &out); err != nil {
			out["value"] = string(v.Content)
		}
		return out
	}
	marker := string(mustJSON(t, call("export", `{}`, false)["value"]))
	found := call("query_json", fmt.Sprintf(`{"source":%s,"path":"/items","filter":{"field":"/s","equals":"open"}}`, marker), false)
	if n := call("count", fmt.Sprintf(`{"rows":%s}`, mustJSON(t, found["value"])), false)["n"]; n != 2.0 || string(args) != `{"rows":[{"id":1,"s":"open"},{"id":3,"s":"open"}]}` {
		t.Errorf("%v of %s", n, args)
	}
	if n := call("length", fmt.Sprintf(`{"file":%s}`, marker), false)["value"]; n != fmt.Sprint(len(data)) {
		t.Errorf("the lazy one read %v bytes", n)
	}
	if said := string(mustJSON(t, call("fails", `{}`, true))); !strings.Contains(said, "on fire") {
		t.Errorf("a tool that fails: %s", said)
	}
	args = nil
	for input, code := range map[string]string{
		`{"rows":{"$ref":{"type":"Message","seq":99,"part":0}}}`: "ref_not_found",
		`{"rows":"{\"$ref\":{\"type\":\"Message\"}}"}`:           "ref_stringified",
		`{"rows":{"$ref":{"seq":1,"part":0}}}`:                   "ref_legacy_shape",
	} {
		if said := string(mustJSON(t, call("count", input, true))); !strings.Contains(said, code) || args != nil {
			t.Errorf("%s: %s", input, said)
		}
	}
	again, err := w.client(w.alice).Resume(t.Context(), r.ID, tools...)
	if err != nil {
		t.Fatal(err)
	}
	r = again
	call("length", fmt.Sprintf(`{"file":%s}`, marker), false)
	if _, err := w.client(w.bob).Resume(t.Context(), r.ID); code(err) != "ref_not_found" {
		t.Errorf("another's run: %v", err)
	}
	if v, err := r.Message(t.Context(), "user", "thanks"); err != nil || v.Seq == 0 {
		t.Errorf("%+v, %v", v, err)
	}
}
