package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/internal/crashfs"
)

// faults are the ways in which a file system fails.
var faults = map[string]crashfs.Fault{
	"disk error":           {Err: syscall.EIO},
	"answer lost":          {Err: syscall.EIO, Done: true},
	"no space":             {Op: crashfs.Growths, Err: syscall.ENOSPC},
	"no space in the end":  {Op: crashfs.Flushes, Err: syscall.ENOSPC},
	"read-only":            {Op: crashfs.Mutations, Err: syscall.EROFS},
	"no file handle":       {Op: crashfs.Opens, Err: syscall.EMFILE},
	"short write":          {Op: crashfs.OpWrite, Err: syscall.ENOSPC, Short: true},
	"short read":           {Op: crashfs.OpRead, Short: true},
	"flush of a file":      {Op: crashfs.OpSync},
	"flush of a directory": {Op: crashfs.OpSyncDir},
	"remove":               {Op: crashfs.OpRemove},
	"close":                {Op: crashfs.OpClose},
}

// reading are the operations that a reader needs.
const reading = crashfs.OpOpen | crashfs.OpRead | crashfs.OpReadDir | crashfs.OpStat | crashfs.OpClose

// faulty makes one run of a scenario with the fault, and returns where what
// followed was not as it should be, and whether the fault struck.
func faulty(t *testing.T, sc scenario, fault crashfs.Fault) (problems []string, struck bool) {
	note := func(when string, list []string) {
		if len(list) > 0 {
			problems = append(problems, when+": "+strings.Join(list, "; "))
		}
	}
	w := sc.start(t)
	defer w.s.Close()
	begin, before := len(w.fsys.Log()), temps(w.fsys)
	w.fsys.Inject(fault)
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		ended <- sc.run(w)
	}()
	var err error
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		return []string{"it hangs"}, true
	}
	struck = w.fsys.Hits() > 0
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "panic"):
		note("it panics", []string{err.Error()})
	case err != nil && !struck:
		note("no fault struck", []string{err.Error()})
	case err == nil && fault.Forever && struck && fault.Op == crashfs.OpSync && sc.needs.FileSync:
		note("no flush succeeded", []string{"and the writer was told that it did"})
	}
	if errors.Is(fault.Err, syscall.ENOSPC) && err != nil && !errors.Is(err, cas.ErrFull) {
		note("it is not ErrFull", []string{err.Error()})
	}

	if fault.Op != 0 && fault.Op&reading == 0 { // reads go on
		note("read meanwhile", w.told.checkStore(w.fsys, w.s))
		note("read meanwhile by another process", w.told.check(w.fsys))
	}
	excused := fault.Done
	for _, o := range w.fsys.Log()[begin:] {
		excused = excused || o.Err != nil && o.Op == crashfs.OpRemove
	}
	w.fsys.Inject()
	isOld := func(name string) bool { return slices.Contains(before, name) } // a sweep could not look
	if left := slices.DeleteFunc(temps(w.fsys), isOld); len(left) > 0 && !excused {
		note("unfinished files are left", left)
	}
	note("afterwards", w.told.checkStore(w.fsys, w.s))
	note("afterwards, in another process", w.told.check(w.fsys))
	note("after a crash", w.told.check(w.fsys.Crash(crashfs.Nothing, 0)))
	note("after a crash that keeps some", w.told.check(w.fsys.Crash(crashfs.Some, uint64(fault.N))))

	// The process goes on, and does what failed once more.
	if err := sc.run(w); err != nil {
		note("again", []string{err.Error()})
	}
	note("again, and another new one", errorText(w.put(777, cas.Auto)))
	note("after all that", w.told.checkStore(w.fsys, w.s))
	note("after all that and a crash", w.told.check(w.fsys.Crash(crashfs.Nothing, 0)))
	return problems, struck
}

func errorText(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// TestFaults makes the first, the second, … operation fail, once and for good,
// until a run meets no fault any more; without LEAFPROOF_EVERY_OPERATION, some
// of them. Every run ends, in success or an error,
// loses nothing that was told, and leaves a store that works.
func TestFaults(t *testing.T) {
	needFlushes(t)
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	t.Run("all", func(t *testing.T) {
		for _, sc := range scenarios {
			if sc.name == "whole, long" {
				continue // its operations are those of "whole"
			}
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				runs, step := 0, sc.sampled(12)
				if testing.Short() && !everyOperation() {
					step = 300
				}
				for name, fault := range faults {
					for _, fault.Forever = range []bool{false, true} {
						for fault.N = 1 + rand.IntN(step); ; fault.N += step {
							problems, struck := faulty(t, sc, fault)
							runs++
							for _, p := range problems {
								t.Errorf("%s, operation %d, for good: %t: %s", name, fault.N, fault.Forever, p)
							}
							if !struck || t.Failed() {
								break
							}
							if fault.N > 5000 {
								t.Fatalf("%s: no run ends without a fault", name)
							}
						}
					}
				}
				t.Logf("%d runs", runs)
			})
		}
	})
}

// TestFlushIsFinal: after a flush that failed, no later flush of the same file
// counts, and the bytes are written to another one.
func TestFlushIsFinal(t *testing.T) {
	fsys := crashfs.New()
	w := newWriter(fsys, &told{fates: map[int]fate{}})
	for _, size := range []int{1000, 20_000} {
		fsys.Inject(crashfs.Fault{Op: crashfs.OpSync})
		if err := w.put(size, cas.Auto); !errors.Is(err, syscall.EIO) {
			t.Errorf("put of %d bytes with a flush that fails = %v", size, err)
		}
		if err := w.put(size, cas.Auto); err != nil {
			t.Errorf("the next put: %v", err)
		}
	}
	flushed := map[string]int{}
	for _, o := range fsys.Log() {
		if o.Op == crashfs.OpSync {
			if flushed[o.Name]++; flushed[o.Name] > 1 {
				t.Errorf("%s was flushed again", o.Name)
			}
		}
	}
	if p := w.told.check(fsys.Crash(crashfs.Nothing, 0)); len(p) > 0 {
		t.Error(p)
	}
}

// TestFullDisk: with no byte left a store opens and reads, refuses to write with
// ErrFull, and takes bytes again when there is room.
func TestFullDisk(t *testing.T) {
	w := newWriter(crashfs.New(), &told{fates: map[int]fate{}})
	if err := errors.Join(w.put(1000, cas.Auto), w.put(20_000, cas.Auto)); err != nil {
		t.Fatal(err)
	}
	w.fsys.Inject(crashfs.Fault{Op: crashfs.Growths, Forever: true, Err: syscall.ENOSPC})
	w.s = newWriter(w.fsys, w.told).s
	for _, size := range []int{10, 30_000} {
		if err := w.put(size, cas.Auto); !errors.Is(err, cas.ErrFull) {
			t.Errorf("put of %d bytes on a full disk = %v", size, err)
		}
	}
	if p := w.told.checkStore(w.fsys, w.s); len(p) > 0 {
		t.Error(p)
	}
	r, err := w.s.Open(t.Context(), tenant, blobOf(20_000).root, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := make([]byte, 100)
	if _, err := r.ReadAt(p, 17_000); err != nil || !bytes.Equal(p, blobOf(20_000).data[17_000:17_100]) {
		t.Errorf("a read on a full disk: %v", err)
	}
	w.fsys.Inject()
	if err := errors.Join(w.put(10, cas.Auto), w.put(30_000, cas.Auto)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
