package leafproof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
)

// BackupOptions adjust [Backup].
type BackupOptions struct {
	// WithKeys copies the private keys too: whoever has the backup can then sign
	// as the store. Without them the backup has all that is needed to check and
	// to verify, and opens when the files of keys/ are put back.
	WithKeys bool
	// BytesPerSecond bounds the rate of reading; 0 is no bound.
	BytesPerSecond int64
	// Progress, where set, is told of the bytes read, in steps.
	Progress func(bytes int64)
}

// BackupReport says what a backup did.
type BackupReport struct {
	Copied    int64 `json:"copied"`   // objects written now
	Resident  int64 `json:"resident"` // objects that the backup had
	Bytes     int64 `json:"bytes"`    // of the objects written
	Artifacts int64 `json:"artifacts"`
	Runs      int64 `json:"runs"` // of harnesses: what their models were shown
	Keys      bool  `json:"keys"` // the private keys are in it
	// Damaged are objects of the store that were left out. A sound one that the
	// backup had from before is still in it.
	Damaged []CheckFinding `json:"damaged"`
}

// The names that only a backup's folder has.
const (
	backupFile    = "backup.json"
	nextCatalogue = catalogueFile + ".next"
)

const backupName = "leafproof backup"

// Backup brings all that is in the store's folder dir to the folder to: objects
// that are missing there, each verified as it stands there, then the policy, the
// public key, and the catalogue as it was at one moment, before the first object
// was looked at; and the runs of harnesses that stand in it. It can be interrupted at any time and made again: it goes on
// with what is missing, and until then the folder holds the backup before.
// No object in it is deleted. The store may be in use meanwhile.
//
// The folder must be empty, or an earlier backup of the same store. What it has
// is a store's folder: [Check] checks it, and it is put back by copying it.
func Backup(ctx context.Context, dir, to string, o BackupOptions) (*BackupReport, error) {
	f, err := readFormat(dir)
	if err != nil {
		return nil, err
	}
	lock, err := flock.Shared(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer func() { lock.Close() }() // an upgrade takes another one
	rows, err := openCatalogue(ctx, dir, &lock)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	theirs, err := beginBackup(dir, to, f)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()

	runs, err := copyRuns(ctx, dir, to)
	if err != nil {
		return nil, wireError("", err)
	}
	next := filepath.Join(to, nextCatalogue)
	if err := rows.(*catalogue.SQLite).Snapshot(ctx, next); err != nil {
		return nil, wireError("", err)
	}
	r, err := copyObjects(ctx, dir, to, o)
	if err != nil {
		return r, wireError("", err)
	}
	if err := copyTrust(dir, to, o.WithKeys); err != nil {
		return r, err
	}
	r.Keys, r.Runs = o.WithKeys, runs
	if err := replaceFile(to, copiedFile, []byte(copiedText)); err != nil {
		return r, err
	}
	if err := installCatalogue(to); err != nil {
		return r, err
	}
	if err := installRuns(to); err != nil {
		return r, err
	}
	text, err := os.ReadFile(filepath.Join(dir, formatFile))
	if err != nil {
		return r, err
	}
	if err := replaceFile(to, formatFile, text); err != nil { // last: until now, a first backup is no store
		return r, err
	}
	r.Artifacts, err = countRows(ctx, filepath.Join(to, catalogueFile))
	return r, errors.Join(err, syncParent(to))
}

// copyTrust copies what says whose word counts, trust.policy last, and with
// private, what lets somebody speak as the store.
func copyTrust(dir, to string, private bool) error {
	entries, err := os.ReadDir(filepath.Join(dir, keysDir))
	if err != nil {
		return err
	}
	var files []string
	for _, e := range entries {
		if name := keysDir + "/" + e.Name(); !e.IsDir() && (private || strings.HasSuffix(name, publicSuffix)) {
			files = append(files, name)
		}
	}
	policy, err := loadPolicy(dir)
	if err != nil { // of damage too there is a backup
		numbers, err := policyNumbers(dir)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			name := numbered(n)
			files = append(files, name+signatureExt, name)
		}
		files = append(files, policyFile)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = replaceFile(to, name, text)
		}
		if err != nil {
			return err
		}
	}
	if policy == nil {
		return nil
	}
	for _, v := range policy.chain {
		if err := keepPolicy(to, v.signed, v.Version); err != nil {
			return err
		}
	}
	return replaceFile(to, policyFile, policy.text)
}

// beginBackup locks a backup's folder, and makes it one.
func beginBackup(dir, to string, f format) (_ *flock.Lock, err error) {
	a, errA := filepath.Abs(dir)
	b, errB := filepath.Abs(to)
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(a, b); err == nil && filepath.IsLocal(rel) {
		return nil, fail(CodeSelectorInvalid, FixCall, "backup", "%s is the store itself, or in it", to)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(to, backupFile))
	switch {
	case err == nil:
		var have format
		if err := json.Unmarshal(text, &have); err != nil || have.Format != backupName {
			return nil, fmt.Errorf("%s does not say that this is a backup", filepath.Join(to, backupFile))
		}
		if have.StoreID != f.StoreID {
			return nil, fail(CodeSelectorInvalid, FixCall, "backup", "%s is a backup of the store %s, and this is %s", to, have.StoreID, f.StoreID)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if err := checkVacant(to); err != nil {
			return nil, err
		}
	}
	lock, err := flock.Exclusive(filepath.Join(to, lockFile))
	if err != nil || text != nil {
		return lock, err
	}
	text, err = json.Marshal(format{Format: backupName, StoreID: f.StoreID, Version: FormatVersion})
	if err == nil {
		err = replaceFile(to, backupFile, append(text, '\n'))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

func copyObjects(ctx context.Context, dir, to string, o BackupOptions) (*BackupReport, error) {
	r := &BackupReport{Damaged: []CheckFinding{}}
	from, err := disk.Open(filepath.Join(dir, objectsDir))
	if err != nil {
		return r, err
	}
	defer from.Close()
	target, err := disk.Open(filepath.Join(to, objectsDir))
	if err != nil {
		return r, err
	}
	defer target.Close()
	c, err := cas.Copy(ctx, from, target, cas.CopyOptions{BytesPerSecond: o.BytesPerSecond, Progress: o.Progress})
	r.Copied, r.Resident, r.Bytes = c.Copied, c.Resident, c.Bytes
	for _, f := range c.Damaged {
		r.Damaged = append(r.Damaged, CheckFinding{
			File: objectsDir + "/" + f.Name.String(), Fault: string(f.Fault), Detail: f.Err.Error(), Damage: true, Touches: []Touched{},
		})
	}
	return r, err
}

// installCatalogue gives the snapshot its name. Nobody has the folder open, so
// what SQLite left beside an older catalogue belongs to nothing.
func installCatalogue(to string) error {
	path := filepath.Join(to, catalogueFile)
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(filepath.Join(to, nextCatalogue), path); err != nil {
		return err
	}
	d, err := os.Open(to)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// countRows also shows that the catalogue of a backup opens.
func countRows(ctx context.Context, path string) (n int64, err error) {
	rows, err := catalogue.OpenSQLite(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	c := checker{ctx: ctx, rows: rows, report: &CheckReport{}}
	err = c.each(func(catalogue.Artifact, cas.Tenant) error { n++; return nil })
	return n, err
}
