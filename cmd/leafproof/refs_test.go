package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/refdemo"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// A transcript's references are alive, until what they lead to ends: the exit code is
// that of the worst.
func TestRefsCheck(t *testing.T) {
	store, dir := filepath.Join(t.TempDir(), "store"), t.TempDir()
	if err := leafproof.Init(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	transcript, err := ref.OpenTranscript(dir, "run-7")
	if err != nil {
		t.Fatal(err)
	}
	h, err := harness.New(harness.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	run, err := h.Begin(t.Context(), harness.RunOptions{Agent: "a", Run: "run-7", Caller: leafproof.Owner, Transcript: transcript})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, text := range []string{`[{"a":1}]`, `[{"a":2}]`} {
		views, err := run.Record(t.Context(), harness.Result{Tool: "export", Value: map[string]any{"file": harness.Blob{Reader: strings.NewReader(text), MediaType: "application/json"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Call(t.Context(), harness.Call{Tool: "read_json", Input: json.RawMessage(`{"source":` + string(ref.Append(nil, ref.Message{Seq: &views[0].Seq, Field: "file"})) + `}`)}); err != nil {
			t.Fatal(err)
		}
		list, _, err := s.List(t.Context(), leafproof.Owner, "", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, list[len(list)-1].ArtifactID)
	}
	if err := transcript.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, ref.TranscriptName("run-7"))
	check := func(want int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		code := run2(t, append([]string{"--store", store, "refs", "check", name}, args...), &out, &errOut)
		if code != want {
			t.Fatalf("exit %d, want %d: %s%s", code, want, &out, &errOut)
		}
		return out.String()
	}
	if out := check(exitOK); strings.Count(out, " alive ") != 4 || strings.Count(out, "\n") != 4 || !strings.Contains(out, ids[1]) {
		t.Errorf("%s", out)
	}
	if err := s.Delete(t.Context(), leafproof.Owner, ids[1], "over"); err != nil {
		t.Fatal(err)
	}
	if out := check(exitNotFound); strings.Count(out, " alive ") != 2 || strings.Count(out, "  deleted  ") != 2 {
		t.Errorf("%s", out)
	}
	var list []harness.Checked
	if err := json.Unmarshal([]byte(check(exitNotFound, "--json")), &list); err != nil || len(list) != 4 || list[3].State != harness.Deleted || list[3].Field != "value" {
		t.Errorf("%+v, %v", list, err)
	}
	check(exitNotFound, "--as", "mallory")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	check(exitMismatch)
	name = filepath.Join(dir, "none")
	check(exitFailed)
}

func run2(t *testing.T, args []string, out, errOut *bytes.Buffer) int {
	t.Helper()
	return run(t.Context(), args, strings.NewReader(""), out, errOut)
}

// The demo's figures are those of the story, and of other seeds.
func TestDemoRefs(t *testing.T) {
	for _, args := range [][]string{{}, {"--rows", "300", "--seed", "9"}} {
		var out, errOut bytes.Buffer
		if code := run2(t, append([]string{"demo", "refs", "--json"}, args...), &out, &errOut); code != 0 {
			t.Fatalf("exit %d: %s", code, &errOut)
		}
		var s refsSums
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if want := map[int]int{0: refdemo.Open, 4: 5}[len(args)]; s.Matched != want || !s.Exact {
			t.Errorf("%+v, want %d rows", s, want)
		}
		if len(s.References) != 2 || s.ResultBytes > 8000 || s.ViewBytes > 25_000 || s.Previewed > s.Matched || s.Wrote > 600 {
			t.Errorf("%+v", s)
		}
	}
	var out, errOut bytes.Buffer
	if code := run2(t, []string{"demo", "refs", "--rows", "300"}, &out, &errOut); code != 0 || !strings.Contains(out.String(), "The tool receives 5 rows") {
		t.Errorf("exit %d: %s%s", code, &out, &errOut)
	}
	if code := run2(t, []string{"demo", "refs", "--rows", "0"}, &out, &errOut); code != exitUsage {
		t.Errorf("exit %d", code)
	}
}
