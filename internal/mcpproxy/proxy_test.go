package mcpproxy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
	"leafproof/internal/mcpproxy"
	"leafproof/ref"
)

// upstream is an MCP server with tools of all kinds of results.
func upstream() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "upstream", Version: "1"}, &mcp.ServerOptions{Instructions: "Be kind."})
	type sized struct {
		Bytes int `json:"bytes"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "image"}, func(_ context.Context, _ *mcp.CallToolRequest, in sized) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: noise(in.Bytes), MIMEType: "image/png"}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "text"}, func(_ context.Context, _ *mcp.CallToolRequest, in sized) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("é", in.Bytes/2)}}}, nil, nil
	})
	type digested struct {
		SHA256 string `json:"sha256"`
	}
	type data struct {
		Data string `json:"data"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "digest", OutputSchema: json.RawMessage(
		`{"type":"object","properties":{"sha256":{"type":"string","maxLength":64}},"required":["sha256"],"additionalProperties":false}`,
	)}, func(_ context.Context, _ *mcp.CallToolRequest, in data) (*mcp.CallToolResult, digested, error) {
		b, err := base64.StdEncoding.DecodeString(in.Data)
		if err != nil {
			b = []byte(in.Data)
		}
		sum := sha256.Sum256(b)
		return nil, digested{hex.EncodeToString(sum[:])}, nil
	})
	type listed struct {
		Rows []int `json:"rows"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "rows"}, func(_ context.Context, _ *mcp.CallToolRequest, in sized) (*mcp.CallToolResult, listed, error) {
		return nil, listed{make([]int, in.Bytes)}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fails"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("it is broken")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "many"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		var r mcp.CallToolResult
		for i := range 500 {
			r.Content = append(r.Content, &mcp.TextContent{Text: fmt.Sprint("block ", i)},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x:y", Blob: []byte("abc"), MIMEType: "application/x"}},
				&mcp.ResourceLink{URI: "x:z", Name: strings.Repeat("n", 10_000)})
		}
		return &r, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "stat"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the server's own"}}}, nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "x:blob", Name: "blob"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "x:blob", Blob: noise(100_000), MIMEType: "image/png"}}}, nil
	})
	return s
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*i>>7) ^ byte(i)
	}
	return b
}

// pipes are two ends of a connection.
func pipes() (a, b mcpproxy.Pipe) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return mcpproxy.Pipe{In: r1, Out: w2}, mcpproxy.Pipe{In: r2, Out: w1}
}

type closer struct{ io.Reader }

func (closer) Close() error { return nil }

// seen is all that crosses into a client.
type seen struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *seen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// session is a client that speaks with the upstream server through a proxy.
type session struct {
	*mcp.ClientSession
	seen *seen
	end  func()
}

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

func connect(t testing.TB, s *leafproof.Store, transcripts string) *session {
	t.Helper()
	transcript, err := ref.OpenTranscript(transcripts, "run")
	if err != nil {
		t.Fatal(err)
	}
	clientEnd, proxyClient := pipes()
	proxyServer, serverEnd := pipes()
	srv, err := upstream().Connect(t.Context(), &mcp.IOTransport{Reader: closer{serverEnd.In}, Writer: serverEnd.Out, MaxLineLength: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- mcpproxy.Run(t.Context(), mcpproxy.Options{Store: s, Caller: leafproof.Owner, Tenant: "tenant-glockner", Run: "run", Transcript: transcript}, proxyClient, proxyServer)
		proxyClient.Out.Close()
	}()
	out := &session{seen: &seen{}}
	in := io.TeeReader(clientEnd.In, out.seen)
	out.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.IOTransport{Reader: closer{in}, Writer: clientEnd.Out, MaxLineLength: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out.end = sync.OnceFunc(func() {
		out.ClientSession.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		srv.Close()
		srv.Wait()
		transcript.Close()
	})
	t.Cleanup(out.end)
	return out
}

type object = map[string]any

// call calls a tool and returns what the model reads.
func (s *session) call(t testing.TB, tool, args string) (object, *mcp.CallToolResult) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	var out object
	text := res.Content[0].(*mcp.TextContent).Text
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(res.Content) != 1 {
		t.Fatalf("%s: %v: %.200s", tool, err, text)
	}
	return out, res
}

// first is the first block of a view, and the reference in it.
func first(t testing.TB, view object) (object, string) {
	t.Helper()
	b := view["content"].([]any)[0].(object)
	return b, reference(t, b)
}

func reference(t testing.TB, block object) string {
	t.Helper()
	marker := block["value"].(object)
	if marker["opaque"] != true {
		t.Fatalf("no marker: %v", block)
	}
	r, _ := json.Marshal(marker["value"])
	return string(r)
}

// shape is a value without its sizes and texts.
func shape(v any) string {
	switch v := v.(type) {
	case object:
		var names []string
		for k, e := range v {
			names = append(names, k+":"+shape(e))
		}
		slices.Sort(names)
		return "{" + strings.Join(names, ",") + "}"
	case []any:
		out := "["
		for _, e := range v {
			out += shape(e)
		}
		return out + "]"
	}
	return fmt.Sprintf("%T", v)
}

// TestShapes: results of 10 bytes and of 10 MB have the same shape, a long one takes
// no room, and the next tool gets the exact bytes.
func TestShapes(t *testing.T) {
	s := connect(t, newStore(t), t.TempDir())
	size := 10_000_000
	if testing.Short() { // under the race detector
		size = 200_000
	}
	for _, tool := range []string{"image", "text"} {
		small, _ := s.call(t, tool, `{"bytes":10}`)
		large, res := s.call(t, tool, fmt.Sprintf(`{"bytes":%d}`, size))
		if shape(small) != shape(large) {
			t.Errorf("%s: 10 bytes are %s, 10 MB %s", tool, shape(small), shape(large))
		}
		text := res.Content[0].(*mcp.TextContent).Text
		if most := map[string]int{"image": 1000, "text": 7000}[tool]; len(text) > most {
			t.Errorf("%s: 10 MB leave %d bytes in the view", tool, len(text))
		}
		want := sha256.Sum256(noise(size))
		if tool == "text" {
			want = sha256.Sum256([]byte(strings.Repeat("é", size/2)))
		}
		_, r := first(t, large)
		_, got := s.call(t, "digest", `{"data":`+r+`}`)
		if b, _ := json.Marshal(got.StructuredContent); string(b) != `{"sha256":"`+hex.EncodeToString(want[:])+`"}` {
			t.Errorf("%s: the next tool got %s", tool, b)
		}
	}
	if n := len(s.seen.text()); n > 60_000 || strings.Contains(s.seen.text(), base64.StdEncoding.EncodeToString(noise(90))) {
		t.Errorf("the client got %d bytes", n)
	}
}

// TestView: what the client is given of tools and results of every kind.
func TestView(t *testing.T) {
	s := connect(t, newStore(t), t.TempDir())
	if got := s.InitializeResult().Instructions; !strings.HasPrefix(got, "Be kind.\n\n") || !strings.Contains(got, "$ref") {
		t.Errorf("the instructions are %q", got)
	}
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		in, _ := json.Marshal(tool.InputSchema)
		if tool.Name == "digest" && (!strings.Contains(string(in), `"anyOf"`) || tool.OutputSchema == nil) {
			t.Errorf("digest takes %s", in)
		}
		if tool.Name == "rows" && tool.OutputSchema != nil {
			t.Error("rows has an output schema that nothing fits")
		}
	}
	if want := "digest fails image many query_json read_json read_records read_text rows server_stat stat text"; strings.Join(names, " ") != want {
		t.Errorf("the tools are %v", names)
	}
	again, _ := s.ListTools(t.Context(), nil)
	a, _ := json.Marshal(list.Tools)
	if b, _ := json.Marshal(again.Tools); !bytes.Equal(a, b) {
		t.Error("the list differs the second time")
	}

	rows, res := s.call(t, "rows", `{"bytes":100000}`)
	structured := rows["structuredContent"].(object)
	if res.StructuredContent != nil || len(res.Content[0].(*mcp.TextContent).Text) > 8000 {
		t.Errorf("unbounded structured content: %v", res.StructuredContent)
	}
	read, _ := s.call(t, "read_json", `{"source":`+reference(t, structured)+`,"path":"/rows"}`)
	if read["data_only"] != true {
		t.Errorf("read_json gives %v", read)
	}
	failed, res := s.call(t, "fails", `{}`)
	if block, _ := first(t, failed); !res.IsError || block["preview"] != "it is broken" {
		t.Errorf("an error is %v", failed)
	}
	if own, _ := s.call(t, "server_stat", `{}`); own["content"].([]any)[0].(object)["preview"] != "the server's own" {
		t.Errorf("server_stat gives %v", own)
	}
	many, res := s.call(t, "many", `{}`)
	if n := len(res.Content[0].(*mcp.TextContent).Text); n > 24_000 || len(many["content"].([]any)) != 25 {
		t.Errorf("1500 blocks leave %d bytes in %d", n, len(many["content"].([]any)))
	}
	r, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x:blob"})
	if err != nil || len(r.Contents) != 1 || r.Contents[0].Blob != nil || len(r.Contents[0].Text) > 500 || !strings.Contains(r.Contents[0].Text, `"opaque":true`) {
		t.Errorf("a resource is %v, %v", r, err)
	}
	for args, code := range map[string]string{
		`{"data":{"$ref":{"type":"Message","seq":9999,"part":0}}}`:                              "ref_not_found",
		`{"data":{"$ref":{"type":"Blob","key":"x"}}}`:                                           "ref_not_found",
		`{"data":"{\"$ref\":{\"type\":\"Message\",\"seq\":1,\"part\":0}}"}`:                     "ref_stringified",
		`{"data":{"$ref":{"type":"JsonPointer","source":{"type":"Blob","key":"x"},"path":""}}}`: "ref_derivation_forbidden",
		`{"data":7}`: "ref_type_mismatch",
	} {
		out, res := s.call(t, "digest", args)
		if e, _ := json.Marshal(out); !res.IsError || !strings.Contains(string(e), `"`+code+`"`) {
			t.Errorf("%s: %s, want %s", args, e, code)
		}
	}
	for _, word := range []string{"glockner", "art_", "blake3", "agent/mcp", "JsonQuery", "mf_"} {
		if i := strings.Index(s.seen.text(), word); i >= 0 {
			t.Errorf("%q is in the view: %.200s", word, s.seen.text()[max(0, i-100):])
		}
	}
	s.end()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; !bytes.Contains(stacks, []byte("mcpproxy.(*")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines of the proxy are left:\n%s", stacks)
		}
	}
}

// TestRestart: a reference means after a restart what it meant.
func TestRestart(t *testing.T) {
	store, dir := newStore(t), t.TempDir()
	s := connect(t, store, dir)
	view, _ := s.call(t, "image", `{"bytes":5000}`)
	_, r := first(t, view)
	s.end()
	s = connect(t, store, dir)
	want := sha256.Sum256(noise(5000))
	if _, got := s.call(t, "digest", `{"data":`+r+`}`); fmt.Sprint(got.StructuredContent) != fmt.Sprint(object{"sha256": hex.EncodeToString(want[:])}) {
		t.Errorf("after a restart the tool got %v", got.StructuredContent)
	}
}

// TestStoreFails: where the store takes nothing, the model reads an error with a code,
// and nothing of the result; the other tools work on. (Case 55.)
func TestStoreFails(t *testing.T) {
	store := newStore(t)
	s := connect(t, store, t.TempDir())
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	store.Close()
	out, res := s.call(t, "text", `{"bytes":4000}`)
	text, _ := json.Marshal(out)
	if !res.IsError || !strings.Contains(string(text), `"code"`) || strings.Contains(string(text), "éé") || len(text) > 1000 {
		t.Errorf("the view is %s", text)
	}
}

// TestBounded: which output schemas bound what they allow.
func TestBounded(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"number"},"b":{"enum":["x","y"]}},"additionalProperties":false}`: true,
		`{"type":"object","properties":{"a":{"type":"number"}}}`:                                                     false,
		`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`:                        false,
		`{"type":"object","properties":{"a":{"type":"string","maxLength":100}},"additionalProperties":false}`:        true,
		`{"type":"array","items":{"type":"boolean"},"maxItems":100}`:                                                 true,
		`{"type":"array","items":{"type":"boolean"}}`:                                                                false,
		`{"type":"array","items":{"type":"array","items":{"type":"null"},"maxItems":6000},"maxItems":6000}`:          false,
		`{"type":["string","null"],"maxLength":5}`:                                                                   true,
		`{"$ref":"#/$defs/x"}`:        false,
		`{"anyOf":[{"type":"null"}]}`: false,
		`true`:                        false,
		`{"type":"object","patternProperties":{"x":{}},"additionalProperties":false}`: false,
	} {
		if got := mcpproxy.Bounded(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
