package main

import (
	"context"
	"errors"
	"testing"

	"leafproof/ref"
)

// TestTranscriptInUse: who finds a run's transcript taken is told what to do, and one
// that is let go in time is had.
func TestTranscriptInUse(t *testing.T) {
	dir := t.TempDir()
	first, err := ref.OpenTranscript(dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = openTranscript(ctx, dir, "run")
	if e, ok := errors.AsType[*hinted](err); !ok || e.hint == "" {
		t.Errorf("a run that is taken: %v", err)
	}
	type opened struct {
		t   *ref.File
		err error
	}
	second := make(chan opened)
	go func() {
		t2, err := openTranscript(t.Context(), dir, "run")
		second <- opened{t2, err}
	}()
	first.Close()
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	got.t.Close()
}
