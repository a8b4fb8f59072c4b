package merkle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Log reads the outboard log of a blob that grows: the nodes of its complete
// groups, which are never rewritten. The log of a blob and at most one group of
// its bytes give the root of every prefix that it has ever been, and what is
// needed to write on.
//
// A log says nothing of whether it is right. What comes from it is right if the
// root is, so a caller compares [Log.Root] with a root that it knows, and
// [RecoverLog] checks a log that a crash may have torn.
type Log struct {
	nodes  io.ReaderAt
	groups int64
}

// OpenLog returns the log whose first n bytes are in nodes. Bytes that are not
// all the nodes of one more complete group do not count: the value of a partial
// group that [Builder.Seal] left, and a torn end.
func OpenLog(nodes io.ReaderAt, n int64) *Log { return &Log{nodes, logGroups(n)} }

// logGroups returns how many complete groups have all their nodes in n bytes of
// log.
func logGroups(n int64) int64 {
	count := max(n, 0) / nodeSize
	m := min(count/2+64, math.MaxInt64/GroupSize)
	for logSize(m) > count {
		m--
	}
	return m
}

// Size returns how many bytes of the blob the log covers: all of its complete
// groups.
func (l *Log) Size() int64 { return l.groups * GroupSize }

// TailStart returns where the tail of a blob of size bytes begins, which is what
// the log does not tell of it: its partial last group, or all of a blob of at
// most one group.
func TailStart(size int64) int64 {
	if size <= GroupSize {
		return 0
	}
	return size - size%GroupSize
}

// Root returns the root of the first size bytes of the blob, of which tail are
// those from TailStart(size) on. It reads at most one node for every bit of the
// number of groups, in microseconds whatever the size. A size that the log does
// not reach, or a tail of another length, is ErrRange; a truncated log is
// ErrMalformed.
func (l *Log) Root(size int64, tail []byte) (Root, error) {
	if err := l.check(size, tail); err != nil {
		return Root{}, err
	}
	if size <= GroupSize {
		return Sum(tail), nil
	}
	var s peaks
	if err := l.load(&s, size, false); err != nil {
		return Root{}, err
	}
	var last *cv
	if len(tail) > 0 {
		c := leavesCV(tail, s.groups*groupLeaves, false)
		last = &c
	}
	c := s.top(last, true)
	return c.root(), nil
}

// Tree returns the tree of the first size bytes of the blob, with tail as for
// [Log.Root], so that proofs of any state that the blob has been in can be made
// from one log.
func (l *Log) Tree(size int64, tail []byte) (*Tree, error) {
	root, err := l.Root(size, tail)
	if err != nil {
		return nil, err
	}
	v := &version{nodes: l.nodes}
	if size > GroupSize {
		v.end = logSize(size/GroupSize) * nodeSize
	}
	if size > GroupSize && len(tail) > 0 {
		c := leavesCV(tail, size/GroupSize*groupLeaves, false)
		v.last = appendCV(nil, &c)
	}
	return NewTree(root, size, v), nil
}

// version is the sealed outboard of a prefix: a part of the log and the value of
// the group that was partial then.
type version struct {
	nodes io.ReaderAt
	end   int64 // of what is taken from the log
	last  []byte
}

func (v *version) ReadAt(p []byte, off int64) (n int, err error) {
	if off < v.end {
		n, err = v.nodes.ReadAt(p[:min(int64(len(p)), v.end-off)], off)
		if err != nil && !(errors.Is(err, io.EOF) && off+int64(n) == v.end) {
			return n, err
		}
	}
	if at := off + int64(n) - v.end; at >= 0 && at < int64(len(v.last)) {
		n += copy(p[n:], v.last[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Builder returns a Builder that has the first size bytes of the blob, with tail
// as for [Log.Root], and writes on: what is written to it follows them, and its
// nodes go to nodes, after those that the log has of the prefix, which it does
// not write again. The few nodes that it takes from the log are checked against
// those below them: a torn log is ErrMismatch.
func (l *Log) Builder(size int64, tail []byte, nodes io.WriterAt) (*Builder, error) {
	if err := l.check(size, tail); err != nil {
		return nil, err
	}
	b := NewBuilder(nodes)
	if size > GroupSize {
		if err := l.load(&b.peaks, size, true); err != nil {
			return nil, err
		}
		b.written = logSize(b.groups)
	}
	if _, err := b.Write(tail); err != nil {
		return nil, err
	}
	return b, nil
}

func (l *Log) check(size int64, tail []byte) error {
	if size < 0 || size > GroupSize && size/GroupSize > l.groups || int64(len(tail)) != size-TailStart(size) {
		return &Error{"read log", -1, fmt.Errorf("%w: %d bytes with a tail of %d, from a log of %d groups", ErrRange, size, len(tail), l.groups)}
	}
	return nil
}

// load reads the peaks of the complete groups of more than one; with check it
// compares each with the two nodes below it.
func (l *Log) load(s *peaks, size int64, check bool) error {
	r := newNodeReader(NewTree(Root{}, size, l.nodes), nodeSize)
	s.groups = size / GroupSize
	end := int64(0) // groups
	for left := uint64(s.groups); left != 0; {
		h := bits.Len64(left) - 1
		left &^= 1 << h
		end += 1 << h
		c, err := r.node(logIndex(end, h))
		if err != nil {
			return err
		}
		if h > 0 && (check || left == 0) {
			if s.left, err = r.node(logIndex(end-1<<(h-1), h-1)); err != nil {
				return err
			}
			if s.right, err = r.node(logIndex(end, h-1)); err != nil {
				return err
			}
			if check && parentCV(&s.left, &s.right, false) != c {
				return &Error{"read log", logIndex(end, h) * nodeSize, fmt.Errorf("a node %w: it is not the parent of those below it", ErrMismatch)}
			}
		}
		s.put(c)
	}
	return nil
}

// LogFile is an outboard log that can be repaired. An *os.File is one.
type LogFile interface {
	io.ReaderAt
	io.WriterAt
}

// RecoverLog returns a Builder of the size bytes of data, a blob that grew until
// something stopped its writer, from the first n bytes of its log. Neither needs
// to have been synced: every node of the log is recomputed from the two below
// it, and from the first that is missing or wrong on, as from the last groups
// whose nodes nothing else confirms, the log is rebuilt from data. It returns
// how many bytes of the blob the nodes that were kept cover; the others were
// hashed again.
//
// That repairs the log, not the data: data that were not synced may be lost
// though the log has their values. A caller that knows the root of an earlier
// size compares [Log.Root] with it. A size below 0 is ErrRange, data that are
// shorter ErrChanged; an error of data or log other than its end is passed on.
func RecoverLog(ctx context.Context, data io.ReaderAt, size int64, log LogFile, n int64) (b *Builder, kept int64, err error) {
	if size < 0 {
		return nil, 0, &Error{"recover log", -1, fmt.Errorf("%w: size %d", ErrRange, size)}
	}
	s := logScan{nodes: log}
	sound, err := s.run(ctx, min(logGroups(n), size/GroupSize))
	if err != nil {
		return nil, 0, err
	}
	// Only its parent confirms a group: where that is wrong or not there yet, the
	// first group of the pair is in doubt too.
	kept = sound &^ 1 * GroupSize
	if b, err = OpenLog(log, logSize(kept/GroupSize)*nodeSize).Builder(kept, nil, log); err != nil {
		return nil, 0, err
	}
	buf := make([]byte, min(size-kept, readMore))
	for at := kept; at < size; at += int64(len(buf)) {
		buf = buf[:min(size-at, readMore)]
		if err := ctx.Err(); err != nil {
			return nil, 0, &Error{"recover log", at, err}
		}
		if err := readFull(data, buf, at); err != nil {
			return nil, 0, err
		}
		if _, err := b.Write(buf); err != nil {
			return nil, 0, err
		}
	}
	if b.flush(); b.err != nil {
		return nil, 0, b.err
	}
	return b, kept, nil
}

// logScan recomputes a log from front to back.
type logScan struct {
	peaks
	nodes io.ReaderAt
	buf   [4096]byte
	have  []byte
	at    int64 // of what follows have
	short bool  // the log ended too early
}

// next returns the next node, or false if the log ends before it.
func (s *logScan) next() (c cv, ok bool, err error) {
	if len(s.have) < nodeSize {
		n, err := s.nodes.ReadAt(s.buf[:], s.at)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return cv{}, false, &Error{"read outboard", s.at, err}
		}
		s.have = s.buf[:n]
		s.at += int64(n)
		if n < nodeSize {
			s.short = true
			return cv{}, false, nil
		}
	}
	c = getCV(s.have)
	s.have = s.have[nodeSize:]
	return c, true, nil
}

// run adds the nodes of so many groups and returns how many come before the
// first node that is missing or is not the parent of those below it.
func (s *logScan) run(ctx context.Context, groups int64) (int64, error) {
	for m := range groups {
		if m%4096 == 0 && ctx.Err() != nil {
			return 0, &Error{"read outboard", s.at, ctx.Err()}
		}
		c, ok, err := s.next()
		if !ok {
			return m, err
		}
		for range s.begin(0) {
			s.merge(&c)
			if found, ok, err := s.next(); !ok || found != c {
				return m, err
			}
		}
		s.put(c)
	}
	return groups, nil
}
