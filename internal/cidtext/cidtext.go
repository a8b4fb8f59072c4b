// Package cidtext writes a root as a CID and reads it back: the spelling of a
// root that IPFS, iroh and their tools use.
//
// Of the many CIDs there are, exactly one kind names a root: version 1, codec
// raw, hash function blake3 (0x1e), a digest of exactly 32 bytes. Every other
// kind is refused by name. In particular a digest of 31 or 33 bytes is: a
// truncated one is a weaker promise, and a longer one would have to be cut.
//
// A root has one spelling as a CID, base32 in lower case (bafkr4i…), so that
// two texts are equal when their roots are. The same CID in another base
// (base58, base36, base16, upper case) is refused with the accepted spelling
// in the message, for the user to copy.
package cidtext

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"leafproof/merkle"
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrSyntax says that the text is neither a hex root nor a CID.
	ErrSyntax = errors.New("neither a hex root nor a CID")
	// ErrKind says that the text is a CID, but not of the kind that names a
	// root, or not in the one spelling of it.
	ErrKind = errors.New("not a CID of a root")
)

// Error says what is wrong with a text that should have named a root.
type Error struct {
	Text   string // the text, cut to a length fit for a message
	Reason string // what is wrong with it
	Err    error  // ErrSyntax or ErrKind
}

func (e *Error) Error() string { return strconv.Quote(e.Text) + ": " + e.Reason }
func (e *Error) Unwrap() error { return e.Err }

// maxText bounds what is looked at: the longest text that names a root is
// shorter in every base.
const maxText = 512

// Format returns the CID of a root, as in bafkr4ifpckrq….
func Format(root merkle.Root) string {
	hash, err := multihash.Encode(root[:], multihash.BLAKE3)
	if err != nil {
		// It fails only for an unknown hash function.
		panic("cidtext: " + err.Error())
	}
	return cid.NewCidV1(cid.Raw, hash).String()
}

// Parse reads a root from its 64 hex digits in lower case or from its CID. It
// accepts exactly what [merkle.Root.String] and [Format] write.
func Parse(s string) (merkle.Root, error) {
	if root, err := merkle.ParseRoot(s); err == nil {
		return root, nil
	}
	if s == "" || len(s) > maxText {
		return syntax(s, fmt.Sprintf("%v: it has %d characters", ErrSyntax, len(s)))
	}
	c, err := cid.Decode(s)
	if err != nil && isHex(s) {
		return syntax(s, fmt.Sprintf("a hex root has exactly 64 digits, in lower case; these are %d", len(s)))
	}
	if err != nil {
		return syntax(s, fmt.Sprintf("%v: %v", ErrSyntax, reason(err)))
	}
	if c.Version() == 0 {
		return kind(s, "a CIDv0 stands for a sha2-256 digest of a dag-pb node, which is no root")
	}
	hash, err := multihash.Decode(c.Hash())
	if err != nil {
		return syntax(s, fmt.Sprintf("%v: %v", ErrSyntax, reason(err)))
	}
	switch {
	case hash.Code != multihash.BLAKE3:
		return kind(s, fmt.Sprintf("its hash function is %s; a root's is blake3", hashName(hash.Code)))
	case len(hash.Digest) != len(merkle.Root{}):
		return kind(s, fmt.Sprintf("its blake3 digest has %d bytes; a root has %d", len(hash.Digest), len(merkle.Root{})))
	case c.Type() != cid.Raw:
		return kind(s, fmt.Sprintf("its codec is %s; a root's is raw", codecName(c.Type())))
	}
	root := merkle.Root(hash.Digest)
	if want := Format(root); s != want {
		return kind(s, "a CID is spelled in base32 without padding here: write "+want)
	}
	return root, nil
}

func syntax(s, why string) (merkle.Root, error) { return fail(s, why, ErrSyntax) }
func kind(s, why string) (merkle.Root, error)   { return fail(s, why, ErrKind) }

func fail(s, why string, err error) (merkle.Root, error) {
	const show = 80
	if len(s) > show {
		s = s[:show] + "…"
	}
	return merkle.Root{}, &Error{Text: s, Reason: why, Err: err}
}

// reason takes off the prefix that go-cid puts before every error.
func reason(err error) error {
	if invalid, ok := errors.AsType[cid.ErrInvalidCid](err); ok && invalid.Err != nil {
		return invalid.Err
	}
	return err
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}

func hashName(code uint64) string {
	if name, ok := multihash.Codes[code]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", code)
}

func codecName(code uint64) string {
	switch code {
	case cid.DagProtobuf:
		return "dag-pb"
	case cid.DagCBOR:
		return "dag-cbor"
	case cid.DagJSON:
		return "dag-json"
	case cid.Libp2pKey:
		return "libp2p-key"
	case 0x0200:
		return "json"
	}
	return fmt.Sprintf("0x%x", code)
}
