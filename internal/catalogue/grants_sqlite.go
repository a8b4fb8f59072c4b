package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"leafproof/merkle"
)

// change makes one change of what is allowed, with its record.
func (s *SQLite) change(ctx context.Context, op, subject string, record Disclosure, do func(context.Context, *writer) (changed bool, err error)) error {
	if err := record.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{op: op, subject: subject, do: func(ctx context.Context, w *writer) error {
		changed, err := do(ctx, w)
		if err != nil || !changed {
			return err
		}
		if record.Epoch, err = w.raise(ctx); err != nil {
			return err
		}
		return w.exec(ctx, insertDisclosure, record.values()...)
	}})
}

const principalColumns = `name, tenant, run, token_hash, created_at, removed_at`

func scanPrincipal(row interface{ Scan(...any) error }) (p Principal, err error) {
	var hash []byte
	var created int64
	var removed *int64
	if err := row.Scan(&p.Name, &p.Tenant, &p.Run, &hash, &created, &removed); err != nil {
		return p, err
	}
	if hash != nil && copy(p.TokenHash[:], hash) != len(p.TokenHash) {
		return p, fmt.Errorf("%w: the hash in the row of %s has the wrong length", ErrDamaged, p.Name)
	}
	p.CreatedAt, p.RemovedAt = time.UnixMicro(created).UTC(), fromMicro(removed)
	return p, nil
}

// AddPrincipal implements [Grants].
func (s *SQLite) AddPrincipal(ctx context.Context, p Principal, record Disclosure) error {
	if err := p.check(); err != nil {
		return err
	}
	return s.change(ctx, "add principal", p.Name, record, func(ctx context.Context, w *writer) (bool, error) {
		old, err := w.principal(ctx, p.Name)
		switch {
		case err == nil && !old.takes(p):
			return false, &Error{Op: "add principal", Subject: p.Name, Err: ErrExists}
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return false, err
		}
		return true, w.enterPrincipal(ctx, p)
	})
}

// principal reads inside the transaction, also one that was removed.
func (w *writer) principal(ctx context.Context, name string) (Principal, error) {
	stmt, err := w.prepare(ctx, `SELECT `+principalColumns+` FROM principals WHERE name = ?`)
	if err != nil {
		return Principal{}, err
	}
	return scanPrincipal(stmt.QueryRowContext(ctx, name))
}

func (w *writer) enterPrincipal(ctx context.Context, p Principal) error {
	return w.exec(ctx, `INSERT INTO principals (`+principalColumns+`) VALUES (?, ?, ?, ?, ?, NULL)
		ON CONFLICT (name) DO UPDATE SET tenant = excluded.tenant, run = excluded.run, token_hash = excluded.token_hash,
		created_at = CASE WHEN principals.removed_at IS NULL THEN principals.created_at ELSE excluded.created_at END, removed_at = NULL`,
		p.Name, p.Tenant, p.Run, rootOrNull(p.TokenHash), p.CreatedAt.UnixMicro())
}

// RemovePrincipal implements [Grants].
func (s *SQLite) RemovePrincipal(ctx context.Context, name string, at time.Time, record Disclosure) error {
	return s.change(ctx, "remove principal", name, record, func(ctx context.Context, w *writer) (bool, error) {
		p, err := w.principal(ctx, name)
		if errors.Is(err, sql.ErrNoRows) || err == nil && p.RemovedAt != nil {
			return false, noPrincipal("remove principal", name)
		}
		if err != nil {
			return false, err
		}
		if err := w.exec(ctx, `UPDATE principals SET removed_at = ?, token_hash = NULL WHERE name = ?`, at.UnixMicro(), name); err != nil {
			return false, err
		}
		return true, w.exec(ctx, revokeAll+` SELECT grant_id FROM grants WHERE principal = ?2`+restOn, at.UnixMicro(), name)
	})
}

// What revokes the grants that stand between the two, and all that rest on them. It
// takes the time first.
const (
	revokeAll = `WITH RECURSIVE gone (id) AS (`
	restOn    = ` UNION
		SELECT g.grant_id FROM gone JOIN grants AS g ON g.parent = gone.id AND g.parent <> ''
		UNION
		SELECT g.grant_id FROM gone JOIN grants AS g ON g.under = gone.id AND g.under <> '')
	UPDATE grants SET revoked_at = ?1 WHERE revoked_at IS NULL AND grant_id IN (SELECT id FROM gone)`
)

// Principal implements [Grants].
func (s *SQLite) Principal(ctx context.Context, name string) (Principal, error) {
	return s.principal(ctx, name, `name = ?`, name)
}

// PrincipalByToken implements [Grants].
func (s *SQLite) PrincipalByToken(ctx context.Context, hash merkle.Root) (Principal, error) {
	return s.principal(ctx, "of a token", `token_hash = ?`, hash[:])
}

func (s *SQLite) principal(ctx context.Context, name, where string, arg any) (Principal, error) {
	const op = "look up principal"
	if s.version < versionGrants {
		return Principal{}, noPrincipal(op, name)
	}
	p, err := scanPrincipal(s.reads.QueryRowContext(ctx, `SELECT `+principalColumns+` FROM principals WHERE removed_at IS NULL AND `+where, arg))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Principal{}, noPrincipal(op, name)
	case err != nil:
		return Principal{}, s.fail(op, name, err)
	}
	return p, nil
}

// Principals implements [Grants].
func (s *SQLite) Principals(ctx context.Context, after string, limit int) ([]Principal, error) {
	if err := checkList("principals", limit); err != nil {
		return nil, err
	}
	return queryAll(ctx, s, s.reads, "list principals", scanPrincipal, `SELECT `+principalColumns+` FROM principals
		WHERE name > ? AND removed_at IS NULL ORDER BY name LIMIT ?`, after, limit)
}

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// queryAll scans all rows of a query of what version 4 brought.
func queryAll[T any](ctx context.Context, s *SQLite, from querier, op string, scan func(interface{ Scan(...any) error }) (T, error),
	query string, args ...any,
) ([]T, error) {
	if s.version < versionGrants {
		return nil, nil // opened as it stands
	}
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail(op, s.path, err)
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, s.fail(op, s.path, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail(op, s.path, err)
	}
	return list, nil
}

const grantColumns = `seq, grant_id, principal, action, tenant, run, artifact, record_start, record_end, purpose,
	not_after, parent, under, granted_by, created_at, revoked_at`

func scanGrant(row interface{ Scan(...any) error }) (g Grant, err error) {
	var start, end, notAfter, revoked *int64
	var created int64
	err = row.Scan(&g.Seq, &g.GrantID, &g.Principal, &g.Action, &g.Pattern.Tenant, &g.Pattern.Run, &g.Pattern.Artifact, &start, &end,
		&g.Purpose, &notAfter, &g.Parent, &g.Under, &g.GrantedBy, &created, &revoked)
	if err != nil {
		return g, err
	}
	if start != nil && end != nil {
		g.Records = &merkle.Range{Start: *start, End: *end}
	}
	g.CreatedAt, g.NotAfter, g.RevokedAt = time.UnixMicro(created).UTC(), fromMicro(notAfter), fromMicro(revoked)
	return g, nil
}

// Grant implements [Grants].
func (s *SQLite) Grant(ctx context.Context, g Grant, p Principal, record Disclosure) error {
	if err := g.check(); err != nil {
		return err
	}
	return s.change(ctx, "grant", g.GrantID, record, func(ctx context.Context, w *writer) (bool, error) {
		if n, err := w.number(ctx, `SELECT count(*) FROM grants WHERE grant_id = ?`, g.GrantID); err != nil {
			return false, err
		} else if n > 0 {
			return false, &Error{Op: "grant", Subject: g.GrantID, Err: ErrExists}
		}
		live, err := w.number(ctx, `SELECT count(*) FROM grants WHERE principal = ? AND revoked_at IS NULL`, g.Principal)
		if err != nil {
			return false, err
		}
		if live >= MaxGrants {
			return false, tooMany("grant", g.Principal, MaxGrants)
		}
		for _, id := range []string{g.Parent, g.Under} {
			if id == "" {
				continue
			}
			if n, err := w.number(ctx, `SELECT count(*) FROM grants WHERE grant_id = ? AND revoked_at IS NULL`, id); err != nil {
				return false, err
			} else if n == 0 {
				return false, noGrant("grant under", id)
			}
		}
		old, err := w.principal(ctx, g.Principal)
		if errors.Is(err, sql.ErrNoRows) || err == nil && old.RemovedAt != nil {
			if err := p.check(); err != nil {
				return false, err
			}
			err = w.enterPrincipal(ctx, p)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
		return true, w.insertGrant(ctx, g)
	})
}

func (w *writer) insertGrant(ctx context.Context, g Grant) error {
	var start, end *int64
	if g.Records != nil {
		start, end = &g.Records.Start, &g.Records.End
	}
	return w.exec(ctx, `INSERT INTO grants (grant_id, principal, action, tenant, run, artifact, record_start, record_end, purpose,
		not_after, parent, under, granted_by, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		g.GrantID, g.Principal, g.Action, g.Pattern.Tenant, g.Pattern.Run, g.Pattern.Artifact, start, end, g.Purpose,
		toMicro(g.NotAfter), g.Parent, g.Under, g.GrantedBy, g.CreatedAt.UnixMicro())
}

// Revoke implements [Grants].
func (s *SQLite) Revoke(ctx context.Context, id string, at time.Time, record Disclosure) error {
	return s.change(ctx, "revoke", id, record, func(ctx context.Context, w *writer) (bool, error) {
		// One that is revoked has nothing that stands on it.
		live, err := w.number(ctx, `SELECT 1 + (revoked_at IS NULL) FROM grants WHERE grant_id = ?`, id)
		switch {
		case err != nil:
			return false, err
		case live == 0:
			return false, noGrant("revoke", id)
		case live == 1:
			return false, nil
		}
		return true, w.exec(ctx, revokeAll+` SELECT ?2`+restOn, at.UnixMicro(), id)
	})
}

// GrantOf implements [Grants].
func (s *SQLite) GrantOf(ctx context.Context, id string) (Grant, error) {
	list, err := queryAll(ctx, s, s.reads, "look up grant", scanGrant, `SELECT `+grantColumns+` FROM grants WHERE grant_id = ?`, id)
	if err == nil && len(list) == 0 {
		err = noGrant("look up grant", id)
	}
	if err != nil {
		return Grant{}, err
	}
	return list[0], nil
}

// GrantsOf implements [Grants].
func (s *SQLite) GrantsOf(ctx context.Context, principal string, after int64, limit int) ([]Grant, error) {
	if err := checkList("grants", limit); err != nil {
		return nil, err
	}
	if principal == "" {
		return queryAll(ctx, s, s.reads, "list grants", scanGrant, `SELECT `+grantColumns+` FROM grants WHERE seq > ? ORDER BY seq LIMIT ?`, after, limit)
	}
	return queryAll(ctx, s, s.reads, "list grants", scanGrant, `SELECT `+grantColumns+` FROM grants
		WHERE principal = ? AND seq > ? ORDER BY seq LIMIT ?`, principal, after, limit)
}

// Restrict implements [Grants].
func (s *SQLite) Restrict(ctx context.Context, r Restriction, record Disclosure) error {
	if err := r.Pattern.check("restrict"); err != nil {
		return err
	}
	return s.change(ctx, "restrict", r.Pattern.String(), record, func(ctx context.Context, w *writer) (bool, error) {
		n, err := w.restricts(ctx, r.Pattern)
		if err != nil || n > 0 {
			return false, err
		}
		if n, err = w.number(ctx, `SELECT count(*) FROM restrictions`); err != nil {
			return false, err
		}
		if n >= MaxRestrictions {
			return false, tooMany("restrict", r.Pattern.String(), MaxRestrictions)
		}
		return true, w.exec(ctx, insertRestriction, r.values()...)
	})
}

const insertRestriction = `INSERT INTO restrictions (tenant, run, artifact, created_at, made_by) VALUES (?, ?, ?, ?, ?)`

func (r Restriction) values() []any {
	return []any{r.Pattern.Tenant, r.Pattern.Run, r.Pattern.Artifact, r.CreatedAt.UnixMicro(), r.By}
}

func (w *writer) restricts(ctx context.Context, p Pattern) (int64, error) {
	return w.number(ctx, `SELECT count(*) FROM restrictions WHERE tenant = ? AND run = ? AND artifact = ?`, p.Tenant, p.Run, p.Artifact)
}

// Unrestrict implements [Grants].
func (s *SQLite) Unrestrict(ctx context.Context, p Pattern, record Disclosure) error {
	return s.change(ctx, "unrestrict", p.String(), record, func(ctx context.Context, w *writer) (bool, error) {
		if n, err := w.restricts(ctx, p); err != nil {
			return false, err
		} else if n == 0 {
			return false, noRestriction(p)
		}
		return true, w.exec(ctx, `DELETE FROM restrictions WHERE tenant = ? AND run = ? AND artifact = ?`, p.Tenant, p.Run, p.Artifact)
	})
}

const selectRestrictions = `SELECT tenant, run, artifact, created_at, made_by FROM restrictions ORDER BY tenant, run, artifact`

func scanRestriction(row interface{ Scan(...any) error }) (r Restriction, err error) {
	var created int64
	err = row.Scan(&r.Pattern.Tenant, &r.Pattern.Run, &r.Pattern.Artifact, &created, &r.By)
	r.CreatedAt = time.UnixMicro(created).UTC()
	return r, err
}

// Restrictions implements [Grants].
func (s *SQLite) Restrictions(ctx context.Context) ([]Restriction, error) {
	return queryAll(ctx, s, s.reads, "list restrictions", scanRestriction, selectRestrictions)
}

// Rights implements [Grants].
func (s *SQLite) Rights(ctx context.Context, principal string) (r Rights, err error) {
	const op = "read the rights of"
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return r, s.fail(op, principal, err)
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	if err := tx.QueryRowContext(ctx, `SELECT policy_epoch FROM meta WHERE one = 1`).Scan(&r.Epoch); err != nil {
		return r, s.fail(op, principal, err)
	}
	found, err := queryAll(ctx, s, tx, op, scanPrincipal, `SELECT `+principalColumns+` FROM principals WHERE name = ?`, principal)
	if err != nil {
		return r, err
	}
	if len(found) > 0 {
		r.Principal = &found[0]
	}
	if r.Grants, err = queryAll(ctx, s, tx, op, scanGrant, `SELECT `+grantColumns+` FROM grants
		WHERE principal = ? AND revoked_at IS NULL ORDER BY seq`, principal); err != nil {
		return r, err
	}
	pattern := func(row interface{ Scan(...any) error }) (p Pattern, err error) {
		return p, row.Scan(&p.Tenant, &p.Run, &p.Artifact)
	}
	if r.Held, err = queryAll(ctx, s, tx, op, pattern, `SELECT DISTINCT tenant, run, artifact FROM grants
		WHERE principal = ? AND revoked_at IS NOT NULL`, principal); err != nil {
		return r, err
	}
	r.Restrictions, err = queryAll(ctx, s, tx, op, scanRestriction, selectRestrictions)
	return r, err
}

// RaiseEpoch implements [Grants].
func (s *SQLite) RaiseEpoch(ctx context.Context) error {
	return s.write(ctx, &job{op: "raise", subject: "the policy epoch", do: func(ctx context.Context, w *writer) error {
		_, err := w.raise(ctx)
		return err
	}})
}

// salvageRestrictions reads the restrictions that can be read. A catalogue of before
// version 4 has none.
func salvageRestrictions(ctx context.Context, db *sql.DB) (list []Restriction, whole bool) {
	var version int64
	if err := db.QueryRowContext(ctx, `SELECT user_version FROM pragma_user_version`).Scan(&version); err == nil && version < versionGrants {
		return nil, true
	}
	rows, err := db.QueryContext(ctx, selectRestrictions)
	if err != nil {
		return nil, false
	}
	defer rows.Close()
	whole = true
	for rows.Next() {
		r, err := scanRestriction(rows)
		if err != nil || r.Pattern.check("salvage") != nil {
			whole = false
			continue
		}
		list = append(list, r)
	}
	return list, whole && rows.Err() == nil
}
