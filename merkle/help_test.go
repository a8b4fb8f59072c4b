package merkle_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"leafproof/merkle"
)

// ram is an io.WriterAt and io.ReaderAt in memory. Like every io.WriterAt it
// bears parallel writes.
type ram struct {
	b  []byte
	mu sync.Mutex
}

func (r *ram) WriteAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need := int(off) + len(p); need > len(r.b) {
		r.b = append(r.b, make([]byte, need-len(r.b))...)
	}
	return copy(r.b[off:], p), nil
}

func (r *ram) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(r.b).ReadAt(p, off)
}

// pattern returns bytes in which no two leaves are alike.
func pattern(size int, seed uint64) []byte {
	b := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	rng.Read(b)
	return b
}

// rounds returns how often a random test runs, with -short a tenth of it.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// build returns the root and outboard of data by a Builder.
func build(t testing.TB, data []byte) (merkle.Root, []byte) {
	t.Helper()
	var nodes ram
	b := merkle.NewBuilder(&nodes)
	if _, err := b.Write(data); err != nil {
		t.Fatal(err)
	}
	root, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return root, nodes.b
}

// tree returns the tree of data.
func tree(t testing.TB, data []byte) *merkle.Tree {
	t.Helper()
	root, nodes := build(t, data)
	return merkle.NewTree(root, int64(len(data)), bytes.NewReader(nodes))
}

func body(t testing.TB, data []byte, set merkle.LeafSet) []byte {
	t.Helper()
	var w bytes.Buffer
	if err := merkle.WriteBody(&w, tree(t, data), bytes.NewReader(data), set); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

func slice(t testing.TB, data []byte, last bool, ranges ...merkle.Range) []byte {
	t.Helper()
	var w bytes.Buffer
	if err := merkle.WriteSlice(&w, tree(t, data), bytes.NewReader(data), ranges, last); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

func leaves(t testing.TB, size int64, ranges ...merkle.Range) merkle.LeafSet {
	t.Helper()
	set, err := merkle.Leaves(size, ranges...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// nexter is a BodyReader or a SliceReader.
type nexter interface {
	Next() (int64, []byte, error)
}

// piece is what one Next returned.
type piece struct {
	offset int64
	p      []byte
}

// drain reads everything, and the error that ended it, nil for io.EOF.
func drain(r nexter) (pieces []piece, err error) {
	for {
		off, p, err := r.Next()
		if err != nil {
			if _, _, again := r.Next(); again != err {
				return pieces, errors.New("an error of Next did not last")
			}
			if err == io.EOF {
				err = nil
			}
			return pieces, err
		}
		pieces = append(pieces, piece{off, bytes.Clone(p)})
	}
}

// checkPieces fails unless the pieces are exactly the ranges of data.
func checkPieces(t *testing.T, pieces []piece, data []byte, ranges []merkle.Range) {
	t.Helper()
	for _, r := range ranges {
		for at := r.Start; at < r.End; {
			if len(pieces) == 0 {
				t.Fatalf("nothing came for byte %d", at)
			}
			p := pieces[0]
			pieces = pieces[1:]
			if p.offset != at || len(p.p) == 0 || len(p.p) > merkle.GroupSize || at+int64(len(p.p)) > r.End {
				t.Fatalf("%d bytes came at %d, want some at %d, to %d", len(p.p), p.offset, at, r.End)
			}
			if !bytes.Equal(p.p, data[at:at+int64(len(p.p))]) {
				t.Fatalf("wrong bytes came at %d", at)
			}
			at += int64(len(p.p))
		}
	}
	if len(pieces) > 0 {
		t.Fatalf("%d bytes came at %d, which nobody asked for", len(pieces[0].p), pieces[0].offset)
	}
}

// vector reads one of the public test vectors, which live beside the project.
func vector(t *testing.T, name string) []byte {
	t.Helper()
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	b, err := os.ReadFile(filepath.Join(dir, "bao", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no vectors (set LEAFPROOF_VECTORS): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// allCodes runs a test with every code that this processor can run.
func allCodes(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, code := range merkle.Codes() {
		merkle.WithCode(code, func() { t.Run(code, test) })
	}
}
