package leafproof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"leafproof/manifest"
)

// policyDir keeps every version of the policy: N is the text of version N, N.sig
// the signatures over it. next and next.sig are a version that is not in force yet.
const (
	policyDir    = "policy"
	nextPolicy   = policyDir + "/next"
	policyLock   = policyDir + "/lock"
	signatureExt = ".sig"
)

// ErrPolicyFile is a trust.policy that is not the one that was signed: edited,
// put back from an earlier version, without its signatures, or gone.
var ErrPolicyFile = errors.New("trust.policy is not as it was signed")

// PolicyVersion is one version of a store's policy.
type PolicyVersion struct {
	Version  int64    `json:"version"`
	SignedBy []string `json:"signed_by"` // fingerprints, in the order of the file; empty: nobody
	// Root says that nothing before it vouches for it: it is the first, or the
	// one before it named no key that may sign.
	Root bool `json:"root"`

	signed manifest.SignedPolicy
	policy *manifest.Policy
}

// trust is whose word counts in a store, and what the store can sign with, as its
// files had it at one moment.
type trust struct {
	policy *manifest.Policy
	text   []byte          // of trust.policy
	chain  []PolicyVersion // ascending; empty in a store of the first version
	held   []heldKey
	stamp  fs.FileInfo // of trust.policy
}

// trustReader reads the trust of a store from its folder, again whenever
// trust.policy has changed.
type trustReader struct {
	dir string
	mu  sync.Mutex // one reads
	now atomic.Pointer[trust]
}

// current is the trust as of now. It costs a look at the file's time where nothing
// has changed.
func (r *trustReader) current() (*trust, error) {
	if t := r.now.Load(); t != nil && r.same(t) {
		return t, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.now.Load()
	if old != nil && r.same(old) {
		return old, nil
	}
	fresh, err := loadTrust(r.dir)
	if err != nil {
		return nil, err
	}
	if old != nil {
		if err := fresh.descends(old); err != nil {
			return nil, err
		}
	}
	r.now.Store(fresh)
	return fresh, nil
}

func (r *trustReader) same(t *trust) bool {
	fi, err := os.Stat(PolicyPath(r.dir))
	return err == nil && os.SameFile(fi, t.stamp) && fi.ModTime().Equal(t.stamp.ModTime()) && fi.Size() == t.stamp.Size()
}

// descends refuses what does not follow from the policy that this process worked
// under: whoever can write to the folder can put an older one back, with its
// signatures, but cannot make a running store forget.
func (t *trust) descends(old *trust) error {
	switch {
	case !old.policy.HasSigners():
		return nil // it was edited by hand
	case t.policy.Name() != old.policy.Name() || t.policy.Version() < old.policy.Version():
		return fmt.Errorf("%w: it is %s version %d, and this process has seen %s version %d: was an older one put back?",
			ErrPolicyFile, t.policy.Name(), t.policy.Version(), old.policy.Name(), old.policy.Version())
	}
	for _, v := range t.chain {
		if v.Version == old.policy.Version() && bytes.Equal(v.signed.Text, old.text) {
			return nil
		}
	}
	return fmt.Errorf("%w: it does not follow from version %d, as this process has seen it", ErrPolicyFile, old.policy.Version())
}

// loadTrust reads policy and keys, and checks every version's signatures.
func loadTrust(dir string) (*trust, error) {
	stamp, err := os.Stat(PolicyPath(dir)) // before it is read
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &unreadPolicyError{err}
	}
	if err != nil {
		return nil, err
	}
	t, err := loadPolicy(dir)
	if err != nil {
		return nil, err
	}
	t.stamp = stamp
	t.held, err = heldKeys(dir)
	return t, err
}

// unreadPolicyError is about a store's own trust.policy that is not there, or no
// policy: unlike one that a verifier brings, the store can put it back.
type unreadPolicyError struct{ error }

func (e *unreadPolicyError) Unwrap() []error { return []error{ErrPolicyFile, e.error} }

// loadPolicy is loadTrust without the keys.
func loadPolicy(dir string) (*trust, error) {
	t := &trust{}
	var err error
	if t.text, err = readPolicyFile(PolicyPath(dir), manifest.MaxPolicy); err != nil {
		return nil, err
	}
	if t.policy, err = manifest.ParsePolicy(t.text); err != nil {
		return nil, &unreadPolicyError{fmt.Errorf("%s: %w", PolicyPath(dir), err)}
	}
	if t.chain, err = policyChain(dir); err != nil {
		return nil, err
	}
	return t, t.inForce(dir)
}

// inForce holds trust.policy against the versions that are kept.
func (t *trust) inForce(dir string) error {
	version := t.policy.Version()
	var top *PolicyVersion
	if n := len(t.chain); n > 0 {
		top = &t.chain[n-1]
	}
	switch {
	case !t.policy.HasSigners() && (top == nil || !top.policy.HasSigners()):
		return nil // nobody signs here: it is edited by hand
	case top == nil:
	case version == top.Version && bytes.Equal(t.text, top.signed.Text):
		return nil
	case version == top.Version:
		return fmt.Errorf("%w: it is not the text of version %d that was signed", ErrPolicyFile, version)
	case version < top.Version:
		return fmt.Errorf("%w: it is version %d, and version %d is signed: was an older one put back?", ErrPolicyFile, version, top.Version)
	case version > top.Version+1 && top.policy.HasSigners():
		return fmt.Errorf("%w: it is version %d, and the newest that is kept is %d", ErrPolicyFile, version, top.Version)
	}
	v, err := t.settled(dir, top)
	if err != nil {
		return fmt.Errorf("%w: it is version %d, of which %s has no text, and no signatures that fit: %w", ErrPolicyFile, version, policyDir, err)
	}
	t.chain = append(t.chain, v)
	return nil
}

// settled is the version in trust.policy where a change was interrupted after it had
// come into force: its signatures stand beside next, or under its number already.
func (t *trust) settled(dir string, top *PolicyVersion) (v PolicyVersion, err error) {
	var before *manifest.Policy
	if top != nil && top.policy.HasSigners() {
		before = top.policy
	}
	for _, name := range []string{numbered(t.policy.Version()), nextPolicy} {
		text, readErr := readPolicyFile(filepath.Join(dir, filepath.FromSlash(name+signatureExt)), manifest.MaxPolicySignatures)
		if readErr != nil {
			err = readErr
			continue
		}
		if v, err = link(before, manifest.SignedPolicy{Text: t.text, Signatures: text}); err == nil {
			return v, nil
		}
	}
	return v, err
}

// numbered is the name of a version's text.
func numbered(version int64) string { return policyDir + "/" + strconv.FormatInt(version, 10) }

// policyChain reads the versions that are kept, and checks that each is signed as
// the one before it asks. With an error it returns those before the damaged one.
func policyChain(dir string) ([]PolicyVersion, error) {
	numbers, err := policyNumbers(dir)
	if err != nil {
		return nil, err
	}
	var chain []PolicyVersion
	var before *manifest.Policy
	for _, n := range numbers {
		if before != nil && !before.HasSigners() {
			before = nil // it was edited by hand, and vouches for nothing after it
		}
		name := numbered(n)
		signed, err := readSigned(dir, name)
		if err != nil {
			return chain, err
		}
		v, err := link(before, signed)
		if err == nil && v.Version != n {
			err = fmt.Errorf("it is version %d", v.Version)
		}
		if err != nil {
			return chain, blame(dir, name, signed, err)
		}
		chain, before = append(chain, v), v.policy
	}
	return chain, nil
}

// link is a version of a policy, checked against the one before it (nil: none).
func link(before *manifest.Policy, signed manifest.SignedPolicy) (PolicyVersion, error) {
	p, signers, err := manifest.Succeeds(before, signed)
	if err != nil {
		return PolicyVersion{}, err
	}
	if signers == nil {
		signers = []string{}
	}
	return PolicyVersion{Version: p.Version(), SignedBy: signers, Root: before == nil || !before.HasSigners(), signed: signed, policy: p}, nil
}

// policyNumbers lists the versions that are kept, ascending.
func policyNumbers(dir string) ([]int64, error) {
	entries, err := os.ReadDir(filepath.Join(dir, policyDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && n > 0 && strconv.FormatInt(n, 10) == e.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// readSigned reads a version and its signatures; no file of signatures is none.
func readSigned(dir, name string) (s manifest.SignedPolicy, err error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if s.Text, err = readPolicyFile(path, manifest.MaxPolicy); err != nil {
		return s, err
	}
	s.Signatures, err = readPolicyFile(path+signatureExt, manifest.MaxPolicySignatures)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// readPolicyFile reads a file of at most so many bytes.
func readPolicyFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, manifest.ErrTooLarge, most)
	}
	return text, err
}

// CheckPolicy says whether the trust policy of the store in dir is the newest version
// that was signed, for who is about to read it as a file. Where there is none, there
// is nothing to say. The error is [ErrPolicyFile], or that it does not parse.
func CheckPolicy(dir string) error {
	_, err := loadPolicy(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wireError("", err)
}

// trusted is the trust in force. After a change of the policy, by this process or
// another, the next call has the new one.
func (s *Store) trusted() (*trust, error) {
	if s.trust == nil {
		return &trust{policy: s.policy}, nil // a part of a store, for a check
	}
	return s.trust.current()
}

// ruling is the policy in force, by which a store judges what it reads and writes.
// One that has expired rules nothing here.
func (s *Store) ruling() (*manifest.Policy, error) {
	t, err := s.trusted()
	if err != nil {
		return nil, err
	}
	if s.trust == nil {
		return t.policy, nil
	}
	return t.policy, t.policy.Expired(time.Now())
}

// Policy is the trust policy that the store judges manifests by. It changes when a
// version comes into force, also one that another process signed; when the file
// is damaged meanwhile, it is the last one known, and the store refuses to work.
func (s *Store) Policy() *manifest.Policy {
	t, err := s.trusted()
	if err != nil {
		t = s.trust.now.Load()
	}
	return t.policy
}

// PolicyStatus says how the policy in force came to be, and what waits.
type PolicyStatus struct {
	Text     []byte          // of trust.policy
	Versions []PolicyVersion // all that are kept, ascending, checked
	Waiting  *PolicyChange   // the next version, where one lacks signatures; else nil
}

// PolicyStatus reads the policy and its versions anew and checks all signatures.
func (s *Store) PolicyStatus() (*PolicyStatus, error) {
	t, err := s.trusted()
	if err == nil && s.dir != "" {
		t, err = loadTrust(s.dir)
	}
	if err != nil {
		return nil, err
	}
	st := &PolicyStatus{Text: t.text, Versions: t.chain}
	waiting, err := s.waiting(t)
	if err == nil && waiting != nil {
		st.Waiting = new(waiting.report())
	}
	return st, err
}
