package merkle

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

const (
	sliceMagic = "lps1"
	// flagLast says that the last leaf is in the body though no range has it.
	flagLast = 1

	// MaxSliceRanges is how many ranges a detached slice file may have, so that
	// a verifier's memory is bounded.
	MaxSliceRanges = 1 << 20
)

// WriteSlice writes a detached lps1 slice file: which leaves it has, and the
// body that proves them. The leaves are those of the byte ranges, as [Leaves]
// decides; with last the blob's last leaf is in the body too, so that the file
// proves the size. It fails as [Leaves] and [WriteBody] do.
func WriteSlice(w io.Writer, t *Tree, data io.ReaderAt, bytes []Range, last bool) error {
	set, err := Leaves(t.size, bytes...)
	if err != nil {
		return err
	}
	if len(set.ranges) > MaxSliceRanges {
		return &Error{"write proof", -1, fmt.Errorf("%w: %d separate ranges, at most %d fit into one file", ErrRange, len(set.ranges), MaxSliceRanges)}
	}
	head := append([]byte(sliceMagic), 0)
	if last && !set.HasLast() {
		head[len(sliceMagic)] = flagLast
	}
	head = binary.AppendUvarint(head, uint64(len(set.ranges)))
	end := int64(0)
	for _, r := range set.ranges {
		head = binary.AppendUvarint(head, uint64(r.Start-end))
		head = binary.AppendUvarint(head, uint64(r.End-r.Start-1))
		end = r.End
	}
	if last {
		set = set.WithLast()
	}
	return write(w, t, data, set, lps1, head)
}

// SliceReader verifies a detached slice file while it reads it.
type SliceReader struct {
	r     *bufio.Reader
	body  *BodyReader
	asked LeafSet
	end   int64 // of the bytes asked for
	err   error // final
}

// NewSliceReader reads the head of a detached lps1 slice file and returns a
// reader that verifies the rest under root. What the head says is a claim until
// the bytes are verified. A head that is not canonical, or whose ranges reach
// past the length that the body states, is ErrMalformed.
func NewSliceReader(r io.Reader, root Root) (*SliceReader, error) {
	in := bufio.NewReader(r)
	var magic [len(sliceMagic) + 1]byte
	if _, err := io.ReadFull(in, magic[:]); err != nil {
		return nil, readError(err)
	}
	flags := magic[len(sliceMagic)]
	if string(magic[:len(sliceMagic)]) != sliceMagic || flags&^flagLast != 0 {
		return nil, malformed("it does not begin with %q and flags of this version", sliceMagic)
	}
	ranges, err := readRanges(in)
	if err != nil {
		return nil, err
	}
	size, err := readSize(in)
	if err != nil {
		return nil, err
	}
	asked, err := LeafRanges(size, ranges)
	if err != nil {
		return nil, err
	}
	set := asked
	if flags&flagLast != 0 {
		if set.HasLast() {
			return nil, malformed("its flags add the last leaf, which its ranges contain")
		}
		set = set.WithLast()
	}
	return newSliceReader(in, root, asked, set, lps1), nil
}

// newSliceReader returns a reader of a body whose length is already read.
func newSliceReader(in *bufio.Reader, root Root, asked, set LeafSet, s shape) *SliceReader {
	b := newBodyReader(in, root, set, s)
	b.limit -= headerSize
	b.push()
	return &SliceReader{r: in, body: b, asked: asked, end: asked.offset(asked.ranges[len(asked.ranges)-1].End)}
}

// Next returns the next verified bytes, as [BodyReader.Next] does. Those of a
// last leaf that was added to prove the size are verified but not returned.
// io.EOF says that the whole file was verified and nothing follows: bytes after
// the body are ErrMalformed.
func (s *SliceReader) Next() (offset int64, p []byte, err error) {
	for s.err == nil {
		offset, p, s.err = s.body.Next()
		if s.err == io.EOF {
			s.err = s.finish()
		}
		if s.err == nil && offset < s.end {
			return offset, p[:min(int64(len(p)), s.end-offset)], nil
		}
	}
	return 0, nil, s.err
}

// finish returns io.EOF if the file ends here.
func (s *SliceReader) finish() error {
	switch _, err := s.r.ReadByte(); err {
	case io.EOF:
		return io.EOF
	case nil:
		return malformed("bytes follow its end")
	default:
		return readError(err)
	}
}

// Size returns the size of the blob in bytes that the file claims; whether it is
// proven, [SliceReader.SizeProven] says.
func (s *SliceReader) Size() int64 { return s.asked.size }

// SizeProven reports whether the size is proven: true once the last leaf was
// verified, so for a file that has it at the latest when Next returned io.EOF.
func (s *SliceReader) SizeProven() bool { return s.body.proven }

// Ranges returns the leaves that were asked for when the file was made, in
// order. A last leaf that was added to prove the size is not among them.
func (s *SliceReader) Ranges() []Range { return s.asked.Ranges() }

// readRanges reads the number of ranges and the ranges. Memory grows with what
// was read, not with what is announced.
func readRanges(in *bufio.Reader) ([]Range, error) {
	n, err := readUvarint(in, MaxSliceRanges)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, malformed("it has no range")
	}
	var ranges []Range
	end := int64(0)
	for i := range n {
		gap, err := readUvarint(in, maxLeaves)
		if err != nil {
			return nil, err
		}
		length, err := readUvarint(in, maxLeaves)
		if err != nil {
			return nil, err
		}
		start := end + gap
		if gap == 0 && i > 0 || length >= maxLeaves-start {
			return nil, malformed("range %d touches the one before or ends past every leaf", i)
		}
		end = start + length + 1
		ranges = append(ranges, Range{start, end})
	}
	return ranges, nil
}

// maxLeaves is the number of leaves of the largest blob that a length can state.
const maxLeaves = (math.MaxInt64-1)/LeafSize + 1

// readUvarint reads a minimal varint of at most limit.
func readUvarint(in *bufio.Reader, limit int64) (int64, error) {
	var v uint64
	for shift := 0; shift < 63; shift += 7 {
		c, err := in.ReadByte()
		if err != nil {
			return 0, readError(err)
		}
		v |= uint64(c&0x7f) << shift
		if c >= 0x80 {
			continue
		}
		if c == 0 && shift > 0 || v > uint64(limit) {
			break
		}
		return int64(v), nil
	}
	return 0, malformed("a number is too large or not in its shortest form")
}

func readSize(in *bufio.Reader) (int64, error) {
	var p [headerSize]byte
	if _, err := io.ReadFull(in, p[:]); err != nil {
		return 0, readError(err)
	}
	return parseSize(p[:])
}

func malformed(format string, args ...any) error {
	return &Error{"read proof", -1, fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))}
}
