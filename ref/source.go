package ref

import (
	"context"
	"encoding/json"
	"io"

	"leafproof/merkle"
	"leafproof/selector"
)

// A Source is the store as one run sees it: bound to a principal, purpose, tenant, run
// and agent. Every call asks the authority anew, and what it refuses is told like what
// never was. It is safe for concurrent use.
type Source interface {
	// Stat says what a key leads to now. A key is an artifact's id, the key of a
	// [Marker] that Put returned to this agent, or "name/" and a name of the tenant.
	Stat(ctx context.Context, key string) (Info, error)
	// Read writes a part of an artifact to w as it stands: bytes; records with a
	// newline after each; the value at a pointer with a newline after it. Where it
	// fails, what it wrote is a correct beginning.
	Read(ctx context.Context, id string, what Selection, w io.Writer) (*selector.Answer, error)
	// Query gives the records that satisfy a condition to emit. An answer comes with
	// an error where the scan did not reach its end.
	Query(ctx context.Context, id string, q Query, emit func(Row) error) (*selector.Answer, error)
	// Put stores what r has as a new artifact, in memory that does not grow with it.
	// Two calls never return the same key, whatever they were given.
	Put(ctx context.Context, what New, r io.Reader) (Marker, error)
}

// Info is what a [Source] tells of an artifact. No model reads it.
type Info struct {
	ArtifactID string
	Size       int64 // bytes
	MediaType  string
	// Format is the record format: json, ndjson, csv, text, concat, or bytes where
	// there are no records; Pointer is where the array stands of json.
	Format  string
	Pointer string
	Records int64
	// Ref is the ten-field descriptor, as JSON.
	Ref json.RawMessage
}

// Selection is a part of an artifact. At most one field is set; none means all bytes.
type Selection struct {
	Bytes   *merkle.Range // byte offsets, half open
	Records *merkle.Range // record numbers from 0, half open
	Pointer *string       // RFC 6901
	Receipt Receipt       // where set, is given the signed receipt of the read
}

// Query is a question about an artifact's records.
type Query struct {
	Where  string   // see [selector.ParseWhere]; "" holds for every record
	Order  []string // see [selector.ParseOrder]; none is document order
	Limit  int64    // records to return at most; 0 is no limit
	Cursor string   // goes on where an earlier answer stopped
	Count  bool     // the number alone: emit is not called
	// MaxBytes bounds what may be examined, ReturnBytes how many bytes of records a
	// page may have (one record at least); 0 is no bound.
	MaxBytes, ReturnBytes int64
	Receipt               Receipt // where set, is given the signed receipt of the answer
}

// A Row is a record that a query returned.
type Row struct {
	Record int64 // its number, from 0
	Span   selector.Span
	Bytes  []byte // as it stands; valid until emit returns
	JSON   bool   // it is a JSON value, as opposed to a CSV row or a line
}

// Receipt takes the signed receipt of one read or query in the form of the source that
// signed it: of a Leafproof store, a *leafproof.Statement.
type Receipt func(statement any)

// New says what the bytes of a [Source.Put] are. The strings are the caller's: data,
// of any characters and length.
type New struct {
	CallID    string // of the tool call; may be empty, and come again
	Tool      string // the tool's name
	Arguments []byte // of the call; kept as a keyed digest. nil: not given
	MediaType string // "" lets the store find out
	Name      string // a file name, as a hint
	Records   string // the record format; "" lets the store find out
	// Inputs are the ids of the artifacts that it was made from.
	Inputs []string
	// Facts is a document of further facts (docs/FORMAT.md, Stated facts), such as
	// coverage and source; what the other fields say wins.
	Facts json.RawMessage
}
