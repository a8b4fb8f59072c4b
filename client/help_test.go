package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leafproof"
	"leafproof/client"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
)

// world is a store behind a server, alice who may do all in tenant acme, and bob who
// may look at and read it, and have no proofs.
type world struct {
	t          testing.TB
	dir        string
	s          *leafproof.Store
	h          http.Handler
	server     *httptest.Server
	policy     *manifest.Policy
	alice, bob string
}

func newWorld(t testing.TB, o httpapi.Options) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	text, err := os.ReadFile(filepath.Join(dir, "trust.policy"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, s: s}
	if w.policy, err = manifest.ParsePolicy(text); err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.DiscardHandler)
	h := httpapi.New(s, o)
	w.h = h
	for name, p := range map[string]struct {
		token   *string
		actions []leafproof.Action
	}{
		"alice": {&w.alice, []leafproof.Action{
			leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery, leafproof.ActionCount, leafproof.ActionProve,
			leafproof.ActionDerive, leafproof.ActionGrant, leafproof.ActionDelete,
		}},
		"bob": {&w.bob, []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead}},
	} {
		if *p.token, err = s.AddPrincipal(t.Context(), leafproof.Owner, leafproof.Principal(name), "acme", nil); err != nil {
			t.Fatal(err)
		}
		for _, a := range p.actions {
			if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: leafproof.Principal(name), Action: a, Pattern: "acme"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.server = httptest.NewUnstartedServer(h)
	w.server.Config = h.HTTP()
	w.server.Start()
	t.Cleanup(w.server.Close)
	return w
}

// client is one for who has a token; without retries, so that a refusal is the first.
func (w *world) client(token string) *client.Client {
	return w.dial(w.server.URL, client.Options{Token: token, Policy: w.policy, Retries: -1})
}

func (w *world) dial(address string, o client.Options) *client.Client {
	w.t.Helper()
	c, err := client.New(address, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// through is a server between, which hands on to the true one what it does not answer
// itself.
func (w *world) through(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h(rw, r, w.h) }))
	w.t.Cleanup(s.Close)
	return s.URL
}

// put stores bytes as alice.
func (w *world) put(data []byte, o client.PutOptions) *client.Artifact {
	w.t.Helper()
	a, err := w.client(w.alice).Put(w.t.Context(), bytes.NewReader(data), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { a.Close() })
	return a
}

// lines are n records.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d,\"status\":%q}\n", i, []string{"open", "shut", "new"}[i%3])
	}
	return b.Bytes()
}

// noise is n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// tapped has what a handler answers.
func tapped(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// copyAnswer sends an answer on with another body.
func copyAnswer(w http.ResponseWriter, rec *httptest.ResponseRecorder, body []byte) {
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

// tlsServer serves the world over TLS, and returns what its clients need.
func (w *world) tlsServer() (string, *tls.Config) {
	s := httptest.NewTLSServer(w.h)
	w.t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.URL, &tls.Config{RootCAs: pool}
}

// socket serves the world on a unix socket.
func (w *world) socket() string {
	dir, err := os.MkdirTemp("", "lp") // the path of a socket is short
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "s")
	l, err := net.Listen("unix", name)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: w.h}
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(func() { s.Close() })
	return "unix:" + name
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// slowly reads a little at a time, and counts.
type slowly struct {
	r io.Reader
	n int64
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 1000)])
	s.n += int64(n)
	return n, err
}

// contextFor is one that ends soon, where an answer asks to wait long.
func contextFor(t testing.TB, short bool) (context.Context, context.CancelFunc) {
	if short {
		return context.WithTimeout(t.Context(), 200*time.Millisecond)
	}
	return context.WithCancel(t.Context())
}

// reseal alters a signed manifest and leaves its signatures as they are.
func reseal(t testing.TB, signed []byte, change func(predicate map[string]any)) []byte {
	t.Helper()
	var o struct {
		Manifest manifest.Envelope `json:"manifest"`
		SSH      string            `json:"ssh"`
	}
	if err := json.Unmarshal(signed, &o); err != nil {
		t.Fatal(err)
	}
	payload, err := o.Manifest.PayloadBytes()
	if err != nil {
		t.Fatal(err)
	}
	var st map[string]any
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&st); err != nil {
		t.Fatal(err)
	}
	change(st["predicate"].(map[string]any))
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	o.Manifest.Payload = base64.StdEncoding.EncodeToString(b)
	return mustJSON(t, struct {
		Manifest json.RawMessage `json:"manifest"`
		SSH      string          `json:"ssh"`
	}{o.Manifest.Bytes(), o.SSH})
}
