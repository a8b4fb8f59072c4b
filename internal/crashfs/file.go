package crashfs

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"
)

// handle is an open file or directory. It is safe for concurrent use; ReadAt
// and WriteAt do not touch the place that Read and Write go on from.
type handle struct {
	fsys *FS
	node *node
	name string
	flag int

	// Below is under the FS's lock.
	closed bool
	at     int64
	list   []fs.FileInfo // what Readdir has left
	listed bool
}

// do makes one operation of the handle; failed may be nil.
func (h *handle) do(o Operation, body func() error, failed func(short bool)) error {
	o.Name = h.name
	return h.fsys.runOr(o, func() error {
		if h.closed {
			return fs.ErrClosed
		}
		return body()
	}, func(short bool) {
		if failed != nil && !h.closed {
			failed(short)
		}
	})
}

func (h *handle) Name() string { return h.name }

// Close gives the handle back, also when a fault makes it fail.
func (h *handle) Close() error {
	body := func() error {
		h.closed = true
		return nil
	}
	return h.do(Operation{Op: OpClose}, body, func(bool) { _ = body() })
}

func (h *handle) Stat() (info fs.FileInfo, err error) {
	err = h.do(Operation{Op: OpStat}, func() error {
		info = h.node.info(path.Base(h.name))
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Sync flushes. A fault in its place loses what was to be flushed.
func (h *handle) Sync() error {
	op := OpSync
	if h.node.isDir() {
		op = OpSyncDir
	}
	return h.do(Operation{Op: op}, func() error {
		lies := h.fsys.sabotage
		if op == OpSync && !lies.FileSync || op == OpSyncDir && !lies.DirSync {
			h.node.sync()
		}
		return nil
	}, func(bool) {
		if op == OpSync {
			h.node.giveUp()
		}
	})
}

func (h *handle) Truncate(size int64) error {
	return h.do(Operation{Op: OpTruncate, Size: int(size)}, func() error {
		if err := h.writable(); err != nil {
			return err
		}
		if size < 0 {
			return syscall.EINVAL
		}
		h.node.truncate(size)
		return nil
	}, nil)
}

func (h *handle) writable() error {
	if h.node.isDir() || h.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return syscall.EBADF
	}
	return nil
}

func (h *handle) readable() error {
	switch {
	case h.node.isDir():
		return syscall.EISDIR
	case h.flag&os.O_WRONLY != 0:
		return syscall.EBADF
	}
	return nil
}

func (h *handle) Read(p []byte) (n int, err error) {
	take := func(p []byte) error {
		if err := h.readable(); err != nil {
			return err
		}
		n = h.node.readAt(p, h.at)
		h.at += int64(n)
		if n == 0 && len(p) > 0 {
			return io.EOF
		}
		return nil
	}
	err = h.do(Operation{Op: OpRead, Size: len(p)},
		func() error { return take(p) },
		func(short bool) {
			if short {
				_ = take(p[:(len(p)+1)/2])
			}
		})
	return n, h.readError(err, n > 0)
}

func (h *handle) ReadAt(p []byte, off int64) (n int, err error) {
	take := func(p []byte) error {
		if err := h.readable(); err != nil {
			return err
		}
		if off < 0 {
			return syscall.EINVAL
		}
		if n = h.node.readAt(p, off); n < len(p) {
			return io.EOF
		}
		return nil
	}
	err = h.do(Operation{Op: OpRead, Offset: off, Size: len(p)},
		func() error { return take(p) },
		func(short bool) {
			if short {
				_ = take(p[:len(p)/2])
			}
		})
	return n, h.readError(err, false)
}

// readError is what a read returns. An end of the file stays bare, and so does
// a read that is only short, where the caller has to ask for more.
func (h *handle) readError(err error, goesOn bool) error {
	switch {
	case err == nil, err == io.EOF, err == io.ErrUnexpectedEOF && !goesOn:
		return err
	case err == io.ErrUnexpectedEOF:
		return nil
	}
	return &fs.PathError{Op: "read", Path: h.name, Err: err}
}

func (h *handle) Write(p []byte) (n int, err error) {
	return h.write(p, -1)
}

func (h *handle) WriteString(s string) (int, error) { return h.Write([]byte(s)) }

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: h.name, Err: syscall.EINVAL}
	}
	return h.write(p, off)
}

// write writes at off, or where the handle stands when off is negative.
func (h *handle) write(p []byte, off int64) (n int, err error) {
	give := func(p []byte) error {
		if err := h.writable(); err != nil {
			return err
		}
		at := off
		if off < 0 {
			if at = h.at; h.flag&os.O_APPEND != 0 {
				at = h.node.data.size
			}
			h.at = at + int64(len(p))
		}
		h.node.writeAt(p, at)
		n = len(p)
		return nil
	}
	err = h.do(Operation{Op: OpWrite, Offset: max(off, 0), Size: len(p)},
		func() error { return give(p) },
		func(short bool) {
			if short {
				_ = give(p[:len(p)/2])
			}
		})
	return n, err
}

func (h *handle) Seek(offset int64, whence int) (int64, error) {
	h.fsys.mu.Lock()
	defer h.fsys.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += h.at
	case io.SeekEnd:
		offset += h.node.data.size
	}
	if h.closed || offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: h.name, Err: syscall.EINVAL}
	}
	h.at = offset
	return offset, nil
}

// Readdir lists in the order of names what was there at its first call.
func (h *handle) Readdir(count int) (list []fs.FileInfo, err error) {
	err = h.do(Operation{Op: OpReadDir}, func() error {
		if !h.node.isDir() {
			return syscall.ENOTDIR
		}
		if !h.listed {
			h.listed = true
			for _, name := range slices.Sorted(maps.Keys(h.node.names)) {
				h.list = append(h.list, h.node.names[name].info(name))
			}
		}
		n := len(h.list)
		if count > 0 {
			n = min(n, count)
		}
		list, h.list = h.list[:n:n], h.list[n:]
		return nil
	}, nil)
	if err == nil && count > 0 && len(list) == 0 {
		err = io.EOF
	}
	return list, err
}

func (h *handle) Readdirnames(count int) ([]string, error) {
	list, err := h.Readdir(count)
	names := make([]string, len(list))
	for i, info := range list {
		names[i] = info.Name()
	}
	return names, err
}
