package leafproof

import (
	"sync"
	"time"
)

// BudgetLimits bound what a run spends on recovery. 0 is none of it.
type BudgetLimits struct {
	Attempts int           // how often something is tried again
	Time     time.Duration // from the first of them on
	Bytes    int64         // that are read or fetched again
}

// A Budget is what is left to a run for recovery: trying again, reading again,
// acquiring again. It is safe for concurrent use; all that a run does takes from one.
type Budget struct {
	mu     sync.Mutex
	limits BudgetLimits
	began  time.Time // of the first attempt
}

// NewBudget returns a budget of which nothing is spent.
func NewBudget(l BudgetLimits) *Budget { return &Budget{limits: l} }

// Take takes one attempt and so many bytes. Where they are not left it takes
// nothing, and the error is budget_exhausted: what was to be recovered is deferred.
func (b *Budget) Take(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	lacks := ""
	switch {
	case b.limits.Attempts < 1:
		lacks = "attempts"
	case now.Sub(b.began) >= b.limits.Time:
		lacks = "time"
	case bytes > b.limits.Bytes:
		lacks = "bytes"
	}
	if lacks != "" {
		return fail(CodeBudgetExhausted, Defer, "budget", "the recovery budget has no %s left", lacks)
	}
	b.limits.Attempts--
	b.limits.Bytes -= max(bytes, 0)
	return nil
}

// Left returns what is left.
func (b *Budget) Left() BudgetLimits {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits
	if !b.began.IsZero() {
		l.Time = max(0, l.Time-time.Since(b.began))
	}
	return l
}

func (b *Budget) timeLeft() time.Duration { return b.Left().Time }

// used reports whether nothing more can be taken.
func (b *Budget) used() bool {
	if b == nil {
		return false
	}
	l := b.Left()
	return l.Attempts < 1 || l.Time <= 0
}
