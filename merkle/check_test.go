package merkle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"leafproof/merkle"
)

// TestVerifyOutboard: a sealed outboard with any byte wrong, missing or too many
// is refused, also where the root does not depend on it.
func TestVerifyOutboard(t *testing.T) {
	const g = merkle.GroupSize
	for _, size := range []int{g + 1, 2 * g, 2*g + 1, 4 * g, 5*g + 9, 8 * g, 13 * g} {
		data := pattern(size, 1)
		root, nodes := build(t, data)
		verify := func(nodes []byte, size int) error {
			return merkle.NewTree(root, int64(size), bytes.NewReader(nodes)).VerifyOutboard(t.Context())
		}
		if err := verify(nodes, size); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for i := range nodes {
			bad := bytes.Clone(nodes)
			bad[i] ^= 1
			if err := verify(bad, size); !errors.Is(err, merkle.ErrMismatch) {
				t.Fatalf("%d bytes, byte %d wrong: %v", size, i, err)
			}
			if err := verify(nodes[:i], size); !errors.Is(err, merkle.ErrMalformed) {
				t.Fatalf("%d bytes, cut to %d: %v", size, i, err)
			}
		}
		for _, more := range []int{1, 31, 32, 64} {
			if err := verify(append(bytes.Clone(nodes), make([]byte, more)...), size); !errors.Is(err, merkle.ErrMalformed) {
				t.Errorf("%d bytes, %d more: %v", size, more, err)
			}
		}
		for _, other := range []int{size - g, size + g, 1} {
			if err := verify(nodes, other); err == nil {
				t.Errorf("the outboard of %d bytes passes for %d", size, other)
			}
		}
		if err := merkle.NewTree(merkle.Sum(nil), int64(size), bytes.NewReader(nodes)).VerifyOutboard(t.Context()); !errors.Is(err, merkle.ErrMismatch) {
			t.Errorf("under another root: %v", err)
		}
	}
	small := merkle.Sum([]byte("x"))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		size  int64
		nodes io.ReaderAt
		err   error
	}{
		"none and none needed": {t.Context(), 1, nil, nil},
		"empty":                {t.Context(), 1, bytes.NewReader(nil), nil},
		"one too many":         {t.Context(), 1, bytes.NewReader(make([]byte, 32)), merkle.ErrMalformed},
		"none":                 {t.Context(), 40_000, nil, merkle.ErrMalformed},
		"negative":             {t.Context(), -1, nil, merkle.ErrRange},
		"the largest":          {t.Context(), 1<<63 - 1, bytes.NewReader(make([]byte, 32)), merkle.ErrMalformed},
		"unreadable":           {t.Context(), 40_000, &broken{}, errBroken},
		"cancelled":            {done, 40_000, bytes.NewReader(make([]byte, 160)), context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			if err := merkle.NewTree(small, test.size, test.nodes).VerifyOutboard(test.ctx); !errors.Is(err, test.err) {
				t.Errorf("error = %v, want %v", err, test.err)
			}
		})
	}
}

// validRanges collects ValidRanges.
func validRanges(t *testing.T, tr *merkle.Tree, data io.ReaderAt, within ...merkle.Range) (ranges []merkle.Range) {
	t.Helper()
	for r, err := range tr.ValidRanges(t.Context(), data, within...) {
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// groupRanges returns the bytes of the groups for which has says so.
func groupRanges(size int64, has func(g int64) bool) (ranges []merkle.Range) {
	const n = merkle.GroupSize
	for g := range max(1, (size+n-1)/n) {
		switch last := len(ranges) - 1; {
		case !has(g):
		case last >= 0 && ranges[last].End == g*n:
			ranges[last].End = min(size, (g+1)*n)
		default:
			ranges = append(ranges, merkle.Range{Start: g * n, End: min(size, (g+1)*n)})
		}
	}
	return ranges
}

// TestValidRanges damages some groups of random blobs: those, and only those,
// are missing from what is valid, and a search within ranges finds no other.
func TestValidRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for round := range rounds(300) {
		size := int64(1 + rng.IntN(20*merkle.GroupSize))
		data := pattern(int(size), uint64(round))
		tr := tree(t, data)
		damaged := map[int64]bool{}
		bad := bytes.Clone(data)
		for range rng.IntN(6) {
			at := rng.Int64N(size)
			bad[at] = ^data[at]
			damaged[at/merkle.GroupSize] = true
		}
		var within []merkle.Range
		asked := func(int64) bool { return true }
		if rng.IntN(2) == 0 {
			within = randomRanges(rng, size, 1+rng.IntN(3))
			selected := twinLeaves(int(size), within)
			asked = func(g int64) bool {
				return slices.Contains(selected[g*16:min(int64(len(selected)), (g+1)*16)], true)
			}
		}
		got := validRanges(t, tr, bytes.NewReader(bad), within...)
		want := groupRanges(size, func(g int64) bool { return asked(g) && !damaged[g] })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %d bytes, damaged in %v, within %v: valid %v, want %v", round, size, damaged, within, got, want)
		}
		// Data that end early prove what they have.
		cut := rng.Int64N(size)
		got = validRanges(t, tr, bytes.NewReader(data[:cut]))
		want = groupRanges(size, func(g int64) bool { return min((g+1)*merkle.GroupSize, size) <= cut })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %d bytes cut to %d: valid %v, want %v", round, size, cut, got, want)
		}
		// Outboards that are wrong or cut prove less, never something wrong.
		_, nodes := build(t, data)
		if len(nodes) > 0 {
			nodes[rng.IntN(len(nodes))] ^= 1
			nodes = nodes[:rng.IntN(len(nodes)+1)]
			tr := merkle.NewTree(tr.Root(), size, bytes.NewReader(nodes))
			for _, r := range validRanges(t, tr, bytes.NewReader(bad)) {
				if !bytes.Equal(bad[r.Start:r.End], data[r.Start:r.End]) {
					t.Fatalf("round %d: wrong bytes %v are valid", round, r)
				}
			}
		}
	}
}

func TestValidRangesEdges(t *testing.T) {
	empty := merkle.NewTree(merkle.Sum(nil), 0, nil)
	if got := validRanges(t, empty, bytes.NewReader(nil)); got != nil {
		t.Errorf("the empty blob has the valid ranges %v", got)
	}
	data := pattern(100_000, 1)
	tr := tree(t, data)
	other := merkle.NewTree(merkle.Sum(nil), 100_000, nil)
	if got := validRanges(t, other, bytes.NewReader(data)); got != nil {
		t.Errorf("without an outboard %v is valid", got)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, nodes := build(t, data)
	for name, test := range map[string]struct {
		ctx    context.Context
		tree   *merkle.Tree
		data   io.ReaderAt
		within []merkle.Range
		err    error
	}{
		"cancelled":           {done, tr, bytes.NewReader(data), nil, context.Canceled},
		"data unreadable":     {t.Context(), tr, &broken{}, nil, errBroken},
		"outboard unreadable": {t.Context(), merkle.NewTree(tr.Root(), 100_000, &broken{}), bytes.NewReader(data), nil, errBroken},
		"backwards":           {t.Context(), tr, bytes.NewReader(data), []merkle.Range{{Start: 2, End: 1}}, merkle.ErrRange},
		"negative size":       {t.Context(), merkle.NewTree(tr.Root(), -1, bytes.NewReader(nodes)), bytes.NewReader(data), nil, merkle.ErrRange},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for r, err := range test.tree.ValidRanges(test.ctx, test.data, test.within...) {
				if n++; !errors.Is(err, test.err) || r != (merkle.Range{}) {
					t.Errorf("yielded %v, %v, want %v", r, err, test.err)
				}
			}
			if n != 1 {
				t.Errorf("%d errors were yielded", n)
			}
		})
	}
	bad := bytes.Clone(data)
	for g := range 6 {
		bad[g*merkle.GroupSize] ^= byte(g % 2)
	}
	n := 0
	for range tr.ValidRanges(t.Context(), bytes.NewReader(bad)) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d ranges before the break", n)
	}
}

// TestValidRangesForged: data and a node of the outboard that agree with each
// other but not with the root are not valid.
func TestValidRangesForged(t *testing.T) {
	const size = 8 * merkle.GroupSize
	data := pattern(size, 1)
	root, nodes := build(t, data)
	for g := range int64(8) {
		bad, log := bytes.Clone(data), bytes.Clone(nodes)
		group := bad[g*merkle.GroupSize:][:merkle.GroupSize]
		group[0] ^= 1
		at := logBytes(int(g) * merkle.GroupSize)
		copy(log[at:], twinBytes(twinValue(group, int(g)*16, 0)))
		tr := merkle.NewTree(root, size, bytes.NewReader(log))
		for _, r := range validRanges(t, tr, bytes.NewReader(bad)) {
			if !bytes.Equal(bad[r.Start:r.End], data[r.Start:r.End]) {
				t.Errorf("forged group %d: %v is valid", g, r)
			}
		}
	}
}

// TestKeepNodes receives a blob in random excerpts. What it collected proves
// exactly the groups that it has, and when it has all the outboard is the
// sealed one, byte for byte.
func TestKeepNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	for round := range rounds(100) {
		size := int64(1 + rng.IntN(12*merkle.GroupSize))
		if rng.IntN(4) == 0 {
			size = int64(1+rng.IntN(12)) * merkle.GroupSize
		}
		data := pattern(int(size), uint64(round))
		source := tree(t, data)
		var nodes ram
		file := ram{b: make([]byte, size)}
		progress := merkle.NewProgress(source.Root(), size)
		receive := func(ranges ...merkle.Range) {
			set := leaves(t, size, ranges...)
			r := merkle.NewBodyReader(bytes.NewReader(body(t, data, set)), source.Root(), set)
			r.KeepNodes(&nodes)
			pieces, err := drain(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pieces {
				file.WriteAt(p.p, p.offset)
				if err := progress.Add(p.offset, p.offset+int64(len(p.p))); err != nil {
					t.Fatal(err)
				}
			}
		}
		receive(merkle.Range{Start: size, End: size}) // the edge first
		for range rng.IntN(5) {
			receive(randomRanges(rng, size, 1+rng.IntN(3))...)
		}
		got := merkle.NewTree(source.Root(), size, bytes.NewReader(nodes.b))
		record, err := progress.Checkpoint(func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		valid := validRanges(t, got, &file)
		if !slices.Equal(valid, progress.Durable()) {
			t.Fatalf("round %d: %d bytes: %v are proven, %v are noted", round, size, valid, progress.Durable())
		}
		again, err := merkle.ParseProgress(record, source.Root(), size)
		if err != nil || !slices.Equal(again.Durable(), valid) {
			t.Fatalf("round %d: the record says %v, %v, want %v", round, again.Durable(), err, valid)
		}
		for progress = again; len(progress.Missing()) > 0; {
			missing := progress.Missing()
			receive(missing[:1+rng.IntN(len(missing))]...)
		}
		if !bytes.Equal(file.b, data) || !bytes.Equal(nodes.b, twinOutboard(data)) {
			t.Fatalf("round %d: what was received of %d bytes is not the blob and its outboard", round, size)
		}
	}
	data := pattern(100_000, 1)
	set := leaves(t, 100_000, merkle.Range{Start: 0, End: 100_000})
	r := merkle.NewBodyReader(bytes.NewReader(body(t, data, set)), merkle.Sum(data), set)
	r.KeepNodes(&broken{left: 3})
	if _, err := drain(r); !errors.Is(err, errBroken) {
		t.Errorf("nodes that cannot be kept: %v", err)
	}
}

// TestCheckpointOrder: a record lists what was added before sync was called and
// nothing that came while it ran, and nothing at all if it failed.
func TestCheckpointOrder(t *testing.T) {
	const g = merkle.GroupSize
	p := merkle.NewProgress(merkle.Root{1}, 10*g)
	p.Add(0, g)
	if _, err := p.Checkpoint(func() error { return errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("a sync that failed: %v", err)
	}
	if got := p.Durable(); got != nil {
		t.Errorf("%v is durable after a sync that failed", got)
	}
	record, err := p.Checkpoint(func() error { return p.Add(g, 2*g) })
	if err != nil {
		t.Fatal(err)
	}
	want := []merkle.Range{{Start: 0, End: g}}
	if got := p.Durable(); !slices.Equal(got, want) {
		t.Errorf("Durable = %v, want %v", got, want)
	}
	again, err := merkle.ParseProgress(record, merkle.Root{1}, 10*g)
	if err != nil || !slices.Equal(again.Durable(), want) {
		t.Errorf("the record says %v, %v, want %v", again.Durable(), err, want)
	}
	if got := again.Missing(); !slices.Equal(got, []merkle.Range{{Start: g, End: 10 * g}}) {
		t.Errorf("Missing = %v", got)
	}
}

func TestProgress(t *testing.T) {
	const g = merkle.GroupSize
	type rs = []merkle.Range
	for name, test := range map[string]struct {
		size    int64
		add     rs
		durable rs
		missing rs
		err     error
	}{
		"nothing":               {3 * g, nil, nil, rs{{0, 3 * g}}, nil},
		"all":                   {3*g + 5, rs{{0, 3*g + 5}}, rs{{0, 3*g + 5}}, nil, nil},
		"the partial last":      {3*g + 5, rs{{3 * g, 3*g + 5}}, rs{{3 * g, 3*g + 5}}, rs{{0, 3 * g}}, nil},
		"part of it":            {3*g + 5000, rs{{3 * g, 3*g + 4999}}, nil, rs{{0, 3 * g}, {3*g + 4096, 3*g + 5000}}, nil},
		"part of a group":       {3 * g, rs{{g, 2*g - 1024}}, nil, rs{{0, g}, {2*g - 1024, 3 * g}}, nil},
		"a group in two":        {3 * g, rs{{g + 3072, 2 * g}, {g, g + 3072}}, rs{{g, 2 * g}}, rs{{0, g}, {2 * g, 3 * g}}, nil},
		"parts of leaves":       {3 * g, rs{{1, 1023}, {1024, 2049}}, nil, rs{{0, 1024}, {2048, 3 * g}}, nil},
		"over two, into others": {5 * g, rs{{g - 1, 3*g + 1}}, rs{{g, 3 * g}}, rs{{0, g}, {3 * g, 5 * g}}, nil},
		"far, then between":     {9 * g, rs{{0, g}, {4 * g, 5 * g}, {8 * g, 9 * g}, {g, 4 * g}}, rs{{0, 5 * g}, {8 * g, 9 * g}}, rs{{5 * g, 8 * g}}, nil},
		"twice":                 {2 * g, rs{{0, g}, {0, g}}, rs{{0, g}}, rs{{g, 2 * g}}, nil},
		"the empty blob":        {0, rs{{0, 0}}, rs{{0, 0}}, nil, nil},
		"one byte":              {1, rs{{0, 1}}, rs{{0, 1}}, nil, nil},
		"the largest":           {1<<63 - 1, rs{{0, 1<<63 - 1}}, rs{{0, 1<<63 - 1}}, nil, nil},
		"negative":              {g, rs{{-1, 1}}, nil, rs{{0, g}}, merkle.ErrRange},
		"backwards":             {g, rs{{2, 1}}, nil, rs{{0, g}}, merkle.ErrRange},
		"past the end":          {g, rs{{0, g + 1}}, nil, rs{{0, g}}, merkle.ErrRange},
	} {
		t.Run(name, func(t *testing.T) {
			p := merkle.NewProgress(merkle.Root{1}, test.size)
			for _, r := range test.add {
				if err := p.Add(r.Start, r.End); !errors.Is(err, test.err) {
					t.Fatalf("Add(%v) = %v, want %v", r, err, test.err)
				}
			}
			record, err := p.Checkpoint(func() error { return nil })
			if err != nil || !slices.Equal(p.Durable(), test.durable) || !slices.Equal(p.Missing(), test.missing) {
				t.Errorf("durable %v, missing %v, %v, want %v, %v", p.Durable(), p.Missing(), err, test.durable, test.missing)
			}
			again, err := merkle.ParseProgress(record, merkle.Root{1}, test.size)
			if err != nil || !slices.Equal(again.Durable(), test.durable) {
				t.Fatalf("the record says %v, %v, want %v", again, err, test.durable)
			}
			if twice, err := again.Checkpoint(func() error { return nil }); err != nil || !bytes.Equal(twice, record) {
				t.Errorf("its record is %x, %v, want %x", twice, err, record)
			}
			checkTorn(t, record, test.size)
		})
	}
}

// checkTorn: no other bytes than a record's are accepted.
func checkTorn(t *testing.T, record []byte, size int64) {
	t.Helper()
	for i := range 8 * len(record) {
		bad := bytes.Clone(record)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := merkle.ParseProgress(bad, merkle.Root{1}, size); !errors.Is(err, merkle.ErrMalformed) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range record {
		zeros := append(bytes.Clone(record[:n]), make([]byte, len(record)-n)...)
		for _, bad := range [][]byte{record[:n], zeros} {
			if _, err := merkle.ParseProgress(bad, merkle.Root{1}, size); !errors.Is(err, merkle.ErrMalformed) && !bytes.Equal(bad, record) {
				t.Fatalf("torn after %d bytes: %v", n, err)
			}
		}
	}
	if _, err := merkle.ParseProgress(append(bytes.Clone(record), 0), merkle.Root{1}, size); !errors.Is(err, merkle.ErrMalformed) {
		t.Errorf("with a byte after it: %v", err)
	}
	if _, err := merkle.ParseProgress(record, merkle.Root{2}, size); !errors.Is(err, merkle.ErrMismatch) {
		t.Errorf("of another root: %v", err)
	}
	if _, err := merkle.ParseProgress(record, merkle.Root{1}, size^1); !errors.Is(err, merkle.ErrMismatch) {
		t.Errorf("of another size: %v", err)
	}
}

func BenchmarkVerifyOutboard(b *testing.B) {
	data := pattern(64<<20, 1)
	tr := tree(b, data)
	b.SetBytes(merkle.OutboardSize(int64(len(data))))
	b.ReportAllocs()
	for b.Loop() {
		if err := tr.VerifyOutboard(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidRanges(b *testing.B) {
	data := pattern(64<<20, 1)
	tr := tree(b, data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range tr.ValidRanges(b.Context(), bytes.NewReader(data)) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
