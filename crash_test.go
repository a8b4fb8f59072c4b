package leafproof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"leafproof"
	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// catalogueFiles are the catalogue's file and SQLite's log of changes beside it, read at
// one moment.
type catalogueFiles struct{ db, wal []byte }

// write puts them into a new folder, of a machine that has come up again.
func (c catalogueFiles) write(t testing.TB) (dir string) {
	t.Helper()
	at := "" // nothing there is cut a second time, so that it need not be on a disk
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		at = "/dev/shm"
	}
	dir, err := os.MkdirTemp(at, "leafproof-crash-")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "catalogue.db")
	if err := errors.Join(os.WriteFile(name, c.db, 0o600), os.WriteFile(name+"-wal", c.wal, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readCatalogue(t testing.TB, name string) (c catalogueFiles) {
	t.Helper()
	var err error
	if c.db, err = os.ReadFile(name); err != nil {
		t.Error(err)
	}
	if c.wal, err = os.ReadFile(name + "-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	return c
}

// crashHistory publishes and deletes on a store whose objects can lose power and
// whose catalogue is a real file, and keeps what it was told.
type crashHistory struct {
	t       *testing.T
	dir     string // of the keys, the leases and the catalogue
	name    string // of the catalogue
	objects *crashfs.FS
	s       *leafproof.Store

	mu    sync.Mutex
	told  map[string][]byte // the artifacts that were told, nil once their end was told
	ended string            // the artifact that the history deletes in the end

	quiet    bool // cut nothing yet
	sweeps   bool // sweep what a crash left
	swept    leafproof.GCReport
	last     moment
	every    int // of so many moments one is looked at
	step     int // bytes between the cuts of a commit's log
	moments  int
	states   int
	problems []string
}

func newCrashHistory(t *testing.T) *crashHistory {
	h := &crashHistory{t: t, dir: filepath.Join(t.TempDir(), "store"), objects: crashfs.New(), told: map[string][]byte{}, every: 1, step: 1500}
	if err := leafproof.Init(t.Context(), h.dir); err != nil {
		t.Fatal(err)
	}
	h.name = filepath.Join(h.dir, "catalogue.db")
	h.open(disk.New(h.objects))
	return h
}

// open opens the store that the history is of, on a backend over its objects.
func (h *crashHistory) open(b cas.Backend) {
	h.t.Helper()
	s, err := leafproof.OpenOn(h.t.Context(), h.dir, h.dir, b)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { s.Close() })
	h.s = s
}

// sample makes the history look at one of so many moments, and cut commits at
// steps of so many bytes, unless LEAFPROOF_EVERY_OPERATION is set.
func (h *crashHistory) sample(every, step int) {
	switch {
	case os.Getenv("LEAFPROOF_EVERY_OPERATION") != "":
	case testing.Short():
		h.every, h.step = 100, 60_000
	default:
		h.every, h.step = every, step
	}
}

// look is called after each operation on the objects: it takes what a crash may
// leave of them, and the catalogue's files as they are.
func (h *crashHistory) look(o crashfs.Operation) {
	if o.Op&(crashfs.Mutations|crashfs.Flushes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moments++
	if len(h.problems) > 0 {
		return
	}
	when := fmt.Sprintf("after %d, %v of %s", o.Number, o.Op, o.Name)
	if h.moments%h.every == 0 {
		c := readCatalogue(h.t, h.name)
		h.cutSince(c, "before the one "+when)
		h.cut(c, when)
	}
	h.last = moment{}
	if h.sweeps && (h.moments+1)%h.every == 0 { // the next one is looked at
		h.last = moment{h.objects.Fork(), readCatalogue(h.t, h.name)}
	}
}

// moment is what there was after an operation on the objects.
type moment struct {
	objects *crashfs.FS
	c       catalogueFiles
}

// cutSince cuts the commits of the catalogue since the operation before, which no
// call of the history's made: those of a sweep.
func (h *crashHistory) cutSince(c catalogueFiles, when string) {
	last := h.last
	if last.objects == nil || !bytes.Equal(last.c.db, c.db) || !bytes.HasPrefix(c.wal, last.c.wal) {
		return
	}
	h.cutLog(last.objects, last.c, c, when)
}

// cut checks what crashes leave of the objects beside this catalogue.
func (h *crashHistory) cut(c catalogueFiles, when string) {
	for seed := range uint64(4) {
		kept := []crashfs.Kept{crashfs.Nothing, crashfs.Everything, crashfs.Some, crashfs.Some}[seed]
		h.check(h.objects.Crash(kept, seed), c, fmt.Sprintf("%s, kept %v, seed %d", when, kept, seed))
	}
}

// check opens a store on what a crash left: all that was told is there, all that
// is visible is whole, and one more artifact can be published, which then
// survives a crash as well.
func (h *crashHistory) check(objects *crashfs.FS, c catalogueFiles, when string) {
	h.states++
	fail := func(format string, args ...any) {
		h.problems = append(h.problems, when+": "+fmt.Sprintf(format, args...))
	}
	dir := c.write(h.t)
	defer os.RemoveAll(dir)
	s, err := leafproof.OpenOn(context.Background(), h.dir, dir, disk.New(objects))
	if err != nil {
		fail("it does not open: %v", err)
		return
	}
	defer s.Close()
	if err := checkVisible(s, h.told); err != nil {
		fail("%v", err)
		return
	}
	if err := checkEnded(s, h.ended); err != nil {
		fail("%v", err)
		return
	}
	if h.sweeps {
		if err := h.sweepLeft(s); err != nil {
			fail("then a gc: %v", err)
			return
		}
	}
	if h.states%5 != 0 {
		return
	}
	id, err := publishOn(s, sampleRecords("after the crash", 20), leafproof.PutOptions{Records: "ndjson"})
	if err != nil {
		fail("then a publish: %v", err)
		return
	}
	h.states++
	told := maps.Clone(h.told)
	told[id] = sampleRecords("after the crash", 20)
	again := readCatalogue(h.t, filepath.Join(dir, "catalogue.db")).write(h.t)
	defer os.RemoveAll(again)
	next, err := leafproof.OpenOn(context.Background(), h.dir, again, disk.New(objects.Crash(crashfs.Nothing, 0)))
	if err != nil {
		fail("then a publish and a crash: %v", err)
		return
	}
	defer next.Close()
	if err := checkVisible(next, told); err != nil {
		fail("then a publish and a crash: %v", err)
	}
}

// checkEnded looks for the tombstone of an artifact that is deleted, in the
// catalogue and among the objects.
func checkEnded(s *leafproof.Store, id string) error {
	ctx := context.Background()
	if id == "" {
		return nil
	}
	if _, err := s.Resolve(ctx, leafproof.Owner, id); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
		return nil
	}
	if st, err := s.Tombstone(ctx, leafproof.Owner, id); err != nil || st == nil {
		return fmt.Errorf("%s is deleted and has no tombstone: %v", id, err)
	}
	r, err := s.Check(ctx, leafproof.CheckOptions{})
	if err != nil {
		return err
	}
	for _, f := range r.Findings {
		if f.Fault == "lost" {
			return fmt.Errorf("%s is deleted, and %s", id, f.Detail)
		}
	}
	return nil
}

// checkVisible reads all that is visible, and looks for all that was told.
func checkVisible(s *leafproof.Store, told map[string][]byte) error {
	ctx := context.Background()
	list, _, err := s.List(ctx, leafproof.Owner, "", 0, 1000)
	if err != nil {
		return err
	}
	visible := map[string]bool{}
	for _, e := range list {
		id := e.ArtifactID
		visible[id] = true
		st, err := s.Resolve(ctx, leafproof.Owner, id)
		if err != nil {
			return fmt.Errorf("%s is visible and does not resolve: %w", id, err)
		}
		var out bytes.Buffer
		if _, err := s.Read(ctx, leafproof.Owner, id, leafproof.Selector{}, &out); err != nil {
			return fmt.Errorf("%s is visible and cannot be read: %w", id, err)
		}
		if merkle.Sum(out.Bytes()) != st.Manifest.Root || int64(out.Len()) != st.Manifest.Size {
			return fmt.Errorf("%s gives other bytes", id)
		}
		if want := told[id]; want != nil && !bytes.Equal(out.Bytes(), want) {
			return fmt.Errorf("%s gives other bytes than were put", id)
		}
		r := st.Manifest.Predicate.Records
		if r == nil {
			continue
		}
		out.Reset()
		all := leafproof.Selector{Records: &merkle.Range{Start: 0, End: r.Count}}
		if _, err := s.Read(ctx, leafproof.Owner, id, all, &out); err != nil {
			return fmt.Errorf("the records of %s cannot be read: %w", id, err)
		}
		if n := int64(bytes.Count(out.Bytes(), []byte("\n"))); n != r.Count {
			return fmt.Errorf("%s has %d records, and says %d", id, n, r.Count)
		}
	}
	for id, data := range told {
		if visible[id] != (data != nil) {
			return fmt.Errorf("%s: visible %t; told that it is there: %t", id, visible[id], data != nil)
		}
	}
	return nil
}

// sampleRecords are n records.
func sampleRecords(title string, n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"title":%q,"n":%d,"text":%q}`+"\n", title, i, strings.Repeat("x", i%50))
	}
	return b.Bytes()
}

func publishOn(s *leafproof.Store, data []byte, o leafproof.PutOptions) (string, error) {
	d, err := s.Put(context.Background(), bytes.NewReader(data), o)
	if err != nil {
		return "", err
	}
	ref, err := s.Publish(context.Background(), d, leafproof.Facts{})
	return ref.ArtifactID, err
}

// publish publishes, and cuts the catalogue's commit as well.
func (h *crashHistory) publish(data []byte, o leafproof.PutOptions) string {
	h.t.Helper()
	d, err := h.s.Put(context.Background(), bytes.NewReader(data), o)
	if err != nil {
		h.t.Fatal(err)
	}
	before := readCatalogue(h.t, h.name)
	ref, err := h.s.Publish(context.Background(), d, leafproof.Facts{})
	if err != nil {
		h.t.Fatal(err)
	}
	after := readCatalogue(h.t, h.name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = moment{} // this commit was told, and nothing before it counts any more
	if h.quiet {
		h.told[ref.ArtifactID] = data
		return ref.ArtifactID
	}
	h.cutCommit(before, after, "within the commit of the catalogue")
	h.told[ref.ArtifactID] = data
	h.cut(after, "after the commit")
	return ref.ArtifactID
}

// cutCommit makes the states between two of the catalogue: its log of changes
// grew, and its end was on the disk in part, or as zeros.
func (h *crashHistory) cutCommit(before, after catalogueFiles, when string) {
	if !bytes.Equal(before.db, after.db) || !bytes.HasPrefix(after.wal, before.wal) {
		h.t.Errorf("the commit did more than to append %d to %d bytes of log", len(after.wal), len(before.wal))
		return
	}
	h.cutLog(h.objects, before, after, when)
}

// cutLog is cutCommit with what the objects were meanwhile.
func (h *crashHistory) cutLog(objects *crashfs.FS, before, after catalogueFiles, when string) {
	for end := len(before.wal); end <= len(after.wal); end += h.step {
		if len(h.problems) > 0 {
			return
		}
		c := catalogueFiles{after.db, bytes.Clone(after.wal[:end])}
		h.check(objects.Crash(crashfs.Nothing, 0), c, fmt.Sprintf("%s, cut at %d", when, end))
		c.wal = append(c.wal, make([]byte, len(after.wal)-end)...)
		h.check(objects.Crash(crashfs.Some, uint64(end)), c, fmt.Sprintf("%s, zeros from %d", when, end))
	}
}

// run is the history: each kind of artifact, the same bytes again, and an end.
func (h *crashHistory) run() {
	h.objects.Observe(h.look)
	defer h.objects.Observe(nil)
	h.publish([]byte("a few bytes"), leafproof.PutOptions{})
	small := sampleRecords("small", 10)
	first := h.publish(small, leafproof.PutOptions{})
	h.publish(sampleRecords("whole", 500), leafproof.PutOptions{}) // an object of its own, and a map in the pack
	h.publish(random(70_000, 3), leafproof.PutOptions{Place: "whole"})
	h.publish(sampleRecords("grouped", 1000), leafproof.PutOptions{Place: "whole", Durability: cas.Grouped})
	h.publish(small, leafproof.PutOptions{})
	if len(h.problems) > 0 {
		return
	}
	h.ended = first
	before := readCatalogue(h.t, h.name)
	if err := h.s.Delete(context.Background(), leafproof.Owner, first, "no longer needed"); err != nil {
		h.t.Fatal(err)
	}
	after := readCatalogue(h.t, h.name)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.told, first) // there or not
	h.cutCommit(before, after, "within the commit of a delete")
	h.told[first] = nil
	h.cut(after, "after a delete")
}

// TestCrashPublish cuts a store with the real catalogue after operations on its
// objects, with LEAFPROOF_EVERY_OPERATION all of them, and within each commit.
func TestCrashPublish(t *testing.T) {
	needFlushes(t)
	h := newCrashHistory(t)
	h.sample(3, 4_000)
	h.run()
	for _, p := range h.problems {
		t.Error(p)
	}
	t.Logf("%d states at %d operations", h.states, h.moments)
	if h.moments < 100 {
		t.Errorf("only %d operations: this shows nothing", h.moments)
	}
}

// TestCrashPublishSabotaged: objects that are not flushed, or a catalogue that
// loses the end of its log after a commit, are caught.
func TestCrashPublishSabotaged(t *testing.T) {
	needFlushes(t)
	if testing.Short() {
		t.Skip("it is about the full run of the test above")
	}
	for name, sabotage := range map[string]crashfs.Sabotage{
		"files": {FileSync: true}, "directories": {DirSync: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCrashHistory(t)
			h.objects.Sabotage(sabotage)
			h.run()
			if len(h.problems) == 0 {
				t.Errorf("%d states, and none shows that nothing was flushed", h.states)
			} else {
				t.Logf("after %d states: %.200s", h.states, h.problems[0])
			}
		})
	}
	// What synchronous=OFF would leave. That the real catalogue does sync is
	// what package catalogue's tests trace.
	t.Run("the catalogue's log", func(t *testing.T) {
		h := newCrashHistory(t)
		h.publish([]byte("a few bytes"), leafproof.PutOptions{})
		before := readCatalogue(t, h.name)
		h.publish([]byte("others"), leafproof.PutOptions{})
		if len(h.problems) > 0 {
			t.Fatal(h.problems)
		}
		h.cut(before, "after a commit whose end is lost")
		if len(h.problems) == 0 {
			t.Error("no state shows that the end of the log was lost")
		}
	})
}

// needFlushes skips where directories cannot be flushed.
func needFlushes(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a directory cannot be flushed here")
	}
}
