package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/internal/refdemo"
)

// run is a run as these tests see it.
type run struct {
	Run, RunID, Protocol string
	Tools                []struct {
		Name   string
		Schema json.RawMessage
		Here   bool
	}
}

// view is what a model reads.
type view struct {
	Seq, Part uint64
	IsError   bool `json:"is_error"`
	Content   json.RawMessage
	Retry     string
}

const pdfTool = `{"name":"generate_pdf","description":"Makes a PDF","schema":{"type":"object","properties":{"title":{"type":"string"},"rows":{"type":"array","items":{"type":"object"}}},"required":["title","rows"],"additionalProperties":false}}`

// restart is the world with a new server over the same runs.
func (w *world) restart(o httpapi.Options) {
	w.t.Helper()
	if err := w.h.Close(); err != nil {
		w.t.Fatal(err)
	}
	o.OwnerToken = ownerToken
	w.h = httpapi.New(w.s, o)
	server := httptest.NewUnstartedServer(w.h)
	server.Config = w.h.HTTP()
	server.Start()
	w.t.Cleanup(server.Close)
	w.url = server.URL
}

// TestRun is the status report over HTTP: the document is never in what the model
// reads, the tool gets exactly the rows, and a restart in the middle changes nothing.
func TestRun(t *testing.T) {
	o := httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")}
	w := newWorld(t, o)
	t.Cleanup(func() { w.h.Close() })
	doc := refdemo.Export(refdemo.Rows, 1)
	var model bytes.Buffer // all that the model reads

	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"clerk/..","tools":[`+pdfTool+`]}`).want(201).json(&r)
	at := "/v1/runs/" + r.Run
	first := w.do(w.alice, "POST", at+"/schemas", `{"tools":[`+pdfTool+`]}`).want(200).body
	for _, tool := range r.Tools {
		model.Write(tool.Schema)
		if tool.Here != (tool.Name != "generate_pdf") {
			t.Errorf("%s runs here: %v", tool.Name, tool.Here)
		}
	}
	model.WriteString(r.Protocol)

	var v view
	w.do(w.alice, "POST", at+"/results?tool=export&records=json", doc, "Content-Type", "application/json",
		"Leafproof-Manifest", `{"records":{"pointer":"/items"}}`).want(201).json(&v)
	model.Write(v.Content)
	marker := fmt.Sprintf(`{"opaque":true,"value":{"$ref":{"type":"Message","seq":%d,"part":0}},"size":%d,"format":{"mediaType":"application/json"}}`, v.Seq, len(doc))
	if string(v.Content) != marker {
		t.Errorf("the model reads %s, want %s", v.Content, marker)
	}

	w.restart(o)
	if again := w.do(w.alice, "POST", at+"/schemas", `{"tools":[`+pdfTool+`]}`).want(200).body; !bytes.Equal(again, first) {
		t.Error("the schemas have other bytes after a restart")
	}
	var called struct {
		Call   string
		Input  json.RawMessage
		Result *view
	}
	w.do(w.alice, "POST", at+"/calls", fmt.Sprintf(`{"call_id":"c1","tool":"query_json","input":{"source":{"$ref":{"type":"Message","seq":%d,"part":0}},"path":"/items","filter":{"field":"/status","equals":"open"}}}`, v.Seq)).want(200).json(&called)
	if called.Result == nil || called.Result.IsError {
		t.Fatalf("query_json: %+v", called)
	}
	model.Write(called.Result.Content)
	rows := called.Result.Seq
	called.Result = nil
	w.do(w.alice, "POST", at+"/calls", fmt.Sprintf(`{"call_id":"","tool":"generate_pdf","input":{"title":"Open","rows":{"$ref":{"type":"Message","seq":%d,"part":0,"field":"value"}}}}`, rows)).want(200).json(&called)
	var in struct{ Rows []json.RawMessage }
	if err := json.Unmarshal(called.Input, &in); err != nil || len(in.Rows) != refdemo.Open {
		t.Fatalf("%d rows, %v", len(in.Rows), err)
	}
	for _, row := range in.Rows {
		if !bytes.Contains(doc, row) || !bytes.Contains(row, []byte(`"status":"open"`)) {
			t.Fatalf("not a row of the document: %s", row)
		}
	}
	pdf := []byte("%PDF-1.7\n\x00\xff" + strings.Repeat("x", 4000))
	w.do(w.alice, "POST", at+"/results?call="+called.Call, pdf, "Content-Type", "application/pdf").want(201).json(&v)
	model.Write(v.Content)
	if !strings.Contains(string(v.Content), `"mediaType":"application/pdf"`) || !strings.Contains(string(v.Content), fmt.Sprintf(`"size":%d`, len(pdf))) {
		t.Errorf("of the PDF the model reads %s", v.Content)
	}
	checkView(t, w, model.Bytes(), doc)

	var refs struct{ References []struct{ State string } }
	w.do(w.alice, "GET", at+"/references", nil).want(200).json(&refs)
	for _, one := range refs.References {
		if one.State != "alive" {
			t.Errorf("a reference is %s", one.State)
		}
	}
	if len(refs.References) < 3 {
		t.Errorf("%d references", len(refs.References))
	}
	var adm struct{ Admissions []json.RawMessage }
	w.do(w.alice, "GET", fmt.Sprintf("%s/admissions?seq=%d", at, rows), nil).want(200).json(&adm)
	if len(adm.Admissions) != 1 {
		t.Errorf("%d admissions", len(adm.Admissions))
	}
	w.do(w.alice, "POST", at+"/messages", `{"role":"user","text":"Thank you"}`).want(201)
	w.do(w.alice, "GET", at, nil).want(200)
}

// checkView demands that nothing of the store is in what a model reads, and no more of
// the document than a preview.
func checkView(t *testing.T, w *world, model, doc []byte) {
	t.Helper()
	if len(model) > 40_000 {
		t.Errorf("%d bytes in the model's view", len(model))
	}
	for _, word := range []string{"JsonPointer", "JsonQuery", "agent/", "blake3", "acme", w.dir, "art_", "mf_"} {
		if bytes.Contains(model, []byte(word)) {
			t.Errorf("the model reads %q", word)
		}
	}
	const piece = 4000
	for i := 0; i+piece < len(doc); i += piece {
		if bytes.Contains(model, doc[i:i+piece]) {
			t.Fatalf("bytes %d to %d of the document are in the model's view", i, i+piece)
		}
	}
}

// TestRunErrors holds what a model writes wrong to its codes: the tool does not run,
// and the model has something to read.
func TestRunErrors(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a","run_id":"r1","profile":"mcp","tools":[`+pdfTool+`]}`).want(201).json(&r)
	at := "/v1/runs/" + r.Run
	for _, c := range []struct {
		input  string
		status int
		code   leafproof.Code
	}{
		{`{"title":"x","rows":"{\"$ref\":{\"type\":\"Message\",\"seq\":1,\"part\":0}}"}`, 400, "ref_stringified"},
		{`{"title":"x","rows":{"$ref":{"seq":1,"part":0}}}`, 400, "ref_legacy_shape"},
		{`{"title":"x","rows":{"$ref":{"type":"JsonQuery","source":{"type":"Message","seq":1,"part":0},"path":"/items","filter":{"field":"/a","equals":1}}}}`, 403, "ref_derivation_forbidden"},
		{`{"title":"x","rows":{"$ref":{"type":"Blob","key":"agent/a/1"}}}`, 404, "ref_not_found"},
		{`{"title":"x","rows":{"$ref":{"type":"Message","seq":99,"part":0}}}`, 404, "ref_not_found"},
		{`{"title":"x","rows":{"$ref":{"type":"Nothing"}}}`, 400, "ref_unknown_type"},
		{`{"title":"x","rows":{"$ref":{"type":"Message","type":"Message","seq":1}}}`, 400, "ref_malformed"},
		{`{"title":"x","rows":7}`, 422, "ref_type_mismatch"},
	} {
		p := w.do(w.alice, "POST", at+"/calls", `{"tool":"generate_pdf","input":`+c.input+`}`).want(c.status)
		var got struct {
			Code    leafproof.Code
			Message string
			Result  *view
		}
		p.json(&got)
		if got.Code != c.code || got.Message == "" || got.Result == nil || !got.Result.IsError || !bytes.Contains(got.Result.Content, []byte(c.code)) {
			t.Errorf("%s: %s, want %s", c.input, p.body, c.code)
		}
	}
	for name, body := range map[string]string{
		"twice":      `{"tool":"x","tool":"y","input":{}}`,
		"unknown":    `{"tool":"x","input":{},"more":1}`,
		"no input":   `{"tool":"x"}`,
		"an array":   `[]`,
		"cut":        `{"tool":"x","input":{`,
		"a tool 7":   `{"tool":7,"input":{}}`,
		"left over":  `{"tool":"x","input":{}} 1`,
		"case":       `{"Tool":"x","input":{}}`,
		"depth bomb": `{"tool":"x","input":` + strings.Repeat("[", 100_000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			w.in(t).do(w.alice, "POST", at+"/calls", body).problem(400, leafproof.CodeRequestInvalid)
		})
	}
	for name, body := range map[string]string{
		"no agent":   `{}`,
		"a profile":  `{"agent_id":"a","profile":"other"}`,
		"a tenant":   `{"agent_id":"a","tenant_id":"other"}`,
		"a run":      `{"agent_id":"a","run_id":"../x"}`,
		"a schema":   `{"agent_id":"a","tools":[{"name":"x","schema":7}]}`,
		"two tools":  `{"agent_id":"a","tools":[` + pdfTool + `,` + pdfTool + `]}`,
		"a fact":     `{"agent_id":"a","tools":[{"name":"x","schema":{"type":"object"},"require":[{"require":["nothing"]}]}]}`,
		"an old age": `{"agent_id":"a","tools":[{"name":"x","schema":{"type":"object"},"require":[{"max_age_seconds":-1}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.in(t).do(w.alice, "POST", "/v1/runs", body); a.status != 400 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	// Nobody else has a part in it, and nor has another purpose.
	w.do(w.bob, "GET", at, nil).problem(404, leafproof.CodeRefNotFound)
	w.do(w.owner, "GET", at, nil).problem(404, leafproof.CodeRefNotFound)
	w.do(w.alice, "GET", at, nil, "Leafproof-Purpose", "audit").problem(400, leafproof.CodeRequestInvalid)
	w.do(w.alice, "GET", "/v1/runs/rn_aaaaaaaaaaaaaaaaaaaaaaaaaa", nil).problem(404, leafproof.CodeRefNotFound)
}

// TestRunResults records results in every form: what is content becomes a marker of
// the same shape, and plain values stay as they are.
func TestRunResults(t *testing.T) {
	w := newWorld(t, httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")})
	t.Cleanup(func() { w.h.Close() })
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a","tools":[{"name":"keep","schema":{"type":"object","properties":{"data":{"type":"string"}}},"lazy":["data"]}]}`).want(201).json(&r)
	at := "/v1/runs/" + r.Run
	record := func(body string) (v view) {
		t.Helper()
		w.do(w.alice, "POST", at+"/results", body).want(201).json(&v)
		return v
	}
	if v := record(`{"tool":"t","value":{"b":1, "a":[13911860366432393]}}`); !bytes.Contains(v.Content, []byte(`13911860366432393`)) {
		t.Errorf("a plain value is %s", v.Content)
	}
	secret := strings.Repeat("secret ", 300)
	small := record(`{"tool":"t","value":{"file":null,"n":1},"blobs":[{"at":"/file","media_type":"text/plain","text":"` + secret + `"}]}`)
	if bytes.Contains(small.Content, []byte("secret")) || !bytes.Contains(small.Content, []byte(`"size":2100`)) {
		t.Errorf("a blob in a value is %s", small.Content)
	}
	if v := record(`{"tool":"t","error":"it broke"}`); !v.IsError || !bytes.Contains(v.Content, []byte("it broke")) {
		t.Errorf("an error is %s", v.Content)
	}
	if v := record(`{"tool":"t","mcp":{"content":[{"type":"image","data":"` + base64.StdEncoding.EncodeToString([]byte{0x89, 'P', 'N', 'G', 1}) + `","mimeType":"image/png"}]}}`); bytes.Contains(v.Content, []byte("iVBOR")) || !bytes.Contains(v.Content, []byte("image/png")) {
		t.Errorf("an image is %s", v.Content)
	}
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	_ = m.WriteField("result", `{"tool":"t","value":{"file":null}}`)
	part, _ := m.CreateFormFile("/file", "x.bin")
	_, _ = part.Write(bytes.Repeat([]byte{0, 1, 2, 0xff}, 50_000))
	m.Close()
	var v view
	w.do(w.alice, "POST", at+"/results", b.Bytes(), "Content-Type", m.FormDataContentType()).want(201).json(&v)
	if !bytes.Contains(v.Content, []byte(`"size":200000`)) {
		t.Errorf("a blob as a part is %s", v.Content)
	}

	// A lazy parameter is read from the server.
	var called struct {
		Call string
		Lazy []struct{ Param, From string }
	}
	w.do(w.alice, "POST", at+"/calls", fmt.Sprintf(`{"tool":"keep","input":{"data":{"$ref":{"type":"Message","seq":%d,"part":0,"field":"file"}}}}`, small.Seq)).want(200).json(&called)
	if len(called.Lazy) != 1 || called.Lazy[0].Param != "data" {
		t.Fatalf("%+v", called)
	}
	if got := w.do(w.alice, "GET", called.Lazy[0].From, nil).want(200).body; string(got) != secret {
		t.Errorf("%d bytes through the handle", len(got))
	}
	w.do(w.bob, "GET", called.Lazy[0].From, nil).problem(404, leafproof.CodeRefNotFound)
	w.do(w.alice, "GET", at+"/calls/aaaaaaaaaaaaaaaaaaaa/64617461", nil).problem(404, leafproof.CodeRefNotFound)
	w.do(w.alice, "POST", at+"/retries", `{"retry":"../../x"}`).want(404)
	for name, body := range map[string]string{
		"two values": `{"tool":"t","value":1,"error":"x"}`,
		"no value":   `{"tool":"t"}`,
		"no tool":    `{"value":1}`,
		"two blobs":  `{"tool":"t","value":{"a":1},"blobs":[{"at":"/a","text":"x"},{"at":"/a","text":"y"}]}`,
		"base64":     `{"tool":"t","value":{"a":1},"blobs":[{"at":"/a","base64":"*"}]}`,
	} {
		if a := w.do(w.alice, "POST", at+"/results", body); a.status != 400 {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
		}
	}
}

// TestRunRetry lets a result wait that the store does not take: what it is made from
// may not be derived from. Nothing of it is in the model's view, then or later.
func TestRunRetry(t *testing.T) {
	w := newWorld(t, httpapi.Options{Runs: filepath.Join(t.TempDir(), "runs")})
	t.Cleanup(func() { w.h.Close() })
	carol, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery} {
		w.allow("carol", a, "acme")
	}
	var r run
	w.do(carol, "POST", "/v1/runs", `{"agent_id":"a","tools":[{"name":"keep","schema":{"type":"object","properties":{"data":{"type":"string"}}}}]}`).want(201).json(&r)
	at := "/v1/runs/" + r.Run
	var v view
	w.do(carol, "POST", at+"/results?tool=fetch", []byte("a text to work on"), "Content-Type", "text/plain").want(201).json(&v)
	var called struct{ Call string }
	w.do(carol, "POST", at+"/calls", fmt.Sprintf(`{"tool":"keep","input":{"data":{"$ref":{"type":"Message","seq":%d,"part":0}}}}`, v.Seq)).want(200).json(&called)
	var p struct{ Result *view }
	a := w.do(carol, "POST", at+"/results?call="+called.Call, []byte("what was made of it"), "Content-Type", "text/plain")
	if a.json(&p); a.status < 400 || p.Result == nil || !p.Result.IsError || p.Result.Retry == "" || bytes.Contains(a.body, []byte("made of it")) {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	retry := fmt.Sprintf(`{"retry":%q}`, p.Result.Retry)
	if a := w.do(carol, "POST", at+"/retries", retry); a.status < 400 {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	w.allow("carol", leafproof.ActionDerive, "acme")
	w.do(carol, "POST", at+"/retries", retry).want(201).json(&v)
	if !bytes.Contains(v.Content, []byte(`"size":19`)) || bytes.Contains(v.Content, []byte("made of it")) {
		t.Errorf("the model reads %s", v.Content)
	}
}
