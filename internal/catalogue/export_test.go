package catalogue

import (
	"context"
	"time"
)

// SetBusyTimeout shortens the wait for other processes, and returns a function
// that sets it back.
func SetBusyTimeout(d time.Duration) (back func()) {
	old := busyTimeout
	busyTimeout = d
	return func() { busyTimeout = old }
}

// SyncOff makes this process sync none of its commits, as a sabotage.
func (s *SQLite) SyncOff(ctx context.Context) error {
	s.writer.turn <- struct{}{}
	defer func() { <-s.writer.turn }()
	if err := s.writer.connect(ctx); err != nil {
		return err
	}
	_, err := s.writer.conn.ExecContext(ctx, `PRAGMA synchronous = OFF`)
	return err
}

// PathOf is where a catalogue is.
func PathOf(s *SQLite) string { return s.path }

// AnnounceChange announces a change of the policy that is never made.
func AnnounceChange(s *SQLite) { s.mark.begin() }

// AppendUnchecked is Append without a look for leaves that are there.
func AppendUnchecked(ctx context.Context, s *SQLite, leaves ...Leaf) error {
	return s.write(ctx, &job{op: "append to", subject: "the log", do: func(_ context.Context, w *writer) error {
		for _, leaf := range leaves {
			w.log(leaf, nil, nil)
		}
		return nil
	}})
}
