package selector

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"leafproof/merkle"
)

// The field index lpi1. All integers are little-endian or minimal uvarints.
//
//	page 0, the header                  page 1 + i, the page numbered i
//	   0  magic "LFPINDX1"                 0  its number i, u64
//	   8  root of the source               8  rank of its first entry, u64
//	  40  size of the source, u64         16  used bytes from 20 on, u16
//	  48  digest of the spec              18  0, u16
//	  80  records, u64                    20  uvarint length and bytes of the last
//	  88  entries, u64                        key of the page before; 0 on page 0
//	  96  distinct keys, u64                  per group: uvarint shared, uvarint length
//	 104  pages, u64                          of the suffix, the suffix, uvarint n,
//	 112  rank of the tail, u64               uvarint first record, n−1 uvarints
//	 120  zeros to 4096                       record − the record before − 1
//	                                          zeros to 4096
//
// An entry is a typed key (lpk1) and the number of a record that has it. They
// ascend by key and record, and each stands there once. A group is the run of
// entries of one key on a page; shared is how many bytes the key begins with that
// the key before it begins with too. Where an entry does not fit into the open
// page it opens the next one; a group that goes on there has shared = the whole
// key and no suffix.
const (
	indexMagic    = "LFPINDX1"
	indexPageSize = 4096
	indexFront    = 20 // bytes in front of the key before
	indexRoom     = indexPageSize - indexFront

	// maxKey is the longest typed key: that of a number with the most digits.
	maxKey = 1 + 1 + 8 + 1024 + 1
	// longDigest is the length of the digest in the key of a long string.
	longDigest = 32
	// maxFirst is the most that an entry takes which opens a group: a page has room
	// for one beside the key before.
	maxFirst = 2 + 2 + maxKey + 1 + binary.MaxVarintLen64
)

// IndexPageSize is the length of a page of an index, and of its header, in bytes.
const IndexPageSize = indexPageSize

// ErrIndex is what is no index: bytes that are no canonical lpi1, or an index of
// another source or spec.
var ErrIndex = errors.New("malformed index")

func badIndex(offset int64, format string, args ...any) error {
	return fail("index", offset, ErrIndex, format, args...)
}

// Canonical returns the path as the spec of an index spells it: a JSON Pointer
// where one says it, otherwise a JSONPath query from @.
func (p *KeyPath) Canonical() string { return p.query.text() }

// IndexSpec returns the spec of an index over a path: canonical JSON (lpj) of all
// that decides, with the source's bytes, what the index is. redactions are the JSON
// Pointers of the values that the producer removed or masked; those that have
// nothing to do with the path are left out. It fails with ErrLayout, or with
// ErrSelector for a path that no index of such records is over.
func IndexSpec(l Layout, p *KeyPath, redactions []string) ([]byte, error) {
	l, err := l.normal()
	if err == nil {
		err = checkIndexPath(p, l)
	}
	if err != nil {
		return nil, err
	}
	b := []byte(`{"dialect":`)
	if l.Format == FormatCSV {
		b = append(b, `{"columns":[`...)
		for i, c := range l.Dialect.Columns {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, c)
		}
		b = appendText(append(b, `],"delimiter":`...), l.Dialect.Delimiter)
		b = strconv.AppendBool(append(b, `,"header":`...), l.Dialect.Header)
		b = append(appendText(append(b, `,"quote":`...), l.Dialect.Quote), '}')
	} else {
		b = append(b, "null"...)
	}
	b = appendText(append(b, `,"format":`...), l.Format)
	b = appendText(append(b, `,"keys":`...), KeyVersion)
	b = strconv.AppendInt(append(b, `,"limits":{"depth":`...), l.Limits.Depth, 10)
	b = strconv.AppendInt(append(b, `,"digits":`...), l.Limits.Digits, 10)
	b = strconv.AppendInt(append(b, `,"exponent":`...), l.Limits.Exponent, 10)
	b = strconv.AppendInt(append(b, `,"record":`...), l.Limits.Record, 10)
	b = appendText(append(b, `},"path":`...), p.Canonical())
	b = appendText(append(b, `,"pointer":`...), l.Pointer)
	b = append(b, `,"redactions":[`...)
	for i, r := range p.redactedBy(redactions) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, r)
	}
	return append(b, "]}"...), nil
}

// redactedBy returns those redactions that touch the path, in order, each once.
func (p *KeyPath) redactedBy(redactions []string) []string {
	var out []string
	for _, r := range redactions {
		if path, err := parsePointer(r); err != nil || p.query.touches(path, path) {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SpecDigest is the digest of a spec, as the header and the manifest have it:
// BLAKE3 derive-key over its canonical JSON.
func SpecDigest(spec []byte) [32]byte {
	return merkle.DeriveKey("leafproof 2026 index-spec v1", spec)
}

// indexHead is the decoded header of an index.
type indexHead struct {
	root                                    merkle.Root // of the source
	size                                    int64       // of the source
	spec                                    [32]byte
	records, entries, distinct, pages, tail int64 // tail is the rank of its first entry
}

// parseIndexHead decodes the header of an index of size bytes. All of it is in
// leaf 0: p is that leaf, or the whole page.
func parseIndexHead(p []byte, size int64) (h indexHead, err error) {
	if len(p) != merkle.LeafSize && len(p) != indexPageSize || string(p[:8]) != indexMagic {
		return h, badIndex(0, "no %s header", indexMagic)
	}
	h.root, h.spec = merkle.Root(p[8:40]), [32]byte(p[48:80])
	for _, f := range []struct {
		to *int64
		at int
	}{{&h.size, 40}, {&h.records, 80}, {&h.entries, 88}, {&h.distinct, 96}, {&h.pages, 104}, {&h.tail, 112}} {
		if *f.to = int64(binary.LittleEndian.Uint64(p[f.at:])); *f.to < 0 {
			return h, badIndex(int64(f.at), "a number out of range")
		}
	}
	switch {
	case !zeros(p[120:]):
		return h, badIndex(120, "padding that is not zero")
	case h.pages >= math.MaxInt64/indexPageSize || size != (1+h.pages)*indexPageSize:
		return h, badIndex(104, "%d pages in an index of %d bytes", h.pages, size)
	case h.records > maxMapRecords || h.entries < h.records || (h.records == 0) != (h.entries == 0):
		return h, badIndex(88, "%d entries of %d records", h.entries, h.records)
	case h.distinct > h.entries || (h.distinct == 0) != (h.entries == 0) || h.tail > h.entries:
		return h, badIndex(96, "%d keys and a tail from %d on in %d entries", h.distinct, h.tail, h.entries)
	case (h.pages == 0) != (h.entries == 0) || h.pages > h.entries || h.entries/indexRoom > h.pages:
		return h, badIndex(104, "%d entries on %d pages", h.entries, h.pages)
	}
	return h, nil
}

// info is what the header says of the index.
func (h *indexHead) info() IndexInfo {
	return IndexInfo{Size: (1 + h.pages) * indexPageSize, Entries: h.entries, Distinct: h.distinct, Undetermined: h.entries - h.tail}
}

// encode writes the header.
func (h *indexHead) encode() []byte {
	p := make([]byte, indexPageSize)
	copy(p, indexMagic)
	copy(p[8:], h.root[:])
	copy(p[48:], h.spec[:])
	for _, f := range []struct{ n, at int64 }{{h.size, 40}, {h.records, 80}, {h.entries, 88}, {h.distinct, 96}, {h.pages, 104}, {h.tail, 112}} {
		binary.LittleEndian.PutUint64(p[f.at:], uint64(f.n))
	}
	return p
}

// checkIndexPath refuses a path that no index of records of a layout is over.
func checkIndexPath(p *KeyPath, l Layout) error {
	if l.Format == FormatBytes {
		return fail("index", -1, ErrSelector, "bytes without records have no index")
	}
	if !canonicalText(p.Canonical()) {
		return fail("index", -1, ErrSelector, "%s: a name holds a character that a signed path cannot have", cut(p.text))
	}
	return p.query.fits("index", l)
}

// uvarintLen is the length of a uvarint.
func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// checkKey reports whether a key is one that lpk1 can have.
func checkKey(k []byte) bool {
	if len(k) == 0 || len(k) > maxKey {
		return false
	}
	switch k[0] {
	case KeyMissing, KeyNull, KeyFalse, KeyTrue, KeyArray, KeyObject, KeyRedacted, KeyAmbiguous, KeyUnparseable:
		return len(k) == 1
	case KeyNumber:
		return checkNumberKey(k)
	case KeyString:
		return checkStringKey(k)
	}
	return false
}

func checkNumberKey(k []byte) bool {
	if len(k) < 2+8+1+1 {
		return len(k) == 2 && k[1] == 0x80
	}
	flip := byte(0)
	if k[1] == 0x40 {
		flip = 0xff
	} else if k[1] != 0xc0 {
		return false
	}
	last := len(k) - 1
	if k[last]^flip != 0 || k[10]^flip == 1 || k[last-1]^flip == 1 {
		return false
	}
	for _, c := range k[10:last] {
		if c ^= flip; c < 1 || c > 10 {
			return false
		}
	}
	return true
}

func checkStringKey(k []byte) bool {
	n := 0 // bytes of the string
	for i := 1; i+1 < len(k); i++ {
		if k[i] == 0 {
			switch i++; k[i] {
			case 0:
				return i+1 == len(k) && n <= longString
			case 1:
				return i+1+longDigest == len(k) && n == longString
			case 0xff:
			default:
				return false
			}
		}
		n++
	}
	return false
}
