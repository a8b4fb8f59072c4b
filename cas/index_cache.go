package cas

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// pageCache keeps checked pages of index files, the least recently used leaving
// first. It bounds what all index files of a Store take in memory.
type pageCache struct {
	serial atomic.Int64 // of the index file opened last
	most   int          // pages

	mu    sync.Mutex
	pages *simplelru.LRU[pageKey, *page]
}

type pageKey struct {
	file   int64
	number uint32
}

// pageCost is about what a kept page takes, its place in the list included.
const pageCost = pageSize + 256

func newPageCache(most int64) *pageCache {
	c := &pageCache{most: int(max(1, most/pageCost))}
	c.pages, _ = simplelru.NewLRU[pageKey, *page](math.MaxInt, nil) // fails for size ≤ 0 only
	return c
}

func (c *pageCache) get(key pageKey) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _ := c.pages.Get(key)
	return p
}

func (c *pageCache) put(key pageKey, p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pages.Len() >= c.most {
		c.pages.RemoveOldest()
	}
	c.pages.Add(key, p)
}
