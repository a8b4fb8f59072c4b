package selector

import "strings"

// or reads a logical expression.
func (p *parser) or() (*expr, error) { return p.chain(opOr, "||", p.and) }

func (p *parser) and() (*expr, error) { return p.chain(opAnd, "&&", p.basic) }

// chain reads one or more operands with an operator between them.
func (p *parser) chain(op exprOp, sign string, operand func() (*expr, error)) (*expr, error) {
	first, err := operand()
	if err != nil {
		return nil, err
	}
	e := &expr{op: op, kids: []*expr{first}, atom: -1}
	for {
		begin := p.pos
		p.space()
		if !p.take(sign) {
			p.pos = begin
			break
		}
		next, err := operand()
		if err != nil {
			return nil, err
		}
		e.kids = append(e.kids, next)
	}
	if len(e.kids) == 1 {
		return first, nil
	}
	return e, nil
}

// basic reads an expression in parentheses, a comparison or a test, of which
// the first and the last may be negated.
func (p *parser) basic() (*expr, error) {
	p.space()
	if p.peek() == '!' && !p.next("!=") {
		p.pos++
		p.space()
		at := p.pos
		kid, err := p.negatable()
		if err != nil {
			return nil, err
		}
		if kid.op >= opEq && kid.op <= opGe && p.s[at] != '(' {
			return nil, p.badAt(at, "a negated comparison stands in parentheses, as in !(@.a == 1)")
		}
		return &expr{op: opNot, kids: []*expr{kid}, atom: -1}, nil
	}
	return p.negatable()
}

func (p *parser) negatable() (*expr, error) {
	if p.peek() != '(' {
		return p.atom()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.pos++
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	p.space()
	if !p.take(")") {
		return nil, p.bad("want ), && or ||, not %q", p.rest())
	}
	return e, nil
}

// comparisons are the operators, those first that begin like another.
var comparisons = []struct {
	sign string
	op   exprOp
}{{"==", opEq}, {"!=", opNe}, {"<=", opLe}, {">=", opGe}, {"<", opLt}, {">", opGt}}

// atom reads a comparison or a test.
func (p *parser) atom() (*expr, error) {
	at := p.pos
	left, test, err := p.side()
	if err != nil {
		return nil, err
	}
	behind := p.pos
	p.space()
	op := exprOp(0)
	for _, c := range comparisons {
		if p.take(c.sign) {
			op = c.op
			break
		}
	}
	if op == 0 {
		switch {
		case test != nil:
			p.pos = behind
			return test, nil
		case left.kind == fromQuery && (p.peek() == 0 || strings.IndexByte("&|)],", p.peek()) >= 0):
			p.pos = behind
			return &expr{op: opExists, a: left, atom: -1}, nil
		}
		if p.peek() == '=' {
			return nil, p.bad("want ==, not %q; = alone compares nothing", p.rest())
		}
		return nil, p.bad("want ==, !=, <, <=, > or >=, not %q", p.rest())
	}
	if err := p.comparable(at, left, test); err != nil {
		return nil, err
	}
	p.space()
	at = p.pos
	right, test, err := p.side()
	if err != nil {
		return nil, err
	}
	if err := p.comparable(at, right, test); err != nil {
		return nil, err
	}
	if (op == opEq || op == opNe) && left.kind == fromLiteral && right.kind != fromLiteral {
		left, right = right, left // one spelling
	}
	return &expr{op: op, a: left, b: right, atom: -1}, nil
}

// comparable refuses what may not stand beside a comparison's operator.
func (p *parser) comparable(at int, o *operand, test *expr) error {
	switch {
	case test != nil:
		return p.badAt(at, "%s() is true or false and cannot be compared", opNames[test.op])
	case o.kind == fromQuery && !o.query.single:
		return p.badAt(at, "a query that may select several values cannot be compared; try value() or count(), or a filter in brackets")
	}
	return nil
}

// side reads a literal, a query or a function; a function that is a test comes
// as an expression.
func (p *parser) side() (o *operand, test *expr, err error) {
	p.space()
	switch c := p.peek(); {
	case c == '@' || c == '$':
		q, err := p.query()
		return &operand{kind: fromQuery, query: q, slot: -1}, nil, err
	case c == 0:
		return nil, nil, p.bad("unexpected end")
	}
	lit, ok, err := p.literal()
	if ok || err != nil {
		lit.done()
		return &operand{kind: fromLiteral, lit: lit, slot: -1}, nil, err
	}
	i := p.pos
	for i < len(p.s) && (p.s[i] >= 'a' && p.s[i] <= 'z' || i > p.pos && (p.s[i] == '_' || p.s[i] >= '0' && p.s[i] <= '9')) {
		i++
	}
	if i > p.pos && i < len(p.s) && p.s[i] == '(' {
		return p.function(p.s[p.pos:i])
	}
	return nil, nil, p.bad("want @ or a literal, not %q; a field is written @.name", p.rest())
}

// literal reads a string, a number, true, false or null; ok is false where none
// is next.
func (p *parser) literal() (l literal, ok bool, err error) {
	switch c := p.peek(); {
	case c == '"' || c == '\'':
		l.kind = '"'
		l.text, err = p.str()
		return l, true, err
	case c == '-' || c >= '0' && c <= '9':
		l.kind = '0'
		l.num, err = p.number()
		return l, true, err
	}
	for _, word := range []string{"true", "false", "null"} {
		if p.take(word) {
			l.kind = word[0]
			if nameByte(p.peek(), false) {
				return l, true, p.bad("unexpected %q", p.rest())
			}
			return l, true, nil
		}
	}
	return l, false, nil
}

// function reads a call of one of the five functions (RFC 9535 section 2.4),
// whose arguments and result must be of the declared types.
func (p *parser) function(name string) (o *operand, test *expr, err error) {
	at := p.pos
	want := map[string]int{"length": 1, "count": 1, "value": 1, "match": 2, "search": 2}[name]
	if want == 0 {
		return nil, nil, p.bad("there is no function %s(); there are length, count, value, match and search", cut(name))
	}
	if err := p.enter(); err != nil {
		return nil, nil, err
	}
	defer p.leave()
	p.pos += len(name) + 1
	var args []*operand
	for {
		p.space()
		if len(args) == 0 && p.take(")") {
			break
		}
		begin := p.pos
		arg, test, err := p.side()
		if err != nil {
			return nil, nil, err
		}
		switch nodes := name == "count" || name == "value"; {
		case test != nil:
			return nil, nil, p.badAt(begin, "%s() takes a value, and %s() is true or false", name, opNames[test.op])
		case nodes && arg.kind != fromQuery:
			return nil, nil, p.badAt(begin, "%s() takes a query", name)
		case !nodes && arg.kind == fromQuery && !arg.query.single:
			return nil, nil, p.badAt(begin, "%s() takes one value, and the query may select several", name)
		}
		args = append(args, arg)
		p.space()
		if p.take(")") {
			break
		}
		if !p.take(",") {
			return nil, nil, p.bad("want ) or a comma, not %q", p.rest())
		}
	}
	if len(args) != want {
		return nil, nil, p.badAt(at, "%s() takes %d arguments, not %d", name, want, len(args))
	}
	switch name {
	case "length":
		return &operand{kind: fromLength, arg: args[0], slot: -1}, nil, nil
	case "count":
		return &operand{kind: fromCount, query: args[0].query, slot: -1}, nil, nil
	case "value":
		return &operand{kind: fromValue, query: args[0].query, slot: -1}, nil, nil
	}
	test = &expr{op: opMatch, a: args[0], b: args[1], atom: -1}
	if name == "search" {
		test.op = opSearch
	}
	if lit := args[1].lit; args[1].kind == fromLiteral && lit.kind == '"' {
		args[1].pattern = compilePattern(lit.text)
		if args[1].pattern.over {
			return nil, nil, p.badAt(at, "the pattern is beyond the limits: %d bytes, repetitions of at most 1000", MaxPattern)
		}
	}
	return nil, test, nil
}
