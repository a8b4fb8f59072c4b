package selector

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions of this file move over JSON in memory whose grammar was checked
// before. On other bytes they may stop anywhere, but stay within the bytes; -1
// means that the bytes end too early.

const (
	swarLow  = 0x0101010101010101
	swarHigh = 0x8080808080808080
)

// swarWords is how many words a string is searched by before IndexByte takes
// over, which is faster on long strings only.
const swarWords = 6

// stringEnd returns the index behind the closing quote of the string whose
// first character stands at i, and whether it has a backslash.
func stringEnd(b []byte, i int) (end int, escaped bool) {
	quote := -1 // a quote at or behind i with no other before it, where known
	for words := 0; i+8 <= len(b); {
		x := binary.LittleEndian.Uint64(b[i:])
		q, s := x^(swarLow*'"'), x^(swarLow*'\\')
		m := ((q-swarLow)&^q | (s-swarLow)&^s) & swarHigh
		if m == 0 {
			i += 8
			if words++; words < swarWords {
				continue
			}
			words = 0
			if quote < i {
				n := bytes.IndexByte(b[i:], '"')
				if n < 0 {
					return -1, escaped
				}
				quote = i + n
			}
			n := bytes.IndexByte(b[i:quote], '\\')
			if n < 0 {
				return quote + 1, escaped
			}
			i, escaped = i+n+2, true
			continue
		}
		i += bits.TrailingZeros64(m) >> 3
		if b[i] == '"' {
			return i + 1, escaped
		}
		i, escaped = i+2, true
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			i, escaped = i+1, true
		}
	}
	return -1, escaped
}

// skipSpace returns the index of the first byte at or behind i that is no white
// space; len(b) at the end.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// The bytes that a scan of a container or scalar stops at.
const (
	markQuote = 1 + iota
	markOpen
	markClose
)

var (
	marks     = [256]uint8{'"': markQuote, '{': markOpen, '[': markOpen, '}': markClose, ']': markClose}
	scalarEnd = [256]bool{',': true, '}': true, ']': true, ' ': true, '\t': true, '\n': true, '\r': true, ':': true}
)

// valueEnd returns the index behind the value whose first byte stands at i.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := stringEnd(b, i+1)
		return end
	case '{', '[':
		return containerEnd(b, i+1)
	}
	for i++; i < len(b) && !scalarEnd[b[i]]; i++ {
	}
	return i
}

// containerEnd returns the index behind the container that was opened before i.
func containerEnd(b []byte, i int) int {
	for depth := 1; i < len(b); i++ {
		switch marks[b[i]] {
		case markQuote:
			end, _ := stringEnd(b, i+1)
			if end < 0 {
				return -1
			}
			i = end - 1
		case markOpen:
			depth++
		case markClose:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// member takes the name at i and the colon behind it: name is what stands
// between the quotes, value the index of the value's first byte, -1 where there
// is no member.
func member(b []byte, i int) (name []byte, escaped bool, value int) {
	if i >= len(b) || b[i] != '"' {
		return nil, false, -1
	}
	end, escaped := stringEnd(b, i+1)
	if end < 0 {
		return nil, false, -1
	}
	name, i = b[i+1:end-1], end
	if i >= len(b) || b[i] != ':' {
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return nil, false, -1
		}
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return nil, false, -1
	}
	return name, escaped, i
}

// sameName reports whether the name between quotes is want. Without escapes it
// is compared as it stands.
func sameName(name []byte, escaped bool, want string, scratch []byte) bool {
	if !escaped {
		return string(name) == want
	}
	if len(name) > 6*len(want) {
		return false // however escaped
	}
	text, ok := unescape(name, scratch)
	return ok && string(text) == want
}
