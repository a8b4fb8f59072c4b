package catalogue

import (
	"context"
	"fmt"
	"time"

	"leafproof/merkle"
)

const insertDisclosure = `INSERT INTO disclosures (at, principal, purpose, action, tenant, artifact_id, grant_id, epoch, shown)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (d Disclosure) values() []any {
	return []any{d.At.UnixMicro(), d.Principal, d.Purpose, d.Action, d.Tenant, d.ArtifactID, d.GrantID, d.Epoch, d.Shown}
}

// Disclose implements [Audit].
func (s *SQLite) Disclose(ctx context.Context, list []Disclosure) error {
	for _, d := range list {
		if err := d.check(); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	return s.write(ctx, &job{op: "enter", subject: "disclosures", do: func(ctx context.Context, w *writer) error {
		for _, d := range list {
			if err := w.exec(ctx, insertDisclosure, d.values()...); err != nil {
				return err
			}
		}
		return nil
	}})
}

// Disclosures implements [Audit].
func (s *SQLite) Disclosures(ctx context.Context, a Asked) ([]Disclosure, error) {
	if err := checkList("disclosures", a.Limit); err != nil {
		return nil, err
	}
	where, args := `seq > ?`, []any{a.After}
	if a.ArtifactID != "" {
		where, args = where+` AND artifact_id <> '' AND artifact_id = ?`, append(args, a.ArtifactID)
	}
	if a.Principal != "" {
		where, args = where+` AND principal = ?`, append(args, a.Principal)
	}
	scan := func(row interface{ Scan(...any) error }) (d Disclosure, err error) {
		var at int64
		err = row.Scan(&d.Seq, &at, &d.Principal, &d.Purpose, &d.Action, &d.Tenant, &d.ArtifactID, &d.GrantID, &d.Epoch, &d.Shown)
		d.At = time.UnixMicro(at).UTC()
		return d, err
	}
	return queryAll(ctx, s, s.reads, "list disclosures", scan, `SELECT seq, at, principal, purpose, action, tenant, artifact_id, grant_id, epoch, shown
		FROM disclosures WHERE `+where+` ORDER BY seq LIMIT ?`, append(args, a.Limit)...)
}

// CloseSegment implements [Audit].
func (s *SQLite) CloseSegment(ctx context.Context, seg Segment, leaf Leaf) error {
	if err := seg.check(); err != nil {
		return err
	}
	return s.write(ctx, &job{op: "close segment", subject: fmt.Sprint(seg.Number), do: func(ctx context.Context, w *writer) error {
		var last Segment
		var err error
		if last.Number, err = w.number(ctx, `SELECT max(number) FROM audit_segments HAVING max(number) > 0`); err != nil {
			return err
		}
		if last.Last, err = w.number(ctx, `SELECT last FROM audit_segments WHERE number = ?`, last.Number); err != nil {
			return err
		}
		if err := seg.follows(last); err != nil {
			return err
		}
		w.log(leaf, nil, nil)
		return w.exec(ctx, `INSERT INTO audit_segments (number, first, last, records, digest, closed_at, envelope) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			seg.Number, seg.First, seg.Last, seg.Records, seg.Digest[:], seg.ClosedAt.UnixMicro(), seg.Envelope)
	}})
}

// Segments implements [Audit].
func (s *SQLite) Segments(ctx context.Context, after int64, limit int) ([]Segment, error) {
	if err := checkList("segments", limit); err != nil {
		return nil, err
	}
	return queryAll(ctx, s, s.reads, "list segments", scanSegment, `SELECT `+segmentColumns+`
		FROM audit_segments WHERE number > ? ORDER BY number LIMIT ?`, after, limit)
}

const segmentColumns = `number, first, last, records, digest, closed_at, envelope`

func scanSegment(row interface{ Scan(...any) error }) (g Segment, err error) {
	var digest []byte
	var closed int64
	if err := row.Scan(&g.Number, &g.First, &g.Last, &g.Records, &digest, &closed, &g.Envelope); err != nil {
		return g, err
	}
	if len(digest) != len(g.Digest) {
		return g, fmt.Errorf("%w: the digest of segment %d has the wrong length", ErrDamaged, g.Number)
	}
	g.Digest, g.ClosedAt = merkle.Root(digest), time.UnixMicro(closed).UTC()
	return g, nil
}

// LastSegment implements [Audit].
func (s *SQLite) LastSegment(ctx context.Context) (Segment, error) {
	list, err := queryAll(ctx, s, s.reads, "list segments", scanSegment, `SELECT `+segmentColumns+` FROM audit_segments ORDER BY number DESC LIMIT 1`)
	if err != nil || len(list) == 0 {
		return Segment{}, err
	}
	return list[0], nil
}
