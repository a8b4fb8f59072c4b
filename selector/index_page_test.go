package selector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"leafproof/merkle"
)

// naiveIndex writes lpi1 the slow and obvious way: it encodes a page again for
// every number of entries that it might have.
func naiveIndex(root merkle.Root, size int64, spec [32]byte, records int64, entries []KeyEntry) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b KeyEntry) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), cmp.Compare(a.Record, b.Record))
	})
	entries = slices.CompactFunc(entries, func(a, b KeyEntry) bool { return bytes.Equal(a.Key, b.Key) && a.Record == b.Record })
	le := binary.LittleEndian
	page := func(number, first, end int) []byte {
		body := []byte{0}
		var before []byte
		if first > 0 {
			before = entries[first-1].Key
			body = append(binary.AppendUvarint(nil, uint64(len(before))), before...)
		}
		for i := first; i < end; {
			n := 1
			for i+n < end && bytes.Equal(entries[i+n].Key, entries[i].Key) {
				n++
			}
			key, shared := entries[i].Key, 0
			for shared < min(len(key), len(before)) && key[shared] == before[shared] {
				shared++
			}
			body = binary.AppendUvarint(body, uint64(shared))
			body = binary.AppendUvarint(body, uint64(len(key)-shared))
			body = append(body, key[shared:]...)
			body = binary.AppendUvarint(body, uint64(n))
			body = binary.AppendUvarint(body, uint64(entries[i].Record))
			for j := i + 1; j < i+n; j++ {
				body = binary.AppendUvarint(body, uint64(entries[j].Record-entries[j-1].Record-1))
			}
			before = key
			i += n
		}
		p := le.AppendUint64(nil, uint64(number))
		p = le.AppendUint64(p, uint64(first))
		p = le.AppendUint16(p, uint16(len(body)))
		p = append(le.AppendUint16(p, 0), body...)
		return p
	}
	var out []byte
	pages := 0
	for first := 0; first < len(entries); pages++ {
		most := min(indexPageSize, len(entries)-first)
		n := sort.Search(most, func(n int) bool { return len(page(pages, first, first+n+1)) > indexPageSize })
		p := page(pages, first, first+n)
		out = append(append(out, p...), make([]byte, indexPageSize-len(p))...)
		first += n
	}
	distinct, tail := 0, 0
	for i, e := range entries {
		if i == 0 || !bytes.Equal(e.Key, entries[i-1].Key) {
			distinct++
		}
		if e.Key[0] < 0xe0 {
			tail++
		}
	}
	h := append([]byte("LFPINDX1"), root[:]...)
	h = append(le.AppendUint64(h, uint64(size)), spec[:]...)
	for _, n := range []int64{records, int64(len(entries)), int64(distinct), int64(pages), int64(tail)} {
		h = le.AppendUint64(h, uint64(n))
	}
	return append(append(h, make([]byte, indexPageSize-len(h))...), out...)
}

// memWriter is an io.WriterAt in memory.
type memWriter struct{ b []byte }

func (m *memWriter) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// writeIndex gives entries in order to a writer.
func writeIndex(t testing.TB, src IndexSource, p *KeyPath, entries []KeyEntry) ([]byte, IndexInfo) {
	t.Helper()
	spec, err := IndexSpec(src.Layout, p, src.Redactions)
	if err != nil {
		t.Fatal(err)
	}
	var out memWriter
	w := newIndexWriter(&out, src.Root, src.Size, SpecDigest(spec), src.Records)
	for _, e := range entries {
		if err := w.add(e.Key, e.Record); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.finish()
	if err != nil {
		t.Fatal(err)
	}
	return out.b, info
}

// randomEntries makes entries of records with one key or with several, sorted.
func randomEntries(rng *rand.Rand, records int64, scalar bool) []KeyEntry {
	alphabet := 1 + rng.IntN(40)
	digits := strings.Repeat("7", 1000)
	var out []KeyEntry
	for rec := range records {
		n := 1
		if !scalar {
			n += rng.IntN(4)
		}
		for range n {
			var v string
			switch k := rng.IntN(alphabet); {
			case k < 3:
				v = []string{`"open"`, `null`, `{}`}[k]
			case k < 5:
				v = `"` + strings.Repeat("x", 90+rng.IntN(20)) + `"`
			case k == 5:
				v = digits[rng.IntN(1000):]
			case k == 6:
				v = `"` + strings.Repeat(`\u0000`, 96) + `"`
			case k == 7:
				v = `broken`
			case k < 20:
				v = fmt.Sprintf(`"key %d"`, rng.IntN(50))
			default:
				v = fmt.Sprint(rng.Int64N(1 << 40))
			}
			out = append(out, KeyEntry{Key: AppendKey(nil, []byte(v), Limits{}), Record: rec})
		}
	}
	slices.SortFunc(out, func(a, b KeyEntry) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), cmp.Compare(a.Record, b.Record))
	})
	return out
}

func TestIndexPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	path, err := ParseKeyPath("@.a[*]")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 16 {
		src := IndexSource{Root: merkle.Sum([]byte{byte(round)}), Size: rng.Int64N(1 << 40), Records: rng.Int64N(3000), Layout: Layout{Format: FormatNDJSON}}
		entries := randomEntries(rng, src.Records, round%2 == 0)
		if round == 7 { // one key in all records
			for i := range entries {
				entries[i] = KeyEntry{Key: []byte{KeyNull}, Record: int64(i)}
			}
			src.Records = int64(len(entries))
		}
		got, info := writeIndex(t, src, path, entries)
		spec, _ := IndexSpec(src.Layout, path, nil)
		if want := naiveIndex(src.Root, src.Size, SpecDigest(spec), src.Records, entries); !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes, the twin has %d", round, len(got), len(want))
		}
		x, err := OpenIndex(bytes.NewReader(got), int64(len(got)), path, src)
		if err != nil {
			t.Fatal(err)
		}
		if x.Info() != info {
			t.Fatalf("%+v, want %+v", x.Info(), info)
		}
		if err := x.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		entries = slices.CompactFunc(entries, func(a, b KeyEntry) bool { return bytes.Equal(a.Key, b.Key) && a.Record == b.Record })
		for range 20 {
			a := rng.Int64N(info.Entries + 1)
			b := a + rng.Int64N(info.Entries+1-a)
			if round%3 > 0 {
				b = min(b, a+5)
			}
			i := a
			for e, err := range x.Run(t.Context(), a, b) {
				if err != nil {
					t.Fatal(err)
				}
				if want := entries[i]; !bytes.Equal(e.Key, want.Key) || e.Record != want.Record {
					t.Fatalf("round %d: entry %d of %d:%d is %x of %d, want %x of %d", round, i, a, b, e.Key, e.Record, want.Key, want.Record)
				}
				i++
			}
			if i != b {
				t.Fatalf("Run(%d, %d) ended at %d", a, b, i)
			}
		}
		for range 20 {
			key := []byte{byte(rng.IntN(256))}
			if len(entries) > 0 && rng.IntN(4) > 0 {
				key = slices.Clone(entries[rng.IntN(len(entries))].Key)
				if rng.IntN(2) == 0 {
					key[len(key)-1]++
				}
			}
			want := sort.Search(len(entries), func(i int) bool { return bytes.Compare(entries[i].Key, key) >= 0 })
			if got, err := x.Rank(t.Context(), key); err != nil || got != int64(want) {
				t.Fatalf("round %d: Rank(%x) = %d, %v, want %d", round, key, got, err, want)
			}
		}
	}
}

// TestIndexRefused alters an index by hand: each fault is found where it is.
func TestIndexRefused(t *testing.T) {
	path, err := ParseKeyPath("/a")
	if err != nil {
		t.Fatal(err)
	}
	src := IndexSource{Size: 9, Records: 3000, Layout: Layout{Format: FormatNDJSON}}
	var entries []KeyEntry
	for i := range src.Records {
		entries = append(entries, KeyEntry{AppendTextKey(nil, fmt.Sprintf("k%04d", i/3)), i})
	}
	entries[2999].Key = []byte{KeyUnparseable}
	good, info := writeIndex(t, src, path, entries)
	le := binary.LittleEndian
	const one = indexPageSize // where page 0 stands
	group := func(b []byte, page int) int {
		at := (1 + page) * indexPageSize
		n, k := binary.Uvarint(b[at+20:])
		return at + 20 + k + int(n)
	}
	last := int(info.Size) - indexPageSize
	for name, alter := range map[string]func(b []byte) []byte{
		"magic":                  func(b []byte) []byte { b[0]++; return b },
		"another source":         func(b []byte) []byte { b[8]++; return b },
		"another size":           func(b []byte) []byte { b[40]++; return b },
		"another spec":           func(b []byte) []byte { b[48]++; return b },
		"fewer records":          func(b []byte) []byte { b[80]--; return b },
		"fewer entries":          func(b []byte) []byte { b[88]--; return b },
		"fewer keys":             func(b []byte) []byte { b[96]--; return b },
		"fewer pages":            func(b []byte) []byte { b[104]--; return b },
		"a longer tail":          func(b []byte) []byte { b[112]--; return b },
		"a negative number":      func(b []byte) []byte { b[119] = 0x80; return b },
		"header padding":         func(b []byte) []byte { b[2000] = 1; return b },
		"cut off":                func(b []byte) []byte { return b[:len(b)-1] },
		"a page less":            func(b []byte) []byte { return b[:len(b)-indexPageSize] },
		"a page number":          func(b []byte) []byte { b[one]++; return b },
		"a rank":                 func(b []byte) []byte { b[2*one+8]++; return b },
		"used less":              func(b []byte) []byte { le.PutUint16(b[one+16:], le.Uint16(b[one+16:])-1); return b },
		"used beyond the page":   func(b []byte) []byte { le.PutUint16(b[one+16:], indexRoom+1); return b },
		"the zero behind used":   func(b []byte) []byte { b[one+18] = 1; return b },
		"page padding":           func(b []byte) []byte { b[last+indexPageSize-1] = 1; return b },
		"a key before":           func(b []byte) []byte { b[2*one+24]++; return b },
		"a key before on page 0": func(b []byte) []byte { b[one+20]++; return b },
		"shared too much":        func(b []byte) []byte { b[group(b, 1)]++; return b },
		"shared too little":      func(b []byte) []byte { b[group(b, 1)]--; return b },
		"a record before":        func(b []byte) []byte { b[group(b, 0)+2+8+1] = 200; return b },
		"pages swapped": func(b []byte) []byte {
			p := bytes.Clone(b[one : 2*one])
			copy(b[one:2*one], b[2*one:])
			copy(b[2*one:], p)
			return b
		},
		"an entry fewer on a page": func(b []byte) []byte { // the last group of page 0
			used := int(le.Uint16(b[one+16:]))
			le.PutUint16(b[one+16:], uint16(used-8))
			clear(b[one+20+used-8 : 2*one])
			return b
		},
	} {
		b := alter(bytes.Clone(good))
		x, err := OpenIndex(bytes.NewReader(b), int64(len(b)), path, src)
		if err == nil {
			err = x.Check(t.Context())
		}
		if !errors.Is(err, ErrIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if x, err := OpenIndex(bytes.NewReader(good), int64(len(good)), path, src); err != nil || x.Check(context.Background()) != nil {
		t.Fatal(err)
	}
}

// TestLongestKeys: any key that there is goes on a page.
func TestLongestKeys(t *testing.T) {
	for name, v := range map[string]string{
		"number": "-" + strings.Repeat("9", 1024), "zeros": `"` + strings.Repeat(`\u0000`, 97) + `"`, "long": `"` + strings.Repeat("x", 1<<20) + `"`,
	} {
		key := AppendKey(nil, []byte(v), Limits{})
		if !checkKey(key) || len(key) > maxKey {
			t.Errorf("%s: a key of %d bytes", name, len(key))
		}
	}
	if two := 2 + maxKey + maxFirst; two > indexRoom {
		t.Errorf("two of the longest keys take %d bytes of %d", two, indexRoom)
	}
}
