package cas_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// Of a blob of records that is very large the chunks become coarse. Where they
// are cut never changes: another way to cut is another id.
func TestCoarseChunks(t *testing.T) {
	const from = 3 << 20
	data := lines(1, 9<<20)
	cut := func(data []byte) (id uint32, recipe []byte, keys map[merkle.Root]bool) {
		dir := t.TempDir()
		s := onDisk(t, dir)
		cas.Coarse(s, from)
		put(t, s, data, cas.ChunkedRecords)
		if err := read(t, onDisk(t, dir), data); err != nil {
			t.Fatal(err)
		}
		recipe, err := os.ReadFile(objects(t, dir)["rcpe"][0])
		if err != nil {
			t.Fatal(err)
		}
		keys = make(map[merkle.Root]bool)
		for key, err := range s.Chunks(t.Context(), tenant, merkle.Sum(data), int64(len(data))) {
			if err != nil {
				t.Fatal(err)
			}
			keys[key] = true
		}
		return binary.LittleEndian.Uint32(recipe[12:]), recipe, keys
	}
	id, recipe, keys := cut(data)
	if id != 3 {
		t.Errorf("the recipe has chunker %d", id)
	}
	// 3 MiB in chunks of some 7 KiB, and 6 in chunks of some 64.
	if n := len(keys); n < 400 || n > 800 {
		t.Errorf("%d chunks", n)
	}
	const golden = "b1bc5626d78a37d0ffdbb292390d31cba1474e9ddfc2091c179eab3e10a202b1"
	if sum := merkle.Sum(recipe).String(); sum != golden {
		t.Errorf("the recipe is another one: %s", sum)
	}
	if id, _, _ := cut(data[:from]); id != 1 {
		t.Errorf("a blob that does not reach there has chunker %d", id)
	}
	// An edit before the change moves none of the cuts far behind it.
	edited := bytes.Join([][]byte{data[:1000], []byte("an edit"), data[1000:]}, nil)
	_, _, other := cut(edited)
	shared := 0
	for key := range other {
		if keys[key] {
			shared++
		}
	}
	if shared < len(keys)*9/10 {
		t.Errorf("of %d chunks an edit leaves %d", len(keys), shared)
	}
}
