package merkle

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
)

const (
	// blockGroups is the size in groups of a block, the smallest subtree whose
	// value a Verifier remembers: 1 MiB of the blob.
	blockGroups = 64
	// blockNodes is the most nodes that the log has of one block. They stand
	// next to each other.
	blockNodes = 2*blockGroups - 1

	// How many values a Verifier remembers: of blocks, and of each kind of
	// larger subtree. 1 GiB has 1,024 blocks.
	rememberedBlocks = 1024
	rememberedUpper  = 256
	// idleChecks is how many checks, 10 KiB each, wait for the next call.
	idleChecks = 4
)

// Verifier checks groups as [Tree.VerifyGroups] does and remembers the values
// that it proved of subtrees of 1 MiB and more. The next check ends at the
// smallest of them instead of at the root, so that checks of parts of a large
// blob need one read of 4 KiB of the outboard each, or none when they follow
// each other, and allocate nothing. It remembers values only that it proved:
// 75 KiB of them for a blob of 1 GiB, and less than 500 KiB for any blob. It is
// safe for concurrent use if the outboard is.
type Verifier struct {
	t *Tree

	mu     sync.Mutex
	proven [][]provenNode // by level: 0 are blocks, a subtree of 2 to 2^n blocks is of level 1 to n
	limits [2]int         // the length of proven[0], of each other level
	idle   []*check
}

// provenNode is a value that hashed up to the root.
type provenNode struct {
	number int64 // from 1; 0: none
	cv     cv
}

// NewVerifier returns a Verifier of the blob's groups.
func NewVerifier(t *Tree) *Verifier {
	v := &Verifier{t: t, limits: [2]int{rememberedBlocks, rememberedUpper}}
	blocks := (t.groups() + blockGroups - 1) / blockGroups
	v.proven = make([][]provenNode, bits.Len64(uint64(blocks-1))) // none for the root
	return v
}

// VerifyGroups is [Tree.VerifyGroups]: the same data pass, with the same
// errors. They may come in parts that follow each other, each of whole groups,
// and cost no more than in one. Where they span several blocks of 1 MiB, each
// block is checked by itself and needs its own part of the outboard.
func (v *Verifier) VerifyGroups(first int64, data ...[]byte) error {
	t, size, whole := v.t, int64(0), true
	for _, p := range data {
		whole = whole && (len(p) == 0 || size%GroupSize == 0)
		size += int64(len(p))
	}
	n := (size + GroupSize - 1) / GroupSize
	if t.size == 0 {
		n = 1
	}
	if t.size < 0 || first < 0 || n < 1 || n > t.groups()-first || !whole ||
		size != min((first+n)*GroupSize, t.size)-first*GroupSize {
		return &Error{"verify", first * GroupSize, fmt.Errorf("%w: %d bytes from group %d on are not whole groups of %d bytes", ErrRange, size, first, t.size)}
	}
	c := v.begin()
	defer v.end(c)
	c.parts, c.offset = append(c.parts, data...), first
	for end := first + n; first < end; first = c.end {
		c.first, c.end = first, min(end, (first/blockGroups+1)*blockGroups)
		if err := c.block(); err != nil {
			c.loaded = -1 // it may be at fault: read it again next time
			return err
		}
	}
	return nil
}

func (v *Verifier) begin() *check {
	v.mu.Lock()
	defer v.mu.Unlock()
	if last := len(v.idle) - 1; last >= 0 {
		c := v.idle[last]
		v.idle = v.idle[:last]
		return c
	}
	return &check{v: v, t: v.t, loaded: -1}
}

func (v *Verifier) end(c *check) {
	clear(c.parts)
	c.parts = c.parts[:0]
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.idle) < idleChecks {
		v.idle = append(v.idle, c)
	}
}

// remembered says whether the subtree of groups [lo, hi) is one whose value is
// remembered, and which: a block or larger, but not the root.
func (v *Verifier) remembered(lo, hi int64) (level int, number int64, ok bool) {
	last := hi == v.t.groups()
	if lo%blockGroups != 0 || hi-lo < blockGroups && !last || lo == 0 && last {
		return 0, 0, false
	}
	level = bits.Len64(uint64((hi - lo - 1) / blockGroups))
	return level, lo/blockGroups>>level + 1, true
}

// slot is where a value would be; v.mu is held.
func (v *Verifier) slot(level int, number int64) *provenNode {
	if v.proven[level] == nil {
		blocks := (v.t.groups() + blockGroups - 1) / blockGroups
		limit := int64(v.limits[min(level, 1)])
		v.proven[level] = make([]provenNode, min(limit, (blocks-1)>>level+1))
	}
	return &v.proven[level][number%int64(len(v.proven[level]))]
}

// find returns the proven value of a subtree.
func (v *Verifier) find(lo, hi int64) (cv, bool) {
	level, number, ok := v.remembered(lo, hi)
	if !ok {
		return cv{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.slot(level, number)
	return p.cv, p.number == number
}

// check is one VerifyGroups, block by block.
type check struct {
	v          *Verifier
	t          *Tree
	parts      [][]byte
	offset     int64 // the first group of parts
	first, end int64 // the groups that lie within the present block

	// The nodes of one block as the outboard has them, which may serve the
	// next check as well. They prove nothing.
	nodes  [blockNodes * nodeSize]byte
	have   int   // valid bytes of nodes
	start  int64 // of nodes: the index of the first
	loaded int64 // the block; -1: none
	upper  [nodeSize]byte

	seen  [128]seenNode // to be remembered if the check succeeds; more than fit are not
	seenN int
}

type seenNode struct {
	level  int
	number int64
	cv     cv
}

// group returns the data of one group.
func (c *check) group(n int64) []byte {
	off := (n - c.offset) * GroupSize
	for _, p := range c.parts {
		if off < int64(len(p)) {
			return p[off:min(int64(len(p)), off+GroupSize)]
		}
		off -= int64(len(p))
	}
	return nil // of the empty blob
}

// block checks the groups within one block.
func (c *check) block() error {
	c.seenN = 0

	// The smallest subtree around them whose value is proven.
	lo, hi := int64(0), c.t.groups()
	top, bottom, want := lo, hi, getCV(c.t.root[:])
	for hi-lo > blockGroups {
		if mid := lo + split(hi-lo); c.first < mid {
			hi = mid
		} else {
			lo = mid
		}
		if p, ok := c.v.find(lo, hi); ok {
			top, bottom, want = lo, hi, p
		}
	}
	got, err := c.value(top, bottom)
	if err != nil {
		return err
	}
	if got != want {
		return &Error{"verify", c.first * GroupSize, fmt.Errorf("%w: %d groups", ErrMismatch, c.end-c.first)}
	}
	if c.seenN > 0 {
		c.v.mu.Lock()
		defer c.v.mu.Unlock()
		for _, s := range c.seen[:c.seenN] {
			*c.v.slot(s.level, s.number) = provenNode{s.number, s.cv}
		}
	}
	return nil
}

// value returns the value of the subtree of groups [lo, hi): from the data where
// they are, from what is proven or from the outboard elsewhere.
func (c *check) value(lo, hi int64) (cv, error) {
	inside := hi > c.first && lo < c.end
	root := hi-lo == c.t.groups()
	if inside && hi-lo == 1 {
		got := leavesCV(c.group(lo), lo*groupLeaves, root)
		c.saw(lo, hi, &got)
		return got, nil
	}
	if !inside {
		if p, ok := c.v.find(lo, hi); ok {
			return p, nil
		}
		// Only perfect subtrees are stored, and the partial last group; what
		// else is at the blob's end is made of them.
		if full := c.t.size / GroupSize; hi > full && hi-lo == 1 {
			return c.stored(lo, hi, logSize(full))
		} else if hi <= full && (hi-lo)&(hi-lo-1) == 0 {
			return c.stored(lo, hi, logIndex(hi, bits.TrailingZeros64(uint64(hi-lo))))
		}
	}
	mid := lo + split(hi-lo)
	left, err := c.value(lo, mid)
	if err != nil {
		return cv{}, err
	}
	right, err := c.value(mid, hi)
	if err != nil {
		return cv{}, err
	}
	got := parentCV(&left, &right, root)
	c.saw(lo, hi, &got)
	return got, nil
}

// saw notes a value that will be proven if the check succeeds.
func (c *check) saw(lo, hi int64, got *cv) {
	if level, number, ok := c.v.remembered(lo, hi); ok && c.seenN < len(c.seen) {
		c.seen[c.seenN] = seenNode{level, number, *got}
		c.seenN++
	}
}

// stored returns the value that the outboard has of the subtree of groups
// [lo, hi) at index.
func (c *check) stored(lo, hi, index int64) (cv, error) {
	block := c.first / blockGroups
	if lo/blockGroups != block || hi-lo > blockGroups {
		if n, err := c.read(c.upper[:], index); err != nil {
			return cv{}, err
		} else if n < nodeSize {
			return cv{}, outboardEnds(index)
		}
		got := getCV(c.upper[:])
		c.saw(lo, hi, &got)
		return got, nil
	}
	if c.loaded != block {
		if err := c.load(block); err != nil {
			return cv{}, err
		}
	}
	off := int(index-c.start) * nodeSize
	if off+nodeSize > c.have {
		return cv{}, outboardEnds(index)
	}
	return getCV(c.nodes[off:]), nil
}

// load reads the nodes of one block, as many as the log has.
func (c *check) load(block int64) error {
	c.loaded = -1
	full := c.t.size / GroupSize
	lo := block * blockGroups
	c.start = logSize(lo)
	n := blockNodes
	if hi := lo + blockGroups; hi > full {
		n = int(logSize(full) + 1 - c.start)
	}
	var err error
	if c.have, err = c.read(c.nodes[:n*nodeSize], c.start); err != nil {
		return err
	}
	c.loaded = block
	return nil
}

// read reads nodes from index on and returns how many bytes there are.
func (c *check) read(p []byte, index int64) (int, error) {
	off := index * nodeSize
	if c.t.nodes == nil {
		return 0, &Error{"read outboard", off, fmt.Errorf("%w: there is none", ErrMalformed)}
	}
	n, err := c.t.nodes.ReadAt(p, off)
	if n == len(p) || err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	return 0, &Error{"read outboard", off, err}
}

func outboardEnds(index int64) error {
	return &Error{"read outboard", index * nodeSize, fmt.Errorf("%w: the outboard is truncated", ErrMalformed)}
}
