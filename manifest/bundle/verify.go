package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/tlog"
	"leafproof/merkle"
	"leafproof/selector"
)

// Options are what a verifier brings: everything that decides comes from here,
// nothing from the file.
type Options struct {
	// Policy says whose word counts. With nil, every fact that rests on a
	// signature is unverifiable(no policy).
	Policy *manifest.Policy
	// At is the time that expiry and keys are judged by: time.Now() in most
	// cases. The zero time is an error.
	At time.Time
	// Later are statements that the reader got elsewhere and that may end the
	// artifact's currency: supersede/v1 and tombstone/v1. They bear on the fact
	// supersession alone.
	Later []manifest.Envelope
	// Expect, where set, is the claim that the caller asked for. Another one is
	// a MISMATCH.
	Expect *Claim
	// ExpectQuery, where set, is the question that a query claim must answer. Another
	// claim is a MISMATCH.
	ExpectQuery *Question
	// Rebuild, where set, has the artifact's bytes: the index of a query claim, or else
	// all that the manifest names, are made again from them, which proves them or shows
	// that one is false.
	Rebuild *Rebuild
	// ExpectArtifact, where set, is the id of the artifact that the caller asked
	// about: whoever signs many artifacts has signed bundles of all of them. Another
	// one is a MISMATCH.
	ExpectArtifact string
	// Out, where set, receives the claimed bytes as they are verified; records
	// are followed by a newline each. What it got is good only if Verify
	// returned a verdict without a MISMATCH.
	Out io.Writer
	// Row, where set, receives the rows that a query claim proves, as Out gets their
	// bytes: they are good as far as those are. An error of it ends the verification.
	Row func(selector.Row) error
}

// A Result is what a verification found.
type Result struct {
	Verdict *manifest.Verdict
	// Claim is the claim that was checked; the zero Claim where Manifest is nil.
	Claim Claim
	// Manifest is the one inside the bundle, whoever signed it; nil where the
	// signature is a MISMATCH and what it should cover is no manifest any more.
	Manifest *manifest.Manifest
	// Shown are the bytes of the artifact that the bundle discloses: the claim
	// rounded outward to leaves.
	Shown []merkle.Range
	// Receipt is the store's word on the read that made the bundle; nil where there
	// is none, or nobody whom the policy admits vouches for it.
	Receipt *manifest.Receipt
	// Commit is the proof that the manifest was committed; nil where there is none.
	// How far it counts is the fact commit.
	Commit *tlog.Proof
	// Placed are the numbers of the records whose places the bundle discloses:
	// those on the map pages that a records claim carries; of a query claim, from
	// the first to the last of them.
	Placed merkle.Range
	// Answer is what a query claim proves; nil where there is none that holds.
	Answer *Answer
}

// Verify checks a bundle of size bytes. It reads r several times and holds no
// more than the header and a few buffers, whatever the size.
//
// The error is about the file, not about the facts: [ErrMalformed], or what
// reading r or writing Options.Out returned; or about the form of what Options.Later
// has. A claim that does not hold, a bad
// signature or a reference that was altered is a MISMATCH in the verdict.
func Verify(r io.ReaderAt, size int64, o Options) (*Result, error) {
	if o.At.IsZero() {
		// Judged as of the year 1, nothing would ever have expired.
		return nil, errors.New("bundle: Options.At is not set: say as of when expiry and keys are judged")
	}
	h, body, err := open(r, size)
	if err != nil {
		return nil, err
	}
	proof, commit, evidence, err := checkCommit(h, o.Policy)
	if err != nil {
		return nil, err
	}
	m, facts, err := manifest.VerifyEnvelope(h.Manifest, h.SSH, o.Policy.Given(evidence), o.At)
	v := manifest.NewVerdict()
	v.Set(facts...)
	if proof != nil {
		v.Set(commit)
	}
	if errors.Is(err, manifest.ErrSignature) {
		// The payload is not what was signed: there is nothing to hold a claim to.
		return &Result{Verdict: v}, nil
	}
	if err != nil {
		return nil, &Error{At: "header/manifest", Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	claim := h.Claims[0]
	res := &Result{Verdict: v, Claim: claim, Manifest: m, Commit: proof}
	c := checker{m: m, v: v, out: o.Out, res: res, added: h.Index, policy: o.Policy.Given(evidence), now: o.At, rebuild: o.Rebuild, row: o.Row}
	// The manifest's word counts for lengths and record numbers as far as it
	// counts for the capture.
	c.word, _ = v.Fact(manifest.FactCapture)
	c.word.Detail = ""
	v.Set(refFacts(h.Ref, m.Predicate.ArtifactRef)...)
	if len(o.Later) > 0 {
		fact, err := laterFact(m, o)
		if err != nil {
			return nil, err
		}
		v.Set(fact)
	}
	if err := c.checkBody(h, body, o); err != nil {
		return nil, err
	}
	if want := o.ExpectArtifact; want != "" && want != m.ArtifactID {
		v.Set(manifest.Fact{
			Name: manifest.FactSelector, State: manifest.Mismatch,
			Reason: fmt.Sprintf("expected a part of %s, the bundle is about %s", want, m.ArtifactID),
		})
	}
	if o.ExpectQuery != nil {
		if err := c.expect(claim, *o.ExpectQuery); err != nil {
			return nil, err
		}
	}
	if o.Expect != nil && !claim.answers(*o.Expect) {
		v.Set(manifest.Fact{
			Name: manifest.FactSelector, State: manifest.Mismatch,
			Reason: fmt.Sprintf("expected %s, the bundle claims %s", *o.Expect, claim),
		})
	}
	return res, nil
}

// checkBody checks the claim against the sections, which are all of the file's
// rest, and the receipt against the claim.
func (c *checker) checkBody(h *header, body *io.SectionReader, o Options) error {
	if h.Receipt != nil {
		c.takeDigest()
	}
	rest, err := c.check(h.Claims[0], body)
	if err == nil && h.Claims[0].Kind != KindQuery {
		err = c.rebuildAll()
	}
	if err != nil {
		return err
	}
	if rest.Size() > 0 {
		return malformed("end", "%d bytes are left over", rest.Size())
	}
	if h.Receipt == nil {
		return nil
	}
	return c.checkReceipt(h.Claims[0], *h.Receipt, o)
}

// open checks lines 1 and 2 and returns what follows them.
func open(r io.ReaderAt, size int64) (*header, *io.SectionReader, error) {
	line := make([]byte, line1Size)
	if size < int64(line1Size) {
		return nil, nil, malformed("line 1", "the file has %d bytes, too few for a bundle", size)
	}
	if _, err := r.ReadAt(line, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if !bytes.HasPrefix(line, []byte(magic)) || line[line1Size-1] != '\n' {
		return nil, nil, malformed("line 1", "it does not say %q and a digest", magic[:len(magic)-1])
	}
	want, err := merkle.ParseRoot(string(line[len(magic) : line1Size-1]))
	if err != nil {
		return nil, nil, malformed("line 1", "%v", err)
	}
	rest := io.NewSectionReader(r, int64(line1Size), size-int64(line1Size))
	digest := merkle.NewBuilder(nil)
	if _, err := io.CopyBuffer(digest, struct{ io.Reader }{rest}, make([]byte, min(rest.Size()+1, 256<<10))); err != nil {
		return nil, nil, err
	}
	got, err := digest.Seal()
	if err != nil {
		return nil, nil, err
	}
	if got != want {
		return nil, nil, malformed("line 1", "its digest is not that of the file: the file was damaged")
	}
	return openHeader(rest)
}

func openHeader(rest *io.SectionReader) (*header, *io.SectionReader, error) {
	line, err := readLine(rest)
	if err != nil {
		return nil, nil, err
	}
	var h header
	if err := manifest.DecodeLimit(line, &h, MaxHeader, manifest.MaxDepth); err != nil {
		return nil, nil, &Error{At: "header", Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	if n := len(h.Claims); n != 1 {
		return nil, nil, malformed("header/claims", "%d claims: a bundle of this version has one", n)
	}
	off := int64(len(line)) + 1
	return &h, io.NewSectionReader(rest, off, rest.Size()-off), nil
}

// readLine returns the first line of at most MaxHeader bytes, without its end. It
// allocates no more than four times what the line needs.
func readLine(r *io.SectionReader) ([]byte, error) {
	for limit := int64(64 << 10); ; limit *= 4 {
		buf := make([]byte, min(r.Size(), limit, MaxHeader+1))
		n, err := r.ReadAt(buf, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if end := bytes.IndexByte(buf[:n], '\n'); end >= 0 {
			return buf[:end], nil
		}
		if int64(len(buf)) < limit {
			return nil, malformed("header", "no end of line within %d bytes", len(buf))
		}
	}
}

// checker checks the claim of one bundle.
type checker struct {
	m    *manifest.Manifest
	v    *manifest.Verdict
	word manifest.Fact // how far the manifest's word counts: attested, or why not
	out  io.Writer
	res  *Result

	added   *manifest.Envelope // the statement of an index that was added later; nil: none
	policy  *manifest.Policy
	now     time.Time
	rebuild *Rebuild
	row     func(selector.Row) error
	failed  bool // a query claim does not hold, or cannot be judged

	given *merkle.Builder // digests what goes to out, to hold a receipt to it; nil: there is none
}

// check checks the claim and returns the file's rest behind its sections.
func (c *checker) check(claim Claim, body *io.SectionReader) (*io.SectionReader, error) {
	const at = "claims/0"
	if claim.Kind != KindQuery && (claim.ofQuery() || c.added != nil && claim.Kind != KindBytes) {
		return nil, malformed(at, "a %s claim has no part of a query", claim.Kind)
	}
	switch claim.Kind {
	case KindBytes:
		return c.checkBytes(claim, at, body)
	case KindRecords:
		return c.checkRecords(claim, at, body)
	case KindPointer:
		return c.checkPointer(claim, at, body)
	case KindQuery:
		return c.checkQuery(claim, at, body)
	}
	return nil, malformed(at, "unknown kind %q", claim.Kind)
}

// cut takes a section off the front of the file's rest.
func cut(body *io.SectionReader, s *Section, at string) (sec, rest *io.SectionReader, err error) {
	if s == nil {
		return nil, nil, malformed(at, "the section is missing")
	}
	if s.Length < 0 || s.Length > body.Size() {
		return nil, nil, malformed(at, "a section of %d bytes, %d are left in the file", s.Length, body.Size())
	}
	return io.NewSectionReader(body, 0, s.Length), io.NewSectionReader(body, s.Length, body.Size()-s.Length), nil
}

func (c *checker) checkBytes(claim Claim, at string, body *io.SectionReader) (*io.SectionReader, error) {
	ranges, err := c.bytesRanges(claim, at)
	if err != nil {
		return nil, err
	}
	if s := claim.Sections; claim.Pointer != nil || s.Map != nil || s.Document != nil || s.Proof == nil {
		return nil, malformed(at, "a bytes claim has ranges, a size and a proof")
	}
	sec, set, rest, err := c.proof(claim.Sections.Proof, at+"/proof", body, ranges)
	if err != nil {
		return nil, err
	}
	w := rangeWriter{w: c.out, ranges: ranges}
	ok, err := c.copyProof(sec, set, at, w.write)
	if err != nil || !ok {
		return rest, err
	}
	c.v.Set(manifest.Fact{Name: manifest.FactSelector, State: manifest.Proven, Detail: claim.String()})
	return rest, nil
}

// proof takes the section that proves byte ranges of the artifact off the front of
// the file's rest.
func (c *checker) proof(s *Section, at string, body *io.SectionReader, ranges []merkle.Range) (sec *io.SectionReader, set merkle.LeafSet, rest *io.SectionReader, err error) {
	if sec, rest, err = cut(body, s, at); err != nil {
		return nil, set, nil, err
	}
	if s.Leaves != nil {
		return nil, set, nil, malformed(at+"/leaves", "they follow from the claim and are not stated")
	}
	if set, err = merkle.Leaves(c.m.Size, ranges...); err != nil {
		return nil, set, nil, malformed(at, "%v", err)
	}
	if want := merkle.BodySize(set); sec.Size() != want {
		return nil, set, nil, malformed(at, "a section of %d bytes, the claim needs %d", sec.Size(), want)
	}
	return sec, set, rest, nil
}

// bytesRanges returns the ranges of a claim, which must be canonical. Another size
// than the manifest's is a MISMATCH of the length, and no reason to stop.
func (c *checker) bytesRanges(claim Claim, at string) ([]merkle.Range, error) {
	if claim.Range != nil || len(claim.Ranges) == 0 || claim.Size == nil {
		return nil, malformed(at, "a %s claim has ranges and a size", claim.Kind)
	}
	if *claim.Size != c.m.Size {
		c.v.Set(manifest.Fact{
			Name: manifest.FactLength, State: manifest.Mismatch,
			Reason: fmt.Sprintf("%s/size: %d bytes, the manifest says %d", at, *claim.Size, c.m.Size),
		})
	}
	ranges := unpair(claim.Ranges)
	for _, r := range ranges {
		if r.Start < 0 || r.End < r.Start || r.End > c.m.Size {
			return nil, malformed(at+"/ranges", "%d:%d is not inside the %d bytes", r.Start, r.End, c.m.Size)
		}
	}
	if !slices.Equal(ranges, canonicalBytes(c.m.Size, ranges)) {
		return nil, malformed(at+"/ranges", "they are not sorted and apart")
	}
	return ranges, nil
}

// copyProof verifies a proof body over the artifact and hands its bytes to emit.
// It sets the facts bytes and length, and reports whether the proof held.
func (c *checker) copyProof(sec io.Reader, set merkle.LeafSet, at string, emit func(off int64, p []byte) error) (bool, error) {
	br := merkle.NewBodyReader(sec, c.m.Root, set)
	for {
		off, p, err := br.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return false, c.proofError(err, at)
		}
		if err := emit(off, p); err != nil {
			return false, err
		}
	}
	c.proved(set)
	return true, nil
}

// proved sets the facts bytes and length after a body over set has held.
func (c *checker) proved(set merkle.LeafSet) {
	c.res.Shown = append(c.res.Shown, set.Bytes()...)
	c.v.Set(manifest.Fact{
		Name: manifest.FactBytes, State: manifest.Proven,
		Detail: "they stand in the blob " + c.m.Root.String(),
	})
	length := c.word
	length.Name, length.Detail = manifest.FactLength, fmt.Sprintf("%d bytes", c.m.Size)
	if set.HasLast() {
		length = manifest.Fact{Name: manifest.FactLength, State: manifest.Proven, Detail: length.Detail}
	}
	c.v.Set(length)
}

// proofError turns a proof that does not hold into a MISMATCH of the bytes, and
// passes other errors on.
func (c *checker) proofError(err error, at string) error {
	switch {
	case errors.Is(err, merkle.ErrMismatch):
		c.v.Set(manifest.Fact{Name: manifest.FactBytes, State: manifest.Mismatch, Reason: fmt.Sprintf("%s: %v", at, err)})
		return nil
	case errors.Is(err, merkle.ErrMalformed), errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{At: at + "/proof", Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	return err
}

// rangeWriter writes those of the bytes it is given that stand in its ranges,
// which are ascending, as are the calls.
type rangeWriter struct {
	w      io.Writer
	ranges []merkle.Range
}

func (w *rangeWriter) write(off int64, p []byte) error {
	for end := off + int64(len(p)); w.w != nil && len(w.ranges) > 0 && w.ranges[0].Start < end; {
		r := w.ranges[0]
		if a, b := max(r.Start, off), min(r.End, end); a < b {
			if _, err := w.w.Write(p[a-off : b-off]); err != nil {
				return err
			}
		}
		if r.End > end {
			return nil
		}
		w.ranges = w.ranges[1:]
	}
	return nil
}
