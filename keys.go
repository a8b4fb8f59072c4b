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
	"leafproof/internal/rootfs"
	"leafproof/manifest"
)

// keysDir holds the private keys of a store, one a file, each with its public half
// beside it in a file of the same name and .pub.
const (
	keysDir      = "keys"
	publicSuffix = ".pub"
)

// ErrNoKey is a role in which the store cannot sign: no private key is at hand that
// its policy lets speak there.
var ErrNoKey = errors.New("no key at hand that may speak")

// storeKeys are the keys that Init makes, one for each kind of speaker, so that
// whoever gets hold of one can speak with one voice only. The key of manifests also
// says what a manifest may say itself: its indexes, and what it supersedes.
var storeKeys = []struct {
	file, name string
	roles      []string
}{
	{manifest.RoleManifest, "store", []string{manifest.RoleManifest, manifest.RoleIndex, manifest.RoleSupersede}},
	{manifest.RoleReceipt, "store-receipt", []string{manifest.RoleReceipt}},
	{manifest.RoleTombstone, "store-tombstone", []string{manifest.RoleTombstone, manifest.RoleDeletion}},
	{manifest.RoleAudit, "store-audit", []string{manifest.RoleAudit}},
	{manifest.RolePolicy, "store-policy", []string{manifest.RolePolicy}},
}

// logOrigin is the name of a store's own log.
func logOrigin(storeID string) string { return "leafproof/" + storeID }

// initKeys makes the keys, the policy that admits them, and the cursor key.
func initKeys(root *rootfs.FS, storeID string) error {
	policy, err := manifest.NewPolicy("store-" + storeID[:8])
	if err != nil {
		return err
	}
	var changes []manifest.Change
	for _, k := range storeKeys {
		public, err := makeKey(root, k.file)
		if err != nil {
			return err
		}
		changes = append(changes, manifest.AddKey(manifest.Key{Name: k.name, Public: public, Roles: k.roles}))
	}
	public, err := makeKey(root, manifest.RoleLog)
	if err != nil {
		return err
	}
	log, err := manifest.LogKey(logOrigin(storeID), public)
	if err != nil {
		return err
	}
	if policy, err = policy.With(append(changes, manifest.AddLog(log))...); err != nil {
		return err
	}
	cursor, err := randomHex(32)
	if err != nil {
		return err
	}
	if err := writeFile(root, cursorKeyFile, []byte(cursor+"\n")); err != nil {
		return err
	}
	return writeFile(root, policyFile, []byte(policy.String()))
}

// makeKey makes a key and writes both halves of it to keys/NAME. A name that is
// taken is fs.ErrExist, and nothing is changed.
func makeKey(root *rootfs.FS, name string) (manifest.PublicKey, error) {
	key, err := keys.Generate()
	if err != nil {
		return manifest.PublicKey{}, err
	}
	private, err := key.Marshal("leafproof " + name + " key")
	if err != nil {
		return manifest.PublicKey{}, err
	}
	if err := writeFile(root, keysDir+"/"+name, private); err != nil {
		return manifest.PublicKey{}, err
	}
	return key.Public, writeFile(root, keysDir+"/"+name+publicSuffix, []byte(key.Public.OpenSSHLine()+"\n"))
}

// heldKey is a file of a private key, and what loading it gave.
type heldKey struct {
	file string
	key  *keys.Key // nil where err is not
	err  error
}

// secretFile reports a file in keys/ that is a secret of the store's own, and no
// key of a speaker.
func secretFile(name string) bool { return name == cursorKeyFile || name == tenantKeyFile }

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
		if secretFile(name) || strings.HasSuffix(name, publicSuffix) || e.IsDir() {
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
	if err != nil {
		return nil, err
	}
	return k, nil
}

// scope is what a statement is about: a tenant, and a source ("" for none).
type scope struct{ tenant, source string }

// speaker is signer for a scope (nil: whatever the key has) as of a time.
func (s *Store) speaker(role string, about *scope, at time.Time) (speaker, error) {
	var reason error
	if role == manifest.RoleLog {
		for _, l := range slices.Backward(s.policy.Logs()) {
			if signer := s.holding(l.Public); signer != nil {
				return speaker{signer, l.Public}, nil
			}
		}
	}
	for _, k := range slices.Backward(s.policy.Keys()) {
		if !slices.Contains(k.Roles, role) {
			continue
		}
		where := scope{sample(k.Tenants[0]), sample(k.Sources[0])}
		if about != nil {
			where = *about
		}
		if _, err := s.policy.Judge(role, where.tenant, where.source, k.Public.Fingerprint(), at); err != nil {
			if reason == nil {
				reason = err
			}
			continue
		}
		if signer := s.holding(k.Public); signer != nil {
			return speaker{signer, k.Public}, nil
		}
	}
	return speaker{}, s.noKey(role, reason)
}

// sample is a name that a pattern matches.
func sample(pattern string) string { return strings.ReplaceAll(pattern, "*", "x") }

// holding is the private half of a key; nil where it is not at hand.
func (s *Store) holding(public manifest.PublicKey) crypto.Signer {
	for _, h := range s.held {
		if h.key != nil && h.key.Public == public {
			return h.key.Signer
		}
	}
	return nil
}

// noKey says why nothing can be signed in a role: a key file that does not load,
// one that the policy does not know, a key that may not speak, or none at all.
func (s *Store) noKey(role string, reason error) error {
	for _, h := range s.held {
		switch {
		case h.file != keysDir+"/"+role:
		case h.err != nil:
			return fmt.Errorf("%w as %s: %w", ErrNoKey, role, h.err)
		case reason == nil:
			if _, err := s.policy.Judge(role, "", "", h.key.Public.Fingerprint(), time.Now()); errors.Is(err, manifest.ErrUnknownKey) {
				return fmt.Errorf("%w as %s: of %s, trust.policy says: %w (are two stores' files mixed up?)", ErrNoKey, role, h.file, err)
			}
		}
	}
	if reason != nil {
		return fmt.Errorf("%w as %s under trust.policy: %w", ErrNoKey, role, reason)
	}
	return fmt.Errorf("%w as %s; `leafproof key new --role %s` makes one", ErrNoKey, role, role)
}
