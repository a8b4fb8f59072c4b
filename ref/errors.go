package ref

import "errors"

// The errors that callers tell apart, with [errors.Is]. Each has the code of its name
// on the wire: ErrMalformed is ref_malformed, and so on.
var (
	ErrMalformed     = errors.New("malformed reference")
	ErrUnknownType   = errors.New("unknown type of reference")
	ErrLegacyShape   = errors.New("a reference of an older shape")
	ErrStringified   = errors.New("a reference sent as a string")
	ErrDepth         = errors.New("too many references inside one another")
	ErrForbidden     = errors.New("only the server makes such a reference") // ref_derivation_forbidden
	ErrNotFound      = errors.New("nothing of that name was shown in this run")
	ErrStalePath     = errors.New("the derived path no longer exists")
	ErrAmbiguousTurn = errors.New("the current turn has not exactly one such part")
	ErrTypeMismatch  = errors.New("the value does not fit the tool's schema")
	ErrKernelGone    = errors.New("the kernel that held the value was reset") // kernel_generation_gone
	// ErrCycle is an ErrDepth too: references that lead back to where they began.
	ErrCycle error = cycleError{}

	ErrIncomplete = errors.New("the scan was interrupted")     // scan_incomplete
	ErrTooLarge   = errors.New("larger than the limit")        // too_large
	ErrTranscript = errors.New("the transcript is damaged")    // integrity_failed
	ErrEntry      = errors.New("no such entry can be written") // selector_invalid: the harness's mistake
)

type cycleError struct{}

func (cycleError) Error() string     { return "references that lead back to where they began" }
func (cycleError) Is(err error) bool { return err == ErrDepth }

// Error says what of a call or transcript failed, and why. Match the reason with
// [errors.Is]; take the place with [errors.AsType].
//
// Its text names what the caller wrote and never a key, digest, path or tenant: a
// model may read it, with the codes's advice. That does not hold for a reason that came
// from the [Source]: it is in Cause, and not in the text.
type Error struct {
	At     string // the property of the call, or the line of the transcript; "" where there is none
	Detail string // what stands there, in words; may be empty
	Err    error  // the reason: one of this package's errors, or where the Source failed its error
	Cause  error  // what led to it; may be nil
}

// Error returns one line: place, reason, detail.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Detail != "" {
		text = e.Detail
	}
	if e.At != "" {
		text = e.At + ": " + text
	}
	return text
}

// Unwrap returns the reason and what led to it.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

func fail(err error, detail string) error { return &Error{Err: err, Detail: detail} }
