package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"leafproof"
)

// purposeHeader says why the caller asks; it goes into the audit log, and a grant may
// demand it.
const purposeHeader = "Leafproof-Purpose"

// certificatePrefix is how a client certificate names a principal: a URI among its
// subject's alternative names. One without such a URI names it as common name.
const certificatePrefix = "urn:x-leafproof:principal:"

type peerKey struct{}

// withPeer notes of a connection whether it came over a unix socket.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if a := c.LocalAddr(); a != nil && a.Network() == "unix" {
		return context.WithValue(ctx, peerKey{}, true)
	}
	return ctx
}

// fromSocket reports a request over a unix socket, where no browser comes from and
// every Host is as good as another.
func fromSocket(r *http.Request) bool { return r.Context().Value(peerKey{}) != nil }

// authenticate finds out who asks.
func (c *call) authenticate() error {
	purpose := c.r.Header.Values(purposeHeader)
	if len(purpose) == 1 && (len(purpose[0]) > 128 || !utf8.ValidString(purpose[0])) {
		return invalid(http.StatusBadRequest, purposeHeader, "%s is text of at most 128 bytes", purposeHeader)
	}
	info, err := c.principal()
	if err != nil {
		return err
	}
	c.info, c.who.Principal = info, info.Name
	if len(purpose) == 1 {
		c.who.Purpose = purpose[0]
	}
	return nil
}

// principal is who the token or the certificate belongs to. A token wins: who shows
// one wants to be asked as its principal.
func (c *call) principal() (leafproof.PrincipalInfo, error) {
	var none leafproof.PrincipalInfo
	given := c.r.Header.Values("Authorization")
	if len(given) == 0 {
		return c.certified()
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return none, c.unknown("the scheme of Authorization is not Bearer")
	}
	token = strings.TrimSpace(token)
	if sum := sha256.Sum256([]byte(token)); c.s.o.OwnerToken != "" && subtle.ConstantTimeCompare(sum[:], c.s.owner[:]) == 1 {
		return leafproof.PrincipalInfo{Name: leafproof.Owner.Principal, Tenant: leafproof.DefaultTenant, HasToken: true, CreatedAt: c.s.begun.UTC()}, nil
	}
	info, err := c.s.store.Authenticate(c.r.Context(), token)
	if errors.Is(err, leafproof.ErrToken) {
		c.s.metrics.strangers.Inc()
		return none, c.unknown("the token is nobody's")
	}
	return info, err
}

// certified is who the client certificate names, which the server has verified.
func (c *call) certified() (leafproof.PrincipalInfo, error) {
	var none leafproof.PrincipalInfo
	if c.r.TLS == nil || len(c.r.TLS.VerifiedChains) == 0 {
		return none, c.unknown("a bearer token is needed")
	}
	cert := c.r.TLS.VerifiedChains[0][0]
	name := cert.Subject.CommonName
	for _, u := range cert.URIs {
		if n, ok := strings.CutPrefix(u.String(), certificatePrefix); ok {
			name = n
			break
		}
	}
	info, err := c.s.store.PrincipalNamed(c.r.Context(), leafproof.Principal(name))
	if errors.Is(err, leafproof.ErrToken) {
		c.s.metrics.strangers.Inc()
		return none, c.unknown("the certificate names no principal of this store")
	}
	return info, err
}

// unknown is the answer to who does not say who he is.
func (c *call) unknown(why string) error {
	challenge := `Bearer realm="leafproof"`
	if c.r.Header.Get("Authorization") != "" {
		challenge += `, error="invalid_token"`
	}
	c.w.Header().Set("WWW-Authenticate", challenge)
	return refuse(http.StatusUnauthorized, leafproof.CodeUnauthenticated, leafproof.Stop, "", "%s", why)
}

// tenant is the tenant that a request is about: the principal's own. The owner, who
// belongs to none, may name one.
func (c *call) tenant(named string) (string, error) {
	if named == "" || named == c.info.Tenant {
		return c.info.Tenant, nil
	}
	if c.who.Principal == leafproof.Owner.Principal {
		return named, nil
	}
	return "", invalid(http.StatusBadRequest, "tenant_id", "the tenant is that of who asks, and need not be said")
}
