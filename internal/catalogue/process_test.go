package catalogue_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

// publisherEnv makes the test binary a process that publishes: its value is the
// path of the catalogue.
const publisherEnv = "CATALOGUE_TEST_PUBLISH"

func TestMain(m *testing.M) {
	if path := os.Getenv(publisherEnv); path != "" {
		if err := publisher(path, os.Args[1]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// space is how many artifacts the publishers choose from: few enough that they
// meet.
const space = 2000

// rivals are the names of publishers that choose from a tenth of it, so that
// they meet often also on a slow machine.
var rivals = []string{"a", "b"}

// alone is the name of a publisher whose changes do not overlap.
const alone = "alone"

// careless is the name of one that is alone and syncs no commit.
const careless = "careless"

// publisher publishes artifacts at random as the process of that name until
// standard input ends, four at once ([alone]: one after another). It prints the
// number of each one that stands as its own, and the negative number of each
// that another process has.
func publisher(path, name string) error {
	c, err := catalogue.OpenSQLite(path)
	if err != nil {
		return err
	}
	if name == careless {
		if err := c.SyncOff(context.Background()); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	workers, choice := 4, space
	switch {
	case name == alone, name == careless:
		workers = 1
	case slices.Contains(rivals, name):
		choice = space / 10
	}
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for errs[worker] == nil {
				n := 1 + rand.IntN(choice)
				select {
				case <-stop:
					return
				default:
				}
				a := artifact(n)
				a.ManifestID += "_" + name
				switch err := c.Publish(context.Background(), a); {
				case err == nil:
					fmt.Println(n)
				case errors.Is(err, catalogue.ErrExists):
					fmt.Println(-n)
				default:
					errs[worker] = err
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, c.Close())...)
}

// process is a publisher that runs.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

func start(t *testing.T, path, name string, wrap ...string) *process {
	t.Helper()
	args := append(wrap, os.Args[0], name)
	p := &process{cmd: exec.CommandContext(t.Context(), args[0], args[1:]...)}
	p.cmd.Env = append(os.Environ(), publisherEnv+"="+path)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.lines = stdin, bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if p.lines.Scan(); p.lines.Text() != "ready" {
		t.Fatalf("the publisher said %q", p.lines.Text())
	}
	return p
}

// collect adds what the process tells to the map, as name by number, until the
// process ends. It counts what the process heard that another one has.
func (p *process) collect(mu *sync.Mutex, printed map[int]string, name string) (lost int, failure string) {
	for p.lines.Scan() {
		var n int
		if _, err := fmt.Sscanf(p.lines.Text(), "%d", &n); err != nil {
			failure = p.lines.Text()
			continue
		}
		if n < 0 {
			lost++
			continue
		}
		mu.Lock()
		if other, ok := printed[n]; ok && other != name {
			failure = fmt.Sprintf("%s and %s both printed %d", other, name, n)
		}
		printed[n] = name
		mu.Unlock()
	}
	return lost, failure
}

// TestTwoProcesses: two processes publish the same ids with manifests of their
// own. Each id is told to one of them, and it is its manifest that stands.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		printed = map[int]string{}
	)
	for _, name := range rivals {
		p := start(t, path, name)
		wg.Go(func() {
			lost, failure := p.collect(&mu, printed, name)
			if failure != "" || lost == 0 { // how often depends on what else the machine does
				t.Errorf("%s lost %d times, %s", name, lost, failure)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Error(name, err)
			}
		})
		time.AfterFunc(time.Second, func() { p.stdin.Close() })
	}
	wg.Wait()
	won := map[string]int{}
	for n, name := range printed {
		won[name]++
		a, err := c.Artifact(t.Context(), artifact(n).ArtifactID)
		if want := artifact(n).ManifestID + "_" + name; err != nil || a.ManifestID != want {
			t.Errorf("%d: %s stands, %v, but %s was told", n, a.ManifestID, err, want)
		}
	}
	list, err := c.List(t.Context(), "local", 0, catalogue.MaxList)
	if err != nil || len(list) != len(printed) {
		t.Errorf("%d artifacts stand, %v, %d were told", len(list), err, len(printed))
	}
	t.Logf("won: %v", won)
	if won["a"] == 0 || won["b"] == 0 {
		t.Errorf("one process never won: %v", won)
	}
}

// TestKill: a process that is killed at any moment leaves a catalogue that
// opens and has everything it told; what it did not tell is whole or absent.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	if c, err := catalogue.CreateSQLite(path); err != nil {
		t.Fatal(err)
	} else if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	printed := map[int]string{}
	var mu sync.Mutex
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		name := fmt.Sprintf("p%d", round)
		p := start(t, path, name)
		kill := time.AfterFunc(time.Duration(rng.IntN(100_000))*time.Microsecond, func() { _ = p.cmd.Process.Kill() })
		if _, failure := p.collect(&mu, printed, name); failure != "" {
			t.Error(failure)
		}
		_ = p.cmd.Wait() // it was killed
		kill.Stop()

		c, err := catalogue.OpenSQLite(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for n, name := range printed {
			a, err := c.Artifact(t.Context(), artifact(n).ArtifactID)
			want := artifact(n)
			want.ManifestID, want.Seq = want.ManifestID+"_"+name, a.Seq
			if err != nil || text(a) != text(want) {
				t.Fatalf("round %d: %d was told, but %v, %s", round, n, err, text(a))
			}
		}
		list, err := c.List(t.Context(), "local", 0, catalogue.MaxList)
		if err != nil || len(list) < len(printed) || len(list) > len(printed)+4*(round+1) {
			t.Errorf("round %d: %d stand, %v, %d were told", round, len(list), err, len(printed))
		}
		if err := c.Close(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	if len(printed) < rounds {
		t.Errorf("only %d were published in %d rounds: this shows nothing", len(printed), rounds)
	}
	t.Logf("%d told in %d rounds", len(printed), rounds)
}

func needStrace(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("strace is a tool of Linux")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := exec.CommandContext(t.Context(), "strace", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace cannot trace here: %s", out)
	}
}

// TestSyncsBeforeTelling: between the write of a commit to the -wal file and
// the line that tells it stands a sync of that file, and before the first line
// one of the folder that the file was made in.
func TestSyncsBeforeTelling(t *testing.T) {
	needStrace(t)
	t.Run("as it is", func(t *testing.T) {
		if told, early := tellings(t, alone); told < 5 || early > 0 {
			t.Errorf("of %d that were told, %d were without a sync of the file or of the folder", told, early)
		}
	})
	t.Run("synchronous=OFF", func(t *testing.T) { // or the one above shows nothing
		if told, early := tellings(t, careless); told < 5 || early < told {
			t.Errorf("of %d that were told, only %d were seen to lack a sync", told, early)
		}
	})
}

// tellings traces a publisher and counts what it told, and what it told too
// early.
func tellings(t *testing.T, name string) (told, early int) {
	dir := t.TempDir()
	path := filepath.Join(dir, "catalogue")
	if c, err := catalogue.CreateSQLite(path); err != nil {
		t.Fatal(err)
	} else if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	p := start(t, path, name, "strace", "-f", "-y", "-o", trace, "-e", "trace=pwrite64,write,fsync,fdatasync")
	for range 5 {
		if !p.lines.Scan() {
			t.Fatal("the publisher ended early")
		}
	}
	p.stdin.Close()
	for p.lines.Scan() {
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var (
		wal      = regexp.QuoteMeta(path + "-wal")
		written  = regexp.MustCompile(`pwrite64\(\d+<` + wal + `>`)
		synced   = regexp.MustCompile(`f(data)?sync\(\d+<` + wal + `>`)
		dirSync  = regexp.MustCompile(`f(data)?sync\(\d+<` + regexp.QuoteMeta(dir) + `>`)
		line     = regexp.MustCompile(`write\(1<.*"\d+\\n"`)
		dirty    = true
		dirDirty = true
	)
	for entry := range bytes.Lines(text) {
		switch {
		case written.Match(entry):
			dirty = true
		case synced.Match(entry):
			dirty = false
		case dirSync.Match(entry):
			dirDirty = false
		case line.Match(entry):
			told++
			if dirty || dirDirty {
				early++
			}
		}
	}
	return told, early
}

// TestWriteFails: a disk that is full or that fails is an error of the call; it
// tells nothing that does not stand, and the catalogue opens again.
func TestWriteFails(t *testing.T) {
	needStrace(t)
	for name, test := range map[string]struct{ inject, says string }{
		"full disk":            {"pwrite64:error=ENOSPC:when=8+", "no space left"},
		"sync that fails":      {"fdatasync,fsync:error=EIO:when=4+", "I/O error"},
		"sync that fails once": {"fdatasync,fsync:error=EIO:when=4", "I/O error"},
		"write that fails":     {"pwrite64:error=EIO:when=9+", "I/O error"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "catalogue")
			if c, err := catalogue.CreateSQLite(path); err != nil {
				t.Fatal(err)
			} else if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			p := start(t, path, "faulty", "strace", "-f", "-P", path+"-wal", "-o", os.DevNull, "-e", "inject="+test.inject)
			time.AfterFunc(time.Second, func() { p.stdin.Close() })
			printed := map[int]string{}
			_, failure := p.collect(new(sync.Mutex), printed, "faulty")
			_ = p.cmd.Wait()
			if !strings.Contains(failure, test.says) {
				t.Errorf("it said %q, want %q", failure, test.says)
			}
			c, err := catalogue.OpenSQLite(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for n := range printed {
				if _, err := c.Artifact(t.Context(), artifact(n).ArtifactID); err != nil {
					t.Errorf("%d was told, but %v", n, err)
				}
			}
			// After a sync that failed once the next one would claim success:
			// this process must not commit again.
			if len(printed) > 40 {
				t.Errorf("%d were told: it went on after the failure", len(printed))
			}
			t.Logf("%d told, then %s", len(printed), failure)
		})
	}
}
