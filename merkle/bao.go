package merkle

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// WriteBao writes the Bao slice of n bytes from off on: byte for byte what
// `bao slice` of the Bao project writes, so that anyone's Bao decoder can check
// it. As Bao has it, no bytes count as one, and a slice that starts at or past
// the end has the last leaf. A negative off or n is ErrRange; otherwise it fails
// as [WriteBody] does.
func WriteBao(w io.Writer, t *Tree, data io.ReaderAt, off, n int64) error {
	set, err := baoLeaves(t.size, off, n)
	if err != nil {
		return err
	}
	return write(w, t, data, set, bao, nil)
}

// NewBaoReader returns a reader that verifies the Bao slice of n bytes from off
// on that r holds. A slice does not state its range, and the reader must know
// it. The bytes that Next returns are whole leaves, and may so begin before off
// and end after off+n. Where Bao allows a decoder to be strict this one is:
// bytes after the slice are ErrMalformed.
func NewBaoReader(r io.Reader, root Root, off, n int64) (*SliceReader, error) {
	in := bufio.NewReader(r)
	size, err := readSize(in)
	if err != nil {
		return nil, err
	}
	set, err := baoLeaves(size, off, n)
	if err != nil {
		return nil, err
	}
	return newSliceReader(in, root, set, set, bao), nil
}

func baoLeaves(size, off, n int64) (LeafSet, error) {
	if off < 0 || n < 0 {
		return LeafSet{}, &Error{"select", -1, fmt.Errorf("%w: %d bytes from %d on", ErrRange, n, off)}
	}
	end := off + n
	if end < off {
		end = math.MaxInt64
	}
	return Leaves(size, Range{off, end})
}
