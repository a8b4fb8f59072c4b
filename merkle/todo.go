package merkle

import (
	"context"
	"errors"
	"io"
)

var errTODO = errors.New("merkle: not written yet")

// BuildAt …
func BuildAt(ctx context.Context, r io.ReaderAt, size int64, nodes io.WriterAt) (Root, error) {
	b := NewBuilder(nodes)
	if _, err := io.Copy(b, io.NewSectionReader(r, 0, size)); err != nil {
		return Root{}, err
	}
	return b.Seal()
}

// Tree …
type Tree struct {
	root  Root
	size  int64
	nodes io.ReaderAt
}

// NewTree …
func NewTree(root Root, size int64, nodes io.ReaderAt) *Tree { return &Tree{root, size, nodes} }

// Root …
func (t *Tree) Root() Root { return t.root }

// Size …
func (t *Tree) Size() int64 { return t.size }

// VerifyGroups …
func (t *Tree) VerifyGroups(first int64, data []byte) error { return errTODO }

// BodySize …
func BodySize(set LeafSet) int64 { return 0 }

// WriteBody …
func WriteBody(w io.Writer, t *Tree, data io.ReaderAt, set LeafSet) error { return errTODO }

// BodyReader …
type BodyReader struct{}

// NewBodyReader …
func NewBodyReader(r io.Reader, root Root, set LeafSet) *BodyReader { return &BodyReader{} }

// Next …
func (*BodyReader) Next() (offset int64, p []byte, err error) { return 0, nil, errTODO }

// WriteSlice …
func WriteSlice(w io.Writer, t *Tree, data io.ReaderAt, bytes []Range, last bool) error {
	return errTODO
}

// SliceReader …
type SliceReader struct{}

// NewSliceReader …
func NewSliceReader(r io.Reader, root Root) (*SliceReader, error) { return nil, errTODO }

// Next …
func (*SliceReader) Next() (offset int64, p []byte, err error) { return 0, nil, errTODO }

// Size …
func (*SliceReader) Size() int64 { return 0 }

// SizeProven …
func (*SliceReader) SizeProven() bool { return false }

// Ranges …
func (*SliceReader) Ranges() []Range { return nil }

// WriteBao …
func WriteBao(w io.Writer, t *Tree, data io.ReaderAt, off, n int64) error { return errTODO }
