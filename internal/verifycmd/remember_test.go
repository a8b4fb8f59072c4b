package verifycmd_test

import (
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof/internal/verifycmd"
	"leafproof/manifest/tlog"
)

// TestRememberTogether: of many who write one memory at once, nobody makes it forget
// what another has seen.
func TestRememberTogether(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seen")
	const readers = 20
	origin := func(i int) string { return fmt.Sprintf("leafproof/st_%d", i) }
	var all sync.WaitGroup
	for i := range readers {
		c, err := tlog.NewCheckpoint(origin(i), 7, tlog.Hash{1}, time.Now(), key)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var seen error
			if err := verifycmd.Remember(file, func(m *tlog.Memory) { seen = m.SeeHead(c, nil) }); err != nil || seen != nil {
				t.Errorf("reader %d: %v, %v", i, err, seen)
			}
		})
	}
	all.Wait()
	m, err := verifycmd.Remembered(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range readers {
		if _, ok := m.Highest(origin(i)); !ok {
			t.Errorf("%s was forgotten", origin(i))
		}
	}
}
