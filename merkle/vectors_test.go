package merkle_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"leafproof/merkle"
)

func parseVector(t *testing.T, name string, v any) {
	t.Helper()
	if err := json.Unmarshal(vector(t, name), v); err != nil {
		t.Fatal(err)
	}
}

// TestBLAKE3Vectors holds every way to a root to BLAKE3's own vectors.
func TestBLAKE3Vectors(t *testing.T) { allCodes(t, blake3VectorsHold) }

func blake3VectorsHold(t *testing.T) {
	var v struct {
		Context string `json:"context_string"`
		Cases   []struct {
			Len       int    `json:"input_len"`
			Hash      string `json:"hash"`
			DeriveKey string `json:"derive_key"`
		}
	}
	parseVector(t, "blake3_test_vectors.json", &v)
	if len(v.Cases) != 35 {
		t.Fatalf("%d cases, want 35", len(v.Cases))
	}
	for _, c := range v.Cases {
		t.Run(fmt.Sprint(c.Len), func(t *testing.T) {
			data := make([]byte, c.Len)
			for i := range data {
				data[i] = byte(i % 251)
			}
			want, err := merkle.ParseRoot(c.Hash[:64])
			if err != nil {
				t.Fatal(err)
			}
			if got := merkle.Sum(data); got != want {
				t.Errorf("Sum = %v, want %v", got, want)
			}
			if got, _ := build(t, data); got != want {
				t.Errorf("Builder = %v, want %v", got, want)
			}
			if got, err := merkle.BuildAt(t.Context(), bytes.NewReader(data), int64(c.Len), nil); got != want || err != nil {
				t.Errorf("BuildAt = %v, %v, want %v", got, err, want)
			}
			if got := twinRoot(data); got != want {
				t.Errorf("the twin = %v, want %v", got, want)
			}
			if got := merkle.DeriveKey(v.Context, data); fmt.Sprintf("%x", got) != c.DeriveKey[:64] {
				t.Errorf("DeriveKey = %x, want %v", got, c.DeriveKey[:64])
			}
		})
	}
}

// baoVectors is the file that Bao's generate_vectors.py writes.
type baoVectors struct {
	Hash []struct {
		Len  int    `json:"input_len"`
		Root string `json:"bao_hash"`
	}
	Encode []struct {
		Len         int    `json:"input_len"`
		OutputLen   int    `json:"output_len"`
		Root        string `json:"bao_hash"`
		Blake3      string `json:"encoded_blake3"`
		Corruptions []int
	}
	Slice []struct {
		Len    int    `json:"input_len"`
		Root   string `json:"bao_hash"`
		Slices []struct {
			Start, Len  int64
			OutputLen   int    `json:"output_len"`
			Blake3      string `json:"output_blake3"`
			Corruptions []int
		}
	}
}

// baoInput returns the input that the vectors are made from.
func baoInput(n int) []byte {
	var b []byte
	for i := uint32(1); len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b[:n]
}

// TestBaoVectors holds WriteBao to the official slices, byte for byte, and
// NewBaoReader to their corruption points. A whole encoding is the slice of
// everything.
func TestBaoVectors(t *testing.T) { allCodes(t, baoVectorsHold) }

func baoVectorsHold(t *testing.T) {
	var v baoVectors
	parseVector(t, "bao_test_vectors.json", &v)
	slices, corruptions := 0, 0
	check := func(size int, root string, off, n int64, outLen int, digest string, bad []int) {
		t.Helper()
		data := baoInput(size)
		tr := tree(t, data)
		if tr.Root().String() != root {
			t.Fatalf("root of %d = %v, want %v", size, tr.Root(), root)
		}
		var w bytes.Buffer
		if err := merkle.WriteBao(&w, tr, bytes.NewReader(data), off, n); err != nil {
			t.Fatal(err)
		}
		if w.Len() != outLen || merkle.Sum(w.Bytes()).String() != digest {
			t.Fatalf("slice %d+%d of %d: %d bytes with root %v, want %d with %v", off, n, size, w.Len(), merkle.Sum(w.Bytes()), outLen, digest)
		}
		r, err := merkle.NewBaoReader(bytes.NewReader(w.Bytes()), tr.Root(), off, n)
		if err != nil {
			t.Fatal(err)
		}
		pieces, err := drain(r)
		if err != nil {
			t.Fatal(err)
		}
		end := off + n
		if end < off { // a whole encoding
			end = 1<<63 - 1
		}
		set := leaves(t, int64(size), merkle.Range{Start: off, End: end})
		checkPieces(t, pieces, data, set.Bytes())
		if r.SizeProven() != set.HasLast() {
			t.Errorf("slice %d+%d of %d: SizeProven = %v", off, n, size, r.SizeProven())
		}
		for _, at := range bad {
			broken := bytes.Clone(w.Bytes())
			broken[at] ^= 1
			r, err := merkle.NewBaoReader(bytes.NewReader(broken), tr.Root(), off, n)
			if err == nil {
				_, err = drain(r)
			}
			if err == nil {
				t.Errorf("slice %d+%d of %d: the corruption of byte %d was accepted", off, n, size, at)
			}
			corruptions++
		}
	}
	for _, c := range v.Encode {
		check(c.Len, c.Root, 0, 1<<62, c.OutputLen, c.Blake3, c.Corruptions)
	}
	for _, c := range v.Slice {
		for _, s := range c.Slices {
			check(c.Len, c.Root, s.Start, s.Len, s.OutputLen, s.Blake3, s.Corruptions)
			slices++
		}
	}
	if len(v.Encode) != 13 || slices != 222 {
		t.Errorf("%d encodings and %d slices, want 13 and 222", len(v.Encode), slices)
	}
	t.Logf("%d encodings and %d slices are identical, %d corruptions were refused", len(v.Encode), slices, corruptions)
}

// TestBaoGroupVectors: the variant of Bao with 16 KiB groups is an lps1 body
// whose set is whole groups.
func TestBaoGroupVectors(t *testing.T) { allCodes(t, baoGroupVectorsHold) }

func baoGroupVectorsHold(t *testing.T) {
	var v baoVectors
	parseVector(t, "abao_test_vectors_group4.json", &v)
	check := func(size int, root string, r merkle.Range, outLen int, digest string, bad []int) {
		t.Helper()
		data := baoInput(size)
		last := max(int64(size)-1, 0) / merkle.GroupSize // group
		first := min(r.Start/merkle.GroupSize, last)
		end := min(max(r.End-1, 0)/merkle.GroupSize, last) + 1
		set := leaves(t, int64(size), merkle.Range{Start: first * merkle.GroupSize, End: max(end, first+1) * merkle.GroupSize})
		b := body(t, data, set)
		if len(b) != outLen || merkle.Sum(b).String() != digest {
			t.Fatalf("%v of %d: %d bytes with root %v, want %d with %v", r, size, len(b), merkle.Sum(b), outLen, digest)
		}
		for _, at := range bad {
			broken := bytes.Clone(b)
			broken[at] ^= 1
			if _, err := drain(merkle.NewBodyReader(bytes.NewReader(broken), merkle.Sum(data), set)); err == nil {
				t.Errorf("%v of %d: the corruption of byte %d was accepted", r, size, at)
			}
		}
	}
	n := 0
	for _, c := range v.Hash {
		if got := merkle.Sum(baoInput(c.Len)).String(); got != c.Root {
			t.Errorf("root of %d = %v, want %v", c.Len, got, c.Root)
		}
	}
	for _, c := range v.Encode {
		check(c.Len, c.Root, merkle.Range{Start: 0, End: 1 << 62}, c.OutputLen, c.Blake3, c.Corruptions)
	}
	for _, c := range v.Slice {
		for _, s := range c.Slices {
			check(c.Len, c.Root, merkle.Range{Start: s.Start, End: s.Start + s.Len}, s.OutputLen, s.Blake3, s.Corruptions)
			n++
		}
	}
	t.Logf("%d encodings and %d slices are identical", len(v.Encode), n)
}
