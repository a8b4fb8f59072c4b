package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// flights counts the writes that are under way, in two turns: those that began since
// the last change of the policy, and those before.
type flights struct {
	turn  atomic.Int64
	under [2]atomic.Int64
	mu    sync.Mutex // held by who settles
}

func (f *flights) begin() (turn int64) {
	turn = f.turn.Load() & 1
	f.under[turn].Add(1)
	return turn
}

func (f *flights) end(turn int64) { f.under[turn].Add(-1) }

// Settle waits for the writes that this gate let pass before a change of the policy
// that was committed before the call. After it they are done, or, when one blocks for
// longer than [Life] or ctx ends, as good as on their way. It reports which.
//
// A write counts before it looks at its permit. One that is not counted yet when
// Settle begins looks later, and sees the change.
func (g *Gate) Settle(ctx context.Context) (settled bool) {
	f := &g.flights
	f.mu.Lock()
	defer f.mu.Unlock()
	until := time.Now().Add(Life)
	// Twice: a write that took its turn long ago, and counts only now, may count in
	// either.
	for range 2 {
		old := (f.turn.Add(1) - 1) & 1
		for wait := 20 * time.Microsecond; f.under[old].Load() > 0; wait = min(2*wait, 5*time.Millisecond) {
			if ctx.Err() != nil || !time.Now().Before(until) {
				return false
			}
			time.Sleep(wait)
		}
	}
	return true
}
