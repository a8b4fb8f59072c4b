package cas

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"leafproof/merkle"
)

// group is room for one group of a blob.
type group [merkle.GroupSize]byte

// rooms are for groups that are read and verified.
var rooms = sync.Pool{New: func() any { return new(group) }}

// cache keeps verified groups, the least recently used leaving first. It is
// bounded in bytes. Once it is full it allocates no more: a new group takes the
// slot of the one that leaves, and their rooms change hands without a copy.
type cache struct {
	slots int // at most

	mu    sync.Mutex
	where map[groupKey]*slot
	used  *simplelru.LRU[*slot, struct{}] // in order of use
}

// slot holds one verified group.
type slot struct {
	key  groupKey
	room *group
	n    int // bytes of it
}

// groupKey names one group of one blob. The tenant is part of it: what one
// tenant has read must not make another tenant's read faster.
type groupKey struct {
	tenant Tenant
	root   merkle.Root
	group  int64
}

// slotOverhead is about what a slot costs beside its room.
const slotOverhead = 256

// newCache returns a cache of at most max bytes; it keeps nothing if that is
// too little for a group.
func newCache(max int64) *cache {
	c := &cache{slots: int(max / (merkle.GroupSize + slotOverhead)), where: make(map[groupKey]*slot)}
	c.used, _ = simplelru.NewLRU[*slot, struct{}](math.MaxInt, nil) // fails for size ≤ 0 only
	return c
}

// get copies the group's bytes from number from on to p and returns how many.
func (c *cache) get(key groupKey, p []byte, from int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.where[key]
	if !ok {
		return 0, false
	}
	c.used.Get(s)
	return copy(p, s.room[from:s.n]), true
}

// put takes a room with the n bytes of a verified group and returns another, or
// the same, for further use, or nil. The caller must not use room any more.
func (c *cache) put(key groupKey, room *group, n int) *group {
	if c.slots < 1 {
		return room
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.where[key]; ok {
		return room
	}
	if len(c.where) < c.slots {
		s := &slot{key, room, n}
		c.where[key] = s
		c.used.Add(s, struct{}{})
		return nil
	}
	s, _, _ := c.used.GetOldest()
	delete(c.where, s.key)
	c.used.Get(s)
	old := s.room
	s.key, s.room, s.n = key, room, n
	c.where[key] = s
	return old
}
