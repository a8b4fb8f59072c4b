package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leafproof/internal/mcpserver"
)

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// oddFrames are messages that the library would take for something that they are not,
// and how each is refused: the code and the id that the refusal has.
var oddFrames = map[string][2]string{
	`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`:                                                               {"-32600", "null"},
	`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`:                                                {"-32600", "null"},
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"artifact_list","name":"artifact_put"}}`:        {"-32600", "1"},
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"artifact_list","n\u0061me":"x"}}`:              {"-32600", "1"},
	`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                                                    {"-32600", "null"},
	`{"jsonrpc":"2.0","id":1e23,"method":"ping"}`:                                                                   {"-32600", "null"},
	`{"jsonrpc":"2.0","id":99999999999999999999999,"method":"ping"}`:                                                {"-32600", "null"},
	`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                                                   {"-32600", "null"},
	`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`:                                                                {"-32600", "null"},
	`{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`:                                                               {"-32600", "null"},
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["` + strings.Repeat("x", 10_000) + `"]}`:               {"-32602", "1"},
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["` + strings.Repeat("x", 10_000) + `"]}}`:      {"-32602", "1"},
	`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":7,"x":"` + strings.Repeat("x", 9999) + `"}}`: {"-32602", "1"},
	`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":{}}}`:                                         {"-32602", "1"},

	`{"jsonrpc":"2.0","id":1}`:             {"-32600", "1"},
	`{"jsonrpc":"2.0","id":1,"params":{}}`: {"-32600", "1"},
	`"x"`:                                  {"-32600", "null"},
	`{"jsonrpc":"2.0"`:                     {"-32700", "null"},

	`{"jsonrpc":"2.0","id":1,"method":"x","params":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`: {"-32600", "null"},
}

// TestFrames: what is not said for sure is refused, over lines and over HTTP, and the
// server answers on.
func TestFrames(t *testing.T) {
	s := newStore(t)
	who := func(*http.Request) (mcpserver.Identity, error) { return owner, nil }
	srv := httptest.NewServer(mcpserver.Handler(s, who, mcpserver.Options{}))
	defer srv.Close()
	check := func(how, frame, answer string, want [2]string) {
		t.Helper()
		var m struct {
			ID    json.RawMessage
			Error struct{ Code json.Number }
		}
		if json.Unmarshal([]byte(answer), &m) != nil || string(m.Error.Code) != want[0] || string(m.ID) != want[1] || len(answer) > 2500 {
			t.Errorf("%s: %.90s is answered %.300s, want %v", how, frame, answer, want)
		}
	}
	for frame, want := range oddFrames {
		in := hello + "\n" + frame + "\n" + `{"jsonrpc":"2.0","id":"after","method":"ping"}`
		var out bytes.Buffer
		if err := mcpserver.Serve(t.Context(), s, owner, mcpserver.Options{}, strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		var refusal string
		answered := false
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			switch {
			case strings.Contains(line, `"id":"after"`):
				answered = strings.Contains(line, `"result"`)
			case !strings.Contains(line, `"id":"hello"`):
				refusal += line
			}
		}
		if !answered {
			t.Errorf("after %.90s nothing is answered: %.300s", frame, out.String())
		}
		check("a line", frame, refusal, want)

		req, _ := http.NewRequest("POST", srv.URL, strings.NewReader(frame))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		body.ReadFrom(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%.90s over HTTP: %s", frame, res.Status)
		}
		check("a body", frame, strings.TrimSpace(body.String()), want)
	}
}

// TestSameID: of two requests of one id that are under way, one is answered; and the
// server comes to an end.
func TestSameID(t *testing.T) {
	s := newStore(t)
	list := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	in := hello + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + list + "\n" + strings.Repeat(list+"\n", 5) + hello
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- mcpserver.Serve(t.Context(), s, owner, mcpserver.Options{}, strings.NewReader(in), &out)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for an answer that nobody makes")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	kinds := map[string]int{}
	for _, line := range lines {
		m := parse(t, line)
		kind := fmt.Sprint(m["id"])
		if e, ok := m["error"].(object); ok {
			kind += fmt.Sprint(" ", e["code"])
		}
		kinds[kind]++
	}
	// How many of the six meet one that is under way is the scheduler's business.
	if kinds["hello"] != 1 || kinds["7"] < 1 || kinds["7"]+kinds["<nil> -32600"] < 6 || kinds["hello -32600"]+kinds["<nil> -32600"] < 1 || len(lines) != 8 {
		t.Errorf("the answers are %v", kinds)
	}
}
