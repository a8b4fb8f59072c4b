package leafproof

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"leafproof/manifest"
	"leafproof/selector"
)

// A Fact is what a need asks for: that a key has a value. The keys:
//
//	capture     complete, partial or unknown: how complete the capture is
//	omissions, redactions   none: nothing was left out, or removed
//	source, snapshot, schema, tool, outcome, media_type, run   what the manifest says
//	current     true: nothing takes its place
//	scan        complete: the answer that the evidence is from examined all
//	admission   complete: all of that answer entered the prompt
//
// Any other key is one of the coverage, as in region; coverage.K is the key K of the
// coverage also where K is a word above. A coverage that is a list has each of its
// elements. What an omission names is not covered.
type Fact struct{ Key, Value string }

func (f Fact) String() string { return f.Key + "=" + f.Value }

// ParseFact reads K=V.
func ParseFact(s string) (Fact, error) {
	k, v, ok := strings.Cut(s, "=")
	f := Fact{k, v}
	if !ok {
		return f, fail(CodeSelectorInvalid, FixCall, s, "%q is not K=V", s)
	}
	return f, f.check()
}

// coveragePrefix makes a key one of the coverage.
const coveragePrefix = "coverage."

// factWords are the keys that are not the coverage's, and the values that they may
// be asked to have; nil: any.
var factWords = map[string][]string{
	"capture":   {manifest.StatusComplete, manifest.StatusPartial, manifest.StatusUnknown},
	"omissions": {"none"}, "redactions": {"none"}, "current": {"true"}, "scan": {"complete"}, "admission": {"complete"},
	"outcome": {"ok", "partial", "error"},
	"source":  nil, "snapshot": nil, "schema": nil, "tool": nil, "media_type": nil, "run": nil,
}

func (f Fact) check() error {
	if f.Key == "" || f.Key == coveragePrefix || f.Value == "" {
		return fail(CodeSelectorInvalid, FixCall, f.Key, "%q: a fact is K=V, neither empty", f.String())
	}
	if words := factWords[f.Key]; words != nil && !slices.Contains(words, f.Value) {
		return fail(CodeSelectorInvalid, FixCall, f.Key, "%q is not %s=%s", f.String(), f.Key, strings.Join(words, "|"))
	}
	return nil
}

// applicability holds the artifact against the need.
func (as *assessor) applicability(ctx context.Context, unavailable error) {
	insufficient := func(what, found string, required bool, action Remedy) {
		as.unmet(Point{What: what, Found: found, Required: required, Code: CodeEvidence, Action: action})
	}
	again := Refetch
	if !as.need.AsOf.IsZero() {
		again = Stop // nothing newer may stand in
	}
	if unavailable != nil {
		e := verdictOf(unavailable)
		as.unmet(Point{What: "availability", Found: e.Reason, Required: true, Code: e.Code, Action: e.Action})
	}
	if as.a.m == nil {
		as.out.Applicability = Verdict{State: Unknown, Code: as.out.Identity.Code, Reason: "its manifest cannot be had", Action: as.out.Identity.Action}
		if unavailable != nil {
			as.out.Applicability = verdictOf(unavailable)
		}
		return
	}
	var err error
	if as.a.later, err = as.a.successors(ctx); err != nil {
		as.out.Applicability = verdictOf(err)
		return
	}
	as.out.SupersededBy = as.a.later
	for i, list := range [][]Fact{as.need.Require, as.need.Optional} {
		for _, f := range list {
			if found, ok := as.has(f); !ok {
				insufficient(f.String(), found, i == 0, again)
			}
		}
	}
	as.age(insufficient, again)
	if err := as.asOf(ctx, insufficient); err != nil {
		as.out.Applicability = verdictOf(err)
		return
	}
	as.limits(insufficient, again)
	as.out.Applicability = Verdict{State: Holds, Reason: "all that is required is there"}
	for _, p := range as.out.Unmet {
		if p.Required {
			as.out.Applicability = Verdict{State: Fails, Code: p.Code, Reason: p.What + ": " + p.Found, Action: p.Action}
			break
		}
	}
}

type unmetFunc func(what, found string, required bool, action Remedy)

// limits qualifies evidence by what nobody asked about.
func (as *assessor) limits(unmet unmetFunc, again Remedy) {
	asked := func(key string) bool {
		is := func(f Fact) bool { return f.Key == key }
		return slices.ContainsFunc(as.need.Require, is) || slices.ContainsFunc(as.need.Optional, is)
	}
	c := as.a.m.Predicate.ArtifactRef.Completeness
	if c.Status != manifest.StatusComplete && !asked("capture") {
		unmet("capture=complete", captureText(c), false, again)
	}
	if len(as.a.later) > 0 && !asked("current") && as.need.AsOf.IsZero() {
		unmet("current=true", "superseded by "+as.a.later[0].ArtifactID, false, Refetch)
	}
}

// captureText says how complete a capture is, and what it lacks.
func captureText(c manifest.Completeness) string {
	text := c.Status
	for i, o := range c.Omissions {
		if i == 8 {
			return text + fmt.Sprintf(", and %d more", len(c.Omissions)-i)
		}
		text += ", without " + omitted(o.What) + " (" + o.Reason + ")"
	}
	return text
}

func omitted(what any) string {
	if s, ok := what.(string); ok {
		return s
	}
	return plain(what)
}

// age compares how long ago the source was observed with what the need allows.
func (as *assessor) age(unmet unmetFunc, again Remedy) {
	at, known := as.observed(as.a.m)
	if known {
		as.out.AgeSeconds = new(int64(as.now.Sub(at) / time.Second))
	}
	if as.need.MaxAge == 0 {
		return
	}
	what := "age<=" + as.need.MaxAge.String()
	switch age := as.now.Sub(at); {
	case !known:
		unmet(what, "when the source was observed is not stated", true, again)
	case age < 0:
		unmet(what, "it says that it was observed at "+manifest.FormatTime(at)+", which is to come", true, again)
	case age > as.need.MaxAge:
		unmet(what, fmt.Sprintf("observed at %s, %v ago", manifest.FormatTime(at), age.Truncate(time.Second)), true, again)
	}
}

func (as *assessor) observed(m *manifest.Manifest) (time.Time, bool) {
	s := m.Predicate.ArtifactRef.SourceVersion.ObservedAt
	if s == nil {
		return time.Time{}, false
	}
	t, err := manifest.ParseTime(*s)
	return t, err == nil
}

// asOf looks whether it is the last observation before a time, of those that are
// known to take its place.
func (as *assessor) asOf(ctx context.Context, unmet unmetFunc) error {
	if as.need.AsOf.IsZero() {
		return nil
	}
	what := "as_of=" + manifest.FormatTime(as.need.AsOf)
	at, known := as.observed(as.a.m)
	switch {
	case !known:
		unmet(what, "when the source was observed is not stated", true, Stop)
		return nil
	case at.After(as.need.AsOf):
		unmet(what, "observed at "+manifest.FormatTime(at), true, Stop)
		return nil
	}
	for _, l := range as.a.later {
		row, err := as.s.catalogue.Artifact(ctx, l.ArtifactID)
		if err != nil {
			return err
		}
		_, m, err := as.s.load(ctx, row)
		if err != nil {
			continue // what does not verify says nothing
		}
		if then, ok := as.observed(m); ok && then.After(at) && !then.After(as.need.AsOf) {
			unmet(what, fmt.Sprintf("%s was observed later, at %s", l.ArtifactID, manifest.FormatTime(then)), true, Stop)
			return nil
		}
	}
	return nil
}

// has says whether a fact holds, and what there is where it does not.
func (as *assessor) has(f Fact) (found string, ok bool) {
	p := &as.a.m.Predicate
	ref := &p.ArtifactRef
	is := func(s *string) (string, bool) {
		if s == nil {
			return "not stated", false
		}
		return *s, *s == f.Value
	}
	switch f.Key {
	case "capture":
		return captureText(ref.Completeness), ref.Completeness.Status == f.Value
	case "omissions":
		return strconv.Itoa(len(ref.Completeness.Omissions)), len(ref.Completeness.Omissions) == 0
	case "redactions":
		return strconv.Itoa(len(ref.Completeness.Redactions)), len(ref.Completeness.Redactions) == 0
	case "source":
		return is(ref.SourceVersion.SourceID)
	case "snapshot":
		return is(ref.SourceVersion.SnapshotID)
	case "schema":
		return is(ref.SchemaVersion)
	case "run":
		return is(ref.Scope.RunID)
	case "media_type":
		return is(&p.Bytes.MediaType)
	case "tool", "outcome":
		q := p.Lineage.Producer
		if q == nil {
			return "not stated", false
		}
		return is(map[string]*string{"tool": &q.Tool, "outcome": &q.Outcome}[f.Key])
	case "current":
		if len(as.a.later) > 0 {
			return "superseded by " + as.a.later[0].ArtifactID, false
		}
		return "", true
	case "scan":
		return as.scanned()
	case "admission":
		return as.admitted()
	}
	return covered(ref.Completeness, strings.TrimPrefix(f.Key, coveragePrefix), f.Value)
}

func (as *assessor) scanned() (string, bool) {
	a := as.need.Answer
	switch {
	case a == nil:
		return "no answer is given", false
	case a.ArtifactID != as.id || a.ManifestID != as.a.m.ManifestID:
		return "the answer is from another artifact", false
	case a.Undecidable > 0:
		return fmt.Sprintf("%s, with %d undecidable", a.Stop, a.Undecidable), false
	}
	return a.Stop, a.Stop == selector.StopComplete && a.More != selector.MoreYes
}

func (as *assessor) admitted() (string, bool) {
	a := as.need.Admission
	switch {
	case a == nil:
		return "what entered the prompt is not stated", false
	case a.ArtifactID != as.id || a.ManifestID != as.a.m.ManifestID:
		return "the admission is of another artifact's answer", false
	case len(a.Omitted) > 0:
		return fmt.Sprintf("%d parts of the answer were omitted, the first for %s", len(a.Omitted), a.Omitted[0].Reason), false
	}
	return "", true
}

// covered says whether the capture covers a value of a key.
func covered(c manifest.Completeness, key, value string) (found string, ok bool) {
	for _, o := range c.Omissions {
		omits := false
		switch what := o.What.(type) {
		case string:
			omits = what == value || what == key || what == key+"="+value
		case map[string]any:
			v, there := what[key]
			omits = there && includes(v, value)
		}
		if omits {
			return "omitted: " + o.Reason, false
		}
	}
	v, there := c.Coverage[key]
	if !there {
		return "the coverage does not say", false
	}
	return plain(v), includes(v, value)
}

// includes reports whether a value of a coverage is, or lists, what is asked for.
func includes(v any, want string) bool {
	switch v := v.(type) {
	case string:
		return v == want
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return includes(e, want) })
	}
	return plain(v) == want
}

// plain is a string as it is, and another value as canonical JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := manifest.Canonical(v)
	if err != nil {
		return "?"
	}
	return string(b)
}
