package selector

import "fmt"

// ConcludeProven returns the strongest sentence that a proof justifies, and what
// the capture says: of a's fields it uses those that a manifest has. condition is
// the query's, as it is fit to be shown; "" for every record.
func (a *Answer) ConcludeProven(asked Asked, p Proven, condition string) string {
	what := "in the artifact"
	if condition != "" {
		what = "with " + condition
	}
	of := fmt.Sprintf(" among %s", count(a.RecordsTotal, "record"))
	undecided := fmt.Sprintf("; %d undecidable", p.Undecidable)
	if asked.Count && p.Undecidable > 0 { // nobody looked at these records: some may well be decidable
		undecided = fmt.Sprintf("; %d undetermined in the index, which may match too", p.Undecidable)
		if p.Matched == 0 {
			return fmt.Sprintf("%sno record that the index determines %s%s%s%s.", noConclusion, what, a.within(), of, undecided) + a.beyond()
		}
	}
	switch {
	case p.Cut:
		order := "in document order"
		if len(asked.Query.Order) > 0 {
			order = "in the order asked for"
		}
		return fmt.Sprintf("These are the first %s %s %s%s: none before or between them was left out; whether more follow is not shown.",
			count(p.Returned, "record"), what, order, a.within()) + a.beyond()
	case p.Matched == 0 && p.Undecidable > 0:
		return fmt.Sprintf("%sno decidable record %s%s%s, but %d undecidable; whether those match is not known.", noConclusion, what, a.within(), of, p.Undecidable) + a.beyond()
	case p.Matched == 0:
		return fmt.Sprintf("No record %s%s%s%s.", what, a.within(), of, undecided) + a.beyond()
	case p.Undecidable > 0:
		return fmt.Sprintf("At least %s %s%s%s%s, so the number is not exact.", count(p.Matched, "record"), what, a.within(), of, undecided) + a.beyond()
	}
	return fmt.Sprintf("Exactly %s %s%s%s%s.", count(p.Matched, "record"), what, a.within(), of, undecided) + a.beyond()
}
