package httpapi_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"leafproof"
	"leafproof/internal/httpapi"
)

// made are the inputs that the artifact of a tool states.
func (w *world) made(tool string) []string {
	w.t.Helper()
	for _, e := range w.listed(w.alice) {
		st, err := w.s.Resolve(w.t.Context(), leafproof.Owner, e)
		if err != nil {
			w.t.Fatal(err)
		}
		if p := st.Manifest.Predicate.Lineage.Producer; p == nil || p.Tool != tool {
			continue
		}
		out := []string{}
		for _, in := range st.Manifest.Predicate.Lineage.Inputs {
			out = append(out, in.ArtifactID)
		}
		return out
	}
	w.t.Fatalf("no artifact is of the tool %s", tool)
	return nil
}

// A call that was named goes on meaning what it meant, when the server was started
// anew and when the tools are others: its result states what it was made from, and its
// lazy parameters can be read.
func TestRunCallsAreKept(t *testing.T) {
	o := httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")}
	w := newWorld(t, o)
	t.Cleanup(func() { w.h.Close() })
	const tools = `{"tools":[` + pdfTool + `,{"name":"keep","schema":{"type":"object","properties":{"data":{"type":"string"}}},"lazy":["data"]}]}`
	var r, other run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&r)
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&other)
	at := "/v1/runs/" + r.Run
	w.do(w.alice, "POST", at+"/schemas", tools).want(200)
	var v view
	w.do(w.alice, "POST", at+"/results?tool=fetch", []byte("a text to work on"), "Content-Type", "text/plain").want(201).json(&v)
	source := w.listed(w.alice)
	var called struct {
		Call string
		Lazy []struct{ Param, From string }
	}
	// The reference has no seq: it means the message before, and that for good.
	w.do(w.alice, "POST", at+"/calls", `{"call_id":"c9","tool":"keep","input":{"data":{"$ref":{"type":"Message","part":0}}}}`).want(200).json(&called)
	w.do(w.alice, "POST", at+"/messages", `{"role":"user","text":"and another"}`).want(201)

	result := at + "/results?call=" + called.Call
	for name, wrong := range map[string]string{"another run's": "/v1/runs/" + other.Run + "/results?call=" + called.Call, "a guess": at + "/results?tool=keep&call=" + strings.Repeat("a", 20), "dots": at + "/results?tool=keep&call=../run"} {
		if p := w.do(w.alice, "POST", wrong, []byte("x"), "Content-Type", "text/plain").problem(404, leafproof.CodeRefNotFound); p.At != "call" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	w.do(w.alice, "POST", at+"/results", fmt.Sprintf(`{"call":%q,"tool":"keep","value":1}`, strings.Repeat("b", 20))).problem(404, leafproof.CodeRefNotFound)

	w.restart(o)
	if got := w.do(w.alice, "GET", called.Lazy[0].From, nil).want(200).body; string(got) != "a text to work on" {
		t.Errorf("through the handle: %q", got)
	}
	if got := w.do(w.alice, "HEAD", called.Lazy[0].From, nil).want(200).body; len(got) != 0 {
		t.Errorf("%d bytes of a HEAD", len(got))
	}
	w.do(w.alice, "POST", at+"/schemas", tools).want(200)
	w.do(w.alice, "POST", result, []byte("what was made of it"), "Content-Type", "text/plain").want(201)
	if got := w.made("keep"); !slices.Equal(got, source) {
		t.Errorf("it states the inputs %v, want %v", got, source)
	}
	for _, e := range w.listed(w.alice) {
		st, err := w.s.Resolve(t.Context(), leafproof.Owner, e)
		if err != nil {
			t.Fatal(err)
		}
		if p := st.Manifest.Predicate.Lineage.Producer; p.Tool == "keep" && (p.ArgumentsDigest == nil || st.Ref.ToolCallID == nil || *st.Ref.ToolCallID != "c9") {
			t.Errorf("it states %+v of the call %v", p, st.Ref.ToolCallID)
		}
	}
	// What a crash left of a call is none, and is no trouble.
	if err := os.WriteFile(filepath.Join(o.Runs, r.Run, "calls", "0000000009-x.json.123"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart(o)
	w.do(w.alice, "GET", called.Lazy[0].From, nil).want(200)
}

// Who is given the name of a principal that was removed is somebody else: what that one
// began is not there, though it is still held open.
func TestNameIsGivenAnew(t *testing.T) {
	o := httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")}
	w := newWorld(t, o)
	t.Cleanup(func() { w.h.Close() })
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&r)
	upload := w.do(w.alice, "POST", "/v1/uploads", []byte("half")).want(201).header.Get("Location")
	at := "/v1/runs/" + r.Run
	for _, tenant := range []string{"acme", "other"} {
		if err := w.s.RemovePrincipal(t.Context(), leafproof.Owner, "alice"); err != nil {
			t.Fatal(err)
		}
		w.do(w.alice, "GET", at, nil).problem(401, leafproof.CodeUnauthenticated)
		token, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "alice", tenant, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.alice = token
		for _, a := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead} {
			w.allow("alice", a, tenant)
		}
		for _, again := range []bool{false, true} {
			if again {
				w.restart(o)
			}
			never := w.do(token, "GET", "/v1/runs/rn_"+strings.Repeat("a", 26), nil)
			if a := w.do(token, "GET", at, nil); a.status != 404 || !bytes.Equal(a.body, never.body) {
				t.Errorf("the run, of %s: %d %s", tenant, a.status, a.body)
			}
			w.do(token, "POST", at+"/results?tool=t", []byte("x"), "Content-Type", "text/plain").problem(404, leafproof.CodeRefNotFound)
			w.do(token, "GET", upload, nil).problem(404, leafproof.CodeRefNotFound)
			w.do(token, "PATCH", upload, []byte("x"), "Upload-Offset", "4", "Upload-Complete", "?1").problem(404, leafproof.CodeRefNotFound)
			w.do(token, "DELETE", upload, nil).problem(404, leafproof.CodeRefNotFound)
		}
	}
}

// A backup has the runs that stand in the store's folder, made beside the server that
// holds them open, and again. Put back, they mean what they meant to a principal that
// was entered before, once he has a token and leave again.
func TestRunsAreBackedUp(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	o := httpapi.Options{Runs: filepath.Join(w.dir, "runs")}
	w.restart(o)
	t.Cleanup(func() { w.h.Close() })
	var r, later run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a","tools":[`+pdfTool+`]}`).want(201).json(&r)
	var v view
	w.do(w.alice, "POST", "/v1/runs/"+r.Run+"/results?tool=t", []byte(`[{"a":1}]`), "Content-Type", "application/json").want(201).json(&v)
	to := filepath.Join(t.TempDir(), "backup")
	for n := range int64(3) {
		if n == 2 {
			w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"b"}`).want(201).json(&later)
		}
		got, err := leafproof.Backup(t.Context(), w.dir, to, leafproof.BackupOptions{WithKeys: true})
		if err != nil || got.Runs != 1+n/2 {
			t.Fatalf("%d runs, %v", got.Runs, err)
		}
	}
	if found, err := leafproof.Check(t.Context(), to, leafproof.CheckOptions{}); err != nil || found.Damaged() {
		t.Errorf("%+v, %v", found, err)
	}
	back := *w
	back.s, back.dir = openStore(t, to), to
	token, err := back.s.AddPrincipal(t.Context(), leafproof.Owner, "alice", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead} {
		back.allow("alice", a, "acme")
	}
	back.h = httpapi.New(back.s, httpapi.Options{}) // that restart closes
	back.restart(httpapi.Options{Runs: filepath.Join(to, "runs")})
	t.Cleanup(func() { back.h.Close() })
	back.do(token, "GET", "/v1/runs/"+later.Run, nil).want(200)
	var called struct {
		Input struct{ Rows []map[string]int }
	}
	back.do(token, "POST", "/v1/runs/"+r.Run+"/calls", fmt.Sprintf(`{"tool":"generate_pdf","input":{"title":"t","rows":{"$ref":{"type":"Message","seq":%d,"part":0}}}}`, v.Seq)).want(200).json(&called)
	if len(called.Input.Rows) != 1 || called.Input.Rows[0]["a"] != 1 {
		t.Errorf("%+v", called)
	}
}

// One blob stands behind a result: nothing more is passed over.
func TestRunResultParts(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	var r run
	w.do(w.alice, "POST", "/v1/runs", []byte(`{"agent_id":"a"}`), "Content-Type", "application/json; charset=utf-8").want(201).json(&r)
	at := "/v1/runs/" + r.Run + "/results"
	w.do(w.alice, "POST", at, []byte(`{"tool":"t","value":1}`), "Content-Type", "application/json; charset=utf-8").want(201)
	form := func(parts ...string) (*bytes.Buffer, string) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		_ = m.WriteField("result", `{"tool":"t","value":{"a":null,"b":null}}`)
		for _, name := range parts {
			_ = m.WriteField(name, "the bytes")
		}
		m.Close()
		return &b, m.FormDataContentType()
	}
	b, media := form("/a")
	w.do(w.alice, "POST", at, b.Bytes(), "Content-Type", media).want(201)
	w.do(w.alice, "POST", at, b.Bytes()[:b.Len()-8], "Content-Type", media).problem(400, leafproof.CodeRequestInvalid)
	for _, parts := range [][]string{{"/a", "/b"}, {"/a", "/a"}, {"/a", "result"}, {}} {
		b, media := form(parts...)
		w.do(w.alice, "POST", at, b.Bytes(), "Content-Type", media).problem(400, leafproof.CodeRequestInvalid)
	}
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there", n)
	}
}

// Many ask for a run that nobody holds open, and change its tools: it is opened once.
func TestRunAtOnce(t *testing.T) {
	o := httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")}
	w := newWorld(t, o)
	t.Cleanup(func() { w.h.Close() })
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&r)
	w.restart(o)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			w.do(w.bob, "GET", "/v1/runs/"+r.Run, nil).problem(404, leafproof.CodeRefNotFound)
			w.do(w.alice, "GET", "/v1/runs/"+r.Run, nil).want(200)
			w.do(w.alice, "POST", "/v1/runs/"+r.Run+"/schemas", fmt.Sprintf(`{"tools":[{"name":"t%d","schema":{"type":"object"}}]}`, i)).want(200)
		})
	}
	all.Wait()
}
