package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

func (c *checker) checkPointer(claim Claim, at string, body *io.SectionReader) (*io.SectionReader, error) {
	s := claim.Sections
	if claim.Pointer == nil || len(claim.Ranges) != 1 || s.Map != nil || (s.Proof == nil) == (s.Document == nil) {
		return nil, malformed(at, "a pointer claim has a pointer, one range, a size and either a proof or the document")
	}
	if err := selector.CheckPointer(*claim.Pointer); err != nil {
		return nil, malformed(at+"/pointer", "%v", err)
	}
	ranges, err := c.bytesRanges(claim, at)
	if err != nil {
		return nil, err
	}
	value := ranges[0]
	if value.Start == value.End {
		return nil, malformed(at+"/ranges", "no JSON value is empty")
	}
	if s.Document != nil {
		return c.checkDocument(claim, value, at, body)
	}
	sec, set, rest, err := c.proof(s.Proof, at+"/proof", body, ranges)
	if err != nil {
		return nil, err
	}
	w := rangeWriter{w: c.out, ranges: ranges}
	ok, err := c.copyProof(sec, set, at, w.write)
	if err != nil || !ok {
		return rest, err
	}
	// Bytes prove their place in the document, not what the rest of the document
	// makes of that place. A receipt may vouch for it.
	c.v.Set(manifest.Fact{
		Name: manifest.FactSelector, State: manifest.Unverifiable, Detail: claim.String(),
		Reason: "the bundle has neither the whole document nor a receipt that says what stands at the pointer",
	})
	return rest, c.endValue()
}

// endValue writes the newline that follows a value, as it follows a record.
func (c *checker) endValue() error {
	if c.out == nil {
		return nil
	}
	_, err := c.out.Write([]byte{'\n'})
	return err
}

// checkDocument verifies the whole document and follows the pointer in it, in one
// pass.
func (c *checker) checkDocument(claim Claim, value merkle.Range, at string, body *io.SectionReader) (*io.SectionReader, error) {
	whole := []merkle.Range{{Start: 0, End: c.m.Size}}
	sec, set, rest, err := c.proof(claim.Sections.Document, at+"/document", body, whole)
	if err != nil {
		return nil, err
	}
	w := rangeWriter{w: c.out, ranges: []merkle.Range{value}}
	doc := document{br: merkle.NewBodyReader(sec, c.m.Root, set), emit: w.write}
	span, found := selector.FindPointer(context.Background(), &doc, c.m.Size, *claim.Pointer)
	// The scanner stops at what is no JSON; the proof goes on to its end.
	for doc.err == nil {
		doc.advance()
	}
	if !errors.Is(doc.err, io.EOF) || errors.Is(doc.err, io.ErrUnexpectedEOF) {
		if doc.writing {
			return rest, doc.err
		}
		return rest, c.proofError(doc.err, at)
	}
	c.proved(set)
	f := manifest.Fact{Name: manifest.FactSelector, State: manifest.Proven, Detail: claim.String()}
	switch {
	case errors.Is(found, selector.ErrPointer), errors.Is(found, selector.ErrUndecidable):
		f.State, f.Reason = manifest.Mismatch, found.Error()
	case found != nil:
		return rest, found
	case span.Start != value.Start || span.End != value.End:
		f.State, f.Reason = manifest.Mismatch, fmt.Sprintf("the value there is bytes %d:%d", span.Start, span.End)
	}
	c.v.Set(f)
	return rest, c.endValue()
}

// document makes an [io.ReaderAt] of the verified bytes of a body over a whole
// blob, for a reader that goes forward: it holds one piece of the body, and the
// first bytes, which are looked at twice.
type document struct {
	br   *merkle.BodyReader
	emit func(off int64, p []byte) error

	head    [16]byte
	off     int64 // where piece stands
	piece   []byte
	err     error
	writing bool // err comes from emit
}

// advance takes the next piece.
func (d *document) advance() {
	d.off, d.piece, d.err = d.br.Next()
	if d.err != nil {
		d.piece = nil
		return
	}
	if d.off < int64(len(d.head)) {
		copy(d.head[d.off:], d.piece)
	}
	if err := d.emit(d.off, d.piece); err != nil {
		d.err, d.writing = err, true
	}
}

func (d *document) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		switch {
		case at < d.off && at < int64(len(d.head)):
			n += copy(p[n:], d.head[at:min(d.off, int64(len(d.head)))])
		case at < d.off:
			return n, errors.New("bundle: a document was read backwards")
		case at < d.off+int64(len(d.piece)):
			n += copy(p[n:], d.piece[at-d.off:])
		case d.err != nil:
			return n, d.err
		default:
			d.advance()
		}
	}
	return n, nil
}
