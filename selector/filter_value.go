package selector

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/zeebo/blake3"
)

// The kinds of a value beside those of a token.
const (
	kindNothing     byte = 0   // no value: a query selected nothing, or a function has none
	kindUndecidable byte = '?' // a value that cannot be told
)

// value is an operand's value for one record.
type value struct {
	kind    byte   // '"', '0', 't', 'f', 'n', '{', '[', or one of the above
	settled bool   // text or num holds what raw spells
	raw     []byte // the record from the value's first byte on, at least to its end
	text    []byte
	num     decimal
	tree    *tree // the value stands at ref in it; nil: not known
	ref     ref
	read    int // bytes that settling took
}

// in returns a tree that an array or object stands in, and where.
func (v *value) in() (*tree, ref, bool) {
	if v.tree != nil {
		return v.tree, v.ref, true
	}
	t := &tree{}
	return t, ref{}, t.build(v.raw, 0)
}

// rawValue is the value that begins at i.
func rawValue(b []byte, i int) value {
	k := b[i]
	if k == '-' || k >= '0' && k <= '9' {
		k = '0'
	}
	return value{kind: k, raw: b[i:]}
}

func textValue(text []byte) value { return value{kind: '"', settled: true, text: text} }

// room is memory that values are decoded into, and the limits of numbers.
type room struct {
	limits Limits
	a, b   []byte
}

func newRoom(l Limits) room {
	return room{limits: l, a: make([]byte, 0, 256), b: make([]byte, 0, 256)}
}

// settle decodes a string or number. scratch is lent for the purpose and grows.
func (r *room) settle(v *value, scratch *[]byte) {
	if v.settled {
		return
	}
	v.settled = true
	ok := true
	switch v.kind {
	case '"':
		end, escaped := stringEnd(v.raw, 1)
		v.read = end
		switch {
		case end < 0:
			ok = false
		case !escaped:
			v.text = v.raw[1 : end-1] // the record is UTF-8
		default:
			if v.text, ok = unescape(v.raw[1:end-1], *scratch); cap(v.text) > cap(*scratch) && cap(v.text) <= blockSize {
				*scratch = v.text
			}
		}
	case '0':
		v.read = valueEnd(v.raw, 0)
		v.num, ok = parseDecimal(v.raw[:v.read], *scratch, r.limits)
	}
	if !ok {
		v.kind = kindUndecidable
	}
}

// value is the value of a literal.
func (l *literal) value() value {
	return value{kind: l.kind, settled: true, text: l.bytes, num: l.num}
}

// compare decides a comparison of two values (RFC 9535 section 2.3.5.2.2).
func (r *room) compare(op exprOp, a, b *value) Outcome {
	r.settle(a, &r.a)
	r.settle(b, &r.b)
	if a.kind == kindUndecidable || b.kind == kindUndecidable {
		return Undecidable
	}
	switch op {
	case opEq:
		return r.equal(a, b)
	case opNe:
		return negate(r.equal(a, b))
	case opGt, opGe:
		a, b = b, a
	}
	if a.kind == b.kind {
		switch a.kind {
		case '"':
			c := bytes.Compare(a.text, b.text)
			return outcome(c < 0 || c == 0 && (op == opLe || op == opGe))
		case '0':
			c := a.num.compare(b.num)
			return outcome(c < 0 || c == 0 && (op == opLe || op == opGe))
		}
	}
	if op == opLe || op == opGe {
		return r.equal(a, b)
	}
	return Unmatched
}

// equal decides equality of two values that are settled and not undecidable.
func (r *room) equal(a, b *value) Outcome {
	if a.kind != b.kind {
		return Unmatched
	}
	switch a.kind {
	case '"':
		return outcome(bytes.Equal(a.text, b.text))
	case '0':
		return outcome(a.num.equal(b.num))
	case '{', '[':
		x, ok := r.canonical(a)
		if !ok {
			return Undecidable
		}
		y, ok := r.canonical(b)
		if !ok {
			return Undecidable
		}
		return outcome(bytes.Equal(x, y))
	}
	return Matched
}

// match decides match() or search() of a settled text with a pattern.
func match(op exprOp, text []byte, p *pattern) Outcome {
	switch {
	case p.over:
		return Undecidable
	case !p.valid:
		return Unmatched
	case op == opMatch:
		return outcome(p.whole.Match(text))
	}
	return outcome(p.part.Match(text))
}

// length is the value of length(v): characters, elements or members.
func (r *room) length(v *value) value {
	r.settle(v, &r.a)
	switch v.kind {
	case '"':
		return numberValue(int64(utf8.RuneCount(v.text)))
	case '{', '[':
		t, top, ok := v.in()
		if !ok || v.kind == '{' && t.ambiguous(top) {
			return value{kind: kindUndecidable}
		}
		n := int64(0)
		for c := t.children(top); ; n++ {
			if _, ok := c.next(); !ok {
				return numberValue(n)
			}
		}
	case kindUndecidable:
		return *v
	}
	return value{}
}

// numberValue is a count as a value.
func numberValue(n int64) value {
	num, _ := parseDecimal(strconv.AppendInt(nil, n, 10), nil, DefaultLimits)
	return value{kind: '0', settled: true, num: num}
}

func negate(o Outcome) Outcome {
	switch o {
	case Matched:
		return Unmatched
	case Unmatched:
		return Matched
	}
	return Undecidable
}

func outcome(is bool) Outcome {
	if is {
		return Matched
	}
	return Unmatched
}

// contains decides whether a text contains another, of at least one character
// or none.
func contains(text, part []byte) Outcome { return outcome(bytes.Contains(text, part)) }

// inlineObject is the longest object that a canonical form spells out; of a
// longer one it holds the digest, so that no byte is moved once for every level
// of nesting.
const inlineObject = 64

// canonical returns a form of an array or object that two values share exactly
// where they are equal: numbers by value, strings by code point, objects
// whatever their order. ok is false where the value cannot be told: a name
// stands twice, a lone surrogate, a number beyond the limits.
func (r *room) canonical(v *value) (form []byte, ok bool) {
	t, at, ok := v.in()
	if !ok {
		return nil, false
	}
	return r.appendCanonical(nil, t, at)
}

func (r *room) appendCanonical(dst []byte, t *tree, at ref) (_ []byte, ok bool) {
	v := rawValue(t.b, at.pos)
	switch v.kind {
	case '"', '0':
		if r.settle(&v, &r.a); v.kind == '0' {
			return appendNumberKey(dst, v.num), true
		}
		return appendCounted(dst, v.text), v.kind == '"'
	case '[':
		dst = append(dst, '[')
		for c := t.children(at); ; {
			e, more := c.next()
			if !more {
				return append(dst, ']'), true
			}
			if dst, ok = r.appendCanonical(dst, t, e); !ok {
				return dst, false
			}
		}
	case '{':
		return r.canonicalObject(dst, t, at)
	}
	return append(dst, v.kind), true
}

// canonicalObject appends the members sorted by name, in braces; where that is
// long, its digest instead.
func (r *room) canonicalObject(dst []byte, t *tree, at ref) (_ []byte, ok bool) {
	var body []byte
	type member struct{ name, begin, end int } // in body; the value stands in [name, end)
	var list []member
	for c := t.children(at); ; {
		e, more := c.next()
		if !more {
			break
		}
		name, ok := unescape(c.name, nil)
		if !ok {
			return dst, false
		}
		m := member{begin: len(body)}
		body = append(body, name...)
		m.name = len(body)
		if body, ok = r.appendCanonical(body, t, e); !ok {
			return dst, false
		}
		m.end = len(body)
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b member) int { return bytes.Compare(body[a.begin:a.name], body[b.begin:b.name]) })
	form := []byte{'{'}
	for i, m := range list {
		if i > 0 && bytes.Equal(body[m.begin:m.name], body[list[i-1].begin:list[i-1].name]) {
			return dst, false
		}
		form = append(appendCounted(form, body[m.begin:m.name]), body[m.name:m.end]...)
	}
	if form = append(form, '}'); len(form) <= inlineObject {
		return append(dst, form...), true
	}
	sum := blake3.Sum256(form)
	return append(append(dst, '#'), sum[:]...), true
}

// appendCounted appends a string after its length, so that nothing in it can
// be taken for what follows.
func appendCounted(dst, s []byte) []byte {
	dst = strconv.AppendInt(append(dst, '"'), int64(len(s)), 10)
	return append(append(dst, ':'), s...)
}
