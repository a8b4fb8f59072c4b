package leafproof

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/selector"
)

// DefaultTenant is the tenant of a put that names none.
const DefaultTenant = "local"

// PutOptions say what the bytes of a [Store.Put] are.
type PutOptions struct {
	// Tenant owns the bytes; "" is DefaultTenant. Nothing physical is shared
	// between tenants.
	Tenant string
	// Records is the record format: "auto" (or ""), "ndjson", "json", "csv",
	// "text", "concat" (JSON values one after another; never found by auto), or
	// "none".
	Records string
	// CSV says what auto and csv need not find out about a CSV file.
	CSV CSV
	// At is the JSON Pointer of the array whose elements are the records; it makes
	// Records "auto" mean "json".
	At string
	// MediaType is recorded as it is; "" derives it from the record format.
	MediaType string
	// Name is a file name that auto may take as a hint.
	Name string
	// Place says how to store the bytes: "" or "auto", "packed" (at most 16 KiB),
	// "whole" or "chunked". Auto is chunked for bytes above 16 KiB that begin like
	// records of a format, or are said to be such. It shows in nothing that is
	// read back.
	Place cas.Placement
	// Durability is what the bytes must survive, and from when on. "" or "durable",
	// and "batch": a crash, from when Publish returns. With "batch" nothing that the
	// store can put off waits for a disk before Publish. "cache" is for bytes that
	// can be had again: nothing waits for a disk on their account. A crash of the
	// machine may take them, wholly or in part, and a crash of the process does not;
	// the manifest and the record map stay. An artifact whose bytes are gone or torn
	// is listed and resolves, and to read it is [CodeIntegrityFailed] with the remedy
	// [Refetch], never other bytes; a put of the same bytes, with any durability,
	// makes it readable again. "cache" goes with no Resume, and with no Place but
	// whole.
	Durability cas.Durability
	// Resume, where set, is a name of the caller's choice, under which what has
	// arrived is kept when the put is interrupted: by an error of r, or by the end
	// of the process. A put under the same name goes on with it. It reads r from
	// its first byte all the same, and writes from the first byte on that differs
	// from what is there.
	Resume string
	// Indexes are the paths over which field indexes are built at Publish and named in
	// the manifest: JSON Pointers into a record, or JSONPath queries of names, numbers
	// and [*] in which $ and @ are the record. The bytes must have records.
	Indexes []string
	// IndexMemory is about how many bytes their build may take, for all together; 0 is
	// 256 MiB. What does not fit goes to a temporary file.
	IndexMemory int64
	// SHA256 computes the SHA-256 of the bytes in the same pass. The manifest lists
	// it, which tools that do not know BLAKE3 need.
	SHA256 bool
	// WantSHA256, where not "", is the SHA-256 in hex that the bytes must have; otherwise
	// nothing is put.
	WantSHA256 string

	upload *cas.Upload // has the bytes already, and is what r reads from; nil: none
}

// CSV is the dialect of a CSV file, where it is known; nil fields are not.
type CSV struct {
	Delimiter *string // one ASCII character; by default the one that fits the beginning
	Quote     *string // one ASCII character, or empty for no quoting; by default "
	Header    *bool   // the first row names the columns and is no record; by default true
}

func (c CSV) given() bool { return c != CSV{} }

// fill sets in a dialect what is known.
func (c CSV) fill(d *selector.Dialect) {
	if c.Delimiter != nil {
		d.Delimiter = *c.Delimiter
	}
	if c.Quote != nil {
		d.Quote = *c.Quote
	}
	if c.Header != nil {
		d.Header = *c.Header
	}
}

// A Draft is a put that is not published yet. Nobody but its holder can see it.
// Either [Store.Publish] or [Draft.Discard] ends it.
type Draft struct {
	batch  *cas.Batch
	ended  bool
	tenant string
	media  string
	info   cas.Info

	layout selector.Layout
	chosen string
	stats  selector.Stats
	mapped *cas.Info // the record map, where there are records
	paths  []*selector.KeyPath
	// durability and indexMemory are those of the indexes that Publish builds.
	durability  cas.Durability
	indexMemory int64
	sha256      string // in hex; "" where it was not asked for

	schema *manifest.SchemaCheck // once published: nil where none was made
	unsaid error                 // once published: what could not be signed about older artifacts
	held   []Held
}

// Size is the number of bytes.
func (d *Draft) Size() int64 { return d.info.Size }

// Chosen says in a sentence which record format was taken, and why.
func (d *Draft) Chosen() string { return d.chosen }

// Undecidable is the number of records that do not parse, or that no query can judge.
func (d *Draft) Undecidable() int64 { return d.stats.Undecidable }

// Discard drops the draft. What it stored is reclaimed later.
func (d *Draft) Discard() error {
	d.ended = true
	return d.batch.Discard()
}

// Put stores the bytes of r and finds their records, in memory that does not grow
// with the size. Nothing is visible until the draft is published.
func (s *Store) Put(ctx context.Context, r io.Reader, o PutOptions) (_ *Draft, err error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	o.settleRecords()
	if err := manifest.CheckName(o.Tenant); err != nil {
		return nil, wireError("tenant", err)
	}
	if err := o.checkDurability(); err != nil {
		return nil, err
	}
	paths, err := keyPaths(o.Indexes)
	if err != nil {
		return nil, err
	}
	d := &Draft{batch: s.objects.Begin(ctx, cas.TenantOf(o.Tenant)), tenant: o.Tenant, media: o.MediaType, paths: paths}
	defer func() {
		if err != nil {
			d.batch.Discard()
		}
	}()
	room := detectBytes
	if known, ok := r.(interface{ Len() int }); ok { // small puts come in large numbers
		room = min(room, known.Len()+1)
	}
	r = &sticky{r: r}
	var sum hash.Hash
	if o.SHA256 || o.WantSHA256 != "" {
		sum = sha256.New()
		r = io.TeeReader(r, sum)
	}
	in := bufio.NewReaderSize(r, room)
	head, _ := in.Peek(detectBytes) // an error comes again when it is read
	if d.layout, err = d.chooseLayout(head, o); err != nil {
		return nil, wireError("", err)
	}
	records, err := newRecordPass(ctx, d.layout)
	if err != nil {
		return nil, wireError("", err)
	}
	defer records.stop()
	if d.info, err = s.take(ctx, d, records.tee(in), o); err != nil {
		return nil, wireError("", err)
	}
	if sum != nil {
		got := hex.EncodeToString(sum.Sum(nil))
		if o.WantSHA256 != "" && got != o.WantSHA256 {
			return nil, fail(CodeRequestInvalid, FixCall, "sha256", "the SHA-256 of the bytes is %s, and %s was said", got, o.WantSHA256)
		}
		if o.SHA256 {
			d.sha256 = got
		}
	}
	if err := d.findRecords(ctx, o, records); err != nil {
		return nil, wireError("", err)
	}
	if err := d.settleIndexes(o); err != nil {
		return nil, err
	}
	return d, nil
}

// sticky gives an error of its reader each time again: what looks ahead passes over the
// first, and a reader need not repeat it.
type sticky struct {
	r   io.Reader
	err error
}

// Read implements [io.Reader].
func (s *sticky) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.err = err
	return n, err
}

// take stores the bytes of r, in what an interrupted put has left if it has a name.
func (s *Store) take(ctx context.Context, d *Draft, r io.Reader, o PutOptions) (cas.Info, error) {
	place := placement(o, d.layout.Format)
	if o.upload != nil {
		if d.layout.Format != selector.FormatBytes || o.SHA256 || o.WantSHA256 != "" { // who else looks at them
			if _, err := io.Copy(io.Discard, r); err != nil {
				return cas.Info{}, err
			}
		}
		return d.batch.PutUpload(ctx, o.upload, place)
	}
	if o.Resume == "" {
		return d.batch.PutAs(ctx, r, place, o.Durability)
	}
	u, err := s.objects.Upload(ctx, cas.TenantOf(d.tenant), o.Resume)
	if err != nil {
		return cas.Info{}, err
	}
	defer u.Close()
	if err := u.Fill(ctx, r); err != nil {
		return cas.Info{}, err
	}
	return d.batch.PutUpload(ctx, u, place)
}

// settleRecords settles what auto is where something says so.
func (o *PutOptions) settleRecords() {
	if o.At != "" && (o.Records == "" || o.Records == "auto") {
		o.Records = selector.FormatJSON // only json has a place to say
	}
	if o.CSV.given() && (o.Records == "" || o.Records == "auto") {
		o.Records = selector.FormatCSV
	}
}

// checkDurability refuses an unknown durability, and what does not go with cache.
func (o *PutOptions) checkDurability() error {
	switch o.Durability {
	case "", cas.Durable, cas.Grouped:
		return nil
	case cas.Cached:
	default:
		return fail(CodeSelectorInvalid, FixCall, "durability", "%q is no durability: durable, batch or cache", string(o.Durability))
	}
	switch {
	case o.Place != "" && o.Place != cas.Auto && o.Place != cas.Whole:
		return fail(CodeSelectorInvalid, FixCall, "durability", "cache stores bytes whole, not %s", o.Place)
	case o.Resume != "":
		return fail(CodeSelectorInvalid, FixCall, "durability", "cache keeps nothing that a put could go on with")
	}
	return nil
}

// ofMap is the durability of the record map: nobody could make it again.
func (o *PutOptions) ofMap() cas.Durability {
	if o.Durability == cas.Cached {
		return cas.Durable
	}
	return o.Durability
}

// placement chooses how to store bytes of a record format. Of records many
// versions come that differ in a few, so they are cut finely.
func placement(o PutOptions, format string) cas.Placement {
	if o.Place != "" && o.Place != cas.Auto && o.Place != cas.Chunked {
		return o.Place
	}
	if format != selector.FormatBytes {
		return cas.ChunkedRecords
	}
	return o.Place
}

// recordPass finds the records of bytes while they are stored.
type recordPass struct {
	pass *selector.Ingest // nil: there are none to find
	room spillFile        // for the record map
}

func newRecordPass(ctx context.Context, l selector.Layout) (*recordPass, error) {
	p := &recordPass{}
	if l.Format == selector.FormatBytes {
		return p, nil
	}
	var err error
	p.pass, err = selector.NewIngest(ctx, l, &p.room)
	return p, err
}

// tee reads from r, and takes in what was read.
func (p *recordPass) tee(r io.Reader) io.Reader {
	if p.pass == nil {
		return r
	}
	return io.TeeReader(r, p.pass)
}

// stop ends the pass, also in the middle.
func (p *recordPass) stop() {
	if p.pass != nil {
		p.pass.Stop()
	}
	p.room.Close()
}

// findRecords settles what the pass found, and stores the record map.
func (d *Draft) findRecords(ctx context.Context, o PutOptions, p *recordPass) error {
	if p.pass != nil {
		err := d.mapRecords(ctx, o, p)
		auto := o.Records == "" || o.Records == "auto"
		switch {
		case err != nil && auto && errors.Is(err, selector.ErrNotRecords):
			// The head looked like records and the rest does not: keep the bytes.
			d.chosen = fmt.Sprintf("stored as bytes: it begins like %s, but %v", d.layout.Format, err)
			d.layout = selector.Layout{Format: selector.FormatBytes}
		case err != nil:
			return err
		}
	}
	if d.media == "" {
		d.media = mediaTypes[d.layout.Format]
		if d.layout.Format == selector.FormatBytes && strings.HasSuffix(o.Name, ".json") {
			d.media = mediaTypes[selector.FormatJSON]
		}
	}
	return nil
}

// mapRecords waits for the pass and stores the record map. Only records that are
// too long to be kept while they go by are read back.
func (d *Draft) mapRecords(ctx context.Context, o PutOptions, p *recordPass) error {
	src, err := d.batch.Open(ctx, d.info.Root, d.info.Size)
	if err != nil {
		return err
	}
	defer src.Close()
	info, stats, layout, err := p.pass.Finish(src, d.info.Root)
	if err != nil {
		return err
	}
	mapped, err := d.batch.PutAs(ctx, io.NewSectionReader(&p.room, 0, info.Size), cas.Auto, o.ofMap())
	if err != nil {
		return err
	}
	d.layout, d.stats, d.mapped = layout, stats, &mapped
	return nil
}

// chooseLayout settles the record format of bytes that begin with head.
func (d *Draft) chooseLayout(head []byte, o PutOptions) (layout selector.Layout, err error) {
	if o.At != "" && o.Records != selector.FormatJSON {
		return layout, fail(CodeSelectorInvalid, FixCall, "at",
			"--at %s goes with the record format json, not %q", o.At, o.Records)
	}
	if o.CSV.given() && o.Records != selector.FormatCSV {
		return layout, fail(CodeSelectorInvalid, FixCall, "records", "a csv dialect goes with the record format csv, not %q", o.Records)
	}
	switch o.Records {
	case "", "auto":
		layout, d.chosen = selector.Detect(head, o.MediaType, o.Name)
		return layout, nil
	case "none":
		layout, err = selector.NewLayout(selector.FormatBytes, "", nil)
		d.chosen = "no records, as asked"
	case selector.FormatJSON, selector.FormatNDJSON, selector.FormatCSV, selector.FormatText, selector.FormatConcat:
		layout, err = selector.NewLayout(o.Records, o.At, head)
		o.CSV.fill(&layout.Dialect)
		d.chosen = o.Records + ", as asked"
	default:
		return layout, fail(CodeSelectorInvalid, FixCall, "records",
			"%q is no record format: auto, ndjson, json, csv, text, concat or none", o.Records)
	}
	return layout, err
}

// detectBytes is how much of a file auto looks at.
const detectBytes = 64 << 10

var mediaTypes = map[string]string{
	selector.FormatBytes: "application/octet-stream", selector.FormatJSON: "application/json",
	selector.FormatNDJSON: "application/x-ndjson", selector.FormatCSV: "text/csv", selector.FormatText: "text/plain",
	selector.FormatConcat: "application/x-json-stream",
}

// Publish signs a manifest over a draft and makes the artifact visible. It ends
// the draft, also when it fails. When it returns a reference, the artifact
// survives a crash; the reference is returned only after every part of it is
// durable and the catalogue has committed.
func (s *Store) Publish(ctx context.Context, d *Draft, f Facts) (_ manifest.ArtifactRef, err error) {
	var none manifest.ArtifactRef
	if d.ended {
		return none, fail(CodeSelectorInvalid, FixCall, "draft", "the draft was published or discarded already")
	}
	d.ended = true
	defer d.batch.Discard() // from then on the row keeps it, or nothing does
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return none, wireError("", err)
	}
	by, err := s.speaker(manifest.RoleManifest, &scope{d.tenant, f.SourceID}, now)
	if err != nil {
		return none, wireError("trust.policy", err)
	}
	if err := f.settle(now, s.standard(d.tenant)); err != nil {
		return none, err
	}
	predicate, err := s.predicate(ctx, d, f, by.key, now)
	if err != nil {
		return none, wireError("", err)
	}
	object, m, err := sign(predicate, by.Signer)
	if err != nil {
		return none, predicateError(err)
	}
	// Order: bytes and record map, then the envelope, then the row.
	envelope, err := d.batch.Put(ctx, bytes.NewReader(object), cas.Auto)
	if err != nil {
		return none, wireError("", err)
	}
	if err := d.batch.Commit(ctx); err != nil {
		return none, wireError("", err)
	}
	ref := m.Predicate.ArtifactRef
	row := catalogue.Artifact{
		ArtifactID: m.ArtifactID, ManifestID: m.ManifestID, Tenant: d.tenant,
		Run: ref.Scope.RunID, SourceID: ref.SourceVersion.SourceID,
		Root: d.info.Root, Size: d.info.Size, EnvelopeRoot: envelope.Root, EnvelopeSize: envelope.Size,
		CreatedAt: now,
	}
	if !f.ExpiresAt.IsZero() {
		row.ExpiresAt = &f.ExpiresAt
	}
	row.Supersedes, row.Inputs = links(&m.Predicate)
	row.Leaf = statementLeaf(manifest.PredicateManifest, m.Payload)
	if err := s.publish(ctx, d.batch, row); err != nil {
		return none, wireError(m.ArtifactID, err)
	}
	d.unsaid = s.stateSuperseded(context.WithoutCancel(ctx), m, now)
	return ref, nil
}

// Unsaid is, of a published draft, why no signed statement says of the artifacts
// that it supersedes what its own manifest says of them; nil where all is said.
func (d *Draft) Unsaid() error { return d.unsaid }

// publish commits the row of an artifact whose parts are in a batch. A sweep that
// has not heard from this process may have taken them: then it refuses.
func (s *Store) publish(ctx context.Context, b *cas.Batch, row catalogue.Artifact) error {
	if s.book == nil {
		return s.catalogue.Publish(ctx, row)
	}
	return s.catalogue.PublishUnder(ctx, b.Lease(), row)
}

// predicate states a draft and its facts in the manifest's words.
func (s *Store) predicate(ctx context.Context, d *Draft, f Facts, by manifest.PublicKey, now time.Time) (manifest.Predicate, error) {
	p, err := f.predicate(d.tenant)
	if err != nil {
		return p, err
	}
	if f.looksElsewhere() { // what is malformed is not looked for
		if err := f.Check(PutOptions{Tenant: d.tenant}); err != nil {
			return p, err
		}
	}
	if err := s.linkInputs(ctx, f.Caller, d.tenant, p.Lineage.Inputs); err != nil {
		return p, err
	}
	if err := s.linkSuperseded(ctx, f.Caller, d.tenant, p.Supersedes); err != nil {
		return p, err
	}
	if q := p.Lineage.Producer; q != nil && f.Producer.Arguments != nil {
		digest, err := s.ArgumentsDigest(d.tenant, f.Producer.Arguments)
		if err != nil {
			return p, err
		}
		q.ArgumentsDigest = &digest
	}
	if p.Nonce, err = manifest.NewNonce(rand.Reader); err != nil {
		return p, err
	}
	ref := &p.ArtifactRef
	ref.ContentHash, ref.CreatedAt = "blake3:"+d.info.Root.String(), manifest.FormatTime(now)
	ref.Retrieval = manifest.Retrieval{
		Resolver: manifest.Resolver, Consistency: manifest.Consistency, Selectors: d.selectors(),
	}
	p.Bytes = manifest.Bytes{Size: d.info.Size, MediaType: d.media, Root: d.info.Root.String(), Tree: manifest.DefaultTree}
	if d.sha256 != "" {
		p.Bytes.Also = map[string]string{"sha256": d.sha256}
	}
	p.Issuer.KeyID, p.IssuedAt = by.Fingerprint(), manifest.FormatTime(now)
	if d.mapped != nil {
		if p.Records = recordsOf(d); ref.Completeness.Records == nil {
			ref.Completeness.Records = &d.stats.Records
		}
		if p.Indexes, err = d.buildIndexes(ctx, ref.Completeness.Redactions); err != nil {
			return p, err
		}
	}
	if err := s.judge(ctx, d, f); err != nil {
		return p, err
	}
	p.Schema = d.schema
	return p, nil
}

// selectors are the ways in which a draft's bytes can be read.
func (d *Draft) selectors() []string {
	list := []string{manifest.SelectorByteRange}
	if d.mapped != nil {
		list = append(list, manifest.SelectorRecordRange)
	}
	if d.isJSON() {
		list = append(list, manifest.SelectorPointer)
	}
	if d.mapped != nil {
		list = append(list, manifest.SelectorQuery)
	}
	return list
}

// isJSON reports whether the bytes are one JSON document.
func (d *Draft) isJSON() bool {
	return d.layout.Format == selector.FormatJSON || d.media == mediaTypes[selector.FormatJSON]
}
