package leafproof_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
)

// signers are the fingerprints of the keys that a store signs with, by role.
func signers(t *testing.T, s *leafproof.Store, roles ...string) map[string]string {
	t.Helper()
	prints := map[string]string{}
	for _, role := range roles {
		signer, err := s.Signer(role)
		if err != nil {
			t.Fatal(err)
		}
		k, err := manifest.PublicKeyOf(signer)
		if err != nil {
			t.Fatal(err)
		}
		prints[role] = k.Fingerprint()
	}
	return prints
}

// Every kind of speaker has a key of its own in a new store.
func TestInitKeys(t *testing.T) {
	s, dir := newStore(t)
	prints := signers(t, s, "manifest", "index", "supersede", "receipt", "tombstone", "deletion", "audit", "policy", "log")
	for _, same := range [][]string{{"manifest", "index", "supersede"}, {"tombstone", "deletion"}} {
		for _, role := range same {
			if prints[role] != prints[same[0]] {
				t.Errorf("%s and %s are not one key", same[0], role)
			}
		}
	}
	distinct := map[string]string{}
	for _, role := range []string{"manifest", "receipt", "tombstone", "audit", "policy", "log"} {
		if other, ok := distinct[prints[role]]; ok {
			t.Errorf("%s and %s share a key", role, other)
		}
		distinct[prints[role]] = role
		info, err := os.Stat(filepath.Join(dir, "keys", role))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("keys/%s: %v, %v", role, info, err)
		}
	}
	if logs := s.Policy().Logs(); len(logs) != 1 || logs[0].Name != "leafproof/"+s.ID() || logs[0].Public.Fingerprint() != prints["log"] {
		t.Errorf("logs = %v", logs)
	}
	put(t, s, []byte("note\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if r, err := s.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || r.Damaged() || r.Artifacts != 1 {
		t.Errorf("Check = %+v, %v", r, err)
	}
	if _, err := s.Signer("king"); !errors.Is(err, leafproof.ErrNoKey) || !strings.Contains(err.Error(), "king") {
		t.Errorf("a role that is none: %v", err)
	}
}

// olden makes of a store what the first version made: one key, and a policy that
// knows it as manifest.
func olden(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(leafproof.PublicKeyPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	k, err := manifest.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.NewPolicy("store", manifest.Key{Name: "store", Public: k, Roles: []string{"manifest"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(leafproof.PolicyPath(dir), []byte(p.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains([]string{"manifest", "manifest.pub", "cursor"}, f.Name()) {
			if err := os.Remove(filepath.Join(dir, "keys", f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "policy")); err != nil {
		t.Fatal(err)
	}
}

// A store of the first version opens, publishes and checks; what needs another
// role says how to add it.
func TestOldStoreKeys(t *testing.T) {
	dir, want := checked(t)
	olden(t, dir)
	s := openStore(t, dir)
	signers(t, s, "manifest")
	if _, err := s.Signer("receipt"); !errors.Is(err, leafproof.ErrNoKey) || !strings.Contains(err.Error(), "leafproof key new --role receipt") {
		t.Errorf("a missing role: %v", err)
	}
	put(t, s, []byte("an old store still takes this\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if got := readable(t, dir, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{}); r.Damaged() {
		t.Errorf("findings = %+v", r.Findings)
	}
	// Changed, then edited by hand, then changed so that it is signed from then on.
	if c, err := s.ChangePolicy(t.Context(), manifest.ExpireAt(time.Now().Add(time.Hour))); err != nil || !c.InForce || len(c.SignedBy) != 0 {
		t.Fatalf("ChangePolicy = %+v, %v", c, err)
	}
	text := strings.Replace(s.Policy().String(), " version 2 ", " version 5 ", 1)
	if err := os.WriteFile(leafproof.PolicyPath(dir), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{"receipt"}})
	if err != nil || k.Policy.Version != 6 || !k.Policy.InForce || len(k.Policy.SignedBy) != 1 || k.PolicyKey != "keys/policy" {
		t.Fatalf("NewKey = %+v, %v", k, err)
	}
	signers(t, openStore(t, dir), "manifest", "receipt", "policy")
	st, err := s.PolicyStatus()
	if err != nil || len(st.Versions) != 4 || !st.Versions[3].Root || len(st.Versions[2].SignedBy) != 0 {
		t.Errorf("status = %+v, %v", st, err)
	}
	if err := os.WriteFile(leafproof.PolicyPath(dir), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Signer("manifest"); !errors.Is(err, leafproof.ErrPolicyFile) {
		t.Errorf("the version before it was signed, put back: %v", err)
	}
}
