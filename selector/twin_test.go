package selector_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/selector"
)

// The slow twin: it decodes a record whole and interprets the forms of a
// normalised query, one list of values after the other. It shares nothing with
// the evaluator but the spelling of these forms.

// datum is a decoded value.
type datum struct {
	kind   byte // as the first byte of a value; '0' for numbers
	bad    bool // a string with a lone surrogate, a number beyond the limits
	str    string
	num    *big.Rat
	names  []string // of an object, in order
	badly  bool     // a name has a lone surrogate
	values []*datum // of an object or array
}

// decoded reads one JSON value; nil where there is none.
func decoded(p []byte) *datum {
	if !utf8.Valid(p) {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(p), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v := decodeValue(d, 0)
	if v == nil {
		return nil
	}
	if _, err := d.ReadToken(); err == nil || err.Error() != "EOF" {
		return nil
	}
	return v
}

func decodeValue(d *jsontext.Decoder, depth int) *datum {
	k := d.PeekKind()
	switch k {
	case '{', '[':
		if depth == int(selector.DefaultLimits.Depth) {
			return nil
		}
		out := &datum{kind: byte(k)}
		_, _ = d.ReadToken()
		for d.PeekKind() != '}' && d.PeekKind() != ']' {
			if k == '{' {
				raw, err := d.ReadValue()
				if err != nil {
					return nil
				}
				name, ok := decodeString(raw)
				out.badly = out.badly || !ok
				out.names = append(out.names, name)
			}
			v := decodeValue(d, depth+1)
			if v == nil {
				return nil
			}
			out.values = append(out.values, v)
		}
		if _, err := d.ReadToken(); err != nil {
			return nil
		}
		return out
	case 0:
		return nil
	}
	raw, err := d.ReadValue()
	if err != nil {
		return nil
	}
	out := &datum{kind: byte(k)}
	switch k {
	case '"':
		s, ok := decodeString(raw)
		out.str, out.bad = s, !ok
	case '0':
		out.num, out.bad = decodeNumber(string(raw))
	}
	return out
}

// decodeString decodes a JSON string by UTF-16 code units; a lone surrogate
// stays distinct from all else.
func decodeString(raw []byte) (string, bool) {
	var units []uint16
	s := string(raw[1 : len(raw)-1])
	for s != "" {
		if s[0] != '\\' {
			r, n := utf8.DecodeRuneInString(s)
			units, s = utf16.AppendRune(units, r), s[n:]
			continue
		}
		if s[1] == 'u' {
			n, _ := strconv.ParseUint(s[2:6], 16, 16)
			units, s = append(units, uint16(n)), s[6:]
			continue
		}
		c := map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[s[1]]
		if c == 0 {
			c = s[1]
		}
		units, s = append(units, uint16(c)), s[2:]
	}
	var out []byte
	ok := true
	for i := 0; i < len(units); i++ {
		r := rune(units[i])
		if utf16.IsSurrogate(r) {
			if i+1 < len(units) && utf16.DecodeRune(r, rune(units[i+1])) != utf8.RuneError {
				out = utf8.AppendRune(out, utf16.DecodeRune(r, rune(units[i+1])))
				i++
				continue
			}
			ok = false
			out = append(out, 0xff, byte(r>>8), byte(r))
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), ok
}

var wideNumber = regexp.MustCompile(`^-?0*([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?$`)

// decodeNumber reads a number; bad where it is beyond the limits.
func decodeNumber(s string) (n *big.Rat, bad bool) {
	m := wideNumber.FindStringSubmatch(s)
	digits := strings.TrimLeft(m[1]+m[2], "0")
	if digits == "" {
		return new(big.Rat), false
	}
	exp := new(big.Int)
	exp.SetString(strings.TrimPrefix(m[3], "+"), 10)
	top := new(big.Int).Add(exp, big.NewInt(int64(len(m[1])-(len(m[1]+m[2])-len(digits)))))
	if top.CmpAbs(big.NewInt(1_000_000)) > 0 || len(strings.TrimRight(digits, "0")) > 1024 {
		return nil, true
	}
	n, _ = new(big.Rat).SetString(s)
	return n, false
}

// ambiguous reports whether an object's members cannot be told apart.
func (d *datum) ambiguous() bool {
	for i, n := range d.names {
		if slices.Contains(d.names[:i], n) {
			return true
		}
	}
	return d.badly
}

// told reports whether a value can be compared whole.
func (d *datum) told() bool {
	ok := !d.bad && !d.ambiguous()
	for _, v := range d.values {
		ok = ok && v.told()
	}
	return ok
}

func (d *datum) equal(o *datum) bool {
	if d.kind != o.kind || d.str != o.str || len(d.values) != len(o.values) {
		return false
	}
	if d.kind == '0' {
		return d.num.Cmp(o.num) == 0
	}
	for i, v := range d.values {
		j := i
		if d.kind == '{' {
			if j = slices.Index(o.names, d.names[i]); j < 0 {
				return false
			}
		}
		if !v.equal(o.values[j]) {
			return false
		}
	}
	return true
}

// twin interprets forms for one record.
type twin struct{ root *datum }

func (w twin) outcome(is bool) selector.Outcome {
	if is {
		return selector.Matched
	}
	return selector.Unmatched
}

func (w twin) not(o selector.Outcome) selector.Outcome {
	return []selector.Outcome{selector.Undecidable, selector.Matched, selector.Unmatched}[o]
}

// holds decides a form with @ = cur.
func (w twin) holds(form []any, cur *datum) selector.Outcome {
	op := form[0].(string)
	switch op {
	case "and", "or":
		counts := map[selector.Outcome]int{}
		for _, x := range form[1:] {
			counts[w.holds(x.([]any), cur)]++
		}
		strong, weak := selector.Unmatched, selector.Matched
		if op == "or" {
			strong, weak = weak, strong
		}
		switch {
		case counts[strong] > 0:
			return strong
		case counts[selector.Undecidable] > 0:
			return selector.Undecidable
		}
		return weak
	case "not":
		return w.not(w.holds(form[1].([]any), cur))
	case "exists":
		list, maybe := w.query(asQuery(form[1]), cur)
		if len(list) == 0 && maybe {
			return selector.Undecidable
		}
		return w.outcome(len(list) > 0)
	}
	a, b := w.value(asQuery(form[1]), cur), w.value(form[2], cur)
	if a == undecidable || b == undecidable {
		return selector.Undecidable
	}
	switch op {
	case "eq":
		return w.equal(a, b)
	case "ne":
		return w.not(w.equal(a, b))
	case "lt":
		return w.outcome(less(a, b))
	case "gt":
		return w.outcome(less(b, a))
	case "le", "ge":
		if op == "ge" {
			a, b = b, a
		}
		if less(a, b) {
			return selector.Matched
		}
		return w.equal(a, b)
	}
	if a == nil || b == nil || a.kind != '"' || b.kind != '"' {
		return selector.Unmatched
	}
	switch op {
	case "contains":
		return w.outcome(strings.Contains(a.str, b.str))
	case "match":
		re, err := regexp.Compile("^(?s:" + b.str + ")$")
		return w.outcome(err == nil && re.MatchString(a.str))
	case "search":
		re, err := regexp.Compile("(?s:" + b.str + ")")
		return w.outcome(err == nil && re.MatchString(a.str))
	}
	panic("no operator " + op)
}

func (w twin) equal(a, b *datum) selector.Outcome {
	if a == nil || b == nil {
		return w.outcome(a == b)
	}
	if a.kind != b.kind {
		return selector.Unmatched
	}
	if !a.told() || !b.told() {
		return selector.Undecidable
	}
	return w.outcome(a.equal(b))
}

func less(a, b *datum) bool {
	switch {
	case a == nil || b == nil || a.kind != b.kind:
		return false
	case a.kind == '0':
		return a.num.Cmp(b.num) < 0
	case a.kind == '"':
		return slices.Compare([]rune(a.str), []rune(b.str)) < 0
	}
	return false
}

// undecidable is a value that cannot be told.
var undecidable = &datum{kind: '?'}

// value returns an operand's value; nil for none.
func (w twin) value(form any, cur *datum) *datum {
	if s, ok := form.(string); ok {
		form = pointerForm(s)
	}
	list := form.([]any)
	switch op := list[0].(string); op {
	case "s":
		if x, ok := list[1].([]any); ok {
			return &datum{kind: '"', str: unhex(x[1])}
		}
		return &datum{kind: '"', str: list[1].(string)}
	case "x":
		return &datum{kind: '"', str: unhex(list[1])}
	case "n":
		n, _ := new(big.Rat).SetString(list[1].(string))
		return &datum{kind: '0', num: n}
	case "true", "false", "null":
		return &datum{kind: op[0]}
	case "length":
		v := w.value(list[1], cur)
		switch {
		case v == nil || v == undecidable:
			return v
		case v.kind == '"':
			return &datum{kind: '0', num: big.NewRat(int64(utf8.RuneCountInString(v.str)), 1)}
		case v.kind == '{' && v.ambiguous():
			return undecidable
		case v.kind == '{' || v.kind == '[':
			return &datum{kind: '0', num: big.NewRat(int64(len(v.values)), 1)}
		}
		return nil
	case "count", "value":
		found, maybe := w.query(list[1], cur)
		switch {
		case maybe:
			return undecidable
		case op == "count":
			return &datum{kind: '0', num: big.NewRat(int64(len(found)), 1)}
		case len(found) != 1:
			return nil
		case found[0].bad:
			return undecidable
		}
		return found[0]
	}
	found, maybe := w.query(form, cur)
	switch {
	case len(found) == 0 && maybe:
		return undecidable
	case len(found) == 0:
		return nil
	case found[0].bad:
		return undecidable
	}
	return found[0]
}

// query returns what a query selects, and whether there may be more.
func (w twin) query(form any, cur *datum) (list []*datum, maybe bool) {
	if s, ok := form.(string); ok {
		form = pointerForm(s)
	}
	q := form.([]any)
	list = []*datum{cur}
	if q[0] == "root" {
		list = []*datum{w.root}
	}
	for _, seg := range q[1:] {
		seg := seg.([]any)
		sels := []any{seg}
		if seg[0] == "c" || seg[0] == "d" {
			sels = seg[1:]
		}
		if seg[0] == "d" {
			var all []*datum
			var visit func(*datum)
			visit = func(d *datum) {
				all = append(all, d)
				if d.ambiguous() {
					maybe = true
					return
				}
				for _, v := range d.values {
					visit(v)
				}
			}
			for _, d := range list {
				visit(d)
			}
			list = all
		}
		var next []*datum
		for _, d := range list {
			for _, s := range sels {
				got, m := w.children(s.([]any), d)
				next, maybe = append(next, got...), maybe || m
			}
		}
		list = next
	}
	return list, maybe
}

// children returns what one selector selects of a value.
func (w twin) children(s []any, d *datum) (list []*datum, maybe bool) {
	op := s[0].(string)
	if d.kind != '{' && d.kind != '[' {
		return nil, false
	}
	if op == "p" && d.kind == '[' {
		op = "i"
	}
	switch {
	case (op == "k" || op == "p") && d.kind == '{':
		name := ""
		if x, ok := s[1].([]any); ok {
			name = unhex(x[1])
		} else {
			name = s[1].(string)
		}
		for i, n := range d.names {
			if n == name {
				list = append(list, d.values[i])
			}
		}
		if len(list) > 1 {
			return nil, true
		}
	case op == "i" && d.kind == '[':
		i := integer(s[1])
		if i < 0 {
			i += len(d.values)
		}
		if i >= 0 && i < len(d.values) {
			list = append(list, d.values[i])
		}
	case op == "s" && d.kind == '[':
		return twinSlice(s, d.values), false
	case op == "w" || op == "f":
		if d.ambiguous() {
			return nil, true
		}
		for _, v := range d.values {
			got := selector.Matched
			if op == "f" {
				got = w.holds(s[1].([]any), v)
			}
			if got == selector.Matched {
				list = append(list, v)
			}
			maybe = maybe || got == selector.Undecidable
		}
	}
	return list, maybe
}

// twinSlice walks over all positions that RFC 9535's pseudo code would.
func twinSlice(s []any, values []*datum) (list []*datum) {
	n, step := len(values), integer(s[3])
	place := func(part any, missing int) int {
		if part == "" {
			return missing
		}
		i := integer(part)
		if i < 0 {
			i += n
		}
		return i
	}
	if step > 0 {
		for i := max(place(s[1], 0), 0); i < min(place(s[2], n), n); i += step {
			list = append(list, values[i])
		}
	}
	if step < 0 {
		for i := min(place(s[1], n-1), n-1); i > max(place(s[2], -1), -1); i += step {
			list = append(list, values[i])
		}
	}
	return list
}

func integer(x any) int {
	n, err := strconv.Atoi(x.(string))
	if err != nil {
		panic(err)
	}
	return n
}

func unhex(x any) string {
	b, err := hex.DecodeString(x.(string))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// asQuery turns the first operand of an atom that is ["x", hex] into the pointer
// that it is.
func asQuery(form any) any {
	if list, ok := form.([]any); ok && list[0] == "x" {
		return unhex(list[1])
	}
	return form
}

// pointerForm is the form of a JSON Pointer.
func pointerForm(p string) []any {
	q := []any{"path"}
	for i, t := range strings.Split(p, "/") {
		if i == 0 {
			continue
		}
		t = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
		if n, err := strconv.Atoi(t); err == nil && strconv.Itoa(n) == t && n >= 0 {
			q = append(q, []any{"p", t})
		} else {
			q = append(q, []any{"k", t})
		}
	}
	return q
}

// normalForm returns the where member of a normalised query.
func normalForm(normalised []byte) ([]any, error) {
	var all struct{ Where []any }
	err := json.Unmarshal(normalised, &all)
	return all.Where, err
}
