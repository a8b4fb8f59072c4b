package leafproof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// CheckID refuses a string that cannot be an artifact's id: "art_" and 32
// characters of lower-case base32.
func CheckID(id string) error {
	digits, ok := strings.CutPrefix(id, "art_")
	if ok && len(digits) == 32 && strings.Trim(digits, "abcdefghijklmnopqrstuvwxyz234567") == "" {
		return nil
	}
	return fail(CodeRefMalformed, FixCall, "id", "%q is not an artifact id: art_ and 32 of a-z2-7", id)
}

// artifact is one artifact on its way to a caller: its row, its manifest, and the
// request that every look at it is bound to.
type artifact struct {
	store   *Store
	row     catalogue.Artifact
	signed  signedManifest
	m       *manifest.Manifest
	request gate.Request
	later   []selector.Successor // what takes its place
}

// find returns the artifact that who may take action on. Whatever it finds out is
// told only to somebody whom the gate lets know: to others the artifact does not exist.
func (s *Store) find(ctx context.Context, who Caller, id string, action gate.Action) (*artifact, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	row, err := s.catalogue.Artifact(ctx, id)
	if errors.Is(err, catalogue.ErrNotFound) {
		return nil, s.absent(ctx, who, id, action)
	}
	if err != nil {
		return nil, wireError(id, err)
	}
	a := s.artifact(who, row, action)
	// Before the manifest is looked at: a stranger must not measure that it is there.
	if err := a.knock(ctx); err != nil {
		return nil, err
	}
	if err := s.available(ctx, row); err != nil {
		return nil, a.tell(ctx, err)
	}
	if a.signed, a.m, err = s.load(ctx, row); err != nil {
		return nil, a.tell(ctx, err)
	}
	if a.later, err = a.successors(ctx); err != nil {
		return nil, a.tell(ctx, err)
	}
	if a.m.ArtifactID != id { // a damaged index of the catalogue leads to another row
		return nil, a.tell(ctx, fmt.Errorf("%w: the catalogue leads to %s", errManifest, a.m.ArtifactID))
	}
	return a, nil
}

// absent is the answer to an id that no row has. The gate is asked all the same: an
// authority that does not answer must not tell which ids exist.
func (s *Store) absent(ctx context.Context, who Caller, id string, action gate.Action) error {
	_, err := s.gate.Disclose(ctx, gate.Request{Principal: who.Principal, Artifact: id, Action: action, Purpose: who.Purpose})
	if err != nil && !errors.Is(err, gate.ErrDenied) {
		return wireError(id, err)
	}
	return notFound(id)
}

// artifact begins an artifact with its row.
func (s *Store) artifact(who Caller, row catalogue.Artifact, action gate.Action) *artifact {
	a := &artifact{store: s, row: row, request: gate.Request{
		Principal: who.Principal, Tenant: row.Tenant, Artifact: row.ArtifactID, Action: action, Purpose: who.Purpose,
	}}
	if row.Run != nil {
		a.request.Run = *row.Run
	}
	return a
}

// available refuses an artifact that was deleted or has expired.
func (s *Store) available(ctx context.Context, row catalogue.Artifact) error {
	if row.DeletedAt != nil {
		reason := ""
		if row.DeleteReason != "" {
			reason = ": " + row.DeleteReason
		}
		return fail(CodeArtifactDeleted, Stop, row.ArtifactID, "%s was deleted at %s%s",
			row.ArtifactID, row.DeletedAt.UTC().Format(time.RFC3339), reason)
	}
	if row.ExpiresAt == nil {
		return nil
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return err
	}
	if !now.Before(*row.ExpiresAt) {
		return fail(CodeArtifactExpired, Refetch, row.ArtifactID, "%s expired at %s",
			row.ArtifactID, row.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return nil
}

// refused reports whether an error is a decision of the authority, which says no.
func refused(err error) bool {
	code := CodeOf(err)
	return code == CodeRefNotFound || code == CodeAccessRevoked || errors.Is(err, gate.ErrDenied) || errors.Is(err, gate.ErrRevoked)
}

// noByte are the ranges of a request that will show none.
var noByte = []merkle.Range{{}}

// knock asks whether any of what is asked for may happen at all.
func (a *artifact) knock(ctx context.Context) error {
	_, err := a.permit(ctx, noByte...)
	return err
}

// tell returns err to a caller who may know of the artifact, and the refusal to others.
// That nothing stands where a pointer points says something of the whole document.
func (a *artifact) tell(ctx context.Context, err error) error {
	about := noByte
	if a.m != nil && (errors.Is(err, selector.ErrPointer) || errors.Is(err, selector.ErrUndecidable)) {
		about = []merkle.Range{{Start: 0, End: a.m.Size}}
	}
	if _, refusal := a.permit(ctx, about...); refusal != nil {
		return refusal
	}
	return wireError(a.row.ArtifactID, err)
}

// permit asks the gate for the leave to disclose ranges of the artifact's bytes.
func (a *artifact) permit(ctx context.Context, ranges ...merkle.Range) (gate.Permit, error) {
	a.request.Ranges, a.request.Records = ranges, nil
	p, err := a.store.gate.Disclose(ctx, a.request)
	if e, ok := errors.AsType[*gate.Error](err); ok && errors.Is(err, gate.ErrRecords) {
		// Leave for some records: look whether all lies in them.
		if a.request.Records, err = a.among(ctx, ranges, e.Records); err == nil {
			p, err = a.store.gate.Disclose(ctx, a.request)
		}
	}
	if errors.Is(err, gate.ErrDenied) {
		return p, notFound(a.row.ArtifactID)
	}
	return p, wireError(a.row.ArtifactID, err)
}

// among returns those of some runs of records that hold all of ranges. What is
// between two records of a run, such as a comma, counts as theirs.
func (a *artifact) among(ctx context.Context, ranges, records []merkle.Range) ([]merkle.Range, error) {
	beyond := a.request.Beyond("the leave is for some records alone")
	if len(ranges) == 0 || a.m == nil || a.m.Predicate.Records == nil {
		return nil, beyond
	}
	file, m, _, err := a.records(ctx)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var held []merkle.Range
	var bytes []merkle.Range
	for _, r := range records {
		r.End = min(r.End, m.Records())
		if r.Start >= r.End {
			continue
		}
		h, err := hull(ctx, m, r)
		if err != nil {
			return nil, err
		}
		held, bytes = append(held, r), append(bytes, h...)
	}
	var out []merkle.Range
	for _, want := range ranges {
		i := slices.IndexFunc(bytes, func(b merkle.Range) bool { return b.Start <= want.Start && want.End <= b.End })
		if i < 0 {
			return nil, beyond
		}
		if !slices.Contains(out, held[i]) {
			out = append(out, held[i])
		}
	}
	return out, nil
}

// allows refuses a selector that the manifest does not list.
func (a *artifact) allows(sel string) error {
	for _, s := range a.m.Predicate.ArtifactRef.Retrieval.Selectors {
		if s == sel {
			return nil
		}
	}
	code := CodeSelectorInvalid
	if sel == manifest.SelectorRecordRange || sel == manifest.SelectorQuery {
		code = CodeNotRecords
	}
	return fail(code, FixCall, a.row.ArtifactID, "%s has no %s selector: it offers %s", a.row.ArtifactID, sel,
		strings.Join(a.m.Predicate.ArtifactRef.Retrieval.Selectors, ", "))
}

// data opens the artifact's bytes.
func (a *artifact) data(ctx context.Context) (*cas.Reader, error) {
	return a.store.objects.Open(ctx, cas.TenantOf(a.row.Tenant), a.m.Root, a.m.Size)
}

// records opens the artifact's record map.
func (a *artifact) records(ctx context.Context) (*cas.Reader, *selector.Map, selector.Layout, error) {
	rec := a.m.Predicate.Records
	if rec == nil || rec.Map == nil {
		return nil, nil, selector.Layout{}, fail(CodeNotRecords, FixCall, a.row.ArtifactID, "%s has no records", a.row.ArtifactID)
	}
	layout := bundle.Layout(rec)
	root, err := merkle.ParseRoot(rec.Map.Root)
	if err != nil {
		return nil, nil, layout, err
	}
	r, err := a.store.objects.Open(ctx, cas.TenantOf(a.row.Tenant), root, rec.Map.Size)
	if err != nil {
		return nil, nil, layout, err
	}
	m, err := selector.OpenMap(r, rec.Map.Size, a.m.Root, a.m.Size, layout)
	if err != nil {
		r.Close()
		return nil, nil, layout, err
	}
	return r, m, layout, nil
}

// Stat is what [Store.Resolve] tells of an artifact.
type Stat struct {
	Ref        manifest.ArtifactRef
	Manifest   *manifest.Manifest
	ManifestID string
	// SupersededBy are the artifacts that take its place, the latest first, as far as
	// the caller may know of them.
	SupersededBy []selector.Successor
	// InputsDeleted are the artifacts that it was made from and that were deleted
	// since, as far as the caller may know of them.
	InputsDeleted []string
	// Indexes are those that the manifest names, and those that were added later.
	Indexes []Index
}

// Resolve returns what is known of an artifact.
func (s *Store) Resolve(ctx context.Context, who Caller, id string) (*Stat, error) {
	a, err := s.find(ctx, who, id, gate.Stat)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := a.inputsDeleted(ctx)
	if err != nil {
		return nil, wireError(id, err)
	}
	indexes, err := a.indexes(ctx)
	if err != nil {
		return nil, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true}); err != nil {
		return nil, err
	}
	return &Stat{
		Ref: a.m.Predicate.ArtifactRef, Manifest: a.m, ManifestID: a.m.ManifestID, SupersededBy: a.later, InputsDeleted: gone, Indexes: indexes,
	}, nil
}

// ResolveRef is [Store.Resolve] for a reference that somebody presents: if any of
// its ten fields is not what was signed, the error is ref_altered and names them
// as JSON Pointers.
func (s *Store) ResolveRef(ctx context.Context, who Caller, ref manifest.ArtifactRef) (*Stat, error) {
	st, err := s.Resolve(ctx, who, ref.ArtifactID)
	if err != nil {
		return nil, err
	}
	if err := manifest.CheckRef(ref, st.Ref); err != nil {
		return nil, wireError(ref.ArtifactID, err)
	}
	return st, nil
}

// An Entry is one row of a listing.
type Entry struct {
	Seq        int64     `json:"seq"`
	ArtifactID string    `json:"artifact_id"`
	Tenant     string    `json:"tenant_id"`
	RunID      *string   `json:"run_id"`
	SourceID   *string   `json:"source_id"`
	Size       int64     `json:"size"`
	CreatedAt  time.Time `json:"created_at"`
}

// Tenants returns the tenants whose listing who may see, in alphabetical order.
func (s *Store) Tenants(ctx context.Context, who Caller) ([]string, error) {
	all, err := s.catalogue.Tenants(ctx)
	if err != nil {
		return nil, wireError("", err)
	}
	var out []string
	for _, t := range all {
		_, err := s.gate.Disclose(ctx, gate.Request{Principal: who.Principal, Tenant: t, Action: gate.Stat, Purpose: who.Purpose})
		switch {
		case err == nil:
			out = append(out, t)
		case !refused(err):
			return nil, wireError("", err)
		}
	}
	return out, nil
}

// List returns up to limit artifacts (1 to 10,000) of a tenant ("" is DefaultTenant) in the order in which they were
// published, from the first behind after (0 for the beginning) on. Those that were
// deleted or have expired, and those that who may not see, are left out. The
// second result says where to go on; it is 0 at the end, and for a caller who may
// not list the tenant, to whom it has no artifacts.
func (s *Store) List(ctx context.Context, who Caller, tenant string, after int64, limit int) ([]Entry, int64, error) {
	if tenant == "" {
		tenant = DefaultTenant
	}
	permit, err := s.gate.Disclose(ctx, gate.Request{Principal: who.Principal, Tenant: tenant, Action: gate.Stat, Purpose: who.Purpose})
	switch {
	case refused(err):
		return nil, 0, nil
	case err != nil:
		return nil, 0, wireError("", err)
	}
	places := s.positions(who)
	after = places.hide(after)
	rows, err := s.catalogue.List(ctx, tenant, after, limit)
	if err != nil {
		return nil, 0, wireError("", err)
	}
	var out []Entry
	for _, row := range rows {
		after = row.Seq
		a := s.artifact(who, row, gate.Stat)
		if _, err := a.permit(ctx); refused(err) {
			continue
		} else if err != nil {
			return nil, 0, err
		}
		if err := s.available(ctx, row); err != nil {
			continue
		}
		out = append(out, Entry{places.show(row.Seq), row.ArtifactID, row.Tenant, row.Run, row.SourceID, row.Size, row.CreatedAt})
	}
	if len(rows) < limit {
		after = 0
	}
	if err := s.disclosed(ctx, permit, tenant, "", Shown{Rows: new(int64(len(out)))}); err != nil {
		return nil, 0, err
	}
	return out, places.show(after), nil
}
