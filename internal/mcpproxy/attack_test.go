package mcpproxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leafproof"
	"leafproof/internal/mcpproxy"
	"leafproof/ref"
)

// peer is one end of a connection, by lines.
type peer struct {
	t   testing.TB
	in  *bufio.Reader
	out io.WriteCloser
}

func (p *peer) say(format string, args ...any) {
	p.write(fmt.Sprintf(format+"\n", args...))
}

func (p *peer) write(s string) {
	if _, err := io.WriteString(p.out, s); err != nil {
		p.t.Errorf("say: %v", err)
	}
}

// hear is the next message.
func (p *peer) hear() (string, object) {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	if err != nil {
		p.t.Fatalf("there is nothing more to hear: %v", err)
	}
	return line, decode(p.t, line)
}

func decode(t testing.TB, line string) object {
	t.Helper()
	var m object
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v: %.200s", err, line)
	}
	return m
}

// between runs a proxy between two peers.
func between(t testing.TB, store *leafproof.Store, transcript ref.Transcript) (client, server *peer, done chan error) {
	clientEnd, proxyClient := pipes()
	proxyServer, serverEnd := pipes()
	done = make(chan error, 1)
	go func() {
		err := mcpproxy.Run(t.Context(), mcpproxy.Options{Store: store, Caller: leafproof.Owner, Run: "run", Transcript: transcript}, proxyClient, proxyServer)
		proxyClient.Out.Close()
		done <- err
	}()
	return &peer{t, bufio.NewReader(clientEnd.In), clientEnd.Out}, &peer{t, bufio.NewReader(serverEnd.In), serverEnd.Out}, done
}

// scripted is a server that answers tools/list with tools, and calls as answer says.
func scripted(server *peer, tools string, answer func(id, line string)) {
	for {
		line, err := server.in.ReadString('\n')
		if err != nil {
			server.out.Close()
			return
		}
		m := decode(server.t, line)
		id, _ := json.Marshal(m["id"])
		switch m["method"] {
		case "tools/list":
			server.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, id, tools)
		case nil:
		default:
			answer(string(id), line)
		}
	}
}

const plainTools = `{"name":"a","inputSchema":{"type":"object"}},{"name":"bounded","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}}`

// TestOddAnswers: whatever a server answers, the client reads of it what the proxy made,
// under its own id, once, and nothing else.
func TestOddAnswers(t *testing.T) {
	transcript := ref.NewMemory("run")
	client, server, done := between(t, newStore(t), transcript)
	var answer string
	go scripted(server, plainTools, func(id, _ string) {
		for _, line := range strings.Split(strings.ReplaceAll(answer, "ID", id), "\n") {
			server.say("%s", line)
		}
	})
	secret := strings.Repeat("SECRET", 3000)
	content := `"content":[{"type":"text","text":"` + secret + `"}]`
	n := 0
	for name, c := range map[string]struct {
		method, params, answer string
		want                   []string // in what the client reads
	}{
		"twice":              {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{` + content + `}}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{` + content + `}}`, []string{"opaque"}},
		"an id as a float":   {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID.0,"result":{` + content + `}}`, []string{"opaque"}},
		"an id of nobody":    {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":77777,"result":{` + content + `}}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`, []string{`\"content\":[]`}},
		"both":               {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{` + content + `},"error":{"code":-32000,"message":"no"}}`, []string{`"message":"no"`, "-32000"}},
		"a long error":       {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"` + secret + `","data":"` + secret + `"}}`, []string{"-32000"}},
		"a short error":      {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32042,"message":"see","data":{"u":1}}}`, []string{`"data":{"u":1}`, "-32042"}},
		"an odd error":       {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"error":"` + secret + `"}`, []string{"-32603"}},
		"an older result":    {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"toolResult":"` + secret + `"}}`, []string{"unknown", "opaque"}},
		"content as a text":  {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":"` + secret + `"}}`, []string{"unknown", "opaque"}},
		"no content":         {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{}}`, []string{`\"content\":[]`}},
		"no result":          {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID}`, []string{"-32603"}},
		"no base64":          {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"image","mimeType":"image/png","data":"` + secret + `!"}]}}`, []string{`\"image\"`, "text/plain"}},
		"a block that is no": {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":["` + secret + `"]},7]}}`, []string{"unknown"}},
		"half a character":   {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}`, []string{"cut \ufffd"}},
		"no UTF-8":           {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"latin ` + "\xe9" + `"}]}}`, []string{"latin \ufffd"}},
		"members twice":      {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[],` + content + `}}`, []string{"-32603"}},
		"too deep":           {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","result":{"content":[],"structuredContent":` + strings.Repeat(`{"id":[`, 20_000) + strings.Repeat("]}", 20_000) + `},"id":ID}`, []string{"-32603"}},
		"a cut line":         {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"id":7,"content":[{"type":"te`, []string{"-32603"}},
		"it breaks its word": {"tools/call", `{"name":"bounded"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"n":` + strings.Repeat("1", 9000) + `}}}`, []string{"opaque", `"isError":true`}},
		"it keeps its word":  {"tools/call", `{"name":"bounded"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"n":1}}}`, []string{`"structuredContent":{"n":1}`}},
		"_meta":              {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"_meta":{"x/y":"` + secret + `","io.modelcontextprotocol/related-task":{"taskId":"t"}}}}`, []string{`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`}},
		"a task":             {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"task":{"taskId":"t"}}}`, []string{`"task":{"taskId":"t"}`}},
		"many resources":     {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"contents":[` + strings.Repeat(`{"uri":"u","text":"t"},`, 40) + `{"uri":"u","text":"last"}]}}`, []string{`\"more\"`}},
		"an odd resource":    {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"contents":[{"uri":"u","text":5,"blob":"` + secret + `"}]}}`, []string{"unknown", "opaque"}},
		"no contents":        {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":"` + secret + `"}}`, []string{"-32603"}},
		"breaks its schema":  {"tools/call", `{"name":"bounded"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"n":1,"png":"` + secret[:5000] + `"}}}`, []string{"opaque", `"isError":true`}},
		"a newer result":     {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"newer","more":"` + secret + `"}}`, []string{"unknown", `"resultType":"newer"`}},
		"beside a task":      {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"task","taskId":"t","more":"` + secret + `","statusMessage":"` + secret + `"}}`, []string{`"taskId":"t"`}},
		"a question back":    {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}}`, []string{`"requestState":"s"`, "roots/list"}},
		"beside contents":    {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"ttlMs":5,"contents":[{"uri":"` + secret + `","text":"t"}],"more":"` + secret + `"}}`, []string{`"ttlMs":5`}},
		"beside no contents": {"resources/read", `{"uri":"x"}`, `{"jsonrpc":"2.0","id":ID,"result":{"contents":[],"more":"` + secret + `"}}`, []string{`"contents":[]`}},
		"a data URI":         {"tools/call", `{"name":"a"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"resource_link","name":"n","uri":"DATA:image/png;base64,` + secret + `"},{"type":"resource","resource":{"uri":"data:,` + secret + `","text":"t"}}]}}`, []string{`\"uri\":\"DATA:image/png;base64,…\"`, `\"uri\":\"data:,…\"`, "opaque", `\"mediaType\":\"image/png\"`}},
		"another method":     {"prompts/get", `{"name":"p"}`, `{"jsonrpc":"2.0","id":ID.0,"result":{"messages":[]}}`, []string{`"messages":[]`}},
	} {
		n++
		answer = c.answer
		client.say(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, c.method, c.params)
		line, m := client.hear()
		if m["id"] != float64(n) || strings.Count(line, "SECRET") > 1200 || len(line) > 10_000 {
			t.Errorf("%s: the client reads %d bytes: %.300s", name, len(line), line)
		}
		for _, want := range c.want {
			if !strings.Contains(line, want) {
				t.Errorf("%s: no %s in %.600s", name, want, line)
			}
		}
	}
	// What came twice, or for nobody, is behind none of them.
	answer = `{"jsonrpc":"2.0","id":ID,"result":{}}`
	client.say(`{"jsonrpc":"2.0","id":"end","method":"ping"}`)
	if line, m := client.hear(); m["id"] != "end" {
		t.Errorf("the client reads %.300s", line)
	}
	client.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOddTools: one tool that nobody can make sense of takes none of the others away,
// and is what it was.
func TestOddTools(t *testing.T) {
	transcript := ref.NewMemory("run")
	client, server, done := between(t, newStore(t), transcript)
	tools := []string{
		`{"name":"banana","inputSchema":{"type":"object","properties":{"a":{"type":"banana"}}}}`,
		`{"name":"draft4","inputSchema":{"type":"object","properties":{"a":{"type":"number","minimum":1,"exclusiveMinimum":true}}}}`,
		`{"name":"ahead","inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"(?!x)y"}}}}`,
		`{"name":"far","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://example.com/x.json"}}}}`,
		`{"name":"bare"}`, `{"name":7,"inputSchema":{}}`, `{"inputSchema":{"type":"object"}}`, `"tool"`,
		`{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`,
		`{"name":"good","inputSchema":{"type":"object"}}`,
		`{"name":"stat","inputSchema":{"type":"object"}}`, `{"name":"server_stat","inputSchema":{"type":"object"}}`,
		`{"name":"ö/ü.x","inputSchema":{"type":"object"}}`,
	}
	go scripted(server, strings.Join(tools, ","), func(id, line string) {
		text, _ := json.Marshal(line)
		server.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, text)
	})
	client.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	_, m := client.hear()
	var names []string
	for _, tool := range m["result"].(object)["tools"].([]any) {
		tool := tool.(object)
		names = append(names, tool["name"].(string))
		if schema, _ := json.Marshal(tool["inputSchema"]); strings.Contains(string(schema), "anyOf") != (tool["name"] == "good") &&
			!slices.Contains([]string{"query_json", "read_json", "read_records", "read_text", "stat"}, tool["name"].(string)) {
			t.Errorf("%s takes %s", tool["name"], schema)
		}
	}
	if want := "ahead banana draft4 far good query_json read_json read_records read_text server_server_stat server_stat stat ö/ü.x"; strings.Join(names, " ") != want {
		t.Errorf("the tools are %v", names)
	}
	n := 1
	call := func(name, args string) string {
		n++
		client.say(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, n, name, args)
		line, _ := client.hear()
		return line
	}
	for name, own := range map[string]string{"ahead": "ahead", "banana": "banana", "far": "far", "server_stat": "server_stat", "server_server_stat": "stat", "ö/ü.x": "ö/ü.x"} {
		if line := call(name, `{"a":"y"}`); !strings.Contains(line, own) || strings.Contains(line, "isError") || !strings.Contains(line, `\"opaque\":true`) {
			t.Errorf("%s: %.400s", name, line)
		}
	}
	// References lead somewhere there too.
	if line := call("banana", `{"a":{"$ref":{"type":"Message","seq":1,"part":0,"field":"content.0.value"}}}`); !strings.Contains(line, "tools/call") {
		t.Errorf("a reference: %.400s", line)
	}
	if line := call("banana", `{"a":{"$ref":{"type":"Message","seq":99,"part":0}}}`); !strings.Contains(line, "ref_not_found") {
		t.Errorf("a reference to nothing: %.400s", line)
	}
	client.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCancelled: a request that is cancelled is answered no more, whenever the server
// does; the server hears of it; and nobody waits for it in the end.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, done := between(t, nil, nil)
		client.say(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`)
		server.hear()
		client.say(`{"jsonrpc":"2.0","id":"1","method":"ping"}`) // another id
		if _, m := server.hear(); m["id"] != "1" {
			t.Errorf("the server hears %v", m)
		}
		client.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if _, m := server.hear(); m["method"] != "notifications/cancelled" {
			t.Errorf("the server hears %v", m)
		}
		server.say(`{"jsonrpc":"2.0","id":1,"result":{"late":true}}`)
		server.say(`{"jsonrpc":"2.0","id":"1","result":{}}`)
		if line, m := client.hear(); m["id"] != "1" {
			t.Errorf("the client hears %s", line)
		}
		began := time.Now()
		client.out.Close()
		if line, err := server.in.ReadString('\n'); err == nil {
			t.Errorf("the server hears %s", line)
		}
		server.out.Close()
		if err := <-done; err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestHangs: a server that answers nothing, or does not end, keeps the proxy no longer
// than a client would wait.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, done := between(t, nil, nil)
		client.say(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`)
		server.hear()
		began := time.Now()
		client.out.Close()
		if _, err := server.in.ReadString('\n'); err == nil {
			t.Error("the server's input goes on")
		}
		if waited := time.Since(began); waited == 0 || waited > time.Minute {
			t.Errorf("an answer was waited for %v", waited)
		}
		if err := <-done; err != mcpproxy.ErrHangs {
			t.Errorf("the proxy ends with %v", err)
		}
		if waited := time.Since(began); waited > time.Minute {
			t.Errorf("it took %v", waited)
		}
		server.out.Close()
		client.in.Reset(strings.NewReader(""))
	})
}

// TestOddRequests: what the client says for nobody to understand is refused, under its
// id where it has one.
func TestOddRequests(t *testing.T) {
	client, server, done := between(t, nil, nil)
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"x":"\ud800"}}}`:                         `7 -32700`,
		`{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}`:                                                                `7 -32700`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                                                             `<nil> -32600`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                                                              `<nil> -32600`,
		`{"jsonrpc":"2.0","id":true,"method":"ping"}`:                                                                             `<nil> -32600`,
		`{"jsonrpc":"2.0","id":[],"method":"ping"}`:                                                                               `<nil> -32600`,
		`{"jsonrpc":"2.0","method":"x","params":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,"id":"\u0061"}`: `a -32700`,
		`{"jsonrpc":"2.0","id":01,"method":"ping"}`:                                                                               `<nil> -32700`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`:                                                                              `<nil> -32700`,
		`nonsense`: `<nil> -32700`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call"}`:             `8 -32602`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[]}`: `8 -32602`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{}}`: `8 -32602`,
	} {
		client.say("%s", line)
		answer, m := client.hear()
		if got := fmt.Sprint(m["id"], " ", m["error"].(object)["code"]); got != want {
			t.Errorf("%s: %s, want %s", line, answer, want)
		}
	}
	client.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	server.hear()
	client.say(`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`)
	if line, m := client.hear(); m["id"] != nil || !strings.Contains(line, "under way") {
		t.Errorf("of two with one id the second: %s", line)
	}
	server.say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	client.hear()
	client.out.Close()
	server.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
