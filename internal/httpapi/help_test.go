package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
)

// world is a store behind a server, and three who may ask: the owner, alice of tenant
// acme, bob of tenant other.
type world struct {
	t   testing.TB
	dir string
	s   *leafproof.Store
	h   *httpapi.Server
	url string

	owner, alice, bob string
}

const ownerToken = "lpt_theowneroftestswhohasnosecretsatallxxxxxxxxxxxxxxxxx"

func newStore(t testing.TB) (*leafproof.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return openStore(t, dir), dir
}

func openStore(t testing.TB, dir string) *leafproof.Store {
	t.Helper()
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newWorld(t testing.TB, o httpapi.Options) *world {
	t.Helper()
	s, dir := newStore(t)
	o.OwnerToken = ownerToken
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	w := &world{t: t, dir: dir, s: s, h: httpapi.New(s, o), owner: ownerToken}
	for _, p := range []struct {
		name   leafproof.Principal
		tenant string
		token  *string
	}{{"alice", "acme", &w.alice}, {"bob", "other", &w.bob}} {
		token, err := s.AddPrincipal(t.Context(), leafproof.Owner, p.name, p.tenant, nil)
		if err != nil {
			t.Fatal(err)
		}
		*p.token = token
		for _, action := range []leafproof.Action{
			leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery, leafproof.ActionCount, leafproof.ActionProve,
			leafproof.ActionDerive, leafproof.ActionGrant, leafproof.ActionDelete,
		} {
			w.allow(p.name, action, p.tenant)
		}
	}
	server := httptest.NewUnstartedServer(w.h)
	server.Config = w.h.HTTP()
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// in is the world as a subtest has it.
func (w *world) in(t testing.TB) *world {
	out := *w
	out.t = t
	return &out
}

// allow gives leave, and returns the grant's id.
func (w *world) allow(p leafproof.Principal, a leafproof.Action, pattern string) string {
	w.t.Helper()
	g, err := w.s.Grant(w.t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: p, Action: a, Pattern: pattern})
	if err != nil {
		w.t.Fatal(err)
	}
	return g.ID
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	err    error // that ended the body
}

// do asks, and holds the answer against the description. Headers are name and value by
// turns.
func (w *world) do(token, method, path string, body any, headers ...string) *answer {
	w.t.Helper()
	a := w.try(token, method, path, body, headers...)
	if a.err != nil {
		w.t.Fatalf("%s %s: %v", method, path, a.err)
	}
	return a
}

func (w *world) try(token, method, path string, body any, headers ...string) *answer {
	w.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	case string:
		in = strings.NewReader(b)
	case io.Reader:
		in = b
	default:
		w.t.Fatalf("a body of type %T", body)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if _, ok := body.(string); ok {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return &answer{t: w.t, err: err}
	}
	defer resp.Body.Close()
	a := &answer{t: w.t, status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(resp.Body)
	for k, v := range resp.Trailer {
		a.header["Trailer-"+k] = v
	}
	if a.err == nil {
		held.check(w.t, w.h, method, r.URL.Path, a)
	}
	return a
}

// want demands a status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem demands a problem of a status and code, and returns it.
func (a *answer) problem(status int, code leafproof.Code) httpapi.Problem {
	a.t.Helper()
	a.want(status)
	var p httpapi.Problem
	a.json(&p)
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == "" || p.Message != p.Detail || p.Action == "" || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Fatalf("the problem is %+v, want the code %s", p, code)
	}
	return p
}

func (a *answer) json(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}

// put puts bytes as whoever has the token, and returns the reference.
func (w *world) put(token string, data []byte, params string, headers ...string) manifest.ArtifactRef {
	w.t.Helper()
	a := w.do(token, "PUT", "/v1/artifacts"+params, data, headers...).want(http.StatusCreated)
	var ref manifest.ArtifactRef
	a.json(&ref)
	if got := a.header.Get("Location"); got != "/v1/artifacts/"+ref.ArtifactID {
		w.t.Fatalf("Location is %q", got)
	}
	return ref
}

// lines are n records.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d,\"status\":%q}\n", i, []string{"open", "shut", "new"}[i%3])
	}
	return b.Bytes()
}

// described holds answers against the description.
type described struct {
	once    sync.Once
	doc     map[string]any
	err     error
	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema
	c       *jsonschema.Compiler
	seen    map[string]bool // "METHOD path status" of every answer
}

var held described

func (d *described) load() {
	text := httpapi.StrictDescription()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		d.err = err
		return
	}
	d.doc, d.schemas, d.seen = doc.(map[string]any), map[string]*jsonschema.Schema{}, map[string]bool{}
	d.c = jsonschema.NewCompiler()
	d.c.DefaultDraft(jsonschema.Draft2020)
	d.c.AssertFormat()
	d.err = d.c.AddResource("openapi.json", doc)
}

// pattern is the path of the description that a path belongs to; "" for none.
func pattern(h *httpapi.Server, path string) string {
	parts := strings.Split(path, "/")
next:
	for _, rt := range h.Routes() {
		want := strings.Split(rt.Path, "/")
		if len(want) != len(parts) {
			continue
		}
		for i, p := range want {
			if !strings.HasPrefix(p, "{") && p != parts[i] {
				continue next
			}
		}
		return rt.Path
	}
	return ""
}

// check holds one answer against the description.
func (d *described) check(t testing.TB, h *httpapi.Server, method, path string, a *answer) {
	t.Helper()
	d.once.Do(d.load)
	if d.err != nil {
		t.Fatal(d.err)
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media == "application/problem+json" && len(a.body) > 0 {
		d.validate(t, "#/components/schemas/Problem", a.body, method+" "+path)
	}
	p := pattern(h, path)
	if p == "" || p == "/mcp" || method == "OPTIONS" || a.status >= 400 && a.status != 503 {
		return
	}
	item := d.doc["paths"].(map[string]any)[p].(map[string]any)
	op, ok := item[strings.ToLower(method)].(map[string]any)
	if method == "HEAD" && !ok {
		return
	}
	if !ok {
		t.Errorf("%s %s answered %d, and is not described", method, p, a.status)
		return
	}
	responses := op["responses"].(map[string]any)
	r, ok := responses[strconv.Itoa(a.status)].(map[string]any)
	if !ok {
		if a.status == 503 {
			return
		}
		t.Errorf("%s %s answered %d, which is not described", method, p, a.status)
		return
	}
	d.mu.Lock()
	d.seen[method+" "+p+" "+strconv.Itoa(a.status)] = true
	d.mu.Unlock()
	headers, _ := r["headers"].(map[string]any)
	for name := range a.header {
		if _, ok := headers[name]; !ok && !everywhere[name] && !strings.HasPrefix(name, "Trailer-") {
			if _, ok := headers[map[string]string{"Etag": "ETag"}[name]]; !ok {
				t.Errorf("%s %s: the header %s is not described", method, p, name)
			}
		}
	}
	content, _ := r["content"].(map[string]any)
	if len(a.body) == 0 {
		return
	}
	m, ok := content[media].(map[string]any)
	if !ok {
		m, ok = content["*/*"].(map[string]any)
	}
	if !ok {
		t.Errorf("%s %s: a body of %q, which is not described", method, p, media)
		return
	}
	if _, ok := m["schema"]; ok && media == "application/json" {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
		d.validate(t, fmt.Sprintf("#/paths/%s/%s/responses/%d/content/application~1json/schema", escaped, strings.ToLower(method), a.status), a.body, method+" "+p)
	}
}

// everywhere are the headers of every answer.
var everywhere = map[string]bool{
	"Leafproof-Request-Id": true, "X-Content-Type-Options": true, "Cache-Control": true, "Content-Security-Policy": true,
	"Cross-Origin-Resource-Policy": true, "Content-Type": true, "Content-Length": true, "Date": true, "Vary": true, "Retry-After": true,
	"Connection": true, "Content-Encoding": true, "Access-Control-Allow-Origin": true, "Access-Control-Expose-Headers": true,
}

func (d *described) validate(t testing.TB, at string, body []byte, what string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.schemas[at]
	if schema == nil {
		at = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at)
		var err error
		if schema, err = d.c.Compile("openapi.json" + at); err != nil {
			t.Fatalf("%s: the schema: %v", what, err)
		}
		d.schemas[at] = schema
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Errorf("%s: %v: %s", what, err, body)
		return
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%s: the answer is not as it is described: %v\n%s", what, err, body)
	}
}
