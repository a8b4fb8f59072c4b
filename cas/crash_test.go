package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spf13/afero"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// scenario is a history that is cut, or made to fail, at every operation.
type scenario struct {
	name string
	// before prepares a store, undisturbed.
	before func(w *writer) error
	// run is what is disturbed. It must bear being run again on what a
	// disturbed run left.
	run func(w *writer) error
	// needs says without which flushes a crash must lose something.
	needs crashfs.Sabotage
	// leased gives the store a book, and roots: what is held is published.
	leased bool
	// sample is how many times fewer operations are looked at than of a short
	// history, unless LEAFPROOF_EVERY_OPERATION is set; 0 is 1.
	sample int
}

// everyOperation says that tests are not to sample. It takes minutes.
func everyOperation() bool { return os.Getenv("LEAFPROOF_EVERY_OPERATION") != "" }

// sampled is of how many operations one is to be looked at, from a random one on,
// where of a short history it is one of so many.
func (sc scenario) sampled(of int) int {
	switch {
	case everyOperation():
		return 1
	case testing.Short():
		return 15
	}
	return of * max(1, sc.sample)
}

// both are the flushes that whoever writes an object needs.
var both = crashfs.Sabotage{FileSync: true, DirSync: true}

// scenarios is the table. Who adds a way to write or delete adds a row: nothing
// else here knows of it, except that told.objects
// looks at each kind of object.
var scenarios = []scenario{
	{name: "packed", needs: both, run: func(w *writer) error {
		return errors.Join(w.put(0, cas.Auto), w.put(1, cas.Packed), w.put(1000, cas.Auto), w.put(16384, cas.Auto))
	}},
	{name: "whole", needs: both, run: func(w *writer) error {
		return errors.Join(w.put(16385, cas.Auto), w.put(100_000, cas.Whole), w.put(500, cas.Whole))
	}},
	{name: "whole, long", needs: both, run: func(w *writer) error {
		return w.put(600_000, cas.Auto) // more than one buffer
	}},
	{name: "batch", needs: both, run: func(w *writer) error {
		return w.batch(10, 16384, 300, 20_000, 3000, 16000, 16001, 16002, 16003, 4, 5)
	}},
	{name: "grouped", needs: both, sample: 3, run: func(w *writer) error {
		return w.batchAs(cas.Grouped, 10, 20_000, 300, 20_001, 16385, 20_000, 40_000)
	}},
	{name: "cached", sample: 3, run: func(w *writer) error {
		// Each is there whole or not at all, and none was promised.
		err := errors.Join(w.cache(1000), w.cache(20_000), w.cache(100_000), w.cache(20_000))
		return errors.Join(err, w.put(20_001, cas.Auto), w.cache(20_001))
	}},
	{
		name: "resident",
		before: func(w *writer) error {
			return errors.Join(w.put(1000, cas.Auto), w.put(20_000, cas.Auto))
		},
		run: func(w *writer) error {
			return errors.Join(w.put(1000, cas.Auto), w.put(20_000, cas.Auto), w.batch(1000, 20_000))
		},
	},
	{
		name: "heal", needs: both,
		before: func(w *writer) error {
			return errors.Join(
				w.put(1000, cas.Auto), w.put(20_000, cas.Auto), w.put(20_001, cas.Auto), w.put(300, cas.Whole),
				w.put(2000, cas.Auto),
				w.damage(cas.KindPack, 1000, 100), w.damage(cas.KindPack, 2000, -100), // in the bytes, in the footer
				w.damage(cas.KindBlob, 20_000, 0), w.damage(cas.KindOutboard, 20_001, -1), w.damage(cas.KindBlob, 300, -1),
			)
		},
		run: func(w *writer) error {
			return errors.Join(
				w.put(1000, cas.Auto), w.put(2000, cas.Auto),
				w.put(20_000, cas.Auto), w.put(20_001, cas.Auto), w.put(300, cas.Whole),
			)
		},
	},
	{
		name: "deleted and put again",
		before: func(w *writer) error {
			return errors.Join(w.put(20_000, cas.Auto), w.put(300, cas.Whole))
		},
		run: func(w *writer) error {
			return errors.Join(w.remove(20_000), w.remove(300), w.put(20_000, cas.Auto))
		},
	},
	{name: "chunked", needs: both, run: func(w *writer) error {
		return errors.Join(w.put(150_000, cas.Chunked), w.put(40_000, cas.ChunkedRecords), w.put(150_000, cas.Chunked))
	}},
	{name: "chunked, streamed", needs: both, sample: 3, run: func(w *writer) error {
		cas.Stream(w.s, 30_000, 70_000)
		return errors.Join(w.put(150_000, cas.ChunkedRecords), w.put(40_000, cas.ChunkedRecords), w.put(150_000, cas.ChunkedRecords))
	}},
	{
		name: "merge", needs: both,
		before: func(w *writer) error {
			return errors.Join(w.put(1000, cas.Auto), w.put(2000, cas.Auto), w.put(3000, cas.Auto), w.put(40_000, cas.ChunkedRecords))
		},
		run: func(w *writer) error {
			return errors.Join(w.s.Compact(context.Background(), tenant), w.put(4000, cas.Auto), w.s.Compact(context.Background(), tenant))
		},
	},
	{
		name: "index", needs: both,
		before: func(w *writer) error { return errors.Join(w.put(1000, cas.Auto), w.put(2000, cas.Auto)) },
		run: func(w *writer) error {
			// No room in memory: each pack goes into an index file at once.
			w.s = cas.New(disk.New(w.fsys), cas.Options{IndexBytes: 1})
			return errors.Join(w.put(3000, cas.Auto), w.put(4000, cas.Auto), w.put(1000, cas.Auto),
				w.s.Compact(context.Background(), tenant))
		},
	},
	{name: "upload", needs: both, sample: 6, run: func(w *writer) error {
		return errors.Join(w.upload(60_000, cas.Whole), w.upload(500, cas.Auto), w.upload(60_000, cas.Auto))
	}},
	{name: "sweep", leased: true, sample: 3, needs: both, before: beforeSweep, run: func(w *writer) error {
		return errors.Join(w.sweep(), w.publish(20_001), w.publish(2000, 2001), w.sweep())
	}},
	{name: "two processes", needs: both, run: func(w *writer) error {
		other := &writer{fsys: w.fsys, s: cas.New(disk.New(w.fsys), cas.Options{}), told: w.told}
		failed := make(chan error)
		go func() {
			failed <- errors.Join(other.put(20_000, cas.Auto), other.batch(1000, 2000), other.put(20_001, cas.Auto))
		}()
		err := errors.Join(w.batch(1000, 2000), w.put(20_000, cas.Auto), w.put(20_001, cas.Auto))
		return errors.Join(err, <-failed)
	}},
}

// fate is what a caller was told of a blob.
type fate uint8

const (
	unsure  fate = iota // nothing: it is absent or whole
	held                // a Put returned nil
	gone                // a Delete returned nil
	damaged             // a byte of it was changed, and nothing since
)

// told is what the callers of one history have been told so far.
type told struct {
	mu    sync.Mutex
	fates map[int]fate // by size: each size has one blob
	bad   map[cas.Name]bool

	synced map[int]int64 // of uploads, by size

	// Of a store with leases: the catalogue, of which a commit is durable.
	book   *book
	roots  *published
	sweeps bool // sweep whatever a crash leaves, and look at that too
}

func (o *told) set(f fate, sizes ...int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, size := range sizes {
		o.fates[size] = f
	}
}

func (o *told) copy() *told {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &told{fates: maps.Clone(o.fates), bad: maps.Clone(o.bad), synced: maps.Clone(o.synced)}
	if o.book != nil {
		c.book, c.roots, c.sweeps = o.book.fork(), o.roots.fork(), o.sweeps
	}
	return c
}

// doubt says that a write of these blobs begins: what was held stays held, and
// what was anything else may be there now.
func (o *told) doubt(sizes ...int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, size := range sizes {
		if f := o.fates[size]; f != held && f != damaged {
			o.fates[size] = unsure
		}
	}
}

// writer does what programs do with a store, and keeps what it was told.
type writer struct {
	fsys *crashfs.FS
	s    *cas.Store
	told *told
}

func newWriter(fsys *crashfs.FS, o *told) *writer {
	opts := cas.Options{}
	if o.book != nil {
		opts.Leases = o.book
	}
	return &writer{fsys, cas.New(disk.New(fsys), opts), o}
}

// blobs are the bytes by size, byRoot the same by root.
var blobs, byRoot sync.Map

type blob struct {
	data     []byte
	root     merkle.Root
	outboard []byte
}

func blobOf(size int) *blob {
	if b, ok := blobs.Load(size); ok {
		return b.(*blob)
	}
	b := &blob{data: random(uint64(size), size)}
	b.outboard = make([]byte, merkle.OutboardSize(int64(size)))
	builder := merkle.NewBuilder(writerAt(b.outboard))
	_, errWrite := builder.Write(b.data)
	root, err := builder.Seal()
	if err := errors.Join(errWrite, err); err != nil {
		panic(err)
	}
	b.root = root
	blobs.Store(size, b)
	byRoot.Store(root, b)
	return b
}

type writerAt []byte

func (w writerAt) WriteAt(p []byte, off int64) (int, error) { return copy(w[off:], p), nil }

func (w *writer) put(size int, place cas.Placement) error {
	w.told.doubt(size)
	info, err := w.s.Put(context.Background(), tenant, bytes.NewReader(blobOf(size).data), place)
	if err != nil {
		return err
	}
	if info.Root != blobOf(size).root {
		return fmt.Errorf("Put of %d bytes has another root", size)
	}
	w.told.set(held, size)
	return nil
}

// cache puts a blob that need not survive a crash.
func (w *writer) cache(size int) error {
	w.told.doubt(size)
	_, err := w.s.PutAs(context.Background(), tenant, bytes.NewReader(blobOf(size).data), cas.Auto, cas.Cached)
	if err == nil {
		err = verify(w.s, size)
	}
	return err
}

// batch puts blobs in one group commit: the small ones are held when it ends,
// the others at once.
func (w *writer) batch(sizes ...int) error { return w.batchAs(cas.Durable, sizes...) }

// batchAs is batch with another durability: what is grouped is held when it ends.
func (w *writer) batchAs(d cas.Durability, sizes ...int) error {
	w.told.doubt(sizes...)
	b := w.s.Begin(context.Background(), tenant)
	defer b.Discard()
	var small []int
	for _, size := range sizes {
		info, err := b.PutAs(context.Background(), bytes.NewReader(blobOf(size).data), cas.Auto, d)
		switch {
		case err != nil:
			return err
		case info.Placement == cas.Whole && d == cas.Durable:
			w.told.set(held, size)
		default:
			small = append(small, size)
		}
	}
	if err := b.Commit(context.Background()); err != nil {
		return err
	}
	w.told.set(held, small...)
	return nil
}

// remove deletes the objects of a blob that has its own.
func (w *writer) remove(size int) error {
	w.told.set(unsure, size)
	name := cas.Name{Tenant: tenant, Kind: cas.KindBlob, ID: blobOf(size).root}
	nodes := name
	nodes.Kind = cas.KindOutboard
	if err := disk.New(w.fsys).Delete(context.Background(), name, nodes); err != nil {
		return err
	}
	w.told.set(gone, size)
	return nil
}

// damage flips a bit of the object of one kind that has the blob, durably, at
// an offset that counts from the end when it is negative.
func (w *writer) damage(kind cas.Kind, size, at int) error {
	for name, err := range disk.New(w.fsys).List(context.Background(), tenant, kind, nil) {
		if err != nil {
			return err
		}
		text, err := afero.ReadFile(w.fsys, name.String())
		if err != nil {
			return err
		}
		if name.ID != blobOf(size).root && (kind != cas.KindPack || !bytes.Contains(text, blobOf(size).data)) {
			continue
		}
		if at < 0 {
			at += len(text)
		}
		file, err := w.fsys.OpenFile(name.String(), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt([]byte{text[at] ^ 1}, int64(at))
		w.told.set(damaged, size)
		w.told.bad[name] = true
		return errors.Join(err, file.Sync(), file.Close())
	}
	return fmt.Errorf("no %s has the blob of %d bytes", kind, size)
}

// errOther says that a Reader gave bytes that are not the blob's.
var errOther = errors.New("OTHER BYTES")

// verify reads a blob in full.
func verify(s *cas.Store, size int) error {
	b := blobOf(size)
	r, err := s.Open(context.Background(), tenant, b.root, int64(size))
	if err != nil {
		return err
	}
	defer r.Close()
	got := make([]byte, size)
	n, err := r.ReadAt(got, 0)
	if !bytes.Equal(got[:n], b.data[:n]) || n < size && err == nil {
		return errOther
	}
	if err == io.EOF && n == size {
		err = nil
	}
	return err
}

// check opens a store on what there is and returns where it contradicts what
// callers were told.
func (o *told) check(fsys *crashfs.FS) []string {
	s := cas.New(disk.New(fsys), cas.Options{})
	problems := o.checkStore(fsys, s)
	objects, problem := o.objects(fsys)
	problems = append(problems, problem...)
	if len(o.synced) > 0 {
		problems = append(problems, o.checkUploads(fsys.Fork())...)
	}
	if o.sweeps {
		problems = append(problems, o.copy().checkSweep(fsys.Fork())...)
	}
	if err := s.Scan(context.Background(), tenant); err != nil {
		problems = append(problems, err.Error())
	}
	for _, d := range s.Damaged() {
		if !o.bad[d.Name] {
			problems = append(problems, fmt.Sprintf("%v is damaged: %v", d.Name, d.Err))
		}
	}
	if len(problems) > 0 {
		problems = append(problems, fmt.Sprintf("(%d objects)", objects))
	}
	return problems
}

// checkStore is check for a store that has been at work.
func (o *told) checkStore(fsys *crashfs.FS, s *cas.Store) []string {
	var problems []string
	for _, size := range slices.Sorted(maps.Keys(o.fates)) {
		err := verify(s, size)
		absent := errors.Is(err, cas.ErrNotFound)
		ok := err == nil
		switch o.fates[size] {
		case unsure:
			ok = ok || absent || half(fsys, size, err)
		case gone:
			ok = absent
		case damaged:
			ok = ok || errors.Is(err, cas.ErrCorrupt)
		}
		if !ok {
			problems = append(problems, fmt.Sprintf("%d bytes, fate %d: %v", size, o.fates[size], err))
		}
	}
	return problems
}

// half reports whether a blob that nobody was told of, or that nobody needs any
// more, lacks its outboard and no more: the one gets its name before the other,
// and a sweep may delete the other first. A put of the same bytes adds it.
func half(fsys *crashfs.FS, size int, err error) bool {
	b := disk.New(fsys)
	there := func(kind cas.Kind) bool {
		for range b.List(context.Background(), tenant, kind, blobOf(size).root[:]) {
			return true
		}
		return false
	}
	return errors.Is(err, cas.ErrCorrupt) && size > merkle.GroupSize && !there(cas.KindOutboard) &&
		(there(cas.KindBlob) || there(cas.KindRecipe))
}

// objects checks each object that has a name, whether a caller knows of it or not.
func (o *told) objects(fsys *crashfs.FS) (count int, problems []string) {
	for _, kind := range []cas.Kind{cas.KindBlob, cas.KindOutboard} { // packs: Store.Scan
		for name, err := range disk.New(fsys).List(context.Background(), tenant, kind, nil) {
			count++
			if err != nil {
				return count, append(problems, err.Error())
			}
			text, err := afero.ReadFile(fsys, name.String())
			known, ok := byRoot.Load(name.ID)
			switch {
			case o.bad[name]:
			case err != nil || !ok:
				problems = append(problems, fmt.Sprintf("%v is no object of ours: %v", name, err))
			case kind == cas.KindBlob && !bytes.Equal(text, known.(*blob).data),
				kind == cas.KindOutboard && !bytes.Equal(text, known.(*blob).outboard):
				problems = append(problems, fmt.Sprintf("%v is not whole: %d bytes", name, len(text)))
			}
		}
	}
	return count, problems
}

// temps are the unfinished files.
func temps(fsys *crashfs.FS) (names []string) {
	_ = afero.Walk(fsys, ".", func(name string, _ fs.FileInfo, err error) error {
		if err == nil && strings.HasPrefix(path.Base(name), ".tmp-") {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// rig cuts one scenario at every operation.
type rig struct {
	scenario
	seeds    uint64 // of partial crashes at each operation
	recovers bool   // also cut what comes after a crash
	every    int64  // of so many operations one is looked at
	states   atomic.Int64
	moments  atomic.Int64

	mu       sync.Mutex
	problems []string
}

func (r *rig) note(when string, problems []string) {
	r.states.Add(1)
	if len(problems) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, when+": "+strings.Join(problems, "; "))
}

func (r *rig) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.problems) > 0
}

// prepared are the file systems and fates that before left, by scenario.
var prepared sync.Map

// start returns a writer on a store as run wants to find it.
func (sc scenario) start(t testing.TB) *writer {
	t.Helper()
	fresh := &told{fates: map[int]fate{}, bad: map[cas.Name]bool{}}
	if sc.leased {
		fresh.book, fresh.roots = newBook(), new(published)
	}
	if sc.before == nil {
		return newWriter(crashfs.New(), fresh)
	}
	base, ok := prepared.Load(sc.name)
	if !ok {
		w := newWriter(crashfs.New(), fresh)
		if err := sc.before(w); err != nil {
			t.Fatal(err)
		}
		base, _ = prepared.LoadOrStore(sc.name, w)
	}
	w := base.(*writer)
	return newWriter(w.fsys.Fork(), w.told.copy())
}

// changes are the operations after which a crash can leave something new.
const changes = crashfs.Mutations | crashfs.Flushes

// run makes the history once and cuts it after each operation.
func (r *rig) run(t *testing.T, sabotage crashfs.Sabotage) {
	w := r.start(t)
	defer w.s.Close()
	w.told.sweeps = r.recovers && w.told.book != nil
	w.fsys.Sabotage(sabotage)
	w.fsys.Observe(func(o crashfs.Operation) {
		if o.Op&changes == 0 || r.failed() {
			return
		}
		if r.moments.Add(1)%r.every != 0 {
			return
		}
		r.cut(w.fsys, w.told.copy(), fmt.Sprintf("after %d, %v of %s", o.Number, o.Op, path.Base(o.Name)))
	})
	if err := r.scenario.run(w); err != nil {
		t.Error(err)
	}
	r.cut(w.fsys, w.told.copy(), "at the end")
	w.fsys.Observe(nil)
	if left := temps(w.fsys); len(left) > 0 {
		t.Errorf("unfinished files are left: %v", left)
	}
}

// cut takes the states that a crash may leave now, and checks each.
func (r *rig) cut(fsys *crashfs.FS, o *told, when string) {
	for seed := range r.seeds + 2 {
		kept := crashfs.Some
		if seed < 2 {
			kept = []crashfs.Kept{crashfs.Nothing, crashfs.Everything}[seed]
		}
		left := fsys.Crash(kept, seed)
		when := fmt.Sprintf("%s, kept %v, seed %d", when, kept, seed)
		r.note(when, o.check(left))
		if r.recovers && !r.failed() {
			r.goOn(left, o, when, seed+uint64(len(when)))
		}
	}
	if !r.recovers {
		return
	}
	// The process is killed, another one is told that the same bytes are held,
	// and then there is a crash.
	fork := fsys.Fork()
	next := newWriter(fork, o.copy())
	defer next.s.Close()
	if err := r.scenario.run(next); err != nil {
		r.note(when+", killed, then another process", []string{err.Error()})
	}
	r.note(when+", killed, another process, nothing kept", next.told.check(fork.Crash(crashfs.Nothing, 0)))
	r.note(when+", killed, another process, some kept", next.told.check(fork.Crash(crashfs.Some, 1)))
}

// goOn runs the history again on what a crash left, as whoever was not told
// would, and cuts it at a random operation and at its end.
func (r *rig) goOn(left *crashfs.FS, o *told, when string, seed uint64) {
	w := newWriter(left, o.copy())
	defer w.s.Close()
	cutAt := 1 + rand.New(rand.NewPCG(seed, 3)).Int64N(60)
	var changed atomic.Int64
	left.Observe(func(op crashfs.Operation) {
		if op.Op&changes != 0 && changed.Add(1) == cutAt {
			told := w.told.copy()
			r.note(fmt.Sprintf("%s, then again after %v of %s", when, op.Op, path.Base(op.Name)),
				told.check(left.Crash(crashfs.Some, seed)))
		}
	})
	if err := r.scenario.run(w); err != nil {
		r.note(when+", then again", []string{err.Error()})
	}
	left.Observe(nil)
	r.note(when+", then all again", w.told.check(left.Crash(crashfs.Nothing, seed)))
}

// needFlushes skips where rootfs has no directories to flush.
func needFlushes(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a directory cannot be flushed here")
	}
}

// TestCrash cuts every history after its operations, and once more while it
// is made again on what was left: what was told stands, all else is absent or
// whole. With LEAFPROOF_EVERY_OPERATION it is every operation.
func TestCrash(t *testing.T) {
	needFlushes(t)
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // small heaps, many of them
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	var states, moments atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, sc := range scenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				r := &rig{scenario: sc, seeds: seeds, every: int64(sc.sampled(2)), recovers: true}
				r.moments.Store(rand.Int64N(r.every))
				r.run(t, crashfs.Sabotage{})
				for _, p := range r.problems {
					t.Error(p)
				}
				t.Logf("%d states at %d operations", r.states.Load(), r.moments.Load())
				states.Add(r.states.Load())
				moments.Add(r.moments.Load())
			})
		}
	})
	t.Logf("%d states at %d operations", states.Load(), moments.Load())
	if want := int64(10_000); !testing.Short() && states.Load() < want {
		t.Errorf("only %d states, want %d", states.Load(), want)
	}
}

// TestCrashSabotaged: a writer whose flushes keep nothing is caught, or the test
// above shows nothing.
func TestCrashSabotaged(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector finds nothing new in it")
	}
	needFlushes(t)
	for _, sc := range scenarios {
		for name, sabotage := range map[string]crashfs.Sabotage{
			"files":       {FileSync: sc.needs.FileSync},
			"directories": {DirSync: sc.needs.DirSync},
		} {
			if sabotage == (crashfs.Sabotage{}) {
				continue
			}
			t.Run(sc.name+"/"+name, func(t *testing.T) {
				r := &rig{scenario: sc, seeds: 6, every: 1}
				r.run(t, sabotage)
				if !r.failed() {
					t.Errorf("%d states, and none shows that nothing was flushed", r.states.Load())
				} else {
					t.Logf("after %d states: %.150s", r.states.Load(), r.problems[0])
				}
			})
		}
	}
}
