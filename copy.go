package leafproof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// ErrNotAdmitted is a store whose trust policy does not let stand what another
// store signed.
var ErrNotAdmitted = errors.New("the other store's trust policy does not admit the manifest")

// CopyOptions adjust [Store.CopyTo].
type CopyOptions struct {
	// Progress, where set, is told of the bytes copied, in steps.
	Progress func(bytes int64)
	// Done, where set, is told of each artifact: that it was copied, or that it
	// was there.
	Done func(id string, copied bool)
	// Without, where set, is told of an index that an artifact was copied without:
	// its blob cannot be read here, and what the artifact's bytes give is another one.
	Without func(id, path string, err error)
}

// CopyTo brings artifacts to another store: the same bytes, each verified on the
// way, the same manifest with its signatures, and so the same artifact id. With
// no ids it brings all that who may read. The other store's policy must let the
// manifests stand, or the error is [ErrNotAdmitted]; an artifact that was
// deleted there stays deleted, and is an error too. An index whose blob is damaged
// or lost is built again from the bytes.
//
// An artifact that is there already is not read. So a copy that was interrupted
// and is made again goes on with what is missing.
func (s *Store) CopyTo(ctx context.Context, who Caller, to *Store, o CopyOptions, ids ...string) error {
	if len(ids) == 0 {
		return s.copyAll(ctx, who, to, o)
	}
	for _, id := range ids {
		if err := s.copyOne(ctx, who, to, o, id); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) copyAll(ctx context.Context, who Caller, to *Store, o CopyOptions) error {
	tenants, err := s.Tenants(ctx, who)
	if err != nil {
		return err
	}
	const page = 1000
	for _, tenant := range tenants {
		for after := int64(0); ; {
			list, next, err := s.List(ctx, who, tenant, after, page)
			if err != nil {
				return err
			}
			for _, e := range list {
				if err := s.copyOne(ctx, who, to, o, e.ArtifactID); err != nil {
					return err
				}
			}
			if after = next; next == 0 {
				break
			}
		}
	}
	return nil
}

func (s *Store) copyOne(ctx context.Context, who Caller, to *Store, o CopyOptions, id string) error {
	a, err := s.find(ctx, who, id, gate.Read)
	if err != nil {
		return err
	}
	all := merkle.Range{Start: 0, End: a.m.Size}
	permit, err := a.permit(ctx, all)
	if err != nil {
		return err
	}
	theirs, err := to.ruling()
	if err != nil {
		return err
	}
	if err := admit(a.signed, theirs, a.row.CreatedAt); err != nil {
		return fmt.Errorf("%s: %w: %w", id, ErrNotAdmitted, err)
	}
	there, err := to.catalogue.Artifact(ctx, id)
	switch {
	case err == nil && there.DeletedAt != nil:
		return fail(CodeArtifactDeleted, Stop, id, "%s was deleted in the other store", id)
	case err == nil && there.ManifestID == a.m.ManifestID:
		if o.Done != nil {
			o.Done(id, false)
		}
		return nil
	case err != nil && !errors.Is(err, catalogue.ErrNotFound):
		return wireError(id, err)
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, io.Discard), permit, a.request)
	if err != nil {
		return wireError(id, err)
	}
	shown := shownRanges(a.m.Size, all)
	shown.Facts = true
	if err := a.disclosed(ctx, permit, shown); err != nil {
		return err
	}
	if err := to.adopt(ctx, a, gated, o); err != nil {
		return wireError(id, err)
	}
	if o.Done != nil {
		o.Done(id, true)
	}
	return nil
}

// adopt takes an artifact of another store: its bytes, record map and indexes, then
// the manifest, then the row, and what was said later of indexes. Every byte passes gated, which looks at the leave to have it.
func (s *Store) adopt(ctx context.Context, a *artifact, gated io.Writer, o CopyOptions) error {
	batch := s.objects.Begin(ctx, cas.TenantOf(a.row.Tenant))
	defer batch.Discard()
	named, err := stated(&a.m.Predicate)
	if err != nil {
		return err
	}
	for _, p := range append([]artifactPart{{partBytes, a.m.Root, a.m.Size}}, named...) {
		if _, err := a.bringOrBuild(ctx, batch, p, gated, o); err != nil {
			return fmt.Errorf("its %s: %w", p.name, err)
		}
	}
	object, err := manifest.Canonical(a.signed)
	if err != nil {
		return err
	}
	envelope, err := batch.Put(ctx, bytes.NewReader(object), cas.Auto)
	if err != nil {
		return err
	}
	row := a.row
	row.Supersedes, row.Inputs = links(&a.m.Predicate)
	row.Leaf = statementLeaf(manifest.PredicateManifest, a.m.Payload)
	if envelope.Root != row.EnvelopeRoot {
		return fmt.Errorf("%w: it is not canonical", errManifest)
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	if err := s.publish(ctx, batch, row); err != nil {
		return err
	}
	return s.adoptIndexes(ctx, a, gated, o)
}

// adoptIndexes takes the indexes that were added to an artifact of another store,
// those whose statements the own policy lets stand.
func (s *Store) adoptIndexes(ctx context.Context, a *artifact, gated io.Writer, o CopyOptions) error {
	list, err := a.indexes(ctx)
	if err != nil {
		return err
	}
	theirs, err := s.ruling()
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Statement == nil {
			continue
		}
		st := x.Statement
		row := catalogue.Statement{
			StatementID: st.ID, Kind: st.Kind, Tenant: a.row.Tenant, ArtifactID: a.row.ArtifactID, Envelope: st.Bytes,
			Leaf: statementLeaf(st.Kind, st.Statement.Payload),
		}
		if row.IssuedAt, err = manifest.ParseTime(st.Statement.Body.About().IssuedAt); err != nil {
			return err
		}
		if admitStatement(st.Envelope, row, theirs) != nil {
			continue
		}
		if err := s.adoptIndex(ctx, a, x, row, gated, o); err != nil {
			return fmt.Errorf("its index %s: %w", x.Path, err)
		}
	}
	return nil
}

func (s *Store) adoptIndex(ctx context.Context, a *artifact, x Index, row catalogue.Statement, gated io.Writer, o CopyOptions) error {
	batch := s.objects.Begin(ctx, cas.TenantOf(row.Tenant))
	defer batch.Discard()
	part, err := indexPart(x.Index)
	if err != nil {
		return err
	}
	if there, err := a.bringOrBuild(ctx, batch, part, gated, o); !there || err != nil {
		return err
	}
	return s.enterIn(ctx, batch, row, func(lease string, row catalogue.Statement) error { return s.catalogue.State(ctx, lease, row) })
}

// bringOrBuild is bring; of an index that cannot be read it builds another one. It
// reports whether the blob is there now: without an index the artifact is what it
// was.
func (a *artifact) bringOrBuild(ctx context.Context, batch *cas.Batch, p artifactPart, gated io.Writer, o CopyOptions) (bool, error) {
	err := a.bring(ctx, batch, p, gated, o.Progress)
	path, isIndex := strings.CutPrefix(p.name, partIndex)
	if err == nil || !isIndex || !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNotFound) {
		return err == nil, err
	}
	built := a.buildInto(ctx, batch, p, path)
	if _, err := gated.Write([]byte{0}); err != nil || ctx.Err() != nil { // the leave is looked at, however long the build took
		return false, errors.Join(err, ctx.Err())
	}
	if built != nil && o.Without != nil {
		o.Without(a.row.ArtifactID, path, fmt.Errorf("%w; %w", err, built))
	}
	return built == nil, nil
}

// buildInto builds an index of the artifact again into a batch, which may be that of
// another store.
func (a *artifact) buildInto(ctx context.Context, batch *cas.Batch, p artifactPart, text string) error {
	path, err := selector.ParseKeyPath(text)
	if err != nil {
		return err
	}
	data, err := a.data(ctx)
	if err != nil {
		return err
	}
	defer data.Close()
	file, records, layout, err := a.records(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	job := indexJob{batch: batch, build: selector.IndexBuild{
		Source: data, Map: records, Layout: layout, Trust: a.trust(), Redactions: a.redacted(), Paths: []*selector.KeyPath{path},
	}}
	built, err := job.run(ctx)
	if err == nil && built[0].Root != p.root.String() {
		err = fmt.Errorf("the bytes give another one, %s", built[0].Root)
	}
	return err
}

// bring copies one blob of an artifact. What is read is verified; what comes of
// it must have the root that was promised.
func (a *artifact) bring(ctx context.Context, batch *cas.Batch, p artifactPart, gated io.Writer, progress func(int64)) error {
	src, err := a.store.objects.Open(ctx, cas.TenantOf(a.row.Tenant), p.root, p.size)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := batch.Put(ctx, &countingReader{io.TeeReader(io.NewSectionReader(src, 0, p.size), gated), progress}, a.placement(p))
	if err != nil {
		return err
	}
	if info.Root != p.root || info.Size != p.size {
		return fmt.Errorf("%w: what arrived has the root %s", cas.ErrCorrupt, info.Root)
	}
	return nil
}

// placement is how a put of the part would place it.
func (a *artifact) placement(p artifactPart) cas.Placement {
	if rec := a.m.Predicate.Records; rec != nil && p.name == partBytes {
		return placement(PutOptions{}, rec.Format)
	}
	return cas.Auto
}

type countingReader struct {
	r    io.Reader
	told func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.told != nil && n > 0 {
		c.told(int64(n))
	}
	return n, err
}
