package leafproof

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// A Code names the reason of a failure on every face of the store.
type Code string

// The codes that this release returns.
const (
	CodeRefMalformed         Code = "ref_malformed"
	CodeRefUnknownType       Code = "ref_unknown_type"
	CodeRefLegacyShape       Code = "ref_legacy_shape"
	CodeRefStringified       Code = "ref_stringified"
	CodeRefDepth             Code = "ref_depth"
	CodeRefDerivation        Code = "ref_derivation_forbidden"
	CodeRefStalePath         Code = "ref_stale_path"
	CodeRefAmbiguousTurn     Code = "ref_ambiguous_turn"
	CodeRefTypeMismatch      Code = "ref_type_mismatch"
	CodeKernelGone           Code = "kernel_generation_gone"
	CodeRefNotFound          Code = "ref_not_found"
	CodeRefAltered           Code = "ref_altered"
	CodeArtifactExpired      Code = "artifact_expired"
	CodeArtifactDeleted      Code = "artifact_deleted"
	CodeAccessRevoked        Code = "access_revoked"
	CodeAuthorityUnavailable Code = "authority_unavailable"
	CodeIntegrityFailed      Code = "integrity_failed"
	CodeCursorMalformed      Code = "cursor_malformed"
	CodeCursorForged         Code = "cursor_forged"
	CodeCursorExpired        Code = "cursor_expired"
	CodeCursorQuery          Code = "cursor_query_mismatch"
	CodeCursorSnapshot       Code = "cursor_snapshot_mismatch"
	CodeCursorScope          Code = "cursor_scope_mismatch"
	CodeScanIncomplete       Code = "scan_incomplete"
	CodeBudgetExhausted      Code = "budget_exhausted"
	CodeSelectorInvalid      Code = "selector_invalid"
	CodeNotRecords           Code = "not_records"
	CodeTooLarge             Code = "too_large"
	CodeStoreFull            Code = "store_full"
	CodeNameConflict         Code = "name_conflict"
	CodeEvidence             Code = "evidence_insufficient"
	CodeUnauthenticated      Code = "unauthenticated" // nobody is known to ask
	CodeRequestInvalid       Code = "request_invalid" // a face cannot read what it is asked
	CodeInternal             Code = "internal"
)

// A Remedy is what a caller can do about a failure: the member "action" on the wire.
type Remedy string

// The remedies.
const (
	FixCall Remedy = "fix_call"
	Refetch Remedy = "refetch"
	Wait    Remedy = "wait"
	Defer   Remedy = "defer"
	Stop    Remedy = "stop"
)

// An Error is what every face of the store answers when something fails.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Action    Remedy `json:"action"`
	At        string `json:"at,omitempty"` // what the message is about: an id, a field, a place

	err error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// CodeOf returns the code of an error from this package or from package ref, and
// [CodeInternal] for others.
func CodeOf(err error) Code {
	if r, ok := errors.AsType[*ref.Error](err); ok {
		return Wire(r).Code
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// httpStatus has the HTTP status of each code.
var httpStatus = map[Code]int{
	CodeRefMalformed: 400, CodeRefUnknownType: 400, CodeRefLegacyShape: 400, CodeRefStringified: 400, CodeRefDepth: 400,
	CodeRefDerivation: 403, CodeRefNotFound: 404, CodeRefStalePath: 409, CodeRefAmbiguousTurn: 409,
	CodeRefTypeMismatch: 422, CodeKernelGone: 410,
	CodeRefAltered: 409, CodeArtifactExpired: 410, CodeArtifactDeleted: 410,
	CodeAccessRevoked: 403, CodeAuthorityUnavailable: 503, CodeIntegrityFailed: 502,
	CodeCursorMalformed: 400, CodeCursorForged: 400, CodeCursorExpired: 400,
	CodeCursorQuery: 400, CodeCursorSnapshot: 400, CodeCursorScope: 400,
	CodeScanIncomplete: 206, CodeBudgetExhausted: 429,
	CodeSelectorInvalid: 400, CodeNotRecords: 422, CodeTooLarge: 413, CodeStoreFull: 507,
	CodeNameConflict: 409, CodeEvidence: 409, CodeUnauthenticated: 401, CodeRequestInvalid: 400, CodeInternal: 500,
}

// HTTPStatus is the status of an answer over HTTP that says this. A scan that was
// interrupted is 206 where it comes with an answer; a face that has none to show
// says 503.
func (e *Error) HTTPStatus() int {
	status, ok := httpStatus[e.Code]
	switch {
	case !ok:
		return 500
	case e.Code == CodeInternal && e.Retryable:
		return 503
	}
	return status
}

// wireTable maps the leaf packages' decisions to codes: the only place that does.
// The first row that matches wins.
var wireTable = []struct {
	is     error
	code   Code
	action Remedy
	retry  bool
}{
	{ref.ErrStringified, CodeRefStringified, FixCall, false},
	{ref.ErrLegacyShape, CodeRefLegacyShape, FixCall, false},
	{ref.ErrUnknownType, CodeRefUnknownType, FixCall, false},
	{ref.ErrForbidden, CodeRefDerivation, FixCall, false},
	{ref.ErrDepth, CodeRefDepth, FixCall, false},
	{ref.ErrAmbiguousTurn, CodeRefAmbiguousTurn, FixCall, false},
	{ref.ErrStalePath, CodeRefStalePath, Refetch, false},
	{ref.ErrTypeMismatch, CodeRefTypeMismatch, FixCall, false},
	{ref.ErrMalformed, CodeRefMalformed, FixCall, false},
	{ref.ErrNotFound, CodeRefNotFound, FixCall, false},
	{ref.ErrKernelGone, CodeKernelGone, Refetch, false},
	{ref.ErrIncomplete, CodeScanIncomplete, Wait, true},
	{ref.ErrTooLarge, CodeTooLarge, FixCall, false},
	{ref.ErrTranscript, CodeIntegrityFailed, Stop, false},
	{ref.ErrEntry, CodeSelectorInvalid, FixCall, false},
	{ref.ErrSchema, CodeSelectorInvalid, Stop, false},
	{catalogue.ErrNotFound, CodeRefNotFound, FixCall, false},
	{gate.ErrDenied, CodeRefNotFound, FixCall, false},
	{gate.ErrRevoked, CodeAccessRevoked, Stop, false},
	{gate.ErrRecords, CodeAccessRevoked, Stop, false},
	{gate.ErrStale, CodeAccessRevoked, Stop, false},
	{gate.ErrUnavailable, CodeAuthorityUnavailable, Wait, true},
	{selector.ErrCursorMalformed, CodeCursorMalformed, FixCall, false},
	{selector.ErrCursorForged, CodeCursorForged, FixCall, false},
	{selector.ErrCursorExpired, CodeCursorExpired, FixCall, false},
	{selector.ErrCursorQuery, CodeCursorQuery, FixCall, false},
	{selector.ErrCursorSnapshot, CodeCursorSnapshot, FixCall, false},
	{selector.ErrCursorScope, CodeCursorScope, FixCall, false},
	{selector.ErrNotRecords, CodeNotRecords, FixCall, false},
	{selector.ErrSelector, CodeSelectorInvalid, FixCall, false},
	{selector.ErrUnprovable, CodeSelectorInvalid, FixCall, false},
	{selector.ErrRange, CodeSelectorInvalid, FixCall, false},
	{selector.ErrLayout, CodeSelectorInvalid, FixCall, false},
	{catalogue.ErrInvalid, CodeSelectorInvalid, FixCall, false},
	{catalogue.ErrNoGrant, CodeRefNotFound, FixCall, false},
	{catalogue.ErrNoPrincipal, CodeRefNotFound, FixCall, false},
	{catalogue.ErrNoRestriction, CodeRefNotFound, FixCall, false},
	{catalogue.ErrTooMany, CodeTooLarge, FixCall, false},
	{gate.ErrPattern, CodeSelectorInvalid, FixCall, false},
	{catalogue.ErrConflict, CodeNameConflict, FixCall, true},
	{cas.ErrClosed, CodeSelectorInvalid, FixCall, false},
	{cas.ErrPlacement, CodeSelectorInvalid, FixCall, false},
	{selector.ErrPointer, CodeSelectorInvalid, FixCall, false},
	{selector.ErrUndecidable, CodeSelectorInvalid, FixCall, false},
	{bundle.ErrClaim, CodeSelectorInvalid, FixCall, false},
	{manifest.ErrRefAltered, CodeRefAltered, FixCall, false},
	{manifest.ErrName, CodeSelectorInvalid, FixCall, false},
	{manifest.ErrTime, CodeSelectorInvalid, FixCall, false},
	{cas.ErrLease, CodeInternal, Wait, true},
	{cas.ErrBusy, CodeInternal, Wait, true},
	{catalogue.ErrLease, CodeInternal, Wait, true},
	{cas.ErrFull, CodeStoreFull, Wait, true},
	{catalogue.ErrFull, CodeStoreFull, Wait, true},
	{catalogue.ErrReadOnly, CodeStoreFull, Wait, true},
	{catalogue.ErrBusy, CodeInternal, Wait, true},
	{ErrPolicyFile, CodeIntegrityFailed, Stop, false},
	{manifest.ErrPolicyExpired, CodeAuthorityUnavailable, Stop, false},
	{errManifest, CodeIntegrityFailed, Refetch, false},
	{errStatement, CodeIntegrityFailed, Stop, false},
	// Facts that no manifest can state, as in a media type without a slash.
	{manifest.ErrMalformed, CodeSelectorInvalid, FixCall, false},
	{manifest.ErrNotCanonical, CodeSelectorInvalid, FixCall, false},
	{manifest.ErrTooLarge, CodeTooLarge, FixCall, false},
	{cas.ErrCorrupt, CodeIntegrityFailed, Refetch, false},
	{merkle.ErrMismatch, CodeIntegrityFailed, Refetch, false},
	{merkle.ErrChanged, CodeIntegrityFailed, Refetch, false},
	// A blob that the catalogue names and the store lacks was lost, not "not found".
	{cas.ErrNotFound, CodeIntegrityFailed, Refetch, false},
	{selector.ErrMap, CodeIntegrityFailed, Refetch, false},
	{selector.ErrProof, CodeIntegrityFailed, Refetch, false},
	{context.Canceled, CodeScanIncomplete, Wait, true},
	{context.DeadlineExceeded, CodeScanIncomplete, Wait, true},
}

// wireError gives an error its code. Nil stays nil, and an *Error passes.
func wireError(at string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*ref.Error](err); ok {
		return referenceError(r)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	for _, row := range wireTable {
		if errors.Is(err, row.is) {
			return &Error{Code: row.code, Message: message(at, brief(row.is, err)), Action: row.action, Retryable: row.retry, At: at, err: err}
		}
	}
	return &Error{Code: CodeInternal, Message: message(at, err), Action: Stop, At: at, err: err}
}

// referenceError gives an error of package ref the code of its reason. Its text stays
// as it is: a model may read it, which the texts of the store are not made for.
func referenceError(r *ref.Error) error {
	e := &Error{Code: CodeInternal, Action: Stop}
	if stored, ok := errors.AsType[*Error](r.Err); ok {
		*e = *stored
	} else {
		for _, row := range wireTable {
			if errors.Is(r.Err, row.is) {
				e.Code, e.Action, e.Retryable = row.code, row.action, row.retry
				break
			}
		}
	}
	e.Message, e.At, e.err = r.Error(), r.At, r
	return e
}

// brief is what is said of an error that is of a kind. One that was cut short names what
// was under way then, files and principals among it, and that is nobody's business.
func brief(kind, err error) error {
	switch kind {
	case context.Canceled:
		return errCancelled
	case context.DeadlineExceeded:
		return errLate
	}
	return err
}

var (
	errCancelled = errors.New("interrupted before it was done")
	errLate      = errors.New("its time ran out before it was done")
)

// Wire is an error in the form that it has on every face, whichever package of the
// store it came from; nil stays nil.
func Wire(err error) *Error {
	e, _ := errors.AsType[*Error](wireError("", err))
	return e
}

func message(at string, err error) string {
	if at == "" {
		return err.Error()
	}
	return fmt.Sprintf("%s: %v", at, err)
}

// fail returns an error of this package's own.
func fail(code Code, action Remedy, at, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Action: action, At: at}
}

// notFound is the one answer to an id that never was, and to one that the caller
// may not know of.
func notFound(id string) error {
	return fail(CodeRefNotFound, FixCall, id, "%s: no such artifact", id)
}

// lister is the command that lists things of the kind that is not there.
func lister(err error) string {
	e, _ := errors.AsType[*Error](err)
	switch at := e.At; {
	case CheckID(at) == nil, strings.HasPrefix(at, "/"): // a field of the facts, which names an artifact
		return "`leafproof ls` lists what there is"
	case strings.HasPrefix(at, "gr_"):
		return "`leafproof grants` lists what there is"
	}
	return ""
}

// Hint returns what a person can do about an error, in one line; "" where there is
// nothing to say.
func Hint(err error) string {
	switch {
	case errors.Is(err, ErrNoStore):
		return "run `leafproof init` first, or name a store with --store or LEAFPROOF_STORE"
	case errors.Is(err, ErrNewerStore):
		return "use the leafproof that made it, or a newer one"
	case errors.Is(err, ErrCatalogue):
		return "nothing was changed, and the objects are untouched: `leafproof check --repair` makes it anew from them"
	case errors.Is(err, ErrNotAdmitted):
		return "if its word shall count there, run `leafproof policy add --key FILE --name N` in the other with this store's keys/manifest.pub"
	case errors.Is(err, ErrPolicyFile):
		return "`leafproof check --repair` puts the newest signed version back; `leafproof policy sign FILE` signs an edited one"
	case errors.Is(err, manifest.ErrPolicyExpired):
		return "`leafproof policy add --expires TIME` signs a version that holds longer"
	case errors.Is(err, ErrPolicyWaits):
		return "`leafproof policy sign` adds a signature, `leafproof policy sign --drop` gives the version up"
	case errors.Is(err, flock.ErrHeld), errors.Is(err, cas.ErrBusy):
		return "end the other process, or wait for it"
	}
	if errors.Is(err, cas.ErrLease) || errors.Is(err, catalogue.ErrLease) {
		return "nothing was published: put it again"
	}
	if e, ok := errors.AsType[*catalogue.Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	switch CodeOf(err) {
	case CodeRefNotFound:
		return lister(err)
	case CodeStoreFull:
		return "nothing was published; what was published before still reads"
	case CodeIntegrityFailed:
		return "nothing that failed a check was given out"
	}
	return ""
}
