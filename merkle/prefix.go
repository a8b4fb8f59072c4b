package merkle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// prefixMagic begins a prefix proof.
const prefixMagic = "lpx1"

// prefixLeaf returns the leaf of the newer blob that a prefix proof shows: the
// last leaf of the older one, whose bytes, as far as the older one has them,
// begin it. The siblings on the left of the way to it are the same in both trees.
func prefixLeaf(size int64) int64 { return leafCount(size) - 1 }

// WritePrefix writes the proof that the first size bytes of a blob are a blob of
// their own, an older state of the one that has grown: who knows both roots and
// both sizes sees from it that nothing before size was changed. t is the tree of
// the blob as it is now and data are its bytes, of which one group is read. The
// proof has 64 bytes for each level of the tree and at most one leaf of data. A
// size above the blob's is ErrRange; otherwise it fails as [WriteBody] does.
func WritePrefix(w io.Writer, t *Tree, data io.ReaderAt, size int64) error {
	if size < 0 || size > t.size {
		return &Error{"write proof", -1, fmt.Errorf("%w: a prefix of %d bytes of %d", ErrRange, size, t.size)}
	}
	leaf := prefixLeaf(size)
	set, err := LeafRanges(t.size, []Range{{leaf, leaf + 1}})
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint64([]byte(prefixMagic), uint64(size))
	return write(w, t, data, set, lps1, head)
}

// VerifyPrefix reads a prefix proof to its end and checks that the blob with the
// root after and afterSize bytes begins with the oldSize bytes whose root is
// old. It proves oldSize too: no other size of the older blob passes. afterSize
// is the caller's to know, from where it has the root; it is proven only if the
// older blob reaches the last leaf.
//
// A proof of anything else is ErrMismatch, one that is truncated, has another
// form or goes on ErrMalformed, sizes that cannot be ErrRange. It holds 4 KiB
// and reads no more than the proof and one byte.
func VerifyPrefix(r io.Reader, old Root, oldSize int64, after Root, afterSize int64) error {
	if oldSize < 0 || oldSize > afterSize {
		return &Error{"verify prefix", -1, fmt.Errorf("%w: a prefix of %d bytes of %d", ErrRange, oldSize, afterSize)}
	}
	var head [len(prefixMagic) + 8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return readError(err)
	}
	stated := binary.LittleEndian.Uint64(head[len(prefixMagic):])
	if string(head[:len(prefixMagic)]) != prefixMagic || stated > math.MaxInt64 {
		return malformed("it does not begin with %q and a size", prefixMagic)
	}
	if int64(stated) != oldSize {
		return &Error{"verify prefix", -1, fmt.Errorf("the size in the proof, %d, %w: it must be %d", stated, ErrMismatch, oldSize)}
	}
	leaf := prefixLeaf(oldSize)
	set, err := LeafRanges(afterSize, []Range{{leaf, leaf + 1}})
	if err != nil {
		return err
	}
	// What is left of the way down, the largest first.
	var left [54]cv
	n := 0
	body := NewBodyReader(r, after, set)
	body.shown = func(lo, hi int64, l, _ cv) error {
		if lo+split(hi-lo) <= leaf {
			left[n] = l
			n++
		}
		return nil
	}
	_, p, err := body.Next()
	if err != nil && !(err == io.EOF && afterSize == 0) {
		return err
	}
	c := leavesCV(p[:oldSize-leaf*LeafSize], leaf, n == 0)
	for i := n - 1; i >= 0; i-- {
		c = parentCV(&left[i], &c, i == 0)
	}
	if c.root() != old {
		return &Error{"verify prefix", -1, fmt.Errorf("the older blob %w", ErrMismatch)}
	}
	switch _, err := io.ReadFull(r, head[:1]); {
	case err == nil:
		return malformed("bytes follow its end")
	case !errors.Is(err, io.EOF):
		return readError(err)
	}
	return nil
}
