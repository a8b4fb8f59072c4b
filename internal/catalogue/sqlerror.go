package catalogue

import (
	"context"
	"errors"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqlError wraps an error of SQLite, or of the files around it, by what a
// caller can do about it. It leaves an Error as it is.
func sqlError(op, subject, path string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Op: op, Subject: subject, Err: err}
	engine, ok := errors.AsType[*sqlite.Error](err)
	if !ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return e
	}
	if engine.Code() == sqlite3.SQLITE_IOERR_SHMSIZE {
		// No room for the 32 KiB of the -shm file, which a reader needs too.
		e.Err, e.Detail = ErrFull, engine.Error()
		return e
	}
	switch primary(engine) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		e.Err, e.Hint = ErrBusy, hintInUse
	case sqlite3.SQLITE_READONLY:
		e.Err, e.Hint = ErrReadOnly, hintWrite
	case sqlite3.SQLITE_FULL:
		e.Err = ErrFull
	case sqlite3.SQLITE_CANTOPEN:
		if _, statErr := os.Stat(path); errors.Is(statErr, os.ErrNotExist) {
			e.Err, e.Hint = ErrMissing, hintInit
			return e
		}
		e.Err, e.Hint = ErrReadOnly, hintWrite
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		sqlite3.SQLITE_ERROR: // a table or column that is missing: no statement here is wrong by itself
		e.Err, e.Hint = ErrDamaged, hintRepair
	case sqlite3.SQLITE_CONSTRAINT:
		e.Err = ErrInvalid
	default:
		return e
	}
	e.Detail = engine.Error()
	return e
}

// isBusy reports that another connection holds the lock asked for.
func isBusy(err error) bool {
	engine, ok := errors.AsType[*sqlite.Error](err)
	return ok && primary(engine) == sqlite3.SQLITE_BUSY
}

// cannotWrite reports that SQLite could not make or use a file beside the
// database, or not write at all.
func cannotWrite(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrFull) || isIOError(err)
}

// isIOError reports a read, write or sync that failed.
func isIOError(err error) bool {
	engine, ok := errors.AsType[*sqlite.Error](err)
	return ok && primary(engine) == sqlite3.SQLITE_IOERR
}

// primary drops the detail from a result code.
func primary(e *sqlite.Error) int { return e.Code() & 0xff }
