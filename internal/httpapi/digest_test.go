package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"testing"

	"leafproof"
	"leafproof/internal/httpapi"
)

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// What a caller states of what it sends is held to what comes, before anything is
// published.
func TestStatedDigest(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data, other := lines(3000), lines(3001)
	long := sha512.Sum512(data)
	sha512 := "sha-512=:" + base64.StdEncoding.EncodeToString(long[:]) + ":"
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	_ = m.WriteField("content", string(data))
	m.Close()
	form.WriteString("an epilogue, which is of the body too")
	parts := m.FormDataContentType()
	good := 0
	for name, test := range map[string]struct {
		body    []byte
		headers []string
		status  int
	}{
		"right":                     {data, []string{"Content-Digest", sha(data)}, 201},
		"of all of it":              {data, []string{"Repr-Digest", sha(data)}, 201},
		"two":                       {data, []string{"Content-Digest", sha(data) + ", " + sha512}, 201},
		"one is not known":          {data, []string{"Content-Digest", "unixsum=:AAAA:, " + sha512}, 201},
		"of nothing":                {nil, []string{"Content-Digest", sha(nil)}, 201},
		"of a form":                 {form.Bytes(), []string{"Content-Type", parts, "Content-Digest", sha(form.Bytes())}, 201},
		"wrong":                     {data, []string{"Content-Digest", sha(other)}, 400},
		"wrong, of all":             {data, []string{"Repr-Digest", sha(other)}, 400},
		"one of two is wrong":       {other, []string{"Content-Digest", sha(other) + ", " + sha512}, 400},
		"of nothing, and some came": {data, []string{"Content-Digest", sha(nil)}, 400},
		"nothing came":              {nil, []string{"Content-Digest", sha(data)}, 400},
		"of a form's content":       {form.Bytes(), []string{"Content-Type", parts, "Content-Digest", sha(data)}, 400},
		"a form's content":          {form.Bytes(), []string{"Content-Type", parts, "Repr-Digest", sha(data)}, 400},
		"none that is known":        {data, []string{"Content-Digest", "unixsum=:AAAA:"}, 400},
		"no base64":                 {data, []string{"Content-Digest", "sha-256=:***:"}, 400},
		"too short":                 {data, []string{"Content-Digest", "sha-256=:AAAA:"}, 400},
		"hex":                       {data, []string{"Content-Digest", "sha-256=abcdef"}, 400},
		"empty":                     {data, []string{"Content-Digest", ""}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.in(t).do(w.alice, "PUT", "/v1/artifacts", test.body, test.headers...).want(test.status)
			if test.status != 201 {
				if p := a.problem(400, leafproof.CodeRequestInvalid); p.At != "Content-Digest" && p.At != "Repr-Digest" {
					t.Errorf("%+v", p)
				}
				return
			}
			good++
		})
	}
	if n := len(w.listed(w.alice)); n != good {
		t.Errorf("%d artifacts are there, and %d were right", n, good)
	}
	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`, "Content-Digest", sha([]byte(`{"agent_id":"b"}`))).problem(400, leafproof.CodeRequestInvalid)
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`, "Content-Digest", sha([]byte(`{"agent_id":"a"}`))).want(201).json(&r)
	w.do(w.alice, "POST", "/v1/runs/"+r.Run+"/results?tool=t", data, "Content-Digest", sha(other)).problem(400, leafproof.CodeRequestInvalid)
	if n := len(w.listed(w.alice)); n != good {
		t.Errorf("a result that is another was published: %d", n)
	}
}

// A part of an upload that is not what it was said to be leaves the upload as it was.
func TestStatedDigestOfUpload(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(9000)
	bad := bytes.Clone(data)
	bad[len(bad)/2] ^= 1
	at := w.do(w.alice, "POST", "/v1/uploads", data[:1000], "Content-Digest", sha(data[:1000]), "Repr-Digest", sha(data)).want(201).header.Get("Location")
	here := func(want string) {
		t.Helper()
		if got := w.do(w.alice, "HEAD", at, nil).want(204).header.Get("Upload-Offset"); got != want {
			t.Fatalf("%s bytes are here, want %s", got, want)
		}
	}
	patch := func(from int, body []byte, headers ...string) *answer {
		return w.do(w.alice, "PATCH", at, body, append([]string{"Upload-Offset", fmt.Sprint(from)}, headers...)...)
	}
	patch(1000, bad[1000:200_000], "Content-Digest", sha(data[1000:200_000])).problem(400, leafproof.CodeRequestInvalid)
	here("1000")
	patch(1000, data[1000:100_000], "Content-Digest", sha(data[1000:100_000])).want(204)
	here("100000")
	patch(100_000, data[100_000:], "Upload-Complete", "?1", "Content-Digest", sha(data)).problem(400, leafproof.CodeRequestInvalid)
	here("100000")
	patch(100_000, nil, "Repr-Digest", sha(bad)).problem(400, leafproof.CodeRequestInvalid)
	patch(100_000, nil, "Upload-Length", "99999").problem(400, leafproof.CodeRequestInvalid)
	patch(100_000, data[100_000:], "Upload-Complete", "?1", "Upload-Length", fmt.Sprint(len(data)-1)).problem(413, leafproof.CodeTooLarge)
	patch(100_000, data[100_000:], "Upload-Complete", "?1", "Upload-Length", fmt.Sprint(len(data)+1)).problem(400, leafproof.CodeRequestInvalid)
	patch(len(data), nil, "Upload-Complete", "?1", "Upload-Length", fmt.Sprint(len(data))).want(201)
	if n := len(w.listed(w.alice)); n != 1 {
		t.Fatalf("%d artifacts are there", n)
	}
	// All of it is held to what was said at the beginning, or at the end.
	at = w.do(w.alice, "POST", "/v1/uploads", data[:1000], "Repr-Digest", sha(data)).want(201).header.Get("Location")
	if p := patch(1000, bad[1000:], "Upload-Complete", "?1").problem(400, leafproof.CodeRequestInvalid); p.At != "sha256" {
		t.Errorf("%+v", p)
	}
	at = w.do(w.alice, "POST", "/v1/uploads", data[:1000]).want(201).header.Get("Location")
	patch(1000, bad[1000:], "Upload-Complete", "?1", "Repr-Digest", sha(data)).problem(400, leafproof.CodeRequestInvalid)
	if a := w.do(w.alice, "POST", "/v1/uploads", bad, "Upload-Complete", "?1", "Content-Digest", sha(data)); a.status != 400 || a.header.Get("Location") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there", n)
	}
}

// A reader that fails once, and then goes on as if nothing were, has failed.
func TestPutReaderFailsOnce(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	for _, at := range []int{0, 10, 5000, 200_000} {
		d, err := w.s.Put(t.Context(), &onceBad{data: lines(9000), at: at}, leafproof.PutOptions{})
		if err == nil {
			t.Errorf("failing at %d: %d bytes were put", at, d.Size())
			d.Discard()
		}
	}
}

type onceBad struct {
	data []byte
	at   int
	n    int
	said bool
}

func (r *onceBad) Read(p []byte) (int, error) {
	if !r.said && r.n >= r.at {
		r.said = true
		return 0, errors.New("a hiccup")
	}
	if r.n == len(r.data) {
		return 0, io.EOF
	}
	end := len(r.data)
	if !r.said {
		end = r.at
	}
	n := copy(p, r.data[r.n:end])
	r.n += n
	return n, nil
}
