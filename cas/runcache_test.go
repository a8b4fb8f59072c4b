package cas_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"leafproof/cas"
)

// Rooms of runs that leave are used again, but not those that a reader looks at;
// and the bytes kept never exceed the bound.
func TestRunCache(t *testing.T) {
	c := cas.NewRunCache(1 << 20)
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			held := map[byte][]byte{}
			for range 500 {
				i := rng.IntN(40)
				n, b := 1+i*6000, byte(i) // up to 234 KB: rooms of both sizes
				switch p := make([]byte, 10); rng.IntN(5) {
				case 0, 1:
					c.Keep(i, n, b)
				case 2:
					c.Put(i, bytes.Repeat([]byte{b}, n))
				case 3:
					if p, ok := c.Get(i); ok && len(p) == n {
						held[b] = p
					} else if ok {
						t.Errorf("run %d has %d bytes, not %d", i, len(p), n)
					}
				case 4:
					if c.Copy(i, n, p, n-len(p)) && (n < len(p) || !bytes.Equal(p, bytes.Repeat([]byte{b}, len(p)))) {
						t.Errorf("run %d: copied %v", i, p)
					}
				}
			}
			for b, p := range held {
				if bytes.Count(p, []byte{b}) != len(p) {
					t.Errorf("run %d was overwritten while a reader had it", b)
				}
			}
		})
	}
	all.Wait()
	if c.Size() > c.Most() || c.Size() <= 0 {
		t.Errorf("%d bytes are kept, at most %d", c.Size(), c.Most())
	}
	c.Keep(1, 100, 7)
	for name, copied := range map[string]bool{
		"another size":  c.Copy(1, 101, make([]byte, 1), 0),
		"behind it":     c.Copy(1, 100, make([]byte, 2), 99),
		"another run":   c.Copy(99, 100, make([]byte, 1), 0),
		"far behind it": c.Copy(1, 100, make([]byte, 1), 1<<31),
	} {
		if copied {
			t.Errorf("%s: copied", name)
		}
	}
	if p := make([]byte, 100); !c.Copy(1, 100, p, 0) || p[99] != 7 {
		t.Error("the whole run was not copied")
	}
}
