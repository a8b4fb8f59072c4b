package httpapi_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
)

// running is a server that listens.
type running struct {
	client *http.Client
	url    string
	stop   context.CancelFunc
	ended  chan error
}

// listen serves a world over a listener until the test ends.
func (w *world) listen(l net.Listener, config *tls.Config, drain time.Duration, client *http.Client, url string) *running {
	ctx, stop := context.WithCancel(w.t.Context())
	r := &running{client: client, url: url, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- w.h.Serve(ctx, drain, httpapi.Door{Listener: l, TLS: config}) }()
	w.t.Cleanup(stop)
	return r
}

func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

func (w *world) socket(drain time.Duration) *running {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "s")
	l, err := httpapi.ListenSocket(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.listen(l, nil, drain, overSocket(path), "http://any")
}

func (r *running) ask(token, method, path string, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequest(method, r.url+path, body)
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// What is under way when the server is told to end is answered, and what was
// acknowledged is there.
func TestDrain(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	r := w.socket(10 * time.Second)
	in, out := io.Pipe()
	type result struct {
		status int
		body   []byte
		err    error
	}
	put := make(chan result, 1)
	go func() {
		status, body, err := r.ask(w.alice, "PUT", "/v1/artifacts", in)
		put <- result{status, body, err}
	}()
	out.Write([]byte("first "))
	w.underWay(1)
	r.stop()
	for begin := time.Now(); ; { // until no connection is taken any more
		if _, _, err := (&running{client: overSocketOf(r), url: r.url}).ask("", "GET", "/livez", nil); err != nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal("it goes on taking connections")
		}
	}
	out.Write([]byte("and last"))
	out.Close()
	got := <-put
	if got.err != nil || got.status != 201 {
		t.Fatalf("%d %s %v", got.status, got.body, got.err)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := len(w.listed(w.alice)); n != 1 {
		t.Errorf("%d artifacts are there", n)
	}
}

// underWay waits until n requests are.
func (w *world) underWay(n int) {
	w.t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		m := w.do(w.owner, "GET", "/metrics", nil).want(200)
		if bytes.Contains(m.body, fmt.Appendf(nil, "leafproof_http_requests_under_way %d\n", n)) {
			return
		}
		if time.Since(begin) > 30*time.Second {
			w.t.Fatalf("there are never %d requests under way", n)
		}
	}
}

func overSocketOf(r *running) *http.Client {
	return &http.Client{Transport: r.client.Transport.(*http.Transport).Clone()}
}

// Who does not end is cut when the time is over, and nothing of it is there.
func TestDrainEnds(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	r := w.socket(200 * time.Millisecond)
	in, out := io.Pipe()
	put := make(chan error, 1)
	go func() {
		status, _, err := r.ask(w.alice, "PUT", "/v1/artifacts", in)
		if status == 201 {
			err = nil
		} else if err == nil {
			err = errors.New("refused")
		}
		put <- err
	}()
	out.Write([]byte("first "))
	w.underWay(1)
	begin := time.Now()
	r.stop()
	if err := <-r.ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	out.CloseWithError(io.ErrClosedPipe)
	if err := <-put; err == nil {
		t.Error("half a put was acknowledged")
	}
	if n := len(w.listed(w.alice)); n != 0 {
		t.Errorf("%d artifacts are there", n)
	}
}

func TestListenSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := httpapi.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := httpapi.ListenSocket(path); err == nil {
		t.Error("a socket that answers was replaced")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	again, err := httpapi.ListenSocket(path)
	if err != nil {
		t.Fatalf("a socket that a dead process left: %v", err)
	}
	again.Close()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpapi.ListenSocket(file); err == nil {
		t.Error("a file was replaced")
	}
}

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key, cert}
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(2), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A client certificate that the server's authorities signed says who asks.
func TestClientCertificates(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	ref := w.put(w.alice, lines(3), "")
	ca, other := newAuthority(t), newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	r := w.listen(l, &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2", "http/1.1"},
	}, time.Second, nil, "https://"+l.Addr().String())
	named := func(cn string, uris ...string) *x509.Certificate {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: cn}}
		for _, u := range uris {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, parsed)
		}
		return c
	}
	for name, test := range map[string]struct {
		by     *authority
		cert   *x509.Certificate
		token  string
		status int // 0: no connection
	}{
		"none":                     {nil, nil, "", 401},
		"none, with a token":       {nil, nil, w.alice, 200},
		"alice's":                  {ca, named("alice"), "", 200},
		"alice's by URI":           {ca, named("somebody", "urn:x-leafproof:principal:alice"), "", 200},
		"bob's":                    {ca, named("bob"), "", 404},
		"bob's by URI":             {ca, named("alice", "urn:x-leafproof:principal:bob"), "", 404},
		"bob's, and alice's token": {ca, named("bob"), w.alice, 200},
		"nobody's":                 {ca, named("carol"), "", 401},
		"the owner's":              {ca, named("owner"), "", 401},
		"no name":                  {ca, named(""), "", 401},
		"another authority's":      {other, named("alice"), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{RootCAs: pool}
			if test.by != nil {
				config.Certificates = []tls.Certificate{test.by.sign(t, test.cert)}
			}
			tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer tr.CloseIdleConnections()
			c := &running{client: &http.Client{Transport: tr}, url: r.url}
			status, body, err := c.ask(test.token, "GET", "/v1/artifacts/"+ref.ArtifactID, nil)
			if status != test.status || (err != nil) != (test.status == 0) {
				t.Errorf("%d %s %v, want %d", status, body, err, test.status)
			}
		})
	}
}

// A body over HTTP/2 is read with the same bounds, and a stream is cut there too.
func TestHTTP2(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ca.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	r := w.listen(l, &tls.Config{Certificates: []tls.Certificate{server}, NextProtos: []string{"h2", "http/1.1"}},
		time.Second, &http.Client{Transport: tr}, "https://"+l.Addr().String())
	defer tr.CloseIdleConnections()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	status, _, err := r.ask(w.alice, "PUT", "/v1/artifacts", bytes.NewReader(data))
	if err != nil || status != 201 {
		t.Fatal(status, err)
	}
	id := w.listed(w.alice)[0]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if status, got, err := r.ask(w.alice, "GET", "/v1/artifacts/"+id+"/content", nil); err != nil || status != 200 || !bytes.Equal(got, data) {
				t.Errorf("%d, %d bytes, %v", status, len(got), err)
			}
		})
	}
	wg.Wait()
	if _, err := w.s.Resolve(t.Context(), leafproof.Owner, id); err != nil {
		t.Error(err)
	}
}
