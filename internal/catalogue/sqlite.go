package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leafproof/merkle"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// SQLite is a Catalogue in one file, beside which SQLite keeps two of its own
// (-wal and -shm) while the catalogue is open. Several processes may have one
// file open at once, on one machine: the file does not belong on a network
// file system.
//
// A commit is durable when it returns (WAL with synchronous=FULL: SQLite syncs
// the -wal file at each commit, and the folder after it made that file).
// SQLite cannot tell a -wal file that somebody cut from one that ended there.
type SQLite struct {
	path   string
	reads  *sql.DB // a few connections that cannot write
	writer *writer
	stmts  statements
	store  string
	// version is that of the schema.
	version int64
	// clock is the latest time that Now returned, in microseconds.
	clock      atomic.Int64
	clockReads clockReads
	closed     atomic.Bool
	mark       *mark // nil where there is none
	looked     atomic.Pointer[looked]
	// logReads are statements that read the commit log, by their text.
	logReads sync.Map
}

// statements are prepared once; database/sql keeps one per connection.
type statements struct{ artifact, list, tenants, epoch, clock, sweep *sql.Stmt }

// busyTimeout is how long a call waits for other processes. A test shortens it.
var busyTimeout = 10 * time.Second

// columns are what scan takes.
const columns = `seq, artifact_id, manifest_id, tenant, run, source_id, root, size,
	envelope_root, envelope_size, created_at, expires_at, deleted_at, delete_reason`

// CreateSQLite makes the catalogue of a new store and opens it. It refuses a
// path where a file stands already, with [ErrExists]. After a crash there is
// either no file at path or a whole catalogue.
func CreateSQLite(path string) (*SQLite, error) {
	if err := refuseExisting(path); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	return OpenSQLite(path)
}

// OpenSQLite opens the catalogue at path. It never makes one: a missing file is
// [ErrMissing], an empty, zero-filled, cut or foreign one [ErrDamaged], one with
// a schema that this package does not know [ErrNewer], and one that can neither
// be written nor read as it stands [ErrReadOnly]. Their [Error] has a Hint. One
// with an older schema is [ErrOlder], for [UpgradeSQLite].
//
// SQLite wants to write beside the file even to read it. Where it cannot, on a
// full or read-only disk, and no other process has left a log of changes beside
// it, the file is read as it stands: everything published is found, and what
// would change it fails with [ErrReadOnly].
func OpenSQLite(path string) (*SQLite, error) {
	if err := checkFile(path); err != nil {
		return nil, err
	}
	s, err := openSQLite(path, "mode=rw", "_pragma=query_only(1)")
	if err == nil && s.version >= versionGrants {
		s.mark, _ = openMark(path) // without one, each look is at the database
		s.writer.mark = s.mark
	}
	if err == nil && s.version < schemaVersion {
		return nil, errors.Join(&Error{
			Op: "open", Subject: path, Err: ErrOlder, Hint: hintOlder,
			Detail: fmt.Sprintf("its schema has version %d, this program needs %d", s.version, schemaVersion),
		}, s.Close())
	}
	if err == nil || !cannotWrite(err) || !emptyWAL(path) {
		return s, err
	}
	asItStands, readErr := OpenAsItStands(path)
	if readErr != nil {
		return nil, err
	}
	return asItStands, nil
}

// OpenAsItStands opens the catalogue at path for reading only, without a look at
// what other processes change. It takes older schemas too.
func OpenAsItStands(path string) (*SQLite, error) {
	asItStands, err := openSQLite(path, "mode=ro", "immutable=1")
	if err != nil {
		return nil, err
	}
	asItStands.writer.failed = &Error{
		Op: "write", Subject: path, Err: ErrReadOnly, Hint: hintSpace,
		Detail: "its disk is full or read-only; it was opened as it stands",
	}
	return asItStands, nil
}

func openSQLite(path string, params ...string) (*SQLite, error) {
	reads, err := openDB(path, params...)
	if err != nil {
		return nil, sqlError("open", path, path, err)
	}
	readers := max(4, runtime.GOMAXPROCS(0))
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	s := &SQLite{path: path, reads: reads, clockReads: clockReads{turn: make(chan struct{}, 1)}}
	if err := s.load(); err != nil {
		reads.Close()
		return nil, err
	}
	s.writer = newWriter(path)
	return s, nil
}

// load reads what does not change, and thereby makes SQLite look at the file.
func (s *SQLite) load() error {
	ctx := context.Background()
	var id, version int64
	err := s.reads.QueryRowContext(ctx, `SELECT application_id, user_version
		FROM pragma_application_id, pragma_user_version`).Scan(&id, &version)
	if err != nil {
		return s.openFailed(err)
	}
	if err := checkSchema(s.path, id, version); err != nil {
		return err
	}
	s.version = version
	if err := s.reads.QueryRowContext(ctx, `SELECT store_id FROM meta WHERE one = 1`).Scan(&s.store); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("%w: it does not name its store", ErrDamaged)
		}
		return s.openFailed(err)
	}
	for stmt, text := range map[**sql.Stmt]string{
		&s.stmts.artifact: `SELECT ` + columns + supersededColumn(version) + ` FROM artifacts WHERE artifact_id = ?`,
		&s.stmts.list: `SELECT ` + columns + ` FROM artifacts
			WHERE state = 'committed' AND tenant = ? AND seq > ? ORDER BY seq LIMIT ?`,
		&s.stmts.tenants: `SELECT DISTINCT tenant FROM artifacts WHERE state = 'committed' ORDER BY tenant`,
		&s.stmts.epoch:   `SELECT policy_epoch, clock FROM meta WHERE one = 1`,
		&s.stmts.clock:   `SELECT clock FROM meta WHERE one = 1`,
		&s.stmts.sweep:   `SELECT epoch FROM sweep WHERE one = 1`,
	} {
		if stmt == &s.stmts.sweep && version < versionBook {
			continue
		}
		var err error
		if *stmt, err = s.reads.PrepareContext(ctx, text); err != nil {
			return s.openFailed(err)
		}
	}
	return nil
}

// openFailed reports what SQLite or scan found wrong with the file.
func (s *SQLite) openFailed(err error) error {
	if errors.Is(err, ErrDamaged) {
		return &Error{Op: "open", Subject: s.path, Err: err, Hint: hintRepair}
	}
	return sqlError("open", s.path, s.path, err)
}

// Publish implements [Catalogue]. Calls that come at the same time share one
// commit.
func (s *SQLite) Publish(ctx context.Context, a Artifact) error {
	return s.publish(ctx, a, func(context.Context, *writer) error { return nil })
}

// PublishUnder implements [Catalogue].
func (s *SQLite) PublishUnder(ctx context.Context, lease string, a Artifact) error {
	return s.publish(ctx, a, func(ctx context.Context, w *writer) error {
		return w.live(ctx, "publish "+a.ArtifactID+" under", lease)
	})
}

// publish publishes a, if may allows a new row.
func (s *SQLite) publish(ctx context.Context, a Artifact, may func(context.Context, *writer) error) error {
	if err := a.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{
		op: "publish", subject: a.ArtifactID,
		do: func(ctx context.Context, w *writer) error {
			no := may(ctx, w)
			if no == nil {
				return w.insert(ctx, a)
			}
			if _, refused := errors.AsType[*Error](no); refused { // but what is published, is
				if old, err := w.row(ctx, a.ArtifactID); err == nil {
					return republish(old, a)
				} else if !errors.Is(err, sql.ErrNoRows) {
					return err
				}
			}
			return no
		},
		applied: func(ctx context.Context) (bool, error) {
			row, err := s.Artifact(ctx, a.ArtifactID)
			if errors.Is(err, ErrNotFound) {
				return false, nil
			}
			return err == nil && row.ManifestID == a.ManifestID, err
		},
	})
}

// Delete implements [Catalogue].
func (s *SQLite) Delete(ctx context.Context, id, reason string, at time.Time) error {
	if err := checkDelete(id, at); err != nil {
		return err
	}
	return s.write(ctx, &job{
		op: "delete", subject: id,
		do: func(ctx context.Context, w *writer) error { return w.remove(ctx, id, reason, at) },
		applied: func(ctx context.Context) (bool, error) {
			row, err := s.Artifact(ctx, id)
			return err == nil && row.DeletedAt != nil, err
		},
	})
}

func (s *SQLite) write(ctx context.Context, j *job) error {
	j.now = s.tick(0)
	if err := s.writer.run(ctx, j); err != nil {
		return s.fail(j.op, j.subject, err)
	}
	return nil
}

// KeepLogShort makes the -wal file take little room, at the price of more
// syncs. It counts from the next connection on: call it before the first change.
func (s *SQLite) KeepLogShort() { s.writer.short.Store(true) }

// Artifact implements [Catalogue].
func (s *SQLite) Artifact(ctx context.Context, id string) (Artifact, error) {
	superseded := false
	a, err := scan(withFlag{s.stmts.artifact.QueryRowContext(ctx, id), &superseded})
	a.Superseded = superseded
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Artifact{}, notFound("look up", id)
	case err != nil:
		return Artifact{}, s.fail("look up", id, err)
	}
	// SQLite believes an index: a damaged one leads to another row, of which the
	// id is then not read. Only the manifest tells; see the root package's load.
	return a, nil
}

// List implements [Catalogue].
func (s *SQLite) List(ctx context.Context, tenant string, after int64, limit int) ([]Artifact, error) {
	if err := checkList(tenant, limit); err != nil {
		return nil, err
	}
	rows, err := s.stmts.list.QueryContext(ctx, tenant, after, limit)
	if err != nil {
		return nil, s.fail("list", tenant, err)
	}
	defer rows.Close()
	var list []Artifact
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, s.fail("list", tenant, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		if a.Tenant != tenant || a.Seq <= after || a.DeletedAt != nil {
			return nil, s.fail("list", tenant, fmt.Errorf("%w: an index leads to another row", ErrDamaged))
		}
		list = append(list, a)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("list", tenant, err)
	}
	return list, nil
}

// Tenants implements [Catalogue].
func (s *SQLite) Tenants(ctx context.Context) ([]string, error) {
	return s.tenants(s.stmts.tenants.QueryContext(ctx))
}

// TenantsEver implements [Catalogue].
func (s *SQLite) TenantsEver(ctx context.Context) ([]string, error) {
	return s.tenants(s.reads.QueryContext(ctx, `SELECT DISTINCT tenant FROM artifacts ORDER BY tenant`))
}

func (s *SQLite) tenants(rows *sql.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, s.fail("list the tenants of", s.path, err)
	}
	defer rows.Close()
	var tenants []string
	for rows.Next() {
		var t string
		if err := rows.Scan(&t); err != nil { // no tenant is written that is no text
			return nil, s.fail("list the tenants of", s.path, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		tenants = append(tenants, t)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("list the tenants of", s.path, err)
	}
	return tenants, nil
}

// Epoch implements [Catalogue].
func (s *SQLite) Epoch(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, s.fail("read the epoch of", s.path, context.Cause(ctx))
	}
	if epoch, _, ok := s.Quick(); ok {
		return epoch, nil
	}
	now := looked{at: time.Now()}
	quiet := false
	if s.mark != nil {
		now.begun, quiet = s.mark.count()
	}
	// Where there is no mark, the gate comes here before every 64 KiB. To make one
	// row interruptible costs the driver as much again as to read it.
	if err := s.stmts.epoch.QueryRowContext(context.WithoutCancel(ctx)).Scan(&now.epoch, &now.clock); err != nil {
		return 0, s.fail("read the epoch of", s.path, err)
	}
	if quiet {
		s.looked.Store(&now)
	}
	return now.epoch, nil
}

// Quick implements [Grants].
func (s *SQLite) Quick() (epoch int64, now time.Time, ok bool) {
	last := s.looked.Load()
	if last == nil || s.closed.Load() || time.Since(last.at) >= still {
		return 0, time.Time{}, false
	}
	if begun, _ := s.mark.count(); begun != last.begun {
		return 0, time.Time{}, false
	}
	return last.epoch, time.UnixMicro(s.tick(last.clock)).UTC(), true
}

// Stands implements [Grants]. How old the look at the database is, who asks knows.
func (s *SQLite) Stands(epoch int64) bool {
	last := s.looked.Load()
	if last == nil || last.epoch != epoch {
		return false
	}
	begun, _ := s.mark.count()
	return begun == last.begun
}

// Watches implements [Grants].
func (s *SQLite) Watches() bool { return s.mark != nil }

// StoreID implements [Catalogue].
func (s *SQLite) StoreID(context.Context) (string, error) {
	if s.closed.Load() {
		return "", s.fail("read the id of", s.path, ErrClosed)
	}
	return s.store, nil
}

// Close implements [Catalogue]. The last process that closes a catalogue folds
// the -wal file into it.
func (s *SQLite) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return errors.Join(s.reads.Close(), s.writer.close(), s.mark.close())
}

// fail wraps an error once.
func (s *SQLite) fail(op, subject string, err error) error {
	if s.closed.Load() && !errors.Is(err, context.Canceled) {
		return &Error{Op: op, Subject: subject, Err: ErrClosed}
	}
	return sqlError(op, subject, s.path, err)
}

// scan reads one row. A row that no writer of this package made is damage.
func scan(row interface{ Scan(...any) error }) (Artifact, error) {
	var (
		a                  Artifact
		root, envelopeRoot []byte
		created            int64
		expires, deleted   *int64
		reason             *string
	)
	err := row.Scan(&a.Seq, &a.ArtifactID, &a.ManifestID, &a.Tenant, &a.Run, &a.SourceID, &root, &a.Size,
		&envelopeRoot, &a.EnvelopeSize, &created, &expires, &deleted, &reason)
	if err != nil {
		return Artifact{}, err
	}
	if len(root) != len(a.Root) || len(envelopeRoot) != len(a.EnvelopeRoot) {
		return Artifact{}, fmt.Errorf("%w: a root in the row of %s has the wrong length", ErrDamaged, a.ArtifactID)
	}
	a.Root, a.EnvelopeRoot = merkle.Root(root), merkle.Root(envelopeRoot)
	a.CreatedAt = time.UnixMicro(created).UTC()
	a.ExpiresAt, a.DeletedAt = fromMicro(expires), fromMicro(deleted)
	if reason != nil {
		a.DeleteReason = *reason
	}
	return a, nil
}

func fromMicro(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	return new(time.UnixMicro(*us).UTC())
}

func toMicro(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(t.UnixMicro())
}

// openDB prepares connections to an existing file; the first use opens one. The
// parameters must name a mode of rw or ro: by default SQLite makes a missing file.
func openDB(path string, params ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	abs = filepath.ToSlash(abs)
	if !strings.HasPrefix(abs, "/") {
		abs = "/" + abs // C:/… is file:///C:/…
	}
	params = append([]string{
		"_defensive=1", "_dqs=0", "_error_rc=1",
		fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeout.Milliseconds()),
	}, params...)
	name := url.URL{Scheme: "file", Path: abs, RawQuery: strings.Join(params, "&")}
	return sql.Open("sqlite", name.String())
}

// refuseExisting also refuses what SQLite would take for a part of the new
// catalogue: it would replay the -wal file of one that is gone.
func refuseExisting(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return &Error{Op: "create", Subject: path + suffix, Err: ErrExists}
		}
	}
	return nil
}
