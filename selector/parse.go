package selector

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWhere is the longest condition that is read, in bytes.
const maxWhere = 64 << 10

// ParseWhere reads a condition: the short form {"field": POINTER, "equals":
// LITERAL} or {"field": POINTER, "contains": STRING}, or an RFC 9535 comparison
// of a singular query with a literal, as in @.status == "open". Other RFC 9535
// expressions are refused with ErrSelector, "not supported yet", naming the
// place; a literal beyond [DefaultLimits] is refused too.
func ParseWhere(s string) (*Where, error) {
	switch {
	case len(s) > maxWhere:
		return nil, fail("where", maxWhere, ErrSelector, "longer than %d bytes", maxWhere)
	case !utf8.ValidString(s):
		return nil, fail("where", int64(invalidUTF8([]byte(s))), ErrSelector, "not valid UTF-8")
	}
	p := &whereParser{s: s}
	p.space()
	if p.peek() == '{' {
		return parseShort(s)
	}
	return p.comparison()
}

// parseShort reads {"field":…, "equals"|"contains":…}.
func parseShort(s string) (*Where, error) {
	sc := scanBytes([]byte(s), 8)
	w := &Where{}
	bad := func(at int64, format string, args ...any) (*Where, error) {
		return nil, fail("where", at, ErrSelector, format, args...)
	}
	fieldSeen := false
	for t, err := sc.next(); ; {
		if err == nil {
			t, err = sc.next()
		}
		if err == nil && t.kind == '}' {
			_, err = sc.next()
			if err == nil {
				break
			}
		}
		var v token
		if err == nil {
			v, err = sc.next()
		}
		if err != nil {
			e, ok := err.(*Error)
			if !ok {
				return nil, err
			}
			return bad(e.Offset, "%v: %s", e.Err, e.Detail)
		}
		name, _ := unquote([]byte(s[t.start:t.end]), nil)
		switch name := string(name); {
		case name == "field" && !fieldSeen:
			text, ok := stringAt(s, v)
			if !ok {
				return bad(v.start, `"field" is not a string`)
			}
			if w.path, err = parsePointer(text); err != nil {
				return bad(v.start, `"field": %s`, err.(*Error).Detail)
			}
			fieldSeen = true
		case (name == "equals" || name == "contains") && w.op == "":
			w.op = opEquals
			if name == "contains" {
				w.op = opContains
			}
			if w.lit, err = shortLiteral(s, v, w.op); err != nil {
				return nil, err
			}
		default:
			return bad(t.start, `%q here: the short form is {"field":…, "equals":…} or {"field":…, "contains":…}`, name)
		}
	}
	if !fieldSeen || w.op == "" {
		return bad(0, `the short form needs "field" and "equals" or "contains"`)
	}
	return w, nil
}

// stringAt decodes the string token v.
func stringAt(s string, v token) (string, bool) {
	if v.kind != '"' {
		return "", false
	}
	text, ok := unquote([]byte(s[v.start:v.end]), nil)
	return string(text), ok
}

// shortLiteral reads the constant of a short form.
func shortLiteral(s string, v token, op string) (l literal, err error) {
	l.kind = v.kind
	ok := true
	switch v.kind {
	case '"':
		l.text, ok = stringAt(s, v)
		if !ok {
			return l, fail("where", v.start, ErrSelector, "a lone surrogate")
		}
	case '0':
		l.num, ok = parseDecimal([]byte(s[v.start:v.end]), nil, DefaultLimits)
		if !ok {
			return l, fail("where", v.start, ErrSelector, "a number beyond %d digits or 10^%d", DefaultLimits.Digits, DefaultLimits.Exponent)
		}
	case '{', '[':
		return l, fail("where", v.start, ErrSelector, "not supported yet: comparing with an array or object")
	}
	if op == opContains && v.kind != '"' {
		return l, fail("where", v.start, ErrSelector, `"contains" takes a string`)
	}
	return l, nil
}

// whereParser reads an RFC 9535 expression.
type whereParser struct {
	s   string
	pos int
}

func (p *whereParser) bad(format string, args ...any) error {
	return fail("where", int64(p.pos), ErrSelector, format, args...)
}

func (p *whereParser) later(what string) error { return p.bad("not supported yet: %s", what) }

// peek returns the next byte; 0 at the end.
func (p *whereParser) peek() byte {
	if p.pos < len(p.s) {
		return p.s[p.pos]
	}
	return 0
}

func (p *whereParser) space() {
	for p.pos < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.pos]) >= 0 {
		p.pos++
	}
}

// take takes word if it is next.
func (p *whereParser) take(word string) bool {
	if strings.HasPrefix(p.s[p.pos:], word) {
		p.pos += len(word)
		return true
	}
	return false
}

// comparison reads one comparison and the end.
func (p *whereParser) comparison() (*Where, error) {
	w := &Where{op: opEquals}
	err := p.side(w, true)
	if err == nil {
		err = p.operator()
	}
	if err == nil {
		err = p.side(w, w.lit.kind != 0)
	}
	if err != nil {
		return nil, err
	}
	p.space()
	switch {
	case p.pos == len(p.s):
		return w, nil
	case strings.HasPrefix(p.s[p.pos:], "&&") || strings.HasPrefix(p.s[p.pos:], "||"):
		return nil, p.later("more than one comparison (" + p.s[p.pos:p.pos+2] + ")")
	}
	return nil, p.bad("unexpected %q", p.rest())
}

// rest returns the beginning of what is left, for an error.
func (p *whereParser) rest() string {
	r := []rune(p.s[p.pos:])
	if len(r) > 12 {
		return string(r[:12]) + "…"
	}
	return string(r)
}

// side reads one side of the comparison: a singular query (where one is still
// wanted) or a literal.
func (p *whereParser) side(w *Where, query bool) (err error) {
	p.space()
	switch c := p.peek(); {
	case c == '@' && query:
		p.pos++
		w.path, err = p.segments()
		return err
	case c == '@':
		return p.later("comparing two queries")
	case w.lit.kind != 0:
		return p.bad("want a query that begins with @, not %q", p.rest())
	case c == '$':
		return p.later("a query from the root, $; the record is @")
	case c == '!':
		return p.later("negation")
	case c == '(':
		return p.later("parentheses")
	case c == 0:
		return p.bad("unexpected end")
	case c == '"' || c == '\'':
		w.lit.kind = '"'
		w.lit.text, err = p.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		w.lit.kind = '0'
		w.lit.num, err = p.number()
		return err
	}
	for _, word := range []string{"true", "false", "null"} {
		if p.take(word) {
			w.lit.kind = word[0]
			if nameByte(p.peek(), false) {
				return p.bad("unexpected %q", p.rest())
			}
			return nil
		}
	}
	if i := strings.IndexFunc(p.s[p.pos:], func(r rune) bool { return r > 127 || !nameByte(byte(r), false) }); i > 0 && p.s[p.pos+i] == '(' {
		return p.later("the function " + p.s[p.pos:p.pos+i] + "()")
	}
	return p.bad("want @ or a literal, not %q; a field is written @.name", p.rest())
}

// operator reads ==.
func (p *whereParser) operator() error {
	p.space()
	if p.take("==") {
		return nil
	}
	for _, op := range []string{"!=", "<=", ">=", "<", ">"} {
		if strings.HasPrefix(p.s[p.pos:], op) {
			return p.later("the operator " + op)
		}
	}
	if p.peek() == 0 || strings.HasPrefix(p.s[p.pos:], "&&") || strings.HasPrefix(p.s[p.pos:], "||") {
		return p.later("a test without a comparison")
	}
	return p.bad("want ==, not %q", p.rest())
}

// segments reads the segments of a singular query.
func (p *whereParser) segments() (path []step, err error) {
	for {
		begin := p.pos
		p.space()
		var st step
		switch {
		case strings.HasPrefix(p.s[p.pos:], ".."):
			return nil, p.later("descendants (..)")
		case strings.HasPrefix(p.s[p.pos:], ".*"):
			return nil, p.later("wildcards (.*)")
		case p.take("."):
			st, err = p.shorthand()
		case p.take("["):
			st, err = p.bracket()
		default:
			p.pos = begin
			return path, nil
		}
		if err != nil {
			return nil, err
		}
		path = append(path, st)
	}
}

// nameByte reports whether c may stand in a member-name-shorthand.
func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 0x80 || c|0x20 >= 'a' && c|0x20 <= 'z' || !first && c >= '0' && c <= '9'
}

// shorthand reads the name behind a dot.
func (p *whereParser) shorthand() (step, error) {
	begin := p.pos
	for p.pos < len(p.s) && nameByte(p.s[p.pos], p.pos == begin) {
		p.pos++
	}
	if p.pos == begin {
		return step{}, p.bad("want a name behind the dot; other names are written @['name']")
	}
	return step{name: p.s[begin:p.pos], index: -1, named: true}, nil
}

// bracket reads a name or an index and the closing bracket.
func (p *whereParser) bracket() (st step, err error) {
	p.space()
	switch c := p.peek(); {
	case c == '"' || c == '\'':
		st = step{index: -1, named: true}
		st.name, err = p.str()
	case c == '-':
		return st, p.later("an index from the end")
	case c >= '0' && c <= '9':
		begin := p.pos
		for p.peek() >= '0' && p.peek() <= '9' {
			p.pos++
		}
		if st.index = arrayIndex(p.s[begin:p.pos]); st.index < 0 || st.index > 1<<53-1 {
			p.pos = begin
			return st, p.bad("an index with leading zeros or beyond 2^53")
		}
	case c == '*' || c == '?' || c == ':':
		return st, p.later(fmt.Sprintf("the selector %c", c))
	default:
		return st, p.bad("want a quoted name or an index, not %q", p.rest())
	}
	if err != nil {
		return st, err
	}
	p.space()
	if p.peek() == ':' || p.peek() == ',' {
		return st, p.later("slices and several selectors")
	}
	if !p.take("]") {
		return st, p.bad("want ], not %q", p.rest())
	}
	return st, nil
}

// number reads a number literal.
func (p *whereParser) number() (decimal, error) {
	begin := p.pos
	sc := scanBytes([]byte(p.s[p.pos:]), 0)
	if err := sc.number(); err != nil {
		p.pos += sc.pos
		return decimal{}, p.bad("not a number")
	}
	p.pos += sc.pos
	if nameByte(p.peek(), false) || p.peek() == '.' {
		return decimal{}, p.bad("unexpected %q behind a number", p.rest())
	}
	n, ok := parseDecimal([]byte(p.s[begin:p.pos]), nil, DefaultLimits)
	if !ok {
		p.pos = begin
		return n, p.bad("a number beyond %d digits or 10^%d", DefaultLimits.Digits, DefaultLimits.Exponent)
	}
	return n, nil
}

// str reads a string literal in single or double quotes (RFC 9535 section
// 2.3.1.1): JSON's escapes, and the quote itself behind a backslash.
func (p *whereParser) str() (string, error) {
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
func (p *whereParser) escapeLen(quote byte) int {
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
