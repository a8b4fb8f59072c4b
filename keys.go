package leafproof

import (
	"crypto"
	"errors"

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
	var signing crypto.Signer
	for _, k := range storeKeys {
		key, err := makeKey(root, k.file)
		if err != nil {
			return err
		}
		changes = append(changes, manifest.AddKey(manifest.Key{Name: k.name, Public: key.Public, Roles: k.roles}))
		if k.file == manifest.RolePolicy {
			signing = key.Signer
		}
	}
	key, err := makeKey(root, manifest.RoleLog)
	if err != nil {
		return err
	}
	log, err := manifest.LogKey(logOrigin(storeID), key.Public)
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
	return firstPolicy(root, policy, signing)
}

// firstPolicy writes the first version of a policy, signed by a key that it names.
func firstPolicy(root *rootfs.FS, policy *manifest.Policy, by crypto.Signer) error {
	text := []byte(policy.String())
	armored, err := manifest.SignSSH(text, manifest.NamespacePolicy, by)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{policyDir + "/1" + signatureExt, []byte(armored)}, {policyDir + "/1", text}, {policyFile, text}} {
		if err := writeFile(root, f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// makeKey makes a key and writes both halves of it to keys/NAME. A name that is
// taken is fs.ErrExist, and nothing is changed.
func makeKey(root *rootfs.FS, name string) (*keys.Key, error) {
	key, err := keys.Generate()
	if err != nil {
		return nil, err
	}
	private, err := key.Marshal("leafproof " + name + " key")
	if err != nil {
		return nil, err
	}
	if err := writeFile(root, keysDir+"/"+name, private); err != nil {
		return nil, err
	}
	return key, writeFile(root, keysDir+"/"+name+publicSuffix, []byte(key.Public.OpenSSHLine()+"\n"))
}

// secretFile reports a file in keys/ that is a secret of the store's own, and no
// key of a speaker.
func secretFile(name string) bool { return name == cursorKeyFile || name == tenantKeyFile }
