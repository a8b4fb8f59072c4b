package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the shell blocks of README.md as they stand, one after another, as
// somebody who copies them would.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector finds nothing new in it")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh here")
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -eu\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) < 2 {
		t.Fatalf("README.md has %d blocks of sh, want those of a first minute and of grants", len(blocks))
	}
	for _, block := range blocks {
		script += string(block[1])
	}

	home, bin := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"leafproof":        `exec "` + self + `" "$@"`,
		"leafproof-verify": `exec "` + self + `" verify "$@"`,
		"go":               `test "$*" = "install ./cmd/..."`, // both programs are there already
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), sh, "-c", script)
	cmd.Dir = home
	cmd.Env = []string{
		runAsLeafproof + "=1", "HOME=" + home,
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`{"seq":107,"severity":"critical"}`, "Exactly 9 records matched", "selector        proven"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nowhere is %q in\n%s", want, out)
		}
	}
}
