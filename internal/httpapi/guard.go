package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"leafproof"
)

// guard refuses requests that no client of this server makes, before anything else
// is looked at.
func (s *Server) guard(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		if up := strings.ToUpper(r.Method); up != r.Method {
			return invalid(http.StatusBadRequest, "method", "%s is no method: methods are written in upper case", printable(r.Method))
		}
		return invalid(http.StatusMethodNotAllowed, "method", "nothing here has the method %s", printable(r.Method))
	}
	if err := checkPath(r.URL); err != nil {
		return err
	}
	if err := checkFraming(r); err != nil {
		return err
	}
	if !s.hosts[canonicalHost(r.Host)] && !fromSocket(r) {
		return invalid(http.StatusMisdirectedRequest, "host", "this server has no such name: --host gives it one")
	}
	return s.checkOrigin(r)
}

// single are header fields that say one thing: given twice, one of the two would be
// passed over, and perhaps not the one that somebody on the way went by.
var single = []string{
	"Authorization", "Content-Type", "Content-Encoding", "Content-Range", "If-Range", "Sec-Fetch-Site",
	purposeHeader, factsHeader, uploadOffset, uploadComplete, uploadLength,
}

// checkFraming refuses bodies that are not what they would be taken for: the bytes
// that come are kept as they are.
func checkFraming(r *http.Request) error {
	for _, name := range single {
		if len(r.Header.Values(name)) > 1 {
			return invalid(http.StatusBadRequest, name, "%s is given twice", name)
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return invalid(http.StatusUnsupportedMediaType, "Content-Encoding", "the body is encoded: it is kept as it comes, and no coding is undone")
	}
	if r.Header.Get("Content-Range") != "" {
		return invalid(http.StatusBadRequest, "Content-Range", "a body is whole: /v1/uploads takes one in parts")
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		// What follows a header of HTTP/1.0 without a length, as in chunks, is not seen.
		if !r.ProtoAtLeast(1, 1) && r.Header.Get("Content-Length") == "" {
			return invalid(http.StatusLengthRequired, "Content-Length", "a request in HTTP/1.0 says how long its body is")
		}
	}
	return nil
}

// checkPath refuses paths that could mean another one to somebody else: each segment
// is a name as the manifest's grammar has it, and begins with no dot.
func checkPath(u *url.URL) error {
	bad := func(what string) error { return invalid(http.StatusBadRequest, "path", "%s", what) }
	path := u.Path
	switch {
	case len(path) > maxPath || len(u.RawPath) > 3*maxPath:
		return invalid(http.StatusRequestURITooLong, "path", "a path has at most %d bytes", maxPath)
	case path == "" || path[0] != '/':
		return bad("the path does not begin with /")
	}
	if raw := strings.ToLower(u.RawPath); strings.Contains(raw, "%2f") || strings.Contains(raw, "%5c") {
		return bad("an encoded slash")
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		for i := 0; i < len(segment); i++ {
			b := segment[i]
			alnum := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
			if !alnum && (i == 0 || b != '.' && b != '_' && b != ':' && b != '-') {
				return bad("a part of the path is no name: it begins with a letter or digit, and has letters, digits and . _ : - only")
			}
		}
		if segment == "" && path != "/" {
			return bad("an empty part of the path")
		}
	}
	return nil
}

// canonicalHost is a host without port, in lower case.
func canonicalHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().String()
	}
	return strings.TrimSuffix(host, ".")
}

// checkOrigin refuses what a page of another site made a browser ask. A program sends
// neither of the two headers.
func (s *Server) checkOrigin(r *http.Request) error {
	if s.letIn(r) != "" {
		return nil
	}
	origins := r.Header.Values("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if len(origins) > 0 || site != "" && site != "none" && site != "same-origin" {
		return refuse(http.StatusForbidden, leafproof.CodeRequestInvalid, leafproof.Stop, "origin", "pages of browsers may not ask here: --origin lets those of a site")
	}
	return nil
}

// slots bound how many requests are under way.
type slots struct {
	most, each int

	mu  sync.Mutex
	now int
	of  map[leafproof.Principal]int
}

// enter takes a slot for a principal, at once or not at all.
func (s *slots) enter(p leafproof.Principal) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.now >= s.most:
		return nil, wait(http.StatusTooManyRequests, leafproof.CodeBudgetExhausted, "", "%d requests are under way already", s.most)
	case s.of[p] >= s.each:
		return nil, wait(http.StatusTooManyRequests, leafproof.CodeBudgetExhausted, "", "%d requests of yours are under way already", s.each)
	}
	s.now++
	s.of[p]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		if s.of[p]--; s.of[p] == 0 {
			delete(s.of, p)
		}
	}, nil
}
