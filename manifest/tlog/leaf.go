package tlog

import (
	"encoding/hex"
	"fmt"
	"strings"

	"leafproof/manifest"
	"leafproof/merkle"

	"golang.org/x/mod/sumdb/tlog"
)

// The kinds of leaves that are no statements.
const (
	// KindPolicy is a version of the store's trust policy: its text.
	KindPolicy = "policy"
	// KindPrevious is the first leaf of a log that goes on for one which was lost:
	// the last checkpoint that is known of that.
	KindPrevious = "previous-log"
)

// Leaf is one entry of a log: what was published, without what it says. A payload
// that holds a nonce cannot be guessed from its digest.
type Leaf struct {
	Kind   string      // as in "manifest", see [KindOf]
	Digest merkle.Root // BLAKE3 of the payload: the bytes that are signed
}

const (
	leafHead = "leafproof leaf v1\n"
	maxKind  = 32
)

// LeafOf is the leaf of a payload.
func LeafOf(kind string, payload []byte) Leaf { return Leaf{kind, merkle.Sum(payload)} }

// KindOf is the kind of the leaf of a statement: the last word of its
// predicateType, without the version, as in "manifest"; "" where the log takes no
// such statements. Receipts and admissions are not published, so they have none.
func KindOf(predicateType string) string {
	switch predicateType {
	case manifest.PredicateManifest, manifest.PredicateIndex, manifest.PredicateSupersede,
		manifest.PredicateTombstone, manifest.PredicateDeletion, manifest.PredicateAudit:
		kind := strings.TrimSuffix(predicateType, "/v1")
		return kind[strings.LastIndexByte(kind, ':')+1:]
	}
	return ""
}

// Data is what the log hashes: three lines.
func (l Leaf) Data() []byte {
	return []byte(leafHead + l.Kind + "\n" + l.Digest.String() + "\n")
}

// Hash is the leaf's hash in the tree: SHA-256 of a zero byte and the data.
func (l Leaf) Hash() Hash { return tlog.RecordHash(l.Data()) }

// ParseLeaf reads what [Leaf.Data] writes and nothing else.
func ParseLeaf(data []byte) (Leaf, error) {
	fail := func(why string) (Leaf, error) {
		return Leaf{}, &Error{Op: "parse leaf", Err: fmt.Errorf("%w: %s", ErrMalformed, why)}
	}
	if len(data) > len(leafHead)+maxKind+1+2*len(merkle.Root{})+1 {
		return fail("too long")
	}
	rest, ok := strings.CutPrefix(string(data), leafHead)
	if !ok {
		return fail("the first line is not leafproof leaf v1")
	}
	kind, digest, _ := strings.Cut(rest, "\n")
	b, err := hex.DecodeString(strings.TrimSuffix(digest, "\n"))
	if err != nil || len(b) != len(merkle.Root{}) {
		return fail("no digest of 64 hex digits")
	}
	l := Leaf{kind, merkle.Root(b)}
	if !isKind(kind) || string(l.Data()) != string(data) {
		return fail("not in its one spelling")
	}
	return l, nil
}

// isKind reports whether s may be a kind: lower-case letters and hyphens.
func isKind(s string) bool {
	if s == "" || len(s) > maxKind || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && s[i] != '-' {
			return false
		}
	}
	return true
}
