package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"leafproof"
)

// endless are zeros without an end; the first read of them calls f.
type endless struct{ f func() }

func (e endless) Read(p []byte) (int, error) {
	e.f()
	clear(p)
	return len(p), nil
}

// TestInterrupt: a put that a signal ends says so in words, and what to do.
func TestInterrupt(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	for args, hint := range map[string]string{"put": "with --resume NAME", "put --resume a": "the same command goes on"} {
		ctx, stop := context.WithCancel(t.Context())
		var out, errOut bytes.Buffer
		code := run(ctx, append(strings.Fields(args), "--store", store, "-"), endless{stop}, &out, &errOut)
		if said := errOut.String(); code != exitUnproven || out.Len() > 0 || !strings.Contains(said, "interrupted") ||
			strings.Contains(said, "canceled") || !strings.Contains(said, hint) {
			t.Errorf("%s: exit %d, %q and %q", args, code, &out, said)
		}
	}
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"ls", "--store", store}, nil, &out, &errOut); code != 0 || out.Len() > 0 {
		t.Errorf("what was interrupted is listed: exit %d, %q, %q", code, &out, &errOut)
	}
}
