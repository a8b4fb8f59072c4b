package selector

// exprOp is what an expression does with its operands.
type exprOp uint8

const (
	opAnd exprOp = iota
	opOr
	opNot
	opEq
	opNe
	opLt
	opLe
	opGt
	opGe
	opContains // of the short form
	opExists
	opMatch
	opSearch
)

// opNames are the operators in a normalised query.
var opNames = [...]string{
	opAnd: "and", opOr: "or", opNot: "not", opEq: "eq", opNe: "ne", opLt: "lt", opLe: "le", opGt: "gt", opGe: "ge",
	opContains: "contains", opExists: "exists", opMatch: "match", opSearch: "search",
}

// expr is a logical expression (RFC 9535 section 2.3.5): and, or and not of
// others, or an atom.
type expr struct {
	op   exprOp
	kids []*expr  // and, or: two or more; not: one
	a, b *operand // of an atom; exists has a only, a query
	atom int      // the atom's number in a condition; -1 inside a filter selector
}

// operandKind says where the value of an operand comes from.
type operandKind uint8

const (
	fromLiteral operandKind = iota
	fromQuery               // the value of a singular query, or for exists any query
	fromLength              // length(arg)
	fromCount               // count(query)
	fromValue               // value(query)
)

// operand is one side of a comparison, or the argument of a function.
type operand struct {
	kind    operandKind
	lit     literal
	query   *query   // fromQuery, fromCount, fromValue
	arg     *operand // fromLength
	pattern *pattern // of a literal that is the second argument of match or search
	slot    int      // where a scan of the record leaves the query's value; -1: nowhere
}

// source returns the query that the operand reads; nil if it reads none.
func (o *operand) source() *query {
	for o != nil && o.kind == fromLength {
		o = o.arg
	}
	if o == nil {
		return nil
	}
	return o.query
}

// literal is the constant of a comparison.
type literal struct {
	kind byte // as a token's: '"', '0', 't', 'f', 'n'
	text string
	num  decimal

	// for speed
	bytes   []byte // text
	asIs    bool   // a string that JSON can spell without escapes
	small   int64  // num, where isSmall
	isSmall bool
}

// done fills in what is there for speed.
func (l *literal) done() {
	l.bytes = []byte(l.text)
	l.asIs = l.kind == '"'
	for _, c := range l.bytes {
		l.asIs = l.asIs && c >= 0x20 && c != '"' && c != '\\'
	}
	if l.kind == '0' {
		l.small, l.isSmall = l.num.small()
	}
}

// query is a JSONPath query.
type query struct {
	root   bool // from $, the whole record or document; otherwise from @
	segs   []segment
	single bool // selects at most one value, by the way it is written
	id     int  // a query from $ inside a filter is asked once a record and remembered under this number
}

// segment is one step of a query: to children, or to the children of a value
// and of everything below it.
type segment struct {
	descend bool
	sels    []sel
}

// selKind is the kind of a selector.
type selKind uint8

const (
	selName   selKind = iota // the member with a name
	selToken                 // a token of a JSON Pointer: the member with the name, or the element with the index
	selIndex                 // the element with an index, from the end where it is negative
	selWild                  // all members or elements
	selSlice                 // elements by position
	selFilter                // the members or elements for which an expression holds
)

// sel is a selector.
type sel struct {
	kind             selKind
	name             string
	index            int64 // selIndex; of a selToken -1 where no array has it
	start, end, step int64 // selSlice
	noStart, noEnd   bool  // selSlice: not written
	filter           *expr
}

// singular reports whether a query selects at most one value by its syntax.
func singular(segs []segment) bool {
	for _, s := range segs {
		if s.descend || len(s.sels) != 1 || s.sels[0].kind > selIndex {
			return false
		}
	}
	return true
}

// queryOf returns the query for the steps of a JSON Pointer from @.
func queryOf(path []step) *query {
	q := &query{single: true, id: -1}
	for _, st := range path {
		q.segs = append(q.segs, segment{sels: []sel{{kind: selToken, name: st.name, index: st.index}}})
	}
	return q
}

// atoms calls visit for every atom outside filter selectors.
func (e *expr) atoms(visit func(*expr)) {
	if e.op > opNot {
		visit(e)
		return
	}
	for _, k := range e.kids {
		k.atoms(visit)
	}
}

// operands returns the one or two operands of an atom.
func (e *expr) operands() []*operand {
	if e.b == nil {
		return []*operand{e.a}
	}
	return []*operand{e.a, e.b}
}
