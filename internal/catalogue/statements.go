package catalogue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"leafproof/merkle"
)

// Statement is a signed statement about an artifact, as it stands in the
// catalogue: receipts, tombstones and what else is said after publication. The
// catalogue does not read it.
type Statement struct {
	StatementID string // no two have the same
	Kind        string // its predicateType
	Tenant      string
	ArtifactID  string
	IssuedAt    time.Time // kept to the microsecond
	Envelope    []byte
	// Cursor is a digest of the cursor that the receipt's answer ended with, so that
	// the receipt of the next page finds this one; zero for none.
	Cursor merkle.Root
	// ObjectRoot and ObjectSize are where the statement also stands as an object,
	// so that it outlives the catalogue; zero for none.
	ObjectRoot merkle.Root
	ObjectSize int64
	Seq        int64 // the order of entering, from 1, with gaps; set by the catalogue
}

// Unfinished is an artifact that a tombstone ended and whose bytes are not known
// to be gone.
type Unfinished struct {
	Artifact    Artifact
	StatementID string // of the tombstone
	// MapRoot and MapSize are the artifact's record map; zero for none, or where
	// the manifest could not be read.
	MapRoot merkle.Root
	MapSize int64
}

// Statements is the part of a catalogue that keeps what is said about artifacts.
type Statements interface {
	// State enters a statement about an artifact, which must have been published:
	// else it is [ErrNotFound]. The same id again changes nothing. When it returns
	// nil, the statement survives a crash. If the lease is lost or gone, nothing is
	// entered, and the error is [ErrLease]. With "" for a lease, the statement is no
	// object, or a sweep must be impossible meanwhile.
	State(ctx context.Context, lease string, st Statement) error
	// DeleteBy is Delete with the tombstone that says so, and with the record map
	// that the artifact had: both are entered, and the artifact is unfinished from
	// then on, or nothing is. On an artifact that is deleted already it changes
	// nothing and is not an error.
	DeleteBy(ctx context.Context, lease, reason string, at time.Time, tombstone Statement, mapRoot merkle.Root, mapSize int64) error
	// Finish is State for the statement that says that a deletion is complete: the
	// artifact is unfinished no longer.
	Finish(ctx context.Context, lease string, st Statement) error
	// StatementsOf returns the statements about an artifact with Seq > after, in the
	// order of Seq; at most limit, which is from 1 to [MaxList].
	StatementsOf(ctx context.Context, artifactID string, after int64, limit int) ([]Statement, error)
	// Objects returns the statements of a tenant that stand as objects, like
	// StatementsOf. A tenant of "" is all tenants.
	Objects(ctx context.Context, tenant string, after int64, limit int) ([]Statement, error)
	// Before returns the latest receipt whose answer ended with a cursor, or
	// ErrNotFound.
	Before(ctx context.Context, cursor merkle.Root) (Statement, error)
	// Unfinished returns what is unfinished with an artifact's Seq > after, in the
	// order of Seq; at most limit.
	Unfinished(ctx context.Context, after int64, limit int) ([]Unfinished, error)
}

// maxStatement is the largest envelope of a statement, in bytes.
const maxStatement = 2 << 20

// statementSchema is what version 3 of the schema has beyond version 2. A row of
// statements is never removed.
const statementSchema = `
CREATE TABLE statements (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	statement_id TEXT    NOT NULL UNIQUE,
	kind         TEXT    NOT NULL,
	tenant       TEXT    NOT NULL,
	artifact_id  TEXT    NOT NULL,
	issued_at    INTEGER NOT NULL,
	cursor       BLOB    CHECK (length(cursor) = 32),
	object_root  BLOB    CHECK (length(object_root) = 32),
	object_size  INTEGER CHECK (object_size > 0),
	envelope     BLOB    NOT NULL,
	CHECK ((object_root IS NULL) = (object_size IS NULL))
) STRICT;

CREATE INDEX statements_of_artifact ON statements (artifact_id, seq);

CREATE INDEX statements_by_cursor ON statements (cursor) WHERE cursor IS NOT NULL;

CREATE INDEX statements_as_objects ON statements (tenant, seq) WHERE object_root IS NOT NULL;

CREATE TABLE unfinished (
	artifact_seq INTEGER PRIMARY KEY,
	statement_id TEXT    NOT NULL,
	map_root     BLOB    CHECK (length(map_root) = 32),
	map_size     INTEGER NOT NULL CHECK (map_size >= 0)
) STRICT;
`

const statementColumns = `seq, statement_id, kind, tenant, artifact_id, issued_at, cursor, object_root, object_size, envelope`

// check refuses a statement that cannot be kept.
func (st *Statement) check() error {
	wrong := ""
	switch {
	case st.StatementID == "" || st.Kind == "" || st.Tenant == "" || st.ArtifactID == "":
		wrong = "an id, the kind or the tenant is empty"
	case !validTime(st.IssuedAt):
		wrong = "its time is not between the years 1 and 9999"
	case len(st.Envelope) == 0 || len(st.Envelope) > maxStatement:
		wrong = fmt.Sprintf("an envelope of %d bytes", len(st.Envelope))
	case st.ObjectRoot.IsZero() != (st.ObjectSize == 0) || st.ObjectSize < 0:
		wrong = "its object has a root or a size alone"
	}
	if wrong == "" {
		return nil
	}
	return &Error{Op: "state", Subject: st.StatementID, Err: ErrInvalid, Detail: wrong}
}

func (st *Statement) clone() Statement {
	c := *st
	c.Envelope, c.IssuedAt = slices.Clone(st.Envelope), micro(st.IssuedAt)
	return c
}

// The engine in memory.

// said is the state of [Memory]'s Statements.
type said struct {
	all        []Statement // all[i].Seq == i+1
	unfinished []Unfinished
}

func (m *Memory) live(op, lease string) error {
	if h := m.book.leases[lease]; h == nil || h.Lost {
		return leaseLost(op, lease)
	}
	return nil
}

// state enters a statement, with m locked. It reports whether it is new.
func (m *Memory) state(lease string, st Statement) (bool, error) {
	if err := st.check(); err != nil {
		return false, err
	}
	if slices.ContainsFunc(m.said.all, func(o Statement) bool { return o.StatementID == st.StatementID }) {
		return false, nil
	}
	if _, ok := m.byID[st.ArtifactID]; !ok {
		return false, notFound("state", st.ArtifactID)
	}
	if lease != "" {
		if err := m.live("state "+st.StatementID+" under", lease); err != nil {
			return false, err
		}
	}
	st = st.clone()
	st.Seq = int64(len(m.said.all) + 1)
	m.said.all = append(m.said.all, st)
	m.tick()
	return true, nil
}

// State implements [Statements].
func (m *Memory) State(ctx context.Context, lease string, st Statement) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		_, err = m.state(lease, st)
	}
	return err
}

// DeleteBy implements [Statements].
func (m *Memory) DeleteBy(ctx context.Context, lease, reason string, at time.Time, st Statement, mapRoot merkle.Root, mapSize int64) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := checkDelete(st.ArtifactID, at); err != nil {
		return err
	}
	i, ok := m.byID[st.ArtifactID]
	if !ok {
		return notFound("delete", st.ArtifactID)
	}
	if m.rows[i].DeletedAt != nil {
		return nil
	}
	if _, err := m.state(lease, st); err != nil {
		return err
	}
	a := &m.rows[i]
	a.DeletedAt, a.DeleteReason = new(micro(at)), reason
	m.said.unfinished = append(m.said.unfinished, Unfinished{Artifact: a.clone(), StatementID: st.StatementID, MapRoot: mapRoot, MapSize: mapSize})
	slices.SortFunc(m.said.unfinished, func(a, b Unfinished) int { return cmp.Compare(a.Artifact.Seq, b.Artifact.Seq) })
	return nil
}

// Finish implements [Statements].
func (m *Memory) Finish(ctx context.Context, lease string, st Statement) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		_, err = m.state(lease, st)
	}
	if err != nil {
		return err
	}
	m.said.unfinished = slices.DeleteFunc(m.said.unfinished, func(u Unfinished) bool { return u.Artifact.ArtifactID == st.ArtifactID })
	return nil
}

func (m *Memory) statements(ctx context.Context, limit int, after int64, want func(*Statement) bool) ([]Statement, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("statements", limit); err != nil {
		return nil, err
	}
	var list []Statement
	for i := range m.said.all {
		if st := &m.said.all[i]; st.Seq > after && want(st) && len(list) < limit {
			list = append(list, st.clone())
		}
	}
	return list, nil
}

// StatementsOf implements [Statements].
func (m *Memory) StatementsOf(ctx context.Context, artifactID string, after int64, limit int) ([]Statement, error) {
	return m.statements(ctx, limit, after, func(st *Statement) bool { return st.ArtifactID == artifactID })
}

// Objects implements [Statements].
func (m *Memory) Objects(ctx context.Context, tenant string, after int64, limit int) ([]Statement, error) {
	return m.statements(ctx, limit, after, func(st *Statement) bool {
		return !st.ObjectRoot.IsZero() && (tenant == "" || st.Tenant == tenant)
	})
}

// Before implements [Statements].
func (m *Memory) Before(ctx context.Context, cursor merkle.Root) (Statement, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Statement{}, err
	}
	for i := len(m.said.all) - 1; i >= 0; i-- {
		if st := &m.said.all[i]; st.Cursor == cursor && !cursor.IsZero() {
			return st.clone(), nil
		}
	}
	return Statement{}, notFound("look up the receipt before", "a page")
}

// Unfinished implements [Statements].
func (m *Memory) Unfinished(ctx context.Context, after int64, limit int) ([]Unfinished, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("unfinished", limit); err != nil {
		return nil, err
	}
	var list []Unfinished
	for _, u := range m.said.unfinished {
		if u.Artifact.Seq > after && len(list) < limit {
			u.Artifact = u.Artifact.clone()
			list = append(list, u)
		}
	}
	return list, nil
}

// The engine in a file.

// State implements [Statements].
func (s *SQLite) State(ctx context.Context, lease string, st Statement) error {
	return s.state(ctx, "state", st, func(ctx context.Context, w *writer) error { return w.state(ctx, lease, st) })
}

// Finish implements [Statements].
func (s *SQLite) Finish(ctx context.Context, lease string, st Statement) error {
	return s.state(ctx, "state", st, func(ctx context.Context, w *writer) error {
		if err := w.state(ctx, lease, st); err != nil {
			return err
		}
		return w.exec(ctx, `DELETE FROM unfinished WHERE artifact_seq = (SELECT seq FROM artifacts WHERE artifact_id = ?)`, st.ArtifactID)
	})
}

// DeleteBy implements [Statements].
func (s *SQLite) DeleteBy(ctx context.Context, lease, reason string, at time.Time, st Statement, mapRoot merkle.Root, mapSize int64) error {
	if err := checkDelete(st.ArtifactID, at); err != nil {
		return err
	}
	return s.state(ctx, "delete", st, func(ctx context.Context, w *writer) error {
		row, err := w.row(ctx, st.ArtifactID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return notFound("delete", st.ArtifactID)
		case err != nil || row.DeletedAt != nil:
			return err
		}
		if err := w.state(ctx, lease, st); err != nil {
			return err
		}
		if err := w.remove(ctx, st.ArtifactID, reason, at); err != nil {
			return err
		}
		return w.exec(ctx, `INSERT INTO unfinished (artifact_seq, statement_id, map_root, map_size) VALUES (?, ?, ?, ?)`,
			row.Seq, st.StatementID, rootOrNull(mapRoot), mapSize)
	})
}

func (s *SQLite) state(ctx context.Context, op string, st Statement, do func(context.Context, *writer) error) error {
	if err := st.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{
		op: op, subject: st.ArtifactID, do: do,
		applied: func(ctx context.Context) (bool, error) {
			var n int64
			err := s.reads.QueryRowContext(ctx, `SELECT count(*) FROM statements WHERE statement_id = ?`, st.StatementID).Scan(&n)
			return n > 0, err
		},
	})
}

// state enters a statement, or refuses.
func (w *writer) state(ctx context.Context, lease string, st Statement) error {
	n, err := w.number(ctx, `SELECT count(*) FROM statements WHERE statement_id = ?`, st.StatementID)
	if err != nil || n > 0 {
		return err
	}
	if _, err := w.row(ctx, st.ArtifactID); errors.Is(err, sql.ErrNoRows) {
		return notFound("state", st.ArtifactID)
	} else if err != nil {
		return err
	}
	if lease != "" {
		if err := w.live(ctx, "state "+st.StatementID+" under", lease); err != nil {
			return err
		}
	}
	return w.exec(ctx, insertStatement, st.values()...)
}

const insertStatement = `INSERT INTO statements (statement_id, kind, tenant, artifact_id, issued_at, cursor, object_root, object_size, envelope)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (st *Statement) values() []any {
	var size *int64
	if !st.ObjectRoot.IsZero() {
		size = &st.ObjectSize
	}
	return []any{
		st.StatementID, st.Kind, st.Tenant, st.ArtifactID, st.IssuedAt.UnixMicro(),
		rootOrNull(st.Cursor), rootOrNull(st.ObjectRoot), size, st.Envelope,
	}
}

func rootOrNull(r merkle.Root) []byte {
	if r.IsZero() {
		return nil
	}
	return r[:]
}

// StatementsOf implements [Statements].
func (s *SQLite) StatementsOf(ctx context.Context, artifactID string, after int64, limit int) ([]Statement, error) {
	return s.statements(ctx, limit, `SELECT `+statementColumns+` FROM statements
		WHERE artifact_id = ? AND seq > ? ORDER BY seq LIMIT ?`, artifactID, after, limit)
}

// Objects implements [Statements].
func (s *SQLite) Objects(ctx context.Context, tenant string, after int64, limit int) ([]Statement, error) {
	if tenant == "" {
		return s.statements(ctx, limit, `SELECT `+statementColumns+` FROM statements
			WHERE object_root IS NOT NULL AND seq > ? ORDER BY seq LIMIT ?`, after, limit)
	}
	return s.statements(ctx, limit, `SELECT `+statementColumns+` FROM statements
		WHERE object_root IS NOT NULL AND tenant = ? AND seq > ? ORDER BY seq LIMIT ?`, tenant, after, limit)
}

// Before implements [Statements].
func (s *SQLite) Before(ctx context.Context, cursor merkle.Root) (Statement, error) {
	list, err := s.statements(ctx, 1, `SELECT `+statementColumns+` FROM statements
		WHERE cursor = ? ORDER BY seq DESC LIMIT 1`, cursor[:])
	if err == nil && len(list) == 0 {
		err = notFound("look up the receipt before", "a page")
	}
	if err != nil {
		return Statement{}, err
	}
	return list[0], nil
}

func (s *SQLite) statements(ctx context.Context, limit int, query string, args ...any) ([]Statement, error) {
	if err := checkList("statements", limit); err != nil {
		return nil, err
	}
	if s.version < versionStatements {
		return nil, nil // opened as it stands
	}
	rows, err := s.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail("list the statements of", s.path, err)
	}
	defer rows.Close()
	var list []Statement
	for rows.Next() {
		st, err := scanStatement(rows)
		if err != nil {
			return nil, s.fail("list the statements of", s.path, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		list = append(list, st)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("list the statements of", s.path, err)
	}
	return list, nil
}

func scanStatement(row interface{ Scan(...any) error }) (Statement, error) {
	var (
		st             Statement
		issued         int64
		cursor, object []byte
		size           *int64
	)
	err := row.Scan(&st.Seq, &st.StatementID, &st.Kind, &st.Tenant, &st.ArtifactID, &issued, &cursor, &object, &size, &st.Envelope)
	if err != nil {
		return Statement{}, err
	}
	st.IssuedAt = time.UnixMicro(issued).UTC()
	for _, r := range []struct {
		from []byte
		to   *merkle.Root
	}{{cursor, &st.Cursor}, {object, &st.ObjectRoot}} {
		if r.from != nil && copy(r.to[:], r.from) != len(r.to) {
			return Statement{}, fmt.Errorf("%w: a root in the row of %s has the wrong length", ErrDamaged, st.StatementID)
		}
	}
	if size != nil {
		st.ObjectSize = *size
	}
	return st, nil
}

// Unfinished implements [Statements].
func (s *SQLite) Unfinished(ctx context.Context, after int64, limit int) ([]Unfinished, error) {
	if err := checkList("unfinished", limit); err != nil {
		return nil, err
	}
	if s.version < versionStatements {
		return nil, nil
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT u.statement_id, u.map_root, u.map_size, a.artifact_id
		FROM unfinished AS u JOIN artifacts AS a ON a.seq = u.artifact_seq
		WHERE u.artifact_seq > ? ORDER BY u.artifact_seq LIMIT ?`, after, limit)
	if err != nil {
		return nil, s.fail("list the deletions of", s.path, err)
	}
	defer rows.Close()
	var list []Unfinished
	for rows.Next() {
		var u Unfinished
		var root []byte
		if err := rows.Scan(&u.StatementID, &root, &u.MapSize, &u.Artifact.ArtifactID); err != nil {
			return nil, s.fail("list the deletions of", s.path, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		copy(u.MapRoot[:], root)
		list = append(list, u)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, s.fail("list the deletions of", s.path, err)
	}
	for i := range list {
		if list[i].Artifact, err = s.Artifact(ctx, list[i].Artifact.ArtifactID); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// salvageStatements reads the statements that can be read.
func salvageStatements(ctx context.Context, db *sql.DB) (list []Statement, whole bool) {
	seen := make(map[string]bool)
	for _, order := range []string{"ASC", "DESC"} {
		rows, err := db.QueryContext(ctx, `SELECT `+statementColumns+` FROM statements NOT INDEXED ORDER BY seq `+order)
		if err != nil {
			return list, false
		}
		whole = true
		for rows.Next() {
			st, err := scanStatement(rows)
			if err != nil || st.check() != nil {
				whole = false
				continue
			}
			if !seen[st.StatementID] {
				seen[st.StatementID] = true
				list = append(list, st)
			}
		}
		if whole = whole && rows.Err() == nil; whole {
			rows.Close()
			break
		}
		rows.Close()
	}
	slices.SortFunc(list, func(a, b Statement) int { return cmp.Compare(a.Seq, b.Seq) })
	return list, whole
}

// restoreStatements enters statements into a new catalogue. Those of artifacts that
// are not there, and second ones of an id, are left out. An artifact with a
// tombstone that no later statement finishes is unfinished.
func restoreStatements(ctx context.Context, tx *sql.Tx, list []Statement, finished map[string]bool, tombstone string) error {
	for _, st := range list {
		if err := st.check(); err != nil {
			return err
		}
		var seq int64
		err := tx.QueryRowContext(ctx, `SELECT seq FROM artifacts WHERE artifact_id = ?`, st.ArtifactID).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertStatement+` ON CONFLICT DO NOTHING`, st.values()...); err != nil {
			return err
		}
		if st.Kind != tombstone || finished[st.ArtifactID] {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO unfinished (artifact_seq, statement_id, map_root, map_size)
			VALUES (?, ?, NULL, 0) ON CONFLICT DO NOTHING`, seq, st.StatementID); err != nil {
			return err
		}
	}
	return nil
}
