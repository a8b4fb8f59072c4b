package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
)

// TestAttacks sends what no client sends: each is refused in words, and the server
// goes on answering.
func TestAttacks(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	ref := w.put(w.alice, lines(50), "")
	at := "/v1/artifacts/" + ref.ArtifactID
	auth := "Authorization: Bearer " + w.alice + "\r\n"
	host := "Host: localhost\r\n"
	get := func(target string) string {
		return "GET " + target + " HTTP/1.1\r\n" + host + auth + "Connection: close\r\n\r\n"
	}
	post := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%s%sConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, host, auth, len(body), body)
	}
	deep := strings.Repeat("[", 100_000)
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"dots":                      {get("/v1/artifacts/../grants"), 400},
		"dots at the end":           {get("/v1/artifacts/.."), 400},
		"encoded dots":              {get("/v1/artifacts/%2e%2e/grants"), 400},
		"dots encoded twice":        {get("/v1/artifacts/%252e%252e/grants"), 400},
		"an encoded slash":          {get("/v1/artifacts%2f" + ref.ArtifactID), 400},
		"an encoded backslash":      {get("/v1/artifacts/..%5cgrants"), 400},
		"NUL":                       {get("/v1/artifacts/%00"), 400},
		"NUL in a query":            {get("/v1/artifacts?cursor=%00"), 400},
		"two slashes":               {get("//v1/artifacts"), 400},
		"a slash at the end":        {get("/v1/artifacts/"), 400},
		"a long path":               {get("/v1/names/" + strings.Repeat("a", 5000)), 414},
		"no UTF-8":                  {get("/v1/names/%ff"), 400},
		"another host":              {"GET /livez HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421},
		"another host in the URL":   {"GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 421},
		"no host":                   {"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", 400},
		"two hosts":                 {"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 400},
		"a page of another site":    {"POST /v1/artifacts HTTP/1.1\r\n" + host + auth + "Origin: https://evil.example\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 403},
		"a page that hides":         {"GET " + at + " HTTP/1.1\r\n" + host + auth + "Origin: null\r\nConnection: close\r\n\r\n", 403},
		"a page's link":             {"GET " + at + " HTTP/1.1\r\n" + host + auth + "Sec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n", 403},
		"a page of a rebound name":  {"GET " + at + " HTTP/1.1\r\nHost: evil.example\r\n" + auth + "Sec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n", 421},
		"a preflight":               {"OPTIONS /v1/artifacts HTTP/1.1\r\n" + host + "Origin: https://evil.example\r\nConnection: close\r\n\r\n", 405},
		"a method in lower case":    {"get " + at + " HTTP/1.1\r\n" + host + auth + "Connection: close\r\n\r\n", 400},
		"a method in mixed case":    {"Delete " + at + " HTTP/1.1\r\n" + host + auth + "Connection: close\r\n\r\n", 400},
		"TRACE":                     {"TRACE " + at + " HTTP/1.1\r\n" + host + auth + "Connection: close\r\n\r\n", 405},
		"CONNECT":                   {"CONNECT localhost:1 HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", 405},
		"a star":                    {"OPTIONS * HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", 405},
		"a method it has not":       {"PATCH " + at + " HTTP/1.1\r\n" + host + auth + "Connection: close\r\n\r\n", 405},
		"a large header":            {"GET /livez HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 200<<10) + "\r\n\r\n", 431},
		"many headers":              {"GET /livez HTTP/1.1\r\n" + host + strings.Repeat("X: y\r\n", 50_000) + "\r\n", 431},
		"two lengths":               {"POST " + at + "/read HTTP/1.1\r\n" + host + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		"length and chunks":         {"POST " + at + "/read HTTP/1.1\r\n" + host + auth + "Content-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", 400},
		"two tokens":                {"GET " + at + " HTTP/1.1\r\n" + host + auth + auth + "Connection: close\r\n\r\n", 400},
		"two purposes":              {"GET " + at + " HTTP/1.1\r\n" + host + auth + "Leafproof-Purpose: a\r\nLeafproof-Purpose: b\r\nConnection: close\r\n\r\n", 400},
		"a member twice":            {post(at+"/query", `{"where":"@.n==1","where":"@.n==2"}`), 400},
		"a member twice, escaped":   {post(at+"/query", `{"where":"@.n==1","\u0077here":"@.n==2"}`), 400},
		"a member in another case":  {post(at+"/query", `{"WHERE":"@.n==1"}`), 400},
		"an unknown member":         {post(at+"/read", `{"byte":[0,1]}`), 400},
		"another type":              {post(at+"/read", `{"bytes":"0:1"}`), 400},
		"a range of three":          {post(at+"/read", `{"bytes":[0,1,2]}`), 400},
		"a range backwards":         {post(at+"/read", `{"bytes":[3,1]}`), 400},
		"a range below 0":           {post(at+"/read", `{"bytes":[-1,1]}`), 400},
		"a range past the end":      {post(at+"/read", `{"bytes":[0,9223372036854775807]}`), 400},
		"a number beyond":           {post(at+"/read", `{"bytes":[0,92233720368547758070]}`), 400},
		"two selectors":             {post(at+"/read", `{"bytes":[0,1],"records":[0,1]}`), 400},
		"no JSON":                   {post(at+"/read", `hello`), 400},
		"two values":                {post(at+"/read", `{}{}`), 400},
		"an array":                  {post(at+"/read", `[]`), 400},
		"a depth bomb":              {post(at+"/read", deep), 400},
		"a depth bomb in a member":  {post(at+"/query", `{"where":`+deep+`}`), 400},
		"a depth bomb in a filter":  {post(at+"/query", `{"where":"`+strings.Repeat("(", 60_000)+`"}`), 400},
		"a long filter":             {post(at+"/query", `{"where":"`+strings.Repeat("a", 200_000)+`"}`), 400},
		"a large body":              {post(at+"/read", `{"pointer":"`+strings.Repeat("a", httpapi.MaxJSON)+`"}`), 413},
		"no UTF-8 in a body":        {post(at+"/read", "{\"pointer\":\"\xff\"}"), 400},
		"a lone surrogate":          {post(at+"/read", `{"pointer":"\ud800"}`), 400},
		"NUL in an id":              {post("/v1/grants", `{"principal":"a\u0000","action":"read","pattern":"acme"}`), 400},
		"dots in a tenant":          {post("/v1/grants", `{"principal":"carol","action":"read","pattern":"../x"}`), 400},
		"another media type":        {"POST " + at + "/read HTTP/1.1\r\n" + host + auth + "Content-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", 415},
		"a parameter it has not":    {get(at + "?x=1"), 400},
		"a parameter twice":         {get("/v1/artifacts?limit=1&limit=2"), 400},
		"a query that parses not":   {get("/v1/artifacts?limit=%zz"), 400},
		"a semicolon":               {get("/v1/artifacts?limit=1;cursor=2"), 400},
		"a limit of nothing":        {get("/v1/artifacts?limit=0"), 400},
		"a limit below":             {get("/v1/artifacts?limit=-1"), 400},
		"a cursor of words":         {get("/v1/artifacts?cursor=abc"), 400},
		"no id":                     {get("/v1/artifacts/art_x"), 400},
		"an id in upper case":       {get("/v1/artifacts/" + strings.ToUpper(ref.ArtifactID)), 400},
		"facts that are no JSON":    {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Leafproof-Manifest: !\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"facts twice":               {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Leafproof-Manifest: {}\r\nLeafproof-Manifest: {}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"facts with a member twice": {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Leafproof-Manifest: {\"bytes\":{},\"bytes\":{}}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"a body cut short":          {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Content-Length: 100\r\nConnection: close\r\n\r\nx", 400},
		"chunks cut short":          {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhel", 400},
		"chunks that are none":      {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n", 400},
		"more than all of it":       {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Content-Length: 9223372036854775807\r\nConnection: close\r\n\r\n", 413},
		"an encoded body":           {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Content-Encoding: gzip\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 415},
		"a part as if it were all":  {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Content-Range: bytes 0-0/9\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"two media types":           {"PUT /v1/artifacts HTTP/1.1\r\n" + host + auth + "Content-Type: text/plain\r\nContent-Type: text/html\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"two versions of a range":   {"GET " + at + "/content HTTP/1.1\r\n" + host + auth + "Range: bytes=0-1\r\nIf-Range: \"a\"\r\nIf-Range: \"b\"\r\nConnection: close\r\n\r\n", 400},
		"two offsets":               {"PATCH /v1/uploads/up_" + strings.Repeat("a", 26) + " HTTP/1.1\r\n" + host + auth + "Upload-Offset: 0\r\nUpload-Offset: 1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", 400},
		"chunks in HTTP/1.0":        {"PUT /v1/artifacts HTTP/1.0\r\n" + host + auth + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 411},
		"no length in HTTP/1.0":     {"POST /v1/artifacts HTTP/1.0\r\n" + host + auth + "\r\nx", 411},
		"an upload's path":          {get("/v1/uploads/up_x"), 404},
		"nothing there":             {get("/v2/artifacts"), 404},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			a := w.raw(test.request, strings.Contains(name, "cut short"))
			if a.status != test.status {
				t.Errorf("status %d, want %d: %.300s", a.status, test.status, a.body)
			}
			if a.status != 431 && a.header.Get("Content-Type") == "application/problem+json" {
				a.problem(test.status, leafproof.Code(a.code()))
			}
			w.do("", "GET", "/livez", nil).want(200)
		})
	}
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there, and one was acknowledged", n)
	}
}

// TestNothingFollowsChunks holds the connection to end behind a body in chunks: where
// a length stands beside them, what follows may have been put there by somebody else.
func TestNothingFollowsChunks(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "PUT /v1/artifacts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"+
		"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", w.alice)
	got, err := io.ReadAll(conn)
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 201 ")) || bytes.Count(got, []byte("HTTP/1.1 ")) != 1 || err != nil {
		t.Errorf("%v: %s", err, got)
	}
}

// raw sends bytes, perhaps closes the way there, and reads what comes back.
func (w *world) raw(request string, end bool) *answer {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		io.WriteString(conn, request)
		if end {
			conn.(*net.TCPConn).CloseWrite()
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	a := &answer{t: w.t, status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(resp.Body)
	return a
}

func (a *answer) code() string {
	_, rest, _ := bytes.Cut(a.body, []byte(`"code":"`))
	code, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(code)
}

// Who sends slowly, or reads slowly, is not waited for.
func TestSlow(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	// Put while there is patience: a busy disk is slow too.
	ref := w.put(w.alice, bytes.Repeat([]byte("0123456789abcdef"), 2<<20), "")
	defer httpapi.SetPatience(150 * time.Millisecond)()
	server := httptest.NewUnstartedServer(w.h)
	server.Config = w.h.HTTP()
	server.Config.ReadHeaderTimeout = 150 * time.Millisecond
	server.Start()
	defer server.Close()
	w.url = server.URL
	head := "PUT /v1/artifacts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + w.alice + "\r\n"
	drip := func(t *testing.T, first string, each string) (string, time.Duration) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		begin := time.Now()
		io.WriteString(conn, first)
		done := make(chan string)
		go func() {
			b, _ := io.ReadAll(conn)
			done <- string(b)
		}()
		for {
			select {
			case got := <-done:
				return got, time.Since(begin)
			case <-time.After(20 * time.Millisecond):
				io.WriteString(conn, each)
			}
		}
	}
	t.Run("header", func(t *testing.T) {
		if got, took := drip(t, "GET /livez HTTP/1.1\r\n", "X: y\r\n"); strings.HasPrefix(got, "HTTP/1.1 200") || took > 3*time.Second {
			t.Errorf("after %v: %q", took, got)
		}
	})
	t.Run("body", func(t *testing.T) {
		if got, took := drip(t, head+"Content-Length: 1000000\r\n\r\n", "x"); !strings.HasPrefix(got, "HTTP/1.1 408 ") || took > 3*time.Second {
			t.Errorf("after %v: %q", took, got)
		}
	})
	t.Run("body that nobody reads", func(t *testing.T) {
		if got, took := drip(t, "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", "x"); !strings.HasPrefix(got, "HTTP/1.1 200 ") || took > 5*time.Second {
			t.Errorf("after %v: %q", took, got)
		}
	})
	t.Run("reader", func(t *testing.T) {
		w := w.in(t)
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/artifacts/%s/content HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", ref.ArtifactID, w.alice)
		begin := time.Now()
		for w.do(w.owner, "GET", "/metrics", nil); !strings.Contains(string(w.do(w.owner, "GET", "/metrics", nil).body), "leafproof_http_cut_total 1"); {
			if time.Since(begin) > 60*time.Second {
				t.Fatal("a reader who does not read is waited for")
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	w.do("", "GET", "/livez", nil).want(200)
}

// More requests than may be under way are told to come again.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t, httpapi.Options{Limits: httpapi.Limits{Requests: 3, PerPrincipal: 2}})
	var writers []*io.PipeWriter
	done := make(chan *answer, 2)
	for range 2 {
		r, p := io.Pipe()
		writers = append(writers, p)
		go func() { done <- w.try(w.alice, "PUT", "/v1/artifacts", r) }()
		if _, err := p.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	w.underWay(2) // asked by somebody else: a request of alice's could take the place of one
	a := w.do(w.alice, "GET", "/v1/artifacts", nil)
	if p := a.problem(429, leafproof.CodeBudgetExhausted); !p.Retryable || p.Action != leafproof.Wait || a.header.Get("Retry-After") != "1" {
		t.Errorf("%+v", p)
	}
	w.do(w.bob, "GET", "/v1/artifacts", nil).want(200)
	for _, p := range writers {
		p.Close()
	}
	for range 2 {
		(<-done).want(201)
	}
	w.do(w.alice, "GET", "/v1/artifacts", nil).want(200)
}
