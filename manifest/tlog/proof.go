package tlog

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	proofHead = "c2sp.org/tlog-proof@v1\n"
	// MaxProof bounds the text of a proof, with its checkpoint, in bytes.
	MaxProof = MaxCheckpoint + 64<<10
	maxExtra = 16 << 10
)

// Proof shows that a leaf is in a log: C2SP tlog-proof.
type Proof struct {
	Extra      []byte // opaque and vouched for by nobody; nil: none
	Index      int64  // of the leaf, from 0
	Path       []Hash // from the leaf's sibling to the root's child
	Checkpoint Checkpoint
}

// String writes the proof as [ParseProof] reads it.
func (p Proof) String() string {
	var b strings.Builder
	b.WriteString(proofHead)
	if p.Extra != nil {
		b.WriteString("extra " + base64.StdEncoding.EncodeToString(p.Extra) + "\n")
	}
	b.WriteString("index " + strconv.FormatInt(p.Index, 10) + "\n")
	writeHashes(&b, p.Path)
	b.WriteString("\n" + p.Checkpoint.String())
	return b.String()
}

// ParseProof reads a proof in its one spelling. It checks the form, neither the
// signatures nor what is proven.
func ParseProof(text []byte) (Proof, error) {
	p, err := parseProof(text)
	if err != nil {
		return Proof{}, &Error{Op: "parse proof of commitment", Err: err}
	}
	return p, nil
}

func parseProof(text []byte) (p Proof, err error) {
	if len(text) > MaxProof {
		return p, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxProof)
	}
	rest, ok := strings.CutPrefix(string(text), proofHead)
	head, note, two := strings.Cut(rest, "\n\n")
	if !ok || !two {
		return p, fmt.Errorf("%w: want a first line %s, and a checkpoint after an empty line", ErrMalformed, strings.TrimSpace(proofHead))
	}
	lines := strings.Split(head, "\n")
	if extra, ok := strings.CutPrefix(lines[0], "extra "); ok {
		if p.Extra, err = decodeBase64(extra); err != nil {
			return p, err
		}
		if len(p.Extra) > maxExtra {
			return p, fmt.Errorf("%w: %d bytes of extra data, at most %d", ErrTooLarge, len(p.Extra), maxExtra)
		}
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return p, fmt.Errorf("%w: no index", ErrMalformed)
	}
	index, ok := strings.CutPrefix(lines[0], "index ")
	if !ok {
		return p, fmt.Errorf("%w: %s is no index", ErrMalformed, quote(lines[0]))
	}
	if p.Index, err = decimal(index); err != nil {
		return p, err
	}
	if p.Path, err = hashLines(lines[1:]); err != nil {
		return p, err
	}
	if p.Checkpoint, err = parseCheckpoint([]byte(note)); err != nil {
		return p, err
	}
	return p, nil
}

// Check says whether the leaf stands at the proof's index in the tree of its
// checkpoint. The error wraps [ErrInclusion]. Whose checkpoint it is, is another
// question.
func (p Proof) Check(l Leaf) error {
	c := p.Checkpoint
	if p.Index >= c.Size {
		return fmt.Errorf("%w: index %d of %d", ErrInclusion, p.Index, c.Size)
	}
	if err := tlog.CheckRecord(p.Path, c.Size, c.Root, p.Index, l.Hash()); err != nil {
		return fmt.Errorf("%w: index %d of %d", ErrInclusion, p.Index, c.Size)
	}
	return nil
}

// Consistent says whether the older tree is the beginning of the newer one, by
// the proof of RFC 6962 section 2.1.2. Both are of one log. The error wraps
// [ErrFork] when the trees alone show that neither is, [ErrOrigin], or
// [ErrConsistency]: a proof that fits not may be a wrong one.
func Consistent(older, newer Checkpoint, proof []Hash) error {
	switch {
	case older.Origin != newer.Origin:
		return fmt.Errorf("%w: %s, not %s", ErrOrigin, quote(newer.Origin), quote(older.Origin))
	case older.Size > newer.Size:
		return fmt.Errorf("%w: %d leaves, then %d", ErrConsistency, older.Size, newer.Size)
	case older.Size == newer.Size && older.Root != newer.Root:
		return fmt.Errorf("%w: two roots of %d leaves", ErrFork, older.Size)
	case older.Size == newer.Size || older.Size == 0:
		if len(proof) != 0 {
			return fmt.Errorf("%w: %d hashes where none are needed", ErrConsistency, len(proof))
		}
		if older.Size == 0 && older.Root != emptyRoot {
			return fmt.Errorf("%w: no empty tree has this root", ErrFork)
		}
		return nil
	}
	if err := tlog.CheckTree(proof, newer.Size, newer.Root, older.Size, older.Root); err != nil {
		return fmt.Errorf("%w: %d leaves and %d", ErrConsistency, older.Size, newer.Size)
	}
	return nil
}

// emptyRoot is the root of a tree without leaves: SHA-256 of nothing.
var emptyRoot, _ = tlog.TreeHash(0, nil)
