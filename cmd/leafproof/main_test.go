package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// runAsLeafproof in the environment makes this test binary the program itself.
const runAsLeafproof = "LEAFPROOF_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsLeafproof) != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){
		"leafproof": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScript runs the stories in testdata/script. Each has a store of its own in
// $LEAFPROOF_STORE, which it must init.
func TestScript(t *testing.T) {
	dir, files := "testdata/script", []string(nil)
	if testing.Short() { // under the race detector: those in which several things run at once
		for _, name := range []string{"firstlight", "gc", "mcp", "query", "serve"} {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("LEAFPROOF_STORE", filepath.Join(e.WorkDir, "store"))
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "unshare-n" {
				return exec.Command("unshare", "-n", "true").Run() == nil, nil
			}
			_, err := exec.LookPath(cond)
			return err == nil, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"capture": capture,
			"flip":    flip,
		},
	})
}

// exits CODE CMD… demands an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exitText(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func exitText(code int) string {
	text := ""
	for ; code > 0 || text == ""; code /= 10 {
		text = string(rune('0'+code%10)) + text
	}
	return text
}

// capture VAR keeps the first line of stdout in a variable.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture VAR")
	}
	text := ts.ReadFile("stdout")
	for i, c := range text {
		if c == '\n' {
			text = text[:i]
			break
		}
	}
	ts.Setenv(args[0], text)
}

// flip FILE changes the lowest bit of the file's last byte.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: flip FILE")
	}
	name := ts.MkAbs(args[0])
	b, err := os.ReadFile(name)
	ts.Check(err)
	b[len(b)-1] ^= 1
	ts.Check(os.WriteFile(name, b, 0o600))
}
