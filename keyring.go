package leafproof

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leafproof/internal/keys"
	"leafproof/manifest"
)

// WithSigner lets a key that lies elsewhere, in a KMS or a hardware token, sign in
// a role, in place of the files in keys/ and of the ssh-agent. It signs Ed25519 over
// the message itself (crypto.Hash(0)); what it signs is checked before it is used.
// The store's policy must admit it in that role.
func WithSigner(role string, s crypto.Signer) Option {
	return func(c *config) {
		if c.given == nil {
			c.given = map[string]crypto.Signer{}
		}
		c.given[role] = s
	}
}

// checkGiven refuses signers of another kind than Ed25519, or with a key that must
// not be used.
func (c *config) checkGiven() error {
	for role, s := range c.given {
		if _, err := manifest.PublicKeyOf(s); err != nil {
			return fmt.Errorf("the signer given for the role %s: %w", role, err)
		}
	}
	return nil
}

// heldKey is a file of a private key, and what loading it gave.
type heldKey struct {
	file string
	key  *keys.Key // nil where err is not
	err  error
}

// heldKeys loads the private keys of a store's folder. One that others can read
// is an error; one that does not load is reported where it is asked for.
func heldKeys(dir string) ([]heldKey, error) {
	entries, err := os.ReadDir(filepath.Join(dir, keysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var held []heldKey
	for _, e := range entries {
		name := keysDir + "/" + e.Name()
		if secretFile(name) || strings.HasSuffix(name, publicSuffix) || strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		key, err := keys.Load(filepath.Join(dir, keysDir, e.Name()))
		if errors.Is(err, keys.ErrMode) {
			return nil, err
		}
		held = append(held, heldKey{name, key, err})
	}
	return held, nil
}

// speaker is a key that may speak, and its private half.
type speaker struct {
	crypto.Signer
	key manifest.PublicKey
}

// signer returns a key that may speak in a role now: the newest that the policy
// admits and whose private half is at hand. The error wraps [ErrNoKey] and names
// the role.
func (s *Store) signer(role string) (crypto.Signer, error) {
	k, err := s.speaker(role, nil, time.Now())
	return k.Signer, err
}

// scope is what a statement is about: a tenant, and a source ("" for none).
type scope struct{ tenant, source string }

// speaker is signer for a scope (nil: whatever the key has) as of a time.
func (s *Store) speaker(role string, about *scope, at time.Time) (speaker, error) {
	t, err := s.trusted()
	if err == nil {
		err = t.policy.Expired(at)
	}
	if err != nil {
		return speaker{}, err
	}
	may, reason := t.speakers(role, about, at)
	ring := s.ring(t, role, may)
	for _, k := range may {
		signer, err := ring.find(k)
		if err != nil && reason == nil {
			reason = err
		}
		if signer != nil {
			return speaker{signer, k}, nil
		}
	}
	return speaker{}, t.noKey(role, reason)
}

// speakers are the keys that the policy lets speak, the newest first, and the
// reason why the newest of the others may not.
func (t *trust) speakers(role string, about *scope, at time.Time) (may []manifest.PublicKey, reason error) {
	if role == manifest.RoleLog {
		for _, l := range slices.Backward(t.policy.Logs()) {
			if t.policy.StateOf(l.Public, at) == manifest.KeyActive {
				may = append(may, l.Public)
			}
		}
		return may, nil
	}
	for _, k := range slices.Backward(t.policy.Keys()) {
		if !slices.Contains(k.Roles, role) {
			continue
		}
		where := scope{sample(k.Tenants[0]), sample(k.Sources[0])}
		if about != nil {
			where = *about
		}
		_, err := t.policy.Judge(role, where.tenant, where.source, k.Public.Fingerprint(), at)
		if err == nil {
			may = append(may, k.Public)
		} else if reason == nil {
			reason = err
		}
	}
	return may, reason
}

// sample is a name that a pattern matches.
func sample(pattern string) string { return strings.ReplaceAll(pattern, "*", "x") }

// ring finds private halves: that given by the program for the role and no other,
// else a file, else the ssh-agent, which is asked once at most.
type ring struct {
	given  crypto.Signer
	held   []heldKey
	agent  *keys.Agent
	wanted []manifest.PublicKey
	asked  bool
	listed []*keys.Key
	err    error // of the agent
}

func (s *Store) ring(t *trust, role string, wanted []manifest.PublicKey) *ring {
	return &ring{given: s.given[role], held: t.held, agent: s.agent, wanted: wanted}
}

// find is the private half of a key; nil where it is not at hand. The error is of
// an agent that might have it.
func (r *ring) find(public manifest.PublicKey) (crypto.Signer, error) {
	if r.given != nil {
		if k, err := manifest.PublicKeyOf(r.given); err == nil && k == public {
			return r.given, nil
		}
		return nil, nil
	}
	for _, h := range r.held {
		if h.key != nil && h.key.Public == public {
			return h.key.Signer, nil
		}
	}
	if r.agent == nil {
		return nil, nil
	}
	if !r.asked {
		r.asked = true
		r.listed, r.err = r.agent.Held(r.wanted...)
	}
	for _, k := range r.listed {
		if k.Public == public {
			return k.Signer, nil
		}
	}
	return nil, r.err
}

// noKey says why nothing can be signed in a role: a key file that does not load,
// one that the policy does not know, a key that may not speak, or none at all.
func (t *trust) noKey(role string, reason error) error {
	for _, h := range t.held {
		switch {
		case h.file != keysDir+"/"+role:
		case h.err != nil:
			return fmt.Errorf("%w as %s: %w", ErrNoKey, role, h.err)
		case reason == nil && !t.policy.Knows(h.key.Public):
			return fmt.Errorf("%w as %s: to trust.policy, %s is an %w %s (are two stores' files mixed up?)",
				ErrNoKey, role, h.file, manifest.ErrUnknownKey, h.key.Public.Fingerprint())
		}
	}
	if reason != nil {
		return fmt.Errorf("%w as %s under trust.policy: %w", ErrNoKey, role, reason)
	}
	return fmt.Errorf("%w as %s; `leafproof key new --role %s` makes one", ErrNoKey, role, role)
}
