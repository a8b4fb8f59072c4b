//go:build unix

package catalogue

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// openMark opens the mark of the catalogue at path, and makes it if it is not there.
func openMark(path string) (*mark, error) {
	f, err := os.OpenFile(path+markSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < markBytes {
		// Behind the counters, which another process may have raised already. With
		// the write they have their place on the disk, should it be full later.
		_, err = f.WriteAt(make([]byte, markBytes-16), 16)
	}
	var page []byte
	if err == nil {
		page, err = syscall.Mmap(int(f.Fd()), 0, markBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &mark{
		begun: (*atomic.Int64)(unsafe.Pointer(&page[0])),
		done:  (*atomic.Int64)(unsafe.Pointer(&page[8])),
		unmap: func() error { return syscall.Munmap(page) },
	}, nil
}
