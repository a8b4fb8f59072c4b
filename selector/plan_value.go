package selector

import (
	"strings"
	"unicode/utf8"
)

// ofValue maps the comparison of a value with a literal, or a test of it, to the
// keys of values.
func ofValue(op exprOp, o *operand) keySets {
	lit := &o.lit
	switch op {
	case opMatch, opSearch:
		if lit.kind != '"' || !o.pattern.valid {
			return exactly(nil) // matches nothing
		}
		return ofPattern(op, lit.text)
	case opContains:
		return keySets{may: classes(KeyString, KeyArray)}
	case opEq:
		return exactly(oneKey(lit.key()))
	case opNe:
		return exactly(oneKey(lit.key()).not())
	}
	switch lit.kind {
	case '0':
		return exactly(ordered(op, KeyNumber, KeyString, lit.key(), behind(lit.key())))
	case '"':
		if len(lit.text) <= longString {
			return exactly(ordered(op, KeyString, KeyArray, lit.key(), behind(lit.key())))
		}
		// The order within the zone is not that of the strings.
		zone := longZone(lit.text)
		from, to := zone[0].From, zone[0].To
		if op == opLt || op == opLe {
			return keySets{may: keyRange([]byte{KeyString}, to), must: keyRange([]byte{KeyString}, from)}
		}
		return keySets{may: keyRange(from, []byte{KeyArray}), must: keyRange(to, []byte{KeyArray})}
	}
	if op == opLe || op == opGe {
		return exactly(oneKey(lit.key()))
	}
	return exactly(nil)
}

// ordered is the set of the keys of a class that runs from first to in front of
// next that are less, not greater, greater or not less than a key.
func ordered(op exprOp, first, next byte, key, behind []byte) keySet {
	switch op {
	case opLt:
		return keyRange([]byte{first}, key)
	case opLe:
		return keyRange([]byte{first}, behind)
	case opGt:
		return keyRange(behind, []byte{next})
	}
	return keyRange(key, []byte{next})
}

// key is the typed key of a literal.
func (l *literal) key() []byte {
	switch l.kind {
	case '"':
		return appendStringKey(nil, l.bytes)
	case '0':
		return appendNumberKey(nil, l.num)
	case 't':
		return []byte{KeyTrue}
	case 'f':
		return []byte{KeyFalse}
	}
	return []byte{KeyNull}
}

// longZone is the set of the keys of all strings that are longer than a key
// spells out and begin like s, which is such a string.
func longZone(s string) keySet {
	from := append(appendZeroed([]byte{KeyString}, []byte(s[:longString])), 0, 1)
	return keyRange(from, upTo(from))
}

// upTo is the first byte string behind all that begin with p, whose last byte is
// not the last.
func upTo(p []byte) []byte {
	out := append([]byte(nil), p...)
	for out[len(out)-1] == 0xff {
		out = out[:len(out)-1]
	}
	out[len(out)-1]++
	return out
}

// ofLength maps the comparison of length() of a value with a literal: strings,
// arrays and objects have a length, all others none.
func ofLength(op exprOp, lit *literal) keySets {
	var r room
	var none value
	x := lit.value()
	without := r.compare(op, &none, &x) == Matched
	long := classes(KeyString, KeyRedacted)
	if without {
		return keySets{may: everyKey(), must: long.not()}
	}
	return keySets{may: long} // that of an object with a name twice cannot be told
}

// ofPattern maps match() or search() with a regular expression.
func ofPattern(op exprOp, text string) keySets {
	prefix, rest := literalPrefix(op, text)
	switch {
	case rest == patternWhole:
		return exactly(oneKey(appendStringKey(nil, []byte(prefix))))
	case prefix == "":
		return keySets{may: classes(KeyString, KeyArray)}
	case len(prefix) > longString:
		return keySets{may: longZone(prefix)}
	}
	from := appendZeroed([]byte{KeyString}, []byte(prefix))
	s := keyRange(from, upTo(from))
	if rest == patternOpen {
		return exactly(s)
	}
	return keySets{may: s}
}

// What stands behind the literal characters that a pattern begins with.
const (
	patternMore  = iota // something else
	patternOpen         // nothing, and what follows in the string is free
	patternWhole        // nothing, and nothing follows in the string
)

// literalPrefix returns the characters that every string begins with that a
// pattern matches, as far as that can be read off its beginning: characters that
// stand for themselves, plain or escaped, up to the first that does not, or that
// a quantifier follows. A search begins with ^, or may find its match anywhere;
// an alternative outside of groups may begin with anything.
func literalPrefix(op exprOp, text string) (prefix string, rest int) {
	if hasAlternative(text) {
		return "", patternMore
	}
	t := translator{s: text}
	if t.peek() == '^' {
		t.pos++
		if t.quantified() {
			return "", patternMore
		}
	} else if op == opSearch {
		return "", patternMore
	}
	var b strings.Builder
	for t.more() {
		begin := t.pos
		r, ok := t.literal()
		if !ok || t.quantified() {
			t.pos = begin
			break
		}
		b.WriteRune(r)
	}
	switch t.s[t.pos:] {
	case "$":
		return b.String(), patternWhole
	case "":
		if op == opMatch {
			return b.String(), patternWhole
		}
		return b.String(), patternOpen
	}
	return b.String(), patternMore
}

// quantified reports whether a quantifier is next.
func (t *translator) quantified() bool {
	return t.more() && strings.IndexByte("*+?{", t.peek()) >= 0
}

// literal reads a character that stands for itself.
func (t *translator) literal() (rune, bool) {
	if t.peek() == '\\' {
		return t.escaped()
	}
	if strings.IndexByte(`()*+.?[\]^${|}`, t.peek()) >= 0 {
		return 0, false
	}
	r, n := utf8.DecodeRuneInString(t.s[t.pos:])
	t.pos += n
	return r, true
}

// hasAlternative reports whether a | stands outside of groups.
func hasAlternative(text string) bool {
	depth, class := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			return true
		}
	}
	return false
}
