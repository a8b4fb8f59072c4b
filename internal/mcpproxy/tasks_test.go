package mcpproxy_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"leafproof/internal/mcpproxy"
	"leafproof/ref"
)

// TestTasks: some versions of the protocol put a call's result into what a server says of
// a task, when it is asked and unasked. It is stored like any other.
func TestTasks(t *testing.T) {
	secret := strings.Repeat("SECRET", 3000)
	client, server, done := between(t, newStore(t), ref.NewMemory("run"))
	answers := map[string]string{
		"tools/call":   `{"resultType":"task","taskId":"t1","status":"working","createdAt":"2026-11-30T12:00:00Z","ttlMs":null}`,
		"tasks/get":    `{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[{"type":"text","text":"` + secret + `"}],"structuredContent":{"n":7}},"more":"` + secret + `"}`,
		"tasks/result": `{"content":[{"type":"text","text":"` + secret + `"}],"structuredContent":{"n":8}}`,
		"tasks/cancel": `{"resultType":"complete"}`,
	}
	go scripted(server, plainTools, func(id, line string) {
		method := decode(t, line)["method"].(string)
		if method == "tasks/update" { // its end is told unasked
			server.say(`{"jsonrpc":"2.0","method":"notifications/tasks","params":%s}`, strings.Replace(answers["tasks/get"], `"n":7`, `"n":9`, 1))
			server.say(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t2","status":"failed","error":{"code":-32000,"message":"%s"}}}`, secret)
		}
		server.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, cmp.Or(answers[method], "{}"))
	})
	ask := func(method, params string, want ...string) {
		t.Helper()
		client.say(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
		for _, text := range want {
			line, _ := client.hear()
			if !strings.Contains(line, text) || strings.Count(line, "SECRET") > 1200 || len(line) > 10_000 {
				t.Errorf("%s: the client reads %d bytes, and not %s: %.600s", method, len(line), text, line)
			}
		}
	}
	ask("tools/call", `{"name":"bounded","task":{}}`, `"taskId":"t1","status":"working"`)
	ask("tasks/get", `{"taskId":"t1"}`, `"structuredContent":{"n":7}`)
	ask("tasks/get", `{"taskId":"t1"}`, `opaque`)
	ask("tasks/get", `{"taskId":"another's"}`, `"result":{"content":[{"type":"text","text":"{\"data_only\":true`)
	ask("tasks/result", `{"taskId":"t1"}`, `"structuredContent":{"n":8}`)
	ask("tasks/cancel", `{"taskId":"t1"}`, `"result":{"resultType":"complete"}`)
	ask("tasks/update", `{"taskId":"t1"}`, `"structuredContent":{"n":9}`, `"error":{"code":-32000`, `"result":{}`)
	client.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestListHangs: whoever waits no longer for a server that does not say what tools it has
// is waited for by nobody.
func TestListHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, done := between(t, nil, nil)
		client.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		_, asked := server.hear()
		client.say(`{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"t"}}`)
		client.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if _, m := server.hear(); m["method"] != "notifications/cancelled" || m["params"].(object)["requestId"] != asked["id"] {
			t.Errorf("the server hears %v", m)
		}
		_, again := server.hear()
		if again["method"] != "tools/list" {
			t.Errorf("the server hears %v", again)
		}
		server.say(`{"jsonrpc":"2.0","id":%q,"result":{"tools":[]}}`, asked["id"]) // too late
		server.say(`{"jsonrpc":"2.0","id":%q,"error":{"code":-32000,"message":"no tools now"}}`, again["id"])
		if _, m := client.hear(); m["id"] != 2.0 || m["error"] == nil {
			t.Errorf("the client hears %v", m)
		}
		client.out.Close()
		server.out.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNoTools: of a server that has no tools, resources are stored all the same, and the
// harness's own tools read on.
func TestNoTools(t *testing.T) {
	client, server, done := between(t, newStore(t), ref.NewMemory("run"))
	go func() {
		for {
			line, err := server.in.ReadString('\n')
			if err != nil {
				server.out.Close()
				return
			}
			m := decode(t, line)
			switch m["method"] {
			case "initialize":
				server.say(`{"jsonrpc":"2.0","id":%v,"result":{"capabilities":{"resources":{}}}}`, m["id"])
			case "resources/read":
				server.say(`{"jsonrpc":"2.0","id":%v,"result":{"contents":[{"uri":"x:y","text":"hello"}]}}`, m["id"])
			default:
				server.say(`{"jsonrpc":"2.0","id":%q,"error":{"code":-32601,"message":"Method not found"}}`, m["id"])
			}
		}
	}()
	ask := func(method, params, want string) {
		t.Helper()
		client.say(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
		if line, _ := client.hear(); !strings.Contains(line, want) {
			t.Errorf("%s: the client reads no %s: %.600s", method, want, line)
		}
	}
	ask("initialize", `{}`, `"capabilities":{"resources":{},"tools":{}}`)
	ask("resources/read", `{"uri":"x:y"}`, `\"preview\":\"hello\"`)
	ask("tools/list", `{}`, `"name":"read_text"`)
	ask("tools/call", `{"name":"read_text","arguments":{"source":{"$ref":{"type":"Message","seq":1,"part":0,"field":"contents.0.value"}}}}`, `hello`)
	client.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLongLines: a message that is too long is refused, and those behind it are read.
func TestLongLines(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some hundred MiB")
	}
	client, server, done := between(t, nil, nil)
	long := func(to *peer, head, tail string) {
		part := strings.Repeat(`{"id":5},`, 100_000)
		to.write(head)
		for range mcpproxy.MaxMessage/len(part) + 1 {
			to.write(part)
		}
		to.write(tail + "\n")
	}
	go func() {
		for range 3 {
			if _, err := server.in.ReadString('\n'); err != nil {
				t.Error(err)
			}
		}
		long(server, "", "")
		long(server, `{"jsonrpc":"2.0","id":1,"result":[`, `]}`)
		long(server, `{"result":[`, `],"jsonrpc":"2.0","id":"b"}`)
		server.say(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	}()
	for _, id := range []string{"1", `"b"`, "5"} {
		client.say(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
	}
	for _, want := range []string{"1 -32603", "b -32603", "5 <nil>"} {
		_, m := client.hear()
		e, _ := m["error"].(object)
		if got := fmt.Sprint(m["id"], " ", e["code"]); got != want {
			t.Errorf("the client hears %s, want %s", got, want)
		}
	}
	long(client, `{"jsonrpc":"2.0","id":9,"method":"ping","params":[`, `]}`)
	if _, m := client.hear(); m["id"] != 9.0 || m["error"].(object)["code"] != -32600.0 {
		t.Errorf("the client hears %v", m)
	}
	client.out.Close()
	server.out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
