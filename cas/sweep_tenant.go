package cas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"leafproof/merkle"
)

// marks is the set of blobs that a tenant needs. It keeps 8 bytes of each root:
// that two roots share them can only keep what could go.
type marks struct {
	s      *Store
	tenant Tenant
	roots  Roots

	after  int64    // the position in roots
	all    []uint64 // sorted
	latest map[uint64]bool
}

func short(root merkle.Root) uint64 { return binary.LittleEndian.Uint64(root[:]) }

func (m *marks) has(root merkle.Root) bool {
	_, ok := slices.BinarySearch(m.all, short(root))
	return ok || m.latest[short(root)]
}

// extend adds what is needed by what was published since it was called last.
func (m *marks) extend(ctx context.Context) error {
	var fresh []merkle.Root
	first := m.latest == nil
	var all []uint64
	next, err := m.roots.Roots(ctx, m.tenant, m.after, func(roots ...merkle.Root) {
		if !first {
			fresh = append(fresh, roots...)
			return
		}
		for _, r := range roots {
			all = append(all, short(r))
		}
	})
	if err != nil {
		return err
	}
	if first {
		m.latest = make(map[uint64]bool)
		if err := m.begin(ctx, all); err != nil {
			return err
		}
	}
	for _, root := range fresh {
		m.latest[short(root)] = true
		for kind, refer := range referrers {
			for name, err := range m.s.b.List(ctx, m.tenant, kind, root[:]) {
				if err != nil {
					return err
				}
				for ref, err := range refer(ctx, m.s, name) {
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					m.latest[short(ref)] = true
				}
			}
		}
	}
	m.after = next
	return nil
}

// begin takes the first roots and adds what their objects refer to.
func (m *marks) begin(ctx context.Context, all []uint64) error {
	slices.Sort(all)
	m.all = slices.Compact(all)
	var refs []uint64
	for kind, refer := range referrers {
		for name, err := range m.s.b.List(ctx, m.tenant, kind, nil) {
			if err != nil {
				return err
			}
			if !m.has(name.ID) {
				continue
			}
			for ref, err := range refer(ctx, m.s, name) {
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				refs = append(refs, short(ref))
			}
		}
	}
	if len(refs) > 0 {
		m.all = append(m.all, refs...)
		slices.Sort(m.all)
		m.all = slices.Compact(m.all)
	}
	return nil
}

// tenantSweep is one round over one tenant.
type tenantSweep struct {
	*sweep
	tenant Tenant
	marks  *marks
}

// delete deletes what was condemned in an earlier epoch and is still not needed.
// What needs no room goes first.
func (t *tenantSweep) delete(ctx context.Context) error {
	var packs []Name
	for after := t.tenant.String(); ; {
		names, err := t.o.Book.Condemned(ctx, t.epoch, after, sweepStep)
		if err != nil {
			return err
		}
		var doomed, spared []string
		for _, text := range names {
			name, err := ParseName(text)
			switch {
			case !strings.HasPrefix(text, t.tenant.String()+"/"):
			case err != nil: // of a kind that this version does not know
			case name.Kind == KindPack:
				packs = append(packs, name)
			case t.needed(ctx, name):
				spared = append(spared, text)
			default:
				doomed = append(doomed, text)
			}
		}
		if err := t.spare(ctx, spared); err != nil {
			return err
		}
		if err := t.destroy(ctx, doomed, t.removeObjects); err != nil {
			return err
		}
		if len(names) < sweepStep || !strings.HasPrefix(names[len(names)-1], t.tenant.String()) {
			break
		}
		after = names[len(names)-1]
	}
	return t.deletePacks(ctx, packs)
}

func (t *tenantSweep) spare(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	t.report.Spared += int64(len(names))
	return t.o.Book.Pardon(ctx, names)
}

// needed reports whether a condemned object must stay: its blob is needed, and
// no later generation that is sound has taken its place.
func (t *tenantSweep) needed(ctx context.Context, name Name) bool {
	if !slices.Contains(sweptKinds, name.Kind) {
		return true
	}
	if !t.marks.has(name.ID) {
		return false
	}
	latest, err := t.s.latest(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return false // nothing is there: only the entry is to go
	}
	if err != nil || latest.Gen <= name.Gen {
		return true
	}
	sound, err := t.s.sound(ctx, latest, func(o Object) (bool, error) {
		switch latest.Kind {
		case KindOutboard:
			return o.Size() > 0, nil // it can be made anew from the blob
		case KindRecipe:
			return soundRecipe(o)
		case KindCache:
			return soundCached(ctx, latest.ID, cachedSize(o.Size()), o)
		}
		root, err := merkle.BuildAt(ctx, o, o.Size(), nil)
		return root == latest.ID, err
	})
	return err != nil || !sound
}

// condemn enters what is not needed now.
func (t *tenantSweep) condemn(ctx context.Context) error {
	for _, kind := range sweptKinds {
		var candidates []Name
		var before Name // the generation before
		for name, err := range t.s.b.List(ctx, t.tenant, kind, nil) {
			if err != nil {
				return t.keep(ctx, err)
			}
			if !t.marks.has(name.ID) {
				candidates = append(candidates, name)
			} else if before.ID == name.ID && before.Kind == name.Kind {
				candidates = append(candidates, before)
			}
			before = name
			if len(candidates) >= sweepStep {
				if err := t.condemnObjects(ctx, candidates); err != nil {
					return err
				}
				candidates = candidates[:0]
			}
		}
		if err := t.condemnObjects(ctx, candidates); err != nil {
			return err
		}
	}
	return t.condemnPacks(ctx)
}

// condemnObjects condemns those candidates that are still not needed: some may
// have been published since they were looked at.
func (t *tenantSweep) condemnObjects(ctx context.Context, candidates []Name) error {
	if len(candidates) == 0 {
		return nil
	}
	if err := t.marks.extend(ctx); err != nil {
		return t.keep(ctx, fmt.Errorf("tenant %s: %w", t.tenant, err))
	}
	var names []string
	for _, name := range candidates {
		if !t.needed(ctx, name) {
			names = append(names, name.String())
		}
	}
	return t.sentence(ctx, names)
}
