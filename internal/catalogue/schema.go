package catalogue

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// The file begins with an SQLite header, which has two fields for its user.
const (
	// applicationID says that an SQLite file is a catalogue: "LPct".
	applicationID = 0x4c506374
	// schemaVersion is the newest schema that this package knows, in
	// SQLite's user_version.
	schemaVersion = 1
)

// schema is what a new catalogue holds. Times are microseconds since 1970 in
// UTC. A row is never removed: seq and artifact_id are used once.
const schema = `
CREATE TABLE meta (
	one          INTEGER PRIMARY KEY CHECK (one = 1),
	store_id     TEXT    NOT NULL,
	policy_epoch INTEGER NOT NULL CHECK (policy_epoch >= 0),
	clock        INTEGER NOT NULL
) STRICT;

CREATE TABLE artifacts (
	seq           INTEGER PRIMARY KEY AUTOINCREMENT,
	artifact_id   TEXT    NOT NULL UNIQUE,
	manifest_id   TEXT    NOT NULL UNIQUE,
	tenant        TEXT    NOT NULL,
	run           TEXT,
	source_id     TEXT,
	root          BLOB    NOT NULL CHECK (length(root) = 32),
	size          INTEGER NOT NULL CHECK (size >= 0),
	envelope_root BLOB    NOT NULL CHECK (length(envelope_root) = 32),
	envelope_size INTEGER NOT NULL CHECK (envelope_size > 0),
	created_at    INTEGER NOT NULL,
	expires_at    INTEGER,
	state         TEXT    NOT NULL CHECK (state IN ('committed', 'deleted')),
	deleted_at    INTEGER,
	delete_reason TEXT,
	CHECK ((state = 'deleted') = (deleted_at IS NOT NULL)),
	CHECK ((state = 'deleted') = (delete_reason IS NOT NULL))
) STRICT;

CREATE INDEX artifacts_of_tenant ON artifacts (tenant, seq) WHERE state = 'committed';
`

// newStoreID returns an id of 130 random bits that fits where the names of
// tenants and principals do.
func newStoreID() string { return "st_" + strings.ToLower(rand.Text()) }

const (
	hintInit   = "make a store with: leafproof init"
	hintRepair = "restore the catalogue from a backup; the artifacts themselves are not in this file"
	hintNewer  = "use the leafproof that made this store, or a newer one"
	hintWrite  = "a catalogue needs a folder that it may write, also for reading"
	hintInUse  = "another process holds the catalogue for too long; try again"
)

// checkHeader refuses a file that is not a whole catalogue, before SQLite
// opens it: SQLite would make a database of an empty file, and would change a
// database of another program.
func checkHeader(path string) error {
	damaged := func(format string, args ...any) error {
		return &Error{Op: "open", Subject: path, Err: ErrDamaged, Detail: fmt.Sprintf(format, args...), Hint: hintRepair}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Op: "open", Subject: path, Err: ErrMissing, Hint: hintInit}
	case err != nil:
		return openError(path, err)
	case !info.Mode().IsRegular():
		return damaged("it is not a regular file")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return openError(path, err)
	}
	defer f.Close()
	const (
		magic             = "SQLite format 3\x00"
		headerSize        = 100
		applicationIDAt   = 68
		smallestPageBytes = 512
	)
	header := make([]byte, headerSize)
	n, err := io.ReadFull(f, header)
	header = header[:n]
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return damaged("the file is empty")
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return openError(path, err)
	case len(bytes.TrimLeft(header, "\x00")) == 0:
		return damaged("the file is filled with zeros")
	case !bytes.HasPrefix(header, []byte(magic)):
		return damaged("it is not an SQLite file")
	case n < headerSize || info.Size() < smallestPageBytes:
		return damaged("the file was cut to %d bytes", info.Size())
	}
	if id := binary.BigEndian.Uint32(header[applicationIDAt:]); id != applicationID {
		return damaged("it is an SQLite file of another program (application id %#x)", id)
	}
	return nil
}

// openError reports a failure of the operating system to open the file.
func openError(path string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrPermission) || isReadOnly(err) {
		return &Error{Op: "open", Subject: path, Err: ErrReadOnly, Detail: err.Error(), Hint: hintWrite}
	}
	return &Error{Op: "open", Subject: path, Err: err}
}
