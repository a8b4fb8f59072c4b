package mcpproxy

import "encoding/json"

// Bounded is bounded, for tests.
var Bounded = bounded

// Sketched is what is made out of a message that cannot be read for sure.
func Sketched(line []byte) (id json.RawMessage, method, result bool) {
	s := sketched(line)
	return s.id, s.method, s.result
}
