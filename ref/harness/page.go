package harness

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ResultChars is the most characters (UTF-16 units, which is what the strictest
// reader counts) that a shipped tool's result has.
const ResultChars = 6000

// units counts UTF-16 units.
func units(p []byte) int {
	n := utf8.RuneCount(p)
	for _, c := range p {
		if c >= 0xf0 { // a character of two units
			n++
		}
	}
	return n
}

// quotedUnits is how many units a character has within a JSON string that
// jsontext.AppendQuote writes.
func quotedUnits(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < 0x20:
		return 6
	case r > 0xffff:
		return 2
	}
	return 1
}

// cut takes as much from the beginning of b as fits into a JSON string of so many
// units without its quotes: whole characters, where b is UTF-8 (but for a character
// that its end cuts), and else bytes in base64. more says that b is not the end.
// It takes one character or byte at least, of a b that is not empty.
func cut(b []byte, most int, more bool) (n int, quoted []byte, isText bool) {
	used := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			if more && n > 0 && !utf8.FullRune(b[n:]) {
				break // its rest comes behind
			}
			return cutBytes(b, most)
		}
		u := quotedUnits(r)
		if used+u > most && n > 0 {
			break
		}
		used += u
		n += size
	}
	quoted, err := jsontext.AppendQuote(nil, b[:n])
	if err != nil { // it is UTF-8
		return cutBytes(b, most)
	}
	return n, quoted, true
}

func cutBytes(b []byte, most int) (int, []byte, bool) {
	n := min(len(b), max(1, most/4*3))
	out := append([]byte{'"'}, base64.StdEncoding.EncodeToString(b[:n])...)
	return n, append(out, '"'), false
}

// clip is text of at most so many characters, with … where it was cut.
func clip(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}
