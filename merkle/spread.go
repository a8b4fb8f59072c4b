package merkle

import (
	"io"
	"sync"
	"sync/atomic"
)

const (
	// spreadFrom is the size of a Write that is worth several cores: below it
	// starting them takes longer than hashing.
	spreadFrom  = 256 << 10
	spreadTasks = 64 // done between two writes of their nodes: 4 MiB of the blob

	// readFirst and readMore are the sizes of ReadFrom's buffer: for a short
	// stream, and for what follows when the first buffer did not hold it.
	readFirst = 32 << 10
	readMore  = 1 << 20
)

// spread is what the workers of one large Write share. They live no longer than
// the Write, so an abandoned Builder leaves none behind.
type spread struct {
	data  []byte // whole tasks
	group int64  // of the blob, where data begin
	taken atomic.Int64
	done  sync.WaitGroup
	start func() // one worker; made once, so that starting it allocates nothing

	cvs   [spreadTasks]cv
	nodes [spreadTasks][(2<<smallHeight - 1) * nodeSize]byte
}

func (s *spread) work() {
	const size = GroupSize << smallHeight
	for {
		i := s.taken.Add(1) - 1
		if i*size >= int64(len(s.data)) {
			return
		}
		s.cvs[i], _ = pieceCV(s.data[i*size:][:size], s.group+i<<smallHeight, s.nodes[i][:0])
	}
}

// SetWorkers makes a large Write use at most n cores, 0 all of them, which is
// what a new Builder does. With 1 everything runs in the calling goroutine.
func (b *Builder) SetWorkers(n int) { b.workers = n }

// spread adds as many whole tasks at the start of p as are worth it and returns
// the rest. The number of groups so far must be a multiple of a task's.
func (b *Builder) spread(p []byte, workers int) []byte {
	const size = GroupSize << smallHeight
	if b.par == nil {
		s := new(spread)
		s.start = func() {
			defer s.done.Done()
			s.work()
		}
		b.par = s
	}
	s := b.par
	for len(p) >= spreadFrom {
		n := min(len(p)/size, spreadTasks)
		s.data, s.group = p[:n*size], b.base+b.groups
		p = p[n*size:]
		s.taken.Store(0)
		for range min(workers, n) - 1 {
			s.done.Add(1)
			go s.start()
		}
		s.work()
		s.done.Wait()
		s.data = nil
		for i := range n {
			b.noteAll(s.nodes[i][:])
			b.push(s.cvs[i], smallHeight)
		}
	}
	return p
}

// noteAll appends nodes to the log.
func (b *Builder) noteAll(nodes []byte) {
	if b.nodes == nil {
		return
	}
	b.room(len(nodes))
	b.pending = append(b.pending, nodes...)
}

// ReadFrom adds everything that r has to the blob, in pieces large enough for
// all cores. [io.Copy] calls it.
func (b *Builder) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, readFirst)
	for {
		got, err := io.ReadFull(r, buf)
		if _, werr := b.Write(buf[:got]); werr != nil {
			return n, werr
		}
		n += int64(got)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return n, nil
		case err != nil:
			return n, err
		}
		if len(buf) < readMore {
			buf = make([]byte, readMore)
		}
	}
}
