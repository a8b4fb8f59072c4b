package leafproof_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leafproof"
)

func gc(t testing.TB, s *leafproof.Store) *leafproof.GCReport {
	t.Helper()
	r, err := s.GC(t.Context(), leafproof.GCOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Kept {
		t.Errorf("kept: %s", k)
	}
	return r
}

// stored is the number of bytes in objects, those of index files not counted.
func stored(t testing.TB, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/index/") {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nothingLeft demands that no artifact and no blob is left, but for the statements
// that artifacts were deleted.
func nothingLeft(t testing.TB, dir string) {
	t.Helper()
	if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Artifacts != 0 || r.Unreferenced != 0 || r.Damaged() {
		t.Errorf("what is left: %+v", r)
	}
}

// lines is NDJSON of about n bytes, which has a record map and goes into chunks.
func lines(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "{\"n\":%d,\"text\":\"%x\"}\n", r.Uint64(), r.Uint64())
	}
	return b.Bytes()
}

func TestGC(t *testing.T) {
	s, dir := newStore(t)
	shared := lines(300_000, 1)
	keep := put(t, s, shared, leafproof.PutOptions{}, leafproof.Facts{})
	twin := put(t, s, shared, leafproof.PutOptions{}, leafproof.Facts{})
	other := put(t, s, shared, leafproof.PutOptions{Tenant: "another"}, leafproof.Facts{})
	base := stored(t, dir)

	bigData, smallData := random(1<<20, 7), random(100, 8)
	ids := []string{
		put(t, s, bigData, leafproof.PutOptions{Records: "none"}, leafproof.Facts{}),
		put(t, s, smallData, leafproof.PutOptions{Records: "none"}, leafproof.Facts{}),
		put(t, s, lines(500_000, 2), leafproof.PutOptions{}, leafproof.Facts{}),
		put(t, s, random(200_000, 9), leafproof.PutOptions{Records: "none"}, leafproof.Facts{ExpiresAt: time.Now().Add(time.Second)}),
	}
	d, err := s.Put(t.Context(), bytes.NewReader(random(100_000, 10)), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := gc(t, s); r.Deleted != 0 {
		t.Errorf("with everything alive: %+v", r)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	for _, id := range append(ids[:3:3], twin) {
		if err := s.Delete(t.Context(), leafproof.Owner, id, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // the last one expires
	before := stored(t, dir)
	r := gc(t, s)
	after := stored(t, dir)
	// After the sweep a statement is written for each artifact that was deleted.
	if got := before - after; got > r.Freed || got < r.Freed-16<<10 || got < 1_000_000 || r.Finished != 4 || r.Unfinished != 0 {
		t.Errorf("%d bytes were freed: %+v", got, r)
	}
	if after > base+base/10 {
		t.Errorf("%d bytes are left, of which %d are needed", after, base)
	}
	for id, want := range map[string][]byte{keep: shared, other: shared} {
		if got := read(t, s, id, leafproof.Selector{}); !bytes.Equal(got, want) {
			t.Errorf("%s reads otherwise", id)
		}
		if _, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.n == 1`}, func(leafproof.Row) error { return nil }); err != nil {
			t.Errorf("its record map: %v", err)
		}
	}
	if r := gc(t, s); r.Deleted+r.Condemned != 0 || !r.Reserve {
		t.Errorf("once more: %+v", r)
	}
	// What was deleted can be put again.
	id := put(t, s, bigData, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	if got := read(t, openStore(t, dir), id, leafproof.Selector{}); !bytes.Equal(got, bigData) {
		t.Error("put again it reads otherwise")
	}
}

// TestGCUnreadableManifest: a tenant of which one manifest is lost keeps all.
func TestGCUnreadableManifest(t *testing.T) {
	s, dir := newStore(t)
	put(t, s, random(100_000, 1), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	gone := put(t, s, random(100_000, 2), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	if err := s.Delete(t.Context(), leafproof.Owner, gone, ""); err != nil {
		t.Fatal(err)
	}
	packs, err := filepath.Glob(filepath.Join(dir, "objects", "*", "pack", "*", "*"))
	if err != nil || len(packs) == 0 {
		t.Fatal(packs, err)
	}
	for _, p := range packs {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	before := stored(t, dir)
	r, err := openStore(t, dir).GC(t.Context(), leafproof.GCOptions{})
	if err != nil || len(r.Kept) != 1 || r.Deleted != 0 || stored(t, dir) < before || r.Finished != 0 || r.Unfinished != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestGCFull fills the disk to the last byte: gc makes room, and puts go on.
func TestGCFull(t *testing.T) {
	dir := t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", dir).Run(); err != nil {
		t.Skipf("no file system of a given size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	store := filepath.Join(dir, "store")
	if err := leafproof.Init(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	keep := put(t, s, random(50_000, 1), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	t.Cleanup(func() { s.Close() })
	garbage := func() {
		for i := range 10 {
			id := put(t, s, random(200_000, uint64(10+i)), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
			if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		garbage()
		fill(t, filepath.Join(dir, "filler"))
		if _, err := s.Put(t.Context(), bytes.NewReader(random(100_000, 3)), leafproof.PutOptions{}); leafproof.CodeOf(err) != leafproof.CodeStoreFull {
			t.Errorf("put on a full disk: %v", err)
		}
		s.Close()
		fill(t, filepath.Join(dir, "filler")) // what the catalogue's log took
		if s, err = leafproof.Open(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		r := gc(t, s)
		if !r.Tight {
			t.Errorf("%+v", r)
		}
		s.Close()
		if s, err = leafproof.Open(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		put(t, s, random(300_000, 4), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
		read(t, s, keep, leafproof.Selector{})
		if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
			t.Fatal(err)
		}
	}
}

// fill writes to a file until no byte is left on its disk.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1 << 20; n >= 1; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// helperEnv makes the test binary a process that does one thing to a store.
const helperEnv = "LEAFPROOF_GC_HELPER"

// TestGCHelper is that process: "put DIR" puts, says so, waits for a line, and
// publishes; "gc DIR" sweeps again and again.
func TestGCHelper(t *testing.T) {
	what, dir, ok := strings.Cut(os.Getenv(helperEnv), " ")
	if !ok {
		t.Skip("it is run by other tests")
	}
	s, err := leafproof.Open(context.Background(), dir)
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	for what == "gc" {
		if _, err := s.GC(context.Background(), leafproof.GCOptions{}); err != nil {
			fmt.Println("gc:", err)
			return
		}
	}
	d, err := s.Put(context.Background(), bytes.NewReader(lines(400_000, 77)), leafproof.PutOptions{})
	if err != nil {
		fmt.Println("put:", err)
		return
	}
	fmt.Println("put")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	ref, err := s.Publish(context.Background(), d, leafproof.Facts{})
	if e, ok := errors.AsType[*leafproof.Error](err); ok {
		fmt.Println("refused:", e.Code, e.Action, e.Retryable, leafproof.Hint(err))
		return
	}
	fmt.Println("published:", ref.ArtifactID, err)
	s.Close()
	os.Exit(0)
}

// helper starts a helper, with pipes to it.
func helper(t *testing.T, what, dir string) (cmd *exec.Cmd, in io.Writer, say func() string) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestGCHelper$")
	cmd.Env = append(os.Environ(), helperEnv+"="+what+" "+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // it may have ended
	lines := bufio.NewReader(out)
	return cmd, in, func() string {
		line, _ := lines.ReadString('\n')
		return strings.TrimSpace(line)
	}
}

// TestGCStopped: a writer that is stopped during two sweeps and continued is
// refused, and told to put again; nothing that was published is lost.
func TestGCStopped(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGSTOP")
	}
	s, dir := newStore(t)
	keep := put(t, s, lines(100_000, 5), leafproof.PutOptions{}, leafproof.Facts{})
	cmd, in, say := helper(t, "put", dir)
	if got := say(); got != "put" {
		t.Fatalf("the writer says %q", got)
	}
	if r := gc(t, s); r.Deleted != 0 || r.Lost != 0 { // it is alive and answers
		t.Fatalf("beside a living writer: %+v", r)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var lost, deleted int64
	for range 2 {
		r, err := s.GC(t.Context(), leafproof.GCOptions{Patience: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		lost += r.Lost
		deleted += r.Deleted
	}
	if lost != 1 || deleted == 0 {
		t.Errorf("%d leases were lost, %d objects deleted", lost, deleted)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	if got := say(); got != "refused: internal wait true nothing was published: put it again" {
		t.Errorf("the writer says %q", got)
	}
	read(t, s, keep, leafproof.Selector{})
	list, _, err := s.List(t.Context(), leafproof.Owner, "", 0, 100)
	if err != nil || len(list) != 1 {
		t.Errorf("the list has %d, %v", len(list), err)
	}
}

// TestGCKilledWriter: the lease of a writer that was killed ends with it.
func TestGCKilledWriter(t *testing.T) {
	s, dir := newStore(t)
	cmd, _, say := helper(t, "put", dir)
	if got := say(); got != "put" {
		t.Fatalf("the writer says %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	begin := time.Now()
	r := gc(t, s)
	if r.Ended != 1 || r.Lost != 0 || r.Deleted == 0 || time.Since(begin) > 5*time.Second || stored(t, dir) != 0 {
		t.Errorf("after %v, with %d bytes left: %+v", time.Since(begin), stored(t, dir), r)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "leases")); err != nil || len(files) != 0 {
		t.Errorf("there are still %v, %v", files, err)
	}
}

// TestGCKilled kills sweeps at random moments. Nothing published is lost, and
// the last one finishes what they began.
func TestGCKilled(t *testing.T) {
	s, dir := newStore(t)
	want := map[string][]byte{}
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		cmd, _, _ := helper(t, "gc", dir)
		kill := time.AfterFunc(rand.N(300*time.Millisecond)+100*time.Millisecond, func() { cmd.Process.Kill() }) //nolint:errcheck // below
		for i := range 12 {
			data := lines(20_000, uint64(100*round+i))
			if i%3 == 0 {
				data = random(60_000, uint64(i)) // the same in each round
			}
			id := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
			if i%2 == 0 {
				if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want[id] = data
		}
		cmd.Wait() //nolint:errcheck // it was killed
		kill.Stop()
	}
	gc(t, s)
	fresh := openStore(t, dir)
	for id, data := range want {
		if got := read(t, fresh, id, leafproof.Selector{}); !bytes.Equal(got, data) {
			t.Errorf("%s reads otherwise", id)
		}
	}
	for id := range want {
		if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	gc(t, s)
	nothingLeft(t, dir)
}

// TestGCBeside lets writers, readers and two sweeps work on one store, through
// two handles on it. LEAFPROOF_GC_STRESS is for how long, as in 60s.
func TestGCBeside(t *testing.T) {
	lasts := 3 * time.Second
	if text := os.Getenv("LEAFPROOF_GC_STRESS"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s, dir := newStore(t)
	other := openStore(t, dir)
	stores := []*leafproof.Store{s, other}
	var mu sync.Mutex
	live := map[string][]byte{}
	stop := time.Now().Add(lasts)
	var all sync.WaitGroup
	var puts, reads, sweeps, deleted int64
	for w := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for time.Now().Before(stop) {
				n := r.IntN(24) // few, so that writers meet
				data := random([]int{10, 3000, 20_000, 70_000}[n%4], uint64(n))
				if n%5 == 0 {
					data = lines(40_000, uint64(n))
				}
				store := stores[r.IntN(2)]
				d, err := store.Put(t.Context(), bytes.NewReader(data), leafproof.PutOptions{})
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				if r.IntN(4) == 0 {
					d.Discard()
					continue
				}
				ref, err := store.Publish(t.Context(), d, leafproof.Facts{})
				if err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				mu.Lock()
				live[ref.ArtifactID] = data
				puts++
				var id string
				if len(live) > 40 {
					for id = range live {
						delete(live, id)
						break
					}
				}
				mu.Unlock()
				if id != "" {
					if err := store.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
						t.Errorf("delete: %v", err)
					}
				}
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for time.Now().Before(stop) {
				mu.Lock()
				var id string
				var want []byte
				for id, want = range live {
					break
				}
				mu.Unlock()
				if id == "" {
					continue
				}
				var out bytes.Buffer
				_, err := stores[rand.IntN(2)].Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
				mu.Lock()
				reads++
				if _, ok := live[id]; ok && (err != nil || !bytes.Equal(out.Bytes(), want)) {
					t.Errorf("read %s: %v", id, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, store := range stores {
		all.Go(func() {
			for time.Now().Before(stop) {
				r, err := store.GC(t.Context(), leafproof.GCOptions{})
				if err != nil || r.Lost != 0 || len(r.Kept) > 0 {
					t.Errorf("gc: %+v, %v", r, err)
					return
				}
				mu.Lock()
				sweeps++
				deleted += r.Deleted
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d published, %d reads, %d sweeps that deleted %d objects", puts, reads, sweeps, deleted)
	fresh := openStore(t, dir)
	gc(t, fresh)
	for id, want := range live {
		if got := read(t, fresh, id, leafproof.Selector{}); !bytes.Equal(got, want) {
			t.Errorf("%s reads otherwise", id)
		}
		if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	gc(t, fresh)
	nothingLeft(t, dir)
}
