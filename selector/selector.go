// Package selector finds parts of an artifact in its original bytes: the
// records of a document, the value at a JSON Pointer, the records that satisfy
// a condition.
//
// A record is a byte span of the original bytes; nothing is ever
// re-serialised, so whatever is selected can be proven by the merkle package
// against the artifact's root. The record map ([BuildMap], [OpenMap],
// [MapSpans]) is a canonical byte string that lists the spans of all records:
// stored as a blob, its root signed in the manifest, one of its leaves shows
// where a record stands.
//
// # What this package shows, and what it does not
//
// [MapSpans] shows which spans a record map states. That the map was made
// honestly is its signer's word, until somebody builds it again from the bytes
// (the build is deterministic) and compares the roots. A scan ([Run]) shows
// nothing to third parties: its counts are the word of whoever ran it. The
// package neither asks who may read nor checks signatures.
//
// # Three outcomes
//
// A condition holds for a record, does not hold, or is undecidable there: the
// record does not parse, has a duplicate name on the selected path, a lone
// surrogate in the selected value, or exceeds the [Limits]. Undecidable
// records are counted, never dropped, so that an empty result cannot hide them.
package selector

import (
	"errors"
	"fmt"
)

// EngineVersion is the semantic version of filters: what equality, order,
// missing and undecidable mean. It is part of every qid and cursor, so that an
// answer is never continued under other rules.
const EngineVersion = "1"

// The record formats of a [Layout].
const (
	FormatBytes  = "bytes"  // no records
	FormatJSON   = "json"   // the elements of the array at Layout.Pointer
	FormatNDJSON = "ndjson" // one JSON value a line
	FormatCSV    = "csv"    // rows, as Layout.Dialect says
	FormatText   = "text"   // lines
	FormatConcat = "concat" // JSON values one after another; chosen by name only
)

// The errors that callers tell apart, with [errors.Is].
var (
	ErrNotRecords  = errors.New("not records of this format")        // the bytes do not have the layout that was asked for
	ErrLayout      = errors.New("invalid layout")                    // unknown format, bad dialect, limits out of range
	ErrPointer     = errors.New("no value at the pointer")           // well formed, but nothing stands there
	ErrUndecidable = errors.New("undecidable")                       // a duplicate name on the path, or bytes that do not parse
	ErrSelector    = errors.New("invalid selector")                  // syntax, types, or beyond a limit
	ErrRange       = errors.New("record range outside the artifact") // a < 0, b < a, or b past the last record
	ErrMap         = errors.New("malformed record map")              // bytes that are no canonical lpr1, or another source's
	ErrLimit       = errors.New("beyond a limit")                    // a sort that cannot be done in the memory or time it has
	ErrChanged     = errors.New("source changed while reading")      // shorter than its size says

	ErrCursorMalformed = errors.New("cursor malformed")
	ErrCursorForged    = errors.New("cursor forged")
	ErrCursorExpired   = errors.New("cursor expired")
	ErrCursorQuery     = errors.New("cursor belongs to another query")
	ErrCursorSnapshot  = errors.New("cursor belongs to another snapshot")
	ErrCursorScope     = errors.New("cursor belongs to another reader")
	// ErrCursorStore is an [ErrCursorScope]: the cursor was made by another store.
	ErrCursorStore = fmt.Errorf("%w: another store", ErrCursorScope)
)

// Error says which operation failed, where and why. Match the reason with
// [errors.Is]; take the place with [errors.AsType].
type Error struct {
	Op     string // the operation, as in "records" or "where"
	Offset int64  // the byte of the source or of the expression; -1 where there is none
	Detail string // what stands there, in words; may be empty
	Err    error  // the reason, never nil
}

// Error returns one line: operation, reason, detail and place.
func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(" (at byte %d)", e.Offset)
	}
	return s
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// fail makes an *Error; offset -1 means that no byte is to blame.
func fail(op string, offset int64, err error, format string, args ...any) *Error {
	return &Error{Op: op, Offset: offset, Detail: fmt.Sprintf(format, args...), Err: err}
}

// Span is the half-open byte range [Start, End) of a record or value in the
// original bytes, terminator excluded.
type Span struct {
	Start int64
	End   int64
}

// MarshalJSON writes the span as [start,end].
func (s Span) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "[%d,%d]", s.Start, s.End), nil }

// Len returns the span's length in bytes.
func (s Span) Len() int64 { return s.End - s.Start }
