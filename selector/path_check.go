package selector

import (
	"encoding/binary"
	"math/bits"
)

// checker checks the grammar of RFC 8259 for values in memory, which need not
// be trusted then. It is the fast twin of scanner: it neither says where a
// fault is nor looks at UTF-8, names that stand twice or surrogates.
type checker struct {
	stack []byte // the containers that are open, '{' or '['
}

// document reports whether b is one value, with white space around it and
// nested no deeper than depth.
func (c *checker) document(b []byte, depth int) bool {
	end := c.value(b, checkSpace(b, 0), depth)
	return end >= 0 && checkSpace(b, end) == len(b)
}

// value returns the index behind the value at i; -1 where none is.
func (c *checker) value(b []byte, i, depth int) int {
	c.stack = c.stack[:0]
	for {
		// A value stands at i.
		if i >= len(b) {
			return -1
		}
		switch b[i] {
		case '{', '[':
			if len(c.stack) == depth {
				return -1
			}
			open := b[i]
			c.stack = append(c.stack, open)
			i = checkSpace(b, i+1)
			switch {
			case i >= len(b):
				return -1
			case b[i] == open+2:
				c.stack = c.stack[:len(c.stack)-1]
				i++
			case open == '{':
				if i = checkName(b, i); i < 0 {
					return -1
				}
				continue
			default:
				continue
			}
		default:
			if i = checkScalar(b, i); i < 0 {
				return -1
			}
		}
		// A value ended before i.
		for {
			if len(c.stack) == 0 {
				return i
			}
			if i = checkSpace(b, i); i >= len(b) {
				return -1
			}
			open := c.stack[len(c.stack)-1]
			if b[i] == open+2 {
				c.stack = c.stack[:len(c.stack)-1]
				i++
				continue
			}
			if b[i] != ',' {
				return -1
			}
			i = checkSpace(b, i+1)
			if open == '{' {
				if i = checkName(b, i); i < 0 {
					return -1
				}
			}
			break
		}
	}
}

func checkSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// checkName takes a member name and its colon, and returns where the value
// stands.
func checkName(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	if i = checkString(b, i+1); i < 0 {
		return -1
	}
	if i = checkSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return checkSpace(b, i+1)
}

func checkScalar(b []byte, i int) int {
	word := ""
	switch b[i] {
	case '"':
		return checkString(b, i+1)
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		end, ok := numberEnd(b, i)
		if !ok {
			return -1
		}
		return end
	}
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// checkString returns the index behind the closing quote of the string whose
// first character stands at i.
func checkString(b []byte, i int) int {
	for i < len(b) {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			q, s := x^(swarLow*'"'), x^(swarLow*'\\')
			m := ((q-swarLow)&^q | (s-swarLow)&^s | (x-swarLow*0x20)&^x) & swarHigh
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < 0x20:
			return -1
		case c != '\\':
			i++
		case i+1 >= len(b):
			return -1
		case b[i+1] == 'u':
			if i+6 > len(b) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) || !isHex(b[i+5]) {
				return -1
			}
			i += 6
		default:
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			default:
				return -1
			}
			i += 2
		}
	}
	return -1
}
