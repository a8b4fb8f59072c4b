package cas_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// cutTwin cuts as the format says, a byte at a time.
func cutTwin(p []byte, least, normal, most int, loose, strict uint64) (ends []int) {
	gear := cas.GearTable()
	start, h := 0, uint64(0)
	for i, b := range p {
		h = h<<1 + gear[b]
		n := i + 1 - start
		if n == most || h&loose == 0 && (n >= normal || n >= least && h&strict == 0) {
			ends = append(ends, i+1)
			start = i + 1
		}
	}
	if start < len(p) {
		ends = append(ends, len(p))
	}
	return ends
}

// lines are some 340 bytes each and differ in part.
func lines(seed uint64, size int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	var p []byte
	for i := 0; len(p) < size; i++ {
		p = fmt.Appendf(p, `{"id":"inc-%08d","at":"2026-%02d-%02dT00:00:00Z","service":"svc-%02d","status":"open","value":%d,"trace":"%016x","note":"%s"}`+"\n",
			i, i/30%12+1, i%28+1, rng.IntN(20), rng.IntN(1000), rng.Uint64(), bytes.Repeat([]byte("queue depth growing "), 1+rng.IntN(15)))
	}
	return p[:size]
}

// In whatever blocks a blob is scanned, at whatever time, the cuts are those of
// a serial scan, and of the definition.
func TestChunkerParallel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	inputs := map[string][]byte{
		"random": random(1, 1<<20), "lines": lines(1, 1<<20), "zeros": make([]byte, 1<<20),
		"short": random(2, 100), "empty": nil, "one": {7}, "period": bytes.Repeat([]byte("abcdefg"), 100_000),
	}
	for id, c := range cas.Chunkers() {
		least, normal, most, loose, strict := c.Bounds()
		for name, p := range inputs {
			t.Run(fmt.Sprintf("chunker=%d/%s", id, name), func(t *testing.T) {
				want := cutTwin(p, least, normal, most, loose, strict)
				for range 8 {
					top := []int{100, 1000, 300_000, 4 << 20}[rng.IntN(4)]
					if got := c.Cut(p, func() int { return 1 + rng.IntN(top) }); !slices.Equal(got, want) {
						t.Fatalf("blocks of up to %d bytes give %d chunks, not %d", top, len(got), len(want))
					}
				}
				start := 0
				for i, end := range want {
					if n := end - start; n > most || n < least && i < len(want)-1 {
						t.Errorf("chunk %d has %d bytes", i, n)
					}
					start = end
				}
			})
		}
	}
}

// What the chunkers cut is for ever: recipes and deduplication rest on it.
func TestChunkerGolden(t *testing.T) {
	for name, test := range map[string]struct {
		id   uint32
		data []byte
		n    int
		sum  string // of the ends, as u64
	}{
		"records/random": {1, random(1, 4<<20), 609, "b583e0ba1c29ba8012a261be8d3cefe3"},
		"records/lines":  {1, lines(1, 4<<20), 539, "1e25e86ad1db3dc4d8a276cfc3617c86"},
		"bytes/random":   {2, random(1, 8<<20), 136, "bbee4f446149057e8073dfc619c41196"},
		"bytes/lines":    {2, lines(1, 8<<20), 121, "2302739b91cde5288d1de64edcce3bfe"},
		"bytes/zeros":    {2, make([]byte, 1<<20), 4, "a95dbd9e22eb0f5be4fcb47454d7d233"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := cas.Chunkers()[test.id].Cut(test.data, func() int { return 1 << 20 })
			var p []byte
			for _, end := range ends {
				p = binary.LittleEndian.AppendUint64(p, uint64(end))
			}
			if sum := merkle.Sum(p).String()[:32]; len(ends) != test.n || sum != test.sum {
				t.Errorf("%d chunks, %s; want %d, %s", len(ends), sum, test.n, test.sum)
			}
		})
	}
	gear := cas.GearTable()
	var p []byte
	for _, v := range gear {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	if got := merkle.Sum(p).String(); got != "4c082c780e2318eff3b304423746c62b964d096404265bb2e63f1ec023586de6" {
		t.Errorf("the gear table is another: %s", got)
	}
}
