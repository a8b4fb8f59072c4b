package leafproof

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
	"leafproof/internal/keys"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
)

// folder checks the files of a store's folder, opens what of them the rest needs,
// and repairs the catalogue.
func (c *checker) folder(lock **flock.Lock) error {
	c.strangers()
	c.keyFiles()
	f, formatErr := readFormat(c.dir)
	if formatErr != nil {
		c.fileFault(formatFile, formatErr)
	}
	cat, err := c.openRows(lock)
	var problems []string
	if err == nil && c.repair {
		if problems, err = cat.(*catalogue.SQLite).Integrity(c.ctx); err == nil && len(problems) > 0 {
			err = fmt.Errorf("%w: %s", ErrCatalogue, strings.Join(problems, "; "))
		}
		if err != nil {
			cat.Close()
		}
	}
	switch {
	case err == nil:
		c.rows = cat
	case !errors.Is(err, ErrCatalogue):
		return err
	default:
		c.fileFault(catalogueFile, err)
		i := len(c.report.Findings) - 1
		if !c.repair {
			return nil
		}
		if c.policy == nil {
			c.report.Findings[i].Detail += "; without trust.policy nothing says whose manifests count: put that back first"
			return nil
		}
		if c.report.Restored, err = c.restoreCatalogue(f.StoreID); err != nil {
			return err
		}
		c.report.Findings[i].Repaired = "made anew from the manifests among the objects"
		if c.rows, err = c.openRows(lock); err != nil {
			return err
		}
	}
	return c.format(f, formatErr)
}

// openRows opens the catalogue. A repair, which has the folder for itself,
// upgrades an older one under the lock that it holds.
func (c *checker) openRows(lock **flock.Lock) (catalogue.Catalogue, error) {
	if c.repair {
		err := catalogue.UpgradeSQLite(filepath.Join(c.dir, catalogueFile))
		if err != nil && !errors.Is(err, catalogue.ErrMissing) && !errors.Is(err, catalogue.ErrDamaged) {
			return nil, err
		}
	}
	return openCatalogue(c.ctx, c.dir, lock)
}

// format holds leafproof.json against the catalogue, and writes it anew.
func (c *checker) format(f format, formatErr error) error {
	id, err := c.rows.StoreID(c.ctx)
	if err != nil {
		return err
	}
	if formatErr == nil {
		if f.StoreID != id {
			c.find(CheckFinding{
				File: formatFile, Fault: "other store", Damage: true,
				Detail: fmt.Sprintf("it names the store %s, the catalogue %s: are two stores' files mixed up?", f.StoreID, id),
			})
		}
		return nil
	}
	if !c.repair {
		return nil
	}
	text, err := json.Marshal(format{Format: formatName, StoreID: id, Version: FormatVersion})
	if err != nil {
		return err
	}
	if err := replaceFile(c.dir, formatFile, append(text, '\n')); err != nil {
		return err
	}
	c.repaired(formatFile, "written anew; standard times of expiry, where there were any, are gone")
	return nil
}

// repaired notes that the damage of a file is mended.
func (c *checker) repaired(file, how string) {
	for i := range c.report.Findings {
		if f := &c.report.Findings[i]; f.File == file && f.Damage {
			f.Repaired = how
		}
	}
}

// replaceFile writes a small file durably in place of what stands there.
func replaceFile(dir, name string, text []byte) error {
	root, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return rootfs.Publish(root, name, true, func(f afero.File) error {
		_, err := f.Write(text)
		return err
	})
}

// fileFault enters a file that is not what it should be.
func (c *checker) fileFault(name string, err error) {
	f := CheckFinding{File: name, Fault: "damaged", Detail: err.Error(), Damage: true}
	info, statErr := os.Stat(filepath.Join(c.dir, filepath.FromSlash(name)))
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		f.Fault = "missing"
	case statErr != nil || errors.Is(err, fs.ErrPermission):
		f.Fault, f.Damage = string(cas.FaultUnread), false
	case info.Size() == 0:
		f.Fault = string(cas.FaultEmpty)
	}
	c.find(f)
}

// keyFiles checks policy and keys.
func (c *checker) keyFiles() {
	c.policyFiles()
	if withoutKeys(c.dir) {
		c.find(CheckFinding{File: "keys", Fault: "without private keys", Detail: "a backup made without them: " + putKeysBack})
		return
	}
	c.heldKeys()
	text, err := os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(tenantKeyFile)))
	if err == nil {
		_, err = parseSecret(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is made when it is first needed
		c.fileFault(tenantKeyFile, err)
	}
	text, err = os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(cursorKeyFile)))
	if err == nil {
		_, err = parseSecret(text)
	}
	if err != nil {
		c.fileFault(cursorKeyFile, err)
		if fresh, err := randomHex(32); err == nil && c.repair && replaceFile(c.dir, cursorKeyFile, []byte(fresh+"\n")) == nil {
			c.repaired(cursorKeyFile, "a new one was made: queries that were under way begin again")
		}
	}
}

const putKeysBack = "to use it as a store, put keys/manifest and keys/cursor back"

// withoutKeys reports whether the folder is a backup that was made without the
// private keys.
func withoutKeys(dir string) bool {
	absent := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		return errors.Is(err, fs.ErrNotExist)
	}
	return !absent(backupFile) && absent(keyFile) && absent(cursorKeyFile)
}

// signs makes a signature and checks it: the secret half of a key may be damaged
// while the public half beside it is not.
func signs(key *keys.Key) error {
	probe := []byte("a signature that is made to be checked")
	armored, err := manifest.SignSSH(probe, manifest.NamespaceManifest, key.Signer)
	if err != nil {
		return err
	}
	sig, err := manifest.ParseSSH(armored)
	if err != nil {
		return err
	}
	return sig.Verify(probe, manifest.NamespaceManifest, key.Public)
}

// heldKeys checks the private keys: that each loads, signs, is the one that is
// shown, and one that the policy knows. (A key that lies elsewhere, in an agent,
// has neither file.)
func (c *checker) heldKeys() {
	names := []string{}
	entries, err := os.ReadDir(filepath.Join(c.dir, keysDir))
	if err != nil {
		c.fileFault(keysDir, err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(keysDir+"/"+e.Name(), publicSuffix)
		if !secretFile(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		key, err := keys.Load(filepath.Join(c.dir, filepath.FromSlash(name)))
		if err != nil {
			c.fileFault(name, err)
			continue
		}
		c.heldKey(name, key)
	}
}

// heldKey checks one private key.
func (c *checker) heldKey(name string, key *keys.Key) {
	if err := signs(key); err != nil {
		c.fileFault(name, fmt.Errorf("what it signs does not verify: %w", err))
	}
	shown := key.Public.OpenSSHLine() + "\n"
	text, err := os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(name+publicSuffix)))
	if err == nil && string(text) != shown {
		err = errors.New("it is not the public half of " + name)
	}
	if err != nil {
		c.fileFault(name+publicSuffix, err)
		if c.repair && replaceFile(c.dir, name+publicSuffix, []byte(shown)) == nil {
			c.repaired(name+publicSuffix, "written anew from "+name)
		}
	}
	if c.policy != nil && !c.policy.Knows(key.Public) {
		c.find(CheckFinding{
			File: policyFile, Fault: "other key", Damage: name == keyFile, // others may wait for a version of the policy
			Detail: "it does not know the key " + name + " of this store: are two stores' files mixed up?",
		})
	}
}

// own are the names of what belongs in a store's folder.
var own = []string{
	formatFile, policyFile, policyDir, keysDir, catalogueFile, catalogueFile + "-wal", catalogueFile + "-shm", catalogueFile + "-journal", catalogueFile + "-epoch",
	objectsDir, lockFile, leasesDir, reserveFile, backupFile, nextCatalogue, copiedFile, logBegins, logEnded, logLock, uploadsDir, runsDir,
	nextRuns, oldRuns,
}

// strangers reports what does not belong in the folder.
func (c *checker) strangers() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !slices.Contains(own, e.Name()) && !strings.HasPrefix(e.Name(), setAside) {
			c.find(CheckFinding{File: e.Name(), Fault: string(cas.FaultForeign), Detail: "it is no part of a store"})
		}
	}
}

// setAside begins the names of damaged catalogues that a repair moved away.
const setAside = catalogueFile + ".damaged-"
