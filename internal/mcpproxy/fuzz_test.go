package mcpproxy_test

import (
	"encoding/json"
	"testing"

	v2 "github.com/go-json-experiment/json"

	"leafproof/internal/mcpproxy"
)

// FuzzSketched: what is made out of a message by looking at its outermost members alone is
// what a parser reads there, and of what no parser reads the id is JSON.
func FuzzSketched(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"id":2,"method":"x"}}`, `{"id":"a\"b","method":"ping","params":["id",3]}`,
		`{"\u0069d":-5 , "error" : {}}`, `{"id":{"id":1}}`, `{"id":1.50e1,"x":"\\"}`, `{"id":01}`, `{"result":[{"id":5`, `[{"id":1}]`, `{"id":"\ud800"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, method, result := mcpproxy.Sketched(line)
		if id != nil && !json.Valid(id) {
			t.Fatalf("the id %q is no JSON", id)
		}
		var m map[string]json.RawMessage
		if v2.Unmarshal(line, &m) != nil || m == nil {
			return
		}
		if _, ok := m["method"]; ok != method {
			t.Errorf("method: %v, want %v", method, ok)
		}
		_, is := m["result"]
		_, failed := m["error"]
		if (is || failed) != result {
			t.Errorf("result: %v, want %v", result, is || failed)
		}
		if id != nil && string(id) != string(m["id"]) {
			t.Errorf("id: %s, want %s", id, m["id"])
		}
	})
}
