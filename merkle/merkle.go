// Package merkle turns bytes into a BLAKE3 root and proves which bytes a root
// covers.
//
// A [Root] is the plain BLAKE3 hash of a blob: the value that b3sum prints.
// BLAKE3 is a Merkle tree inside, so nobody has to trust the store that an
// excerpt came from: a [BodyReader] or a [SliceReader] checks the excerpt
// against a Root with no network, no key and no other part of the blob.
//
// # What a proof says, and what it does not
//
// A proof says that these bytes stand at this offset of the blob that has this
// root. It says how long the blob is only when the excerpt contains the blob's
// last leaf; until then a length is a claim, and [SliceReader.SizeProven] says
// so. It never says who made the blob, what it means, or whether a reader may
// see it.
//
// # The tree
//
// A leaf is 1 KiB, BLAKE3's own chunk and the finest unit that a proof cuts. A
// group is 16 leaves. A store keeps 32 bytes a group, about 0.4% of the data,
// in an outboard that [Builder] or [BuildAt] writes and a [Tree] reads; what
// lies below a group is hashed again when a proof needs it.
//
// The outboard of a blob that grows is a log: a [Log] has the root of everything
// that the blob has been, and [WritePrefix] proves that it only grew. A [Part] is
// a subtree that one of several machines hashed. A receiver of excerpts collects
// the outboard with [BodyReader.KeepNodes] and remembers what it has in a
// [Progress].
//
// # Which code runs where, and how fast
//
// Three codes compute BLAKE3. zeebo/blake3 hashes whole buffers: [Sum],
// [DeriveKey], [Keyed] and what [BuildAt] gets of at most one group. It hides the
// values inside the tree, which everything else needs. On amd64 with AVX-512 or
// AVX2 those come from an assembly of this package, which compresses 16 or 8 leaves
// or parents at once (wide_amd64.s); elsewhere, and for a leaf or a parent alone,
// from lukechampine.com/blake3/guts. guts has vector code too, but it gives the
// value of a whole group only, so that a proof that cuts one hashes it again and
// again, and takes twice as long: 3.3 GB/s with AVX-512 and 1.8 with AVX2 where
// ours does 7.0 and 4.0. On arm64, and with the build tag purego on amd64, where
// guts still runs its own, there is nothing but those two modules; both are plain
// Go on arm64, seven to thirteen times slower.
//
// One core of an Intel Xeon (2.8 GHz), the other code forced, the fastest of many
// runs, in GB/s or microseconds:
//
//	                                  AVX-512    AVX2    plain Go
//	Sum of 1 MiB (zeebo)              3.7        3.7     0.53
//	nodes of 256 KiB in the cache     7.0        4.0     0.55
//	verify an excerpt of 1 MiB        4.6        3.3     0.53
//	verify an excerpt of 1 KiB        3.3 µs     3.4 µs  4.8 µs
//	make the proof of 1 KiB           9 µs       10 µs   36 µs
//
// The excerpts are of 64 MiB in memory. Files are read into a small buffer and
// never mapped: a mapped file that is truncated kills the process.
//
// The package is pure: it sees bytes through io interfaces and holds no file,
// clock or global state.
package merkle

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
)

const (
	// LeafSize is the size in bytes of every leaf but the last, which has 1 to
	// LeafSize bytes. The empty blob has one empty leaf.
	LeafSize = 1024
	// GroupSize is the size in bytes of every group but the last.
	GroupSize = groupLeaves * LeafSize

	groupLeaves = 16
	nodeSize    = 32 // a chaining value in an outboard
	parentSize  = 2 * nodeSize
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrSyntax says that a text is not the one spelling of a root.
	ErrSyntax = errors.New("not a root in 64 lower-case hexadecimal digits")
	// ErrMismatch says that bytes, tree nodes or a stated length do not belong
	// to the root: the verification failed.
	ErrMismatch = errors.New("does not match the root")
	// ErrMalformed says that bytes are no well-formed encoding, whatever the
	// root: truncated, trailing, not canonical.
	ErrMalformed = errors.New("malformed proof")
	// ErrRange says that a caller asked for an impossible range.
	ErrRange = errors.New("bad range")
	// ErrChanged says that an input turned out shorter or longer than its
	// stated size: it changed while it was read.
	ErrChanged = errors.New("input changed while it was read")
)

// Error says which operation failed, where and why. Match the reason with
// [errors.Is]; an error of the caller's own reader or writer is passed on
// inside it.
type Error struct {
	Op     string // the operation, as in "verify"
	Offset int64  // the byte of the blob, or of the encoding, where it failed; -1 where there is none
	Err    error  // the reason, never nil
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("merkle: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("merkle: %s at byte %d: %v", e.Op, e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Root is the BLAKE3 hash of a blob's bytes. The zero Root is no blob's;
// [Root.IsZero] reports it. Roots are comparable, so they are map keys.
type Root [32]byte

// ParseRoot reads the text form that [Root.String] writes. It accepts nothing
// else, so that one root has one spelling.
func ParseRoot(s string) (Root, error) {
	var r Root
	if len(s) == 2*len(r) {
		for i := range len(s) {
			if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return Root{}, &Error{"parse root", int64(i), ErrSyntax}
			}
		}
		if _, err := hex.Decode(r[:], []byte(s)); err == nil {
			return r, nil
		}
	}
	return Root{}, &Error{"parse root", -1, ErrSyntax}
}

// String returns the root in 64 lower-case hexadecimal digits, as b3sum does.
func (r Root) String() string { return hex.EncodeToString(r[:]) }

// IsZero reports whether r is the zero Root, which stands for none.
func (r Root) IsZero() bool { return r == Root{} }

// Sum returns the root of p.
func Sum(p []byte) Root { return blake3.Sum256(p) }

// DeriveKey is BLAKE3's key derivation: 32 bytes that depend on p and on the
// context, a hard-coded string that names one purpose. It makes ids that no
// other use of the hash can produce.
func DeriveKey(context string, p []byte) [32]byte {
	pool, ok := derivers.Load(context)
	if !ok {
		// There are as many contexts as the program has constants for them. Should
		// that ever not be so, no more memory is taken.
		if derives.Add(1) > maxDerivers {
			var out [32]byte
			blake3.DeriveKey(context, p, out[:])
			return out
		}
		context = strings.Clone(context)
		pool, _ = derivers.LoadOrStore(context, &sync.Pool{New: func() any { return blake3.NewDeriveKey(context) }})
	}
	h := pool.(*sync.Pool).Get().(*blake3.Hasher)
	defer pool.(*sync.Pool).Put(h)
	h.Reset()
	_, _ = h.Write(p) // it never fails
	var out [32]byte
	h.Sum(out[:0])
	return out
}

// derivers has hashers by their context: each takes 10 KB, and the hash of the
// context to begin with.
var (
	derivers sync.Map // string → *sync.Pool of *blake3.Hasher
	derives  atomic.Int64
)

const maxDerivers = 256

// Keyed is BLAKE3 of p under a secret key: what `b3sum --keyed` prints. Without
// the key nobody can tell whether a guess at p is right.
func Keyed(key [32]byte, p []byte) [32]byte {
	h, err := blake3.NewKeyed(key[:])
	if err != nil {
		panic(err) // a key of 32 bytes is one
	}
	_, _ = h.Write(p) // it never fails
	return [32]byte(h.Sum(nil))
}
