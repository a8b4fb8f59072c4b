// Package gate stands before every disclosure: no byte, count, preview or
// proof leaves a store without a [Permit].
//
// An [Authority] decides who may see what. [Gate.Disclose] asks it and turns
// an allow into a Permit, which says what was allowed, at which policy epoch,
// and until when. A [Writer] compares the permit before every 64 KiB and after
// every second, so that a change of the policy ends a stream that is running.
//
// The gate refuses by default: the zero Permit, the zero [Decision], an error,
// a decision that does not come in time and an epoch that cannot be read are
// all refusals. It decides nothing itself, remembers no decision beyond its
// permit, and does not know what the bytes are: whoever holds a permit must
// ask for what will be shown (whole leaves, index pages, anchors), not for
// what was requested.
package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leafproof/merkle"
)

// Principal names who asks. The empty Principal is nobody and is refused
// everything.
type Principal string

// Owner is the principal of whoever runs leafproof on a store of their own.
const Owner Principal = "owner"

// Action is what a principal wants to do with an artifact.
type Action string

// The actions. A principal that may do one may not therefore do another.
const (
	Stat   Action = "stat"   // learn that it exists, and the facts of its manifest
	Read   Action = "read"   // see bytes of it
	Query  Action = "query"  // see the records that a query selects
	Count  Action = "count"  // learn how many records a query selects, nothing else
	Prove  Action = "prove"  // take away a proof, which shows whole leaves
	Derive Action = "derive" // make a new artifact from it
	Grant  Action = "grant"  // let others do something with it
	Delete Action = "delete" // end it
)

// Actions lists every action, in the order in which they are documented.
func Actions() []Action {
	return []Action{Stat, Read, Query, Count, Prove, Derive, Grant, Delete}
}

// Request is a disclosure that is about to happen.
type Request struct {
	Principal Principal
	Tenant    string // whose artifact it is
	Run       string // the run that made it; empty for none
	Artifact  string // the artifact id; empty for a listing of the tenant
	Action    Action
	Purpose   string // why, in the principal's words; may be empty
	// Ranges are the bytes of the artifact that will be shown, as they will be
	// shown: for a proof, whole leaves. None means all of them, where the action
	// shows bytes at all. One empty range is no byte: so an authority is asked
	// before anything is looked at, and its refusal is one of all.
	Ranges []merkle.Range
	// Records are the numbers of the records outside of which nothing of Ranges
	// lies. None: nobody has looked. A [Decision] for some records alone needs them.
	Records []merkle.Range
	// Placed are the numbers of records whose places in the artifact will be
	// shown, without their bytes: a proof of records carries whole pages of the
	// record map.
	Placed merkle.Range
	// Pages are the pages, from 0, of the index over Index that will be shown: keys,
	// which are values of records or stand for them, and which records have them. Who
	// asks for a proof of an answer asks for all records in Placed too: such a proof
	// says something of each.
	Index string
	Pages []merkle.Range
}

// equal reports whether two requests ask the same.
func (r Request) equal(o Request) bool {
	return r.Principal == o.Principal && r.Tenant == o.Tenant && r.Run == o.Run &&
		r.Artifact == o.Artifact && r.Action == o.Action && r.Purpose == o.Purpose &&
		slices.Equal(r.Ranges, o.Ranges) && slices.Equal(r.Records, o.Records) && r.Placed == o.Placed &&
		r.Index == o.Index && slices.Equal(r.Pages, o.Pages)
}

// shows reports whether anything of the artifact's bytes, or the place of a record,
// will be shown.
func (r Request) shows() bool {
	if r.Placed.Start < r.Placed.End || len(r.Ranges) == 0 {
		return true
	}
	return slices.ContainsFunc(r.Ranges, func(x merkle.Range) bool { return x.Start < x.End })
}

// within reports whether nothing outside some records will be shown.
func (r Request) within(records []merkle.Range) bool {
	in := func(x merkle.Range) bool {
		return x.Start >= x.End || slices.ContainsFunc(records, func(y merkle.Range) bool { return y.Start <= x.Start && x.End <= y.End })
	}
	return !r.shows() || len(r.Records) > 0 && in(r.Placed) && !slices.ContainsFunc(r.Records, func(x merkle.Range) bool { return !in(x) })
}

// Decision is an Authority's answer. The zero Decision refuses.
type Decision struct {
	Allow  bool
	Reason string // why not, in one sentence for a log; the asker does not see it
	// NotAfter ends an allow, by the clock of the store. The zero time sets no
	// end; the gate then sets one of its own.
	NotAfter time.Time
	// Known says with a refusal that the asker may hear that leave was taken from
	// him: he held one, and knows of the artifact. Without, he hears that there is
	// no such artifact.
	Known bool
	// Records, where there are any, bound an allow: only these records may be shown.
	Records []merkle.Range
	// Grant names what allowed it, for the audit log; it may be empty.
	Grant string
}

// Authority decides about disclosures.
//
// Decide is safe for concurrent use and returns promptly when ctx ends: a
// decision that comes too late is a refusal. It is asked again about a long
// stream, and each time its answer holds for the request as a whole. An error
// means that there is no decision, never that the answer is no.
type Authority interface {
	Decide(ctx context.Context, r Request) (Decision, error)
}

// Prompt is an [Authority] that answers some requests from memory.
type Prompt interface {
	Authority
	// Remembered returns the decision for a request at the epoch and the time, at
	// once. It is not ok where there is none: Decide has it then.
	Remembered(r Request, epoch int64, now time.Time) (d Decision, ok bool)
}

// OwnerOnly is the Authority that allows [Owner] everything and everybody else
// nothing.
type OwnerOnly struct{}

// Decide implements [Authority].
func (OwnerOnly) Decide(_ context.Context, r Request) (Decision, error) {
	if r.Principal == Owner {
		return Decision{Allow: true}, nil
	}
	return Decision{Reason: "only the owner of this store may see anything in it"}, nil
}

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrDenied says that the authority refused.
	ErrDenied = errors.New("refused by the authority")
	// ErrRevoked is a refusal to somebody who held leave. It is not [ErrDenied].
	ErrRevoked = errors.New("leave was withdrawn, or does not reach so far")
	// ErrRecords is a refusal since the leave is for some records alone, and nobody
	// has said that nothing else will be shown: [Error].Records has them.
	ErrRecords = errors.New("the leave is for some records alone")
	// ErrUnavailable says that there was no decision: the authority or the
	// policy epoch could not be had in time.
	ErrUnavailable = errors.New("no decision from the authority")
	// ErrStale says that a permit no longer holds: the policy changed or its
	// deadline passed. Asking again may yield a new one.
	ErrStale = errors.New("the permit has ended")
	// ErrNoPermit says that a permit was used that no gate gave out, or one for
	// something else.
	ErrNoPermit = errors.New("no permit for this")
)

// Error says which disclosure was refused, and why. Match the kind of refusal
// with [errors.Is].
type Error struct {
	Principal Principal
	Action    Action
	Artifact  string
	// Reason is what the authority said. It is for the store's own log: the
	// message leaves it out, since it may tell a stranger what exists.
	Reason  string
	Records []merkle.Range // with ErrRecords
	Err     error          // the kind of refusal, never nil
}

func (e *Error) Error() string {
	what := e.Artifact
	if what == "" {
		what = "the listing"
	}
	return fmt.Sprintf("%s %s as %q: %v", e.Action, what, string(e.Principal), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

func (r Request) refuse(err error, reason string) error {
	return &Error{Principal: r.Principal, Action: r.Action, Artifact: r.Artifact, Reason: reason, Err: err}
}

// Beyond is the refusal of what leave that is held does not reach.
func (r Request) Beyond(reason string) error { return r.refuse(ErrRevoked, reason) }

// settle makes the refusal that a decision is, if it is one.
func (r Request) settle(d Decision) error {
	switch {
	case !d.Allow && d.Known:
		return r.refuse(ErrRevoked, d.Reason)
	case !d.Allow:
		return r.refuse(ErrDenied, d.Reason)
	case len(d.Records) > 0 && !r.within(d.Records):
		return &Error{Principal: r.Principal, Action: r.Action, Artifact: r.Artifact, Records: d.Records, Err: ErrRecords}
	}
	return nil
}

// Policy is what the gate reads from the catalogue.
type Policy interface {
	// Epoch returns a number that grows whenever what is allowed changes.
	Epoch(ctx context.Context) (int64, error)
	// Now returns the time by which a Decision's NotAfter is judged.
	Now(ctx context.Context) (time.Time, error)
	// Quick returns both without waiting for anything; it is not ok where it cannot.
	Quick() (epoch int64, now time.Time, ok bool)
	// Stands reports whether the epoch is known to be epoch still. It costs next to
	// nothing, and says no where it does not know.
	Stands(epoch int64) bool
	// Watches reports whether Stands ever knows: as long as no change is under way.
	Watches() bool
}

// Limits of the gate.
const (
	// Life is the longest that a permit holds before the authority is asked
	// again. It bounds how long the allow of an Authority outlives a change
	// that does not show in the policy epoch.
	Life = time.Second
	// Patience is how long the gate waits for a decision.
	Patience = 2 * time.Second
)

// Gate gives out permits. It is safe for concurrent use.
type Gate struct {
	authority Authority
	policy    Policy
	flights   flights
}

// New returns a gate that asks authority and compares the epoch of policy.
func New(authority Authority, policy Policy) *Gate {
	return &Gate{authority: authority, policy: policy}
}

// Disclose asks whether r may happen now, and returns the permit for it. Every
// error is a refusal: one that wraps [ErrDenied] is a decision, one that wraps
// [ErrUnavailable] the lack of one, and a ctx that ended is reported as such.
func (g *Gate) Disclose(ctx context.Context, r Request) (Permit, error) {
	if r.Principal == "" {
		return Permit{}, r.refuse(ErrDenied, "the request names no principal")
	}
	if !slices.Contains(Actions(), r.Action) {
		return Permit{}, r.refuse(ErrDenied, fmt.Sprintf("%q is no action", string(r.Action)))
	}
	r.Ranges, r.Records = slices.Clone(r.Ranges), slices.Clone(r.Records)
	if p, ok, err := g.remembered(ctx, r); ok || err != nil {
		return p, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	asked := time.Now()

	// The epoch is read before the decision: if the policy changes between
	// the two, the permit is stale from the start. The other order would pin
	// an old decision to the new epoch.
	epoch, err := await(waitCtx, g.policy.Epoch)
	if err != nil {
		return Permit{}, g.unavailable(ctx, r, err)
	}
	d, err := await(waitCtx, func(ctx context.Context) (Decision, error) { return g.authority.Decide(ctx, r) })
	if err != nil {
		return Permit{}, g.unavailable(ctx, r, err)
	}
	if err := r.settle(d); err != nil {
		return Permit{}, err
	}
	deadline := asked.Add(Life)
	if !d.NotAfter.IsZero() {
		// NotAfter is a time of the store's clock, the deadline one of this
		// process, which no change of the machine's clock moves.
		now, err := await(waitCtx, g.policy.Now)
		if err != nil {
			return Permit{}, g.unavailable(ctx, r, err)
		}
		left := d.NotAfter.Sub(now)
		if left <= 0 {
			return Permit{}, r.refuse(ErrDenied, "the allow ended before it was used")
		}
		deadline = asked.Add(min(Life, left))
	}
	return Permit{gate: g, request: r, epoch: epoch, deadline: deadline, grant: d.Grant}, nil
}

// remembered is Disclose for what needs nobody to be waited for.
func (g *Gate) remembered(ctx context.Context, r Request) (p Permit, ok bool, err error) {
	prompt, ok := g.authority.(Prompt)
	if !ok {
		return p, false, nil
	}
	if ctx.Err() != nil {
		return p, false, r.refuse(context.Cause(ctx), "")
	}
	asked := time.Now()
	epoch, now, ok := g.policy.Quick()
	if !ok {
		return p, false, nil
	}
	d, ok := prompt.Remembered(r, epoch, now)
	if !ok {
		return p, false, nil
	}
	if err := r.settle(d); err != nil {
		return p, false, err
	}
	life := Life
	if !d.NotAfter.IsZero() {
		life = min(Life, d.NotAfter.Sub(now))
		if life <= 0 {
			return p, false, nil // it has ended since: Decide says what that means
		}
	}
	return Permit{gate: g, request: r, epoch: epoch, deadline: asked.Add(life), grant: d.Grant}, true, nil
}

// unavailable reports a missing decision. When the caller's own ctx ended, that
// is the reason, and nobody else is to blame.
func (g *Gate) unavailable(ctx context.Context, r Request, err error) error {
	if ctx.Err() != nil {
		return r.refuse(context.Cause(ctx), "")
	}
	return r.refuse(fmt.Errorf("%w: %w", ErrUnavailable, err), "")
}

// await calls f and gives up when ctx ends, also on an f that does not heed
// ctx; such an f is left to finish alone.
func await[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
	}()
	var zero T
	select {
	case r := <-done:
		if r.err == nil && ctx.Err() != nil {
			return zero, ctx.Err()
		}
		return r.value, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}
