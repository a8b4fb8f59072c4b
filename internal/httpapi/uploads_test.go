package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
	"leafproof/merkle"
)

func TestUploads(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(5000)
	begin := w.do(w.alice, "POST", "/v1/uploads?sha256=true", data[:1000], "Upload-Complete", "?0", "Upload-Length", fmt.Sprint(len(data)),
		"Content-Type", "application/x-ndjson", "Leafproof-Manifest", `{"artifact_ref":{"scope":{"run_id":"r1"}}}`).want(201)
	at := begin.header.Get("Location")
	if begin.header.Get("Upload-Offset") != "1000" || !strings.HasPrefix(begin.header.Get("Upload-Limit"), "max-size=") {
		t.Errorf("%v", begin.header)
	}
	state := func(offset, complete string) {
		t.Helper()
		a := w.do(w.alice, "HEAD", at, nil).want(204)
		if a.header.Get("Upload-Offset") != offset || a.header.Get("Upload-Complete") != complete {
			t.Fatalf("the state is %v, want %s", a.header, offset)
		}
	}
	state("1000", "?0")
	part := func(from, to int, complete string) *answer {
		return w.do(w.alice, "PATCH", at, data[from:to], "Upload-Offset", fmt.Sprint(from), "Upload-Complete", complete, "Content-Type", "application/partial-upload")
	}
	p := part(2000, 3000, "?0").problem(409, leafproof.CodeRequestInvalid)
	if *p.ExpectedOffset != 1000 || *p.ProvidedOffset != 2000 || !strings.HasSuffix(p.Type, "#mismatching-upload-offset") {
		t.Errorf("%+v", p)
	}
	part(1000, 3000, "?0").want(204)
	// A connection that is cut keeps what came.
	r, pipe := io.Pipe()
	cut := make(chan *answer, 1)
	go func() { cut <- w.try(w.alice, "PATCH", at, r, "Upload-Offset", "3000") }()
	if _, err := pipe.Write(data[3000:50_000]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	pipe.CloseWithError(errors.New("cut"))
	<-cut
	var offset int
	for deadline := time.Now().Add(5 * time.Second); offset <= 3000 && time.Now().Before(deadline); {
		fmt.Sscan(w.do(w.alice, "HEAD", at, nil).want(204).header.Get("Upload-Offset"), &offset)
	}
	if offset <= 3000 || offset > 50_000 {
		t.Fatalf("%d bytes are there", offset)
	}
	part(offset, offset, "?1").problem(400, leafproof.CodeRequestInvalid) // fewer than were said
	a := part(offset, len(data), "?1").want(201)
	var ref manifest.ArtifactRef
	a.json(&ref)
	if ref.ContentHash != "blake3:"+merkle.Sum(data).String() || *ref.Scope.RunID != "r1" || ref.Scope.TenantID != "acme" {
		t.Errorf("%+v", ref)
	}
	got := w.do(w.alice, "GET", a.header.Get("Location")+"/content", nil).want(200)
	if !bytes.Equal(got.body, data) || got.header.Get("Repr-Digest") == "" || got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d bytes, %v", len(got.body), got.header)
	}
	// The answer may have been lost: it is told again.
	if h := w.do(w.alice, "HEAD", at, nil).want(204).header; h.Get("Upload-Complete") != "?1" || h.Get("Location") != a.header.Get("Location") {
		t.Errorf("%v", h)
	}
	if again := part(offset, len(data), "?1").want(201); !bytes.Equal(again.body, a.body) {
		t.Errorf("told again: %s", again.body)
	}
	w.do(w.alice, "GET", at, nil).want(200)
	w.do(w.alice, "DELETE", at, nil).want(204)
	w.do(w.alice, "HEAD", at, nil).want(404)
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there", n)
	}

	// All at once, and nothing.
	w.do(w.alice, "POST", "/v1/uploads", []byte("all"), "Upload-Complete", "?1").want(201).json(&ref)
	if ref.ContentHash != "blake3:"+merkle.Sum([]byte("all")).String() {
		t.Errorf("%+v", ref)
	}
	w.do(w.alice, "POST", "/v1/uploads", nil, "Upload-Complete", "?1").want(201)
	for name, headers := range map[string][]string{
		"a length of words":     {"Upload-Length", "many"},
		"complete is no truth":  {"Upload-Complete", "yes"},
		"facts that parse not":  {"Leafproof-Manifest", "{"},
		"facts of another's":    {"Leafproof-Manifest", `{"artifact_ref":{"scope":{"tenant_id":"other"}}}`},
		"more than it was said": {"Upload-Length", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			if a := w.do(w.alice, "POST", "/v1/uploads", []byte("abc"), headers...); a.status != 400 && a.status != 413 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
}

// A connection that hangs is ended by the next one that wants to go on.
func TestUploadTakenOver(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	at := w.do(w.alice, "POST", "/v1/uploads", nil).want(201).header.Get("Location")
	r, p := io.Pipe()
	hung := make(chan *answer, 1)
	go func() { hung <- w.try(w.alice, "PATCH", at, r, "Upload-Offset", "0") }()
	if _, err := p.Write(bytes.Repeat([]byte("x"), 100_000)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	a := w.do(w.alice, "HEAD", at, nil).want(204)
	var offset int
	fmt.Sscan(a.header.Get("Upload-Offset"), &offset)
	if offset == 0 {
		t.Error("nothing is there of what came")
	}
	p.CloseWithError(errors.New("gone"))
	<-hung
	w.do(w.alice, "PATCH", at, []byte("end"), "Upload-Offset", fmt.Sprint(offset), "Upload-Complete", "?1").want(201)
}
