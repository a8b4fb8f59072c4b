package selector_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// gen writes random records and conditions over a few names and values, so that
// they meet.
type gen struct {
	*rand.Rand
	theory bool // no more than theory/jsonpath gets right
	clean  bool // no record that cannot be told, no numbers beyond 2^53
}

func newGen(seed uint64) *gen { return &gen{Rand: rand.New(rand.NewPCG(seed, seed))} }

func pick[T any](g *gen, list ...T) T { return list[g.IntN(len(list))] }

var (
	genNames   = []string{"a", "b", "c", "0", "1", "é", "a/b", "q\"", "\u2028"}
	genStrings = []string{"", "a", "b", "ab", "open", "x\ny", "😀", "é", "\u2028", "a.c"}
	genNumbers = []string{"0", "-0", "1", "1.0", "10e-1", "-1", "2", "2.5", "25e-1", "3", "-0.001", "1e3", "100"}
)

// str spells a string in one of the ways that JSON has.
func (g *gen) str(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < 0x20 || r < 0xffff && g.IntN(12) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r > 0xffff && g.IntN(2) == 0:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

func (g *gen) space() string {
	if g.theory {
		return ""
	}
	return pick(g, "", "", "", "", " ", "\t", "\n ")
}

// record writes a random record, most often an object or array.
func (g *gen) record() string {
	for {
		if r := g.value(4); r[0] == '{' && len(r) > 2 || r[0] == '[' && len(r) > 2 || g.IntN(20) == 0 {
			return r
		}
	}
}

// value writes a random JSON value.
func (g *gen) value(depth int) string {
	switch n := g.IntN(12); {
	case n < 4 && depth > 0:
		var parts []string
		names := g.Perm(len(genNames))
		for _, i := range names[:g.IntN(4)] {
			name := g.str(genNames[i])
			if !g.clean && g.IntN(40) == 0 {
				name = `"\ud800"`
			}
			part := name + g.space() + ":" + g.space() + g.value(depth-1)
			parts = append(parts, part)
			if !g.clean && g.IntN(8) == 0 {
				parts = append(parts, g.str(genNames[i])+":"+g.value(depth-1))
			}
		}
		return "{" + g.space() + strings.Join(parts, g.space()+","+g.space()) + "}"
	case n < 7 && depth > 0:
		var parts []string
		for range g.IntN(4) {
			parts = append(parts, g.value(depth-1))
		}
		return "[" + strings.Join(parts, ","+g.space()) + g.space() + "]"
	case n < 9:
		if !g.clean && g.IntN(5) == 0 {
			return pick(g, `"\ud800"`, `"a\udc00"`, `"\ud83dx"`)
		}
		return g.str(pick(g, genStrings...))
	case n < 11:
		if !g.clean && g.IntN(4) == 0 {
			return pick(g, "1e1000001", "9007199254740993", "9007199254740992", "1e-99999999999999999999", "1"+strings.Repeat("0", 1100)+"1")
		}
		return pick(g, genNumbers...)
	}
	return pick(g, "true", "false", "null")
}

// A written thing is its text in a condition, and the form that means it.
type written struct {
	text string
	form []any
}

// literal writes a string of a condition.
func (g *gen) quoted(s string) string {
	text := g.str(s)
	if g.IntN(3) > 0 {
		return text
	}
	inner := strings.ReplaceAll(strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`), `'`, `\'`)
	return "'" + inner + "'"
}

func (g *gen) literal() written {
	switch g.IntN(6) {
	case 0, 1:
		s := pick(g, genStrings...)
		return written{g.quoted(s), []any{"s", s}}
	case 2, 3:
		n := pick(g, genNumbers...)
		return written{n, []any{"n", n}}
	}
	word := pick(g, "true", "false", "null")
	return written{word, []any{word}}
}

// query writes a query; singular ones have names and indexes only.
func (g *gen) query(singular bool, depth int) written {
	q := written{"@", []any{"path"}}
	if g.IntN(5) == 0 {
		q = written{"$", []any{"root"}}
	}
	for range g.IntN(4) {
		seg := g.segment(singular, depth)
		q.text += g.space() + seg.text
		q.form = append(q.form, any(seg.form))
	}
	return q
}

func (g *gen) segment(singular bool, depth int) written {
	name := pick(g, genNames...)
	if g.IntN(3) > 0 && name[0] >= 'a' && len(name) == 1 {
		return written{"." + name, []any{"k", name}}
	}
	if singular || g.IntN(2) == 0 {
		s := g.selector(true, depth)
		return written{"[" + g.space() + s.text + g.space() + "]", s.form}
	}
	if g.IntN(8) == 0 {
		return written{".*", []any{"w"}}
	}
	seg := written{"[", []any{"c"}}
	if g.IntN(3) == 0 {
		seg = written{"..[", []any{"d"}}
	}
	for i := range 1 + g.IntN(2) {
		if i > 0 {
			seg.text += ","
		}
		s := g.selector(false, depth)
		seg.text += s.text
		seg.form = append(seg.form, any(s.form))
	}
	seg.text += "]"
	if len(seg.form) == 2 && seg.form[0] == "c" {
		seg.form = seg.form[1].([]any)
	}
	return seg
}

func (g *gen) selector(singular bool, depth int) written {
	n := g.IntN(8)
	if singular {
		n = g.IntN(4)
	}
	switch {
	case n < 2:
		name := pick(g, genNames...)
		return written{g.quoted(name), []any{"k", name}}
	case n < 4:
		i := strconv.Itoa(g.IntN(6) - 3)
		return written{i, []any{"i", i}}
	case n < 5:
		return written{"*", []any{"w"}}
	case n < 6 && depth > 0:
		f := g.expr(depth - 1)
		return written{"?" + g.space() + f.text, []any{"f", any(f.form)}}
	}
	part := func() string {
		if g.IntN(3) == 0 {
			return ""
		}
		return strconv.Itoa(g.IntN(9) - 4)
	}
	start, end, step := part(), part(), part()
	form := []any{"s", start, end, step}
	text := start + ":" + end + ":" + step
	if step == "" {
		form[3] = "1"
		if g.IntN(2) == 0 {
			text = start + g.space() + ":" + g.space() + end
		}
	}
	return written{text, form}
}

// operand writes one side of a comparison.
func (g *gen) operand(depth int) written {
	switch g.IntN(8) {
	case 0, 1:
		return g.literal()
	case 2:
		arg := g.operand(0)
		return written{"length(" + arg.text + ")", []any{"length", any(arg.form)}}
	case 3:
		name := pick(g, "count", "value")
		q := g.query(false, depth)
		return written{name + "(" + g.space() + q.text + ")", []any{name, any(q.form)}}
	}
	return g.query(true, depth)
}

// expr writes a logical expression.
func (g *gen) expr(depth int) written {
	if depth > 0 && g.IntN(2) == 0 {
		sign, op := "&&", "and"
		if g.IntN(2) == 0 {
			sign, op = "||", "or"
		}
		out := written{"", []any{op}}
		for i := range 2 + g.IntN(2) {
			if i > 0 {
				out.text += g.space() + sign + g.space()
			}
			kid := g.expr(depth - 1)
			if kid.form[0] == "and" || kid.form[0] == "or" {
				kid.text = "(" + kid.text + ")"
			}
			out.text += kid.text
			out.form = append(out.form, any(kid.form))
		}
		return out
	}
	if g.IntN(5) == 0 {
		kid := g.expr(max(depth-1, 0))
		return written{"!(" + g.space() + kid.text + ")", []any{"not", any(kid.form)}}
	}
	switch g.IntN(6) {
	case 0:
		q := g.query(false, depth)
		return written{q.text, []any{"exists", any(q.form)}}
	case 1:
		name := pick(g, "match", "search")
		a := g.query(true, depth)
		p := pick(g, "a", "a.*", "[a-c]+", "(a|b)b?", "\\p{L}", ".")
		return written{name + "(" + a.text + "," + g.quoted(p) + ")", []any{name, any(a.form), any([]any{"s", p})}}
	}
	sign := pick(g, "==", "!=", "<", ">", "<=", ">=")
	if g.theory {
		sign = pick(g, "==", "!=", "<", ">")
	}
	op := map[string]string{"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[sign]
	a, b := g.operand(depth), g.operand(depth)
	return written{a.text + g.space() + sign + g.space() + b.text, []any{op, any(a.form), any(b.form)}}
}
