package leafproof

import (
	"context"
	"fmt"
	"io"

	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/selector"
)

// An Audited is what came of building an artifact's record map and indexes again.
type Audited struct {
	Checked   []manifest.Rebuilt
	Differs   bool
	Statement *Statement // audit/v1
}

// AuditOptions adjust [Store.Audit].
type AuditOptions struct {
	Tool string // what the statement says it was done with; "" is "leafproof" and its version
	// Evidence, where set, gives the writer of a bundle that shows to anybody which
	// index is false; it is called only where one is. That discloses the artifact
	// whole, so leave to prove all of it is needed then.
	Evidence func() (io.WriteCloser, error)
}

// Audit reads all of an artifact, builds its record map and every index again that a
// statement names, and compares the roots. What came of it is a signed statement,
// which the store keeps. It takes leave to derive from all of the artifact, and a key
// of the role audit.
func (s *Store) Audit(ctx context.Context, who Caller, id string, o AuditOptions) (*Audited, error) {
	a, err := s.find(ctx, who, id, gate.Derive)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.allows(manifest.SelectorQuery); err != nil {
		return nil, err
	}
	list, err := a.indexes(ctx)
	if err != nil {
		return nil, wireError(id, err)
	}
	out, err := a.audit(ctx, list)
	if err != nil {
		return nil, wireError(id, err)
	}
	if _, err := permit.Renew(ctx); err != nil {
		return nil, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true}); err != nil {
		return nil, err
	}
	if out.Statement, err = a.stateAudit(ctx, o.Tool, out.Checked); err != nil {
		return nil, wireError(id, err)
	}
	if out.Differs && o.Evidence != nil {
		err = s.evidence(ctx, who, id, list, out, o.Evidence)
	}
	return out, err
}

// audit builds everything again. The indexes come first in list as the manifest has
// them.
func (a *artifact) audit(ctx context.Context, list []Index) (*Audited, error) {
	data, err := a.data(ctx)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	var rooms []*spillFile
	defer func() {
		for _, r := range rooms {
			r.Close()
		}
	}()
	facts := make([]manifest.Index, len(list))
	for i, x := range list {
		facts[i] = x.Index
	}
	build := bundle.Rebuild{Data: data, Size: a.m.Size, Memory: selector.DefaultIndexMemory, Room: func() (selector.Spill, error) {
		rooms = append(rooms, new(spillFile))
		return rooms[len(rooms)-1], nil
	}}
	got, err := build.Indexes(ctx, a.m, facts)
	if err != nil {
		return nil, err
	}
	out := &Audited{}
	add := func(part string, path *string, claimed, found string) {
		r := manifest.Rebuilt{Part: part, Path: path, Claimed: claimed, Found: found, Outcome: manifest.OutcomeSame}
		if claimed != found {
			r.Outcome, out.Differs = manifest.OutcomeDiffers, true
		}
		out.Checked = append(out.Checked, r)
	}
	add("bytes", nil, a.m.Root.String(), a.m.Root.String()) // read, and compared byte for byte
	add("record_map", nil, a.m.Predicate.Records.Map.Root, got.Map.String())
	for i := range facts {
		add("index", &facts[i].Path, facts[i].Root, got.Indexes[i].String())
	}
	return out, nil
}

// stateAudit signs what came of an audit, and keeps it.
func (a *artifact) stateAudit(ctx context.Context, tool string, checked []manifest.Rebuilt) (*Statement, error) {
	s := a.store
	if tool == "" {
		tool = "leafproof " + Version
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, err
	}
	by, err := s.speaker(manifest.RoleAudit, &scope{a.row.Tenant, sourceOf(a.row)}, now)
	if err != nil {
		return nil, err
	}
	head, err := headFor(a.row, by, now)
	if err != nil {
		return nil, err
	}
	row, st, err := signStatement(&manifest.Audit{Head: head, Tool: tool, Checked: checked}, by, now)
	if err != nil {
		return nil, err
	}
	return st, s.catalogue.State(ctx, "", row)
}

// evidence writes the bundle that shows a false index.
func (s *Store) evidence(ctx context.Context, who Caller, id string, list []Index, found *Audited, open func() (io.WriteCloser, error)) (err error) {
	a, err := s.find(ctx, who, id, gate.Prove)
	if err != nil {
		return err
	}
	data, err := a.data(ctx)
	if err != nil {
		return a.tell(ctx, err)
	}
	defer data.Close()
	var added *manifest.Envelope
	for i, r := range found.Checked[2:] { // in the order of list, behind the bytes and the map
		if st := list[i].Statement; st != nil && r.Outcome == manifest.OutcomeDiffers {
			added = &st.Envelope
			break
		}
	}
	b, err := bundle.Evidence(bundle.Source{Manifest: a.m, Envelope: a.signed.Manifest, SSH: a.signed.SSH, Data: data, Tree: data.Tree()}, added)
	if err != nil {
		return a.tell(ctx, err)
	}
	permit, err := a.permit(ctx, b.Leaves().Bytes()...)
	if err != nil {
		return err
	}
	if err := a.commit(ctx, b); err != nil {
		return wireError(id, err)
	}
	w, err := open()
	if err != nil {
		return err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, w), permit, a.request)
	if err != nil {
		return wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, exported(a.m.Size, a.request)); err != nil {
		return err
	}
	if err := a.exported(ctx, fmt.Sprintf("the evidence of an audit, a bundle of %s", b.Claim())); err != nil {
		return wireError(id, err)
	}
	_, err = b.WriteTo(gated)
	return wireError(id, err)
}
