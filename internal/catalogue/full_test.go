package catalogue_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

// TestFullDisk fills a file system of its own, then makes it read-only: what was
// published is found all the same, and changes are refused.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", dir).Run(); err != nil {
		t.Skipf("no file system of a given size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	path := filepath.Join(dir, "catalogue.db")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, c, artifact(1))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 64 << 10; n >= 1; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(how string) {
		t.Helper()
		c, err := catalogue.OpenSQLite(path)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		defer c.Close()
		if a, err := c.Artifact(t.Context(), artifact(1).ArtifactID); err != nil || a.ManifestID != artifact(1).ManifestID {
			t.Errorf("%s: Artifact = %v, %v", how, a, err)
		}
		err = c.Publish(t.Context(), artifact(2))
		if !errors.Is(err, catalogue.ErrReadOnly) {
			t.Errorf("%s: Publish error = %v, want ErrReadOnly", how, err)
		}
		if err := c.Delete(t.Context(), artifact(1).ArtifactID, "", time.Now()); !errors.Is(err, catalogue.ErrReadOnly) {
			t.Errorf("%s: Delete error = %v, want ErrReadOnly", how, err)
		}
	}
	check("full")
	if err := exec.Command("mount", "-o", "remount,ro", dir).Run(); err != nil {
		t.Fatal(err)
	}
	check("full and read-only")
}
