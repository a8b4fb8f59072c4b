package cas

// RunCache gives its tests a runCache whose keys are numbers.
type RunCache struct{ c *runCache }

func NewRunCache(max int) RunCache { return RunCache{newRunCache(max)} }

func numbered(i int) runKey { return runKey{at: uint32(i)} }

// Keep keeps n bytes b in a room that the cache may use again.
func (c RunCache) Keep(i, n int, b byte) {
	r := decodedRun{room: newRoom(uint32(n))}
	r.p = r.room.bytes()[:n]
	for j := range r.p {
		r.p[j] = b
	}
	c.c.keep(numbered(i), r)
}

func (c RunCache) Put(i int, p []byte)      { c.c.put(numbered(i), p) }
func (c RunCache) Get(i int) ([]byte, bool) { return c.c.get(numbered(i)) }
func (c RunCache) Size() int                { return c.c.size }
func (c RunCache) Most() int                { return c.c.max }
func (c RunCache) Copy(i, size int, p []byte, from int) bool {
	return c.c.copy(numbered(i), uint32(size), p, uint32(from))
}
