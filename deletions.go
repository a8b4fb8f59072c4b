package leafproof

import (
	"context"
	"errors"
	"slices"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/merkle"
)

// placeObjects is the place of the store's own objects in a deletion statement.
const placeObjects = "objects"

// maxCounted bounds the chunks whose keys a sweep remembers of all artifacts whose
// deletion is under way.
const maxCounted = 1 << 20

// buried is an artifact that a tombstone ended and whose bytes may still stand.
type buried struct {
	catalogue.Unfinished
	parts []buriedPart
}

// buriedPart is one of its blobs.
type buriedPart struct {
	name string
	root merkle.Root
	size int64
	// chunks are its pieces, if it stood before the sweep and was cut into any.
	chunks  []merkle.Root
	counted bool
}

// unfinished lists what is buried, with the pieces that can still be told.
func (s *Store) unfinished(ctx context.Context, objects *cas.Store) ([]*buried, error) {
	const page = 1000
	var all []*buried
	left := maxCounted
	for after := int64(0); ; {
		list, err := s.catalogue.Unfinished(ctx, after, page)
		if err != nil {
			return nil, err
		}
		for _, u := range list {
			after = u.Artifact.Seq
			b := &buried{Unfinished: u, parts: []buriedPart{
				{name: "bytes", root: u.Artifact.Root, size: u.Artifact.Size},
				{name: "manifest", root: u.Artifact.EnvelopeRoot, size: u.Artifact.EnvelopeSize},
			}}
			if !u.MapRoot.IsZero() {
				b.parts = append(b.parts, buriedPart{name: "record_map", root: u.MapRoot, size: u.MapSize})
			}
			if err := b.indexes(ctx, s.catalogue); err != nil {
				return nil, err
			}
			for i := range b.parts {
				if err := b.parts[i].count(ctx, objects, cas.TenantOf(u.Artifact.Tenant), &left); err != nil {
					return nil, err
				}
			}
			all = append(all, b)
		}
		if len(list) < page {
			return all, nil
		}
	}
}

// indexes adds the indexes that its manifest named, and those that were added later.
func (b *buried) indexes(ctx context.Context, rows catalogue.Catalogue) error {
	added, err := addedTo(ctx, rows, b.Artifact.ArtifactID, nil)
	for _, p := range added {
		b.Indexes = append(b.Indexes, catalogue.Blob{Root: p.root, Size: p.size})
	}
	slices.SortFunc(b.Indexes, func(x, y catalogue.Blob) int { return slices.Compare(x.Root[:], y.Root[:]) })
	for _, x := range slices.Compact(b.Indexes) {
		b.parts = append(b.parts, buriedPart{name: "index", root: x.Root, size: x.Size})
	}
	return err
}

// count notes the pieces of a part that still stands.
func (p *buriedPart) count(ctx context.Context, objects *cas.Store, tenant cas.Tenant, left *int) error {
	here, err := stands(ctx, objects, tenant, p.root, p.size)
	if err != nil || !here {
		return err
	}
	for key, err := range objects.Chunks(ctx, tenant, p.root, p.size) {
		if err != nil {
			return err
		}
		if *left--; *left < 0 {
			p.chunks = nil
			return nil
		}
		p.chunks = append(p.chunks, key)
	}
	slices.SortFunc(p.chunks, func(a, b merkle.Root) int { return slices.Compare(a[:], b[:]) })
	p.chunks, p.counted = slices.Compact(p.chunks), true
	return nil
}

// stands reports whether a blob is there, also as a damaged one.
func stands(ctx context.Context, objects *cas.Store, tenant cas.Tenant, root merkle.Root, size int64) (bool, error) {
	r, err := objects.Open(ctx, tenant, root, size)
	switch {
	case err == nil:
		return true, r.Close()
	case errors.Is(err, cas.ErrNotFound):
		return false, nil
	case errors.Is(err, cas.ErrCorrupt):
		return true, nil
	}
	return false, err
}

// stateDeletions looks what of the buried is gone after a sweep, and signs a
// statement for each artifact of which there is news.
func (s *Store) stateDeletions(ctx context.Context, all []*buried, report *GCReport) (err error) {
	if len(all) == 0 {
		return nil
	}
	objects := cas.New(s.backend, cas.Options{CacheBytes: -1})
	defer func() { err = errors.Join(err, objects.Close()) }()
	f := &finder{ctx: ctx, s: s, objects: objects, certain: len(report.Kept) == 0}
	for _, b := range all {
		now, err := s.catalogue.Now(ctx)
		if err != nil {
			return err
		}
		complete := true
		body := &manifest.Deletion{TombstoneID: b.StatementID}
		for _, p := range b.parts {
			l, err := f.locate(b.Artifact, p, now)
			if err != nil {
				return err
			}
			complete = complete && l.State != manifest.LocationPending
			body.Locations = append(body.Locations, l)
		}
		if body.Complete = complete; !complete {
			report.Unfinished++
		}
		stated, err := s.stateDeletion(ctx, b, body, now)
		if err != nil {
			return err
		}
		if stated && complete {
			report.Finished++
		}
	}
	return nil
}

// stateDeletion signs what became of an artifact, unless that was said before or
// the store has no key to say it.
func (s *Store) stateDeletion(ctx context.Context, b *buried, body *manifest.Deletion, now time.Time) (bool, error) {
	by, err := s.speaker(manifest.RoleDeletion, &scope{b.Artifact.Tenant, sourceOf(b.Artifact)}, now)
	if errors.Is(err, ErrNoKey) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last, err := s.lastDeletion(ctx, b.Artifact.ArtifactID)
	if err != nil || last != nil && sameLocations(last.Locations, body.Locations) {
		return false, err
	}
	if body.Head, err = headFor(b.Artifact, by, now); err != nil {
		return false, err
	}
	row, _, err := signStatement(body, by, now)
	if err != nil {
		return false, err
	}
	err = s.enter(ctx, row, func(lease string, row catalogue.Statement) error {
		if body.Complete {
			return s.catalogue.Finish(ctx, lease, row)
		}
		return s.catalogue.State(ctx, lease, row)
	})
	return err == nil, err
}

func (s *Store) lastDeletion(ctx context.Context, id string) (last *manifest.Deletion, err error) {
	const page = 1000
	for after := int64(0); ; {
		rows, err := s.catalogue.StatementsOf(ctx, id, after, page)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			after = row.Seq
			if row.Kind != manifest.PredicateDeletion {
				continue
			}
			if st, err := openStatement(row); err == nil {
				last, _ = st.Statement.Body.(*manifest.Deletion)
			}
		}
		if len(rows) < page {
			return last, nil
		}
	}
}

// sameLocations reports whether nothing is new since a statement: when the same was
// seen does not count.
func sameLocations(a, b []manifest.Location) bool {
	return slices.EqualFunc(a, b, func(a, b manifest.Location) bool { return a.Part == b.Part && a.State == b.State })
}

// finder tells what became of blobs.
type finder struct {
	ctx     context.Context
	s       *Store
	objects *cas.Store
	certain bool     // the sweep left nothing alone
	needed  []uint64 // once it was asked for
	asked   bool
}

// locate says what became of a part.
func (f *finder) locate(row catalogue.Artifact, p buriedPart, now time.Time) (manifest.Location, error) {
	tenant := cas.TenantOf(row.Tenant)
	l := manifest.Location{Part: p.name, Place: placeObjects, State: manifest.LocationPending}
	here, err := stands(f.ctx, f.objects, tenant, p.root, p.size)
	if err != nil {
		return l, err
	}
	if here {
		shared, err := f.need(tenant, p.root)
		if shared {
			l.State = manifest.LocationShared
		}
		return l, err
	}
	shared := int64(0)
	for _, key := range p.chunks {
		here, err := stands(f.ctx, f.objects, tenant, key, 1) // of another size is there too
		if err != nil {
			return l, err
		}
		if !here {
			continue
		}
		need, err := f.need(tenant, key)
		if err != nil || !need {
			return l, err
		}
		shared++
	}
	if !p.counted && !f.certain {
		return l, nil
	}
	l.State, l.Method, l.At = manifest.LocationDeleted, new("unlink"), new(manifest.FormatTime(now))
	if p.counted {
		l.SharedChunks = &shared
	}
	return l, nil
}

// need reports whether an artifact that is neither deleted nor expired needs a blob
// or chunk. The first call goes over all of them.
func (f *finder) need(tenant cas.Tenant, root merkle.Root) (bool, error) {
	if !f.asked {
		f.asked = true
		if err := f.collect(); err != nil {
			return false, err
		}
	}
	_, ok := slices.BinarySearch(f.needed, blobKey{tenant, root}.short())
	return ok, nil
}

func (f *finder) collect() error {
	tenants, err := f.s.catalogue.Tenants(f.ctx)
	if err != nil {
		return err
	}
	now, err := f.s.catalogue.Now(f.ctx)
	if err != nil {
		return err
	}
	const page = 1000
	for _, label := range tenants {
		for after, more := int64(0), true; more; {
			rows, err := f.s.catalogue.List(f.ctx, label, after, page)
			if err != nil {
				return err
			}
			for _, row := range rows {
				after = row.Seq
				if row.ExpiresAt == nil || now.Before(*row.ExpiresAt) {
					if err := f.add(row); err != nil {
						return err
					}
				}
			}
			more = len(rows) == page
		}
	}
	slices.Sort(f.needed)
	f.needed = slices.Compact(f.needed)
	return nil
}

// add notes what an artifact needs.
func (f *finder) add(row catalogue.Artifact) error {
	tenant := cas.TenantOf(row.Tenant)
	parts, err := blobsOf(f.ctx, f.objects, f.s.catalogue, row)
	if err != nil {
		f.certain = false // what it needs is not known, so what stands may be needed or not
		return f.ctx.Err()
	}
	parts = append(parts, artifactPart{root: row.Root, size: row.Size}, artifactPart{root: row.EnvelopeRoot, size: row.EnvelopeSize})
	for _, blob := range parts {
		f.needed = append(f.needed, blobKey{tenant, blob.root}.short())
		for chunk, err := range f.objects.Chunks(f.ctx, tenant, blob.root, blob.size) {
			if err != nil {
				return err
			}
			f.needed = append(f.needed, blobKey{tenant, chunk}.short())
		}
	}
	return nil
}

// tenantsOf are the tenants of what is buried, as a thorough sweep takes them.
func tenantsOf(all []*buried) func(cas.Tenant) bool {
	tenants := make(map[cas.Tenant]bool)
	for _, b := range all {
		tenants[cas.TenantOf(b.Artifact.Tenant)] = true
	}
	return func(t cas.Tenant) bool { return tenants[t] }
}
