package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// createFile makes a whole catalogue under another name and then gives it its
// own, without replacing a file that came meanwhile:
//
//	openat(dir, "catalogue.tmp-123", O_CREAT|O_EXCL); close
//	openat, write, fsync, close …                      by SQLite
//	openat("catalogue.tmp-123"); fsync; close
//	linkat("catalogue.tmp-123", "catalogue")
//	unlink("catalogue.tmp-123")
//	fsync(dir)
func createFile(path string) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, base+".tmp-*")
	if err != nil {
		return createError(path, err)
	}
	temp := f.Name()
	defer os.Remove(temp) // on a failure; it is gone already on success
	if err := f.Close(); err != nil {
		return createError(path, err)
	}
	if err := fill(temp); err != nil {
		return sqlError("create", path, path, err)
	}
	for _, step := range []func() error{
		func() error { return syncPath(temp, os.O_RDWR) },
		func() error { return os.Link(temp, path) },
		func() error { return os.Remove(temp) },
		func() error { return syncDir(dir) },
	} {
		if err := step(); err != nil {
			return createError(path, err)
		}
	}
	return nil
}

// fill writes the schema into an empty file, as one transaction with a rollback
// journal, and leaves it in WAL mode with nothing beside it.
func fill(path string) (err error) {
	db, err := openDB(path, "mode=rw", "_pragma=synchronous(FULL)", fmt.Sprintf("_pragma=page_size(%d)", pageBytes))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	for _, text := range []string{
		fmt.Sprintf(`PRAGMA application_id = %d`, applicationID),
		fmt.Sprintf(`PRAGMA user_version = %d`, schemaVersion),
		schema + added(oldestVersion),
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO meta (one, store_id, policy_epoch, clock) VALUES (1, ?, 0, ?)`,
		newStoreID(), time.Now().UnixMicro())
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return setWAL(ctx, db)
}

// setWAL checks the answer: SQLite reports a mode that it cannot set by naming
// the old one.
func setWAL(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) error {
	var mode string
	if err := db.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("SQLite keeps the journal mode %q here", mode)
	}
	return nil
}

// syncDir makes the names in a folder durable. Windows has no such call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return syncPath(dir, os.O_RDONLY)
}

func syncPath(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func createError(path string, err error) error {
	cause := err
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		cause = pathErr.Err
	}
	if linkErr, ok := errors.AsType[*os.LinkError](err); ok {
		cause = linkErr.Err
	}
	e := &Error{Op: "create", Subject: path, Err: cause}
	switch {
	case errors.Is(err, fs.ErrExist):
		e.Err = ErrExists
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		e.Err, e.Detail = ErrReadOnly, cause.Error()
	case isFull(err):
		e.Err = ErrFull
	}
	return e
}
