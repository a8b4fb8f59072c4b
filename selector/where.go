package selector

// Outcome is what a condition says about one record.
type Outcome uint8

// The three outcomes. The zero Outcome is Undecidable: nothing is decided by
// default.
const (
	Undecidable Outcome = iota
	Unmatched
	Matched
)

// Where is a parsed condition on one record.
type Where struct{}

// ParseWhere reads a condition: the short form {"field": POINTER, "equals":
// LITERAL} or {"field": POINTER, "contains": STRING}, or an RFC 9535 comparison
// of a singular query with a literal, as in @.status == "open". Other RFC 9535
// expressions are refused with ErrSelector, "not supported yet", naming the place.
func ParseWhere(s string) (*Where, error) { return nil, errTODO }

// WithRedactions returns the condition for an artifact whose producer removed
// or masked the values at paths: a condition on such a field is undecidable for
// every record.
func (w *Where) WithRedactions(paths []string) *Where { return w }

// Field returns the JSON Pointer that the condition reads.
func (w *Where) Field() string { return "" }

// Normalised returns the query in its one spelling: canonical JSON of strings,
// arrays and objects, with the engine's version, the layout and the order, but
// no limit or budget.
func (w *Where) Normalised(l Layout) []byte { return nil }

// QID names the normalised query: "q_" and 32 letters.
func (w *Where) QID(l Layout) string { return "" }

// Eval decides the condition for the bytes of one record.
func (w *Where) Eval(record []byte, l Layout) Outcome { return Undecidable }
