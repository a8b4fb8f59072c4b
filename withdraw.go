package leafproof

import (
	"context"
	"errors"
	"slices"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
)

// shows are the actions by which a principal gets something that he can keep.
var shows = []Action{gate.Read, gate.Query, gate.Prove, gate.Derive}

// withdrawGrants walks the inventory for the grants that ended at a time: copies of
// what a principal may not be shown any more wait for their controllers. A grant that
// took others with it ended at the same time as they did.
func (s *Store) withdrawGrants(ctx context.Context, at time.Time) error {
	lost := map[string][]gate.Pattern{}
	for after := int64(0); ; {
		list, err := s.catalogue.GrantsOf(ctx, "", after, catalogue.MaxList)
		if err != nil {
			return err
		}
		for _, g := range list {
			after = g.Seq
			if g.RevokedAt != nil && g.RevokedAt.Equal(at) && slices.Contains(shows, Action(g.Action)) {
				lost[g.Principal] = append(lost[g.Principal], gate.Pattern(g.Pattern))
			}
		}
		if len(list) < catalogue.MaxList {
			break
		}
	}
	var errs []error
	for principal, patterns := range lost {
		rights, err := s.catalogue.Rights(ctx, principal)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, err = s.withdraw(ctx, principal, "the leave to have it was revoked", func(tenant, run, artifact string) bool {
			about := func(p gate.Pattern) bool { return p.Matches(tenant, run, artifact) }
			return slices.ContainsFunc(patterns, about) && !slices.ContainsFunc(rights.Grants, func(g catalogue.Grant) bool {
				return slices.Contains(shows, Action(g.Action)) && (g.NotAfter == nil || at.Before(*g.NotAfter)) && about(gate.Pattern(g.Pattern))
			})
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// withdrawAll walks the inventory for a restriction: nobody may have what it is about.
func (s *Store) withdrawAll(ctx context.Context, p gate.Pattern) error {
	_, err := s.withdraw(ctx, "", "the artifact was restricted", p.Matches)
	return err
}
