package catalogue

import (
	"sync"
	"sync/atomic"
	"time"
)

// markSuffix is what the name of a catalogue's mark has behind that of the
// catalogue.
const markSuffix = "-epoch"

const markBytes = 24

// mark is a page of memory that all processes which have a catalogue open share: a
// file of 24 bytes beside it, which begins with two counters of changes of the policy. It spares a
// reader the look at the policy epoch in the database before every 64 KiB.
//
// Whoever changes the policy holds the lock for writing. He sets begun to begun + 1
// before his commit, and raises done to that after it. A reader that finds begun
// and done alike and then reads the epoch knows it for as long as begun stands as it
// did. After a crash between the two begun is ahead until the next change, and
// readers look into the database each time. What the file holds after the machine
// went down means nothing, and harms nothing: no reader is left that has seen it.
type mark struct {
	begun, done *atomic.Int64
	unmap       func() error
	mu          sync.RWMutex // held by close alone
	closed      bool
}

// count returns how many changes were begun, and whether each is done.
func (m *mark) count() (begun int64, quiet bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return -1, false
	}
	begun = m.begun.Load()
	return begun, m.done.Load() == begun
}

// begin says that a change of the policy is about to be committed.
func (m *mark) begin() (n int64) {
	if m == nil {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0
	}
	return m.begun.Add(1)
}

// end says that it was committed, or will never be.
func (m *mark) end(n int64) {
	if m == nil {
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for !m.closed {
		done := m.done.Load()
		if done >= n || m.done.CompareAndSwap(done, n) {
			return
		}
	}
}

// close gives the memory back.
func (m *mark) close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.unmap()
}

// still is how long the last look at the database may serve, however the mark
// stands: should a process have been unable to open the mark, the others learn of
// its change then.
const still = time.Second

// looked is what a look at the database told.
type looked struct {
	begun int64 // how the mark stood before the look
	epoch int64
	clock int64     // the clock of the database, in microseconds
	at    time.Time // of the look; its monotonic part counts
}
