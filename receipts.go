package leafproof

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// contextCursor is the purpose for which cursors are digested: the catalogue finds
// a receipt by its cursor, and must not hold what lets one go on.
const contextCursor = "leafproof 2026 receipt-cursor v1"

// recorder collects what a receipt says while an answer is given. A nil one
// collects nothing: a receipt costs nothing unless it is asked for.
type recorder struct {
	a      *artifact
	into   *Statement
	by     speaker
	digest *merkle.Builder
	shown  spanSet
}

// recorder begins a receipt where one is asked for. What would keep it from being
// signed is found out before a byte is given out.
func (a *artifact) recorder(ctx context.Context, into *Statement) (*recorder, error) {
	if into == nil {
		return nil, nil
	}
	now, err := a.store.catalogue.Now(ctx)
	if err != nil {
		return nil, err
	}
	for what, s := range map[string]string{"principal": string(a.request.Principal), "purpose": a.request.Purpose} {
		if _, err := manifest.Canonical(s); err != nil || len(s) > maxNamed || strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
			return nil, fail(CodeSelectorInvalid, FixCall, what, "no receipt can name the %s: it has over %d bytes, or characters that no statement may hold", what, maxNamed)
		}
	}
	by, err := a.store.speaker(manifest.RoleReceipt, &scope{a.row.Tenant, sourceOf(a.row)}, now)
	if err != nil {
		return nil, err
	}
	return &recorder{a: a, into: into, by: by, digest: merkle.NewBuilder(nil)}, nil
}

// maxNamed is the longest principal or purpose in a receipt, in bytes.
const maxNamed = 256

// tee writes to w, and takes in what w took.
func (r *recorder) tee(w io.Writer) io.Writer {
	if r == nil {
		return w
	}
	return io.MultiWriter(w, r.digest)
}

// show takes in which bytes of the artifact are given out.
func (r *recorder) show(ranges ...merkle.Range) {
	if r == nil {
		return
	}
	for _, s := range ranges {
		r.shown.add(s)
	}
}

var newline = []byte{'\n'}

// row takes in a row that a query gives out, and its text.
func (r *recorder) row(row Row, text []byte) error {
	if r == nil {
		return nil
	}
	if row.Selected == nil {
		r.shown.add(merkle.Range{Start: row.Span.Start, End: row.Span.End})
	}
	for _, values := range row.Selected {
		for _, v := range values {
			r.shown.add(merkle.Range{Start: v.Span.Start, End: v.Span.End})
		}
	}
	_, err := r.digest.Write(text)
	if err == nil {
		_, err = r.digest.Write(newline)
	}
	return err
}

// asked is what a receipt says besides the answer.
type asked struct {
	where  string // the condition as it was written
	limit  int64
	cursor string       // that the answer goes on from
	placed merkle.Range // records whose places are shown
	index  *manifest.DisclosedIndex
	span   *[2]int64 // where the value at a pointer stands
	proven bool
	// loose: the ranges cover what was shown, and more.
	loose bool
}

// sign signs the receipt of an answer, enters it, and hands it out.
func (r *recorder) sign(ctx context.Context, permit gate.Permit, answer *selector.Answer, q asked) error {
	if r == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // an answer that was cut short has a receipt too
	permit, err := permit.Renew(ctx)
	if err != nil {
		return err
	}
	s := r.a.store
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return err
	}
	body := &manifest.Receipt{
		Principal: string(r.a.request.Principal), Purpose: optional(r.a.request.Purpose),
		Authority:  manifest.Decided{Epoch: permit.Epoch(), CheckedAt: manifest.FormatTime(now), MaxStaleMS: gate.Life.Milliseconds()},
		Request:    manifest.Request{Action: string(r.a.request.Action), Asked: optional(q.where), QID: answer.QID},
		Order:      answer.Order,
		Examined:   manifest.Examined{Basis: answer.Basis, Records: answer.Examined.Records, Bytes: answer.Examined.Bytes, Ranges: answer.Examined.Ranges, Total: answer.RecordsTotal},
		Result:     manifest.Result{Matched: answer.Matched, MatchedSoFar: answer.MatchedSoFar, Returned: answer.Returned, Undecidable: answer.Undecidable, Bytes: r.digest.Size(), Span: q.span},
		Completion: manifest.Completion{Stop: answer.Stop, More: answer.More},
		Capture: manifest.Captured{
			Status: answer.Completeness.Status, Records: answer.Completeness.Records,
			Omissions: int64(len(answer.Completeness.Omissions)), Redactions: int64(len(answer.Completeness.Redactions)),
		},
		Assurance: selector.AssuranceAttested,
	}
	if q.limit > 0 {
		body.Request.Limit = &q.limit
	}
	if q.proven {
		body.Assurance = selector.AssuranceProven
	}
	if err := json.Unmarshal(answer.Selector, &body.Request.Selector); err != nil {
		return err
	}
	digest, err := r.digest.Seal()
	if err != nil {
		return err
	}
	body.Result.Digest = digest.String()
	body.Disclosed.Ranges, body.Disclosed.Exact = r.shown.list(r.a.m.Size)
	body.Disclosed.Exact = body.Disclosed.Exact && !q.loose
	if q.placed.Start < q.placed.End {
		body.Disclosed.Placed = &[2]int64{q.placed.Start, q.placed.End}
	}
	body.Disclosed.Index = q.index
	if body.Page, err = r.page(ctx, q.cursor, answer.QID); err != nil {
		return err
	}
	if body.Head, err = headFor(r.a.row, r.by, now); err != nil {
		return err
	}
	row, st, err := signStatement(body, r.by, now)
	if err != nil {
		return err
	}
	if answer.Cursor != "" {
		row.Cursor = cursorDigest(answer.Cursor)
	}
	if err := s.catalogue.State(ctx, "", row); err != nil {
		return err
	}
	if err := r.a.shown(ctx, CopyExcerpt, "the answer of "+st.ID); err != nil {
		return err
	}
	*r.into = *st
	return nil
}

func cursorDigest(cursor string) merkle.Root { return merkle.DeriveKey(contextCursor, []byte(cursor)) }

// page is the receipt's place in the chain of its query's pages.
func (r *recorder) page(ctx context.Context, cursor, qid string) (manifest.Page, error) {
	first := int64(1)
	if cursor == "" {
		return manifest.Page{Number: &first}, nil
	}
	page := manifest.Page{Continued: true}
	row, err := r.a.store.catalogue.Before(ctx, cursorDigest(cursor))
	if errors.Is(err, catalogue.ErrNotFound) {
		return page, nil
	}
	if err != nil {
		return page, err
	}
	// The catalogue leads to a receipt; whether it is the one before, the receipt says.
	st, err := openStatement(row)
	if err != nil {
		return page, nil //nolint:nilerr // a damaged one is none
	}
	before := st.Receipt()
	if before == nil || before.ArtifactID != r.a.row.ArtifactID || before.Request.QID != qid || before.Principal != string(r.a.request.Principal) {
		return page, nil
	}
	digest := st.Digest.String()
	page.Previous = &digest
	if before.Page.Number != nil {
		n := *before.Page.Number + 1
		page.Number = &n
	}
	return page, nil
}

// proofReceipt puts the receipt of a proof into its bundle, where one is asked for.
// The bundle's header goes out first, so it is signed before the bytes are given
// out: whoever holds the receipt may have less.
func (a *artifact) proofReceipt(ctx context.Context, sel Selector, permit gate.Permit, b *bundle.Bundle, data io.ReaderAt) error {
	rec, err := a.recorder(ctx, sel.Receipt)
	if rec == nil || err != nil {
		return err
	}
	if claim := b.Claim(); claim.Kind == bundle.KindBytes { // which may have been clamped
		sel.Bytes = &merkle.Range{Start: claim.Ranges[0][0], End: claim.Ranges[0][1]}
	}
	p, err := a.part(ctx, sel, data)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.write(rec.digest, data); err != nil {
		return err
	}
	rec.show(b.Leaves().Bytes()...)
	if err := rec.sign(ctx, permit, a.rangeAnswer(p), asked{placed: b.Placed(), span: p.value, proven: true}); err != nil {
		return err
	}
	return b.AddReceipt(sel.Receipt.Envelope)
}
