package selector

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unquote decodes a JSON string, quotes included, whose grammar was checked.
// ok is false for a lone surrogate or invalid UTF-8: such a string has no code
// points to compare. Without escapes the result aliases raw; otherwise it
// stands in scratch.
func unquote(raw, scratch []byte) (s []byte, ok bool) { return unescape(raw[1:len(raw)-1], scratch) }

// unescape is unquote for what stands between the quotes. Where the grammar was
// not checked after all, ok may be false for that reason.
func unescape(raw, scratch []byte) (s []byte, ok bool) {
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return raw, utf8.Valid(raw)
	}
	out := scratch[:0]
	for i >= 0 {
		out = append(out, raw[:i]...)
		if i+1 >= len(raw) {
			return nil, false
		}
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw)
			if r < 0 {
				return nil, false
			}
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
					return nil, false
				}
				if r = utf16.DecodeRune(r, hex4(raw[2:])); r == utf8.RuneError {
					return nil, false
				}
				raw = raw[6:]
			}
			out = utf8.AppendRune(out, r)
		default: // " \ /
			out = append(out, c)
		}
		i = bytes.IndexByte(raw, '\\')
	}
	out = append(out, raw...)
	return out, utf8.Valid(out)
}

// hex4 reads four hexadecimal digits; -1 where there are none.
func hex4(p []byte) rune {
	if len(p) < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(p[:4]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
