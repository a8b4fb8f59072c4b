// Package flock locks a file between processes: shared by any number of
// holders, or exclusive to one.
//
// A lock is advisory and belongs to the [Lock] value: two locks of one process
// exclude each other as two processes do, and the operating system drops a lock
// when its process ends, however it ends. A lock says nothing about processes
// that do not ask for it, and nothing about other machines that mount the same
// folder.
//
// No call waits. A refusal is an [Error] that wraps [ErrHeld] and names the
// process in the way, so that a person can look at it.
package flock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// ErrHeld says that another lock on the file excludes the one asked for.
var ErrHeld = errors.New("the lock is held")

// Error says which file could not be locked, and why. Match the reason with
// [errors.Is].
type Error struct {
	Path string // the lock file
	// PID is the process that holds the lock exclusively, or one of those that
	// share it, where the system tells (Linux). It is 0 when it is not known and
	// when the failure is not [ErrHeld].
	PID int
	Err error // the reason, never nil
}

func (e *Error) Error() string {
	switch {
	case e.PID != 0:
		return fmt.Sprintf("lock %s: held by process %d", e.Path, e.PID)
	case errors.Is(e.Err, ErrHeld):
		return fmt.Sprintf("lock %s: in use by other processes", e.Path)
	}
	return fmt.Sprintf("lock %s: %v", e.Path, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Lock is a lock that is held. Keep it until the work is done: the lock ends
// with Close, and at the latest with the process.
type Lock struct {
	f         *os.File
	exclusive bool
}

// Shared takes a shared lock on the file at path and creates the file when it
// is missing. It is refused while someone holds the lock exclusively. A file
// that may only be read can be locked too. Never delete a lock file: whoever
// has it open would hold a lock that nobody else sees.
func Shared(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		ro, roErr := os.Open(path)
		if roErr != nil {
			return nil, failed(path, err)
		}
		f = ro
	}
	if err := tryLock(f, false); err != nil {
		return nil, refused(f, err)
	}
	return &Lock{f: f}, nil
}

// Exclusive takes the lock on the file at path for this holder alone, creates
// the file when it is missing, and writes the process id into it for those it
// refuses.
func Exclusive(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, failed(path, err)
	}
	if err := tryLock(f, true); err != nil {
		return nil, refused(f, err)
	}
	l := &Lock{f: f, exclusive: true}
	if err := l.writePID(); err != nil {
		f.Close()
		return nil, failed(path, err)
	}
	return l, nil
}

// writePID is not synced: the number means nothing after a crash, which ends
// the lock too.
func (l *Lock) writePID() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// Close ends the lock. Only the first call does anything.
func (l *Lock) Close() error {
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	if l.exclusive {
		// The process id is a courtesy; a failure to remove it is not one
		// to unlock.
		_ = f.Truncate(0)
	}
	// Closing the only descriptor of the lock ends it on every system; the
	// explicit call makes it prompt where closing is lazy.
	return errors.Join(unlock(f), f.Close())
}

// refused closes f and says who stands in the way. A lock that can be shared
// has no exclusive holder, so that a process id left behind by a crash is
// never named.
func refused(f *os.File, err error) error {
	defer f.Close()
	if !errors.Is(err, ErrHeld) {
		return failed(f.Name(), err)
	}
	pid := holder(f) // before this process holds it too
	if tryLock(f, false) == nil {
		return &Error{Path: f.Name(), PID: pid, Err: ErrHeld}
	}
	return &Error{Path: f.Name(), PID: readPID(f), Err: ErrHeld}
}

// readPID returns the process id in the file, or 0 when it holds none.
func readPID(f *os.File) int {
	const maxDigits = 20 // of a 64-bit number, with room for the line end
	buf := make([]byte, maxDigits+1)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSuffix(buf[:n], []byte("\n"))))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// failed drops the path that the os package repeats in its own errors.
func failed(path string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return &Error{Path: path, Err: err}
}
