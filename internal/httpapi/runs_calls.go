package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/manifest"
	refs "leafproof/ref"
	"leafproof/ref/harness"
)

// newRun is the body of POST /v1/runs.
type newRun struct {
	AgentID  string     `json:"agent_id"`
	RunID    string     `json:"run_id,omitempty"` // of the artifacts' scope; made where it is not given
	TenantID string     `json:"tenant_id,omitempty"`
	Profile  string     `json:"profile,omitempty" enum:"anthropic,openai-strict,gemini,mcp"`
	AsOf     *time.Time `json:"as_of,omitempty"` // the past moment that the task is about
	Tools    []runTool  `json:"tools,omitempty"`
}

// runTool is a tool of the caller's.
type runTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Lazy        []string        `json:"lazy,omitempty"`
	Require     []runEvidence   `json:"require,omitempty"`
	OpaqueText  bool            `json:"opaque_text,omitempty"`
}

// runEvidence is what a tool demands of a reference that it is called with.
type runEvidence struct {
	Param         string     `json:"param,omitempty"`
	Require       []string   `json:"require,omitempty"` // K=V
	Optional      []string   `json:"optional,omitempty"`
	MaxAgeSeconds int64      `json:"max_age_seconds,omitempty"`
	AsOf          *time.Time `json:"as_of,omitempty"`
	Deep          bool       `json:"deep,omitempty"`
}

// tool is the tool that number i of a list describes.
func (t runTool) tool(i int) (harness.Tool, error) {
	out := harness.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema, Lazy: t.Lazy, OpaqueText: t.OpaqueText}
	at := "/tools/" + strconv.Itoa(i)
	for j, e := range t.Require {
		at := at + "/require/" + strconv.Itoa(j)
		if e.MaxAgeSeconds < 0 || e.MaxAgeSeconds > maxAge {
			return out, invalid(http.StatusBadRequest, at+"/max_age_seconds", "max_age_seconds is from 0 to %d", maxAge)
		}
		one := harness.Evidence{Param: e.Param, MaxAge: time.Duration(e.MaxAgeSeconds) * time.Second, Deep: e.Deep}
		if e.AsOf != nil {
			one.AsOf = *e.AsOf
		}
		for _, list := range []struct {
			at    string
			texts []string
			into  *[]leafproof.Fact
		}{{at + "/require", e.Require, &one.Require}, {at + "/optional", e.Optional, &one.Optional}} {
			for _, text := range list.texts {
				f, err := leafproof.ParseFact(text)
				if err != nil {
					return out, invalid(http.StatusBadRequest, list.at, "%v", err)
				}
				*list.into = append(*list.into, f)
			}
		}
		out.Require = append(out.Require, one)
	}
	return out, nil
}

// runState is a run, with what its model is shown of references.
type runState struct {
	Run      string      `json:"run"`
	RunID    string      `json:"run_id"`
	AgentID  string      `json:"agent_id"`
	Profile  string      `json:"profile"`
	Protocol string      `json:"protocol"` // for the system prompt
	Tools    []shownTool `json:"tools"`
}

// shownTool is a tool as the model is shown it.
type shownTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Here        bool            `json:"here"` // it runs in the server: /calls answers with its result
	Findings    []schemaFinding `json:"findings"`
}

// schemaFinding is what the provider has against the author's schema.
type schemaFinding struct {
	At     string `json:"at"`
	Rule   string `json:"rule"`
	Says   string `json:"says"`
	Mended bool   `json:"mended"`
}

// withRun does something with the run of the path.
func (c *call) withRun(do func(r *openRun) error) error {
	r, err := c.s.runs.take(c.r.Context(), c.info, c.who.Purpose, c.params["run"])
	if err != nil {
		return err
	}
	defer c.s.runs.giveBack(r)
	return do(r)
}

func (c *call) beginRun() error {
	var in newRun
	if err := c.decodeDeep(&in, maxMCP); err != nil {
		return err
	}
	tenant, err := c.tenant(in.TenantID)
	if err != nil {
		return err
	}
	if len(in.AgentID) == 0 || len(in.AgentID) > maxAgent {
		return invalid(http.StatusBadRequest, "/agent_id", "an agent has a name of 1 to %d bytes", maxAgent)
	}
	if len(in.Tools) > maxTools {
		return invalid(http.StatusBadRequest, "/tools", "%d tools, and at most %d are taken", len(in.Tools), maxTools)
	}
	if in.Profile == "" {
		in.Profile = refs.ProfileAnthropic.String()
	}
	if run := c.info.Run; run != nil {
		if in.RunID != "" && in.RunID != *run {
			return invalid(http.StatusBadRequest, "/run_id", "the run is that of who asks, and need not be said")
		}
		in.RunID = *run
	}
	if in.RunID == "" {
		in.RunID = "run-" + strings.ToLower(c.id[:min(len(c.id), 8)]) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	}
	if err := manifest.CheckName(in.RunID); err != nil {
		return invalid(http.StatusBadRequest, "/run_id", "%v", err)
	}
	r, err := c.s.runs.begin(c.r.Context(), runNote{
		Principal: c.who.Principal, Since: c.since(), Purpose: c.who.Purpose, Tenant: tenant, Agent: in.AgentID, RunID: in.RunID, Profile: in.Profile, AsOf: in.AsOf, Tools: in.Tools,
	})
	if err != nil {
		return err
	}
	defer c.s.runs.giveBack(r)
	c.w.Header().Set("Location", "/v1/runs/"+r.id)
	return c.showRun(http.StatusCreated, r)
}

// since is when the principal that asks was entered; zero for the owner, who never was.
func (c *call) since() time.Time {
	if c.who.Principal == leafproof.Owner.Principal {
		return time.Time{}
	}
	return c.info.CreatedAt
}

func (c *call) getRun() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.withRun(func(r *openRun) error { return c.showRun(http.StatusOK, r) })
}

// toolSet is the body of POST /v1/runs/{run}/schemas.
type toolSet struct {
	Tools []runTool `json:"tools"`
}

// schemas gives the run its tools, in place of those that it had.
func (c *call) schemas() error {
	return c.withRun(func(r *openRun) error {
		var in toolSet
		if err := c.decodeDeep(&in, maxMCP); err != nil {
			return err
		}
		if len(in.Tools) > maxTools {
			return invalid(http.StatusBadRequest, "/tools", "%d tools, and at most %d are taken", len(in.Tools), maxTools)
		}
		if err := c.s.runs.equip(c.r.Context(), r, in.Tools); err != nil {
			return err
		}
		return c.showRun(http.StatusOK, r)
	})
}

func (c *call) showRun(status int, r *openRun) error {
	note, run := r.state()
	shown, err := run.Declare()
	if err != nil {
		return invalid(http.StatusBadRequest, "/tools", "%v", err)
	}
	theirs := map[string]json.RawMessage{}
	for _, t := range note.Tools {
		theirs[t.Name] = t.Schema
	}
	profile, _ := refs.ParseProfile(note.Profile)
	out := runState{Run: r.id, RunID: note.RunID, AgentID: note.Agent, Profile: note.Profile, Protocol: run.Protocol(), Tools: []shownTool{}}
	for _, d := range shown {
		t := shownTool{Name: d.Name, Description: d.Description, Schema: d.Schema, Findings: []schemaFinding{}}
		schema, elsewhere := theirs[d.Name]
		t.Here = !elsewhere
		if elsewhere {
			for _, f := range refs.Lint(profile, schema) {
				t.Findings = append(t.Findings, schemaFinding{f.At, f.Rule, f.Says, f.Mended})
			}
		}
		out.Tools = append(out.Tools, t)
	}
	return c.json(status, out)
}

// toolCall is the body of POST /v1/runs/{run}/calls.
type toolCall struct {
	CallID string          `json:"call_id,omitempty"`
	Tool   string          `json:"tool"`
	Input  json.RawMessage `json:"input"`
}

// toolCalled is the answer. Of call, input, lazy and decision there is nothing where
// the tool ran here: then result is what the model reads.
type toolCalled struct {
	Call     string          `json:"call,omitempty"` // names the call when its result comes
	Input    json.RawMessage `json:"input,omitempty"`
	Lazy     []lazyParam     `json:"lazy,omitempty"`
	Decision *gateDecision   `json:"decision,omitempty"`
	Result   *toolView       `json:"result,omitempty"`
}

// lazyParam is a parameter that the tool reads by itself, from a path of the server.
type lazyParam struct {
	Param string `json:"param"`
	From  string `json:"from"`
}

// gateDecision is what became of the tool's demands.
type gateDecision struct {
	Decision string          `json:"decision"`
	Unmet    []harness.Unmet `json:"unmet"`
}

// toolView is what the model reads of a result.
type toolView struct {
	Seq      uint64          `json:"seq"`
	Part     uint64          `json:"part"`
	CallID   string          `json:"call_id,omitempty"`
	Tool     string          `json:"tool,omitempty"`
	IsError  bool            `json:"is_error"`
	DataOnly bool            `json:"data_only"`
	Content  json.RawMessage `json:"content"`
	Retry    string          `json:"retry,omitempty"` // of a result that could not be stored: the key to try again with
}

func viewOf(v harness.View) *toolView {
	out := &toolView{v.Seq, v.Part, v.CallID, v.Tool, v.IsError, v.DataOnly, v.Content, ""}
	if e, ok := errors.AsType[*harness.StoreError](v.Err); ok {
		out.Retry = e.Key
	}
	return out
}

// callTool resolves a call of the model's. A tool of the server's own runs at once.
// What the model must be told of a call that fails is recorded, and answered too.
func (c *call) callTool() error {
	return c.withRun(func(r *openRun) error {
		text, err := c.bodyText(maxResult)
		if err != nil {
			return err
		}
		in := toolCall{}
		members, err := topMembers(text, "call_id", "tool", "input")
		if err == nil {
			err = members.strings(map[string]*string{"call_id": &in.CallID, "tool": &in.Tool})
		}
		if err != nil {
			return err
		}
		if in.Input = json.RawMessage(members["input"]); in.Input == nil {
			return invalid(http.StatusBadRequest, "/input", "a call has an input, as the model wrote it")
		}
		run, call := r.current(), harness.Call{ID: in.CallID, Tool: in.Tool, Input: in.Input}
		for _, t := range harness.Shipped() {
			if t.Name != in.Tool {
				continue
			}
			v, err := run.Call(c.r.Context(), call)
			if err != nil {
				return err
			}
			return c.json(http.StatusOK, toolCalled{Result: viewOf(v)})
		}
		got, err := run.Resolve(c.r.Context(), call)
		if err != nil {
			return c.mustNotRun(run, call, err)
		}
		name, err := r.calls.keep(got)
		if err != nil {
			return err
		}
		out := toolCalled{Call: name, Input: got.Args, Decision: &gateDecision{got.Decision.Decision, orEmpty(got.Decision.Unmet)}}
		for param := range got.Lazy {
			out.Lazy = append(out.Lazy, lazyParam{param, "/v1/runs/" + r.id + "/calls/" + out.Call + "/" + hex.EncodeToString([]byte(param))})
		}
		return c.json(http.StatusOK, out)
	})
}

// mustNotRun records why a tool does not run, and answers with the status of that.
func (c *call) mustNotRun(run *harness.Run, call harness.Call, why error) error {
	views, err := run.Record(c.r.Context(), harness.Result{CallID: call.ID, Tool: call.Tool, Err: why})
	if err != nil {
		return err
	}
	return c.failed(why, views[0])
}

// failed answers with a failure, as a problem that has what the model reads of it.
func (c *call) failed(why error, v harness.View) error {
	f := harness.FailureOf(why)
	status := (&leafproof.Error{Code: f.Code}).HTTPStatus()
	if status >= 500 { // others may speak of what the model or the tool wrote
		c.s.o.Log.Error("not done", "request", c.id, "code", string(f.Code), "err", why.Error())
	}
	if status < 400 { // a scan that has no answer to show
		status = http.StatusServiceUnavailable
	}
	c.problem = f.Code
	b, err := encode(Problem{
		Type: problemType + string(f.Code), Title: http.StatusText(status), Status: status, Detail: f.Message,
		Code: f.Code, Message: f.Message, Retryable: f.Retryable, Action: f.Action, At: f.At, Result: viewOf(v),
	})
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/problem+json")
	return c.jsonBytes(status, b)
}

// lazy sends the value of a parameter that the tool reads by itself; the gate is asked
// for each read.
func (c *call) lazy() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.withRun(func(r *openRun) error {
		param, err := hex.DecodeString(c.params["param"])
		if err != nil {
			return errNoParam()
		}
		in, err := r.recall(c.r.Context(), c.params["call"])
		if err != nil {
			return err
		}
		if in.Lazy[string(param)] == nil {
			return errNoParam()
		}
		data, err := in.Lazy[string(param)].Open(c.r.Context())
		if err != nil {
			return err
		}
		defer data.Close()
		c.w.Header().Set("Content-Type", "application/octet-stream")
		if c.r.Method == http.MethodHead {
			c.w.WriteHeader(http.StatusOK)
			return nil
		}
		if _, err := io.CopyBuffer(&c.w, onlyReader{data}, make([]byte, 64<<10)); err != nil {
			return err
		}
		return nil
	})
}

// errNoParam is the answer to who reads a parameter that is none.
func errNoParam() error {
	return refuse(http.StatusNotFound, leafproof.CodeRefNotFound, leafproof.FixCall, "param", "the call has no such parameter")
}

// onlyReader hides what else a reader can do.
type onlyReader struct{ io.Reader }

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

// bodyText reads a JSON body.
func (c *call) bodyText(most int64) ([]byte, error) {
	if !isJSON(c.r.Header.Get("Content-Type")) {
		return nil, invalid(http.StatusUnsupportedMediaType, "Content-Type", "the body must be application/json")
	}
	b, err := c.take(most)
	if err != nil {
		return nil, err
	}
	return c.readAll(b)
}

// isJSON reports the media type of JSON, with whatever parameters: they mean nothing.
func isJSON(text string) bool {
	media, _, err := mime.ParseMediaType(text)
	return err == nil && media == "application/json"
}

// decodeDeep is decode for bodies that hold other people's JSON, which may be nested
// deeper.
func (c *call) decodeDeep(v any, most int64) error {
	text, err := c.bodyText(most)
	if err != nil {
		return err
	}
	return decodeMembers(text, v)
}

// memberSet are the members of an object as they stand there.
type memberSet map[string]jsontext.Value

// topMembers reads the members of an object, which has no others than those named and
// none twice. What stands in them is for whoever takes it to judge: a model's input
// with a name twice gets the answer that is for models.
func topMembers(text []byte, names ...string) (memberSet, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	bad := func(err error) (memberSet, error) {
		at := int64(d.InputOffset())
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			at = e.ByteOffset
		}
		return nil, invalid(http.StatusBadRequest, "", "the body: byte %d: not a JSON object: %v", at, err)
	}
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return bad(errors.Join(err, errors.New("an object is expected")))
	}
	out := memberSet{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return bad(err)
		}
		known := false
		for _, n := range names {
			known = known || n == name.String()
		}
		key := name.String()
		if _, twice := out[key]; twice || !known {
			return nil, invalid(http.StatusBadRequest, "/"+printable(key), "%s is no member of this body, or is given twice", printable(key))
		}
		v, err := d.ReadValue()
		if err != nil {
			return bad(err)
		}
		out[key] = v.Clone()
	}
	if _, err := d.ReadToken(); err != nil {
		return bad(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return bad(errors.New("something stands behind it"))
	}
	return out, nil
}

// strings reads the members that are strings.
func (m memberSet) strings(into map[string]*string) error {
	for name, target := range into {
		if v := m[name]; v != nil {
			if err := decodeStrict(v, target); err != nil {
				return invalid(http.StatusBadRequest, "/"+name, "%s is a string", name)
			}
		}
	}
	return nil
}
