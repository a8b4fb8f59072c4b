package manifest

import (
	"fmt"
	"slices"
	"time"
)

// Evidence is what shows that a statement existed at a time, other than its own
// word. The zero Evidence shows nothing.
type Evidence struct {
	// Logged is when a log's checkpoint had the statement, or when a store's
	// catalogue had it where the catalogue is trusted; zero: not known.
	Logged time.Time
	// Witnessed is when a witness cosigned such a checkpoint; zero: none did.
	Witnessed time.Time
}

// Given is the policy as it judges one statement of whose age there is evidence.
// Of no policy it is none.
func (p *Policy) Given(e Evidence) *Policy {
	if p == nil {
		return nil
	}
	q := *p
	q.evidence = e
	return &q
}

// Judge says whether the key with that fingerprint may speak in a role about a
// tenant and a source ("" for an artifact without one) as of a time. It judges
// the key alone: whether the signature verifies, and whether enough keys signed
// ([Policy.Threshold]), is for [VerifyEnvelope], and whether the policy is still
// good for [Policy.Expired]. The key is returned beside every error but
// [ErrUnknownKey].
//
// A retired key is refused unless [Policy.Given] shows that the statement was
// logged or witnessed before its end, a compromised one unless a witness saw the
// statement before: the log itself may be in the thief's hands. Where there is
// such evidence, the key's time window is looked at as of then.
//
// The errors wrap ErrUnknownKey, ErrCompromised, ErrRetired, ErrRole,
// ErrTimeWindow and ErrScope, in this order, and their text is the reason that a
// verdict prints.
func (p *Policy) Judge(role, tenant, source, fingerprint string, at time.Time) (Key, error) {
	k, ok := p.key(fingerprint)
	if !ok {
		return Key{}, fmt.Errorf("%w %s", ErrUnknownKey, fingerprint)
	}
	if err := p.ended(fingerprint); err != nil {
		return k, err
	}
	at = earliest(at, p.evidence.Logged, p.evidence.Witnessed)
	switch {
	case !slices.Contains(k.Roles, role):
		return k, fmt.Errorf("%w: %s may not speak as %s", ErrRole, k.Name, role)
	case !k.NotBefore.IsZero() && at.Before(k.NotBefore):
		return k, fmt.Errorf("%w: %s is good from %s", ErrTimeWindow, k.Name, FormatTime(k.NotBefore))
	case !k.NotAfter.IsZero() && !at.Before(k.NotAfter):
		return k, fmt.Errorf("%w: %s was good until %s", ErrTimeWindow, k.Name, FormatTime(k.NotAfter))
	case !matchAny(k.Tenants, tenant):
		return k, fmt.Errorf("%w: %s may not speak for tenant %s", ErrScope, k.Name, tenant)
	case !matchAny(k.Sources, source):
		if source == "" {
			return k, fmt.Errorf("%w: %s may speak for its sources only, and this has none", ErrScope, k.Name)
		}
		return k, fmt.Errorf("%w: %s may not speak for source %s", ErrScope, k.Name, source)
	}
	return k, nil
}

// ended says whether the trust in a key has ended, and nothing shows that the
// statement is older.
func (p *Policy) ended(fingerprint string) error {
	if end, ok := p.compromised[fingerprint]; ok {
		switch seen := p.evidence.Witnessed; {
		case seen.IsZero():
			return ErrCompromised
		case !seen.Before(end.at):
			return fmt.Errorf("%w: witnessed at %s, compromised since %s", ErrKeyEnded, FormatTime(seen), FormatTime(end.at))
		}
	}
	if end, ok := p.retired[fingerprint]; ok {
		switch seen := earliest(p.evidence.Logged, p.evidence.Witnessed); {
		case seen.IsZero():
			return ErrRetired
		case !seen.Before(end.at):
			return fmt.Errorf("%w: logged at %s, retired at %s", ErrKeyEnded, FormatTime(seen), FormatTime(end.at))
		}
	}
	return nil
}

// earliest is the earliest of the times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Expired is an [ErrPolicyExpired] when the policy ended at or before a time. A
// store refuses to work under such a policy; an offline verifier, who may have no
// newer one, says so and goes on.
func (p *Policy) Expired(at time.Time) error {
	if p.expires.IsZero() || at.Before(p.expires) {
		return nil
	}
	return fmt.Errorf("%w at %s", ErrPolicyExpired, FormatTime(p.expires))
}

// State of a key at a time, for a list: see [Policy.StateOf].
const (
	KeyActive      = "active"
	KeyPending     = "not yet" // its window has not begun
	KeyEnded       = "ended"   // its window is over
	KeyRetired     = "retired"
	KeyCompromised = "compromised"
	KeyUnknown     = "unknown" // no line of the policy has it
)

// StateOf says what the policy holds of a key at a time, whatever its roles.
func (p *Policy) StateOf(public PublicKey, at time.Time) string {
	fp := public.Fingerprint()
	k, _ := p.key(fp)
	_, compromised := p.compromised[fp]
	_, retired := p.retired[fp]
	switch {
	case !p.names(fp):
		return KeyUnknown
	case compromised:
		return KeyCompromised
	case retired:
		return KeyRetired
	case !k.NotBefore.IsZero() && at.Before(k.NotBefore):
		return KeyPending
	case !k.NotAfter.IsZero() && !at.Before(k.NotAfter):
		return KeyEnded
	}
	return KeyActive
}

// names reports whether a line of the policy has the key: as a speaker, a log or
// a witness.
func (p *Policy) names(fingerprint string) bool {
	_, ok := p.prints[fingerprint]
	return ok
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchPattern(p, name) })
}
