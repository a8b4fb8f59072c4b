package leafproof_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"leafproof"
)

// rescueScript is the shell blocks of docs/RESCUE.md, one after the other.
func rescueScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("docs/RESCUE.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindAllSubmatch(text, -1) {
		script.Write(m[1])
	}
	return script.String()
}

// The commands of docs/RESCUE.md, as written, bring back every artifact of a
// store that a program no longer opens, but for those whose bytes are gone.
func TestRescue(t *testing.T) {
	for _, tool := range []string{"sh", "find", "b3sum", "jq", "sqlite3", "python3", "zstd", "ssh-keygen", "base64"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	script := rescueScript(t)
	base, want := checked(t)
	for name, test := range map[string]struct {
		harm func(t *testing.T, dir string)
		lost int
		says string
	}{
		"sound": {func(*testing.T, string) {}, 0, ""},
		"no catalogue, no leafproof.json": {func(t *testing.T, dir string) {
			for _, file := range []string{"catalogue.db", "leafproof.json"} {
				if err := os.Remove(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
		}, 0, ""},
		"damaged catalogue, index and outboards": {func(t *testing.T, dir string) {
			damage(t, filepath.Join(dir, "catalogue.db"), func(p []byte) []byte { clear(p[4096:]); return p })
			for _, kind := range []string{"index", "obao"} {
				for _, file := range objectFiles(t, dir)[kind] {
					damage(t, file, func([]byte) []byte { return nil })
				}
			}
		}, 0, ""},
		"packs without their ends": {func(t *testing.T, dir string) {
			for _, file := range objectFiles(t, dir)["pack"] {
				damage(t, file, func(p []byte) []byte { return p[:len(p)-40] })
			}
		}, 0, ""},
		"a damaged blob": {func(t *testing.T, dir string) {
			damage(t, objectFiles(t, dir)["blob"][0], func(p []byte) []byte { p[99] ^= 1; return p })
		}, 1, "damaged: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			dir := copyDir(t, base)
			test.harm(t, dir)
			out := filepath.Join(t.TempDir(), "rescued")
			cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script)
			cmd.Env = append(os.Environ(), "STORE="+dir, "OUT="+out)
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if !strings.Contains(string(said), test.says) || strings.Contains(string(said), "not genuine") {
				t.Errorf("it says:\n%s", said)
			}
			if test.lost == 0 && strings.Contains(string(said), "damaged: ") {
				t.Errorf("it says:\n%s", said)
			}
			if name == "sound" { // the same, under a key that signed nothing of it
				_, other := newStore(t)
				cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script)
				cmd.Env = append(os.Environ(), "STORE="+dir, "OUT="+out+"2", "KEY="+leafproof.PublicKeyPath(other))
				if said, err := cmd.CombinedOutput(); err != nil || strings.Count(string(said), "not genuine") != len(want) {
					t.Errorf("with another key it says, %v:\n%s", err, said)
				}
			}
			got := 0
			for id, data := range want {
				text, err := os.ReadFile(filepath.Join(out, "artifacts", id))
				switch {
				case err == nil && bytes.Equal(text, data):
					got++
				case err == nil:
					t.Errorf("%s came back with other bytes", id)
				}
			}
			if got != len(want)-test.lost {
				t.Errorf("%d of %d artifacts came back:\n%s", got, len(want), said)
			}
		})
	}
}
