package merkle

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
)

// KeepNodes makes the reader write the nodes of the blob's outboard that the
// body shows to nodes, each at its place in the sealed outboard and only after
// it was verified, so that a receiver of excerpts collects the outboard with the
// bytes. It must be called before the first Next. An error of nodes ends the
// reading.
//
// The outboard has no nodes of imperfect subtrees at the right edge. So the
// nodes that a receiver collects prove its bytes again ([Tree.ValidRanges],
// [Tree.VerifyGroups]) only once it has an excerpt with the last leaf, which
// shows all of the edge; that excerpt also proves the size. Ask for it first.
func (b *BodyReader) KeepNodes(nodes io.WriterAt) {
	k := &keeper{nodes: nodes, size: b.set.size, groups: NewTree(b.root, b.set.size, nil).groups()}
	b.shown = k.parent
}

type keeper struct {
	nodes  io.WriterAt
	size   int64
	groups int64
	buf    [nodeSize]byte
}

// parent keeps the two children of a subtree; of the topmost its own node too,
// which no other parent shows.
func (k *keeper) parent(lo, hi int64, left, right cv) error {
	if hi-lo <= groupLeaves {
		return nil
	}
	lo, hi = lo/groupLeaves, (hi+groupLeaves-1)/groupLeaves
	mid := lo + split(hi-lo)
	if err := k.keep(lo, mid, &left); err != nil {
		return err
	}
	if err := k.keep(mid, hi, &right); err != nil {
		return err
	}
	if hi-lo != k.groups {
		return nil
	}
	c := parentCV(&left, &right, false)
	return k.keep(lo, hi, &c)
}

func (k *keeper) keep(lo, hi int64, c *cv) error {
	i, ok := nodePlace(k.size, lo, hi)
	if !ok {
		return nil
	}
	c.put(k.buf[:])
	if _, err := k.nodes.WriteAt(k.buf[:], i*nodeSize); err != nil {
		return &Error{"write outboard", i * nodeSize, err}
	}
	return nil
}

const (
	progressMagic   = "lpc1"
	progressContext = "leafproof 2026 merkle checkpoint of a receiver"
	progressSum     = 16 // bytes of the checksum
)

// Progress is what a receiver has of a blob: the groups that were verified and
// written, and which of them survive a crash. It is safe for concurrent use.
//
// A receiver adds what it verified and wrote, and now and then takes a
// checkpoint, a record that it stores beside the blob. After a crash it parses
// the record: what the record lists was synced before the record was made, and
// nothing else is trusted. What the record does not list, or all of it where the
// record is missing or torn, [Tree.ValidRanges] can prove again.
type Progress struct {
	root Root
	size int64

	mu      sync.Mutex
	written []Range // leaves, sorted, not touching
	synced  []Range // groups, sorted, not touching
}

// NewProgress returns the Progress of a receiver that has nothing.
func NewProgress(root Root, size int64) *Progress { return &Progress{root: root, size: size} }

// Add notes that the bytes [start, end) of the blob were verified and written,
// with the nodes that prove them. Parts of leaves at either end do not count,
// and in a checkpoint parts of groups do not; bytes outside the blob are
// ErrRange.
func (p *Progress) Add(start, end int64) error {
	if start < 0 || end < start || end > p.size {
		return &Error{"note progress", -1, fmt.Errorf("%w: bytes %d:%d of %d", ErrRange, start, end, p.size)}
	}
	r := Range{roundUp(start, LeafSize), end / LeafSize}
	if end == p.size {
		r.End = leafCount(p.size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = insert(p.written, r)
	return nil
}

func roundUp(n, unit int64) int64 {
	if n == 0 {
		return 0
	}
	return (n-1)/unit + 1
}

// insert returns the ranges with r added.
func insert(ranges []Range, r Range) []Range {
	if r.End <= r.Start {
		return ranges
	}
	// All from i to j touch r.
	i, _ := slices.BinarySearchFunc(ranges, r.Start, func(a Range, at int64) int { return compare(a.End, at) })
	j := i
	for ; j < len(ranges) && ranges[j].Start <= r.End; j++ {
		r.Start, r.End = min(r.Start, ranges[j].Start), max(r.End, ranges[j].End)
	}
	return slices.Replace(ranges, i, j, r)
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Checkpoint calls sync, which must make durable all bytes and nodes that were
// written before, and returns the record of what had been added when it was
// called. The caller then stores the record, and need not do so atomically: a
// torn record is recognised. What is added while sync runs is left to the next
// checkpoint. An error of sync is returned and nothing becomes trusted.
func (p *Progress) Checkpoint(sync func() error) ([]byte, error) {
	p.mu.Lock()
	groups := p.groups()
	p.mu.Unlock()
	if err := sync(); err != nil {
		return nil, &Error{"sync", -1, err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		p.synced = insert(p.synced, g)
	}
	return p.record(), nil
}

// groups returns the groups that are written whole.
func (p *Progress) groups() []Range {
	var groups []Range
	for _, r := range p.written {
		g := Range{roundUp(r.Start, groupLeaves), r.End / groupLeaves}
		if r.End == leafCount(p.size) {
			g.End = NewTree(p.root, p.size, nil).groups()
		}
		groups = insert(groups, g)
	}
	return groups
}

// Durable returns the ranges of bytes of the blob that are synced, in order.
func (p *Progress) Durable() []Range {
	p.mu.Lock()
	defer p.mu.Unlock()
	var bytes []Range
	for _, g := range p.synced {
		bytes = append(bytes, Range{g.Start * GroupSize, min(g.End, p.size/GroupSize)*GroupSize + p.rest(g)})
	}
	return bytes
}

// rest returns how many bytes of the partial last group a range of groups has.
func (p *Progress) rest(g Range) int64 {
	if g.End > p.size/GroupSize {
		return p.size % GroupSize
	}
	return 0
}

// Missing returns the ranges of bytes of the blob that were not added, in order:
// what to ask for next.
func (p *Progress) Missing() []Range {
	p.mu.Lock()
	defer p.mu.Unlock()
	var missing []Range
	next := int64(0)
	set := LeafSet{size: p.size}
	for _, r := range append(slices.Clone(p.written), Range{leafCount(p.size), leafCount(p.size)}) {
		if r.Start > next {
			missing = append(missing, Range{next * LeafSize, set.offset(r.Start)})
		}
		next = r.End
	}
	return missing
}

// record returns the bytes of a checkpoint.
func (p *Progress) record() []byte {
	b := append([]byte(progressMagic), p.root[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.size))
	b = binary.AppendUvarint(b, uint64(len(p.synced)))
	end := int64(0)
	for _, g := range p.synced {
		b = binary.AppendUvarint(b, uint64(g.Start-end))
		b = binary.AppendUvarint(b, uint64(g.End-g.Start-1))
		end = g.End
	}
	sum := DeriveKey(progressContext, b)
	return append(b, sum[:progressSum]...)
}

// ParseProgress returns the Progress that a checkpoint recorded, of the blob
// with this root and size; what it lists is both added and durable. Any other
// bytes, a torn record among them, are ErrMalformed; the record of another blob
// is ErrMismatch. Its checksum finds accidents, not forgery: a record is the
// receiver's own, and whoever can write it can also write the blob.
func ParseProgress(record []byte, root Root, size int64) (*Progress, error) {
	if size < 0 {
		return nil, &Error{"read checkpoint", -1, fmt.Errorf("%w: size %d", ErrRange, size)}
	}
	const head = len(progressMagic) + len(root) + 8
	n := len(record) - progressSum
	if n < head || string(record[:len(progressMagic)]) != progressMagic {
		return nil, malformed("it is no checkpoint")
	}
	if sum := DeriveKey(progressContext, record[:n]); !bytes.Equal(sum[:progressSum], record[n:]) {
		return nil, malformed("the checksum of the checkpoint is wrong")
	}
	p := NewProgress(root, size)
	if !bytes.Equal(record[len(progressMagic):][:len(root)], root[:]) ||
		binary.LittleEndian.Uint64(record[head-8:]) != uint64(size) {
		return nil, &Error{"read checkpoint", -1, fmt.Errorf("%w: it is another blob's", ErrMismatch)}
	}
	// Each range takes two bytes at least, so memory is bounded by the record.
	in := bufio.NewReader(bytes.NewReader(record[head:n]))
	count, err := readUvarint(in, int64(n))
	if err != nil {
		return nil, err
	}
	groups, end := NewTree(root, size, nil).groups(), int64(0)
	for i := range count {
		gap, err := readUvarint(in, groups)
		if err != nil {
			return nil, err
		}
		length, err := readUvarint(in, groups)
		if err != nil {
			return nil, err
		}
		start := end + gap
		if gap == 0 && i > 0 || start >= groups || length >= groups-start {
			return nil, malformed("range %d touches the one before or ends past every group", i)
		}
		end = start + length + 1
		p.synced = append(p.synced, Range{start, end})
		p.written = append(p.written, Range{start * groupLeaves, min(end*groupLeaves, leafCount(size))})
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return nil, malformed("bytes follow the ranges")
	}
	return p, nil
}
