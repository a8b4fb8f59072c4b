package outfile_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/internal/outfile"
)

var errStop = errors.New("stop")

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("old", link); err != nil {
		t.Fatal(err)
	}
	hello := func(w io.Writer) error {
		_, err := w.Write([]byte("hello"))
		return err
	}
	fails := func(w io.Writer) error {
		w.Write([]byte("half"))
		return errStop
	}
	if err := outfile.Write(link, nil, fails); !errors.Is(err, errStop) {
		t.Errorf("error = %v, want the writer's own", err)
	}
	if b, _ := os.ReadFile(old); string(b) != "old" {
		t.Errorf("a failed write left %q", b)
	}
	if err := outfile.Write(link, nil, hello); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(link)
	if err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", fi, err)
	}
	if fi, err := os.Stat(old); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("a file of mode 0600 became %v, %v", fi.Mode(), err)
	}
	if b, _ := os.ReadFile(old); string(b) != "hello" {
		t.Errorf("the file has %q", b)
	}
	var out bytes.Buffer
	if err := outfile.Write("-", &out, hello); err != nil || out.String() != "hello" {
		t.Errorf("standard output got %q, %v", out.String(), err)
	}
	if err := outfile.Write(os.DevNull, nil, hello); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(os.DevNull); err != nil || fi.Mode().IsRegular() {
		t.Fatalf("%s became %v, %v", os.DevNull, fi, err)
	}
	if err := outfile.Write(dir, nil, hello); err == nil {
		t.Error("a folder was written to")
	}
	nowhere := filepath.Join(dir, "nowhere", "file")
	if err := outfile.Write(nowhere, nil, hello); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), nowhere) || strings.Contains(err.Error(), ".leafproof-") {
		t.Errorf("error = %v, want it to name %s", err, nowhere)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
