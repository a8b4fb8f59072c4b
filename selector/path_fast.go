package selector

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// fastScan moves forward over one record whose grammar was checked. What it
// learns about the bytes ahead it remembers, so that strings and containers
// are passed with few searches, which the library does many bytes at a time.
// On other bytes it may stop anywhere, but stays within them.
type fastScan struct {
	b     []byte
	clean int // no backslash stands from the place under way up to here
	// Where the next '{', '}', '[' and ']' stands, or a place up to which none
	// does, counted from the place under way.
	brackets [4]int
}

func (s *fastScan) reset(b []byte) {
	s.b, s.clean = b, 0
	s.brackets = [4]int{}
}

// shortString is how many words of a string are looked at before the library
// is called, which is faster on long strings only.
const shortString = 4

// lookAhead is how far behind a string's end backslashes are looked for.
const lookAhead = 1024

// str returns the index behind the closing quote of the string whose first
// character stands at i, and whether it has a backslash; -1 where it has no end.
func (s *fastScan) str(i int) (end int, escaped bool) {
	b := s.b
	at := i
	for range shortString {
		if at+8 > len(b) {
			break
		}
		x := binary.LittleEndian.Uint64(b[at:]) ^ swarLow*'"'
		if m := (x - swarLow) &^ x & swarHigh; m != 0 {
			q := at + bits.TrailingZeros64(m)>>3
			if q < s.clean {
				return q + 1, false
			}
			return s.slashes(i, q)
		}
		at += 8
	}
	if at > len(b) {
		return -1, false
	}
	n := bytes.IndexByte(b[at:], '"')
	if n < 0 {
		return -1, false
	}
	if at+n < s.clean {
		return at + n + 1, false
	}
	return s.slashes(i, at+n)
}

// slashes is str where a backslash may stand in front of the quote at q, the
// first one behind i.
func (s *fastScan) slashes(i, q int) (end int, escaped bool) {
	b := s.b
	for {
		from := i
		if s.clean > i {
			from = min(s.clean, len(b))
		}
		to := min(q+lookAhead, len(b))
		n := -1
		if from < to {
			n = bytes.IndexByte(b[from:to], '\\')
		}
		if n < 0 {
			s.clean = to
			return q + 1, escaped
		}
		if s.clean = from + n; s.clean > q {
			return q + 1, escaped
		}
		i, escaped = s.clean+2, true
		if i > q {
			if i >= len(b) {
				return -1, escaped
			}
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return -1, escaped
			}
			q = i + n
		}
	}
}

// value returns the index behind the value whose first byte stands at i; -1
// where it has no end.
func (s *fastScan) value(i int) int {
	b := s.b
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := s.str(i + 1)
		return end
	case '{', '[':
		return s.container(i+1, b[i])
	}
	for i++; i < len(b) && !scalarEnd[b[i]]; i++ {
	}
	return i
}

// shortContainer is how many bytes of a container are read one by one.
const shortContainer = 12

// container returns the index behind the container that was opened with open
// before i. Brackets of the other kind are balanced, so they need no look.
func (s *fastScan) container(i int, open byte) int {
	b, depth := s.b, 1
	for stop := min(i+shortContainer, len(b)); i < stop; i++ {
		switch b[i] {
		case '"':
			if i, _ = s.str(i + 1); i < 0 {
				return -1
			}
			i--
		case open:
			depth++
		case open + 2:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	for i < len(b) {
		bracket := s.bracket(i, len(b), open+2)
		if bracket == len(b) {
			return -1
		}
		bracket = s.bracket(i, bracket, open)
		// A bracket counts if an even number of quotes stands before it, as long
		// as none of them is escaped.
		if bracket >= s.clean && !s.isClean(i, bracket) {
			return slowContainerEnd(b, i, open, depth)
		}
		if bracket > i && bytes.Count(b[i:bracket], quoteByte)&1 == 1 {
			n := bytes.IndexByte(b[bracket:], '"')
			if n < 0 {
				return -1
			}
			if i = bracket + n + 1; i-1 >= s.clean && !s.isClean(bracket, i) {
				// The string has an escape: pass it with care, from its beginning.
				begin := bytes.LastIndexByte(b[:bracket], '"') + 1
				if i, _ = s.str(begin); i < 0 {
					return -1
				}
			}
			continue
		}
		i = bracket + 1
		if b[bracket] == open {
			depth++
		} else if depth--; depth == 0 {
			return i
		}
	}
	return -1
}

var quoteByte = []byte{'"'}

// isClean reports whether no backslash stands in [i, end), and remembers it.
func (s *fastScan) isClean(i, end int) bool {
	from := max(i, min(s.clean, len(s.b)))
	to := min(end+lookAhead, len(s.b))
	n := -1
	if from < to {
		n = bytes.IndexByte(s.b[from:to], '\\')
	}
	if n < 0 {
		s.clean = to
		return true
	}
	s.clean = from + n
	return s.clean >= end
}

// bracket returns the index of the next bracket c in [i, end); end where there is
// none.
func (s *fastScan) bracket(i, end int, c byte) int {
	k := &s.brackets[c>>1&1|c>>4&2]
	i = max(i, *k)
	if i >= end {
		return end
	}
	if s.b[i] != c {
		n := bytes.IndexByte(s.b[i:end], c)
		if n < 0 {
			n = end - i
		}
		i += n
	}
	*k = i
	return i
}

// slowContainerEnd returns the index behind a container from a place within it
// outside strings, at a depth of brackets of its kind.
func slowContainerEnd(b []byte, i int, open byte, depth int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			end, _ := stringEnd(b, i+1)
			if end < 0 {
				return -1
			}
			i = end - 1
		case open:
			depth++
		case open + 2:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}
