package leafproof

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"leafproof/cas"
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
	// Where is the condition; see [selector.ParseWhere]. Empty, it holds for every
	// record.
	Where string
	// Order has the keys that the rows are ordered by, then by record number; see
	// [selector.ParseOrder]. Every page of such a result examines all records.
	Order []string
	// Select has the parts of the records that are wanted; see
	// [selector.ParseSelect]. None are whole records.
	Select []string
	// Limit is how many records to return at most; 0 is no limit.
	Limit int64
	// Cursor goes on where an earlier answer to the same query stopped.
	Cursor string
	// Count asks for the number alone: no record is disclosed. With a bound on what
	// is examined, leave to query is needed: the counts of two beginnings tell which
	// records match.
	Count bool
	// Progress, where set, is told how many bytes were read, in steps.
	Progress func(bytes int64)
	// MaxRecords and MaxBytes bound what may be examined, ReturnBytes how many bytes
	// of records a page may have (one record at least); 0 is no bound.
	MaxRecords, MaxBytes, ReturnBytes int64
	// Receipt, where set, is filled with the signed receipt of the answer, also of
	// one that was cut short. The receipts of a query's pages form a chain.
	Receipt *Statement
}

// A Row is one record that a query returned.
type Row struct {
	Record int64         // its number, from 0
	Span   selector.Span // where it stands in the artifact
	Bytes  []byte        // its bytes, valid until emit returns; nil where only parts of it were selected
	JSON   bool          // the record is a JSON value, as opposed to a CSV row or a line
	// Selected has, for each of Query.Select, the values that it selects in the
	// record, in order.
	Selected [][]selector.Value

	many []bool // by selection: it may select several values
}

// AppendText appends the row as a line of text, without a line end: the record
// as it stands; or, where parts of it were selected, a field for each selection,
// with a tab between two: the value as it stands, nothing where there is none,
// and for a selection that may have several [, the values with a comma between
// two, and ].
func (r Row) AppendText(dst []byte) []byte {
	if r.Selected == nil {
		return append(dst, r.Bytes...)
	}
	for i, values := range r.Selected {
		if i > 0 {
			dst = append(dst, '\t')
		}
		if r.many[i] {
			dst = append(dst, '[')
		}
		for j, v := range values {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, v.Bytes...)
		}
		if r.many[i] {
			dst = append(dst, ']')
		}
	}
	return dst
}

// Query gives the records that satisfy a condition to emit, in the order asked for,
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
	if q.Count && q.MaxRecords == 0 && q.MaxBytes == 0 { // the count of a part tells which part
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
		if q.Limit != 0 || q.Cursor != "" || len(q.Order) > 0 || len(q.Select) > 0 {
			return nil, fail(CodeSelectorInvalid, FixCall, "count", "a count goes with no limit, cursor, order or selection: it is of all records")
		}
		emit = nil
	}
	answer, task, err := a.ask(q)
	if err != nil {
		return nil, wireError(id, err)
	}
	binding := s.binding(who, a, answer)
	task.From, binding.Indexed, err = s.from(ctx, q, binding)
	if err != nil {
		return nil, wireError("", err)
	}
	task.Whole = q.Cursor != "" && !binding.Indexed
	receipt, err := a.recorder(ctx, q.Receipt)
	if err != nil {
		return nil, wireError(id, err)
	}
	// Rows pass a gated writer on their way to emit: it looks at the permit.
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, io.Discard), permit, a.request)
	if err != nil {
		return nil, wireError(id, err)
	}
	shown := &rowsShown{a: a, permit: permit, qid: answer.QID, last: time.Now()}
	var give func(selector.Row) error
	if emit != nil {
		rows := rowMaker{isJSON: isJSON(task.Layout.Format)}
		for _, s := range task.Select {
			rows.many = append(rows.many, !s.Singular())
		}
		give = func(r selector.Row) error {
			row, text := rows.row(r)
			return gated.Pass(len(text), func() error {
				if err := shown.row(ctx, row); err != nil {
					return err
				}
				if err := receipt.row(row, text); err != nil {
					return err
				}
				return emit(row)
			})
		}
	}
	scan, scanErr := a.scan(ctx, q, *task, give)
	if err := shown.record(ctx); err != nil {
		return nil, err
	}
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
	more := scan.Stop != selector.StopComplete && scan.Stop != selector.StopError && scan.More != selector.MoreNo
	if len(task.Order) > 0 && scan.Returned == 0 {
		more = false // no row, no place in the order to go on from
	}
	if more && !q.Count {
		now, err := s.catalogue.Now(context.WithoutCancel(ctx))
		if err != nil {
			return nil, wireError(id, err)
		}
		binding.Indexed = scan.Indexed
		answer.Cursor = selector.SealCursor(s.cursorKey, s.id[:8], binding, scan.Position, now.Add(cursorLife))
	}
	answer.Conclude()
	if err := receipt.sign(ctx, permit, answer, asked{where: q.Where, limit: q.Limit, cursor: q.Cursor}); err != nil {
		return nil, wireError(id, err)
	}
	return answer, incomplete(id, scan.Stop, scanErr)
}

// rowMaker makes the rows of a query.
type rowMaker struct {
	isJSON bool
	many   []bool
	text   []byte
}

// row returns a row and its text; both are valid until the next.
func (m *rowMaker) row(r selector.Row) (Row, []byte) {
	row := Row{Record: r.Record, Span: r.Span, Bytes: r.Bytes, JSON: m.isJSON}
	if len(m.many) == 0 {
		return row, r.Bytes
	}
	row.Bytes, row.Selected, row.many = nil, r.Selected, m.many
	m.text = row.AppendText(m.text[:0])
	return row, m.text
}

// isJSON reports whether the records of a format are JSON values.
func isJSON(format string) bool {
	return format == selector.FormatJSON || format == selector.FormatNDJSON || format == selector.FormatConcat
}

// ask begins the answer to a query, everything but what the scan will find, and
// the task that finds it.
func (a *artifact) ask(q Query) (*selector.Answer, *selector.Task, error) {
	if least := min(q.Limit, q.MaxRecords, q.MaxBytes, q.ReturnBytes); least < 0 {
		return nil, nil, fail(CodeSelectorInvalid, FixCall, "limit", "a limit of %d: it is at least 0", least)
	}
	if err := a.allows(manifest.SelectorQuery); err != nil {
		return nil, nil, err
	}
	asked, err := q.parse(a.layout(), a.redacted())
	if err != nil {
		return nil, nil, err
	}
	answer := a.answer()
	answer.Selector, answer.QID = json.RawMessage(asked.Normalised(a.layout())), asked.QID(a.layout())
	answer.Query, answer.Order = asked, selector.OrderText(asked.Order)
	answer.Basis = selector.BasisScan
	return answer, &selector.Task{
		Layout: a.layout(), Where: asked.Where, Order: asked.Order, Select: asked.Select, Trust: a.trust(),
		Budget: selector.Budget{Limit: q.Limit, MaxRecords: q.MaxRecords, MaxBytes: q.MaxBytes, ReturnBytes: q.ReturnBytes},
	}, nil
}

// parse reads what a query asks of records of a layout, some of whose values
// were removed or masked.
func (q Query) parse(l selector.Layout, redacted []string) (*selector.Query, error) {
	out := &selector.Query{}
	if q.Where != "" {
		where, err := selector.ParseWhere(q.Where)
		if err == nil {
			err = where.Fits(l)
		}
		if err != nil {
			return nil, err
		}
		out.Where = where.WithRedactions(redacted)
	}
	for _, text := range q.Order {
		o, err := selector.ParseOrder(text)
		if err == nil {
			err = o.Fits(l)
		}
		if err != nil {
			return nil, err
		}
		out.Order = append(out.Order, o.WithRedactions(redacted))
	}
	for _, text := range q.Select {
		s, err := selector.ParseSelect(text)
		if err == nil {
			err = s.Fits(l)
		}
		if err != nil {
			return nil, err
		}
		out.Select = append(out.Select, s)
	}
	return out, nil
}

// redacted lists the pointers of the values that the producer removed or masked.
func (a *artifact) redacted() (paths []string) {
	for _, r := range a.m.Predicate.ArtifactRef.Completeness.Redactions {
		paths = append(paths, r.Path)
	}
	return paths
}

// trust is what the signed manifest says of the pass that validated the records.
func (a *artifact) trust() selector.Trust {
	f := a.m.Predicate.Records.Flags
	t := selector.Trust{Validated: true, Undecidable: f.Undecidable}
	for _, s := range f.UndecidableSpans {
		t.Spans = append(t.Spans, selector.Span{Start: s[0], End: s[1]})
	}
	return t
}

// scan runs a task over the artifact's bytes.
func (a *artifact) scan(ctx context.Context, q Query, task selector.Task, emit func(selector.Row) error) (_ selector.Scan, err error) {
	rec := a.m.Predicate.Records
	if rec == nil || rec.Map == nil {
		return selector.Scan{}, fail(CodeNotRecords, FixCall, a.row.ArtifactID, "%s has no records", a.row.ArtifactID)
	}
	data, err := a.lend(ctx, a.m.Root, a.m.Size)
	if err != nil {
		return selector.Scan{}, err
	}
	defer func() { a.store.readers.give(data, err != nil) }()
	root, err := merkle.ParseRoot(rec.Map.Root)
	if err != nil {
		return selector.Scan{}, err
	}
	file, err := a.lend(ctx, root, rec.Map.Size)
	if err != nil {
		return selector.Scan{}, err
	}
	defer func() { a.store.readers.give(file, err != nil) }()
	m, err := selector.OpenMap(file, rec.Map.Size, a.m.Root, a.m.Size, a.layout())
	if err != nil {
		return selector.Scan{}, err
	}
	var room spillFile
	defer room.Close()
	task.Source, task.Map, task.Spill = data, m, &room
	if q.Progress != nil {
		task.Source = watched{data, q.Progress}
	}
	defer a.consult(ctx, &task, emit != nil)()
	return task.Run(ctx, emit)
}

// lend opens a blob of the artifact, or takes it as it was left open a moment ago.
func (a *artifact) lend(ctx context.Context, root merkle.Root, size int64) (*lentReader, error) {
	return a.store.readers.take(ctx, a.store.objects, readerKey{cas.TenantOf(a.row.Tenant), root}, size)
}

// watched tells how many bytes were read. Several goroutines may read.
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

// from is where the scan of a query begins, and whether an index told which
// records were examined in front of it.
func (s *Store) from(ctx context.Context, q Query, b selector.Binding) (at selector.Position, indexed bool, err error) {
	if q.Cursor == "" {
		return at, false, nil
	}
	if other, err := selector.CursorKeyedByOther(q.Cursor, s.id[:8]); err != nil || other {
		if err == nil {
			err = selector.ErrCursorStore
		}
		return at, false, err
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return at, false, err
	}
	if at, err = selector.OpenCursor(s.cursorKey, b, now, q.Cursor); !errors.Is(err, selector.ErrCursorQuery) {
		return at, false, err
	}
	b.Indexed = true
	if there, indexedErr := selector.OpenCursor(s.cursorKey, b, now, q.Cursor); indexedErr == nil {
		return there, true, nil
	}
	return at, false, err
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
		SupersededBy: a.later,
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
