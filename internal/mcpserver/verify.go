package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
)

type verifyArgs struct {
	Bundle         *string `json:"bundle"`
	Artifact       target  `json:"artifact_id"`
	ExpectArtifact target  `json:"expect_artifact_id"`
	At             *string `json:"at"`
}

// verdictView is what a model is told of a verification.
type verdictView struct {
	DataOnly   bool       `json:"data_only"`
	ArtifactID string     `json:"artifact_id,omitempty"` // which the bundle is about
	Claim      string     `json:"claim,omitempty"`
	Verdict    string     `json:"verdict"` // holds, unverifiable or mismatch
	Sentence   string     `json:"sentence"`
	Facts      []factView `json:"facts"`
	Authority  string     `json:"authority"`
}

type factView struct {
	Fact   string `json:"fact"`
	State  string `json:"state"`
	By     string `json:"by,omitempty"`
	Role   string `json:"role,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// untold are the facts whose details name tenants, keys or digests.
var untold = map[string]bool{manifest.FactKey: true, manifest.FactScope: true, manifest.FactCommit: true, manifest.FactSignature: true, manifest.FactIndex: true}

// digests are fingerprints of keys, and digests in hex.
var digests = regexp.MustCompile(`SHA256:[A-Za-z0-9+/]{43}|[0-9a-f]{64}`)

// tenants is how a reason names one.
var tenants = regexp.MustCompile(`\b(tenant|artifact is of) "?[A-Za-z0-9][A-Za-z0-9._:-]*"?`)

func told(s string) string {
	return cut(tenants.ReplaceAllString(digests.ReplaceAllString(manifest.Printable(s), "…"), "$1 …"))
}

// verify checks a bundle by the policy of the store.
func (f *face) verify(ctx context.Context, a verifyArgs) (any, error) {
	r, size, err := f.bundle(ctx, a)
	if err != nil {
		return nil, err
	}
	if c, ok := r.(*source); ok {
		defer c.close()
	}
	o := bundle.Options{Policy: f.store.Policy(), At: time.Now(), ExpectArtifact: string(a.ExpectArtifact)}
	if a.At != nil {
		if o.At, err = time.Parse(time.RFC3339Nano, *a.At); err != nil || o.At.IsZero() {
			return nil, invalid("/at", "/at: not a time like 2026-11-30T12:00:00Z")
		}
	}
	res, err := bundle.Verify(r, size, o)
	if errors.Is(err, bundle.ErrMalformed) {
		return nil, &leafproof.Error{
			Code: leafproof.CodeRequestInvalid, Message: "the bundle is not well-formed: " + told(err.Error()), Action: leafproof.FixCall, At: "/bundle",
		}
	}
	if err != nil {
		return nil, err
	}
	return verdict(res), nil
}

// bundle is the file to verify: what the call brought, or the bytes of an artifact.
func (f *face) bundle(ctx context.Context, a verifyArgs) (io.ReaderAt, int64, error) {
	switch {
	case (a.Bundle == nil) == (a.Artifact == ""):
		return nil, 0, invalid("/bundle", "one of bundle, in base64, and artifact_id, of an artifact that is a bundle, is needed")
	case a.Bundle != nil:
		b, err := base64.StdEncoding.Strict().DecodeString(*a.Bundle)
		if err != nil {
			return nil, 0, invalid("/bundle", "/bundle: not base64 with padding and without line ends")
		}
		return bytes.NewReader(b), int64(len(b)), nil
	}
	src, err := f.source(ctx, string(a.Artifact))
	if err != nil {
		return nil, 0, err
	}
	return src, src.content.Size(), nil
}

func verdict(res *bundle.Result) *verdictView {
	v := &verdictView{DataOnly: true, Sentence: told(res.Verdict.Sentence()), Facts: []factView{}, Authority: manifest.AuthorityLine}
	switch res.Verdict.Exit() {
	case 0:
		v.Verdict = "holds"
	case 2:
		v.Verdict = "unverifiable"
	default:
		v.Verdict = "mismatch"
	}
	if m := res.Manifest; m != nil {
		v.ArtifactID, v.Claim = m.ArtifactID, told(res.Claim.String())
	}
	for _, fact := range res.Verdict.Facts {
		w := factView{Fact: fact.Name, State: string(fact.State), By: told(fact.By), Role: fact.Role, Reason: told(fact.Reason)}
		if !untold[fact.Name] {
			w.Detail = told(fact.Detail)
		}
		v.Facts = append(v.Facts, w)
	}
	return v
}
