// Package cas keeps blobs under the BLAKE3 root of their bytes.
//
// A [Store] takes bytes in ([Store.Put], or many at once through a [Batch])
// and gives them out again through a [Reader] that checks every byte against
// the root before a caller sees it. Where the bytes lie, packed with others or
// as an object of their own, does not show. Below the Store is a [Backend]:
// four methods over immutable named objects, on disk (package disk), in memory
// (package memory) or elsewhere; package castest holds each to the contract.
//
// # What it proves, and what it does not
//
// Bytes from a Reader are the bytes of that root: a backend that lies, rots or
// is edited by hand yields an error that matches [ErrCorrupt], never other
// bytes. When Put returns nil the blob survives a crash. The package does not
// know who may read a blob: nothing here asks for permission, which is why the
// root package never hands out its readers. It does not keep a blob from being
// deleted behind its back, and it does not say who made the bytes.
//
// # Tenants
//
// A [Tenant] is the domain of deduplication. Tenants share nothing: no object,
// no index, no cache entry.
package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"leafproof/merkle"
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrNotFound says that no such object or blob is in the store.
	ErrNotFound = errors.New("not found")
	// ErrRange says that a range is not within the object.
	ErrRange = errors.New("range outside the object")
	// ErrCorrupt says that stored bytes are not those of their root, or that
	// an object which should hold them is damaged.
	ErrCorrupt = errors.New("stored bytes do not match their root")
	// ErrFull says that there is no room left (ENOSPC, EDQUOT).
	ErrFull = errors.New("no space left in the store")
	// ErrSize says that a reader gave fewer or more bytes than it should.
	ErrSize = errors.New("reader does not hold the stated number of bytes")
	// ErrPlacement says that a placement is unknown, not built yet, or not
	// possible for this blob.
	ErrPlacement = errors.New("placement not possible")
	// ErrClosed says that a batch was used after Commit or Discard.
	ErrClosed = errors.New("batch is closed")
)

// Backend holds immutable objects under typed names. It is safe for concurrent
// use by any number of goroutines and processes. It does not check that an
// object's bytes match its name: [Store] does, on the way in and on the way
// out, so no backend has to be trusted.
//
// A context that is cancelled before or during a call makes it fail with the
// context's error, and a Put that fails so leaves nothing.
type Backend interface {
	// Put keeps the bytes of r, exactly size of them, under name. After nil
	// the object survives a crash and every Get sees it whole. After an error
	// Get sees either all of it or ErrNotFound; a reader that is short or long
	// is ErrSize and leaves nothing. A name that is taken stays as it is: Put
	// reads nothing from r, makes sure that the resident object is durable,
	// and returns nil.
	Put(ctx context.Context, name Name, r io.Reader, size int64) error
	// Get returns the bytes [off, off+n) of an object, or from off to its end
	// when n < 0. A range that is not within the object is ErrRange, whatever
	// the numbers; an empty range at the end is within it. The reader gives
	// exactly these bytes or an error that is not io.EOF, also when the object
	// is deleted meanwhile.
	Get(ctx context.Context, name Name, off, n int64) (io.ReadCloser, error)
	// List yields each name of one kind whose ID begins with idPrefix once, in
	// ascending order of ID, then generation. Objects put or deleted meanwhile
	// may or may not appear. A yielded error ends the list.
	List(ctx context.Context, tenant Tenant, kind Kind, idPrefix []byte) iter.Seq2[Name, error]
	// Delete removes objects, durably. A missing one is not an error.
	Delete(ctx context.Context, names ...Name) error
}

// Error says which operation failed on what, and why. Match the reason with
// [errors.Is]; take the details with [errors.AsType].
type Error struct {
	Op         string      // the operation, as in "open"
	Root       merkle.Root // the blob; zero when only an object is meant
	Name       Name        // the object; zero when none is meant
	Start, End int64       // the bytes of the blob or object concerned; both 0 when no range is meant
	Err        error       // the reason, never nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if !e.Root.IsZero() {
		fmt.Fprintf(&b, " blob %s", e.Root)
	}
	if e.Start != 0 || e.End != 0 {
		fmt.Fprintf(&b, " bytes %d:%d", e.Start, e.End)
	}
	if e.Name != (Name{}) {
		fmt.Fprintf(&b, " (object %s)", e.Name)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }
