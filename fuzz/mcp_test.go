package fuzz_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/mcpproxy"
	"leafproof/internal/mcpserver"
	"leafproof/ref"
)

// mcpStore is a store with one artifact.
func mcpStore(f *testing.F) (*leafproof.Store, string) {
	dir := filepath.Join(f.TempDir(), "store")
	if err := leafproof.Init(f.Context(), dir); err != nil {
		f.Fatal(err)
	}
	s, err := leafproof.Open(f.Context(), dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	d, err := s.Put(f.Context(), strings.NewReader("{\"a\":1}\n{\"a\":2}\n"), leafproof.PutOptions{Records: "ndjson"})
	if err != nil {
		f.Fatal(err)
	}
	r, err := s.Publish(f.Context(), d, leafproof.Facts{})
	if err != nil {
		f.Fatal(err)
	}
	return s, r.ArtifactID
}

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// FuzzMCP: whatever the line and the arguments of a call, the server answers the call
// with one JSON object that says data_only, and answers on.
func FuzzMCP(f *testing.F) {
	s, id := mcpStore(f)
	f.Add("garbage", "artifact_read", `{"artifact_id":"`+id+`","preview":true}`)
	f.Add("[]", "artifact_query", `{"artifact_id":{"$ref":{"type":"Blob","key":"`+id+`"}},"where":"@.a > 1","select":["/a"]}`)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"leafproof://artifact/`+id+`?offset=1&length=2"}}`, "artifact_list", `{"cursor":"7"}`)
	f.Add(`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}`, "artifact_verify", `{"bundle":"AAAA"}`)
	f.Add("\x00", "artifact_put", `{"content":"x","coverage":{"a":[1]},"observed_at":"2026-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, line, tool, args string) {
		if !json.Valid([]byte(args)) || strings.ContainsAny(line+args, "\n\r") || strings.Contains(line, `"hello"`) || strings.Contains(line, `"call"`) {
			t.Skip()
		}
		name, _ := json.Marshal(tool)
		call := `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":` + string(name) + `,"arguments":` + args + `}}`
		var out bytes.Buffer
		if err := mcpserver.Serve(t.Context(), s, mcpserver.Identity{Caller: leafproof.Owner}, mcpserver.Options{}, strings.NewReader(hello+"\n"+line+"\n"+call), &out); err != nil {
			t.Fatal(err)
		}
		answered := 0
		for _, text := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
			var m struct {
				ID     any
				Result struct {
					Structured struct {
						DataOnly bool `json:"data_only"`
					} `json:"structuredContent"`
				}
				Error *struct{ Code int }
			}
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatalf("no JSON: %s", text)
			}
			if m.ID != "call" {
				continue
			}
			if answered++; m.Error == nil && !m.Result.Structured.DataOnly || m.Error != nil && m.Error.Code == -32603 {
				t.Fatalf("the answer is %.500s", text)
			}
		}
		if answered != 1 {
			t.Fatalf("%d answers to the call:\n%.2000s", answered, out.Bytes())
		}
	})
}

// FuzzMCPProxy: whatever a server returns for a call, the client gets one answer, in a
// bounded form where it has content.
func FuzzMCPProxy(f *testing.F) {
	s, _ := mcpStore(f)
	for _, result := range []string{
		`{"content":[{"type":"text","text":"hello"},{"type":"image","data":"AAAA","mimeType":"image/png"}],"structuredContent":{"a":1}}`,
		`{"content":[{"type":"resource","resource":{"uri":"x:y","blob":"AAAA"}},{"type":"resource_link","uri":"x:z","name":"n","size":7}],"isError":true}`,
		`{"content":[],"content":[{"type":"text","text":"twice"}]}`, `{"task":{"taskId":"1"}}`, `null`, `{"content":[{"type":"text","text":"{\"$ref\":{\"type\":\"Message\",\"seq\":1,\"part\":0}}"}]}`,
	} {
		f.Add(result)
	}
	f.Fuzz(func(t *testing.T, result string) {
		if strings.ContainsAny(result, "\n\r") || len(result) > 100_000 {
			t.Skip()
		}
		toServer, serverIn := io.Pipe()
		fromServer, serverOut := io.Pipe()
		go func() {
			defer serverOut.Close()
			in := bufio.NewReader(toServer)
			for {
				line, err := in.ReadBytes('\n')
				if err != nil {
					return
				}
				var m struct {
					ID     json.RawMessage
					Method string
				}
				if json.Unmarshal(line, &m) != nil || m.ID == nil {
					continue
				}
				answer := result
				if m.Method == "tools/list" {
					answer = `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
				}
				io.WriteString(serverOut, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+answer+"}\n")
			}
		}()
		var out bytes.Buffer
		client := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}` + "\n")
		o := mcpproxy.Options{Store: s, Caller: leafproof.Owner, Run: "fuzz", Transcript: ref.NewMemory("fuzz")}
		if json.Valid([]byte(result)) { // else nobody can say which call is answered
			if err := mcpproxy.Run(t.Context(), o, mcpproxy.Pipe{In: client, Out: nobody{&out}}, mcpproxy.Pipe{In: fromServer, Out: serverIn}); err != nil {
				t.Fatal(err)
			}
		} else {
			serverIn.Close()
			return
		}
		var m struct {
			ID     json.Number
			Result *struct {
				Content []struct{ Type, Text string }
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal(out.Bytes(), &m); err != nil || m.ID != "1" || (m.Result == nil) == (m.Error == nil) && result != "null" {
			t.Fatalf("%v: the answer is %.500s", err, out.Bytes())
		}
		if m.Result != nil && len(m.Result.Content) == 1 && len(m.Result.Content[0].Text) > 64<<10 {
			t.Fatalf("a view of %d bytes", len(m.Result.Content[0].Text))
		}
	})
}

type nobody struct{ io.Writer }

func (nobody) Close() error { return nil }
