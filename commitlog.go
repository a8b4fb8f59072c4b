package leafproof

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/manifest/tlog"
)

// ErrNoLog is a store whose log has no checkpoint: it has no key of the role log,
// or nothing was published since it got one.
var ErrNoLog = errors.New("the commit log has no checkpoint")

// logLeaf is the leaf of a payload, as the catalogue keeps it.
func logLeaf(kind string, payload []byte) catalogue.Leaf {
	l := tlog.LeafOf(kind, payload)
	return catalogue.Leaf{Kind: l.Kind, Digest: l.Digest, Hash: l.Hash()}
}

// statementLeaf is the leaf of a statement; none for a kind that is not logged.
func statementLeaf(predicateType string, payload []byte) catalogue.Leaf {
	if kind := tlog.KindOf(predicateType); kind != "" {
		return logLeaf(kind, payload)
	}
	return catalogue.Leaf{}
}

// seal signs a checkpoint with the newest key of a log that is at hand. It is
// called in the transaction that publishes, once for all that is in it.
func (s *Store) seal(size int64, root tlog.Hash, at time.Time) ([]byte, error) {
	by, err := s.speaker(manifest.RoleLog, nil, at)
	if err != nil {
		return nil, err
	}
	t, err := s.trusted()
	if err != nil {
		return nil, err
	}
	for _, l := range t.policy.Logs() {
		if l.Public == by.key {
			c, err := tlog.NewCheckpoint(l.Name, size, root, at, by.Signer)
			return []byte(c.String()), err
		}
	}
	return nil, fmt.Errorf("%w as %s", ErrNoKey, manifest.RoleLog)
}

// beginLog makes the version of the policy that is in force the first leaf of a log
// that has none, so that every log begins with whose word counts.
func (s *Store) beginLog(ctx context.Context) error {
	n, err := s.catalogue.LogSize(ctx)
	if err != nil || n > 0 {
		return err
	}
	return s.logPolicy(ctx)
}

func readOnly(err error) bool {
	return errors.Is(err, catalogue.ErrReadOnly) || errors.Is(err, catalogue.ErrFull)
}

// logPolicy enters the version of the policy that is in force in the log.
func (s *Store) logPolicy(ctx context.Context) error {
	t, err := s.trusted()
	if err != nil || t.text == nil {
		return err
	}
	err = s.catalogue.Append(ctx, logLeaf(tlog.KindPolicy, t.text))
	if readOnly(err) {
		return nil // reading goes on
	}
	return err
}

// commitment proves that an artifact's manifest was committed; nil where no
// checkpoint holds it. What was published before the store had a log is entered
// now: its proof shows that it is no younger than that.
//
// Of the checkpoints that hold it the first is the best evidence of its age, and
// the first that witnesses saw is the best where the key is in bad hands.
func (s *Store) commitment(ctx context.Context, row catalogue.Artifact, m *manifest.Manifest) (*tlog.Proof, error) {
	leaf, err := s.catalogue.LeafOf(ctx, row.ArtifactID)
	if errors.Is(err, catalogue.ErrNotFound) {
		err = s.catalogue.Backfill(ctx, row.ArtifactID, logLeaf(tlog.KindOf(manifest.PredicateManifest), m.Payload))
		if readOnly(err) {
			return nil, nil
		}
		if err == nil {
			leaf, err = s.catalogue.LeafOf(ctx, row.ArtifactID)
		}
	}
	if err != nil {
		return nil, err
	}
	t, err := s.trusted()
	if err != nil {
		return nil, err
	}
	stated := tlog.LeafOf(leaf.Kind, m.Payload)
	var first *tlog.Proof
	from := leaf.Index
	for try := range 1 + maxHeads {
		witnessed := try > 0
		p, err := s.prove(ctx, leaf.Index, from, witnessed)
		if errors.Is(err, ErrNoLog) {
			if witnessed {
				break
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		fact, evidence := tlog.Commit(*p, stated, t.policy)
		if fact.State == manifest.Mismatch {
			return nil, fmt.Errorf("%w: the commit log: %s", catalogue.ErrDamaged, fact.Reason)
		}
		ref := &m.Predicate.ArtifactRef
		_, judged := t.policy.Given(evidence).Judge(manifest.RoleManifest, ref.Scope.TenantID, sourceOf(row), m.Predicate.Issuer.KeyID, row.CreatedAt)
		if first == nil || fact.State == manifest.Attested && judged == nil {
			first = p
		}
		if witnessed {
			if fact.State == manifest.Attested {
				break
			}
			from = p.Checkpoint.Size
		}
	}
	return first, nil
}

// maxHeads is how many witnessed checkpoints are looked at for one that the quorum
// has cosigned.
const maxHeads = 64

// commit puts the proof of the artifact's commitment into a bundle.
func (a *artifact) commit(ctx context.Context, b *bundle.Bundle) error {
	p, err := a.store.commitment(ctx, a.row, a.m)
	if err != nil || p == nil {
		return err
	}
	return b.Commit(*p)
}

// prove makes the proof of a leaf against the first checkpoint of more than from
// leaves, which is no less than the leaf's index, or the first such that was
// witnessed. The error is [ErrNoLog] where there is none.
func (s *Store) prove(ctx context.Context, index, from int64, witnessed bool) (*tlog.Proof, error) {
	head, err := s.catalogue.HeadOf(ctx, from, witnessed)
	if errors.Is(err, catalogue.ErrNotFound) {
		return nil, ErrNoLog
	}
	if err != nil {
		return nil, err
	}
	c, err := tlog.ParseCheckpoint(head.Note)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", catalogue.ErrDamaged, err)
	}
	path, err := tlog.ProveLeaf(index, c.Size, s.catalogue.LogHashes(ctx))
	if err != nil {
		return nil, err
	}
	return &tlog.Proof{Index: index, Path: path, Checkpoint: c}, nil
}

// LogLeaf is an entry of a store's commit log.
type LogLeaf struct {
	Index int64
	tlog.Leaf
}

// LogHead is the newest checkpoint of the store's commit log. The error is
// [ErrNoLog] where there is none.
func (s *Store) LogHead(ctx context.Context) (tlog.Checkpoint, error) {
	head, err := s.catalogue.NewestHead(ctx)
	if errors.Is(err, catalogue.ErrNotFound) {
		return tlog.Checkpoint{}, ErrNoLog
	}
	if err != nil {
		return tlog.Checkpoint{}, wireError("", err)
	}
	return tlog.ParseCheckpoint(head.Note)
}

// LogSize is the number of leaves in the store's commit log.
func (s *Store) LogSize(ctx context.Context) (int64, error) { return s.catalogue.LogSize(ctx) }

// LogLeaves returns leaves of the commit log from an index on; at most limit, which
// is from 1 to 10,000. A leaf says of what it is nothing but a digest of a payload
// that holds a nonce.
func (s *Store) LogLeaves(ctx context.Context, from int64, limit int) ([]LogLeaf, error) {
	list, err := s.catalogue.Leaves(ctx, from, limit)
	if err != nil {
		return nil, wireError("", err)
	}
	out := make([]LogLeaf, len(list))
	for i, l := range list {
		out[i] = LogLeaf{l.Index, tlog.Leaf{Kind: l.Kind, Digest: l.Digest}}
	}
	return out, nil
}

// LogProof proves that the manifest of an artifact was committed; who must be
// allowed to see that the artifact is there. Also what was deleted has a proof. The
// error is [ErrNoLog] where no checkpoint holds it.
func (s *Store) LogProof(ctx context.Context, who Caller, id string) (tlog.Proof, error) {
	a, err := s.row(ctx, who, id, gate.Stat)
	if err != nil {
		return tlog.Proof{}, err
	}
	permit, err := a.permit(ctx)
	if err == nil {
		err = a.disclosed(ctx, permit, Shown{Facts: true})
	}
	if err != nil {
		return tlog.Proof{}, err
	}
	if leaf, err := s.catalogue.LeafOf(ctx, id); err == nil {
		p, err := s.prove(ctx, leaf.Index, leaf.Index, false)
		if err != nil {
			return tlog.Proof{}, wireError(id, err)
		}
		return *p, nil
	}
	_, m, err := s.load(ctx, a.row)
	if err != nil {
		return tlog.Proof{}, wireError(id, err)
	}
	p, err := s.commitment(ctx, a.row, m)
	if err == nil && p == nil {
		err = ErrNoLog
	}
	if err != nil {
		return tlog.Proof{}, wireError(id, err)
	}
	return *p, nil
}

// LogProver proves that older trees of the store's log are the beginning of newer
// ones.
func (s *Store) LogProver(ctx context.Context) tlog.Prover {
	head, err := s.LogHead(ctx)
	hashes := s.catalogue.LogHashes(ctx)
	return func(older, newer tlog.Checkpoint) ([]tlog.Hash, error) {
		if err != nil {
			return nil, err
		}
		for _, c := range []tlog.Checkpoint{older, newer} {
			root, err := tlog.RootOf(c.Size, hashes)
			switch {
			case c.Origin != head.Origin:
				return nil, fmt.Errorf("%w: %s", tlog.ErrOrigin, c.Origin)
			case c.Size > head.Size:
				return nil, fmt.Errorf("%w: %d leaves", tlog.ErrConsistency, c.Size)
			case err != nil:
				return nil, err
			case root != c.Root:
				return nil, fmt.Errorf("%w: two roots of %d leaves", tlog.ErrFork, c.Size)
			}
		}
		return tlog.ProveTree(older.Size, newer.Size, hashes)
	}
}

// ExportLog gives the log as the files of C2SP tlog-tiles to put, from the state of
// an earlier export of so many leaves on; the checkpoint comes last.
func (s *Store) ExportLog(ctx context.Context, old int64, put func(path string, data []byte) error) (tlog.Checkpoint, error) {
	head, err := s.LogHead(ctx)
	if err != nil {
		return head, err
	}
	entries := func(from, to int64) ([][]byte, error) {
		list, err := s.LogLeaves(ctx, from, int(to-from))
		if err == nil && int64(len(list)) != to-from {
			err = fmt.Errorf("%w: the commit log lacks leaves from %d on", catalogue.ErrDamaged, from)
		}
		data := make([][]byte, len(list))
		for i, l := range list {
			data[i] = l.Data()
		}
		return data, err
	}
	if err := tlog.WriteTiles(old, head.Size, s.catalogue.LogHashes(ctx), entries, put); err != nil {
		return head, err
	}
	return head, put(tlog.CheckpointPath, []byte(head.String()))
}

// Cosigned adds the signatures of witnesses to the checkpoint of a size. Those by a
// witness of the policy must verify; others are dropped. It returns the checkpoint
// as it is then.
func (s *Store) Cosigned(ctx context.Context, size int64, sigs []tlog.Signature) (tlog.Checkpoint, error) {
	head, err := s.catalogue.HeadOf(ctx, size-1, false)
	if err != nil || head.Size != size {
		return tlog.Checkpoint{}, fmt.Errorf("%w of %d leaves", ErrNoLog, size)
	}
	c, err := tlog.ParseCheckpoint(head.Note)
	if err != nil {
		return c, err
	}
	t, err := s.trusted()
	if err != nil {
		return c, err
	}
	known := 0
	for _, w := range t.policy.Witnesses() {
		for _, sig := range sigs {
			if sig.Name != w.Key.Name || sig.ID != w.Key.ID() {
				continue
			}
			known++
			had, before := c.SignedBy(w.Key)
			next := c.With(sig)
			at, err := next.SignedBy(w.Key)
			if err != nil {
				return c, err
			}
			if before != nil || at.Before(had) {
				c = next // of its signatures the earliest counts; others would only fill the note
			}
		}
	}
	if known == 0 {
		return c, fmt.Errorf("%w: none of the signatures is by a witness that trust.policy names", tlog.ErrUnsigned)
	}
	note := []byte(c.String())
	if _, err := tlog.ParseCheckpoint(note); err != nil {
		return c, err // too many: nobody could read it
	}
	return c, s.catalogue.Witnessed(ctx, size, note)
}

// WitnessRequest asks a witness, which cosigned so many leaves last, for the newest
// checkpoint.
func (s *Store) WitnessRequest(ctx context.Context, old int64) (tlog.Request, error) {
	head, err := s.LogHead(ctx)
	if err != nil {
		return tlog.Request{}, err
	}
	path, err := tlog.ProveTree(old, head.Size, s.catalogue.LogHashes(ctx))
	return tlog.Request{Old: old, Proof: path, Checkpoint: head}, err
}

// CheckLog is [Store.Check] of the commit log alone. Nothing is read of what was
// committed.
func (s *Store) CheckLog(ctx context.Context) (*CheckReport, error) {
	c := newChecker(ctx, CheckOptions{}, s.objects, s.catalogue, s.Policy())
	return c.report, wireError("", c.commitLog())
}
