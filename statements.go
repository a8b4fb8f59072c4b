package leafproof

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
)

// A Statement is something signed about an artifact besides its manifest: the
// receipt of a read, a tombstone, a deletion.
type Statement struct {
	Seq       int64              `json:"seq"` // the order in which the store entered it
	ID        string             `json:"id"`  // as in "rc_…": it follows from the payload
	Kind      string             `json:"predicate_type"`
	Digest    merkle.Root        `json:"-"` // BLAKE3 of the payload
	Envelope  manifest.Envelope  `json:"envelope"`
	Statement *manifest.Document `json:"-"`
	Bytes     []byte             `json:"-"` // the envelope as it is stored: canonical JSON
}

// Receipt is what the statement says, where it is the receipt of a read or query;
// else nil.
func (st *Statement) Receipt() *manifest.Receipt {
	r, _ := st.Statement.Body.(*manifest.Receipt)
	return r
}

// openStatement reads a stored statement. It asks nobody who signed it.
func openStatement(row catalogue.Statement) (*Statement, error) {
	env, err := manifest.ParseEnvelope(row.Envelope)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStatement, err)
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStatement, err)
	}
	doc, err := manifest.ParseStatement(payload, row.Kind)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errStatement, err)
	case doc.ID != row.StatementID || doc.Body.About().ArtifactID != row.ArtifactID:
		return nil, fmt.Errorf("%w: the catalogue has it as %s about %s", errStatement, row.StatementID, row.ArtifactID)
	}
	return &Statement{Seq: row.Seq, ID: doc.ID, Kind: row.Kind, Digest: merkle.Sum(payload), Envelope: env, Statement: doc, Bytes: row.Envelope}, nil
}

// errStatement is a stored statement that is not what the catalogue says.
var errStatement = errors.New("a stored statement is damaged")

// headFor begins a statement about an artifact by a key.
func headFor(row catalogue.Artifact, by speaker, now time.Time) (manifest.Head, error) {
	nonce, err := manifest.NewNonce(rand.Reader)
	return manifest.Head{
		ArtifactID: row.ArtifactID, ManifestID: row.ManifestID, Scope: manifest.Scope{TenantID: row.Tenant, RunID: row.Run},
		SourceID: row.SourceID, Issuer: manifest.Issuer{KeyID: by.key.Fingerprint()}, IssuedAt: manifest.FormatTime(now), Nonce: nonce,
	}, err
}

// signStatement signs a body, and returns it as the catalogue keeps it.
func signStatement(body manifest.Body, by speaker, now time.Time) (catalogue.Statement, *Statement, error) {
	payload, err := manifest.Encode(body)
	if err != nil {
		return catalogue.Statement{}, nil, err
	}
	env, err := manifest.Sign(payload, by)
	if err != nil {
		return catalogue.Statement{}, nil, err
	}
	kind, err := manifest.StatementKind(payload)
	if err != nil {
		return catalogue.Statement{}, nil, err
	}
	doc, err := manifest.ParseStatement(payload, kind)
	if err != nil {
		return catalogue.Statement{}, nil, err
	}
	head := body.About()
	row := catalogue.Statement{
		StatementID: doc.ID, Kind: kind, Tenant: head.Scope.TenantID, ArtifactID: head.ArtifactID, IssuedAt: now, Envelope: env.Bytes(),
		Leaf: statementLeaf(kind, payload),
	}
	return row, &Statement{ID: doc.ID, Kind: kind, Digest: merkle.Sum(payload), Envelope: env, Statement: doc, Bytes: row.Envelope}, nil
}

// enter puts a statement among the objects, where it outlives the catalogue, and
// then lets do enter it in the catalogue, under the lease that keeps the object.
func (s *Store) enter(ctx context.Context, row catalogue.Statement, do func(lease string, row catalogue.Statement) error) error {
	batch := s.objects.Begin(ctx, cas.TenantOf(row.Tenant))
	defer batch.Discard()
	return s.enterIn(ctx, batch, row, do)
}

// enterIn is enter together with what a batch has already.
func (s *Store) enterIn(ctx context.Context, batch *cas.Batch, row catalogue.Statement, do func(lease string, row catalogue.Statement) error) error {
	info, err := batch.Put(ctx, bytes.NewReader(row.Envelope), cas.Auto)
	if err != nil {
		return err
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	row.ObjectRoot, row.ObjectSize = info.Root, info.Size
	lease := ""
	if s.book != nil {
		lease = batch.Lease()
	}
	return do(lease, row)
}

// sourceOf is the source of an artifact; "" is none.
func sourceOf(row catalogue.Artifact) string {
	if row.SourceID == nil {
		return ""
	}
	return *row.SourceID
}

// Statements returns up to limit statements (1 to 10,000) about an artifact in the
// order in which they were entered, from the first behind after (0 for the
// beginning) on: receipts of reads, tombstone, deletions. They outlive the
// artifact. Whoever may not grant leave to others sees, of the receipts, his own
// alone; and what superseded it is told to whoever may know of that. The second result says where to go on; it is 0 at the end.
func (s *Store) Statements(ctx context.Context, who Caller, id string, after int64, limit int) ([]*Statement, int64, error) {
	a, err := s.row(ctx, who, id, gate.Stat)
	if err != nil {
		return nil, 0, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, 0, err
	}
	places := s.positions(who)
	after = places.hide(after)
	others := s.artifact(who, a.row, gate.Grant)
	_, err = others.permit(ctx)
	all := err == nil
	if err != nil && !refused(err) {
		return nil, 0, err
	}
	rows, err := s.catalogue.StatementsOf(ctx, id, after, limit)
	if err != nil {
		return nil, 0, wireError(id, err)
	}
	var out []*Statement
	for _, row := range rows {
		after = row.Seq
		st, err := openStatement(row)
		if err != nil {
			return nil, 0, wireError(id, err)
		}
		if r := st.Receipt(); r != nil && !all && r.Principal != string(who.Principal) {
			continue
		}
		if by, ok := st.Statement.Body.(*manifest.Superseded); ok {
			if knows, err := s.knows(ctx, who, by.By.ArtifactID); err != nil {
				return nil, 0, err
			} else if !knows {
				continue
			}
		}
		st.Seq = places.show(st.Seq)
		out = append(out, st)
	}
	if len(rows) < limit {
		after = 0
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true, Rows: new(int64(len(out)))}); err != nil {
		return nil, 0, err
	}
	return out, places.show(after), nil
}

// Receipts returns all receipts of reads of an artifact that who may see, oldest
// first: see [Store.Statements].
func (s *Store) Receipts(ctx context.Context, who Caller, id string) ([]*Statement, error) {
	var out []*Statement
	for after := int64(0); ; {
		list, next, err := s.Statements(ctx, who, id, after, 1000)
		if err != nil {
			return nil, err
		}
		for _, st := range list {
			if st.Receipt() != nil {
				out = append(out, st)
			}
		}
		if after = next; next == 0 {
			return out, nil
		}
	}
}

// Tombstone returns the statement that ended an artifact; nil where there is none:
// the artifact was not deleted, or by a store that had no key to say so.
func (s *Store) Tombstone(ctx context.Context, who Caller, id string) (*Statement, error) {
	for after := int64(0); ; {
		list, next, err := s.Statements(ctx, who, id, after, 1000)
		if err != nil {
			return nil, err
		}
		for _, st := range list {
			if st.Kind == manifest.PredicateTombstone {
				return st, nil
			}
		}
		if after = next; next == 0 {
			return nil, nil
		}
	}
}

// row returns an artifact with its row alone: also one that is deleted, has expired
// or is damaged. Nothing is asked of the gate yet, but for an id that no row has.
func (s *Store) row(ctx context.Context, who Caller, id string, action gate.Action) (*artifact, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	row, err := s.catalogue.Artifact(ctx, id)
	if errors.Is(err, catalogue.ErrNotFound) {
		return nil, s.absent(ctx, who, id, action)
	}
	if err != nil {
		return nil, wireError(id, err)
	}
	return s.artifact(who, row, action), nil
}
