package selector

import (
	"context"
	"io"
	"iter"

	"leafproof/merkle"
)

// Map is an opened record map. It is safe for concurrent use when its reader is.
type Map struct{ records int64 }

// OpenMap opens a record map of size bytes and checks its header: that it is
// lpr1 for a source with that root and size, divided as l says. Its pages are
// checked as they are read.
func OpenMap(r io.ReaderAt, size int64, root merkle.Root, srcSize int64, l Layout) (*Map, error) {
	return nil, errTODO
}

// Records returns how many records the map lists.
func (m *Map) Records() int64 { return m.records }

// Spans yields the spans of the records [a, b) in document order. A yielded
// error ends it.
func (m *Map) Spans(ctx context.Context, a, b int64) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) { yield(Span{}, errTODO) }
}

// Pages returns which leaves of the map hold the spans of the records [a, b):
// what a proof carries besides leaf 0, the header. An empty range has none and
// is ErrRange.
func (m *Map) Pages(a, b int64) (merkle.Range, error) { return merkle.Range{}, errTODO }

// MapWant is what a verifier knows from the signed manifest about a record map.
type MapWant struct {
	Root    merkle.Root // of the source, not of the map
	Size    int64       // of the source, in bytes
	Layout  Layout
	Records int64
	MapSize int64 // bytes of the map
}

// MapSpans is the verifier's side: header is leaf 0 of a map, pages the leaves
// from firstLeaf on, both already verified against the map's root. They must be
// exactly the leaves that hold the records [a, b), no more and no fewer. It
// returns the b-a spans.
func MapSpans(header, pages []byte, firstLeaf, a, b int64, want MapWant) ([]Span, error) {
	return nil, errTODO
}

// MapSpansReader is [MapSpans] for ranges of any length: it reads the pages one
// by one and holds one of them. It reads to the end of pages and yields an
// error, as its last item, if they are not exactly those of [a, b).
func MapSpansReader(header []byte, pages io.Reader, firstLeaf, a, b int64, want MapWant) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) { yield(Span{}, errTODO) }
}
