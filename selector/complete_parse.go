package selector

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
)

// MaxNormalised is the longest normalised query that is read back, in bytes.
const MaxNormalised = 1 << 20

// maxNormalDepth bounds the nesting of a normalised query: each level of an
// expression is two levels of arrays at most.
const maxNormalDepth = 4 * MaxExpressionDepth

// ParseNormalised reads a normalised query of records of a layout, as
// [Query.Normalised] writes it, and nothing else: the query's own normal form is
// the text again. It fails with ErrSelector. What selects parts of records
// (select) is refused too: it is of no use to whoever checks an answer.
func ParseNormalised(text []byte, l Layout) (*Query, error) {
	if len(text) > MaxNormalised {
		return nil, fail("query", MaxNormalised, ErrSelector, "longer than %d bytes", MaxNormalised)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a number is no part of it, and must not become one that is
	var members map[string]any
	if err := d.Decode(&members); err != nil {
		return nil, fail("query", -1, ErrSelector, "not a normalised query: %v", err)
	}
	q, n := &Query{}, &normalReader{}
	where, err := n.list(members["where"])
	if err != nil {
		return nil, err
	}
	if len(where) != 1 || where[0] != opNames[opAnd] {
		e, err := n.expr(where)
		if err != nil {
			return nil, err
		}
		q.Where = newWhere(e)
	}
	order, err := n.list(members["order"])
	if err != nil {
		return nil, err
	}
	for _, o := range order[:max(0, len(order)-1)] { // the last is the document's
		key, err := n.order(o)
		if err != nil {
			return nil, err
		}
		q.Order = append(q.Order, key)
	}
	if again := q.Normalised(l); !bytes.Equal(again, text) {
		return nil, fail("query", -1, ErrSelector, "not the normal form of a query of these records: that is %s", cut(string(again)))
	}
	return q, nil
}

// normalReader reads the parts of a normalised query. It is lax: what it read is
// written again and compared.
type normalReader struct {
	depth int
	ids   int // queries from $ inside filters
}

func (n *normalReader) bad(v any) error {
	text, _ := json.Marshal(v)
	return fail("query", -1, ErrSelector, "not a part of a normalised query: %s", cut(string(text)))
}

func (n *normalReader) enter(v any) error {
	if n.depth++; n.depth > maxNormalDepth {
		return fail("query", -1, ErrSelector, "nested more than %d levels", maxNormalDepth)
	}
	return nil
}

// list returns the elements of an array that begins with a string.
func (n *normalReader) list(v any) ([]any, error) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, n.bad(v)
	}
	return list, nil
}

// head returns an array's first element, a string, and the others.
func (n *normalReader) head(v any) (string, []any, error) {
	list, err := n.list(v)
	if err != nil {
		return "", nil, err
	}
	name, ok := list[0].(string)
	if !ok {
		return "", nil, n.bad(v)
	}
	return name, list[1:], nil
}

// text reads a string, or ["x", hex] in the place of one.
func (n *normalReader) text(v any) (string, bool) {
	if s, ok := v.(string); ok {
		return s, true
	}
	list, ok := v.([]any)
	if !ok || len(list) != 2 || list[0] != "x" {
		return "", false
	}
	s, _ := list[1].(string)
	raw, err := hex.DecodeString(s)
	return string(raw), err == nil
}

func (n *normalReader) expr(v any) (*expr, error) {
	if err := n.enter(v); err != nil {
		return nil, err
	}
	defer func() { n.depth-- }()
	name, args, err := n.head(v)
	if err != nil {
		return nil, err
	}
	op := -1
	for i, s := range opNames {
		if s == name {
			op = i
		}
	}
	e := &expr{op: exprOp(op), atom: -1}
	want := 2
	switch {
	case op < 0:
		return nil, n.bad(v)
	case e.op == opAnd || e.op == opOr:
		want = max(2, len(args))
	case e.op == opNot || e.op == opExists:
		want = 1
	}
	if len(args) != want {
		return nil, n.bad(v)
	}
	if e.op <= opNot {
		for _, a := range args {
			kid, err := n.expr(a)
			if err != nil {
				return nil, err
			}
			e.kids = append(e.kids, kid)
		}
		return e, nil
	}
	return e, n.atom(e, args)
}

// atom reads the operands of an atom and holds them to what the grammar allows.
func (n *normalReader) atom(e *expr, args []any) (err error) {
	if e.a, err = n.operand(args[0], true); err != nil {
		return err
	}
	if e.op == opExists {
		if e.a.kind != fromQuery {
			return n.bad(args[0])
		}
		return nil
	}
	if e.b, err = n.operand(args[1], false); err != nil {
		return err
	}
	for i, o := range e.operands() {
		if o.kind == fromQuery && !o.query.single {
			return n.bad(args[i])
		}
	}
	lit := &e.b.lit
	isText := e.b.kind == fromLiteral && lit.kind == '"'
	switch e.op {
	case opEq, opNe:
		if e.a.kind == fromLiteral && e.b.kind != fromLiteral {
			return n.bad(args[0]) // the other way round
		}
	case opContains:
		if e.a.kind != fromQuery || !isText {
			return n.bad(args[1])
		}
	case opMatch, opSearch:
		if !isText {
			break
		}
		if e.b.pattern = compilePattern(lit.text); e.b.pattern.over {
			return fail("query", -1, ErrSelector, "a pattern beyond the limits")
		}
	}
	return nil
}

// operand reads one side of an atom. ["x", hex] is a pointer as the first of
// them and a string as the second.
func (n *normalReader) operand(v any, first bool) (*operand, error) {
	if err := n.enter(v); err != nil {
		return nil, err
	}
	defer func() { n.depth-- }()
	o := &operand{kind: fromQuery, slot: -1}
	if text, ok := n.text(v); ok {
		if _, plain := v.(string); !plain && !first {
			o.kind, o.lit = fromLiteral, literal{kind: '"', text: text}
			o.lit.done()
			return o, nil
		}
		path, err := parsePointer(text)
		if err != nil {
			return nil, n.bad(v)
		}
		o.query = queryOf(path)
		return o, nil
	}
	name, args, err := n.head(v)
	if err != nil {
		return nil, err
	}
	switch name {
	case "path", "root":
		o.query, err = n.query(name == "root", args)
		return o, err
	case "length", "count", "value":
		if len(args) != 1 {
			return nil, n.bad(v)
		}
		inner, err := n.operand(args[0], false)
		if err != nil {
			return nil, err
		}
		if name == "length" {
			if inner.kind == fromQuery && !inner.query.single {
				return nil, n.bad(v)
			}
			o.kind, o.arg = fromLength, inner
			return o, nil
		}
		if o.kind = fromCount; name == "value" {
			o.kind = fromValue
		}
		if o.query = inner.query; inner.kind != fromQuery {
			return nil, n.bad(v)
		}
		return o, nil
	}
	o.kind = fromLiteral
	return o, n.literal(&o.lit, name, args, v)
}

func (n *normalReader) literal(l *literal, name string, args []any, v any) error {
	kinds := map[string]byte{"s": '"', "n": '0', "true": 't', "false": 'f', "null": 'n'}
	l.kind = kinds[name]
	ok := l.kind != 0 && len(args) == 0
	if len(args) == 1 && (l.kind == '"' || l.kind == '0') {
		if l.text, ok = n.text(args[0]); ok && l.kind == '0' {
			end, valid := numberEnd(l.text, 0)
			if ok = valid && end == len(l.text); ok {
				l.num, ok = parseDecimal([]byte(l.text), nil, DefaultLimits)
			}
			l.text = ""
		}
	} else if l.kind == '"' || l.kind == '0' {
		ok = false
	}
	if !ok {
		return n.bad(v)
	}
	l.done()
	return nil
}

// query reads the steps of a query from @ or $.
func (n *normalReader) query(root bool, steps []any) (*query, error) {
	q := &query{root: root, id: -1}
	for _, v := range steps {
		name, args, err := n.head(v)
		if err != nil {
			return nil, err
		}
		seg := segment{descend: name == "d"}
		if name != "c" && name != "d" {
			args = []any{v}
		}
		for _, a := range args {
			s, err := n.selector(a)
			if err != nil {
				return nil, err
			}
			seg.sels = append(seg.sels, s)
		}
		if len(seg.sels) == 0 {
			return nil, n.bad(v)
		}
		q.segs = append(q.segs, seg)
	}
	q.single = singular(q.segs)
	if root && n.depth > 2 {
		q.id = n.ids
		n.ids++
	}
	return q, nil
}

func (n *normalReader) selector(v any) (s sel, err error) {
	name, args, err := n.head(v)
	if err != nil {
		return s, err
	}
	want := map[string]int{"k": 1, "i": 1, "p": 1, "w": 0, "s": 3, "f": 1}
	if count, ok := want[name]; !ok || count != len(args) {
		return s, n.bad(v)
	}
	integer := func(v any) int64 {
		text, _ := v.(string)
		i, e := strconv.ParseInt(text, 10, 64)
		if e != nil || i > maxInteger || i < -maxInteger {
			err = n.bad(v)
		}
		return i
	}
	ok := true
	switch name {
	case "k", "p":
		if s.kind = selName; name == "p" {
			s.kind = selToken
		}
		if s.name, ok = n.text(args[0]); name == "p" {
			s.index = arrayIndex(s.name)
		}
	case "i":
		s.kind, s.index = selIndex, integer(args[0])
	case "w":
		s.kind = selWild
	case "s":
		s.kind, s.start, s.step = selSlice, integer(args[0]), integer(args[2])
		if s.noEnd = args[1] == ""; !s.noEnd {
			s.end = integer(args[1])
		}
	case "f":
		s.kind = selFilter
		s.filter, err = n.expr(args[0])
	}
	if !ok {
		err = n.bad(v)
	}
	return s, err
}

// order reads ["asc", path] or ["desc", path].
func (n *normalReader) order(v any) (*Order, error) {
	name, args, err := n.head(v)
	if err != nil {
		return nil, err
	}
	if name != "asc" && name != "desc" || len(args) != 1 {
		return nil, n.bad(v)
	}
	o, err := n.operand(args[0], true)
	if err != nil {
		return nil, err
	}
	if o.kind != fromQuery || !o.query.single || o.query.root {
		return nil, n.bad(v)
	}
	out := &Order{query: o.query, desc: name == "desc", text: o.query.text()}
	if out.desc {
		out.text += ":desc"
	} else if strings.HasSuffix(out.text, ":desc") || strings.HasSuffix(out.text, ":asc") {
		out.text += ":asc" // or it would be taken for a direction
	}
	return out, nil
}
