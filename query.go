package leafproof

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// cursorLife is how long a cursor can be continued from.
const cursorLife = 15 * time.Minute

// Query is a question about an artifact's records.
type Query struct {
	// Where is the condition; see [selector.ParseWhere].
	Where string
	// Limit is how many records to return at most; 0 is no limit.
	Limit int64
	// Cursor goes on where an earlier answer to the same query stopped.
	Cursor string
	// Count asks for the number alone: no record is disclosed.
	Count bool
	// Progress, where set, is told how many bytes were read, in steps.
	Progress func(bytes int64)
	// MaxRecords and MaxBytes bound what may be examined; 0 is no bound.
	MaxRecords, MaxBytes int64
	// Receipt, where set, is filled with the signed receipt of the answer, also of
	// one that was cut short. The receipts of a query's pages form a chain.
	Receipt *Statement
}

// A Row is one record that a query returned.
type Row struct {
	Record int64         // its number, from 0
	Span   selector.Span // where it stands in the artifact
	Bytes  []byte        // its bytes, valid until emit returns
	JSON   bool          // the record is a JSON value, as opposed to a CSV row or a line
}

// Query gives the records that satisfy a condition to emit, in document order,
// and answers with what it examined. The gate is asked before the first record
// and again at every flush.
//
// With emit nil, the rows are only counted. An error of emit ends the scan and is
// returned, wrapped.
//
// A scan that did not reach its end returns both an answer, which says how far it
// came, and an error with [CodeScanIncomplete] or [CodeBudgetExhausted].
func (s *Store) Query(ctx context.Context, who Caller, id string, q Query, emit func(Row) error) (*selector.Answer, error) {
	action := gate.Query
	if q.Count {
		action = gate.Count
	}
	a, err := s.find(ctx, who, id, action)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	if q.Count { // a number and nothing else: no page of it, no place
		if q.Limit != 0 || q.Cursor != "" {
			return nil, fail(CodeSelectorInvalid, FixCall, "count", "a count goes with no limit and no cursor: it is of all records")
		}
		emit = nil
	}
	answer, where, err := a.ask(q)
	if err != nil {
		return nil, wireError(id, err)
	}
	binding := s.binding(who, a, answer)
	from, err := s.from(ctx, q, binding)
	if err != nil {
		return nil, wireError("", err)
	}
	receipt, err := a.recorder(ctx, q.Receipt)
	if err != nil {
		return nil, wireError(id, err)
	}
	isJSON := a.layout().Format == selector.FormatJSON || a.layout().Format == selector.FormatNDJSON
	// Rows pass a gated writer on their way to emit: it looks at the permit.
	gated, err := gate.NewWriter(ctx, io.Discard, permit, a.request)
	if err != nil {
		return nil, wireError(id, err)
	}
	var give func(int64, selector.Span, []byte) error
	if emit != nil {
		give = func(rec int64, span selector.Span, b []byte) error {
			if _, err := gated.Write(b); err != nil {
				return err
			}
			if err := receipt.row(span, b); err != nil {
				return err
			}
			return emit(Row{rec, span, b, isJSON})
		}
	}
	scan, scanErr := a.scan(ctx, q, where, from, give)
	if scanErr != nil && scan.Stop == "" {
		return nil, wireError(id, scanErr)
	}
	if _, err := permit.Renew(context.WithoutCancel(ctx)); err != nil { // the counts are a disclosure too
		return nil, wireError(id, err)
	}
	if q.Count {
		scan.Returned, scan.Undecidable = 0, nil
	}
	answer.Fill(scan)
	if !q.Count && scan.Stop != selector.StopComplete && scan.Stop != selector.StopError && scan.More != selector.MoreNo {
		now, err := s.catalogue.Now(context.WithoutCancel(ctx))
		if err != nil {
			return nil, wireError(id, err)
		}
		answer.Cursor = selector.SealCursor(s.cursorKey, s.id[:8], binding, scan.Position, now.Add(cursorLife))
	}
	answer.Conclude()
	if err := receipt.sign(ctx, permit, answer, asked{where: q.Where, limit: q.Limit, cursor: q.Cursor}); err != nil {
		return nil, wireError(id, err)
	}
	return answer, incomplete(id, scan.Stop, scanErr)
}

// ask begins the answer to a query: everything but what the scan will find.
func (a *artifact) ask(q Query) (*selector.Answer, *selector.Where, error) {
	if q.Limit < 0 || q.MaxRecords < 0 || q.MaxBytes < 0 {
		return nil, nil, fail(CodeSelectorInvalid, FixCall, "limit", "a limit of %d: it is at least 0", min(q.Limit, q.MaxRecords, q.MaxBytes))
	}
	if err := a.allows(manifest.SelectorQuery); err != nil {
		return nil, nil, err
	}
	where, err := selector.ParseWhere(q.Where)
	if err != nil {
		return nil, nil, err
	}
	if err := where.Fits(a.layout()); err != nil {
		return nil, nil, err
	}
	var redacted []string
	for _, r := range a.m.Predicate.ArtifactRef.Completeness.Redactions {
		redacted = append(redacted, r.Path)
	}
	where = where.WithRedactions(redacted)
	answer := a.answer()
	layout := a.layout()
	answer.Selector, answer.QID, answer.Where = json.RawMessage(where.Normalised(layout)), where.QID(layout), where
	answer.Basis = selector.BasisScan
	return answer, where, nil
}

func (a *artifact) scan(ctx context.Context, q Query, where *selector.Where, from selector.Position,
	emit func(int64, selector.Span, []byte) error,
) (selector.Scan, error) {
	data, err := a.data(ctx)
	if err != nil {
		return selector.Scan{}, err
	}
	defer data.Close()
	file, m, layout, err := a.records(ctx)
	if err != nil {
		return selector.Scan{}, err
	}
	defer file.Close()
	budget := selector.Budget{Limit: q.Limit, MaxRecords: q.MaxRecords, MaxBytes: q.MaxBytes}
	var src io.ReaderAt = data
	if q.Progress != nil {
		src = watched{data, q.Progress}
	}
	return selector.Run(ctx, src, m, layout, where, from, budget, emit)
}

// watched tells how many bytes were read.
type watched struct {
	r    io.ReaderAt
	tell func(int64)
}

func (w watched) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.r.ReadAt(p, off)
	w.tell(int64(n))
	return n, err
}

// incomplete is the error of a scan that stopped before its end for another
// reason than a full page.
func incomplete(id, stop string, err error) error {
	switch stop {
	case selector.StopBudget:
		return fail(CodeBudgetExhausted, Wait, id, "%s: the budget was used up before the scan was complete", id)
	case selector.StopDeadline, selector.StopCancelled:
		return fail(CodeScanIncomplete, Wait, id, "%s: the scan was interrupted (%s)", id, stop)
	}
	return wireError(id, err)
}

func (s *Store) binding(who Caller, a *artifact, answer *selector.Answer) selector.Binding {
	return selector.Binding{
		Store: s.id, Principal: string(who.Principal), Tenant: a.row.Tenant, Run: a.request.Run,
		ArtifactID: a.row.ArtifactID, ManifestID: a.m.ManifestID, QID: answer.QID, Order: answer.Order,
	}
}

// from is where the scan of a query begins.
func (s *Store) from(ctx context.Context, q Query, b selector.Binding) (selector.Position, error) {
	if q.Cursor == "" {
		return selector.Position{}, nil
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return selector.Position{}, err
	}
	return selector.OpenCursor(s.cursorKey, b, now, q.Cursor)
}

// answer begins an answer with what the manifest says.
func (a *artifact) answer() *selector.Answer {
	ref := a.m.Predicate.ArtifactRef
	c := ref.Completeness
	capture := selector.Capture{
		Status: c.Status, Coverage: c.Coverage, Records: c.Records,
		Omissions: []selector.Omission{}, Redactions: []selector.Redaction{},
	}
	for _, o := range c.Omissions {
		capture.Omissions = append(capture.Omissions, selector.Omission{What: o.What, Reason: o.Reason, Detail: o.Detail})
	}
	for _, r := range c.Redactions {
		capture.Redactions = append(capture.Redactions, selector.Redaction{Path: r.Path, Records: r.Records, Method: r.Method, Reason: r.Reason})
	}
	out := &selector.Answer{
		ArtifactID: a.row.ArtifactID, ManifestID: a.m.ManifestID,
		SourceVersion: selector.SourceVersion(ref.SourceVersion),
		Order:         selector.OrderDocument, Completeness: capture, Assurance: selector.AssuranceAttested,
	}
	if a.m.Predicate.Records != nil {
		out.RecordsTotal = a.m.Predicate.Records.Count
	}
	return out
}

// layout is how the artifact's records stand in its bytes. It has some.
func (a *artifact) layout() selector.Layout { return bundle.Layout(a.m.Predicate.Records) }

// rangeAnswer is the answer to a read by position, which always reaches its end.
// Nothing was searched, so it counts no matches.
func (a *artifact) rangeAnswer(p *part) *selector.Answer {
	out := a.answer()
	out.Selector, out.QID = p.selector, selector.QID(p.selector)
	out.Basis = selector.BasisRange
	scan := selector.Scan{
		Position: selector.Position{Examined: p.records, Bytes: p.bytes},
		Stop:     selector.StopComplete, More: selector.MoreNo, Returned: p.records,
	}
	if p.records > 0 {
		scan.Ranges = []merkle.Range{{Start: p.first, End: p.first + p.records}}
	}
	out.Fill(scan)
	out.Matched, out.MatchedSoFar = nil, nil
	out.Conclude()
	return out
}
