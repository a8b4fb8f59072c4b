package merkle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// A task is the perfect subtree that one worker of BuildAt hashes at a time. It
// is read with one ReadAt into the worker's own buffer, never mapped: a mapped
// file that is truncated kills the process, and the vector code is twice as
// fast on bytes that were just copied into the cache.
const (
	taskHeight = 4
	taskGroups = 1 << taskHeight
	taskSize   = taskGroups * GroupSize
	taskNodes  = 2*taskGroups - 1
)

// BuildAt computes the root of the size bytes of r on all cores and writes the
// sealed outboard, OutboardSize(size) bytes, to nodes, unless nodes is nil. The
// nodes are written in no particular order and, as an [io.WriterAt] allows, by
// several goroutines at once; r is read so too.
//
// It holds one buffer of 256 KiB a core whatever the size. A reader that ends
// before size bytes or goes on after them is ErrChanged; a size below 0 is
// ErrRange; an error of r or nodes, or of ctx, is passed on. After an error
// what was written to nodes is worthless.
func BuildAt(ctx context.Context, r io.ReaderAt, size int64, nodes io.WriterAt) (Root, error) {
	if size < 0 {
		return Root{}, &Error{"build", -1, fmt.Errorf("%w: size %d", ErrRange, size)}
	}
	if size <= GroupSize {
		return buildGroup(r, size)
	}
	// The builder itself takes the last task, complete or not: it knows how a
	// blob ends.
	b := &build{r: r, nodes: nodes, joined: NewBuilder(nodes), waiting: map[int64]cv{}}
	b.tasks = max(size-1, 0) / taskSize
	if err := b.run(ctx); err != nil {
		return Root{}, err
	}
	off := b.tasks * taskSize
	tail := make([]byte, size-off)
	if err := readFull(r, tail, off); err != nil {
		return Root{}, err
	}
	if err := checkEnd(r, size); err != nil {
		return Root{}, err
	}
	if _, err := b.joined.Write(tail); err != nil {
		return Root{}, err
	}
	return b.joined.Seal()
}

// buildGroup is BuildAt for a blob without an outboard.
func buildGroup(r io.ReaderAt, size int64) (Root, error) {
	p := make([]byte, size)
	if err := readFull(r, p, 0); err != nil {
		return Root{}, err
	}
	if err := checkEnd(r, size); err != nil {
		return Root{}, err
	}
	return Sum(p), nil
}

// checkEnd checks that r has nothing from size on.
func checkEnd(r io.ReaderAt, size int64) error {
	n, err := r.ReadAt(make([]byte, 1), size)
	switch {
	case n > 0:
		return &Error{"read", size, fmt.Errorf("%w: it is longer than %d bytes", ErrChanged, size)}
	case err != nil && !errors.Is(err, io.EOF):
		return &Error{"read", size, err}
	}
	return nil
}

// build is the state that the workers of one BuildAt share.
type build struct {
	r     io.ReaderAt
	nodes io.WriterAt
	tasks int64
	taken atomic.Int64

	mu      sync.Mutex
	joined  *Builder     // holds the tasks up to the first one that is not done
	next    int64        // that task
	waiting map[int64]cv // tasks done after it
	err     error        // the first one
}

// run does all tasks.
func (b *build) run(ctx context.Context) error {
	workers := min(int64(runtime.GOMAXPROCS(0)), b.tasks)
	if workers <= 1 {
		b.work(ctx)
		return b.err
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { b.work(ctx) })
	}
	wg.Wait()
	return b.err
}

// work takes tasks until there is none left or something failed.
func (b *build) work(ctx context.Context) {
	var data, out []byte
	for {
		task := b.taken.Add(1) - 1
		if task >= b.tasks {
			return
		}
		if data == nil {
			data = make([]byte, taskSize)
			out = make([]byte, 0, taskNodes*nodeSize)
		}
		c, err := b.one(ctx, task, data, out)
		if !b.join(task, c, err) {
			return
		}
	}
}

// one reads and hashes a task and writes the nodes inside it, which stand
// together in the log.
func (b *build) one(ctx context.Context, task int64, data, out []byte) (cv, error) {
	if err := ctx.Err(); err != nil {
		return cv{}, &Error{"build", task * taskSize, err}
	}
	if err := readFull(b.r, data, task*taskSize); err != nil {
		return cv{}, err
	}
	c, out := taskCV(data, task*taskGroups, out[:0])
	if b.nodes != nil {
		off := logSize(task*taskGroups) * nodeSize
		if _, err := b.nodes.WriteAt(out, off); err != nil {
			return cv{}, &Error{"write outboard", off, err}
		}
	}
	return c, nil
}

// taskCV returns the value of the task whose bytes are data and which begins at
// a group, with its nodes in the order of the log appended to out.
func taskCV(data []byte, group int64, out []byte) (cv, []byte) {
	var stack [taskHeight + 1]cv
	depth := 0
	for i := range taskGroups {
		c := leavesCV(data[i*GroupSize:][:GroupSize], (group+int64(i))*groupLeaves, false)
		out = appendCV(out, &c)
		for m := i + 1; m%2 == 0; m /= 2 {
			depth--
			c = parentCV(&stack[depth], &c, false)
			out = appendCV(out, &c)
		}
		stack[depth] = c
		depth++
	}
	return stack[0], out
}

// join adds a task that is done and reports whether to go on.
func (b *build) join(task int64, c cv, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	if b.err != nil {
		b.taken.Store(b.tasks)
		return false
	}
	b.waiting[task] = c
	for {
		c, ok := b.waiting[b.next]
		if !ok {
			return true
		}
		delete(b.waiting, b.next)
		b.next++
		b.joined.flush()
		b.joined.written += taskNodes
		b.joined.push(c, taskHeight)
		b.err = b.joined.err
	}
}

// readFull fills p from the bytes of r at off. A reader that has fewer has
// changed since its size was taken.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{"read", off + int64(n), fmt.Errorf("%w: it ends here", ErrChanged)}
	}
	return &Error{"read", off + int64(n), err}
}
