package flock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/internal/flock"
)

// holdEnv makes the test binary a process that holds a lock: its value is
// "shared:PATH" or "exclusive:PATH".
const holdEnv = "FLOCK_TEST_HOLD"

func TestMain(m *testing.M) {
	if how, path, ok := strings.Cut(os.Getenv(holdEnv), ":"); ok {
		hold(how, path)
		return
	}
	os.Exit(m.Run())
}

// hold takes the lock, says so, and keeps it until standard input ends.
func hold(how, path string) {
	take := flock.Shared
	if how == "exclusive" {
		take = flock.Exclusive
	}
	if _, err := take(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // without Close, as a process that crashes
}

// startHolder returns the id of a process that holds the lock, and a function
// that ends the process without letting it unlock.
func startHolder(t *testing.T, how, path string) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+how+":"+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd.Process.Pid, func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the holder: %v", err)
		}
	}
}

func TestBetweenProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		held    string
		take    func(string) (*flock.Lock, error)
		refused bool
		named   bool
	}{
		"shared beside shared":       {"shared", flock.Shared, false, false},
		"exclusive beside shared":    {"shared", flock.Exclusive, true, false},
		"shared beside exclusive":    {"exclusive", flock.Shared, true, true},
		"exclusive beside exclusive": {"exclusive", flock.Exclusive, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			pid, end := startHolder(t, test.held, path)
			l, err := test.take(path)
			if got := errors.Is(err, flock.ErrHeld); got != test.refused {
				t.Errorf("error = %v, refused = %t, want %t", err, got, test.refused)
			}
			if test.refused {
				e, ok := errors.AsType[*flock.Error](err)
				unknown := !test.named && ok && e.PID == 0 // the system does not always tell who shares
				if !ok || e.PID != pid && !unknown || e.Path != path {
					t.Errorf("error = %#v, want process %d and path %s", err, pid, path)
				}
			} else if err := l.Close(); err != nil {
				t.Error(err)
			}
			end()
			l, err = flock.Exclusive(path)
			if err != nil {
				t.Fatalf("after the holder's end: %v", err)
			}
			l.Close()
		})
	}
}

// TestStalePID: a process that crashed while it held the lock leaves its id in
// the file; a later refusal by others must not blame it.
func TestStalePID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	pid, end := startHolder(t, "exclusive", path)
	end()
	if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintf("%d\n", pid) {
		t.Fatalf("the crash left %q, %v: this test needs the id %d there", text, err, pid)
	}
	l, err := flock.Shared(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = flock.Exclusive(path)
	if e, ok := errors.AsType[*flock.Error](err); !ok || e.PID != 0 && e.PID != os.Getpid() {
		t.Errorf("error = %v, want one that does not name process %d", err, pid)
	}
}

func TestWithinProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := flock.Exclusive(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = flock.Shared(path)
	if want := fmt.Sprintf("lock %s: held by process %d", path, os.Getpid()); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("after Close the file holds %q, %v", text, err)
	}
	l, err = flock.Shared(path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	l.Close()
}

func TestNoSuchFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	for name, take := range map[string]func(string) (*flock.Lock, error){
		"shared": flock.Shared, "exclusive": flock.Exclusive,
	} {
		_, err := take(path)
		if !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: error = %v, want one that names the path once", name, err)
		}
	}
}
