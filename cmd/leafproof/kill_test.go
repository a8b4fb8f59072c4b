package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof"
)

// leafproofCommand is the program as a process of its own: the test binary, which
// TestMain turns into leafproof.
func leafproofCommand(store string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LEAFPROOF_STORE="+store, runAsLeafproof+"=1")
	return cmd
}

// TestKill kills puts at random moments. Every id that was printed must read back;
// whatever else is visible must be whole (a put may die between its commit and its
// print); and the store must open.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector finds nothing new in it")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	if out, err := leafproofCommand(store, "init").CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	files := map[string]bool{} // contents
	printed := map[string]string{}
	// How long an undisturbed put takes here.
	var whole time.Duration
	for i := range 50 {
		var b bytes.Buffer
		for n := range 1000 + rng.IntN(20_000) {
			fmt.Fprintf(&b, "{\"put\":%d,\"n\":%d}\n", i, n)
		}
		name := filepath.Join(dir, fmt.Sprintf("file-%d", i))
		if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		files[b.String()] = true
		cmd := leafproofCommand(store, "put", "-q", name)
		var out bytes.Buffer
		cmd.Stdout = &out
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(whole) * 3 / 2)))
			cmd.Process.Kill()
		}
		cmd.Wait()
		if i == 0 {
			whole = time.Since(begin)
		}
		if id, ok := strings.CutSuffix(out.String(), "\n"); ok {
			printed[id] = b.String()
		}
	}
	s, err := leafproof.Open(t.Context(), store)
	if err != nil {
		t.Fatalf("the store does not open: %v", err)
	}
	defer s.Close()
	for id, want := range printed {
		var got bytes.Buffer
		if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &got); err != nil || got.String() != want {
			t.Errorf("%s was printed; it reads %d bytes, want %d, error %v", id, got.Len(), len(want), err)
		}
	}
	list, _, err := s.List(t.Context(), leafproof.Owner, leafproof.DefaultTenant, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	unprinted := 0
	for _, e := range list {
		if _, ok := printed[e.ArtifactID]; ok {
			continue
		}
		unprinted++
		var got bytes.Buffer
		if _, err := s.Read(t.Context(), leafproof.Owner, e.ArtifactID, leafproof.Selector{}, &got); err != nil || !files[got.String()] {
			t.Errorf("%s was not printed and is not whole: %d bytes, error %v", e.ArtifactID, got.Len(), err)
		}
	}
	t.Logf("%d of 50 puts printed an id; %d were committed and killed before they printed", len(printed), unprinted)
	if len(printed) == 0 || len(printed) == 50 {
		t.Errorf("%d of 50 puts survived: the test killed at no interesting moment", len(printed))
	}
}

// TestChangedWhileRead: a file that grows while it is put is refused.
func TestChangedWhileRead(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	if err := leafproof.Init(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEAFPROOF_STORE", store)
	// It is large, and is appended to for as long as put reads it.
	name := filepath.Join(dir, "growing")
	if err := os.WriteFile(name, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return
		}
		defer f.Close()
		for {
			select {
			case <-stop:
				return
			default:
				f.Write([]byte("x"))
			}
		}
	}()
	// On a busy machine the other process may stand still for as long as one
	// call takes: then nothing changed, and the call is right to succeed.
	for _, args := range [][]string{{"put", "-q", name}, {"sum", name}, {"slice", name, "--bytes", "0:9"}} {
		refused := false
		for range 50 {
			var out, errOut bytes.Buffer
			if code := run(t.Context(), args, nil, &out, &errOut); code == exitFailed && strings.Contains(errOut.String(), "changed while") {
				refused = true
				break
			}
		}
		if !refused {
			t.Errorf("%s never noticed that its file grew", args[0])
		}
	}
	close(stop)
	<-done
}
