package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// noConclusion begins every conclusion that says that nothing follows.
const noConclusion = "no_conclusion: "

// Conclude sets Conclusion to the strongest sentence that the other fields
// justify. It names the source, its snapshot and when it was observed, and ends
// with what it says nothing about. One that begins with "no_conclusion" says
// that nothing follows about what was asked: an empty result without a complete
// scan, or one that undecidable records could change.
func (a *Answer) Conclude() {
	if a.Query == nil {
		a.Conclusion = a.concludeRange()
		return
	}
	matched, all := a.matched(), a.Matched != nil
	searched := a.searched()
	switch {
	case all && a.Undecidable > 0 && matched == 0 && a.redaction() != nil:
		a.Conclusion = a.concludeRedacted()
	case !all && matched == 0:
		a.Conclusion = noConclusion + "no record matched so far" + a.within() + ", but " + a.stopped() + ". " + a.goOn()
	case !all:
		a.Conclusion = fmt.Sprintf("At least %s matched%s: %s. %s", count(matched, "record"), a.within(), a.stopped(), a.goOn())
	case matched == 0 && a.Undecidable > 0:
		a.Conclusion = fmt.Sprintf("%sno decidable record matched%s in %s, but %d undecidable; whether those match is not known.",
			noConclusion, a.within(), searched, a.Undecidable)
	case matched == 0:
		a.Conclusion = fmt.Sprintf("No record matched%s after %s; 0 undecidable.", a.within(), searched)
	case a.Undecidable > 0:
		a.Conclusion = fmt.Sprintf("At least %s matched%s in %s; %d undecidable%s, so the number is not exact.",
			count(matched, "record"), a.within(), searched, a.Undecidable, a.becauseRedacted())
	default:
		a.Conclusion = fmt.Sprintf("Exactly %s matched%s in %s; 0 undecidable.", count(matched, "record"), a.within(), searched)
	}
	if all && a.Stop != StopComplete {
		a.Conclusion += fmt.Sprintf(" This page has %d of them, and there are more; the cursor goes on there.", a.Returned)
	}
	a.Conclusion += a.beyond()
}

// searched says how all records were accounted for.
func (a *Answer) searched() string {
	if a.Basis != BasisIndex {
		return "a completed scan of " + count(a.Examined.Records, "record")
	}
	what := "an index"
	if len(a.Indexes) > 0 {
		what = "the index of " + valueText(a.Indexes[0])
		if len(a.Indexes) > 1 {
			what = "the indexes of " + valueText(strings.Join(a.Indexes, ", "))
		}
	}
	return "a completed look-up of all " + count(a.through, "record") + " in " + what
}

// matched is what was counted, exact or so far.
func (a *Answer) matched() int64 {
	switch {
	case a.Matched != nil:
		return *a.Matched
	case a.MatchedSoFar != nil:
		return *a.MatchedSoFar
	}
	return 0
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// stopped says where and why a scan ended early.
func (a *Answer) stopped() string {
	why := map[string]string{
		StopPageLimit: "this is only the first part of the result: the page is full",
		StopByteLimit: "this is only the first part of the result: the page has its bytes",
		StopBudget:    "the scan used up its budget",
		StopDeadline:  "the scan ran into its deadline",
		StopCancelled: "the scan was cancelled",
		StopError:     "the scan failed",
	}[a.Stop]
	if why == "" {
		why = "the scan did not complete"
	}
	undecided := ""
	if a.Undecidable > 0 {
		undecided = fmt.Sprintf(" (%d undecidable)", a.Undecidable)
	}
	return fmt.Sprintf("%s after %d of %s%s", why, a.through, count(a.RecordsTotal, "record"), undecided)
}

// goOn says what the rest may hold.
func (a *Answer) goOn() string {
	left := a.RecordsTotal - a.through
	if a.More == MoreYes {
		return fmt.Sprintf("More match among the other %d; the cursor goes on there.", left)
	}
	return fmt.Sprintf("Whether any of the other %d match is not known.", left)
}

// within names what was captured: the coverage, and which state of which source.
func (a *Answer) within() string {
	if text := coverageText(a.Completeness.Coverage); text != "" {
		return " in the captured coverage (" + text + ")" + a.source()
	}
	return " in the captured records (their coverage is not declared)" + a.source()
}

// source names the source, its snapshot and when it was observed.
func (a *Answer) source() string {
	v := a.SourceVersion
	if v.SourceID == nil && v.SnapshotID == nil && v.ObservedAt == nil {
		return " of a source that is not stated"
	}
	text := func(what string, s *string, none string) string {
		if s == nil {
			return none
		}
		return what + " " + valueText(*s)
	}
	return " of " + text("source", v.SourceID, "a source not stated") + " (" + text("snapshot", v.SnapshotID, "snapshot not stated") +
		", " + text("observed at", v.ObservedAt, "time of observation not stated") + ")"
}

// beyond says what the capture lacks, and what nothing follows about.
func (a *Answer) beyond() string {
	c := a.Completeness
	lacks, about := "", "anything outside of it"
	switch {
	case len(c.Omissions) > 0:
		var list []string
		for _, o := range c.Omissions {
			list = append(list, fmt.Sprintf("%s (%s)", whatText(o.What), orElse(o.Reason, "no reason given")))
		}
		lacks, about = " Not captured: "+join(list)+".", "that"
	case c.Status == "partial":
		lacks, about = " The capture is partial.", "what it lacks"
	case c.Status != "complete":
		lacks, about = " Whether the capture is complete is not known.", "what it may lack"
	case len(c.Coverage) > 0:
		about = "anything outside that coverage"
	}
	return lacks + " Nothing follows about " + about + ", or about the source at any other time."
}

// redaction is the first redaction of a field that the question needs, of one
// above it or within it; nil if there is none.
func (a *Answer) redaction() *Redaction {
	for i, r := range a.Completeness.Redactions {
		if a.Query.reads(r.Path) {
			return &a.Completeness.Redactions[i]
		}
	}
	return nil
}

// reads reports whether a query's condition or order may read the value at
// pointer, or one within or around it.
func (q *Query) reads(pointer string) bool {
	path, err := parsePointer(pointer)
	if err != nil {
		return false
	}
	for _, o := range q.Order {
		if o.query.touches(path, path) {
			return true
		}
	}
	return q.Where != nil && slices.Contains(q.Where.WithRedactions([]string{pointer}).hidden, true)
}

func redacted(r *Redaction) string {
	return fmt.Sprintf("the field %s is redacted in the artifact (%s)", orElse(r.Path, "that is the whole record"), orElse(r.Reason, "no reason given"))
}

func (a *Answer) concludeRedacted() string {
	whether := fmt.Sprintf("none of %s examined can be decided", count(a.through, "record"))
	if a.Undecidable < a.through {
		whether = fmt.Sprintf("not all of %s examined can be decided", count(a.through, "record"))
	}
	return fmt.Sprintf("%s%s, so %s%s; %d undecidable.", noConclusion, redacted(a.redaction()), whether, a.within(), a.Undecidable)
}

// becauseRedacted says so where a redaction makes records undecidable.
func (a *Answer) becauseRedacted() string {
	if r := a.redaction(); r != nil {
		return ", since " + redacted(r)
	}
	return ""
}

// concludeRange is the conclusion of a read by position.
func (a *Answer) concludeRange() string {
	if a.Stop != StopComplete {
		return noConclusion + a.stopped() + "." + a.beyond()
	}
	what := count(a.Examined.Bytes, "byte")
	if len(a.Examined.Ranges) > 0 {
		r := a.Examined.Ranges[0]
		what = fmt.Sprintf("%s (%d to %d of %d)", count(a.Returned, "record"), r[0], r[1], a.RecordsTotal)
	}
	from := " from" + strings.TrimPrefix(a.source(), " of")
	if text := coverageText(a.Completeness.Coverage); text != "" {
		from = " in the coverage (" + text + ")" + a.source()
	}
	return what + " as captured" + from + ". A read by position says nothing about the rest." + a.beyond()
}

// maxNamed is how many parts of a coverage or list a sentence names.
const maxNamed = 8

// coverageText writes a coverage as "region eu-west, window 04:00 to 04:10".
func coverageText(m map[string]any) string {
	var keys, list []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		list = append(list, k+" "+valueText(m[k]))
	}
	return join(list)
}

// whatText names what an omission left out.
func whatText(what any) string {
	if m, ok := what.(map[string]any); ok {
		return orElse(coverageText(m), "something")
	}
	return valueText(what)
}

func join(list []string) string {
	if n := len(list) - maxNamed; n > 0 {
		list = append(list[:maxNamed:maxNamed], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(list, ", ")
}

// valueText writes a value of a coverage for a sentence: quoted where it holds
// anything but plain words, since it is data and not ours to speak.
func valueText(v any) string {
	s, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		return short(string(b))
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" -_.:/+*", r)
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return strconv.Quote(short(s))
	}
	return short(s)
}

// short cuts a text for a sentence.
func short(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return short(s)
}
