package selector_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

// vectors returns the path of a folder or file of other people's test vectors.
func vectors(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	p := filepath.Join(dir, name)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("no test vectors: %v", err)
	}
	return p
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// memory is an io.WriterAt in memory.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// built is a record map that was just built, opened.
type built struct {
	bytes  []byte
	info   selector.MapInfo
	stats  selector.Stats
	layout selector.Layout
	m      *selector.Map
}

func build(t testing.TB, src []byte, l selector.Layout) built {
	t.Helper()
	b, err := tryBuild(t, src, l)
	if err != nil {
		t.Fatalf("BuildMap: %v", err)
	}
	return b
}

func tryBuild(t testing.TB, src []byte, l selector.Layout) (built, error) {
	t.Helper()
	var out memory
	root := merkle.Sum(src)
	info, stats, layout, err := selector.BuildMap(t.Context(), bytes.NewReader(src), int64(len(src)), root, l, &out)
	if err != nil {
		return built{stats: stats}, err
	}
	if info.Size != int64(len(out.b)) {
		t.Fatalf("BuildMap says %d bytes and wrote %d", info.Size, len(out.b))
	}
	m, err := selector.OpenMap(bytes.NewReader(out.b), info.Size, root, int64(len(src)), layout)
	if err != nil {
		t.Fatalf("OpenMap of a map just built: %v", err)
	}
	return built{bytes: out.b, info: info, stats: stats, layout: layout, m: m}, nil
}

func layout(t testing.TB, format, pointer string, head []byte) selector.Layout {
	t.Helper()
	l, err := selector.NewLayout(format, pointer, head)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// spans returns all spans of a map.
func spans(t testing.TB, m *selector.Map) []selector.Span {
	t.Helper()
	var out []selector.Span
	for s, err := range m.Spans(t.Context(), 0, m.Records()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// texts returns the records' bytes as strings.
func texts(src []byte, spans []selector.Span) []string {
	out := []string{}
	for _, s := range spans {
		out = append(out, string(src[s.Start:s.End]))
	}
	return out
}
