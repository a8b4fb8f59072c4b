package catalogue

import "time"

// SetBusyTimeout shortens the wait for other processes, and returns a function
// that sets it back.
func SetBusyTimeout(d time.Duration) (back func()) {
	old := busyTimeout
	busyTimeout = d
	return func() { busyTimeout = old }
}
