package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// commits is what the writer knows of the commit log; who leads uses it.
type commits struct {
	edge    *edge // of what is committed; nil: not known
	pending []pendingLeaf
}

// pendingLeaf waits for the end of the transaction.
type pendingLeaf struct {
	leaf        Leaf
	artifactSeq *int64
	statementID *string
}

const insertLeaf = `INSERT INTO log_leaves (idx, kind, digest, hash, artifact_seq, statement_id) VALUES (?, ?, ?, ?, ?, ?)`

// log appends a leaf at the end of the transaction.
func (w *writer) log(leaf Leaf, artifactSeq *int64, statementID *string) {
	if !leaf.none() {
		w.commits.pending = append(w.commits.pending, pendingLeaf{leaf, artifactSeq, statementID})
	}
}

// grow writes the leaves that wait, and seals the log.
func (w *writer) grow(ctx context.Context, now int64) error {
	pending := w.commits.pending
	w.commits.pending = nil
	if len(pending) == 0 {
		return nil
	}
	size, err := w.number(ctx, logSize)
	if err != nil {
		return err
	}
	e := w.commits.edge
	w.commits.edge = nil // until the commit has been made
	if e == nil || e.size != size {
		if e, err = w.loadEdge(ctx, size); err != nil {
			return err
		}
	}
	insert, err := w.prepare(ctx, insertLeaf)
	if err != nil {
		return err
	}
	changed := map[tileKey][]byte{} // in one commit a tile grows often, and is written once
	for _, p := range pending {
		if _, err := insert.ExecContext(ctx, e.size, p.leaf.Kind, p.leaf.Digest[:], p.leaf.Hash[:], p.artifactSeq, p.statementID); err != nil {
			return err
		}
		if err := e.add(p.leaf.Hash, func(k tileKey, tile []tlog.Hash) error {
			changed[k] = joinHashes(tile)
			return nil
		}); err != nil {
			return err
		}
	}
	for k, b := range changed {
		if err := w.exec(ctx, `INSERT OR REPLACE INTO log_tiles (place, hashes) VALUES (?, ?)`, k.place(), b); err != nil {
			return err
		}
	}
	w.commits.edge = e
	return w.sealEdge(ctx, e, now)
}

// sealEdge has the log signed as it is.
func (w *writer) sealEdge(ctx context.Context, e *edge, now int64) error {
	sealer := w.sealer.Load()
	if sealer == nil {
		return nil
	}
	clock, err := w.number(ctx, `SELECT max(clock, ?) FROM meta WHERE one = 1`, now)
	if err != nil {
		return err
	}
	note, err := (*sealer)(e.size, e.root(), time.UnixMicro(clock).UTC())
	if err != nil || checkHead(e.size, note) != nil {
		return nil // see Sealer
	}
	return w.exec(ctx, `INSERT OR IGNORE INTO log_heads (size, at, note, witnessed) VALUES (?, ?, ?, 0)`, e.size, clock, note)
}

const logSize = `SELECT coalesce(max(idx) + 1, 0) FROM log_leaves`

func (w *writer) loadEdge(ctx context.Context, size int64) (*edge, error) {
	return loadEdge(size, func(key tileKey, width int) ([]tlog.Hash, error) {
		b, err := readTile(ctx, key, width, func(text string) (*sql.Stmt, error) { return w.prepare(ctx, text) })
		if err != nil {
			return nil, err
		}
		if len(b) != width*tlog.HashSize {
			return nil, fmt.Errorf("%w: level %d of the log has %d hashes at its edge, not %d", ErrDamaged, key.level, len(b)/tlog.HashSize, width)
		}
		return splitHashes(b), nil
	})
}

// readTile reads a tile; of the lowest level, out of the leaves where it is not full.
func readTile(ctx context.Context, key tileKey, width int, prepare func(string) (*sql.Stmt, error)) ([]byte, error) {
	if key.level > 0 || width == tileWidth {
		stmt, err := prepare(`SELECT hashes FROM log_tiles WHERE place = ?`)
		if err != nil {
			return nil, err
		}
		var b []byte
		if err := stmt.QueryRowContext(ctx, key.place()).Scan(&b); !errors.Is(err, sql.ErrNoRows) || key.level > 0 {
			return b, err
		}
	}
	stmt, err := prepare(`SELECT hash FROM log_leaves WHERE idx >= ? ORDER BY idx LIMIT ?`)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, key.n*tileWidth, width)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var b []byte
	for rows.Next() {
		var h []byte
		if err := rows.Scan(&h); err != nil {
			return nil, err
		}
		b = append(b, h...)
	}
	return b, rows.Err()
}

// kept prepares a statement for reading once.
func (s *SQLite) kept(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := s.logReads.Load(text); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := s.reads.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if first, there := s.logReads.LoadOrStore(text, stmt); there {
		stmt.Close()
		return first.(*sql.Stmt), nil
	}
	return stmt, nil
}

// told is an error of a read, or nil.
func (s *SQLite) told(op, subject string, err error) error {
	if err == nil {
		return nil
	}
	return s.fail(op, subject, err)
}

// logless reports whether the catalogue is an older one, opened as it stands.
func (s *SQLite) logless() bool { return s.version < versionLog }

// Seal implements [Commits].
func (s *SQLite) Seal(by Sealer) {
	if by == nil {
		s.writer.sealer.Store(nil)
		return
	}
	s.writer.sealer.Store(&by)
}

// Append implements [Commits].
func (s *SQLite) Append(ctx context.Context, leaves ...Leaf) error {
	for _, leaf := range leaves {
		if err := leaf.check(); err != nil {
			return err
		}
	}
	return s.write(ctx, &job{op: "append to", subject: "the log", do: func(ctx context.Context, w *writer) error {
		for _, leaf := range leaves {
			n, err := w.number(ctx, `SELECT count(*) FROM log_leaves WHERE kind = ? AND digest = ? AND artifact_seq IS NULL AND statement_id IS NULL`, leaf.Kind, leaf.Digest[:])
			if err != nil {
				return err
			}
			// Another job of this commit may have entered it.
			waits := func(p pendingLeaf) bool {
				return p.artifactSeq == nil && p.statementID == nil && p.leaf.Kind == leaf.Kind && p.leaf.Digest == leaf.Digest
			}
			if n == 0 && !slices.ContainsFunc(w.commits.pending, waits) {
				w.log(leaf, nil, nil)
			}
		}
		return nil
	}})
}

// Backfill implements [Commits].
func (s *SQLite) Backfill(ctx context.Context, artifactID string, leaf Leaf) error {
	if err := leaf.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{op: "log", subject: artifactID, do: func(ctx context.Context, w *writer) error {
		row, err := w.row(ctx, artifactID)
		if errors.Is(err, sql.ErrNoRows) {
			return notFound("log", artifactID)
		}
		if err != nil {
			return err
		}
		n, err := w.number(ctx, `SELECT count(*) FROM log_leaves WHERE artifact_seq = ?`, row.Seq)
		waits := func(p pendingLeaf) bool { return p.artifactSeq != nil && *p.artifactSeq == row.Seq }
		if err == nil && n == 0 && !slices.ContainsFunc(w.commits.pending, waits) {
			w.log(leaf, &row.Seq, nil)
		}
		return err
	}})
}

// LogSize implements [Commits].
func (s *SQLite) LogSize(ctx context.Context) (n int64, err error) {
	if s.logless() {
		return 0, nil
	}
	err = s.reads.QueryRowContext(ctx, logSize).Scan(&n)
	return n, s.told("read", "the log", err)
}

const leafColumns = `l.idx, l.kind, l.digest, l.hash`

func scanLeaf(row interface{ Scan(...any) error }) (l Leaf, err error) {
	var digest, hash []byte
	if err := row.Scan(&l.Index, &l.Kind, &digest, &hash); err != nil {
		return Leaf{}, err
	}
	if len(digest) != len(l.Digest) || len(hash) != len(l.Hash) {
		return Leaf{}, fmt.Errorf("%w: leaf %d", ErrDamaged, l.Index)
	}
	copy(l.Digest[:], digest)
	copy(l.Hash[:], hash)
	return l, nil
}

// Leaves implements [Commits].
func (s *SQLite) Leaves(ctx context.Context, from int64, limit int) ([]Leaf, error) {
	if err := checkList("leaves", limit); err != nil {
		return nil, err
	}
	if s.logless() {
		return nil, nil
	}
	list, err := s.leaves(ctx, `SELECT `+leafColumns+` FROM log_leaves l WHERE idx >= ? ORDER BY idx LIMIT ?`, from, limit)
	return list, s.told("read", "the log", err)
}

// Orphans implements [Commits].
func (s *SQLite) Orphans(ctx context.Context, limit int) ([]Leaf, error) {
	if err := checkList("orphans", limit); err != nil {
		return nil, err
	}
	if s.logless() {
		return nil, nil
	}
	list, err := s.leaves(ctx, `SELECT `+leafColumns+` FROM log_leaves l
		WHERE l.artifact_seq IS NOT NULL AND NOT EXISTS (SELECT 1 FROM artifacts WHERE seq = l.artifact_seq)
		OR l.statement_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM statements s WHERE s.statement_id = l.statement_id)
		ORDER BY idx LIMIT ?`, limit)
	return list, s.told("read", "the log", err)
}

func (s *SQLite) leaves(ctx context.Context, query string, args ...any) (list []Leaf, err error) {
	rows, err := s.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		l, err := scanLeaf(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, rows.Err()
}

// LeafOf implements [Commits].
func (s *SQLite) LeafOf(ctx context.Context, id string) (Leaf, error) {
	if s.logless() {
		return Leaf{}, notFound("find in the log", id)
	}
	for _, query := range []string{
		`SELECT ` + leafColumns + ` FROM artifacts a JOIN log_leaves l ON l.artifact_seq = a.seq WHERE a.artifact_id = ?`,
		`SELECT ` + leafColumns + ` FROM log_leaves l WHERE l.statement_id = ?`,
	} {
		l, err := scanLeaf(s.reads.QueryRowContext(ctx, query, id))
		if !errors.Is(err, sql.ErrNoRows) {
			return l, s.told("find in the log", id, err)
		}
	}
	return Leaf{}, notFound("find in the log", id)
}

// Unlogged implements [Commits].
func (s *SQLite) Unlogged(ctx context.Context, after int64, limit int) ([]Artifact, error) {
	if err := checkList("unlogged", limit); err != nil {
		return nil, err
	}
	if s.logless() {
		return nil, nil
	}
	list, err := s.unlogged(ctx, after, limit)
	return list, s.told("read", "the log", err)
}

func (s *SQLite) unlogged(ctx context.Context, after int64, limit int) (list []Artifact, err error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT `+columns+` FROM artifacts WHERE seq > ?
		AND NOT EXISTS (SELECT 1 FROM log_leaves WHERE artifact_seq = artifacts.seq) ORDER BY seq LIMIT ?`, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, rows.Err()
}

// LogHashes implements [Commits].
func (s *SQLite) LogHashes(ctx context.Context) tlog.HashReader {
	return tileReader(func(key tileKey, width int) ([]byte, error) {
		b, err := readTile(ctx, key, width, func(text string) (*sql.Stmt, error) { return s.kept(ctx, text) })
		return b, s.told("read", "the log", err)
	})
}

// HeadOf implements [Commits].
func (s *SQLite) HeadOf(ctx context.Context, index int64, witnessed bool) (Head, error) {
	query := `SELECT size, at, note, witnessed FROM log_heads WHERE size > ? ORDER BY size LIMIT 1`
	if witnessed {
		query = `SELECT size, at, note, witnessed FROM log_heads WHERE size > ? AND witnessed = 1 ORDER BY size LIMIT 1`
	}
	return s.head(ctx, fmt.Sprintf("leaf %d", index), query, index)
}

// NewestHead implements [Commits].
func (s *SQLite) NewestHead(ctx context.Context) (Head, error) {
	return s.head(ctx, "the log", `SELECT size, at, note, witnessed FROM log_heads ORDER BY size DESC LIMIT 1`)
}

func (s *SQLite) head(ctx context.Context, of, query string, args ...any) (h Head, err error) {
	if s.logless() {
		return Head{}, notFound("find a checkpoint of", of)
	}
	var at int64
	err = s.reads.QueryRowContext(ctx, query, args...).Scan(&h.Size, &at, &h.Note, &h.Witnessed)
	if errors.Is(err, sql.ErrNoRows) {
		return Head{}, notFound("find a checkpoint of", of)
	}
	h.At = time.UnixMicro(at).UTC()
	return h, s.told("read", "the log", err)
}

// Witnessed implements [Commits].
func (s *SQLite) Witnessed(ctx context.Context, size int64, note []byte) error {
	if err := checkHead(size, note); err != nil {
		return err
	}
	subject := fmt.Sprintf("the checkpoint of %d leaves", size)
	return s.write(ctx, &job{op: "cosign", subject: subject, do: func(ctx context.Context, w *writer) error {
		n, err := w.number(ctx, `SELECT count(*) FROM log_heads WHERE size = ?`, size)
		if err == nil && n == 0 {
			err = notFound("cosign", subject)
		}
		if err != nil {
			return err
		}
		return w.exec(ctx, `UPDATE log_heads SET note = ?, witnessed = 1 WHERE size = ?`, note, size)
	}})
}
