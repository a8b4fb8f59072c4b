package merkle_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"testing/iotest"
	"time"

	"leafproof/merkle"
)

// aroundPowers returns every power of two up to a limit, and the sizes one less
// and one more.
func aroundPowers(limit int) (sizes []int) {
	for n := 1; n <= limit; n *= 2 {
		sizes = append(sizes, n-1, n, n+1)
	}
	return sizes
}

// TestBuildSizes: all ways to build agree with the twin around every power of
// two, with one worker and with many.
func TestBuildSizes(t *testing.T) {
	limit := 8 << 20
	if testing.Short() {
		limit = 1 << 20
	}
	all := pattern(limit+1, 1)
	log := twinOutboard(all) // which begins with the log of every prefix
	for _, size := range aroundPowers(limit) {
		data := all[:size]
		full := size - size%merkle.GroupSize
		want, wantRoot := log[:merkle.OutboardSize(int64(full))], merkle.Sum(data)
		if size > merkle.GroupSize && full < size {
			want = append(bytes.Clone(log[:max(32, len(want))]), twinBytes(twinValue(data[full:], full/1024, 0))...)
		}
		for _, workers := range []int{0, 1, 5} {
			var at, written, copied ram
			root, err := merkle.BuildAtWorkers(t.Context(), bytes.NewReader(data), int64(size), &at, workers)
			if err != nil || root != wantRoot || !bytes.Equal(at.b, want) {
				t.Fatalf("BuildAt of %d bytes with %d workers: %v, %v; the outboard is right: %v", size, workers, root, err, bytes.Equal(at.b, want))
			}
			b := merkle.NewBuilder(&written)
			b.SetWorkers(workers)
			b.Write(data[:size/3])
			b.Write(data[size/3:])
			if root, err := b.Seal(); err != nil || root != wantRoot || !bytes.Equal(written.b, want) {
				t.Fatalf("Builder of %d bytes with %d workers: %v, %v; the outboard is right: %v", size, workers, root, err, bytes.Equal(written.b, want))
			}
			b = merkle.NewBuilder(&copied)
			b.SetWorkers(workers)
			if n, err := b.ReadFrom(iotest.HalfReader(bytes.NewReader(data))); n != int64(size) || err != nil {
				t.Fatalf("ReadFrom = %d, %v", n, err)
			}
			if root, err := b.Seal(); err != nil || root != wantRoot || !bytes.Equal(copied.b, want) {
				t.Fatalf("ReadFrom of %d bytes with %d workers: %v, %v", size, workers, root, err)
			}
		}
	}
}

// TestBuilderLargeWrites splits a blob at random into writes that are hashed on
// several cores, some that are not, and copies in between.
func TestBuilderLargeWrites(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	data := pattern(9<<20+5000, 5)
	want, wantRoot := twinOutboard(data), merkle.Sum(data)
	for round := range 8 {
		var nodes ram
		b := merkle.NewBuilder(&nodes)
		b.SetWorkers(1 + round)
		for rest := data; len(rest) > 0; {
			n := min([]int{rng.IntN(40_000), 16384, rng.IntN(5 << 20), 256 << 10}[rng.IntN(4)], len(rest))
			if rng.IntN(4) == 0 {
				b.ReadFrom(bytes.NewReader(rest[:n]))
			} else {
				b.Write(rest[:n])
			}
			rest = rest[n:]
		}
		if root, err := b.Seal(); err != nil || root != wantRoot || !bytes.Equal(nodes.b, want) {
			t.Fatalf("round %d: %v, %v; the outboard is right: %v", round, root, err, bytes.Equal(nodes.b, want))
		}
	}
}

// repeated is a blob of any size in no memory.
type repeated struct {
	pattern []byte
	size    int64
}

func (r repeated) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) && off+int64(n) < r.size {
		at := (off + int64(n)) % int64(len(r.pattern))
		n += copy(p[n:min(int64(len(p)), r.size-off)], r.pattern[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestBuildHuge: a blob so large that a task is read in pieces has the root and
// outboard that a Builder gives it.
func TestBuildHuge(t *testing.T) {
	size := int64(256<<20 + 700<<10 + 5)
	src := repeated{pattern(1<<20, 1), size}
	var want ram
	b := merkle.NewBuilder(&want)
	if n, err := b.ReadFrom(io.NewSectionReader(src, 0, size)); n != size || err != nil {
		t.Fatalf("ReadFrom = %d, %v", n, err)
	}
	wantRoot, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	for _, workers := range []int{1, 3} {
		var got ram
		root, err := merkle.BuildAtWorkers(t.Context(), src, size, &got, workers)
		if err != nil || root != wantRoot || !bytes.Equal(got.b, want.b) {
			t.Errorf("%d workers: %v, %v, want %v; the outboard is right: %v", workers, root, err, wantRoot, bytes.Equal(got.b, want.b))
		}
	}
}

// TestBuildMemory: 1 GiB takes at most 16 allocations and 8 MiB, whoever reads
// it, and nothing of it is left running.
func TestBuildMemory(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	src := repeated{pattern(1<<20, 1), size}
	for name, build := range map[string]func(){
		"BuildAt": func() {
			if _, err := merkle.BuildAt(t.Context(), src, size, discardAt{}); err != nil {
				t.Error(err)
			}
		},
		"one worker": func() {
			if _, err := merkle.BuildAtWorkers(t.Context(), src, size, discardAt{}, 1); err != nil {
				t.Error(err)
			}
		},
		"Builder": func() {
			b := merkle.NewBuilder(discardAt{})
			b.SetWorkers(2)
			for range size / int64(len(src.pattern)) {
				b.Write(src.pattern)
			}
			if _, err := b.Seal(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			build()
			runtime.ReadMemStats(&after)
			allocs, n := after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
			t.Logf("%d allocations, %d bytes", allocs, n)
			// The runtime allocates a goroutine now and then where it has none to
			// use again, more of them on a busy machine; the 65,536 groups of 1 GiB
			// allocate nothing.
			limit := uint64(16 + 4*runtime.GOMAXPROCS(0))
			if name == "Builder" { // which starts them anew in each large Write
				limit += uint64(size / int64(len(src.pattern)) / 2)
			}
			if allocs > limit {
				t.Errorf("%d allocations, want at most %d", allocs, limit)
			}
			if n > 8<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			checkGoroutines(t, goroutines)
		})
	}
}

// checkGoroutines fails if more goroutines are running than before. One that has
// done its work may need a moment to go.
func checkGoroutines(t *testing.T, before int) {
	t.Helper()
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left", runtime.NumGoroutine()-before)
}

// TestBuilderErrorsSurface: a node that cannot be written is an error of a large
// Write or of Seal, once and for good, and leaves no goroutine behind.
func TestBuilderErrorsSurface(t *testing.T) {
	data := pattern(4<<20, 1)
	goroutines := runtime.NumGoroutine()
	for left := range int64(8) {
		b := merkle.NewBuilder(&broken{left: left})
		_, err := b.Write(data)
		root, sealed := b.Seal()
		if left < 2 && !errors.Is(sealed, errBroken) || err != nil && (sealed == nil || !root.IsZero()) {
			t.Errorf("after %d writes of nodes: Write %v, Seal %v, %v", left, err, root, sealed)
		}
		if err != nil {
			if _, again := b.Write(data[:1]); !errors.Is(again, errBroken) {
				t.Errorf("a Write after the error: %v", again)
			}
			if _, again := b.ReadFrom(bytes.NewReader(data)); !errors.Is(again, errBroken) {
				t.Errorf("ReadFrom after the error: %v", again)
			}
		}
	}
	b := merkle.NewBuilder(nil)
	if _, err := b.ReadFrom(iotest.ErrReader(errBroken)); !errors.Is(err, errBroken) {
		t.Errorf("ReadFrom of a broken reader: %v", err)
	}
	checkGoroutines(t, goroutines)
}

// TestPartsTwin cuts blobs into parts in every way that the tree allows, builds
// them in a random order and compares root and outboard with the twin.
func TestPartsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const g = merkle.GroupSize
	for round := range rounds(100) {
		size := int64(g + 1 + rng.IntN(40*g))
		if rng.IntN(3) == 0 {
			size = int64(2+rng.IntN(40)) * g
		}
		data := pattern(int(size), uint64(round))
		var nodes ram
		var parts []merkle.Part
		for at := int64(0); at < size; {
			n := int64(g)
			for at%(2*n) == 0 && n < size-at && rng.IntN(3) > 0 {
				n *= 2
			}
			n = min(n, size-at)
			if n == size { // one part is no blob
				n = g
			}
			r := io.NewSectionReader(bytes.NewReader(data), at, n)
			p, err := merkle.BuildPart(t.Context(), r, at, n, &nodes)
			if err != nil {
				t.Fatalf("round %d: %d bytes from %d of %d: %v", round, n, at, size, err)
			}
			parts = append(parts, p)
			at += n
		}
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		root, err := merkle.RootOfParts(size, &nodes, parts...)
		if err != nil || root != merkle.Sum(data) {
			t.Fatalf("round %d: RootOfParts(%d, %v) = %v, %v", round, size, parts, root, err)
		}
		if !bytes.Equal(nodes.b, twinOutboard(data)) {
			t.Fatalf("round %d: the outboard of %v differs from the twin's", round, parts)
		}
		whole, err := merkle.MergeParts(nil, parts...)
		if err != nil || whole.Value != [32]byte(twinBytes(twinValue(data, 0, 0))) || whole.Size != size {
			t.Fatalf("round %d: MergeParts(%v) = %v, %v", round, parts, whole, err)
		}
	}
}

// TestPartsMisuse: every way in which parts cannot belong together.
func TestPartsMisuse(t *testing.T) {
	const g = merkle.GroupSize
	data := pattern(8*g, 1)
	part := func(offset, size int64) merkle.Part {
		return merkle.Part{Offset: offset, Size: size, Value: [32]byte{1}}
	}
	type ps = []merkle.Part
	for name, test := range map[string]struct {
		size  int64
		parts ps
		err   error
	}{
		"none":                   {0, nil, merkle.ErrPart},
		"one is no root":         {2 * g, ps{part(0, 2*g)}, merkle.ErrPart},
		"a gap":                  {3 * g, ps{part(0, g), part(2*g, g)}, merkle.ErrPart},
		"a gap at the start":     {4 * g, ps{part(g, g), part(2*g, 2*g)}, merkle.ErrPart},
		"short of the end":       {4 * g, ps{part(0, g), part(g, g)}, merkle.ErrPart},
		"past the end":           {2*g - 1, ps{part(0, g), part(g, g)}, merkle.ErrPart},
		"an overlap":             {4 * g, ps{part(0, 2*g), part(g, g), part(2*g, 2*g)}, merkle.ErrPart},
		"twice":                  {2 * g, ps{part(0, g), part(0, g), part(g, g)}, merkle.ErrPart},
		"an odd one inside":      {4 * g, ps{part(0, 100), part(100, g)}, merkle.ErrPart},
		"an odd one, on a group": {4 * g, ps{part(0, 3*g), part(3*g, g)}, merkle.ErrPart},
		"a wrong offset":         {4 * g, ps{part(0, g), part(g, 2*g)}, merkle.ErrPart},
		"a negative offset":      {g, ps{part(-g, g), part(0, g)}, merkle.ErrRange},
		"an empty one":           {g, ps{part(0, g), part(g, 0)}, merkle.ErrRange},
		"near the largest":       {g, ps{part(0, g), part(1<<63-g, g)}, merkle.ErrRange},
		"the largest":            {1<<63 - 1, ps{part(0, 1<<62), part(1<<62, 1<<62-1)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := merkle.RootOfParts(test.size, nil, test.parts...)
			if !errors.Is(err, test.err) || err != nil && !root.IsZero() {
				t.Errorf("RootOfParts = %v, %v, want %v", root, err, test.err)
			}
		})
	}
	if _, err := merkle.MergeParts(nil, part(g, g), part(2*g, g)); !errors.Is(err, merkle.ErrPart) {
		t.Errorf("a merge of two parts that are no subtree: %v", err)
	}
	for name, test := range map[string]struct {
		offset, size int64
		err          error
	}{
		"inside a group":        {100, g, merkle.ErrPart},
		"no subtree there":      {g, 2 * g, merkle.ErrPart},
		"no last subtree there": {g, g + 1, merkle.ErrPart},
		"empty":                 {0, 0, merkle.ErrRange},
		"negative":              {-g, g, merkle.ErrRange},
		"past the largest":      {1<<63 - g, g, merkle.ErrRange},
		"longer than its bytes": {0, 16 * g, merkle.ErrChanged},
		"shorter":               {0, 4 * g, merkle.ErrChanged},
	} {
		t.Run("build "+name, func(t *testing.T) {
			p, err := merkle.BuildPart(t.Context(), bytes.NewReader(data), test.offset, test.size, nil)
			if !errors.Is(err, test.err) || p != (merkle.Part{}) {
				t.Errorf("BuildPart = %v, %v, want %v", p, err, test.err)
			}
		})
	}
}

// TestPartOffset: the same bytes have another value at another offset.
func TestPartOffset(t *testing.T) {
	data := pattern(merkle.GroupSize, 1)
	seen := map[[32]byte]int64{}
	for i := range int64(4) {
		p, err := merkle.BuildPart(t.Context(), bytes.NewReader(data), i*merkle.GroupSize, merkle.GroupSize, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := seen[p.Value]; ok {
			t.Errorf("the values at %d and %d are the same", at, p.Offset)
		}
		seen[p.Value] = p.Offset
		if merkle.Root(p.Value) == merkle.Sum(data) {
			t.Error("the value of a part is the root of its bytes")
		}
	}
}

func BenchmarkBuilderLargeWrite(b *testing.B) {
	data := pattern(64<<20, 1)
	for _, n := range []int{256 << 10, 1 << 20, 8 << 20} {
		for _, workers := range []int{1, 2} {
			b.Run("write="+strconv.Itoa(n)+"/workers="+strconv.Itoa(workers), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					w := merkle.NewBuilder(discardAt{})
					w.SetWorkers(workers)
					for p := data; len(p) > 0; p = p[n:] {
						w.Write(p[:n])
					}
					w.Seal()
				}
			})
		}
	}
}
