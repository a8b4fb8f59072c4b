package client_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"leafproof/client"
	"leafproof/internal/httpapi"
)

// lateLen is a reader that, asked for its length, lets whoever reads ahead go first.
type lateLen struct {
	*bytes.Reader
	read chan struct{}
}

func (r *lateLen) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF { //nolint:errorlint // a reader's end is that value
		close(r.read)
	}
	return n, err
}

func (r *lateLen) Len() int {
	select {
	case <-r.read:
	case <-time.After(50 * time.Millisecond):
	}
	return r.Reader.Len()
}

// TestPutLength puts a reader that knows its length: it is asked before it is read.
func TestPutLength(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(5000)
	a, err := w.client(w.alice).Put(t.Context(), &lateLen{bytes.NewReader(data), make(chan struct{})}, client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Size() != int64(len(data)) {
		t.Errorf("%d bytes of %d are there", a.Size(), len(data))
	}
}
