package catalogue

import (
	"cmp"
	"context"
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
	// Leaf goes into the commit log with the statement; it does not come back.
	Leaf Leaf
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
	Indexes []Blob // that its manifest names, likewise
}

// Blob is a byte string among the objects.
type Blob struct {
	Root merkle.Root
	Size int64
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
	// and the indexes that the artifact's manifest names: all are entered, and the
	// artifact is unfinished from then on, or nothing is. On an artifact that is
	// deleted already it changes nothing and is not an error.
	DeleteBy(ctx context.Context, lease, reason string, at time.Time, tombstone Statement, mapRoot merkle.Root, mapSize int64, indexes ...Blob) error
	// Finish is State for the statement that says that a deletion is complete: the
	// artifact is unfinished no longer.
	Finish(ctx context.Context, lease string, st Statement) error
	// StatementsOf returns the statements about an artifact with Seq > after, in the
	// order of Seq; at most limit, which is from 1 to [MaxList].
	StatementsOf(ctx context.Context, artifactID string, after int64, limit int) ([]Statement, error)
	// Objects returns the statements of a tenant that stand as objects, like
	// StatementsOf. A tenant of "" is all tenants.
	Objects(ctx context.Context, tenant string, after int64, limit int) ([]Statement, error)
	// ObjectsOf returns the statements of a kind about an artifact that stand as
	// objects, in the order of Seq; the first [MaxList] of them.
	ObjectsOf(ctx context.Context, artifactID, kind string) ([]Statement, error)
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

// indexSchema is what version 5 of the schema has beyond version 4.
const indexSchema = `
CREATE INDEX statements_of_kind ON statements (artifact_id, kind, seq) WHERE object_root IS NOT NULL;

CREATE TABLE unfinished_indexes (
	artifact_seq INTEGER NOT NULL,
	root         BLOB    NOT NULL CHECK (length(root) = 32),
	size         INTEGER NOT NULL CHECK (size > 0),
	PRIMARY KEY (artifact_seq, root)
) STRICT, WITHOUT ROWID;
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
	leaf := st.Leaf
	st.Leaf = Leaf{}
	m.said.all = append(m.said.all, st)
	m.tick()
	m.enter(st.StatementID, leaf)
	m.seal()
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
func (m *Memory) DeleteBy(ctx context.Context, lease, reason string, at time.Time, st Statement, mapRoot merkle.Root, mapSize int64, indexes ...Blob) error {
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
	m.allowed.epoch++
	m.endCopies(a.ArtifactID, at)
	m.said.unfinished = append(m.said.unfinished, Unfinished{Artifact: a.clone(), StatementID: st.StatementID, MapRoot: mapRoot, MapSize: mapSize, Indexes: slices.Clone(indexes)})
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

// ObjectsOf implements [Statements].
func (m *Memory) ObjectsOf(ctx context.Context, artifactID, kind string) ([]Statement, error) {
	return m.statements(ctx, MaxList, 0, func(st *Statement) bool {
		return st.ArtifactID == artifactID && st.Kind == kind && !st.ObjectRoot.IsZero()
	})
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
