package fuzz_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"leafproof/merkle"
)

// merkleBlob is a blob of known bytes with its tree.
type merkleBlob struct {
	data []byte
	tree *merkle.Tree
}

// merkleNodes is the outboard of a blob in memory.
type merkleNodes []byte

func (n merkleNodes) WriteAt(p []byte, off int64) (int, error) { return copy(n[off:], p), nil }

func newMerkleBlob(tb testing.TB, size int) merkleBlob {
	tb.Helper()
	var data []byte
	for i := uint32(1); len(data) < size; i++ {
		data = binary.LittleEndian.AppendUint32(data, i)
	}
	data = data[:size]
	nodes := make(merkleNodes, merkle.OutboardSize(int64(size)))
	root, err := merkle.BuildAt(tb.Context(), bytes.NewReader(data), int64(size), nodes)
	if err != nil {
		tb.Fatal(err)
	}
	return merkleBlob{data, merkle.NewTree(root, int64(size), bytes.NewReader(nodes))}
}

// merkleBlobs are those that the targets ask for excerpts of: one for each shape of
// tree that is small.
func merkleBlobs(tb testing.TB) []merkleBlob {
	var all []merkleBlob
	for _, size := range []int{0, 1, 1024, 1500, 3000, 16384, 17000, 50_000} {
		all = append(all, newMerkleBlob(tb, size))
	}
	return all
}

// checkMerkle reads everything and reports whether it verified. Whatever comes out
// before that must be the blob's.
func checkMerkle(t *testing.T, b merkleBlob, next func() (int64, []byte, error)) bool {
	for {
		off, p, err := next()
		if err == io.EOF {
			return true
		}
		if err != nil {
			if !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return false
		}
		if off < 0 || off+int64(len(p)) > int64(len(b.data)) || !bytes.Equal(p, b.data[off:off+int64(len(p))]) {
			t.Fatalf("%d bytes at %d verified and are not the blob's", len(p), off)
		}
	}
}

// FuzzProofBody: a body verifies only if it is, byte for byte, the one that
// WriteBody writes.
func FuzzProofBody(f *testing.F) {
	all := merkleBlobs(f)
	for i, b := range all {
		for _, r := range []merkle.Range{{Start: 0, End: 1}, {Start: 1024, End: 1025}, {Start: 0, End: 3000}} {
			set, err := merkle.Leaves(b.tree.Size(), r)
			if err != nil {
				f.Fatal(err)
			}
			var w bytes.Buffer
			if err := merkle.WriteBody(&w, b.tree, bytes.NewReader(b.data), set); err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), uint32(r.Start), uint32(r.End), uint32(0), uint32(0), w.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d uint32, body []byte) {
		bl := all[int(which)%len(all)]
		ranges := []merkle.Range{{Start: int64(a), End: int64(b)}}
		if c != 0 || d != 0 {
			ranges = append(ranges, merkle.Range{Start: int64(c), End: int64(d)})
		}
		set, err := merkle.Leaves(bl.tree.Size(), ranges...)
		if err != nil {
			if !errors.Is(err, merkle.ErrRange) {
				t.Fatal(err)
			}
			return
		}
		r := bytes.NewReader(body)
		reader := merkle.NewBodyReader(r, bl.tree.Root(), set)
		if !checkMerkle(t, bl, reader.Next) {
			return
		}
		if reader.SizeProven() != set.HasLast() {
			t.Errorf("SizeProven = %v", reader.SizeProven())
		}
		var w bytes.Buffer
		if err := merkle.WriteBody(&w, bl.tree, bytes.NewReader(bl.data), set); err != nil {
			t.Fatal(err)
		}
		if read := body[:len(body)-r.Len()]; !bytes.Equal(read, w.Bytes()) || int64(len(read)) != merkle.BodySize(set) {
			t.Errorf("%d bytes verify, and are not the body of %v", len(read), set.Ranges())
		}
	})
}

// FuzzSlice: a detached file verifies only if it is the one encoding of what it
// proves; a size that it proves is the blob's.
func FuzzSlice(f *testing.F) {
	all := merkleBlobs(f)
	for i, b := range all {
		for _, last := range []bool{false, true} {
			var w bytes.Buffer
			ranges := []merkle.Range{{Start: 0, End: 1}, {Start: 2048, End: 2049}}
			if err := merkle.WriteSlice(&w, b.tree, bytes.NewReader(b.data), ranges, last); err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), w.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, file []byte) {
		b := all[int(which)%len(all)]
		s, err := merkle.NewSliceReader(bytes.NewReader(file), b.tree.Root())
		if err != nil {
			if !errors.Is(err, merkle.ErrMalformed) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		if !checkMerkle(t, b, s.Next) {
			return
		}
		if s.SizeProven() && s.Size() != b.tree.Size() {
			t.Fatalf("size %d is proven, it is %d", s.Size(), b.tree.Size())
		}
		if s.Size() != b.tree.Size() {
			return // a claim that nothing rests on
		}
		set, err := merkle.LeafRanges(s.Size(), s.Ranges())
		if err != nil {
			t.Fatal(err)
		}
		var w bytes.Buffer
		if err := merkle.WriteSlice(&w, b.tree, bytes.NewReader(b.data), set.Bytes(), s.SizeProven()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.Bytes(), file) {
			t.Errorf("it verifies, and is not the one encoding of %v", s.Ranges())
		}
	})
}
