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

func diskAt(t testing.TB, dir string) *disk.Backend {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// contextThatEnds returns a context and what ends it.
func contextThatEnds(t *testing.T) (ctx, func()) { return context.WithCancel(t.Context()) }

// onRead is an empty reader that calls f when it is read.
func onRead(f func()) io.Reader { return callingReader(f) }

type callingReader func()

func (f callingReader) Read([]byte) (int, error) { f(); return 0, io.EOF }
