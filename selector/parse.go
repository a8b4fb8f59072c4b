package selector

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The limits of what is parsed. An expression beyond them is an ErrSelector.
const (
	MaxExpression      = 64 << 10  // bytes of a condition, path or pointer
	MaxExpressionDepth = 128       // nested parentheses, filters and functions
	maxInteger         = 1<<53 - 1 // of an index or a slice (RFC 9535 section 2.1)
)

// parser reads RFC 9535's expressions and paths.
type parser struct {
	op    string // for errors: "where" or "path"
	s     string
	pos   int
	depth int
	ids   int // queries from $ inside filters
}

func newParser(op, s string) (*parser, error) {
	switch {
	case len(s) > MaxExpression:
		return nil, fail(op, MaxExpression, ErrSelector, "longer than %d bytes", MaxExpression)
	case !utf8.ValidString(s):
		return nil, fail(op, int64(invalidUTF8([]byte(s))), ErrSelector, "not valid UTF-8")
	}
	return &parser{op: op, s: s}, nil
}

func (p *parser) bad(format string, args ...any) error { return p.badAt(p.pos, format, args...) }

func (p *parser) badAt(at int, format string, args ...any) error {
	return fail(p.op, int64(at), ErrSelector, format, args...)
}

// enter counts one level of nesting; leave takes it back.
func (p *parser) enter() error {
	if p.depth++; p.depth > MaxExpressionDepth {
		return p.bad("nested more than %d levels", MaxExpressionDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// peek returns the next byte; 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.s) {
		return p.s[p.pos]
	}
	return 0
}

func (p *parser) space() {
	for p.pos < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.pos]) >= 0 {
		p.pos++
	}
}

// next reports whether word is next.
func (p *parser) next(word string) bool { return strings.HasPrefix(p.s[p.pos:], word) }

// take takes word if it is next.
func (p *parser) take(word string) bool {
	if p.next(word) {
		p.pos += len(word)
		return true
	}
	return false
}

// rest returns the beginning of what is left, for an error.
func (p *parser) rest() string {
	rest := p.s[p.pos:]
	n := 0
	for i := range rest {
		if n++; n > 12 {
			return rest[:i] + "…"
		}
	}
	return rest
}

// nameByte reports whether c may stand in a member-name-shorthand.
func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 0x80 || c|0x20 >= 'a' && c|0x20 <= 'z' || !first && c >= '0' && c <= '9'
}

// number reads a number literal.
func (p *parser) number() (decimal, error) {
	begin := p.pos
	end, ok := numberEnd(p.s, p.pos)
	if p.pos = end; !ok {
		return decimal{}, p.bad("not a number")
	}
	if nameByte(p.peek(), false) || p.peek() == '.' {
		return decimal{}, p.bad("unexpected %q behind a number", p.rest())
	}
	n, ok := parseDecimal([]byte(p.s[begin:p.pos]), nil, DefaultLimits)
	if !ok {
		return n, p.badAt(begin, "a number beyond %d digits or 10^%d", DefaultLimits.Digits, DefaultLimits.Exponent)
	}
	return n, nil
}

// integer reads an index or a part of a slice (RFC 9535's int).
func (p *parser) integer() (int64, error) {
	begin := p.pos
	p.take("-")
	digits := p.pos
	for p.peek() >= '0' && p.peek() <= '9' {
		p.pos++
	}
	text := p.s[begin:p.pos]
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case p.pos == digits:
		return 0, p.badAt(begin, "want an integer, not %q", p.s[begin:min(len(p.s), begin+1)])
	case p.s[digits] == '0' && text != "0":
		return 0, p.badAt(begin, "an index with leading zeros or beyond 2^53: %s", cut(text))
	case err != nil || n > maxInteger || n < -maxInteger:
		return 0, p.badAt(begin, "an index with leading zeros or beyond 2^53: %s", cut(text))
	}
	return n, nil
}

// cut shortens ASCII text for an error.
func cut(s string) string {
	if len(s) > 24 {
		return s[:24] + "…"
	}
	return s
}

// str reads a string literal in single or double quotes (RFC 9535 section
// 2.3.1.1): JSON's escapes, and the quote itself behind a backslash.
func (p *parser) str() (string, error) {
	quote := p.s[p.pos]
	p.pos++
	var out []byte
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		switch {
		case c == quote:
			p.pos++
			return string(out), nil
		case c < 0x20:
			return "", p.bad("control character %q in a string", c)
		case c != '\\':
			out = append(out, c)
			p.pos++
			continue
		}
		n := p.escapeLen(quote)
		if n == 0 {
			return "", p.bad("unknown escape")
		}
		if p.s[p.pos+1] == '\'' { // not an escape of JSON
			out = append(out, '\'')
		} else {
			text, ok := unquote([]byte(`"`+p.s[p.pos:p.pos+n]+`"`), nil)
			if !ok {
				return "", p.bad("a lone surrogate")
			}
			out = append(out, text...)
		}
		p.pos += n
	}
	return "", p.bad("the string does not end")
}

// escapeLen returns the length of the escape at the position, a surrogate pair
// taken as one; 0 if it is none.
func (p *parser) escapeLen(quote byte) int {
	s := p.s[p.pos:]
	if len(s) < 2 {
		return 0
	}
	if s[1] != 'u' {
		if s[1] == quote || strings.IndexByte(`\/bfnrt`, s[1]) >= 0 {
			return 2
		}
		return 0
	}
	unit := func(s string) (uint64, bool) {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(s[2:6], 16, 16)
		return n, err == nil
	}
	hi, ok := unit(s)
	if !ok {
		return 0
	}
	if hi >= 0xd800 && hi < 0xdc00 {
		if _, ok := unit(s[6:]); ok {
			return 12
		}
	}
	return 6
}
