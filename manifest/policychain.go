package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// NamespacePolicy is the SSH namespace in which versions of a policy are signed:
// `ssh-keygen -Y sign -n policy@leafproof -f KEY FILE` signs one.
const NamespacePolicy = RolePolicy + "@leafproof"

// MaxPolicySignatures is the largest text of a version's signatures, in bytes.
const MaxPolicySignatures = MaxSignatures * maxArmor

// SignedPolicy is a version of a policy as it stands in files: its text, and the
// armored SSH signatures over exactly this text, one after the other.
type SignedPolicy struct {
	Text       []byte
	Signatures []byte
}

// Parse reads the text and the signatures. It checks none: see [Succeeds].
func (s SignedPolicy) Parse() (*Policy, []SSHSignature, error) {
	p, err := ParsePolicy(s.Text)
	if err != nil {
		return nil, nil, err
	}
	sigs, err := ParseSSHAll(s.Signatures)
	return p, sigs, err
}

// ParseSSHAll reads armored signatures that stand one after the other, at most
// [MaxSignatures], no two by one key. No text is none.
func ParseSSHAll(text []byte) ([]SSHSignature, error) {
	const op = "parse SSH signatures"
	if len(text) > MaxPolicySignatures {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxPolicySignatures)}
	}
	var sigs []SSHSignature
	for rest := string(text); rest != ""; {
		i := strings.Index(rest, armorEnd)
		if i < 0 || len(sigs) == MaxSignatures {
			return nil, &Error{Op: op, Err: fmt.Errorf("%w: after %d signatures comes something else, or one too many", ErrMalformed, len(sigs))}
		}
		s, err := ParseSSH(rest[:i+len(armorEnd)])
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sigs, func(o SSHSignature) bool { return o.key == s.key }) {
			return nil, &Error{Op: op, Err: fmt.Errorf("%w: two signatures by %s", ErrMalformed, s.key.Fingerprint())}
		}
		sigs, rest = append(sigs, s), rest[i+len(armorEnd):]
	}
	return sigs, nil
}

// Succeeds says whether a version of a policy is signed as the one before it
// demands: it has the same name and the next number, and at least as many keys as
// before's threshold for [RolePolicy] signed it, each with that role in before and
// neither retired nor compromised there. It returns the fingerprints of these
// keys. A version is not dated, so that the keys' time windows and the end of the
// version before are not looked at: whoever signs looks at them.
//
// before is nil for the first version of all, which is signed by the keys that it
// names itself. So is a version whose predecessor names no key of the role: that
// one could not sign, and nothing vouches for the step. A version that names no
// such key itself, and has no predecessor that does, is nobody's word: it is
// returned with no signer and no error.
//
// The error wraps [ErrUnsigned], [ErrSignature] or [ErrPolicy].
func Succeeds(before *Policy, signed SignedPolicy) (after *Policy, signers []string, err error) {
	const op = "check a policy's signatures"
	after, sigs, err := signed.Parse()
	if err != nil {
		return nil, nil, err
	}
	if before != nil && (after.name != before.name || after.version != before.version+1) {
		return nil, nil, &Error{Op: op, Err: fmt.Errorf("%w: %s version %d does not follow %s version %d",
			ErrPolicy, after.name, after.version, before.name, before.version)}
	}
	judge := before
	if before == nil || !before.HasSigners() {
		if judge = after; !after.HasSigners() {
			return after, nil, nil
		}
	}
	for _, s := range sigs {
		k, ok := judge.key(s.key.Fingerprint())
		if !ok || !judge.maySign(k) {
			continue
		}
		if err := s.Verify(signed.Text, NamespacePolicy, k.Public); err != nil {
			return nil, nil, &Error{Op: op, At: fmt.Sprintf("version %d", after.version), Err: err}
		}
		signers = append(signers, k.Public.Fingerprint())
	}
	if want := judge.Threshold(RolePolicy); len(signers) < want {
		return after, signers, &Error{
			Op: op, At: fmt.Sprintf("version %d", after.version),
			Err: fmt.Errorf("%w: %d of the %d keys that version %d asks for signed it", ErrUnsigned, len(signers), want, judge.version),
		}
	}
	return after, signers, nil
}

// HasSigners reports whether the policy names a key that signs its versions, be it
// retired.
func (p *Policy) HasSigners() bool {
	return slices.ContainsFunc(p.keys, func(k Key) bool { return slices.Contains(k.Roles, RolePolicy) })
}

// Signable reports whether the policy names enough keys that may sign its next
// version. After one that does not, there is none.
func (p *Policy) Signable() bool {
	n := 0
	for _, k := range p.keys {
		if p.maySign(k) {
			n++
		}
	}
	return n >= p.Threshold(RolePolicy)
}

// maySign reports whether a key of the policy may sign its next version.
func (p *Policy) maySign(k Key) bool {
	fp := k.Public.Fingerprint()
	_, compromised := p.compromised[fp]
	_, retired := p.retired[fp]
	return slices.Contains(k.Roles, RolePolicy) && !compromised && !retired
}

// PolicySigners returns the keys that may sign the policy's next version at a time.
func (p *Policy) PolicySigners(at time.Time) []Key {
	var keys []Key
	for _, k := range p.keys {
		if p.maySign(k) && p.StateOf(k.Public, at) == KeyActive {
			keys = append(keys, k)
		}
	}
	return keys
}

// AllowedSigners is the policy as a file for ssh-keygen -Y verify: a line for each
// key, the principals TENANT/SOURCE, the namespaces ROLE@leafproof, and valid-after
// and valid-before as its window. Keys that are retired or compromised are left
// out. (OpenSSH knows neither thresholds nor when a statement was made, and its *
// stands for any characters: where its answer is weaker, VERIFY.md says.)
func (p *Policy) AllowedSigners() string {
	var b strings.Builder
	for _, k := range p.keys {
		fp := k.Public.Fingerprint()
		if p.compromised[fp] != (ending{}) || p.retired[fp] != (ending{}) {
			continue
		}
		fmt.Fprintf(&b, "%s namespaces=\"%s\"", strings.Join(principals(k), ","), strings.Join(namespaces(k.Roles), ","))
		if !k.NotBefore.IsZero() {
			fmt.Fprintf(&b, ",valid-after=\"%s\"", sshTime(k.NotBefore, true))
		}
		if !k.NotAfter.IsZero() {
			fmt.Fprintf(&b, ",valid-before=\"%s\"", sshTime(k.NotAfter, false))
		}
		fmt.Fprintf(&b, " %s %s\n", k.Public.OpenSSHLine(), k.Name)
	}
	return b.String()
}

// Principal is what ssh-keygen is given with -I for a statement about a tenant and
// a source ("" for none).
func Principal(tenant, source string) string { return tenant + "/" + source }

func principals(k Key) []string {
	var list []string
	for _, t := range k.Tenants {
		for _, s := range k.Sources {
			list = append(list, Principal(t, s))
		}
	}
	return list
}

func namespaces(roles []string) []string {
	list := make([]string, len(roles))
	for i, r := range roles {
		list[i] = r + "@leafproof"
	}
	return list
}

// sshTime writes the first, or else the last, second of a window. Both of OpenSSH's
// bounds belong to the window, and its times are whole seconds.
func sshTime(bound time.Time, first bool) string {
	t := bound.Truncate(time.Second)
	if t.Before(bound) {
		t = t.Add(time.Second)
	}
	if !first {
		t = t.Add(-time.Second)
	}
	return t.UTC().Format("20060102150405Z")
}
