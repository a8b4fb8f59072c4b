package selector

import (
	"context"
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
func Run(ctx context.Context, src io.ReaderAt, m *Map, l Layout, w *Where, from Position, b Budget, emit func(rec int64, s Span, bytes []byte) error) (Scan, error) {
	return Scan{}, errTODO
}
