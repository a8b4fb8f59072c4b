package ref_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof/internal/flock"
	"leafproof/ref"
)

var someMarker = ref.Marker{Key: "agent/a/b-" + strings.Repeat("a", 32), ArtifactID: "art_" + strings.Repeat("a", 32), Size: 3, MediaType: "text/plain"}

// entries are one of each kind.
func entries() []ref.Entry {
	seq := uint64(1)
	return []ref.Entry{
		{Turn: 1, Role: "user", Parts: []ref.Part{{Value: json.RawMessage(`"hello"`)}}},
		{Turn: 1, Role: "tool", Parts: []ref.Part{
			{Value: json.RawMessage("{\n  \"a\": [1.0, 2]\r\n}"), Tool: "t", CallID: "c\u2028\"é"},
			{Value: json.RawMessage(`{"x":null,"y":null}`), Hidden: true, Slots: []ref.Slot{
				{Field: "x", Marker: &someMarker},
				{Field: "y", Recipe: ref.JSONQuery{Source: ref.Message{Seq: &seq}, Path: "/a~1b", Filter: `{"field":"/a","equals":1}`, Pin: ref.Pin(someMarker.ArtifactID)}},
			}},
		}},
		{Turn: 2, Shows: []ref.Place{{Seq: 2, Part: 1}}, Keys: []ref.Marker{someMarker}},
		{Turn: 2, Fork: 1},
		{Turn: 3, Compact: 2},
	}
}

func openFile(t testing.TB, dir, run string) *ref.File {
	t.Helper()
	f, err := ref.OpenTranscript(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// What was appended is read back the same, from both kinds and from the file.
func TestTranscriptRoundTrip(t *testing.T) {
	dir := t.TempDir()
	f, m := openFile(t, dir, "run"), ref.NewMemory("run")
	for i, e := range entries() {
		for _, tr := range []ref.Transcript{f, m} {
			if seq, err := tr.Append(t.Context(), e); err != nil || seq != uint64(i+1) {
				t.Fatalf("entry %d: %d, %v", i+1, seq, err)
			}
		}
	}
	f.Close()
	again := openFile(t, dir, "run")
	text, err := os.ReadFile(filepath.Join(dir, ref.TranscriptName("run")))
	if err != nil {
		t.Fatal(err)
	}
	read, err := ref.ReadTranscript(bytes.NewReader(text))
	if err != nil || read.Run() != "run" || read.Len() != 5 || again.Len() != 5 {
		t.Fatalf("%q, %d and %d entries, %v", read.Run(), read.Len(), again.Len(), err)
	}
	if n := bytes.Count(text, []byte("\n")); n != 6 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	for i, want := range entries() {
		for _, tr := range []ref.Transcript{m, again, read} {
			got, err := tr.Entry(t.Context(), uint64(i+1))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%T, entry %d: %+v, %v", tr, i+1, got, err)
			}
		}
	}
	for _, seq := range []uint64{0, 6, 1 << 60} {
		if _, err := again.Entry(t.Context(), seq); !errors.Is(err, ref.ErrNotFound) {
			t.Errorf("entry %d: %v", seq, err)
		}
	}
}

// An entry that was handed over is the transcript's own: no later change reaches it.
func TestTranscriptKeepsItsOwn(t *testing.T) {
	m := ref.NewMemory("")
	value := []byte(`{"a":1}`)
	e := ref.Entry{Parts: []ref.Part{{Value: value}}}
	if _, err := m.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	value[5] = '2'
	_, p, err := m.Shown(t.Context(), new(uint64(1)), 0)
	if err != nil || string(p.Value) != `{"a":1}` {
		t.Fatalf("%s, %v", p.Value, err)
	}
	p.Value[5] = '3'
	if _, p, _ = m.Shown(t.Context(), new(uint64(1)), 0); string(p.Value) != `{"a":1}` {
		t.Errorf("%s", p.Value)
	}
}

func TestEntriesThatCannotBe(t *testing.T) {
	part := func(value string, slots ...ref.Slot) ref.Entry {
		return ref.Entry{Parts: []ref.Part{{Value: json.RawMessage(value), Slots: slots}}}
	}
	slot := func(field string) ref.Slot { return ref.Slot{Field: field, Marker: &someMarker} }
	big := someMarker
	big.Size = -1
	m := ref.NewMemory("")
	if _, err := m.Append(t.Context(), ref.Entry{Turn: 5}); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]ref.Entry{
		"no value":                   part(""),
		"no JSON":                    part("{"),
		"two values":                 part("1 2"),
		"a name twice":               part(`{"a":1,"a":2}`),
		"a name twice, deep":         part(`{"a":null,"b":[{"a":1,"\u0061":2}]}`, slot("a")),
		"not UTF-8":                  part("\"\xff\""),
		"a slot at nothing":          part(`{"a":null}`, slot("b")),
		"a slot at a value":          part(`{"a":1}`, slot("a")),
		"a slot inside a slot":       part(`{"a":null}`, slot("a"), slot("a.b")),
		"a slot around a slot":       part(`{"a":{"b":null}}`, slot("a.b"), slot("a")),
		"two slots in one place":     part(`{"a":null}`, slot("a"), slot("a")),
		"a slot of nothing":          part(`null`, ref.Slot{}),
		"a slot of two":              part(`null`, ref.Slot{Marker: &someMarker, Recipe: ref.Blob{Key: "a"}}),
		"a marker without artifact":  part(`null`, ref.Slot{Marker: &ref.Marker{Key: "a"}}),
		"a marker of negative size":  part(`null`, ref.Slot{Marker: &big}),
		"a recipe without a pin":     part(`null`, ref.Slot{Recipe: ref.JSONPointer{Source: ref.Blob{Key: "a"}, Path: ""}}),
		"a recipe without a source":  part(`null`, ref.Slot{Recipe: ref.JSONPointer{Pin: ref.Pin(someMarker.ArtifactID)}}),
		"a recipe of the turn":       part(`null`, ref.Slot{Recipe: ref.Message{}}),
		"an earlier turn":            {Turn: 4},
		"a fork of what is to come":  {Fork: 2},
		"a part shown that is not":   {Shows: []ref.Place{{Seq: 1, Part: 0}}},
		"an entry shown that is not": {Shows: []ref.Place{{Seq: 2, Part: 0}}},
		"a key of nothing":           {Keys: []ref.Marker{{}}},
		"a role that is not text":    {Role: "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			if seq, err := m.Append(t.Context(), e); !errors.Is(err, ref.ErrEntry) || seq != 0 {
				t.Errorf("%d, %v", seq, err)
			}
		})
	}
	if m.Len() != 1 {
		t.Errorf("%d entries", m.Len())
	}
}

// A file that ends in the middle of a line loses that line and nothing else; every
// other damage is refused, and nothing is cut.
func TestTornAndDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, dir, "run")
	var ends []int
	name := filepath.Join(dir, ref.TranscriptName("run"))
	size := func() int {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	ends = append(ends, size())
	for _, e := range entries() {
		if _, err := f.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, size())
	}
	f.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{}
	for cut := 0; cut <= len(whole); cut += 29 {
		cuts = append(cuts, cut)
	}
	for _, end := range ends { // an entry that lacks its line end alone is one that was told
		cuts = append(cuts, end-1, end-2, end)
	}
	for _, cut := range cuts {
		if err := os.WriteFile(name, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ref.OpenTranscript(dir, "run")
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := 0
		for i, end := range ends {
			if end <= cut || i > 0 && end-1 == cut {
				want = i
			}
		}
		if m, err := ref.ReadTranscript(bytes.NewReader(whole[:cut])); cut >= ends[0] && (err != nil || m.Len() != uint64(want)) {
			t.Fatalf("cut at %d, read alone: %v, %v", cut, m, err)
		}
		if f.Len() != uint64(want) {
			t.Fatalf("cut at %d: %d entries, want %d", cut, f.Len(), want)
		}
		seq, err := f.Append(t.Context(), ref.Entry{Turn: 9, Role: "after"})
		if err != nil || seq != uint64(want+1) {
			t.Fatalf("cut at %d: then %d, %v", cut, seq, err)
		}
		f.Close()
		f, err = ref.OpenTranscript(dir, "run")
		if err != nil || f.Len() != uint64(want+1) {
			t.Fatalf("cut at %d, opened again: %v", cut, err)
		}
		f.Close()
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		bad := bytes.Clone(whole)
		i := rng.IntN(len(bad) - 1) // the last byte is the end of a line, which may be missing
		bad[i] ^= byte(1 << rng.IntN(7))
		if bad[i] == 0 || bad[i] == '\n' || whole[i] == '\n' {
			continue
		}
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ref.OpenTranscript(dir, "run"); !errors.Is(err, ref.ErrTranscript) {
			t.Fatalf("byte %d is another: %v", i, err)
		}
		if left, _ := os.ReadFile(name); !bytes.Equal(left, bad) {
			t.Fatal("a damaged file was changed")
		}
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for what, bad := range map[string][]byte{
		"a line less":   bytes.Join([][]byte{lines[0], lines[2], lines[3]}, nil),
		"lines swapped": bytes.Join([][]byte{lines[0], lines[2], lines[1]}, nil),
		"a line twice":  bytes.Join([][]byte{lines[0], lines[1], lines[1]}, nil),
		"another's":     []byte(strings.Replace(string(whole), `"run":"run"`, `"run":"nur"`, 1)),
		"another file":  []byte("hello\n"),
	} {
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ref.OpenTranscript(dir, "run"); !errors.Is(err, ref.ErrTranscript) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A page that was never written, in the middle of the last line.
	torn := bytes.Clone(whole)
	clear(torn[ends[4]+5 : ends[4]+9])
	if err := os.WriteFile(name, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := openFile(t, dir, "run"); f.Len() != 4 {
		t.Errorf("%d entries", f.Len())
	}
}

// Names of runs are data: no folder but the one is written to, and no two share a file.
func TestTranscriptNames(t *testing.T) {
	dir := t.TempDir()
	runs := []string{"", "a", "A", "../a", "a/b", "/etc/passwd", "\x00", "\xff", strings.Repeat("x", 1024), "é"}
	for _, run := range runs {
		f := openFile(t, dir, run)
		if _, err := f.Append(t.Context(), ref.Entry{Role: "user"}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(runs) {
		t.Errorf("%d files, %v", len(files), err)
	}
	if _, err := ref.OpenTranscript(dir, strings.Repeat("x", 1025)); !errors.Is(err, ref.ErrEntry) {
		t.Error(err)
	}
	if _, err := ref.OpenTranscript(dir, "a"); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("a second writer: %v", err)
	}
}

// A process that is killed while it appends loses no entry that it was told of.
func TestKilledWhileAppending(t *testing.T) {
	if dir := os.Getenv("REF_APPEND_IN"); dir != "" {
		f, err := ref.OpenTranscript(dir, "run")
		if err != nil {
			t.Fatal(err)
		}
		for {
			seq, err := f.Append(t.Context(), tool(`"`+strings.Repeat("x", 3000)+`"`))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("seq", seq)
		}
	}
	dir := t.TempDir()
	told := uint64(0)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileAppending$")
		cmd.Env = append(os.Environ(), "REF_APPEND_IN="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(150*time.Millisecond, func() { cmd.Process.Kill() })
		var text bytes.Buffer
		if _, err := text.ReadFrom(out); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		for line := range strings.Lines(text.String()) {
			if n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(line, "seq ")), 10, 64); err == nil && strings.HasSuffix(line, "\n") {
				told = max(told, n)
			}
		}
		f, err := ref.OpenTranscript(dir, "run")
		if err != nil {
			t.Fatal(err)
		}
		if f.Len() < told {
			t.Errorf("%d entries, and it was told of %d", f.Len(), told)
		}
		f.Close()
	}
	if told == 0 {
		t.Error("nothing was appended")
	}
}

// What a model may mean, held against a twin that looks at the whole history each time.
func TestShownAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		m := ref.NewMemory("")
		var all []ref.Entry
		for range 40 {
			e := ref.Entry{Turn: uint64(1 + len(all)/5)}
			for range rng.IntN(3) {
				e.Parts = append(e.Parts, ref.Part{Value: json.RawMessage(strconv.Itoa(len(all))), Hidden: rng.IntN(4) == 0})
			}
			if len(all) > 0 && rng.IntN(6) == 0 {
				e.Fork = uint64(1 + rng.IntN(len(all)))
			}
			if len(all) > 0 && rng.IntN(4) == 0 {
				if s := rng.IntN(len(all)); len(all[s].Parts) > 0 {
					e.Shows = []ref.Place{{Seq: uint64(s + 1), Part: uint64(rng.IntN(len(all[s].Parts)))}}
				}
			}
			if _, err := m.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		twin := shownTwin(all)
		turn := map[uint64][]uint64{}
		for seq := uint64(0); seq < 45; seq++ {
			for part := range uint64(3) {
				at, p, err := m.Shown(t.Context(), &seq, part)
				if want := twin[ref.Place{Seq: seq, Part: part}]; (err == nil) != want || err == nil && (at != seq || string(p.Value) != strconv.Itoa(int(seq-1))) {
					t.Fatalf("seq %d part %d: %d, %s, %v; want %v", seq, part, at, p.Value, err, want)
				}
				if err == nil && all[seq-1].Turn == all[len(all)-1].Turn {
					turn[part] = append(turn[part], seq)
				}
			}
		}
		for part := range uint64(3) {
			at, _, err := m.Shown(t.Context(), nil, part)
			if want := turn[part]; (err == nil) != (len(want) == 1) || err == nil && at != want[0] || err != nil && !errors.Is(err, ref.ErrAmbiguousTurn) {
				t.Fatalf("the turn's part %d: %d, %v; want one of %v", part, at, err, want)
			}
		}
	}
}

// shownTwin walks from the last entry back, over the entry that each one follows.
func shownTwin(all []ref.Entry) map[ref.Place]bool {
	seen := map[uint64]bool{}
	for seq := uint64(len(all)); seq > 0; {
		seen[seq] = true
		if f := all[seq-1].Fork; f > 0 {
			seq = f
		} else {
			seq--
		}
	}
	out := map[ref.Place]bool{}
	for seq := range seen {
		for i, p := range all[seq-1].Parts {
			if !p.Hidden {
				out[ref.Place{Seq: seq, Part: uint64(i)}] = true
			}
		}
	}
	for seq := range seen {
		for _, p := range all[seq-1].Shows {
			if seen[p.Seq] {
				out[p] = true
			}
		}
	}
	return out
}

// Entries that come from many goroutines at once are read while others are flushed.
func TestManyAppend(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, dir, "run")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 10 {
				seq, err := f.Append(t.Context(), tool(`"x"`))
				if err != nil {
					t.Error(err)
				}
				if at, p, err := f.Shown(t.Context(), &seq, 0); err != nil || at != seq || string(p.Value) != `"x"` {
					t.Errorf("%d: %d, %s, %v", seq, at, p.Value, err)
				}
			}
		})
	}
	wait.Wait()
	f.Close()
	if _, err := f.Append(t.Context(), tool(`1`)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if again := openFile(t, dir, "run"); again.Len() != 40 {
		t.Errorf("%d entries", again.Len())
	}
}

// A name that was made to lead elsewhere leads nowhere: what is there is not touched.
func TestTranscriptBehindALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	other := openFile(t, filepath.Join(dir, "in"), "other")
	if _, err := other.Append(t.Context(), ref.Entry{Role: "user"}); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "in", ref.TranscriptName("other"))
	before, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "in", ref.TranscriptName("run"))
	for _, to := range []string{"../outside", outside, "../made", theirs, ref.TranscriptName("other"), "."} {
		if err := os.Symlink(to, name); err != nil {
			t.Skip(err)
		}
		if f, err := ref.OpenTranscript(filepath.Join(dir, "in"), "run"); err == nil {
			t.Errorf("a link to %s was opened", to)
			f.Close()
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(outside); err != nil || len(text) != 0 {
		t.Errorf("outside stands %q, %v", text, err)
	}
	if text, err := os.ReadFile(theirs); err != nil || !bytes.Equal(text, before) {
		t.Errorf("the other run's transcript was changed: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made outside: %v", err)
	}
}
