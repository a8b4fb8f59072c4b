package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// maxProblems bounds what one integrity check returns.
const maxProblems = 100

// Integrity lets SQLite look at every page and row of the file, and returns what
// it found in sentences: none for a sound one. It also finds a schema that is
// not that of this package, and a clock that stands over a day ahead. An error
// that the file itself does not cause is returned.
func (s *SQLite) Integrity(ctx context.Context) ([]string, error) {
	problems, err := integrityCheck(ctx, s.reads)
	if err == nil {
		var more []string
		more, err = s.schemaProblems(ctx)
		problems = append(problems, more...)
	}
	var clock int64
	if err == nil {
		err = s.reads.QueryRowContext(ctx, `SELECT clock FROM meta WHERE one = 1`).Scan(&clock)
	}
	if err != nil {
		wrapped := s.fail("check", s.path, err)
		if errors.Is(wrapped, ErrDamaged) || len(problems) > 0 {
			return append(problems, err.Error()), nil
		}
		return nil, wrapped
	}
	if time.Until(time.UnixMicro(clock)) > 24*time.Hour {
		problems = append(problems, fmt.Sprintf("its clock stands at %s, ahead of this machine's",
			time.UnixMicro(clock).UTC().Format(time.RFC3339)))
	}
	return problems, nil
}

func integrityCheck(ctx context.Context, db *sql.DB) (problems []string, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(`PRAGMA integrity_check(%d)`, maxProblems))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return problems, err
		}
		if text != "ok" {
			problems = append(problems, text)
		}
	}
	return problems, rows.Err()
}

// schemaProblems compares the schema in the file with the one that a new
// catalogue gets.
func (s *SQLite) schemaProblems(ctx context.Context) ([]string, error) {
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	fresh.SetMaxOpenConns(1) // each connection has a memory of its own
	if _, err := fresh.ExecContext(ctx, schema+added(oldestVersion)); err != nil {
		return nil, err
	}
	want, err := schemaOf(ctx, fresh)
	if err != nil {
		return nil, err
	}
	have, err := schemaOf(ctx, s.reads)
	if err != nil {
		return nil, err
	}
	var problems []string
	for name, text := range want {
		if have[name] != text {
			problems = append(problems, fmt.Sprintf("the definition of %s is another one", name))
		}
	}
	if len(have) != len(want) {
		problems = append(problems, fmt.Sprintf("it has %d tables and indexes, not %d", len(have), len(want)))
	}
	return problems, nil
}

func schemaOf(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT type || ' ' || name, tbl_name || ': ' || coalesce(sql, '') FROM sqlite_schema`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make(map[string]string)
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, rows.Err()
}
