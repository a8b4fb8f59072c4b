package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/merkle"
)

func TestRanges(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(100)
	size := len(data)
	ref := w.put(w.alice, data, "")
	at := "/v1/artifacts/" + ref.ArtifactID + "/content"
	for name, test := range map[string]struct {
		header   string
		from, to int // 0, 0: all, with status 200
		status   int
	}{
		"a first":               {"bytes=0-0", 0, 1, 206},
		"a middle":              {"bytes=10-19", 10, 20, 206},
		"to the end":            {"bytes=10-", 10, size, 206},
		"the end":               {"bytes=-7", size - 7, size, 206},
		"more than all, behind": {"bytes=-99999999", 0, size, 206},
		"past the end":          {"bytes=10-99999999", 10, size, 206},
		"a number too large":    {"bytes=10-99999999999999999999999", 10, size, 206},
		"all":                   {fmt.Sprintf("bytes=0-%d", size-1), 0, size, 206},
		"spaces":                {"bytes= 1-2 ", 1, 3, 206},
		"unit in upper case":    {"Bytes=1-2", 1, 3, 206},
		"two that touch":        {"bytes=5-9,0-4", 0, 10, 206},
		"two that overlap":      {"bytes=0-9,5-14", 0, 15, 206},
		"one twice":             {"bytes=3-4,3-4", 3, 5, 206},
		"empty items":           {"bytes=,1-2,", 1, 3, 206},
		"one of two is there":   {"bytes=0-4,99999999-", 0, 5, 206},
		"two that do not touch": {"bytes=0-4,6-9", 0, 0, 416},
		"behind the end":        {fmt.Sprintf("bytes=%d-", size), 0, 0, 416},
		"nothing of the end":    {"bytes=-0", 0, 0, 416},
		"backwards":             {"bytes=5-2", 0, 0, 416},
		"no numbers":            {"bytes=a-b", 0, 0, 416},
		"a sign":                {"bytes=+1-2", 0, 0, 416},
		"nothing":               {"bytes=", 0, 0, 416},
		"many":                  {"bytes=" + strings.Repeat("0-0,", httpapi.MaxRanges) + "0-0", 0, 0, 416},
		"very many":             {"bytes=" + strings.Repeat("0-0,", 10_000) + "0-0", 0, 0, 416},
		"another unit":          {"records=0-4", 0, 0, 200},
		"no unit":               {"0-4", 0, 0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			a := w.do(w.alice, "GET", at, nil, "Range", test.header).want(test.status)
			switch test.status {
			case 416:
				a.problem(416, leafproof.CodeSelectorInvalid)
				if got := a.header.Get("Content-Range"); got != fmt.Sprintf("bytes */%d", size) {
					t.Errorf("Content-Range %q", got)
				}
			case 200:
				if !bytes.Equal(a.body, data) {
					t.Errorf("%d bytes", len(a.body))
				}
			case 206:
				if !bytes.Equal(a.body, data[test.from:test.to]) {
					t.Errorf("%d bytes, want %d:%d", len(a.body), test.from, test.to)
				}
				if got := a.header.Get("Content-Range"); got != fmt.Sprintf("bytes %d-%d/%d", test.from, test.to-1, size) {
					t.Errorf("Content-Range %q", got)
				}
			}
		})
	}
}

// No browser shows as a page, or runs, what somebody put.
func TestActiveContent(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	for _, media := range []string{"text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "application/pdf", "text/html; charset=utf-7"} {
		ref := w.put(w.alice, []byte("<script>alert(1)</script>"), "", "Content-Type", media)
		for _, method := range []string{"GET", "HEAD"} {
			a := w.do(w.alice, method, "/v1/artifacts/"+ref.ArtifactID+"/content", nil).want(200)
			if got := a.header.Get("Content-Type"); got != media {
				t.Errorf("%s became %s", media, got)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s of %s: %s %q, want %q", method, media, name, got, want)
				}
			}
		}
	}
}

// A proof is of bytes from a first one on; one of the end would need the size.
func TestProofOfTheEnd(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	at := "/v1/artifacts/" + w.put(w.alice, lines(100), "").ArtifactID + "/content"
	for _, header := range []string{"bytes=-5", "bytes= -5", "bytes=,-5", "bytes=, -5", "bytes=0-3,-5", "Bytes=-5"} {
		if a := w.do(w.alice, "GET", at, nil, "Accept", "application/vnd.leafproof.slice", "Range", header); a.status != 400 && a.status != 416 {
			t.Errorf("%s: %d, %d bytes", header, a.status, len(a.body))
		}
	}
}

func TestConditions(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(100)
	tag := `"b3-` + merkle.Sum(data).String() + `"`
	ref := w.put(w.alice, data, "?sha256=true")
	at := "/v1/artifacts/" + ref.ArtifactID + "/content"
	sum := sha256.Sum256(data)
	for name, test := range map[string]struct {
		method  string
		headers []string
		status  int
		bytes   int
	}{
		"plain":                      {"GET", nil, 200, len(data)},
		"head":                       {"HEAD", nil, 200, 0},
		"head takes no range":        {"HEAD", []string{"Range", "bytes=0-4"}, 200, 0},
		"has it":                     {"GET", []string{"If-None-Match", tag}, 304, 0},
		"has it, weakly":             {"GET", []string{"If-None-Match", "W/" + tag}, 304, 0},
		"has it among others":        {"GET", []string{"If-None-Match", `"x", ` + tag}, 304, 0},
		"has anything":               {"GET", []string{"If-None-Match", "*"}, 304, 0},
		"has it, head":               {"HEAD", []string{"If-None-Match", tag}, 304, 0},
		"has another":                {"GET", []string{"If-None-Match", `"x"`}, 200, len(data)},
		"has it and wants a range":   {"GET", []string{"If-None-Match", tag, "Range", "bytes=0-4"}, 304, 0},
		"wants it":                   {"GET", []string{"If-Match", tag}, 200, len(data)},
		"wants any":                  {"GET", []string{"If-Match", "*"}, 200, len(data)},
		"wants another":              {"GET", []string{"If-Match", `"x"`}, 412, -1},
		"wants it weakly":            {"GET", []string{"If-Match", "W/" + tag}, 412, -1},
		"range of it":                {"GET", []string{"If-Range", tag, "Range", "bytes=0-4"}, 206, 5},
		"range of another":           {"GET", []string{"If-Range", `"x"`, "Range", "bytes=0-4"}, 200, len(data)},
		"range of it, weakly":        {"GET", []string{"If-Range", "W/" + tag, "Range", "bytes=0-4"}, 200, len(data)},
		"range since a date":         {"GET", []string{"If-Range", "Sat, 29 Oct 1994 19:43:31 GMT", "Range", "bytes=0-4"}, 200, len(data)},
		"a bad range of another one": {"GET", []string{"If-Range", `"x"`, "Range", "bytes=9-4"}, 200, len(data)},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			a := w.do(w.alice, test.method, at, nil, test.headers...).want(test.status)
			if test.bytes < 0 {
				return
			}
			if len(a.body) != test.bytes {
				t.Errorf("%d bytes, want %d", len(a.body), test.bytes)
			}
			if got := a.header.Get("ETag"); got != tag {
				t.Errorf("ETag %q", got)
			}
			if got := a.header.Get("Repr-Digest"); got != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" {
				t.Errorf("Repr-Digest %q", got)
			}
			if test.status != 304 && a.header.Get("Accept-Ranges") != "bytes" {
				t.Error("no Accept-Ranges")
			}
		})
	}
	// The digest of what is sent, before it or behind it.
	for _, n := range []int{5, httpapi.MaxInline, httpapi.MaxInline + 1} {
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
		ref := w.put(w.alice, big, "")
		a := w.do(w.alice, "GET", "/v1/artifacts/"+ref.ArtifactID+"/content", nil, "Range", fmt.Sprintf("bytes=1-%d", n), "Want-Content-Digest", "sha-512=0, sha-256=3").want(206)
		sum := sha256.Sum256(big[1 : n+1])
		got := a.header.Get("Content-Digest") + a.header.Get("Trailer-Content-Digest")
		if got != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" || !bytes.Equal(a.body, big[1:n+1]) {
			t.Errorf("%d bytes: %d came, Content-Digest %q", n, len(a.body), got)
		}
	}
	empty := w.put(w.alice, nil, "")
	w.do(w.alice, "GET", "/v1/artifacts/"+empty.ArtifactID+"/content", nil, "Range", "bytes=0-").want(200)
}

// Who may read some records alone learns no digest of the others.
func TestContentOfSomeRecords(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(100)
	ref := w.put(w.alice, data, "?sha256=true")
	token, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{
		Principal: "carol", Action: leafproof.ActionRead, Pattern: "acme/*/" + ref.ArtifactID, Records: &merkle.Range{Start: 0, End: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := "/v1/artifacts/" + ref.ArtifactID + "/content"
	a := w.do(token, "GET", at, nil, "Range", "bytes=0-9").want(206)
	for _, name := range []string{"ETag", "Repr-Digest"} {
		if got := a.header.Get(name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !bytes.Equal(a.body, data[:10]) {
		t.Errorf("%q", a.body)
	}
	w.do(token, "GET", at, nil).problem(403, leafproof.CodeAccessRevoked)
	w.do(token, "GET", at, nil, "Range", "bytes=0-99").problem(403, leafproof.CodeAccessRevoked)
	w.do(token, "GET", at, nil, "If-None-Match", `"b3-`+merkle.Sum(data).String()+`"`).problem(403, leafproof.CodeAccessRevoked)
}

// A revocation cuts a stream that is under way, and the reader sees that it was cut.
func TestRevokedUnderWay(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // more than sockets hold
	ref := w.put(w.owner, data, "", "Leafproof-Manifest", `{"artifact_ref":{"scope":{"tenant_id":"acme"}}}`)
	token, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	grant := w.allow("carol", leafproof.ActionRead, "acme")
	w.allow("carol", leafproof.ActionQuery, "acme")
	r, _ := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/artifacts/"+ref.ArtifactID+"/content", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err, resp)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if got := w.do(w.owner, "DELETE", "/v1/grants/"+grant, nil); got.status != 204 {
		t.Fatalf("the revocation: %d", got.status)
	}
	begin := time.Now()
	n, err := io.Copy(io.Discard, resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || n >= int64(len(data)) {
		t.Errorf("after the revocation %d more bytes came, and then %v", n, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v to end", took)
	}
	w.do(token, "GET", "/v1/artifacts/"+ref.ArtifactID+"/content", nil).problem(403, leafproof.CodeAccessRevoked)
}
