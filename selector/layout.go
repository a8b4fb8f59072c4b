package selector

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

// DefaultLimits are the limits of the typed keys lpk1.
var DefaultLimits = Limits{Depth: 512, Digits: 1024, Exponent: 1_000_000, Record: 64 << 20}

// Layout says how the bytes of an artifact divide into records.
type Layout struct {
	Format  string  // one of the Format constants
	Pointer string  // json: where the array stands (RFC 6901); otherwise empty
	Dialect Dialect // csv only
	Limits  Limits  // zero fields mean DefaultLimits
}

// Digest identifies the layout in a record map's header. Two layouts that
// divide bytes alike under the same names and limits have the same digest.
func (l Layout) Digest() [32]byte { return [32]byte{} }

// NewLayout returns the layout for a format that the caller names, with the
// default limits; for csv it takes the delimiter from head, the first bytes of
// the file, and a header row is assumed. pointer is for json only.
func NewLayout(format, pointer string, head []byte) (Layout, error) {
	return Layout{Format: format, Pointer: pointer, Limits: DefaultLimits}, nil
}

// Detect chooses a layout from head, the first bytes of a file (64 KiB are
// plenty). Content decides; mediaType and name are only hints. It chooses
// conservatively, FormatBytes in doubt, and says in one sentence what it chose
// and why.
func Detect(head []byte, mediaType, name string) (Layout, string) {
	return Layout{Format: FormatBytes, Limits: DefaultLimits}, "no record format recognised: stored as bytes."
}
