package selector

import (
	"context"
	"errors"
	"io"

	"leafproof/merkle"
)

// Why a scan or read ended (Scan.Stop, Answer.Stop).
const (
	StopComplete  = "complete"   // every record was examined
	StopPageLimit = "page_limit" // Budget.Limit rows were returned
	StopByteLimit = "byte_limit" // Budget.ReturnBytes was reached
	StopBudget    = "budget"     // Budget.MaxRecords or MaxBytes was used up
	StopDeadline  = "deadline"   // the context's deadline passed
	StopCancelled = "cancelled"  // the context was cancelled
	StopError     = "error"      // reading failed
)

// Whether further records match (Scan.More, Answer.More).
const (
	MoreYes     = "yes"
	MoreNo      = "no"
	MoreUnknown = "unknown"
)

// Position is where a scan stands, with what it counted since record 0. The
// zero Position is the beginning.
type Position struct {
	Record      int64 // the next record to examine
	Offset      int64 // the byte where the last examined record ended
	Examined    int64 // records examined
	Matched     int64
	Undecidable int64
	Bytes       int64 // bytes of the examined records
}

// Budget bounds one call of [Run]. A zero field is no bound; a negative one is
// an error.
type Budget struct {
	Limit       int64 // records to return
	MaxRecords  int64 // records to examine
	MaxBytes    int64 // record bytes to examine; at least one record is examined
	ReturnBytes int64 // record bytes to return; at least one record is returned
}

// Scan is what one call of [Run] did.
type Scan struct {
	Position    Position // where to go on; counts are cumulative
	Stop        string
	More        string
	Returned    int64          // records given to emit by this call
	Ranges      []merkle.Range // record numbers examined since record 0
	Undecidable []Span         // the first 16 undecidable records of this call
}

// Run examines records in document order from a position on and gives the
// matching ones to emit, whose bytes are valid until it returns; w nil matches
// every record, emit nil only counts.
//
// It stops at record boundaries, and what it returns can be continued: pages of
// any size concatenate to the one-page answer. At the limit it goes on to the
// next match, within the budget, so that More is yes or no and a last page is
// complete; it stops in front of that match. Where the budget ends first, Stop
// is page_limit and More is unknown.
//
// A deadline, a cancelled context and a budget are no errors: Stop says so.
func Run(ctx context.Context, src io.ReaderAt, m *Map, l Layout, w *Where, from Position, b Budget, emit func(rec int64, s Span, bytes []byte) error) (Scan, error) {
	l, err := l.normal()
	if err != nil {
		return Scan{}, err
	}
	if b.Limit < 0 || b.MaxRecords < 0 || b.MaxBytes < 0 || b.ReturnBytes < 0 {
		return Scan{}, fail("query", -1, ErrSelector, "a negative limit")
	}
	if err := m.head.checkRange(from.Record, m.Records()); err != nil {
		return Scan{}, err
	}
	if m.head.layout != l.Digest() {
		return Scan{}, badMap(48, "made for another record layout")
	}
	r := &runner{budget: b, emit: emit, in: window{src: src, size: m.head.size}, limit: l.Limits.Record}
	r.scan = Scan{Position: from, Undecidable: []Span{}, Ranges: []merkle.Range{}}
	if w != nil {
		r.eval = newEvaluator(w, l)
	}
	err = r.run(ctx, m)
	if n := r.scan.Position.Record; n > 0 {
		r.scan.Ranges = append(r.scan.Ranges, merkle.Range{Start: 0, End: n})
	}
	return r.scan, err
}

// runner is one call of Run.
type runner struct {
	budget   Budget
	eval     *evaluator // nil: every record matches
	emit     func(rec int64, s Span, bytes []byte) error
	in       window
	limit    int64 // bytes of a record
	scan     Scan
	examined int64 // records, by this call
	bytes    int64 // of these
	returned int64 // bytes
}

func (r *runner) run(ctx context.Context, m *Map) error {
	r.scan.More = MoreUnknown
	for s, err := range m.Spans(ctx, r.scan.Position.Record, m.Records()) {
		if err == nil && r.examined%64 == 0 {
			err = ctx.Err()
		}
		if err == nil {
			if r.spent(s) {
				r.stop(StopBudget)
				return nil
			}
			if err = r.record(s); err == nil {
				continue
			}
		}
		switch {
		case errors.Is(err, errStopped):
			return nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
			r.stop(StopDeadline)
			return nil
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			r.stop(StopCancelled)
			return nil
		case err != nil:
			r.scan.Stop = StopError
			return err
		}
	}
	r.scan.Stop, r.scan.More = StopComplete, MoreNo
	return nil
}

var errStopped = errors.New("stopped in front of a match")

// stop ends the scan for a reason; behind the last row of a page it is the
// page that ended.
func (r *runner) stop(why string) {
	r.scan.Stop = why
	if r.full() {
		r.scan.Stop = StopPageLimit
	}
}

func (r *runner) full() bool { return r.budget.Limit > 0 && r.scan.Returned >= r.budget.Limit }

// spent reports whether the budget does not allow one more record.
func (r *runner) spent(s Span) bool {
	b := r.budget
	return b.MaxRecords > 0 && r.examined >= b.MaxRecords ||
		b.MaxBytes > 0 && r.examined > 0 && r.bytes > b.MaxBytes-s.Len()
}

// record examines one record.
func (r *runner) record(s Span) error {
	got, p, err := r.decide(s)
	if err != nil {
		return err
	}
	if got == Matched {
		tooMuch := r.budget.ReturnBytes > 0 && r.scan.Returned > 0 && r.returned > r.budget.ReturnBytes-s.Len()
		if r.full() || tooMuch {
			r.scan.Stop, r.scan.More = StopByteLimit, MoreYes
			if r.full() {
				r.scan.Stop = StopPageLimit
			}
			return errStopped
		}
		if r.emit != nil {
			if err := r.emit(r.scan.Position.Record, s, p); err != nil {
				return err
			}
		}
		r.scan.Returned++
		r.returned += s.Len()
		r.scan.Position.Matched++
	}
	if got == Undecidable {
		r.scan.Position.Undecidable++
		if len(r.scan.Undecidable) < maxListed {
			r.scan.Undecidable = append(r.scan.Undecidable, s)
		}
	}
	pos := &r.scan.Position
	pos.Record, pos.Offset = pos.Record+1, s.End
	pos.Examined, pos.Bytes = pos.Examined+1, pos.Bytes+s.Len()
	r.examined, r.bytes = r.examined+1, r.bytes+s.Len()
	return nil
}

// decide reads a record, where its bytes are needed, and decides it.
func (r *runner) decide(s Span) (Outcome, []byte, error) {
	if r.eval != nil && s.Len() > r.limit {
		return Undecidable, nil, nil
	}
	if r.eval == nil && r.emit == nil {
		return Matched, nil, nil
	}
	if s.Len() > DefaultLimits.Record {
		return Undecidable, nil, fail("query", s.Start, ErrRange, "a record of %d bytes is too long to return", s.Len())
	}
	p, err := r.in.bytes(s)
	if err != nil || r.eval == nil {
		return Matched, p, err
	}
	return r.eval.eval(p), p, nil
}

// window reads ascending spans of a source through one block.
type window struct {
	src  io.ReaderAt
	size int64
	buf  []byte
	base int64
	n    int
}

// bytes returns the bytes of a span, valid until the next call.
func (w *window) bytes(s Span) ([]byte, error) {
	if s.Start < w.base || s.End > w.base+int64(w.n) {
		n := min(max(s.Len(), blockSize), w.size-s.Start)
		if int64(cap(w.buf)) < n {
			w.buf = make([]byte, n)
		}
		w.base, w.n = s.Start, 0
		if err := readFull(w.src, w.buf[:n], s.Start); err != nil {
			return nil, err
		}
		w.n = int(n)
	}
	return w.buf[s.Start-w.base : s.End-w.base], nil
}
