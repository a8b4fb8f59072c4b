package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

// Many that ask for the time at once share looks at the database, and yet none is
// told a time from before a commit that it has seen.
func TestNowShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	future := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for round := range 5 {
		var before, after sync.WaitGroup
		for range 16 { // these may still see the time of before
			before.Go(func() {
				if _, err := c.Now(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		future = future.Add(time.Hour)
		raw(t, path, fmt.Sprintf(`UPDATE meta SET clock = %d`, future.UnixMicro()))
		for range 16 {
			after.Go(func() {
				if now, err := c.Now(t.Context()); err != nil || now.Before(future) {
					t.Errorf("round %d: Now = %v, %v, after a commit at %v", round, now, err, future)
				}
			})
		}
		before.Wait()
		after.Wait()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Now(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Now of a caller that is gone = %v", err)
	}
	if _, err := c.Now(t.Context()); err != nil {
		t.Errorf("Now after that = %v", err)
	}
}
