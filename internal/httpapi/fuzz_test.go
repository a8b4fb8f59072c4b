package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"leafproof/internal/httpapi"
)

// FuzzRequest gives the server whole requests of alice's: it answers each, with what
// it describes or with a problem, and never shows what is bob's.
func FuzzRequest(f *testing.F) {
	w := newWorld(f, httpapi.Options{Limits: httpapi.Limits{BodyBytes: 1 << 16}})
	ref := w.put(w.alice, lines(20), "")
	secret := "0123456789 bob's own bytes 9876543210"
	theirs := w.put(w.bob, []byte(secret), "")
	f.Add("GET", "/v1/artifacts/"+ref.ArtifactID+"/content", "Range: bytes=0-4,3-9,-2", []byte(nil))
	f.Add("GET", "/v1/artifacts/"+theirs.ArtifactID+"/content", "Accept: application/vnd.leafproof.bundle", []byte(nil))
	f.Add("POST", "/v1/artifacts/"+ref.ArtifactID+"/query", "Content-Type: application/json", []byte(`{"where":"@.n > 3","order_by":["/n:desc"],"select":["/n"],"limit":2}`))
	f.Add("POST", "/v1/artifacts/"+ref.ArtifactID+"/query", "Content-Type: application/json\r\nAccept: application/x-ndjson", []byte(`{"where":"{\"field\":\"/n\",\"equals\":3}"}`))
	f.Add("POST", "/v1/artifacts/"+ref.ArtifactID+"/read", "Content-Type: application/json", []byte(`{"records":[1,2]}`))
	f.Add("POST", "/v1/artifacts/"+ref.ArtifactID+"/assess", "Content-Type: application/json", []byte(`{"require":["capture=complete"]}`))
	f.Add("POST", "/v1/artifacts", "Content-Type: multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\na\r\n--x--\r\n"))
	f.Add("PUT", "/v1/artifacts?sha256=true&records=ndjson", `Leafproof-Manifest: {"artifact_ref":{"scope":{"run_id":"r1"}}}`, []byte("{}\n"))
	f.Add("POST", "/v1/uploads", "Upload-Complete: ?1\r\nUpload-Length: 3", []byte("abc"))
	f.Add("PUT", "/v1/names/latest", "Content-Type: application/json", []byte(`{"artifact_id":"`+ref.ArtifactID+`","if_seq":0}`))
	f.Add("POST", "/v1/grants", "Content-Type: application/json", []byte(`{"principal":"alice","action":"read","pattern":"acme/*"}`))
	f.Add("GET", "/v1/artifacts?cursor=1&limit=5", "If-None-Match: *", []byte(nil))
	f.Fuzz(func(t *testing.T, method, target, headers string, body []byte) {
		if strings.ContainsAny(method+target, " \r\n") || len(headers) > 4096 || len(body) > 1<<16 {
			return
		}
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n%s", method, target, headers, len(body), body)
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return // the server's own reader refuses it
		}
		r.Header.Set("Authorization", "Bearer "+w.alice)
		out := httptest.NewRecorder()
		w.h.ServeHTTP(out, r)
		if bytes.Contains(out.Body.Bytes(), []byte(secret)) {
			t.Fatal("it shows what is bob's")
		}
		var p httpapi.Problem
		switch {
		case out.Code >= 500 && out.Code != 503:
			t.Fatalf("status %d: %s", out.Code, out.Body)
		case out.Code < 400:
		case json.Unmarshal(out.Body.Bytes(), &p) != nil || p.Status != out.Code || p.Code == "":
			t.Fatalf("status %d without a problem: %q", out.Code, out.Body)
		}
	})
}
