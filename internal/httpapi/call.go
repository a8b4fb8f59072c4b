package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"leafproof"
)

// call is one request on its way.
type call struct {
	s       *Server
	r       *http.Request
	w       response
	control *http.ResponseController
	id      string
	begun   time.Time
	route   *route // nil: none was found
	params  map[string]string
	who     leafproof.Caller
	info    leafproof.PrincipalInfo
	body    *body // nil: it was not looked at
	problem leafproof.Code
	held    int64       // bytes in memory that are accounted for
	cut     atomic.Bool // its body ends here
}

type callKey struct{}

// PrincipalOf returns who asks: what the token or the certificate of the request that
// ctx belongs to says. It is not ok where the context is not that of a request which
// was let in.
func PrincipalOf(ctx context.Context) (leafproof.PrincipalInfo, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.who.Principal == "" {
		return leafproof.PrincipalInfo{}, false
	}
	return c.info, true
}

// CallerOf returns who asks, and for what purpose, as the store is asked.
func CallerOf(ctx context.Context) (leafproof.Caller, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.who.Principal == "" {
		return leafproof.Caller{}, false
	}
	return c.who, true
}

// response passes an answer on, and notes what became of it.
type response struct {
	http.ResponseWriter
	c      *call
	status int // 0: nothing was said yet
	bytes  int64
	until  time.Time // when the reader must have taken what was written
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.c.extend(&w.until, w.c.control.SetWriteDeadline)
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Flush sends what was written.
func (w *response) Flush() { _ = w.c.control.Flush() }

// extend moves a deadline on, if that is worth a call.
func (c *call) extend(until *time.Time, set func(time.Time) error) {
	now := time.Now()
	if until.Sub(now) > 2*patience-time.Second {
		return
	}
	*until = now.Add(2 * patience)
	_ = set(*until) // where it cannot be set, as in a test, nothing is slow
}

// requestID is the caller's own name for a request, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("Leafproof-Request-Id")
	ok := len(id) > 0 && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		b := id[i]
		ok = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
	}
	if ok {
		return id
	}
	return strings.ToLower(rand.Text()[:20])
}

// end notes the request. A panic goes on to the server, which ends the connection.
func (c *call) end() {
	took := time.Since(c.begun)
	if c.held > 0 {
		c.s.room.give(c.who.Principal, c.held)
	}
	status, pattern := c.w.status, "none"
	if c.route != nil {
		pattern = c.route.path
	}
	p := recover()
	if c.r.Body != http.NoBody && (c.body == nil || !c.body.done) {
		// The server reads on for a moment, and must not wait for who sends nothing.
		_ = c.control.SetReadDeadline(time.Now().Add(leftoverTime))
	}
	if status == 0 {
		status = http.StatusOK
	}
	if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // it is compared as net/http does
		status = http.StatusInternalServerError
		c.s.o.Log.Error("panic", "request", c.id, "route", pattern, "panic", p)
	}
	in := int64(0)
	if c.body != nil {
		in = c.body.n
	}
	c.s.metrics.note(c, pattern, status, took, in, p != nil)
	if c.s.o.Log.Enabled(c.r.Context(), slog.LevelInfo) {
		c.s.o.Log.LogAttrs(c.r.Context(), slog.LevelInfo, "request",
			slog.String("request", c.id), slog.String("method", printable(c.r.Method)), slog.String("route", pattern),
			slog.Int("status", status), slog.String("code", string(c.problem)), slog.Int64("in", in), slog.Int64("out", c.w.bytes),
			slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("principal", string(c.who.Principal)),
			slog.String("artifact", c.artifact()), slog.Bool("cut", p != nil))
	}
	if p != nil {
		panic(p)
	}
}

// artifact is the id in the path, if it is one.
func (c *call) artifact() string {
	if id := c.params["id"]; leafproof.CheckID(id) == nil {
		return id
	}
	return ""
}

// printable is as much of a caller's word as a log should hold.
func printable(s string) string {
	s = strconv.QuoteToASCII(s[:min(len(s), 32)])
	return s[1 : len(s)-1]
}

// json answers with a JSON value.
func (c *call) json(status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return c.jsonBytes(status, b)
}

func (c *call) jsonBytes(status int, b []byte) error {
	h := c.w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b) // who went away is told nothing
	return nil
}

// encode is a JSON value and a line end.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// fail answers with what went wrong; where an answer has begun, it cuts the
// connection, so that nobody takes what came for all.
func (c *call) fail(err error) {
	if c.w.status != 0 {
		c.problem = leafproof.CodeOf(err)
		c.s.o.Log.Warn("cut", "request", c.id, "route", c.route.path, "err", err.Error())
		panic(http.ErrAbortHandler)
	}
	if c.body != nil && c.body.err != nil {
		err = c.body.err // why the rest failed
	}
	if e, ok := errors.AsType[*notAllowed](err); ok {
		c.w.Header().Set("Allow", e.allow)
	}
	p := c.s.problem(err, c.who)
	c.problem = p.Code
	if p.Status >= 500 {
		c.s.o.Log.Error("failed", "request", c.id, "err", err.Error())
	}
	b, encErr := encode(p)
	if encErr != nil {
		panic(http.ErrAbortHandler)
	}
	h := c.w.Header()
	for _, name := range []string{"ETag", "Content-Range", "Repr-Digest", "Content-Digest", "Content-Disposition", "Accept-Ranges", "Trailer", "Location", "Link"} {
		if name != "Content-Range" || p.Status != http.StatusRequestedRangeNotSatisfiable {
			h.Del(name)
		}
	}
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	_ = c.jsonBytes(p.Status, b)
}

// isTimeout reports a deadline of the connection.
func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
