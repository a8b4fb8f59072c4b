package bundle

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// maxRanges bounds the separate leaf ranges that one records claim may need.
// Records that stand one after another need one.
const maxRanges = 1 << 20

func (c *checker) checkRecords(claim Claim, at string, body *io.SectionReader) (*io.SectionReader, error) {
	rec := c.m.Predicate.Records
	switch {
	case claim.Range == nil || len(claim.Ranges) > 0 || claim.Size != nil || claim.Pointer != nil || claim.Sections.Document != nil:
		return nil, malformed(at, "a records claim has a range, a map and a proof, and nothing else")
	case rec == nil || rec.Map == nil:
		return nil, malformed(at, "the manifest names no record map")
	case claim.Range[0] < 0 || claim.Range[1] <= claim.Range[0] || claim.Range[1] > rec.Count:
		return nil, malformed(at+"/range", "%d:%d of %d records", claim.Range[0], claim.Range[1], rec.Count)
	}
	mapSec, rest, err := cut(body, claim.Sections.Map, at+"/map")
	if err != nil {
		return nil, err
	}
	proof, rest, err := cut(rest, claim.Sections.Proof, at+"/proof")
	if err != nil {
		return nil, err
	}
	if claim.Sections.Proof.Leaves != nil {
		return nil, malformed(at+"/proof", "its leaves follow from the record map")
	}
	pages, err := newMapSection(mapSec, claim, rec, c.m, at)
	if err != nil {
		return nil, err
	}
	set, err := pages.leaves(c.m.Size)
	if err != nil {
		return rest, c.mapError(err, at)
	}
	if want := merkle.BodySize(set); proof.Size() != want {
		return nil, malformed(at+"/proof", "a section of %d bytes, the claim needs %d", proof.Size(), want)
	}
	next, stop := iter.Pull2(pages.spans())
	defer stop()
	w := recordWriter{w: c.out, next: next}
	if w.err = w.advance(); w.err != nil {
		return rest, c.mapError(w.err, at)
	}
	ok, err := c.copyProof(proof, set, at, w.write)
	if err != nil || !ok {
		return rest, err
	}
	c.res.Placed = pages.placed
	if err := w.close(); err != nil {
		return rest, err
	}
	for _, name := range []string{manifest.FactSelector, manifest.FactRecordNumbers} {
		f := c.word
		f.Name, f.Detail = name, claim.String()
		c.v.Set(f)
	}
	return rest, nil
}

// mapError turns a record map that does not hold into a MISMATCH of the record
// numbers, and one that is not what the claim needs into ErrMalformed.
func (c *checker) mapError(err error, at string) error {
	switch {
	case errors.Is(err, merkle.ErrMismatch):
		c.v.Set(manifest.Fact{Name: manifest.FactRecordNumbers, State: manifest.Mismatch, Reason: fmt.Sprintf("%s/map: %v", at, err)})
		return nil
	case errors.Is(err, selector.ErrMap), errors.Is(err, merkle.ErrMalformed), errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{At: at + "/map", Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	return err
}

// mapSection reads the record spans out of a claim's map section, as often as
// asked, verifying it each time and holding one page.
type mapSection struct {
	sec   *io.SectionReader
	root  merkle.Root
	set   merkle.LeafSet
	first int64 // the first page's leaf
	claim Claim
	want  selector.MapWant

	placed merkle.Range // the records on its pages, once they were read
}

func newMapSection(sec *io.SectionReader, claim Claim, rec *manifest.Records, m *manifest.Manifest, at string) (*mapSection, error) {
	root, err := merkle.ParseRoot(rec.Map.Root)
	if err != nil {
		return nil, malformed("header/manifest", "the record map's root: %v", err)
	}
	leaves := unpair(claim.Sections.Map.Leaves)
	set, err := merkle.LeafRanges(rec.Map.Size, leaves)
	if err != nil {
		return nil, malformed(at+"/map/leaves", "%v", err)
	}
	first := int64(1)
	if len(leaves) == 2 && leaves[0].End == 1 {
		first = leaves[1].Start
	} else if len(leaves) != 1 {
		return nil, malformed(at+"/map/leaves", "they are the header's leaf and one run of pages")
	}
	if leaves[0].Start != 0 {
		return nil, malformed(at+"/map/leaves", "leaf 0, the header, is missing")
	}
	if want := merkle.BodySize(set); sec.Size() != want {
		return nil, malformed(at+"/map", "a section of %d bytes, its leaves need %d", sec.Size(), want)
	}
	return &mapSection{
		sec: sec, root: root, set: set, first: first, claim: claim,
		want: selector.MapWant{Root: m.Root, Size: m.Size, Layout: Layout(rec), Records: rec.Count, MapSize: rec.Map.Size},
	}, nil
}

// note takes the records that leaves of the map place. Whole leaves come; what is
// wrong with a page is found when its entries are read.
func (s *mapSection) note(leaf int64, leaves []byte) {
	for ; len(leaves) >= merkle.LeafSize; leaf, leaves = leaf+1, leaves[merkle.LeafSize:] {
		r, err := selector.PageRecords(leaves)
		if leaf < s.first || err != nil {
			continue
		}
		if leaf == s.first {
			s.placed.Start = r.Start
		}
		s.placed.End = r.End
	}
}

func (s *mapSection) spans() iter.Seq2[selector.Span, error] {
	return func(yield func(selector.Span, error) bool) {
		body := bodyReader{section: s, br: merkle.NewBodyReader(io.NewSectionReader(s.sec, 0, s.sec.Size()), s.root, s.set)}
		header := make([]byte, merkle.LeafSize)
		if _, err := io.ReadFull(&body, header); err != nil {
			yield(selector.Span{}, err)
			return
		}
		for span, err := range selector.MapSpansReader(header, &body, s.first, s.claim.Range[0], s.claim.Range[1], s.want) {
			if !yield(span, err) || err != nil {
				return
			}
		}
	}
}

// leaves returns the leaves of the artifact that the claimed records stand in.
func (s *mapSection) leaves(size int64) (merkle.LeafSet, error) {
	var ranges []merkle.Range
	for span, err := range s.spans() {
		if err != nil {
			return merkle.LeafSet{}, err
		}
		if ranges = appendSpan(ranges, span); len(ranges) > maxRanges {
			return merkle.LeafSet{}, fmt.Errorf("%w: over %d separate ranges", merkle.ErrMalformed, maxRanges)
		}
	}
	return merkle.Leaves(size, ranges...)
}

// bodyReader makes an io.Reader of the verified bytes of a map section, and notes
// which records its pages place.
type bodyReader struct {
	section *mapSection
	br      *merkle.BodyReader
	left    []byte
}

func (r *bodyReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		var err error
		var off int64
		if off, r.left, err = r.br.Next(); err != nil {
			return 0, err
		}
		r.section.note(off/merkle.LeafSize, r.left)
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// recordWriter writes the records among the bytes it is given, a newline after
// each. Spans and calls are ascending.
type recordWriter struct {
	w    io.Writer
	next func() (selector.Span, error, bool)
	span selector.Span
	more bool
	err  error
}

// advance moves to the next record.
func (w *recordWriter) advance() error {
	var err error
	w.span, err, w.more = w.next()
	return err
}

func (w *recordWriter) write(off int64, p []byte) error {
	if w.w == nil {
		return nil
	}
	for end := off + int64(len(p)); w.more && w.span.Start < end; {
		if a, b := max(w.span.Start, off), min(w.span.End, end); a < b {
			if _, err := w.w.Write(p[a-off : b-off]); err != nil {
				return err
			}
		}
		if w.span.End > end {
			return nil
		}
		if err := w.endRecord(); err != nil {
			return err
		}
	}
	return nil
}

func (w *recordWriter) endRecord() error {
	if _, err := w.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	return w.advance()
}

// close ends empty records that stand at the very end of the bytes.
func (w *recordWriter) close() error {
	for w.w != nil && w.more {
		if err := w.endRecord(); err != nil {
			return err
		}
	}
	return nil
}
