package selector

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/zeebo/blake3"
)

// The first bytes of typed keys (lpk1), in the order of values. Behind the
// values stand those that are not determined, in one tail.
const (
	KeyMissing     byte = 0x10
	KeyNull        byte = 0x20
	KeyFalse       byte = 0x30
	KeyTrue        byte = 0x31
	KeyNumber      byte = 0x40
	KeyString      byte = 0x50
	KeyArray       byte = 0x60 // no more than the tag: arrays tie
	KeyObject      byte = 0x70
	KeyRedacted    byte = 0xe0 // the producer removed or masked it
	KeyAmbiguous   byte = 0xe1 // a name on the path stands twice
	KeyUnparseable byte = 0xe2 // the record does not parse, a lone surrogate, or beyond the limits
)

// KeyVersion names the encoding of typed keys in the spec of an index.
const KeyVersion = "lpk1"

// longString is the longest string, in bytes, that a typed key spells out.
const longString = 96

// KeyDetermined reports whether a typed key stands for a value, or for none, and
// not for something that cannot be told.
func KeyDetermined(key []byte) bool { return len(key) > 0 && key[0] < KeyRedacted }

// KeyExact reports whether a typed key belongs to one value only. That of a long
// string begins like those of its neighbours, whose order it does not tell: of
// two such keys compare the values.
func KeyExact(key []byte) bool {
	if len(key) == 0 || key[0] >= KeyArray {
		return false
	}
	if key[0] != KeyString {
		return true
	}
	for i := 1; i+1 < len(key); i++ {
		if key[i] == 0 {
			if i++; key[i] != 0xff {
				return key[i] == 0
			}
		}
	}
	return false
}

// appendStringKey appends the typed key of a string. Where it is cut, its own
// order among strings with the same first 96 bytes is that of their digests.
func appendStringKey(dst, s []byte) []byte {
	dst = append(dst, KeyString)
	if len(s) <= longString {
		return append(appendZeroed(dst, s), 0, 0)
	}
	sum := blake3.Sum256(s)
	return append(append(appendZeroed(dst, s[:longString]), 0, 1), sum[:]...)
}

// appendZeroed appends bytes with 00 written as 00 FF, so that 00 00 ends them.
func appendZeroed(dst, s []byte) []byte {
	for _, c := range s {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, 0xff)
		}
	}
	return dst
}

// appendNumberKey appends the typed key of a number.
func appendNumberKey(dst []byte, d decimal) []byte {
	dst = append(dst, KeyNumber)
	switch d.sign() {
	case 0:
		return append(dst, 0x80)
	case 1:
		dst = append(dst, 0xc0)
	default:
		dst = append(dst, 0x40)
	}
	begin := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.exp)^1<<63)
	for _, c := range d.digits {
		dst = append(dst, c-'0'+1)
	}
	dst = append(dst, 0)
	if d.neg {
		for i := begin; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

// appendKey appends the typed key of a value; long strings in full where exact
// is set, so that the order of keys is the order of values among them too.
func (r *room) appendKey(dst []byte, v *value, exact bool) []byte {
	r.settle(v, &r.a)
	switch v.kind {
	case kindNothing:
		return append(dst, KeyMissing)
	case 'n':
		return append(dst, KeyNull)
	case 'f':
		return append(dst, KeyFalse)
	case 't':
		return append(dst, KeyTrue)
	case '0':
		return appendNumberKey(dst, v.num)
	case '"':
		if exact {
			return append(appendZeroed(append(dst, KeyString), v.text), 0, 0)
		}
		return appendStringKey(dst, v.text)
	case '[':
		return append(dst, KeyArray)
	case '{':
		return append(dst, KeyObject)
	}
	return append(dst, KeyUnparseable)
}

// AppendKey appends the typed key (lpk1) of one JSON value, which need not be
// trusted: what is no value within the limits has the key E2. The zero Limits
// are the [DefaultLimits].
func AppendKey(dst, json []byte, l Limits) []byte {
	full, err := Layout{Format: FormatNDJSON, Limits: l}.normal()
	if err != nil || !utf8.Valid(json) || int64(len(json)) > full.Limits.Record {
		return append(dst, KeyUnparseable)
	}
	var c checker
	i := checkSpace(json, 0)
	if !c.document(json, int(full.Limits.Depth)) {
		return append(dst, KeyUnparseable)
	}
	r := room{limits: full.Limits}
	v := rawValue(json, i)
	return r.appendKey(dst, &v, false)
}

// AppendTextKey appends the typed key (lpk1) of a string, given by its code
// points: a csv field, a line of text, or the literal of a query.
func AppendTextKey(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return append(dst, KeyUnparseable)
	}
	return appendStringKey(dst, []byte(s))
}
