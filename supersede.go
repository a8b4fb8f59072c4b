package leafproof

import (
	"context"
	"errors"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/selector"
)

// maxSuccessors is how many artifacts that take an older one's place an answer names.
const maxSuccessors = 16

// successors lists the artifacts that take the place of this one, the latest first,
// as far as the caller may know of them. It is an advisory: nobody is ever led from
// one to the other.
func (a *artifact) successors(ctx context.Context) ([]selector.Successor, error) {
	if !a.row.Superseded {
		return nil, nil
	}
	s := a.store
	list, err := s.catalogue.Successors(ctx, a.row.ArtifactID, maxSuccessors)
	if err != nil {
		return nil, err
	}
	who := Caller{Principal: a.request.Principal, Purpose: a.request.Purpose}
	var out []selector.Successor
	for _, l := range list {
		row, err := s.catalogue.Artifact(ctx, l.By)
		if errors.Is(err, catalogue.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := s.artifact(who, row, gate.Stat).permit(ctx); err != nil {
			if CodeOf(err) == CodeAuthorityUnavailable {
				return nil, err
			}
			continue
		}
		if s.available(ctx, row) == nil {
			out = append(out, selector.Successor{ArtifactID: l.By, Kind: l.Kind, At: manifest.FormatTime(l.At)})
		}
	}
	return out, nil
}

// knows says whether the caller may know of an artifact. Of one that has no row, which
// a catalogue that was made anew may lack, the owner does.
func (s *Store) knows(ctx context.Context, who Caller, id string) (bool, error) {
	row, err := s.catalogue.Artifact(ctx, id)
	if errors.Is(err, catalogue.ErrNotFound) {
		return who.Principal == gate.Owner, nil
	}
	if err == nil {
		_, err = s.artifact(who, row, gate.Stat).permit(ctx)
		if refused(err) {
			return false, nil
		}
	}
	return err == nil, wireError(id, err)
}

// links are what a manifest says of other artifacts, as the catalogue keeps it.
func links(p *manifest.Predicate) (supersedes []catalogue.Supersession, inputs []string) {
	for _, old := range p.Supersedes {
		supersedes = append(supersedes, catalogue.Supersession{ArtifactID: old.ArtifactID, Kind: old.Kind})
	}
	for _, in := range p.Lineage.Inputs {
		inputs = append(inputs, in.ArtifactID)
	}
	return supersedes, inputs
}

// stateSuperseded signs, for each artifact that a new one takes the place of, a
// statement that says so: whoever holds a proof of the old one can be handed it. The
// new one is published by then, and its manifest says the same, so what cannot be
// signed here is no reason to take it back.
func (s *Store) stateSuperseded(ctx context.Context, m *manifest.Manifest, now time.Time) error {
	var errs []error
	for _, old := range m.Predicate.Supersedes {
		row, err := s.catalogue.Artifact(ctx, old.ArtifactID)
		if err == nil {
			err = s.stateSuccessor(ctx, row, m, old.Kind, now)
		}
		if err != nil {
			errs = append(errs, wireError(old.ArtifactID, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) stateSuccessor(ctx context.Context, old catalogue.Artifact, m *manifest.Manifest, kind string, now time.Time) error {
	by, err := s.speaker(manifest.RoleSupersede, &scope{old.Tenant, sourceOf(old)}, now)
	if err != nil {
		return err
	}
	head, err := headFor(old, by, now)
	if err != nil {
		return err
	}
	row, _, err := signStatement(&manifest.Superseded{
		Head: head, By: manifest.Successor{ArtifactID: m.ArtifactID, ManifestID: m.ManifestID}, Kind: kind,
	}, by, now)
	if err != nil {
		return err
	}
	return s.enter(ctx, row, func(lease string, row catalogue.Statement) error { return s.catalogue.State(ctx, lease, row) })
}
