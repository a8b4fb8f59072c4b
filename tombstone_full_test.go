package leafproof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"leafproof"
)

// TestDeleteFull: on a disk without a byte left an artifact can be ended, and its room
// had, also by a process that opens the store only then.
func TestDeleteFull(t *testing.T) {
	dir := t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", dir).Run(); err != nil {
		t.Skipf("no file system of a given size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	store := filepath.Join(dir, "store")
	if err := leafproof.Init(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	keep := put(t, s, random(50_000, 1), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	for _, again := range []bool{false, true} {
		id := put(t, s, random(2_000_000, 2), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
		fill(t, filepath.Join(dir, "filler"))
		if again {
			s.Close()
			fill(t, filepath.Join(dir, "filler")) // what the catalogue's log took
			if s, err = leafproof.Open(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), leafproof.Owner, id, ""); leafproof.CodeOf(err) != leafproof.CodeStoreFull {
				t.Errorf("a store that was opened without room: %v", err)
			}
			s.Close()
			if s, err = leafproof.Open(t.Context(), store); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
			t.Fatalf("opened when the disk was full (%v): %v", again, err)
		}
		if r, err := s.GC(t.Context(), leafproof.GCOptions{}); err != nil || r.Freed < 2_000_000 || !r.Reserve {
			t.Errorf("the sweep after it: %+v, %v", r, err)
		}
		read(t, s, keep, leafproof.Selector{})
		if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
			t.Fatal(err)
		}
	}
}
