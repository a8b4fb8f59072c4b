package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"leafproof/manifest"
)

// Options say how a [Client] asks. The zero value is that of somebody without a token
// and without a policy.
type Options struct {
	// Token is the bearer token of a principal. Over plain HTTP it is sent to the
	// loopback alone, unless Plaintext is set.
	Token string
	// Purpose says why it asks; the server's audit log has it, and a grant may demand
	// it.
	Purpose string
	// TLS is how https is spoken; nil: as usual. A client certificate stands in it.
	TLS *tls.Config
	// Plaintext allows a token over plain HTTP to other machines.
	Plaintext bool
	// Policy says whose word counts. Where it is set, a manifest for which nobody whom
	// it admits vouches is [ErrUntrusted]. Who holds one key and nothing else gives
	// [manifest.AdHoc]. With nil no signature can be judged, and the id alone pins the
	// facts and the bytes.
	Policy *manifest.Policy
	// Retries is how often a request is made again that may succeed then, without
	// anything new having come; 0 is 3, and below 0 never.
	Retries int
	// TempDir is where content is kept that cannot be verified before its end; "" is
	// the system's.
	TempDir string
	// Stall is how long a server may neither say nor take anything before the connection
	// is ended; 0 is ten minutes, and below 0 for ever.
	Stall time.Duration
	// Now is the clock that keys and expiry are judged by; nil: time.Now.
	Now func() time.Time
}

// A Client asks one server. It is safe for concurrent use.
type Client struct {
	o    Options
	base string
	http *http.Client
}

// What is taken of an answer at most.
const (
	maxHeader = 64 << 10
	maxJSON   = 16 << 20 // of an answer that is one JSON value
)

// New returns a client of the server at an address: http://host:port,
// https://host:port, or unix:/path of a socket. Nothing is asked yet.
func New(address string, o Options) (*Client, error) {
	if strings.ContainsAny(o.Token+o.Purpose, "\r\n\x00") {
		return nil, errors.New("client: a token or purpose with a line end in it")
	}
	if o.Retries == 0 {
		o.Retries = 3
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil || o.Stall < 0 {
			return conn, err
		}
		return stalling{conn, o.Stall}, nil
	}
	tr := &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        o.TLS.Clone(), // of nil, nil
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		ReadBufferSize:         64 << 10,
		WriteBufferSize:        64 << 10,
		DisableCompression:     true, // what is unpacked has no bound that was sent
	}
	c := &Client{o: o, http: &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path+u.Opaque != "" && u.RawQuery == "":
		path := u.Path + u.Opaque
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
		c.base = "http://localhost"
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.User == nil:
		if u.Scheme == "http" && o.Token != "" && !o.Plaintext && !isLoopback(u.Hostname()) {
			return nil, fmt.Errorf("client: a token would pass in clear text to %s: use https, or set Plaintext", u.Hostname())
		}
		c.base = u.Scheme + "://" + u.Host
	default:
		return nil, fmt.Errorf("client: %q is no address: http://HOST:PORT, https://HOST:PORT or unix:/PATH", address)
	}
	return c, nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is something that is asked.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	json         any // the body
	body         io.Reader
	length       int64 // of body; -1: not known
	once         bool  // it must not be made twice after the connection broke
	want         []int // the statuses that are answers; 200 if empty
}

// do asks, and asks again where that may help. The body of the response is the
// caller's to close.
func (c *Client) do(ctx context.Context, q *request) (*http.Response, error) {
	var body []byte
	if q.json != nil {
		var err error
		if body, err = json.Marshal(q.json); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	for try := 0; ; try++ {
		resp, err := c.ask(ctx, q, body)
		if err == nil {
			return resp, nil
		}
		if q.body != nil || try >= c.o.Retries || !again(err) || q.once && answered(err) == 0 {
			return nil, err
		}
		if pause(ctx, try, err) != nil {
			return nil, err
		}
	}
}

// again reports whether the same request may succeed without a change.
func again(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retryable && e.Action == "wait"
}

// answered is the status of the answer that an error was; 0 where there was none.
func answered(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// pause waits before another try: longer each time, as the server asks, and never
// longer than 10 seconds.
func pause(ctx context.Context, try int, err error) error {
	wait := min(2*time.Second, 50*time.Millisecond<<min(try, 10))
	wait = wait/2 + rand.N(wait)
	if e, ok := errors.AsType[*Error](err); ok && e.after > 0 {
		wait = max(wait, min(10, time.Duration(e.after))*time.Second)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// ask makes a request once.
func (c *Client) ask(ctx context.Context, q *request, text []byte) (*http.Response, error) {
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	body := q.body
	if text != nil {
		body = strings.NewReader(string(text))
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	if q.body != nil {
		r.ContentLength = q.length
		r.GetBody = nil
		if q.length == 0 {
			r.Body = http.NoBody
		}
	}
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	if c.o.Purpose != "" {
		r.Header.Set("Leafproof-Purpose", c.o.Purpose)
	}
	r.Header.Set("User-Agent", "leafproof-client")
	resp, err := c.http.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address, which stands in the caller's own hands
		}
		return nil, unreachable(ctx, err)
	}
	for _, status := range q.want {
		if resp.StatusCode == status {
			return resp, nil
		}
	}
	if len(q.want) == 0 && resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemOf(resp)
}

// text asks for one JSON value, and returns its bytes.
func (c *Client) text(ctx context.Context, q *request) ([]byte, error) {
	return c.textOf(ctx, q, maxJSON)
}

func (c *Client) textOf(ctx context.Context, q *request, most int64) (b []byte, err error) {
	for try := 0; ; try++ {
		resp, err := c.do(ctx, q)
		if err != nil {
			return nil, err
		}
		b, err = readJSON(ctx, resp, most)
		if err == nil || q.once || try >= c.o.Retries || !again(err) || pause(ctx, try, err) != nil {
			return b, err
		}
	}
}

// readJSON reads the body of a response that is one JSON value.
func readJSON(ctx context.Context, resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if err := isMedia(resp, "application/json"); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(ErrTruncated, "", "the connection ended within a value")
	case err != nil:
		return nil, unreachable(ctx, err)
	case int64(len(b)) > most:
		return nil, refuse(ErrTooLarge, "", "a value of more than %d bytes", most)
	}
	return b, nil
}

// isMedia refuses an answer of another type than the one that was asked for.
func isMedia(resp *http.Response, want string) error {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != want {
		return refuse(ErrProtocol, "Content-Type", "%s, and %s was asked for", manifest.Printable(media), want)
	}
	if resp.Header.Get("Content-Encoding") != "" {
		return refuse(ErrProtocol, "Content-Encoding", "nothing was asked for in another encoding")
	}
	return nil
}

// value asks for a JSON value and decodes it.
func (c *Client) value(ctx context.Context, q *request, into any) error {
	b, err := c.text(ctx, q)
	if err != nil {
		return err
	}
	return decode(b, into)
}

func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return refuse(ErrProtocol, "", "%s", manifest.Printable(err.Error()))
	}
	return nil
}

// nothing asks for something that is answered with nothing.
func (c *Client) nothing(ctx context.Context, q *request) error {
	q.want = []int{http.StatusNoContent}
	resp, err := c.do(ctx, q)
	if err == nil {
		resp.Body.Close()
	}
	return err
}
