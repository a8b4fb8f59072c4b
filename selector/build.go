package selector

import (
	"context"
	"errors"
	"io"

	"leafproof/merkle"
)

// Stats is what one pass over the records found. It is signed in the manifest.
type Stats struct {
	Records          int64  `json:"records"`           // records in all
	BlankLines       int64  `json:"blank_lines"`       // lines skipped because they were empty (ndjson, csv)
	Undecidable      int64  `json:"undecidable"`       // records that some query cannot decide, for any of the reasons below
	UndecidableSpans []Span `json:"undecidable_spans"` // the first 16 of them
	Unparseable      int64  `json:"unparseable"`       // records that are not one value of the format
	DuplicateNames   int64  `json:"duplicate_names"`   // records with a duplicate member name
	InvalidUTF8      int64  `json:"invalid_utf8"`      // records with invalid UTF-8 or a lone surrogate
	OverLimit        int64  `json:"over_limit"`        // records beyond a limit
	Escapes          int64  `json:"escapes"`           // JSON records with a backslash in them
	Ragged           int64  `json:"ragged"`            // csv rows with another number of fields than the first row
	Depth            int64  `json:"depth"`             // deepest nesting seen
	LongestRecord    int64  `json:"longest_record"`    // bytes
	BOM              bool   `json:"bom"`               // the file begins with a UTF-8 byte order mark
}

// MapInfo describes a record map that was just written.
type MapInfo struct {
	Size    int64 // bytes of the map
	Records int64
}

var errTODO = errors.New("being built")

// BuildMap divides src, size bytes with the given root, into records as l says,
// validates each record and writes the record map (lpr1) to out, all in one
// pass and with memory that does not grow with size. The layout returned is l
// with its defaults and CSV columns filled in: it is the one to sign and to
// open the map with.
//
// It fails with ErrNotRecords when the bytes do not have that layout at all,
// naming the place; single bad records are counted in Stats instead. After an
// error what was written to out is no record map.
func BuildMap(ctx context.Context, src io.ReaderAt, size int64, root merkle.Root, l Layout, out io.WriterAt) (MapInfo, Stats, Layout, error) {
	return MapInfo{}, Stats{}, l, errTODO
}
