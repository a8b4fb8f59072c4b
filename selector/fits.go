package selector

import (
	"fmt"
	"slices"
	"strings"
)

// Fits refuses a condition that no record of a layout can ever satisfy by the way
// it is written, in any of its parts: a number asked of a CSV column, whose values
// are all strings, a column that is not there, a field of a line of text, a
// regular expression that is none (RFC 9485) and so matches nothing. Without it
// "nothing found" would be true and mislead.
func (w *Where) Fits(l Layout) error {
	for _, a := range w.plan.atoms {
		if a.b != nil && a.b.pattern != nil && !a.b.pattern.valid {
			return fail("where", -1, ErrSelector, "%q is not a regular expression of RFC 9485; nothing matches it", short(a.b.lit.text))
		}
		if l.Format != FormatCSV && l.Format != FormatText {
			continue
		}
		for _, o := range a.operands() {
			if q := o.source(); q != nil {
				if err := q.fits("where", l); err != nil {
					return err
				}
			}
		}
		if a.b == nil || !a.a.isText() && !a.b.isText() {
			continue
		}
		for _, o := range a.operands() {
			if o.kind == fromLiteral && o.lit.kind != '"' || o.kind == fromLength || o.kind == fromCount {
				return fail("where", -1, ErrSelector, `values of %s are strings: write the literal in quotes, as in "7"`, l.Format)
			}
		}
	}
	return nil
}

// isText reports whether the operand is a value of the record below its root,
// or the line.
func (o *operand) isText() bool { return o.kind == fromQuery || o.kind == fromValue }

// fits refuses a query that selects nothing of any row or line.
func (q *query) fits(op string, l Layout) error {
	refuse := func(format string, args ...any) error {
		return fail(op, -1, ErrSelector, format, args...)
	}
	switch {
	case l.Format == FormatText && len(q.segs) > 0:
		return refuse(`a line of text has no fields: @ is the line, as in {"field":"","contains":"disk"}`)
	case l.Format != FormatCSV:
		return nil
	case op != "where" && (len(q.segs) != 1 || !q.single):
		return refuse("of a row of csv one column can be had, as in %s", columnExample(l))
	case len(q.segs) == 0 || q.segs[0].descend || len(q.segs[0].sels) > 1 || q.segs[0].sels[0].kind > selIndex:
		return nil
	}
	s := &q.segs[0].sels[0]
	if (len(q.segs) == 1 || !q.single) && (l.Dialect.column(s) != noColumn || !l.Dialect.Header && s.kind == selIndex) {
		return nil
	}
	if !l.Dialect.Header {
		return refuse("%s is not a column: without a header row they are /0, /1, …", q.pointer())
	}
	return refuse("%s is not a column: they are %s", q.pointer(), columnList(l.Dialect.Columns))
}

// columnExample is how a column is written.
func columnExample(l Layout) string {
	if !l.Dialect.Header || len(l.Dialect.Columns) == 0 {
		return "/0"
	}
	return pointerText([]step{{name: l.Dialect.Columns[0], named: true}})
}

// columnList names columns, the first twelve of them.
func columnList(columns []string) string {
	const most = 12
	quoted := make([]string, 0, most)
	for _, c := range columns[:min(most, len(columns))] {
		quoted = append(quoted, fmt.Sprintf("%q", c))
	}
	text := strings.Join(slices.Clip(quoted), ", ")
	if n := len(columns) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
