package leafproof_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"leafproof"
	"leafproof/merkle"
)

// noise is bytes that are made as they are read, eight of each offset's own, and
// checks what is written to it against them. It looks at the heap now and then.
type noise struct {
	at, end int64
	peak    uint64
	wrong   bool
}

// fill has the bytes from off on, which is a multiple of 8.
func (*noise) fill(p []byte, off int64) {
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(off+int64(i))*0x9E3779B97F4A7C15^0xABCD)
	}
}

func (n *noise) Read(p []byte) (int, error) {
	k := int(min(int64(len(p))&^7, n.end-n.at))
	if k == 0 {
		return 0, io.EOF
	}
	n.fill(p[:k], n.at)
	n.step(int64(k))
	return k, nil
}

func (n *noise) Write(p []byte) (int, error) {
	head := n.at & 7
	want := make([]byte, (head+int64(len(p))+7)&^7)
	n.fill(want, n.at-head)
	n.wrong = n.wrong || !bytes.Equal(p, want[head:head+int64(len(p))])
	n.step(int64(len(p)))
	return len(p), nil
}

func (n *noise) step(k int64) {
	const every = 4 << 20
	if n.at/every != (n.at+k)/every {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		n.peak = max(n.peak, now.HeapInuse)
	}
	n.at += k
}

// TestInAndOut (case 81) puts a large file and reads it again, whole and at random
// offsets, in memory that does not grow with it. LEAFPROOF_BIG makes it 1 GiB and the
// reads 1,000.
func TestInAndOut(t *testing.T) {
	size, reads := int64(48<<20), 100
	if os.Getenv("LEAFPROOF_BIG") != "" {
		size, reads = 1<<30, 1000
	}
	s, _ := newStore(t)
	bounded := func(what string, n *noise, most uint64, do func(*noise)) {
		t.Helper()
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		do(n)
		if n.wrong {
			t.Errorf("%s: other bytes", what)
		}
		if n.peak > before.HeapInuse+most {
			t.Errorf("%s: the heap grew by %d KiB for %d MiB", what, (n.peak-before.HeapInuse)>>10, size>>20)
		}
	}
	var id string
	bounded("in", &noise{end: size}, 64<<20, func(n *noise) {
		d, err := s.Put(t.Context(), n, leafproof.PutOptions{Records: "none"})
		if err != nil {
			t.Fatal(err)
		}
		ref, err := s.Publish(t.Context(), d, leafproof.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		id = ref.ArtifactID
	})
	bounded("out", &noise{}, 32<<20, func(n *noise) {
		if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, n); err != nil || n.at != size {
			t.Fatalf("%d bytes came, %v", n.at, err)
		}
	})
	rng := rand.New(rand.NewPCG(8, 1))
	bounded("at random", &noise{}, 32<<20, func(n *noise) {
		for range reads {
			off := rng.Int64N(size - 64<<10)
			n.at = off
			if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{Bytes: &merkle.Range{Start: off, End: off + 64<<10}}, n); err != nil || n.at != off+64<<10 {
				t.Fatalf("%d bytes came from %d on, %v", n.at-off, off, err)
			}
		}
	})
}
