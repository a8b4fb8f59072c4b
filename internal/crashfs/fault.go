package crashfs

import (
	"io"
	"syscall"
)

// Fault makes an operation fail.
type Fault struct {
	// Op are the operations that are meant and counted; 0 is [Any].
	Op Op
	// N is which of them fails, from 1; 0 is 1.
	N int
	// Forever makes all later ones fail as well.
	Forever bool
	// Err is the reason; nil is [syscall.EIO]. A read that is Short has
	// io.ErrUnexpectedEOF, as if the file ended there; from Read, which may
	// be short at any time, that is no error.
	Err error
	// Short lets a read or write do half of its work before it fails.
	Short bool
	// Done lets the operation do all of its work, and fail all the same: the
	// answer was lost on the way. A flush then has kept everything.
	Done bool
}

type fault struct {
	Fault
	left int // until it strikes
}

// Inject replaces the faults; they count from here. None lifts them.
func (f *FS) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.hits = nil, 0
	for _, one := range faults {
		if one.Op == 0 {
			one.Op = Any
		}
		if one.Err == nil {
			one.Err = syscall.EIO
			if one.Short && one.Op == OpRead {
				one.Err = io.ErrUnexpectedEOF
			}
		}
		f.faults = append(f.faults, &fault{one, max(1, one.N)})
	}
}

// Hits is how many operations failed since the last Inject.
func (f *FS) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// hit returns the fault that strikes an operation, or nil.
func (f *FS) hit(op Op) *fault {
	var struck *fault
	for _, one := range f.faults {
		if one.Op&op == 0 {
			continue
		}
		if one.left--; one.left == 0 || one.left < 0 && one.Forever {
			struck = one
		}
	}
	if struck != nil {
		f.hits++
	}
	return struck
}
