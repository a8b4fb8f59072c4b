package leafproof

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
	"leafproof/merkle"
)

// GCOptions adjust [Store.GC].
type GCOptions struct {
	// Patience is how long to wait for each process that writes to the store to
	// notice the sweep; 0 is 10 seconds. What a process that keeps silent for
	// longer has put and not published is refused when it is published.
	Patience time.Duration

	thorough func(cas.Tenant) bool // whose bytes must be gone to the last one
}

// GCReport is what a [Store.GC] did.
type GCReport struct {
	Epoch     int64    `json:"epoch"`           // of the sweep, a number that grows
	Marked    int64    `json:"marked"`          // blobs and chunks that are needed
	Condemned int64    `json:"condemned"`       // objects that were found to be needed by nothing
	Spared    int64    `json:"spared"`          // of those condemned before, needed after all
	Deleted   int64    `json:"deleted"`         // objects, packs and leftovers of dead writers
	Rewritten int64    `json:"rewritten"`       // packs written anew without their holes
	Freed     int64    `json:"freed_bytes"`     // deleted bytes less those of packs written anew
	Leftovers int64    `json:"leftovers"`       // among the deleted: unfinished objects of dead writers
	Ended     int64    `json:"leases_ended"`    // leases of processes that died
	Lost      int64    `json:"leases_lost"`     // leases of processes that kept silent
	Kept      []string `json:"kept"`            // what was left alone, and why
	Tight     bool     `json:"used_reserve"`    // the disk was full: the reserve was given up first
	Reserve   bool     `json:"reserve_present"` // the reserve is there for the next time
	// Finished are deleted artifacts of which everything is gone now, and a signed
	// statement says so; Unfinished are those of which something still stands.
	Finished   int64 `json:"deletions_finished"`
	Unfinished int64 `json:"deletions_unfinished"`
}

// reserveFile is room on the disk that a sweep gives up when there is no other:
// the catalogue needs some to say what is deleted.
const (
	reserveFile = "reserve"
	reserveSize = 1 << 20
)

// GC deletes what no artifact needs: the bytes of artifacts that were deleted or
// have expired, of puts that were never published, and what dead processes left.
// What a live artifact shares with them stays. It works while others put, publish
// and read, beside other GCs, and on a disk with no byte left. One that was
// interrupted is finished by the next.
//
// An artifact whose manifest cannot be read keeps all of its tenant's objects,
// since nobody knows what it needs; the report names it.
//
// Of an artifact that a tombstone ended, a signed deletion statement then says what
// is gone: see [Store.Statements].
func (s *Store) GC(ctx context.Context, o GCOptions) (*GCReport, error) {
	if s.book == nil {
		return nil, fail(CodeInternal, Stop, "gc", "this store cannot be swept: it has no folder")
	}
	report := &GCReport{Kept: []string{}}
	buried, err := s.unfinished(ctx, s.objects)
	if err != nil {
		return report, wireError("gc", err)
	}
	o.thorough = tenantsOf(buried)
	s.readers.forget(false)
	err = s.sweep(ctx, o, s.catalogue, report)
	if err != nil && isFull(err) {
		if err = s.giveUpReserve(); err != nil {
			return report, wireError("gc", err)
		}
		report.Tight = true
		err = s.sweepTight(ctx, o, report)
	}
	if err == nil {
		report.Reserve = s.makeReserve() == nil
		if err = s.stateDeletions(ctx, buried, report); err != nil && isFull(err) {
			err = nil // it was swept, and there is no room for words: the next one says it
		}
	}
	return report, wireError("gc", err)
}

func isFull(err error) bool {
	return errors.Is(err, cas.ErrFull) || errors.Is(err, catalogue.ErrFull) || errors.Is(err, catalogue.ErrReadOnly)
}

// sweep runs a sweep over a view of the store of its own, with the given rows.
func (s *Store) sweep(ctx context.Context, o GCOptions, rows catalogue.Catalogue, report *GCReport) (err error) {
	book := newLeaseBook(rows, s.dir)
	objects := cas.New(s.backend, cas.Options{CacheBytes: -1, Leases: book})
	defer func() { err = errors.Join(err, objects.Close()) }()
	r, err := objects.Sweep(ctx, cas.SweepOptions{
		Book: book, Patience: o.Patience, Thorough: o.thorough,
		Roots: &gcRoots{rows: rows, objects: objects, labels: make(map[cas.Tenant]string)},
	})
	report.Epoch, report.Marked = r.Epoch, r.Marked
	report.Condemned += r.Condemned
	report.Spared += r.Spared
	report.Deleted += r.Deleted
	report.Rewritten += r.Rewritten
	report.Freed += r.Bytes - r.Written
	report.Leftovers += r.Leftovers
	report.Ended += r.Ended
	report.Lost += r.Lost
	report.Kept = report.Kept[:0]
	for _, k := range r.Kept {
		report.Kept = append(report.Kept, k.Error())
	}
	if err == nil {
		err = errors.Join(book.tidy(ctx), s.forgetUploads())
	}
	return err
}

// sweepTight sweeps with a handle on the catalogue that was opened when there
// was room, and as long as that makes room.
func (s *Store) sweepTight(ctx context.Context, o GCOptions, report *GCReport) (err error) {
	rows, err := catalogue.OpenSQLite(filepath.Join(s.dir, catalogueFile))
	if err != nil {
		return err
	}
	rows.KeepLogShort()
	defer func() { err = errors.Join(err, rows.Close()) }()
	for {
		before := report.Deleted
		err := s.sweep(ctx, o, rows, report)
		if err == nil || !isFull(err) || report.Deleted == before {
			return err
		}
	}
}

func (s *Store) giveUpReserve() error { return remove(filepath.Join(s.dir, reserveFile)) }

// makeReserve makes the reserve where it is missing. Its bytes are random, so
// that no file system stores fewer.
func (s *Store) makeReserve() error { return makeReserve(s.dir) }

func makeReserve(dir string) error {
	if info, err := os.Stat(filepath.Join(dir, reserveFile)); err == nil && info.Size() == reserveSize {
		return nil
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return rootfs.Publish(root, reserveFile, true, func(f afero.File) error {
		_, err := io.CopyN(f, rand.Reader, reserveSize)
		return err
	})
}

// gcRoots tells a sweep what artifacts need.
type gcRoots struct {
	rows    catalogue.Catalogue
	objects *cas.Store

	mu     sync.Mutex
	labels map[cas.Tenant]string
	said   map[cas.Tenant]int64 // how far the tenant's statements were gone over
}

var _ cas.Roots = (*gcRoots)(nil)

// Tenants implements [cas.Roots].
func (g *gcRoots) Tenants(ctx context.Context) ([]cas.Tenant, error) {
	labels, err := g.rows.TenantsEver(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var tenants []cas.Tenant
	for _, label := range labels {
		t := cas.TenantOf(label)
		g.labels[t] = label
		tenants = append(tenants, t)
	}
	return tenants, nil
}

func (g *gcRoots) label(tenant cas.Tenant) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	label, ok := g.labels[tenant]
	return label, ok
}

// statements keeps the statements that stand as objects. They are never deleted.
func (g *gcRoots) statements(ctx context.Context, tenant cas.Tenant, label string, fresh bool, keep func(...merkle.Root)) error {
	const page = 500
	g.mu.Lock()
	after := g.said[tenant]
	g.mu.Unlock()
	if fresh {
		after = 0
	}
	for {
		list, err := g.rows.Objects(ctx, label, after, page)
		if err != nil {
			return err
		}
		for _, st := range list {
			after = st.Seq
			keep(st.ObjectRoot)
			if st.Kind == manifest.PredicateIndex {
				if err := g.keepIndex(ctx, st, keep); err != nil {
					return err
				}
			}
		}
		if len(list) < page {
			break
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.said == nil {
		g.said = make(map[cas.Tenant]int64)
	}
	g.said[tenant] = after
	return nil
}

// Roots implements [cas.Roots]: the bytes, the manifest, the record map and the
// indexes of each artifact that is neither deleted nor expired, and the statements.
func (g *gcRoots) Roots(ctx context.Context, tenant cas.Tenant, after int64, keep func(...merkle.Root)) (int64, error) {
	label, ok := g.label(tenant)
	if !ok {
		// Its first artifact may have been published just now.
		if _, err := g.Tenants(ctx); err != nil {
			return after, err
		}
		if label, ok = g.label(tenant); !ok {
			return after, nil
		}
	}
	if err := g.statements(ctx, tenant, label, after == 0, keep); err != nil {
		return after, err
	}
	now, err := g.rows.Now(ctx)
	if err != nil {
		return after, err
	}
	for {
		rows, err := g.rows.List(ctx, label, after, catalogue.MaxList)
		if err != nil {
			return after, err
		}
		for _, row := range rows {
			after = row.Seq
			if row.ExpiresAt != nil && !now.Before(*row.ExpiresAt) {
				continue
			}
			keep(row.Root, row.EnvelopeRoot)
			parts, err := blobsOf(ctx, g.objects, g.rows, row)
			if err != nil {
				return after, fmt.Errorf("%s: %w", row.ArtifactID, err)
			}
			for _, p := range parts {
				keep(p.root)
			}
		}
		if len(rows) < catalogue.MaxList {
			return after, nil
		}
	}
}

// bareManifest reads an artifact's manifest, and does not ask who signed it.
func bareManifest(ctx context.Context, objects *cas.Store, row catalogue.Artifact) (*manifest.Manifest, error) {
	if row.EnvelopeSize > maxEnvelope {
		return nil, fmt.Errorf("%w: it has %d bytes", errManifest, row.EnvelopeSize)
	}
	r, err := objects.Open(ctx, cas.TenantOf(row.Tenant), row.EnvelopeRoot, row.EnvelopeSize)
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	defer r.Close()
	object := make([]byte, row.EnvelopeSize)
	if _, err := r.ReadAt(object, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	var o signedManifest
	if err := manifest.DecodeLimit(object, &o, maxEnvelope, manifest.MaxDepth); err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	payload, err := base64.StdEncoding.DecodeString(o.Manifest.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	m, err := manifest.ParseManifest(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	return m, nil
}
