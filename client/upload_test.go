package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"leafproof/client"
	"leafproof/internal/httpapi"
	"leafproof/merkle"
)

// cutting ends a body with an error after so many bytes.
type cutting struct {
	r io.ReadCloser
	n int64
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.n <= 0 {
		return 0, errors.New("the connection broke")
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.n)])
	c.n -= int64(n)
	return n, err
}

func (c *cutting) Close() error { return c.r.Close() }

// An upload goes on where it was, also in another process, and also when the answer to
// its end was lost.
func TestUpload(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(3_000_001)
	for name, test := range map[string]struct {
		cuts int32 // how many requests break after a million bytes
		lost bool  // the answer to the last is lost
	}{
		"at once":               {},
		"in three parts":        {cuts: 2},
		"with its answer lost":  {lost: true},
		"in parts, answer lost": {cuts: 1, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			var patches, lost atomic.Int32
			base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != "PATCH" {
					next.ServeHTTP(rw, r)
					return
				}
				if patches.Add(1) <= test.cuts {
					r.Body = &cutting{r.Body, 1_000_000}
					next.ServeHTTP(rw, r)
					panic(http.ErrAbortHandler)
				}
				if test.lost && lost.Add(1) == 1 {
					_ = tapped(next, r)
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(rw, r)
			})
			var o client.UploadOptions
			o.Facts.ArtifactRef.ToolCallID = new("c")
			o.Begun = func(id string) {
				if !strings.HasPrefix(id, "up_") {
					t.Errorf("begun as %q", id)
				}
			}
			a, err := w.dial(base, client.Options{Token: w.alice, Policy: w.policy}).Upload(t.Context(), bytes.NewReader(data), o)
			if err != nil {
				t.Fatal(err)
			}
			if a.Root() != merkle.Sum(data) || *a.Ref.ToolCallID != "c" {
				t.Errorf("%+v", a.Ref)
			}
			want := test.cuts + 1
			if n := patches.Load(); n != want {
				t.Errorf("sent in %d requests, want %d", n, want)
			}
		})
	}
}

func TestUploadLater(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(2_500_000)
	base := w.through(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == "PATCH" {
			r.Body = &cutting{r.Body, 1_000_000}
			next.ServeHTTP(rw, r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
	var o client.UploadOptions
	o.Begun = func(id string) { o.ID = id }
	if _, err := w.dial(base, client.Options{Token: w.alice, Retries: -1}).Upload(t.Context(), bytes.NewReader(data), o); code(err) != client.CodeUnreachable {
		t.Fatalf("the first try: %v", err)
	}
	if o.ID == "" {
		t.Fatal("nothing was begun")
	}
	c := w.client(w.alice)
	for range 2 { // the second finds it done
		a, err := c.Upload(t.Context(), bytes.NewReader(data), o)
		if err != nil || a.Root() != merkle.Sum(data) {
			t.Fatal(err)
		}
	}
	// Other bytes under the same id are found out.
	if _, err := c.Upload(t.Context(), bytes.NewReader(noise(2_500_001)[1:]), o); !errors.Is(err, client.ErrMismatch) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := c.Upload(t.Context(), bytes.NewReader(data[:10]), client.UploadOptions{ID: "up_" + strings.Repeat("a", 26)}); code(err) != "ref_not_found" {
		t.Errorf("one that never was: %v", err)
	}
	if err := c.Drop(t.Context(), "nothing"); err == nil {
		t.Error("nothing was dropped")
	}
}
