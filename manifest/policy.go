package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The roles in which a key may speak: one for each kind of statement.
const (
	RoleManifest  = "manifest"
	RoleIndex     = "index"
	RoleReceipt   = "receipt"
	RoleSupersede = "supersede"
	RoleTombstone = "tombstone"
	RoleDeletion  = "deletion"
	RoleAudit     = "audit"
	RoleAdmission = "admission" // a harness that says what entered a prompt
	RolePolicy    = "policy"
)

// RoleLog is the role of the key that a log signs its checkpoints with. No key
// line has it: a policy names logs in lines of their own, see [Policy.Logs].
const RoleLog = "log"

// roles is also the order in which a policy writes them.
var roles = []string{RoleManifest, RoleIndex, RoleReceipt, RoleSupersede, RoleTombstone, RoleDeletion, RoleAudit, RoleAdmission, RolePolicy}

// IsRole reports whether a key line of a policy may name the role.
func IsRole(role string) bool { return slices.Contains(roles, role) }

// The limits of a policy.
const (
	MaxPolicy     = 1 << 20 // bytes of text
	MaxPolicyKeys = 1024    // keys, those of logs and witnesses counted
	MaxPatterns   = 64      // tenants of a key, and as many sources
)

// Key is a key that a policy admits, and for what.
type Key struct {
	Name      string // a name, unique in its policy
	Public    PublicKey
	Roles     []string
	Tenants   []string  // patterns: a * is a whole segment between dots, or the last character
	Sources   []string  // patterns over source ids; only * covers an artifact without one
	NotBefore time.Time // inclusive; zero: no bound
	NotAfter  time.Time // exclusive; zero: no bound
}

// ending is the end of a key's trust.
type ending struct {
	at   time.Time
	line int
}

// Policy says which keys may speak in which role, for which tenants and sources,
// from when to when. It comes from the reader, never from what is verified.
type Policy struct {
	name        string
	version     int64
	expires     time.Time      // zero: never
	keys        []Key          // in the order of the text
	prints      map[string]int // fingerprint → place in keys, or noSpeaker
	logs        []VerifierKey
	witnesses   []Witness
	groups      []Group
	grouped     map[string]bool // the members of all groups: one voice counts once
	quorum      string          // a witness or group; empty: none is asked for
	retired     map[string]ending
	compromised map[string]ending
	thresholds  map[string]int
	adHoc       bool
	evidence    Evidence // of the one statement that is judged
}

// NewPolicy makes version 1 of a policy that never expires, with the given keys.
// No Tenants, or no Sources, mean all of them.
func NewPolicy(name string, keys ...Key) (*Policy, error) {
	p := &Policy{name: name, version: 1}
	if err := CheckName(name); err != nil {
		return nil, &Error{Op: "make a policy", Err: err}
	}
	for _, k := range keys {
		if err := AddKey(k)(p); err != nil {
			return nil, &Error{Op: "make a policy", At: k.Name, Err: err}
		}
	}
	return ParsePolicy([]byte(p.String()))
}

// AdHoc is the policy of somebody who holds keys and nothing else: each may
// speak as [RoleManifest] about anything, so that scope and times stay unclaimed.
func AdHoc(keys ...PublicKey) *Policy {
	p := &Policy{name: "ad-hoc", version: 1, adHoc: true}
	for _, k := range keys {
		if _, ok := p.key(k.Fingerprint()); !ok {
			p.put(Key{Name: k.Fingerprint(), Public: k, Roles: []string{RoleManifest}, Tenants: []string{"*"}, Sources: []string{"*"}})
		}
	}
	return p
}

// add checks a key and keeps it.
func (p *Policy) add(k Key) error {
	switch {
	case k.Public.IsZero():
		return ErrKey
	case len(k.Roles) == 0 || len(k.Tenants) == 0 || len(k.Sources) == 0:
		return fmt.Errorf("%w: a key needs name=, roles= and tenants=", ErrPolicy)
	case len(k.Tenants) > MaxPatterns || len(k.Sources) > MaxPatterns:
		return fmt.Errorf("%w: more than %d patterns", ErrTooLarge, MaxPatterns)
	case !k.NotBefore.IsZero() && !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter):
		return fmt.Errorf("%w: not-before is not before not-after", ErrPolicy)
	}
	if err := CheckName(k.Name); err != nil {
		return err
	}
	for _, r := range k.Roles {
		if !slices.Contains(roles, r) {
			return fmt.Errorf("%w: %s is not a role; there are %s", ErrPolicy, quote(r), strings.Join(roles, ", "))
		}
	}
	for _, pattern := range slices.Concat(k.Tenants, k.Sources) {
		if err := checkPattern(pattern); err != nil {
			return err
		}
	}
	for _, words := range [][]string{k.Roles, k.Tenants, k.Sources} {
		if sorted := slices.Sorted(slices.Values(words)); len(slices.Compact(sorted)) != len(words) {
			return fmt.Errorf("%w: a role or pattern stands twice", ErrPolicy)
		}
	}
	if err := p.distinct(k.Public); err != nil {
		return err
	}
	for _, o := range p.keys {
		if o.Name == k.Name {
			return fmt.Errorf("%w: a second key of the name %s", ErrPolicy, o.Name)
		}
	}
	p.put(k)
	return nil
}

func (p *Policy) put(k Key) {
	p.print(k.Public, len(p.keys))
	p.keys = append(p.keys, k)
}

// noSpeaker is the place in prints of the keys of logs and witnesses.
const noSpeaker = -1

func (p *Policy) print(k PublicKey, place int) {
	if p.prints == nil {
		p.prints = map[string]int{}
	}
	p.prints[k.Fingerprint()] = place
}

// Name is the policy's name.
func (p *Policy) Name() string { return p.name }

// Version counts the versions of the policy from 1.
func (p *Policy) Version() int64 { return p.version }

// Expires is when the policy ends; zero when it never does.
func (p *Policy) Expires() time.Time { return p.expires }

// Keys returns the keys in the order of the text.
func (p *Policy) Keys() []Key { return slices.Clone(p.keys) }

// AdHoc reports whether this is the policy of [AdHoc].
func (p *Policy) AdHoc() bool { return p.adHoc }

// Threshold is how many distinct keys must sign a statement in a role; at least 1.
func (p *Policy) Threshold(role string) int { return max(1, p.thresholds[role]) }

// Knows reports whether a line of the policy has the key, whatever it says of it.
func (p *Policy) Knows(k PublicKey) bool { return p.names(k.Fingerprint()) }

// key finds a key by its fingerprint.
func (p *Policy) key(fingerprint string) (Key, bool) {
	i, ok := p.prints[fingerprint]
	if !ok || i == noSpeaker {
		return Key{}, false
	}
	return p.keys[i], true
}

// String writes the policy as text that [ParsePolicy] reads back to the same
// policy. Comments of the text it came from are gone. The policy of [AdHoc] has
// no text and gives "".
func (p *Policy) String() string {
	if p.adHoc {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "policy %s version %d", p.name, p.version)
	if !p.expires.IsZero() {
		fmt.Fprintf(&b, " expires %s", FormatTime(p.expires))
	}
	b.WriteByte('\n')
	for _, k := range p.keys {
		fmt.Fprintf(&b, "key %s name=%s roles=%s tenants=%s sources=%s", k.Public.OpenSSHLine(), k.Name,
			strings.Join(k.Roles, ","), strings.Join(k.Tenants, ","), strings.Join(k.Sources, ","))
		if !k.NotBefore.IsZero() {
			fmt.Fprintf(&b, " not-before=%s", FormatTime(k.NotBefore))
		}
		if !k.NotAfter.IsZero() {
			fmt.Fprintf(&b, " not-after=%s", FormatTime(k.NotAfter))
		}
		b.WriteByte('\n')
	}
	for _, l := range p.logs {
		fmt.Fprintf(&b, "log %s\n", l)
	}
	for _, w := range p.witnesses {
		fmt.Fprintf(&b, "witness %s %s\n", w.Name, w.Key)
	}
	for _, g := range p.groups {
		fmt.Fprintf(&b, "%s\n", g)
	}
	if p.quorum != "" {
		fmt.Fprintf(&b, "quorum %s\n", p.quorum)
	}
	for _, fp := range slices.Sorted(maps.Keys(p.retired)) {
		fmt.Fprintf(&b, "retired %s at=%s\n", fp, FormatTime(p.retired[fp].at))
	}
	for _, fp := range slices.Sorted(maps.Keys(p.compromised)) {
		fmt.Fprintf(&b, "compromised %s since=%s\n", fp, FormatTime(p.compromised[fp].at))
	}
	for _, role := range roles {
		if n, ok := p.thresholds[role]; ok {
			fmt.Fprintf(&b, "threshold %s %d\n", role, n)
		}
	}
	return b.String()
}
