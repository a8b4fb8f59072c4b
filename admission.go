package leafproof

import (
	"context"
	"fmt"

	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
)

// Admitted says what of an answer entered a prompt.
type Admitted struct {
	// Receipt is the receipt of the answer, which the caller was given.
	Receipt *Statement
	// Admitted and Omitted are ranges of the answer's bytes, as its receipt counts
	// them. Both ascend, and together they leave none out.
	Admitted [][2]int64
	Omitted  []manifest.Omitted
	// Serialised is the digest of what the model was given for it.
	Serialised merkle.Root
}

// Admit signs and keeps the statement that a harness makes about a prompt: which
// bytes of an answer a model was given, and why it was not given the others. It needs
// a key of the role admission, which a store does not have from the beginning. The
// receipt must be the caller's own, and one that the store's policy lets speak.
func (s *Store) Admit(ctx context.Context, who Caller, a Admitted) (*Statement, error) {
	receipt, err := s.ownReceipt(ctx, who, a.Receipt)
	if err != nil {
		return nil, err
	}
	of, err := s.row(ctx, who, receipt.ArtifactID, gate.Stat)
	if err != nil {
		return nil, err
	}
	if _, err := of.permit(ctx); err != nil {
		return nil, err
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, wireError(receipt.ArtifactID, err)
	}
	by, err := s.speaker(manifest.RoleAdmission, &scope{of.row.Tenant, sourceOf(of.row)}, now)
	if err != nil {
		return nil, wireError(receipt.ArtifactID, err)
	}
	body := &manifest.Admission{
		ReceiptID: a.Receipt.ID, ReceiptDigest: a.Receipt.Digest.String(), Size: receipt.Result.Bytes,
		Admitted: append([][2]int64{}, a.Admitted...), Omitted: append([]manifest.Omitted{}, a.Omitted...),
		SerialisedDigest: a.Serialised.String(),
	}
	if body.Head, err = headFor(of.row, by, now); err != nil {
		return nil, err
	}
	row, st, err := signStatement(body, by, now)
	if err != nil {
		return nil, wireError(receipt.ArtifactID, err)
	}
	if err := s.catalogue.State(ctx, "", row); err != nil {
		return nil, wireError(receipt.ArtifactID, err)
	}
	return st, nil
}

// ownReceipt is what a receipt says, where it is signed by somebody whom the store
// lets speak and is about an answer to the caller.
func (s *Store) ownReceipt(ctx context.Context, who Caller, st *Statement) (*manifest.Receipt, error) {
	if st == nil {
		return nil, fail(CodeSelectorInvalid, FixCall, "receipt", "an admission is of an answer's receipt, and there is none")
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, wireError(st.ID, err)
	}
	t, err := s.trusted()
	if err != nil {
		return nil, wireError("trust.policy", err)
	}
	doc, _, err := manifest.VerifyStatement(st.Envelope, manifest.PredicateReceipt, t.policy, now)
	if err != nil {
		return nil, wireError(st.ID, fmt.Errorf("%w: %w", errStatement, err))
	}
	receipt, ok := doc.Body.(*manifest.Receipt)
	if !ok || doc.ID != st.ID || merkle.Sum(doc.Payload) != st.Digest {
		return nil, fail(CodeIntegrityFailed, Stop, st.ID, "%s is not what its envelope says", st.ID)
	}
	if receipt.Principal != string(who.Principal) {
		return nil, notFound(receipt.ArtifactID)
	}
	return receipt, nil
}
