package leafproof

import (
	"context"
	"errors"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
)

// A NameVersion is one version of a name: what "latest" meant when it was asked.
// Whoever uses a name keeps its artifact's id, which never means another artifact.
type NameVersion struct {
	Tenant     string    `json:"tenant_id"`
	Name       string    `json:"name"`
	Seq        int64     `json:"seq"` // 1 for the first version, then one more each
	ArtifactID string    `json:"artifact_id"`
	SetBy      string    `json:"set_by"`
	SetAt      time.Time `json:"set_at"`
}

// AnySeq lets [Store.SetName] set a name whatever its version is.
const AnySeq = catalogue.AnySeq

// SetName lets a tenant's name ("" is DefaultTenant) point to an artifact of his
// from now on, if the last version of the name is ifSeq: 0 where it has none, AnySeq
// for any. Else the error is name_conflict, and nothing changed. Who may grant
// leave for the artifact, and for the one that the name points to until now, may do
// so. No version is ever changed or removed.
func (s *Store) SetName(ctx context.Context, who Caller, tenant, name, id string, ifSeq int64) (NameVersion, error) {
	tenant, err := checkName(tenant, name)
	if err != nil {
		return NameVersion{}, err
	}
	if ifSeq < AnySeq {
		return NameVersion{}, fail(CodeSelectorInvalid, FixCall, "if_seq", "%d is no version of a name: 0 is none, 1 the first", ifSeq)
	}
	a, err := s.linked(ctx, who, tenant, id, gate.Grant)
	if err != nil {
		return NameVersion{}, err
	}
	for {
		last, err := s.catalogue.Name(ctx, tenant, name, 0)
		if errors.Is(err, catalogue.ErrNotFound) {
			err = nil
		}
		if err == nil && last.Seq > 0 {
			_, _, err = s.mayName(ctx, who, last, gate.Grant)
		}
		if err != nil {
			return NameVersion{}, wireError(name, err)
		}
		want := ifSeq
		if want == AnySeq {
			want = last.Seq // of which it is known that he may move it
		}
		now, err := s.catalogue.Now(ctx)
		if err != nil {
			return NameVersion{}, wireError(name, err)
		}
		n, err := s.catalogue.SetName(ctx, catalogue.Name{
			Tenant: tenant, Name: name, ArtifactID: a.row.ArtifactID, By: string(who.Principal), At: now,
		}, want)
		if errors.Is(err, catalogue.ErrConflict) && ifSeq == AnySeq {
			continue
		}
		return nameVersion(n), wireError(name, err)
	}
}

// Name returns the last version of a tenant's name ("" is DefaultTenant), or version
// seq where that is not 0. It is told to whoever may know of the artifact; to others
// there is no such name.
func (s *Store) Name(ctx context.Context, who Caller, tenant, name string, seq int64) (NameVersion, error) {
	tenant, err := checkName(tenant, name)
	if err != nil {
		return NameVersion{}, err
	}
	if seq < 0 {
		return NameVersion{}, fail(CodeSelectorInvalid, FixCall, "seq", "%d is no version of a name", seq)
	}
	n, err := s.catalogue.Name(ctx, tenant, name, seq)
	if errors.Is(err, catalogue.ErrNotFound) {
		// An authority that does not answer must not tell which names exist.
		_, err := s.gate.Disclose(ctx, gate.Request{Principal: who.Principal, Tenant: tenant, Action: gate.Stat, Purpose: who.Purpose})
		if err != nil && !refused(err) {
			return NameVersion{}, wireError(name, err)
		}
		return NameVersion{}, noSuchName(name)
	}
	if err != nil {
		return NameVersion{}, wireError(name, err)
	}
	a, permit, err := s.mayName(ctx, who, n, gate.Stat)
	if err == nil {
		err = a.disclosed(ctx, permit, Shown{Facts: true})
	}
	if err != nil {
		return NameVersion{}, err
	}
	return nameVersion(n), nil
}

// mayName asks the gate about the artifact that a name points to, also one that was
// deleted. Who may not know of it does not hear of the name.
func (s *Store) mayName(ctx context.Context, who Caller, n catalogue.Name, action gate.Action) (*artifact, gate.Permit, error) {
	a, err := s.row(ctx, who, n.ArtifactID, action)
	var permit gate.Permit
	if err == nil {
		permit, err = a.permit(ctx)
	}
	if err != nil && CodeOf(err) != CodeAuthorityUnavailable {
		err = noSuchName(n.Name)
	}
	return a, permit, err
}

func checkName(tenant, name string) (string, error) {
	if tenant == "" {
		tenant = DefaultTenant
	}
	if err := manifest.CheckName(tenant); err != nil {
		return "", wireError("tenant", err)
	}
	return tenant, wireError("name", manifest.CheckName(name))
}

func noSuchName(name string) error {
	return fail(CodeRefNotFound, FixCall, name, "%s: no such name", name)
}

func nameVersion(n catalogue.Name) NameVersion {
	return NameVersion{Tenant: n.Tenant, Name: n.Name, Seq: n.Seq, ArtifactID: n.ArtifactID, SetBy: n.By, SetAt: n.At}
}
