package cas

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// commits is the queue in which batches of one tenant wait for a pack. The one
// at its front writes for those behind it too: goroutines that commit at the
// same time share one pack, and its two fsyncs.
type commits struct {
	mu      sync.Mutex
	busy    bool // somebody leads
	waiting []*commit
}

// commit is one batch that waits.
type commit struct {
	ctx  context.Context
	h    *hold
	w    *packWriter // not touched by its batch until the end
	err  error
	done chan struct{} // closed when err is the result
	lead chan struct{} // closed when it is at the front and nobody leads
}

// commit makes what w holds durable, alone or with what others wait for. It ends
// only when the pack is written or not, even if ctx ends before, as long as
// others wait for the same pack.
func (x *packs) commit(ctx context.Context, h *hold, w *packWriter) error {
	q := &x.commits
	c := &commit{ctx: ctx, h: h, w: w, done: make(chan struct{}), lead: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, c)
	leads := !q.busy
	q.busy = true
	q.mu.Unlock()
	if !leads {
		select {
		case <-c.done:
			return c.err
		case <-c.lead:
		}
	}
	x.writeGroup(q.take())
	q.handOver()
	x.tidy(ctx)
	return c.err
}

// take returns those at the front that fit into one pack: one at least.
func (q *commits) take() []*commit {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, n := 0, 0
	for n < len(q.waiting) && (n == 0 || size+q.waiting[n].w.size <= maxPending) {
		size += q.waiting[n].w.size
		n++
	}
	group := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return group
}

func (q *commits) handOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	close(q.waiting[0].lead)
}

// writeGroup writes one pack for all of a group and gives each its result.
func (x *packs) writeGroup(group []*commit) {
	all := group[0].w
	holds := make([]*hold, len(group))
	if len(group) > 1 {
		all = new(packWriter)
		for _, c := range group {
			all.room += c.w.loose()
		}
	}
	for i, c := range group {
		holds[i] = c.h
		if len(group) > 1 {
			all.absorb(c.w)
		}
	}
	ctx, cancel := groupContext(group)
	_, err := x.write(ctx, holds, all)
	cancel()
	for _, c := range group {
		c.err = err
		// What concerns one of them must not fail the others.
		if len(group) > 1 && (errors.Is(err, ErrLease) || errors.Is(err, ErrClosed)) {
			_, c.err = x.write(c.ctx, []*hold{c.h}, c.w)
		}
		close(c.done)
	}
}

// groupContext is done when every member's context is.
func groupContext(group []*commit) (context.Context, context.CancelFunc) {
	if len(group) == 1 {
		return group[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(group[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(group)))
	var stops []func() bool
	for _, c := range group {
		stops = append(stops, context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// loose is the number of bytes in runs that absorb takes apart.
func (w *packWriter) loose() (n int) {
	for _, r := range w.runs {
		if !r.complete {
			n += len(r.stored)
		}
	}
	return n
}

// absorb adds the blobs of v in their order. Runs that were added to v as a
// whole stay as they are.
func (w *packWriter) absorb(v *packWriter) {
	keys := make([][]packKey, len(v.runs))
	for _, k := range v.keys {
		if _, ok := w.keys[k.root]; !ok {
			keys[k.run] = append(keys[k.run], k)
		}
	}
	for i, run := range v.runs {
		slices.SortFunc(keys[i], func(a, b packKey) int {
			return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.length, b.length), bytes.Compare(a.root[:], b.root[:]))
		})
		if run.complete {
			if len(keys[i]) > 0 {
				w.addRun(run, keys[i])
			}
			continue
		}
		for _, k := range keys[i] {
			w.add(k.root, run.stored[k.off:k.off+k.length])
		}
	}
}

// pinAll pins the first generation from name on that is condemned for none.
func pinAll(ctx context.Context, holds []*hold, name Name) (Name, error) {
	for i := 0; i < len(holds); {
		free, err := holds[i].free(ctx, name)
		switch {
		case err != nil:
			return name, err
		case free != name:
			name, i = free, 0
		default:
			i++
		}
	}
	return name, nil
}
