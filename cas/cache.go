package cas

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"leafproof/merkle"
)

// cache keeps verified groups, the least recently used leaving first. It is
// bounded in bytes. Entries never leave it: bytes are copied in and out under
// the lock, so an evicted buffer can be used again at once.
type cache struct {
	max int64 // bytes, the entries' own keeping included

	mu    sync.Mutex
	lru   *simplelru.LRU[groupKey, []byte]
	bytes int64
	spare []byte // the buffer evicted last
}

// groupKey names one group of one blob. The tenant is part of it: what one
// tenant has read must not make another tenant's read faster.
type groupKey struct {
	tenant Tenant
	root   merkle.Root
	group  int64
}

// entryOverhead is about what an entry costs beside its bytes.
const entryOverhead = 256

// newCache returns a cache of at most max bytes; it keeps nothing if that is
// too little for a group.
func newCache(max int64) *cache {
	c := &cache{max: max}
	c.lru, _ = simplelru.NewLRU(math.MaxInt, func(_ groupKey, data []byte) { // fails for size ≤ 0 only
		c.bytes -= int64(cap(data)) + entryOverhead
		c.spare = data[:0]
	})
	return c
}

// get copies the group's bytes from number from on to p and returns how many.
func (c *cache) get(key groupKey, p []byte, from int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.lru.Get(key)
	if !ok {
		return 0, false
	}
	return copy(p, data[from:]), true
}

// put keeps a copy of a verified group.
func (c *cache) put(key groupKey, data []byte) {
	if merkle.GroupSize+entryOverhead > c.max {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(key) {
		return
	}
	for c.bytes+merkle.GroupSize+entryOverhead > c.max {
		c.lru.RemoveOldest()
	}
	buf := c.spare
	c.spare = nil
	if cap(buf) == 0 {
		buf = make([]byte, 0, merkle.GroupSize)
	}
	c.lru.Add(key, append(buf, data...))
	c.bytes += int64(cap(buf)) + entryOverhead
}
