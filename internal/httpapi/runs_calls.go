package httpapi

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

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
