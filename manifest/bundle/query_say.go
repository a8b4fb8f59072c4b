package bundle

import (
	"bytes"
	"fmt"
	"strings"

	"leafproof/manifest"
	"leafproof/selector"
)

// indexFact says whose word it is that the index is honest; rebuilt takes its place
// where the caller had the index made again.
func (q *queryCheck) indexFact(rebuilt manifest.Fact) {
	f := q.word
	if rebuilt.State != "" {
		f = rebuilt
	}
	f.Name, f.Lapsed = manifest.FactIndex, false
	if f.Detail = "over " + manifest.IndexOver(q.index.Path); f.State == manifest.Mismatch {
		f.Detail = ""
	}
	q.v.Set(f)
}

// proven sets the facts of a claim that holds.
func (q *queryCheck) proven(found *selector.Proven) error {
	q.v.Set(manifest.Fact{Name: manifest.FactAnswer, State: manifest.Proven, Detail: answerDetail(found, q.asked, q.want.Source.Records)})
	for _, name := range []string{manifest.FactSelector, manifest.FactRecordNumbers} {
		f := q.checker.word
		f.Name, f.Detail = name, q.claim.String()
		if name == manifest.FactRecordNumbers && q.records == nil {
			f = manifest.Fact{Name: name, State: manifest.NotClaimed}
		}
		q.v.Set(f)
	}
	if q.records == nil { // nothing of the artifact is shown, and nothing of its length
		length := q.checker.word
		length.Name, length.Detail = manifest.FactLength, fmt.Sprintf("%d bytes", q.m.Size)
		q.v.Set(length)
	}
	q.res.Answer = &Answer{Proven: *found, Asked: q.asked, Index: q.index, Pages: q.pageRuns}
	if q.tailRun.End > q.tailRun.Start {
		q.res.Answer.Pages = append(q.res.Answer.Pages[:len(q.pageRuns):len(q.pageRuns)], q.tailRun)
	}
	q.res.Answer.Conclusion = conclusion(q.m, q.asked, found)
	return nil
}

// answerDetail says what was found.
func answerDetail(p *selector.Proven, a selector.Asked, records int64) string {
	switch {
	case p.Cut:
		return fmt.Sprintf("the first %d rows, %d undecidable among them; what stands behind is not shown", p.Returned, p.Undecidable)
	case a.Limit > 0 && p.Returned < p.Matched:
		return fmt.Sprintf("the first %d of %d of %d records, %d undecidable", p.Returned, p.Matched, records, p.Undecidable)
	}
	if a.Count {
		return fmt.Sprintf("%d of %d records, %d undetermined in the index", p.Matched, records, p.Undecidable)
	}
	return fmt.Sprintf("%d of %d records, %d undecidable", p.Matched, records, p.Undecidable)
}

// ofQuery reports whether a claim has a member or section of a query claim.
func (c Claim) ofQuery() bool {
	s := c.Sections
	return c.Query != nil || c.Index != nil || c.Limit != nil || c.Shown != nil || c.Count != nil ||
		s.Header != nil || s.Pages != nil || s.Undetermined != nil || s.Records != nil
}

// queryText says a query claim as a person would. Before the claim was checked it
// is the normalised query.
func (c Claim) queryText() string {
	text := c.text
	if text == "" {
		text = "query " + manifest.Printable(string(c.normalisedQuery()))
	}
	switch {
	case c.Count != nil:
		text = "count of " + text
	case c.Limit != nil:
		text += fmt.Sprintf(", limit %d", *c.Limit)
	}
	return text
}

// askedText says a query as a person would.
func askedText(q *selector.Query) string {
	text := "query of all records"
	if q.Where != nil {
		text = "query " + manifest.Printable(q.Where.String())
	}
	if len(q.Order) > 0 {
		var keys []string
		for _, o := range q.Order {
			keys = append(keys, manifest.Printable(o.String()))
		}
		text += ", ordered by " + strings.Join(keys, ", ")
	}
	return text
}

// expect holds the claim to the question of whoever verifies.
func (c *checker) expect(claim Claim, q Question) error {
	mismatch := func(format string, args ...any) {
		c.v.Set(manifest.Fact{Name: manifest.FactSelector, State: manifest.Mismatch, Reason: fmt.Sprintf(format, args...)})
	}
	want, err := q.query(c.m)
	switch {
	case err != nil:
		return err
	case claim.Kind != KindQuery || c.m.Predicate.Records == nil:
		mismatch("expected the answer to a query, the bundle claims %s", claim)
		return nil
	}
	limit := int64(0)
	if claim.Limit != nil {
		limit = *claim.Limit
	}
	switch text := want.Normalised(Layout(c.m.Predicate.Records)); {
	case !bytes.Equal(text, claim.normalisedQuery()):
		mismatch("expected %s, the bundle claims %s", askedText(want), c.res.Claim)
	case (claim.Count != nil) != q.Count: // a count gives out no row, which is not that there is none
		mismatch("expected %s, the bundle claims %s", map[bool]string{true: "a count", false: "the records"}[q.Count], c.res.Claim)
	case limit != q.Limit:
		mismatch("expected a limit of %d (0: none), the bundle claims %s", q.Limit, c.res.Claim)
	}
	return nil
}

// anotherAnswer says why a receipt is not of a claim's answer; "" where it is.
func (c *checker) anotherAnswer(claim Claim, r *manifest.Receipt) string {
	a := c.res.Answer
	limit := int64(0)
	if l := r.Request.Limit; l != nil {
		limit = *l
	}
	switch {
	case limit != a.Asked.Limit:
		return fmt.Sprintf("the receipt is for a limit of %d (0: none), the claim is %s", limit, claim)
	case r.Result.Matched != nil && !a.Cut && *r.Result.Matched != a.Matched, r.Result.Returned != a.Returned:
		return "the receipt is for another answer"
	}
	return ""
}

// conclusion is the strongest sentence that a proof and the manifest justify.
func conclusion(m *manifest.Manifest, a selector.Asked, p *selector.Proven) string {
	ref := m.Predicate.ArtifactRef
	out := selector.Answer{
		ArtifactID: m.ArtifactID, ManifestID: m.ManifestID, SourceVersion: selector.SourceVersion(ref.SourceVersion),
		RecordsTotal: m.Predicate.Records.Count, Completeness: Capture(m), Query: a.Query,
	}
	condition := ""
	if w := a.Query.Where; w != nil {
		condition = manifest.Printable(w.String())
	}
	return out.ConcludeProven(a, *p, condition)
}

// Capture is what a manifest says of the capture's completeness, in the
// selector's words.
func Capture(m *manifest.Manifest) selector.Capture {
	c := m.Predicate.ArtifactRef.Completeness
	out := selector.Capture{
		Status: c.Status, Coverage: c.Coverage, Records: c.Records,
		Omissions: []selector.Omission{}, Redactions: []selector.Redaction{},
	}
	for _, o := range c.Omissions {
		out.Omissions = append(out.Omissions, selector.Omission{What: o.What, Reason: o.Reason, Detail: o.Detail})
	}
	for _, r := range c.Redactions {
		out.Redactions = append(out.Redactions, selector.Redaction{Path: r.Path, Records: r.Records, Method: r.Method, Reason: r.Reason})
	}
	return out
}
