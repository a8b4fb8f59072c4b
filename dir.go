package leafproof

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
	"leafproof/internal/keys"
	"leafproof/internal/rootfs"
)

// FormatVersion is the version of a store's folder that this program reads and
// writes. A folder of a newer one is refused untouched.
const FormatVersion = 1

// The names in a store's folder.
const (
	formatFile    = "leafproof.json"
	policyFile    = "trust.policy"
	keyFile       = "keys/manifest"
	publicKeyFile = "keys/manifest.pub"
	cursorKeyFile = "keys/cursor"
	catalogueFile = "catalogue.db"
	objectsDir    = "objects"
	lockFile      = "lock"
)

// PolicyPath returns the path of the trust policy of the store in dir.
func PolicyPath(dir string) string { return filepath.Join(dir, policyFile) }

// PublicKeyPath returns the path of the public key that manifests of the store in
// dir are signed under: what `leafproof verify --key` takes.
func PublicKeyPath(dir string) string { return filepath.Join(dir, publicKeyFile) }

// ErrNoStore is a folder that holds no store.
var ErrNoStore = errors.New("no store here")

// ErrExists is a folder that holds a store already.
var ErrExists = errors.New("a store already")

// ErrCatalogue is a catalogue that is missing or damaged. Nothing is changed then:
// the objects are untouched, and no catalogue is made in its place.
var ErrCatalogue = errors.New("the catalogue does not open")

// ErrNewerStore is a folder that a newer program made.
var ErrNewerStore = errors.New("made by a newer leafproof")

// format is the content of leafproof.json.
type format struct {
	Format  string `json:"format"`
	StoreID string `json:"store_id"`
	Version int64  `json:"version"`
	// Retention has for tenants ("*" is all others) after how many seconds an artifact
	// expires of which nothing is said.
	Retention map[string]int64 `json:"retention_seconds,omitempty"`
}

const formatName = "leafproof store"

// Init makes a store in dir, which must not exist or be empty: its keys, its
// catalogue and a trust policy that lets its own key sign manifests. The file
// leafproof.json is written last, so a folder without it holds no store.
func Init(ctx context.Context, dir string, opts ...InitOption) error {
	f := format{Format: formatName, Version: FormatVersion}
	for _, o := range opts {
		o(&f)
	}
	if err := f.checkRetention(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkVacant(dir); err != nil { // before anything is written there
		return err
	}
	lock, err := flock.Exclusive(filepath.Join(dir, lockFile))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := checkVacant(dir); err != nil {
		return err
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	cat, err := catalogue.CreateSQLite(filepath.Join(dir, catalogueFile))
	if err != nil {
		return err
	}
	id, err := cat.StoreID(ctx)
	if err := errors.Join(err, cat.Close()); err != nil {
		return err
	}
	if err := initKeys(root, id); err != nil {
		return err
	}
	f.StoreID = id
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := makeReserve(dir); err != nil && !isFull(err) && !errors.Is(err, syscall.ENOSPC) {
		return err // on a small disk a store can do without
	}
	if err := writeFile(root, formatFile, append(text, '\n')); err != nil {
		return err
	}
	return syncParent(dir)
}

// syncParent makes the folder's own name durable.
func syncParent(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parent, err := rootfs.Open(filepath.Dir(abs))
	if err != nil {
		return err
	}
	return errors.Join(rootfs.SyncDir(parent, "."), parent.Close())
}

// checkVacant refuses a folder that holds anything, so that nothing is overwritten.
func checkVacant(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, formatFile)); err == nil {
		return fmt.Errorf("%s is %w", dir, ErrExists)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockFile {
			return fmt.Errorf("%s is neither empty nor a store: it holds %s", dir, e.Name())
		}
	}
	return nil
}

// writeFile writes a small file durably, readable by the owner alone.
func writeFile(root *rootfs.FS, name string, text []byte) error {
	return rootfs.Publish(root, name, false, func(f afero.File) error {
		_, err := f.Write(text)
		return err
	})
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}

// An Option changes how [Open] opens a store.
type Option func(*config)

// WithAuthority lets a decide every disclosure. Without it, the grants
// in the store's catalogue do: see [Store.Grant].
func WithAuthority(a Authority) Option { return func(c *config) { c.authority = a } }

// Open opens the store in dir. It signs with the keys in the folder, or with those
// of its policy that [WithSigner] gives or the ssh-agent at SSH_AUTH_SOCK holds.
func Open(ctx context.Context, dir string, opts ...Option) (_ *Store, err error) {
	f, err := readFormat(dir)
	if err != nil {
		return nil, err
	}
	var closers []func() error // the last one opened is the first to close
	defer func() {
		if err != nil {
			for _, c := range closers {
				c()
			}
		}
	}()
	opened := func(c func() error) { closers = append([]func() error{c}, closers...) }
	lock, err := flock.Shared(filepath.Join(dir, lockFile))
	for begin := time.Now(); errors.Is(err, flock.ErrHeld) && time.Since(begin) < openPatience; {
		if err := sleep(ctx, 5*time.Millisecond); err != nil { // it may be being upgraded
			return nil, err
		}
		lock, err = flock.Shared(filepath.Join(dir, lockFile))
	}
	if err != nil {
		return nil, err
	}
	opened(func() error { return lock.Close() }) // an upgrade takes another one

	var c config
	if err := loadKeys(dir, &c); err != nil {
		return nil, err
	}
	backend, err := disk.Open(filepath.Join(dir, objectsDir))
	if err != nil {
		return nil, err
	}
	opened(backend.Close)
	cat, err := openCatalogue(ctx, dir, &lock)
	if err != nil {
		return nil, err
	}
	opened(cat.Close)
	c.catalogue, c.dir, c.backend, c.retention = cat, dir, backend, f.Retention
	c.book = newLeaseBook(cat, dir)
	c.objects = cas.New(backend, cas.Options{Leases: c.book})
	opened(c.objects.Close)
	for _, o := range opts {
		o(&c)
	}
	if err := c.checkGiven(); err != nil {
		return nil, err
	}
	s, err := newStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if s.id != f.StoreID {
		return nil, fmt.Errorf("%s: the catalogue is of store %s, %s of store %s: are two stores' files mixed up?",
			dir, s.id, formatFile, f.StoreID)
	}
	if err := s.hearTombstones(ctx); err != nil {
		return nil, err
	}
	s.close = closers
	_ = s.openLog(ctx) // what fails here fails again, and is told, where it is needed
	return s, nil
}

// openCatalogue opens the catalogue of the store in dir, which is locked, and
// upgrades an older one first. That takes the lock for this process alone.
func openCatalogue(ctx context.Context, dir string, lock **flock.Lock) (catalogue.Catalogue, error) {
	path := filepath.Join(dir, catalogueFile)
	cat, err := catalogue.OpenSQLite(path)
	for begin := time.Now(); errors.Is(err, catalogue.ErrOlder); {
		upErr := upgradeCatalogue(dir, *lock)
		if errors.Is(upErr, flock.ErrHeld) {
			// Another process has it open, perhaps because it has upgraded it.
			if time.Since(begin) >= upgradePatience {
				return nil, fmt.Errorf("%s must be upgraded, but other processes use it: %w", path, upErr)
			}
			if err := sleep(ctx, time.Millisecond+mathrand.N(20*time.Millisecond)); err != nil {
				return nil, err
			}
			// Look without the lock: many that wait and take it to look would
			// keep each other from having it alone.
			probe, err := catalogue.OpenSQLite(path)
			if errors.Is(err, catalogue.ErrOlder) {
				continue
			}
			if err == nil {
				probe.Close()
			}
		}
		shared, lockErr := flock.Shared(filepath.Join(dir, lockFile))
		switch {
		case errors.Is(lockErr, flock.ErrHeld) && time.Since(begin) < upgradePatience:
			continue
		case lockErr != nil:
			return nil, lockErr
		}
		*lock = shared
		if cat, err = catalogue.OpenSQLite(path); upErr != nil && errors.Is(err, catalogue.ErrOlder) && !errors.Is(upErr, flock.ErrHeld) {
			if !cannotWrite(upErr) {
				return nil, upErr
			}
			cat, err = catalogue.OpenAsItStands(path)
		}
	}
	switch {
	case errors.Is(err, catalogue.ErrMissing), errors.Is(err, catalogue.ErrDamaged):
		return nil, fmt.Errorf("%w: %w", ErrCatalogue, err)
	case errors.Is(err, catalogue.ErrNewer):
		return nil, fmt.Errorf("%w: %w", ErrNewerStore, err)
	case err != nil:
		return nil, wireError("", err)
	}
	return cat, nil
}

// openPatience is how long Open waits for a process that has the store for itself:
// an upgrade takes less.
const openPatience = time.Second

// upgradePatience is how long an upgrade waits for other processes to close the
// store. A test shortens it.
var upgradePatience = 5 * time.Second

// upgradeCatalogue gives up the lock and upgrades under one for itself alone.
func upgradeCatalogue(dir string, lock *flock.Lock) error {
	if err := lock.Close(); err != nil {
		return err
	}
	alone, err := flock.Exclusive(filepath.Join(dir, lockFile))
	if err != nil {
		return err
	}
	return errors.Join(catalogue.UpgradeSQLite(filepath.Join(dir, catalogueFile)), alone.Close())
}

// cannotWrite says that the store's disk is full or may not be written.
func cannotWrite(err error) bool {
	for _, is := range []error{catalogue.ErrFull, catalogue.ErrReadOnly, fs.ErrPermission, syscall.EROFS, syscall.ENOSPC} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func readFormat(dir string) (format, error) {
	var f format
	name := filepath.Join(dir, formatFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("%s: %w", dir, ErrNoStore)
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil || f.Format != formatName {
		return f, fmt.Errorf("%s does not say that this is a store", name)
	}
	if f.Version > FormatVersion {
		return f, fmt.Errorf("%s: %w: its format is version %d, this program knows %d", dir, ErrNewerStore, f.Version, FormatVersion)
	}
	if f.Version < 1 {
		return f, fmt.Errorf("%s: %d is no format version", name, f.Version)
	}
	if err := f.checkRetention(); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// loadKeys reads whose word counts and what can be signed. trust.policy is read
// anew when it changes.
func loadKeys(dir string, c *config) error {
	c.trust = &trustReader{dir: dir}
	if _, err := c.trust.current(); err != nil {
		return wireError("", err)
	}
	if socket := os.Getenv("SSH_AUTH_SOCK"); socket != "" {
		c.agent = keys.NewAgent(socket)
	}
	name := filepath.Join(dir, filepath.FromSlash(cursorKeyFile))
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && withoutKeys(dir) {
		return fmt.Errorf("%s is a backup without the private keys: %s", dir, putKeysBack)
	}
	if err != nil {
		return err
	}
	if n, err := hex.Decode(c.cursorKey[:], text[:min(len(text), 64)]); err != nil || n != len(c.cursorKey) {
		return fmt.Errorf("%s is not a key of 64 hex digits", name)
	}
	return nil
}
