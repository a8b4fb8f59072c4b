package client_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"leafproof/internal/httpapi"
	"leafproof/internal/refdemo"
)

// The harness in examples/go/report is built, and runs against a server.
func TestExampleGo(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs another program")
	}
	t.Parallel()
	w := newWorld(t, httpapi.Options{})
	dir := t.TempDir()
	program, items, report := filepath.Join(dir, "report"), filepath.Join(dir, "items.json"), filepath.Join(dir, "report.json")
	if err := os.WriteFile(items, refdemo.Export(refdemo.Rows, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "leafproof/examples/go/report").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, items, report)
	cmd.Env = append(os.Environ(), "LEAFPROOF_URL="+w.server.URL, "LEAFPROOF_TOKEN="+w.alice)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Title string
		Rows  []json.RawMessage
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Rows) != refdemo.Open || got.Title != "Status report: 148 open items" {
		t.Errorf("%q with %d rows, %v", got.Title, len(got.Rows), err)
	}
}
