package harness

import (
	"encoding/json"
	"errors"
	"fmt"

	"leafproof"
	"leafproof/ref"
	"leafproof/selector"
)

// sentences are what a model reads of a failure of the store: nothing in them comes
// from the store, whose own messages name ids and places.
var sentences = map[leafproof.Code]string{
	leafproof.CodeRefMalformed:         "The reference is not well formed.",
	leafproof.CodeRefNotFound:          "Nothing of that name was shown in this run.",
	leafproof.CodeRefAltered:           "The descriptor is not what was signed.",
	leafproof.CodeArtifactExpired:      "The value has expired, and is not given out any more.",
	leafproof.CodeArtifactDeleted:      "The value was deleted.",
	leafproof.CodeAccessRevoked:        "The leave to have the value was withdrawn.",
	leafproof.CodeAuthorityUnavailable: "Whether the value may be had cannot be told now.",
	leafproof.CodeIntegrityFailed:      "The stored bytes are not those that were captured. None of them was given out.",
	leafproof.CodeCursorMalformed:      "The cursor is not well formed.",
	leafproof.CodeCursorForged:         "The cursor was not made by this store.",
	leafproof.CodeCursorExpired:        "The cursor has expired: begin anew.",
	leafproof.CodeCursorQuery:          "The cursor belongs to another query.",
	leafproof.CodeCursorSnapshot:       "The cursor belongs to another snapshot.",
	leafproof.CodeCursorScope:          "The cursor belongs to another reader.",
	leafproof.CodeScanIncomplete:       "The scan was interrupted. What was not examined may match.",
	leafproof.CodeBudgetExhausted:      "The budget for this was used up.",
	leafproof.CodeSelectorInvalid:      "The call asks for a part that there is not.",
	leafproof.CodeNotRecords:           "The value has no records.",
	leafproof.CodeTooLarge:             "That is larger than is allowed.",
	leafproof.CodeStoreFull:            "The store has no room, so the result could not be kept.",
	leafproof.CodeEvidence:             "The evidence does not meet what the tool demands. The tool did not run.",
	leafproof.CodeInternal:             "It failed for a reason that the harness has on record.",
}

func sentence(c leafproof.Code) string {
	if s, ok := sentences[c]; ok {
		return s
	}
	return sentences[leafproof.CodeInternal]
}

// maxMessage is how many characters of a message a model is given.
const maxMessage = 1000

// A ToolError is an error of a tool that the model may read as it stands.
type ToolError struct{ Err error }

func (e *ToolError) Error() string { return e.Err.Error() }

// Unwrap returns the tool's error.
func (e *ToolError) Unwrap() error { return e.Err }

// A GateError is a call whose tool did not run: its demands are not met.
type GateError struct{ Decision *Decision }

func (e *GateError) Error() string {
	return fmt.Sprintf("the evidence does not meet what the tool demands: %s", e.Decision.Decision)
}

// A StoreError is a tool's result that could not be stored. Nothing of it is in the
// model's view.
type StoreError struct {
	// Key names the result in the spool, for [Run.Retry]; "" where it was not kept.
	Key string
	// Lost says why it was not kept; nil where it was.
	Lost error
	Err  error
}

func (e *StoreError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("the result could not be stored, nor kept (%v): %v", e.Lost, e.Err)
	}
	return fmt.Sprintf("the result could not be stored, and is kept as %s: %v", e.Key, e.Err)
}

// Unwrap returns why the store did not take it.
func (e *StoreError) Unwrap() error { return e.Err }

// Failure is what a model, or a caller in another language, reads of an error.
type Failure struct {
	Code      leafproof.Code   `json:"code"`
	Message   string           `json:"message"`
	Retryable bool             `json:"retryable"`
	Action    leafproof.Remedy `json:"action"`
	At        string           `json:"at,omitempty"`
	// Decision is set where a gate refused.
	Decision *Decision `json:"gate,omitempty"`
	// Answer says what a scan that was interrupted had examined.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Kept says of a result that could not be stored that it waits for a retry.
	Kept *bool `json:"kept,omitempty"`
}

// FailureOf says an error in a form that is fit for a model: its code and what to do,
// and of the text only what this package, the package ref or the tool itself wrote.
func FailureOf(err error) Failure {
	if f, ok := errors.AsType[*refusal](err); ok {
		return f.f
	}
	wire := leafproof.Wire(err)
	f := Failure{Code: wire.Code, Message: sentence(wire.Code), Retryable: wire.Retryable, Action: wire.Action}
	if e, ok := errors.AsType[*ref.Error](err); ok {
		f.At = clip(e.At, 100)
		if _, stored := sentences[wire.Code]; !stored || e.Err == ref.ErrMalformed || e.Err == ref.ErrNotFound || e.Err == ref.ErrTooLarge {
			f.Message = clip(clean(e.Error()), maxMessage) // what package ref says is fit for a model
		}
	}
	if errors.Is(err, selector.ErrUndecidable) {
		f.Message = "The value is not JSON, or not JSON that has one meaning: read_text reads it as it stands."
	}
	if e, ok := errors.AsType[*selector.Error](err); ok && errors.Is(e, selector.ErrSelector) {
		f.Message = clip(e.Error(), maxMessage) // what is wrong with the model's own expression
	}
	if e, ok := errors.AsType[*ToolError](err); ok {
		f.Message = clip(e.Error(), maxMessage)
	}
	if e, ok := errors.AsType[*GateError](err); ok {
		f.Code, f.Message, f.Decision = leafproof.CodeEvidence, sentence(leafproof.CodeEvidence), e.Decision
		f.Action, f.Retryable = leafproof.Defer, false
		if e.Decision.Decision == leafproof.Refuse {
			f.Action = leafproof.Stop
		}
		if e.Decision.Refetch {
			f.Action = leafproof.Refetch
		}
	}
	if e, ok := errors.AsType[*StoreError](err); ok {
		kept := e.Key != ""
		f.Kept = &kept
		if f.Message = sentence(wire.Code); wire.Code != leafproof.CodeStoreFull {
			f.Message = "The result could not be stored."
		}
		switch {
		case !kept:
			f.Action, f.Retryable = leafproof.Stop, false
		case f.Retryable:
			f.Action = leafproof.Wait
		}
	}
	return f
}

// JSON is the failure as it stands in a model's view.
func (f Failure) JSON() json.RawMessage {
	text, err := json.Marshal(struct {
		Error    Failure `json:"error"`
		DataOnly bool    `json:"data_only"`
	}{f, true})
	if err != nil { // strings and numbers
		panic(err)
	}
	return text
}

// refusal is an error of this package's own.
type refusal struct{ f Failure }

func (e *refusal) Error() string { return e.f.Message }

func refuse(code leafproof.Code, action leafproof.Remedy, at, format string, args ...any) error {
	return &refusal{Failure{Code: code, Message: fmt.Sprintf(format, args...), Action: action, At: at}}
}
