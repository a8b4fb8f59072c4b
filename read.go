package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"leafproof/cas"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// A Selector says which part of an artifact is wanted. At most one field is set;
// none means all of its bytes.
type Selector struct {
	Bytes   *merkle.Range // byte offsets, half open
	Records *merkle.Range // record numbers from 0, half open
	Pointer *string       // a JSON Pointer (RFC 6901) into a JSON document

	// Whole makes the proof of a Pointer show the whole document: only then is the
	// place proven. Without, the proof carries a receipt, which vouches for it. It
	// means nothing elsewhere.
	Whole bool
	// Receipt, where set, is filled with the signed receipt of the read, which the
	// store keeps too: see [Store.Receipts]. It needs a key of the role receipt.
	Receipt *Statement
	// Each, where set, is told of where each of the Records stands, or the value at the
	// Pointer (as 0), in order and before its bytes are read. Leave to read them is
	// had by then.
	Each func(record int64, span selector.Span)
}

// check refuses a selector that asks for two things.
func (s Selector) check() error {
	set := 0
	for _, on := range []bool{s.Bytes != nil, s.Records != nil, s.Pointer != nil} {
		if on {
			set++
		}
	}
	if set > 1 {
		return fail(CodeSelectorInvalid, FixCall, "", "bytes, records and pointer exclude each other")
	}
	return nil
}

// Read writes a part of an artifact to w: bytes as they are, records with a
// newline after each, the value at a pointer as it stands in the document. Every
// byte is verified before it is written, and the gate is asked again at every
// flush. The answer says what was examined and how complete the capture was.
//
// When Read fails, what it wrote until then is a correct beginning.
func (s *Store) Read(ctx context.Context, who Caller, id string, sel Selector, w io.Writer) (*selector.Answer, error) {
	a, err := s.find(ctx, who, id, gate.Read)
	if err != nil {
		return nil, err
	}
	data, err := a.data(ctx)
	if err != nil {
		return nil, a.tell(ctx, err)
	}
	defer data.Close()
	p, err := a.part(ctx, sel, data)
	if err != nil {
		return nil, a.tell(ctx, err)
	}
	defer p.close()
	p.each = sel.Each
	permit, err := a.permit(ctx, p.ranges...)
	if err != nil {
		return nil, err
	}
	rec, err := a.recorder(ctx, sel.Receipt)
	if err != nil {
		return nil, wireError(id, err)
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, w), permit, a.request)
	if err != nil {
		return nil, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, shownRanges(a.m.Size, p.ranges...)); err != nil {
		return nil, err
	}
	if err := p.write(rec.tee(gated), data); err != nil {
		return nil, wireError(id, err)
	}
	answer := a.rangeAnswer(p)
	rec.show(p.ranges...)
	if err := rec.sign(ctx, permit, answer, asked{span: p.value, loose: p.records > 1}); err != nil {
		return nil, wireError(id, err)
	}
	return answer, nil
}

// part is a resolved selector.
type part struct {
	selector []byte                                 // normalised, for the answer
	ranges   []merkle.Range                         // the bytes that will be shown
	spans    func() iter.Seq2[selector.Span, error] // the pieces, in order
	newline  bool                                   // write one after each piece
	records  int64                                  // how many of the pieces are records
	bytes    int64                                  // in the pieces, once they were written
	first    int64                                  // the first record's number
	value    *[2]int64                              // where the value at a pointer stands; nil: it is no pointer
	each     func(record int64, s selector.Span)
	close    func() error
}

// part resolves a selector to bytes.
func (a *artifact) part(ctx context.Context, sel Selector, data io.ReaderAt) (*part, error) {
	if err := sel.check(); err != nil {
		return nil, err
	}
	switch {
	case sel.Records != nil:
		return a.recordsPart(ctx, *sel.Records)
	case sel.Pointer != nil:
		if err := a.allows(manifest.SelectorPointer); err != nil {
			return nil, err
		}
		span, err := selector.FindPointer(ctx, data, a.m.Size, *sel.Pointer)
		if err != nil {
			return nil, err
		}
		p := onePiece(selector.PointerSelector(*sel.Pointer), span)
		p.newline, p.value = true, &[2]int64{span.Start, span.End}
		return p, nil
	}
	if err := a.allows(manifest.SelectorByteRange); err != nil {
		return nil, err
	}
	r := merkle.Range{Start: 0, End: a.m.Size}
	if sel.Bytes != nil {
		r = *sel.Bytes
	}
	if r.Start < 0 || r.End < r.Start || r.End > a.m.Size {
		return nil, fail(CodeSelectorInvalid, FixCall, "bytes", "bytes %d:%d are outside %s, which has %d bytes",
			r.Start, r.End, a.row.ArtifactID, a.m.Size)
	}
	return onePiece(selector.RangeSelector("bytes", r.Start, r.End), selector.Span{Start: r.Start, End: r.End}), nil
}

func onePiece(normalised []byte, span selector.Span) *part {
	return &part{
		selector: normalised,
		ranges:   []merkle.Range{{Start: span.Start, End: span.End}},
		spans: func() iter.Seq2[selector.Span, error] {
			return func(yield func(selector.Span, error) bool) { yield(span, nil) }
		},
		close: func() error { return nil },
	}
}

func (a *artifact) recordsPart(ctx context.Context, r merkle.Range) (*part, error) {
	if err := a.allows(manifest.SelectorRecordRange); err != nil {
		return nil, err
	}
	file, m, _, err := a.records(ctx)
	if err != nil {
		return nil, err
	}
	p := &part{
		selector: selector.RangeSelector("records", r.Start, r.End),
		spans:    func() iter.Seq2[selector.Span, error] { return m.Spans(ctx, r.Start, r.End) },
		newline:  true, records: r.End - r.Start, first: r.Start,
		close: file.Close,
	}
	if r.Start < 0 || r.End < r.Start || r.End > m.Records() {
		p.close()
		return nil, fail(CodeSelectorInvalid, FixCall, "records", "records %d:%d are outside %s, which has %d records",
			r.Start, r.End, a.row.ArtifactID, m.Records())
	}
	if p.ranges, err = hull(ctx, m, r); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// hull is the run of bytes from the first of the records to the end of the last.
func hull(ctx context.Context, m *selector.Map, r merkle.Range) ([]merkle.Range, error) {
	if r.Start == r.End {
		return []merkle.Range{{}}, nil
	}
	var out merkle.Range
	for i, n := range []int64{r.Start, r.End - 1} {
		for span, err := range m.Spans(ctx, n, n+1) {
			if err != nil {
				return nil, err
			}
			if i == 0 {
				out.Start = span.Start
			}
			out.End = span.End
		}
	}
	return []merkle.Range{out}, nil
}

// copyBuffer is how much of an artifact is read at a time.
const copyBuffer = 256 << 10

// copyRooms are what part.write needs. To have them cleared for each read of a few
// KiB would take longer than the read.
var copyRooms = sync.Pool{New: func() any { return new(copyRoom) }}

type copyRoom struct {
	in  [copyBuffer]byte
	out [copyBuffer + 1]byte
}

// write writes the pieces, reading runs of neighbours together.
func (p *part) write(w io.Writer, data io.ReaderAt) error {
	size := int64(1) // a small part does not pay for bytes behind it
	for _, r := range p.ranges {
		size += r.End - r.Start
	}
	room := copyRooms.Get().(*copyRoom)
	defer copyRooms.Put(room)
	win := window{data: data, buf: room.in[:min(size, copyBuffer)]}
	out, record := room.out[:0], p.first
	for span, err := range p.spans() {
		if err != nil {
			return err
		}
		if p.each != nil {
			p.each(record, span)
			record++
		}
		p.bytes += span.Len()
		for off := span.Start; off < span.End; {
			b, err := win.at(off, span.End)
			if err != nil {
				return err
			}
			off += int64(len(b))
			if len(out) > 0 && len(out)+len(b) > copyBuffer {
				if _, err := w.Write(out); err != nil {
					return err
				}
				out = out[:0]
			}
			if len(b) == copyBuffer { // why copy it
				if _, err := w.Write(b); err != nil {
					return err
				}
				continue
			}
			out = append(out, b...)
		}
		if p.newline {
			out = append(out, '\n')
		}
		if len(out) > copyBuffer {
			if _, err := w.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := w.Write(out)
	return err
}

// window reads forward through data in large pieces.
type window struct {
	data io.ReaderAt
	buf  []byte
	off  int64 // where buf[:n] stands
	n    int
}

// at returns bytes from off on, at least one and none at or behind end.
func (w *window) at(off, end int64) ([]byte, error) {
	if off < w.off || off >= w.off+int64(w.n) {
		n, err := w.data.ReadAt(w.buf, off)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		w.off, w.n = off, n
	}
	return w.buf[off-w.off : min(int64(w.n), end-w.off)], nil
}

// Prove writes a bundle that proves a part of an artifact to anybody who holds
// the store's policy. It shows the leaves of 1 KiB around the part, and Authority
// is asked about those. Bytes are clamped to the artifact. That the bytes of a
// pointer stand where it points is proven where the whole document is shown; see
// [Selector].Whole.
func (s *Store) Prove(ctx context.Context, who Caller, id string, sel Selector, w io.Writer) (bundle.Claim, error) {
	var none bundle.Claim
	a, err := s.find(ctx, who, id, gate.Prove)
	if err != nil {
		return none, err
	}
	data, err := a.data(ctx)
	if err != nil {
		return none, a.tell(ctx, err)
	}
	defer data.Close()
	b, closeMap, err := a.bundle(ctx, sel, data)
	if err != nil {
		return none, a.tell(ctx, err)
	}
	defer closeMap()
	a.request.Placed = b.Placed()
	permit, err := a.permit(ctx, b.Leaves().Bytes()...)
	if err != nil {
		return none, err
	}
	if s := b.Claim().Sections; sel.Receipt == nil && sel.Pointer != nil && s.Document == nil {
		sel.Receipt = new(Statement) // nobody else vouches for the place of the value
	}
	if err := a.proofReceipt(ctx, sel, permit, b, data); err != nil {
		return none, wireError(id, err)
	}
	if err := a.commit(ctx, b); err != nil {
		return none, wireError(id, err)
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, w), permit, a.request)
	if err != nil {
		return none, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, exported(a.m.Size, a.request)); err != nil {
		return none, err
	}
	if err := a.exported(ctx, "a bundle of "+b.Claim().String()); err != nil {
		return none, wireError(id, err)
	}
	if _, err := b.WriteTo(gated); err != nil {
		return none, wireError(id, err)
	}
	return b.Claim(), nil
}

// bundle prepares the bundle that proves a part, and returns what to call when it
// was written.
func (a *artifact) bundle(ctx context.Context, sel Selector, data *cas.Reader) (*bundle.Bundle, func() error, error) {
	nothing := func() error { return nil }
	if err := sel.check(); err != nil {
		return nil, nothing, err
	}
	src := bundle.Source{Manifest: a.m, Envelope: a.signed.Manifest, SSH: a.signed.SSH, Data: data, Tree: data.Tree()}
	switch {
	case sel.Pointer != nil:
		if err := a.allows(manifest.SelectorPointer); err != nil {
			return nil, nothing, err
		}
		b, err := bundle.Pointer(ctx, src, *sel.Pointer, sel.Whole)
		return b, nothing, err
	case sel.Records != nil:
		if err := a.allows(manifest.SelectorRecordRange); err != nil {
			return nil, nothing, err
		}
		file, _, _, err := a.records(ctx)
		if err != nil {
			return nil, nothing, err
		}
		src.Map, src.MapTree = file, file.Tree()
		b, err := bundle.Records(ctx, src, sel.Records.Start, sel.Records.End)
		if err != nil {
			file.Close()
		}
		return b, file.Close, err
	}
	if err := a.allows(manifest.SelectorByteRange); err != nil {
		return nil, nothing, err
	}
	r := merkle.Range{Start: 0, End: a.m.Size}
	if sel.Bytes != nil {
		r = *sel.Bytes
	}
	b, err := bundle.Bytes(src, r)
	return b, nothing, err
}

// Slice writes a bare proof of a byte range, with no manifest: a detached lps1
// file, or a Bao slice of single leaves. Whoever has the root can verify it.
func (s *Store) Slice(ctx context.Context, who Caller, id string, r merkle.Range, bao bool, w io.Writer) (merkle.Root, error) {
	a, err := s.find(ctx, who, id, gate.Prove)
	if err != nil {
		return merkle.Root{}, err
	}
	data, err := a.data(ctx)
	if err != nil {
		return merkle.Root{}, a.tell(ctx, err)
	}
	defer data.Close()
	if err := a.allows(manifest.SelectorByteRange); err != nil {
		return merkle.Root{}, a.tell(ctx, err)
	}
	set, err := merkle.Leaves(a.m.Size, r)
	if err != nil {
		return merkle.Root{}, a.tell(ctx, fail(CodeSelectorInvalid, FixCall, "bytes", "bytes %d:%d: %v", r.Start, r.End, err))
	}
	if !bao {
		set = set.WithLast()
	}
	permit, err := a.permit(ctx, set.Bytes()...)
	if err != nil {
		return merkle.Root{}, err
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, w), permit, a.request)
	if err != nil {
		return merkle.Root{}, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, exported(a.m.Size, a.request)); err != nil {
		return merkle.Root{}, err
	}
	if err := a.exported(ctx, fmt.Sprintf("a slice of bytes %d:%d", r.Start, r.End)); err != nil {
		return merkle.Root{}, wireError(id, err)
	}
	if bao {
		err = merkle.WriteBao(gated, data.Tree(), data, r.Start, r.End-r.Start)
	} else {
		err = merkle.WriteSlice(gated, data.Tree(), data, []merkle.Range{r}, true)
	}
	return a.m.Root, wireError(id, err)
}
