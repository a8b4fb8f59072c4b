//go:build !unix

package catalogue

import (
	"errors"
	"syscall"
)

func isReadOnly(error) bool { return false } // there it is a missing permission

func isFull(err error) bool {
	const errorDiskFull = syscall.Errno(112) // of Windows
	return errors.Is(err, errorDiskFull)
}
