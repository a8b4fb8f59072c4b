package catalogue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"leafproof/merkle"
)

// Disclosure is one record of the audit log: something was shown, or what is
// allowed was changed. It holds no content and no secret.
type Disclosure struct {
	At         time.Time // kept to the microsecond
	Principal  string
	Purpose    string // as the principal gave it; may be empty
	Action     string
	Tenant     string // "" where it is about none
	ArtifactID string // "" where it is about none
	GrantID    string // under which it was allowed, or which was changed; "" for none
	Epoch      int64  // of the policy; of a change, the one that it made
	// Shown says what was shown or changed, as one JSON value of at most
	// [MaxShown] bytes. The catalogue does not read it.
	Shown string
	Seq   int64 // the order of entering, from 1, with gaps; set by the catalogue
}

// MaxShown is the most bytes that [Disclosure].Shown has.
const MaxShown = 16 << 10

// Segment is a run of the audit log that is closed: its records are those with
// First <= Seq <= Last.
type Segment struct {
	Number      int64 // from 1, without gaps
	First, Last int64
	Records     int64
	Digest      merkle.Root // of the records; who closes it says how
	ClosedAt    time.Time
	Envelope    []byte // the signed statement about it; nil: nobody has signed it
}

// Asked says which records of the audit log are wanted.
type Asked struct {
	ArtifactID string // "" for all
	Principal  string // "" for all
	After      int64  // those with Seq > After
	Limit      int    // at most, from 1 to [MaxList]
}

// Audit is the part of a catalogue that keeps the audit log. Nothing in it is ever
// changed or removed.
type Audit interface {
	// Disclose enters records, all or none. They survive a crash when it returns nil.
	Disclose(ctx context.Context, list []Disclosure) error
	// Disclosures returns records in the order of Seq.
	Disclosures(ctx context.Context, a Asked) ([]Disclosure, error)
	// CloseSegment enters a segment, and a leaf (zero for none) in the commit log with
	// it. One that does not follow the last is [ErrExists]: somebody else has closed
	// one meanwhile.
	CloseSegment(ctx context.Context, seg Segment, leaf Leaf) error
	// LastSegment returns the last segment; zero for none.
	LastSegment(ctx context.Context) (Segment, error)
	// Segments returns segments with Number > after, in order; at most limit.
	Segments(ctx context.Context, after int64, limit int) ([]Segment, error)
}

// auditSchema belongs to version 4 of the schema.
const auditSchema = `
CREATE TABLE disclosures (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	at          INTEGER NOT NULL,
	principal   TEXT    NOT NULL,
	purpose     TEXT    NOT NULL,
	action      TEXT    NOT NULL,
	tenant      TEXT    NOT NULL,
	artifact_id TEXT    NOT NULL,
	grant_id    TEXT    NOT NULL,
	epoch       INTEGER NOT NULL,
	shown       TEXT    NOT NULL
) STRICT;

CREATE INDEX disclosures_of_artifact ON disclosures (artifact_id, seq) WHERE artifact_id <> '';

CREATE TABLE audit_segments (
	number    INTEGER PRIMARY KEY,
	first     INTEGER NOT NULL,
	last      INTEGER NOT NULL CHECK (last >= first),
	records   INTEGER NOT NULL CHECK (records > 0),
	digest    BLOB    NOT NULL CHECK (length(digest) = 32),
	closed_at INTEGER NOT NULL,
	envelope  BLOB
) STRICT;
`

func (d Disclosure) check() error {
	if d.Principal == "" || d.Action == "" || !validTime(d.At) || len(d.Shown) > MaxShown || len(d.Purpose) > MaxShown {
		return &Error{
			Op: "disclose", Subject: d.ArtifactID, Err: ErrInvalid,
			Detail: fmt.Sprintf("a name or the time is missing, or over %d bytes say what was shown", MaxShown),
		}
	}
	return nil
}

func (s Segment) check() error {
	if s.Number < 1 || s.First < 1 || s.Last < s.First || s.Records < 1 || s.Records > s.Last-s.First+1 || s.Digest.IsZero() || !validTime(s.ClosedAt) {
		return &Error{Op: "close segment", Subject: fmt.Sprint(s.Number), Err: ErrInvalid}
	}
	if len(s.Envelope) > maxStatement {
		return &Error{Op: "close segment", Subject: fmt.Sprint(s.Number), Err: ErrInvalid, Detail: fmt.Sprintf("an envelope of %d bytes", len(s.Envelope))}
	}
	return nil
}

func (s Segment) clone() Segment {
	s.ClosedAt, s.Envelope = micro(s.ClosedAt), slices.Clone(s.Envelope)
	return s
}

// follows says whether a segment may come after last, which is zero for none.
func (s Segment) follows(last Segment) error {
	if s.Number != last.Number+1 || s.First <= last.Last {
		return &Error{Op: "close segment", Subject: fmt.Sprint(s.Number), Err: ErrExists}
	}
	return nil
}

// The engine in memory.

// audited is the state of [Memory]'s Audit.
type audited struct {
	all      []Disclosure // all[i].Seq == i+1
	segments []Segment    // segments[i].Number == i+1
}

// disclose enters a record, with m locked.
func (m *Memory) disclose(d Disclosure) {
	d.At, d.Seq = micro(d.At), int64(len(m.audited.all)+1)
	m.audited.all = append(m.audited.all, d)
}

// Disclose implements [Audit].
func (m *Memory) Disclose(ctx context.Context, list []Disclosure) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := d.check(); err != nil {
			return err
		}
	}
	for _, d := range list {
		m.disclose(d)
	}
	m.tick()
	return nil
}

// Disclosures implements [Audit].
func (m *Memory) Disclosures(ctx context.Context, a Asked) ([]Disclosure, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("disclosures", a.Limit); err != nil {
		return nil, err
	}
	var list []Disclosure
	for _, d := range m.audited.all {
		if d.Seq > a.After && (a.ArtifactID == "" || d.ArtifactID == a.ArtifactID) &&
			(a.Principal == "" || d.Principal == a.Principal) && len(list) < a.Limit {
			list = append(list, d)
		}
	}
	return list, nil
}

// CloseSegment implements [Audit].
func (m *Memory) CloseSegment(ctx context.Context, seg Segment, leaf Leaf) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := seg.check(); err != nil {
		return err
	}
	var last Segment
	if n := len(m.audited.segments); n > 0 {
		last = m.audited.segments[n-1]
	}
	if err := seg.follows(last); err != nil {
		return err
	}
	m.audited.segments = append(m.audited.segments, seg.clone())
	m.enter("", leaf)
	m.seal()
	return nil
}

// LastSegment implements [Audit].
func (m *Memory) LastSegment(ctx context.Context) (Segment, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if n := len(m.audited.segments); err == nil && n > 0 {
		return m.audited.segments[n-1].clone(), nil
	}
	return Segment{}, err
}

// Segments implements [Audit].
func (m *Memory) Segments(ctx context.Context, after int64, limit int) ([]Segment, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("segments", limit); err != nil {
		return nil, err
	}
	var list []Segment
	for _, s := range m.audited.segments {
		if s.Number > after && len(list) < limit {
			list = append(list, s.clone())
		}
	}
	return list, nil
}
