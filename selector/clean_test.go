package selector

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkClean holds the cleaner to the validator.
func checkClean(t *testing.T, c *cleaner, v *validator, p []byte) {
	t.Helper()
	got := c.record(p)
	depth := int64(c.depth)
	want, err := v.bytes(p)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case got && (want.undecidable() || want.depth != depth):
		t.Fatalf("clean, depth %d, but %+v: %.200q", depth, want, p)
	case !got && !want.undecidable() && !bytes.Contains(p, []byte(`\`)):
		t.Fatalf("not clean, but %+v: %.200q", want, p)
	}
	if got && c.escapes != bytes.Contains(p, []byte(`\`)) {
		t.Fatalf("escapes %v: %.200q", c.escapes, p)
	}
	// A prefix never says more than the whole, nor anything else.
	for _, cut := range []int{len(p) / 3, len(p) / 2, len(p) - 1} {
		if cut < 0 || !got {
			continue
		}
		if n, r := c.value(p[:cut], false); r == notClean || r == isClean && quickSpace(p, n) != len(p) {
			t.Fatalf("the first %d of %.200q: %v at %d", cut, p, r, n)
		}
	}
}

func TestCleanIsValid(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	c, v := newCleaner(DefaultLimits), newValidator(DefaultLimits)
	seeds := []string{
		`{"a":1,"b":[true,false,null,{"c":"x\ud83d\ude00\n","d":-1.5e+7}],"e":"é"}`,
		`[]`, `{}`, `[[],{}]`, ` "x" `, `-0`, `1e5`, `[1,2 , 3]`, `{"a":{"a":{"a":1}}}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
		`"\ud800"`, `"\udc00\ud800"`, `[1,]`, `{"a"}`, `{"a":}`, `01`, `1.`, `+1`, `[1 2]`, "\"\x00\"", "\"\xff\"", `nul`, `{"a":1}x`, `["a`, `1e999999`, `1e9999999`,
		strings.Repeat("[", 512) + strings.Repeat("]", 512), strings.Repeat("[", 513) + strings.Repeat("]", 513), strings.Repeat("9", 1025), "",
	}
	wide := "{"
	for i := range 60 {
		wide += `"k` + strings.Repeat("y", i) + `":0,`
	}
	seeds = append(seeds, wide+`"k":1}`, wide+`"z":1}`, wide+`"kyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy":1}`)
	for _, s := range seeds {
		checkClean(t, c, v, []byte(s))
		for range 300 {
			p := []byte(s)
			for range 1 + rng.IntN(3) {
				if len(p) == 0 {
					break
				}
				i := rng.IntN(len(p))
				switch rng.IntN(3) {
				case 0:
					p[i] = `{}[]:,"\0919eE.-+tfn ud8aA`[rng.IntN(26)]
				case 1:
					p = append(p[:i], p[i+1:]...)
				case 2:
					p = append(p[:i:i], append([]byte{`{}[]:,"\0`[rng.IntN(9)]}, p[i:]...)...)
				}
			}
			checkClean(t, c, v, p)
		}
	}
}

func TestCleanSuite(t *testing.T) {
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	names, err := filepath.Glob(filepath.Join(dir, "json", "JSONTestSuite", "test_parsing", "*.json"))
	if err != nil || len(names) == 0 {
		t.Skipf("no test vectors: %v", err)
	}
	c, v := newCleaner(DefaultLimits), newValidator(DefaultLimits)
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checkClean(t, c, v, p)
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\u00e9"],"b":{"a":null}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		checkClean(t, newCleaner(DefaultLimits), newValidator(DefaultLimits), p)
	})
}

func TestPlainEnd(t *testing.T) {
	var p [8]byte
	for range 200_000 {
		binary.LittleEndian.PutUint64(p[:], rand.Uint64())
		if rand.IntN(2) == 0 {
			p[rand.IntN(8)] = []byte{'"', '\\', 0x1f, 0x20, 0, '!', '#', '[', ']', 0x80, 0xa2, 0xdc}[rand.IntN(12)]
		}
		want := 0
		for want < 8 && !stringStop[p[want]] {
			want++
		}
		if got := plainEnd(p[:], 0); got != want {
			t.Fatalf("plainEnd(% x) = %d, want %d", p, got, want)
		}
	}
}

func BenchmarkClean(b *testing.B) {
	line := []byte(`{"id":"inc-00000001-a1b2c3","ts":"2026-11-30T04:05:06Z","service":"svc-7","region":"eu-west-2","sev":3,"status":"open","previous":{"status":"resolved","by":"sre"},"latency_ms":12.345,"seq":9007199254740993,"tags":["a","b","prod"],"labels":{"team":"sre-1","tier":"t2","zone":"z-3"},"message":"disk nearly full: value 123 above threshold 100 on the volume","trace":"0123456789abcdef0123456789abcdef"}`)
	c := newCleaner(DefaultLimits)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if !c.record(line) {
			b.Fatal("not clean")
		}
	}
}
