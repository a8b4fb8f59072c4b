package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/internal/httpapi"
	"leafproof/internal/refdemo"
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
	if testing.Short() {
		t.Skip("it runs another program")
	}
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

// The status report runs from Python: an export of 2.1 MB, its 148 open items to a tool
// by reference, and of the document nothing but the preview's rows in the model's view.
func TestStatusReportFromPython(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs another program")
	}
	t.Parallel()
	w := newWorld(t, httpapi.Options{})
	doc := refdemo.Export(refdemo.Rows, 1)
	dir := t.TempDir()
	file, given := filepath.Join(dir, "items.json"), filepath.Join(dir, "given.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	out := w.python(nil, filepath.Join("..", "examples", "python", "report.py"), file, given)
	var told struct {
		Seen []struct {
			Tool    string          `json:"tool"`
			Content json.RawMessage `json:"content"`
		} `json:"seen"`
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var all, got struct {
		Title string            `json:"title"`
		Items []json.RawMessage `json:"items"`
		Rows  []json.RawMessage `json:"rows"`
	}
	text, err := os.ReadFile(given)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(doc, &all), json.Unmarshal(text, &got)); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, item := range all.Items {
		if bytes.Contains(item, []byte(`"status":"open"`)) {
			want = append(want, string(item))
		}
	}
	if len(got.Rows) != refdemo.Open || len(want) != refdemo.Open || got.Title != "Status report: 148 open items" {
		t.Fatalf("%d rows reached the tool, %d are open; %q", len(got.Rows), len(want), got.Title)
	}
	for i, row := range got.Rows {
		if string(row) != want[i] {
			t.Fatalf("row %d: %s, want %s", i, row, want[i])
		}
	}
	if len(told.Seen) != 4 || !bytes.Contains(told.Seen[3].Content, []byte("application/pdf")) {
		t.Errorf("the model saw %s", out)
	}
	// Without the answer of query_json, whose preview has rows.
	view := strings.ReplaceAll(out, string(told.Seen[2].Content), "")
	if len(view) == len(out) {
		t.Fatal("the preview is not in the view as it was read")
	}
	for at := 0; at+40 <= len(doc); at += 20 {
		if strings.Contains(view, string(doc[at:at+40])) {
			t.Fatalf("%q is in the model's view", doc[at:at+40])
		}
	}
}
