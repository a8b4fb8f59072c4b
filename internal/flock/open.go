package flock

import "os"

// Open takes the exclusive lock on a file that is open already, for as long as it
// stays open. It is refused with [ErrHeld] while another descriptor of the file,
// in this process or another, has a lock.
func Open(f *os.File) error { return tryLock(f, true) }
