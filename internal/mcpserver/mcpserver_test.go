package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
	"leafproof/internal/mcpserver"
)

func newStore(t testing.TB) *leafproof.Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *leafproof.Store, data string, o leafproof.PutOptions, f leafproof.Facts) string {
	t.Helper()
	d, err := s.Put(t.Context(), strings.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(t.Context(), d, f)
	if err != nil {
		t.Fatal(err)
	}
	return ref.ArtifactID
}

// connect returns a client of a server that acts for who.
func connect(t testing.TB, s *leafproof.Store, who mcpserver.Identity) *mcp.ClientSession {
	t.Helper()
	a, b := mcp.NewInMemoryTransports()
	ss, err := mcpserver.New(s, who, mcpserver.Options{}).Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return cs
}

var owner = mcpserver.Identity{Caller: leafproof.Owner}

// object is a JSON object as a client has it, with numbers as they are written.
type object = map[string]any

// call calls a tool with arguments in JSON, and returns its structured content. It
// demands what every answer is.
func call(t testing.TB, cs *mcp.ClientSession, tool, args string) (object, bool) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("%s %.200s: %v", tool, args, err)
	}
	out := parse(t, structured(t, res))
	if out["data_only"] != true {
		t.Errorf("%s: no data_only in %v", tool, out)
	}
	return out, res.IsError
}

// structured is the structured content, which must be the text too.
func structured(t testing.TB, res *mcp.CallToolResult) string {
	t.Helper()
	b, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	text := res.Content[0].(*mcp.TextContent).Text
	var a, c any
	if json.Unmarshal(b, &a) != nil || json.Unmarshal([]byte(text), &c) != nil {
		t.Fatalf("the text is no JSON: %.200s", text)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(c)
	if !bytes.Equal(x, y) {
		t.Errorf("the structured content is %.300s, the text %.300s", x, y)
	}
	return text
}

func parse(t testing.TB, text string) object {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var out object
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return out
}

func TestPutStatRead(t *testing.T) {
	cs := connect(t, newStore(t), owner)
	made, failed := call(t, cs, "artifact_put", `{"content":"{\"items\":[1,13911860366432393,3]}","media_type":"application/json","at":"/items","source_id":"infra","coverage":{"region":"eu"},"expires_in_seconds":3600}`)
	if failed {
		t.Fatal(made)
	}
	id := made["artifact_id"].(string)
	ref, _ := json.Marshal(made["reference"])
	if string(ref) != `{"$ref":{"key":"`+id+`","type":"Blob"}}` {
		t.Errorf("the reference is %s", ref)
	}
	st, _ := call(t, cs, "artifact_stat", `{"artifact_id":`+string(ref)+`}`)
	format := st["format"].(object)
	if format["mediaType"] != "application/json" || format["records"].(object)["count"] != json.Number("3") || st["size"] != json.Number("33") {
		t.Errorf("stat says %v", st)
	}
	page, _ := call(t, cs, "artifact_read", `{"artifact_id":"`+id+`"}`)
	if page["content"] != `{"items":[1,13911860366432393,3]}` || page["next_offset"] != nil || page["more"] != "no" {
		t.Errorf("read gives %v", page)
	}
	value, _ := call(t, cs, "artifact_read", `{"artifact_id":"`+id+`","pointer":"/items/1"}`)
	if value["value"] != json.Number("13911860366432393") {
		t.Errorf("the pointer gives %v", value)
	}
	rows, _ := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@ > 2"}`)
	if len(rows["rows"].([]any)) != 2 || rows["matched"] != json.Number("2") || rows["stop"] != "complete" {
		t.Errorf("query gives %v", rows)
	}
	list, _ := call(t, cs, "artifact_list", `{}`)
	if entries := list["artifacts"].([]any); len(entries) != 1 || entries[0].(object)["artifact_id"] != id {
		t.Errorf("list gives %v", list)
	}
	res, err := cs.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "leafproof://artifact/" + id + "?offset=1&length=7"})
	if err != nil || res.Contents[0].Text != `"items"` || res.Contents[0].MIMEType != "application/json" {
		t.Errorf("the resource: %v %v", res, err)
	}
}
