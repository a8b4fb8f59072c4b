package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
)

// Salvaged is what a damaged catalogue still tells. Nothing of it is certain.
type Salvaged struct {
	StoreID string // "" where it does not tell
	Epoch   int64  // -1 where it does not tell
	Clock   int64  // microseconds; 0 where it does not tell
	Rows    []Artifact
	// Statements are in the order of their Seq.
	Statements []Statement
	Names      []Name
	Copies     []Copy
	// Checkpoint is the newest of the commit log; nil where it does not tell.
	Checkpoint []byte
	// Whole says that all rows of artifacts were read without an error.
	Whole bool
	// Restrictions are all of them, where WholeRestrictions says so. Grants and
	// principals are not read: what a damaged file allows, nobody knows.
	Restrictions      []Restriction
	WholeRestrictions bool
	// WholeStatements says that of the statements, WholeLifecycle of names and copies.
	WholeStatements, WholeLifecycle bool
}

// Salvage reads what can be read of the catalogue at path, from both ends of the
// list of artifacts. A file that tells nothing, or none, is no error.
func Salvage(ctx context.Context, path string) Salvaged {
	for _, params := range [][]string{{"mode=ro"}, {"mode=ro", "immutable=1"}} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			break
		}
		db, err := openDB(path, params...)
		if err != nil {
			continue
		}
		out, ok := salvage(ctx, db)
		db.Close()
		if ok {
			return out
		}
	}
	return Salvaged{Epoch: -1}
}

func salvage(ctx context.Context, db *sql.DB) (out Salvaged, ok bool) {
	out.Epoch = -1
	err := db.QueryRowContext(ctx, `SELECT store_id, policy_epoch, clock FROM meta WHERE one = 1`).Scan(&out.StoreID, &out.Epoch, &out.Clock)
	if err != nil {
		out.StoreID, out.Epoch, out.Clock = "", -1, 0
	}
	seen := make(map[string]bool)
	out.Whole = true
	for _, order := range []string{"ASC", "DESC"} {
		whole := out.collect(ctx, db, order, seen)
		if whole {
			break
		}
		out.Whole = false
	}
	out.Statements, out.WholeStatements = salvageStatements(ctx, db)
	if db.QueryRowContext(ctx, `SELECT note FROM log_heads ORDER BY size DESC LIMIT 1`).Scan(&out.Checkpoint) != nil {
		out.Checkpoint = nil
	}
	out.Restrictions, out.WholeRestrictions = salvageRestrictions(ctx, db)
	out.Names, out.Copies, out.WholeLifecycle = salvageLifecycle(ctx, db)
	return out, err == nil || len(out.Rows) > 0
}

// collect adds the rows that can be read in this order until one cannot.
func (out *Salvaged) collect(ctx context.Context, db *sql.DB, order string, seen map[string]bool) (whole bool) {
	rows, err := db.QueryContext(ctx, `SELECT `+columns+` FROM artifacts NOT INDEXED ORDER BY seq `+order)
	if err != nil {
		return false
	}
	defer rows.Close()
	whole = true
	for rows.Next() {
		a, err := scan(rows)
		if err != nil || a.check() != nil {
			whole = false
			continue
		}
		if !seen[a.ArtifactID] {
			seen[a.ArtifactID] = true
			out.Rows = append(out.Rows, a)
		}
	}
	return whole && rows.Err() == nil
}

// Restored is what a new catalogue is made of.
type Restored struct {
	StoreID string // "" for a new one
	Epoch   int64
	Clock   int64              // microseconds
	Rows    iter.Seq[Artifact] // in the order of publication, deleted ones too; Seq is ignored
	// Statements are entered in this order. An artifact with one of the kind
	// Tombstone is unfinished, unless its id is in Finished.
	Statements []Statement
	Tombstone  string
	Finished   map[string]bool
	Names      []Name
	Copies     []Copy
	// Restrictions stand from the beginning. There are no grants.
	Restrictions []Restriction
}

// Restore makes a catalogue with these rows at path, where none may stand. It is
// whole and durable on return; after a crash there is none. Rows whose id or
// manifest is there already are left out: their ids are returned.
func Restore(ctx context.Context, path string, r Restored) (clashes []string, err error) {
	if err := refuseExisting(path); err != nil {
		return nil, err
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	temp := filepath.Join(dir, base+".restoring")
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} { // of one that was interrupted
		if err := os.Remove(temp + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, createError(path, err)
		}
	}
	if err := createFile(temp); err != nil {
		return nil, err
	}
	defer os.Remove(temp)
	if clashes, err = fillRestored(ctx, temp, r); err != nil {
		return nil, sqlError("restore", path, path, err)
	}
	for _, step := range []func() error{
		func() error { return syncPath(temp, os.O_RDWR) },
		func() error { return os.Link(temp, path) },
		func() error { return syncDir(dir) },
	} {
		if err := step(); err != nil {
			return nil, createError(path, err)
		}
	}
	return clashes, nil
}

// fillRestored is one transaction, after which nothing is beside the file.
func fillRestored(ctx context.Context, path string, r Restored) (clashes []string, err error) {
	db, err := openDB(path, "mode=rw", "_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	insert, err := tx.PrepareContext(ctx, `INSERT INTO artifacts (artifact_id, manifest_id, tenant, run, source_id, root, size,
		envelope_root, envelope_size, created_at, expires_at, state, deleted_at, delete_reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	links := func(a Artifact) error {
		return a.linkStatements(func(text string, args ...any) error {
			_, err := tx.ExecContext(ctx, text, args...)
			return err
		})
	}
	var linked []Artifact // their inputs may come later
	for a := range r.Rows {
		if err := a.check(); err != nil {
			return nil, err
		}
		state, reason := "committed", (*string)(nil)
		if a.DeletedAt != nil {
			state, reason = "deleted", &a.DeleteReason
		}
		res, err := insert.ExecContext(ctx, a.ArtifactID, a.ManifestID, a.Tenant, a.Run, a.SourceID, a.Root[:], a.Size,
			a.EnvelopeRoot[:], a.EnvelopeSize, a.CreatedAt.UnixMicro(), toMicro(a.ExpiresAt), state, toMicro(a.DeletedAt), reason)
		if err != nil {
			return nil, err
		}
		if n, err := res.RowsAffected(); err != nil {
			return nil, err
		} else if n == 0 {
			clashes = append(clashes, a.ArtifactID)
		} else if len(a.Supersedes)+len(a.Inputs) > 0 {
			linked = append(linked, a)
		}
	}
	if err := restoreLifecycle(ctx, tx, r.Names, r.Copies); err != nil {
		return nil, err
	}
	for _, a := range linked {
		if err := links(a); err != nil {
			return nil, err
		}
	}
	if err := settleCopies(ctx, tx); err != nil {
		return nil, err
	}
	for _, res := range r.Restrictions {
		if _, err := tx.ExecContext(ctx, insertRestriction+` ON CONFLICT DO NOTHING`, res.values()...); err != nil {
			return nil, err
		}
	}
	if err := restoreStatements(ctx, tx, r.Statements, r.Finished, r.Tombstone); err != nil {
		return nil, err
	}
	if r.StoreID == "" {
		r.StoreID = newStoreID()
	}
	if _, err := tx.ExecContext(ctx, `UPDATE meta SET store_id = ?, policy_epoch = ?, clock = max(clock, ?) WHERE one = 1`,
		r.StoreID, r.Epoch, r.Clock); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	var busy, log, moved int64
	if err := db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &moved); err != nil {
		return nil, err
	}
	if busy != 0 {
		return nil, fmt.Errorf("the log could not be folded into the file")
	}
	return clashes, nil
}
