package cas_test

import (
	"syscall"
	"testing"
)

// peakMemory is the most that this process had resident, in bytes.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Maxrss << 10
}
