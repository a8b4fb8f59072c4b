package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/internal/httpapi"
)

// python runs a Python program with the client in its path, and returns what it printed.
func (w *world) python(env []string, args ...string) string {
	w.t.Helper()
	name, err := exec.LookPath("python3")
	if err != nil {
		w.t.Skip("there is no python3")
	}
	dir, err := filepath.Abs("python")
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1", "LEAFPROOF_URL="+w.server.URL, "LEAFPROOF_TOKEN="+w.alice, "LEAFPROOF_READER="+w.bob)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// The Python client against an honest server, and against one that lies.
func TestPython(t *testing.T) {
	t.Parallel()
	w := newWorld(t, httpapi.Options{})
	key, err := os.ReadFile(filepath.Join(w.dir, "keys", "manifest.pub"))
	if err != nil {
		t.Fatal(err)
	}
	out := w.python([]string{"LEAFPROOF_KEY=" + strings.TrimSpace(string(key))}, filepath.Join("python", "test_leafproof.py"))
	if !strings.Contains(out, "OK") {
		t.Error(out)
	}
}
