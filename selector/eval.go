package selector

import (
	"bytes"
	"unicode/utf8"
)

// Evaluator decides one condition for record after record. It keeps room from
// one record to the next, so it serves one goroutine; make one for each.
type Evaluator struct{ e *evaluator }

// Evaluator returns an evaluator for the records of a layout. It fails with
// ErrLayout for an invalid layout only.
func (w *Where) Evaluator(l Layout) (*Evaluator, error) {
	l, err := l.normal()
	if err != nil {
		return nil, err
	}
	return &Evaluator{newEvaluator(w, l)}, nil
}

// Eval decides the condition for the bytes of one record, terminator excluded.
// The record is checked whole before it decides anything. Its bytes are not
// kept and not changed.
func (e *Evaluator) Eval(record []byte) Outcome { return e.e.eval(record) }

// EvalTrusted is Eval for a record that was validated and not found undecidable
// ([Stats]): it is one value of its format, is UTF-8, has no duplicate names and
// no lone surrogates, and is within the limits. It looks at no more of the bytes
// than the decision needs. For another record it may decide wrongly, but it never
// reads outside the record and never panics.
func (e *Evaluator) EvalTrusted(record []byte) Outcome { return e.e.trusted(record) }

// Eval decides the condition for the bytes of one record. For many records an
// [Evaluator] is faster.
func (w *Where) Eval(record []byte, l Layout) Outcome {
	e, err := w.Evaluator(l)
	if err != nil {
		return Undecidable
	}
	return e.Eval(record)
}

// evaluator decides one condition for record after record.
type evaluator struct {
	where  *Where
	layout Layout
	column int64 // csv: which column, or one of the two below
	scan   scanner
	walk   walk
	hit    Outcome
	a, b   []byte // room
}

const (
	noColumn      = -1 // no such column: the value is missing
	sameNameTwice = -2 // two columns have the name
)

func newEvaluator(w *Where, l Layout) *evaluator {
	e := &evaluator{where: w, layout: l, a: make([]byte, 0, 256), b: make([]byte, 0, 256)}
	e.walk = walk{s: &e.scan, path: w.path, hit: e.take, scratch: make([]byte, 0, 64)}
	e.column = e.csvColumn()
	return e
}

// csvColumn finds the column that the path names.
func (e *evaluator) csvColumn() int64 {
	if len(e.where.path) != 1 {
		return noColumn
	}
	st, d := e.where.path[0], e.layout.Dialect
	if !d.Header {
		if st.index < 0 {
			return noColumn
		}
		return st.index
	}
	found := int64(noColumn)
	for i, name := range d.Columns {
		if st.named && name == st.name {
			if found != noColumn {
				return sameNameTwice
			}
			found = int64(i)
		}
	}
	return found
}

// eval decides the condition for one record.
func (e *evaluator) eval(record []byte) Outcome {
	if e.where.redacted || int64(len(record)) > e.layout.Limits.Record || !utf8.Valid(record) {
		return Undecidable
	}
	switch e.layout.Format {
	case FormatNDJSON, FormatJSON:
		return e.json(record)
	case FormatCSV:
		return e.csv(record)
	case FormatText:
		if len(e.where.path) > 0 {
			return Unmatched // a line has no members
		}
		return e.where.text(record)
	}
	return Undecidable
}

// trusted decides the condition for a record that was validated.
func (e *evaluator) trusted(record []byte) Outcome { return e.quick(record) }

func (e *evaluator) json(record []byte) Outcome {
	e.scan.reset(record, int(e.layout.Limits.Depth))
	e.walk.found, e.walk.twice, e.hit = false, false, Unmatched
	if err := e.walk.run(); err != nil || e.walk.twice {
		return Undecidable
	}
	return e.hit // Unmatched where nothing was found: missing equals nothing
}

// take decides the condition for the selected value and takes it.
func (e *evaluator) take(t token) error {
	e.hit = e.value(t)
	_, err := e.scan.skip(t)
	return err
}

func (e *evaluator) value(t token) Outcome {
	w := e.where
	switch t.kind {
	case '"':
		s, ok := unquote(e.scan.buf[t.start:t.end], e.a)
		if !ok {
			return Undecidable // a lone surrogate
		}
		return w.text(s)
	case '0':
		n, ok := parseDecimal(e.scan.buf[t.start:t.end], e.b, e.layout.Limits)
		if !ok {
			return Undecidable
		}
		return outcome(w.op == opEquals && w.lit.kind == '0' && n.equal(w.lit.num))
	}
	return outcome(w.op == opEquals && w.lit.kind == t.kind)
}

// text decides the condition for a string value.
func (w *Where) text(s []byte) Outcome {
	if w.lit.kind != '"' {
		return Unmatched
	}
	if w.op == opContains {
		return outcome(bytes.Contains(s, []byte(w.lit.text)))
	}
	return outcome(string(s) == w.lit.text)
}

func outcome(is bool) Outcome {
	if is {
		return Matched
	}
	return Unmatched
}

func (e *evaluator) csv(record []byte) Outcome {
	got := Unmatched
	ok := csvRow(record, e.layout.Dialect, max(e.column, 0), func(i int64, value []byte) {
		if i == e.column {
			got = e.where.text(value)
		}
	})
	if !ok || e.column == sameNameTwice {
		return Undecidable
	}
	return got
}
