package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"leafproof"
	"leafproof/ref/harness"
)

// toolResult is the JSON body of POST /v1/runs/{run}/results.
type toolResult struct {
	Call   string          `json:"call,omitempty"` // as /calls named it
	CallID string          `json:"call_id,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	MCP    json.RawMessage `json:"mcp,omitempty"`   // in place of value: the result of an MCP tool call
	Error  string          `json:"error,omitempty"` // in place of value: what the tool says went wrong
	Blobs  []smallBlob     `json:"blobs,omitempty"`
}

// smallBlob is content that stands in a value.
type smallBlob struct {
	At        string `json:"at"` // JSON Pointer into value
	MediaType string `json:"media_type,omitempty"`
	Records   string `json:"records,omitempty"`
	Text      string `json:"text,omitempty"`
	Base64    string `json:"base64,omitempty"`
}

// result records what came of a call. The body is JSON; or a blob itself, whatever its
// length; or multipart, with the JSON as the part "result" and then one part, named by
// its place in the value (a JSON Pointer), that is a blob.
func (c *call) result() error {
	q, err := c.query("call", "call_id", "tool", "records", "filename")
	if err != nil {
		return err
	}
	return c.withRun(func(r *openRun) error {
		media, params, err := c.mediaType()
		if err != nil {
			return err
		}
		res := harness.Result{CallID: q.Get("call_id"), Tool: q.Get("tool")}
		named := q.Get("call")
		switch {
		case strings.HasPrefix(media, "multipart/"):
			return c.resultParts(r, params["boundary"])
		case isJSON(media) && !q.Has("call") && !q.Has("call_id") && !q.Has("tool"):
			text, err := c.bodyText(maxResult)
			if err != nil {
				return err
			}
			if named, err = jsonResult(text, &res); err != nil {
				return err
			}
		default: // the body is the blob
			b, err := c.take(c.s.o.BodyBytes)
			if err != nil {
				return err
			}
			facts, err := headerFacts(c.r.Header.Values(factsHeader))
			if err != nil {
				return err
			}
			res.Value = harness.Blob{Reader: b, MediaType: media, Name: q.Get("filename"), Records: q.Get("records"), Facts: facts}
		}
		return c.record(r, named, res)
	})
}

// record records a result and answers with what the model reads of it.
func (c *call) record(r *openRun, named string, res harness.Result) error {
	if named != "" {
		in, err := r.recall(c.r.Context(), named)
		if err != nil {
			return err
		}
		res.Input = in
		if res.Tool == "" {
			res.Tool = in.Call.Tool
		}
		if res.CallID == "" {
			res.CallID = in.Call.ID
		}
	}
	if res.Tool == "" {
		return invalid(http.StatusBadRequest, "/tool", "a result says of which tool it is")
	}
	views, err := r.current().Record(c.r.Context(), res)
	if err != nil {
		return err
	}
	if c.body != nil && c.body.err != nil {
		return c.body.err // what the model reads says that the result was lost
	}
	if err := views[0].Err; err != nil && res.Err == nil {
		return c.failed(err, views[0])
	}
	return c.json(http.StatusCreated, viewOf(views[0]))
}

// jsonResult reads a result in JSON, and how /calls named its call.
func jsonResult(text []byte, res *harness.Result) (named string, err error) {
	members, err := topMembers(text, "call", "call_id", "tool", "value", "mcp", "error", "blobs")
	if err != nil {
		return "", err
	}
	said := ""
	if err := members.strings(map[string]*string{"call": &named, "call_id": &res.CallID, "tool": &res.Tool, "error": &said}); err != nil {
		return "", err
	}
	given := 0
	for _, name := range []string{"value", "mcp", "error"} {
		if members[name] != nil {
			given++
		}
	}
	if given != 1 {
		return "", invalid(http.StatusBadRequest, "", "a result has one of value, mcp and error")
	}
	var blobs []smallBlob
	if b := members["blobs"]; b != nil {
		if err := decodeStrict(b, &blobs); err != nil {
			return "", err
		}
	}
	switch {
	case members["error"] != nil:
		res.Err = &harness.ToolError{Err: errors.New(said)}
	case members["mcp"] != nil:
		res.Value = harness.Content(members["mcp"])
	default:
		raw := harness.Raw{JSON: json.RawMessage(members["value"]), Blobs: map[string]harness.Blob{}}
		for i, b := range blobs {
			if _, twice := raw.Blobs[b.At]; twice {
				return "", invalid(http.StatusBadRequest, "/blobs/"+strconv.Itoa(i)+"/at", "two blobs stand at %s", printable(b.At))
			}
			content := []byte(b.Text)
			if b.Base64 != "" {
				if content, err = base64.StdEncoding.DecodeString(b.Base64); err != nil || b.Text != "" {
					return "", invalid(http.StatusBadRequest, "/blobs/"+strconv.Itoa(i)+"/base64", "a blob has text, or base64")
				}
			}
			raw.Blobs[b.At] = harness.Blob{Reader: bytes.NewReader(content), MediaType: b.MediaType, Records: b.Records}
		}
		res.Value = raw
	}
	return named, nil
}

// resultParts records a result whose blob is a part of its own.
func (c *call) resultParts(r *openRun, boundary string) error {
	if boundary == "" || len(boundary) > 70 {
		return invalid(http.StatusUnsupportedMediaType, "Content-Type", "a multipart body names its boundary")
	}
	b, err := c.take(c.s.o.BodyBytes)
	if err != nil {
		return err
	}
	parts := multipart.NewReader(b, boundary)
	first, err := parts.NextRawPart()
	if err != nil || first.FormName() != "result" {
		return invalid(http.StatusBadRequest, "parts", "the first part is named result")
	}
	text, err := c.readPart(first, maxResult)
	if err != nil {
		return err
	}
	var res harness.Result
	named, err := jsonResult(text, &res)
	if err != nil {
		return err
	}
	raw, ok := res.Value.(harness.Raw)
	if !ok {
		return invalid(http.StatusBadRequest, "parts", "a blob stands in a value")
	}
	part, err := parts.NextRawPart()
	if err != nil {
		return invalid(http.StatusBadRequest, "parts", "the second part is a blob, named by the JSON Pointer of its place")
	}
	if _, twice := raw.Blobs[part.FormName()]; twice {
		return invalid(http.StatusBadRequest, "parts", "two blobs stand at %s", printable(part.FormName()))
	}
	raw.Blobs[part.FormName()] = harness.Blob{Reader: &partReader{c: c, r: part, end: func() error { return c.endParts(parts, "a blob") }}, MediaType: part.Header.Get("Content-Type"), Name: part.FileName()}
	res.Value = raw
	return c.record(r, named, res)
}

// retrying is the body of POST /v1/runs/{run}/retries.
type retrying struct {
	Retry string `json:"retry"`
}

// retry stores a result that could not be stored when it came.
func (c *call) retry() error {
	return c.withRun(func(r *openRun) error {
		var in retrying
		if err := c.decode(&in); err != nil {
			return err
		}
		v, err := r.current().Retry(c.r.Context(), in.Retry)
		if errors.Is(err, fs.ErrNotExist) {
			return refuse(http.StatusNotFound, leafproof.CodeRefNotFound, leafproof.FixCall, "/retry", "no result of that name waits")
		}
		if err != nil {
			return err
		}
		if v.Err != nil {
			return c.failed(v.Err, v)
		}
		return c.json(http.StatusCreated, viewOf(v))
	})
}

// runMessage is the body of POST /v1/runs/{run}/messages.
type runMessage struct {
	Role string `json:"role" enum:"user,assistant,system"`
	Text string `json:"text"`
}

// message records what no tool made, so that it can be meant.
func (c *call) message() error {
	return c.withRun(func(r *openRun) error {
		var in runMessage
		if err := c.decodeDeep(&in, maxMCP); err != nil {
			return err
		}
		if in.Role != "user" && in.Role != "assistant" && in.Role != "system" {
			return invalid(http.StatusBadRequest, "/role", "a role is user, assistant or system")
		}
		v, err := r.current().Message(c.r.Context(), in.Role, in.Text)
		if err != nil {
			return err
		}
		return c.json(http.StatusCreated, viewOf(v))
	})
}

// checkedRefs is the body of GET /v1/runs/{run}/references.
type checkedRefs struct {
	References []harness.Checked `json:"references"`
}

// references looks at all references of the run: which are alive.
func (c *call) references() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.withRun(func(r *openRun) error {
		list, err := harness.CheckTranscript(c.r.Context(), c.s.store, c.who, r.transcript)
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, checkedRefs{orEmpty(list)})
	})
}

// admitted is the body of GET /v1/runs/{run}/admissions.
type admitted struct {
	Admissions []harness.Admission `json:"admissions"`
}

// admissions says what of the answers in a message the model was given.
func (c *call) admissions() error {
	q, err := c.query("seq")
	if err != nil {
		return err
	}
	seq, err := number(q, "seq", 0, 0, 1<<53-1)
	if err != nil {
		return err
	}
	return c.withRun(func(r *openRun) error {
		list, err := r.current().Admissions(c.r.Context(), uint64(seq))
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, admitted{orEmpty(list)})
	})
}
