package mcpserver

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxFrameDepth is how deep a message is nested that the library reads.
const maxFrameDepth = 500

// maxID is the largest number that every reader of JSON takes for the same id.
const maxID = 1<<53 - 1

// frame is what is known of a message before the library reads it.
type frame struct {
	id   jsontext.Value // nil where it has none, or none that can be answered to
	call bool           // it is a request, and is answered
}

// A frameError refuses a message.
type frameError struct {
	code int
	text string
}

// readFrame looks at a message for what the library takes in silence: members that
// stand twice, of which it reads the last; and ids that are no whole numbers, under
// which it answers as another's. What stands in params is the method's business.
func readFrame(text []byte) (f frame, refusal *frameError) {
	malformed := &frameError{jsonrpc.CodeParseError, "the message is not JSON"}
	if depth(text) > maxFrameDepth {
		return f, &frameError{jsonrpc.CodeInvalidRequest, "the message is nested too deep"}
	}
	if !jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return f, malformed
	}
	switch jsontext.Value(text).Kind() {
	case '{':
	case '[':
		return f, &frameError{jsonrpc.CodeInvalidRequest, "a batch: messages are taken one by one"}
	default:
		return f, &frameError{jsonrpc.CodeInvalidRequest, "the message is no object"}
	}
	members, twice := once(text)
	params := members["params"]
	id, asked := members["id"]
	_, f.call = members["method"]
	if _, result := members["result"]; !f.call && !result && members["error"] == nil {
		if isID(id) {
			f.id = id
		}
		return f, &frameError{jsonrpc.CodeInvalidRequest, "neither a request nor an answer"}
	}
	if f.call = f.call && asked; f.call && !isID(id) {
		return f, &frameError{jsonrpc.CodeInvalidRequest, "the id is neither a string nor a whole number within ±(2^53−1)"}
	}
	var of map[string]jsontext.Value
	if twice == "" {
		if f.id = id; params.Kind() == '{' {
			if of, twice = once(params); twice != "" {
				twice = "params/" + twice
			}
		}
	}
	if twice != "" {
		return f, &frameError{jsonrpc.CodeInvalidRequest, "the member " + strconv.QuoteToASCII(cut(twice)) + " stands twice"}
	}
	if f.call && params != nil && params.Kind() != '{' {
		return f, &frameError{jsonrpc.CodeInvalidParams, "params is no object"}
	}
	for name, kind := range paramKinds {
		if v := of[name]; f.call && v != nil && v.Kind() != kind {
			return f, &frameError{jsonrpc.CodeInvalidParams, "params/" + name + ": not what stands there"}
		}
	}
	return f, nil
}

// paramKinds is what some parameters are in every method. The library says of one that
// is not by repeating all of them.
var paramKinds = map[string]jsontext.Kind{
	"name": '"', "uri": '"', "cursor": '"', "protocolVersion": '"', "_meta": '{', "capabilities": '{', "clientInfo": '{',
}

// once reads the members of an object, and names one that stands twice.
func once(object []byte) (members map[string]jsontext.Value, twice string) {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	members = map[string]jsontext.Value{}
	if _, err := d.ReadToken(); err != nil {
		return members, ""
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return members, twice
		}
		s := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return members, twice
		}
		if _, known := members[s]; known {
			twice = s
		}
		members[s] = v.Clone()
	}
	return members, twice
}

func isID(v jsontext.Value) bool {
	switch v.Kind() {
	case '"':
		return jsontext.Value(v).IsValid()
	case '0':
		n, err := strconv.ParseInt(string(v), 10, 64)
		return err == nil && -maxID <= n && n <= maxID
	}
	return false
}

// answer is the answer to a message that is refused.
func (e *frameError) answer(id jsontext.Value) []byte {
	if id == nil || !isID(id) {
		id = jsontext.Value("null")
	}
	text, err := marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   jsonrpc.Error  `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: int64(e.code), Message: e.text}})
	if err != nil {
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is refused"}}`)
	}
	return text
}

// readFrames looks at a message, or at each of a batch: some versions of the protocol
// have those, and the library knows which.
func readFrames(body []byte) (frame, *frameError) {
	list := jsontext.Value(body)
	if list.Kind() != '[' || depth(body) > maxFrameDepth || !list.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return readFrame(body)
	}
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return readFrame(body)
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return readFrame(body)
		}
		if _, refusal := readFrame(v); refusal != nil {
			return frame{}, refusal
		}
	}
	return frame{}, nil
}

// framed refuses a body that is no message, before the library reads it.
func framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
		status, refusal, id := http.StatusBadRequest, (*frameError)(nil), jsontext.Value(nil)
		if err != nil {
			refusal = &frameError{jsonrpc.CodeInvalidRequest, "the message could not be read"}
			if _, long := errors.AsType[*http.MaxBytesError](err); long {
				status, refusal.text = http.StatusRequestEntityTooLarge, "the message is longer than 12 MiB"
			}
		} else {
			var f frame
			f, refusal = readFrames(body)
			id = f.id
		}
		if refusal != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			w.Write(refusal.answer(id))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
