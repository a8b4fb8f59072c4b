package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// An Artifact is one whose manifest was verified: its id follows from the facts, and
// where the client has a policy, somebody whom that admits vouches for them. What its
// methods return is verified against its root. It is safe for concurrent use.
type Artifact struct {
	// Ref is the reference as it was signed.
	Ref manifest.ArtifactRef
	// Manifest is the statement; nil only where [Client.Put] says so.
	Manifest *manifest.Manifest
	// Envelope and SSH are its signatures.
	Envelope manifest.Envelope
	SSH      string
	// Verdict has what is known of it: without a policy every fact that rests on a
	// signature is unverifiable. Of the bytes it says nothing yet.
	Verdict *manifest.Verdict
	// Notes are what the server wants the producer of a new artifact to hear.
	Notes []string

	c *Client

	mu    sync.Mutex
	plain *spool // all of the content, where no proofs are shown; it was verified
}

// maxManifest is the size of a manifest with both signatures.
const maxManifest = manifest.MaxEnvelope + 16<<10

// Open asks for the manifest of an artifact and verifies it.
func (c *Client) Open(ctx context.Context, id string) (*Artifact, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	b, err := c.textOf(ctx, &request{method: "GET", path: "/v1/artifacts/" + id + "/manifest"}, maxManifest)
	if err != nil {
		return nil, err
	}
	return c.verify(id, b)
}

// OpenRef is Open for who holds a reference, which must be the signed one: a field in
// which it differs is an [ErrAltered] that names it.
func (c *Client) OpenRef(ctx context.Context, ref manifest.ArtifactRef) (*Artifact, error) {
	a, err := c.Open(ctx, ref.ArtifactID)
	if err != nil {
		return nil, err
	}
	return a, sameRef(ref, a.Ref)
}

// Stat is Open, and asks for the reference too: one that the server shows and that is
// not the signed one is [ErrAltered].
func (c *Client) Stat(ctx context.Context, id string) (*Artifact, error) {
	a, err := c.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := c.text(ctx, &request{method: "GET", path: "/v1/artifacts/" + id})
	if err != nil {
		return nil, err
	}
	ref, err := manifest.ParseRef(bytes.TrimSpace(b))
	if err != nil {
		return nil, refuse(ErrProtocol, "", "%s", manifest.Printable(err.Error()))
	}
	return a, sameRef(ref, a.Ref)
}

func sameRef(presented, signed manifest.ArtifactRef) error {
	err := manifest.CheckRef(presented, signed)
	if err == nil {
		return nil
	}
	at := ""
	if e, ok := errors.AsType[*manifest.Error](err); ok {
		at = e.At
	}
	return refuse(ErrAltered, at, "the reference differs from the signed one there")
}

// checkID says whether a text is the id of an artifact.
func checkID(id string) error {
	rest, ok := strings.CutPrefix(id, "art_")
	if !ok || len(rest) != 32 || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return &Error{Code: "ref_not_found", Action: "fix_call", Message: "that is no id of an artifact: art_ and 32 letters and digits", At: manifest.Printable(id), offset: -1}
	}
	return nil
}

// verify judges a manifest that should be that of an artifact.
func (c *Client) verify(id string, text []byte) (*Artifact, error) {
	var in struct {
		Manifest json.RawMessage `json:"manifest"`
		SSH      string          `json:"ssh"`
	}
	if err := decode(text, &in); err != nil {
		return nil, err
	}
	env, err := manifest.ParseEnvelope(in.Manifest)
	if err != nil {
		return nil, refuse(ErrProtocol, id, "the envelope: %s", manifest.Printable(err.Error()))
	}
	m, facts, err := manifest.VerifyEnvelope(env, in.SSH, c.o.Policy, c.o.Now())
	switch {
	case errors.Is(err, manifest.ErrID), errors.Is(err, manifest.ErrDigest), errors.Is(err, manifest.ErrSignature):
		return nil, refuse(ErrMismatch, id, "the manifest: %s", manifest.Printable(err.Error()))
	case err != nil:
		return nil, refuse(ErrProtocol, id, "the manifest: %s", manifest.Printable(err.Error()))
	case m.ArtifactID != id:
		return nil, refuse(ErrArtifact, id, "the manifest is that of %s", m.ArtifactID)
	}
	a := &Artifact{Ref: m.Predicate.ArtifactRef, Manifest: m, Envelope: env, SSH: in.SSH, Verdict: manifest.NewVerdict(), c: c}
	a.Verdict.Set(facts...)
	return a, c.trusted(id, a.Verdict)
}

// trusted holds the signature of a verdict to the policy.
func (c *Client) trusted(id string, v *manifest.Verdict) error {
	for _, name := range []string{manifest.FactSignature, manifest.FactKey} {
		switch f, _ := v.Fact(name); {
		case f.State == manifest.Mismatch:
			return refuse(ErrMismatch, id, "its signature: %s", manifest.Printable(f.Reason))
		case c.o.Policy != nil && f.State != manifest.Attested:
			return refuse(ErrUntrusted, id, "%s", manifest.Printable(f.Reason))
		}
	}
	return nil
}

// ID is the artifact's id.
func (a *Artifact) ID() string { return a.Ref.ArtifactID }

// Size is how many bytes it has.
func (a *Artifact) Size() int64 { return a.Manifest.Size }

// Root is the BLAKE3 hash of its bytes.
func (a *Artifact) Root() merkle.Root { return a.Manifest.Root }

// Records is how many records it has, as was signed; 0 where it has no record
// structure.
func (a *Artifact) Records() int64 {
	if r := a.Manifest.Predicate.Records; r != nil {
		return r.Count
	}
	return 0
}

// layout is how its records stand in it.
func (a *Artifact) layout() (selector.Layout, bool) {
	r := a.Manifest.Predicate.Records
	if r == nil {
		return selector.Layout{}, false
	}
	return bundle.Layout(r), true
}

// path is that of the artifact, or of something below it.
func (a *Artifact) path(below string) string { return "/v1/artifacts/" + a.ID() + below }

// Close gives back what was kept aside of content that no proof came with.
func (a *Artifact) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.plain == nil {
		return nil
	}
	err := a.plain.close()
	a.plain = nil
	return err
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}
