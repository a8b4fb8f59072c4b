package selector

import (
	"bytes"
	"strconv"

	"leafproof/merkle"
)

// Dialect says how a CSV file is written.
type Dialect struct {
	Delimiter string   `json:"delimiter"` // one ASCII byte
	Quote     string   `json:"quote"`     // one ASCII byte, or empty: no quoting
	Header    bool     `json:"header"`    // the first row names the columns and is not a record
	Columns   []string `json:"columns"`   // the names in the header; filled in by BuildMap
}

// Limits bound what a query decides. A record or selected value beyond them is
// undecidable; it is never an error and never a silent mismatch.
type Limits struct {
	Depth    int64 `json:"depth"`    // nested arrays and objects of a record
	Digits   int64 `json:"digits"`   // significant digits of a number
	Exponent int64 `json:"exponent"` // absolute normalised exponent of a number
	Record   int64 `json:"record"`   // bytes of a record
}

// DefaultLimits are the limits of the typed keys lpk1. They are the highest
// that a layout may have, too: memory and time are planned for them.
var DefaultLimits = Limits{Depth: 512, Digits: 1024, Exponent: 1_000_000, Record: 64 << 20}

const (
	maxPointer = 64 << 10  // bytes of a JSON Pointer
	maxColumns = 4096      // columns of a CSV header
	maxHeader  = 256 << 10 // bytes of a CSV header row
)

// Layout says how the bytes of an artifact divide into records.
type Layout struct {
	Format  string  // one of the Format constants
	Pointer string  // json: where the array stands (RFC 6901); otherwise empty
	Dialect Dialect // csv only
	Limits  Limits  // zero fields mean DefaultLimits
}

// isJSON reports whether the records are JSON values.
func (l Layout) isJSON() bool {
	return l.Format == FormatJSON || l.Format == FormatNDJSON || l.Format == FormatConcat
}

// normal returns the layout with its defaults filled in, or what is wrong with it.
func (l Layout) normal() (Layout, error) {
	for _, f := range []struct {
		name  string
		value *int64
		top   int64
	}{
		{"depth", &l.Limits.Depth, DefaultLimits.Depth},
		{"digits", &l.Limits.Digits, DefaultLimits.Digits},
		{"exponent", &l.Limits.Exponent, DefaultLimits.Exponent},
		{"record", &l.Limits.Record, DefaultLimits.Record},
	} {
		if *f.value == 0 {
			*f.value = f.top
		}
		if *f.value < 1 || *f.value > f.top {
			return l, fail("layout", -1, ErrLayout, "limit %s is %d, want 1 to %d", f.name, *f.value, f.top)
		}
	}
	switch l.Format {
	case FormatBytes, FormatJSON, FormatNDJSON, FormatCSV, FormatText, FormatConcat:
	default:
		return l, fail("layout", -1, ErrLayout, "unknown format %q", l.Format)
	}
	if l.Format != FormatJSON && l.Pointer != "" {
		return l, fail("layout", -1, ErrLayout, "a pointer to the records is for json, not %s", l.Format)
	}
	if err := CheckPointer(l.Pointer); err != nil {
		return l, err
	}
	if l.Format == FormatCSV {
		return l, l.Dialect.normal()
	}
	if d := l.Dialect; d.Delimiter != "" || d.Quote != "" || d.Header || len(d.Columns) > 0 {
		return l, fail("layout", -1, ErrLayout, "a dialect is for csv, not %s", l.Format)
	}
	return l, nil
}

// normal checks a CSV dialect.
func (d Dialect) normal() error {
	plain := func(s string) bool {
		return len(s) == 1 && s[0] < 0x7f && s[0] != '\r' && s[0] != '\n' && (s[0] >= 0x20 || s[0] == '\t')
	}
	if !plain(d.Delimiter) {
		return fail("layout", -1, ErrLayout, "csv delimiter %q is not one ASCII character", d.Delimiter)
	}
	if d.Quote != "" && (!plain(d.Quote) || d.Quote == d.Delimiter) {
		return fail("layout", -1, ErrLayout, "csv quote %q is not one other ASCII character", d.Quote)
	}
	if !d.Header && len(d.Columns) > 0 {
		return fail("layout", -1, ErrLayout, "csv columns without a header row")
	}
	if len(d.Columns) > maxColumns {
		return fail("layout", -1, ErrLayout, "%d csv columns, at most %d", len(d.Columns), maxColumns)
	}
	return nil
}

// Digest identifies the layout in a record map's header: BLAKE3 derive-key over
// the canonical JSON of its ten members, every number a string.
func (l Layout) Digest() [32]byte {
	if n, err := l.normal(); err == nil {
		l = n
	}
	b := append([]byte(nil), `{"columns":[`...)
	for i, c := range l.Dialect.Columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, c)
	}
	b = appendText(append(b, `],"delimiter":`...), l.Dialect.Delimiter)
	b = appendInt(append(b, `,"depth":`...), l.Limits.Depth)
	b = appendInt(append(b, `,"digits":`...), l.Limits.Digits)
	b = appendInt(append(b, `,"exponent":`...), l.Limits.Exponent)
	b = appendText(append(b, `,"format":`...), l.Format)
	b = appendText(append(b, `,"header":`...), strconv.FormatBool(l.Dialect.Header))
	b = appendText(append(b, `,"pointer":`...), l.Pointer)
	b = appendText(append(b, `,"quote":`...), l.Dialect.Quote)
	b = appendInt(append(b, `,"record":`...), l.Limits.Record)
	return merkle.DeriveKey("leafproof 2026 record-layout v1", append(b, '}'))
}

// NewLayout returns the layout for a format that the caller names, with the
// default limits; for csv it takes the delimiter from head, the first bytes of
// the file (64 KiB are plenty), and a header row is assumed. pointer is for
// json only.
func NewLayout(format, pointer string, head []byte) (Layout, error) {
	l := Layout{Format: format, Pointer: pointer, Limits: DefaultLimits}
	if format == FormatCSV {
		l.Dialect = Dialect{Delimiter: ",", Quote: `"`, Header: true}
		if d, _, columns := sniffDelimiter(bytes.TrimPrefix(head, bom), 1); columns > 1 {
			l.Dialect.Delimiter = d
		}
	}
	return l.normal()
}

var bom = []byte("\xef\xbb\xbf")
