package cas_test

import (
	"context"
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
