package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is a byte far behind the process id: Windows also refuses reads of a
// locked range, and those it refuses must be able to read the id.
func lockAt() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func tryLock(f *os.File, exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, lockAt())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrHeld
	}
	return err
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockAt())
}
