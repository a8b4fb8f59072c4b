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
		for _, table := range []string{"unfinished", "unfinished_indexes"} {
			if err := w.exec(ctx, `DELETE FROM `+table+` WHERE artifact_seq = (SELECT seq FROM artifacts WHERE artifact_id = ?)`, st.ArtifactID); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteBy implements [Statements].
func (s *SQLite) DeleteBy(ctx context.Context, lease, reason string, at time.Time, st Statement, mapRoot merkle.Root, mapSize int64, indexes ...Blob) error {
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
		for _, x := range indexes {
			if err := w.exec(ctx, `INSERT INTO unfinished_indexes (artifact_seq, root, size) VALUES (?, ?, ?)
				ON CONFLICT DO NOTHING`, row.Seq, x.Root[:], x.Size); err != nil {
				return err
			}
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
	if err := w.exec(ctx, insertStatement, st.values()...); err != nil {
		return err
	}
	w.log(st.Leaf, nil, &st.StatementID)
	return nil
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

// ObjectsOf implements [Statements].
func (s *SQLite) ObjectsOf(ctx context.Context, artifactID, kind string) ([]Statement, error) {
	return s.statements(ctx, MaxList, `SELECT `+statementColumns+` FROM statements
		WHERE artifact_id = ? AND kind = ? AND object_root IS NOT NULL ORDER BY seq LIMIT ?`, artifactID, kind, MaxList)
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
		if list[i].Indexes, err = s.unfinishedIndexes(ctx, list[i].Artifact.Seq); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *SQLite) unfinishedIndexes(ctx context.Context, seq int64) (list []Blob, err error) {
	if s.version < versionIndexes {
		return nil, nil
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT root, size FROM unfinished_indexes WHERE artifact_seq = ? ORDER BY root`, seq)
	if err != nil {
		return nil, s.fail("list the deletions of", s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var b Blob
		var root []byte
		if err := rows.Scan(&root, &b.Size); err != nil {
			return nil, s.fail("list the deletions of", s.path, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		copy(b.Root[:], root)
		list = append(list, b)
	}
	return list, s.fail("list the deletions of", s.path, rows.Err())
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
