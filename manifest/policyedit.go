package manifest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Change is one edit of a policy, for [Policy.With] and [Policy.Next].
type Change func(*Policy) error

// AddKey admits a key. No Tenants, or no Sources, mean all of them.
func AddKey(k Key) Change {
	return func(p *Policy) error {
		if len(k.Tenants) == 0 {
			k.Tenants = []string{"*"}
		}
		if len(k.Sources) == 0 {
			k.Sources = []string{"*"}
		}
		return p.add(k)
	}
}

// AddLog names the log whose checkpoints count.
func AddLog(v VerifierKey) Change { return func(p *Policy) error { return p.addLog(v) } }

// AddWitness names a witness.
func AddWitness(w Witness) Change { return func(p *Policy) error { return p.addWitness(w) } }

// Retire ends the trust in a key at a time: what is known to be older stays good.
// A key that was retired before keeps the earlier time.
func Retire(fingerprint string, at time.Time) Change {
	return func(p *Policy) error { return end(p, fingerprint, at, p.retired) }
}

// Compromise ends the trust in a key as of the time since which others may have
// had it: what a witness saw before stays good.
func Compromise(fingerprint string, since time.Time) Change {
	return func(p *Policy) error { return end(p, fingerprint, since, p.compromised) }
}

func end(p *Policy, fingerprint string, at time.Time, to map[string]ending) error {
	if !p.names(fingerprint) {
		return fmt.Errorf("%w %s", ErrUnknownKey, fingerprint)
	}
	if old, ok := to[fingerprint]; !ok || at.Before(old.at) {
		to[fingerprint] = ending{at: at}
	}
	return nil
}

// Demand sets how many distinct keys must sign in a role.
func Demand(role string, n int) Change {
	return func(p *Policy) error {
		p.thresholds[role] = n
		return nil
	}
}

// ExpireAt sets the time until which the policy holds; zero is for ever.
func ExpireAt(t time.Time) Change {
	return func(p *Policy) error {
		p.expires = t
		return nil
	}
}

// With is the policy with changes, of the same version: for one that nobody has
// signed yet.
func (p *Policy) With(changes ...Change) (*Policy, error) { return p.edit(p.version, changes) }

// Next is the policy's next version, with changes. It is somebody's word only
// once it is signed, see [Succeeds].
func (p *Policy) Next(changes ...Change) (*Policy, error) { return p.edit(p.version+1, changes) }

func (p *Policy) edit(version int64, changes []Change) (*Policy, error) {
	const op = "change a policy"
	if p.adHoc {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: it has no text", ErrPolicy)}
	}
	next := &Policy{
		name: p.name, version: version, expires: p.expires, keys: slices.Clone(p.keys), prints: maps.Clone(p.prints),
		logs: slices.Clone(p.logs), witnesses: slices.Clone(p.witnesses),
		groups: slices.Clone(p.groups), grouped: cloned(p.grouped), quorum: p.quorum,
		retired: cloned(p.retired), compromised: cloned(p.compromised), thresholds: cloned(p.thresholds),
	}
	for _, change := range changes {
		if err := change(next); err != nil {
			return nil, &Error{Op: op, Err: err}
		}
	}
	// The text is what counts, and its parser has all the rules.
	return ParsePolicy([]byte(next.String()))
}

// cloned is a copy that can be written to.
func cloned[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	maps.Copy(c, m)
	return c
}
