package mcpproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leafproof/internal/jsonschema"
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
	name   string // the server's own name for it
	raw    []member
	output *jsonschema.Schema // bounds its structured content, which stands as it is; nil where nothing does
	said   string
	schema json.RawMessage
	loose  bool // its schema is none that can be used, and stays as it is
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
	t, err := p.offered(ctx, meta)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.stale = p.stale || stale
		return nil, err
	}
	p.tools = t
	return t, nil
}

// listed asks the server for all its tools. What cannot be one is left out: the others
// are worth having.
func (p *proxy) listed(ctx context.Context, meta json.RawMessage) (list []*tool, last []member, err error) {
	names := map[string]bool{}
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
		if errors.Is(err, errNoMethod) { // what it has, as resources, is read by the harness's own
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var listed struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := parse(result, &listed); err != nil {
			return nil, nil, fmt.Errorf("tools/list: %w", err)
		}
		if last, err = members(result); err != nil {
			return nil, nil, err
		}
		for _, raw := range listed.Tools {
			u, err := readTool(raw)
			if err == nil && names[u.name] {
				err = fmt.Errorf("%q is listed twice", short(u.name))
			}
			if err != nil {
				p.o.Log.WarnContext(ctx, "mcp-proxy: a tool of the server was left out", "error", err)
				continue
			}
			names[u.name] = true
			list = append(list, u)
		}
		if cursor = listed.NextCursor; len(list) > maxTools || page > maxPages {
			return nil, nil, errors.New("the server lists too many tools")
		}
	}
	return list, last, nil
}

// offered asks the server what it offers.
func (p *proxy) offered(ctx context.Context, meta json.RawMessage) (*toolset, error) {
	list, last, err := p.listed(ctx, meta)
	if err != nil {
		return nil, err
	}
	t := &toolset{tools: map[string]*tool{}, last: last}
	taken := map[string]bool{}
	for _, s := range harness.Shipped() {
		t.tools[s.Name], taken[s.Name] = nil, true
	}
	for _, u := range list {
		taken[u.name] = true
	}
	o := harness.Options{Store: p.o.Store, Spool: p.o.Spool, Limits: ref.Limits{Bytes: maxValues, Input: MaxMessage}}
	var theirs []harness.Tool
	for _, u := range list {
		name := u.name
		if _, own := t.tools[name]; own {
			for taken[name] {
				name = "server_" + name
			}
			taken[name] = true
		}
		h := harness.Tool{Name: name, Description: u.said, Schema: u.schema, Strings: true}
		if _, err := harness.New(o, h); err != nil {
			// Not a schema that says anything for sure. The server may know what it means:
			// it is shown as it is, and nothing is held against it.
			p.o.Log.WarnContext(ctx, "mcp-proxy: a tool of the server is taken as it is", "tool", short(u.name), "error", err)
			u.loose, h.Schema = true, json.RawMessage(`{"type":"object"}`)
			if _, err := harness.New(o, h); err != nil {
				continue // it is its name
			}
		}
		t.tools[name] = u
		theirs = append(theirs, h)
	}
	h, err := harness.New(o, theirs...)
	if err != nil {
		return nil, err
	}
	t.run, err = h.Begin(ctx, harness.RunOptions{
		Agent: "mcp-proxy", Run: p.o.Run, Tenant: p.o.Tenant, Caller: p.o.Caller, Profile: ref.ProfileMCP, Transcript: p.o.Transcript, Watch: p.o.Watch,
	})
	if err != nil {
		return nil, err
	}
	t.list, err = t.declare()
	return t, err
}

// plainMeta is the _meta of another request without what is that one's alone.
func plainMeta(meta json.RawMessage) json.RawMessage {
	list, err := members(meta)
	if err != nil {
		return nil
	}
	return object(set(list, "progressToken", nil))
}

func readTool(raw json.RawMessage) (*tool, error) {
	var t struct {
		Name   string          `json:"name"`
		Said   string          `json:"description"`
		Input  json.RawMessage `json:"inputSchema"`
		Output json.RawMessage `json:"outputSchema"`
	}
	if err := parse(raw, &t); err != nil {
		return nil, fmt.Errorf("a tool that is listed: %w", err)
	}
	list, err := members(raw)
	if err != nil || t.Name == "" || t.Input == nil {
		return nil, errors.New("a tool is listed without a name or a schema")
	}
	u := &tool{name: t.Name, raw: list, said: t.Said, schema: t.Input}
	if t.Output != nil && bounded(t.Output) {
		if s, err := jsonschema.Compile(t.Output); err == nil { // what cannot be checked bounds nothing
			u.output = s
		}
	}
	return u, nil
}

// keeps says whether structured content is what the tool declares. What else there is,
// nothing bounds: an image may be in it. Not more than one goroutine may ask.
func (t *tool) keeps(ctx context.Context, structured json.RawMessage) bool {
	return len(structured) <= maxInline && t.output.Check(ctx, structured) == nil
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
		m := set(append([]member(nil), u.raw...), "name", quote(d.Name))
		if !u.loose {
			m = set(m, "inputSchema", json.RawMessage(d.Schema))
		}
		if u.output == nil {
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
	return p.answer(m.ID, func(id json.RawMessage) error { return p.reply(id, object(set(result, "nextCursor", nil))) })
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
	refuse := func(text string) error {
		return p.answer(m.ID, func(id json.RawMessage) error { return p.refuse(id, codeParams, text) })
	}
	params, err := members(m.Params)
	if err != nil {
		return refuse("the call has no parameters")
	}
	var name string
	if err := parse(get(params, "name"), &name); err != nil {
		return refuse("the call names no tool")
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
		p.callOwn(ctx, t, m.ID, call)
		return nil
	}
	in, err := t.run.Resolve(ctx, call)
	if err != nil {
		return p.answer(m.ID, func(id json.RawMessage) error {
			return p.reply(id, textResult(harness.FailureOf(err).JSON(), true))
		})
	}
	params = set(set(params, "name", quote(u.name)), "arguments", in.Args)
	line := object([]member{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"id", m.ID}, {"method", json.RawMessage(`"tools/call"`)}, {"params", object(params)}})
	return p.ask(m.ID, t, u, in, line)
}

// callOwn runs one of the harness's own tools, which may take its time.
func (p *proxy) callOwn(ctx context.Context, t *toolset, id json.RawMessage, call harness.Call) {
	var stop context.CancelFunc
	if !p.change(id, func(w *waiting) { w.own, stop = true, w.stop }) {
		return
	}
	go func() {
		defer stop()
		v, err := t.run.Call(ctx, call)
		err = p.answer(id, func(id json.RawMessage) error {
			if err == nil {
				return p.reply(id, textResult(v.Content, v.IsError))
			}
			p.o.Log.ErrorContext(ctx, "mcp-proxy", "tool", call.Tool, "error", err)
			return p.refuse(id, codeInternal, "the result could not be recorded")
		})
		if err != nil {
			p.o.Log.ErrorContext(ctx, "mcp-proxy", "tool", call.Tool, "error", err)
		}
	}()
}

// textResult is a result that is one text.
func textResult(text json.RawMessage, isError bool) json.RawMessage {
	list := []member{{"content", json.RawMessage(append(append([]byte(`[{"type":"text","text":`), quote(string(text))...), `}]`...))}}
	if isError {
		list = append(list, member{"isError", json.RawMessage("true")})
	}
	return object(list)
}
