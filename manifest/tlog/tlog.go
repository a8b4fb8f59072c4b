// Package tlog says when a statement was committed, and lets a stranger check
// that it was never taken back.
//
// A store appends a [Leaf] for everything that it publishes to a log: a Merkle
// tree of RFC 6962, which only grows. Now and then the log signs how long it is
// and what its root is, and at what time: a [Checkpoint], in the text form of
// C2SP tlog-checkpoint. A [Proof] (C2SP tlog-proof) shows that a leaf is in the
// tree of a checkpoint, [Consistent] that a tree is the beginning of another.
// Witnesses add their own signatures and times ([Witness], C2SP tlog-cosignature).
//
// # What a proof says, and what it does not
//
// That the leaf is in the tree follows from the hashes. That this tree is the
// log's, and when it was so, is the word of the log's key, and of the witnesses
// that a policy names: [Commit] says whose. A log whose key is in bad hands can
// show two readers two trees. A reader notices when it keeps the highest
// checkpoint that it has seen ([Memory]) and asks for consistency, or when it
// asks for witnesses.
//
// The tree's arithmetic is that of golang.org/x/mod/sumdb/tlog. All that enters
// here is untrusted: [ParseLeaf], [ParseCheckpoint], [ParseProof], [ParseRequest],
// [ParseMemory] and [ParseEntries] bound their input and accept one spelling.
package tlog

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrMalformed: the text is not in its format, or not in its one spelling.
	ErrMalformed = errors.New("malformed")
	// ErrTooLarge: the input exceeds the limit of its format.
	ErrTooLarge = errors.New("too large")
	// ErrSignature: a signature by a known key does not verify.
	ErrSignature = errors.New("signature does not verify")
	// ErrUnsigned: no signature is by the key.
	ErrUnsigned = errors.New("no signature by its key")
	// ErrQuorum: fewer witnesses cosigned than the policy asks for.
	ErrQuorum = errors.New("too few witnesses")
	// ErrUnknownLog: nobody here vouches for this log.
	ErrUnknownLog = errors.New("unknown log")
	// ErrInclusion: the leaf is not where the proof says.
	ErrInclusion = errors.New("the leaf is not in the tree of this checkpoint")
	// ErrConsistency: it is not shown that one tree is the beginning of the other.
	ErrConsistency = errors.New("the consistency of two checkpoints is not shown")
	// ErrFork: two trees of one log of which neither is the beginning of the other.
	ErrFork = errors.New("the log has two histories")
	// ErrRollback: a log is shorter than it was.
	ErrRollback = errors.New("the log is shorter than it was")
	// ErrOrigin: a checkpoint of another log.
	ErrOrigin = errors.New("a checkpoint of another log")
	// ErrStale: a request to cosign that begins at another size than the witness is at.
	ErrStale = errors.New("the witness is at another size")
)

// Error says what failed and where. Match the reason with [errors.Is].
type Error struct {
	Op  string // the operation, as in "parse checkpoint"
	At  string // "line 3", an origin, or empty: where in the input
	Err error  // the reason, never nil
}

func (e *Error) Error() string {
	if e.At == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.At, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hash is a node of the tree: SHA-256.
type Hash = tlog.Hash

// MaxSize is the largest tree: places of hashes in storage are below 2^63.
const MaxSize = 1 << 60

// maxPath is the longest proof: a tree of [MaxSize] has as many levels, and a
// proof of consistency may need a hash more.
const maxPath = 63

// decimal reads a number in its one spelling.
func decimal(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > MaxSize || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: %s is not a number up to 2^60 in its one spelling", ErrMalformed, quote(s))
	}
	return n, nil
}

// decodeBase64 reads standard base64 with padding in its one spelling.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || base64.StdEncoding.EncodeToString(b) != s {
		return nil, fmt.Errorf("%w: %s is not standard base64 in its one spelling", ErrMalformed, quote(s))
	}
	return b, nil
}

func decodeHash(s string) (h Hash, err error) {
	b, err := decodeBase64(s)
	if err == nil && len(b) != len(h) {
		err = fmt.Errorf("%w: a hash of %d bytes, not %d", ErrMalformed, len(b), len(h))
	}
	if err != nil {
		return Hash{}, err
	}
	return Hash(b), nil
}

// hashLines reads a hash a line.
func hashLines(lines []string) ([]Hash, error) {
	if len(lines) > maxPath {
		return nil, fmt.Errorf("%w: %d hashes, at most %d", ErrTooLarge, len(lines), maxPath)
	}
	hashes := make([]Hash, len(lines))
	for i, line := range lines {
		h, err := decodeHash(line)
		if err != nil {
			return nil, err
		}
		hashes[i] = h
	}
	return hashes, nil
}

func writeHashes(b *strings.Builder, hashes []Hash) {
	for _, h := range hashes {
		b.WriteString(h.String())
		b.WriteByte('\n')
	}
}

// quote shows a part of the input in an error.
func quote(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strconv.Quote(s)
}

// Growing computes the roots of a tree as its leaves come. The zero Growing is the
// empty tree.
type Growing struct {
	size  int64
	peaks []Hash // the roots of the perfect subtrees, the largest first
}

// Add appends the hash of a leaf.
func (g *Growing) Add(leaf Hash) {
	g.peaks = append(g.peaks, leaf)
	for n := g.size; n&1 == 1; n >>= 1 {
		last := len(g.peaks) - 1
		g.peaks[last-1] = tlog.NodeHash(g.peaks[last-1], g.peaks[last])
		g.peaks = g.peaks[:last]
	}
	g.size++
}

// Size is the number of leaves.
func (g *Growing) Size() int64 { return g.size }

// Root is the root of the tree.
func (g *Growing) Root() Hash {
	if len(g.peaks) == 0 {
		return emptyRoot
	}
	h := g.peaks[len(g.peaks)-1]
	for i := len(g.peaks) - 2; i >= 0; i-- {
		h = tlog.NodeHash(g.peaks[i], h)
	}
	return h
}
