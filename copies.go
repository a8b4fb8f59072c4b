package leafproof

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
)

// A Copy is one entry of an artifact's inventory: something that was made of it and
// holds some of what it says.
type Copy struct {
	ID         string `json:"copy_id"`
	ArtifactID string `json:"artifact_id"`
	// Kind is one of CopyKinds.
	Kind string `json:"kind"`
	// Where it is, in the words of who registered it; of a derived artifact its id.
	Where string `json:"where"`
	// Controller can do something about it: "store", a principal, or any other name.
	Controller string `json:"controller"`
	// Holder is the principal who was given what it holds: where his leave ends, so
	// must the copy. Of a derived artifact it is "store".
	Holder string `json:"holder"`
	// Propagation says how far the end of the artifact, or of the leave to have it,
	// has reached: one of the Propagation constants.
	Propagation string    `json:"propagation"`
	Note        string    `json:"note"` // what was said with the last change; may be empty
	MadeAt      time.Time `json:"made_at"`
	ChangedAt   time.Time `json:"changed_at"`
	Seq         int64     `json:"seq"` // the order of entering
}

// The values of [Copy].Propagation.
const (
	PropagationLive    = catalogue.CopyLive    // there is nothing to reach it with: the artifact and the leave stand
	PropagationPending = catalogue.CopyPending // it is for the controller to end it
	PropagationDone    = catalogue.CopyDone    // it was ended
	PropagationFailed  = catalogue.CopyFailed  // the controller tried, in vain
	PropagationBeyond  = catalogue.CopyBeyond  // nobody can recall it
)

// The kinds of copies. The store enters exports (proofs that it wrote), excerpts
// (answers that a receipt was signed for) and derived artifacts itself.
const (
	CopyExport    = "export"
	CopyExcerpt   = "excerpt"
	CopyDerived   = catalogue.KindDerived
	CopyPreview   = "preview"
	CopyCache     = "cache"
	CopyDataframe = "dataframe"
	CopySummary   = "summary"
	CopyPrinted   = "printed"
	CopyBackup    = "backup"
)

// CopyKinds lists the kinds that [Store.RegisterCopy] takes.
func CopyKinds() []string {
	return []string{CopyPreview, CopyCache, CopyDataframe, CopySummary, CopyPrinted, CopyExport, CopyExcerpt, CopyBackup}
}

// beyond are the kinds that nobody can recall.
func beyond(kind string) bool {
	return kind == CopyExport || kind == CopyExcerpt || kind == CopyPrinted
}

// maxCopyText bounds what is said of a copy, in bytes.
const maxCopyText = 1024

func checkCopyText(what, s string, may bool) error {
	if s == "" && may {
		return nil
	}
	if _, err := manifest.Canonical(s); err != nil || s == "" || len(s) > maxCopyText || strings.ContainsRune(s, 0) {
		return fail(CodeSelectorInvalid, FixCall, what, "%s: it takes 1 to %d bytes of text", what, maxCopyText)
	}
	return nil
}

// RegisterCopy enters a copy that somebody else than the store made into an
// artifact's inventory: of c, ArtifactID, Kind and Where are given; Controller and
// Holder are the caller where they are empty. Another holder may be named by whoever
// may grant leave for the artifact. Whoever may know of the artifact may register, also of
// one that was deleted, of which the copy is pending at once. What was printed,
// exported or shown is out of control from the beginning.
func (s *Store) RegisterCopy(ctx context.Context, who Caller, c Copy) (Copy, error) {
	if !slices.Contains(CopyKinds(), c.Kind) {
		return Copy{}, fail(CodeSelectorInvalid, FixCall, "kind", "%q is no kind of copy: %s", c.Kind, strings.Join(CopyKinds(), ", "))
	}
	if c.Controller == "" {
		c.Controller = string(who.Principal)
	}
	if c.Holder == "" {
		c.Holder = string(who.Principal)
	}
	if err := errors.Join(checkCopyText("where", c.Where, false), checkCopyText("controller", c.Controller, false), checkCopyText("holder", c.Holder, false), checkCopyText("note", c.Note, true)); err != nil {
		return Copy{}, wireError("", err)
	}
	a, err := s.row(ctx, who, c.ArtifactID, gate.Stat)
	if err != nil {
		return Copy{}, err
	}
	if _, err := a.permit(ctx); err != nil {
		return Copy{}, err
	}
	if c.Holder != string(who.Principal) {
		switch may, err := a.mayGrant(ctx); {
		case err != nil:
			return Copy{}, err
		case !may:
			return Copy{}, fail(CodeAccessRevoked, Stop, c.ArtifactID, "%s may not say what %s holds", who.Principal, c.Holder)
		}
	}
	id, err := a.enterCopy(ctx, c, false)
	if err != nil {
		return Copy{}, wireError(c.ArtifactID, err)
	}
	entered, err := s.catalogue.Copy(ctx, id)
	return s.publicCopy(who, entered), wireError(id, err)
}

// enterCopy enters a copy of the artifact. A soft entry may be lost with the machine.
func (a *artifact) enterCopy(ctx context.Context, o Copy, soft bool) (string, error) {
	now, err := a.store.catalogue.Now(ctx)
	if err != nil {
		return "", err
	}
	c := catalogue.Copy{
		CopyID: "cp_" + strings.ToLower(rand.Text()), ArtifactID: a.row.ArtifactID, Kind: o.Kind, Place: o.Where,
		Controller: o.Controller, Holder: o.Holder, State: catalogue.CopyLive, Note: o.Note, MadeAt: now, ChangedAt: now,
	}
	if beyond(o.Kind) {
		c.State = catalogue.CopyBeyond
	}
	return c.CopyID, a.store.catalogue.AddCopy(ctx, c, soft)
}

// exported enters a proof that is about to leave the store. On a disk that is full
// or may not be written proofs are given out all the same, as everything is read.
func (a *artifact) exported(ctx context.Context, where string) error {
	err := a.shown(ctx, CopyExport, where)
	if errors.Is(err, catalogue.ErrReadOnly) || errors.Is(err, catalogue.ErrFull) {
		return nil
	}
	return err
}

// shown enters what its reader has from now on.
func (a *artifact) shown(ctx context.Context, kind, where string) error {
	reader := string(a.request.Principal)
	_, err := a.enterCopy(ctx, Copy{Kind: kind, Where: where, Controller: reader, Holder: reader}, true)
	return err
}

// Copies returns up to limit copies (1 to 10,000) of an artifact in the order in
// which they were entered, from the first behind after (0 for the beginning) on; the
// second result says where to go on, and is 0 at the end. The inventory outlives the
// artifact. Whoever may not grant leave to others sees the copies alone that he controls
// or holds.
func (s *Store) Copies(ctx context.Context, who Caller, id string, after int64, limit int) ([]Copy, int64, error) {
	a, err := s.row(ctx, who, id, gate.Stat)
	if err != nil {
		return nil, 0, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, 0, err
	}
	all, err := a.mayGrant(ctx)
	if err != nil {
		return nil, 0, err
	}
	places := s.positions(who)
	after = places.hide(after)
	rows, err := s.catalogue.CopiesOf(ctx, id, after, limit)
	if err != nil {
		return nil, 0, wireError(id, err)
	}
	var out []Copy
	for _, row := range rows {
		after = row.Seq
		if all || row.Controller == string(who.Principal) || row.Holder == string(who.Principal) {
			out = append(out, s.publicCopy(who, row))
		}
	}
	if len(rows) < limit {
		after = 0
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true, Rows: new(int64(len(out)))}); err != nil {
		return nil, 0, err
	}
	return out, places.show(after), nil
}

// mayGrant says whether the caller may grant leave for the artifact.
func (a *artifact) mayGrant(ctx context.Context) (bool, error) {
	who := Caller{Principal: a.request.Principal, Purpose: a.request.Purpose}
	_, err := a.store.artifact(who, a.row, gate.Grant).permit(ctx)
	if err != nil && CodeOf(err) == CodeAuthorityUnavailable {
		return false, err
	}
	return err == nil, nil
}

// UpdateCopy says what became of a copy: pending, done, failed, or out_of_control,
// which is for good. Its controller and its holder may say so, and whoever may grant leave for the
// artifact; to others there is no such copy.
func (s *Store) UpdateCopy(ctx context.Context, who Caller, copyID, propagation, note string) (Copy, error) {
	switch propagation {
	case PropagationPending, PropagationDone, PropagationFailed, PropagationBeyond:
	default:
		return Copy{}, fail(CodeSelectorInvalid, FixCall, "propagation", "%q is not pending, done, failed or out_of_control", propagation)
	}
	if err := checkCopyText("note", note, true); err != nil {
		return Copy{}, err
	}
	absent := fail(CodeRefNotFound, FixCall, copyID, "%s: no such copy", copyID)
	c, err := s.catalogue.Copy(ctx, copyID)
	if errors.Is(err, catalogue.ErrNotFound) {
		return Copy{}, absent
	}
	if err != nil {
		return Copy{}, wireError(copyID, err)
	}
	a, err := s.row(ctx, who, c.ArtifactID, gate.Stat)
	if err != nil {
		return Copy{}, absent
	}
	may, err := a.mayGrant(ctx)
	if err == nil && !may && (c.Controller == string(who.Principal) || c.Holder == string(who.Principal)) {
		// Whose leave was withdrawn must be able to say that the copy is gone.
		may = who.Principal != ""
	}
	switch {
	case err != nil:
		return Copy{}, err
	case !may:
		return Copy{}, absent
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return Copy{}, wireError(copyID, err)
	}
	if err := s.catalogue.MarkCopy(ctx, copyID, propagation, note, now); err != nil {
		return Copy{}, wireError(copyID, err)
	}
	c, err = s.catalogue.Copy(ctx, copyID)
	return s.publicCopy(who, c), wireError(copyID, err)
}

// withdraw lets the copies that a principal has ("" is everybody) wait for their
// controllers to end them, of all artifacts that matches speaks of. It returns how
// many do.
func (s *Store) withdraw(ctx context.Context, holder, note string, matches func(tenant, run, artifact string) bool) (n int64, err error) {
	const page = 1000
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return 0, err
	}
	about := map[string]bool{}
	for after := int64(0); ; {
		list, err := s.catalogue.CopiesHeldBy(ctx, holder, after, page)
		if err != nil {
			return n, err
		}
		var ids []string
		for _, c := range list {
			after = c.Seq
			if c.State != catalogue.CopyLive && c.State != catalogue.CopyFailed {
				continue
			}
			yes, known := about[c.ArtifactID]
			if !known {
				row, err := s.catalogue.Artifact(ctx, c.ArtifactID)
				if err != nil && !errors.Is(err, catalogue.ErrNotFound) {
					return n, err
				}
				run := ""
				if row.Run != nil {
					run = *row.Run
				}
				yes = err == nil && matches(row.Tenant, run, row.ArtifactID)
				about[c.ArtifactID] = yes
			}
			if yes {
				ids = append(ids, c.CopyID)
			}
		}
		if len(ids) > 0 {
			m, err := s.catalogue.PendCopies(ctx, ids, note, now)
			n += m
			if err != nil {
				return n, err
			}
		}
		if len(list) < page {
			return n, nil
		}
		if len(about) > 100_000 {
			clear(about)
		}
	}
}

// inputsDeleted lists the artifacts that this one was made from and that were
// deleted since, as far as the caller may know of them.
func (a *artifact) inputsDeleted(ctx context.Context) (gone []string, err error) {
	who := Caller{Principal: a.request.Principal, Purpose: a.request.Purpose}
	for _, in := range a.m.Predicate.Lineage.Inputs {
		row, err := a.store.catalogue.Artifact(ctx, in.ArtifactID)
		if err != nil && !errors.Is(err, catalogue.ErrNotFound) {
			return nil, err
		}
		if err != nil || row.DeletedAt == nil || slices.Contains(gone, in.ArtifactID) {
			continue
		}
		switch _, err := a.store.artifact(who, row, gate.Stat).permit(ctx); {
		case err == nil:
			gone = append(gone, in.ArtifactID)
		case CodeOf(err) == CodeAuthorityUnavailable:
			return nil, err
		}
	}
	return gone, nil
}

// DeleteDerived deletes what was derived from an artifact that was deleted, and what
// was derived from that: as [Store.Delete] does, which asks for each. What the caller
// may not delete stays, and its entry in the inventory pending.
func (s *Store) DeleteDerived(ctx context.Context, who Caller, id string) (deleted []string, err error) {
	const page = 1000
	seen := map[string]bool{id: true}
	for queue := []string{id}; len(queue) > 0; queue = queue[1:] {
		for after := int64(0); ; {
			list, err := s.catalogue.CopiesOf(ctx, queue[0], after, page)
			if err != nil {
				return deleted, wireError(queue[0], err)
			}
			for _, c := range list {
				after = c.Seq
				if c.Kind != CopyDerived || seen[c.Place] {
					continue
				}
				seen[c.Place] = true
				err := s.Delete(ctx, who, c.Place, "made from "+queue[0]+", which was deleted")
				switch code := CodeOf(err); {
				case err == nil:
					deleted = append(deleted, c.Place)
				case code == CodeArtifactDeleted:
				case code == CodeRefNotFound, code == CodeAccessRevoked:
					continue
				default:
					return deleted, err
				}
				queue = append(queue, c.Place)
			}
			if len(list) < page {
				break
			}
		}
	}
	return deleted, nil
}

// publicCopy is a copy as the caller sees it: see [positions].
func (s *Store) publicCopy(who Caller, c catalogue.Copy) Copy {
	return Copy{
		ID: c.CopyID, ArtifactID: c.ArtifactID, Kind: c.Kind, Where: c.Place, Controller: c.Controller, Holder: c.Holder, Propagation: c.State,
		Note: c.Note, MadeAt: c.MadeAt, ChangedAt: c.ChangedAt, Seq: s.positions(who).show(c.Seq),
	}
}
