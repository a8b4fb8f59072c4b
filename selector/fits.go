package selector

import (
	"fmt"
	"slices"
	"strings"
)

// Fits refuses a condition that no record of a layout can ever satisfy by the way
// it is written: a number asked of a CSV column, whose values are all strings, a
// column that is not there, a field of a line of text. Without it "nothing found"
// would be true and mislead.
func (w *Where) Fits(l Layout) error {
	if l.Format != FormatCSV && l.Format != FormatText {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fail("where", -1, ErrSelector, format, args...)
	}
	if w.lit.kind != '"' {
		return refuse(`values of %s are strings: write the literal in quotes, as in "7"`, l.Format)
	}
	if l.Format == FormatText {
		if len(w.path) > 0 {
			return refuse(`a line of text has no fields: @ is the line, as in {"field":"","contains":"disk"}`)
		}
		return nil
	}
	if e := newEvaluator(w, l); e.column != noColumn {
		return nil
	}
	if !l.Dialect.Header {
		return refuse("%s is not a column: without a header row they are /0, /1, …", w.Field())
	}
	return refuse("%s is not a column: they are %s", w.Field(), columnList(l.Dialect.Columns))
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
