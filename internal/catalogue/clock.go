package catalogue

import (
	"context"
	"sync"
	"time"
)

// clockReads lets those who ask for the clock at the same time share one look at the
// database. Nobody is told what was read before he asked.
type clockReads struct {
	turn chan struct{} // holds one token while somebody looks
	mu   sync.Mutex
	next *clockRead // of those that have asked since the last look began; nil: nobody
}

type clockRead struct {
	clock int64
	err   error
	done  chan struct{} // closed when the others are final
}

// read returns the clock of the database as of a moment after the call.
func (r *clockReads) read(ctx context.Context, look func(context.Context) (int64, error)) (int64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	r.mu.Lock()
	if r.next == nil {
		r.next = &clockRead{done: make(chan struct{})}
	}
	own := r.next
	r.mu.Unlock()
	for {
		select {
		case <-own.done:
			return own.clock, own.err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case r.turn <- struct{}{}:
		}
		r.mu.Lock()
		first := r.next == own
		if first {
			r.next = nil
		}
		r.mu.Unlock()
		if first { // else another one has looked for this one
			own.clock, own.err = look(context.WithoutCancel(ctx))
			close(own.done)
		}
		<-r.turn
	}
}

// Now implements [Catalogue].
func (s *SQLite) Now(ctx context.Context) (time.Time, error) {
	clock, err := s.clockReads.read(ctx, func(ctx context.Context) (clock int64, err error) {
		err = s.stmts.clock.QueryRowContext(ctx).Scan(&clock)
		return clock, err
	})
	if err != nil {
		return time.Time{}, s.fail("read the clock of", s.path, err)
	}
	return time.UnixMicro(s.tick(clock)).UTC(), nil
}

// tick returns the latest of the machine's clock, what it returned before, and
// least, in microseconds.
func (s *SQLite) tick(least int64) int64 {
	now := max(least, time.Now().UnixMicro())
	for {
		last := s.clock.Load()
		if last >= now {
			return last
		}
		if s.clock.CompareAndSwap(last, now) {
			return now
		}
	}
}
