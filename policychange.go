package leafproof

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"leafproof/internal/flock"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
)

// ErrPolicyWaits is a change of a policy whose next version waits for signatures.
var ErrPolicyWaits = errors.New("a version of the policy waits for signatures already")

// policyPatience is how long a change waits for another one to end.
const policyPatience = 5 * time.Second

// PolicyChange says what became of a version of the policy.
type PolicyChange struct {
	Version int64 `json:"version"`
	// InForce says that it is in trust.policy. Otherwise it waits in policy/next
	// for the signatures of more keys.
	InForce  bool     `json:"in_force"`
	SignedBy []string `json:"signed_by"` // fingerprints
	Needed   int      `json:"needed"`    // how many of SignedBy there must be
	// May are the fingerprints of the keys that may sign it.
	May []string `json:"may_sign"`
}

// ChangePolicy makes the next version of the store's policy, signs it with the
// keys of the role policy that are at hand, and puts it into force when they are
// as many as the version in force asks for. Otherwise it waits for
// [Store.SignPolicy]. Every process that has the store open works under it from its
// next call on.
//
// A change that would leave too few keys to sign the version after it is refused
// with [manifest.ErrPolicy], and one while another waits with [ErrPolicyWaits].
func (s *Store) ChangePolicy(ctx context.Context, changes ...manifest.Change) (PolicyChange, error) {
	return s.changePolicy(ctx, func(*policyEditor) ([]manifest.Change, error) { return changes, nil }, nil)
}

// SignOptions say what [Store.SignPolicy] signs.
type SignOptions struct {
	// Text is the next version, as somebody edited it; nil is the one that waits.
	Text []byte
	// Signature is what another program signed the version that waits with, as
	// ssh-keygen -Y sign -n policy@leafproof writes it; nil is to sign here.
	Signature []byte
	// Drop gives up the version that waits.
	Drop bool
}

// SignPolicy adds the signatures of the keys at hand, or one made elsewhere, to the
// version of the policy that waits, and puts it into force when they are enough.
func (s *Store) SignPolicy(ctx context.Context, o SignOptions) (PolicyChange, error) {
	e, err := s.editPolicy(ctx)
	if err != nil {
		return PolicyChange{}, err
	}
	defer e.close()
	waits, err := s.waiting(e.trust)
	switch {
	case err != nil:
		return PolicyChange{}, err
	case o.Drop && waits == nil, o.Text == nil && waits == nil:
		return PolicyChange{}, fail(CodeSelectorInvalid, FixCall, "policy", "no version of the policy waits for signatures; version %d is in force", e.trust.policy.Version())
	case o.Drop:
		return PolicyChange{Version: waits.policy.Version(), SignedBy: []string{}, May: []string{}}, e.dropNext()
	case o.Text != nil && waits != nil:
		return PolicyChange{}, fmt.Errorf("%w: version %d", ErrPolicyWaits, waits.policy.Version())
	case o.Text != nil:
		if waits, err = e.draft(o.Text); err != nil {
			return PolicyChange{}, err
		}
	}
	if o.Signature != nil {
		if err := waits.add(o.Signature); err != nil {
			return PolicyChange{}, err
		}
		return s.seen(e.settle(waits))
	}
	if err := s.signNext(e.trust, waits); err != nil {
		return PolicyChange{}, err
	}
	return s.seen(e.settle(waits))
}

// policyEditor changes the policy; it holds the lock that only one may.
type policyEditor struct {
	dir   string
	root  *rootfs.FS
	lock  *flock.Lock
	trust *trust
}

// editPolicy takes the lock and reads what is in force.
func (s *Store) editPolicy(ctx context.Context) (_ *policyEditor, err error) {
	if s.dir == "" {
		return nil, fail(CodeInternal, Stop, "policy", "this store has no folder")
	}
	root, err := rootfs.Open(s.dir)
	if err != nil {
		return nil, err
	}
	e := &policyEditor{dir: s.dir, root: root}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if err := rootfs.MakeDirs(root, policyDir); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		e.lock, err = flock.Exclusive(filepath.Join(s.dir, filepath.FromSlash(policyLock)))
		if !errors.Is(err, flock.ErrHeld) || time.Since(begin) > policyPatience {
			break
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if e.trust, err = loadTrust(s.dir); err != nil {
		return nil, err
	}
	if old := s.trust.now.Load(); old != nil {
		if err := e.trust.descends(old); err != nil {
			return nil, err
		}
	}
	return e, e.tidy()
}

func (e *policyEditor) close() {
	if e.lock != nil {
		e.lock.Close()
	}
	e.root.Close()
}

// tidy ends what an earlier change had begun: a version that is in force is kept
// under its number, and what stands in next is then no more than a copy.
func (e *policyEditor) tidy() error {
	if len(e.trust.chain) > 0 {
		top := e.trust.chain[len(e.trust.chain)-1]
		if err := keepPolicy(e.dir, top.signed, top.Version); err != nil {
			return err
		}
	}
	next, err := readSigned(e.dir, nextPolicy)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if p, err := manifest.ParsePolicy(next.Text); err != nil || p.Version() > e.trust.policy.Version() {
		return nil // it waits, or says so itself
	}
	return e.dropNext()
}

// keepPolicy stores a version under its number in a store's folder: the text last,
// because it makes the version count.
func keepPolicy(dir string, signed manifest.SignedPolicy, version int64) error {
	name := numbered(version)
	if there, err := readSigned(dir, name); err == nil && bytes.Equal(there.Text, signed.Text) && bytes.Equal(there.Signatures, signed.Signatures) {
		return nil
	}
	if len(signed.Signatures) > 0 {
		if err := replaceFile(dir, name+signatureExt, signed.Signatures); err != nil {
			return err
		}
	}
	return replaceFile(dir, name, signed.Text)
}

func (e *policyEditor) dropNext() error {
	for _, name := range []string{nextPolicy, nextPolicy + signatureExt} {
		if err := e.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return rootfs.SyncDir(e.root, policyDir)
}

// nextVersion is a version that is being signed.
type nextVersion struct {
	signed manifest.SignedPolicy
	policy *manifest.Policy
	judge  *manifest.Policy // whose keys sign it
	sigs   []manifest.SSHSignature
}

// waiting is the version that waits; nil is none.
func (s *Store) waiting(t *trust) (*nextVersion, error) {
	if s.dir == "" {
		return nil, nil
	}
	signed, err := readSigned(s.dir, nextPolicy)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := newNext(t.policy, signed)
	if err != nil {
		if p, bad := manifest.ParsePolicy(signed.Text); bad == nil && p.Version() <= t.policy.Version() {
			return nil, nil // a copy of what is in force, or older
		}
		return nil, fmt.Errorf("%s: %w (`leafproof policy sign --drop` gives it up)", nextPolicy, err)
	}
	return n, nil
}

// newNext reads a version that is to follow another.
func newNext(before *manifest.Policy, signed manifest.SignedPolicy) (*nextVersion, error) {
	n := &nextVersion{signed: signed, judge: before}
	var err error
	if n.policy, n.sigs, err = signed.Parse(); err != nil {
		return nil, err
	}
	if n.policy.Name() != before.Name() || n.policy.Version() != before.Version()+1 {
		return nil, fmt.Errorf("%w: it is %s version %d, and %s version %d is in force", manifest.ErrPolicy,
			n.policy.Name(), n.policy.Version(), before.Name(), before.Version())
	}
	if !before.HasSigners() {
		n.judge = n.policy
	}
	if !n.policy.Signable() && (before.HasSigners() || n.policy.HasSigners()) {
		return nil, fmt.Errorf("%w: after version %d too few keys could sign the next one", manifest.ErrPolicy, n.policy.Version())
	}
	return n, nil
}

// draft begins the next version with a text.
func (e *policyEditor) draft(text []byte) (*nextVersion, error) {
	n, err := newNext(e.trust.policy, manifest.SignedPolicy{Text: text})
	if err != nil {
		return nil, err
	}
	if !e.trust.policy.HasSigners() { // the version before is kept too, though nobody signed it
		return n, keepPolicy(e.dir, manifest.SignedPolicy{Text: e.trust.text}, e.trust.policy.Version())
	}
	return n, nil
}

// add adds signatures made elsewhere.
func (n *nextVersion) add(text []byte) error {
	more, err := manifest.ParseSSHAll(text)
	if err != nil {
		return err
	}
	for _, sig := range more {
		i := slices.IndexFunc(n.judge.PolicySigners(time.Now()), func(k manifest.Key) bool { return k.Public == sig.Key() })
		if i < 0 {
			return fmt.Errorf("%w: %s may not sign version %d", manifest.ErrRole, sig.Key().Fingerprint(), n.policy.Version())
		}
		if err := sig.Verify(n.signed.Text, manifest.NamespacePolicy, sig.Key()); err != nil {
			return err
		}
		n.put(sig)
	}
	return nil
}

// put adds a signature, in the order of the fingerprints; one by the same key goes.
func (n *nextVersion) put(sig manifest.SSHSignature) {
	n.sigs = slices.DeleteFunc(n.sigs, func(o manifest.SSHSignature) bool { return o.Key() == sig.Key() })
	n.sigs = append(n.sigs, sig)
	slices.SortFunc(n.sigs, func(a, b manifest.SSHSignature) int {
		return bytes.Compare([]byte(a.Key().Fingerprint()), []byte(b.Key().Fingerprint()))
	})
	n.signed.Signatures = nil
	for _, s := range n.sigs {
		n.signed.Signatures = append(n.signed.Signatures, s.Armor()...)
	}
}

// signNext signs with the keys at hand, as far as signatures are missing.
func (s *Store) signNext(t *trust, n *nextVersion) error {
	may := n.judge.PolicySigners(time.Now())
	wanted := make([]manifest.PublicKey, len(may))
	for i, k := range may {
		wanted[i] = k.Public
	}
	ring := s.ring(t, manifest.RolePolicy, wanted)
	for _, k := range may {
		if len(n.by()) >= n.judge.Threshold(manifest.RolePolicy) {
			return nil
		}
		if slices.ContainsFunc(n.sigs, func(o manifest.SSHSignature) bool { return o.Key() == k.Public }) {
			continue
		}
		signer, err := ring.find(k.Public)
		if err != nil {
			return err
		}
		if signer == nil {
			continue
		}
		if err := n.sign(signer); err != nil {
			return err
		}
	}
	return nil
}

func (n *nextVersion) sign(by crypto.Signer) error {
	armored, err := manifest.SignSSH(n.signed.Text, manifest.NamespacePolicy, by)
	if err != nil {
		return err
	}
	sig, err := manifest.ParseSSH(armored)
	if err != nil {
		return err
	}
	n.put(sig)
	return nil
}

// by are the fingerprints of the keys that signed and may.
func (n *nextVersion) by() []string {
	prints := []string{}
	for _, sig := range n.sigs {
		if slices.ContainsFunc(n.judge.PolicySigners(time.Now()), func(k manifest.Key) bool { return k.Public == sig.Key() }) {
			prints = append(prints, sig.Key().Fingerprint())
		}
	}
	return prints
}

func (n *nextVersion) report() PolicyChange {
	c := PolicyChange{Version: n.policy.Version(), SignedBy: n.by(), May: []string{}, Needed: n.judge.Threshold(manifest.RolePolicy)}
	if !n.judge.HasSigners() {
		c.Needed = 0 // nobody signs the policy of this store
	}
	for _, k := range n.judge.PolicySigners(time.Now()) {
		c.May = append(c.May, k.Public.Fingerprint())
	}
	return c
}

// settle stores the version as it stands. With enough signatures it comes into
// force: first it is whole in next, then trust.policy is replaced by it in one
// step, then it is kept under its number. So whatever a crash leaves is either the
// version before with this one waiting, or this one.
func (e *policyEditor) settle(n *nextVersion) (PolicyChange, error) {
	c := n.report()
	there, err := readSigned(e.dir, nextPolicy)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if err != nil || !bytes.Equal(there.Text, n.signed.Text) {
		// Signatures of another text must never stand beside this one.
		if err := e.dropNext(); err != nil {
			return c, err
		}
		if err := replaceFile(e.dir, nextPolicy, n.signed.Text); err != nil {
			return c, err
		}
	}
	if len(n.signed.Signatures) > 0 {
		if err := replaceFile(e.dir, nextPolicy+signatureExt, n.signed.Signatures); err != nil {
			return c, err
		}
	}
	if len(c.SignedBy) < c.Needed {
		return c, nil
	}
	if _, _, err := manifest.Succeeds(e.trust.policy, n.signed); err != nil {
		return c, err // what does not count for a reader must not come into force
	}
	if err := replaceFile(e.dir, policyFile, n.signed.Text); err != nil {
		return c, err
	}
	c.InForce = true
	return c, errors.Join(keepPolicy(e.dir, n.signed, n.policy.Version()), e.dropNext())
}

// changePolicy makes, signs and settles a version whose changes are found once the
// lock is held. undo, where set, takes back what finding them did, when nothing
// came of the version.
func (s *Store) changePolicy(ctx context.Context, find func(*policyEditor) ([]manifest.Change, error), undo func(*policyEditor) error) (PolicyChange, error) {
	e, err := s.editPolicy(ctx)
	if err != nil {
		return PolicyChange{}, err
	}
	defer e.close()
	n, err := s.draftChange(e, find)
	if err != nil {
		if undo != nil {
			err = errors.Join(err, undo(e))
		}
		return PolicyChange{}, err
	}
	return s.seen(e.settle(n))
}

// seen makes this process remember a version that it put into force.
func (s *Store) seen(c PolicyChange, err error) (PolicyChange, error) {
	if !c.InForce {
		return c, err
	}
	_, bad := s.trust.current()
	if bad == nil {
		bad = s.logPolicy(context.Background())
	}
	// What may be shown rests on whose word counts: every permit is looked at anew.
	return c, errors.Join(err, bad, s.catalogue.RaiseEpoch(context.Background()))
}

// draftChange makes and signs a version; nothing of it is stored.
func (s *Store) draftChange(e *policyEditor, find func(*policyEditor) ([]manifest.Change, error)) (*nextVersion, error) {
	if waits, err := s.waiting(e.trust); err != nil {
		return nil, err
	} else if waits != nil {
		return nil, fmt.Errorf("%w: version %d", ErrPolicyWaits, waits.policy.Version())
	}
	changes, err := find(e)
	if err != nil {
		return nil, err
	}
	next, err := e.trust.policy.Next(changes...)
	if err != nil {
		return nil, err
	}
	n, err := e.draft([]byte(next.String()))
	if err != nil {
		return nil, err
	}
	return n, s.signNext(e.trust, n)
}
