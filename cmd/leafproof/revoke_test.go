package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"leafproof"
)

// TestRevokeOtherProcess: a program that is giving out an artifact ends soon after
// another process has revoked the leave for it.
func TestRevokeOtherProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = 8 << 20
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	d, err := s.Put(t.Context(), bytes.NewReader(data), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(t.Context(), d, leafproof.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "alice", Action: leafproof.ActionRead, Pattern: "local"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := leafproofCommand(dir, "read", ref.ArtifactID, "--as", "alice")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, out, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(t.Context(), leafproof.Owner, g.ID); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	n, err := io.Copy(io.Discard, out)
	if err != nil {
		t.Fatal(err)
	}
	// What it was writing, and what stood in the pipe.
	if n > 64<<10+64<<10 {
		t.Errorf("%d bytes came after the revocation", n)
	}
	err = cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != exitRefused {
		t.Errorf("it ended with %v, want exit %d", err, exitRefused)
	}
	if took := time.Since(begin); took > 5*time.Second { // a second, where the machine has time for it
		t.Errorf("it ended %v after the revocation", took)
	}
}
