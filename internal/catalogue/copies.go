package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Copy is something that was made of an artifact and holds some of what it says:
// an export, an artifact derived from it, a harness's data frame.
type Copy struct {
	CopyID     string // no two have the same
	ArtifactID string // what it was made of
	Kind       string
	Place      string // where it is, in the words of who made it; of an artifact its id
	Controller string // who can do something about it: a principal, or a name
	Holder     string // the principal who was given what it holds
	State      string // one of the Copy… states
	Note       string // what was said when the state changed; may be empty
	MadeAt     time.Time
	ChangedAt  time.Time // when the state changed
	Seq        int64     // the order of entering, from 1, with gaps; set by the catalogue
}

// The states of a copy: how far the end of the artifact, or of somebody's leave
// to have it, has reached.
const (
	CopyLive    = "live"           // there is nothing to reach it with
	CopyPending = "pending"        // its controller must end it
	CopyDone    = "done"           // it was ended
	CopyFailed  = "failed"         // its controller tried, in vain
	CopyBeyond  = "out_of_control" // nobody can recall it
)

// KindDerived is the kind of copies that are artifacts.
const KindDerived = "derived"

// controllerStore is the controller of what the store itself holds.
const controllerStore = "store"

// Copies is the part of a catalogue that keeps the inventory of copies. Publish
// enters one for each of an artifact's inputs. Delete and DeleteBy let what is live
// or failed wait for its controller, and end the copies that are the artifact.
type Copies interface {
	// AddCopy enters a copy of an artifact that is published. Of one that was deleted
	// meanwhile, a live one is entered as pending. The same id again changes nothing,
	// nor does a second derived one at the same place. A soft one may be lost with
	// the machine, though not with the process.
	AddCopy(ctx context.Context, c Copy, soft bool) error
	// Copy returns a copy, or ErrNotFound.
	Copy(ctx context.Context, id string) (Copy, error)
	// CopiesOf returns the copies of an artifact with Seq > after, in the order of
	// Seq; at most limit, which is from 1 to [MaxList].
	CopiesOf(ctx context.Context, artifactID string, after int64, limit int) ([]Copy, error)
	// CopiesHeldBy is CopiesOf for the copies that one principal has, of all
	// artifacts. "" is everybody.
	CopiesHeldBy(ctx context.Context, holder string, after int64, limit int) ([]Copy, error)
	// MarkCopy changes the state of a copy. What is out of control stays so:
	// [ErrConflictCopy].
	MarkCopy(ctx context.Context, id, state, note string, at time.Time) error
	// PendCopies makes those of the copies that are live or failed wait for their
	// controllers, and returns how many.
	PendCopies(ctx context.Context, ids []string, note string, at time.Time) (int64, error)
}

// copiesSchema is a part of version 4 of the schema. A row is never removed.
const copiesSchema = `
CREATE TABLE copies (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	copy_id     TEXT    NOT NULL UNIQUE,
	artifact_id TEXT    NOT NULL,
	kind        TEXT    NOT NULL,
	place       TEXT    NOT NULL,
	controller  TEXT    NOT NULL,
	holder      TEXT    NOT NULL,
	state       TEXT    NOT NULL CHECK (state IN ('live', 'pending', 'done', 'failed', 'out_of_control')),
	note        TEXT    NOT NULL,
	made_at     INTEGER NOT NULL,
	changed_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX copies_of_artifact ON copies (artifact_id, seq);

CREATE INDEX copies_held ON copies (holder, seq);

CREATE UNIQUE INDEX copies_derived ON copies (place, artifact_id) WHERE kind = 'derived';
`

// ErrConflictCopy says that a copy cannot be recalled, whatever is said of it.
var ErrConflictCopy = fmt.Errorf("%w: the copy is out of control", ErrInvalid)

// maxCopyText bounds the texts of a copy, in bytes.
const maxCopyText = 4096

func knownState(state string) bool {
	return slices.Contains([]string{CopyLive, CopyPending, CopyDone, CopyFailed, CopyBeyond}, state)
}

func (c *Copy) check() error {
	wrong := ""
	switch {
	case c.CopyID == "" || c.ArtifactID == "" || c.Kind == "" || c.Place == "" || c.Controller == "" || c.Holder == "":
		wrong = "an id, the kind, the place, the controller or the holder is empty"
	case max(len(c.CopyID), len(c.Kind), len(c.Place), len(c.Controller), len(c.Holder), len(c.Note)) > maxCopyText:
		wrong = fmt.Sprintf("a text has over %d bytes", maxCopyText)
	case !knownState(c.State):
		wrong = fmt.Sprintf("%q is no state", c.State)
	case !validTime(c.MadeAt) || !validTime(c.ChangedAt):
		wrong = "a time is not between the years 1 and 9999"
	}
	if wrong == "" {
		return nil
	}
	return &Error{Op: "enter the copy", Subject: c.CopyID, Err: ErrInvalid, Detail: wrong}
}

func checkMark(id, state, note string, at time.Time) error {
	if id == "" || !knownState(state) || len(note) > maxCopyText || !validTime(at) {
		return &Error{Op: "mark the copy", Subject: id, Err: ErrInvalid, Detail: "the id, the state, the note or the time is none"}
	}
	return nil
}

// derivedCopies are the copies that an artifact is of its inputs.
func (a Artifact) derivedCopies() []Copy {
	var out []Copy
	for _, id := range a.Inputs {
		out = append(out, Copy{
			CopyID: newCopyID(), ArtifactID: id, Kind: KindDerived, Place: a.ArtifactID, Controller: controllerStore, Holder: controllerStore,
			State: CopyLive, MadeAt: a.CreatedAt, ChangedAt: a.CreatedAt,
		})
	}
	return out
}

// The engine in memory.

func (m *Memory) addCopy(c Copy) error {
	i, ok := m.byID[c.ArtifactID]
	if !ok {
		return notFound("enter a copy of", c.ArtifactID)
	}
	for _, o := range m.copies {
		if o.CopyID == c.CopyID || c.Kind == KindDerived && o.Kind == c.Kind && o.Place == c.Place && o.ArtifactID == c.ArtifactID {
			return nil
		}
	}
	if c.State == CopyLive && m.rows[i].DeletedAt != nil {
		c.State = CopyPending
	}
	c.MadeAt, c.ChangedAt, c.Seq = micro(c.MadeAt), micro(c.ChangedAt), int64(len(m.copies)+1)
	m.copies = append(m.copies, c)
	m.tick()
	return nil
}

// endCopies does what the end of an artifact means for copies.
func (m *Memory) endCopies(id string, at time.Time) {
	for i := range m.copies {
		c := &m.copies[i]
		switch {
		case c.Kind == KindDerived && c.Place == id && c.State != CopyDone:
			c.State, c.ChangedAt = CopyDone, micro(at)
		case c.ArtifactID == id && (c.State == CopyLive || c.State == CopyFailed):
			c.State, c.ChangedAt = CopyPending, micro(at)
		}
	}
}

// AddCopy implements [Copies].
func (m *Memory) AddCopy(ctx context.Context, c Copy, _ bool) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	return m.addCopy(c)
}

// Copy implements [Copies].
func (m *Memory) Copy(ctx context.Context, id string) (Copy, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Copy{}, err
	}
	if i := slices.IndexFunc(m.copies, func(c Copy) bool { return c.CopyID == id }); i >= 0 {
		return m.copies[i], nil
	}
	return Copy{}, notFound("look up the copy", id)
}

func (m *Memory) listCopies(ctx context.Context, after int64, limit int, want func(*Copy) bool) ([]Copy, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkList("copies", limit)
	}
	if err != nil {
		return nil, err
	}
	var list []Copy
	for i := range m.copies {
		if c := &m.copies[i]; c.Seq > after && want(c) && len(list) < limit {
			list = append(list, *c)
		}
	}
	return list, nil
}

// CopiesOf implements [Copies].
func (m *Memory) CopiesOf(ctx context.Context, artifactID string, after int64, limit int) ([]Copy, error) {
	return m.listCopies(ctx, after, limit, func(c *Copy) bool { return c.ArtifactID == artifactID })
}

// CopiesHeldBy implements [Copies].
func (m *Memory) CopiesHeldBy(ctx context.Context, holder string, after int64, limit int) ([]Copy, error) {
	return m.listCopies(ctx, after, limit, func(c *Copy) bool { return holder == "" || c.Holder == holder })
}

// MarkCopy implements [Copies].
func (m *Memory) MarkCopy(ctx context.Context, id, state, note string, at time.Time) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkMark(id, state, note, at)
	}
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.copies, func(c Copy) bool { return c.CopyID == id })
	if i < 0 {
		return notFound("mark the copy", id)
	}
	c := &m.copies[i]
	if c.State == CopyBeyond && state != CopyBeyond {
		return &Error{Op: "mark the copy", Subject: id, Err: ErrConflictCopy}
	}
	c.State, c.Note, c.ChangedAt = state, note, micro(at)
	m.tick()
	return nil
}

// PendCopies implements [Copies].
func (m *Memory) PendCopies(ctx context.Context, ids []string, note string, at time.Time) (n int64, err error) {
	err = m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkMark("the copies", CopyPending, note, at)
	}
	if err != nil {
		return 0, err
	}
	for i := range m.copies {
		if c := &m.copies[i]; slices.Contains(ids, c.CopyID) && (c.State == CopyLive || c.State == CopyFailed) {
			c.State, c.Note, c.ChangedAt = CopyPending, note, micro(at)
			n++
		}
	}
	m.tick()
	return n, nil
}

// The engine in SQLite.

const copyColumns = `copy_id, artifact_id, kind, place, controller, holder, state, note, made_at, changed_at`

const insertCopy = `INSERT INTO copies (` + copyColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

func (c *Copy) values() []any {
	return []any{
		c.CopyID, c.ArtifactID, c.Kind, c.Place, c.Controller, c.Holder, c.State, c.Note, c.MadeAt.UnixMicro(), c.ChangedAt.UnixMicro(),
	}
}

// The end of an artifact, for what was made of it, and for itself as a copy.
const (
	pendCopies = `UPDATE copies SET state = 'pending', changed_at = ? WHERE artifact_id = ? AND state IN ('live', 'failed')`
	doneCopies = `UPDATE copies SET state = 'done', changed_at = ? WHERE kind = 'derived' AND place = ? AND state <> 'done'`
)

func (w *writer) endCopies(ctx context.Context, id string, at time.Time) error {
	if err := w.exec(ctx, doneCopies, at.UnixMicro(), id); err != nil {
		return err
	}
	return w.exec(ctx, pendCopies, at.UnixMicro(), id)
}

// AddCopy implements [Copies].
func (s *SQLite) AddCopy(ctx context.Context, c Copy, soft bool) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{
		op: "enter a copy of", subject: c.ArtifactID, soft: soft,
		do: func(ctx context.Context, w *writer) error {
			row, err := w.row(ctx, c.ArtifactID)
			if errors.Is(err, sql.ErrNoRows) {
				return notFound("enter a copy of", c.ArtifactID)
			}
			if err != nil {
				return err
			}
			if c.State == CopyLive && row.DeletedAt != nil {
				c.State = CopyPending
			}
			return w.exec(ctx, insertCopy, c.values()...)
		},
	})
}

// Copy implements [Copies].
func (s *SQLite) Copy(ctx context.Context, id string) (Copy, error) {
	list, err := s.listCopies(ctx, 1, `WHERE copy_id = ?`, id)
	if err == nil && len(list) == 0 {
		err = notFound("look up the copy", id)
	}
	if err != nil {
		return Copy{}, err
	}
	return list[0], nil
}

// CopiesOf implements [Copies].
func (s *SQLite) CopiesOf(ctx context.Context, artifactID string, after int64, limit int) ([]Copy, error) {
	return s.listCopies(ctx, limit, `WHERE artifact_id = ? AND seq > ? ORDER BY seq LIMIT ?`, artifactID, after, limit)
}

// CopiesHeldBy implements [Copies].
func (s *SQLite) CopiesHeldBy(ctx context.Context, holder string, after int64, limit int) ([]Copy, error) {
	if holder == "" {
		return s.listCopies(ctx, limit, `WHERE seq > ? ORDER BY seq LIMIT ?`, after, limit)
	}
	return s.listCopies(ctx, limit, `WHERE holder = ? AND seq > ? ORDER BY seq LIMIT ?`, holder, after, limit)
}

func (s *SQLite) listCopies(ctx context.Context, limit int, where string, args ...any) ([]Copy, error) {
	if err := checkList("copies", limit); err != nil {
		return nil, err
	}
	if s.version < versionLifecycle {
		return nil, nil // opened as it stands
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT seq, `+copyColumns+` FROM copies `+where, args...)
	if err != nil {
		return nil, s.fail("list the copies of", s.path, err)
	}
	list, err := collect(rows, scanCopy)
	if err != nil {
		return nil, s.fail("list the copies of", s.path, err)
	}
	return list, nil
}

func scanCopy(row scanner) (Copy, error) {
	var c Copy
	var made, changed int64
	err := row.Scan(&c.Seq, &c.CopyID, &c.ArtifactID, &c.Kind, &c.Place, &c.Controller, &c.Holder, &c.State, &c.Note, &made, &changed)
	c.MadeAt, c.ChangedAt = time.UnixMicro(made).UTC(), time.UnixMicro(changed).UTC()
	return c, err
}

// MarkCopy implements [Copies].
func (s *SQLite) MarkCopy(ctx context.Context, id, state, note string, at time.Time) error {
	if err := checkMark(id, state, note, at); err != nil {
		return err
	}
	return s.write(ctx, &job{
		op: "mark the copy", subject: id,
		do: func(ctx context.Context, w *writer) error {
			n, err := w.number(ctx, `SELECT CASE state WHEN 'out_of_control' THEN 2 ELSE 1 END FROM copies WHERE copy_id = ?`, id)
			switch {
			case err != nil:
				return err
			case n == 0:
				return notFound("mark the copy", id)
			case n == 2 && state != CopyBeyond:
				return &Error{Op: "mark the copy", Subject: id, Err: ErrConflictCopy}
			}
			return w.exec(ctx, `UPDATE copies SET state = ?, note = ?, changed_at = ? WHERE copy_id = ?`, state, note, at.UnixMicro(), id)
		},
	})
}

// PendCopies implements [Copies].
func (s *SQLite) PendCopies(ctx context.Context, ids []string, note string, at time.Time) (n int64, err error) {
	if err := checkMark("the copies", CopyPending, note, at); err != nil {
		return 0, err
	}
	err = s.write(ctx, &job{
		op: "mark the copies in", subject: s.path,
		do: func(ctx context.Context, w *writer) error {
			n = 0
			for _, id := range ids {
				there, err := w.number(ctx, `SELECT count(*) FROM copies WHERE copy_id = ? AND state IN ('live', 'failed')`, id)
				if err != nil {
					return err
				}
				if there == 0 {
					continue
				}
				n++
				if err := w.exec(ctx, `UPDATE copies SET state = 'pending', note = ?, changed_at = ? WHERE copy_id = ?`, note, at.UnixMicro(), id); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return n, err
}
