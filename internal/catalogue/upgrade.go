package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// UpgradeSQLite brings the catalogue at path to the newest schema, in one
// transaction: after a crash it has the old one or the new one. One that is
// there already is left alone. Nobody else may use the store meanwhile: an older
// program that has the file open would go on as if nothing had changed, and a
// sweep would not see it.
func UpgradeSQLite(path string) (err error) {
	if err := checkFile(path); err != nil {
		return err
	}
	db, err := openDB(path, "mode=rw", "_pragma=synchronous(FULL)", "_pragma=fullfsync(1)")
	if err != nil {
		return sqlError("upgrade", path, path, err)
	}
	defer func() { err = errors.Join(err, sqlError("upgrade", path, path, db.Close())) }()
	db.SetMaxOpenConns(1)
	return sqlError("upgrade", path, path, upgrade(context.Background(), path, db))
}

func upgrade(ctx context.Context, path string, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer conn.ExecContext(ctx, `ROLLBACK`) //nolint:errcheck // after a commit there is nothing to roll back
	var id, version int64
	err = conn.QueryRowContext(ctx, `SELECT application_id, user_version
		FROM pragma_application_id, pragma_user_version`).Scan(&id, &version)
	if err != nil {
		return err
	}
	if err := checkSchema(path, id, version); err != nil {
		return err
	}
	if version == schemaVersion {
		return nil
	}
	for _, text := range []string{
		added(version),
		fmt.Sprintf(`PRAGMA user_version = %d`, schemaVersion),
		`COMMIT`,
	} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
