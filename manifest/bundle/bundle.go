// Package bundle builds and verifies .proof files: one self-contained file that
// carries a signed manifest, a claim about the artifact's bytes, and the proof of
// the claim. It is the one place where manifest and selector meet.
//
// # What a bundle proves, and what it does not
//
// [Verify] needs no network, no store and no other part of the artifact. It
// proves that the claimed bytes stand at the claimed place of the blob whose
// root the manifest names. That the manifest is right about the artifact (its
// capture, its times, where its records begin) is the word of whoever signed
// it, and counts only as far as the verifier's own policy lets that key speak.
// Whether the reader was allowed to have the bytes cannot be judged offline.
//
// Claims are signed by nobody: a bundle whose claim was altered may truly prove
// the altered claim. So the verdict always names the claim that was checked, and
// a caller who expects a certain one says so ([Options.Expect]).
//
// # Layout
//
//	leafproof bundle v1 <BLAKE3 of all that follows, 64 hex>\n
//	<header: canonical JSON, one line>\n
//	<the sections of the claims, in order, to the last byte of the file>
//
// The digest in the first line is against accidents, not attackers. docs/FORMAT.md
// has the schema of the header.
package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"leafproof/manifest"
	"leafproof/merkle"
)

// MaxHeader is the largest header, in bytes: a 1 MiB payload in base64, its
// signatures, and some hundred thousand ranges.
const MaxHeader = 4 << 20

const (
	magic     = "leafproof bundle v1 "
	line1Size = len(magic) + 2*len(merkle.Root{}) + 1
)

// The errors that callers tell apart, with [errors.Is]. A claim that does not
// hold is no error but a MISMATCH in the verdict.
var (
	// ErrMalformed is a file that is not a bundle: another spelling, a missing
	// or left-over byte, a digest in line 1 that does not match.
	ErrMalformed = errors.New("malformed bundle")
	// ErrLater is a statement in [Options].Later that is none of those which belong
	// there.
	ErrLater = errors.New("not a later statement")
	// ErrClaim is a claim that cannot be built for this artifact.
	ErrClaim = errors.New("cannot prove this")
)

// An Error says what is wrong with a bundle, and where.
type Error struct {
	At  string // "line 1", "header", or a claim's place as in "claims/0/proof"
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.At, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func malformed(at, format string, args ...any) error {
	return &Error{At: at, Err: fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))}
}

// The kinds of claim.
const (
	KindBytes   = "bytes"
	KindRecords = "records"
	KindPointer = "pointer"
	KindQuery   = "query"
)

// A Claim states what its sections prove.
type Claim struct {
	Kind string `json:"kind"`
	// Pointer is where the value of a pointer claim stands (RFC 6901); "" is the
	// whole document.
	Pointer *string `json:"pointer,omitzero"`
	// Ranges are the claimed byte ranges of a bytes claim: half open, ascending,
	// inside the blob. An empty one, [a,a), proves only the leaf around a. A
	// pointer claim has one that is not empty: the value's bytes.
	Ranges [][2]int64 `json:"ranges,omitempty"`
	// Range is the claimed records of a records claim: half open, not empty.
	Range *[2]int64 `json:"range,omitempty"`
	// Size is the blob's size in a bytes or pointer claim.
	Size *int64 `json:"size,omitempty"`
	// Query is the normalised query of a query claim, Index the index that proves
	// the answer. Limit is how many rows were wanted, absent for all; Shown, in an
	// answer that is cut by it, how many candidates are shown, the last of which is
	// the last row. Count, true or absent: only how many records match.
	Query any         `json:"query,omitempty"`
	Index *ClaimIndex `json:"index,omitzero"`
	Limit *int64      `json:"limit,omitzero"`
	Shown *int64      `json:"shown,omitzero"`
	Count *bool       `json:"count,omitzero"`
	// Sections are the parts of the file that prove the claim.
	Sections Sections `json:"sections"`

	text string // of a query that was read, for people
}

// Sections name a claim's parts, which stand in the file in this order.
type Sections struct {
	// Map is a proof body over the record map: its header and the pages that
	// hold the claimed records.
	Map *Section `json:"map,omitempty"`
	// Proof is a proof body over the artifact's blob, of what the claim needs.
	Proof *Section `json:"proof,omitempty"`
	// Document is a proof body over all of the artifact's blob, in a pointer claim
	// that has no Proof: whoever has the whole document can follow the pointer.
	Document *Section `json:"document,omitempty"`
	// Header, Pages and Undetermined are proof bodies over the index of a query
	// claim: its first leaf, the pages around the keys asked for, and those of its
	// tail that are not among them. They stand in front of the Map; Records, behind
	// it, is one over the artifact's blob, of the candidates.
	Header       *Section `json:"header,omitempty"`
	Pages        *Section `json:"pages,omitempty"`
	Undetermined *Section `json:"undetermined,omitempty"`
	Records      *Section `json:"records,omitempty"`
}

// A Section is one proof body in the file.
type Section struct {
	// Length is in bytes.
	Length int64 `json:"length"`
	// Leaves are the leaves the body holds, where they do not follow from the claim.
	Leaves [][2]int64 `json:"leaves,omitempty"`
}

// header is line 2. It lists exactly one claim in this version: facts of several
// would have to be told apart in the verdict. A proof of commitment (C2SP
// tlog-proof), a receipt, or a statement of an index that was added later, has no
// member where it is absent.
type header struct {
	Claims   []Claim              `json:"claims"`
	Commit   *string              `json:"commit,omitzero"`
	Index    *manifest.Envelope   `json:"index,omitzero"`
	Manifest manifest.Envelope    `json:"manifest"`
	Receipt  *manifest.Envelope   `json:"receipt,omitzero"`
	Ref      manifest.ArtifactRef `json:"ref"`
	SSH      string               `json:"ssh"`
}

// String says the claim as a person would, as in "bytes 1000:2000". A pointer in
// it is quoted as in Go, so that its end is seen, and [manifest.Printable].
func (c Claim) String() string {
	switch {
	case c.Kind == KindRecords && c.Range != nil:
		return fmt.Sprintf("records %d:%d", c.Range[0], c.Range[1])
	case c.Kind == KindPointer && c.Pointer != nil:
		quoted := manifest.Printable(strconv.Quote(*c.Pointer))
		if !strings.HasSuffix(quoted, `"`) { // it was cut
			quoted += `"`
		}
		s := "pointer " + quoted
		if len(c.Ranges) == 1 {
			s += fmt.Sprintf(" at bytes %d:%d", c.Ranges[0][0], c.Ranges[0][1])
		}
		return s
	case c.Kind == KindQuery:
		return c.queryText()
	case c.Kind == KindBytes:
		s := "bytes"
		for i, r := range c.Ranges {
			if i > 0 {
				s += ","
			}
			s += fmt.Sprintf(" %d:%d", r[0], r[1])
			if i == 7 && len(c.Ranges) > 8 {
				return fmt.Sprintf("%s, and %d more ranges", s, len(c.Ranges)-8)
			}
		}
		return s
	}
	return "nothing"
}

// Equal reports whether two claims state the same thing, whatever their sections.
func (c Claim) Equal(d Claim) bool {
	return c.Kind == d.Kind && slices.Equal(c.Ranges, d.Ranges) && same(c.Range, d.Range) && same(c.Pointer, d.Pointer) &&
		bytes.Equal(c.normalisedQuery(), d.normalisedQuery()) && same(c.Limit, d.Limit) && same(c.Count, d.Count)
}

// normalisedQuery is the claim's query in its one spelling; nil where it has none.
func (c Claim) normalisedQuery() []byte {
	if c.Query == nil {
		return nil
	}
	text, err := manifest.Canonical(c.Query)
	if err != nil {
		return nil
	}
	return text
}

// answers reports whether the claim is what was asked for. Who asks for a pointer
// does not know where its value stands.
func (c Claim) answers(asked Claim) bool {
	if asked.Kind == KindPointer && asked.Ranges == nil {
		asked.Ranges = c.Ranges
	}
	return c.Equal(asked)
}

// same reports whether two optional values are the same one, or both absent.
func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// BytesClaim is the claim that r are bytes of the artifact.
func BytesClaim(ranges ...merkle.Range) Claim {
	c := Claim{Kind: KindBytes}
	for _, r := range ranges {
		c.Ranges = append(c.Ranges, [2]int64{r.Start, r.End})
	}
	return c
}

// RecordsClaim is the claim that records [a, b) of the artifact are these.
func RecordsClaim(a, b int64) Claim {
	return Claim{Kind: KindRecords, Range: &[2]int64{a, b}}
}

// PointerClaim is the claim that a value stands at a JSON Pointer.
func PointerClaim(pointer string) Claim {
	return Claim{Kind: KindPointer, Pointer: &pointer}
}
