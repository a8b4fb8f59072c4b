package cas_test

import (
	"bytes"
	"errors"
	"testing"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// FuzzUploadMark gives the mark of an upload other bytes: none but a mark is read
// as one, and whatever stands there, the upload begins anew or goes on, and ends in
// the sender's bytes.
func FuzzUploadMark(f *testing.F) {
	data := random(1, 20_000)
	good := cas.UploadMark(7, 10_000, false, merkle.Sum(data[:10_000]))
	f.Add([]byte(nil), false)
	f.Add(good, false)
	f.Add(good[:len(good)-1], false)
	f.Add(cas.UploadMark(0, 10_000, false, merkle.Sum(data)), true)
	f.Add(cas.UploadMark(7, -1, false, merkle.Sum(data)), true)
	f.Add(cas.UploadMark(7, 1<<62, true, merkle.Sum(nil)), true)
	f.Fuzz(func(t *testing.T, p []byte, sealed bool) {
		if sealed && len(p) >= 64 { // or no input ever has the digest
			n := len(p) - 32
			sum := merkle.Sum(p[:n])
			p = append(bytes.Clone(p[:n]), sum[:]...)
		}
		switch again, err := cas.ParseUploadMark(p); {
		case err != nil && !errors.Is(err, cas.ErrCorrupt):
			t.Fatalf("error %v, want ErrCorrupt", err)
		case err == nil && !bytes.Equal(again, p):
			t.Fatalf("%x is read as %x", p, again)
		}
		s := cas.New(disk.New(crashfs.New()), cas.Options{})
		u, err := s.Upload(t.Context(), tenant, "x")
		if err == nil {
			err = errors.Join(u.Append(t.Context(), 0, bytes.NewReader(data[:10_000])), u.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetUploadMark(t.Context(), tenant, "x", p); err != nil {
			t.Fatal(err)
		}
		if u, err = s.Upload(t.Context(), tenant, "x"); err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		if err := u.Fill(t.Context(), bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if u.Root() != merkle.Sum(data) {
			t.Fatal("it ends in other bytes")
		}
	})
}
