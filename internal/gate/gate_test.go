package gate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leafproof/internal/gate"
	"leafproof/merkle"
)

// policy is a catalogue's epoch and clock, in memory.
type policy struct {
	epoch atomic.Int64
	wait  time.Duration // before every answer
	quick bool
	err   error
}

func (p *policy) Epoch(context.Context) (int64, error) {
	time.Sleep(p.wait)
	return p.epoch.Load(), p.err
}

func (p *policy) Now(context.Context) (time.Time, error) { return time.Now(), p.err }

func (p *policy) Watches() bool { return p.quick }

func (p *policy) Stands(epoch int64) bool { return p.quick && p.epoch.Load() == epoch }

func (p *policy) Quick() (int64, time.Time, bool) {
	return p.epoch.Load(), time.Now(), p.quick && p.err == nil
}

// authority is an Authority made of a function.
type authority func(ctx context.Context, r gate.Request) (gate.Decision, error)

func (a authority) Decide(ctx context.Context, r gate.Request) (gate.Decision, error) {
	return a(ctx, r)
}

func allow(context.Context, gate.Request) (gate.Decision, error) {
	return gate.Decision{Allow: true}, nil
}

var request = gate.Request{
	Principal: "alice", Tenant: "acme", Run: "r1", Artifact: "art_1", Action: gate.Read,
	Purpose: "audit", Ranges: []merkle.Range{{Start: 0, End: 1024}},
}

func TestOwnerOnly(t *testing.T) {
	g := gate.New(gate.OwnerOnly{}, &policy{})
	for _, action := range gate.Actions() {
		for name, test := range map[string]struct {
			principal gate.Principal
			err       error
		}{
			"owner":           {gate.Owner, nil},
			"another":         {"alice", gate.ErrDenied},
			"nobody":          {"", gate.ErrDenied},
			"upper case":      {"Owner", gate.ErrDenied},
			"owner and space": {"owner ", gate.ErrDenied},
		} {
			r := gate.Request{Principal: test.principal, Tenant: "local", Artifact: "art_1", Action: action}
			p, err := g.Disclose(t.Context(), r)
			if !errors.Is(err, test.err) {
				t.Errorf("%s %s: error = %v, want %v", action, name, err, test.err)
			}
			if err != nil && p.Covers(r) == nil {
				t.Errorf("%s %s: refused, but the permit covers it", action, name)
			}
		}
	}
}

func TestDisclose(t *testing.T) {
	broken := errors.New("the policy server is down")
	for name, test := range map[string]struct {
		decide authority
		policy *policy
		change func(*gate.Request)
		err    error
	}{
		"allowed":         {decide: allow},
		"zero decision":   {decide: func(context.Context, gate.Request) (gate.Decision, error) { return gate.Decision{}, nil }, err: gate.ErrDenied},
		"error and allow": {decide: func(context.Context, gate.Request) (gate.Decision, error) { return gate.Decision{Allow: true}, broken }, err: gate.ErrUnavailable},
		"keeps its cause": {decide: func(context.Context, gate.Request) (gate.Decision, error) { return gate.Decision{}, broken }, err: broken},
		"hangs": {decide: func(context.Context, gate.Request) (gate.Decision, error) {
			time.Sleep(time.Hour)
			return gate.Decision{Allow: true}, nil
		}, err: gate.ErrUnavailable},
		"allows too late": {decide: func(ctx context.Context, _ gate.Request) (gate.Decision, error) {
			<-ctx.Done()
			return gate.Decision{Allow: true}, nil
		}, err: gate.ErrUnavailable},
		"allow that ended": {decide: func(context.Context, gate.Request) (gate.Decision, error) {
			return gate.Decision{Allow: true, NotAfter: time.Now()}, nil
		}, err: gate.ErrDenied},
		"no epoch":       {decide: allow, policy: &policy{err: broken}, err: gate.ErrUnavailable},
		"slow epoch":     {decide: allow, policy: &policy{wait: time.Hour}, err: gate.ErrUnavailable},
		"no principal":   {decide: allow, change: func(r *gate.Request) { r.Principal = "" }, err: gate.ErrDenied},
		"no action":      {decide: allow, change: func(r *gate.Request) { r.Action = "" }, err: gate.ErrDenied},
		"unknown action": {decide: allow, change: func(r *gate.Request) { r.Action = "READ" }, err: gate.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := test.policy
				if p == nil {
					p = &policy{}
				}
				r := request
				if test.change != nil {
					test.change(&r)
				}
				start := time.Now()
				permit, err := gate.New(test.decide, p).Disclose(t.Context(), r)
				if !errors.Is(err, test.err) {
					t.Fatalf("error = %v, want %v", err, test.err)
				}
				if waited := time.Since(start); waited > gate.Patience {
					t.Errorf("it took %v", waited)
				}
				if err == nil {
					if err := permit.Check(t.Context()); err != nil {
						t.Errorf("a fresh permit: %v", err)
					}
					return
				}
				if err := permit.Check(t.Context()); !errors.Is(err, gate.ErrNoPermit) {
					t.Errorf("the permit of a refusal: %v", err)
				}
				if e, ok := errors.AsType[*gate.Error](err); !ok || e.Artifact != "art_1" {
					t.Errorf("error = %#v, want one that names the artifact", err)
				}
				time.Sleep(2 * time.Hour) // lets what hangs finish before the bubble ends
			})
		})
	}
}

// TestReasonStaysInside: what the authority says may tell a stranger what
// exists, so the message leaves it out.
func TestReasonStaysInside(t *testing.T) {
	g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
		return gate.Decision{Reason: "project x is embargoed"}, nil
	}), &policy{})
	_, err := g.Disclose(t.Context(), request)
	e, ok := errors.AsType[*gate.Error](err)
	if !ok || e.Reason != "project x is embargoed" || strings.Contains(err.Error(), "embargoed") {
		t.Errorf("error = %q, reason %q", err, e.Reason)
	}
}

func TestCancelledCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := gate.New(authority(allow), &policy{}).Disclose(ctx, request)
	if !errors.Is(err, context.Canceled) || errors.Is(err, gate.ErrUnavailable) {
		t.Errorf("error = %v, want only the caller's own cancellation", err)
	}
}

func TestPermitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &policy{}
		notAfter := time.Time{}
		g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
			return gate.Decision{Allow: true, NotAfter: notAfter}, nil
		}), p)
		ends := func(name string, want error, change func()) {
			t.Helper()
			permit, err := g.Disclose(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			change()
			if err := permit.Check(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: error = %v, want %v", name, err, want)
			}
		}
		ends("at once", nil, func() {})
		ends("just before its life is over", nil, func() { time.Sleep(gate.Life - 1) })
		ends("after its life", gate.ErrStale, func() { time.Sleep(gate.Life) })
		ends("a new epoch", gate.ErrStale, func() { p.epoch.Add(1) })
		ends("an epoch that went back", gate.ErrStale, func() { p.epoch.Add(-1) })
		ends("no epoch", gate.ErrUnavailable, func() { p.err = io.ErrUnexpectedEOF })
		p.err = nil
		ends("a slow epoch", gate.ErrStale, func() { p.wait = gate.Life })
		p.wait = 0
		notAfter = time.Now().Add(100 * time.Millisecond)
		ends("before its end", nil, func() { time.Sleep(99 * time.Millisecond) })
		notAfter = time.Now().Add(100 * time.Millisecond)
		ends("after its end", gate.ErrStale, func() { time.Sleep(100 * time.Millisecond) })
	})
}

// TestEpochBeforeDecision: a policy that changes while the authority decides
// yields a permit that is stale from the start.
func TestEpochBeforeDecision(t *testing.T) {
	p := &policy{}
	g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
		p.epoch.Add(1)
		return gate.Decision{Allow: true}, nil
	}), p)
	permit, err := g.Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Check(t.Context()); !errors.Is(err, gate.ErrStale) {
		t.Errorf("error = %v, want ErrStale", err)
	}
}

func TestPermitIsBound(t *testing.T) {
	permit, err := gate.New(authority(allow), &policy{}).Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.NewWriter(t.Context(), io.Discard, permit, request); err != nil {
		t.Errorf("for the same request: %v", err)
	}
	for name, change := range map[string]func(*gate.Request){
		"principal":     func(r *gate.Request) { r.Principal = "bob" },
		"tenant":        func(r *gate.Request) { r.Tenant = "other" },
		"run":           func(r *gate.Request) { r.Run = "" },
		"artifact":      func(r *gate.Request) { r.Artifact = "art_2" },
		"action":        func(r *gate.Request) { r.Action = gate.Prove },
		"purpose":       func(r *gate.Request) { r.Purpose = "" },
		"wider range":   func(r *gate.Request) { r.Ranges = []merkle.Range{{Start: 0, End: 2048}} },
		"all the bytes": func(r *gate.Request) { r.Ranges = nil },
	} {
		t.Run(name, func(t *testing.T) {
			other := request
			change(&other)
			if _, err := gate.NewWriter(t.Context(), io.Discard, permit, other); !errors.Is(err, gate.ErrNoPermit) {
				t.Errorf("error = %v, want ErrNoPermit", err)
			}
		})
	}
	if _, err := gate.NewWriter(t.Context(), io.Discard, gate.Permit{}, gate.Request{}); !errors.Is(err, gate.ErrNoPermit) {
		t.Errorf("the zero permit for the zero request: %v", err)
	}
}

// TestWriter: the bytes come through whatever the sizes of the writes, and
// never more than FlushBytes after the policy changed.
func TestWriter(t *testing.T) {
	for name, size := range map[string]int{
		"one byte": 1, "odd": 1000, "one flush": gate.FlushBytes, "one more": gate.FlushBytes + 1, "large": 1 << 20,
	} {
		t.Run(name, func(t *testing.T) {
			p := &policy{}
			revoked := false
			g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
				return gate.Decision{Allow: !revoked}, nil
			}), p)
			permit, err := g.Disclose(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			w, err := gate.NewWriter(t.Context(), &out, permit, request)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 3<<20)
			for i := range data {
				data[i] = byte(i * 7 >> 8)
			}
			write := func(from, to int) (int, error) {
				done := 0
				for at := from; at < to; at += size {
					n, err := w.Write(data[at:min(at+size, to)])
					done += n
					if err != nil {
						return done, err
					}
				}
				return done, nil
			}
			if n, err := write(0, 1<<20); err != nil || n != 1<<20 {
				t.Fatalf("write = %d, %v", n, err)
			}
			p.epoch.Add(1) // somebody else's grant: the authority still allows
			if n, err := write(1<<20, 2<<20); err != nil || n != 1<<20 {
				t.Fatalf("after another epoch: write = %d, %v", n, err)
			}
			revoked = true
			p.epoch.Add(1)
			n, err := write(2<<20, 3<<20)
			if !errors.Is(err, gate.ErrDenied) || n > gate.FlushBytes {
				t.Errorf("after the revocation: %d bytes, %v", n, err)
			}
			if !bytes.Equal(out.Bytes(), data[:2<<20+n]) {
				t.Error("the bytes that came through differ")
			}
			revoked = false
			if n, err := w.Write(data[:1]); n != 0 || !errors.Is(err, gate.ErrDenied) {
				t.Errorf("a write after the refusal = %d, %v", n, err)
			}
		})
	}
}

// TestWriterEverySecond: a slow stream is looked at by time, not only by size.
func TestWriterEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
			asked++
			return gate.Decision{Allow: asked <= 5}, nil
		}), &policy{})
		permit, err := g.Disclose(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		w, err := gate.NewWriter(t.Context(), io.Discard, permit, request)
		if err != nil {
			t.Fatal(err)
		}
		start, n := time.Now(), 0
		for ; err == nil && n < 1000; n++ {
			_, err = w.Write([]byte{0})
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(start); took > 6*time.Second || !errors.Is(err, gate.ErrDenied) {
			t.Errorf("the authority ended it after %v and %d bytes: %v", took, n, err)
		}
	})
}

// stuck is a writer that writes nothing and does not say so.
type stuck struct{}

func (stuck) Write([]byte) (int, error) { return 0, nil }

func TestWriterEnds(t *testing.T) {
	permit, err := gate.New(authority(allow), &policy{}).Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := gate.NewWriter(t.Context(), stuck{}, permit, request)
	if _, err := w.Write([]byte("a")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a stuck writer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	w, _ = gate.NewWriter(ctx, &out, permit, request)
	cancel()
	if _, err := w.Write([]byte("a")); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("a cancelled reader: %v, %d bytes", err, out.Len())
	}
}

// BenchmarkWriter is the price of the looks when the epoch costs nothing.
func BenchmarkWriter(b *testing.B) {
	permit, err := gate.New(authority(allow), &policy{}).Disclose(b.Context(), request)
	if err != nil {
		b.Fatal(err)
	}
	w, err := gate.NewWriter(b.Context(), io.Discard, permit, request)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Write(data); err != nil {
			b.Fatal(err)
		}
	}
}

// changing is a policy of which nothing is known at once while a change is under way.
type changing struct {
	policy
	under atomic.Bool
}

func (p *changing) Watches() bool { return true }

func (p *changing) Stands(epoch int64) bool { return !p.under.Load() && p.policy.epoch.Load() == epoch }

func (p *changing) Quick() (int64, time.Time, bool) {
	return p.policy.epoch.Load(), time.Now(), !p.under.Load()
}

// A permit that was given while a change of something else was under way is looked
// at before the next byte all the same.
func TestWriterBesideAChange(t *testing.T) {
	p := &changing{}
	denied := false
	g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
		return gate.Decision{Allow: !denied}, nil
	}), p)
	permit, err := g.Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gate.NewWriter(t.Context(), &out, permit, request)
	if err != nil {
		t.Fatal(err)
	}
	p.under.Store(true)
	if n, err := w.Write([]byte("before")); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	denied = true // and committed
	p.policy.epoch.Add(1)
	for _, under := range []bool{true, false} {
		p.under.Store(under)
		if n, err := w.Write([]byte("after")); n != 0 || !errors.Is(err, gate.ErrDenied) {
			t.Errorf("with a change under way %t: %d bytes, %v", under, n, err)
		}
	}
}
