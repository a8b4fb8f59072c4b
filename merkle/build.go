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

// A task is the perfect subtree that one worker hashes at a time, and whose nodes
// it writes with one WriteAt. BuildAt reads it, a piece at a time, into the
// worker's own buffer, which stays in the core's cache, and never maps it: a
// mapped file that is truncated kills the process.
const (
	smallHeight = 2 // 64 KiB: for a Write, and for blobs below largeFrom
	largeHeight = 4 // 256 KiB, which is also the largest piece
	largeFrom   = 4 << 20
	hugeHeight  = 6 // 1 MiB
	hugeFrom    = 256 << 20

	// maxLead is how many tasks a worker may be ahead of the first task that is
	// not done, so that one slow read does not pile up values of later ones.
	maxLead = 64
)

// BuildAt computes the root of the size bytes of r on all cores and writes the
// sealed outboard, OutboardSize(size) bytes, to nodes, unless nodes is nil. The
// nodes are written in no particular order and, as an [io.WriterAt] allows, by
// several goroutines at once; r is read so too. None of them is left when
// BuildAt returns.
//
// It holds one buffer of at most 256 KiB a core whatever the size. A reader that
// ends before size bytes or goes on after them is ErrChanged; a size below 0 is
// ErrRange; an error of r or nodes, or of ctx, is passed on. After an error
// what was written to nodes is worthless. Bytes that change while the size stays
// are hashed as they were read: each once.
func BuildAt(ctx context.Context, r io.ReaderAt, size int64, nodes io.WriterAt) (Root, error) {
	return BuildAtWorkers(ctx, r, size, nodes, 0)
}

// BuildAtWorkers is [BuildAt] on at most that many cores; 0 means all. One
// worker is the calling goroutine, so that r and nodes are never used by two
// goroutines at once.
func BuildAtWorkers(ctx context.Context, r io.ReaderAt, size int64, nodes io.WriterAt, workers int) (Root, error) {
	if size < 0 {
		return Root{}, &Error{"build", -1, fmt.Errorf("%w: size %d", ErrRange, size)}
	}
	if size <= GroupSize {
		return buildGroup(r, size)
	}
	joined := NewBuilder(nodes)
	if err := buildInto(ctx, joined, r, size, workers); err != nil {
		return Root{}, err
	}
	return joined.Seal()
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

// buildInto adds all size bytes of r to a new Builder.
func buildInto(ctx context.Context, joined *Builder, r io.ReaderAt, size int64, workers int) error {
	b := &build{r: r, joined: joined, height: taskHeight(size)}
	b.moved.L = &b.mu
	task := b.taskSize()
	// The builder itself takes the last task, complete or not: it knows how a
	// blob ends.
	b.tasks = max(size-1, 0) / task
	n := int(max(min(int64(maxWorkers(workers)), b.tasks), 1))
	joined.workers = n
	// Every worker has a part of one slab, and the tail then has the first.
	slab := size
	if b.tasks > 0 {
		slab = int64(n) * (b.pieceSize() + nodeSize*taskNodes(b.height))
	}
	buf := make([]byte, slab)
	b.run(ctx, buf, n)
	if b.err != nil {
		return b.err
	}
	for off := b.tasks * task; off < size; off += b.pieceSize() {
		tail := buf[:min(size-off, b.pieceSize())]
		if err := readFull(r, tail, off); err != nil {
			return err
		}
		if _, err := joined.Write(tail); err != nil {
			return err
		}
	}
	return checkEnd(r, size)
}

// taskHeight returns the height of the tasks of a blob of size bytes: the larger
// they are, the less often the outboard is written to, and the later the last
// core is done.
func taskHeight(size int64) int {
	switch {
	case size < largeFrom:
		return smallHeight
	case size < hugeFrom:
		return largeHeight
	}
	return hugeHeight
}

// maxWorkers returns how many workers a caller's number means.
func maxWorkers(workers int) int {
	if workers > 0 {
		return workers
	}
	return runtime.GOMAXPROCS(0)
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
	r      io.ReaderAt
	height int // of a task
	tasks  int64
	taken  atomic.Int64

	mu      sync.Mutex
	moved   sync.Cond     // next or err did
	joined  *Builder      // holds the tasks up to the first one that is not done
	next    int64         // that task
	done    [maxLead]bool // tasks from next on, task i at i % maxLead
	waiting [maxLead]cv   // their values
	err     error         // the first one
}

func (b *build) taskSize() int64 { return GroupSize << b.height }

// pieceSize returns how much of a task is read at once.
func (b *build) pieceSize() int64 { return GroupSize << min(b.height, largeHeight) }

// taskNodes returns how many nodes the log has of a subtree of height h.
func taskNodes(h int) int64 { return 2<<h - 1 }

// run does all tasks with n workers, of which one is the caller.
func (b *build) run(ctx context.Context, buf []byte, n int) {
	if b.tasks == 0 {
		return
	}
	size := len(buf) / n
	var wg sync.WaitGroup
	for i := range n - 1 {
		wg.Go(func() { b.work(ctx, buf[(i+1)*size:][:size]) })
	}
	b.work(ctx, buf[:size])
	wg.Wait()
}

// work takes tasks until there is none left or something failed.
func (b *build) work(ctx context.Context, buf []byte) {
	data, out := buf[:b.pieceSize()], buf[b.pieceSize():b.pieceSize()]
	for {
		task := b.taken.Add(1) - 1
		if task >= b.tasks {
			return
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
		return cv{}, &Error{"build", task * b.taskSize(), err}
	}
	var stack [hugeHeight - largeHeight + 1]cv
	depth, group := 0, b.joined.base+task<<b.height
	for i := range b.taskSize() / b.pieceSize() {
		at := i * b.pieceSize()
		if err := readFull(b.r, data, task*b.taskSize()+at); err != nil {
			return cv{}, err
		}
		var c cv
		c, out = pieceCV(data, group+at/GroupSize, out)
		for m := i + 1; m%2 == 0; m /= 2 {
			depth--
			c = parentCV(&stack[depth], &c, false)
			out = appendCV(out, &c)
		}
		stack[depth] = c
		depth++
	}
	if nodes := b.joined.nodes; nodes != nil {
		off := logSize(group) * nodeSize
		if _, err := nodes.WriteAt(out, off); err != nil {
			return cv{}, &Error{"write outboard", off, err}
		}
	}
	return stack[0], nil
}

// pieceCV returns the value of the piece, or small task, whose bytes are data and
// which begins at a group, with its nodes in the order of the log appended to out.
func pieceCV(data []byte, group int64, out []byte) (cv, []byte) {
	if wide {
		return widePieceCV(data, group, out)
	}
	var stack [largeHeight + 1]cv
	depth := 0
	for i := range len(data) / GroupSize {
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
	for err == nil && b.err == nil && task >= b.next+maxLead {
		b.moved.Wait()
	}
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.done[task%maxLead], b.waiting[task%maxLead] = true, c
		for b.err == nil && b.done[b.next%maxLead] {
			b.done[b.next%maxLead] = false
			b.joined.flush()
			b.joined.written += taskNodes(b.height)
			b.joined.push(b.waiting[b.next%maxLead], b.height)
			b.next++
			b.err = b.joined.err
		}
	}
	if b.err != nil {
		b.taken.Store(b.tasks)
	}
	b.moved.Broadcast()
	return b.err == nil
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
