package merkle_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"leafproof/merkle"
)

func TestSliceFlips(t *testing.T) {
	for name, test := range flips {
		t.Run(name, func(t *testing.T) {
			data := pattern(test.size, 9)
			root := merkle.Sum(data)
			good := slice(t, data, true, test.ranges...)
			for i := range 8 * len(good) {
				bad := bytes.Clone(good)
				bad[i/8] ^= 1 << (i % 8)
				if s, err := readSlice(bad, root); err == nil {
					t.Fatalf("bit %d flipped: accepted as %v", i, s.Ranges())
				} else if !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
					t.Fatalf("bit %d flipped: error = %v", i, err)
				}
			}
			for n := range good {
				if _, err := readSlice(good[:n], root); !errors.Is(err, merkle.ErrMalformed) {
					t.Fatalf("cut to %d bytes: error = %v", n, err)
				}
			}
			if _, err := readSlice(append(good, 0), root); !errors.Is(err, merkle.ErrMalformed) {
				t.Errorf("with a byte after it: error = %v", err)
			}
			if _, err := readSlice(good, merkle.Sum([]byte("x"))); !errors.Is(err, merkle.ErrMismatch) {
				t.Errorf("under another root: error = %v", err)
			}
		})
	}
}

func readSlice(b []byte, root merkle.Root) (*merkle.SliceReader, error) {
	s, err := merkle.NewSliceReader(bytes.NewReader(b), root)
	if err != nil {
		return nil, err
	}
	_, err = drain(s)
	return s, err
}

func TestSlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 300 {
		size := int64(rng.IntN(150_000))
		data := pattern(int(size), uint64(round))
		ranges := randomRanges(rng, size, 1+rng.IntN(6))
		last := rng.IntN(2) == 0
		asked := leaves(t, size, ranges...)
		s, err := merkle.NewSliceReader(bytes.NewReader(slice(t, data, last, ranges...)), merkle.Sum(data))
		if err != nil {
			t.Fatal(err)
		}
		if s.SizeProven() {
			t.Error("the size is proven before anything was read")
		}
		if !slices.Equal(s.Ranges(), asked.Ranges()) || s.Size() != size {
			t.Errorf("Ranges = %v, Size = %d, want %v, %d", s.Ranges(), s.Size(), asked.Ranges(), size)
		}
		pieces, err := drain(s)
		if err != nil {
			t.Fatal(err)
		}
		checkPieces(t, pieces, data, asked.Bytes())
		if want := last || asked.HasLast(); s.SizeProven() != want {
			t.Errorf("round %d: SizeProven = %v, want %v", round, s.SizeProven(), want)
		}
	}
}

func TestSliceHeads(t *testing.T) {
	data := pattern(5000, 2)
	root := merkle.Sum(data)
	good := slice(t, data, false, merkle.Range{Start: 1024, End: 1025}, merkle.Range{Start: 3072, End: 3073})
	const head = "lps1\x00\x02\x01\x00\x01\x00"
	rest, ok := strings.CutPrefix(string(good), head)
	if !ok {
		t.Fatalf("the good head is %x", good[:12])
	}
	all := string(body(t, data, leaves(t, 5000, merkle.Range{Start: 0, End: 5000})))
	for name, in := range map[string]string{
		"nothing":                   "",
		"another magic":             "lps2\x00\x02\x01\x00\x01\x00" + rest,
		"unknown flag":              "lps1\x02\x02\x01\x00\x01\x00" + rest,
		"high flag":                 "lps1\x80\x02\x01\x00\x01\x00" + rest,
		"no range":                  "lps1\x00\x00" + rest,
		"one range less":            "lps1\x00\x01\x01\x00" + rest,
		"touching ranges":           "lps1\x00\x02\x01\x00\x00\x00" + rest,
		"long varint, count":        "lps1\x00\x82\x00\x01\x00\x01\x00" + rest,
		"long varint, gap":          "lps1\x00\x02\x81\x00\x00\x01\x00" + rest,
		"long varint, zero":         "lps1\x00\x02\x01\x80\x00\x01\x00" + rest,
		"endless varint":            "lps1\x00\x02\x01" + strings.Repeat("\xff", 11) + rest,
		"ten byte varint":           "lps1\x00\x02\x01" + strings.Repeat("\xff", 9) + "\x01" + rest,
		"past the last leaf":        "lps1\x00\x02\x01\x00\x01\x02" + rest,
		"far past the last leaf":    "lps1\x00\x02\x01\x00\xff\xff\xff\xff\xff\xff\xff\x0f\x00" + rest,
		"sum beyond every leaf":     "lps1\x00\x02\xff\xff\xff\xff\xff\xff\xff\x0f\xff\xff\xff\xff\xff\xff\xff\x0f\x01\x00" + rest,
		"announces too many":        "lps1\x00\xff\xff\xff\xff\xff\xff\xff\x0f",
		"announces many":            "lps1\x00\x80\x80\x40\x01\x00",
		"last added, already there": "lps1\x01\x01\x00\x04" + all,
		"length cut":                head + rest[:7],
		"length too large":          head + strings.Repeat("\xff", 8) + rest[8:],
		"other range":               "lps1\x00\x02\x00\x00\x02\x00" + rest,
		"bytes after it":            string(good) + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := readSlice([]byte(in), root)
			if err == nil {
				t.Fatalf("accepted as %v", s.Ranges())
			}
			want := merkle.ErrMalformed
			if name == "other range" {
				want = merkle.ErrMismatch
			}
			if !errors.Is(err, want) && name != "one range less" {
				t.Errorf("error = %v, want %v", err, want)
			}
		})
	}
	if _, err := readSlice([]byte("lps1\x00\x01\x00\x04"+all), root); err != nil {
		t.Errorf("all leaves without the flag: %v", err)
	}
}

func TestForgedLengths(t *testing.T) {
	const size = 5000
	data := pattern(size, 4)
	root := merkle.Sum(data)
	for name, last := range map[string]bool{"without the last leaf": false, "with it": true} {
		t.Run(name, func(t *testing.T) {
			good := slice(t, data, last, merkle.Range{Start: 0, End: 1024})
			const at = 8 // lps1, flags, one range, 0, 0
			accepted := 0
			for forged := range 20_000 {
				b := bytes.Clone(good)
				b[at], b[at+1], b[at+2] = byte(forged), byte(forged>>8), byte(forged>>16)
				s, err := readSlice(b, root)
				if err != nil {
					if s != nil && s.SizeProven() {
						t.Fatalf("length %d is refused but proven", forged)
					}
					continue
				}
				accepted++
				if s.Size() != int64(forged) || s.SizeProven() != last {
					t.Fatalf("length %d: Size = %d, SizeProven = %v", forged, s.Size(), s.SizeProven())
				}
				if last && forged != size {
					t.Fatalf("length %d is accepted and proven", forged)
				}
			}
			t.Logf("%d lengths are accepted", accepted)
			if last != (accepted == 1) {
				t.Errorf("%d lengths are accepted", accepted)
			}
		})
	}
}

func TestEmptyBlob(t *testing.T) {
	root := merkle.Sum(nil)
	set := leaves(t, 0, merkle.Range{})
	zeros := make([]byte, 8)
	r := merkle.NewBodyReader(bytes.NewReader(zeros), root, set)
	if pieces, err := drain(r); err != nil || len(pieces) != 0 || !r.SizeProven() {
		t.Errorf("body: %d pieces, %v, SizeProven %v", len(pieces), err, r.SizeProven())
	}
	wrong := merkle.Sum([]byte{0})
	if _, err := drain(merkle.NewBodyReader(bytes.NewReader(zeros), wrong, set)); !errors.Is(err, merkle.ErrMismatch) {
		t.Errorf("body under a wrong root: %v", err)
	}
	for _, last := range []bool{false, true} {
		file := slice(t, nil, last, merkle.Range{Start: 100, End: 200})
		if s, err := readSlice(file, root); err != nil || !s.SizeProven() || s.Size() != 0 {
			t.Errorf("slice: %v", err)
		}
		if _, err := readSlice(file, wrong); !errors.Is(err, merkle.ErrMismatch) {
			t.Errorf("slice under a wrong root: %v", err)
		}
	}
	bao, err := merkle.NewBaoReader(bytes.NewReader(zeros), wrong, 0, 0)
	if err == nil {
		_, err = drain(bao)
	}
	if !errors.Is(err, merkle.ErrMismatch) {
		t.Errorf("Bao slice under a wrong root: %v", err)
	}
}

func TestBaoTraps(t *testing.T) {
	data := pattern(5000, 1)
	wrong := merkle.Sum([]byte("wrong"))
	huge := []byte{0, 0, 0, 0, 0, 0, 0, 0x10}
	if r, err := merkle.NewBaoReader(bytes.NewReader(huge), wrong, 0, 0); err == nil {
		if _, err = drain(r); err == nil {
			t.Error("a length of 2^60 and nothing else was accepted")
		}
	}
	for _, r := range []merkle.Range{{Start: -1, End: 5}, {Start: 5, End: -1}, {Start: math.MinInt64, End: math.MinInt64}} {
		if err := merkle.WriteBao(io.Discard, tree(t, data), bytes.NewReader(data), r.Start, r.End); !errors.Is(err, merkle.ErrRange) {
			t.Errorf("WriteBao of %v: %v", r, err)
		}
		if _, err := merkle.NewBaoReader(bytes.NewReader(huge), wrong, r.Start, r.End); !errors.Is(err, merkle.ErrRange) {
			t.Errorf("NewBaoReader of %v: %v", r, err)
		}
	}
	var w bytes.Buffer
	if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), math.MaxInt64-11, 20); err != nil {
		t.Fatal(err)
	}
	r, err := merkle.NewBaoReader(bytes.NewReader(w.Bytes()), merkle.Sum(data), math.MaxInt64-11, 20)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := drain(r)
	if err != nil {
		t.Fatal(err)
	}
	checkPieces(t, pieces, data, []merkle.Range{{Start: 4096, End: 5000}})
	if _, err := merkle.NewBaoReader(bytes.NewReader(append(w.Bytes(), 0)), merkle.Sum(data), 0, 0); err != nil {
		t.Fatal(err)
	}
}

func TestSliceTooMany(t *testing.T) {
	in := strings.NewReader("lps1\x00\x81\x80\x40" + strings.Repeat("\x01\x00", 1<<20+1))
	before := in.Len()
	if _, err := merkle.NewSliceReader(in, merkle.Root{}); !errors.Is(err, merkle.ErrMalformed) {
		t.Errorf("error = %v, want ErrMalformed", err)
	}
	if n := before - in.Len(); n > 64<<10 {
		t.Errorf("%d bytes were read before it was refused", n)
	}
	var ranges []merkle.Range
	for i := range int64(merkle.MaxSliceRanges + 1) {
		ranges = append(ranges, merkle.Range{Start: 2048 * i, End: 2048*i + 1})
	}
	tr := merkle.NewTree(merkle.Root{}, 1<<40, nil)
	if err := merkle.WriteSlice(io.Discard, tr, bytes.NewReader(nil), ranges, false); !errors.Is(err, merkle.ErrRange) {
		t.Errorf("WriteSlice error = %v, want ErrRange", err)
	}
}

func TestReadErrors(t *testing.T) {
	data := pattern(40_000, 1)
	file := slice(t, data, true, merkle.Range{Start: 0, End: 20_000})
	for n := 0; n < len(file); n += 1 + n/50 {
		in := io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(errBroken))
		s, err := merkle.NewSliceReader(in, merkle.Sum(data))
		if err == nil {
			_, err = drain(s)
		}
		if !errors.Is(err, errBroken) || errors.Is(err, merkle.ErrMalformed) || errors.Is(err, merkle.ErrMismatch) {
			t.Fatalf("a read error after %d bytes: %v", n, err)
		}
	}
	in := io.MultiReader(bytes.NewReader(file), iotest.ErrReader(errBroken))
	s, err := merkle.NewSliceReader(in, merkle.Sum(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := drain(s); !errors.Is(err, errBroken) {
		t.Errorf("a read error after the file: %v", err)
	}
}

// ExampleWriteSlice is the example of the format's description.
func ExampleWriteSlice() {
	data := []byte(strings.Repeat("a", 1024) + strings.Repeat("b", 1024) + "c")
	tree := merkle.NewTree(merkle.Sum(data), int64(len(data)), nil)
	var file bytes.Buffer
	if err := merkle.WriteSlice(&file, tree, bytes.NewReader(data), []merkle.Range{{Start: 2048, End: 2049}}, true); err != nil {
		fmt.Println(err)
	}
	fmt.Println(tree.Root())
	fmt.Printf("%x\n", file.Bytes())

	s, err := merkle.NewSliceReader(&file, tree.Root())
	if err != nil {
		fmt.Println(err)
	}
	for {
		offset, p, err := s.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q at %d\n", p, offset)
	}
	fmt.Println(s.Size(), s.SizeProven())
	// Output:
	// e94c591dc7da65e792099969b9d03f629c95e7cf041694e6daf083196b5d5f20
	// 6c707331000102000108000000000000c10a17754a473a116131f02cbba32553471aebe839c6b7384d82b1bef93ff26740d0d095a7f25546ea87b19f479b06ec3d31dd04a3bfe8eaa1bc6e34d8e3f22e63
	// "c" at 2048
	// 2049 true
}
