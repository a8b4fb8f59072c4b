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
	// shows bytes at all.
	Ranges []merkle.Range
	// Placed are the numbers of records whose places in the artifact will be
	// shown, without their bytes: a proof of records carries whole pages of the
	// record map.
	Placed merkle.Range
}

// equal reports whether two requests ask the same.
func (r Request) equal(o Request) bool {
	return r.Principal == o.Principal && r.Tenant == o.Tenant && r.Run == o.Run &&
		r.Artifact == o.Artifact && r.Action == o.Action && r.Purpose == o.Purpose &&
		slices.Equal(r.Ranges, o.Ranges) && r.Placed == o.Placed
}

// Decision is an Authority's answer. The zero Decision refuses.
type Decision struct {
	Allow  bool
	Reason string // why not, in one sentence for a log; the asker does not see it
	// NotAfter ends an allow, by the clock of the store. The zero time sets no
	// end; the gate then sets one of its own.
	NotAfter time.Time
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
	Reason string
	Err    error // the kind of refusal, never nil
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

// Policy is what the gate reads from the catalogue.
type Policy interface {
	// Epoch returns a number that grows whenever what is allowed changes.
	Epoch(ctx context.Context) (int64, error)
	// Now returns the time by which a Decision's NotAfter is judged.
	Now(ctx context.Context) (time.Time, error)
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
	r.Ranges = slices.Clone(r.Ranges)
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
	if !d.Allow {
		return Permit{}, r.refuse(ErrDenied, d.Reason)
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
	return Permit{gate: g, request: r, epoch: epoch, deadline: deadline}, nil
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
