package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"leafproof"
)

// Problem is the body of an answer that says what went wrong: RFC 9457, with the
// members that every face of the store has. What those call message RFC 9457 calls
// detail: it is there under both names.
type Problem struct {
	Type      string           `json:"type"`
	Title     string           `json:"title"`
	Status    int              `json:"status"`
	Detail    string           `json:"detail"`
	Code      leafproof.Code   `json:"code"`
	Message   string           `json:"message"`
	Retryable bool             `json:"retryable"`
	Action    leafproof.Remedy `json:"action"`
	At        string           `json:"at,omitempty"`
	// Result is, in a run, what the model reads of what went wrong.
	Result *toolView `json:"result,omitempty"`
	// Of an upload that goes on elsewhere.
	ExpectedOffset *int64 `json:"expected-offset,omitempty"`
	ProvidedOffset *int64 `json:"provided-offset,omitempty"`
}

// problemType is the beginning of a problem's type; the code follows.
const problemType = "urn:x-leafproof:problem:"

// refusal is an error with a status of its own choosing.
type refusal struct {
	status int
	err    *leafproof.Error
}

func (r *refusal) Error() string { return r.err.Message }
func (r *refusal) Unwrap() error { return r.err }

// refuse returns an error of this package's own.
func refuse(status int, code leafproof.Code, action leafproof.Remedy, at, format string, args ...any) error {
	return &refusal{status, &leafproof.Error{Code: code, Message: fmt.Sprintf(format, args...), Action: action, At: at}}
}

// invalid refuses a request that is not well formed.
func invalid(status int, at, format string, args ...any) error {
	return refuse(status, leafproof.CodeRequestInvalid, leafproof.FixCall, at, format, args...)
}

// wait refuses a request that may be made again.
func wait(status int, code leafproof.Code, at, format string, args ...any) error {
	return &refusal{status, &leafproof.Error{Code: code, Message: fmt.Sprintf(format, args...), Action: leafproof.Wait, Retryable: true, At: at}}
}

// hidden has what is said of failures whose message is for the store's own log: it
// may name files, and roots of what the caller has no leave for.
var hidden = map[leafproof.Code]string{
	leafproof.CodeInternal:             "the server failed; its log has the reason under the request's id",
	leafproof.CodeStoreFull:            "there is no room left in the store: nothing was published, and what was published before still reads",
	leafproof.CodeIntegrityFailed:      "stored bytes are not those that were signed: nothing that failed a check was given out",
	leafproof.CodeAuthorityUnavailable: "there was no decision whether this is allowed",
}

// problem is what the caller is told of an error.
func (s *Server) problem(err error, who leafproof.Caller) Problem {
	e, ok := errors.AsType[*leafproof.Error](err)
	if !ok {
		e = &leafproof.Error{Code: leafproof.CodeInternal, Message: err.Error(), Action: leafproof.Stop}
	}
	status := e.HTTPStatus()
	r, own := errors.AsType[*refusal](err)
	if own {
		status = r.status
	}
	if status < 400 { // an interrupted scan that has no answer to show
		status = http.StatusServiceUnavailable
	}
	detail := e.Message
	if text, ok := hidden[e.Code]; ok && !own && who.Principal != leafproof.Owner.Principal {
		detail = text
	}
	p := Problem{
		Type: problemType + string(e.Code), Title: http.StatusText(status), Status: status, Detail: detail,
		Code: e.Code, Message: detail, Retryable: e.Retryable, Action: e.Action, At: e.At,
	}
	if m, ok := errors.AsType[*elsewhere](err); ok {
		p.Type, p.ExpectedOffset, p.ProvidedOffset = mismatch, &m.expected, &m.provided
	}
	return p
}
