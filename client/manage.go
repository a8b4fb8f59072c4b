package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// An Entry is an artifact in a listing. It is the server's word: see [Client.Open].
type Entry struct {
	Seq        int64     `json:"seq"`
	ArtifactID string    `json:"artifact_id"`
	Tenant     string    `json:"tenant_id"`
	RunID      *string   `json:"run_id"`
	SourceID   *string   `json:"source_id"`
	Size       int64     `json:"size"`
	CreatedAt  time.Time `json:"created_at"`
}

// List yields the artifacts that the principal may know of, in the order in which they
// were published. A tenant other than "" is for the owner to name.
func (c *Client) List(ctx context.Context, tenant string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		q := url.Values{"limit": {"1000"}}
		if tenant != "" {
			q.Set("tenant", tenant)
		}
		for {
			var page struct {
				Artifacts []Entry `json:"artifacts"`
				Next      string  `json:"next"`
			}
			if err := c.value(ctx, &request{method: "GET", path: "/v1/artifacts", query: q}, &page); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Artifacts {
				if !yield(e, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			if page.Next == q.Get("cursor") { // or it would go round and round
				yield(Entry{}, refuse(ErrProtocol, "/next", "a listing that does not go on"))
				return
			}
			q.Set("cursor", page.Next)
		}
	}
}

// Delete ends an artifact; with cascade, what was derived from it too.
func (c *Client) Delete(ctx context.Context, id, reason string, cascade bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	q := url.Values{}
	if reason != "" {
		q.Set("reason", reason)
	}
	if cascade {
		q.Set("cascade", "true")
	}
	return c.nothing(ctx, &request{method: "DELETE", path: "/v1/artifacts/" + id, query: q})
}

// A Derivation says which records make a new artifact.
type Derivation struct {
	Where      string     `json:"where,omitempty"`
	Select     []Column   `json:"select,omitempty"`
	RunID      string     `json:"run_id,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	Place      string     `json:"place,omitempty"`
}

// Column is a part of each record.
type Column struct {
	Name string `json:"name,omitempty"`
	Path string `json:"path"`
}

// Derived is an artifact that was made of another one.
type Derived struct {
	*Artifact
	Answer *selector.Answer
	Spec   json.RawMessage // what was done, as its digest in the manifest says
}

// Derive lets the server make an artifact of some of the records. The manifest of the
// new one must name this one as its input, and the spec by its digest. That its bytes
// are what the spec says is the server's word: it is deterministic, and who has both
// can make it again.
func (a *Artifact) Derive(ctx context.Context, d Derivation) (*Derived, error) {
	q := &request{method: "POST", path: a.path("/derive"), json: d, once: true, want: []int{http.StatusCreated}}
	b, err := a.c.text(ctx, q)
	if err != nil {
		return nil, err
	}
	var out struct {
		Ref    json.RawMessage  `json:"ref"`
		Answer *selector.Answer `json:"answer"`
		Spec   json.RawMessage  `json:"spec"`
	}
	if err := decode(b, &out); err != nil {
		return nil, err
	}
	ref, err := manifest.ParseRef(out.Ref)
	if err != nil || out.Answer == nil {
		return nil, refuse(ErrProtocol, "/ref", "the new reference or the answer is missing")
	}
	made, err := a.c.OpenRef(ctx, ref)
	if err != nil {
		return nil, err
	}
	l := made.Manifest.Predicate.Lineage
	switch {
	case len(l.Inputs) != 1 || l.Inputs[0].ArtifactID != a.ID() || l.Inputs[0].ContentHash != a.Ref.ContentHash || l.Inputs[0].ManifestID != a.Manifest.ManifestID:
		return nil, refuse(ErrArtifact, ref.ArtifactID, "it was not made of %s", a.ID())
	case l.Transform == nil || l.Transform.SpecDigest != merkle.Sum(out.Spec).String():
		return nil, refuse(ErrAltered, "/lineage/transform/spec_digest", "the spec is not the one that was signed")
	}
	return &Derived{made, out.Answer, out.Spec}, a.about(out.Answer)
}

// A Need is what a task asks of evidence.
type Need struct {
	Require       []string              `json:"require,omitempty"` // K=V
	Optional      []string              `json:"optional,omitempty"`
	MaxAgeSeconds int64                 `json:"max_age_seconds,omitempty"`
	AsOf          *time.Time            `json:"as_of,omitempty"`
	Actions       []string              `json:"actions,omitempty"`
	Ref           *manifest.ArtifactRef `json:"ref,omitempty"`
	Deep          bool                  `json:"deep,omitempty"`
}

// Judged is one of the three verdicts of an [Assessment].
type Judged struct {
	State     string `json:"state"` // holds, fails or unknown
	Code      string `json:"code"`
	Reason    string `json:"reason"`
	Retryable bool   `json:"retryable"`
	Action    string `json:"action"`
}

// Point is a fact that does not hold.
type Point struct {
	What     string `json:"what"`
	Found    string `json:"found"`
	Required bool   `json:"required"`
	Code     string `json:"code"`
	Action   string `json:"action"`
}

// Assessment is the server's judgement of an artifact as evidence.
type Assessment struct {
	ArtifactID    string  `json:"artifact_id"`
	Decision      string  `json:"decision"` // admit, qualify, defer or refuse
	Identity      Judged  `json:"identity"`
	Applicability Judged  `json:"applicability"`
	Authority     Judged  `json:"authority"`
	Unmet         []Point `json:"unmet"`
	AgeSeconds    *int64  `json:"age_seconds"`
	AssessedAt    string  `json:"assessed_at"`
	Refetch       *struct {
		Allowed bool     `json:"allowed"`
		Reason  string   `json:"reason"`
		Missing []string `json:"missing"`
	} `json:"refetch"`
	SupersededBy []selector.Successor `json:"superseded_by"`
	Retries      int                  `json:"retries"`
}

// Assess asks whether an artifact serves a need. It is asked by id, since it also tells
// of artifacts that cannot be opened any more.
func (c *Client) Assess(ctx context.Context, id string, n Need) (*Assessment, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var out Assessment
	if err := c.value(ctx, &request{method: "POST", path: "/v1/artifacts/" + id + "/assess", json: n}, &out); err != nil {
		return nil, err
	}
	if out.ArtifactID != id {
		return nil, refuse(ErrArtifact, id, "the assessment is of %s", manifest.Printable(out.ArtifactID))
	}
	switch out.Decision {
	case "admit", "qualify", "defer", "refuse":
		return &out, nil
	}
	return nil, refuse(ErrProtocol, "/decision", "%s is none", manifest.Printable(out.Decision))
}

// GrantSpec is leave that is given.
type GrantSpec struct {
	Principal string     `json:"principal"`
	Action    string     `json:"action"`
	Pattern   string     `json:"pattern"`
	Records   *[2]int64  `json:"records,omitempty"`
	Purpose   string     `json:"purpose,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
}

// Grant is leave that was given.
type Grant struct {
	ID string `json:"id"`
	GrantSpec
	Parent    string     `json:"parent"`
	Under     string     `json:"under"`
	GrantedBy string     `json:"granted_by"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

// Grants lists grants; principal "" is one's own, and for the owner everybody's.
func (c *Client) Grants(ctx context.Context, principal string) ([]Grant, error) {
	q := url.Values{}
	if principal != "" {
		q.Set("principal", principal)
	}
	var out struct {
		Grants []Grant `json:"grants"`
	}
	err := c.value(ctx, &request{method: "GET", path: "/v1/grants", query: q}, &out)
	return out.Grants, err
}

// Grant gives leave.
func (c *Client) Grant(ctx context.Context, g GrantSpec) (Grant, error) {
	var out Grant
	err := c.value(ctx, &request{method: "POST", path: "/v1/grants", json: g, once: true, want: []int{http.StatusCreated}}, &out)
	return out, err
}

// Revoke takes leave back: when it returns, nothing is shown under it any more.
func (c *Client) Revoke(ctx context.Context, id string) error {
	rest, ok := strings.CutPrefix(id, "gr_")
	if !ok || rest == "" || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return &Error{Code: "ref_not_found", Action: "fix_call", At: manifest.Printable(id), Message: "that is no grant's id", offset: -1}
	}
	return c.nothing(ctx, &request{method: "DELETE", path: "/v1/grants/" + id})
}

// NameVersion is what a name points to. It is the server's word.
type NameVersion struct {
	Tenant     string    `json:"tenant_id"`
	Name       string    `json:"name"`
	Seq        int64     `json:"seq"`
	ArtifactID string    `json:"artifact_id"`
	SetBy      string    `json:"set_by"`
	SetAt      time.Time `json:"set_at"`
}

// Name is what a name points to: in its version seq, or now with 0.
func (c *Client) Name(ctx context.Context, name string, seq int64) (NameVersion, error) {
	q := url.Values{}
	if seq != 0 {
		q.Set("seq", strconv.FormatInt(seq, 10))
	}
	return c.name(ctx, &request{method: "GET", query: q}, name)
}

// AnySeq lets [Client.SetName] set a name whatever its version is.
const AnySeq = -1

// SetName lets a name point to an artifact, if its last version is ifSeq: 0 where it
// has none. Else the error has the code name_conflict.
func (c *Client) SetName(ctx context.Context, name, id string, ifSeq int64) (NameVersion, error) {
	body := struct {
		ArtifactID string `json:"artifact_id"`
		IfSeq      *int64 `json:"if_seq,omitempty"`
	}{ArtifactID: id}
	if ifSeq != AnySeq {
		body.IfSeq = &ifSeq
	}
	return c.name(ctx, &request{method: "PUT", json: body, once: true}, name)
}

func (c *Client) name(ctx context.Context, q *request, name string) (NameVersion, error) {
	var out NameVersion
	if err := manifest.CheckName(name); err != nil {
		return out, err
	}
	q.path = "/v1/names/" + name
	err := c.value(ctx, q, &out)
	if err == nil && (out.Name != name || checkID(out.ArtifactID) != nil) {
		err = refuse(ErrProtocol, name, "the answer is about another name")
	}
	return out, err
}
