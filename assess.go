package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/selector"
)

// Need says what a task asks of evidence.
type Need struct {
	// Require are facts without which the evidence is not to be used; Optional are
	// those whose lack is to be said.
	Require, Optional []Fact
	// MaxAge, where not 0, is how old the observation may be: the age is the time
	// since observed_at, never since the artifact was made.
	MaxAge time.Duration
	// AsOf, where not zero, asks for the state at that time: an observation made no
	// later, and the last one of those that are known. Nothing newer may stand in
	// for it. It excludes MaxAge.
	AsOf time.Time
	// Actions are what the caller will do with it; none: read.
	Actions []Action
	// Ref, where not nil, is a reference that somebody presents: it must be what was
	// signed.
	Ref *manifest.ArtifactRef
	// Deep reads and verifies every byte. Without it the bytes must be there, and each
	// is verified when it is read.
	Deep bool
	// Answer, where not nil, is the read or query that the evidence is taken from, and
	// Admission what of it entered the prompt: the facts scan and admission.
	Answer    *selector.Answer
	Admission *manifest.Admission
	// Budget bounds what is tried again after a failure that may pass; nil: nothing is.
	Budget *Budget
}

// The states of a [Verdict].
const (
	Holds   = "holds"
	Fails   = "fails"
	Unknown = "unknown" // it could not be found out
)

// Verdict is the outcome of one question about evidence.
type Verdict struct {
	State string `json:"state"`
	// Code says why it does not hold; "" where it does.
	Code   Code   `json:"code"`
	Reason string `json:"reason"`
	// Retryable: the same question may have another answer later.
	Retryable bool   `json:"retryable"`
	Action    Remedy `json:"action"` // "" where it holds
}

// The decisions of an [Assessment].
const (
	Admit    = "admit"   // all that was asked for holds
	Qualify  = "qualify" // it may be used, with what is unmet said
	Deferred = "defer"   // it must not be used now
	Refuse   = "refuse"  // it must not be used
)

// Point is a fact that does not hold.
type Point struct {
	What     string `json:"what"`  // as in "region=us-east"
	Found    string `json:"found"` // what there is instead
	Required bool   `json:"required"`
	Code     Code   `json:"code"`
	Action   Remedy `json:"action"`
}

// RefetchAdvice says whether a newer observation may take the place of what is
// missing.
type RefetchAdvice struct {
	Allowed bool     `json:"allowed"`
	Reason  string   `json:"reason"`
	Missing []string `json:"missing"`
}

// Assessment says whether an artifact serves as evidence. Its three verdicts are
// independent, and none makes up for another: the decision is as good as the worst.
type Assessment struct {
	ArtifactID string `json:"artifact_id"`
	Decision   string `json:"decision"`
	// Identity: it is the artifact that was signed, and its bytes are those.
	Identity Verdict `json:"identity"`
	// Applicability: it says what the task needs, and is available.
	Applicability Verdict `json:"applicability"`
	// Authority: the caller may have it now.
	Authority Verdict `json:"authority"`
	// Unmet are the facts that do not hold, the required ones first.
	Unmet []Point `json:"unmet"`
	// AgeSeconds is the time since observed_at; null: that is not known.
	AgeSeconds *int64 `json:"age_seconds"`
	AssessedAt string `json:"assessed_at"`
	// Refetch is set where the decision is neither admit nor qualify, and the caller
	// may know of the artifact.
	Refetch      *RefetchAdvice       `json:"refetch"`
	SupersededBy []selector.Successor `json:"superseded_by,omitempty"`
	// Retries is how often something was tried again.
	Retries int `json:"retries"`
}

// Assess says whether an artifact serves a need: what it is, whether it applies, and
// whether the caller may have it. It gives out no byte, remembers nothing, and is no
// leave: each read asks again. What it tells of the artifact is told to whoever may
// have its facts (the action stat); to others an id that is not theirs is assessed
// like one that never was.
//
// The error is for a need that makes no sense. What fails of the artifact is in the
// assessment.
func (s *Store) Assess(ctx context.Context, who Caller, id string, need Need) (*Assessment, error) {
	if err := need.check(); err != nil {
		return nil, err
	}
	if err := CheckID(id); err != nil {
		return nil, err
	}
	as := &assessor{s: s, who: who, id: id, need: need, out: &Assessment{
		ArtifactID: id, Unmet: []Point{},
		Identity: notAsked(), Applicability: notAsked(), Authority: notAsked(),
	}}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, wireError(id, err)
	}
	as.now, as.out.AssessedAt = now, manifest.FormatTime(now)
	as.run(ctx)
	as.decide()
	return as.out, nil
}

func (n *Need) check() error {
	switch {
	case n.MaxAge < 0:
		return fail(CodeSelectorInvalid, FixCall, "max_age", "an age of %v is none", n.MaxAge)
	case n.MaxAge > 0 && !n.AsOf.IsZero():
		return fail(CodeSelectorInvalid, FixCall, "as_of", "the age of an observation is a matter of now, not of another time")
	}
	seen := map[string]bool{}
	for _, f := range append(append([]Fact{}, n.Require...), n.Optional...) {
		if err := f.check(); err != nil {
			return err
		}
		if seen[f.String()] {
			return fail(CodeSelectorInvalid, FixCall, f.Key, "%s is asked for twice", f)
		}
		seen[f.String()] = true
	}
	return nil
}

func notAsked() Verdict { return Verdict{State: Unknown, Reason: "not looked at"} }

// assessor makes one assessment.
type assessor struct {
	s    *Store
	who  Caller
	id   string
	need Need
	now  time.Time
	out  *Assessment

	a      *artifact
	hidden bool // the caller may not know of the artifact
	spent  bool // the budget was used up
}

func (as *assessor) run(ctx context.Context) {
	as.authority(ctx)
	if as.hidden {
		return
	}
	unavailable := as.s.available(ctx, as.a.row)
	as.identity(ctx, unavailable)
	as.applicability(ctx, unavailable)
}

// verdictOf is what an error says.
func verdictOf(err error) Verdict {
	if err == nil {
		return Verdict{State: Holds}
	}
	e, ok := errors.AsType[*Error](wireError("", err))
	if !ok {
		e = &Error{Code: CodeInternal, Message: err.Error(), Action: Stop}
	}
	v := Verdict{State: Fails, Code: e.Code, Reason: e.Message, Retryable: e.Retryable, Action: e.Action}
	if e.Code == CodeInternal { // a disk that fails to read, say: it says nothing about the artifact
		v.Retryable, v.Action = true, Wait
	}
	if v.Retryable {
		v.State = Unknown
	}
	return v
}

// try does something, and again while its failure may pass and the budget lasts.
func (as *assessor) try(ctx context.Context, bytes int64, do func() error) Verdict {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		v := verdictOf(do())
		if !v.Retryable || as.need.Budget == nil || ctx.Err() != nil {
			return v
		}
		err := as.need.Budget.Take(bytes)
		if err == nil {
			err = sleep(ctx, min(wait, as.need.Budget.timeLeft()))
		}
		if err != nil {
			as.spent = as.spent || CodeOf(err) == CodeBudgetExhausted
			reason := v.Reason
			v = verdictOf(err)
			v.State, v.Retryable, v.Action = Unknown, false, Defer
			v.Reason += ", and " + reason
			return v
		}
		as.out.Retries++
	}
}

// authority asks whether the caller may know of the artifact, and may do with it what
// the need says.
func (as *assessor) authority(ctx context.Context) {
	actions := as.need.Actions
	if len(actions) == 0 {
		actions = []Action{gate.Read}
	}
	ask := func(action Action) error {
		a, err := as.s.row(ctx, as.who, as.id, action)
		if err != nil {
			return err
		}
		permit, err := a.permit(ctx)
		if err == nil && action == gate.Stat {
			as.a = a
			err = a.disclosed(ctx, permit, Shown{Facts: true})
		}
		return err
	}
	v := as.try(ctx, 0, func() error { return ask(gate.Stat) })
	if v.State != Holds {
		as.hidden, as.out.Authority = true, v
		as.out.Identity.Code, as.out.Applicability.Code = v.Code, v.Code
		return
	}
	for _, action := range actions {
		v = as.try(ctx, 0, func() error { return ask(action) })
		if v.State != Holds {
			v.Reason = fmt.Sprintf("%s: %s", action, v.Reason)
			break
		}
	}
	as.out.Authority = v
}

// identity looks whether the artifact is what was signed.
func (as *assessor) identity(ctx context.Context, unavailable error) {
	if CodeOf(unavailable) == CodeArtifactDeleted && unavailable != nil {
		as.out.Identity = Verdict{State: Unknown, Code: CodeArtifactDeleted, Reason: "its bytes are being reclaimed", Action: Stop}
		return
	}
	a := as.a
	as.out.Identity = as.try(ctx, a.row.Size, func() (err error) {
		if a.signed, a.m, err = as.s.load(ctx, a.row); err != nil {
			return err
		}
		if a.m.ArtifactID != as.id {
			return fmt.Errorf("%w: the catalogue leads to %s", errManifest, a.m.ArtifactID)
		}
		if as.need.Ref != nil {
			if err := manifest.CheckRef(*as.need.Ref, a.m.Predicate.ArtifactRef); err != nil {
				return err
			}
		}
		return as.bytes(ctx)
	})
	switch v := &as.out.Identity; {
	case v.State == Holds && as.need.Deep:
		v.Reason = "the signature, the manifest and every byte"
	case v.State == Holds:
		v.Reason = "the signature and the manifest; the bytes are there, and each is verified when it is read"
	case unavailable != nil && v.State == Fails && v.Code == CodeIntegrityFailed:
		// What has expired may have been swept.
		*v = Verdict{State: Unknown, Code: CodeArtifactExpired, Reason: v.Reason, Action: Refetch}
	}
}

// bytes opens the artifact's bytes, and reads them where the need is deep.
func (as *assessor) bytes(ctx context.Context) error {
	data, err := as.a.data(ctx)
	if err != nil {
		return err
	}
	defer data.Close()
	if !as.need.Deep {
		return nil
	}
	buf := make([]byte, copyBuffer)
	for off := int64(0); off < as.a.m.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := data.ReadAt(buf, off)
		if off += int64(n); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// decide is as good as the worst verdict.
func (as *assessor) decide() {
	o := as.out
	if as.spent {
		as.unmet(Point{What: "budget", Found: "used up", Required: true, Code: CodeBudgetExhausted, Action: Defer})
	}
	required := false
	for _, p := range o.Unmet {
		required = required || p.Required
	}
	switch {
	case o.Identity.State == Fails, o.Authority.State == Fails, o.Identity.Code == CodeArtifactDeleted:
		o.Decision = Refuse
	case o.Identity.State != Holds, o.Authority.State != Holds, o.Applicability.State != Holds, required:
		o.Decision = Deferred
	case len(o.Unmet) > 0:
		o.Decision = Qualify
	default:
		o.Decision = Admit
	}
	if !as.hidden && (o.Decision == Deferred || o.Decision == Refuse) {
		o.Refetch = as.refetch()
	}
}

func (as *assessor) unmet(p Point) {
	if !p.Required {
		as.out.Unmet = append(as.out.Unmet, p)
		return
	}
	i := 0
	for i < len(as.out.Unmet) && as.out.Unmet[i].Required {
		i++
	}
	as.out.Unmet = append(as.out.Unmet[:i], append([]Point{p}, as.out.Unmet[i:]...)...)
}

// refetch says whether what is missing may be acquired again. The new observation is
// another artifact, which supersedes; it never becomes this one.
func (as *assessor) refetch() *RefetchAdvice {
	r := &RefetchAdvice{Missing: []string{}}
	for _, p := range as.out.Unmet {
		if p.Required {
			r.Missing = append(r.Missing, p.What)
		}
	}
	switch {
	case as.out.Authority.State != Holds:
		r.Reason = "the caller may not have it now"
	case !as.need.AsOf.IsZero():
		r.Reason = "the task is about an earlier state, for which nothing newer stands in"
	case as.spent || as.need.Budget.used():
		r.Reason = "the recovery budget is used up"
	default:
		r.Allowed, r.Reason = true, "the task is about the current state"
	}
	return r
}
