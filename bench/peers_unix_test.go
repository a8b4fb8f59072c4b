//go:build unix

package bench_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"leafproof"
	"leafproof/bench"
	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/merkle"
)

var (
	peerSize   = flag.Int64("peer-size", 4<<20, "peers: bytes of the incompressible file")
	peerRows   = flag.Int("peer-rows", 6_000, "peers: rows of generated events; 758200 are 256 MiB")
	peerRounds = flag.Int("peer-rounds", 1, "peers: how often each tool has its turn")
	peerReads  = flag.Int("peer-reads", 100, "peers: reads of 64 KiB at random places")
	peersAll   = flag.Bool("peers", false, "peers: all that are there, and not only the fast ones")
)

// A keeper is a tool that keeps files: what to run for it. {dir} is a folder of
// its own, {file} the file that it keeps, {name} that file's base name.
type keeper struct {
	name string
	of   string // the kind of file that it is for; "" is any
	env  []string
	init string // a shell script, not measured
	put  []string
	read []string // prints the file that was put last; nil: it cannot
	skip string   // a folder below {dir} that can be made again, and is not counted
	slow bool     // takes long even for small files
}

func keepers(leafproof string) []keeper {
	ours := func(place, records, of string) keeper {
		return keeper{
			name: "leafproof " + place, of: of, env: []string{"LEAFPROOF_STORE={dir}/store"}, init: leafproof + " init", skip: "index",
			put:  []string{leafproof, "put", "-q", "--records", records, "--place", place, "{file}"},
			read: []string{leafproof, "read", "{id}"},
		}
	}
	blob := ours("chunked", "none", "events") // as the others: no look at the records
	blob.name = "leafproof, no records"
	return []keeper{
		ours("whole", "none", "random"), ours("chunked", "none", "random"), ours("chunked", "ndjson", "events"), blob,
		{
			name: "restic", slow: true, env: []string{"RESTIC_PASSWORD=x", "RESTIC_REPOSITORY={dir}/repo"}, init: "restic init -q",
			put:  []string{"restic", "--no-cache", "-q", "backup", "{file}"},
			read: []string{"restic", "--no-cache", "-q", "dump", "latest", "{file}"},
		},
		{
			name: "borg", slow: true, env: []string{"BORG_BASE_DIR={dir}/base", "BORG_REPO={dir}/repo"}, init: "borg init -e none",
			put:  []string{"borg", "create", "::{name}", "{file}"},
			read: []string{"borg", "extract", "--stdout", "::{name}"},
		},
		{
			name: "casync", put: []string{"casync", "make", "--store={dir}/repo/chunks", "{dir}/repo/{name}.caibx", "{file}"},
			init: "mkdir {dir}/repo",
		},
		{
			name: "git", slow: true, env: []string{"GIT_DIR={dir}/repo"}, init: "git init -q --bare {dir}/repo",
			put:  []string{"git", "hash-object", "-w", "{file}"},
			read: []string{"git", "cat-file", "blob", "{id}"},
		},
		{
			name: "cp and sync, cat", init: "mkdir {dir}/repo", read: []string{"cat", "{dir}/repo/{name}"},
			put: []string{"sh", "-c", `cp "$1" "$2" && sync "$2"`, "sh", "{file}", "{dir}/repo/{name}"},
		},
	}
}

// used is what one run of a program cost. peak is in bytes.
type used struct {
	wall, cpu time.Duration
	peak      int64 // 0: was not measured
	stored    int64 // bytes that are in the store since; -1: was not asked
}

// run runs a program and returns its first word of output if it is an id, and how
// much it printed.
func run(t *testing.T, env, args []string) (used, string, int64) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	must(t, err)
	start := time.Now()
	must(t, cmd.Start())
	var head [128]byte
	n, _ := io.ReadFull(out, head[:])
	rest, err := io.Copy(io.Discard, out)
	must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, complaint.String())
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	id, _, _ := strings.Cut(string(head[:n]), "\n")
	return used{
		wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak: u.Maxrss << 10, stored: -1,
	}, id, int64(n) + rest
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bytesIn are the bytes of all files in a folder, but for those in folders named skip.
func bytesIn(t *testing.T, dir, skip string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == skip && skip != "":
			return fs.SkipDir
		case e.Type().IsRegular():
			info, err := e.Info()
			if err != nil {
				return err
			}
			n += info.Size()
		}
		return nil
	}))
	return n
}

// figures has all runs, by what was done and by whom, in the order of the first.
type figures struct {
	keys [][2]string
	runs map[[2]string][]used
}

func (f *figures) add(job, tool string, u used) {
	key := [2]string{job, tool}
	if f.runs[key] == nil {
		f.keys = append(f.keys, key)
	}
	f.runs[key] = append(f.runs[key], u)
}

// table prints the medians. base is the peak memory that no run goes below.
func (f *figures) table(base int64) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "job\ttool\twall s\tCPU s\tpeak MB beyond version\tstored MB")
	slices.SortStableFunc(f.keys, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	for _, key := range f.keys {
		u := median(f.runs[key])
		stored, peak := "-", "-"
		if u.peak > 0 {
			peak = fmt.Sprintf("%.1f", float64(u.peak-base)/1e6)
		}
		if u.stored >= 0 {
			stored = fmt.Sprintf("%.2f", float64(u.stored)/1e6)
		}
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%.3f\t%s\t%s\n", key[0], key[1], u.wall.Seconds(), u.cpu.Seconds(), peak, stored)
	}
	w.Flush()
	return b.String()
}

// median takes that of each column by itself.
func median(runs []used) used {
	middle := func(of func(used) int64) int64 {
		list := make([]int64, len(runs))
		for i, u := range runs {
			list[i] = of(u)
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	return used{
		wall:   time.Duration(middle(func(u used) int64 { return int64(u.wall) })),
		cpu:    time.Duration(middle(func(u used) int64 { return int64(u.cpu) })),
		peak:   middle(func(u used) int64 { return u.peak }),
		stored: middle(func(u used) int64 { return u.stored }),
	}
}

// TestPeers prints what it costs to keep and to read the same files with
// leafproof and with the tools that are on this machine, all in turn. The sizes
// that results/ speaks of are
//
//	go test ./bench -run TestPeers -v -timeout 2h -peers -peer-size 1073741824 -peer-rows 758200 -peer-reads 1000 -peer-rounds 3
//
// The peak memory of a program counts from its start by this process, so that it
// is never below the memory of this one. Without -peers only fast tools take part.
func TestPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs other programs")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "leafproof")
	if out, err := exec.Command("go", "build", "-o", bin, "leafproof/cmd/leafproof").CombinedOutput(); err != nil {
		t.Skipf("cannot build the command: %v\n%s", err, out)
	}
	files := peerFiles(t, dir)
	debug.FreeOSMemory()
	base, _, _ := run(t, nil, []string{bin, "version"})
	f := &figures{runs: map[[2]string][]used{}}
	for range *peerRounds {
		for _, k := range keepers(bin) {
			if _, err := exec.LookPath(k.put[0]); err != nil || k.slow && !*peersAll {
				continue
			}
			k.turn(t, f, files)
		}
	}
	randomReads(t, f, files[0].name)
	t.Logf("%d bytes incompressible, %d rows of events (%d bytes), medians of %d rounds\n%s",
		files[0].size, *peerRows, files[1].size, *peerRounds, f.table(base.peak))
}

// peerFile is a file to keep.
type peerFile struct {
	name, kind, job string
	size            int64
	read            bool // measure to read it, too
}

// peerFiles makes the files: incompressible bytes, events, and the same events
// after one percent of the rows was edited, here and there or in 100 bursts.
func peerFiles(t *testing.T, dir string) []peerFile {
	rows := *peerRows
	burst := max(1, rows/100/100)
	list := []peerFile{
		{name: "random", kind: "random", job: "1 incompressible", read: true},
		{name: "events", kind: "events", job: "2 events", read: true},
		{name: "scattered", kind: "events", job: "3 events, 1% edited, scattered"},
		{name: "bursts", kind: "events", job: "4 events, 1% edited, in 100 bursts"},
	}
	edits := []func(int) bool{
		nil, nil,
		func(row int) bool { return rand.New(rand.NewPCG(9, uint64(row))).IntN(100) == 0 },
		func(row int) bool { return row%max(1, rows/100) < burst },
	}
	for i := range list {
		list[i].name = filepath.Join(dir, list[i].name)
		w, err := os.Create(list[i].name)
		must(t, err)
		if i == 0 {
			list[i].size, err = io.CopyN(w, rand.NewChaCha8([32]byte{}), *peerSize)
		} else {
			list[i].size, err = bench.Events(w, 1, rows, edits[i])
		}
		must(t, err)
		must(t, w.Sync())
		must(t, w.Close())
	}
	return list
}

// turn lets a tool keep all files of its kind in a new store, and read them.
func (k keeper) turn(t *testing.T, f *figures, files []peerFile) {
	t.Helper()
	for _, kind := range []string{"random", "events"} {
		if k.of != "" && k.of != kind {
			continue
		}
		dir, err := os.MkdirTemp(t.TempDir(), "store")
		must(t, err)
		must(t, os.Mkdir(filepath.Join(dir, "base"), 0o700))
		fill := func(list []string, file peerFile, id string) []string {
			out := slices.Clone(list)
			for i := range out {
				out[i] = strings.NewReplacer("{dir}", dir, "{file}", file.name, "{name}", filepath.Base(file.name), "{id}", id).Replace(out[i])
			}
			return out
		}
		env := fill(k.env, peerFile{}, "")
		run(t, env, fill([]string{"sh", "-c", k.init}, peerFile{}, ""))
		for _, file := range files {
			if file.kind != kind {
				continue
			}
			before := bytesIn(t, dir, cmp.Or(k.skip, "base"))
			u, id, _ := run(t, env, fill(k.put, file, ""))
			u.stored = bytesIn(t, dir, cmp.Or(k.skip, "base")) - before
			f.add(file.job+": keep", k.name, u)
			if !file.read || k.read == nil {
				continue
			}
			u, _, n := run(t, env, fill(k.read, file, id))
			if n != file.size {
				t.Errorf("%s returned %d bytes of %s, which has %d", k.name, n, file.name, file.size)
			}
			f.add(file.job+": read", k.name, u)
		}
		must(t, os.RemoveAll(dir))
	}
}

// randomReads reads 64 KiB at random places of the incompressible file, in this
// process: its memory is not compared.
func randomReads(t *testing.T, f *figures, name string) {
	const n, job = 64 << 10, "5 64 KiB at random: read"
	plain, err := os.Open(name)
	must(t, err)
	defer plain.Close()
	ways := []struct {
		tool string
		r    io.ReaderAt
	}{{"pread", plain}}
	for _, place := range []cas.Placement{cas.Whole, cas.Chunked} {
		dir := filepath.Join(t.TempDir(), "store")
		must(t, leafproof.Init(t.Context(), dir))
		s, err := leafproof.Open(t.Context(), dir)
		must(t, err)
		defer s.Close()
		d, err := s.Put(t.Context(), io.NewSectionReader(plain, 0, *peerSize), leafproof.PutOptions{Records: "none", Place: place})
		must(t, err)
		ref, err := s.Publish(t.Context(), d, leafproof.Facts{})
		must(t, err)
		st, err := s.Resolve(t.Context(), leafproof.Owner, ref.ArtifactID)
		must(t, err)
		b, err := disk.Open(filepath.Join(dir, "objects"))
		must(t, err)
		defer b.Close()
		// Nothing that was read before is kept.
		r, err := cas.New(b, cas.Options{CacheBytes: -1}).Open(t.Context(), cas.TenantOf(leafproof.DefaultTenant), st.Manifest.Root, *peerSize)
		must(t, err)
		defer r.Close()
		ways = append(ways, struct {
			tool string
			r    io.ReaderAt
		}{"leafproof blob, " + string(place), r}, struct {
			tool string
			r    io.ReaderAt
		}{"leafproof artifact, " + string(place), artifactReader{t, s, ref.ArtifactID}})
	}
	p := make([]byte, n)
	for range *peerRounds * 3 {
		for _, way := range ways {
			rng := rand.New(rand.NewPCG(1, 2))
			before, start := processorTime(t), time.Now()
			for range *peerReads {
				if _, err := way.r.ReadAt(p, rng.Int64N(max(1, *peerSize-n))); err != nil {
					t.Fatalf("%s: %v", way.tool, err)
				}
			}
			f.add(job, way.tool, used{wall: time.Since(start), cpu: processorTime(t) - before, stored: -1})
		}
	}
}

// artifactReader reads as a user of the store does: manifest, permission and all,
// each time.
type artifactReader struct {
	t  *testing.T
	s  *leafproof.Store
	id string
}

func (a artifactReader) ReadAt(p []byte, off int64) (int, error) {
	w := &fixedWriter{p: p}
	_, err := a.s.Read(a.t.Context(), leafproof.Owner, a.id, leafproof.Selector{Bytes: &merkle.Range{Start: off, End: off + int64(len(p))}}, w)
	return w.n, err
}

type fixedWriter struct {
	p []byte
	n int
}

func (w *fixedWriter) Write(p []byte) (int, error) {
	w.n += copy(w.p[w.n:], p)
	return len(p), nil
}

func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
