package catalogue

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Book is the part of a catalogue in which writers and sweeps meet. A writer
// that holds objects which no artifact refers to yet stands in it with a lease.
// A sweep raises the epoch, waits until every lease has acknowledged it, and
// deletes objects that were condemned in an earlier one. The names of objects
// are texts that the catalogue does not interpret.
//
// The book knows no clock and no process. Whether the holder of a lease still
// lives is known to whoever can look at its lock.
type Book interface {
	// Enter opens a lease that has seen the present epoch. Its id must never
	// have been used.
	Enter(ctx context.Context, lease string) error
	// View returns the epoch and the names of all condemned objects, as of one
	// moment. When the epoch is have it returns have and no names.
	View(ctx context.Context, have int64) (epoch int64, condemned []string, err error)
	// Acknowledge notes that a lease has seen an epoch, and strikes the spared
	// off the condemned: both, or neither. A lease that is lost or gone, and a
	// spared object that a sweep has claimed, are [ErrLease].
	Acknowledge(ctx context.Context, lease string, epoch int64, spared []string) error
	// Leave ends a lease, and with it the claims that it still has. One that is
	// gone is no error.
	Leave(ctx context.Context, lease string) error

	// Holders returns all leases, in the order of their ids.
	Holders(ctx context.Context) ([]Holder, error)
	// Lose marks a lease lost: nothing is published under it any more.
	Lose(ctx context.Context, lease string) error
	// Advance raises the epoch by one and returns it.
	Advance(ctx context.Context) (int64, error)

	// Condemn enters objects as condemned in the present epoch. One that is
	// condemned already keeps its epoch. When it returns nil, the entries
	// survive a crash.
	Condemn(ctx context.Context, names []string) error
	// Condemned returns the objects that were condemned before an epoch and that
	// nobody has claimed, in the order of their names: at most limit of those
	// behind the name after.
	Condemned(ctx context.Context, before int64, after string, limit int) ([]string, error)
	// Pardon strikes objects off the condemned, but for those that are claimed.
	Pardon(ctx context.Context, names []string) error
	// Claim gives the objects that were condemned before an epoch and that
	// nobody has claimed to the holder of a lease, for it alone to delete, and
	// returns which they are. A lease that is lost or gone is ErrLease.
	Claim(ctx context.Context, lease string, before int64, names []string) ([]string, error)
	// Forget strikes off what a lease has claimed, once it is deleted: the names
	// are free again.
	Forget(ctx context.Context, lease string, names []string) error
}

// Holder is a lease as it stands in the book.
type Holder struct {
	Lease  string
	Opened int64 // the epoch in which it was opened
	Seen   int64 // the latest epoch that it has acknowledged
	Lost   bool
}

// bookSchema is what version 2 of the schema has beyond version 1.
const bookSchema = `
CREATE TABLE sweep (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	epoch INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

INSERT INTO sweep (one, epoch) VALUES (1, 0);

CREATE TABLE leases (
	lease  TEXT    PRIMARY KEY,
	opened INTEGER NOT NULL,
	seen   INTEGER NOT NULL CHECK (seen >= opened),
	lost   INTEGER NOT NULL CHECK (lost IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE condemned (
	name  TEXT    PRIMARY KEY,
	epoch INTEGER NOT NULL,
	owner TEXT
) STRICT, WITHOUT ROWID;
`

func leaseLost(op, lease string) error {
	return &Error{Op: op, Subject: "lease " + lease, Err: ErrLease}
}

// The engine in memory.

// book is the state of [Memory]'s Book.
type book struct {
	epoch     int64
	leases    map[string]*Holder
	condemned map[string]*sentence
}

type sentence struct {
	epoch int64
	owner string // "" for nobody
}

func newBook() book {
	return book{leases: map[string]*Holder{}, condemned: map[string]*sentence{}}
}

// Enter implements [Book].
func (m *Memory) Enter(ctx context.Context, lease string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if _, ok := m.book.leases[lease]; ok || lease == "" {
		return &Error{Op: "enter", Subject: "lease " + lease, Err: ErrInvalid}
	}
	m.book.leases[lease] = &Holder{Lease: lease, Opened: m.book.epoch, Seen: m.book.epoch}
	return nil
}

// View implements [Book].
func (m *Memory) View(ctx context.Context, have int64) (int64, []string, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil || have == m.book.epoch {
		return m.book.epoch, nil, err
	}
	var names []string
	for name := range m.book.condemned {
		names = append(names, name)
	}
	return m.book.epoch, names, nil
}

// Acknowledge implements [Book].
func (m *Memory) Acknowledge(ctx context.Context, lease string, epoch int64, spared []string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	h := m.book.leases[lease]
	if h == nil || h.Lost {
		return leaseLost("acknowledge", lease)
	}
	for _, name := range spared {
		if s := m.book.condemned[name]; s != nil && s.owner != "" {
			return leaseLost("acknowledge", lease)
		}
	}
	for _, name := range spared {
		delete(m.book.condemned, name)
	}
	h.Seen = max(h.Seen, epoch)
	return nil
}

// Leave implements [Book].
func (m *Memory) Leave(ctx context.Context, lease string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	delete(m.book.leases, lease)
	for _, s := range m.book.condemned {
		if s.owner == lease {
			s.owner = ""
		}
	}
	return nil
}

// Holders implements [Book].
func (m *Memory) Holders(ctx context.Context) ([]Holder, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var list []Holder
	for _, h := range m.book.leases {
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b Holder) int { return strings.Compare(a.Lease, b.Lease) })
	return list, nil
}

// Lose implements [Book].
func (m *Memory) Lose(ctx context.Context, lease string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if h := m.book.leases[lease]; err == nil && h != nil {
		h.Lost = true
	}
	return err
}

// Advance implements [Book].
func (m *Memory) Advance(ctx context.Context) (int64, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	m.book.epoch++
	return m.book.epoch, nil
}

// Condemn implements [Book].
func (m *Memory) Condemn(ctx context.Context, names []string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, name := range names {
		if m.book.condemned[name] == nil {
			m.book.condemned[name] = &sentence{epoch: m.book.epoch}
		}
	}
	return nil
}

// Condemned implements [Book].
func (m *Memory) Condemned(ctx context.Context, before int64, after string, limit int) ([]string, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var names []string
	for name, s := range m.book.condemned {
		if s.epoch < before && s.owner == "" && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), limit)], nil
}

// Pardon implements [Book].
func (m *Memory) Pardon(ctx context.Context, names []string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, name := range names {
		if s := m.book.condemned[name]; s != nil && s.owner == "" {
			delete(m.book.condemned, name)
		}
	}
	return nil
}

// Claim implements [Book].
func (m *Memory) Claim(ctx context.Context, lease string, before int64, names []string) ([]string, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if h := m.book.leases[lease]; h == nil || h.Lost {
		return nil, leaseLost("claim", lease)
	}
	var claimed []string
	for _, name := range names {
		if s := m.book.condemned[name]; s != nil && s.owner == "" && s.epoch < before {
			s.owner = lease
			claimed = append(claimed, name)
		}
	}
	return claimed, nil
}

// Forget implements [Book].
func (m *Memory) Forget(ctx context.Context, lease string, names []string) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, name := range names {
		if s := m.book.condemned[name]; s != nil && s.owner == lease {
			delete(m.book.condemned, name)
		}
	}
	return nil
}

// PublishUnder implements [Catalogue].
func (m *Memory) PublishUnder(ctx context.Context, lease string, a Artifact) error {
	return m.publish(ctx, a, func() error {
		if h := m.book.leases[lease]; h == nil || h.Lost {
			return leaseLost("publish "+a.ArtifactID+" under", lease)
		}
		return nil
	})
}

// The engine in a file.

// Enter implements [Book].
func (s *SQLite) Enter(ctx context.Context, lease string) error {
	if lease == "" {
		return &Error{Op: "enter", Subject: "lease", Err: ErrInvalid}
	}
	return s.write(ctx, &job{
		op: "enter", subject: "lease " + lease, soft: true,
		do: func(ctx context.Context, w *writer) error {
			return w.exec(ctx, `INSERT INTO leases (lease, opened, seen, lost) SELECT ?, epoch, epoch, 0 FROM sweep`, lease)
		},
	})
}

// View implements [Book].
func (s *SQLite) View(ctx context.Context, have int64) (epoch int64, condemned []string, err error) {
	fail := func(err error) (int64, []string, error) { return 0, nil, s.fail("read the sweep of", s.path, err) }
	if err := s.stmts.sweep.QueryRowContext(ctx).Scan(&epoch); err != nil {
		return fail(err)
	}
	if epoch == have {
		return have, nil, nil
	}
	// One statement is one moment. The epoch of a row without a name is that of
	// the book.
	rows, err := s.reads.QueryContext(ctx, `SELECT epoch, NULL FROM sweep UNION ALL SELECT 0, name FROM condemned`)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var name *string
		if err := rows.Scan(&n, &name); err != nil {
			return fail(err)
		}
		if name == nil {
			epoch = n
		} else {
			condemned = append(condemned, *name)
		}
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return epoch, condemned, nil
}

// Acknowledge implements [Book].
func (s *SQLite) Acknowledge(ctx context.Context, lease string, epoch int64, spared []string) error {
	return s.write(ctx, &job{
		op: "acknowledge", subject: "lease " + lease, soft: true,
		do: func(ctx context.Context, w *writer) error {
			if err := w.live(ctx, "acknowledge", lease); err != nil {
				return err
			}
			for _, name := range spared { // before anything is changed
				switch n, err := w.number(ctx, `SELECT count(*) FROM condemned WHERE name = ? AND owner IS NOT NULL`, name); {
				case err != nil:
					return err
				case n > 0:
					return leaseLost("acknowledge", lease)
				}
			}
			for _, name := range spared {
				if err := w.exec(ctx, `DELETE FROM condemned WHERE name = ?`, name); err != nil {
					return err
				}
			}
			return w.exec(ctx, `UPDATE leases SET seen = max(seen, ?) WHERE lease = ?`, epoch, lease)
		},
	})
}

// Leave implements [Book].
func (s *SQLite) Leave(ctx context.Context, lease string) error {
	return s.write(ctx, &job{
		op: "leave", subject: "lease " + lease, soft: true,
		do: func(ctx context.Context, w *writer) error {
			if err := w.exec(ctx, `DELETE FROM leases WHERE lease = ?`, lease); err != nil {
				return err
			}
			return w.exec(ctx, `UPDATE condemned SET owner = NULL WHERE owner = ?`, lease)
		},
	})
}

// Holders implements [Book].
func (s *SQLite) Holders(ctx context.Context) ([]Holder, error) {
	fail := func(err error) ([]Holder, error) { return nil, s.fail("list the leases of", s.path, err) }
	rows, err := s.reads.QueryContext(ctx, `SELECT lease, opened, seen, lost FROM leases ORDER BY lease`)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	var list []Holder
	for rows.Next() {
		var h Holder
		if err := rows.Scan(&h.Lease, &h.Opened, &h.Seen, &h.Lost); err != nil {
			return fail(err)
		}
		list = append(list, h)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return list, nil
}

// Lose implements [Book].
func (s *SQLite) Lose(ctx context.Context, lease string) error {
	return s.write(ctx, &job{
		op: "lose", subject: "lease " + lease,
		do: func(ctx context.Context, w *writer) error {
			return w.exec(ctx, `UPDATE leases SET lost = 1 WHERE lease = ?`, lease)
		},
	})
}

// Advance implements [Book].
func (s *SQLite) Advance(ctx context.Context) (epoch int64, err error) {
	err = s.write(ctx, &job{
		op: "advance", subject: s.path,
		do: func(ctx context.Context, w *writer) (err error) {
			if err := w.exec(ctx, `UPDATE sweep SET epoch = epoch + 1 WHERE one = 1`); err != nil {
				return err
			}
			epoch, err = w.number(ctx, `SELECT epoch FROM sweep WHERE one = 1`)
			return err
		},
	})
	return epoch, err
}

// each runs a statement for every name.
func each(text string, names []string, args ...any) func(context.Context, *writer) error {
	return func(ctx context.Context, w *writer) error {
		for _, name := range names {
			if err := w.exec(ctx, text, append([]any{name}, args...)...); err != nil {
				return err
			}
		}
		return nil
	}
}

// Condemn implements [Book].
func (s *SQLite) Condemn(ctx context.Context, names []string) error {
	return s.write(ctx, &job{
		op: "condemn", subject: fmt.Sprintf("%d objects", len(names)),
		do: each(`INSERT INTO condemned (name, epoch) SELECT ?, epoch FROM sweep WHERE true ON CONFLICT DO NOTHING`, names),
	})
}

// Condemned implements [Book].
func (s *SQLite) Condemned(ctx context.Context, before int64, after string, limit int) ([]string, error) {
	fail := func(err error) ([]string, error) { return nil, s.fail("list the condemned of", s.path, err) }
	rows, err := s.reads.QueryContext(ctx, `SELECT name FROM condemned
		WHERE name > ? AND epoch < ? AND owner IS NULL ORDER BY name LIMIT ?`, after, before, limit)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return fail(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return names, nil
}

// Pardon implements [Book].
func (s *SQLite) Pardon(ctx context.Context, names []string) error {
	return s.write(ctx, &job{
		op: "pardon", subject: fmt.Sprintf("%d objects", len(names)),
		do: each(`DELETE FROM condemned WHERE name = ? AND owner IS NULL`, names),
	})
}

// Claim implements [Book].
func (s *SQLite) Claim(ctx context.Context, lease string, before int64, names []string) (claimed []string, err error) {
	err = s.write(ctx, &job{
		op: "claim", subject: "lease " + lease,
		do: func(ctx context.Context, w *writer) error {
			claimed = nil
			if err := w.live(ctx, "claim", lease); err != nil {
				return err
			}
			for _, name := range names {
				n, err := w.number(ctx, `UPDATE condemned SET owner = ? WHERE name = ? AND epoch < ? AND owner IS NULL RETURNING 1`, lease, name, before)
				if err != nil {
					return err
				}
				if n == 1 {
					claimed = append(claimed, name)
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// Forget implements [Book].
func (s *SQLite) Forget(ctx context.Context, lease string, names []string) error {
	return s.write(ctx, &job{
		op: "forget", subject: fmt.Sprintf("%d objects", len(names)), soft: true,
		do: each(`DELETE FROM condemned WHERE name = ? AND owner = ?`, names, lease),
	})
}
