// Package httpapi is the store over HTTP: JSON, raw bytes with ranges, and proofs.
//
// Every request but those for health and the description needs a bearer token or a
// client certificate; the principal behind it is who the store is asked as, and its
// tenant is where it puts. The package decides nothing about disclosure: it goes
// through the root package's door, and a stream whose leave ends is cut.
//
// What a request may cost is bounded before it is read: its header, its body, how
// long either takes, how many are under way. Requests of other sites' pages, and for
// names that the server does not have, are refused. Nothing is ever fetched for a
// caller.
package httpapi

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"leafproof"
)

// Options say how a [Server] answers. The zero value is sensible.
type Options struct {
	// Hosts are the names and addresses, without a port, under which the server is
	// asked, beside those of the loopback. Others are refused, so that no name which
	// leads here lends a browser page its origin.
	Hosts []string
	// Origins are the origins, as in https://app.example, whose pages may ask.
	Origins []string
	// OwnerToken, where not "", is a bearer token that lets its holder ask as the
	// owner of the store.
	OwnerToken string
	// OpenMetrics lets everybody read /metrics. Otherwise only the owner may: the
	// counts tell of the work of all tenants.
	OpenMetrics bool
	// Log is where each request is noted, without tokens, contents and queries; nil:
	// nowhere.
	Log *slog.Logger
	// MCP, where set, answers at /mcp; [PrincipalOf] says who asks.
	MCP http.Handler
	// Runs is the folder in which the runs of harnesses are kept; it is made. "" keeps
	// them in memory: they end with the server.
	Runs string
	Limits
}

// Limits bound what requests may cost; 0 is the default.
type Limits struct {
	Requests     int           // under way at once; 256
	PerPrincipal int           // of them of one principal; half of Requests
	BodyBytes    int64         // of an artifact that is put; 64 GiB
	QueryTime    time.Duration // of one query; 30 s
	Memory       int64         // bytes of bodies and answers that are held in memory, half of them for one principal; 256 MiB
}

// What requests may cost whatever the options say.
const (
	maxJSON       = 1 << 20          // bytes of a JSON body
	maxMCP        = 16 << 20         // bytes of a request of the Model Context Protocol
	maxArguments  = 16 << 20         // bytes of a tool call's arguments
	maxHeader     = 64 << 10         // bytes of a request's header
	maxPath       = 1 << 10          // bytes of a path
	maxRanges     = 16               // in a Range header
	maxInline     = 1 << 20          // bytes of an artifact that stand in a JSON answer
	headerTime    = 10 * time.Second // to send a header
	idleTime      = 2 * time.Minute  // between two requests of a connection
	leftoverTime  = 2 * time.Second  // for the rest of a body that nobody wants
	slowest       = 1 << 10          // bytes a second of a body, beyond patience
	defaultBody   = 64 << 30
	defaultQuery  = 30 * time.Second
	defaultMemory = 256 << 20
	defaultAtOnce = 256
)

// patience is how long a body, or a reader, may stand still. A test shortens it.
var patience = 30 * time.Second

// A Server answers requests about one store.
type Server struct {
	store   *leafproof.Store
	o       Options
	hosts   map[string]bool
	origins map[string]bool
	owner   [32]byte // SHA-256 of the owner's token
	routes  []route
	slots   slots
	room    room
	turns   turns
	metrics *metrics
	runs    runs
	// description is what /openapi.json answers.
	description func() []byte
	begun       time.Time
	leaving     atomic.Bool
}

// New returns a server for a store, which stays the caller's to close.
func New(store *leafproof.Store, o Options) *Server {
	if o.Requests <= 0 {
		o.Requests = defaultAtOnce
	}
	if o.PerPrincipal <= 0 {
		o.PerPrincipal = max(1, o.Requests/2)
	}
	if o.BodyBytes <= 0 {
		o.BodyBytes = defaultBody
	}
	if o.QueryTime <= 0 {
		o.QueryTime = defaultQuery
	}
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		store: store, o: o, begun: time.Now(),
		runs:        runs{store: store, dir: o.Runs, open: map[string]*openRun{}},
		hosts:       map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true},
		origins:     map[string]bool{},
		description: sync.OnceValue(Description),
		slots:       slots{most: o.Requests, each: o.PerPrincipal, of: map[leafproof.Principal]int{}},
		room:        room{most: o.Memory, each: o.Memory / 2, of: map[leafproof.Principal]int64{}},
	}
	for _, h := range o.Hosts {
		s.hosts[canonicalHost(h)] = true
	}
	for _, origin := range o.Origins {
		s.origins[origin] = true
	}
	if o.OwnerToken != "" {
		s.owner = sha256.Sum256([]byte(o.OwnerToken))
	}
	s.routes = s.table()
	s.metrics = newMetrics(s)
	return s
}

// Drain makes /readyz say that no more requests should come. Those that come are
// answered.
func (s *Server) Drain() { s.leaving.Store(true) }

// Close closes what the server holds open between requests. No request may be under
// way.
func (s *Server) Close() error { return s.runs.close() }

// HTTP returns a server for connections, with the limits that lie below a handler.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,

		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
		ConnContext:                  withPeer,
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, r: r, begun: time.Now(), control: http.NewResponseController(w)}
	c.w.ResponseWriter, c.w.c = w, c
	c.id = requestID(r)
	defer c.end()
	c.extend(&c.w.until, c.control.SetWriteDeadline)
	h := w.Header()
	h.Set("Leafproof-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
		// A length may have stood beside the chunks, by which somebody on the way counts
		// (RFC 9112, section 6.1): nothing follows such a body.
		h.Set("Connection", "close")
	}
	if err := c.answer(); err != nil {
		c.fail(err)
	}
}

// answer finds out what is asked and by whom, and answers it.
func (c *call) answer() error {
	c.cors()
	if done, err := c.preflight(); done {
		return err
	}
	if err := c.s.guard(c.r); err != nil {
		return err
	}
	rt, params, err := c.s.match(c.r)
	if err != nil {
		return err
	}
	c.route, c.params = rt, params
	if !rt.open || rt.ownerOnly && !c.s.o.OpenMetrics {
		if err := c.authenticate(); err != nil {
			return err
		}
		if rt.ownerOnly && c.who.Principal != leafproof.Owner.Principal {
			return refuse(http.StatusForbidden, leafproof.CodeAccessRevoked, leafproof.Stop, "", "this is for the owner of the store alone")
		}
	}
	if !rt.open {
		leave, err := c.s.slots.enter(c.who.Principal)
		if err != nil {
			c.w.Header().Set("Retry-After", "1")
			return err
		}
		defer leave()
	}
	c.r = c.r.WithContext(context.WithValue(c.r.Context(), callKey{}, c))
	return rt.handle(c)
}
