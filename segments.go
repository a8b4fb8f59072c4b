package leafproof

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/merkle"
)

// segmentRecords is how many records of the audit log a segment has, at least. One
// that is closed on demand may have fewer.
const segmentRecords = 1000

// maxSegment bounds the records of a segment.
const maxSegment = catalogue.MaxList

// segmentKind is the kind of a segment's leaf in the commit log.
const segmentKind = "audit-segment"

// An AuditSegment is a run of the audit log that is closed.
type AuditSegment struct {
	Number   int64       `json:"number"`
	First    int64       `json:"first"`
	Last     int64       `json:"last"`
	Records  int64       `json:"records"`
	Digest   merkle.Root `json:"digest"`
	ClosedAt time.Time   `json:"closed_at"`
	Signed   bool        `json:"signed"`
	// Problem says why it does not hold; "" where its records are those that were
	// closed, and the statement about them, if there is one, verifies.
	Problem string `json:"problem"`
}

// CloseAudit closes the audit log up to here, in segments: their statements, signed
// in the role audit where the store has a key for it, go into the commit log, and
// from then on a record that is changed or taken out is found. Segments are closed
// by themselves as the log grows; this is for whoever wants one now.
func (s *Store) CloseAudit(ctx context.Context) error {
	if err := s.audit.flush(ctx); err != nil {
		return wireError("audit", err)
	}
	return wireError("audit", s.closeSegments(ctx, 1))
}

// closeSegments closes what has at least some records.
func (s *Store) closeSegments(ctx context.Context, least int) error {
	for {
		last, err := s.catalogue.LastSegment(ctx)
		if err != nil {
			return err
		}
		// Are there as many? Numbers may have gaps, so a look ahead can only say no.
		list, err := s.catalogue.Disclosures(ctx, catalogue.Asked{After: last.Last + int64(least) - 1, Limit: 1})
		if err != nil || len(list) == 0 {
			return err
		}
		list, err = s.catalogue.Disclosures(ctx, catalogue.Asked{After: last.Last, Limit: maxSegment})
		if err != nil || len(list) < least {
			return err
		}
		err = s.closeSegment(ctx, last, list)
		if err != nil && !errors.Is(err, catalogue.ErrExists) { // another process was faster
			return err
		}
	}
}

func (s *Store) closeSegment(ctx context.Context, before catalogue.Segment, list []catalogue.Disclosure) error {
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return err
	}
	seg := catalogue.Segment{
		Number: before.Number + 1, First: list[0].Seq, Last: list[len(list)-1].Seq, Records: int64(len(list)),
		Digest: segmentDigest(before.Digest, list), ClosedAt: now,
	}
	var leaf catalogue.Leaf
	by, err := s.speaker(manifest.RoleAudit, &scope{tenant: "*"}, now)
	switch {
	case errors.Is(err, ErrNoKey): // it is closed all the same, and nobody says so
	case err != nil:
		return err
	default:
		payload, env, err := s.stateSegment(seg, before, by)
		if err != nil {
			return err
		}
		seg.Envelope, leaf = env, logLeaf(segmentKind, payload)
	}
	return s.catalogue.CloseSegment(ctx, seg, leaf)
}

// stateSegment signs the statement about a segment.
func (s *Store) stateSegment(seg, before catalogue.Segment, by speaker) (payload, envelope []byte, err error) {
	nonce, err := manifest.NewNonce(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	body := &manifest.Segment{
		StoreID: s.id, Number: seg.Number, First: seg.First, Last: seg.Last, Records: seg.Records, Digest: seg.Digest.String(),
		ClosedAt: manifest.FormatTime(seg.ClosedAt), Issuer: manifest.Issuer{KeyID: by.key.Fingerprint()}, Nonce: nonce,
	}
	if before.Number > 0 {
		body.Previous = new(before.Digest.String())
	}
	if payload, err = manifest.EncodeSegment(body); err != nil {
		return nil, nil, err
	}
	env, err := manifest.Sign(payload, by)
	if err != nil {
		return nil, nil, err
	}
	return payload, env.Bytes(), nil
}

// segmentDigest is BLAKE3 of the records of a segment: see docs/FORMAT.md. The digest
// of the segment before comes first, so each holds all before it.
func segmentDigest(before merkle.Root, list []catalogue.Disclosure) merkle.Root {
	var b strings.Builder
	b.WriteString("leafproof audit v1\n" + before.String() + "\n")
	for _, d := range list {
		fmt.Fprintf(&b, "%d %d %d", d.Seq, d.At.UnixMicro(), d.Epoch)
		for _, text := range []string{d.Principal, d.Purpose, d.Action, d.Tenant, d.ArtifactID, d.GrantID, d.Shown} {
			fmt.Fprintf(&b, " %d:%s", len(text), text)
		}
		b.WriteByte('\n')
	}
	return merkle.Sum([]byte(b.String()))
}

// AuditSegments looks at every segment of the audit log: whether its records are those
// that were closed, and whether the statement about them verifies. Only the owner may.
func (s *Store) AuditSegments(ctx context.Context, who Caller) ([]AuditSegment, error) {
	if err := ownerOnly(who, "look at the audit log"); err != nil {
		return nil, err
	}
	out := []AuditSegment{}
	var before catalogue.Segment
	for {
		list, err := s.catalogue.Segments(ctx, before.Number, 100)
		if err != nil {
			return nil, wireError("audit", err)
		}
		for _, seg := range list {
			problem, err := s.holdsSegment(ctx, seg, before)
			if err != nil {
				return nil, wireError("audit", err)
			}
			out = append(out, AuditSegment{
				Number: seg.Number, First: seg.First, Last: seg.Last, Records: seg.Records, Digest: seg.Digest, ClosedAt: seg.ClosedAt,
				Signed: seg.Envelope != nil, Problem: problem,
			})
			before = seg
		}
		if len(list) < 100 {
			return out, nil
		}
	}
}

// holdsSegment says why a segment does not hold; "" where it does.
func (s *Store) holdsSegment(ctx context.Context, seg, before catalogue.Segment) (problem string, err error) {
	list, err := s.catalogue.Disclosures(ctx, catalogue.Asked{After: before.Last, Limit: maxSegment})
	if err != nil {
		return "", err
	}
	n := 0
	for n < len(list) && list[n].Seq <= seg.Last {
		n++
	}
	switch {
	case seg.Number != before.Number+1:
		return fmt.Sprintf("it follows segment %d: others are missing", before.Number), nil
	case int64(n) != seg.Records || n == 0 || list[0].Seq != seg.First:
		return fmt.Sprintf("it had %d records from %d to %d, and there are %d", seg.Records, seg.First, seg.Last, n), nil
	case segmentDigest(before.Digest, list[:n]) != seg.Digest:
		return "its records are not those that were closed", nil
	case seg.Envelope == nil:
		return "", nil
	}
	t, err := s.trusted()
	if err != nil {
		return "", err
	}
	env, err := manifest.ParseEnvelope(seg.Envelope)
	if err != nil {
		return err.Error(), nil
	}
	said, _, err := manifest.VerifySegment(env, t.policy.Given(manifest.Evidence{Logged: seg.ClosedAt}), seg.ClosedAt)
	switch {
	case err != nil:
		return err.Error(), nil
	case said.StoreID != s.id || said.Number != seg.Number || said.Digest != seg.Digest.String() || said.First != seg.First || said.Last != seg.Last:
		return "the statement about it is about another", nil
	}
	return "", nil
}
