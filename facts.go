package leafproof

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"leafproof/manifest"
)

// Facts are what the producer of an artifact says of it: all that a manifest
// holds and the store does not find out itself. The zero value of a field is a
// fact not given. The grammar of each is that of the manifest (docs/FORMAT.md).
type Facts struct {
	// Caller is who publishes. It is asked for where the facts name other
	// artifacts: Inputs, Supersedes, and a SchemaVersion that is an artifact.
	Caller Caller

	RunID      string
	ToolCallID string
	// SchemaVersion names the schema of the bytes. If it is an artifact's id, that
	// artifact is a JSON Schema of the same tenant, and every record is checked
	// against it: the manifest says how many failed. Any other name is declared,
	// not checked.
	SchemaVersion string
	SourceID      string
	SnapshotID    string
	ObservedAt    time.Time

	// Status is complete, partial or unknown. "" lets it follow from the rest:
	// partial with Partial, with omissions, or with a producer whose outcome is
	// partial; else complete with a coverage and an outcome that is not error;
	// else unknown.
	Status string
	// Coverage says what the capture covers, as in {"region": "eu-west"}.
	Coverage map[string]any
	// Records is the number of records captured, for bytes without record
	// structure; where records were found, it must be their number.
	Records *int64
	// Omissions are what the capture should have covered and does not; Redactions
	// are what the producer removed: see [Draft.StillHeld]. They change no byte.
	Omissions  []manifest.Omission
	Redactions []manifest.Redaction
	// Partial says that the capture lacks some of its coverage.
	Partial bool

	// ExpiresAt ends the artifact's availability; ExpiresIn does so that long after
	// it was published, by the store's clock. At most one is given.
	ExpiresAt time.Time
	ExpiresIn time.Duration
	// NeverExpires lets it stand for ever also where the store has a standard time for
	// those of which nothing is said: see [WithRetention].
	NeverExpires bool

	// Lineage is capture, transform or import; "" is transform where Transform is
	// set, else capture. Inputs must exist, be of the same tenant, and be such that
	// Caller may derive from them; their content_hash and manifest_id may be left
	// empty.
	Lineage   string
	Producer  *Producer
	Inputs    []manifest.Input
	Transform *manifest.Transform
	// Supersedes names older artifacts of the same tenant that Caller may know of.
	// They may have expired, but not been deleted. A Kind of "" is reacquire. They
	// stay what they are.
	Supersedes []manifest.Supersede

	// IssuerID says in words who issues the manifest. It decides nothing.
	IssuerID string

	// within, where not nil, is when it expires at the latest.
	within *time.Time
}

// Producer is the tool call that made an artifact's bytes.
type Producer struct {
	Tool        string
	ToolVersion string
	// Arguments are the exact bytes of the call's arguments; nil: not given. The
	// manifest gets a digest of them, which is keyed per tenant: see
	// [Store.ArgumentsDigest].
	Arguments  []byte
	Outcome    string // ok, partial or error; "" is ok
	StartedAt  time.Time
	FinishedAt time.Time
}

// ParseFacts reads facts from a file: a JSON object with those members of a
// manifest's predicate that a producer may state (docs/FORMAT.md lists them).
// What the store computes is refused by name, and so are unknown members, members
// that stand twice, and more than 1 MiB or 32 levels. [Error].At is the JSON
// Pointer of the place. What the strings hold is for [Facts.Check] to say.
func ParseFacts(doc []byte) (Facts, PutOptions, error) {
	s, err := manifest.ParseStated(doc)
	if err != nil {
		return Facts{}, PutOptions{}, statedError(err)
	}
	var p statedReader
	r, c, l := s.ArtifactRef, s.ArtifactRef.Completeness, s.Lineage
	o := PutOptions{
		Tenant:    p.text(r.Scope.TenantID, "/artifact_ref/scope/tenant_id"),
		MediaType: p.text(s.Bytes.MediaType, "/bytes/media_type"),
		Records:   p.text(s.Records.Format, "/records/format"),
	}
	if s.Records.Pointer != nil {
		o.At = *s.Records.Pointer // the empty pointer is one
	}
	f := Facts{
		RunID:         p.text(r.Scope.RunID, "/artifact_ref/scope/run_id"),
		ToolCallID:    p.text(r.ToolCallID, "/artifact_ref/tool_call_id"),
		SchemaVersion: p.text(r.SchemaVersion, "/artifact_ref/schema_version"),
		SourceID:      p.text(r.SourceVersion.SourceID, "/artifact_ref/source_version/source_id"),
		SnapshotID:    p.text(r.SourceVersion.SnapshotID, "/artifact_ref/source_version/snapshot_id"),
		ObservedAt:    p.time(r.SourceVersion.ObservedAt, "/artifact_ref/source_version/observed_at"),
		Status:        p.text(c.Status, "/artifact_ref/completeness/status"),
		Coverage:      c.Coverage, Records: c.Records, Omissions: c.Omissions, Redactions: c.Redactions,
		ExpiresAt: p.time(r.ExpiresAt, "/artifact_ref/expires_at"),
		Lineage:   p.text(l.Kind, "/lineage/kind"),
		Inputs:    l.Inputs, Transform: l.Transform, Supersedes: s.Supersedes,
		IssuerID: p.text(s.Issuer.ID, "/issuer/id"),
	}
	if q := l.Producer; q != nil {
		const at = "/lineage/producer"
		f.Producer = &Producer{
			Tool: q.Tool, ToolVersion: p.text(q.ToolVersion, at+"/tool_version"), Outcome: p.text(q.Outcome, at+"/outcome"),
			StartedAt: p.time(q.StartedAt, at+"/started_at"), FinishedAt: p.time(q.FinishedAt, at+"/finished_at"),
		}
	}
	if p.err != nil {
		return Facts{}, PutOptions{}, p.err
	}
	return f, o, nil
}

// statedReader keeps the first thing that is wrong with what a file states.
type statedReader struct{ err error }

func (p *statedReader) text(s *string, at string) string {
	if s == nil {
		return ""
	}
	if *s == "" && p.err == nil {
		p.err = fail(CodeSelectorInvalid, FixCall, at, "%s: an empty string; null says that it is not given", at)
	}
	return *s
}

func (p *statedReader) time(s *string, at string) time.Time {
	if s == nil {
		return time.Time{}
	}
	t, err := manifest.ParseTime(*s)
	if err != nil && p.err == nil {
		p.err = wireError(at, err)
	}
	return t
}

// statedError gives what is wrong with stated facts its code, and the pointer of
// the place as At.
func statedError(err error) error {
	at := ""
	if e, ok := errors.AsType[*manifest.Error](err); ok {
		at, err = e.At, e.Err
	}
	return wireError(at, err)
}

// Check says whether the facts have the form that a manifest demands, before
// anything is put: all that can be said without the bytes and without a look at
// other artifacts. [Error].At is the JSON Pointer of the place in the predicate.
func (f Facts) Check(o PutOptions) error {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	if err := f.settle(time.Unix(0, 0), 0); err != nil {
		return err
	}
	p, err := f.predicate(o.Tenant)
	if err != nil {
		return err
	}
	if p.Bytes.MediaType = o.MediaType; o.MediaType == "" {
		p.Bytes.MediaType = mediaTypes["bytes"]
	}
	return predicateError(manifest.CheckStated(p))
}

// looksElsewhere reports facts that are held against records or other artifacts.
func (f Facts) looksElsewhere() bool {
	return len(f.Inputs)+len(f.Supersedes)+len(f.Redactions) > 0 || CheckID(f.SchemaVersion) == nil
}

// predicateError gives what is wrong with a predicate its code; At is the pointer
// of the place below it.
func predicateError(err error) error {
	if e, ok := errors.AsType[*manifest.Error](err); ok && e.At != "" {
		at := strings.TrimPrefix(e.At, "/predicate")
		return wireError(at, e.Err)
	}
	return wireError("", err)
}

// settle decides when an artifact that is published now expires. One of which
// nothing is said does so after the store's standard time, where that is not 0.
func (f *Facts) settle(now time.Time, standard time.Duration) error {
	const at = "/artifact_ref/expires_at"
	given := f.ExpiresIn != 0 || !f.ExpiresAt.IsZero()
	switch {
	case given && f.NeverExpires:
		return fail(CodeSelectorInvalid, FixCall, at, "%s: it expires, and never does", at)
	case !given && !f.NeverExpires && standard > 0:
		f.ExpiresIn = standard
	}
	if f.ExpiresIn != 0 {
		switch {
		case !f.ExpiresAt.IsZero():
			return fail(CodeSelectorInvalid, FixCall, at, "%s: a time and a duration are given", at)
		case f.ExpiresIn < 0:
			return fail(CodeSelectorInvalid, FixCall, at, "%s: it expires in %v, before it is published", at, f.ExpiresIn)
		}
		f.ExpiresAt, f.ExpiresIn = now.Add(f.ExpiresIn), 0
	}
	f.ExpiresAt = f.ExpiresAt.Truncate(time.Microsecond) // as the catalogue keeps it
	if f.within != nil && (f.ExpiresAt.IsZero() || f.ExpiresAt.After(*f.within)) {
		if given {
			return fail(CodeSelectorInvalid, FixCall, at, "%s: it would outlive what it was made from, which expires at %s", at, manifest.FormatTime(*f.within))
		}
		f.ExpiresAt = *f.within
	}
	return nil
}

// predicate states the facts in the manifest's words, without what follows from
// the bytes.
func (f Facts) predicate(tenant string) (manifest.Predicate, error) {
	p := manifest.Predicate{
		ArtifactRef: manifest.ArtifactRef{
			ToolCallID: optional(f.ToolCallID), SchemaVersion: optional(f.SchemaVersion),
			SourceVersion: manifest.SourceVersion{
				SourceID: optional(f.SourceID), SnapshotID: optional(f.SnapshotID), ObservedAt: optionalTime(f.ObservedAt),
			},
			Completeness: manifest.Completeness{
				Status: f.status(), Coverage: f.Coverage, Records: f.Records, Omissions: f.Omissions, Redactions: f.Redactions,
			},
			Scope:     manifest.Scope{TenantID: tenant, RunID: optional(f.RunID)},
			ExpiresAt: optionalTime(f.ExpiresAt),
		},
		Lineage:    manifest.Lineage{Kind: f.Lineage, Inputs: f.Inputs, Transform: f.Transform},
		Supersedes: slices.Clone(f.Supersedes),
		Issuer:     manifest.Issuer{ID: optional(f.IssuerID)},
	}
	if f.Lineage == "" {
		p.Lineage.Kind = "capture"
		if f.Transform != nil {
			p.Lineage.Kind = "transform"
		}
	}
	if q := f.Producer; q != nil {
		p.Lineage.Producer = &manifest.Producer{
			Tool: q.Tool, ToolVersion: optional(q.ToolVersion), Outcome: cmp.Or(q.Outcome, "ok"),
			StartedAt: optionalTime(q.StartedAt), FinishedAt: optionalTime(q.FinishedAt),
		}
	}
	seen := map[string]bool{}
	for i := range p.Supersedes {
		old := &p.Supersedes[i]
		old.Kind = cmp.Or(old.Kind, "reacquire")
		if seen[old.ArtifactID] {
			at := fmt.Sprintf("/supersedes/%d", i)
			return p, fail(CodeSelectorInvalid, FixCall, at, "%s: %s stands twice", at, old.ArtifactID)
		}
		seen[old.ArtifactID] = true
	}
	return p, nil
}

// status is how complete the capture is, where the facts do not say it themselves.
func (f Facts) status() string {
	outcome := ""
	if f.Producer != nil {
		outcome = f.Producer.Outcome
	}
	switch {
	case f.Status != "":
		return f.Status
	case f.Partial, len(f.Omissions) > 0, outcome == "partial":
		return manifest.StatusPartial
	case len(f.Coverage) > 0 && outcome != "error":
		return manifest.StatusComplete
	}
	return manifest.StatusUnknown
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(manifest.FormatTime(t))
}
