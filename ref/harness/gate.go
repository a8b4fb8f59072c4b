package harness

import (
	"context"
	"regexp"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

// Evidence is what a tool demands of a reference that it is called with, before it
// runs.
type Evidence struct {
	// Param is the parameter whose reference it is; "" is every reference of the call.
	Param string
	// Require are facts without which the tool does not run; Optional are those whose
	// lack it is told: coverage, capture, schema, scan, admission and the others of
	// [leafproof.Fact].
	Require, Optional []leafproof.Fact
	// MaxAge and AsOf bound when the source was observed: see [leafproof.Need].
	MaxAge time.Duration
	AsOf   time.Time
	// Deep reads and verifies every byte before the tool runs.
	Deep bool
}

// Unmet is a point of a tool's demands that does not hold. It is fit for a model.
type Unmet struct {
	Param    string           `json:"param"`
	What     string           `json:"what"`
	Found    string           `json:"found"`
	Required bool             `json:"required"`
	Code     leafproof.Code   `json:"code"`
	Action   leafproof.Remedy `json:"action"`
}

// Decision is what became of a tool's demands. It is as good as the worst of its
// assessments.
type Decision struct {
	// Decision is admit, qualify, defer or refuse; admit where nothing was demanded.
	Decision string  `json:"decision"`
	Unmet    []Unmet `json:"unmet"`
	// Missing names what is to be acquired again, and Refetch says whether the task,
	// the authority and the budget allow that.
	Refetch bool     `json:"refetch"`
	Reason  string   `json:"reason,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Assessments are behind it, for the harness's own records.
	Assessments []*leafproof.Assessment `json:"-"`
}

// ranks are the decisions from good to bad.
var ranks = map[string]int{leafproof.Admit: 0, leafproof.Qualify: 1, leafproof.Deferred: 2, leafproof.Refuse: 3}

// used is an artifact that a call relies on.
type used struct {
	param     string
	id        string // "" where the reference leads to no artifact
	answer    *selector.Answer
	admission *manifest.Admission
}

// gate holds the artifacts that a call relies on against what its tool demands. A
// parameter that a demand names and that is no reference to an artifact, as a
// preview's rows written out are none, meets none of it; nor does a demand on every
// reference hold where one of them leads to a preview.
func (r *Run) gate(ctx context.Context, demands []Evidence, uses []used) (*Decision, error) {
	out := &Decision{Decision: leafproof.Admit, Unmet: []Unmet{}}
	for _, e := range demands {
		met := false
		for _, u := range uses {
			if e.Param != "" && e.Param != u.param {
				continue
			}
			met = true
			if u.id == "" {
				out.nothing(e, u.param)
				continue
			}
			a, err := r.h.store.Assess(ctx, r.caller, u.id, e.need(r, u))
			if err != nil {
				return nil, err
			}
			out.add(u.param, a)
		}
		if !met {
			out.nothing(e, e.Param)
		}
	}
	return out, nil
}

func (e Evidence) need(r *Run, u used) leafproof.Need {
	n := leafproof.Need{
		Require: e.Require, Optional: e.Optional, MaxAge: e.MaxAge, AsOf: e.AsOf, Deep: e.Deep,
		Answer: u.answer, Admission: u.admission, Budget: r.budget,
	}
	if n.AsOf.IsZero() && n.MaxAge == 0 {
		n.AsOf = r.task.AsOf
	}
	return n
}

// add takes in an assessment.
func (d *Decision) add(param string, a *leafproof.Assessment) {
	d.Assessments = append(d.Assessments, a)
	if ranks[a.Decision] > ranks[d.Decision] {
		d.Decision = a.Decision
	}
	for _, p := range a.Unmet {
		d.Unmet = append(d.Unmet, Unmet{param, clean(p.What), clean(p.Found), p.Required, p.Code, p.Action})
	}
	for i, v := range []leafproof.Verdict{a.Identity, a.Authority} {
		what := []string{"identity", "authority"}[i]
		if v.State == leafproof.Fails || v.State == leafproof.Unknown && v.Code != "" {
			d.Unmet = append(d.Unmet, Unmet{param, what, sentence(v.Code), true, v.Code, v.Action})
		}
	}
	if f := a.Refetch; f != nil {
		d.Refetch, d.Reason = f.Allowed, f.Reason
		for _, m := range f.Missing {
			d.Missing = append(d.Missing, clean(m))
		}
	}
}

// nothing takes in that there is no artifact to hold against a demand.
func (d *Decision) nothing(e Evidence, param string) {
	required := len(e.Require) > 0 || e.MaxAge > 0 || !e.AsOf.IsZero() || e.Deep
	what := "a reference to an artifact"
	d.Unmet = append(d.Unmet, Unmet{param, what, "a value that was written out, or a preview", required, leafproof.CodeEvidence, leafproof.FixCall})
	switch {
	case required && ranks[d.Decision] < ranks[leafproof.Deferred]:
		d.Decision, d.Reason = leafproof.Deferred, "no artifact vouches for the value"
		d.Missing = append(d.Missing, what)
	case !required && d.Decision == leafproof.Admit:
		d.Decision = leafproof.Qualify
	}
}

// artifactIDs are names that a model is not given: it has references.
var artifactIDs = regexp.MustCompile(`(?:art|mf|rc)_[a-z2-7]{32}`)

// clean makes a text about an artifact fit for a model.
func clean(s string) string {
	return clip(artifactIDs.ReplaceAllString(s, "an artifact"), 300)
}
