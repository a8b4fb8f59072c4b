package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// A Part says which part of an artifact is wanted: one of the first three.
type Part struct {
	Bytes   *[2]int64 `json:"bytes,omitempty"`   // byte offsets, half open
	Records *[2]int64 `json:"records,omitempty"` // record numbers from 0, half open
	Pointer *string   `json:"pointer,omitempty"` // RFC 6901
	// Whole asks for a proof of a pointer's value that shows all of the document, and
	// so that the value stands there.
	Whole bool `json:"whole,omitempty"`
	// Receipt asks for the store's signed word on the read.
	Receipt bool `json:"receipt,omitempty"`
}

// claim is what a bundle of the part must claim.
func (p Part) claim(size int64) (*bundle.Claim, error) {
	var c bundle.Claim
	switch {
	case p.Bytes != nil && p.Records == nil && p.Pointer == nil:
		r := merkle.Range{Start: min(p.Bytes[0], size), End: min(p.Bytes[1], size)}
		c = bundle.BytesClaim(r)
	case p.Records != nil && p.Bytes == nil && p.Pointer == nil:
		c = bundle.RecordsClaim(p.Records[0], p.Records[1])
	case p.Pointer != nil && p.Bytes == nil && p.Records == nil:
		c = bundle.PointerClaim(*p.Pointer)
	default:
		return nil, errors.New("client: a part is one of bytes, records and a pointer")
	}
	return &c, nil
}

const mediaBundle = "application/vnd.leafproof.bundle"

// Prove asks for the proof of a part, verifies it, and writes it to w (nil: nowhere): a
// .proof file, which verifies offline. It also stands where the principal may have
// proofs alone.
func (a *Artifact) Prove(ctx context.Context, p Part, w io.Writer) (*bundle.Result, error) {
	s, res, err := a.provePart(ctx, p)
	if err != nil {
		return nil, err
	}
	if w != nil {
		_, err = s.copy(w, merkle.Range{Start: 0, End: s.n})
	}
	return res, errors.Join(err, s.close())
}

func (a *Artifact) provePart(ctx context.Context, p Part) (*spool, *bundle.Result, error) {
	claim, err := p.claim(a.Size())
	if err != nil {
		return nil, nil, err
	}
	return a.proof(ctx, p, bundle.Options{Expect: claim})
}

// Read writes a part to w when all of it was verified: records with a newline behind
// each, and the value at a pointer with one. For a pointer the proof shows all of the
// document. See [Artifact.Copy] for long runs of bytes, which come as they are
// verified.
func (a *Artifact) Read(ctx context.Context, p Part, w io.Writer) error {
	if p.Bytes != nil && p.Records == nil && p.Pointer == nil {
		from := min(p.Bytes[0], p.Bytes[1])
		_, err := a.Copy(ctx, w, from, p.Bytes[1]-from)
		return err
	}
	p.Whole = p.Pointer != nil
	claim, err := p.claim(a.Size())
	if err != nil {
		return err
	}
	o := bundle.Options{Expect: claim}
	s, _, err := a.proof(ctx, p, o)
	if err != nil {
		return err
	}
	o.Out = w
	return errors.Join(a.again(s, o), s.close())
}

// proof asks for a bundle, keeps it aside and verifies it.
func (a *Artifact) proof(ctx context.Context, body any, o bundle.Options) (*spool, *bundle.Result, error) {
	q := &request{method: "POST", path: a.path("/prove"), json: body, header: header("Accept", mediaBundle)}
	for try := 0; ; try++ {
		resp, err := a.c.do(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		s := &spool{dir: a.c.o.TempDir}
		in := &watched{r: resp.Body}
		if err = isMedia(resp, mediaBundle); err == nil {
			err = a.takeProof(ctx, in, s)
		}
		resp.Body.Close()
		var res *bundle.Result
		if err == nil {
			res, err = a.judge(s, o)
		}
		if err == nil {
			return s, res, nil
		}
		err = errors.Join(err, s.close())
		if try >= a.c.o.Retries || !again(err) || pause(ctx, try, err) != nil {
			return nil, nil, err
		}
	}
}

// takeProof keeps a bundle that comes, up to the size that one of the artifact can
// have.
func (a *Artifact) takeProof(ctx context.Context, in *watched, s *spool) error {
	p := a.Manifest.Predicate
	most := a.Size() + a.Size()/8 + bundle.MaxHeader + 1<<20
	if p.Records != nil && p.Records.Map != nil {
		most += 2 * p.Records.Map.Size
	}
	for _, x := range p.Indexes {
		most += 2 * x.Size
	}
	if len(p.Indexes) == 0 { // one may have been added later
		most += 2 * a.Size()
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{s}, io.LimitReader(in, most+1), make([]byte, 64<<10))
	switch {
	case errors.Is(in.err, io.ErrUnexpectedEOF):
		return refuse(ErrTruncated, a.ID(), "the connection ended within a proof")
	case in.err != nil && in.err != io.EOF: //nolint:errorlint // a reader's end is that value
		return unreachable(ctx, in.err)
	case err != nil:
		return err
	case n > most:
		return refuse(ErrTooLarge, a.ID(), "a proof of more than %d bytes", most)
	}
	return nil
}

// judge verifies a bundle of this artifact.
func (a *Artifact) judge(s *spool, o bundle.Options) (*bundle.Result, error) {
	o.Policy, o.At, o.ExpectArtifact = a.c.o.Policy, a.c.o.Now(), a.ID()
	res, err := bundle.Verify(s, s.n, o)
	switch {
	case errors.Is(err, bundle.ErrMalformed):
		return nil, refuse(ErrProtocol, a.ID(), "the proof: %s", manifest.Printable(err.Error()))
	case err != nil:
		return nil, err
	case res.Manifest != nil && res.Manifest.ArtifactID != a.ID():
		return nil, refuse(ErrArtifact, a.ID(), "the proof is about %s", res.Manifest.ArtifactID)
	case res.Manifest != nil && res.Manifest.ManifestID != a.Manifest.ManifestID:
		return nil, refuse(ErrAltered, "/manifest_id", "the proof has another manifest of %s", a.ID())
	}
	if err := a.c.trusted(a.ID(), res.Verdict); err != nil {
		return nil, err
	}
	for _, f := range res.Verdict.Facts {
		if f.State == manifest.Mismatch {
			kind := ErrMismatch
			if f.Name == manifest.FactSelector {
				kind = ErrRange
			}
			return nil, refuse(kind, f.Name, "%s", manifest.Printable(f.Reason))
		}
	}
	return res, nil
}

// again verifies a bundle that was found right once more, to hand out what it has.
func (a *Artifact) again(s *spool, o bundle.Options) error {
	_, err := a.judge(s, o)
	return err
}

// answerTrailer carries the answer behind bytes.
const answerTrailer = "Leafproof-Answer"

// ReadUnverified writes a part to w as the server sends it, and returns what the server
// says of it. Nothing of it is verified: it is for a principal that may read some
// records of an artifact and no proofs.
func (a *Artifact) ReadUnverified(ctx context.Context, p Part, w io.Writer) (*selector.Answer, error) {
	resp, err := a.c.do(ctx, &request{method: "POST", path: a.path("/read"), json: p, header: header("Accept", "application/octet-stream")})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := isMedia(resp, "application/octet-stream"); err != nil {
		return nil, err
	}
	in := &watched{r: resp.Body}
	n, err := io.Copy(w, io.LimitReader(in, a.Size()+a.Records()+2))
	switch {
	case errors.Is(in.err, io.ErrUnexpectedEOF):
		return nil, refuse(ErrTruncated, a.ID(), "after %d bytes", n)
	case in.err != nil && in.err != io.EOF: //nolint:errorlint // a reader's end is that value
		return nil, unreachable(ctx, in.err)
	case err != nil:
		return nil, err
	case in.err == nil:
		return nil, refuse(ErrExtended, a.ID(), "more bytes than the artifact has")
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(resp.Trailer.Get(answerTrailer)))
	if err != nil || len(text) == 0 {
		return nil, refuse(ErrTruncated, answerTrailer, "the answer behind the bytes is missing")
	}
	var out struct {
		Answer *selector.Answer `json:"answer"`
	}
	if err := json.Unmarshal(text, &out); err != nil || out.Answer == nil {
		return nil, refuse(ErrProtocol, answerTrailer, "it does not parse")
	}
	return out.Answer, a.about(out.Answer)
}
