package bundle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// A Source is what a bundle is made from: a signed manifest, and the blobs it names.
type Source struct {
	Manifest *manifest.Manifest
	Envelope manifest.Envelope
	SSH      string // the armored SSH signature of the same payload

	Data io.ReaderAt // the artifact's bytes
	Tree *merkle.Tree

	Map     io.ReaderAt // the record map; nil where the artifact has no records
	MapTree *merkle.Tree

	// Room returns room for a section of an answer, so that the artifact is read once.
	// nil: it is read each time that its bytes are needed.
	Room func() (selector.Spill, error)
}

// section is one proof body yet to be written.
type section struct {
	tree *merkle.Tree
	data io.ReaderAt
	set  merkle.LeafSet
	made io.ReaderAt // the body, where it was made already
}

// body returns a reader of a section that was made.
func (s section) body() io.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(s.made, 0, merkle.BodySize(s.set)), 64<<10)
}

func (s section) write(w io.Writer) error {
	if s.made == nil {
		return merkle.WriteBody(w, s.tree, s.data, s.set)
	}
	_, err := io.Copy(w, s.body())
	return err
}

// make makes the body in a room.
func (s *section) make(ctx context.Context, room selector.Spill) error {
	w := bufio.NewWriterSize(while{ctx, io.NewOffsetWriter(room, 0)}, 256<<10)
	if err := merkle.WriteBody(w, s.tree, s.data, s.set); err != nil {
		return err
	}
	s.made = room
	return w.Flush()
}

// while writes while a context stands.
type while struct {
	ctx context.Context
	w   io.Writer
}

func (w while) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// Bytes returns the bundle that proves byte ranges of the artifact. Ranges past
// the end are clamped: the claim states what is left of them, and a range wholly
// past the end proves the artifact's length.
func Bytes(src Source, ranges ...merkle.Range) (*Bundle, error) {
	size := src.Tree.Size()
	set, err := merkle.Leaves(size, ranges...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaim, err)
	}
	c := BytesClaim(canonicalBytes(size, ranges)...)
	c.Size = &size
	c.Sections.Proof = &Section{Length: merkle.BodySize(set)}
	return newBundle(src, c, section{tree: src.Tree, data: src.Data, set: set})
}

// Records returns the bundle that proves records [a, b) of the artifact.
func Records(ctx context.Context, src Source, a, b int64) (*Bundle, error) {
	if src.Map == nil {
		return nil, fmt.Errorf("%w: the artifact has no records", ErrClaim)
	}
	layout := Layout(src.Manifest.Predicate.Records)
	m, err := selector.OpenMap(src.Map, src.MapTree.Size(), src.Tree.Root(), src.Tree.Size(), layout)
	if err != nil {
		return nil, err
	}
	if a < 0 || b <= a || b > m.Records() {
		return nil, fmt.Errorf("%w: records %d:%d of %d", ErrClaim, a, b, m.Records())
	}
	pages, err := m.Pages(a, b)
	if err != nil {
		return nil, err
	}
	mapSet, err := mapLeaves(src.MapTree.Size(), pages)
	if err != nil {
		return nil, err
	}
	var spans []merkle.Range
	for s, err := range m.Spans(ctx, a, b) {
		if err != nil {
			return nil, err
		}
		spans = appendSpan(spans, s)
	}
	set, err := merkle.Leaves(src.Tree.Size(), spans...)
	if err != nil {
		return nil, err
	}
	placed, err := placedRecords(src.Map, pages)
	if err != nil {
		return nil, err
	}
	c := RecordsClaim(a, b)
	c.Sections.Map = &Section{Length: merkle.BodySize(mapSet), Leaves: pairs(mapSet.Ranges())}
	c.Sections.Proof = &Section{Length: merkle.BodySize(set)}
	out, err := newBundle(src, c, section{tree: src.MapTree, data: src.Map, set: mapSet}, section{tree: src.Tree, data: src.Data, set: set})
	if err != nil {
		return nil, err
	}
	out.placed = placed
	return out, nil
}

// Pointer returns the bundle that proves the value at a JSON Pointer (RFC 6901).
// It reads the whole document, once, with bounded memory.
//
// With whole, the bundle shows all of the document, and so the place is proven:
// the verifier follows the pointer itself. Without, it shows the leaves around the
// value; that they stand at that pointer is then nobody's word but that of a
// receipt. A bundle whose leaves are all of the document is whole in any case.
//
// Where nothing stands at the pointer, or nobody could say what does, the errors
// are those of [selector.FindPointer].
func Pointer(ctx context.Context, src Source, pointer string, whole bool) (*Bundle, error) {
	size := src.Tree.Size()
	span, err := selector.FindPointer(ctx, src.Data, size, pointer)
	if err != nil {
		return nil, err
	}
	set, err := merkle.Leaves(size, merkle.Range{Start: span.Start, End: span.End})
	if err != nil {
		return nil, err
	}
	all, err := merkle.Leaves(size, merkle.Range{Start: 0, End: size})
	if err != nil {
		return nil, err
	}
	c := PointerClaim(pointer)
	c.Ranges, c.Size = [][2]int64{{span.Start, span.End}}, &size
	if whole || set.Equal(all) {
		set = all
		c.Sections.Document = &Section{Length: merkle.BodySize(set)}
	} else {
		c.Sections.Proof = &Section{Length: merkle.BodySize(set)}
	}
	return newBundle(src, c, section{tree: src.Tree, data: src.Data, set: set})
}

// placedRecords returns the numbers of the records on pages of a record map.
func placedRecords(mapped io.ReaderAt, pages merkle.Range) (merkle.Range, error) {
	var out merkle.Range
	page := make([]byte, merkle.LeafSize)
	for i, leaf := range []int64{pages.Start, pages.End - 1} {
		if _, err := mapped.ReadAt(page, leaf*merkle.LeafSize); err != nil && !errors.Is(err, io.EOF) {
			return out, err
		}
		r, err := selector.PageRecords(page)
		if err != nil {
			return out, err
		}
		if i == 0 {
			out.Start = r.Start
		}
		out.End = r.End
	}
	return out, nil
}

// A Bundle is ready to be written.
type Bundle struct {
	claim    Claim
	head     header
	header   []byte // head as it is written
	sections []section
	placed   merkle.Range
}

// Claim returns what the bundle claims.
func (b *Bundle) Claim() Claim { return b.claim }

// Leaves returns the leaves of the artifact that the bundle shows: the claimed
// bytes rounded outward to 1 KiB, and so more than the claim. Authority is asked
// about these.
func (b *Bundle) Leaves() merkle.LeafSet {
	if b.claim.Kind == KindQuery && b.claim.Sections.Records == nil {
		return merkle.LeafSet{} // none of its bytes
	}
	return b.sections[len(b.sections)-1].set
}

// Placed returns the numbers of the records whose places (not bytes) the bundle
// shows: those on the pages of the record map that it carries, and so more than
// the claimed ones. It is empty for a bytes claim.
func (b *Bundle) Placed() merkle.Range { return b.placed }

func newBundle(src Source, c Claim, sections ...section) (*Bundle, error) {
	b := &Bundle{claim: c, sections: sections, head: header{
		Claims:   []Claim{c},
		Manifest: src.Envelope,
		Ref:      src.Manifest.Predicate.ArtifactRef,
		SSH:      src.SSH,
	}}
	return b, b.encode()
}

// AddReceipt puts a signed receipt (read-receipt/v1) of this very read into the
// bundle: one whose selector is the claim's, and whose result is the bytes that a
// verifier writes out. A bundle has one at most; a second takes its place. Nothing
// is checked here: a receipt of something else is a MISMATCH to the verifier.
func (b *Bundle) AddReceipt(env manifest.Envelope) error {
	b.head.Receipt = &env
	return b.encode()
}

// encode makes line 2.
func (b *Bundle) encode() error {
	h, err := manifest.Canonical(b.head)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClaim, err)
	}
	if len(h) > MaxHeader {
		return fmt.Errorf("%w: a header of %d bytes, the limit is %d", ErrClaim, len(h), MaxHeader)
	}
	b.header = append(h, '\n')
	return nil
}

// WriteTo writes the bundle to w. Since its first line is a digest of the rest,
// the rest is made twice, once for the digest: that keeps memory bounded and asks
// nothing of w. Both times every byte is checked against the tree. A section for
// which the source gave room was made and checked before.
func (b *Bundle) WriteTo(w io.Writer) (int64, error) {
	digest := merkle.NewBuilder(nil)
	if err := b.writeBody(digest); err != nil {
		return 0, err
	}
	root, err := digest.Seal()
	if err != nil {
		return 0, err
	}
	cw := &countingWriter{w: w}
	if _, err := fmt.Fprintf(cw, "%s%s\n", magic, root); err != nil {
		return cw.n, err
	}
	return cw.n, b.writeBody(cw)
}

func (b *Bundle) writeBody(w io.Writer) error {
	if _, err := w.Write(b.header); err != nil {
		return err
	}
	for _, s := range b.sections {
		if err := s.write(w); err != nil {
			return err
		}
	}
	return nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
