package selector

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// A cleaner recognises JSON values without any fault, quickly: the grammar of
// RFC 8259, no duplicate names, valid UTF-8, no lone surrogate, all within the
// limits. It does not say what is wrong with others: that is for the validator,
// whose verdict on a clean value is that it is clean. The two are held together
// by a test on random and foreign input.
type cleaner struct {
	limits  Limits
	short   int    // numbers of up to so many bytes are within the limits
	stack   []byte // the containers that are open, '{' or '['
	marks   []int  // for each, where its names begin in names
	names   []nameRef
	seed    maphash.Seed
	scratch []byte
	depth   int  // of the last value
	escapes bool // a backslash is in it
}

// nameRef is a member name in the value, with a hash of it.
type nameRef struct {
	hash       uint64
	start, end int
}

// What a cleaner found.
type cleanResult int

const (
	isClean  cleanResult = iota
	notClean             // something is wrong, or a name has an escape
	ranOut               // the bytes end within the value
)

// fewNames is up to how many names of an object are compared one by one.
const fewNames = 24

func newCleaner(l Limits) *cleaner {
	c := &cleaner{limits: l, seed: maphash.MakeSeed(), scratch: make([]byte, 0, 64)}
	if l.Digits >= 5 && l.Exponent >= 1000 {
		c.short = 5 // as in 9e999
	}
	return c
}

// record reports whether p is one clean value and white space.
func (c *cleaner) record(p []byte) bool {
	n, r := c.value(p, true)
	return r == isClean && quickSpace(p, n) == len(p)
}

// value reads the value at the beginning of p, behind white space, and returns
// its end. Unless whole, more bytes may follow p.
func (c *cleaner) value(p []byte, whole bool) (int, cleanResult) {
	c.stack, c.marks, c.names = c.stack[:0], c.marks[:0], c.names[:0]
	c.depth, c.escapes = 0, false
	begin := quickSpace(p, 0)
	i, r := c.walk(p, begin, whole)
	if r == isClean && !utf8.Valid(p[begin:i]) {
		r = notClean
	}
	if r == ranOut && whole {
		r = notClean
	}
	return i, r
}

func (c *cleaner) walk(p []byte, i int, whole bool) (int, cleanResult) {
	for {
		// A value begins at i.
		if i >= len(p) {
			return i, ranOut
		}
		switch p[i] {
		case '{', '[':
			open := p[i]
			if int64(len(c.stack)) >= c.limits.Depth {
				return i, notClean
			}
			c.stack = append(c.stack, open)
			c.marks = append(c.marks, len(c.names))
			c.depth = max(c.depth, len(c.stack))
			if i = quickSpace(p, i+1); i >= len(p) {
				return i, ranOut
			}
			if p[i] == open+2 { // '{'+2 = '}', '['+2 = ']'
				break
			}
			if open == '{' {
				var r cleanResult
				if i, r = c.name(p, i); r != isClean {
					return i, r
				}
			}
			continue
		default:
			var r cleanResult
			if i, r = c.scalar(p, i, whole); r != isClean {
				return i, r
			}
		}
		// A value is complete, or p[i] closes an empty container.
		for {
			if len(c.stack) == 0 {
				return i, isClean
			}
			if i = quickSpace(p, i); i >= len(p) {
				return i, ranOut
			}
			top := c.stack[len(c.stack)-1]
			if p[i] == ',' {
				if i = quickSpace(p, i+1); i >= len(p) {
					return i, ranOut
				}
				if top == '{' {
					var r cleanResult
					if i, r = c.name(p, i); r != isClean {
						return i, r
					}
				}
				break
			}
			if p[i] != top+2 || !c.close(p) {
				return i, notClean
			}
			i++
		}
	}
}

// close ends the innermost container; false for duplicate names in it.
func (c *cleaner) close(p []byte) bool {
	mark := c.marks[len(c.marks)-1]
	ok := len(c.names)-mark <= fewNames || c.distinct(p, c.names[mark:])
	c.names, c.marks, c.stack = c.names[:mark], c.marks[:len(c.marks)-1], c.stack[:len(c.stack)-1]
	return ok
}

// distinct reports whether many names differ. The hash is seeded, so nobody
// can choose names that make it slow.
func (c *cleaner) distinct(p []byte, names []nameRef) bool {
	for i, n := range names {
		names[i].hash = maphash.Bytes(c.seed, p[n.start:n.end])
	}
	slices.SortFunc(names, func(a, b nameRef) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return 0
	})
	for i := 1; i < len(names); i++ {
		for j := i - 1; j >= 0 && names[j].hash == names[i].hash; j-- {
			if bytes.Equal(p[names[i].start:names[i].end], p[names[j].start:names[j].end]) {
				return false
			}
		}
	}
	return true
}

// name reads a member name and its colon, and returns where the value begins.
func (c *cleaner) name(p []byte, i int) (int, cleanResult) {
	if p[i] != '"' {
		return i, notClean
	}
	begin := i + 1
	end := plainEnd(p, begin)
	if end >= len(p) {
		return end, ranOut
	}
	if p[end] != '"' { // an escape, or what must not stand there
		return end, notClean
	}
	ref := nameRef{nameHash(p[begin:end]), begin, end}
	mark := c.marks[len(c.marks)-1]
	if len(c.names)-mark < fewNames {
		for _, n := range c.names[mark:] {
			if n.hash == ref.hash && bytes.Equal(p[n.start:n.end], p[begin:end]) {
				return i, notClean
			}
		}
	}
	c.names = append(c.names, ref)
	if i = quickSpace(p, end+1); i >= len(p) {
		return i, ranOut
	}
	if p[i] != ':' {
		return i, notClean
	}
	return quickSpace(p, i+1), isClean
}

// nameHash tells most short names apart.
func nameHash(p []byte) uint64 {
	const k = 0x9e3779b97f4a7c15
	if n := len(p); n >= 8 {
		return (binary.LittleEndian.Uint64(p)*k ^ binary.LittleEndian.Uint64(p[n-8:])) + uint64(n)
	}
	h := uint64(len(p))
	for _, b := range p {
		h = h<<8 | uint64(b)
	}
	return h * k
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plainEnd returns the first of a quote, a backslash and a control character
// from i on; len(p) if there is none.
func plainEnd(p []byte, i int) int {
	for ; i+8 <= len(p); i += 8 {
		w := binary.LittleEndian.Uint64(p[i:])
		quote, slash := w^('"'*eachByte), w^('\\'*eachByte)
		stop := (w-0x20*eachByte)&^w | (quote-eachByte)&^quote | (slash-eachByte)&^slash
		if stop &= highBits; stop != 0 {
			return i + bits.TrailingZeros64(stop)>>3
		}
	}
	for i < len(p) && !stringStop[p[i]] {
		i++
	}
	return i
}

// scalar reads a string, a number or a literal, and returns its end.
func (c *cleaner) scalar(p []byte, i int, whole bool) (int, cleanResult) {
	switch ch := p[i]; {
	case ch == '"':
		for i++; ; {
			i = plainEnd(p, i)
			switch {
			case i >= len(p):
				return i, ranOut
			case p[i] == '"':
				return i + 1, isClean
			case p[i] != '\\':
				return i, notClean
			}
			c.escapes = true
			n, r := cleanEscape(p[i:])
			if r != isClean {
				return i, r
			}
			i += n
		}
	case ch == '-' || ch >= '0' && ch <= '9':
		return c.number(p, i, whole)
	case ch == 't':
		return cleanWord(p, i, "true")
	case ch == 'f':
		return cleanWord(p, i, "false")
	case ch == 'n':
		return cleanWord(p, i, "null")
	}
	return i, notClean
}

func cleanWord(p []byte, i int, word string) (int, cleanResult) {
	if len(p)-i < len(word) {
		return len(p), ranOut
	}
	if string(p[i:i+len(word)]) != word {
		return i, notClean
	}
	return i + len(word), isClean
}

// cleanEscape returns the length of the escape at the beginning of p, a
// surrogate pair taken as one.
func cleanEscape(p []byte) (int, cleanResult) {
	switch {
	case len(p) < 2:
		return 0, ranOut
	case p[1] != 'u':
		if bytes.IndexByte([]byte(`"\/bfnrt`), p[1]) < 0 {
			return 0, notClean
		}
		return 2, isClean
	case len(p) < 6:
		return 0, ranOut
	}
	hi, ok := cleanHex(p[2:])
	switch {
	case !ok || hi >= 0xdc00 && hi < 0xe000:
		return 0, notClean
	case hi < 0xd800 || hi >= 0xe000:
		return 6, isClean
	case len(p) < 12:
		return 0, ranOut
	}
	if p[6] != '\\' || p[7] != 'u' {
		return 0, notClean
	}
	if lo, ok := cleanHex(p[8:]); !ok || lo < 0xdc00 || lo >= 0xe000 {
		return 0, notClean
	}
	return 12, isClean
}

// cleanHex reads four hexadecimal digits.
func cleanHex(p []byte) (n uint32, ok bool) {
	for _, c := range p[:4] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | uint32(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// number reads a number, as RFC 8259 section 6 has it, within the limits.
func (c *cleaner) number(p []byte, i int, whole bool) (int, cleanResult) {
	begin := i
	digits := func() bool {
		from := i
		for i < len(p) && p[i] >= '0' && p[i] <= '9' {
			i++
		}
		return i > from
	}
	if p[i] == '-' {
		i++
	}
	good := true
	if i < len(p) && p[i] == '0' {
		i++
	} else {
		good = digits()
	}
	if good && i < len(p) && p[i] == '.' {
		i++
		good = digits()
	}
	if good && i < len(p) && p[i]|0x20 == 'e' {
		if i++; i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		good = digits()
	}
	if i >= len(p) && (!whole || !good) {
		return i, ranOut
	}
	if !good {
		return i, notClean
	}
	if i-begin > c.short {
		if i-begin <= 18 && c.limits.Digits >= 18 && bytes.IndexByte(p[begin:i], 'e') < 0 && bytes.IndexByte(p[begin:i], 'E') < 0 && c.short > 0 {
			return i, isClean
		}
		if _, ok := parseDecimal(p[begin:i], c.scratch, c.limits); !ok {
			return i, notClean
		}
	}
	return i, isClean
}
