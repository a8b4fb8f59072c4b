package cidtext_test

import (
	"encoding/base32"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"leafproof/internal/cidtext"
	"leafproof/merkle"
)

// The root of "foo" and its CID; the multihash is the vector of go-multihash's
// own tests (1e20 04e0bb39…).
const (
	fooHex = "04e0bb39f30b1a3feb89f536c93be15055482df748674b00d26e5a75777702e9"
	fooCID = "bafkr4iae4c5tt4yldi76xcpvg3etxykqkvec352im5fqbutolj2xo5yc5e"
)

// slowCID spells a root without any library: version 1, raw, blake3, 32 bytes.
func slowCID(root merkle.Root) string {
	raw := append([]byte{0x01, 0x55, 0x1e, 0x20}, root[:]...)
	enc := base32.StdEncoding.WithPadding(base32.NoPadding)
	return "b" + strings.ToLower(enc.EncodeToString(raw))
}

func TestFormat(t *testing.T) {
	root, err := merkle.ParseRoot(fooHex)
	if err != nil {
		t.Fatal(err)
	}
	if got := cidtext.Format(root); got != fooCID {
		t.Errorf("Format = %s, want %s", got, fooCID)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for i := range root {
			root[i] = byte(rng.Uint32())
		}
		text := cidtext.Format(root)
		if want := slowCID(root); text != want {
			t.Fatalf("Format(%s) = %s, want %s", root, text, want)
		}
		for _, s := range []string{text, root.String()} {
			if got, err := cidtext.Parse(s); err != nil || got != root {
				t.Fatalf("Parse(%s) = %s, %v", s, got, err)
			}
		}
	}
}

// The bases of multibase, by their letters.
var (
	lower  = func(c cid.Cid) (string, error) { return c.StringOfBase('b') }
	upper  = func(c cid.Cid) (string, error) { return c.StringOfBase('B') }
	padded = func(c cid.Cid) (string, error) { return c.StringOfBase('c') }
	base58 = func(c cid.Cid) (string, error) { return c.StringOfBase('z') }
	base36 = func(c cid.Cid) (string, error) { return c.StringOfBase('k') }
	base16 = func(c cid.Cid) (string, error) { return c.StringOfBase('f') }
)

// spell makes a CID in any base, with any codec, hash function and digest
// length.
func spell(t *testing.T, base func(cid.Cid) (string, error), codec, hash uint64, digest []byte) string {
	t.Helper()
	mh, err := multihash.Encode(digest, hash)
	if err != nil {
		t.Fatal(err)
	}
	s, err := base(cid.NewCidV1(codec, mh))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseRefuses(t *testing.T) {
	root, err := merkle.ParseRoot(fooHex)
	if err != nil {
		t.Fatal(err)
	}
	long := append(root[:], 7)
	blake3 := uint64(multihash.BLAKE3)
	// The last character of a CID carries unused bits.
	loose := fooCID[:len(fooCID)-1] + "f"
	for name, test := range map[string]struct {
		in   string
		err  error
		says string
	}{
		"empty":             {"", cidtext.ErrSyntax, "0 characters"},
		"not a root":        {"hello world", cidtext.ErrSyntax, "neither a hex root nor a CID"},
		"upper-case hex":    {strings.ToUpper(fooHex), cidtext.ErrSyntax, "lower case"},
		"hex one short":     {fooHex[1:], cidtext.ErrSyntax, "exactly 64 digits"},
		"hex one long":      {fooHex + "0", cidtext.ErrSyntax, "exactly 64 digits"},
		"prefixed hex":      {"blake3:" + fooHex, cidtext.ErrSyntax, "neither"},
		"huge":              {strings.Repeat("b", 1<<20), cidtext.ErrSyntax, "1048576 characters"},
		"path":              {"/ipfs/" + fooCID, cidtext.ErrSyntax, "neither"},
		"cut CID":           {fooCID[:len(fooCID)-3], cidtext.ErrSyntax, "neither"},
		"CID with a tail":   {fooCID + "aa", cidtext.ErrSyntax, "neither"},
		"space":             {fooCID + " ", cidtext.ErrSyntax, "neither"},
		"CIDv0":             {"QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n", cidtext.ErrKind, "CIDv0"},
		"CIDv0 in base32":   {"bciqohmgeikmpyhautl57z4nvonbgwu5fhjrjs4jgz2aa", cidtext.ErrSyntax, "neither"},
		"sha2-256":          {spell(t, lower, cid.Raw, multihash.SHA2_256, root[:]), cidtext.ErrKind, "sha2-256"},
		"blake2b-256":       {spell(t, lower, cid.Raw, multihash.BLAKE2B_MIN+31, root[:]), cidtext.ErrKind, "blake2b-256"},
		"identity":          {spell(t, lower, cid.Raw, multihash.IDENTITY, root[:]), cidtext.ErrKind, "identity"},
		"31 bytes":          {spell(t, lower, cid.Raw, blake3, root[:31]), cidtext.ErrKind, "31 bytes"},
		"33 bytes":          {spell(t, lower, cid.Raw, blake3, long), cidtext.ErrKind, "33 bytes"},
		"no digest":         {spell(t, lower, cid.Raw, blake3, nil), cidtext.ErrKind, "0 bytes"},
		"dag-pb":            {spell(t, lower, cid.DagProtobuf, blake3, root[:]), cidtext.ErrKind, "dag-pb"},
		"dag-cbor":          {spell(t, lower, cid.DagCBOR, blake3, root[:]), cidtext.ErrKind, "dag-cbor"},
		"unknown codec":     {spell(t, lower, 0x9999, blake3, root[:]), cidtext.ErrKind, "0x9999"},
		"upper-case base32": {spell(t, upper, cid.Raw, blake3, root[:]), cidtext.ErrKind, "write " + fooCID},
		"padded base32":     {spell(t, padded, cid.Raw, blake3, root[:]), cidtext.ErrKind, "write " + fooCID},
		"base58":            {spell(t, base58, cid.Raw, blake3, root[:]), cidtext.ErrKind, "write " + fooCID},
		"base36":            {spell(t, base36, cid.Raw, blake3, root[:]), cidtext.ErrKind, "write " + fooCID},
		"base16":            {spell(t, base16, cid.Raw, blake3, root[:]), cidtext.ErrKind, "write " + fooCID},
		"loose last bits":   {loose, cidtext.ErrKind, "write " + fooCID},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cidtext.Parse(test.in)
			if !errors.Is(err, test.err) {
				t.Fatalf("Parse(%.80q) = %s, %v, want %v", test.in, got, err, test.err)
			}
			if !got.IsZero() {
				t.Errorf("Parse(%.80q) failed but returned %v", test.in, got)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("error = %q, want one that says %q", err, test.says)
			}
			if len(err.Error()) > 400 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// FuzzParse: what parses prints back the same, as hex or as a CID.
func FuzzParse(f *testing.F) {
	f.Add(fooHex)
	f.Add(fooCID)
	f.Add("QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n")
	f.Add("f01551e20" + fooHex)
	f.Fuzz(func(t *testing.T, s string) {
		root, err := cidtext.Parse(s)
		if err == nil && s != root.String() && s != cidtext.Format(root) {
			t.Errorf("Parse(%q) accepted another spelling of %s", s, root)
		}
		if err != nil && !errors.Is(err, cidtext.ErrSyntax) && !errors.Is(err, cidtext.ErrKind) {
			t.Errorf("Parse(%q) = %v, which is neither error", s, err)
		}
	})
}
