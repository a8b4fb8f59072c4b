package merkle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"leafproof/merkle"
)

// grown returns the log of a blob as it is while the blob grows: nothing sealed.
func grown(t testing.TB, data []byte) []byte {
	t.Helper()
	full := len(data) - len(data)%merkle.GroupSize
	if full == merkle.GroupSize {
		_, nodes := build(t, append(bytes.Clone(data[:full]), 0))
		return nodes[:32]
	}
	_, nodes := build(t, data[:full])
	return nodes
}

// TestLogPrefixes: one log gives the root and the tree of every prefix, and a
// Builder that goes on from it ends as if it had never stopped.
func TestLogPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	data := pattern(700_001, 1)
	nodes := grown(t, data)
	log := merkle.OpenLog(bytes.NewReader(nodes), int64(len(nodes)))
	if want := int64(len(data) / merkle.GroupSize * merkle.GroupSize); log.Size() != want {
		t.Fatalf("Size = %d, want %d", log.Size(), want)
	}
	prefixes := []int{len(data)}
	for _, n := range sizes {
		prefixes = append(prefixes, min(n, len(data)))
	}
	for range rounds(300) {
		prefixes = append(prefixes, rng.IntN(len(data)+1))
	}
	for _, n := range prefixes {
		size := int64(n)
		tail := data[merkle.TailStart(size):n]
		root, err := log.Root(size, tail)
		if err != nil || root != merkle.Sum(data[:n]) {
			t.Fatalf("root of %d bytes = %v, %v, want %v", n, root, err, merkle.Sum(data[:n]))
		}
		tr, err := log.Tree(size, tail)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.VerifyOutboard(t.Context()); err != nil {
			t.Fatalf("tree of %d bytes: %v", n, err)
		}
		var w bytes.Buffer
		ranges := randomRanges(rng, size, 3)
		if err := merkle.WriteBody(&w, tr, bytes.NewReader(data), leaves(t, size, ranges...)); err != nil {
			t.Fatalf("%v of %d bytes: %v", ranges, n, err)
		}
		more := ram{b: bytes.Clone(nodes[:logBytes(n)])}
		b, err := log.Builder(size, tail, &more)
		if err != nil || b.Root() != root || b.Size() != size {
			t.Fatalf("a Builder of %d bytes: %v", n, err)
		}
		b.Write(data[n:])
		if root, err := b.Seal(); err != nil || root != merkle.Sum(data) || !bytes.Equal(more.b, twinOutboardOf(data)) {
			t.Fatalf("written on from %d bytes: %v, %v, want %v", n, root, err, merkle.Sum(data))
		}
	}
}

// logBytes returns the size of the log of the complete groups of n bytes.
func logBytes(n int) (size int) {
	for m := 1; m <= n/merkle.GroupSize; m++ {
		for k := m; ; k /= 2 {
			size += 32
			if k%2 != 0 {
				break
			}
		}
	}
	return size
}

var twinCache = map[int][]byte{}

// twinOutboardOf is twinOutboard of one blob, made once.
func twinOutboardOf(data []byte) []byte {
	if twinCache[len(data)] == nil {
		twinCache[len(data)] = twinOutboard(data)
	}
	return twinCache[len(data)]
}

func TestLogRefuses(t *testing.T) {
	data := pattern(100_000, 1)
	nodes := grown(t, data)
	log := merkle.OpenLog(bytes.NewReader(nodes), int64(len(nodes)))
	for name, test := range map[string]struct {
		size int64
		tail []byte
	}{
		"negative":             {-1, nil},
		"past the log":         {7 * merkle.GroupSize, nil},
		"the largest":          {1<<63 - 1, make([]byte, merkle.GroupSize-1)},
		"a tail that is short": {100_000, data[98_305:]},
		"a tail that is long":  {98_304, data[98_303:98_304]},
		"no first group":       {merkle.GroupSize, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if root, err := log.Root(test.size, test.tail); !errors.Is(err, merkle.ErrRange) || !root.IsZero() {
				t.Errorf("Root = %v, %v", root, err)
			}
			if b, err := log.Builder(test.size, test.tail, nil); !errors.Is(err, merkle.ErrRange) || b != nil {
				t.Errorf("Builder = %v, %v", b, err)
			}
			if tr, err := log.Tree(test.size, test.tail); !errors.Is(err, merkle.ErrRange) || tr != nil {
				t.Errorf("Tree = %v, %v", tr, err)
			}
		})
	}
	tail := data[merkle.TailStart(100_000):]
	short := merkle.OpenLog(bytes.NewReader(nodes[:64]), int64(len(nodes)))
	if _, err := short.Root(100_000, tail); !errors.Is(err, merkle.ErrMalformed) {
		t.Errorf("a log that was cut: %v", err)
	}
	failing := merkle.OpenLog(&broken{}, int64(len(nodes)))
	if _, err := failing.Builder(100_000, tail, nil); !errors.Is(err, errBroken) {
		t.Errorf("a log that cannot be read: %v", err)
	}
	for _, n := range []int64{-1, 0, 31, 1 << 62, 1<<63 - 1} {
		if log := merkle.OpenLog(nil, n); log.Size() < 0 || n < 32 && log.Size() != 0 {
			t.Errorf("a log of %d bytes covers %d", n, log.Size())
		}
	}
	// Six groups are a peak of four and one of two; the node of either, or one
	// right below it, torn.
	for _, i := range []int{2, 5, 6, 9, 7, 8} {
		bad := bytes.Clone(nodes)
		bad[32*i] ^= 1
		if _, err := merkle.OpenLog(bytes.NewReader(bad), int64(len(bad))).Builder(100_000, tail, nil); !errors.Is(err, merkle.ErrMismatch) {
			t.Errorf("node %d wrong: %v", i, err)
		}
	}
}

// TestRecoverLog tears a log in every way: cut at every node, any byte wrong,
// zeros from some place on. What is recovered is always the whole log, and no
// more is hashed than what the damage made doubtful.
func TestRecoverLog(t *testing.T) {
	const g = merkle.GroupSize
	for _, size := range []int{0, 1, g, g + 1, 2 * g, 5*g + 77, 8 * g, 11 * g, 23*g + 1} {
		data := pattern(size, 1)
		good := grown(t, data)
		want := merkle.Sum(data)
		groups := int64(size / g)
		check := func(what string, log []byte, n int64, least int64) {
			t.Helper()
			file := ram{b: bytes.Clone(log)}
			b, kept, err := merkle.RecoverLog(t.Context(), bytes.NewReader(data), int64(size), &file, n)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if b.Root() != want || b.Size() != int64(size) || !bytes.Equal(file.b[:len(good)], good) {
				t.Fatalf("%s of %d bytes: root %v, want %v; the log is right: %v", what, size, b.Root(), want, bytes.Equal(file.b[:len(good)], good))
			}
			if kept < least || kept > groups*g || kept%g != 0 {
				t.Errorf("%s of %d bytes: %d bytes of it kept, want at least %d", what, size, kept, least)
			}
			if root, err := b.Seal(); root != want || err != nil {
				t.Errorf("%s: Seal = %v, %v", what, root, err)
			}
		}
		check("nothing wrong", good, int64(len(good)), groups&^1*g)
		check("no log", nil, 0, 0)
		check("a log of something longer", append(bytes.Clone(good), make([]byte, 320)...), int64(len(good))+320, groups&^1*g)
		// The data lost their end and the log did not.
		if size > 0 {
			cut := int64(size) - 1 - int64(size)/3
			file := ram{b: bytes.Clone(good)}
			b, kept, err := merkle.RecoverLog(t.Context(), bytes.NewReader(data[:cut]), cut, &file, int64(len(good)))
			if err != nil || b.Root() != merkle.Sum(data[:cut]) || b.Size() != cut || kept > cut {
				t.Errorf("data cut to %d of %d bytes: %d kept, %v", cut, size, kept, err)
			}
		}
		sound := int64(0) // groups whose nodes are all before cut
		for cut := range len(good) {
			for sound < groups && logBytes(int(sound+1)*g) <= cut {
				sound++
			}
			if cut%32 < 2 {
				check("cut", good[:cut], int64(cut), sound&^1*g)
				check("cut, its size not known", good[:cut], int64(len(good)), sound&^1*g)
				zeros := append(bytes.Clone(good[:cut]), make([]byte, len(good)-cut)...)
				check("zeros at the end", zeros, int64(len(zeros)), (sound&^1)*g)
			}
			if cut%7 == 0 {
				bad := bytes.Clone(good)
				bad[cut] ^= 1
				check("a byte wrong", bad, int64(len(bad)), (sound&^1)*g)
			}
		}
	}
}

func TestRecoverLogErrors(t *testing.T) {
	data := pattern(100_000, 1)
	nodes := grown(t, data)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		data io.ReaderAt
		size int64
		log  merkle.LogFile
		err  error
	}{
		"negative":          {t.Context(), bytes.NewReader(data), -1, &ram{b: nodes}, merkle.ErrRange},
		"data too short":    {t.Context(), bytes.NewReader(data), 100_001, &ram{b: nodes}, merkle.ErrChanged},
		"far too short":     {t.Context(), bytes.NewReader(data), 1<<63 - 1, &ram{b: nodes}, merkle.ErrChanged},
		"data unreadable":   {t.Context(), &broken{}, 100_000, &ram{b: nodes}, errBroken},
		"log unreadable":    {t.Context(), bytes.NewReader(data), 100_000, &broken{}, errBroken},
		"log not writable":  {t.Context(), bytes.NewReader(data), 100_000, &broken{ram: ram{b: nodes[:32]}, left: 1}, errBroken},
		"cancelled":         {done, bytes.NewReader(data), 100_000, &ram{b: nodes}, context.Canceled},
		"cancelled, no log": {done, bytes.NewReader(data), 100_000, &ram{}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			b, kept, err := merkle.RecoverLog(test.ctx, test.data, test.size, test.log, int64(len(nodes)))
			if !errors.Is(err, test.err) || b != nil || kept != 0 {
				t.Errorf("RecoverLog = %v, %d, %v, want %v", b, kept, err, test.err)
			}
		})
	}
}

// twinPrefix returns the proof that the first n bytes of p are a prefix, and the
// root that they have.
func twinPrefix(p []byte, n int) []byte {
	selected := make([]bool, max(1, (len(p)+1023)/1024))
	selected[max(1, (n+1023)/1024)-1] = true
	head := append([]byte("lpx1"), byte(n), byte(n>>8), byte(n>>16), byte(n>>24), 0, 0, 0, 0)
	return append(head, twinBody(p, 16, selected)...)
}

func prefix(t testing.TB, data []byte, size int64) []byte {
	t.Helper()
	var w bytes.Buffer
	if err := merkle.WritePrefix(&w, tree(t, data), bytes.NewReader(data), size); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

// TestPrefixTwin: proofs of random prefixes are the twin's, and they verify.
func TestPrefixTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for round := range rounds(1000) {
		size := sizes[rng.IntN(24)]
		if rng.IntN(2) == 0 {
			size = rng.IntN(150_000)
		}
		data := pattern(size, uint64(round))
		n := []int{0, size, rng.IntN(size + 1), rng.IntN(size/1024+1) * 1024, min(rng.IntN(5)*16384, size)}[rng.IntN(5)]
		proof := prefix(t, data, int64(n))
		if !bytes.Equal(proof, twinPrefix(data, n)) {
			t.Fatalf("round %d: the proof of %d of %d bytes differs from the twin's", round, n, size)
		}
		old, after := merkle.Sum(data[:n]), merkle.Sum(data)
		if err := merkle.VerifyPrefix(bytes.NewReader(proof), old, int64(n), after, int64(size)); err != nil {
			t.Fatalf("round %d: %d of %d bytes: %v", round, n, size, err)
		}
		// One bit of the prefix different: it is the prefix of nothing here.
		if n > 0 {
			other := bytes.Clone(data[:n])
			other[rng.IntN(n)] ^= 1 << rng.IntN(8)
			if err := merkle.VerifyPrefix(bytes.NewReader(proof), merkle.Sum(other), int64(n), after, int64(size)); !errors.Is(err, merkle.ErrMismatch) {
				t.Fatalf("round %d: another blob is a prefix too: %v", round, err)
			}
		}
		if err := merkle.VerifyPrefix(bytes.NewReader(proof), after, int64(n), old, int64(size)); err == nil && old != after {
			t.Fatal("the roots may be swapped")
		}
	}
}

// TestPrefixSize: of all sizes that a proof could state for the older blob only
// the true one passes, whatever proof is made for it.
func TestPrefixSize(t *testing.T) {
	data := pattern(5000, 3)
	after := merkle.Sum(data)
	for _, n := range []int{0, 1, 1000, 1023, 1024, 1025, 2048, 3000, 4096, 5000} {
		old := merkle.Sum(data[:n])
		for claim := range len(data) + 1 {
			proof := prefix(t, data, int64(claim))
			err := merkle.VerifyPrefix(bytes.NewReader(proof), old, int64(claim), after, 5000)
			if (err == nil) != (claim == n) {
				t.Fatalf("%d bytes proven as %d: %v", n, claim, err)
			}
		}
	}
}

// TestPrefixMutations: every bit of a proof matters, and so does its length.
func TestPrefixMutations(t *testing.T) {
	for name, test := range map[string]struct{ size, n int }{
		"empty in empty":   {0, 0},
		"empty in some":    {3000, 0},
		"all":              {3000, 3000},
		"inside a leaf":    {3000, 2100},
		"on a leaf":        {40_000, 33 * 1024},
		"on a group":       {50_000, 32_768},
		"in the last leaf": {50_000, 49_999},
	} {
		t.Run(name, func(t *testing.T) {
			data := pattern(test.size, 4)
			old, after, n, size := merkle.Sum(data[:test.n]), merkle.Sum(data), int64(test.n), int64(test.size)
			good := prefix(t, data, n)
			verify := func(p []byte) error { return merkle.VerifyPrefix(bytes.NewReader(p), old, n, after, size) }
			if err := verify(good); err != nil {
				t.Fatal(err)
			}
			for i := range 8 * len(good) {
				bad := bytes.Clone(good)
				bad[i/8] ^= 1 << (i % 8)
				if err := verify(bad); !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
					t.Fatalf("bit %d flipped: %v", i, err)
				}
			}
			for cut := range good {
				if err := verify(good[:cut]); !errors.Is(err, merkle.ErrMalformed) {
					t.Fatalf("cut to %d bytes: %v", cut, err)
				}
			}
			if err := verify(append(bytes.Clone(good), 0)); !errors.Is(err, merkle.ErrMalformed) {
				t.Errorf("with a byte after it: %v", err)
			}
		})
	}
}

func TestPrefixRefuses(t *testing.T) {
	data := pattern(50_000, 4)
	tr, root := tree(t, data), merkle.Sum(data)
	for _, n := range []int64{-1, 50_001, 1<<63 - 1, -1 << 63} {
		if err := merkle.WritePrefix(io.Discard, tr, bytes.NewReader(data), n); !errors.Is(err, merkle.ErrRange) {
			t.Errorf("WritePrefix of %d: %v", n, err)
		}
		if err := merkle.VerifyPrefix(bytes.NewReader(nil), root, n, root, 50_000); !errors.Is(err, merkle.ErrRange) {
			t.Errorf("VerifyPrefix of %d: %v", n, err)
		}
	}
	if err := merkle.VerifyPrefix(bytes.NewReader(nil), root, 0, root, -1); !errors.Is(err, merkle.ErrRange) {
		t.Errorf("VerifyPrefix of a negative size: %v", err)
	}
	if err := merkle.VerifyPrefix(bytes.NewReader(prefix(t, data, 7)), merkle.Sum(data[:7]), 7, root, 1<<63-1); !errors.Is(err, merkle.ErrMismatch) {
		t.Errorf("VerifyPrefix in the largest blob: %v", err)
	}
	if err := merkle.VerifyPrefix(&brokenReader{}, root, 7, root, 50_000); !errors.Is(err, errBroken) {
		t.Errorf("VerifyPrefix of a broken reader: %v", err)
	}
	if err := merkle.WritePrefix(io.Discard, tr, bytes.NewReader(data[:100]), 7); !errors.Is(err, merkle.ErrChanged) {
		t.Errorf("WritePrefix from short data: %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func BenchmarkLogRoot(b *testing.B) {
	data := pattern(64<<20-1, 1)
	nodes := grown(b, data)
	log := merkle.OpenLog(bytes.NewReader(nodes), int64(len(nodes)))
	tail := data[merkle.TailStart(int64(len(data))):]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := log.Root(int64(len(data)), tail); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecoverLog(b *testing.B) {
	data := pattern(64<<20, 1)
	nodes := grown(b, data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := merkle.RecoverLog(b.Context(), bytes.NewReader(data), int64(len(data)), &ram{b: nodes}, int64(len(nodes))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyPrefix(b *testing.B) {
	data := pattern(64<<20, 1)
	const n = 40<<20 + 500
	proof := prefix(b, data, n)
	old, after := merkle.Sum(data[:n]), merkle.Sum(data)
	b.ReportAllocs()
	b.ReportMetric(float64(len(proof)), "proof-bytes")
	for b.Loop() {
		if err := merkle.VerifyPrefix(bytes.NewReader(proof), old, n, after, int64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}

// ExampleVerifyPrefix is the example of the format's description.
func ExampleVerifyPrefix() {
	data := []byte(strings.Repeat("a", 1024) + strings.Repeat("b", 1024) + "c")
	old, after := merkle.Sum(data[:1500]), merkle.Sum(data)
	var proof bytes.Buffer
	if err := merkle.WritePrefix(&proof, merkle.NewTree(after, 2049, nil), bytes.NewReader(data), 1500); err != nil {
		fmt.Println(err)
	}
	fmt.Println(old)
	p := proof.Bytes()
	fmt.Printf("%d bytes: %x %x %x\n", len(p), p[:12], p[12:20], p[20:24])
	fmt.Println(merkle.VerifyPrefix(bytes.NewReader(p), old, 1500, after, 2049))
	fmt.Println(merkle.VerifyPrefix(bytes.NewReader(p), merkle.Sum(data[:1499]), 1500, after, 2049))
	// Output:
	// 824707b12a80fd5a7f5bf863fe23e88fa1211375d55862c1daf37bb2e3820cae
	// 1172 bytes: 6c707831dc05000000000000 0108000000000000 c10a1775
	// <nil>
	// merkle: verify prefix: the older blob does not match the root
}

func ExampleProgress() {
	p := merkle.NewProgress(merkle.Root{1}, 40_000)
	p.Add(16_384, 40_000) // after the bytes and their nodes were written
	record, err := p.Checkpoint(func() error { return nil /* fsync both files */ })
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%x %x %x %x\n", record[:4], record[36:44], record[44:47], record[47:])
	again, err := merkle.ParseProgress(record, merkle.Root{1}, 40_000) // after a crash
	fmt.Println(again.Durable(), again.Missing(), err)
	// Output:
	// 6c706331 409c000000000000 010101 cf67b49bf86ab17b3a0f9957497a0bb3
	// [{16384 40000}] [{0 16384}] <nil>
}
