package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Canonicalise writes JSON that people or other programs wrote in its canonical
// form: white space, the order of members and the spelling of strings are free
// on the way in, and nothing else is. A name that stands twice, more than maxSize
// bytes or maxDepth levels, and what has no canonical form are refused as
// [CheckCanonical] refuses them; a [*SyntaxError] then names the place.
func Canonicalise(b []byte, maxSize, maxDepth int) ([]byte, error) {
	if len(b) > maxSize {
		return nil, &Error{Op: "parse", Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), maxSize)}
	}
	if err := checkLoose(b, maxDepth); err != nil {
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(b))
	// Numbers are left alone: see Canonical.
	if err := value.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, syntaxError(err)
	}
	if err := checkCanonical(value, max(maxSize, len(value)), maxDepth); err != nil {
		if s, ok := errors.AsType[*SyntaxError](err); ok {
			s.Offset = -1 // it is of bytes that nobody has seen
		}
		return nil, err
	}
	return value, nil
}

// checkLoose checks grammar, duplicate names and depth, token by token.
func checkLoose(b []byte, maxDepth int) error {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		_, err := d.ReadToken()
		switch {
		case err == io.EOF && d.InputOffset() == 0, err == io.EOF && len(bytes.TrimSpace(b)) == 0:
			return &SyntaxError{Reason: "there is no value"}
		case err == io.EOF:
			return nil
		case err != nil:
			return syntaxError(err)
		case d.StackDepth() > maxDepth:
			return &SyntaxError{Offset: d.InputOffset() - 1, Pointer: cutPointer(string(d.StackPointer())), Reason: fmt.Sprintf("more than %d levels", maxDepth)}
		}
		if d.StackDepth() == 0 {
			if rest := bytes.TrimLeft(b[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
				return &SyntaxError{Offset: int64(len(b) - len(rest)), Reason: "something follows the value"}
			}
		}
	}
}

// syntaxError hides the decoder's type and keeps the place.
func syntaxError(err error) error {
	out := &SyntaxError{Offset: -1, Reason: Printable(err.Error())}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		out.Offset, out.Pointer, out.Reason = s.ByteOffset, cutPointer(string(s.JSONPointer)), Printable(s.Err.Error())
		if errors.Is(s.Err, jsontext.ErrDuplicateName) {
			out.Reason = "the member stands twice"
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		out.Reason = "the document ends inside a value"
	}
	return out
}

// ParseRef reads an ArtifactRef that somebody presents, however it is laid out:
// [Canonicalise] takes the white space and the order of members, and everything
// else is as strict as in a manifest. All ten members must be there. That it
// parses says nothing about whether it is what was signed: see [CheckRef].
func ParseRef(b []byte) (ArtifactRef, error) {
	var ref ArtifactRef
	canonical, err := Canonicalise(b, MaxSize, MaxDepth)
	if err != nil {
		return ref, err
	}
	if err := Decode(canonical, &ref); err != nil {
		return ArtifactRef{}, err
	}
	return ref, nil
}

// decodeLoose reads canonical JSON in which members may be missing into v.
func decodeLoose(canonical []byte, v any) error {
	if err := json.Unmarshal(canonical, v, json.RejectUnknownMembers(true)); err != nil {
		return decodeError(err)
	}
	return nil
}
