package httpapi

import (
	"net/http"
	"strings"
)

// What a page of an origin that is let in may send and see (the Fetch standard's CORS
// protocol). Credentials that a browser keeps, as a client certificate, are not among
// it: the page has a token.
var (
	corsSends = strings.Join([]string{
		"Authorization", "Accept", "Content-Type", "Content-Digest", "Repr-Digest", "Range", "If-Range", "If-Match", "If-None-Match", "Want-Content-Digest",
		purposeHeader, factsHeader, uploadOffset, uploadComplete, uploadLength, "Leafproof-Request-Id",
	}, ", ")
	corsSees = strings.Join([]string{
		"Location", "ETag", "Content-Range", "Accept-Ranges", "Content-Digest", "Repr-Digest", "Link", "Retry-After", "WWW-Authenticate",
		noteHeader, uploadOffset, uploadComplete, uploadLength, uploadLimit, "Leafproof-Request-Id",
	}, ", ")
)

// letIn is the origin of the page that asks, where it is one that may; else "".
func (s *Server) letIn(r *http.Request) string {
	if origins := r.Header.Values("Origin"); len(origins) == 1 && s.origins[origins[0]] {
		return origins[0]
	}
	return ""
}

// cors lets a page of an origin that may ask see the answer.
func (c *call) cors() {
	h := c.w.Header()
	if len(c.s.origins) > 0 {
		h.Add("Vary", "Origin")
	}
	if origin := c.s.letIn(c.r); origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", corsSees)
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
}

// preflight answers the question of a browser whether a page may ask something, where
// it may; no token comes with it.
func (c *call) preflight() (done bool, err error) {
	method := c.r.Header.Get("Access-Control-Request-Method")
	if c.r.Method != http.MethodOptions || method == "" || c.s.letIn(c.r) == "" {
		return false, nil
	}
	asked := *c.r
	asked.Method = method
	if err := c.s.guard(&asked); err != nil {
		return true, err
	}
	if c.route, c.params, err = c.s.match(&asked); err != nil {
		return true, err
	}
	h := c.w.Header()
	h.Set("Access-Control-Allow-Methods", method)
	h.Set("Access-Control-Allow-Headers", corsSends)
	h.Set("Access-Control-Max-Age", "600")
	if c.r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	c.w.WriteHeader(http.StatusNoContent)
	return true, nil
}
