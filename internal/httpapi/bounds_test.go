package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
)

// Bodies and answers that stand in memory have a bound together: who would come above
// it is told to come again, and what was held is given back.
func TestMemory(t *testing.T) {
	w := newWorld(t, httpapi.Options{Limits: httpapi.Limits{Memory: 256 << 10}})
	ref := w.put(w.alice, lines(8000), "?records=ndjson")
	at := "/v1/artifacts/" + ref.ArtifactID
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&r)
	large := strings.Repeat("x", 200<<10)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	_ = m.WriteField("facts", `{"lineage":{"producer":{"tool":"t"}}}`)
	_ = m.WriteField("arguments", large)
	_ = m.WriteField("content", "x")
	m.Close()
	for name, ask := range map[string]func() *answer{
		"a JSON body":   func() *answer { return w.do(w.alice, "POST", at+"/read", `{"pointer":"/`+large+`"}`) },
		"a part":        func() *answer { return w.do(w.alice, "POST", at+"/read", `{"bytes":[0,200000]}`) },
		"a result page": func() *answer { return w.do(w.alice, "POST", at+"/query", `{}`) },
		"a result": func() *answer {
			return w.do(w.alice, "POST", "/v1/runs/"+r.Run+"/results", `{"tool":"t","value":"`+large+`"}`)
		},
		"arguments": func() *answer {
			return w.do(w.alice, "POST", "/v1/artifacts", form.Bytes(), "Content-Type", m.FormDataContentType())
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask()
			if p := a.problem(429, leafproof.CodeBudgetExhausted); !p.Retryable || a.header.Get("Retry-After") == "" {
				t.Errorf("%+v", p)
			}
			if n := w.h.Held(); n != 0 {
				t.Errorf("%d bytes are held afterwards", n)
			}
		})
	}
	w.do(w.alice, "POST", at+"/query", `{"limit":10}`).want(200)
	w.do(w.alice, "GET", at+"/content", nil).want(200) // nothing of it stands in memory
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there", n)
	}
}

// The log says what failed, and nothing of what anybody wrote.
func TestLog(t *testing.T) {
	var log syncBuffer
	w := newWorld(t, httpapi.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	ref := w.put(w.alice, []byte("SECRET content"), "?filename=SECRET", "Leafproof-Manifest", `{"artifact_ref":{"tool_call_id":"SECRET"}}`)
	at := "/v1/artifacts/" + ref.ArtifactID
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"SECRET","tools":[`+pdfTool+`]}`).want(201).json(&r)
	run := "/v1/runs/" + r.Run
	for _, ask := range [][3]string{
		{"POST", at + "/query", `{"where":"@.SECRET == 'SECRET"}`},
		{"POST", at + "/read", `{"pointer":"/SECRET"}`},
		{"POST", at + "/read", `{"SECRET":1}`},
		{"POST", run + "/calls", `{"tool":"generate_pdf","input":{"title":7,"rows":"SECRET"}}`},
		{"POST", run + "/calls", `{"tool":"SECRET","input":{}}`},
		{"POST", run + "/calls", `{"tool":"generate_pdf","input":{"title":"SECRET","rows":{"$ref":{"type":"SECRET"}}}}`},
		{"POST", run + "/calls", `{"tool":"query_json","input":{"source":{"$ref":{"type":"Blob","key":"SECRET"}}}}`},
		{"POST", run + "/results", `{"tool":"SECRET","value":{"a":1},"blobs":[{"at":"/SECRET","text":"SECRET"}]}`},
		{"POST", run + "/results", `{"tool":"SECRET","error":"SECRET"}`},
		{"POST", run + "/messages", `{"role":"SECRET","text":"SECRET"}`},
		{"GET", "/v1/names/SECRET", ""},
		{"GET", "/v1/SECRET", ""},
		{"GET", "/v1/artifacts?SECRET=SECRET", ""},
		{"DELETE", at + "?reason=SECRET", ""},
	} {
		var body any
		if ask[2] != "" {
			body = ask[2]
		}
		w.do(w.alice, ask[0], ask[1], body)
	}
	w.do("SECRET", "GET", at, nil).want(401)
	w.do("", "GET", at, nil, "Authorization", "Basic SECRET").want(401)
	w.do(w.alice, "GET", at, nil, "Leafproof-Request-Id", "SECRET,").want(410)
	for _, word := range []string{"SECRET", w.alice, ownerToken, "acme", w.dir} {
		for line := range strings.SplitSeq(log.String(), "\n") {
			if strings.Contains(line, word) {
				t.Errorf("the log has %q: %s", word, line)
			}
		}
	}
	if !strings.Contains(log.String(), `"status":401`) {
		t.Error("the log has nothing")
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Whoever holds all connections of a door open keeps nobody out: not at another door,
// and not at this one, where those on which nothing is asked make room.
func TestConnectionsHeldOpen(t *testing.T) {
	defer httpapi.SetConnections(4)()
	w := newWorld(t, httpapi.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/s"
	socket, err := httpapi.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.h.Serve(ctx, 50*time.Millisecond, httpapi.Door{Listener: l}, httpapi.Door{Listener: socket})
	}()
	open := func(said string) net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, said)
		return conn
	}
	const live = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
	answers := func(conn net.Conn) error {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	for range 3 { // idle, after an answer
		if err := answers(open(live)); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 { // each takes the place of one that is idle
		if err := answers(open(live)); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // under way
		open("PUT /v1/artifacts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + w.alice + "\r\nContent-Length: 9\r\n\r\nx")
	}
	w.underWay(4)
	resp, err := overSocket(path).Get("http://any/livez")
	if err != nil {
		t.Fatalf("the other door: %v", err)
	}
	resp.Body.Close()
	open(live) // waits to be accepted
	// A server whose doors are full ends when its time is over, too.
	begin := time.Now()
	stop()
	<-ended
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v to end", took)
	}
}

// A page of an origin that may ask can do so, with its token and nothing else; others
// cannot.
func TestPages(t *testing.T) {
	w := newWorld(t, httpapi.Options{Origins: []string{"https://app.example"}})
	at := "/v1/artifacts/" + w.put(w.alice, lines(3), "").ArtifactID + "/content"
	ask := func(origin, method string, more ...string) *answer {
		return w.do("", "OPTIONS", at, nil, append([]string{"Origin", origin, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", "authorization,range"}, more...)...)
	}
	a := ask("https://app.example", "GET", "Access-Control-Request-Private-Network", "true").want(204)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Methods": "GET", "Access-Control-Allow-Private-Network": "true",
		"Access-Control-Allow-Credentials": "", "Vary": "Origin",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if sends := a.header.Get("Access-Control-Allow-Headers"); !strings.Contains(sends, "Authorization") || strings.Contains(sends, "*") {
		t.Errorf("it may send %s", sends)
	}
	got := w.do(w.alice, "GET", at, nil, "Origin", "https://app.example", "Sec-Fetch-Site", "cross-site", "Range", "bytes=0-3").want(206)
	if got.header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(got.header.Get("Access-Control-Expose-Headers"), "Content-Range") ||
		got.header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%v", got.header)
	}
	w.do("", "GET", at, nil, "Origin", "https://app.example").want(401) // it has a token, or nothing
	ask("https://app.example", "PATCH").want(405)
	ask("https://app.example", "get").want(400)
	for _, origin := range []string{"https://evil.example", "null", "https://app.example.evil.example", "http://app.example", "https://app.example:444", "https://APP.example", ""} {
		a := ask(origin, "GET")
		if a.status != 405 && a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", origin, a.status, a.header)
		}
		if a := w.do(w.alice, "GET", at, nil, "Origin", origin); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", origin, a.status, a.header)
		}
	}
	ask("https://app.example", "GET", "Host", "evil.example").want(421)
}
