package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/mcpserver"
	"leafproof/selector"
)

func hookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hook",
		Short: "Stand behind the tools of a coding agent",
		Args:  args(0, 0),
	}
	cmd.AddCommand(hookClaudeCodeCommand())
	return cmd
}

// maxHookInput bounds what a hook is told, in bytes.
const maxHookInput = 256 << 20

func hookClaudeCodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claude-code",
		Short: "A PostToolUse hook of Claude Code: keep a tool's output, and show the model a preview and a reference",
		Long: "Read the JSON of a PostToolUse hook on standard input, store the texts and images of the tool's response as artifacts, and\n" +
			"print what takes its place: in the tool's own shape, a preview of each and its reference. `leafproof mcp` reads them by\n" +
			"that reference. Other events, and tools of leafproof's own, are let through: nothing is printed.",
		Args: args(0, 0),
	}
	asFlags(cmd)
	tenant := cmd.Flags().String("tenant", "", "the tenant of what is stored (the owner may name one; default "+leafproof.DefaultTenant+")")
	run := cmd.Flags().String("run", "", "the run of what is stored")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxHookInput+1))
		if err != nil {
			return err
		}
		if len(text) > maxHookInput {
			return fmt.Errorf("the hook is told more than %d MiB", maxHookInput>>20)
		}
		var in hookInput
		if err := json.Unmarshal(text, &in); err != nil {
			return usage("hook: standard input is not the JSON of a hook: %v", err)
		}
		if in.Event != "PostToolUse" || strings.Contains(in.Tool, "__artifact_") || len(in.Response) == 0 {
			return nil
		}
		h := &hook{ctx: cmd.Context(), in: in}
		err = withStore(cmd, func(s *leafproof.Store) (err error) {
			if h.who, err = mcpIdentity(cmd, s, *tenant, *run); err != nil {
				return err
			}
			h.store = s
			return h.answer(cmd.OutOrStdout(), nil)
		})
		if err != nil && h.store == nil {
			// A store that does not open takes nothing either, and the agent that hears
			// of a failure shows the model the output itself.
			why := "leafproof: " + oneLine(err.Error())
			if hint := hintFor(cmd, err); hint != "" {
				why += "; " + hint
			}
			fmt.Fprintln(cmd.ErrOrStderr(), why)
			h.failed = err
			err = h.answer(cmd.OutOrStdout(), map[string]any{"systemMessage": why})
		}
		if err != nil && codeFor(err) != exitUsage { // to an exit of 2 the agent would give a meaning
			err = &exitError{exitFailed, err}
		}
		return err
	}
	return cmd
}

// mcpPrefix begins the names of the tools of MCP servers.
const mcpPrefix = "mcp__"

// hookInput is what a PostToolUse hook is told, as far as it matters here.
type hookInput struct {
	Session  string          `json:"session_id"`
	Event    string          `json:"hook_event_name"`
	Tool     string          `json:"tool_name"`
	CallID   string          `json:"tool_use_id"`
	Input    json.RawMessage `json:"tool_input"`
	Response json.RawMessage `json:"tool_response"`
}

// hook stores one response.
type hook struct {
	ctx     context.Context
	store   *leafproof.Store
	who     mcpserver.Identity
	in      hookInput
	failed  error // why the store takes nothing; nil while it does
	changed bool
}

// answer prints what takes the place of the response, beside what the user is told.
func (h *hook) answer(w io.Writer, told map[string]any) error {
	out, changed, err := h.response()
	if err != nil || !changed {
		return err
	}
	if told == nil {
		told = map[string]any{}
	}
	said := map[string]any{"hookEventName": h.in.Event, "updatedToolOutput": out}
	if strings.HasPrefix(h.in.Tool, mcpPrefix) {
		said["updatedMCPToolOutput"] = out // what Claude Code before 2.1.121 reads
	}
	if h.failed == nil {
		if text := h.retry(); text != "" {
			said["additionalContext"] = text
		}
	}
	told["hookSpecificOutput"] = said
	return printJSON(w, told)
}

// response is the tool's response with its content taken out. It keeps the shape that
// the tool gave it: Claude Code drops a replacement of another shape and shows the
// original. Which members are content is known by the tool, never by their length.
func (h *hook) response() (any, bool, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(h.in.Response))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, false, usage("hook: tool_response is not JSON: %v", err)
	}
	switch v := v.(type) {
	case string:
		return h.text(v), true, nil
	case []any:
		return h.blocks(v), h.changed, nil
	case map[string]any:
		if list, ok := v["content"].([]any); ok {
			v["content"] = h.blocks(list)
		}
		image := h.image(v)
		for _, name := range hookTexts[h.in.Tool] {
			if s, ok := v[name].(string); ok && s != "" && !(image && name == "stdout") {
				v[name] = h.text(s)
			}
		}
		if f, ok := v["file"].(map[string]any); ok && h.in.Tool == "Read" {
			h.file(f)
		}
		if strings.HasPrefix(h.in.Tool, mcpPrefix) {
			if err := h.structured(v); err != nil {
				return nil, false, err
			}
		}
		if h.changed { // else the copy that the agent kept of a long output is shown
			delete(v, "persistedOutputPath")
			delete(v, "persistedOutputSize")
		}
		return v, h.changed, nil
	}
	return v, false, nil
}

// hookTexts are the members of the responses of built-in tools that are content.
var hookTexts = map[string][]string{
	"Bash": {"stdout", "stderr"}, "BashOutput": {"stdout", "stderr"}, "WebFetch": {"result"}, "Grep": {"content"}, "Task": {"result"},
}

// blocks replaces the content blocks of a tool. Of an MCP server's tool, nothing that
// it returned is anything else.
func (h *hook) blocks(list []any) []any {
	mcp := strings.HasPrefix(h.in.Tool, mcpPrefix)
	if mcp && slices.ContainsFunc(list, func(e any) bool {
		b, ok := e.(map[string]any)
		_, typed := b["type"].(string)
		return !ok || !typed
	}) { // an array of its own
		return []any{h.inText(list)}
	}
	for i, e := range list {
		b, ok := e.(map[string]any)
		if !ok {
			continue
		}
		text, _ := b["text"].(string)
		data, _ := b["data"].(string)
		media, _ := b["mimeType"].(string)
		if source, ok := b["source"].(map[string]any); ok { // an image as the model's provider has it
			data, _ = source["data"].(string)
			media, _ = source["media_type"].(string)
		}
		if r, ok := b["resource"].(map[string]any); ok {
			text, _ = r["text"].(string)
			data, _ = r["blob"].(string)
			media, _ = r["mimeType"].(string)
		}
		switch {
		case data != "":
			list[i] = map[string]any{"type": "text", "text": h.bytes(data, media)}
		case text != "":
			list[i] = map[string]any{"type": "text", "text": h.text(text)}
		case mcp && b["type"] == "text" && b["text"] == "":
			list[i] = map[string]any{"type": "text", "text": ""}
		case mcp && b["type"] == "resource_link":
			list[i] = h.link(b)
		case mcp:
			list[i] = h.inText(b)
		}
	}
	return list
}

// link is a link with what names the resource, and nothing that is one itself.
func (h *hook) link(b map[string]any) map[string]any {
	uri, _ := b["uri"].(string)
	if media, data, ok := dataURI(uri); ok {
		return map[string]any{"type": "text", "text": h.bytes(data, media)}
	}
	out := map[string]any{"type": "resource_link"}
	for _, name := range []string{"uri", "name", "title", "description", "mimeType"} {
		if s, ok := b[name].(string); ok {
			if len(s) > maxHookName {
				s, h.changed = strings.ToValidUTF8(s[:maxHookName], "")+"…", true
			}
			out[name] = s
		}
	}
	if n, ok := b["size"].(json.Number); ok && len(n) < 32 {
		out["size"] = n
	}
	h.changed = h.changed || len(out) != len(b)
	return out
}

// maxHookName is the most characters of a name, a description or an address.
const maxHookName = 500

// dataURI reads data:image/png;base64,….
func dataURI(s string) (media, data string, ok bool) {
	head, data, ok := strings.Cut(s, ",")
	if !ok || len(head) < 5 || !strings.EqualFold(head[:5], "data:") {
		return "", "", false
	}
	media, ok = strings.CutSuffix(head[5:], ";base64")
	return media, data, ok
}

// image replaces an image that Bash printed, and reports whether there is one.
func (h *hook) image(v map[string]any) bool {
	s, _ := v["stdout"].(string)
	media, data, ok := dataURI(strings.TrimSpace(s))
	if is, _ := v["isImage"].(bool); !is || !ok || !slices.Contains(hookTexts[h.in.Tool], "stdout") {
		return false
	}
	v["stdout"], v["isImage"] = h.bytes(data, media), false
	return true
}

// inText is a block of text in place of any JSON.
func (h *hook) inText(v any) any {
	all, err := json.Marshal(v)
	if err != nil {
		return map[string]any{"type": "text", "text": ""}
	}
	return map[string]any{"type": "text", "text": string(h.view(string(all), "application/json"))}
}

// file replaces the text that Read read. An image stays: in its place the agent takes
// nothing but an image.
func (h *hook) file(f map[string]any) {
	if s, ok := f["content"].(string); ok && s != "" {
		f["content"] = h.text(s)
	}
}

// hookView is what the model reads in place of content.
type hookView struct {
	DataOnly bool            `json:"data_only"`
	Preview  json.RawMessage `json:"preview,omitempty"`
	Complete bool            `json:"complete"`
	Size     int             `json:"size"`
	Format   hookFormat      `json:"format"`
	Value    any             `json:"value"`
}

type hookFormat struct {
	MediaType string `json:"mediaType"`
}

// structured replaces what a tool of an MCP server returned as JSON: beside blocks of
// content, or in place of them.
func (h *hook) structured(v map[string]any) error {
	if _, blocks := v["content"].([]any); !blocks {
		all, err := json.Marshal(v)
		if err != nil {
			return err
		}
		clear(v)
		return json.Unmarshal(h.view(string(all), "application/json"), &v)
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch s := v[name].(type) {
		case nil, bool, json.Number:
		default:
			if name == "content" {
				continue
			}
			all, err := json.Marshal(s)
			if err != nil {
				return err
			}
			v[name] = json.RawMessage(h.view(string(all), "application/json"))
		}
	}
	return nil
}

func (h *hook) text(s string) string { return string(h.view(s, "text/plain")) }

// view is what the model reads in place of a text.
func (h *hook) view(s, media string) []byte {
	preview, complete := hookPreview(h.ctx, s)
	return h.keep([]byte(s), media, hookView{Preview: preview, Complete: complete})
}

func (h *hook) bytes(data, media string) string {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return h.text(data)
	}
	if !strings.Contains(media, "/") {
		media = ""
	}
	return string(h.keep(b, media, hookView{}))
}

// keep stores content, and is what the model reads of it. Where the store does not take
// it, that is an error with a code, and nothing of the content, which waits for a retry.
func (h *hook) keep(b []byte, media string, v hookView) []byte {
	h.changed = true
	e := spoolEntry{h.in.Tool, h.in.CallID, h.in.Input, media}
	id, err := h.put(b, e)
	if err == nil {
		return v.of(id, len(b), media)
	}
	h.failed = err
	w := leafproof.Wire(err)
	text, _ := json.Marshal(map[string]any{
		"data_only": true, "code": w.Code, "message": "the tool's output could not be stored, and is not shown", "retryable": w.Retryable, "action": w.Action, "kept": h.spool(b, e),
	})
	return text
}

// of is the view of what was stored.
func (v hookView) of(id string, size int, media string) []byte {
	if media == "" {
		media = "application/octet-stream"
	}
	v.DataOnly, v.Size, v.Format = true, size, hookFormat{media}
	v.Value = map[string]any{"$ref": map[string]string{"type": "Blob", "key": id}}
	var out bytes.Buffer
	if err := printJSON(&out, v); err != nil {
		return []byte(`{"data_only":true}`)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func (h *hook) put(b []byte, e spoolEntry) (string, error) {
	if h.failed != nil {
		return "", h.failed
	}
	d, err := h.store.Put(h.ctx, bytes.NewReader(b), leafproof.PutOptions{Tenant: h.who.Tenant, MediaType: e.MediaType})
	if err != nil {
		return "", err
	}
	f := leafproof.Facts{Caller: h.who.Caller, RunID: h.who.Run, ToolCallID: e.CallID, Producer: &leafproof.Producer{Tool: e.Tool, Arguments: e.Arguments}}
	if err := f.Check(leafproof.PutOptions{Tenant: h.who.Tenant}); err != nil { // the agent's own names are data
		f.ToolCallID, f.Producer = "", nil
	}
	ref, err := h.store.Publish(h.ctx, d, f)
	return ref.ArtifactID, err
}

// hookChars bounds a preview, in characters.
const hookChars = 2000

// hookPreview is a short text, the outline of one that is JSON, or the beginning.
func hookPreview(ctx context.Context, s string) (json.RawMessage, bool) {
	quoted := func(s string) json.RawMessage {
		var b bytes.Buffer
		if printJSON(&b, s) != nil {
			return json.RawMessage(`""`)
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	if len(s) <= hookChars {
		if q := quoted(s); len(q) <= hookChars {
			return q, true
		}
	}
	if t := strings.TrimLeft(s, " \t\r\n"); t != "" && (t[0] == '{' || t[0] == '[') {
		if p, err := selector.Preview(ctx, strings.NewReader(s), selector.Span{End: int64(len(s))}, hookChars); err == nil {
			return p, false
		}
	}
	for n := min(hookChars, len(s)); ; n /= 2 {
		if q := quoted(strings.ToValidUTF8(s[:n], "") + "…"); len(q) <= hookChars || n < 8 {
			return q, false
		}
	}
}
