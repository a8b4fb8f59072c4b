package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ErrNoPolicy is a judgement that was asked for without a policy.
var ErrNoPolicy = errors.New(NoPolicy)

// VerifyStatement judges a signed statement of the kind with the predicateType
// want, as of a time, by the reader's policy. It returns what was said and the keys
// whose word it is: their signatures verify over the exact payload, the policy lets
// each speak in the role of the kind for the tenant and source that the statement
// names, and they are at least as many distinct keys as the policy asks for.
//
// On an error there is no document. It wraps [ErrNotCanonical], [ErrMalformed],
// [ErrTooLarge], [ErrID] or [ErrDigest] for the form; [ErrSignature] where a
// signature by a key of the policy is wrong, or the issuer named did not sign;
// [ErrNoPolicy], [ErrUnknownKey], [ErrThreshold] or another reason of
// [Policy.Judge] where nothing vouches for the statement.
//
// That the statement is about the artifact in hand is for [Head.Fits].
func VerifyStatement(env Envelope, want string, policy *Policy, at time.Time) (*Document, []Key, error) {
	s, err := openStatement(env, want)
	if err != nil {
		return nil, nil, err
	}
	keys, _, err := s.judge(policy, at)
	if err != nil {
		return nil, nil, &Error{Op: "verify statement", Err: err}
	}
	return s.doc, keys, nil
}

// openedStatement is an envelope whose form is right.
type openedStatement struct {
	env Envelope
	doc *Document
}

func openStatement(env Envelope, want string) (*openedStatement, error) {
	if err := env.Check(); err != nil {
		return nil, err
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		return nil, err
	}
	doc, err := ParseStatement(payload, want)
	if err != nil {
		return nil, err
	}
	return &openedStatement{env, doc}, nil
}

// judge returns the keys that vouch for the statement, or the reason why none do
// and whether that is a [Mismatch] or [Unverifiable]. The payload is the bytes
// that were parsed.
func (s *openedStatement) judge(policy *Policy, at time.Time) ([]Key, State, error) {
	head := s.doc.Body.About()
	issuer := head.Issuer.KeyID
	if !slices.ContainsFunc(s.env.Signatures, func(g Signature) bool { return g.KeyID == issuer }) {
		return nil, Mismatch, fmt.Errorf("%w: the statement names the issuer %s, which did not sign it", ErrSignature, issuer)
	}
	if policy == nil {
		return nil, Unverifiable, ErrNoPolicy
	}
	good, err := s.signers(policy)
	if err != nil {
		return nil, Mismatch, err
	}
	if !good[issuer] {
		return nil, Unverifiable, fmt.Errorf("%w %s", ErrUnknownKey, issuer)
	}
	source := ""
	if head.SourceID != nil {
		source = *head.SourceID
	}
	role := s.doc.Kind.Role
	keys := map[PublicKey]Key{}
	var reason error
	for _, g := range s.env.Signatures {
		k, err := policy.Judge(role, head.Scope.TenantID, source, g.KeyID, at)
		switch {
		case err == nil && good[g.KeyID]:
			keys[k.Public] = k
		case reason == nil || g.KeyID == issuer:
			reason = err
		}
	}
	if want := policy.Threshold(role); len(keys) < want {
		if len(keys) == 0 && reason != nil {
			return nil, Unverifiable, reason
		}
		return nil, Unverifiable, fmt.Errorf("%w: %d of %d that the policy asks for", ErrThreshold, len(keys), want)
	}
	return slices.SortedFunc(maps.Values(keys), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }), Attested, nil
}

// signers returns the fingerprints of the policy's keys whose signatures verify,
// and fails when one of them does not.
func (s *openedStatement) signers(policy *Policy) (map[string]bool, error) {
	message := PAE(PayloadType, s.doc.Payload)
	good := map[string]bool{}
	for _, g := range s.env.Signatures {
		k, ok := policy.key(g.KeyID)
		if !ok {
			continue
		}
		sig, err := decodeBase64(g.Sig)
		if err == nil {
			err = k.Public.Verify(message, sig)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: that by %s", ErrSignature, g.KeyID)
		}
		good[g.KeyID] = true
	}
	return good, nil
}
