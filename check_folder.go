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
	"time"

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
	text, err := json.Marshal(format{formatName, id, FormatVersion})
	if err != nil {
		return err
	}
	if err := replaceFile(c.dir, formatFile, append(text, '\n')); err != nil {
		return err
	}
	c.repaired(formatFile, "written anew")
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
	text, err := os.ReadFile(PolicyPath(c.dir))
	if err == nil {
		c.policy, err = manifest.ParsePolicy(text)
	}
	if err != nil {
		c.fileFault(policyFile, err)
	}
	if c.withoutKeys() {
		c.find(CheckFinding{File: "keys", Fault: "without private keys", Detail: "a backup made without them: to use it as a store, put keys/manifest and keys/cursor back"})
		return
	}
	c.heldKeys()
	text, err = os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(tenantKeyFile)))
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

// withoutKeys reports whether the folder is a backup that was made without the
// private keys.
func (c *checker) withoutKeys() bool {
	absent := func(name string) bool {
		_, err := os.Lstat(filepath.Join(c.dir, filepath.FromSlash(name)))
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
			File: policyFile, Fault: "other key", Damage: true,
			Detail: "it does not know the key " + name + " of this store: are two stores' files mixed up?",
		})
	}
}

// own are the names of what belongs in a store's folder.
var own = []string{
	formatFile, policyFile, "keys", catalogueFile, catalogueFile + "-wal", catalogueFile + "-shm", catalogueFile + "-journal",
	objectsDir, lockFile, leasesDir, reserveFile, backupFile, nextCatalogue,
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

// RestoreReport says what a catalogue was restored from, and what nobody knows.
type RestoreReport struct {
	Artifacts int64 `json:"artifacts"` // rows made
	// Deleted are artifacts that the damaged file still told to be deleted.
	Deleted int64 `json:"deleted"`
	// Refused are manifests that the policy does not admit, or that do not
	// belong where they lie: their artifacts are not listed.
	Refused []string `json:"refused"`
	// Unproven are artifacts that only the damaged file named: their manifest
	// was not found among the objects.
	Unproven []string `json:"unproven"`
	// Old is where the damaged file was moved to; "" where there was none.
	Old     string   `json:"old"`
	Epoch   int64    `json:"policy_epoch"`
	Unknown []string `json:"unknown"` // what nobody can know, in sentences
}

// restoreCatalogue makes a catalogue of the manifests that stand as objects, and
// of what the damaged one still tells. The damaged file is moved aside, kept.
func (c *checker) restoreCatalogue(storeID string) (*RestoreReport, error) {
	path := filepath.Join(c.dir, catalogueFile)
	old := catalogue.Salvage(c.ctx, path)
	found, refused, err := c.manifests()
	if err != nil {
		return nil, err
	}
	r := &RestoreReport{Refused: refused, Unproven: []string{}, Epoch: old.Epoch + 1}
	if old.Epoch < 0 {
		r.Epoch = time.Now().Unix() // above any count of changes
	}
	if storeID == "" {
		storeID = old.StoreID
	}
	deleted := make(map[string]bool)
	for _, row := range old.Rows {
		listed, ok := found[row.ArtifactID]
		switch {
		case !ok:
			if CheckID(row.ArtifactID) != nil {
				continue
			}
			found[row.ArtifactID] = row
			if row.DeletedAt == nil {
				r.Unproven = append(r.Unproven, row.ArtifactID)
			}
		case row.DeletedAt != nil && row.ManifestID == listed.ManifestID:
			listed.DeletedAt, listed.DeleteReason = row.DeletedAt, row.DeleteReason
			found[row.ArtifactID] = listed
		}
		deleted[row.ArtifactID] = row.DeletedAt != nil
	}
	rows := make([]catalogue.Artifact, 0, len(found))
	clock := max(old.Clock, time.Now().UnixMicro())
	for _, row := range found {
		rows = append(rows, row)
		if deleted[row.ArtifactID] {
			r.Deleted++
		}
	}
	slices.SortFunc(rows, func(a, b catalogue.Artifact) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ArtifactID, b.ArtifactID)
	})
	if ahead := time.Now().Add(24 * time.Hour).UnixMicro(); clock > ahead {
		clock = time.Now().UnixMicro() // a damaged clock would end what has not expired
	}
	if r.Old, err = moveAside(c.dir); err != nil {
		return nil, err
	}
	clashes, err := catalogue.Restore(c.ctx, path, catalogue.Restored{StoreID: storeID, Epoch: r.Epoch, Clock: clock, Rows: slices.Values(rows)})
	if err != nil {
		return nil, err
	}
	for _, id := range clashes {
		r.Refused = append(r.Refused, id+": its manifest belongs to another artifact too")
	}
	r.Artifacts = int64(len(rows) - len(clashes))
	r.Unknown = unknown(old)
	return r, nil
}

// unknown says what cannot be known after a restore.
func unknown(old catalogue.Salvaged) []string {
	out := []string{
		"an artifact whose put was interrupted before it was published may be listed now; nobody was given its id",
		"the order of the list is that of the times in the manifests",
		"grants, where there were any, are gone: nobody but the owner may read until they are given again",
	}
	if !old.Whole {
		out = append(out, "which artifacts had been deleted is known only as far as the damaged file could be read: others are listed again")
	}
	return out
}

// moveAside moves a damaged catalogue, and what SQLite has beside it, out of the
// way of a new one.
func moveAside(dir string) (string, error) {
	stamp := time.Now().UTC().Format("20060102T150405.000000000")
	moved := ""
	for _, suffix := range []string{"-shm", "-wal", "-journal", ""} { // the file last: with it, there is still a catalogue to restore
		from := filepath.Join(dir, catalogueFile+suffix)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		name := setAside + stamp + suffix
		if err := os.Rename(from, filepath.Join(dir, name)); err != nil {
			return "", err
		}
		moved = name
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return "", err
	}
	return moved, errors.Join(rootfs.SyncDir(root, "."), root.Close())
}

// manifests finds every signed manifest among the objects, by artifact id.
func (c *checker) manifests() (map[string]catalogue.Artifact, []string, error) {
	found, refused := make(map[string]catalogue.Artifact), []string{}
	const begins = `{"manifest":{"payload"`
	tenants, err := c.objects.Tenants(c.ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, tenant := range tenants {
		blobs := c.objects.Blobs(c.ctx, tenant, maxEnvelope, func(head []byte) bool { return strings.HasPrefix(string(head[:min(len(head), len(begins))]), begins) })
		for blob, err := range blobs {
			if err != nil {
				return nil, nil, err
			}
			row, ok, err := c.rowOf(tenant, blob)
			switch {
			case !ok: // somebody's data that looks like a manifest
			case err != nil:
				refused = append(refused, fmt.Sprintf("%s: %v", row.ArtifactID, err))
			default:
				if _, twice := found[row.ArtifactID]; !twice {
					found[row.ArtifactID] = row
				}
			}
		}
	}
	slices.Sort(refused)
	return found, slices.Compact(refused), nil
}

// rowOf makes the row of a manifest object. It is not ok when the blob is none.
func (c *checker) rowOf(tenant cas.Tenant, blob cas.Blob) (row catalogue.Artifact, ok bool, err error) {
	var o signedManifest
	if manifest.DecodeLimit(blob.Bytes, &o, maxEnvelope, manifest.MaxDepth) != nil {
		return row, false, nil
	}
	payload, err := o.Manifest.PayloadBytes()
	if err != nil {
		return row, false, nil
	}
	m, err := manifest.ParseManifest(payload)
	if err != nil {
		return row, false, nil
	}
	row, err = rowFor(m, blob.Root, int64(len(blob.Bytes)))
	if err != nil {
		return row, true, err
	}
	if cas.TenantOf(row.Tenant) != tenant {
		return row, true, fmt.Errorf("%w: it lies with another tenant's objects", errManifest)
	}
	return row, true, admit(o, c.policy, row.CreatedAt)
}

// rowFor is the catalogue's row of a manifest that stands as the object envelope.
func rowFor(m *manifest.Manifest, envelope [32]byte, size int64) (catalogue.Artifact, error) {
	ref := m.Predicate.ArtifactRef
	row := catalogue.Artifact{
		ArtifactID: m.ArtifactID, ManifestID: m.ManifestID, Tenant: ref.Scope.TenantID,
		Run: ref.Scope.RunID, SourceID: ref.SourceVersion.SourceID,
		Root: m.Root, Size: m.Size, EnvelopeRoot: envelope, EnvelopeSize: size,
	}
	var err error
	if row.CreatedAt, err = manifest.ParseTime(ref.CreatedAt); err != nil {
		return row, err
	}
	if ref.ExpiresAt != nil {
		at, err := manifest.ParseTime(*ref.ExpiresAt)
		if err != nil {
			return row, err
		}
		row.ExpiresAt = &at
	}
	return row, nil
}

// admit refuses a signed manifest that a policy does not let stand.
func admit(o signedManifest, policy *manifest.Policy, at time.Time) error {
	_, facts, err := manifest.VerifyEnvelope(o.Manifest, o.SSH, policy, at)
	if err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	for _, f := range facts {
		if f.State == manifest.Mismatch || (f.Name == manifest.FactKey && f.State == manifest.Unverifiable) {
			return fmt.Errorf("%w: its %s is %s under trust.policy", errManifest, f.Name, f)
		}
	}
	return nil
}
