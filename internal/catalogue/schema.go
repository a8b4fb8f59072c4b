package catalogue

import (
	"crypto/rand"
	"errors"
	"fmt"
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
	schemaVersion = 5
	// The versions that brought a part of the schema.
	versionBook       = 2
	versionStatements = 3
	versionGrants     = 4
	versionIndexes    = 5
	// oldestVersion is the oldest one that can be read, and upgraded.
	oldestVersion = 1
	// pageBytes is the size of an SQLite page.
	pageBytes = 4096
)

// additions are what the versions of the schema added to the first, oldest first;
// several may belong to one version.
var additions = []struct {
	version int64
	text    string
}{
	{versionBook, bookSchema},
	{versionStatements, statementSchema},
	{versionGrants, grantSchema},
	{versionGrants, auditSchema},
	{versionLifecycle, namesSchema + copiesSchema + linksSchema},
	{versionLog, logSchema},
	{versionIndexes, indexSchema},
}

// added is what versions after have brought.
func added(after int64) (text string) {
	for _, a := range additions {
		if a.version > after {
			text += a.text
		}
	}
	return text
}

// schema is the first version; a new catalogue holds the additions too. Times are microseconds since 1970 in
// UTC. A row of artifacts is never removed: seq and artifact_id are used once.
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
	hintRepair = "make it anew from the manifests with: leafproof check --repair"
	hintNewer  = "use the leafproof that made this store, or a newer one"
	hintOlder  = "it is upgraded when the store is opened and no other process has it open"
	hintWrite  = "a catalogue needs a folder that it may write, also for reading"
	hintSpace  = "make room on the disk, or make it writable; reading goes on"
	hintInUse  = "another process holds the catalogue for too long; try again"
)

// checkFile refuses what SQLite must not open: it would make a file that is
// missing, and a database of an empty one. It only asks for the file's state:
// to open and close the file here would end the locks that SQLite holds on it
// for another handle of this process (POSIX locks belong to the process).
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Op: "open", Subject: path, Err: ErrMissing, Hint: hintInit}
	case err != nil:
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err
		}
		return &Error{Op: "open", Subject: path, Err: err}
	case !info.Mode().IsRegular():
		return damaged(path, "it is not a regular file")
	case info.Size() == 0:
		return damaged(path, "the file is empty")
	case info.Size()%pageBytes != 0 && emptyWAL(path):
		// SQLite reads zeros for the rest of a page. A crash can leave such a
		// file too, but then with what is missing in the -wal file.
		return damaged(path, fmt.Sprintf("its %d bytes are not whole pages of %d", info.Size(), pageBytes))
	}
	return nil
}

func emptyWAL(path string) bool {
	info, err := os.Stat(path + "-wal")
	return err != nil || info.Size() == 0
}

// checkSchema refuses a database that is no catalogue, and one with a schema
// that this package does not know.
func checkSchema(path string, id, version int64) error {
	switch {
	case id != applicationID:
		return damaged(path, fmt.Sprintf("it is a database of another program (application id %#x)", id))
	case version > schemaVersion:
		return &Error{
			Op: "open", Subject: path, Err: ErrNewer, Hint: hintNewer,
			Detail: fmt.Sprintf("its schema has version %d, the newest known here is %d", version, schemaVersion),
		}
	case version < oldestVersion:
		return damaged(path, fmt.Sprintf("its schema has version %d", version))
	}
	return nil
}

func damaged(path, detail string) error {
	return &Error{Op: "open", Subject: path, Err: ErrDamaged, Detail: detail, Hint: hintRepair}
}
