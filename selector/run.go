package selector

import (
	"context"
	"errors"
	"io"

	"leafproof/merkle"
)

// Why a scan or read ended (Scan.Stop, Answer.Stop).
const (
	StopComplete  = "complete"   // every record was examined, and every row returned
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
	Record      int64 // the next record to examine; in another order, the last row's record + 1
	Offset      int64 // the byte where the last examined record ended
	Examined    int64 // records examined, each counted once
	Matched     int64
	Undecidable int64
	Bytes       int64 // bytes of the examined records
}

// Budget bounds one call of [Task.Run]. A zero field is no bound; a negative
// one is an error.
type Budget struct {
	Limit       int64 // records to return
	MaxRecords  int64 // records to examine
	MaxBytes    int64 // record bytes to examine; at least one record is examined
	ReturnBytes int64 // record bytes to return; at least one record is returned
}

// Scan is what one call of [Task.Run] did.
type Scan struct {
	Position    Position // where to go on; counts are cumulative
	Stop        string
	More        string
	Returned    int64          // records given to emit by this call
	Ranges      []merkle.Range // record numbers examined since record 0
	Undecidable []Span         // the first 16 undecidable records of this call
	Counted     bool           // every record is accounted for: the counts are exact, also where Stop is not StopComplete
	// Through is how many records are accounted for: those examined, and those that
	// an index tells of.
	Through int64
	// Indexed says that an index told which records to examine, here or in front of
	// where the call began; Indexes are the paths of those that this call used.
	Indexed bool
	Indexes []string
}

// A Row is a record that a [Task] returns.
type Row struct {
	Record int64
	Span   Span
	Bytes  []byte // of the record, valid until emit returns
	// Selected has, for each of Task.Select, the values selected in the record;
	// nil where nothing is selected. Values that it shares are not copied: they
	// are valid until emit returns.
	Selected [][]Value
}

// A Value is a part of a record, as it stands there.
type Value struct {
	Path  string // its normalized path from the record, $ (RFC 9535 section 2.7)
	Span  Span   // where it stands in the source
	Bytes []byte
}

// A Task is a question about the records of a source.
type Task struct {
	Source  io.ReaderAt // safe for concurrent use
	Map     *Map        // of Source
	Layout  Layout
	Where   *Where    // nil: every record matches
	Order   []*Order  // first by the first, then by record number; none: document order
	Select  []*Select // the parts of a row that are wanted; none: only the whole record
	Trust   Trust
	From    Position
	Budget  Budget
	Workers int   // records are decided by so many goroutines; 0: one a core, at most 16
	Whole   bool  // every record is examined, whatever indexes there are
	Spill   Spill // where another order than the document's finds room; nil: it has a few MiB

	keys func(Layout) (keyer, error) // of another order; nil: document order
	room int64                       // bytes for a sort; 0: sortMemory
	use  *indexUse                   // of indexes; nil: all records are examined
}

// Run examines records from t.From on and gives the matching ones to emit; emit
// nil only counts. Records are decided on several cores, but emit is called in
// the order of the result by the goroutine that called Run, and memory does not
// grow with the source: it holds a few MiB and, where a record is longer, that
// record.
//
// It stops at record boundaries, and what it returns can be continued: pages of
// any size concatenate to the one-page answer. At the limit it goes on to the
// next match, within the budget, so that More is yes or no and a last page is
// complete; it stops in front of that match. Where the budget ends first, Stop
// is page_limit and More is unknown.
//
// A matching record whose values in Order or Select cannot be told is
// undecidable.
//
// In another order than the document's every page examines all records before
// its first row: a scan that is cut short has no rows, and Position stays.
//
// A deadline, a cancelled context and a budget are no errors: Stop says so.
func (t Task) Run(ctx context.Context, emit func(Row) error) (Scan, error) {
	l, err := t.Layout.normal()
	if err != nil {
		return Scan{}, err
	}
	t.Layout = l
	b := t.Budget
	if b.Limit < 0 || b.MaxRecords < 0 || b.MaxBytes < 0 || b.ReturnBytes < 0 {
		return Scan{}, fail("query", -1, ErrSelector, "a negative limit")
	}
	if err := t.Map.head.checkRange(t.From.Record, t.Map.Records()); err != nil {
		return Scan{}, err
	}
	if t.Map.head.layout != l.Digest() {
		return Scan{}, badMap(48, "made for another record layout")
	}
	r := &runner{budget: b, emit: emit}
	r.scan = Scan{Position: t.From, More: MoreUnknown, Undecidable: []Span{}, Ranges: []merkle.Range{}}
	if len(t.Order) > 0 && t.keys == nil {
		t.keys = func(l Layout) (keyer, error) { return NewKeys(l, t.Order) }
	}
	// In front of From an index may have told which records to examine.
	r.scan.Indexed = t.use != nil || t.keys == nil && t.From.Examined < t.From.Record
	r.scan.Indexes = t.use.paths()
	switch {
	case emit == nil && t.use != nil && t.use.exact:
		err = r.tally(ctx, t)
		r.scan.Counted = r.scan.Stop == StopComplete
	case t.keys != nil && emit != nil && t.use != nil && t.use.walk:
		if err = r.walk(ctx, t); errors.As(err, new(indexFault)) && ctx.Err() == nil {
			// The rows so far are right, and those behind them can be found without.
			t.use, t.From = nil, Position{Record: r.scan.Position.Record}
			r.scan.Indexed, r.scan.Indexes, r.scan.Undecidable = false, nil, []Span{}
			r.examined, r.bytes = 0, 0
			err = r.ordered(ctx, t)
		}
	case t.keys != nil && emit != nil:
		err = r.ordered(ctx, t)
	default:
		err = r.document(ctx, t)
		r.scan.Counted = r.scan.Stop == StopComplete
	}
	p := &r.scan.Position
	switch {
	case r.scan.Counted:
		r.scan.Through = t.Map.Records()
	case t.keys == nil || emit == nil:
		r.scan.Through = p.Record
	default:
		r.scan.Through = p.Examined
	}
	if n := p.Examined; n > 0 && !r.scan.Indexed {
		r.scan.Ranges = append(r.scan.Ranges, merkle.Range{Start: 0, End: n})
	}
	return r.scan, err
}

// runner counts, stops and gives rows away, in the order of the result.
type runner struct {
	budget   Budget
	emit     func(Row) error
	scan     Scan
	examined int64 // records, by this call
	bytes    int64 // of these
	returned int64 // bytes
}

// document runs a task in document order.
func (r *runner) document(ctx context.Context, t Task) error {
	end := t.Map.Records()
	if n := r.budget.MaxRecords; n > 0 && n < end-t.From.Record && t.use == nil {
		end = t.From.Record + n + 1 // the one behind the budget stops the scan
	}
	feed, err := newFeeder(t, end, r.emit != nil)
	if err != nil {
		return r.ended(ctx, err)
	}
	err = feed.each(ctx, func(b *batch) error {
		for i, s := range b.spans[:b.decided] {
			if r.examined%64 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if r.spent(s) {
				r.scan.Position.Record = b.record(i)
				r.stop(StopBudget)
				return errStopped
			}
			if err := r.record(b, i); err != nil {
				return err
			}
		}
		return b.err
	})
	if err == nil {
		r.scan.Position.Record = t.Map.Records()
	}
	return r.ended(ctx, err)
}

var errStopped = errors.New("stopped")

// ended says how a scan ended that came to its end (nil) or met err.
func (r *runner) ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		r.scan.Stop, r.scan.More = StopComplete, MoreNo
	case errors.Is(err, errStopped):
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		r.stop(StopDeadline)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		r.stop(StopCancelled)
	default:
		r.scan.Stop = StopError
		return err
	}
	return nil
}

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

// fits reports whether one more row fits into the page; if not, the scan stops
// in front of it.
func (r *runner) fits(s Span) bool {
	full := r.full()
	tooMuch := r.budget.ReturnBytes > 0 && r.scan.Returned > 0 && r.returned > r.budget.ReturnBytes-s.Len()
	if full || tooMuch {
		r.scan.Stop, r.scan.More = StopByteLimit, MoreYes
		if full {
			r.scan.Stop = StopPageLimit
		}
	}
	return !full && !tooMuch
}

// give emits a row and counts it as returned.
func (r *runner) give(row Row) error {
	if r.emit != nil {
		if err := r.emit(row); err != nil {
			return err
		}
	}
	r.scan.Returned++
	r.returned += row.Span.Len()
	return nil
}

// record takes the next record, which a batch decided.
func (r *runner) record(b *batch, i int) error {
	s := b.spans[i]
	r.scan.Position.Record = b.record(i) // those in front of it are accounted for
	if b.outcome[i] == Matched {
		if !r.fits(s) {
			return errStopped
		}
		if err := r.give(b.row(i)); err != nil {
			return err
		}
	}
	r.count(s, b.outcome[i])
	r.scan.Position.Record++
	r.scan.Position.Offset = s.End
	return nil
}

// count counts an examined record.
func (r *runner) count(s Span, o Outcome) {
	p := &r.scan.Position
	switch o {
	case Matched:
		p.Matched++
	case Undecidable:
		p.Undecidable++
		if len(r.scan.Undecidable) < maxListed {
			r.scan.Undecidable = append(r.scan.Undecidable, s)
		}
	}
	p.Examined, p.Bytes = p.Examined+1, p.Bytes+s.Len()
	r.examined, r.bytes = r.examined+1, r.bytes+s.Len()
}

// Run is [Task.Run] for a task in document order that trusts no validation.
func Run(ctx context.Context, src io.ReaderAt, m *Map, l Layout, w *Where, from Position, b Budget, emit func(rec int64, s Span, bytes []byte) error) (Scan, error) {
	t := Task{Source: src, Map: m, Layout: l, Where: w, From: from, Budget: b}
	if emit == nil {
		return t.Run(ctx, nil)
	}
	return t.Run(ctx, func(r Row) error { return emit(r.Record, r.Span, r.Bytes) })
}
