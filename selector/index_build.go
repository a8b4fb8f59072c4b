package selector

import (
	"context"
	"io"
	"runtime"
	"sync"
)

// DefaultIndexMemory is how many bytes an [IndexBuild] takes that says nothing else.
const DefaultIndexMemory = 256 << 20

// MaxIndexPaths is how many indexes are built at once.
const MaxIndexPaths = 64

// An IndexBuild says of what indexes are to be built.
type IndexBuild struct {
	Source     io.ReaderAt // safe for concurrent use
	Map        *Map        // of Source
	Layout     Layout
	Trust      Trust
	Redactions []string // JSON Pointers of what the producer removed or masked
	Paths      []*KeyPath

	// Memory is about how many bytes the build may take, for all paths together;
	// 0 is DefaultIndexMemory. It takes some MiB more for what it reads, and where a
	// record is longer, that record for each worker.
	Memory  int64
	Spill   Spill // where entries find room beyond that; nil: it fails with ErrLimit
	Workers int   // 0: one a core, at most 16
}

// Build reads the records once and writes an index (lpi1) over each path to the
// writer with its number. The bytes follow from the source, the layout, the path
// and the redactions: neither memory nor the number of workers nor the other paths
// show in them. After an error what was written is no index.
func (b IndexBuild) Build(ctx context.Context, out []io.WriterAt) ([]IndexInfo, error) {
	specs, err := b.settle(len(out))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store := &runStore{memory: b.Memory / 4, spill: b.Spill, runs: make([][]keyRun, len(b.Paths))}
	if err := b.collect(ctx, cancel, store); err != nil {
		return nil, err
	}
	infos := make([]IndexInfo, len(out))
	var all sync.WaitGroup
	var first firstError
	turns := make(chan struct{}, b.Workers)
	for i := range out {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			h := &b.Map.head
			w := newIndexWriter(out[i], h.root, h.size, SpecDigest(specs[i]), h.records)
			n := 0
			err := store.merge(i, func(key []byte, rec int64) error {
				if n++; n&0xffff == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				return w.add(key, rec)
			})
			if err == nil {
				infos[i], err = w.finish()
			}
			if first.set(err) {
				cancel()
			}
		})
	}
	all.Wait()
	return infos, first.err
}

// settle fills in the defaults, and returns the specs.
func (b *IndexBuild) settle(outs int) ([][]byte, error) {
	var err error
	if b.Layout, err = b.Layout.normal(); err != nil {
		return nil, err
	}
	if b.Memory == 0 {
		b.Memory = DefaultIndexMemory
	}
	if b.Workers <= 0 {
		b.Workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	switch n := len(b.Paths); {
	case n == 0 || n != outs:
		return nil, fail("index", -1, ErrSelector, "%d paths for %d indexes", n, outs)
	case n > MaxIndexPaths:
		return nil, fail("index", -1, ErrSelector, "%d paths, at most %d are indexed at once", n, MaxIndexPaths)
	case b.Memory < int64(n)*8*stageLeast:
		return nil, fail("index", -1, ErrLimit, "%d indexes in %d bytes of memory: at least %d are needed", n, b.Memory, n*8*stageLeast)
	}
	var specs [][]byte
	for _, p := range b.Paths {
		spec, err := IndexSpec(b.Layout, p, b.Redactions)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	for b.Workers > 1 && b.stageRoom() < stageLeast {
		b.Workers--
	}
	return specs, nil
}

// maxStage is the most that a stage takes: what is sorted at once stays in the
// processor's cache.
const maxStage = 2 << 20

// stageRoom is how many bytes each worker has for the entries of a path that are
// not sorted yet.
func (b *IndexBuild) stageRoom() int {
	return int(min(maxStage, b.Memory/8/int64(len(b.Paths)*b.Workers)))
}

// collect reads all records and leaves the entries in sorted runs.
func (b *IndexBuild) collect(ctx context.Context, cancel context.CancelFunc, store *runStore) error {
	feed, err := newFeeder(Task{Source: b.Source, Map: b.Map, Layout: b.Layout, Trust: b.Trust}, b.Map.Records(), true)
	if err != nil {
		return err
	}
	feed.size = batchBytes
	jobs, free := make(chan *batch, b.Workers), make(chan *batch, 2*b.Workers+1)
	var all sync.WaitGroup
	var first firstError
	for range b.Workers {
		w := newIndexWorker(b, feed, store)
		all.Go(func() {
			for t := range jobs {
				if ctx.Err() == nil && first.set(w.take(t)) {
					cancel()
				}
				free <- t
			}
			if ctx.Err() == nil && first.set(w.flush()) {
				cancel()
			}
		})
	}
	for fault := error(nil); fault == nil; {
		for n := len(free); n > 0; n-- {
			feed.free = append(feed.free, <-free)
		}
		var t *batch
		if t, fault = feed.batch(ctx); fault != nil {
			first.set(fault)
			break
		}
		if t == nil {
			break
		}
		jobs <- t
	}
	close(jobs)
	all.Wait()
	if first.err == nil {
		return ctx.Err() // a worker may have left out what it was given
	}
	return first.err
}

// firstError keeps the first of several errors.
type firstError struct {
	mu  sync.Mutex
	err error
}

// set reports whether err is one.
func (f *firstError) set(err error) bool {
	if err == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	return true
}

// indexWorker makes the keys of batches of records.
type indexWorker struct {
	read   worker // reads the batches
	keys   *multiKeys
	store  *runStore
	stages []*stage
	buf    []byte

	record int64
	err    error
}

func newIndexWorker(b *IndexBuild, feed *feeder, store *runStore) *indexWorker {
	w := &indexWorker{
		read: worker{feed: feed, limit: b.Layout.Limits.Record}, keys: newMultiKeys(b.Paths, b.Layout, b.Redactions), store: store,
	}
	for range b.Paths {
		w.stages = append(w.stages, newStage(b.stageRoom()))
	}
	return w
}

// take makes the keys of a batch.
func (w *indexWorker) take(t *batch) error {
	add := w.add
	if len(t.spans) == 1 && t.spans[0].Len() > w.read.limit {
		w.record = t.first
		w.keys.all(false, add)
		return w.err
	}
	t.buf, w.buf = w.buf, nil // batches that wait need no room
	err := w.read.load(t, 0, len(t.spans))
	if err == nil {
		for i, s := range t.spans {
			w.record = t.first + int64(i)
			if s.Len() > w.read.limit {
				w.keys.all(false, add)
				continue
			}
			w.keys.keys(t.bytes(i), w.read.feed.trust && !w.read.feed.suspect(s), add)
		}
		err = w.err
	}
	w.buf, t.buf = t.buf, nil
	return err
}

// add takes a key of the present record.
func (w *indexWorker) add(path int, key []byte) {
	s := w.stages[path]
	if s.full(w.record) && w.err == nil {
		w.err = w.store.add(path, s.run())
	}
	s.add(key, w.record)
}

// flush leaves nothing in the stages.
func (w *indexWorker) flush() error {
	for path, s := range w.stages {
		if len(s.entries) > 0 && w.err == nil {
			w.err = w.store.add(path, s.run())
		}
	}
	w.stages = nil
	return w.err
}
