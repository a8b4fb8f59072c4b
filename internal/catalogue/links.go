package catalogue

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Supersession says that an artifact takes the place of an older one.
type Supersession struct {
	ArtifactID string // the older one
	By         string // the artifact that takes its place
	Kind       string // as its manifest says
	At         time.Time
}

// Lifecycle is the part of a catalogue that knows what became of artifacts.
type Lifecycle interface {
	Names
	Copies
	// Successors returns what takes the place of an artifact, the latest first, also
	// what has been deleted since; at most limit, which is from 1 to [MaxList].
	Successors(ctx context.Context, id string, limit int) ([]Supersession, error)
}

// versionLifecycle is the version of the schema that brought names, copies and
// supersessions.
const versionLifecycle = 4

// linksSchema is a part of version 4 of the schema. A row is never removed. The
// older artifact need not be there: a store into which the newer one was copied
// may not have it.
const linksSchema = `
CREATE TABLE supersessions (
	artifact_id TEXT    NOT NULL,
	by_id       TEXT    NOT NULL,
	kind        TEXT    NOT NULL,
	at          INTEGER NOT NULL,
	PRIMARY KEY (artifact_id, by_id)
) STRICT, WITHOUT ROWID;
`

// newCopyID returns the id of a copy.
func newCopyID() string { return "cp_" + strings.ToLower(rand.Text()) }

// checkLinks refuses links that no artifact has.
func (a Artifact) checkLinks() string {
	for _, o := range a.Supersedes {
		if o.ArtifactID == "" || o.ArtifactID == a.ArtifactID || o.Kind == "" {
			return "it supersedes itself, nothing, or in no way"
		}
	}
	if slices.Contains(a.Inputs, "") || slices.Contains(a.Inputs, a.ArtifactID) {
		return "it was made from itself, or from nothing"
	}
	return ""
}

// The engine in memory.

// link enters the links of a new artifact.
func (m *Memory) link(a Artifact) {
	for _, o := range a.Supersedes {
		if !slices.ContainsFunc(m.links, func(l Supersession) bool { return l.ArtifactID == o.ArtifactID && l.By == a.ArtifactID }) {
			m.links = append(m.links, Supersession{o.ArtifactID, a.ArtifactID, o.Kind, micro(a.CreatedAt)})
		}
	}
	for _, c := range a.derivedCopies() {
		_ = m.addCopy(c) // of an input that is not here, there is no inventory here
	}
}

func (m *Memory) superseded(id string) bool {
	return slices.ContainsFunc(m.links, func(l Supersession) bool { return l.ArtifactID == id })
}

// Successors implements [Lifecycle].
func (m *Memory) Successors(ctx context.Context, id string, limit int) ([]Supersession, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkList(id, limit)
	}
	if err != nil {
		return nil, err
	}
	var list []Supersession
	for _, l := range m.links {
		if l.ArtifactID == id {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b Supersession) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.By, a.By))
	})
	return list[:min(limit, len(list))], nil
}

// The engine in SQLite.

const insertLink = `INSERT INTO supersessions (artifact_id, by_id, kind, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

// insertDerived enters a derived copy, if its artifact is here.
const insertDerived = `INSERT INTO copies (` + copyColumns + `)
	SELECT ?1, ?2, ?3, ?4, ?5, ?6, CASE WHEN state = 'deleted' AND ?7 = 'live' THEN 'pending' ELSE ?7 END, ?8, ?9, ?10
	FROM artifacts WHERE artifact_id = ?2 ON CONFLICT DO NOTHING`

// linkStatements are the inserts that enter the links of a new artifact.
func (a Artifact) linkStatements(exec func(text string, args ...any) error) error {
	for _, o := range a.Supersedes {
		if err := exec(insertLink, o.ArtifactID, a.ArtifactID, o.Kind, a.CreatedAt.UnixMicro()); err != nil {
			return err
		}
	}
	for _, c := range a.derivedCopies() {
		if err := exec(insertDerived, c.values()...); err != nil {
			return err
		}
	}
	return nil
}

// Successors implements [Lifecycle].
func (s *SQLite) Successors(ctx context.Context, id string, limit int) ([]Supersession, error) {
	if err := checkList(id, limit); err != nil {
		return nil, err
	}
	if s.version < versionLifecycle {
		return nil, nil // opened as it stands
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT artifact_id, by_id, kind, at FROM supersessions
		WHERE artifact_id = ? ORDER BY at DESC, by_id DESC LIMIT ?`, id, limit)
	if err != nil {
		return nil, s.fail("list the successors of", id, err)
	}
	list, err := collect(rows, func(row scanner) (l Supersession, err error) {
		var at int64
		err = row.Scan(&l.ArtifactID, &l.By, &l.Kind, &at)
		l.At = time.UnixMicro(at).UTC()
		return l, err
	})
	if err != nil {
		return nil, s.fail("list the successors of", id, err)
	}
	return list, nil
}

// withFlag scans a row of columns that one more follows.
type withFlag struct {
	row  scanner
	flag *bool
}

func (w withFlag) Scan(dest ...any) error { return w.row.Scan(append(dest, w.flag)...) }

// supersededColumn is a column that says whether an artifact is superseded.
func supersededColumn(version int64) string {
	if version < versionLifecycle {
		return `, 0`
	}
	return `, EXISTS (SELECT 1 FROM supersessions AS l WHERE l.artifact_id = artifacts.artifact_id)`
}

// salvageLifecycle reads the names and the copies that can be read.
func salvageLifecycle(ctx context.Context, db *sql.DB) (names []Name, copies []Copy, whole bool) {
	rows, err := db.QueryContext(ctx, `SELECT `+nameColumns+` FROM names`)
	if err == nil {
		names, err = collect(rows, scanName)
	}
	whole = err == nil
	rows, err = db.QueryContext(ctx, `SELECT seq, `+copyColumns+` FROM copies NOT INDEXED ORDER BY seq`)
	if err == nil {
		copies, err = collect(rows, scanCopy)
	}
	return names, copies, whole && err == nil
}

// restoreLifecycle enters names and copies into a new catalogue. Those of artifacts
// that are not there, and what no writer of this package made, are left out.
func restoreLifecycle(ctx context.Context, tx *sql.Tx, names []Name, copies []Copy) error {
	for _, n := range names {
		if n.check() != nil || n.Seq < 1 {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO names (`+nameColumns+`) SELECT ?1, ?2, ?3, ?4, ?5, ?6
			FROM artifacts WHERE artifact_id = ?4 AND tenant = ?1 ON CONFLICT DO NOTHING`, n.values()...); err != nil {
			return err
		}
	}
	for _, c := range copies {
		if c.check() != nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, insertDerived, c.values()...); err != nil {
			return err
		}
	}
	return nil
}

// settleCopies does for every artifact that is deleted what its end means for copies.
func settleCopies(ctx context.Context, tx *sql.Tx) error {
	for _, text := range []string{
		`UPDATE copies SET state = 'done' WHERE kind = 'derived' AND state <> 'done'
			AND place IN (SELECT artifact_id FROM artifacts WHERE state = 'deleted')`,
		`UPDATE copies SET state = 'pending' WHERE state IN ('live', 'failed')
			AND artifact_id IN (SELECT artifact_id FROM artifacts WHERE state = 'deleted')`,
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("settle the copies: %w", err)
		}
	}
	return nil
}
