package leafproof

import (
	"context"
	"errors"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
)

// Delete ends an artifact: from now on it is answered with artifact_deleted. Its
// bytes stay on disk until [Store.GC] reclaims them.
//
// A signed tombstone says so, first among the objects and then in the catalogue, so
// that an artifact which was deleted stays deleted when the catalogue is lost and
// made anew. A store without a key of the role tombstone deletes all the same, and
// nothing is signed: see [Store.Tombstone].
//
// On a full disk it gives up the reserve that a store keeps for its sweeps, so that
// who wants room can make it. A store that was opened when there was no room at all
// answers store_full once more; opened again, it deletes.
func (s *Store) Delete(ctx context.Context, who Caller, id, reason string) error {
	err := s.delete(ctx, who, id, reason)
	if isFull(err) && s.dir != "" && s.giveUpReserve() == nil {
		err = s.delete(ctx, who, id, reason)
	}
	return err
}

func (s *Store) delete(ctx context.Context, who Caller, id, reason string) error {
	// Not find: an artifact that has expired or is damaged can be ended too.
	a, err := s.row(ctx, who, id, gate.Delete)
	if err != nil {
		return err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return err
	}
	if a.row.DeletedAt != nil {
		return s.available(ctx, a.row)
	}
	if err := a.disclosed(ctx, permit, Shown{now: true}); err != nil {
		return err
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return wireError(id, err)
	}
	by, err := s.speaker(manifest.RoleTombstone, &scope{a.row.Tenant, sourceOf(a.row)}, now)
	switch {
	case errors.Is(err, ErrNoKey):
		err = s.catalogue.Delete(ctx, id, reason, now)
	case err == nil:
		err = a.bury(ctx, by, permit.Epoch(), reason, now)
	}
	s.gate.Settle(ctx)
	return wireError(id, err)
}

// bury signs a tombstone and ends the artifact by it.
func (a *artifact) bury(ctx context.Context, by speaker, epoch int64, reason string, now time.Time) error {
	head, err := headFor(a.row, by, now)
	if err != nil {
		return err
	}
	at := manifest.FormatTime(now)
	row, _, err := signStatement(&manifest.Tombstone{
		Head: head, RequestedBy: string(a.request.Principal), Reason: optional(reason), EffectiveAt: at,
		Authority: manifest.Decided{Epoch: epoch, CheckedAt: at, MaxStaleMS: gate.Life.Milliseconds()},
	}, by, now)
	if err != nil {
		return err
	}
	// What its record map and its indexes are, only the manifest tells, which a sweep
	// may take.
	records, indexes := a.named(ctx)
	s := a.store
	end := func(lease string, row catalogue.Statement) error {
		return s.catalogue.DeleteBy(ctx, lease, reason, now, row, records.Root, records.Size, indexes...)
	}
	err = s.enter(ctx, row, end)
	if errors.Is(err, cas.ErrFull) {
		// Whoever deletes to make room must be able to: the catalogue may have some.
		err = end("", row)
	}
	return err
}

// named are the record map and the indexes that the artifact's manifest names; none
// for a manifest that cannot be read.
func (a *artifact) named(ctx context.Context) (records catalogue.Blob, indexes []catalogue.Blob) {
	_, m, err := a.store.load(ctx, a.row)
	if err != nil {
		return records, nil
	}
	parts, err := stated(&m.Predicate)
	if err != nil {
		return records, nil
	}
	for _, p := range parts {
		if b := (catalogue.Blob{Root: p.root, Size: p.size}); p.name == partMap {
			records = b
		} else {
			indexes = append(indexes, b)
		}
	}
	return records, indexes
}
