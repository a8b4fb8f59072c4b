package cas_test

import (
	"context"
	"io"
	"testing"

	"leafproof/cas/disk"
)

type ctx = context.Context

func onDiskBackend(t testing.TB) *disk.Backend {
	t.Helper()
	b, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

type ioReader = io.Reader

func noContext() ctx { return context.Background() }

func diskAt(t testing.TB, dir string) *disk.Backend {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}
