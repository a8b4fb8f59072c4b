package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Mismatch is the error of a value that does not satisfy a schema; it wraps
// [ErrInvalid]. Of several reasons it is the one whose place sorts first, so that
// one value has one error.
type Mismatch struct {
	// At is the place within the value: names of members and indexes of elements.
	At []string
	// Rule is the keyword of the schema that refused, as in "required"; empty
	// where the schema is false.
	Rule string
	// Says is what the schema wants there, in words that repeat nothing of the
	// value except the type that stands there and its length.
	Says string

	text string
}

// Error is the reason as the validator words it, which may repeat the value.
func (m *Mismatch) Error() string { return ErrInvalid.Error() + ": " + m.text }

// Unwrap makes [ErrInvalid] match.
func (m *Mismatch) Unwrap() error { return ErrInvalid }

// mismatch finds the reason of a refusal.
func mismatch(err error) error {
	e, ok := err.(*validator.ValidationError)
	if !ok {
		return fmt.Errorf("%w: %s", ErrInvalid, firstLines(err))
	}
	m := &Mismatch{text: firstLines(err)}
	for len(e.Causes) > 0 {
		if alternatives(e.ErrorKind) && len(e.Causes) > 1 {
			break // each has its own reason; the value fits none of them
		}
		e = slices.MinFunc(e.Causes, func(a, b *validator.ValidationError) int {
			if c := slices.Compare(a.InstanceLocation, b.InstanceLocation); c != 0 {
				return c
			}
			return strings.Compare(a.SchemaURL, b.SchemaURL)
		})
	}
	m.At = slices.Clone(e.InstanceLocation)
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		m.Rule = path[0]
	}
	m.Says = says(e.ErrorKind)
	return m
}

func alternatives(k validator.ErrorKind) bool {
	switch k.(type) {
	case *kind.AnyOf, *kind.OneOf:
		return true
	}
	return false
}

// says words a reason without the value.
func says(k validator.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("got %s, want %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return fmt.Sprintf("missing %s", quoted(k.Missing))
	case *kind.DependentRequired:
		return fmt.Sprintf("missing %s, which go with what is there", quoted(k.Missing))
	case *kind.Dependency:
		return fmt.Sprintf("missing %s, which go with what is there", quoted(k.Missing))
	case *kind.AdditionalProperties:
		return fmt.Sprintf("members that are not allowed: %d", len(k.Properties))
	case *kind.AdditionalItems:
		return fmt.Sprintf("elements that are not allowed: %d", k.Count)
	case *kind.MinItems:
		return fmt.Sprintf("%d elements, want at least %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("%d elements, want at most %d", k.Got, k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("%d characters, want at least %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("%d characters, want at most %d", k.Got, k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("%d members, want at least %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("%d members, want at most %d", k.Got, k.Want)
	case *kind.Pattern:
		return "does not match the pattern " + short(k.Want)
	case *kind.Format:
		return "is no " + short(k.Want)
	case *kind.FalseSchema:
		return "is not allowed"
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return "does not satisfy " + path[0]
	}
	return "does not satisfy the schema"
}

func quoted(names []string) string {
	const most = 10
	var out []string
	for i, n := range names {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		out = append(out, fmt.Sprintf("%q", short(n)))
	}
	return strings.Join(out, ", ")
}

// short cuts a text of the schema.
func short(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
