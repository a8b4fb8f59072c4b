package crashfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Kept says how much of what was not flushed a crash leaves.
type Kept uint8

// The amounts.
const (
	Nothing    Kept = iota // only what was flushed
	Some                   // at random, as the seed says
	Everything             // all that programs saw, except what failed flushes gave up
)

// String names the amount.
func (k Kept) String() string { return [...]string{"nothing", "some", "everything"}[k] }

// Crash returns what a power cut at this moment may leave: the same for the
// same operations, amount and seed. All of it is durable in the new FS, which
// has no faults, sabotage or observer.
func (f *FS) Crash(kept Kept, seed uint64) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &crash{kept: kept, seed: seed, done: make(map[*node]*node)}
	// Whether data and names go the same way differs from crash to crash:
	// names without data and data without names are what programs forget.
	odds := c.random(0)
	c.names = []float64{0.1, 0.5, 0.9, 1}[odds.IntN(4)]
	c.datas = []float64{0, 0.1, 0.5, 1}[odds.IntN(4)]
	out := &FS{last: f.last}
	out.root = c.node(f.root)
	return out
}

// crash is one power cut.
type crash struct {
	kept         Kept
	seed         uint64
	names, datas float64 // the odds of a change of a directory and of a file
	done         map[*node]*node
}

// random is a source for one thing, so that what happens to it does not depend
// on what else there is.
func (c *crash) random(id uint64) *rand.Rand { return rand.New(rand.NewPCG(c.seed, id)) }

func (c *crash) node(n *node) *node {
	if out := c.done[n]; out != nil {
		return out
	}
	out := &node{id: n.id, mode: n.mode, mtime: n.mtime}
	c.done[n] = out
	if !n.isDir() {
		out.disk = c.file(n)
		out.data = content{out.disk.size, slices.Clone(out.disk.pages)}
		out.own = make([]bool, len(out.data.pages))
		n.share()
		return out
	}
	table := maps.Clone(n.durable)
	for _, change := range n.changes {
		if c.kept == Everything || c.kept == Some && c.random(change.id).Float64() < c.names {
			change.apply(table)
		}
	}
	out.names = copyTable(table, c.node)
	out.durable = maps.Clone(out.names)
	return out
}

// file is what is left of a file.
func (c *crash) file(n *node) content {
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	switch c.kept {
	case Nothing:
		return n.disk
	case Everything:
		return n.onDisk(n.data.size, all)
	}
	rng := c.random(n.id)
	if rng.Float64() >= c.datas {
		// Its length may have come to the disk before its data.
		if rng.IntN(2) == 0 {
			return n.onDisk(n.data.size, none)
		}
		return n.disk
	}
	low, high := min(n.disk.size, n.data.size), max(n.disk.size, n.data.size)
	switch rng.IntN(4) {
	case 0:
		return n.onDisk(n.data.size, all)
	case 1: // a beginning
		return n.onDisk(low+rng.Int64N(high-low+1), all)
	case 2: // a beginning, then zeros
		end := rng.IntN(pagesFor(n.data.size) + 1)
		return n.onDisk(n.data.size, func(i int) bool { return i < end })
	}
	return n.onDisk(n.data.size, func(int) bool { return rng.IntN(2) == 0 })
}

// Fork returns a copy as a killed process leaves it: others see all that it
// did, and a crash can still take it. The copy has no faults, sabotage or
// observer.
func (f *FS) Fork() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	done := make(map[*node]*node)
	var of func(n *node) *node
	of = func(n *node) *node {
		if n == nil {
			return nil
		}
		if out := done[n]; out != nil {
			return out
		}
		n.share()
		out := &node{id: n.id, mode: n.mode, mtime: n.mtime}
		done[n] = out
		out.data = content{n.data.size, slices.Clone(n.data.pages)}
		out.own = make([]bool, len(n.own))
		out.disk, out.lost = n.disk, maps.Clone(n.lost)
		if n.isDir() {
			out.names, out.durable = copyTable(n.names, of), copyTable(n.durable, of)
			for _, c := range n.changes {
				entries := slices.Clone(c.entries)
				for i, e := range entries {
					entries[i].node = of(e.node)
				}
				out.changes = append(out.changes, change{c.id, entries})
			}
		}
		return out
	}
	return &FS{last: f.last, root: of(f.root)}
}
