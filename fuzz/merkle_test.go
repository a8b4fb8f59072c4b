package fuzz_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
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

// FuzzRangeSet: whatever ranges come, a set selects exactly the leaves that they
// touch, in canonical form, which the strict door takes back unchanged; and the
// strict door takes nothing else.
func FuzzRangeSet(f *testing.F) {
	word := binary.LittleEndian.AppendUint64
	f.Add(int64(5000), word(word(nil, 0), 1))
	f.Add(int64(0), word(word(nil, 0), 0))
	f.Add(int64(1<<63-1), word(word(nil, 1<<63-1), 1<<63-1))
	f.Add(int64(1<<20), word(word(word(word(nil, 0), 2000), 2048), 2048))
	f.Add(int64(40_000), word(word(word(word(nil, 1<<63), 7), 9), 3))
	f.Add(int64(-1), word(word(nil, 0), 1))
	f.Fuzz(func(t *testing.T, size int64, numbers []byte) {
		var ranges []merkle.Range
		for ; len(numbers) >= 16; numbers = numbers[16:] {
			ranges = append(ranges, merkle.Range{
				Start: int64(binary.LittleEndian.Uint64(numbers)), End: int64(binary.LittleEndian.Uint64(numbers[8:])),
			})
		}
		if strict, err := merkle.LeafRanges(size, ranges); err == nil {
			if again, err := merkle.Leaves(size, strict.Bytes()...); err != nil || !slices.Equal(again.Ranges(), ranges) {
				t.Errorf("leaves %v of %d bytes are canonical and become %v, %v", ranges, size, again.Ranges(), err)
			}
		} else if !errors.Is(err, merkle.ErrMalformed) {
			t.Fatalf("an error of no known kind: %v", err)
		}
		set, err := merkle.Leaves(size, ranges...)
		if err != nil {
			if !errors.Is(err, merkle.ErrRange) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		if again, err := merkle.LeafRanges(size, set.Ranges()); err != nil || !again.Equal(set) {
			t.Errorf("the set of %v of %d bytes is not canonical: %v, %v", ranges, size, set.Ranges(), err)
		}
		last := max(size-1, 0) / merkle.LeafSize
		has := func(leaf int64) bool {
			return slices.ContainsFunc(set.Ranges(), func(r merkle.Range) bool { return r.Start <= leaf && leaf < r.End })
		}
		for _, r := range ranges {
			for _, b := range []int64{r.Start, max(r.End-1, r.Start)} {
				if leaf := min(b/merkle.LeafSize, last); !has(leaf) {
					t.Errorf("%v of %d bytes: leaf %d is missing from %v", ranges, size, leaf, set.Ranges())
				}
			}
		}
		for _, r := range set.Ranges() {
			// Where a range of the set begins, one that was asked for does.
			if !slices.ContainsFunc(ranges, func(a merkle.Range) bool { return min(a.Start/merkle.LeafSize, last) == r.Start }) {
				t.Errorf("%v of %d bytes: nothing asked for leaf %d", ranges, size, r.Start)
			}
		}
		if n := merkle.BodySize(set); n < 8 || n < set.Bytes()[0].End-set.Bytes()[0].Start {
			t.Errorf("the body of %v of %d bytes has %d", set.Ranges(), size, n)
		}
	})
}

// merkleLog is an outboard log in memory that can be written.
type merkleLog struct{ b []byte }

func (l *merkleLog) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(l.b).ReadAt(p, off)
}

func (l *merkleLog) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(l.b) {
		l.b = append(l.b, make([]byte, need-len(l.b))...)
	}
	return copy(l.b[off:], p), nil
}

// FuzzOutboardLog: a log of any bytes is repaired to the one log of the data; as
// a sealed outboard it passes only if it is the one outboard; and it never makes
// data valid that are not the blob's.
func FuzzOutboardLog(f *testing.F) {
	var all []merkleBlob
	var logs [][]byte
	for _, size := range []int{0, 100, 16384, 16385, 32768, 50_000, 65536, 82_000} {
		b := newMerkleBlob(f, size)
		log := make([]byte, merkle.OutboardSize(int64(size)))
		if _, err := merkle.BuildAt(f.Context(), bytes.NewReader(b.data), int64(size), merkleNodes(log)); err != nil {
			f.Fatal(err)
		}
		all, logs = append(all, b), append(logs, log)
		f.Add(uint8(len(all)-1), log)
		f.Add(uint8(len(all)-1), log[:len(log)/2])
		f.Add(uint8(len(all)-1), append(bytes.Clone(log), make([]byte, 64)...))
	}
	f.Fuzz(func(t *testing.T, which uint8, log []byte) {
		i := int(which) % len(all)
		b, size, root := all[i], all[i].tree.Size(), all[i].tree.Root()
		file := &merkleLog{bytes.Clone(log)}
		w, kept, err := merkle.RecoverLog(t.Context(), bytes.NewReader(b.data), size, file, int64(len(log)))
		if err != nil {
			t.Fatal(err)
		}
		if kept < 0 || kept > size || kept > 0 && !bytes.HasPrefix(log, logs[i][:32*kept/merkle.GroupSize]) && w.Root() == root {
			t.Errorf("%d bytes of a log that is wrong were kept", kept)
		}
		if bytes.HasPrefix(logs[i], log) && w.Root() != root {
			t.Errorf("a log that was cut gives the root %v", w.Root())
		}
		tree := merkle.NewTree(root, size, bytes.NewReader(log))
		if err := tree.VerifyOutboard(t.Context()); (err == nil) != bytes.Equal(log, logs[i]) {
			t.Errorf("VerifyOutboard: %v, and the outboard is right: %v", err, bytes.Equal(log, logs[i]))
		} else if err != nil && !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
			t.Fatalf("an error of no known kind: %v", err)
		}
		bad := bytes.Clone(b.data)
		if len(bad) > 0 {
			bad[len(bad)/2] ^= 1
		}
		for r, err := range tree.ValidRanges(t.Context(), bytes.NewReader(bad)) {
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bad[r.Start:r.End], b.data[r.Start:r.End]) {
				t.Errorf("wrong bytes %v are valid", r)
			}
		}
	})
}

// FuzzPrefixProof: a prefix proof passes only if it is, byte for byte, the one
// that WritePrefix writes, and only for the size that the older blob had.
func FuzzPrefixProof(f *testing.F) {
	all := merkleBlobs(f)
	for i, b := range all {
		for _, n := range []int64{0, 1, 1024, 3000, b.tree.Size()} {
			var w bytes.Buffer
			if err := merkle.WritePrefix(&w, b.tree, bytes.NewReader(b.data), min(n, b.tree.Size())); err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), uint32(n), int16(0), w.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, n uint32, lie int16, proof []byte) {
		b := all[int(which)%len(all)]
		size := int64(n) % (b.tree.Size() + 1)
		claimed := size + int64(lie)
		err := merkle.VerifyPrefix(bytes.NewReader(proof), merkle.Sum(b.data[:size]), claimed, b.tree.Root(), b.tree.Size())
		if err != nil {
			if !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) && !errors.Is(err, merkle.ErrRange) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		if claimed != size {
			t.Fatalf("%d bytes are proven to be %d", size, claimed)
		}
		var w bytes.Buffer
		if err := merkle.WritePrefix(&w, b.tree, bytes.NewReader(b.data), size); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.Bytes(), proof) {
			t.Errorf("%d bytes pass, and are not the proof of %d bytes", len(proof), size)
		}
	})
}

// FuzzCheckpoint: a record is accepted only if it is the one record of what it
// says.
func FuzzCheckpoint(f *testing.F) {
	root := merkle.Sum(nil)
	for _, size := range []int64{0, 100, 16384, 1 << 20, 1<<63 - 1} {
		p := merkle.NewProgress(root, size)
		for _, add := range []int64{0, 5, size / 2, size} {
			if err := p.Add(0, min(add, size)); err != nil {
				f.Fatal(err)
			}
			record, err := p.Checkpoint(func() error { return nil })
			if err != nil {
				f.Fatal(err)
			}
			f.Add(size, record)
		}
	}
	f.Fuzz(func(t *testing.T, size int64, record []byte) {
		p, err := merkle.ParseProgress(record, root, size)
		if err != nil {
			return
		}
		again, err := p.Checkpoint(func() error { return nil })
		if err != nil || !bytes.Equal(again, record) {
			t.Errorf("%x is accepted and is %x, %v", record, again, err)
		}
		for _, r := range p.Durable() {
			if r.Start < 0 || r.End < r.Start || r.End > size {
				t.Errorf("%v of %d bytes is durable", r, size)
			}
		}
	})
}
