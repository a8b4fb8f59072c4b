package selector

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

const (
	firstBatch  = 32 << 10  // bytes of the first batch, so that a first row comes at once
	batchBytes  = 256 << 10 // of later ones
	batchCount  = 8192      // records of a batch at most
	flightBytes = 8 << 20   // of all batches under way, unless there is but one
	maxWorkers  = 16
)

// A batch is a run of neighbouring records on its way through a worker.
type batch struct {
	first   int64 // the number of its first record
	spans   []Span
	outcome []Outcome
	decided int         // records that were decided: all of them, unless err
	err     error       // why the next one was not
	values  [][][]Value // of the matching records, where they are wanted
	keys    []byte      // of the matching records, where they are wanted
	keyEnd  []int32     // where a record's key ends in keys
	buf     []byte
	base    int64 // where buf stands
	ready   chan struct{}

	records []int64 // their numbers, where they are no neighbours; nil: from first on
	places  []int64 // of these: where each stands in buf
}

// record returns the number of a record of the batch.
func (b *batch) record(i int) int64 {
	if b.records != nil {
		return b.records[i]
	}
	return b.first + int64(i)
}

// reach is the length of what the batch spans in the source, or takes in buf.
func (b *batch) reach() int64 {
	if len(b.spans) == 0 {
		return 0
	}
	if b.records != nil {
		return b.places[len(b.places)-1] + b.spans[len(b.spans)-1].Len()
	}
	return b.spans[len(b.spans)-1].End - b.spans[0].Start
}

// row returns a record of the batch.
func (b *batch) row(i int) Row {
	row := Row{Record: b.record(i), Span: b.spans[i]}
	if len(b.buf) > 0 {
		row.Bytes = b.bytes(i)
	}
	if len(b.values) > 0 {
		row.Selected = b.values[i]
	}
	return row
}

// bytes returns a record's bytes, which were read.
func (b *batch) bytes(i int) []byte {
	s := b.spans[i]
	if b.records != nil {
		return b.buf[b.places[i] : b.places[i]+s.Len()]
	}
	return b.buf[s.Start-b.base : s.End-b.base]
}

// key returns the key of a matching record.
func (b *batch) key(i int) []byte {
	start := int32(0)
	if i > 0 {
		start = b.keyEnd[i-1]
	}
	return b.keys[start:b.keyEnd[i]]
}

// A feeder divides the records of a task into batches, has them decided by
// workers, and hands them on in their order.
type feeder struct {
	task    Task
	trusted []Span // undecidable records, by their place, where Trust tells them all
	trust   bool
	read    bool // the records' bytes are wanted, not only their outcome
	sorted  bool // their keys are
	spans   *mapReader
	page    []Span // what is left of its last page
	next    int64  // the number of the next record
	size    int64  // reach of the next batch
	free    []*batch
	picked  *picker // takes the place of spans where only some records are examined; nil: all are
}

func newFeeder(t Task, end int64, read bool) (*feeder, error) {
	spans, err := t.Map.reader(t.From.Record, end)
	if err != nil {
		return nil, err
	}
	f := &feeder{task: t, read: read, spans: spans, next: t.From.Record, size: firstBatch}
	f.trusted, f.trust = t.Trust.suspects()
	if t.use != nil {
		f.picked = t.use.picker(t)
	}
	return f, nil
}

// batch takes the next records; nil at the end.
func (f *feeder) batch(ctx context.Context) (*batch, error) {
	var b *batch
	if n := len(f.free); n > 0 {
		b, f.free = f.free[n-1], f.free[:n-1]
	} else {
		b = &batch{ready: make(chan struct{}, 1)}
	}
	b.first, b.spans, b.decided, b.err = f.next, b.spans[:0], 0, nil
	if f.picked != nil {
		return f.pick(ctx, b)
	}
	for len(b.spans) < batchCount {
		if len(f.page) == 0 {
			var err error
			if f.page, err = f.spans.page(ctx); err != nil {
				return nil, err
			}
			if len(f.page) == 0 {
				break
			}
		}
		n := 0
		for room := batchCount - len(b.spans); n < len(f.page) && n < room; n++ {
			start := f.page[0].Start
			if len(b.spans) > 0 {
				start = b.spans[0].Start
			}
			if f.page[n].End-start > f.size && len(b.spans)+n > 0 {
				break
			}
		}
		b.spans = append(b.spans, f.page[:n]...)
		f.page = f.page[n:]
		if len(f.page) > 0 {
			break
		}
	}
	if len(b.spans) == 0 {
		f.free = append(f.free, b)
		return nil, nil
	}
	f.next += int64(len(b.spans))
	f.size = min(2*f.size, batchBytes)
	return b, nil
}

// each calls take for every batch, in order, until take fails. The first batch
// is decided by the caller's goroutine alone: most pages need no more.
func (f *feeder) each(ctx context.Context, take func(*batch) error) error {
	b, err := f.batch(ctx)
	if err != nil || b == nil {
		return err
	}
	own, err := newWorker(f)
	if err != nil {
		return err
	}
	own.decide(b)
	if err := take(b); err != nil {
		return err
	}
	f.free = append(f.free, b)
	workers := f.task.Workers
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	if workers > 1 {
		return f.parallel(ctx, workers, take)
	}
	for {
		b, err := f.batch(ctx)
		if err != nil || b == nil {
			return err
		}
		own.decide(b)
		if err := take(b); err != nil {
			return err
		}
		f.free = append(f.free, b)
	}
}

// parallel is each on several cores.
func (f *feeder) parallel(ctx context.Context, workers int, take func(*batch) error) error {
	jobs := make(chan *batch, 2*workers)
	var all sync.WaitGroup
	for range workers {
		w, err := newWorker(f)
		if err != nil {
			close(jobs)
			return err
		}
		all.Go(func() {
			for b := range jobs {
				w.decide(b)
				b.ready <- struct{}{}
			}
		})
	}
	defer all.Wait()
	defer close(jobs)
	var queue []*batch
	var flight int64
	var held *batch // the next one, while there is no room for it
	for done := false; ; {
		for !done && len(queue) < 2*workers {
			if held == nil {
				var err error
				if held, err = f.batch(ctx); err != nil {
					return f.drain(queue, take, err)
				}
			}
			if done = held == nil; done || len(queue) > 0 && flight+held.reach() > flightBytes {
				break
			}
			flight += held.reach()
			queue = append(queue, held)
			jobs <- held
			held = nil
		}
		if len(queue) == 0 {
			return nil
		}
		b := queue[0]
		queue = queue[:copy(queue, queue[1:])]
		<-b.ready
		flight -= b.reach()
		if err := take(b); err != nil {
			return err
		}
		f.free = append(f.free, b)
	}
}

// drain takes what stands in front of a fault of the map, then returns it.
func (f *feeder) drain(queue []*batch, take func(*batch) error, fault error) error {
	for _, b := range queue {
		<-b.ready
		if err := take(b); err != nil {
			return err
		}
	}
	return fault
}

// worker decides batches. Each goroutine has its own.
type worker struct {
	feed   *feeder
	strict *Evaluator // nil: every record matches
	keys   keyer      // nil: document order
	values *values    // nil: only whole records
	room   []byte     // for a key
	limit  int64      // bytes of a record
}

func newWorker(f *feeder) (*worker, error) {
	w := &worker{feed: f, limit: f.task.Layout.Limits.Record}
	var err error
	if f.task.Where != nil {
		w.strict, err = f.task.Where.Evaluator(f.task.Layout)
	}
	if f.sorted && err == nil {
		w.keys, err = f.task.keys(f.task.Layout)
	}
	if len(f.task.Select) > 0 && err == nil {
		w.values, err = newValues(f.task)
	}
	return w, err
}

// decide reads a batch, where its bytes are needed, and decides its records.
func (w *worker) decide(b *batch) {
	b.outcome = slices.Grow(b.outcome[:0], len(b.spans))[:len(b.spans)]
	b.keys, b.keyEnd, b.values = b.keys[:0], b.keyEnd[:0], b.values[:0]
	if w.strict == nil && !w.feed.read && w.keys == nil && w.values == nil {
		for i := range b.outcome {
			b.outcome[i] = Matched
		}
		b.buf, b.decided = b.buf[:0], len(b.spans)
		return
	}
	if w.long(b) {
		return
	}
	if w.load(b, 0, len(b.spans)) == nil {
		for i := range b.spans {
			b.outcome[i] = w.one(b, i)
		}
		b.decided = len(b.spans)
		return
	}
	// It cannot be read as a whole: decide what stands in front of the fault.
	for i := range b.spans {
		if b.err = w.load(b, i, i+1); b.err != nil {
			return
		}
		b.outcome[i] = w.one(b, i)
		b.decided++
	}
}

// long decides a batch of one record that is too long to be read, and reports
// whether it is such a batch.
func (w *worker) long(b *batch) bool {
	s := b.spans[0]
	switch {
	case len(b.spans) > 1:
		return false
	case (w.strict != nil || w.keys != nil || w.values != nil) && s.Len() > w.limit:
		b.buf, b.keyEnd, b.outcome[0], b.decided = b.buf[:0], append(b.keyEnd, 0), Undecidable, 1
		b.values = append(b.values, nil)
	case s.Len() > DefaultLimits.Record:
		b.err = fail("query", s.Start, ErrRange, "a record of %d bytes is too long to return", s.Len())
	default:
		return false
	}
	return true
}

// load reads the records [i, j) of a batch to their place in its buffer.
func (w *worker) load(b *batch, i, j int) error {
	n := b.reach()
	switch {
	case n <= firstBatch && int64(cap(b.buf)) < n:
		b.buf = make([]byte, firstBatch)
	case n <= batchBytes && (int64(cap(b.buf)) < n || cap(b.buf) > flightBytes):
		b.buf = make([]byte, batchBytes)
	case int64(cap(b.buf)) < n:
		b.buf = make([]byte, n)
	}
	b.buf, b.base = b.buf[:n], b.spans[0].Start
	if b.records != nil {
		return w.loadPicked(b, i, j)
	}
	from, to := b.spans[i].Start, b.spans[j-1].End
	return readFull(w.feed.task.Source, b.buf[from-b.base:to-b.base], from)
}

// one decides a record whose bytes were read. A matching record without a key,
// or with values that cannot be told, is undecidable.
func (w *worker) one(b *batch, i int) Outcome {
	trusted := w.feed.trust && !w.feed.suspect(b.spans[i])
	o := Matched
	switch {
	case w.strict == nil:
	case trusted:
		o = w.strict.EvalTrusted(b.bytes(i))
	default:
		o = w.strict.Eval(b.bytes(i))
	}
	if w.values != nil {
		var list [][]Value
		if o == Matched {
			var ok bool
			if list, ok = w.values.of(b.bytes(i), b.spans[i].Start, w.feed.read); !ok {
				o = Undecidable
			}
		}
		b.values = append(b.values, list)
	}
	if w.keys == nil {
		return o
	}
	if o == Matched {
		w.room, o = w.keys.key(w.room[:0], b.bytes(i), trusted)
		if o == Matched {
			b.keys = append(b.keys, cutKey(w.room)...)
		}
	}
	b.keyEnd = append(b.keyEnd, int32(len(b.keys)))
	return o
}

// suspect reports whether a record was found undecidable when it was validated.
func (f *feeder) suspect(s Span) bool {
	if len(f.trusted) == 0 {
		return false
	}
	_, found := slices.BinarySearchFunc(f.trusted, s, func(a, b Span) int { return compareInt(a.Start, b.Start) })
	return found
}
