package leafproof_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"leafproof"
	"leafproof/internal/keys"
	"leafproof/manifest"
)

// issuer is the fingerprint of the key that signed an artifact's manifest.
func issuer(t *testing.T, s *leafproof.Store, id string) string {
	t.Helper()
	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return st.Manifest.Predicate.Issuer.KeyID
}

func publishNote(t *testing.T, s *leafproof.Store) string {
	t.Helper()
	return put(t, s, []byte("note\n"), leafproof.PutOptions{}, leafproof.Facts{})
}

// A store that is open works under a new version of the policy from its next call
// on, whoever signed it.
func TestPolicyIsPickedUp(t *testing.T) {
	s, dir := newStore(t)
	other := openStore(t, dir)
	old := publishNote(t, s)
	k, err := other.NewKey(t.Context(), leafproof.NewKeyOptions{})
	if err != nil || !k.Policy.InForce || k.Name != "store-2" || k.File != "keys/manifest-2" {
		t.Fatalf("NewKey = %+v, %v", k, err)
	}
	if got := s.Policy().Version(); got != 2 {
		t.Errorf("the policy is version %d here", got)
	}
	if by := issuer(t, s, publishNote(t, s)); by != k.Fingerprint {
		t.Errorf("it signs with %s, not with the new key %s", by, k.Fingerprint)
	}
	// Its end is seen as well, and what is older is still read.
	first := issuer(t, s, old)
	for _, fp := range []string{k.Fingerprint, first} {
		if c, err := other.ChangePolicy(t.Context(), manifest.Retire(fp, time.Now())); err != nil || !c.InForce {
			t.Fatalf("ChangePolicy = %+v, %v", c, err)
		}
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, old); err != nil {
		t.Errorf("what a retired key had signed before: %v", err)
	}
	d, err := s.Put(t.Context(), strings.NewReader("x"), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context(), d, leafproof.Facts{}); !errors.Is(err, leafproof.ErrNoKey) || !errors.Is(err, manifest.ErrRetired) {
		t.Errorf("all keys are retired, and Publish says %v", err)
	}
	if _, err := other.ChangePolicy(t.Context(), manifest.Compromise(first, time.Now())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, old); leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
		t.Errorf("what a stolen key signed: %v", err)
	}
}

// An older version that is put back with all that belongs to it, while a store is
// open, is noticed; and a store that is opened later sees that the newer is gone
// only as long as it is kept.
func TestPolicyRollback(t *testing.T) {
	s, dir := newStore(t)
	before := copyDir(t, dir)
	if _, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{"audit"}}); err != nil {
		t.Fatal(err)
	}
	id := publishNote(t, s)
	restore := func(name string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(before, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	restore("trust.policy")
	if _, err := leafproof.Open(t.Context(), dir); !errors.Is(err, leafproof.ErrPolicyFile) || leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
		t.Errorf("Open = %v", err)
	}
	for _, name := range []string{"policy/2", "policy/2.sig"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"read":   func() error { _, err := s.Resolve(t.Context(), leafproof.Owner, id); return err }(),
		"sign":   func() error { _, err := s.Signer("manifest"); return err }(),
		"change": func() error { _, err := s.ChangePolicy(t.Context(), manifest.ExpireAt(time.Time{})); return err }(),
	} {
		if !errors.Is(err, leafproof.ErrPolicyFile) || !strings.Contains(err.Error(), "was an older one put back?") {
			t.Errorf("%s under a policy that was put back: %v", what, err)
		}
	}
	if s.Policy().Version() != 2 {
		t.Errorf("the policy is version %d", s.Policy().Version())
	}
}

// A version 2 that this process has not seen, beside its own version 2, is refused.
func TestPolicyFork(t *testing.T) {
	s, dir := newStore(t)
	fork := copyDir(t, dir)
	if _, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{"audit"}}); err != nil {
		t.Fatal(err)
	}
	other := openStore(t, fork)
	for range 2 { // version 3 of the fork follows from the fork's version 2
		if _, err := other.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{"audit"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"policy/2", "policy/2.sig", "policy/3", "policy/3.sig", "trust.policy"} {
		text, err := os.ReadFile(filepath.Join(fork, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Signer("manifest"); !errors.Is(err, leafproof.ErrPolicyFile) || !strings.Contains(err.Error(), "does not follow") {
		t.Errorf("a fork: %v", err)
	}
}

// Changes at once, from several processes, are versions one after the other.
func TestPolicyChangesAtOnce(t *testing.T) {
	s, dir := newStore(t)
	var wg sync.WaitGroup
	for range 4 {
		other := openStore(t, dir)
		for range 3 {
			wg.Go(func() {
				if _, err := other.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{"audit"}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	st, err := s.PolicyStatus()
	if err != nil || len(st.Versions) != 13 || len(s.Policy().Keys()) != 5+12 || st.Waiting != nil {
		t.Errorf("status = %+v, %v", st, err)
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{}); r.Damaged() {
		t.Errorf("findings = %+v", r.Findings)
	}
}

// Whatever of a change is done when it stops, the store opens: under the version
// before while trust.policy is not replaced, under the new one from then on. The
// next change ends what was begun.
func TestPolicyChangeInterrupted(t *testing.T) {
	s, dir := newStore(t)
	before := copyDir(t, dir)
	if _, err := s.ChangePolicy(t.Context(), manifest.ExpireAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))); err != nil {
		t.Fatal(err)
	}
	// The steps of a change, in their order: name in the folder, file of the result.
	steps := []struct{ name, from string }{
		{"policy/next", "policy/2"},
		{"policy/next.sig", "policy/2.sig"},
		{"trust.policy", "trust.policy"},
		{"policy/2.sig", "policy/2.sig"},
		{"policy/2", "policy/2"},
		{"policy/next", ""},
		{"policy/next.sig", ""},
	}
	for done := range len(steps) + 1 {
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			at := copyDir(t, before)
			for _, step := range steps[:done] {
				path := filepath.Join(at, step.name)
				if step.from == "" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					continue
				}
				text, err := os.ReadFile(filepath.Join(dir, step.from))
				if err == nil {
					err = os.WriteFile(path, text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want := int64(1)
			if done >= 3 {
				want = 2
			}
			o := openStore(t, at)
			if got := o.Policy().Version(); got != want {
				t.Errorf("version %d is in force, want %d", got, want)
			}
			if r := mustCheck(t, at, leafproof.CheckOptions{}); r.Damaged() {
				t.Errorf("findings = %+v", r.Findings)
			}
			if done == 1 || done == 2 { // it waits
				st, err := o.PolicyStatus()
				if err != nil || st.Waiting == nil || st.Waiting.Version != 2 || len(st.Waiting.SignedBy) != done-1 {
					t.Errorf("status = %+v, %v", st, err)
				}
				if c, err := o.SignPolicy(t.Context(), leafproof.SignOptions{}); err != nil || !c.InForce {
					t.Errorf("SignPolicy = %+v, %v", c, err)
				}
			}
			if c, err := o.ChangePolicy(t.Context(), manifest.ExpireAt(time.Time{})); err != nil || c.Version != map[bool]int64{true: 2, false: 3}[done == 0] {
				t.Errorf("the next change: %+v, %v", c, err)
			}
			st, err := o.PolicyStatus()
			if err != nil || st.Waiting != nil || int64(len(st.Versions)) != o.Policy().Version() {
				t.Errorf("status = %+v, %v", st, err)
			}
			if _, err := os.Stat(filepath.Join(at, "policy", "next")); err == nil {
				t.Error("policy/next is left")
			}
		})
	}
}

// A backup has the policy in force and all its versions, with and without keys; one
// that is made again has the new ones.
func TestPolicyBackup(t *testing.T) {
	s, dir := newStore(t)
	to := filepath.Join(t.TempDir(), "backup")
	for version := int64(1); version <= 3; version++ {
		if _, err := leafproof.Backup(t.Context(), dir, to, leafproof.BackupOptions{WithKeys: version > 1}); err != nil {
			t.Fatal(err)
		}
		if r := mustCheck(t, to, leafproof.CheckOptions{}); r.Damaged() {
			t.Errorf("version %d: findings = %+v", version, r.Findings)
		}
		if version > 1 {
			b := openStore(t, to)
			if st, err := b.PolicyStatus(); err != nil || b.Policy().Version() != version || int64(len(st.Versions)) != version {
				t.Errorf("version %d: status = %+v, %v", version, st, err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// kms is a signer that shows its public half only.
type kms struct {
	crypto.Signer
	calls int
	lie   bool
}

func (k *kms) Sign(random io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.calls++
	if k.lie {
		message = []byte("something else")
	}
	return k.Signer.Sign(random, message, opts)
}

// admitKey adds the key of somebody to a store's policy.
func admitKey(t *testing.T, s *leafproof.Store, name string, public manifest.PublicKey, roles ...string) {
	t.Helper()
	if c, err := s.ChangePolicy(t.Context(), manifest.AddKey(manifest.Key{Name: name, Public: public, Roles: roles})); err != nil || !c.InForce {
		t.Fatalf("ChangePolicy = %+v, %v", c, err)
	}
}

func TestWithSigner(t *testing.T) {
	s, dir := newStore(t)
	key, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := &kms{Signer: key.Signer}
	with := openStore(t, dir, leafproof.WithSigner(manifest.RoleManifest, elsewhere))
	d, err := with.Put(t.Context(), strings.NewReader("x"), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := with.Publish(t.Context(), d, leafproof.Facts{}); !errors.Is(err, leafproof.ErrNoKey) {
		t.Errorf("a key that the policy does not know: %v", err)
	}
	admitKey(t, s, "kms", key.Public, manifest.RoleManifest)
	id := publishNote(t, with)
	if by := issuer(t, s, id); by != key.Public.Fingerprint() || elsewhere.calls != 2 {
		t.Errorf("signed by %s in %d calls", by, elsewhere.calls)
	}
	elsewhere.lie = true
	if d, err = with.Put(t.Context(), strings.NewReader("y"), leafproof.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := with.Publish(t.Context(), d, leafproof.Facts{}); !errors.Is(err, manifest.ErrSignature) {
		t.Errorf("a wrong signature: %v", err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leafproof.Open(t.Context(), dir, leafproof.WithSigner("audit", other)); !errors.Is(err, manifest.ErrKey) {
		t.Errorf("another type of key: %v", err)
	}
	list, err := with.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		want := map[bool]string{true: "given"}[k.Fingerprint == key.Public.Fingerprint()]
		if k.Role == manifest.RoleManifest && k.Held != want {
			t.Errorf("%+v", k)
		}
	}
}

// A key of the policy whose private half an ssh-agent has signs as one in a file.
func TestStoreAgent(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no ssh-agent socket here")
	}
	key, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Marshal("")
	if err != nil {
		t.Fatal(err)
	}
	private, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "lp") // a short path, for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	l, err := net.Listen("unix", filepath.Join(tmp, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = agent.ServeAgent(ring, conn)
			}()
		}
	}()
	s, dir := newStore(t)
	admitKey(t, s, "agent", key.Public, manifest.RoleManifest, manifest.RolePolicy)
	first := issuer(t, s, publishNote(t, s)) // no agent is known to it
	if first == key.Public.Fingerprint() {
		t.Fatal("the store has signed with a key that it does not have")
	}
	t.Setenv("SSH_AUTH_SOCK", l.Addr().String())
	with := openStore(t, dir)
	if by := issuer(t, s, publishNote(t, with)); by != key.Public.Fingerprint() {
		t.Errorf("signed by %s", by)
	}
	list, err := with.Keys()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(list), "ssh-agent") {
		t.Errorf("keys = %v", list)
	}
	// It signs versions of the policy too.
	if c, err := with.ChangePolicy(t.Context(), manifest.Demand(manifest.RolePolicy, 2)); err != nil || !c.InForce {
		t.Fatalf("ChangePolicy = %+v, %v", c, err)
	}
	if c, err := with.ChangePolicy(t.Context(), manifest.Demand(manifest.RolePolicy, 1)); err != nil || len(c.SignedBy) != 2 {
		t.Errorf("ChangePolicy = %+v, %v", c, err)
	}
	// An agent that is gone is no reason not to use a file.
	l.Close()
	if by := issuer(t, s, publishNote(t, with)); by != first {
		t.Errorf("signed by %s", by)
	}
	if err := os.Remove(filepath.Join(dir, "keys", "manifest")); err != nil {
		t.Fatal(err)
	}
	alone := openStore(t, dir)
	if _, err := alone.Signer(manifest.RoleManifest); !errors.Is(err, leafproof.ErrNoKey) || !errors.Is(err, keys.ErrAgent) {
		t.Errorf("no agent and no file: %v", err)
	}
}

// Of several keys the one signs that may speak for the tenant.
func TestSignerOfTenant(t *testing.T) {
	s, _ := newStore(t)
	k, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Name: "acme", Tenants: []string{"acme*"}, Sources: []string{"infra.*"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		tenant, source string
		acme           bool
	}{
		"its own":        {"acme_prod", "infra.x", true},
		"other source":   {"acme_prod", "billing", false},
		"no source":      {"acme_prod", "", false},
		"another tenant": {"local", "infra.x", false},
	} {
		t.Run(name, func(t *testing.T) {
			id := put(t, s, []byte("x"), leafproof.PutOptions{Tenant: test.tenant}, leafproof.Facts{SourceID: test.source})
			if by := issuer(t, s, id); (by == k.Fingerprint) != test.acme {
				t.Errorf("signed by %s", by)
			}
		})
	}
}

// A policy that has expired rules nothing, and can be renewed.
func TestPolicyExpires(t *testing.T) {
	s, _ := newStore(t)
	id := publishNote(t, s)
	if _, err := s.ChangePolicy(t.Context(), manifest.ExpireAt(time.Now().Add(-time.Second))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, id); leafproof.CodeOf(err) != leafproof.CodeAuthorityUnavailable || !errors.Is(err, manifest.ErrPolicyExpired) {
		t.Errorf("Resolve = %v", err)
	}
	if _, err := s.Signer("manifest"); !errors.Is(err, manifest.ErrPolicyExpired) {
		t.Errorf("Signer = %v", err)
	}
	if _, err := s.ChangePolicy(t.Context(), manifest.ExpireAt(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, id); err != nil {
		t.Error(err)
	}
}

func BenchmarkPolicyLook(b *testing.B) {
	s, _ := newStore(b)
	for b.Loop() {
		if s.Policy() == nil {
			b.Fatal("no policy")
		}
	}
}
