package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"leafproof/manifest"
)

// What a server may do that no honest one does, or that leaves nothing to verify; to
// be told apart with [errors.Is].
var (
	// ErrMismatch: bytes, or a proof, do not belong to the root of the artifact.
	ErrMismatch = errors.New("not the bytes of the artifact")
	// ErrTruncated: an answer ended before its end.
	ErrTruncated = errors.New("truncated")
	// ErrExtended: an answer goes on after its end.
	ErrExtended = errors.New("bytes follow the end")
	// ErrSize: the server states another size than the signed one.
	ErrSize = errors.New("another size")
	// ErrRange: what came is another part than the one that was asked for.
	ErrRange = errors.New("another range")
	// ErrArtifact: an answer is about another artifact.
	ErrArtifact = errors.New("another artifact")
	// ErrAltered: a reference, or a fact in an answer, is not the signed one; At names
	// the field.
	ErrAltered = errors.New("altered")
	// ErrUntrusted: nobody whom the policy admits vouches for the manifest.
	ErrUntrusted = errors.New("nobody whom the policy admits vouches for it")
	// ErrUnverified: nothing at hand can verify it, as where the manifest is not shown.
	ErrUnverified = errors.New("cannot be verified")
	// ErrRow: a row of an answer is not what the proven bytes say, or does not match.
	ErrRow = errors.New("a row does not hold")
	// ErrRedirect: the server sends elsewhere. That is never followed.
	ErrRedirect = errors.New("redirected")
	// ErrTooLarge: an answer is larger than any that is taken.
	ErrTooLarge = errors.New("too large an answer")
	// ErrProtocol: the answer is none that this interface gives.
	ErrProtocol = errors.New("not an answer of this interface")
)

// The codes of errors that no server sent. Others are those of docs/FORMAT.md.
const (
	CodeUnreachable = "unreachable"      // there was no answer
	CodeIntegrity   = "integrity_failed" // what came is not what was signed
	CodeAltered     = "ref_altered"      // a fact is not the signed one
	CodeUntrusted   = "untrusted"        // see ErrUntrusted
	CodeUnverified  = "unverified"       // see ErrUnverified
	CodeProtocol    = "protocol"         // see ErrProtocol, ErrRedirect, ErrTooLarge
)

// An Error is what failed: as the server says it, or as this package found it.
type Error struct {
	Code      string // as in "ref_not_found"
	Message   string
	Retryable bool   // the same request may succeed later
	Action    string // fix_call, refetch, wait, defer or stop
	At        string // what it is about: an id, a field, a place; "" where that is not said
	Status    int    // of the answer; 0: none came, or it was not the status that is wrong

	err   error
	after int   // seconds that the server asks to wait
	view  *View // what a model reads of it
	// Of an upload that goes on elsewhere; -1 where the answer does not say.
	offset int64
}

func (e *Error) Error() string {
	switch {
	case e.Message == "":
		return e.Code
	case e.At != "" && !strings.Contains(e.Message, e.At):
		return fmt.Sprintf("%s: %s: %s", e.Code, e.At, e.Message)
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns one of the errors of this package, or the cause, or nil.
func (e *Error) Unwrap() error { return e.err }

// own has the code and the remedy of what this package finds.
var own = map[error][2]string{
	ErrMismatch: {CodeIntegrity, "refetch"}, ErrTruncated: {CodeUnreachable, "wait"}, ErrExtended: {CodeIntegrity, "stop"},
	ErrSize: {CodeIntegrity, "stop"}, ErrRange: {CodeProtocol, "stop"}, ErrArtifact: {CodeIntegrity, "stop"},
	ErrAltered: {CodeAltered, "stop"}, ErrUntrusted: {CodeUntrusted, "stop"}, ErrUnverified: {CodeUnverified, "stop"},
	ErrRow: {CodeIntegrity, "stop"}, ErrRedirect: {CodeProtocol, "stop"}, ErrTooLarge: {CodeProtocol, "stop"},
	ErrProtocol: {CodeProtocol, "stop"},
}

// refuse is an answer that this package does not take.
func refuse(kind error, at, format string, args ...any) error {
	code := own[kind]
	text := fmt.Sprintf(format, args...)
	if text != "" {
		text = ": " + text
	}
	return &Error{
		Code: code[0], Action: code[1], Retryable: kind == ErrTruncated, At: at,
		Message: kind.Error() + text, err: kind, offset: -1,
	}
}

// maxProblem is how many bytes of a problem are read.
const maxProblem = 64 << 10

// problemOf reads what the server says went wrong. It is text of a stranger: it is cut,
// and made safe to print.
func problemOf(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode, offset: -1}
	if resp.StatusCode < 400 {
		e.Code, e.Action, e.err = CodeProtocol, "stop", ErrProtocol
		e.Message = fmt.Sprintf("the status %d is none that is answered here", resp.StatusCode)
		if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotModified {
			e.err, e.Message = ErrRedirect, "the server sends elsewhere, which is not followed"
		}
		return e
	}
	_, _ = fmt.Sscan(resp.Header.Get("Retry-After"), &e.after)
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem+1))
	var p struct {
		Code           string `json:"code"`
		Detail         string `json:"detail"`
		Retryable      bool   `json:"retryable"`
		Action         string `json:"action"`
		At             string `json:"at"`
		ExpectedOffset *int64 `json:"expected-offset"`
		Result         *View  `json:"result"`
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || len(b) > maxProblem || media != "application/problem+json" || json.Unmarshal(b, &p) != nil || !isCode(p.Code) {
		e.Code, e.Action, e.err = CodeProtocol, "stop", ErrProtocol
		e.Message = fmt.Sprintf("%s, with no reason that can be read", resp.Status)
		if len(e.Message) > 100 {
			e.Message = fmt.Sprintf("status %d, with no reason that can be read", resp.StatusCode)
		}
		// What stands between, as a proxy, answers for itself.
		if resp.StatusCode == 502 || resp.StatusCode == 503 || resp.StatusCode == 504 {
			e.Code, e.Action, e.Retryable = CodeUnreachable, "wait", true
		}
		return e
	}
	e.view = p.Result
	e.Code, e.Retryable, e.Message, e.At = p.Code, p.Retryable, manifest.Printable(p.Detail), manifest.Printable(p.At)
	if isCode(p.Action) {
		e.Action = p.Action
	}
	if p.ExpectedOffset != nil && *p.ExpectedOffset >= 0 {
		e.offset = *p.ExpectedOffset
	}
	return e
}

// isCode reports a word of the interface.
func isCode(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// unreachable is a request without an answer, or an answer without its end.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if strings.Contains(err.Error(), "response headers exceeded") {
		return refuse(ErrTooLarge, "", "a header of more than %d bytes", maxHeader)
	}
	e := &Error{Code: CodeUnreachable, Action: "wait", Retryable: true, Message: manifest.Printable(err.Error()), err: err, offset: -1}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Retryable, e.Action = false, "stop"
	}
	return e
}

// isDenied reports that the server does not show something, or does not show it any more.
func isDenied(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == "ref_not_found" || e.Code == "access_revoked")
}
