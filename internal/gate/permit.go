package gate

import (
	"context"
	"errors"
	"io"
	"time"
)

// Permit is the leave to disclose one thing. It is bound to the whole request
// (principal, tenant, run, artifact, action, purpose and ranges), to the policy
// epoch at which it was given, and to a deadline at most [Life] later. The zero
// Permit allows nothing.
type Permit struct {
	gate     *Gate
	request  Request
	epoch    int64
	deadline time.Time // of this process's monotonic clock
	grant    string
}

// Request returns what the permit was given for.
func (p Permit) Request() Request { return p.request }

// Epoch returns the policy epoch at which the permit was given.
func (p Permit) Epoch() int64 { return p.epoch }

// Grant names what allowed it; it may be empty.
func (p Permit) Grant() string { return p.grant }

// Covers returns nil when the permit was given for exactly r, and an error that
// wraps [ErrNoPermit] otherwise. It does not say whether the permit still
// holds: see [Permit.Check].
func (p Permit) Covers(r Request) error {
	if p.gate == nil {
		return r.refuse(ErrNoPermit, "the zero permit")
	}
	if !p.request.equal(r) {
		return r.refuse(ErrNoPermit, "the permit is for something else")
	}
	return nil
}

// Check returns nil while the permit holds. It wraps [ErrNoPermit] for the zero
// Permit, [ErrStale] after the deadline or a change of the policy, and
// [ErrUnavailable] when the epoch cannot be read in time.
func (p Permit) Check(ctx context.Context) error {
	if p.gate == nil {
		return p.request.refuse(ErrNoPermit, "the zero permit")
	}
	if ctx.Err() != nil {
		return p.request.refuse(context.Cause(ctx), "")
	}
	epoch, _, ok := p.gate.policy.Quick()
	if !ok {
		waitCtx, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		var err error
		if epoch, err = await(waitCtx, p.gate.policy.Epoch); err != nil {
			return p.gate.unavailable(ctx, p.request, err)
		}
	}
	if epoch != p.epoch {
		return p.request.refuse(ErrStale, "the policy changed")
	}
	// The time is taken last, so that a slow epoch cannot stretch a permit.
	if !time.Now().Before(p.deadline) {
		return p.request.refuse(ErrStale, "the deadline passed")
	}
	return nil
}

// Renew returns the permit itself while it holds, and asks the authority anew
// when it is stale.
func (p Permit) Renew(ctx context.Context) (Permit, error) {
	err := p.Check(ctx)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, ErrStale):
		return p.gate.Disclose(ctx, p.request)
	}
	return Permit{}, err
}

// FlushBytes is the most that a [Writer] lets through between two looks at its
// permit.
const FlushBytes = 64 << 10

// Writer passes bytes on while its permit holds. Each write is compared with the
// policy epoch, in pieces of [FlushBytes]; where that can never be had at once, the
// permit is looked at before the first byte, before more than FlushBytes have passed
// since the last look, and before any byte a second after it. A stale permit is
// renewed; the first refusal ends the Writer for good, with no further byte.
//
// What was handed to the underlying writer is disclosed: if that one blocks,
// up to FlushBytes allowed before a change of the policy may arrive after it. In one
// process [Gate.Settle] waits for that.
type Writer struct {
	ctx    context.Context
	w      io.Writer
	permit Permit
	left   int       // bytes that may pass before the next look
	until  time.Time // the time of the next look
	err    error     // the refusal or failure that ended the Writer
}

// NewWriter returns a Writer on w that discloses r under the permit p. It
// refuses a permit for anything else, and one that no gate gave out.
func NewWriter(ctx context.Context, w io.Writer, p Permit, r Request) (*Writer, error) {
	if err := p.Covers(r); err != nil {
		return nil, err
	}
	return &Writer{ctx: ctx, w: w, permit: p}, nil
}

// Write implements [io.Writer]. After a refusal it has passed on the first n
// bytes and no others.
func (w *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 && w.err == nil {
		m := 0
		err := w.pass(func() (err error) {
			m, err = w.w.Write(b[:min(len(b), w.left)])
			return err
		})
		n += m
		w.left -= m
		if err == nil && m == 0 {
			w.err = io.ErrShortWrite
		}
		b = b[m:]
	}
	return n, w.err
}

// Pass lets f show n bytes by itself, if the permit holds. Its error ends the Writer.
func (w *Writer) Pass(n int, f func() error) error {
	if w.err == nil {
		w.pass(f) //nolint:errcheck // it is kept
		w.left -= n
	}
	return w.err
}

// pass calls f if the permit holds.
func (w *Writer) pass(f func() error) error {
	g := w.permit.gate
	turn := g.flights.begin() // before the look, so that who changes the policy sees it
	defer g.flights.end(turn)
	if w.err = w.look(); w.err == nil {
		w.err = f()
	}
	return w.err
}

// look makes sure that the next byte may pass.
func (w *Writer) look() error {
	if w.left > 0 && time.Now().Before(w.until) {
		// Where no word is had only because a change is under way, the permit is
		// looked at: whoever makes the change waits for what is shown meanwhile, and
		// for nothing later.
		if p := w.permit.gate.policy; p.Stands(w.permit.epoch) || !p.Watches() {
			return nil
		}
	}
	p, err := w.permit.Renew(w.ctx)
	if err != nil {
		return err
	}
	w.permit, w.left, w.until = p, FlushBytes, time.Now().Add(time.Second)
	return nil
}
