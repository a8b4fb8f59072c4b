package gate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leafproof/internal/gate"
	"leafproof/merkle"
)

// remembering is an authority that answers from memory while on is set.
type remembering struct {
	authority
	on   atomic.Bool
	asks atomic.Int64
	d    gate.Decision
}

func (a *remembering) Remembered(_ gate.Request, _ int64, _ time.Time) (gate.Decision, bool) {
	a.asks.Add(1)
	return a.d, a.on.Load()
}

// A remembered decision is held to what an asked one is.
func TestRemembered(t *testing.T) {
	p := &policy{quick: true}
	for name, test := range map[string]struct {
		d   gate.Decision
		err error
	}{
		"allow":             {gate.Decision{Allow: true, Grant: "gr_1"}, nil},
		"zero":              {gate.Decision{}, gate.ErrDenied},
		"known":             {gate.Decision{Known: true}, gate.ErrRevoked},
		"for other records": {gate.Decision{Allow: true, Records: []merkle.Range{{Start: 1, End: 2}}}, gate.ErrRecords},
		"until later":       {gate.Decision{Allow: true, NotAfter: time.Now().Add(time.Hour)}, nil},
	} {
		a := &remembering{authority: func(context.Context, gate.Request) (gate.Decision, error) {
			return gate.Decision{}, errors.New("asked")
		}, d: test.d}
		a.on.Store(true)
		permit, err := gate.New(a, p).Disclose(t.Context(), request)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: error = %v, want %v", name, err, test.err)
		}
		if err == nil && (permit.Covers(request) != nil || permit.Check(t.Context()) != nil || permit.Grant() != test.d.Grant) {
			t.Errorf("%s: %+v", name, permit)
		}
	}
	// One that has ended is asked about: whether it can be renewed, memory does not know.
	a := &remembering{authority: allow, d: gate.Decision{Allow: true, NotAfter: time.Now().Add(-time.Second), Grant: "old"}}
	a.on.Store(true)
	if permit, err := gate.New(a, p).Disclose(t.Context(), request); err != nil || permit.Grant() != "" {
		t.Errorf("of one that ended: %q, %v", permit.Grant(), err)
	}
	// A context that ended is no question.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gate.New(a, p).Disclose(ctx, request); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// With an epoch that can be had at once, no byte passes after a change, however few
// have passed since the last look.
func TestEveryWrite(t *testing.T) {
	p := &policy{quick: true}
	var no atomic.Bool
	g := gate.New(authority(func(context.Context, gate.Request) (gate.Decision, error) {
		return gate.Decision{Allow: !no.Load()}, nil
	}), p)
	permit, err := g.Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	w, err := gate.NewWriter(t.Context(), &got, permit, request)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	no.Store(true)
	p.epoch.Add(1)
	if n, err := w.Write([]byte("b")); n != 0 || !errors.Is(err, gate.ErrDenied) {
		t.Errorf("a byte after the change: %d, %v", n, err)
	}
	no.Store(false)
	ran := false
	if err := w.Pass(1, func() error { ran = true; return nil }); err == nil || ran || got.String() != "aaa" {
		t.Errorf("after a refusal: %t, %v, %q", ran, err, got.String())
	}
}

func TestPass(t *testing.T) {
	g := gate.New(authority(allow), &policy{quick: true})
	permit, err := g.Disclose(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	w, err := gate.NewWriter(t.Context(), io.Discard, permit, request)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for n, want := range []error{nil, broken, broken} {
		ran := false
		err := w.Pass(1<<20, func() error {
			ran = true
			return want
		})
		if !errors.Is(err, want) || ran != (n < 2) {
			t.Errorf("%d: ran %t, %v", n, ran, err)
		}
	}
}

// Settle waits for a write that is under way, and not for ever.
func TestSettle(t *testing.T) {
	for name, test := range map[string]struct {
		blocks  time.Duration
		settled bool
	}{"a short write": {200 * time.Millisecond, true}, "one that blocks": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &policy{quick: true}
				g := gate.New(authority(allow), p)
				permit, err := g.Disclose(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				var under atomic.Bool
				w, err := gate.NewWriter(t.Context(), writer(func(b []byte) (int, error) {
					under.Store(true)
					time.Sleep(test.blocks)
					under.Store(false)
					return len(b), nil
				}), permit, request)
				if err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				all.Go(func() { w.Write([]byte("x")) }) //nolint:errcheck // it is late
				synctest.Wait()
				p.epoch.Add(1)
				begin := time.Now()
				settled := g.Settle(t.Context())
				if settled != test.settled || settled && under.Load() {
					t.Errorf("settled: %t, a write is under way: %t", settled, under.Load())
				}
				if took := time.Since(begin); took > gate.Life+10*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				all.Wait()
				if !g.Settle(t.Context()) {
					t.Error("with nothing under way it does not settle")
				}
			})
		})
	}
}

type writer func([]byte) (int, error)

func (f writer) Write(b []byte) (int, error) { return f(b) }
