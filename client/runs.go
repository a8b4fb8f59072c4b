package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// A Tool is one that a model may call, and that runs here.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	// Lazy are the parameters that the tool reads by itself: see Input.Open.
	Lazy []string `json:"lazy,omitempty"`
	// Do is the tool. Its result is a [Blob], or a value that has a JSON form. What its
	// error says is for the model.
	Do func(ctx context.Context, in *Input) (any, error) `json:"-"`
}

// Input is what a tool is called with.
type Input struct {
	Args json.RawMessage // with the values that its references mean
	c    *Client
	lazy map[string]string
}

// Open reads a lazy parameter from the server.
func (in *Input) Open(ctx context.Context, param string) (io.ReadCloser, error) {
	path, ok := in.lazy[param]
	if !ok {
		return nil, fmt.Errorf("client: %q is no lazy parameter of this call", param)
	}
	resp, err := in.c.do(ctx, &request{method: "GET", path: path})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// A Blob is a result of bytes: they go into the store, whatever their size, and the model
// reads a marker.
type Blob struct {
	Reader        io.Reader
	MediaType     string // "" is application/octet-stream
	Records, Name string // as of PutOptions
	Facts         json.RawMessage
}

// RunOptions say whose run it is.
type RunOptions struct {
	Agent   string // the agent's id
	RunID   string // of the artifacts' scope; "" is made
	Profile string // anthropic, openai-strict, gemini or mcp; "" is the first
}

// A Shown is a tool as the model is shown it.
type Shown struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Here        bool            `json:"here"` // it runs in the server
}

// A View is what the model reads of a result.
type View struct {
	Seq      uint64          `json:"seq"`
	Part     uint64          `json:"part"`
	CallID   string          `json:"call_id"`
	Tool     string          `json:"tool"`
	IsError  bool            `json:"is_error"`
	DataOnly bool            `json:"data_only"`
	Content  json.RawMessage `json:"content"`
	Retry    string          `json:"retry"` // of a result that could not be stored
}

// A Run is a conversation of an agent with its model, whose tools' results stay out of
// the model's view. What the server answers here is its word: it is the harness.
type Run struct {
	ID       string
	RunID    string
	Protocol string  // for the system prompt
	Shown    []Shown // for the model

	c     *Client
	tools map[string]Tool
}

// Begin begins a run.
func (c *Client) Begin(ctx context.Context, o RunOptions, tools ...Tool) (*Run, error) {
	body := struct {
		Agent   string `json:"agent_id"`
		RunID   string `json:"run_id,omitempty"`
		Profile string `json:"profile,omitempty"`
		Tools   []Tool `json:"tools,omitempty"`
	}{o.Agent, o.RunID, o.Profile, tools}
	return c.run(ctx, &request{method: "POST", path: "/v1/runs", json: body, once: true, want: []int{http.StatusCreated}}, tools)
}

// Resume goes on with a run that was begun before, with the tools as they are now: its
// references mean what they meant.
func (c *Client) Resume(ctx context.Context, id string, tools ...Tool) (*Run, error) {
	if !isRun(id) {
		return nil, &Error{Code: "ref_not_found", Action: "fix_call", Message: "that is no run's id", offset: -1}
	}
	body := struct {
		Tools []Tool `json:"tools"`
	}{tools}
	return c.run(ctx, &request{method: "POST", path: "/v1/runs/" + id + "/schemas", json: body}, tools)
}

func isRun(id string) bool {
	rest, ok := strings.CutPrefix(id, "rn_")
	return ok && len(rest) == 26 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func (c *Client) run(ctx context.Context, q *request, tools []Tool) (*Run, error) {
	var state struct {
		Run      string  `json:"run"`
		RunID    string  `json:"run_id"`
		Protocol string  `json:"protocol"`
		Tools    []Shown `json:"tools"`
	}
	if err := c.value(ctx, q, &state); err != nil {
		return nil, err
	}
	if !isRun(state.Run) {
		return nil, refuse(ErrProtocol, "/run", "a run without an id")
	}
	r := &Run{ID: state.Run, RunID: state.RunID, Protocol: state.Protocol, Shown: state.Tools, c: c, tools: map[string]Tool{}}
	for _, t := range tools {
		r.tools[t.Name] = t
	}
	return r, nil
}

func (r *Run) path(below string) string { return "/v1/runs/" + r.ID + below }

// Message records what no tool made; a role is user, assistant or system.
func (r *Run) Message(ctx context.Context, role, text string) (View, error) {
	return r.view(ctx, &request{method: "POST", path: r.path("/messages"), json: map[string]string{"role": role, "text": text}})
}

// Call runs a call as the model wrote it, and returns what the model reads of it. A call
// that must not run gives a View that says why, with IsError, and no error; so does a
// tool that fails.
func (r *Run) Call(ctx context.Context, id, tool string, input json.RawMessage) (View, error) {
	resp, err := r.c.do(ctx, &request{
		method: "POST", path: r.path("/calls"), once: true, header: header("Content-Type", "application/json"),
		body: bytes.NewReader(callBody(id, tool, input)), length: -1,
	})
	if err != nil {
		return shown(err)
	}
	text, err := readJSON(ctx, resp, maxInput)
	if err != nil {
		return View{}, err
	}
	var out struct {
		Call  string          `json:"call"`
		Input json.RawMessage `json:"input"`
		Lazy  []struct {
			Param string `json:"param"`
			From  string `json:"from"`
		} `json:"lazy"`
		Result *View `json:"result"`
	}
	if err := decode(text, &out); err != nil {
		return View{}, err
	}
	if out.Result != nil {
		return *out.Result, nil
	}
	in := &Input{Args: out.Input, c: r.c, lazy: map[string]string{}}
	for _, l := range out.Lazy {
		if !strings.HasPrefix(l.From, r.path("/calls/")) || strings.Contains(l.From, "..") {
			return View{}, refuse(ErrProtocol, l.Param, "a parameter is read from elsewhere")
		}
		in.lazy[l.Param] = l.From
	}
	t, ok := r.tools[tool]
	if !ok || t.Do == nil {
		return View{}, fmt.Errorf("client: the tool %s is not here", tool)
	}
	value, err := t.Do(ctx, in)
	named := result{Call: out.Call, CallID: id, Tool: tool}
	return r.record(ctx, named, value, err)
}

// maxInput is how many bytes of a call's input are taken, with its values: a server
// resolves at most 16 MiB, of which each byte may be an escape.
const maxInput = 128 << 20

// callBody has the input as the model wrote it, byte for byte.
func callBody(id, tool string, input json.RawMessage) []byte {
	text := func(s string) []byte {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err) // a string has a JSON form
		}
		return b
	}
	b := append([]byte(`{"call_id":`), text(id)...)
	b = append(append(b, `,"tool":`...), text(tool)...)
	return append(append(append(b, `,"input":`...), input...), '}')
}

// result is what came of a call.
type result struct {
	Call   string `json:"call"`
	CallID string `json:"call_id,omitempty"`
	Tool   string `json:"tool"`
	Value  any    `json:"value,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (r *Run) record(ctx context.Context, res result, value any, failed error) (View, error) {
	q := &request{method: "POST", path: r.path("/results"), once: true}
	blob, isBlob := value.(Blob)
	switch {
	case failed != nil:
		if res.Error = failed.Error(); res.Error == "" {
			res.Error = "it failed"
		}
		q.json = res
	case isBlob:
		q.query = url.Values{"call": {res.Call}, "tool": {res.Tool}}
		for name, v := range map[string]string{"call_id": res.CallID, "records": blob.Records, "filename": blob.Name} {
			if v != "" {
				q.query.Set(name, v)
			}
		}
		media := blob.MediaType
		if media == "" {
			media = "application/octet-stream"
		}
		q.header = header("Content-Type", media)
		if blob.Facts != nil {
			q.header.Set("Leafproof-Manifest", base64.StdEncoding.EncodeToString(blob.Facts))
		}
		q.body, q.length = blob.Reader, sizeOf(blob.Reader)
	case value == nil:
		res.Value = json.RawMessage("null")
		q.json = res
	default:
		res.Value = value
		q.json = res
	}
	return r.view(ctx, q)
}

// Retry stores a result that could not be stored when it came: View.Retry names it.
func (r *Run) Retry(ctx context.Context, retry string) (View, error) {
	return r.view(ctx, &request{method: "POST", path: r.path("/retries"), json: map[string]string{"retry": retry}})
}

func (r *Run) view(ctx context.Context, q *request) (View, error) {
	q.once, q.want = true, []int{http.StatusCreated}
	var v View
	err := r.c.value(ctx, q, &v)
	if err != nil {
		return shown(err)
	}
	return v, nil
}

// shown is what the model reads of a failure, where it is one that the model is told of.
func shown(err error) (View, error) {
	if e, ok := errors.AsType[*Error](err); ok && e.view != nil {
		return *e.view, nil
	}
	return View{}, err
}
