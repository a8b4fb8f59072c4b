package bench_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"leafproof/bench"
)

// TestRun measures a little of everything: that the figures are those of what was
// done, in the order in which it is done, and that a cancelled run ends.
func TestRun(t *testing.T) {
	var got []string
	err := bench.Run(t.Context(), bench.Options{Dir: t.TempDir(), Size: 1 << 20, Rounds: 1}, func(f bench.Figure) error {
		got = append(got, f.Case)
		if f.Seconds <= 0 || f.Bytes <= 0 || (f.Peer != "") != (f.Ratio > 0) {
			t.Errorf("%+v", f)
		}
		return nil
	})
	if err != nil || len(got) != 13 || got[1] != "put noise, durable" || got[12] != "verify it" {
		t.Errorf("%v, %q", err, got)
	}
	stop := errors.New("enough")
	if err := bench.Run(t.Context(), bench.Options{Dir: t.TempDir(), Size: 1 << 20, Rounds: 1}, func(bench.Figure) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("told to stop: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bench.Run(ctx, bench.Options{Dir: t.TempDir(), Size: 1 << 20, Rounds: 1}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := bench.Run(t.Context(), bench.Options{Dir: t.TempDir(), Size: 1, Rounds: 1}, nil); err == nil {
		t.Error("a byte was measured")
	}
	if err := bench.Run(t.Context(), bench.Options{Dir: os.DevNull, Size: 1 << 20, Rounds: 1}, nil); err == nil {
		t.Error("a file is a folder")
	}
}
