package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leafproof"
	"leafproof/client"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
	"leafproof/merkle"
)

// prefixed takes what it is given, and fails where that is not how the true bytes
// begin: what is handed on before it is verified.
type prefixed struct {
	t    testing.TB
	data []byte
	n    int
}

func (p *prefixed) Write(b []byte) (int, error) {
	if p.n+len(b) > len(p.data) || !bytes.Equal(b, p.data[p.n:p.n+len(b)]) {
		p.t.Errorf("%d bytes from %d on were handed on, and are wrong", len(b), p.n)
	}
	p.n += len(b)
	return len(b), nil
}

// An answer is one of the true server, altered.
type alter func(rec *httptest.ResponseRecorder) (body []byte)

// A server that alters what it has is refused, each way with its own error, and no
// wrong byte is handed on.
func TestHostileContent(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(200_000)
	a, other := w.put(data, client.PutOptions{}), w.put(noise(200_001)[1:], client.PutOptions{})
	same := func(rec *httptest.ResponseRecorder) []byte { return rec.Body.Bytes() }
	setHeader := func(name, value string) alter {
		return func(rec *httptest.ResponseRecorder) []byte { rec.Header().Set(name, value); return rec.Body.Bytes() }
	}
	flip := func(at int) alter {
		return func(rec *httptest.ResponseRecorder) []byte {
			b := rec.Body.Bytes()
			b[(at+len(b))%len(b)] ^= 1
			return b
		}
	}
	for name, test := range map[string]struct {
		alter alter
		swap  bool // asks for the other artifact
		want  error
		plain error // of who gets no proofs; nil: as want
	}{
		"a byte of the first":     {alter: flip(400), want: client.ErrMismatch},
		"a byte in the middle":    {alter: flip(100_000), want: client.ErrMismatch},
		"a byte of the last":      {alter: flip(-1), want: client.ErrMismatch},
		"another artifact":        {alter: same, swap: true, want: client.ErrMismatch, plain: client.ErrArtifact},
		"another, tagged as this": {alter: setHeader("ETag", `"b3-`+a.Root().String()+`"`), swap: true, want: client.ErrMismatch},
		"another, without a tag":  {alter: func(rec *httptest.ResponseRecorder) []byte { rec.Header().Del("ETag"); return rec.Body.Bytes() }, swap: true, want: client.ErrMismatch},
		"cut short":               {alter: func(rec *httptest.ResponseRecorder) []byte { return rec.Body.Bytes()[:150_000] }, want: client.ErrTruncated},
		"without its last byte":   {alter: func(rec *httptest.ResponseRecorder) []byte { return rec.Body.Bytes()[:rec.Body.Len()-1] }, want: client.ErrTruncated},
		"nothing":                 {alter: func(*httptest.ResponseRecorder) []byte { return nil }, want: client.ErrTruncated, plain: client.ErrSize},
		"a byte more":             {alter: func(rec *httptest.ResponseRecorder) []byte { return append(rec.Body.Bytes(), 0) }, want: client.ErrExtended},
		"twice":                   {alter: func(rec *httptest.ResponseRecorder) []byte { return append(rec.Body.Bytes(), rec.Body.Bytes()...) }, want: client.ErrExtended},
		"packed":                  {alter: setHeader("Content-Encoding", "gzip"), want: client.ErrProtocol},
		"a status of its own":     {alter: func(rec *httptest.ResponseRecorder) []byte { rec.Code = 299; return rec.Body.Bytes() }, want: client.ErrProtocol},
		"elsewhere": {alter: func(rec *httptest.ResponseRecorder) []byte {
			rec.Code = 302
			rec.Header().Set("Location", "http://127.0.0.1:1/")
			return nil
		}, want: client.ErrRedirect},
		"a part, and all is asked": {alter: func(rec *httptest.ResponseRecorder) []byte { rec.Code = 206; return rec.Body.Bytes() }, want: client.ErrProtocol},
		"a page of another kind":   {alter: setHeader("Content-Type", "text/html"), want: client.ErrProtocol, plain: errNone},
		"an endless header":        {alter: setHeader("X", strings.Repeat("x", 1<<20)), want: client.ErrTooLarge},
		"an error without reasons": {alter: func(rec *httptest.ResponseRecorder) []byte { rec.Code = 500; return noise(1 << 20) }, want: client.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if !strings.HasSuffix(r.URL.Path, "/content") {
					next.ServeHTTP(rw, r)
					return
				}
				if test.swap {
					r.URL.Path = strings.Replace(r.URL.Path, a.ID(), other.ID(), 1)
				}
				rec := tapped(next, r)
				if rec.Code >= 400 {
					copyAnswer(rw, rec, rec.Body.Bytes())
					return
				}
				copyAnswer(rw, rec, test.alter(rec))
			})
			for who, token := range map[string]string{"with proofs": w.alice, "without": w.bob} {
				want := test.want
				if token == w.bob && test.plain != nil {
					want = test.plain
				}
				c := w.dial(base, client.Options{Token: token, Policy: w.policy, Retries: -1})
				out := &prefixed{t: t, data: data}
				_, err := c.Get(t.Context(), a.ID(), out)
				if want == errNone && err == nil {
					continue
				}
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", who, err, want)
				}
				if token == w.bob && out.n > 0 {
					t.Errorf("%s: %d bytes were handed on before all were verified", who, out.n)
				}
				arti, err := c.Open(t.Context(), a.ID())
				if err != nil {
					t.Fatal(err)
				}
				rd := &prefixed{t: t, data: data}
				if _, err = io.Copy(rd, struct{ io.Reader }{arti.NewReader(t.Context())}); !errors.Is(err, want) {
					t.Errorf("%s, from byte to byte: %v, want %v", who, err, want)
				}
				arti.Close()
			}
		})
	}
}

var errNone = errors.New("no error")

// A proof of another range than the one that was asked for, or of another size.
func TestHostileRange(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(100_000)
	a := w.put(data, client.PutOptions{})
	for name, test := range map[string]struct {
		alter func(r *http.Request)
		want  error
	}{
		"another":   {func(r *http.Request) { r.Header.Set("Range", "bytes=9000-9099") }, client.ErrRange},
		"more":      {func(r *http.Request) { r.Header.Set("Range", "bytes=5000-9099") }, client.ErrRange},
		"all":       {func(r *http.Request) { r.Header.Del("Range") }, client.ErrRange},
		"as it was": {func(*http.Request) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Header.Get("Range") != "" {
					test.alter(r)
				}
				next.ServeHTTP(rw, r)
			})
			b, err := w.dial(base, client.Options{Token: w.alice, Retries: -1}).Open(t.Context(), a.ID())
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 1000)
			if n, err := b.ReadAt(p, 5000); !errors.Is(err, test.want) || n != 0 && err != nil {
				t.Errorf("%d, %v, want %v", n, err, test.want)
			}
		})
	}
	// The size in a proof is the first thing in its body, behind the ranges.
	base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := tapped(next, r)
		body := rec.Body.Bytes()
		if strings.HasSuffix(r.URL.Path, "/content") {
			body[9]++
		}
		copyAnswer(rw, rec, body)
	})
	_, err := w.dial(base, client.Options{Token: w.alice, Retries: -1}).Get(t.Context(), a.ID(), &prefixed{t: t, data: data})
	if !errors.Is(err, client.ErrSize) {
		t.Errorf("another size: %v", err)
	}
}

// What goes on after a connection broke is held to where it must go on.
func TestGoesOn(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(300_000)
	a := w.put(data, client.PutOptions{})
	for who, token := range map[string]string{"with proofs": w.alice, "without": w.bob} {
		for name, test := range map[string]struct {
			second func(h http.Header)
			want   error
		}{
			"where it was":  {func(http.Header) {}, nil},
			"another place": {func(h http.Header) { h.Set("Content-Range", "bytes 0-99/300000") }, client.ErrRange},
			"of another size": {func(h http.Header) {
				h.Set("Content-Range", strings.Replace(h.Get("Content-Range"), "/300000", "/300001", 1))
			}, client.ErrRange},
			"no place":            {func(h http.Header) { h.Del("Content-Range") }, client.ErrRange},
			"another's, says tag": {func(h http.Header) { h.Set("ETag", `"b3-`+merkle.Sum(nil).String()+`"`) }, client.ErrArtifact},
		} {
			if test.want != nil && token == w.alice {
				continue // of proofs nothing in the header counts
			}
			var n atomic.Int32
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				rec := tapped(next, r)
				if !strings.HasSuffix(r.URL.Path, "/content") || rec.Code >= 400 {
					copyAnswer(rw, rec, rec.Body.Bytes())
					return
				}
				switch n.Add(1) {
				case 1: // breaks off
					copyAnswer(rw, rec, rec.Body.Bytes()[:120_000])
					rw.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				default:
					test.second(rec.Header())
					copyAnswer(rw, rec, rec.Body.Bytes())
				}
			})
			out := &prefixed{t: t, data: data}
			_, err := w.dial(base, client.Options{Token: token, Policy: w.policy}).Get(t.Context(), a.ID(), out)
			if !errors.Is(err, test.want) || err == nil && out.n != len(data) {
				t.Errorf("%s, %s: %d bytes, %v, want %v", who, name, out.n, err, test.want)
			}
			if n.Load() != 2 {
				t.Errorf("%s, %s: asked %d times", who, name, n.Load())
			}
		}
	}
}

// Manifests of other artifacts, by other signers, and altered ones.
func TestHostileManifest(t *testing.T) {
	w, elsewhere := newWorld(t, httpapi.Options{}), newWorld(t, httpapi.Options{})
	a, other := w.put(noise(5000), client.PutOptions{}), w.put(noise(5000), client.PutOptions{})
	foreign := elsewhere.put(noise(5000), client.PutOptions{})
	envelope := func(w *world, id string) []byte {
		b, err := w.s.Envelope(t.Context(), leafproof.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	mine := envelope(w, a.ID())
	payload := func(change func(p map[string]any)) []byte {
		var b bytes.Buffer
		b.Write(mine)
		return reseal(t, b.Bytes(), change)
	}
	for name, test := range map[string]struct {
		id   string
		body []byte
		want error
		// Without a policy: what no signature is needed for is found all the same.
		bare error
	}{
		"of another artifact": {a.ID(), envelope(w, other.ID()), client.ErrArtifact, client.ErrArtifact},
		"by another signer":   {foreign.ID(), envelope(elsewhere, foreign.ID()), client.ErrUntrusted, errNone},
		"another root":        {a.ID(), payload(func(p map[string]any) { p["bytes"].(map[string]any)["root"] = strings.Repeat("0", 64) }), client.ErrMismatch, client.ErrMismatch},
		"another size":        {a.ID(), payload(func(p map[string]any) { p["bytes"].(map[string]any)["size"] = 4999 }), client.ErrMismatch, client.ErrMismatch},
		"another issuer":      {a.ID(), payload(func(p map[string]any) { p["issuer"].(map[string]any)["id"] = "me" }), client.ErrMismatch, client.ErrMismatch},
		"more complete": {a.ID(), payload(func(p map[string]any) {
			p["artifact_ref"].(map[string]any)["completeness"].(map[string]any)["status"] = "complete"
		}), client.ErrMismatch, client.ErrMismatch},
		"no JSON":            {a.ID(), []byte("<html>"), client.ErrProtocol, client.ErrProtocol},
		"half of it":         {a.ID(), mine[:len(mine)/2], client.ErrProtocol, client.ErrProtocol},
		"nothing":            {a.ID(), nil, client.ErrProtocol, client.ErrProtocol},
		"endless":            {a.ID(), bytes.Repeat([]byte(" "), 4<<20), client.ErrTooLarge, client.ErrTooLarge},
		"no signatures":      {a.ID(), []byte(`{"manifest":{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[]},"ssh":""}`), client.ErrProtocol, client.ErrProtocol},
		"nested without end": {a.ID(), []byte(`{"manifest":` + strings.Repeat("[", 500_000)), client.ErrProtocol, client.ErrProtocol},
		"as it is":           {a.ID(), mine, errNone, errNone},
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.HasSuffix(r.URL.Path, "/manifest") {
					rw.Header().Set("Content-Type", "application/json")
					_, _ = rw.Write(test.body)
					return
				}
				next.ServeHTTP(rw, r)
			})
			for _, o := range []struct {
				policy *manifest.Policy
				want   error
			}{{w.policy, test.want}, {nil, test.bare}} {
				_, err := w.dial(base, client.Options{Token: w.alice, Policy: o.policy, Retries: -1}).Open(t.Context(), test.id)
				if o.want == errNone && err == nil {
					continue
				}
				if !errors.Is(err, o.want) {
					t.Errorf("policy %v: %v, want %v", o.policy != nil, err, o.want)
				}
			}
		})
	}
	_, err := w.dial(w.server.URL, client.Options{Token: w.alice, Policy: elsewhere.policy}).Open(t.Context(), a.ID())
	if !errors.Is(err, client.ErrUntrusted) || code(err) != client.CodeUntrusted {
		t.Errorf("by a policy that knows others: %v", err)
	}
	base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := tapped(next, r)
		copyAnswer(rw, rec, bytes.Replace(rec.Body.Bytes(), []byte(`"tenant_id":"acme"`), []byte(`"tenant_id":"evil"`), 1))
	})
	_, err = w.dial(base, client.Options{Token: w.alice}).Stat(t.Context(), a.ID())
	if e, ok := errors.AsType[*client.Error](err); !ok || !errors.Is(err, client.ErrAltered) || e.At != "/scope/tenant_id" {
		t.Errorf("an altered reference: %v", err)
	}
}

// A put is held to what was sent: the bytes, and what was stated of them.
func TestHostilePut(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(50_000)
	for name, test := range map[string]struct {
		alter func(r *http.Request)
		want  error
	}{
		"another body": {func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(noise(49_999))); r.ContentLength = 49_999 }, client.ErrMismatch},
		"a byte less": {func(r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(b[1:]))
			r.ContentLength--
		}, client.ErrMismatch},
		"other facts":  {func(r *http.Request) { r.Header.Set("Leafproof-Manifest", `{"artifact_ref":{"tool_call_id":"b"}}`) }, client.ErrAltered},
		"no facts":     {func(r *http.Request) { r.Header.Del("Leafproof-Manifest") }, client.ErrAltered},
		"another type": {func(r *http.Request) { r.Header.Set("Content-Type", "text/html") }, errNone}, // it was not stated
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == "PUT" {
					test.alter(r)
				}
				next.ServeHTTP(rw, r)
			})
			var o client.PutOptions
			o.Facts.ArtifactRef.ToolCallID = new("a")
			_, err := w.dial(base, client.Options{Token: w.alice, Policy: w.policy}).Put(t.Context(), bytes.NewReader(data), o)
			if test.want == errNone && err == nil {
				return
			}
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if test.want == client.ErrAltered {
				if e, _ := errors.AsType[*client.Error](err); e.At != "/artifact_ref/tool_call_id" {
					t.Errorf("it names %q", e.At)
				}
			}
		})
	}
}

// An index that was asked for is there, or the put says that it is not.
func TestHostilePutIndex(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	for name, test := range map[string]struct {
		index []string
		asked string // what the server hears
		want  error  // nil: it goes well
	}{
		"built":         {[]string{"/n", "$.status"}, "index=/n&index=$.status", nil},
		"none is built": {[]string{"/n"}, "", client.ErrAltered},
		"one is built":  {[]string{"/n", "/status"}, "index=/n", client.ErrAltered},
		"another":       {[]string{"/n"}, "index=/status", client.ErrAltered},
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == "PUT" || r.Method == "POST" {
					r.URL.RawQuery = "records=ndjson&" + test.asked
				}
				next.ServeHTTP(rw, r)
			})
			c := w.dial(base, client.Options{Token: w.alice, Policy: w.policy})
			o := client.PutOptions{Index: test.index, Records: "ndjson"}
			_, err := c.Put(t.Context(), bytes.NewReader(lines(24)), o)
			if !errors.Is(err, test.want) {
				t.Errorf("put: %v, want %v", err, test.want)
			}
			_, err = c.Upload(t.Context(), bytes.NewReader(lines(24)), client.UploadOptions{PutOptions: o})
			if !errors.Is(err, test.want) {
				t.Errorf("upload: %v, want %v", err, test.want)
			}
		})
	}
	if _, err := w.client(w.alice).Put(t.Context(), strings.NewReader("{}"), client.PutOptions{Index: []string{"$..a"}}); err == nil {
		t.Errorf("a path that is none: %v", err)
	}
}

// Rows and answers are held to what is proven.
func TestHostileQuery(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	a := w.put(lines(24), client.PutOptions{Records: "ndjson"})
	other := w.put(lines(24), client.PutOptions{Records: "ndjson"})
	if _, err := w.s.AddIndex(t.Context(), leafproof.Owner, a.ID(), "/status", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(with), 1) }
	}
	for name, test := range map[string]struct {
		alter  func([]byte) []byte
		want   error
		verify bool // only rows that are verified show it
	}{
		"a value":               {replace(`"status":"open"`, `"status":"opEn"`), client.ErrRow, true},
		"another record":        {replace(`{"record":3,`, `{"record":4,`), client.ErrRow, true},
		"another place":         {replace(`"span":[0,`, `"span":[1,`), client.ErrRow, true},
		"a record there is not": {replace(`{"record":3,`, `{"record":3000,`), client.ErrRow, false},
		"a record twice":        {replace(`{"record":3,`, `{"record":0,`), client.ErrRow, false},
		"a row less":            {func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] }, client.ErrRow, false},
		"cut":                   {func(b []byte) []byte { return b[:len(b)/2] }, client.ErrTruncated, false},
		"no answer":             {func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte(`{"answer"`))] }, client.ErrTruncated, false},
		"more behind it":        {func(b []byte) []byte { return append(b, "{}\n"...) }, client.ErrExtended, false},
		"of another artifact":   {replace(a.ID(), other.ID()), client.ErrArtifact, false},
		"more complete":         {replace(`"capture_completeness":{"status":"unknown"`, `"capture_completeness":{"status":"complete"`), client.ErrAltered, false},
		"a line without end":    {func([]byte) []byte { return bytes.Repeat([]byte("x"), 1<<20) }, client.ErrTruncated, false},
		"no rows at all":        {func(b []byte) []byte { return append([]byte("null\n"), b...) }, client.ErrRow, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				rec := tapped(next, r)
				body := rec.Body.Bytes()
				if strings.HasSuffix(r.URL.Path, "/query") {
					body = test.alter(body)
				}
				copyAnswer(rw, rec, body)
			})
			b, err := w.dial(base, client.Options{Token: w.alice, Policy: w.policy, Retries: -1}).Open(t.Context(), a.ID())
			if err != nil {
				t.Fatal(err)
			}
			for _, verify := range []bool{true, false} {
				_, err := b.Query(t.Context(), client.Question{Where: `@.status == "open"`, VerifyRows: verify}, func(r client.Row) error {
					if verify && !bytes.Contains(r.Bytes, []byte(`"status":"open"`)) {
						t.Errorf("a row that is wrong: %s", r.Bytes)
					}
					return nil
				})
				if (verify || !test.verify) && !errors.Is(err, test.want) {
					t.Errorf("verified %v: %v, want %v", verify, err, test.want)
				}
			}
		})
	}
	// Proofs of other questions, and of other artifacts.
	proven := func(alter func(body []byte) []byte, at string) error {
		base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.HasSuffix(r.URL.Path, "/prove") {
				b, _ := io.ReadAll(r.Body)
				b = alter(b)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
				if at != "" {
					r.URL.Path = at
				}
			}
			next.ServeHTTP(rw, r)
		})
		b, err := w.dial(base, client.Options{Token: w.alice, Policy: w.policy, Retries: -1}).Open(t.Context(), a.ID())
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.QueryProven(t.Context(), client.Question{Where: `@.status == "open"`}, func(client.Row) error {
			t.Error("a row was handed on")
			return nil
		}, nil)
		if at != "" {
			if err := b.Read(t.Context(), client.Part{Records: &[2]int64{1, 2}}, &prefixed{t: t}); !errors.Is(err, client.ErrArtifact) {
				t.Errorf("records of another artifact: %v", err)
			}
		}
		return err
	}
	if err := proven(replace("open", "shut"), ""); !errors.Is(err, client.ErrRange) {
		t.Errorf("of another question: %v", err)
	}
	if err := proven(func([]byte) []byte { return []byte(`{"records":[0,1]}`) }, ""); err == nil {
		t.Error("a proof of records was taken for one of an answer")
	}
	if err := proven(func([]byte) []byte { return []byte(`{"records":[1,2]}`) }, "/v1/artifacts/"+other.ID()+"/prove"); !errors.Is(err, client.ErrArtifact) {
		t.Errorf("of another artifact: %v", err)
	}
}

// In another order than that of the records none comes twice.
func TestHostileOrder(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	a := w.put(lines(9), client.PutOptions{Records: "ndjson"})
	for _, twice := range []bool{false, true} {
		base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			rec := tapped(next, r)
			body := rec.Body.Bytes()
			if first, rest, _ := bytes.Cut(body, []byte("\n")); twice && strings.HasSuffix(r.URL.Path, "/query") {
				_, rest, _ = bytes.Cut(rest, []byte("\n"))
				body = slices.Concat(first, []byte("\n"), first, []byte("\n"), rest)
			}
			copyAnswer(rw, rec, body)
		})
		b, err := w.dial(base, client.Options{Token: w.alice, Retries: -1}).Open(t.Context(), a.ID())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		_, err = b.Query(t.Context(), client.Question{OrderBy: []string{"/n:desc"}, VerifyRows: true}, func(client.Row) error { n++; return nil })
		if twice != errors.Is(err, client.ErrRow) || !twice && (err != nil || n != 9) {
			t.Errorf("twice %v: %d rows, %v", twice, n, err)
		}
	}
}

// A server that neither answers nor reads is not waited for without end.
func TestStall(t *testing.T) {
	id := "art_" + strings.Repeat("a", 32)
	for name, said := range map[string]string{"nothing": "", "half a header": "HTTP/1.1 200 OK\r\nContent-Ty", "half a body": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.WriteString(conn, said)
					<-done
					conn.Close()
				}()
			}
		}()
		c := newClient(t, "http://"+l.Addr().String(), client.Options{Retries: -1, Stall: 50 * time.Millisecond})
		if _, err := c.Open(t.Context(), id); code(err) != client.CodeUnreachable {
			t.Errorf("who says %s: %v", name, err)
		}
		if _, err := c.Put(t.Context(), io.LimitReader(zeros{}, 1<<30), client.PutOptions{}); err == nil {
			t.Errorf("who says %s takes all", name)
		}
		close(done)
		l.Close()
	}
	// Who is slow and goes on is waited for.
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		for _, piece := range []string{`{"name":`, `"x",`, `"seq":1,`, `"artifact_id":"`, id, `"}`} {
			_, _ = io.WriteString(rw, piece)
			rw.(http.Flusher).Flush()
			time.Sleep(40 * time.Millisecond)
		}
	}))
	defer s.Close()
	if v, err := newClient(t, s.URL, client.Options{Retries: -1, Stall: 2 * time.Second}).Name(t.Context(), "x", 0); err != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

func newClient(t *testing.T, address string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// zeros have no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A token goes nowhere but to the server, and no redirect is followed.
func TestRedirect(t *testing.T) {
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL+r.URL.Path, status) }))
		c, err := client.New(s.URL, client.Options{Token: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		id := "art_" + strings.Repeat("a", 32)
		_, err = c.Open(t.Context(), id)
		if !errors.Is(err, client.ErrRedirect) {
			t.Errorf("%d: %v", status, err)
		}
		if _, err = c.Put(t.Context(), strings.NewReader("x"), client.PutOptions{}); !errors.Is(err, client.ErrRedirect) {
			t.Errorf("%d: a put: %v", status, err)
		}
		s.Close()
	}
	if stolen.Load() > 0 {
		t.Error("it was followed")
	}
}

// What may succeed later is tried again, and nothing else, and not for ever.
func TestRetries(t *testing.T) {
	problem := func(code, action string, status int, retryable bool) string {
		return fmt.Sprintf(`{"type":"x","title":"x","status":%d,"detail":"text \u001b[31m","code":%q,"retryable":%v,"action":%q}`, status, code, retryable, action)
	}
	for name, test := range map[string]struct {
		status int
		body   string
		after  string
		asks   int32
		code   string
	}{
		"to wait":          {429, problem("budget_exhausted", "wait", 429, true), "", 3, "budget_exhausted"},
		"to wait for ever": {503, problem("internal", "wait", 503, true), "99999999999", 1, "internal"},
		"to mend":          {409, problem("name_conflict", "fix_call", 409, true), "", 1, "name_conflict"},
		"for good":         {404, problem("ref_not_found", "fix_call", 404, false), "", 1, "ref_not_found"},
		"a proxy's":        {502, "<html>", "", 3, client.CodeUnreachable},
		"no code":          {500, problem("DROP TABLE", "wait", 500, true), "", 1, client.CodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				w.Header().Set("Content-Type", "application/problem+json")
				if test.after != "" {
					w.Header().Set("Retry-After", test.after)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer s.Close()
			c, err := client.New(s.URL, client.Options{Retries: 2})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := contextFor(t, test.after != "")
			defer cancel()
			_, err = c.Name(ctx, "x", 0)
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Code != test.code || e.Status != test.status || n.Load() != test.asks {
				t.Errorf("asked %d times: %v", n.Load(), err)
			}
			if strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("it would paint the terminal: %q", err)
			}
		})
	}
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	c, err := client.New(s.URL, client.Options{Retries: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Name(t.Context(), "x", 0); code(err) != client.CodeUnreachable || n.Load() < 3 {
		t.Errorf("asked %d times: %v", n.Load(), err)
	}
	n.Store(0)
	if _, err := c.SetName(t.Context(), "x", "art_"+strings.Repeat("a", 32), 1); code(err) != client.CodeUnreachable || n.Load() != 1 {
		t.Errorf("what changes something was asked %d times: %v", n.Load(), err)
	}
}

// The memory of a client does not grow with what a server sends.
func TestEndlessAnswers(t *testing.T) {
	sent := map[string]*atomic.Int64{}
	for _, path := range []string{"json", "slice", "bundle", "rows"} {
		sent[path] = new(atomic.Int64)
	}
	w := newWorld(t, httpapi.Options{})
	a := w.put(lines(10), client.PutOptions{Records: "ndjson"})
	endless := func(rw http.ResponseWriter, media string, what string, n *atomic.Int64) {
		rw.Header().Set("Content-Type", media)
		b := bytes.Repeat([]byte(what), 64<<10/len(what))
		for n.Load() < 600<<20 {
			if _, err := rw.Write(b); err != nil {
				return
			}
			n.Add(int64(len(b)))
		}
	}
	base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/content"):
			endless(rw, "application/vnd.leafproof.slice", "lps1", sent["slice"])
		case strings.HasSuffix(r.URL.Path, "/prove"):
			endless(rw, "application/vnd.leafproof.bundle", "leafproof bundle v1 ", sent["bundle"])
		case strings.HasSuffix(r.URL.Path, "/query"):
			endless(rw, "application/x-ndjson", `{"record":1,"span":[0,1],"value":1}`+"\n", sent["rows"])
		case strings.HasPrefix(r.URL.Path, "/v1/names"):
			endless(rw, "application/json", " ", sent["json"])
		default:
			next.ServeHTTP(rw, r)
		}
	})
	c := w.dial(base, client.Options{Token: w.alice, Retries: -1})
	b, err := c.Open(t.Context(), a.ID())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Copy(t.Context(), io.Discard, 0, 10)
	if err == nil {
		t.Error("a proof without end was taken")
	}
	if err := b.Read(t.Context(), client.Part{Records: &[2]int64{0, 1}}, io.Discard); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a bundle without end: %v", err)
	}
	if _, err := b.Query(t.Context(), client.Question{}, nil); !errors.Is(err, client.ErrRow) {
		t.Errorf("rows without end: %v", err)
	}
	if _, err := c.Name(t.Context(), "x", 0); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("JSON without end: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if n := sent[name].Load(); n > 40<<20 {
			t.Errorf("%s: %s bytes were taken", name, strconv.FormatInt(n, 10))
		}
	}
}
