package cas

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"leafproof/merkle"
)

// ErrName says that a text is not an object name as [Name.String] writes it.
var ErrName = errors.New("not an object name")

// Tenant is the folder of one tenant's objects: a digest of its label, so that
// no caller's string ever becomes part of a path.
type Tenant [16]byte

// tenantContext is the derive-key context of [TenantOf].
const tenantContext = "leafproof 2026 cas tenant v1"

// TenantOf is the tenant with this label: the first 16 bytes of
// BLAKE3-derive-key("leafproof 2026 cas tenant v1", label).
func TenantOf(label string) Tenant {
	key := merkle.DeriveKey(tenantContext, []byte(label))
	return Tenant(key[:16])
}

// String is the folder's name: 32 lower-case hex digits.
func (t Tenant) String() string { return hex.EncodeToString(t[:]) }

// Kind is what an object holds.
type Kind uint8

// The kinds of objects. The zero Kind is none.
const (
	KindPack     Kind = iota + 1 // many small blobs; ID = BLAKE3 of the pack's footer
	KindBlob                     // the bytes of one blob; ID = its root
	KindOutboard                 // the sealed outboard of one blob; ID = the blob's root
	KindIndex                    // where the blobs of some packs lie: a cache; ID = BLAKE3 of its list of packs
	KindRecipe                   // which chunks one blob is made of; ID = the blob's root
	KindCache                    // a blob that need not survive a crash, and its outboard; ID = its root
)

var kindNames = map[Kind]string{KindPack: "pack", KindBlob: "blob", KindOutboard: "obao", KindIndex: "index", KindRecipe: "rcpe", KindCache: "cach"}

// String is "pack", "blob", "obao", "index", "rcpe" or "cach".
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Name names one immutable object. Of the objects that differ in Gen alone the
// highest generation counts; a higher one is written when a lower is damaged.
type Name struct {
	Tenant Tenant
	Kind   Kind
	ID     merkle.Root
	Gen    uint32
}

// String is "<tenant>/<kind>/<first byte of ID>/<ID>-<gen>", all numbers in
// lower-case hex of fixed width (gen: 8 digits), so that the order of strings
// is the order of names.
func (n Name) String() string {
	return fmt.Sprintf("%s/%s/%02x/%s-%08x", n.Tenant, n.Kind, n.ID[0], n.ID, n.Gen)
}

// Compare orders names by tenant, kind, ID and generation.
func (n Name) Compare(m Name) int {
	return cmp.Or(
		bytes.Compare(n.Tenant[:], m.Tenant[:]),
		cmp.Compare(n.Kind, m.Kind),
		bytes.Compare(n.ID[:], m.ID[:]),
		cmp.Compare(n.Gen, m.Gen),
	)
}

// ParseName reads what [Name.String] writes and nothing else; any other text
// is ErrName.
func ParseName(s string) (Name, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || len(parts[0]) != 2*len(Tenant{}) || len(parts[3]) != 64+1+8 {
		return Name{}, fmt.Errorf("%w: %q", ErrName, s)
	}
	var n Name
	for kind, text := range kindNames {
		if text == parts[1] {
			n.Kind = kind
		}
	}
	_, errTenant := hex.Decode(n.Tenant[:], []byte(parts[0]))
	_, errID := hex.Decode(n.ID[:], []byte(parts[3][:64]))
	gen, errGen := strconv.ParseUint(parts[3][65:], 16, 32)
	n.Gen = uint32(gen)
	// Comparing with the one spelling also refuses upper case, signs, an
	// unknown kind and a fan-out folder that does not fit the ID.
	if n.Kind == 0 || errTenant != nil || errID != nil || errGen != nil || n.String() != s {
		return Name{}, fmt.Errorf("%w: %q", ErrName, s)
	}
	return n, nil
}
