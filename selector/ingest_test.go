package selector

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"leafproof/merkle"
)

type sink struct{ b []byte }

func (m *sink) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// outcomeOf is all that a pass over a source gives.
type outcomeOf struct {
	Info   MapInfo
	Stats  Stats
	Layout Layout
	Err    string
	Map    []byte
}

func told(info MapInfo, stats Stats, l Layout, err error, out *sink) outcomeOf {
	o := outcomeOf{Info: info, Stats: stats, Layout: l, Map: out.b}
	if err != nil {
		o = outcomeOf{Err: err.Error()}
	}
	return o
}

func byBuild(t *testing.T, src []byte, l Layout) outcomeOf {
	var out sink
	info, stats, layout, err := BuildMap(t.Context(), bytes.NewReader(src), int64(len(src)), merkle.Root{1}, l, &out)
	return told(info, stats, layout, err, &out)
}

func byIngest(t *testing.T, rng *rand.Rand, src []byte, l Layout) outcomeOf {
	var out sink
	g, err := NewIngest(t.Context(), l, &out)
	if err != nil {
		t.Fatal(err)
	}
	for p := src; len(p) > 0; {
		n := min(len(p), 1+rng.IntN(1<<(1+rng.IntN(18))))
		if m, err := g.Write(p[:n]); m != n || err != nil {
			t.Fatalf("Write = %d, %v", m, err)
		}
		p = p[n:]
	}
	info, stats, layout, err := g.Finish(bytes.NewReader(src), merkle.Root{1})
	return told(info, stats, layout, err, &out)
}

// byBlocks is a pass over blocks of any length, down to a byte.
func byBlocks(t *testing.T, rng *rand.Rand, src []byte, l Layout, most int) outcomeOf {
	var out sink
	b, err := newBuilder(l, &out)
	if err != nil {
		t.Fatal(err)
	}
	in := &stream{ctx: t.Context(), fetch: func(off int64) (*block, int, error) {
		left := src[off:]
		if len(left) == 0 {
			return nil, 0, io.EOF
		}
		r := blockPool.Get().(*block)
		return r, copy(r[headroom:headroom+1+rng.IntN(most)], left), nil
	}}
	if err := b.build(in); err != nil {
		return outcomeOf{Err: err.Error()}
	}
	info, stats, layout, err := b.finish(t.Context(), bytes.NewReader(src), int64(len(src)), merkle.Root{1})
	return told(info, stats, layout, err, &out)
}

// A pass gives the same result however the bytes come.
func TestIngest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	pieces := []string{
		`{"a":1}`, "\n", "\r\n", "\n\n", " \t\r\n", `{"a":1,"a":2}`, `"\ud800"`, `[1,2`, `"é"`, "\xff", `"a""b"`, ",", `"x`, "\"q\nr\"", "7", "\t", "]", "[", `{"b":[{"c":"\\\""}]}`, "\xe2\x82\xac",
	}
	longText := `"` + strings.Repeat("long ", 300_000) + `"`
	huge := []string{longText + "\n", "\n" + longText, `{"a":` + longText + `,"a":1}` + "\n", `"` + strings.Repeat("x", 300_000) + `"` + "\n", strings.Repeat(" ", 2<<20), `["` + strings.Repeat("\xff", 1<<20) + `"]` + "\n"}
	for round := range 120 {
		var b strings.Builder
		if rng.IntN(4) == 0 {
			b.WriteString("\xef\xbb\xbf")
		}
		for range rng.IntN(30) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		if round%40 == 0 {
			for range 3 {
				b.WriteString(huge[rng.IntN(len(huge))])
				b.WriteString(pieces[rng.IntN(len(pieces))])
			}
		}
		src := []byte(b.String())
		document := []byte("[" + strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "\xef\xbb\xbf", "")), ",") + "]")
		for _, l := range []Layout{
			{Format: FormatNDJSON},
			{Format: FormatText},
			{Format: FormatCSV, Dialect: Dialect{Delimiter: ",", Quote: `"`}},
			{Format: FormatCSV, Dialect: Dialect{Delimiter: "\t", Quote: `"`, Header: true}},
			{Format: FormatJSON},
		} {
			p := src
			if l.Format == FormatJSON {
				p = document
			}
			want := byBuild(t, p, l)
			got := map[string]outcomeOf{"written": byIngest(t, rng, p, l)}
			if len(p) < 2000 {
				got["bytes"] = byBlocks(t, rng, p, l, 1)
				got["blocks"] = byBlocks(t, rng, p, l, 40)
			} else {
				got["blocks"] = byBlocks(t, rng, p, l, blockSize)
			}
			for how, o := range got {
				if !reflect.DeepEqual(o, want) {
					t.Fatalf("%s, %s: %+v\nwant %+v\nof %.300q", l.Format, how, o, want, p)
				}
			}
		}
	}
}

// An array whose elements straddle blocks is divided as one in memory.
func TestIngestArray(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b bytes.Buffer
	b.WriteString(` {"meta":[1],"rows":[ `)
	for i := range 3000 {
		if i > 0 {
			b.WriteString(" ,\n")
		}
		fmt.Fprintf(&b, []string{`{"n":%d,"u":"\u00e9"}`, `%d`, `[%d,"x"]`, `"%d"`, `{"a":%d,"a":0}`, `"\ud800%d"`}[i%6], i)
	}
	b.WriteString("] } ")
	l := Layout{Format: FormatJSON, Pointer: "/rows"}
	want := byBuild(t, b.Bytes(), l)
	if want.Err != "" || want.Stats.Records != 3000 || want.Stats.Undecidable != 1000 || want.Stats.DuplicateNames != 500 || want.Stats.InvalidUTF8 != 500 || want.Stats.Escapes != 1000 {
		t.Fatalf("%+v", want.Stats)
	}
	for _, most := range []int{1, 7, 300, 20_000} {
		if got := byBlocks(t, rng, b.Bytes(), l, most); !reflect.DeepEqual(got, want) {
			t.Errorf("blocks of %d: %+v, want %+v", most, got.Stats, want.Stats)
		}
	}
}

// Stopping a pass ends its goroutine, also in the middle; a fault in the bytes
// lets the writer go on.
func TestIngestStop(t *testing.T) {
	line := []byte(strings.Repeat(`{"a":1}`+"\n", 1<<16))
	for range 5 {
		g, err := NewIngest(t.Context(), Layout{Format: FormatNDJSON}, &sink{})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			g.Write(line)
		}
		g.Stop()
	}
	g, err := NewIngest(t.Context(), Layout{Format: FormatNDJSON}, &sink{})
	if err != nil {
		t.Fatal(err)
	}
	binary := make([]byte, 8<<20)
	g.Write(binary)
	if _, _, _, err := g.Finish(bytes.NewReader(binary), merkle.Root{}); !errors.Is(err, ErrNotRecords) {
		t.Errorf("a NUL: %v", err)
	}
}
