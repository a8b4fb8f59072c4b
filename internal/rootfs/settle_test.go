package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// One flush settles what stood in the folder, and nothing that comes later.
func TestMakeDirsSettles(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		if err := os.MkdirAll(filepath.Join(dir, "a", fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.settled("a/0") {
		t.Error("settled before any flush")
	}
	if err := MakeDirs(f, "a/3"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a", "later"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": true, "a/0": true, "a/3": true, "a/4": true, "a/later": false, "a/0/x": false} {
		if got := f.settled(name); got != want {
			t.Errorf("%s: settled %t, want %t", name, got, want)
		}
	}
}
