package selector

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// Binding is what a cursor is good for: this reader, this snapshot, this query.
type Binding struct {
	Store, Principal, Tenant, Run string
	ArtifactID, ManifestID        string
	QID, Order                    string
	Indexed                       bool // an index told which records to examine
}

// asked is what a cursor's query tag is over: what was examined so far, with an
// index or without, is not the same.
func (b Binding) asked() []string {
	if b.Indexed {
		return []string{b.QID, b.Order, BasisIndex}
	}
	return []string{b.QID, b.Order}
}

// The layout of a cursor before base64url, integers big-endian:
//
//	0  version, 1            13 record, offset, examined, matched,
//	1  key id tag, 4 bytes      undecidable, bytes: 6 × u64
//	5  expiry, Unix s, i64   61 tags: store, scope, snapshot, query,
//	                            engine, 5 × 8 bytes
//	                        101 MAC, 16 bytes
const (
	cursorVersion = 1
	cursorTags    = 61
	cursorMAC     = 101
	cursorSize    = 117
	tagSize       = 8
)

// SealCursor writes a position as a token that only the holder of key can make
// and that is good for b until expires (to the second). It holds no value, no
// tenant and no digest of the artifact, since it passes through models.
func SealCursor(key [32]byte, keyID string, b Binding, p Position, expires time.Time) string {
	out := make([]byte, 0, cursorSize)
	out = append(out, cursorVersion)
	id := keyTag(keyID)
	out = append(out, id[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(expires.Unix()))
	for _, n := range []int64{p.Record, p.Offset, p.Examined, p.Matched, p.Undecidable, p.Bytes} {
		out = binary.BigEndian.AppendUint64(out, uint64(n))
	}
	for _, t := range b.tags() {
		out = append(out, keyed(key, t.label, t.parts...)[:tagSize]...)
	}
	out = append(out, keyed(key, "mac", string(out))[:cursorSize-cursorMAC]...)
	return base64.RawURLEncoding.EncodeToString(out)
}

// bindingTag is one thing that a cursor is bound to.
type bindingTag struct {
	label string
	parts []string
	err   error
	what  string
}

func (b Binding) tags() []bindingTag {
	return []bindingTag{
		{"store", []string{b.Store}, ErrCursorStore, "it was made by another store"},
		{"scope", []string{b.Principal, b.Tenant, b.Run}, ErrCursorScope, "it was made for another principal, tenant or run"},
		{"snapshot", []string{b.ArtifactID, b.ManifestID}, ErrCursorSnapshot, "it was made for another artifact or manifest"},
		{"query", b.asked(), ErrCursorQuery, "it was made for another query or order"},
		{"engine", []string{EngineVersion}, ErrCursorQuery, "it was made under other query semantics"},
	}
}

// keyed is keyed BLAKE3 over a label and length-prefixed parts.
func keyed(key [32]byte, label string, parts ...string) []byte {
	h, err := blake3.NewKeyed(key[:])
	if err != nil {
		panic(err) // only for a key that is not 32 bytes
	}
	var n [8]byte
	for _, s := range append([]string{"leafproof cursor v1", label}, parts...) {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		_, _ = h.Write(n[:]) // a hash does not fail
		_, _ = h.WriteString(s)
	}
	return h.Sum(nil)
}

func keyTag(keyID string) (t [4]byte) {
	d := merkle.DeriveKey("leafproof 2026 cursor key-id v1", []byte(keyID))
	copy(t[:], d[:])
	return t
}

// CursorKeyedBy reports whether a cursor says that it was sealed under a key
// id, so that a holder of several keys finds the one to open it with. Nothing
// is checked.
func CursorKeyedBy(s, keyID string) bool {
	p, err := decodeCursor(s)
	return err == nil && [4]byte(p[1:5]) == keyTag(keyID)
}

// CursorKeyedByOther reports whether a cursor says that it was sealed under
// another key id than this one: by another store, which alone could tell
// whether it did. It fails with ErrCursorMalformed.
func CursorKeyedByOther(s, keyID string) (bool, error) {
	p, err := decodeCursor(s)
	return err == nil && [4]byte(p[1:5]) != keyTag(keyID), err
}

func decodeCursor(s string) ([]byte, error) {
	if len(s) != base64.RawURLEncoding.EncodedLen(cursorSize) {
		return nil, fail("cursor", -1, ErrCursorMalformed, "%d characters, want %d", len(s), base64.RawURLEncoding.EncodedLen(cursorSize))
	}
	p, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(p) != cursorSize {
		return nil, fail("cursor", -1, ErrCursorMalformed, "not base64url")
	}
	if p[0] != cursorVersion {
		return nil, fail("cursor", 0, ErrCursorMalformed, "version %d", p[0])
	}
	return p, nil
}

// OpenCursor checks a token: its MAC (ErrCursorForged), its expiry
// (ErrCursorExpired), then that it is bound to b (ErrCursorStore,
// ErrCursorScope, ErrCursorSnapshot, ErrCursorQuery, in this order).
func OpenCursor(key [32]byte, b Binding, now time.Time, s string) (Position, error) {
	p, err := decodeCursor(s)
	if err != nil {
		return Position{}, err
	}
	if subtle.ConstantTimeCompare(keyed(key, "mac", string(p[:cursorMAC]))[:cursorSize-cursorMAC], p[cursorMAC:]) != 1 {
		return Position{}, fail("cursor", -1, ErrCursorForged, "")
	}
	if expires := int64(binary.BigEndian.Uint64(p[5:])); now.Unix() >= expires {
		return Position{}, fail("cursor", -1, ErrCursorExpired, "at %s", time.Unix(expires, 0).UTC().Format(time.RFC3339))
	}
	for i, t := range b.tags() {
		at := cursorTags + i*tagSize
		if subtle.ConstantTimeCompare(keyed(key, t.label, t.parts...)[:tagSize], p[at:at+tagSize]) != 1 {
			return Position{}, fail("cursor", -1, t.err, "%s", t.what)
		}
	}
	n := func(i int) int64 { return int64(binary.BigEndian.Uint64(p[13+8*i:])) }
	return Position{Record: n(0), Offset: n(1), Examined: n(2), Matched: n(3), Undecidable: n(4), Bytes: n(5)}, nil
}
