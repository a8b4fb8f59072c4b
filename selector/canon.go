package selector

import (
	"encoding/hex"
	"strconv"
	"unicode/utf8"
)

// canonicalText reports whether s may stand as it is in a canonical JSON
// string: valid UTF-8 without U+007F, U+2028 and U+2029, on which
// canonicalisers disagree.
func canonicalText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r == 0x7f || r == 0x2028 || r == 0x2029 {
			return false
		}
	}
	return true
}

// appendText appends s as a canonical JSON string, or as ["x", hex of its
// bytes] where a string cannot say it.
func appendText(dst []byte, s string) []byte {
	if !canonicalText(s) {
		dst = append(dst, `["x","`...)
		dst = hex.AppendEncode(dst, []byte(s))
		return append(dst, `"]`...)
	}
	return appendString(dst, s)
}

// appendString appends s, which is canonicalText, with RFC 8785's escapes.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		default:
			const digits = "0123456789abcdef"
			dst = append(dst, `\u00`...)
			dst = append(dst, digits[c>>4], digits[c&15])
		}
	}
	return append(dst, '"')
}

// appendInt appends n as a string: a canonical form here holds no numbers.
func appendInt(dst []byte, n int64) []byte {
	dst = append(dst, '"')
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '"')
}
