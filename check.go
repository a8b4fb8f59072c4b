package leafproof

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
	"leafproof/manifest"
	"leafproof/merkle"
)

// CheckOptions say how thorough a check is.
type CheckOptions struct {
	// Deep reads and verifies every byte of every object. Without it, names,
	// lengths, packs' headers and footers and all manifests are looked at.
	Deep bool
	// From goes on where an earlier check stopped: its [CheckReport.Position].
	From string
	// BytesPerSecond bounds the rate of reading objects; 0 is no bound.
	BytesPerSecond int64
	// Progress, where set, is told of the bytes read, in steps.
	Progress func(bytes int64)
	// RebuildIndex writes the index over the packs anew before anything else.
	RebuildIndex bool
}

// CheckReport is what a check found.
type CheckReport struct {
	// Findings are what is not as it should be; those with Damage mean that
	// something which should be readable is not.
	Findings []CheckFinding `json:"findings"`
	Deep     bool           `json:"deep"`
	// Artifacts is how many the catalogue lists, Objects how many stand.
	Artifacts int64 `json:"artifacts"`
	Objects   int64 `json:"objects"`
	BytesRead int64 `json:"bytes_read"`
	// Unreferenced blobs belong to no artifact: of puts that were not
	// published, of deleted artifacts. They are counted and never deleted.
	Unreferenced int64 `json:"unreferenced_blobs"`
	// Position is how far the objects were checked.
	Position string `json:"position,omitempty"`
	// Restored is set when the catalogue was made anew.
	Restored *RestoreReport `json:"restored,omitempty"`
}

// Damaged reports whether something that should be readable is not, after what
// was repaired.
func (r *CheckReport) Damaged() bool {
	return slices.ContainsFunc(r.Findings, func(f CheckFinding) bool { return f.Damage && f.Repaired == "" })
}

// Unread reports whether something could not be looked at.
func (r *CheckReport) Unread() bool {
	return slices.ContainsFunc(r.Findings, func(f CheckFinding) bool { return f.Fault == string(cas.FaultUnread) })
}

// CheckFinding is one thing that is not as it should be.
type CheckFinding struct {
	// File is where, relative to the store's folder; "" for a blob that is in
	// no file.
	File   string `json:"file"`
	Fault  string `json:"fault"`  // in two words
	Detail string `json:"detail"` // in a sentence
	Damage bool   `json:"damage"`
	// Touches are the artifacts that the damage reaches.
	Touches []Touched `json:"touches"`
	// Repaired says what was done about it; "" for nothing.
	Repaired string `json:"repaired,omitempty"`
}

// Touched is an artifact that damage reaches.
type Touched struct {
	ArtifactID string `json:"artifact_id"`
	TenantID   string `json:"tenant_id"`
	// Part is what is damaged: "bytes", "manifest", "record map", or "index" and a
	// space and its path. Without its manifest an artifact does not read at all;
	// without its record map it reads by bytes alone; without an index nothing is
	// proven with it, and all is found.
	Part string `json:"part"`
	// Ranges are the damaged bytes of that part, half open.
	Ranges [][2]int64 `json:"ranges"`
}

// Check looks for damage in the store, and says which artifacts, and which bytes
// of them, it reaches. It changes nothing, but that, like any reader, it may leave
// an index file. Damage is no error: the report tells it. With an error of ctx,
// the report says how far the check came. Its memory grows with the damage, and
// by eight bytes for each blob and chunk that artifacts need.
func (s *Store) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := newChecker(ctx, o, s.objects, s.catalogue, s.Policy())
	return c.report, wireError("", c.run())
}

// Check is [Store.Check] for a folder, with the files in it besides the objects.
// It does not ask that the store opens: a catalogue or a policy that is damaged
// is a finding too.
func Check(ctx context.Context, dir string, o CheckOptions) (*CheckReport, error) {
	return checkFolder(ctx, dir, o, false)
}

// Repair is a deep [Check] that mends what it can: outboards from their blobs,
// packs whose footer still stands, indexes from the artifact's bytes, a lost or
// damaged catalogue from the signed manifests among the objects. It works alone: while another process uses the
// store it is refused, and the error names that process. It deletes nothing, and
// takes nothing for deleted because it is missing.
func Repair(ctx context.Context, dir string, o CheckOptions) (*CheckReport, error) {
	o.Deep = true
	return checkFolder(ctx, dir, o, true)
}

func checkFolder(ctx context.Context, dir string, o CheckOptions, repair bool) (*CheckReport, error) {
	if _, err := cas.ParseName(o.From); o.From != "" && err != nil {
		return nil, fail(CodeSelectorInvalid, FixCall, "from", "a position is what an interrupted check named: %v", err)
	}
	if err := looksLikeStore(dir); err != nil {
		return nil, err
	}
	take := flock.Shared
	if repair {
		take = flock.Exclusive
	}
	lock, err := take(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer func() { lock.Close() }() // an upgrade takes another one
	backend, err := disk.Open(filepath.Join(dir, objectsDir))
	if err != nil {
		return nil, err
	}
	defer backend.Close()
	c := newChecker(ctx, o, cas.New(backend, cas.Options{CacheBytes: -1}), nil, nil)
	c.dir, c.repair = dir, repair
	if err := c.folder(&lock); err != nil {
		return c.report, err
	}
	if c.rows != nil {
		defer c.rows.Close()
	}
	if o.RebuildIndex {
		if err := rebuildIndex(ctx, c.objects); err != nil {
			return c.report, wireError("", err)
		}
	}
	return c.report, wireError("", c.run())
}

// RebuildIndex writes the index over the packs of all tenants anew, from their
// footers. Reads and puts go on meanwhile.
func (s *Store) RebuildIndex(ctx context.Context) error {
	return wireError("", rebuildIndex(ctx, s.objects))
}

func rebuildIndex(ctx context.Context, objects *cas.Store) error {
	tenants, err := objects.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := objects.RebuildIndex(ctx, tenant); err != nil {
			return err
		}
	}
	return nil
}

// looksLikeStore refuses a folder that holds no store, or one of a newer version:
// a check must not make the files that a store has where there is none.
func looksLikeStore(dir string) error {
	if _, err := readFormat(dir); errors.Is(err, ErrNewerStore) {
		return err
	}
	for _, name := range []string{formatFile, catalogueFile, objectsDir} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s: %w", dir, ErrNoStore)
}

// checker is one check. It goes three ways: over the rows, to learn which blobs
// are needed; over the objects; and, where something is damaged, over the rows
// again, to learn whom it touches.
type checker struct {
	ctx     context.Context
	o       CheckOptions
	dir     string // "" without a folder
	repair  bool
	objects *cas.Store
	rows    catalogue.Catalogue // nil while it does not open
	policy  *manifest.Policy    // nil while it cannot be read
	report  *CheckReport
	read    atomic.Int64

	needed []uint64 // short keys of the blobs and chunks that rows need, sorted
	// What is damaged: indexes into the findings.
	byBlob   map[blobKey][]int
	byTenant map[cas.Tenant][]int // those that do not tell which blobs they had
	missing  map[partKey]error    // parts of artifacts that did not open
	now      time.Time            // by the catalogue's clock, when the check began; zero: not known

	unlike map[string]bool // artifacts whose leaf in the log is of another manifest
}

type blobKey struct {
	tenant cas.Tenant
	root   merkle.Root
}

// short is enough to count by.
func (k blobKey) short() uint64 {
	return binary.LittleEndian.Uint64(k.root[:8]) ^ binary.LittleEndian.Uint64(k.tenant[:8])
}

type partKey struct{ artifact, part string }

func newChecker(ctx context.Context, o CheckOptions, objects *cas.Store, rows catalogue.Catalogue, policy *manifest.Policy) *checker {
	return &checker{
		ctx: ctx, o: o, objects: objects, rows: rows, policy: policy,
		report: &CheckReport{Findings: []CheckFinding{}, Deep: o.Deep, Position: o.From},
		byBlob: make(map[blobKey][]int), byTenant: make(map[cas.Tenant][]int), missing: make(map[partKey]error),
	}
}

// find enters a finding and returns its index.
func (c *checker) find(f CheckFinding) int {
	f.Touches = []Touched{}
	c.report.Findings = append(c.report.Findings, f)
	return len(c.report.Findings) - 1
}

func (c *checker) run() error {
	defer func() { c.report.BytesRead = c.read.Load() }()
	if c.rows != nil {
		if err := c.integrity(); err != nil {
			return err
		}
		if err := c.firstPass(); err != nil {
			return err
		}
	}
	if err := c.objectsPass(); err != nil {
		return err
	}
	if c.rows != nil && len(c.byBlob)+len(c.byTenant)+len(c.missing) > 0 {
		return c.secondPass()
	}
	return nil
}

// integrity asks the catalogue's engine about its file.
func (c *checker) integrity() error {
	engine, ok := c.rows.(interface {
		Integrity(ctx context.Context) ([]string, error)
	})
	if !ok || !c.o.Deep {
		return nil
	}
	problems, err := engine.Integrity(c.ctx)
	for _, p := range problems {
		c.find(CheckFinding{File: catalogueFile, Fault: "damaged", Detail: p, Damage: true})
	}
	return err
}

// The parts of an artifact.
const (
	partBytes    = "bytes"
	partManifest = "manifest"
	partMap      = "record map"
	partIndex    = "index " // and its path
)

// artifactPart is one of the blobs that an artifact needs.
type artifactPart struct {
	name string // one of the constants; of an index with the path behind it
	root merkle.Root
	size int64
}

// each goes over the rows of all tenants.
func (c *checker) each(do func(row catalogue.Artifact, tenant cas.Tenant) error) error {
	tenants, err := c.rows.Tenants(c.ctx)
	if err != nil {
		return c.rowsFailed(err)
	}
	const page = 1000
	for _, label := range tenants {
		for after, more := int64(0), true; more; {
			rows, err := c.rows.List(c.ctx, label, after, page)
			if err != nil {
				return c.rowsFailed(err)
			}
			for _, row := range rows {
				after = row.Seq
				if err := do(row, cas.TenantOf(label)); err != nil {
					return err
				}
			}
			more = len(rows) == page
		}
	}
	return nil
}

// rowsFailed makes a finding of a catalogue that shows its damage while it is
// read.
func (c *checker) rowsFailed(err error) error {
	if !errors.Is(err, catalogue.ErrDamaged) {
		return err
	}
	c.find(CheckFinding{File: catalogueFile, Fault: "damaged", Detail: err.Error(), Damage: true})
	return nil
}

// parts returns the blobs that an artifact needs. What a row says is held
// against the manifest; a manifest that cannot be read hides the record map.
func (c *checker) parts(row catalogue.Artifact) ([]artifactPart, error) {
	parts := []artifactPart{
		{partManifest, row.EnvelopeRoot, row.EnvelopeSize},
		{partBytes, row.Root, row.Size},
	}
	reader := &Store{config: config{objects: c.objects, policy: c.policy}}
	_, m, err := reader.load(c.ctx, row)
	if err != nil {
		return parts, err
	}
	c.logged(row, m)
	more, err := stated(&m.Predicate)
	if err == nil {
		more, err = addedTo(c.ctx, c.rows, row.ArtifactID, more)
	}
	return append(parts, more...), err
}

// swept reports whether an artifact may lack what it was made of, as one that has
// expired does after a sweep. What stands of it is looked at like anything else.
func (c *checker) swept(row catalogue.Artifact) bool {
	return row.ExpiresAt != nil && !c.now.IsZero() && !c.now.Before(*row.ExpiresAt)
}

func (c *checker) firstPass() error {
	now, err := c.rows.Now(c.ctx)
	if err != nil {
		return c.rowsFailed(err)
	}
	c.now = now
	err = c.each(func(row catalogue.Artifact, tenant cas.Tenant) error {
		c.report.Artifacts++
		parts, err := c.parts(row)
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err != nil && !errors.Is(err, cas.ErrNotFound) && !errors.Is(err, cas.ErrCorrupt) {
			if !errors.Is(err, errManifest) {
				c.find(CheckFinding{File: catalogueFile, Fault: string(cas.FaultUnread), Detail: row.ArtifactID + ": " + err.Error()})
			} else {
				i := c.find(CheckFinding{File: catalogueFile, Fault: "other manifest", Detail: err.Error(), Damage: true})
				c.touch(i, row, artifactPart{partManifest, row.EnvelopeRoot, row.EnvelopeSize}, wholeRange(row.EnvelopeSize))
			}
		}
		for _, p := range parts {
			c.needed = append(c.needed, blobKey{tenant, p.root}.short())
			for key, err := range c.objects.Chunks(c.ctx, tenant, p.root, p.size) {
				if err != nil {
					break // it shows below
				}
				c.needed = append(c.needed, blobKey{tenant, key}.short())
			}
			r, err := c.objects.Open(c.ctx, tenant, p.root, p.size)
			if err == nil {
				err = r.Close()
			}
			if err := c.ctx.Err(); err != nil {
				return err
			}
			if err != nil && !(c.swept(row) && errors.Is(err, cas.ErrNotFound)) {
				c.missing[partKey{row.ArtifactID, p.name}] = err
			}
		}
		return nil
	})
	if err == nil {
		err = c.statements()
	}
	if err == nil {
		err = c.commitLog()
	}
	slices.Sort(c.needed)
	c.needed = slices.Compact(c.needed)
	return err
}

func wholeRange(size int64) []merkle.Range { return []merkle.Range{{Start: 0, End: size}} }

func (c *checker) objectsPass() error {
	o := cas.CheckOptions{
		Deep: c.o.Deep, From: c.o.From, BytesPerSecond: c.o.BytesPerSecond,
		Progress: func(n int64) {
			c.read.Add(n)
			if c.o.Progress != nil {
				c.o.Progress(n)
			}
		},
		Position: func(p string) { c.report.Position = p },
		Visit:    c.visit,
	}
	for f, err := range c.objects.Check(c.ctx, o) {
		if err != nil {
			return err
		}
		if err := c.object(f); err != nil {
			return err
		}
	}
	return nil
}

// visit counts what no row needs. A blob that lies in two objects counts twice.
func (c *checker) visit(name cas.Name, _ int64, roots iter.Seq[merkle.Root]) {
	c.report.Objects++
	if c.rows == nil {
		return
	}
	for root := range roots {
		if _, ok := slices.BinarySearch(c.needed, blobKey{name.Tenant, root}.short()); !ok {
			c.report.Unreferenced++
		}
	}
}

// object enters what was found at an object, and mends it.
func (c *checker) object(f cas.Finding) error {
	file := f.Path
	if f.Name != (cas.Name{}) {
		file = f.Name.String()
	}
	detail := f.Err.Error()
	if f.Superseded {
		detail = "a newer generation stands, and this one is not read: " + detail
	}
	i := c.find(CheckFinding{File: objectsDir + "/" + file, Fault: string(f.Fault), Detail: detail, Damage: f.Harms()})
	if c.repair && f.Harms() {
		done, err := c.objects.Repair(c.ctx, f)
		if err != nil {
			if c.ctx.Err() != nil {
				return err
			}
			c.report.Findings[i].Detail += "; the repair failed: " + err.Error()
		}
		c.report.Findings[i].Repaired = done
	}
	if !f.Harms() && f.Fault != cas.FaultOrphan {
		return nil
	}
	for _, b := range f.Blobs {
		k := blobKey{f.Name.Tenant, b.Root}
		c.byBlob[k] = append(c.byBlob[k], i)
	}
	if f.All {
		c.byTenant[f.Name.Tenant] = append(c.byTenant[f.Name.Tenant], i)
	}
	return nil
}

// secondPass asks, for each artifact that damage may reach, which of its bytes
// cannot be read now: after the repairs.
func (c *checker) secondPass() error {
	objects := c.objects.Uncached()
	c.objects = objects
	return c.each(func(row catalogue.Artifact, tenant cas.Tenant) error {
		parts, _ := c.parts(row)
		for _, p := range parts {
			found := c.byBlob[blobKey{tenant, p.root}]
			why, missing := c.missing[partKey{row.ArtifactID, p.name}]
			hidden := c.o.Deep && len(c.byTenant[tenant]) > 0
			if len(found) == 0 && !missing && !hidden {
				continue
			}
			bad, err := objects.Unreadable(c.ctx, tenant, p.root, p.size)
			switch {
			case c.ctx.Err() != nil:
				return c.ctx.Err()
			case errors.Is(err, cas.ErrNotFound) && c.swept(row):
				continue
			case errors.Is(err, cas.ErrNotFound):
				bad = wholeRange(p.size)
			case err != nil:
				c.find(CheckFinding{File: objectsDir, Fault: string(cas.FaultUnread), Detail: row.ArtifactID + ": " + err.Error()})
				continue
			}
			if err == nil && len(bad) == 0 {
				continue
			}
			if mended, err := c.mendIndex(row, tenant, p); mended || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			found = slices.Clone(found)
			for key := range objects.Chunks(c.ctx, tenant, p.root, p.size) {
				found = append(found, c.byBlob[blobKey{tenant, key}]...)
			}
			slices.Sort(found)
			found = slices.Compact(found)
			if len(found) == 0 {
				found = c.byTenant[tenant]
			}
			if len(found) == 0 {
				if c.swept(row) { // its chunks went
					continue
				}
				if why == nil {
					why = cas.ErrNotFound
				}
				found = []int{c.find(CheckFinding{Fault: "lost", Detail: why.Error(), Damage: true})}
			}
			for _, i := range found {
				c.touch(i, row, p, bad)
			}
		}
		return nil
	})
}

// touch notes that a finding reaches an artifact.
func (c *checker) touch(i int, row catalogue.Artifact, p artifactPart, bad []merkle.Range) {
	t := Touched{ArtifactID: row.ArtifactID, TenantID: row.Tenant, Part: p.name, Ranges: make([][2]int64, len(bad))}
	for j, r := range bad {
		t.Ranges[j] = [2]int64{r.Start, r.End}
	}
	c.report.Findings[i].Touches = append(c.report.Findings[i].Touches, t)
	if c.report.Findings[i].Fault == string(cas.FaultOrphan) {
		c.report.Findings[i].Damage = true // the blob is lost: somebody needs it
	}
}
