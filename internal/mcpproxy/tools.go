package mcpproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leafproof/ref"
	"leafproof/ref/harness"
)

// Bounds of what a server lists.
const (
	maxTools = 1000
	maxPages = 100
)

// toolset is what the server offers, as the model is shown it.
type toolset struct {
	run   *harness.Run
	tools map[string]*tool // by the name that the model uses; nil is one of the harness's own
	list  json.RawMessage  // the array of all declarations
	last  []member         // the server's last page, for what else stands in it
}

// tool is one of the server's.
type tool struct {
	name    string // the server's own name for it
	raw     []member
	inlines bool // its structured content stands as it is
	said    string
	schema  json.RawMessage
}

// load returns the tools, which it asks the server for where they are not known, or
// changed. meta is the _meta of the request that needs them, without which some
// servers answer nothing.
func (p *proxy) load(ctx context.Context, meta json.RawMessage) (*toolset, error) {
	p.mu.Lock()
	known, stale := p.tools, p.stale
	p.stale = false
	p.mu.Unlock()
	if known != nil && !stale {
		return known, nil
	}
	t := &toolset{tools: map[string]*tool{}}
	own := map[string]bool{}
	for _, s := range harness.Shipped() {
		t.tools[s.Name], own[s.Name] = nil, true
	}
	var theirs []harness.Tool
	cursor := ""
	for page := 0; page == 0 || cursor != ""; page++ {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		if m := plainMeta(meta); m != nil {
			params["_meta"] = m
		}
		result, err := p.request(ctx, "tools/list", params)
		if err != nil {
			return nil, err
		}
		var listed struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := parse(result, &listed); err != nil {
			return nil, fmt.Errorf("tools/list: %w", err)
		}
		if t.last, err = members(result); err != nil {
			return nil, err
		}
		for _, raw := range listed.Tools {
			name, u, err := readTool(raw)
			if err != nil {
				return nil, err
			}
			for own[name] || t.tools[name] != nil {
				name = "server_" + name
			}
			t.tools[name] = u
			theirs = append(theirs, harness.Tool{Name: name, Description: u.said, Schema: u.schema, Strings: true})
		}
		if cursor = listed.NextCursor; len(theirs) > maxTools || page > maxPages {
			return nil, errors.New("the server lists too many tools")
		}
	}
	h, err := harness.New(harness.Options{Store: p.o.Store, Spool: p.o.Spool, Limits: ref.Limits{Bytes: maxValues, Input: MaxMessage}}, theirs...)
	if err != nil {
		return nil, err
	}
	t.run, err = h.Begin(ctx, harness.RunOptions{
		Agent: "mcp-proxy", Run: p.o.Run, Tenant: p.o.Tenant, Caller: p.o.Caller, Profile: ref.ProfileMCP, Transcript: p.o.Transcript, Watch: p.o.Watch,
	})
	if err != nil {
		return nil, err
	}
	if t.list, err = t.declare(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.tools = t
	p.mu.Unlock()
	return t, nil
}

// plainMeta is the _meta of another request without what is that one's alone.
func plainMeta(meta json.RawMessage) json.RawMessage {
	list, err := members(meta)
	if err != nil {
		return nil
	}
	return object(set(list, "progressToken", nil))
}

func readTool(raw json.RawMessage) (string, *tool, error) {
	var t struct {
		Name   string          `json:"name"`
		Said   string          `json:"description"`
		Input  json.RawMessage `json:"inputSchema"`
		Output json.RawMessage `json:"outputSchema"`
	}
	if err := parse(raw, &t); err != nil {
		return "", nil, fmt.Errorf("a tool that is listed: %w", err)
	}
	list, err := members(raw)
	if err != nil || t.Name == "" || t.Input == nil {
		return "", nil, errors.New("a tool is listed without a name or a schema")
	}
	return t.Name, &tool{name: t.Name, raw: list, inlines: t.Output != nil && bounded(t.Output), said: t.Said, schema: t.Input}, nil
}

// declare is the list of tools that the client is given: the server's declarations, in
// which parameters take references, and those of the harness's own tools. An output
// schema stays where what it describes stays.
func (t *toolset) declare() (json.RawMessage, error) {
	list, err := t.run.Declare()
	if err != nil {
		return nil, err
	}
	out := []byte{'['}
	for i, d := range list {
		if i > 0 {
			out = append(out, ',')
		}
		u := t.tools[d.Name]
		if u == nil {
			out = append(out, object([]member{
				{"name", quote(d.Name)},
				{"description", quote(d.Description)},
				{"inputSchema", json.RawMessage(d.Schema)},
				{"annotations", json.RawMessage(`{"readOnlyHint":true,"openWorldHint":false}`)},
			})...)
			continue
		}
		m := set(append([]member(nil), u.raw...), "inputSchema", json.RawMessage(d.Schema))
		m = set(m, "name", quote(d.Name))
		if !u.inlines {
			m = set(m, "outputSchema", nil)
		}
		out = append(out, object(m)...)
	}
	return append(out, ']'), nil
}

// listTools answers tools/list, with all tools on one page.
func (p *proxy) listTools(ctx context.Context, m message) error {
	t, err := p.load(ctx, metaOf(m.Params))
	if err != nil {
		return err
	}
	result := set(append([]member(nil), t.last...), "tools", t.list)
	return p.reply(m.ID, object(set(result, "nextCursor", nil)))
}

func metaOf(params json.RawMessage) json.RawMessage {
	list, err := members(params)
	if err != nil {
		return nil
	}
	return get(list, "_meta")
}

// callTool takes a call of the model: it puts values in place of its references and
// passes it on, or says why not. The harness's own tools answer at once.
func (p *proxy) callTool(ctx context.Context, m message) error {
	params, err := members(m.Params)
	if err != nil {
		return p.refuse(m.ID, codeInvalid, "the call has no parameters")
	}
	var name string
	if err := parse(get(params, "name"), &name); err != nil {
		return p.refuse(m.ID, codeInvalid, "the call names no tool")
	}
	t, err := p.load(ctx, get(params, "_meta"))
	if err != nil {
		return err
	}
	input := get(params, "arguments")
	if input == nil {
		input = json.RawMessage("{}")
	}
	call := harness.Call{Tool: name, Input: input}
	u, known := t.tools[name]
	if known && u == nil {
		p.asked.Add(1)
		go func() { // it may take its time
			defer p.asked.Done()
			v, err := t.run.Call(ctx, call)
			if err == nil {
				err = p.reply(m.ID, textResult(v.Content, v.IsError))
			}
			if err != nil {
				p.o.Log.ErrorContext(ctx, "mcp-proxy", "tool", name, "error", err)
				p.refuse(m.ID, codeInternal, "the result could not be recorded")
			}
		}()
		return nil
	}
	in, err := t.run.Resolve(ctx, call)
	if err != nil {
		return p.reply(m.ID, textResult(harness.FailureOf(err).JSON(), true))
	}
	params = set(set(params, "name", quote(u.name)), "arguments", in.Args)
	line := object([]member{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"id", m.ID}, {"method", json.RawMessage(`"tools/call"`)}, {"params", object(params)}})
	return p.ask(m.ID, waiting{method: m.Method, set: t, tool: u, input: in}, line)
}

// textResult is a result that is one text.
func textResult(text json.RawMessage, isError bool) json.RawMessage {
	list := []member{{"content", json.RawMessage(append(append([]byte(`[{"type":"text","text":`), quote(string(text))...), `}]`...))}}
	if isError {
		list = append(list, member{"isError", json.RawMessage("true")})
	}
	return object(list)
}
