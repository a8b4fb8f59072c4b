package leafproof_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"leafproof"
	"leafproof/merkle"
)

// Content gives ranges in any order, to several at once, and nothing once the
// artifact is deleted, though its bytes are still open.
func TestContent(t *testing.T) {
	s, _ := newStore(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	id := put(t, s, data, leafproof.PutOptions{Records: "none", SHA256: true}, leafproof.Facts{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				c, err := s.Content(t.Context(), leafproof.Owner, id)
				if err != nil {
					t.Error(err)
					return
				}
				from := int64((i*31 + j*977) * 1013 % len(data))
				to := min(from+int64(j*50_000), int64(len(data)))
				var out bytes.Buffer
				begun := 0
				err = c.Write(t.Context(), merkle.Range{Start: from, End: to}, &out, func() { begun++ })
				if err != nil || !bytes.Equal(out.Bytes(), data[from:to]) || begun != 1 {
					t.Errorf("%d:%d: %d bytes, begun %d times, %v", from, to, out.Len(), begun, err)
				}
				if c.Root() != merkle.Sum(data) || c.SHA256() == "" || !c.Whole() || c.Size() != int64(len(data)) {
					t.Error("it says something else of itself")
				}
				c.Close()
				c.Close()
			}
		})
	}
	wg.Wait()
	c, err := s.Content(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []merkle.Range{{Start: -1, End: 1}, {Start: 2, End: 1}, {Start: 0, End: int64(len(data)) + 1}} {
		if err := c.Write(t.Context(), r, &bytes.Buffer{}, nil); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%v: %v", r, err)
		}
	}
	c.Close()
	if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Content(t.Context(), leafproof.Owner, id); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
		t.Errorf("after its deletion: %v", err)
	}
}

// Bytes that were damaged while they lay open are not given out, and those that were
// put again are.
func TestContentDamaged(t *testing.T) {
	s, dir := newStore(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	o := leafproof.PutOptions{Records: "none", Place: "whole"}
	id := put(t, s, data, o, leafproof.Facts{})
	read := func() (string, error) {
		c, err := s.Content(t.Context(), leafproof.Owner, id)
		if err != nil {
			return "", err
		}
		defer c.Close()
		var out bytes.Buffer
		err = c.Write(t.Context(), merkle.Range{Start: 0, End: c.Size()}, &out, nil)
		return out.String(), err
	}
	if got, err := read(); err != nil || got != string(data) {
		t.Fatal(err)
	}
	blobs, _ := filepath.Glob(filepath.Join(dir, "objects", "*", "blob", "*", "*"))
	if len(blobs) != 1 {
		t.Fatalf("%q", blobs)
	}
	if err := os.Chmod(blobs[0], 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(blobs[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("X"), 700_000)
	f.Close()
	got, err := read()
	if leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed || len(got) > 700_000 || got != string(data[:len(got)]) {
		t.Errorf("damaged: %d bytes, %v", len(got), err)
	}
	put(t, s, data, o, leafproof.Facts{})
	if got, err := read(); err != nil || got != string(data) {
		t.Errorf("put again: %d bytes, %v", len(got), err)
	}
}

// What was read and queried a moment ago is not answered from what was kept of it when
// its objects were damaged since.
func TestDamagedAfterUse(t *testing.T) {
	for _, rows := range []int{1, 200, 9000} {
		s, dir := newStore(t)
		data := []byte(strings.Repeat(`{"status":"open","n":"12345678901234567890"}`+"\n", rows))
		id := put(t, s, data, leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
		q := leafproof.Query{Where: "@.status == 'open'"}
		query := func() (int, error) {
			n := 0
			_, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { n++; return nil })
			return n, err
		}
		whole := func() (int64, error) {
			c, err := s.Content(t.Context(), leafproof.Owner, id)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			var out bytes.Buffer
			err = c.Write(t.Context(), merkle.Range{Start: 0, End: c.Size()}, &out, nil)
			if !bytes.HasPrefix(data, out.Bytes()) {
				t.Errorf("%d rows: a read gave other bytes", rows)
			}
			return int64(out.Len()), err
		}
		if n, err := query(); n != rows || err != nil {
			t.Fatal(n, err)
		}
		if n, err := whole(); n != int64(len(data)) || err != nil {
			t.Fatal(n, err)
		}
		for kind, files := range objectFiles(t, dir) {
			for _, f := range files {
				if kind != "index" {
					os.Chmod(f, 0o600)
					damage(t, f, func(b []byte) []byte {
						for i := min(40, len(b)); i < len(b)-200; i++ {
							b[i] ^= 0x55
						}
						return b
					})
				}
			}
		}
		if n, err := query(); n != 0 || leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
			t.Errorf("%d rows: a query gave %d and %v", rows, n, err)
		}
		if n, err := whole(); n == int64(len(data)) || leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
			t.Errorf("%d rows: a read gave %d bytes and %v", rows, n, err)
		}
	}
}

// A token stops serving at once when its principal is removed, though it was
// remembered, and in another process too.
func TestAuthenticateRemembers(t *testing.T) {
	s, dir := newStore(t)
	other := openStore(t, dir)
	token, err := s.AddPrincipal(t.Context(), leafproof.Owner, "alice", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []*leafproof.Store{s, other, s, other} {
		if info, err := st.Authenticate(t.Context(), token); err != nil || info.Tenant != "acme" {
			t.Fatal(info, err)
		}
	}
	if err := s.RemovePrincipal(t.Context(), leafproof.Owner, "alice"); err != nil {
		t.Fatal(err)
	}
	for i, st := range []*leafproof.Store{s, other} {
		if info, err := st.Authenticate(t.Context(), token); err != leafproof.ErrToken {
			t.Errorf("store %d: %+v, %v", i, info, err)
		}
	}
}
