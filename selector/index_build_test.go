package selector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"leafproof/merkle"
)

// builtFor makes the map that an index is built with.
func builtFor(t testing.TB, src []byte, l Layout) (*Map, Layout, Trust) {
	t.Helper()
	var out memWriter
	info, stats, full, err := BuildMap(t.Context(), bytes.NewReader(src), int64(len(src)), merkle.Sum(src), l, &out)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenMap(bytes.NewReader(out.b), info.Size, merkle.Sum(src), int64(len(src)), full)
	if err != nil {
		t.Fatal(err)
	}
	return m, full, stats.Trust()
}

// twinIndex builds an index the slow and obvious way: with the path's own maker of
// keys, all entries in memory, each record checked.
func twinIndex(t testing.TB, src []byte, m *Map, l Layout, p *KeyPath, redactions []string) []byte {
	t.Helper()
	maker, err := p.Maker(l, redactions)
	if err != nil {
		t.Fatal(err)
	}
	var entries []KeyEntry
	rec := int64(0)
	for s, err := range m.Spans(t.Context(), 0, m.Records()) {
		if err != nil {
			t.Fatal(err)
		}
		record := src[s.Start:s.End]
		if s.Len() > l.Limits.Record {
			record = []byte("\xff")
		}
		maker.Keys(record, false, func(key []byte) { entries = append(entries, KeyEntry{bytes.Clone(key), rec}) })
		rec++
	}
	spec, err := IndexSpec(l, p, redactions)
	if err != nil {
		t.Fatal(err)
	}
	return naiveIndex(merkle.Sum(src), int64(len(src)), SpecDigest(spec), rec, entries)
}

// buildIndexes builds with what b says beside the source.
func buildIndexes(t testing.TB, b IndexBuild, src []byte, l Layout, paths ...string) ([][]byte, []IndexInfo, error) {
	t.Helper()
	b.Source = bytes.NewReader(src)
	b.Map, b.Layout, b.Trust = builtFor(t, src, l)
	var outs []io.WriterAt
	var bufs []*memWriter
	for _, text := range paths {
		p, err := ParseKeyPath(text)
		if err != nil {
			t.Fatal(err)
		}
		b.Paths = append(b.Paths, p)
		bufs = append(bufs, &memWriter{})
		outs = append(outs, bufs[len(bufs)-1])
	}
	infos, err := b.Build(t.Context(), outs)
	var got [][]byte
	for _, w := range bufs {
		got = append(got, w.b)
	}
	return got, infos, err
}

// memSpill is a Spill in memory.
type memSpill struct{ memWriter }

func (m *memSpill) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m.b).ReadAt(p, off)
}

func randomRecords(rng *rand.Rand, n int) []byte {
	var b bytes.Buffer
	odd := []string{
		`{"s":"open","s":"closed"}`, `not json`, `{"s":"\ud800"}`, `{"n":1e2000000}`, `[1,2]`, `"text"`, `{"s":"` + strings.Repeat("long ", 30) + `"}`,
		`{"tags":["a","b","a",{"x":1},[]]}`, `{"tags":[]}`, `{"tags":"a"}`, `{"tags":{"a":1,"a":2}}`, `{"d":{"e":[0,7]}}`, `{"d":{"e":1},"d":2}`, `{}`, `null`,
		`{"s":"\u006fpen"}`, `{"n":-0.0}`, `{"n":1.50}`, `{"n":15e-1}`,
	}
	for i := range n {
		switch rng.IntN(6) {
		case 0:
			b.WriteString(odd[rng.IntN(len(odd))])
		case 1:
			fmt.Fprintf(&b, `{"s":"v%d","n":%d,"tags":["t%d","t%d"]}`, rng.IntN(50), rng.IntN(100)-50, rng.IntN(9), rng.IntN(9))
		default:
			fmt.Fprintf(&b, `{"id":"id-%06d","s":"%s","n":%d.%d,"d":{"e":[%d,%d]},"tags":[%d]}`, i, []string{"open", "closed", "merged"}[rng.IntN(3)],
				rng.IntN(1000), rng.IntN(100), i/3, rng.IntN(5), rng.IntN(4))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func TestIndexBuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	nd := Layout{Format: FormatNDJSON}
	paths := []string{"/s", "/n", "/id", "/d/e/1", "@.d.e[*]", "@.tags[*]", "@.tags[0]", "", "/none", "@.d.e[-1]"}
	records := randomRecords(rng, 2000)
	var array, csv bytes.Buffer
	array.WriteString(`{"x":1,"rows":[`)
	for i := range 500 {
		fmt.Fprintf(&array, `%s{"s":"%d","tags":[%d]}`, []string{"", " ,\n"}[min(i, 1)], i%7, i)
	}
	array.WriteString("]}")
	csv.WriteString("id,note,id2\n")
	for i := range 500 {
		fmt.Fprintf(&csv, "%d,\"a \"\"%d\"\"\",%d\n", i%40, i%3, i)
		if i%50 == 0 {
			csv.WriteString("\"broken\"x,y,z\nshort\n")
		}
	}
	csvLayout := Layout{Format: FormatCSV, Dialect: Dialect{Delimiter: ",", Quote: `"`, Header: true}}
	for _, c := range []struct {
		name       string
		src        []byte
		l          Layout
		paths      []string
		redactions []string
	}{
		{"ndjson", records, nd, paths, nil},
		{"redacted", records, nd, paths, []string{"/s", "/d/e"}},
		{"small limits", records, Layout{Format: FormatNDJSON, Limits: Limits{Depth: 2, Digits: 2, Record: 60}}, paths, nil},
		{"array", array.Bytes(), Layout{Format: FormatJSON, Pointer: "/rows"}, []string{"/s", "@.tags[*]"}, nil},
		{"csv", csv.Bytes(), csvLayout, []string{"/id", "/note", "/id2"}, nil},
		{"text", []byte(strings.Repeat("a line\n\nanother\nand \xff\n", 900)), Layout{Format: FormatText}, []string{""}, nil},
		{"one record", []byte(`{"s":1}`), nd, []string{"/s", "@.tags[*]"}, nil},
		{"no record", []byte("\n"), nd, []string{"/s", "@.tags[*]"}, nil},
		{"an empty array", []byte(`[]`), Layout{Format: FormatJSON}, []string{"/s"}, nil},
		{"one value in all", []byte(strings.Repeat("{\"s\":\"open\"}\n", 9000)), nd, []string{"/s", "/none"}, nil},
		{"all undetermined", []byte(strings.Repeat("{\"s\":1,\"s\":2}\n", 9000)), nd, []string{"/s"}, nil},
		{"keys of 1 MB", []byte(strings.Repeat(`{"s":"`+strings.Repeat("x", 1<<20)+"\"}\n", 3) + `{"s":"` + strings.Repeat("x", 1<<20) + "y\"}\n"), nd, []string{"/s"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l, _ := builtFor(t, c.src, c.l)
			var want [][]byte
			for _, text := range c.paths {
				p, err := ParseKeyPath(text)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, twinIndex(t, c.src, m, l, p, c.redactions))
			}
			for _, b := range []IndexBuild{{}, {Workers: 3, Memory: int64(len(c.paths)) * 8 * stageLeast, Spill: &memSpill{}}} {
				b.Redactions = c.redactions
				got, infos, err := buildIndexes(t, b, c.src, c.l, c.paths...)
				if err != nil {
					t.Fatal(err)
				}
				for i, text := range c.paths {
					if !bytes.Equal(got[i], want[i]) {
						t.Errorf("%q: an index of %d bytes, the twin has %d", text, len(got[i]), len(want[i]))
					}
					p, _ := ParseKeyPath(text)
					x, err := OpenIndex(bytes.NewReader(got[i]), infos[i].Size, p, IndexSource{merkle.Sum(c.src), int64(len(c.src)), m.Records(), l, c.redactions})
					if err == nil {
						err = x.Check(t.Context())
					}
					if err != nil || x.Info() != infos[i] {
						t.Errorf("%q: %+v, %v", text, infos[i], err)
					}
				}
			}
		})
	}
}

// TestIndexSpills: what does not fit into memory goes to runs, and these to longer
// ones; without room there is an error and no index.
func TestIndexSpills(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var src bytes.Buffer
	for i := range 60_000 {
		fmt.Fprintf(&src, `{"k":"%08x%064d","n":%d}`+"\n", rng.Uint32(), i, rng.IntN(5))
	}
	nd := Layout{Format: FormatNDJSON}
	spill := &memSpill{}
	want, _, err := buildIndexes(t, IndexBuild{}, src.Bytes(), nd, "/k", "/n")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := buildIndexes(t, IndexBuild{Memory: 16 * stageLeast, Workers: 2, Spill: spill}, src.Bytes(), nd, "/k", "/n")
	if err != nil {
		t.Fatal(err)
	}
	if len(spill.b) < src.Len()/2 {
		t.Errorf("%d bytes were spilled", len(spill.b))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("index %d differs", i)
		}
	}
	if _, _, err := buildIndexes(t, IndexBuild{Memory: 16 * stageLeast}, src.Bytes(), nd, "/k", "/n"); !errors.Is(err, ErrLimit) {
		t.Errorf("without room to spill: %v", err)
	}
}

func TestIndexBuildRefuses(t *testing.T) {
	src := []byte("a,b\n1,2\n")
	csv := Layout{Format: FormatCSV, Dialect: Dialect{Delimiter: ",", Header: true}}
	for name, c := range map[string]struct {
		b    IndexBuild
		path string
		want error
	}{
		"no such column":          {IndexBuild{}, "/c", ErrSelector},
		"too little memory":       {IndexBuild{Memory: 1000}, "/a", ErrLimit},
		"a name with no spelling": {IndexBuild{}, "/a\u2028", ErrSelector},
	} {
		if _, _, err := buildIndexes(t, c.b, src, csv, c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cancelling is a source that ends a context while it is read.
type cancelling struct {
	io.ReaderAt
	cancel context.CancelFunc
}

func (c cancelling) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(20 * time.Millisecond) // by now all batches wait for a worker
	c.cancel()
	return c.ReaderAt.ReadAt(p, off)
}

// TestIndexCancelled: a build that is cut off leaves no index that lacks records.
func TestIndexCancelled(t *testing.T) {
	src := []byte(strings.Repeat(`{"s":"`+strings.Repeat("x", 90)+"\"}\n", 7000))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ParseKeyPath("/s")
	if err != nil {
		t.Fatal(err)
	}
	b := IndexBuild{Source: cancelling{bytes.NewReader(src), cancel}, Paths: []*KeyPath{p}, Workers: 2}
	b.Map, b.Layout, b.Trust = builtFor(t, src, Layout{Format: FormatNDJSON})
	if _, err := b.Build(ctx, []io.WriterAt{&memWriter{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Build = %v", err)
	}
	b.Source = bytes.NewReader(src[:len(src)/2])
	if _, err := b.Build(t.Context(), []io.WriterAt{&memWriter{}}); !errors.Is(err, ErrChanged) {
		t.Errorf("of half the bytes: %v", err)
	}
}
