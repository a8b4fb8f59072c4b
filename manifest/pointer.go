package manifest

import (
	"bytes"
	"strconv"
)

// maxPointer is the longest pointer that an error or a [RefDiff] shows, in bytes.
// A member name may have a megabyte, and there may be a million places below it.
const maxPointer = 200

const cutMark = "…"

// step is one level of nesting: a member's name, or an element's number.
type step struct {
	name  []byte
	index int  // −1 for a member
	open  bool // a member whose name is not read yet: the place is the object
}

// appendPointer writes a path as an RFC 6901 pointer, at most [maxPointer] bytes
// of it.
func appendPointer(b []byte, path []step) []byte {
	for _, s := range path {
		switch {
		case s.open:
			return b
		case s.index >= 0:
			b = strconv.AppendInt(append(b, '/'), int64(s.index), 10)
		default:
			b = appendToken(append(b, '/'), s.name)
		}
		if len(b) > maxPointer {
			return append(b[:maxPointer], cutMark...)
		}
	}
	return b
}

// appendToken writes a member name as a token of a pointer, and of a longer one
// just enough for [appendPointer] to see that it is too long.
func appendToken(b, name []byte) []byte {
	for _, c := range name {
		switch c {
		case '~':
			b = append(b, "~0"...)
		case '/':
			b = append(b, "~1"...)
		default:
			b = append(b, c)
		}
		if len(b) > maxPointer {
			break
		}
	}
	return b
}

// cutPointer is a pointer that somebody else wrote, at most [maxPointer] bytes of it.
func cutPointer(s string) string {
	if len(s) <= maxPointer {
		return s
	}
	return s[:maxPointer] + cutMark
}

// unescapeName decodes a member name as it stands between its quotes. Only \"
// and \\ can occur: everything else is not printable or needs no escape.
func unescapeName(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	name := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' {
			i++
		}
		name = append(name, raw[i])
	}
	return name
}
