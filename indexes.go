package leafproof

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// An Index is a field index over an artifact's records, and who says that it is one:
// whoever has the bytes can build it again, and compare the roots.
type Index struct {
	manifest.Index
	// Statement is the one that names it; nil where the manifest itself does.
	Statement *Statement
}

// IndexOptions adjust [Store.AddIndex].
type IndexOptions struct {
	// Memory is about how many bytes the build may take; 0 is 256 MiB. What does not
	// fit goes to a temporary file.
	Memory int64
	// Progress, where set, is told of the bytes read, in steps.
	Progress func(bytes int64)
}

// Indexes lists the indexes of an artifact that who may look at: those that its
// manifest names, then those that were added later, each path once. A statement that
// the store's policy does not let stand, or that is about other records or rules,
// is left out.
func (s *Store) Indexes(ctx context.Context, who Caller, id string) ([]Index, error) {
	a, err := s.find(ctx, who, id, gate.Stat)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	list, err := a.indexes(ctx)
	if err != nil {
		return nil, wireError(id, err)
	}
	return list, a.disclosed(ctx, permit, Shown{Facts: true})
}

// indexes lists the indexes of the artifact. What is added is asked of the catalogue
// each time, since another process may have added it.
func (a *artifact) indexes(ctx context.Context) ([]Index, error) {
	var list []Index
	for _, x := range a.m.Predicate.Indexes {
		list = append(list, Index{Index: x})
	}
	rows, err := a.store.catalogue.ObjectsOf(ctx, a.row.ArtifactID, manifest.PredicateIndex)
	if err != nil || len(rows) == 0 {
		return list, err
	}
	policy, err := a.store.ruling()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		st, ok := a.store.indexWords.read(row, policy)
		if !ok {
			continue
		}
		body := st.Statement.Body.(*manifest.IndexAdded)
		if body.Fits(a.m) != nil || !a.follows(body.Index) || slices.ContainsFunc(list, func(x Index) bool { return x.Path == body.Index.Path }) {
			continue
		}
		list = append(list, Index{Index: body.Index, Statement: st})
	}
	return list, nil
}

// follows reports whether what is said of an index has the spec that follows from
// the manifest.
func (a *artifact) follows(x manifest.Index) bool {
	if a.m.Predicate.Records == nil {
		return false
	}
	path, err := selector.ParseKeyPath(x.Path)
	if err != nil {
		return false
	}
	want, err := selector.IndexSpec(a.layout(), path, a.redacted())
	if err != nil || x.SpecDigest != merkle.Root(selector.SpecDigest(want)).String() {
		return false
	}
	have, err := manifest.Canonical(x.Spec)
	return err == nil && bytes.Equal(have, want)
}

// indexWords remembers statements of indexes whose signatures were verified, as far
// as a policy lets them stand.
type indexWords struct {
	once  sync.Once
	cache *lru.Cache[indexWord, *Statement]
}

type indexWord struct {
	id     string
	policy *manifest.Policy
}

const cachedIndexWords = 1024

// read reads a stored statement of an index; false: it does not stand.
func (w *indexWords) read(row catalogue.Statement, policy *manifest.Policy) (*Statement, bool) {
	w.once.Do(func() {
		w.cache, _ = lru.New[indexWord, *Statement](cachedIndexWords) // it fails for sizes below 1
	})
	key := indexWord{row.StatementID, policy}
	if st, ok := w.cache.Get(key); ok {
		return st, true
	}
	st, err := openStatement(row)
	if err != nil {
		return nil, false
	}
	if _, ok := st.Statement.Body.(*manifest.IndexAdded); !ok || admitStatement(st.Envelope, row, policy) != nil {
		return nil, false
	}
	w.cache.Add(key, st)
	return st, true
}

// AddIndex builds an index over a path of an artifact's records, and says so in a
// signed statement, which is committed to the log: the artifact and its manifest
// stay what they are. What is there already is returned, and nothing is built.
//
// It takes leave to derive from all of the artifact: how many keys there are is a
// fact about every record, and from then on told to whoever may look at the artifact.
// The store needs a key of the role index.
func (s *Store) AddIndex(ctx context.Context, who Caller, id, path string, o IndexOptions) (Index, error) {
	var none Index
	p, err := selector.ParseKeyPath(path)
	if err != nil {
		return none, wireError("path", err)
	}
	a, err := s.find(ctx, who, id, gate.Derive)
	if err != nil {
		return none, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return none, err
	}
	if err := a.allows(manifest.SelectorQuery); err != nil {
		return none, err
	}
	list, err := a.indexes(ctx)
	if err != nil {
		return none, wireError(id, err)
	}
	if i := slices.IndexFunc(list, func(x Index) bool { return x.Path == p.Canonical() }); i >= 0 {
		return list[i], a.disclosed(ctx, permit, Shown{Facts: true})
	}
	if len(list) >= manifest.MaxIndexes {
		return none, fail(CodeSelectorInvalid, FixCall, "path", "%s has %d indexes, and none can be added", id, len(list))
	}
	batch := s.objects.Begin(ctx, cas.TenantOf(a.row.Tenant))
	defer batch.Discard()
	data, err := a.data(ctx)
	if err != nil {
		return none, wireError(id, err)
	}
	defer data.Close()
	file, m, layout, err := a.records(ctx)
	if err != nil {
		return none, wireError(id, err)
	}
	defer file.Close()
	job := indexJob{batch: batch, build: selector.IndexBuild{
		Source: data, Map: m, Layout: layout, Trust: a.trust(), Redactions: a.redacted(), Paths: []*selector.KeyPath{p}, Memory: o.Memory,
	}}
	if o.Progress != nil {
		job.build.Source = watched{data, o.Progress}
	}
	built, err := job.run(ctx)
	if err != nil {
		return none, wireError(id, err)
	}
	if _, err := permit.Renew(ctx); err != nil { // a revocation ends it, however long the build took
		return none, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true}); err != nil {
		return none, err
	}
	st, err := a.stateIndex(ctx, batch, built[0])
	return Index{Index: built[0], Statement: st}, wireError(id, err)
}

// stateIndex signs that there is an index, whose blob is in the batch.
func (a *artifact) stateIndex(ctx context.Context, batch *cas.Batch, x manifest.Index) (*Statement, error) {
	s := a.store
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, err
	}
	by, err := s.speaker(manifest.RoleIndex, &scope{a.row.Tenant, sourceOf(a.row)}, now)
	if err != nil {
		return nil, err
	}
	head, err := headFor(a.row, by, now)
	if err != nil {
		return nil, err
	}
	row, st, err := signStatement(&manifest.IndexAdded{Head: head, Index: x}, by, now)
	if err != nil {
		return nil, err
	}
	return st, s.enterIn(ctx, batch, row, func(lease string, row catalogue.Statement) error { return s.catalogue.State(ctx, lease, row) })
}

// indexJob builds indexes and stores them in a batch.
type indexJob struct {
	batch      *cas.Batch
	build      selector.IndexBuild
	durability cas.Durability
}

// run returns what is to be said of the indexes, in the order of their paths.
func (j *indexJob) run(ctx context.Context) ([]manifest.Index, error) {
	var room spillFile
	defer room.Close()
	j.build.Spill = &room
	rooms := make([]spillFile, len(j.build.Paths))
	outs := make([]io.WriterAt, len(rooms))
	for i := range rooms {
		defer rooms[i].Close()
		outs[i] = &rooms[i]
	}
	infos, err := j.build.Build(ctx, outs)
	if err != nil {
		return nil, err
	}
	var list []manifest.Index
	for i, info := range infos {
		stored, err := j.batch.PutAs(ctx, io.NewSectionReader(&rooms[i], 0, info.Size), cas.Auto, j.durability)
		if err != nil {
			return nil, err
		}
		rooms[i].Close()
		x, err := indexFacts(j.build.Layout, j.build.Paths[i], j.build.Redactions, info)
		if err != nil {
			return nil, err
		}
		x.Root = stored.Root.String()
		list = append(list, x)
	}
	slices.SortFunc(list, func(x, y manifest.Index) int { return cmp.Compare(x.Path, y.Path) })
	return list, nil
}

// indexFacts is what is said of an index, but for its root.
func indexFacts(l selector.Layout, p *selector.KeyPath, redactions []string, info selector.IndexInfo) (manifest.Index, error) {
	spec, err := selector.IndexSpec(l, p, redactions)
	if err != nil {
		return manifest.Index{}, err
	}
	x := manifest.Index{
		Path: p.Canonical(), Size: info.Size, Entries: info.Entries, Distinct: info.Distinct, Undetermined: info.Undetermined,
		SpecDigest: merkle.Root(selector.SpecDigest(spec)).String(),
	}
	return x, manifest.Decode(spec, &x.Spec)
}

// keyPaths reads the paths of the indexes that a put asks for: each once, in order.
func keyPaths(texts []string) ([]*selector.KeyPath, error) {
	var paths []*selector.KeyPath
	for _, text := range texts {
		p, err := selector.ParseKeyPath(text)
		if err != nil {
			return nil, wireError("index", err)
		}
		paths = append(paths, p)
	}
	slices.SortFunc(paths, func(p, q *selector.KeyPath) int { return cmp.Compare(p.Canonical(), q.Canonical()) })
	paths = slices.CompactFunc(paths, func(p, q *selector.KeyPath) bool { return p.Canonical() == q.Canonical() })
	if len(paths) > manifest.MaxIndexes {
		return nil, fail(CodeSelectorInvalid, FixCall, "index", "%d indexes, at most %d", len(paths), manifest.MaxIndexes)
	}
	return paths, nil
}

// settleIndexes refuses indexes that the draft's records cannot have.
func (d *Draft) settleIndexes(o PutOptions) error {
	d.durability, d.indexMemory = o.ofMap(), o.IndexMemory
	if len(d.paths) > 0 && d.mapped == nil {
		return fail(CodeSelectorInvalid, FixCall, "index", "an index is over records, and these bytes have none: %s", d.chosen)
	}
	for _, p := range d.paths {
		if _, err := selector.IndexSpec(d.layout, p, nil); err != nil {
			return wireError("index", err)
		}
	}
	return nil
}

// buildIndexes builds the indexes of a draft, whose redactions are known now.
func (d *Draft) buildIndexes(ctx context.Context, redactions []manifest.Redaction) ([]manifest.Index, error) {
	if len(d.paths) == 0 {
		return nil, nil
	}
	src, err := d.batch.Open(ctx, d.info.Root, d.info.Size)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	file, err := d.batch.Open(ctx, d.mapped.Root, d.mapped.Size)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	m, err := selector.OpenMap(file, d.mapped.Size, d.info.Root, d.info.Size, d.layout)
	if err != nil {
		return nil, err
	}
	job := indexJob{batch: d.batch, durability: d.durability, build: selector.IndexBuild{
		Source: src, Map: m, Layout: d.layout, Trust: d.stats.Trust(), Paths: d.paths, Memory: d.indexMemory,
	}}
	for _, r := range redactions {
		job.build.Redactions = append(job.build.Redactions, r.Path)
	}
	return job.run(ctx)
}

// blobsOf lists the blobs that an artifact needs beside its bytes and its manifest:
// the record map and the indexes. It asks nobody who signed the manifest: its bytes
// are those of the root that the row names, and a manifest that does not count keeps
// too much.
func blobsOf(ctx context.Context, objects *cas.Store, rows catalogue.Catalogue, row catalogue.Artifact) ([]artifactPart, error) {
	m, err := bareManifest(ctx, objects, row)
	if err != nil {
		return nil, err
	}
	parts, err := stated(&m.Predicate)
	if err != nil {
		return nil, err
	}
	return addedTo(ctx, rows, row.ArtifactID, parts)
}

// stated lists the blobs that a manifest names beside the bytes.
func stated(p *manifest.Predicate) (parts []artifactPart, err error) {
	if rec := p.Records; rec != nil && rec.Map != nil {
		root, err := merkle.ParseRoot(rec.Map.Root)
		if err != nil {
			return nil, err
		}
		parts = append(parts, artifactPart{partMap, root, rec.Map.Size})
	}
	for _, x := range p.Indexes {
		part, err := indexPart(x)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func indexPart(x manifest.Index) (artifactPart, error) {
	root, err := merkle.ParseRoot(x.Root)
	return artifactPart{partIndex + x.Path, root, x.Size}, err
}

// addedTo adds the indexes that statements name.
func addedTo(ctx context.Context, rows catalogue.Catalogue, id string, parts []artifactPart) ([]artifactPart, error) {
	said, err := rows.ObjectsOf(ctx, id, manifest.PredicateIndex)
	if err != nil {
		return parts, err
	}
	for _, row := range said {
		st, err := openStatement(row)
		if err != nil {
			continue // check tells of it
		}
		if body, ok := st.Statement.Body.(*manifest.IndexAdded); ok {
			part, err := indexPart(body.Index)
			if err == nil && !slices.ContainsFunc(parts, func(p artifactPart) bool { return p.root == part.root && p.name == part.name }) {
				parts = append(parts, part)
			}
		}
	}
	return parts, nil
}

// keepIndex keeps the blob of an index that a statement names, while its artifact
// stands.
func (g *gcRoots) keepIndex(ctx context.Context, row catalogue.Statement, keep func(...merkle.Root)) error {
	st, err := openStatement(row)
	if err != nil {
		return nil // check tells of it
	}
	body, ok := st.Statement.Body.(*manifest.IndexAdded)
	if !ok {
		return nil
	}
	about, err := g.rows.Artifact(ctx, row.ArtifactID)
	if errors.Is(err, catalogue.ErrNotFound) {
		return nil
	}
	now, errNow := g.rows.Now(ctx)
	if err := errors.Join(err, errNow); err != nil {
		return err
	}
	if part, err := indexPart(body.Index); err == nil && about.DeletedAt == nil && (about.ExpiresAt == nil || now.Before(*about.ExpiresAt)) {
		keep(part.root)
	}
	return nil
}
