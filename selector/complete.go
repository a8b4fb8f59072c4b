package selector

import (
	"errors"
	"fmt"
)

// The errors of completeness proofs that callers tell apart, with [errors.Is].
var (
	// ErrUnprovable is a query whose answer no proof over this index shows.
	ErrUnprovable = errors.New("no index proves this answer")
	// ErrProof is what does not prove the answer: something is left out, doubled,
	// moved, or left over, or contradicts itself.
	ErrProof = errors.New("not a proof of this answer")
)

func badProof(format string, args ...any) error {
	return fail("answer", -1, ErrProof, format, args...)
}

func unprovable(format string, args ...any) error {
	return fail("answer", -1, ErrUnprovable, format, args...)
}

// Asked is a question whose answer is proven with an index. All of it comes from
// whoever checks the proof, or is what they read and accept as the question.
type Asked struct {
	Query *Query // without Select; its conditions and orders with the redactions of the artifact
	Limit int64  // rows that are wanted, the first in the query's order; 0: all
	Count bool   // only how many records match
}

// IndexWant is what a verifier knows about an index from a signed statement.
type IndexWant struct {
	Path       *KeyPath
	Layout     Layout
	Redactions []string // JSON Pointers of values that the producer removed or masked
	Spec       [32]byte // digest of the spec
	Source     MapWant  // the artifact, and its record map
	Size       int64    // of the index, in bytes

	Entries, Distinct, Undetermined int64
}

// direction is how an answer that is cut by its limit goes through the index.
type direction int

const (
	whole     direction = iota // every candidate is shown
	document                   // the first so many candidates in document order
	ascending                  // the first so many in the order of the index
	descending
)

// A Completeness checks that an answer is all that there is: it takes what a
// proof shows, in this order, each once:
//
//	Header         leaf 0 of the index
//	Pages          its pages around the keys asked for
//	Undetermined   the pages of the tail that are not among those
//	Shown          the numbers of the records whose bytes come, for [MapSpansOf]
//	Record         each of these records
//	Finish         the answer
//
// What it is given must have been verified against the roots in a signed
// statement: then the bytes stand at their places, and what it checks is that
// they leave nothing out. It holds a few MiB, whatever the size.
type Completeness struct {
	asked  Asked
	want   IndexWant
	ranges []KeyRange
	exact  bool // in a range of a scalar path is as much as matched
	shown  int64
	way    direction

	head  indexHead
	state proofState
	cover coverage

	found, tail recordSet
	rows        rowJudge
}

// proofState is what a Completeness waits for.
type proofState int

const (
	needHeader proofState = iota
	needPages
	needTail
	needRecords
	finished
)

func (c *Completeness) enter(want, next proofState) error {
	if c.state != want {
		return fmt.Errorf("selector: the parts of a proof come in another order: %d, want %d", c.state, want)
	}
	c.state = next
	return nil
}

// NewCompleteness begins to check the answer to a question. shown is how many
// candidates an answer shows that is cut by its limit: the position of its last
// row among them; 0 is an answer that shows all of them. It fails with
// [ErrUnprovable] where the index cannot prove such an answer.
func NewCompleteness(asked Asked, want IndexWant, shown int64) (*Completeness, error) {
	c := &Completeness{asked: asked, want: want, shown: shown}
	var err error
	if want.Layout, err = want.Layout.normal(); err != nil {
		return nil, err
	}
	c.want.Layout = want.Layout
	if c.ranges, c.exact, err = provableRanges(asked, want); err != nil {
		return nil, err
	}
	if asked.Limit < 0 || shown < 0 || shown > 0 && (asked.Limit == 0 || shown < asked.Limit) {
		return nil, badProof("%d candidates for %d rows", shown, asked.Limit)
	}
	if shown > 0 {
		if c.way = asked.way(want.Path); c.way == whole {
			return nil, unprovable("the order asked for is not that of the index: an answer cut short shows no prefix")
		}
	}
	c.found.records, c.tail.records = want.Source.Records, want.Source.Records
	c.cover = coverage{c: c, ranges: c.ranges}
	c.rows, err = newRowJudge(c)
	return c, err
}

// provableRanges returns the ranges of keys that hold every record which may
// match outside the tail, and whether to be in one is to match.
func provableRanges(asked Asked, want IndexWant) ([]KeyRange, bool, error) {
	q := asked.Query
	if q == nil || len(q.Select) > 0 {
		return nil, false, unprovable("a proof shows whole records: without a selection")
	}
	plan := want.Path.Plan(q.Where)
	if !plan.Narrows() && asked.orderedBy(want.Path) == whole {
		if q.Where == nil {
			return nil, false, unprovable("without a condition every record is in the answer: prove records 0:%d", want.Source.Records)
		}
		return nil, false, unprovable("no key of %s is ruled out by the condition: a substring, a pattern, or another field is asked for", want.Path)
	}
	if keySet(plan.Ranges).coversStrings() && q.Where.matchesText() && asked.orderedBy(want.Path) == whole {
		return nil, false, unprovable("a substring or a pattern rules out no string among the keys of %s: all would have to be shown", want.Path)
	}
	if !asked.Count {
		return plan.Ranges, plan.Exact, nil
	}
	switch {
	case q.Where == nil:
		return nil, false, unprovable("how many records there are stands in the manifest")
	case asked.Limit != 0 || len(q.Order) > 0:
		return nil, false, unprovable("a count goes with no limit and no order")
	case !want.Path.Scalar():
		return nil, false, unprovable("%s may give a record several keys: what the index counts are not records", want.Path)
	case len(plan.Ranges) != 1:
		return nil, false, unprovable("a count alone is that of one range of keys, and the condition has %d; without --count it can be proven", len(plan.Ranges))
	case !plan.Exact:
		return nil, false, unprovable("a count alone needs a condition on %s and on nothing else; without --count it can be proven", want.Path)
	}
	return plan.Ranges, true, nil
}

// coversStrings reports whether every string is in the set.
func (s keySet) coversStrings() bool {
	return keySet{{From: []byte{KeyString}, To: []byte{KeyString + 1}}}.within(s)
}

// matchesText reports whether the condition asks for a substring or a pattern.
func (w *Where) matchesText() bool {
	found := false
	if w != nil {
		w.expr.atoms(func(a *expr) { found = found || a.op == opContains || a.op == opMatch || a.op == opSearch })
	}
	return found
}

// orderedBy is the direction in which the path's index has the order asked for;
// whole where it has another one.
func (a Asked) orderedBy(p *KeyPath) direction {
	if !p.Orders(a.Query.Order) {
		return whole
	}
	if a.Query.Order[0].desc {
		return descending
	}
	return ascending
}

// way is how the first rows of an answer are found.
func (a Asked) way(p *KeyPath) direction {
	if len(a.Query.Order) == 0 {
		return document
	}
	return a.orderedBy(p)
}

// Header takes leaf 0 of the index.
func (c *Completeness) Header(leaf []byte) error {
	if err := c.enter(needHeader, needPages); err != nil {
		return err
	}
	h, err := parseIndexHead(leaf, c.want.Size)
	if err != nil {
		return err
	}
	c.head = h
	w := c.want
	switch undetermined := h.entries - h.tail; {
	case h.root != w.Source.Root || h.size != w.Source.Size:
		return badProof("the index is of another artifact")
	case h.spec != w.Spec:
		return badProof("the index is of another path, or of other rules")
	case h.records != w.Source.Records:
		return badProof("the index is of %d records, the artifact has %d", h.records, w.Source.Records)
	case h.entries != w.Entries || h.distinct != w.Distinct || undetermined != w.Undetermined:
		return badProof("the index has %d entries, %d keys and %d undetermined, its statement says %d, %d and %d",
			h.entries, h.distinct, undetermined, w.Entries, w.Distinct, w.Undetermined)
	case w.Path.Scalar() && h.entries != h.records:
		return badProof("%d entries for %d records, of a path that gives each one", h.entries, h.records)
	}
	return nil
}

// Undecided returns how many entries of the index are not determined: those of
// its tail.
func (c *Completeness) Undecided() int64 { return c.head.entries - c.head.tail }
