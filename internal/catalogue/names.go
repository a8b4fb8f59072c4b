package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Name is one version of a name: a pointer from a tenant's name to an artifact.
// Versions are never changed or removed.
type Name struct {
	Tenant     string
	Name       string
	Seq        int64 // 1 for the first version of the name, then one more each
	ArtifactID string
	By         string    // the principal who set it
	At         time.Time // kept to the microsecond
}

// AnySeq lets SetName set a name whatever its version is.
const AnySeq = -1

// ErrConflict says that a name has another version than the one expected.
var ErrConflict = errors.New("the name has another version")

// Names is the part of a catalogue that keeps names.
type Names interface {
	// SetName adds a version to a name, if its last one is ifSeq: 0 for a name that
	// has none, [AnySeq] for any. Else it is [ErrConflict]. Seq is ignored, and set
	// in what is returned. An artifact that is unknown, deleted or of another tenant
	// is ErrNotFound.
	SetName(ctx context.Context, n Name, ifSeq int64) (Name, error)
	// Name returns the last version of a name, or version seq where that is not 0;
	// ErrNotFound where there is none.
	Name(ctx context.Context, tenant, name string, seq int64) (Name, error)
	// Names returns the last versions of a tenant's names behind after, in the order
	// of their bytes; at most limit, which is from 1 to [MaxList].
	Names(ctx context.Context, tenant, after string, limit int) ([]Name, error)
}

// namesSchema is a part of version 4 of the schema. A row is never removed.
const namesSchema = `
CREATE TABLE names (
	tenant      TEXT    NOT NULL,
	name        TEXT    NOT NULL,
	seq         INTEGER NOT NULL CHECK (seq > 0),
	artifact_id TEXT    NOT NULL,
	set_by      TEXT    NOT NULL,
	set_at      INTEGER NOT NULL,
	PRIMARY KEY (tenant, name, seq)
) STRICT, WITHOUT ROWID;
`

const nameColumns = `tenant, name, seq, artifact_id, set_by, set_at`

func (n *Name) check() error {
	if n.Tenant == "" || n.Name == "" || n.ArtifactID == "" || n.By == "" || !validTime(n.At) {
		return &Error{Op: "set the name", Subject: n.Name, Err: ErrInvalid, Detail: "the tenant, the name, the artifact, who sets it or the time is missing"}
	}
	return nil
}

// conflict is the refusal to a writer who expects version ifSeq.
func (n *Name) conflict(ifSeq, last int64) error {
	return &Error{Op: "set the name", Subject: n.Name, Err: ErrConflict, Detail: fmt.Sprintf("its version is %d, not %d", last, ifSeq)}
}

// The engine in memory.

type nameKey struct{ tenant, name string }

// SetName implements [Names].
func (m *Memory) SetName(ctx context.Context, n Name, ifSeq int64) (Name, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = n.check()
	}
	if err != nil {
		return Name{}, err
	}
	i, ok := m.byID[n.ArtifactID]
	if !ok || m.rows[i].DeletedAt != nil || m.rows[i].Tenant != n.Tenant {
		return Name{}, notFound("name", n.ArtifactID)
	}
	key := nameKey{n.Tenant, n.Name}
	last := int64(len(m.names[key]))
	if ifSeq != AnySeq && ifSeq != last {
		return Name{}, n.conflict(ifSeq, last)
	}
	n.Seq, n.At = last+1, micro(n.At)
	if m.names == nil {
		m.names = map[nameKey][]Name{}
	}
	m.names[key] = append(m.names[key], n)
	m.tick()
	return n, nil
}

// Name implements [Names].
func (m *Memory) Name(ctx context.Context, tenant, name string, seq int64) (Name, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Name{}, err
	}
	all := m.names[nameKey{tenant, name}]
	if seq == 0 {
		seq = int64(len(all))
	}
	if seq < 1 || seq > int64(len(all)) {
		return Name{}, notFound("look up the name", name)
	}
	return all[seq-1], nil
}

// Names implements [Names].
func (m *Memory) Names(ctx context.Context, tenant, after string, limit int) ([]Name, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkList(tenant, limit)
	}
	if err != nil {
		return nil, err
	}
	var list []Name
	for key, all := range m.names {
		if key.tenant == tenant && key.name > after {
			list = append(list, all[len(all)-1])
		}
	}
	slices.SortFunc(list, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
	return list[:min(limit, len(list))], nil
}

// The engine in SQLite.

// SetName implements [Names].
func (s *SQLite) SetName(ctx context.Context, n Name, ifSeq int64) (Name, error) {
	if err := n.check(); err != nil {
		return Name{}, err
	}
	err := s.write(ctx, &job{
		op: "set the name", subject: n.Name,
		do: func(ctx context.Context, w *writer) error {
			row, err := w.row(ctx, n.ArtifactID)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return notFound("name", n.ArtifactID)
			case err != nil:
				return err
			case row.DeletedAt != nil || row.Tenant != n.Tenant:
				return notFound("name", n.ArtifactID)
			}
			last, err := w.number(ctx, `SELECT max(seq) FROM (SELECT seq FROM names WHERE tenant = ? AND name = ? UNION ALL SELECT 0)`, n.Tenant, n.Name)
			if err != nil {
				return err
			}
			if ifSeq != AnySeq && ifSeq != last {
				return n.conflict(ifSeq, last)
			}
			n.Seq = last + 1
			return w.exec(ctx, `INSERT INTO names (`+nameColumns+`) VALUES (?, ?, ?, ?, ?, ?)`, n.values()...)
		},
		applied: func(ctx context.Context) (bool, error) {
			there, err := s.Name(ctx, n.Tenant, n.Name, max(n.Seq, 1))
			return err == nil && there.ArtifactID == n.ArtifactID && there.By == n.By && there.At.Equal(micro(n.At)), err
		},
	})
	if err != nil {
		return Name{}, err
	}
	n.At = micro(n.At)
	return n, nil
}

func (n *Name) values() []any {
	return []any{n.Tenant, n.Name, n.Seq, n.ArtifactID, n.By, n.At.UnixMicro()}
}

// Name implements [Names].
func (s *SQLite) Name(ctx context.Context, tenant, name string, seq int64) (Name, error) {
	list, err := s.names(ctx, `SELECT `+nameColumns+` FROM names
		WHERE tenant = ? AND name = ? AND (seq = ? OR ? = 0) ORDER BY seq DESC LIMIT 1`, tenant, name, seq, seq)
	if err == nil && len(list) == 0 {
		err = notFound("look up the name", name)
	}
	if err != nil {
		return Name{}, err
	}
	return list[0], nil
}

// Names implements [Names].
func (s *SQLite) Names(ctx context.Context, tenant, after string, limit int) ([]Name, error) {
	if err := checkList(tenant, limit); err != nil {
		return nil, err
	}
	return s.names(ctx, `SELECT tenant, name, max(seq), artifact_id, set_by, set_at FROM names
		WHERE tenant = ? AND name > ? GROUP BY name ORDER BY name LIMIT ?`, tenant, after, limit)
}

func (s *SQLite) names(ctx context.Context, query string, args ...any) ([]Name, error) {
	if s.version < versionLifecycle {
		return nil, nil // opened as it stands
	}
	rows, err := s.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail("list the names of", s.path, err)
	}
	list, err := collect(rows, scanName)
	if err != nil {
		return nil, s.fail("list the names of", s.path, err)
	}
	return list, nil
}

func scanName(row scanner) (Name, error) {
	var n Name
	var at int64
	err := row.Scan(&n.Tenant, &n.Name, &n.Seq, &n.ArtifactID, &n.By, &at)
	n.At = time.UnixMicro(at).UTC()
	return n, err
}

type scanner interface{ Scan(...any) error }

// collect reads all rows. One that no writer of this package made is damage.
func collect[T any](rows *sql.Rows, scan func(scanner) (T, error)) (list []T, err error) {
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return list, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
