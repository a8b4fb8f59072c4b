package catalogue

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Snapshot writes a catalogue with what stands in this one at one moment to
// path, replacing a file there in one step; it is durable on return. Publishing
// goes on meanwhile. The new one allows nothing: its grants are revoked, since it
// would not hear of what is revoked here later.
//
//	openat(dir, "catalogue.tmp-123", O_CREAT|O_EXCL); close; unlink
//	VACUUM INTO "catalogue.tmp-123"                  by SQLite
//	openat("catalogue.tmp-123"); fsync; close
//	renameat("catalogue.tmp-123", "catalogue")
//	fsync(dir)
func (s *SQLite) Snapshot(ctx context.Context, path string) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, base+".tmp-*")
	if err != nil {
		return createError(path, err)
	}
	temp := f.Name()
	defer os.Remove(temp)
	if err := f.Close(); err != nil {
		return createError(path, err)
	}
	if err := os.Remove(temp); err != nil {
		return createError(path, err)
	}
	if err := s.vacuumInto(ctx, temp); err != nil {
		return s.fail("snapshot", path, err)
	}
	for _, step := range []func() error{
		func() error { return os.Chmod(temp, 0o600) },
		func() error { return syncPath(temp, os.O_RDWR) },
		func() error { return os.Rename(temp, path) },
		func() error { return syncDir(dir) },
	} {
		if err := step(); err != nil {
			return createError(path, err)
		}
	}
	return nil
}

// vacuumInto uses a connection of its own: those that read refuse to write
// anything, also elsewhere.
func (s *SQLite) vacuumInto(ctx context.Context, temp string) error {
	db, err := openDB(s.path, "mode=rw")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, temp); err != nil || s.version < versionGrants {
		return err
	}
	return allowNothing(ctx, temp)
}

// allowNothing revokes all grants in a catalogue that nobody has open, and forgets
// the tokens. The restrictions stay.
func allowNothing(ctx context.Context, path string) (err error) {
	db, err := openDB(path, "mode=rw", "_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	for _, text := range []string{
		`PRAGMA journal_mode = DELETE`, // nothing may be left beside the file
		`BEGIN`,
		`UPDATE grants SET revoked_at = (SELECT clock FROM meta) WHERE revoked_at IS NULL`,
		`UPDATE principals SET token_hash = NULL`,
		`UPDATE meta SET policy_epoch = policy_epoch + 1`,
		`COMMIT`,
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
