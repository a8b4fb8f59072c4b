package mcpproxy

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
)

// maxTasks bounds how many tasks the proxy knows the tools of.
const maxTasks = 1000

// goesOn says whether a result is none yet: a task that was begun, or a question back.
func goesOn(raw json.RawMessage) bool {
	var r struct {
		Type       string                     `json:"resultType"`
		Task       map[string]json.RawMessage `json:"task"`
		Content    json.RawMessage            `json:"content"`
		Contents   json.RawMessage            `json:"contents"`
		Structured json.RawMessage            `json:"structuredContent"`
	}
	if parse(raw, &r) != nil || r.Content != nil || r.Contents != nil || r.Structured != nil {
		return false
	}
	return r.Type == "task" || r.Type == "input_required" || r.Type == "" && r.Task != nil
}

// ofTask are the members of a task, and of a question back, that are no content; true
// are those that hold questions to the client, and what it returns with its answers.
var ofTask = map[string]bool{
	"resultType": false, "taskId": false, "status": false, "statusMessage": false, "createdAt": false, "lastUpdatedAt": false,
	"ttl": false, "ttlMs": false, "pollInterval": false, "pollIntervalMs": false, "inputRequests": true, "requestState": true,
}

// task makes of what a server says of a task what a client may have: some versions of the
// protocol put the result of the call into it.
func (p *proxy) task(ctx context.Context, w waiting, raw json.RawMessage) (json.RawMessage, error) {
	all, err := members(raw)
	if err != nil {
		return nil, err
	}
	var out []member
	for _, m := range all {
		whole, known := ofTask[m.name]
		switch {
		case m.name == "result" && string(m.value) != "null":
			if m.value, err = p.called(ctx, w, m.value); err != nil {
				return nil, err
			}
		case m.name == "error" && string(m.value) != "null":
			if m.value = shortError(m.value); m.value == nil {
				continue
			}
		case m.name == "task" && !strings.HasPrefix(w.method, "tasks/"): // one that was begun
			within := w
			within.method = "tasks/get"
			if m.value, err = p.task(ctx, within, m.value); err != nil {
				return nil, err
			}
		case m.name == "_meta":
			if m.value = protocolMeta(raw); m.value == nil {
				continue
			}
		case !known:
			continue
		case !whole && len(m.value) > maxError:
			var s string
			if parse(m.value, &s) != nil {
				continue
			}
			m.value = quote(cut(s, maxError))
		}
		out = append(out, m)
	}
	return object(out), nil
}

// began notes which tool a task is of.
func (p *proxy) began(w waiting, raw json.RawMessage) {
	if w.tool == nil {
		return
	}
	var r struct {
		ID   string `json:"taskId"`
		Task struct {
			ID string `json:"taskId"`
		} `json:"task"`
	}
	if parse(raw, &r) != nil {
		return
	}
	if r.ID == "" {
		r.ID = r.Task.ID
	}
	if r.ID == "" || len(r.ID) > maxName {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks == nil || len(p.tasks) >= maxTasks {
		p.tasks = map[string]waiting{}
	}
	p.tasks[r.ID] = waiting{tool: w.tool, input: w.input}
}

// taskOf is what is known of the task that a message is about.
func (p *proxy) taskOf(params json.RawMessage) waiting {
	var id string
	list, err := members(params)
	if err != nil || parse(get(list, "taskId"), &id) != nil {
		return waiting{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tasks[id]
}

// told passes on what the server tells of a task unasked.
func (p *proxy) told(ctx context.Context, m message) error {
	w := p.taskOf(m.Params)
	p.mu.Lock()
	w.set = p.tools
	p.mu.Unlock()
	if w.set == nil { // nobody has called a tool
		return nil
	}
	w.method = "tasks/get"
	params, err := p.task(ctx, w, m.Params)
	if err != nil {
		p.o.Log.ErrorContext(ctx, "mcp-proxy: what the server tells of a task was dropped", "error", err)
		return nil
	}
	return p.client.write(object([]member{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"method", quote(m.Method)}, {"params", params}}))
}

// shortError is an error of the server: its code, its message, and what it says beside
// them where that is short. It is nil for what is none.
func shortError(raw json.RawMessage) json.RawMessage {
	var e struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if parse(raw, &e) != nil {
		return nil
	}
	list := []member{{"code", json.RawMessage(strconv.Itoa(e.Code))}, {"message", quote(cut(e.Message, maxError))}}
	if e.Data != nil && len(e.Data) <= maxError {
		list = append(list, member{"data", e.Data})
	}
	return object(list)
}
