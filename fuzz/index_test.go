package fuzz_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// indexBytes is an index over /a of records whose values are v, with its source.
func indexBytes(tb testing.TB, values ...string) []byte {
	tb.Helper()
	var src bytes.Buffer
	for _, v := range values {
		src.WriteString(`{"a":` + v + "}\n")
	}
	var m, out room
	path, _ := selector.ParseKeyPath("/a")
	info, _, l, err := selector.BuildMap(tb.Context(), bytes.NewReader(src.Bytes()), int64(src.Len()), merkle.Root{}, selector.Layout{Format: "ndjson"}, &m)
	if err != nil {
		tb.Fatal(err)
	}
	opened, err := selector.OpenMap(&m, info.Size, merkle.Root{}, int64(src.Len()), l)
	if err != nil {
		tb.Fatal(err)
	}
	b := selector.IndexBuild{Source: bytes.NewReader(src.Bytes()), Map: opened, Layout: l, Paths: []*selector.KeyPath{path}}
	if _, err := b.Build(tb.Context(), []io.WriterAt{&out}); err != nil {
		tb.Fatal(err)
	}
	return out.b
}

// FuzzIndex: whatever the bytes, an index opens and reads with a typed error or with
// entries that ascend, as many as its header says, and ranks that fit them.
func FuzzIndex(f *testing.F) {
	long := `"` + string(bytes.Repeat([]byte("x"), 200)) + `"`
	many := make([]string, 900)
	for i := range many {
		many[i] = []string{"1", `"open"`, "null", long, "{}", `"\ud800"`, "-1.5e3"}[i%7]
	}
	wide := make([]string, 60)
	for i := range wide {
		wide[i] = "1" + string(bytes.Repeat([]byte{byte('1' + i%8)}, 900+i))
	}
	for _, values := range [][]string{{}, {"1"}, many, wide} {
		b := indexBytes(f, values...)
		f.Add(b[4096:], uint16(len(values)), b[80:120], []byte("P"))
	}
	f.Add([]byte{}, uint16(3), make([]byte, 40), []byte{0x10})
	path, _ := selector.ParseKeyPath("/a")
	tags, _ := selector.ParseKeyPath("@.a[*]")
	l := selector.Layout{Format: "ndjson"}
	f.Fuzz(func(t *testing.T, pages []byte, records uint16, numbers, key []byte) {
		for _, p := range []*selector.KeyPath{path, tags} {
			spec, err := selector.IndexSpec(l, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			digest := selector.SpecDigest(spec)
			h := make([]byte, 4096, 4096+len(pages))
			copy(h, "LFPINDX1")
			copy(h[48:], digest[:])
			copy(h[80:120], numbers)
			binary.LittleEndian.PutUint64(h[80:], uint64(records))
			b := append(h, pages...)
			src := selector.IndexSource{Records: int64(records), Layout: l}
			x, err := selector.OpenIndex(bytes.NewReader(b), int64(len(b)), p, src)
			if err != nil {
				selectorTyped(t, err, selector.ErrIndex)
				continue
			}
			sound := x.Check(t.Context())
			if sound != nil {
				selectorTyped(t, sound, selector.ErrIndex)
			}
			readIndex(t, x, sound == nil, key)
		}
	})
}

// readIndex reads all entries and asks for ranks.
func readIndex(t *testing.T, x *selector.Index, sound bool, key []byte) {
	t.Helper()
	var last selector.KeyEntry
	n, before, keys := int64(0), int64(0), int64(0)
	for e, err := range x.Run(t.Context(), 0, x.Entries()) {
		if err != nil {
			if sound || !errors.Is(err, selector.ErrIndex) && !errors.Is(err, selector.ErrChanged) {
				t.Fatal(err)
			}
			break
		}
		c := bytes.Compare(last.Key, e.Key)
		if n > 0 && (c > 0 || c == 0 && last.Record >= e.Record) {
			t.Fatalf("entry %d: %x of %d behind %x of %d", n, e.Key, e.Record, last.Key, last.Record)
		}
		if selector.KeyDetermined(e.Key) != (n < x.Tail()) {
			t.Fatalf("entry %d is on the wrong side of the tail", n)
		}
		if c != 0 || n == 0 {
			keys++
		}
		if bytes.Compare(e.Key, key) < 0 {
			before++
		}
		last = selector.KeyEntry{Key: bytes.Clone(e.Key), Record: e.Record}
		n++
	}
	rank, err := x.Rank(t.Context(), key)
	switch {
	case !sound:
	case err != nil || rank != before:
		t.Fatalf("Rank(%x) = %d, %v, want %d", key, rank, err, before)
	case n != x.Entries() || keys != x.Info().Distinct:
		t.Fatalf("%d entries of %d keys, want %+v", n, keys, x.Info())
	}
}
