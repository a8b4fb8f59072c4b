package leafproof

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/merkle"
)

// contextToken is the purpose for which bearer tokens are hashed: the catalogue can
// tell whose one is, and holds nothing that lets somebody in.
const contextToken = "leafproof 2026 bearer-token v1"

const tokenPrefix = "lpt_"

// A PrincipalInfo is one who may be given leave.
type PrincipalInfo struct {
	Name      Principal `json:"name"`
	Tenant    string    `json:"tenant_id"` // the only one that he ever sees
	Run       *string   `json:"run_id"`    // the only run of it, where not nil
	HasToken  bool      `json:"has_token"`
	CreatedAt time.Time `json:"created_at"`
}

func principalInfo(p catalogue.Principal) PrincipalInfo {
	return PrincipalInfo{Principal(p.Name), p.Tenant, p.Run, !p.TokenHash.IsZero(), p.CreatedAt}
}

// AddPrincipal makes a principal of a tenant ("" is [DefaultTenant]), bound to a run
// where run is not nil, and returns its bearer token: 256 random bits, which nobody
// can be told again. One that a grant made, and has no token yet, gets one. Only the
// owner may.
func (s *Store) AddPrincipal(ctx context.Context, who Caller, name Principal, tenant string, run *string) (token string, err error) {
	if err := ownerOnly(who, "add principals"); err != nil {
		return "", err
	}
	if err := checkPrincipal(name); err != nil {
		return "", err
	}
	if tenant == "" {
		tenant = DefaultTenant
	}
	if err := manifest.CheckName(tenant); err != nil {
		return "", wireError("tenant", err)
	}
	if run != nil {
		if err := manifest.CheckName(*run); err != nil {
			return "", wireError("run", err)
		}
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return "", wireError("principal", err)
	}
	token = tokenPrefix + strings.ToLower(rand.Text()+rand.Text())
	p := catalogue.Principal{Name: string(name), Tenant: tenant, Run: run, TokenHash: tokenHash(token), CreatedAt: now}
	err = s.catalogue.AddPrincipal(ctx, p, s.changed(who, now, "principal_add", tenant, "", map[string]any{"principal": name, "run_id": run}))
	if errors.Is(err, catalogue.ErrExists) {
		return "", fail(CodeSelectorInvalid, FixCall, string(name), "there is a principal %s already, with a token or of another tenant or run", name)
	}
	if err != nil {
		return "", wireError(string(name), err)
	}
	return token, nil
}

func tokenHash(token string) merkle.Root { return merkle.DeriveKey(contextToken, []byte(token)) }

// RemovePrincipal ends a principal: its token lets nobody in, and its grants are
// revoked with what rests on them. Only the owner may.
func (s *Store) RemovePrincipal(ctx context.Context, who Caller, name Principal) error {
	if err := ownerOnly(who, "remove principals"); err != nil {
		return err
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return wireError("principal", err)
	}
	p, err := s.catalogue.Principal(ctx, string(name))
	if err == nil {
		err = s.catalogue.RemovePrincipal(ctx, string(name), now, s.changed(who, now, "principal_remove", p.Tenant, "", map[string]any{"principal": name}))
	}
	if errors.Is(err, catalogue.ErrNoPrincipal) {
		return fail(CodeRefNotFound, FixCall, string(name), "%s: no such principal", name)
	}
	s.gate.Settle(ctx)
	if err != nil {
		return wireError(string(name), err)
	}
	return wireError(string(name), s.withdrawGrants(ctx, now))
}

// Principals returns all principals by name. Only the owner may.
func (s *Store) Principals(ctx context.Context, who Caller) ([]PrincipalInfo, error) {
	if err := ownerOnly(who, "list principals"); err != nil {
		return nil, err
	}
	out := []PrincipalInfo{}
	for after := ""; ; {
		list, err := s.catalogue.Principals(ctx, after, catalogue.MaxList)
		if err != nil {
			return nil, wireError("principals", err)
		}
		for _, p := range list {
			out, after = append(out, principalInfo(p)), p.Name
		}
		if len(list) < catalogue.MaxList {
			return out, nil
		}
	}
}

// ErrToken is a bearer token that is nobody's.
var ErrToken = errors.New("the token is nobody's")

// Authenticate returns whose a bearer token is. The tenant of a request comes from
// here, never from what is asked. A token that is nobody's is [ErrToken].
func (s *Store) Authenticate(ctx context.Context, token string) (PrincipalInfo, error) {
	if !strings.HasPrefix(token, tokenPrefix) || len(token) > 128 {
		return PrincipalInfo{}, ErrToken
	}
	hash := tokenHash(token)
	epoch, _, ok := s.catalogue.Quick() // before the look, which may be newer
	if ok {
		if info, ok := s.tokens.get(epoch, hash); ok {
			return info, nil
		}
	}
	p, err := s.catalogue.PrincipalByToken(ctx, hash)
	switch {
	case errors.Is(err, catalogue.ErrNoPrincipal):
		return PrincipalInfo{}, ErrToken
	case err != nil:
		return PrincipalInfo{}, wireError("token", err)
	}
	info := principalInfo(p)
	if ok {
		s.tokens.put(epoch, hash, info)
	}
	return info, nil
}
