package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Receipt is the store's word on one read or query: what was asked, what was
// examined, and what was given out. How complete the capture was ([Captured]), how
// far the scan came ([Completion]) and what of it reached a prompt ([Admission])
// are three facts, of which the first is the producer's and the last is not known
// here.
type Receipt struct {
	Head
	Principal string  `json:"principal"` // the reader, as the authority named it
	Purpose   *string `json:"purpose"`   // in the reader's words; null: none was given
	Authority Decided `json:"authority"`

	Request    Request    `json:"request"`
	Order      string     `json:"order"` // of the records in the answer, as in "document"
	Examined   Examined   `json:"examined"`
	Result     Result     `json:"result"`
	Completion Completion `json:"completion"`
	Capture    Captured   `json:"capture"`
	Disclosed  Disclosed  `json:"disclosed"`
	Page       Page       `json:"page"`
	Assurance  string     `json:"assurance"` // attested, or proven where a proof was given out with it
}

// Request is what was asked.
type Request struct {
	Action   string  `json:"action"`   // read, query, count or prove
	Asked    *string `json:"asked"`    // a condition as the reader wrote it; null: asked by position
	Selector any     `json:"selector"` // the normalised form; see the package selector
	QID      string  `json:"qid"`      // the id that follows from it
	Limit    *int64  `json:"limit"`    // records in the answer, at most; null: no limit
}

// Examined is what was looked at for the answer.
type Examined struct {
	Basis   string     `json:"basis"`   // range, scan or index
	Records int64      `json:"records"` // since the first page
	Bytes   int64      `json:"bytes"`   // since the first page
	Ranges  [][2]int64 `json:"ranges"`  // record numbers, half open
	Total   int64      `json:"total"`   // records in the artifact
}

// Result is what came of it.
type Result struct {
	Matched      *int64 `json:"matched"`        // of all records; null: not all were examined, or nothing was searched
	MatchedSoFar *int64 `json:"matched_so_far"` // of those examined since the first page; null beside Matched
	Returned     int64  `json:"returned"`       // records in this answer
	Undecidable  int64  `json:"undecidable"`    // since the first page
	// Bytes and Digest (BLAKE3) are of the bytes given out: records each with a
	// newline behind them, as `leafproof read` and `leafproof query` print them; for
	// a proof, the bytes that `leafproof verify -o` writes.
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
	// Span is where the value at a JSON Pointer stands in the artifact, half open;
	// the member is absent in the receipt of any other selector. Without it a proof
	// of the same bytes elsewhere would pass for one of the value.
	Span *[2]int64 `json:"span,omitzero"`
}

// Completion is how far the scan came.
type Completion struct {
	Stop string `json:"stop"` // complete, page_limit, byte_limit, budget, deadline, cancelled or error
	More string `json:"more"` // yes, no or unknown: records behind this answer
}

// Captured is the completeness of the capture, copied from the manifest.
type Captured struct {
	Status     string `json:"status"`
	Records    *int64 `json:"records"`
	Omissions  int64  `json:"omissions"`  // how many are listed
	Redactions int64  `json:"redactions"` // how many are listed
}

// CapturedOf is what a receipt copies of a manifest's completeness.
func CapturedOf(c Completeness) Captured {
	return Captured{Status: c.Status, Records: c.Records, Omissions: int64(len(c.Omissions)), Redactions: int64(len(c.Redactions))}
}

func (c Captured) equal(d Captured) bool {
	return c.Status == d.Status && c.Omissions == d.Omissions && c.Redactions == d.Redactions &&
		(c.Records == d.Records || c.Records != nil && d.Records != nil && *c.Records == *d.Records)
}

// Disclosed is the bytes of the artifact that left the store: of a proof, whole
// leaves of 1 KiB around what was asked for.
type Disclosed struct {
	Ranges [][2]int64 `json:"ranges"` // byte offsets, half open
	// Exact: these bytes and no others. Else they cover what was disclosed, which
	// was in too many pieces to list.
	Exact bool `json:"exact"`
	// Placed are the numbers of records whose places were shown without their
	// bytes; null: none.
	Placed *[2]int64 `json:"placed"`
	// Index has the pages of an index that were shown, with the keys and the numbers
	// of the records on them, and the counts in its header; absent: none.
	Index *DisclosedIndex `json:"index,omitzero"`
}

// DisclosedIndex are pages of an index that were shown.
type DisclosedIndex struct {
	Path string `json:"path"`
	// Pages are their numbers from 0, half open. Where they were in too many pieces
	// to list, all between the first and the last.
	Pages [][2]int64 `json:"pages"`
}

// Page is the receipt's place in the chain of a query's pages.
type Page struct {
	// Number counts from 1; null: the page before has no receipt, so nobody knows.
	Number *int64 `json:"number"`
	// Continued: the answer goes on from a cursor.
	Continued bool `json:"continued"`
	// Previous is BLAKE3 of the payload of the receipt of the page before; null:
	// there is none.
	Previous *string `json:"previous"`
}

func (*Receipt) predicateType() string { return PredicateReceipt }

func (b *Receipt) check(c *checker) {
	c.short(b.Principal, maxPrincipal, "/principal")
	if b.Purpose != nil {
		c.short(*b.Purpose, maxReason, "/purpose")
	}
	b.Authority.check(c)
	r := &b.Request
	c.oneOf(r.Action, "/request/action", "read", "query", "count", "prove")
	c.text(r.Asked, "/request/asked")
	c.must(r.Selector != nil, "/request/selector", "null")
	c.must(isID(r.QID, "q_"), "/request/qid", "%s is not the id of a query", quote(r.QID))
	c.must(r.Limit == nil || *r.Limit > 0, "/request/limit", "less than 1; null says that there is none")
	c.short(b.Order, maxReason, "/order")
	b.checkScan(c)
	c.oneOf(b.Capture.Status, "/capture/status", StatusComplete, StatusPartial, StatusUnknown)
	c.notNegative(b.Capture.Records, "/capture/records")
	c.notNegative(&b.Capture.Omissions, "/capture/omissions")
	c.notNegative(&b.Capture.Redactions, "/capture/redactions")
	c.must(b.Capture.Status != StatusComplete || b.Capture.Omissions == 0, "/capture/status", "complete, with omissions")
	c.ranges(b.Disclosed.Ranges, "/disclosed/ranges")
	if p := b.Disclosed.Placed; p != nil {
		c.must(p[0] >= 0 && p[0] < p[1], "/disclosed/placed", "[%d,%d) is empty", p[0], p[1])
	}
	if x := b.Disclosed.Index; x != nil {
		c.must(x.Path == "" || x.Path[0] == '/' || x.Path[0] == '@' || x.Path[0] == '$', "/disclosed/index/path", "%s is no path", quote(x.Path))
		c.ranges(x.Pages, "/disclosed/index/pages")
		c.must(b.Examined.Basis == "index", "/disclosed/index", "pages of an index, of an answer without one")
	}
	p := &b.Page
	c.digest(p.Previous, "/page/previous")
	switch {
	case !p.Continued:
		c.must(p.Number != nil && *p.Number == 1 && p.Previous == nil, "/page", "a first page has the number 1 and none before it")
	case p.Previous == nil:
		c.must(p.Number == nil, "/page/number", "a number, and no receipt of the page before")
	default:
		c.must(p.Number == nil || *p.Number > 1, "/page/number", "a page behind another one has a number above 1")
	}
	c.oneOf(b.Assurance, "/assurance", "attested", "proven")
}

func (b *Receipt) checkScan(c *checker) {
	e, r, done := &b.Examined, &b.Result, &b.Completion
	c.oneOf(e.Basis, "/examined/basis", "range", "scan", "index")
	for at, n := range map[string]int64{
		"/examined/records": e.Records, "/examined/bytes": e.Bytes, "/examined/total": e.Total,
		"/result/returned": r.Returned, "/result/undecidable": r.Undecidable, "/result/bytes": r.Bytes,
	} {
		c.notNegative(&n, at)
	}
	c.ranges(e.Ranges, "/examined/ranges")
	c.notNegative(r.Matched, "/result/matched")
	c.notNegative(r.MatchedSoFar, "/result/matched_so_far")
	c.digest(&r.Digest, "/result/digest")
	if s := r.Span; s != nil {
		c.must(s[0] >= 0 && s[0] < s[1], "/result/span", "[%d,%d) is no place of a value", s[0], s[1])
		c.must(e.Basis == "range", "/result/span", "a place, of an answer that is no part by position")
	}
	c.oneOf(done.Stop, "/completion/stop", "complete", "page_limit", "byte_limit", "budget", "deadline", "cancelled", "error")
	c.oneOf(done.More, "/completion/more", "yes", "no", "unknown")
	complete := done.Stop == "complete"
	c.must(!complete || done.More == "no", "/completion/more", "%s, after a scan that is complete", quote(done.More))
	// What was not examined is never called complete.
	c.must(!complete || e.Basis != "scan" || e.Records == e.Total, "/completion/stop", "complete, after %d of %d records", e.Records, e.Total)
	all := complete || e.Basis == "index" || e.Basis == "scan" && e.Records == e.Total // a page may end after all were examined
	c.must(r.Matched == nil || all, "/result/matched", "a count of all, after %d of %d records", e.Records, e.Total)
	c.must(r.Matched == nil || r.MatchedSoFar == nil, "/result/matched_so_far", "a second count")
}

// String says what the receipt says about the scan, in one line.
func (b *Receipt) String() string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if b.Examined.Basis != "range" {
		say("%d of %d records examined", b.Examined.Records, b.Examined.Total)
	}
	switch {
	case b.Result.Matched != nil:
		say("%d matched", *b.Result.Matched)
	case b.Result.MatchedSoFar != nil:
		say("%d matched so far", *b.Result.MatchedSoFar)
	}
	if b.Examined.Basis != "range" || b.Result.Returned > 0 {
		say("%d records returned", b.Result.Returned)
	}
	if b.Result.Undecidable > 0 {
		say("%d undecidable", b.Result.Undecidable)
	}
	if b.Completion.More != "no" {
		say("more: %s", b.Completion.More)
	}
	n := int64(0)
	for _, r := range b.Disclosed.Ranges {
		n += r[1] - r[0]
	}
	say("%d bytes disclosed", n)
	return fmt.Sprintf("%s by %s at %s, %s: %s", b.Request.Action, *word(&b.Principal), b.IssuedAt, b.Completion.Stop, strings.Join(parts, ", "))
}

// VerifyReceipt judges the receipt that stands beside a manifest, as of a time. The
// fact is [FactScan]: attested by the keys that may speak as [RoleReceipt], a
// MISMATCH when the receipt is about another artifact, says of the capture what the
// manifest does not, or its signature is wrong,
// else unverifiable with the reason. For a reader with an ad-hoc key nothing is
// claimed: that key speaks for manifests alone. The receipt is nil unless the fact
// is attested. The error is about the form.
func VerifyReceipt(env Envelope, m *Manifest, policy *Policy, at time.Time) (*Receipt, Fact, error) {
	s, err := openStatement(env, PredicateReceipt)
	if err != nil {
		return nil, Fact{}, err
	}
	fact := Fact{Name: FactScan}
	receipt, ok := s.doc.Body.(*Receipt)
	if !ok {
		return nil, Fact{}, &Error{Op: "verify receipt", Err: ErrMalformed}
	}
	if err := receipt.Fits(m); err != nil {
		fact.State, fact.Reason = Mismatch, "the receipt is about another artifact"
		return nil, fact, nil
	}
	if want := CapturedOf(m.Predicate.ArtifactRef.Completeness); !receipt.Capture.equal(want) {
		fact.State, fact.Reason = Mismatch, "the receipt says of the capture what the manifest does not"
		return nil, fact, nil
	}
	keys, state, err := s.judge(policy, at)
	if err != nil {
		fact.State, fact.Reason = state, err.Error()
		if state == Unverifiable && policy != nil && policy.AdHoc() {
			fact.State, fact.Reason = NotClaimed, "ad-hoc key"
		}
		return nil, fact, nil
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	slices.Sort(names)
	fact.State, fact.By, fact.Role, fact.Detail = Attested, strings.Join(names, "+"), RoleReceipt, receipt.String()
	return receipt, fact, nil
}
