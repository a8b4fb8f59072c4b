package selector

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxPattern is the longest regular expression that is compiled, in bytes.
const MaxPattern = 4096

// maxPatternDepth bounds nested groups; Go's parser has a bound of 1,000.
const maxPatternDepth = 100

// pattern is an I-Regexp (RFC 9485), compiled for matches of a whole string and
// of a part. Matching is linear in the string (RE2).
type pattern struct {
	valid bool // otherwise nothing matches (RFC 9535 sections 2.4.6 and 2.4.7)
	over  bool // valid or not, beyond the limits
	text  string
	whole *regexp.Regexp
	part  *regexp.Regexp
}

// compilePattern reads an I-Regexp, whose syntax is checked here: Go's has more.
func compilePattern(text string) *pattern {
	p := &pattern{text: text}
	if len(text) > MaxPattern {
		p.over = true
		return p
	}
	if !utf8.ValidString(text) {
		return p
	}
	t := translator{s: text}
	if !t.alternatives(0) || t.pos < len(text) {
		p.over = t.over
		return p
	}
	part, err := regexp.Compile(t.out.String())
	if err != nil { // a repetition or the whole is too large for Go
		p.over = true
		return p
	}
	whole, err := regexp.Compile(`\A(?:` + t.out.String() + `)\z`)
	if err != nil {
		p.over = true
		return p
	}
	p.valid, p.part, p.whole = true, part, whole
	return p
}

// translator writes an I-Regexp in Go's syntax.
type translator struct {
	s    string
	pos  int
	out  strings.Builder
	over bool
}

func (t *translator) peek() byte {
	if t.pos < len(t.s) {
		return t.s[t.pos]
	}
	return 0
}

func (t *translator) more() bool { return t.pos < len(t.s) }

// alternatives reads branches up to a closing parenthesis or the end.
func (t *translator) alternatives(depth int) bool {
	if depth > maxPatternDepth {
		t.over = true
		return false
	}
	for t.more() && t.peek() != ')' {
		if t.peek() == '|' {
			t.pos++
			t.out.WriteByte('|')
			continue
		}
		if !t.atom(depth) || !t.quantifier() {
			return false
		}
	}
	return true
}

// atom reads what a quantifier may follow.
func (t *translator) atom(depth int) bool {
	switch c := t.peek(); c {
	case '(':
		t.pos++
		t.out.WriteString("(?:")
		if !t.alternatives(depth+1) || t.peek() != ')' || !t.more() {
			return false
		}
		t.pos++
		t.out.WriteByte(')')
		return true
	case '.':
		t.pos++
		t.out.WriteString(`[^\n\r]`)
		return true
	case '[':
		return t.class()
	case '\\':
		if r, ok := t.escaped(); ok {
			t.char(r)
			return true
		}
		return t.category()
	case '^', '$':
		// Characters like any other to the grammar of RFC 9485; its section 5
		// leaves them to the engine, where they are anchors, and the suite of
		// RFC 9535 holds us to that.
		t.pos++
		t.out.WriteString(map[byte]string{'^': `(?:\A)`, '$': `(?:\z)`}[c])
		return true
	case '*', '+', '?', ')', ']', '{', '}', '|':
		return false
	}
	r, n := utf8.DecodeRuneInString(t.s[t.pos:])
	t.pos += n
	t.char(r)
	return true
}

// char writes a character that stands for itself.
func (t *translator) char(r rune) {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > 0x7f {
		t.out.WriteRune(r)
		return
	}
	t.out.WriteString(`\x{` + strconv.FormatInt(int64(r), 16) + `}`)
}

// escaped reads an escaped character.
func (t *translator) escaped() (rune, bool) {
	if t.pos+1 >= len(t.s) {
		return 0, false
	}
	c := t.s[t.pos+1]
	switch {
	case c == 'n':
		c = '\n'
	case c == 'r':
		c = '\r'
	case c == 't':
		c = '\t'
	case strings.IndexByte(`()*+-.?[\]^{|}`, c) < 0:
		return 0, false
	}
	t.pos += 2
	return rune(c), true
}

// category reads \p{…} or \P{…}.
func (t *translator) category() bool {
	s := t.s[t.pos:]
	if len(s) < 5 || s[1] != 'p' && s[1] != 'P' || s[2] != '{' {
		return false
	}
	end := strings.IndexByte(s, '}')
	if end < 4 || end > 5 {
		return false
	}
	name := s[3:end]
	kinds, ok := map[byte]string{'L': "lmotu", 'M': "cen", 'N': "dlo", 'P': "cdefios", 'Z': "lps", 'S': "ckmo", 'C': "cfno"}[name[0]]
	if !ok || len(name) == 2 && strings.IndexByte(kinds, name[1]) < 0 {
		return false
	}
	t.pos += end + 1
	t.out.WriteString(`\` + s[1:2] + `{` + name + `}`)
	return true
}

// class reads a character class in brackets.
func (t *translator) class() bool {
	t.pos++
	t.out.WriteByte('[')
	if t.peek() == '^' {
		t.pos++
		t.out.WriteByte('^')
	}
	for first := true; ; first = false {
		switch c := t.peek(); {
		case !t.more():
			return false
		case c == ']':
			t.pos++
			t.out.WriteByte(']')
			return !first
		case c == '-': // first or last only
			t.pos++
			if !first && t.peek() != ']' {
				return false
			}
			t.char('-')
			continue
		}
		lo, ok := t.classChar()
		if !ok {
			if !t.category() {
				return false
			}
			continue
		}
		t.char(lo)
		if t.peek() != '-' || t.pos+1 < len(t.s) && t.s[t.pos+1] == ']' {
			continue
		}
		t.pos++
		hi, ok := t.classChar()
		if !ok || hi < lo {
			return false
		}
		t.out.WriteByte('-')
		t.char(hi)
	}
}

// classChar reads one character of a class.
func (t *translator) classChar() (rune, bool) {
	switch t.peek() {
	case '\\':
		return t.escaped()
	case '[', ']', '-':
		return 0, false
	}
	if !t.more() {
		return 0, false
	}
	r, n := utf8.DecodeRuneInString(t.s[t.pos:])
	t.pos += n
	return r, true
}

// quantifier reads a quantifier, if one is next.
func (t *translator) quantifier() bool {
	switch c := t.peek(); c {
	case '*', '+', '?':
		if !t.more() {
			return true
		}
		t.pos++
		t.out.WriteByte(c)
		return t.peek() != '*' && t.peek() != '+' && t.peek() != '?' && t.peek() != '{'
	case '{':
		t.pos++
		lo, ok := t.count()
		if !ok {
			return false
		}
		hi := lo
		if t.peek() == ',' {
			t.pos++
			hi = -1
			if t.peek() != '}' {
				if hi, ok = t.count(); !ok || hi < lo {
					return false
				}
			}
		}
		if t.peek() != '}' {
			return false
		}
		t.pos++
		t.out.WriteString("{" + strconv.Itoa(lo))
		if hi != lo {
			t.out.WriteByte(',')
			if hi >= 0 {
				t.out.WriteString(strconv.Itoa(hi))
			}
		}
		t.out.WriteByte('}')
	}
	return true
}

// count reads a number of repetitions. One beyond Go's bound is left for Go to
// refuse.
func (t *translator) count() (int, bool) {
	begin, n := t.pos, 0
	for c := t.peek(); c >= '0' && c <= '9'; c = t.peek() {
		n = min(n*10+int(c-'0'), 1_000_000)
		t.pos++
	}
	return n, t.pos > begin
}
