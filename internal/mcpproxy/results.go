package mcpproxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"leafproof/ref"
	"leafproof/ref/harness"
	"leafproof/selector"
)

// Bounds of what a model reads of one result.
const (
	maxBlocks    = 24   // blocks of content that are shown one by one
	previewChars = 6000 // of all previews
	maxName      = 500  // characters of a name or an address
	maxError     = 2000 // characters of an error, and of what is said beside it
)

// blob is content that leaves a result.
func blob(text []byte, media string) harness.Blob {
	return harness.Blob{Reader: bytes.NewReader(text), MediaType: media}
}

// block is what there is of a content block.
type block struct {
	Type     string  `json:"type"`
	Text     string  `json:"text"`
	Data     string  `json:"data"`
	MIMEType string  `json:"mimeType"`
	URI      string  `json:"uri"`
	Name     string  `json:"name"`
	Title    string  `json:"title"`
	Said     string  `json:"description"`
	Size     *int64  `json:"size"`
	Resource *source `json:"resource"`
}

// source is the content of a resource.
type source struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType"`
	Text     *string `json:"text"`
	Blob     *string `json:"blob"`
}

// kept collects what is recorded of a result: JSON, and the blobs that go elsewhere.
type kept struct {
	blobs map[string]harness.Blob
	chars int // of each preview
}

// called records the result of a tool call, and returns the one that the client is
// given: one text, which says what there is, with a reference to each part of it.
func (p *proxy) called(ctx context.Context, w waiting, raw json.RawMessage) (json.RawMessage, error) {
	var res struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		ResultType string            `json:"resultType"`
	}
	err := parse(raw, &res)
	k := newKept(len(res.Content))
	var value json.RawMessage
	if all, merr := members(raw); err != nil || merr != nil || res.Content == nil && res.Structured == nil && len(all) > 0 {
		// None that the protocol knows: there may be anything in it.
		res.Structured = nil
		value, err = k.text(ctx, "/content/0", "unknown", string(raw), "application/json")
		value = append(append([]byte{'['}, value...), ']')
	} else {
		value, err = k.content(ctx, "/content/", res.Content, k.block)
	}
	if err != nil {
		return nil, err
	}
	list := []member{{"data_only", json.RawMessage("true")}, {"content", value}}
	inlines := w.tool != nil && w.tool.output != nil
	if inlines && res.Structured != nil && !w.tool.keeps(ctx, res.Structured) {
		inlines, res.IsError = false, true
	}
	if res.Structured != nil {
		structured := res.Structured
		if !inlines {
			if structured, err = k.text(ctx, "/structuredContent", "structured", string(res.Structured), "application/json"); err != nil {
				return nil, err
			}
		}
		list = append(list, member{"structuredContent", structured})
	}
	result := harness.Result{Value: harness.Raw{JSON: object(list), Blobs: k.blobs}, Input: w.input}
	if w.tool != nil {
		result.Tool = w.tool.name
	}
	views, err := w.set.run.Record(ctx, result)
	if err != nil {
		return nil, err
	}
	v := views[0]
	if v.Err != nil {
		p.o.Log.WarnContext(ctx, "mcp-proxy", "tool", result.Tool, "error", v.Err)
	}
	out, err := members(textResult(v.Content, v.IsError || res.IsError))
	if err != nil {
		return nil, err
	}
	if inlines && res.Structured != nil && !v.IsError {
		out = append(out, member{"structuredContent", res.Structured})
	}
	if res.ResultType != "" {
		out = append(out, member{"resultType", quote(short(res.ResultType))})
	}
	out = set(out, "_meta", protocolMeta(raw))
	return object(out), nil
}

// protocolMeta is what of a result's _meta the protocol itself defines; nil for nothing.
// The rest is between a server and a host that knows it, and may be of any length.
func protocolMeta(result json.RawMessage) json.RawMessage {
	all, err := members(result)
	if err != nil {
		return nil
	}
	list, err := members(get(all, "_meta"))
	if err != nil {
		return nil
	}
	var kept []member
	for _, m := range list {
		if strings.HasPrefix(m.name, "io.modelcontextprotocol/") && len(m.value) <= maxError {
			kept = append(kept, m)
		}
	}
	if kept == nil {
		return nil
	}
	return object(kept)
}

func newKept(blocks int) *kept {
	return &kept{blobs: map[string]harness.Blob{}, chars: max(selector.MinPreview, previewChars/(min(blocks, maxBlocks)+2))}
}

// content is what is recorded of the blocks of a result, or of the contents of a
// resource, as one says. Those behind the first maxBlocks are one part.
func (k *kept) content(ctx context.Context, at string, blocks []json.RawMessage, one func(context.Context, string, json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	out := []byte{'['}
	for i, raw := range blocks {
		if i > 0 {
			out = append(out, ',')
		}
		at := at + strconv.Itoa(i)
		if i == maxBlocks && len(blocks) > maxBlocks+1 {
			rest, err := json.Marshal(blocks[i:])
			if err != nil {
				return nil, err
			}
			v, err := k.text(ctx, at, "more", string(rest), "application/json")
			if err != nil {
				return nil, err
			}
			return append(append(out, v...), ']'), nil
		}
		v, err := one(ctx, at, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, v...)
	}
	return append(out, ']'), nil
}

// block is what is recorded of one: it is decided by its type.
func (k *kept) block(ctx context.Context, at string, raw json.RawMessage) (json.RawMessage, error) {
	var b block
	if parse(raw, &b) != nil {
		b = block{}
	}
	switch {
	case b.Type == "text":
		return k.text(ctx, at, "text", b.Text, "text/plain")
	case b.Type == "image" || b.Type == "audio":
		return k.base64(at, b.Type, "", b.Data, b.MIMEType)
	case b.Type == "resource" && b.Resource != nil && (b.Resource.Text != nil || b.Resource.Blob != nil):
		return k.source(ctx, at, *b.Resource)
	case b.Type == "resource_link":
		list := []member{{"type", quote(b.Type)}, {"uri", quote(address(b.URI, maxName))}, {"name", quote(short(b.Name))}}
		for _, m := range [][2]string{{"title", b.Title}, {"description", b.Said}, {"mimeType", b.MIMEType}} {
			if m[1] != "" {
				list = append(list, member{m[0], quote(short(m[1]))})
			}
		}
		if b.Size != nil {
			list = append(list, member{"size", json.RawMessage(strconv.FormatInt(*b.Size, 10))})
		}
		if u, ok := dataURI(b.URI); ok {
			k.blobs[at+"/value"] = u
			list = append(list, member{"value", json.RawMessage("null")})
		}
		return object(list), nil
	}
	return k.text(ctx, at, "unknown", string(raw), "application/json") // of a type that is none yet
}

// source is what is recorded of a resource's content.
func (k *kept) source(ctx context.Context, at string, s source) (json.RawMessage, error) {
	var v json.RawMessage
	var err error
	switch {
	case s.Blob != nil:
		v, err = k.base64(at, "resource", s.URI, *s.Blob, s.MIMEType)
	case s.Text != nil:
		media := s.MIMEType
		if media == "" {
			media = "text/plain"
		}
		if v, err = k.text(ctx, at, "resource", *s.Text, media); err == nil && s.URI != "" {
			var list []member
			if list, err = members(v); err == nil {
				v = object(set(list, "uri", quote(address(s.URI, maxName))))
			}
		}
	default:
		err = fmt.Errorf("%s: a resource with neither text nor blob", at)
	}
	return v, err
}

// base64 is what is recorded of bytes.
func (k *kept) base64(at, kind, uri, data, media string) (json.RawMessage, error) {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil { // what it is instead, somebody may make out
		b, media = []byte(data), "text/plain"
	}
	k.blobs[at+"/value"] = blob(b, media)
	list := []member{{"type", quote(kind)}}
	if uri != "" {
		list = append(list, member{"uri", quote(address(uri, maxName))})
	}
	return object(append(list, member{"value", json.RawMessage("null")})), nil
}

// text is what is recorded of a text: a preview, and all of it as a blob.
func (k *kept) text(ctx context.Context, at, kind, text, media string) (json.RawMessage, error) {
	k.blobs[at+"/value"] = blob([]byte(text), media)
	preview, complete := k.preview(ctx, text)
	return object([]member{
		{"type", quote(kind)}, {"preview", preview}, {"complete", json.RawMessage(strconv.FormatBool(complete))}, {"value", json.RawMessage("null")},
	}), nil
}

// preview is the beginning of a text, or of a long one that is JSON its outline.
func (k *kept) preview(ctx context.Context, text string) (json.RawMessage, bool) {
	if q := quote(text); len(q) <= k.chars {
		return q, true
	}
	if t := strings.TrimLeft(text, " \t\r\n"); t != "" && (t[0] == '{' || t[0] == '[') {
		if p, err := selector.Preview(ctx, strings.NewReader(text), selector.Span{End: int64(len(text))}, k.chars); err == nil {
			return p, false
		}
	}
	for n := k.chars; ; n /= 2 {
		if q := quote(begin(text, n) + "…"); len(q) <= k.chars || n < 8 {
			return q, false
		}
	}
}

// begin is at most n bytes of a text, and no part of a character.
func begin(text string, n int) string {
	if n >= len(text) {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func short(s string) string { return cut(s, maxName) }

// address is at most n characters of a URI: of one that is content itself, nothing of that.
func address(uri string, n int) string {
	if head, _, ok := cutData(uri); ok {
		return short(head) + ",…"
	}
	return cut(uri, n)
}

// cutData parts a data: URI before its content.
func cutData(uri string) (head, data string, ok bool) {
	if len(uri) < 5 || !strings.EqualFold(uri[:5], "data:") {
		return "", "", false
	}
	head, data, _ = strings.Cut(uri, ",")
	return head, data, true
}

// dataURI is the content of a data: URI.
func dataURI(uri string) (harness.Blob, bool) {
	head, data, ok := cutData(uri)
	if !ok {
		return harness.Blob{}, false
	}
	media, coded := strings.CutSuffix(head[5:], ";base64")
	if text, err := url.PathUnescape(data); err == nil {
		data = text
	}
	if b, err := base64.StdEncoding.DecodeString(data); coded && err == nil {
		return blob(b, media), true
	}
	if coded || media == "" {
		media = "text/plain"
	}
	return blob([]byte(data), media), true
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return begin(s, n) + "…"
}

// resources makes of the contents of a resource that the client reads what a model may
// read of them.
func (p *proxy) resources(ctx context.Context, t *toolset, raw json.RawMessage) (json.RawMessage, error) {
	all, err := members(raw)
	if err != nil {
		return nil, err
	}
	var contents []json.RawMessage
	if err := parse(get(all, "contents"), &contents); err != nil {
		return nil, err
	}
	var result []member
	for _, m := range all { // what else the protocol knows of a result
		if slices.Contains([]string{"resultType", "ttlMs", "cacheScope"}, m.name) && len(m.value) <= maxName {
			result = append(result, m)
		}
	}
	result = set(result, "_meta", protocolMeta(raw))
	if len(contents) == 0 {
		return object(set(result, "contents", json.RawMessage("[]"))), nil
	}
	var first source
	_ = parse(contents[0], &first) // one that cannot be read has no address
	k := newKept(len(contents))
	list, err := k.content(ctx, "/contents/", contents, func(ctx context.Context, at string, raw json.RawMessage) (json.RawMessage, error) {
		var s source
		if parse(raw, &s) != nil || s.Text == nil && s.Blob == nil {
			return k.text(ctx, at, "unknown", string(raw), "application/json")
		}
		return k.source(ctx, at, s)
	})
	if err != nil {
		return nil, err
	}
	value := object([]member{{"data_only", json.RawMessage("true")}, {"contents", list}})
	views, err := t.run.Record(ctx, harness.Result{Tool: "resources/read", Value: harness.Raw{JSON: value, Blobs: k.blobs}})
	if err != nil {
		return nil, err
	}
	shown := object([]member{{"uri", quote(address(first.URI, maxError))}, {"mimeType", quote("application/json")}, {"text", quote(string(views[0].Content))}})
	return object(set(result, "contents", append(append([]byte{'['}, shown...), ']'))), nil
}

// withProtocol tells a model of references, behind what the server tells it, and a client of tools.
func withProtocol(raw json.RawMessage) (json.RawMessage, error) {
	result, err := members(raw)
	if err != nil {
		return nil, err
	}
	var said string
	if old := get(result, "instructions"); old != nil {
		if err := parse(old, &said); err != nil {
			return nil, err
		}
	}
	// The harness's own tools are there also where the server has none.
	if can, err := members(get(result, "capabilities")); err == nil && get(can, "tools") == nil {
		result = set(result, "capabilities", object(append(can, member{"tools", json.RawMessage("{}")})))
	}
	return object(set(result, "instructions", quote(strings.TrimPrefix(said+"\n\n"+ref.Protocol(), "\n\n")))), nil
}
