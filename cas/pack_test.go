package cas_test

import (
	"encoding/binary"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// unpack reads a pack as FORMAT.md says it, slowly and for well-formed packs
// only: the twin of the package's own reader.
func unpack(t *testing.T, id merkle.Root, p []byte) map[merkle.Root]string {
	t.Helper()
	le := binary.LittleEndian
	if string(p[:16]) != "lfpack1\n\x01\x00\x00\x00\x00\x00\x00\x00" || string(p[len(p)-8:]) != "lfpackE\n" {
		t.Fatalf("header %q, end %q", p[:16], p[len(p)-8:])
	}
	trailer := p[len(p)-56:]
	start, length := le.Uint64(trailer), le.Uint64(trailer[8:])
	footer := p[start : start+length]
	if merkle.Sum(footer) != id || merkle.Root(trailer[16:48]) != id || start+length+56 != uint64(len(p)) {
		t.Fatal("the ID is not the footer's, or the footer not before the trailer")
	}
	runs, keys := le.Uint32(footer), le.Uint32(footer[4:])
	table, rest := footer[8:8+52*runs], footer[8+52*runs:]
	blobs := make(map[merkle.Root]string)
	for k := range keys {
		key := rest[44*k : 44*k+44]
		run := table[52*le.Uint32(key[32:]):]
		off, raw, stored := le.Uint64(run), le.Uint32(run[12:]), le.Uint32(run[16:])
		bytes := p[off : off+uint64(stored)]
		if le.Uint32(run[8:]) != 0 || raw != stored || merkle.Sum(bytes) != merkle.Root(run[20:52]) {
			t.Fatal("a run is not as the footer says")
		}
		if string(p[off-44:off]) != string(run[8:52]) {
			t.Fatal("a run's header is not as the footer says")
		}
		blobs[merkle.Root(key[:32])] = string(bytes[le.Uint32(key[36:]) : le.Uint32(key[36:])+le.Uint32(key[40:])])
	}
	return blobs
}

func TestPackFormat(t *testing.T) {
	for name, blobs := range map[string][][]byte{
		"one":   {[]byte("abc")},
		"empty": {nil},
		"some":  {[]byte("abc"), nil, random(1, 16384), random(2, 5)},
		"many runs": func() (all [][]byte) {
			for i := range uint64(40) {
				all = append(all, random(i, 9000))
			}
			return all
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			id, pack := cas.SealPack(blobs...)
			got := unpack(t, id, pack)
			for _, data := range blobs {
				if s, ok := got[merkle.Sum(data)]; !ok || s != string(data) {
					t.Errorf("the blob of %d bytes is not in the pack", len(data))
				}
			}
			if len(got) != len(blobs) {
				t.Errorf("%d blobs in the pack, want %d", len(got), len(blobs))
			}
		})
	}
}

// TestPackGolden pins the bytes of a pack: stores on disk depend on them.
func TestPackGolden(t *testing.T) {
	id, pack := cas.SealPack([]byte("abc"), nil)
	sum := merkle.Sum(pack)
	const wantID, wantSum = "3e4d6c91ea2229f50e77b8ccaca44ed75305e662d6f7d32d353693a0f59d3025", "d51dd37c49db97dc4edcc2242d3038d4a78155b4a018d4e913933dcaa47dadc1"
	if id.String() != wantID || sum.String() != wantSum {
		t.Errorf("pack %s has content %s, want %s %s:\n%s", id, sum, wantID, wantSum, hex.Dump(pack))
	}
	if b3sum, err := exec.LookPath("b3sum"); err == nil {
		cmd := exec.CommandContext(t.Context(), b3sum)
		trailer := pack[len(pack)-56:]
		cmd.Stdin = strings.NewReader(string(pack[binary.LittleEndian.Uint64(trailer) : len(pack)-56]))
		if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), id.String()) {
			t.Errorf("b3sum of the footer says %s, %v; want %s", out, err, id)
		}
	}
}

// Footers that contradict themselves are refused, though their digest fits.
func TestParseFooter(t *testing.T) {
	_, pack := cas.SealPack(random(1, 100), random(2, 200))
	start := int64(binary.LittleEndian.Uint64(pack[len(pack)-56:]))
	good := pack[start : len(pack)-56]
	const run, key = 8, 8 + 52
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(p []byte) []byte { binary.LittleEndian.PutUint32(p[at:], v); return p }
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":              func(p []byte) []byte { return nil },
		"seven bytes":        func(p []byte) []byte { return p[:7] },
		"one byte less":      func(p []byte) []byte { return p[:len(p)-1] },
		"one byte more":      func(p []byte) []byte { return append(p, 0) },
		"more runs":          put32(0, 2),
		"all the runs":       put32(0, 1<<32-1),
		"all the keys":       put32(4, 1<<32-1),
		"no keys":            func(p []byte) []byte { return put32(4, 0)(p[:key]) },
		"run elsewhere":      put32(run, 61),
		"run far away":       put32(run+4, 1<<31),
		"unknown codec":      put32(run+8, 1),
		"raw differs":        put32(run+12, 299),
		"stored too long":    put32(run+16, 1<<32-1),
		"both too long":      func(p []byte) []byte { return put32(run+12, 301)(put32(run+16, 301)(p)) },
		"both too short":     func(p []byte) []byte { return put32(run+12, 299)(put32(run+16, 299)(p)) },
		"key in no run":      put32(key+32, 1),
		"key beyond the run": put32(key+36, 201),
		"key overflows":      put32(key+36, 1<<32-1),
		"key too long":       put32(key+40, 1<<32-1),
		"keys out of order": func(p []byte) []byte {
			return append(append(p[:key:key], p[key+44:]...), p[key:key+44]...)
		},
		"a key twice": func(p []byte) []byte { copy(p[key+44:], p[key:key+44]); return p },
	} {
		t.Run(name, func(t *testing.T) {
			changed := change(append([]byte(nil), good...))
			if got, err := cas.ParsePackFooter(changed, start); err == nil {
				t.Errorf("parsed as %v", got)
			}
		})
	}
	if got, err := cas.ParsePackFooter(good, start); err != nil || len(got) != 2 {
		t.Errorf("the good footer: %v, %v", got, err)
	}
}

func FuzzParseFooter(f *testing.F) {
	for _, blobs := range [][][]byte{{nil}, {[]byte("abc")}, {random(1, 100), random(2, 70_000)}} {
		_, pack := cas.SealPack(blobs...)
		start := binary.LittleEndian.Uint64(pack[len(pack)-56:])
		f.Add(pack[start:len(pack)-56], int64(start))
	}
	f.Fuzz(func(t *testing.T, p []byte, limit int64) {
		got, err := cas.ParsePackFooter(p, limit)
		if err != nil {
			return
		}
		for root, at := range got {
			if at[0] < 16 || at[1] < 0 || at[0]+at[1] > limit {
				t.Errorf("blob %v at %v is outside a pack whose footer is at %d", root, at, limit)
			}
		}
	})
}
