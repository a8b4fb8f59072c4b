package selector

// short reads the short form of a condition, {"field":…, "equals"|"contains":…},
// which is all of the text.
func (p *parser) short() (*expr, error) {
	sc := scanBytes([]byte(p.s), 8)
	e := &expr{atom: -1}
	var field *query
	for t, err := sc.next(); ; {
		if err == nil {
			t, err = sc.next()
		}
		if err == nil && t.kind == '}' {
			if _, err = sc.next(); err == nil {
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
			return nil, p.badAt(int(e.Offset), "%v: %s", e.Err, e.Detail)
		}
		name, _ := unquote([]byte(p.s[t.start:t.end]), nil)
		switch name := string(name); {
		case name == "field" && field == nil:
			text, ok := stringAt(p.s, v)
			if !ok {
				return nil, p.badAt(int(v.start), `"field" is not a string`)
			}
			path, err := parsePointer(text)
			if err != nil {
				return nil, p.badAt(int(v.start), `"field": %s`, err.(*Error).Detail)
			}
			field = queryOf(path)
		case (name == "equals" || name == "contains") && e.b == nil:
			e.op = opEq
			if name == "contains" {
				e.op = opContains
			}
			lit, err := p.shortLiteral(v, e.op)
			if err != nil {
				return nil, err
			}
			lit.done()
			e.b = &operand{kind: fromLiteral, lit: lit, slot: -1}
		default:
			return nil, p.badAt(int(t.start), `%q here: the short form is {"field":…, "equals":…} or {"field":…, "contains":…}`, name)
		}
	}
	if field == nil || e.b == nil {
		return nil, p.badAt(0, `the short form needs "field" and "equals" or "contains"`)
	}
	e.a = &operand{kind: fromQuery, query: field, slot: -1}
	return e, nil
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
func (p *parser) shortLiteral(v token, op exprOp) (l literal, err error) {
	at := int(v.start)
	l.kind = v.kind
	ok := true
	switch v.kind {
	case '"':
		if l.text, ok = stringAt(p.s, v); !ok {
			return l, p.badAt(at, "a lone surrogate")
		}
	case '0':
		if l.num, ok = parseDecimal([]byte(p.s[v.start:v.end]), nil, DefaultLimits); !ok {
			return l, p.badAt(at, "a number beyond %d digits or 10^%d", DefaultLimits.Digits, DefaultLimits.Exponent)
		}
	case '{', '[':
		return l, p.badAt(at, "comparing with an array or object, for which there is no literal")
	}
	if op == opContains && v.kind != '"' {
		return l, p.badAt(at, `"contains" takes a string`)
	}
	return l, nil
}
