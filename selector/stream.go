package selector

import (
	"bytes"
	"context"
	"io"
	"sync"
)

const (
	// headroom is how much of a record is kept without a copy of the block that
	// follows it.
	headroom = 64 << 10
	// lendMax is the longest record whose bytes are kept; longer ones are read
	// again.
	lendMax = 1 << 20
)

// A block holds the bytes of a stream, behind the headroom.
type block [headroom + blockSize]byte

var blockPool = sync.Pool{New: func() any { return new(block) }}

// stream gives the bytes of a source in order, block by block, and keeps those
// of the record that is under way, so that its bytes are at hand when it ends.
type stream struct {
	ctx   context.Context
	fetch func(off int64) (r *block, n int, err error) // a block from blockPool; io.EOF at the end
	look  func(block []byte, at int64) error           // sees every block first; may be nil
	data  []byte                                       // what is at hand: what was kept, and the current block
	base  int64                                        // where data begins
	begun bool                                         // begin read the first block
	room  *block                                       // of the current block
	joint [2][]byte                                    // for what is kept beyond the headroom, in turn
}

// streamOf reads [0, size) of a source.
func streamOf(ctx context.Context, src io.ReaderAt, size int64) *stream {
	return &stream{ctx: ctx, fetch: func(off int64) (*block, int, error) {
		n := min(blockSize, size-off)
		if n <= 0 {
			return nil, 0, io.EOF
		}
		r := blockPool.Get().(*block)
		return r, int(n), readFull(src, r[headroom:headroom+n], off)
	}}
}

// close gives the rooms back; lent bytes are gone.
func (s *stream) close() {
	if s.room != nil {
		blockPool.Put(s.room)
		s.room, s.data = nil, nil
	}
}

// end returns where what is at hand ends.
func (s *stream) end() int64 { return s.base + int64(len(s.data)) }

// begin reads the first bytes and steps over a UTF-8 byte order mark.
func (s *stream) begin() (mark bool, err error) {
	for len(s.data) < len(bom) && err == nil {
		_, err = s.next(0)
	}
	if err == io.EOF {
		err = nil
	}
	s.begun = err == nil
	if mark = bytes.HasPrefix(s.data, bom); mark {
		s.data, s.base = s.data[len(bom):], int64(len(bom))
	}
	return mark, err
}

// next reads the next block and keeps the bytes from keep on, unless they are
// more than lendMax. It returns where in data the block begins; at the end
// io.EOF, and data stays as it is.
func (s *stream) next(keep int64) (fresh int, err error) {
	if s.begun {
		s.begun = false
		if len(s.data) > 0 {
			return 0, nil
		}
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	at := s.end()
	r, n, err := s.fetch(at)
	if err != nil {
		if r != nil {
			blockPool.Put(r)
		}
		return 0, err
	}
	block := r[headroom : headroom+n]
	if s.look != nil {
		if err := s.look(block, at); err != nil {
			blockPool.Put(r)
			return 0, err
		}
	}
	if at-keep > lendMax {
		keep = at
	}
	kept := s.data[keep-s.base:]
	if len(kept) <= headroom {
		copy(r[headroom-len(kept):], kept)
		s.data = r[headroom-len(kept) : headroom+n]
	} else {
		s.joint[0], s.joint[1] = s.joint[1], s.joint[0]
		s.joint[0] = append(append(s.joint[0][:0], kept...), block...)
		s.data = s.joint[0]
	}
	if s.room != nil {
		blockPool.Put(s.room)
	}
	s.room, s.base = r, keep
	return len(kept), nil
}

// lend returns the bytes of a record that just ended, valid until the next
// block; false for one that was too long to keep.
func (s *stream) lend(span Span) ([]byte, bool) {
	if span.Start < s.base {
		return nil, false
	}
	return s.data[span.Start-s.base : span.End-s.base], true
}
