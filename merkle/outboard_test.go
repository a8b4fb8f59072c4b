package merkle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// sizes are those around which the shape of a tree changes.
var sizes = []int{
	0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 5000, 16383, 16384, 16385, 17408, 32767, 32768, 32769,
	49152, 50000, 65536, 65537, 131072, 262143, 262144, 262145, 300000, 524288, 524289, 1 << 20, 1<<20 + 1, 1300000,
}

func TestParseRoot(t *testing.T) {
	const empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	for name, test := range map[string]struct {
		in  string
		err error
	}{
		"good":        {empty, nil},
		"one short":   {empty[1:], merkle.ErrSyntax},
		"one long":    {empty + "0", merkle.ErrSyntax},
		"empty":       {"", merkle.ErrSyntax},
		"upper case":  {strings.ToUpper(empty), merkle.ErrSyntax},
		"no digit":    {"g" + empty[1:], merkle.ErrSyntax},
		"white space": {" " + empty[1:], merkle.ErrSyntax},
		"algo prefix": {"blake3:" + empty, merkle.ErrSyntax},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := merkle.ParseRoot(test.in)
			if !errors.Is(err, test.err) {
				t.Fatalf("ParseRoot(%q) error = %v, want %v", test.in, err, test.err)
			}
			if err != nil {
				if !got.IsZero() {
					t.Errorf("ParseRoot(%q) failed but returned %v", test.in, got)
				}
				return
			}
			if got != merkle.Sum(nil) || got.String() != test.in {
				t.Errorf("ParseRoot(%q) = %v", test.in, got)
			}
		})
	}
}

// TestOutboardTwin: the log of every Builder and of BuildAt is the twin's, byte
// for byte, and the root is zeebo's and the twin's.
func TestOutboardTwin(t *testing.T) {
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data := pattern(size, uint64(size))
			want := twinOutboard(data)
			if got := merkle.OutboardSize(int64(size)); got != int64(len(want)) {
				t.Errorf("OutboardSize = %d, the twin has %d", got, len(want))
			}
			root, nodes := build(t, data)
			if root != twinRoot(data) || root != merkle.Root(blake3.Sum256(data)) {
				t.Errorf("Builder's root = %v, want %v", root, twinRoot(data))
			}
			if !bytes.Equal(nodes, want) {
				t.Errorf("Builder's outboard differs from the twin's")
			}
			var at ram
			root, err := merkle.BuildAt(t.Context(), bytes.NewReader(data), int64(size), &at)
			if err != nil || root != twinRoot(data) {
				t.Errorf("BuildAt = %v, %v, want %v", root, err, twinRoot(data))
			}
			if !bytes.Equal(at.b, want) {
				t.Errorf("BuildAt's outboard differs from the twin's")
			}
		})
	}
}

// TestBuilderSplits writes in random pieces and asks for the root after each:
// it is zeebo's root of the prefix, and asking changes nothing. Sealing in
// between changes nothing either.
func TestBuilderSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		data := pattern(rng.IntN(400_000), uint64(round))
		var nodes ram
		b := merkle.NewBuilder(&nodes)
		for at := 0; at < len(data); {
			n := min([]int{rng.IntN(100), rng.IntN(3000), 16384, rng.IntN(70_000)}[rng.IntN(4)], len(data)-at)
			if got, err := b.Write(data[at : at+n]); got != n || err != nil {
				t.Fatalf("Write = %d, %v, want %d", got, err, n)
			}
			at += n
			if b.Size() != int64(at) {
				t.Fatalf("Size = %d, want %d", b.Size(), at)
			}
			if want := merkle.Root(blake3.Sum256(data[:at])); b.Root() != want {
				t.Fatalf("round %d: root of %d bytes = %v, want %v", round, at, b.Root(), want)
			}
			if rng.IntN(4) == 0 {
				if _, err := b.Seal(); err != nil {
					t.Fatal(err)
				}
				n := merkle.OutboardSize(int64(at))
				if want := twinOutboard(data[:at]); !bytes.Equal(nodes.b[:n], want) {
					t.Fatalf("round %d: sealed outboard of %d bytes differs from the twin's", round, at)
				}
			}
		}
		if _, err := b.Seal(); err != nil {
			t.Fatal(err)
		}
		if n := merkle.OutboardSize(int64(len(data))); !bytes.Equal(nodes.b[:n], twinOutboard(data)) {
			t.Fatalf("round %d: outboard of %d bytes differs from the twin's", round, len(data))
		}
	}
}

func TestBuilderAllocatesNothing(t *testing.T) {
	b := merkle.NewBuilder(&ram{b: make([]byte, 1<<20)})
	data := pattern(1<<20, 1)
	if n := testing.AllocsPerRun(10, func() { b.Write(data) }); n > 0.5 {
		t.Errorf("a Write of 1 MiB allocates %v times", n)
	}
}

// broken fails every call after the first few.
type broken struct {
	ram
	left  int64
	calls atomic.Int64
}

var errBroken = errors.New("the disk is full")

func (b *broken) WriteAt(p []byte, off int64) (int, error) {
	if b.calls.Add(1) > b.left {
		return 0, errBroken
	}
	return b.ram.WriteAt(p, off)
}

func (b *broken) ReadAt(p []byte, off int64) (int, error) {
	if b.calls.Add(1) > b.left {
		return 0, errBroken
	}
	return b.ram.ReadAt(p, off)
}

func TestBuilderWriteError(t *testing.T) {
	b := merkle.NewBuilder(&broken{})
	data := pattern(10<<20, 1)
	if _, err := b.Write(data); !errors.Is(err, errBroken) {
		t.Errorf("Write error = %v", err)
	}
	if root, err := b.Seal(); !errors.Is(err, errBroken) || !root.IsZero() {
		t.Errorf("Seal = %v, %v", root, err)
	}
	b = merkle.NewBuilder(&broken{})
	if _, err := b.Write(data[:20000]); err != nil {
		t.Errorf("Write of 20,000 bytes: %v", err)
	}
	if _, err := b.Seal(); !errors.Is(err, errBroken) {
		t.Errorf("Seal error = %v", err)
	}
}

func TestBuildAtErrors(t *testing.T) {
	data := pattern(1_000_000, 3)
	size := int64(len(data))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		r     io.ReaderAt
		size  int64
		nodes io.WriterAt
		err   error
	}{
		"shorter":            {t.Context(), bytes.NewReader(data[:size-1]), size, nil, merkle.ErrChanged},
		"much shorter":       {t.Context(), bytes.NewReader(data[:1000]), size, nil, merkle.ErrChanged},
		"empty":              {t.Context(), bytes.NewReader(nil), 1, nil, merkle.ErrChanged},
		"longer":             {t.Context(), bytes.NewReader(data), size - 1, nil, merkle.ErrChanged},
		"longer than none":   {t.Context(), bytes.NewReader(data), 0, nil, merkle.ErrChanged},
		"longer than a task": {t.Context(), bytes.NewReader(data), 256 << 10, nil, merkle.ErrChanged},
		"negative":           {t.Context(), bytes.NewReader(data), -1, nil, merkle.ErrRange},
		"huge":               {t.Context(), bytes.NewReader(data), 1<<63 - 1, nil, merkle.ErrChanged},
		"read error":         {t.Context(), &broken{ram: ram{b: data}, left: 2}, size, nil, errBroken},
		"write error":        {t.Context(), bytes.NewReader(data), size, &broken{}, errBroken},
		"cancelled":          {done, bytes.NewReader(data), size, nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := merkle.BuildAt(test.ctx, test.r, test.size, test.nodes)
			if !errors.Is(err, test.err) {
				t.Fatalf("error = %v, want %v", err, test.err)
			}
			if _, ok := errors.AsType[*merkle.Error](err); !ok {
				t.Errorf("error %v is no *merkle.Error", err)
			}
			if !root.IsZero() {
				t.Errorf("it failed but returned %v", root)
			}
		})
	}
}

// TestVerifyGroups: every run of groups of a blob verifies, and nothing else
// does: no other byte, place, size, root or node.
func TestVerifyGroups(t *testing.T) {
	for _, size := range []int{0, 1, 16384, 16385, 40000, 49152, 65536, 114688, 120000} {
		data := pattern(size, 7)
		root, nodes := build(t, data)
		tr := merkle.NewTree(root, int64(size), bytes.NewReader(nodes))
		groups := max(1, (size+merkle.GroupSize-1)/merkle.GroupSize)
		for first := range groups {
			for end := first + 1; end <= groups; end++ {
				p := bytes.Clone(data[first*merkle.GroupSize : min(end*merkle.GroupSize, size)])
				if err := tr.VerifyGroups(int64(first), p); err != nil {
					t.Fatalf("groups %d:%d of %d bytes: %v", first, end, size, err)
				}
				for range min(len(p), 5) {
					at := rand.IntN(len(p))
					p[at] ^= 1 << rand.IntN(8)
					if err := tr.VerifyGroups(int64(first), p); !errors.Is(err, merkle.ErrMismatch) {
						t.Fatalf("groups %d:%d of %d bytes with byte %d wrong: %v", first, end, size, at, err)
					}
					copy(p, data[first*merkle.GroupSize:])
				}
				wrong := merkle.NewTree(merkle.Sum([]byte("another")), int64(size), bytes.NewReader(nodes))
				if err := wrong.VerifyGroups(int64(first), p); !errors.Is(err, merkle.ErrMismatch) {
					t.Fatalf("groups %d:%d of %d bytes under a wrong root: %v", first, end, size, err)
				}
			}
		}
		if groups < 2 {
			continue
		}
		p := data[:merkle.GroupSize]
		if err := tr.VerifyGroups(1, p); err == nil {
			t.Errorf("the first group of %d bytes verifies as the second", size)
		}
		for at := range nodes {
			bad := bytes.Clone(nodes)
			bad[at] ^= 1
			tr := merkle.NewTree(root, int64(size), bytes.NewReader(bad))
			for g := range groups {
				q := data[g*merkle.GroupSize : min((g+1)*merkle.GroupSize, size)]
				if err := tr.VerifyGroups(int64(g), q); err != nil && !errors.Is(err, merkle.ErrMismatch) {
					t.Fatalf("wrong node byte %d, group %d: %v", at, g, err)
				}
			}
		}
		for _, cut := range []int{0, 1, 33} {
			tr := merkle.NewTree(root, int64(size), bytes.NewReader(nodes[:cut]))
			if err := tr.VerifyGroups(0, p); groups > 2 && !errors.Is(err, merkle.ErrMalformed) {
				t.Errorf("with %d bytes of outboard of %d: %v", cut, size, err)
			}
		}
		if err := merkle.NewTree(root, int64(size), nil).VerifyGroups(0, p); !errors.Is(err, merkle.ErrMalformed) {
			t.Errorf("without an outboard: %v", err)
		}
		if err := merkle.NewTree(root, int64(size), &broken{}).VerifyGroups(0, p); !errors.Is(err, errBroken) {
			t.Errorf("with a broken outboard: %v", err)
		}
		if err := merkle.NewTree(root, int64(size)-1, bytes.NewReader(nodes)).VerifyGroups(0, data); err == nil {
			t.Errorf("%d bytes verify with another size", size)
		}
	}
}

func TestVerifyGroupsRange(t *testing.T) {
	data := pattern(40000, 7)
	tr := tree(t, data)
	for name, test := range map[string]struct {
		first int64
		p     []byte
	}{
		"nothing":           {0, nil},
		"negative":          {-1, data[:merkle.GroupSize]},
		"part of a group":   {0, data[:1024]},
		"one byte short":    {2, data[2*merkle.GroupSize : len(data)-1]},
		"partial then more": {0, append(bytes.Clone(data), 0)},
		"past the end":      {3, data[:1]},
		"far past the end":  {1 << 62, data[:merkle.GroupSize]},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tr.VerifyGroups(test.first, test.p); !errors.Is(err, merkle.ErrRange) {
				t.Errorf("error = %v, want ErrRange", err)
			}
		})
	}
}
