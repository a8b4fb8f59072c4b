package ref

import (
	"strings"
	"unicode/utf8"
)

// The limits of a field.
const (
	maxField    = 1024 // bytes
	maxSegments = 64
)

// ParseField splits a dot path into the names it leads through: "result.rows.0" is
// result, rows, 0. A backslash stands before a dot or a backslash that belongs to a
// name. Where an array stands, a name of digits without leading zeros is an index from
// 0. "" leads nowhere: the value itself. It fails with [ErrMalformed].
func ParseField(field string) ([]string, error) {
	switch {
	case field == "":
		return nil, nil
	case len(field) > maxField:
		return nil, fail(ErrMalformed, "a field of more than 1024 bytes")
	case !utf8.ValidString(field):
		return nil, fail(ErrMalformed, "a field that is not UTF-8")
	}
	var path []string
	var name strings.Builder
	for i := 0; i < len(field); i++ {
		switch c := field[i]; c {
		case '.':
			path = append(path, name.String())
			name.Reset()
		case '\\':
			if i++; i == len(field) || field[i] != '.' && field[i] != '\\' {
				return nil, fail(ErrMalformed, `in a field a backslash stands before . or \ alone`)
			}
			name.WriteByte(field[i])
		default:
			name.WriteByte(c)
		}
	}
	if path = append(path, name.String()); len(path) > maxSegments {
		return nil, fail(ErrMalformed, "a field that leads through more than 64 names")
	}
	return path, nil
}

// JoinField writes a dot path that [ParseField] splits into path. The empty name alone
// has no dot path: a field cannot say it.
func JoinField(path ...string) string {
	var b strings.Builder
	for i, name := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		for j := range len(name) {
			if name[j] == '.' || name[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(name[j])
		}
	}
	return b.String()
}
