package manifest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The limits of [CheckCanonical] and [Decode].
const (
	MaxSize  = 1 << 20 // bytes in a document
	MaxDepth = 32      // arrays and objects inside one another
)

// Canonical returns the canonical JSON (lpj) of a value, by its json tags: the
// part of RFC 8785 on which implementations were seen to agree. Members are
// sorted, there is no white space, and escapes are the shortest. A nil map is
// null, a nil slice is []; there is no limit of size.
//
// It fails where the value has no canonical form: a member name outside
// printable ASCII, a number that is not an integer within ±(2^53−1), a string
// that is not valid UTF-8 or holds U+007F, U+2028 or U+2029, nesting beyond
// [MaxDepth]. Such a number is best written as a decimal string.
func Canonical(v any) ([]byte, error) { return canonical(v, MaxDepth) }

func canonical(v any, maxDepth int) ([]byte, error) {
	b, err := encode(v)
	if err != nil {
		return nil, err
	}
	if err := checkCanonical(b, len(b), maxDepth); err != nil {
		return nil, err
	}
	return b, nil
}

// encode is canonical but for numbers and characters that have no canonical form.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.FormatNilMapAsNull(true), json.Deterministic(true))
	if err != nil {
		return nil, &Error{Op: "encode", Err: fmt.Errorf("%w: %s", ErrMalformed, Printable(err.Error()))}
	}
	value := jsontext.Value(b)
	// Numbers are left alone: canonicalising them would round a large integer
	// silently, where the check refuses it.
	err = value.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, &Error{Op: "encode", Err: fmt.Errorf("%w: %s", ErrMalformed, Printable(err.Error()))}
	}
	return value, nil
}

// CheckCanonical says whether b is exactly one value in canonical JSON, with
// nothing around it, of at most [MaxSize] bytes and [MaxDepth] levels. Else the
// error is a [*SyntaxError] that wraps [ErrNotCanonical], or [ErrTooLarge].
func CheckCanonical(b []byte) error { return checkCanonical(b, MaxSize, MaxDepth) }

// Decode reads canonical JSON into v, a pointer to a zero value. It is strict
// both ways: besides [CheckCanonical] it refuses unknown members, names in
// another case, and any document that v would not write back byte for byte, so
// that a member which is missing, or null where v has no null, is refused too.
func Decode(b []byte, v any) error { return DecodeLimit(b, v, MaxSize, MaxDepth) }

// DecodeLimit is [Decode] with other limits, in bytes and levels.
func DecodeLimit(b []byte, v any, maxSize, maxDepth int) error {
	if err := checkCanonical(b, maxSize, maxDepth); err != nil {
		return err
	}
	return decodeChecked(b, v)
}

// decodeChecked is [Decode] of what is known to be canonical.
func decodeChecked(b []byte, v any) error {
	if err := json.Unmarshal(b, v, json.RejectUnknownMembers(true)); err != nil {
		return decodeError(err)
	}
	again, err := encode(v)
	if err != nil {
		return err
	}
	if bytes.Equal(b, again) {
		return nil
	}
	at := ""
	if diff, _ := diffJSON(b, again, 1); len(diff) > 0 {
		at = diff[0]
	}
	return &Error{Op: "decode", At: at, Err: fmt.Errorf("%w: a member is missing, or null where it may not be", ErrMalformed)}
}

// decodeError hides the decoder's types and keeps the place.
func decodeError(err error) error {
	e := &Error{Op: "decode", Err: fmt.Errorf("%w: %s", ErrMalformed, Printable(err.Error()))}
	if s, ok := errors.AsType[*json.SemanticError](err); ok {
		e.At = cutPointer(string(s.JSONPointer))
		switch {
		case errors.Is(s.Err, json.ErrUnknownName):
			e.Err = fmt.Errorf("%w: unknown member", ErrMalformed)
		case s.GoType != nil:
			e.Err = fmt.Errorf("%w: a JSON %v does not belong here", ErrMalformed, s.JSONKind)
		}
	}
	return e
}
